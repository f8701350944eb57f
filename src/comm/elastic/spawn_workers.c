/*
 * spawn_workers.c - tri_spawn (trireme/launch.h).
 *
 * A worker has a socket to its parent: the parent sends the store's address there, and reads there
 * how fn ended. The parent serves the store in its own loop while it waits, without a thread, so
 * that it may still be forked.
 */
#include <trireme/group.h>
#include <trireme/launch.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "base/nan_words.h"
#include "base/option.h"
#include "base/param.h"
#include "comm/elastic/spawned.h"
#include "os/branch.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/forked.h"
#include "os/limits.h"
#include "os/loop.h"
#include "os/secret.h"
#include "os/signal.h"
#include "os/stop_signal.h"
#include "os/unix.h"
#include "store/tcp_server.h"

#define GRACE_MS 5000
#define ASK_MS 250 /* whether a worker handles signals by now */
#define MAX_WORKERS 4096
/* "CALL RANK SIZE FD": by this a worker that runs the program again finds its call, and the socket
 * to its parent. */
#define VARIABLE "TRIREME_SPAWN"
/* How many calls of tri_spawn are above this process: fn may call it again, to a limit. */
#define DEPTH "TRIREME_SPAWN_DEPTH"
#define MAX_DEPTH 8
#define UNSEEN (-1) /* an exit code that the system kept for itself */
/* Of this process: the end of a worker's socket, its watch, its connections to the store. */
enum { FDS_OF_WORKER = 3, FDS_OF_STORE = 8 };

/* What a worker reports when it ends. */
typedef struct word {
    int64_t at_ns; /* when it failed; all processes of the host have the same clock */
    int32_t status;
    int32_t by_exit; /* fn has not returned: the process ends in the middle of it */
    char text[TRII_ERR_BYTES];
} word;

typedef struct worker {
    trii_watch watch;
    struct spawner *owner;
    trii_process process;
    int fd; /* our end of its socket */
    int rank;
    bool live;
    bool ended_itself; /* was ending, or had ended, when the first failure was seen */
    bool said;         /* its word has come */
    bool told;         /* that it is to stop */
    word last;
} worker;

typedef struct spawner {
    trii_loop *loop;
    trii_tcp_server *store;
    trii_timer grace, ask;
    trii_watch stop; /* a signal that tri_stop_watch records */
    int64_t grace_ms;
    worker *workers;
    int n, n_live;
    tri_status status; /* of the likeliest cause; TRI_OK = no worker has failed */
    int blame;
    int64_t at_ns; /* when it was reported; INT64_MAX = never */
    bool by_exit;  /* as that of a word */
    char text[TRII_ERR_BYTES];
} spawner;

static int n_calls; /* of tri_spawn in this process */
static bool is_worker;
/* In a worker: the socket to the parent, until it has said how it ended; what tells it from others,
 * and whose it is, since children have it. */
static int to_parent = -1, own_pid;
static uint64_t channel;

bool trii_spawned(void)
{
    return is_worker;
}

/* --- the worker ----------------------------------------------------------- */

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static int own_depth(void)
{
    const char *text = getenv(DEPTH);
    int64_t depth = 0;

    if (text != NULL && trii_parse_i64(text, DEPTH, 0, INT32_MAX - 1, &depth) != TRI_OK)
        depth = 0;
    return (int)depth;
}

static void set_environment(int rank, int size, int port)
{
    static const char *const ranks[] = {"RANK", "LOCAL_RANK", "ROLE_RANK"};
    static const char *const sizes[] = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"};
    const char *error_file = getenv("TORCHELASTIC_ERROR_FILE");
    char store[PATH_MAX + 32]; /* what is longer is no path, and no error file */

    for (int i = 0; i < 3; i++) {
        set_number(ranks[i], rank);
        set_number(sizes[i], size);
    }
    set_number("GROUP_RANK", 0);
    set_number("GROUP_WORLD_SIZE", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    unsetenv("TORCHELASTIC_RESTART_COUNT"); /* an outer launcher's */
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv(VARIABLE);
    snprintf(store, sizeof(store), "127.0.0.1 %d new %s", port,
             error_file != NULL ? error_file : "");
    setenv("TRI_AGENT_STORE", store, 1);
    set_number(DEPTH, own_depth() + 1);
}

/* The status that fn returned; a positive one becomes an error, and an error gets a line if it has
 * none. */
static tri_status judge_result(tri_status status, bool has_line, word *last)
{
    if (status > 0)
        snprintf(last->text, sizeof(last->text), "fn returned %s instead of TRI_OK or an error",
                 tri_status_name(status));
    else if (status < 0)
        snprintf(last->text, sizeof(last->text), "%s",
                 has_line ? tri_last_error() : "fn returned this status and no line");
    status = status > 0 ? TRI_ERR_STATE : status;
    last->status = (int32_t)status;
    last->at_ns = trii_now_ns();
    return status;
}

static void report(const word *last)
{
    if (!trii_channel_is(to_parent, channel) ||
        trii_unix_send(to_parent, last, sizeof(*last), -1, TRII_NO_DEADLINE) != TRI_OK)
        TRII_LOG(TRII_LOG_DEBUG, "spawn", "the parent does not hear how this worker ended");
    to_parent = -1;
}

/* fn called exit(), as TRI_TRY does: says when, and what went wrong before that. The parent sees
 * with which code. */
static void report_exit(void)
{
    word last = {.at_ns = trii_now_ns(), .status = TRI_ERR_PEER_LOST, .by_exit = 1};

    if (to_parent < 0 || trii_process_id() != own_pid)
        return;
    snprintf(last.text, sizeof(last.text), "%s", tri_last_error());
    report(&last);
}

static _Noreturn void run_worker(tri_status (*fn)(int rank, void *arg), void *arg, int rank,
                                 int size, int fd)
{
    int32_t port;
    unsigned n_lines;
    word last = {0};
    tri_status status;

    is_worker = true;
    channel = trii_channel_take(fd);
    if (channel == 0) {
        TRII_LOG(TRII_LOG_ERROR, "spawn",
                 "rank %d has lost its connection to the parent: main() has closed descriptor %d, "
                 "which it must leave open until it calls tri_spawn (or use TRI_SPAWN_COPY)",
                 rank, fd);
        trii_process_leave(127);
    }
    if (trii_unix_recv(fd, &port, sizeof(port), NULL, TRII_NO_DEADLINE) != TRI_OK)
        trii_process_leave(127); /* the parent is gone */
    set_environment(rank, size, port);
    trii_err_set("%s", ""); /* a copy has the parent's last line */
    n_lines = trii_err_lines();
    to_parent = fd;
    own_pid = trii_process_id();
    (void)atexit(report_exit); /* without it the line is missing */
    status = fn(rank, arg);
    status = judge_result(status, trii_err_lines() != n_lines, &last);
    /* Before the worker leaves the group: peers that fail because of that must not report first. */
    report(&last);
    if (tri_is_initialized())
        tri_finalize();
    fflush(NULL);
    trii_process_leave(status == TRI_OK ? 0 : 1);
}

/* Whether this process was started by a call of tri_spawn, and whether it was this call. */
static bool find_call(int call, int *rank_out, int *size_out, int *fd_out, bool *is_this_out)
{
    const char *text = getenv(VARIABLE);
    int number;

    if (text == NULL || sscanf(text, "%d %d %d %d", &number, rank_out, size_out, fd_out) != 4)
        return false;
    *is_this_out = number == call;
    return true;
}

/* --- the parent: workers end ---------------------------------------------- */

static void signal_all(spawner *s, int number)
{
    for (int i = 0; i < s->n; i++) {
        if (s->workers[i].live)
            trii_process_signal(&s->workers[i].process, number);
    }
}

static void grace_over(trii_timer *timer)
{
    signal_all(TRII_CONTAINER(timer, spawner, grace), SIGKILL);
}

/* Reads a worker's report if it has come; the worker may still be leaving its groups. */
static void hear(worker *w)
{
    char byte;

    if (!w->said && trii_unix_peek(w->fd, &byte, 1) > 0)
        w->said = trii_unix_recv(w->fd, &w->last, sizeof(w->last), NULL, trii_now_ns()) == TRI_OK;
    w->last.text[sizeof(w->last.text) - 1] = '\0';
}

/* What it reports happened before whatever ended it. */
static bool said_failure(const worker *w)
{
    return w->said && w->last.status != TRI_OK;
}

/* How likely this worker is the cause: 2 it was killed by a signal, 1 it failed by itself, 0 it
 * reports that a peer is gone, has ended the group or has sent a NaN. */
static int blame_of(const worker *w, const trii_process_exit *how)
{
    bool of_peer = w->last.status == TRI_ERR_PEER_LOST || w->last.status == TRI_ERR_ABORTED ||
                   strstr(w->last.text, TRII_NAN_RECEIVED) != NULL;

    if (said_failure(w))
        return of_peer && !w->last.by_exit ? 0 : 1;
    return how->signal != 0 ? 2 : 1;
}

static void keep_failure(spawner *s, const worker *w, const trii_process_exit *how)
{
    char code[24] = "";

    s->blame = blame_of(w, how);
    s->at_ns = said_failure(w) ? w->last.at_ns : INT64_MAX;
    s->by_exit = said_failure(w) && w->last.by_exit;
    s->status = TRI_ERR_PEER_LOST;
    if (said_failure(w) && w->last.by_exit) {
        if (how->signal == 0) /* else we ended it meanwhile */
            snprintf(code, sizeof(code), " with code %d", how->code);
        snprintf(s->text, sizeof(s->text), "rank %d exited%s%s%.*s", w->rank, code,
                 *w->last.text != '\0' ? "; its last error: " : "", (int)sizeof(s->text) - 64,
                 w->last.text);
    } else if (said_failure(w)) {
        s->status = (tri_status)w->last.status;
        snprintf(s->text, sizeof(s->text), "rank %d: %.*s", w->rank, (int)sizeof(s->text) - 24,
                 w->last.text);
    } else if (how->signal != 0) {
        snprintf(s->text, sizeof(s->text), "rank %d was killed by %s", w->rank,
                 trii_signal_name(how->signal));
    } else if (how->code == UNSEEN) {
        snprintf(s->text, sizeof(s->text),
                 "rank %d ended before fn did (how is not known: SIGCHLD is ignored here)",
                 w->rank);
    } else {
        snprintf(s->text, sizeof(s->text), "rank %d exited with code %d", w->rank, how->code);
    }
}

/* A death is seen only when it is complete. The kernel closes a process's files first, so that its
 * peers may have failed, and ended, before it: a worker that is ending by now, or has reported a
 * failure, failed by itself. */
static void stop_others(spawner *s)
{
    for (int i = 0; i < s->n; i++) {
        worker *w = &s->workers[i];

        if (!w->live)
            continue;
        hear(w);
        w->ended_itself = said_failure(w) || trii_process_is_ending(&w->process);
    }
    signal_all(s, SIGTERM);
    trii_loop_timer(s->loop, &s->grace, trii_deadline_ms(s->grace_ms), grace_over);
}

/* What a worker reports after one that only lost a peer, which it may have been: it ended the group
 * first and then had to clear up. */
static bool explains(const spawner *s, const worker *w, const trii_process_exit *how)
{
    return s->blame == 0 && said_failure(w) && !w->last.by_exit && blame_of(w, how) > 0;
}

/* Of two workers that failed by themselves the earlier one is the cause. But a worker may call
 * exit() because it lost a peer, which may be one that ended without a word. */
static bool is_likelier(const spawner *s, const worker *w, const trii_process_exit *how)
{
    int blame = blame_of(w, how);

    if (blame != s->blame)
        return blame > s->blame;
    if (!said_failure(w))
        return s->by_exit;
    return w->last.at_ns < s->at_ns && !(w->last.by_exit && s->at_ns == INT64_MAX);
}

static void note_failure(spawner *s, worker *w, const trii_process_exit *how)
{
    bool is_first = s->status == TRI_OK;

    hear(w);
    if (how->signal == 0 && (how->code == 0 || (w->said && w->last.status == TRI_OK)))
        return;
    if (is_first || explains(s, w, how) || (w->ended_itself && is_likelier(s, w, how)))
        keep_failure(s, w, how);
    if (is_first)
        stop_others(s);
}

/* Others may be waiting in tri_init for a worker that has ended without error and will not come. */
static void tell_end(spawner *s, int rank)
{
    char key[48];

    snprintf(key, sizeof(key), "trireme/0/ended/%d", rank);
    if (trii_tcp_server_tell(s->store, key, "ended with status 0") != TRI_OK ||
        trii_tcp_server_tell(s->store, "trireme/0/ended", "") != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "spawn", "%s", tri_last_error());
}

static void worker_ended(trii_watch *watch, unsigned events)
{
    worker *w = TRII_CONTAINER(watch, worker, watch);
    trii_process_exit how = {0};

    (void)events;
    trii_loop_unwatch(watch);
    if (trii_process_reap(&w->process, &how) != TRI_OK)
        how.code = UNSEEN; /* SIGCHLD is ignored, or somebody else waited for it */
    w->live = false;
    w->owner->n_live--;
    note_failure(w->owner, w, &how);
    if (w->owner->status == TRI_OK)
        tell_end(w->owner, w->rank);
}

/* --- the parent: workers start -------------------------------------------- */

/* Runs this program again. envp: our environment and the variable. */
static tri_status start_again(worker *w, int fd, int nothing_fd, int call)
{
    const char *const *ours = trii_process_environment();
    const char **argv, **envp;
    char variable[80], path[4096];
    size_t n = 0, used = 0;
    tri_status status = trii_process_own_file(path, sizeof(path));

    if (status == TRI_OK)
        status = trii_process_arguments(&argv);
    if (status != TRI_OK)
        return status;
    snprintf(variable, sizeof(variable), VARIABLE "=%d %d %d %d", call, w->rank, w->owner->n, fd);
    while (ours[n] != NULL)
        n++;
    envp = trii_alloc(n + 2, sizeof(*envp), "environment");
    if (envp == NULL) {
        trii_free(argv);
        return TRI_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        if (strncmp(ours[i], VARIABLE "=", sizeof(VARIABLE)) != 0)
            envp[used++] = ours[i];
    }
    envp[used++] = variable;
    envp[used] = NULL;
    status = trii_process_start(&(trii_process_spec){.path = path,
                                                     .argv = argv,
                                                     .envp = envp,
                                                     .in_fd = nothing_fd,
                                                     .out_fd = -1,
                                                     .err_fd = -1,
                                                     .keep_fd = fd},
                                &w->process);
    trii_free(envp);
    trii_free(argv);
    return status;
}

/* With an empty standard input. */
static tri_status start_anew(worker *w, int fd, int call)
{
    int nothing = trii_nothing_open();
    tri_status status;

    if (nothing < 0)
        return TRII_FAIL(TRI_ERR_IO, "/dev/null cannot be opened");
    status = start_again(w, fd, nothing, call);
    trii_fd_close(nothing);
    return status;
}

/* Returns in the parent, and in a copy with its end of the socket in *copy_fd_out, else -1. */
static tri_status start(spawner *s, worker *w, bool copy, int call, int *copy_fd_out)
{
    bool is_child = false;
    int theirs;
    tri_status status = trii_pair_open(&w->fd, &theirs);

    *copy_fd_out = -1;
    if (status != TRI_OK)
        return status;
    status = copy ? trii_process_branch(&w->process, &is_child) : start_anew(w, theirs, call);
    if (is_child) {
        *copy_fd_out = theirs;
        return TRI_OK;
    }
    trii_fd_close(theirs);
    if (status != TRI_OK)
        return status;
    w->live = true;
    s->n_live++;
    return TRI_OK;
}

static void ask_again(trii_timer *timer);

/* The workers lead groups of their own, which a terminal and a signal to ours do not reach. Copies
 * have the handlers that are installed here; others install theirs in their own time, or never. */
static void pass_on_stop(spawner *s)
{
    bool all = true;

    for (int i = 0; i < s->n; i++) {
        worker *w = &s->workers[i];

        if (w->live && !w->told)
            all &= w->told = trii_stop_signal_pass_on(w->process.pid);
    }
    if (!all)
        trii_loop_timer(s->loop, &s->ask, trii_deadline_ms(ASK_MS), ask_again);
}

static void ask_again(trii_timer *timer)
{
    pass_on_stop(TRII_CONTAINER(timer, spawner, ask));
}

static void stop_seen(trii_watch *watch, unsigned events)
{
    (void)events;
    trii_loop_unwatch(watch);
    pass_on_stop(TRII_CONTAINER(watch, spawner, stop));
}

static tri_status watch_stop(spawner *s)
{
    int64_t at_ns, told_ms;
    int fd = -1;
    tri_status status = trii_stop_signal_descriptor(&fd);

    if (status != TRI_OK)
        return status;
    if (trii_stop_signal_seen(&at_ns, &told_ms) == 0)
        return trii_loop_watch(s->loop, &s->stop, fd, TRII_READABLE, stop_seen);
    pass_on_stop(s);
    return TRI_OK;
}

/* Serves the store, and sends its address to all workers. */
static tri_status open_store(spawner *s)
{
    trii_job_key key = {0};
    trii_tcp_server_options options = {.host = "127.0.0.1", .key = &key, .key_optional = true};
    tri_status status = trii_loop_create(&s->loop);

    options.loop = s->loop;
    if (status == TRI_OK)
        status = trii_job_key_load(&key);
    if (status == TRI_OK)
        status = trii_tcp_server_create(&options, &s->store);
    trii_secret_wipe(&key, sizeof(key));
    for (int i = 0; i < s->n && status == TRI_OK; i++) {
        worker *w = &s->workers[i];
        int32_t port = trii_tcp_server_port(s->store);

        status = trii_loop_watch(s->loop, &w->watch, w->process.pidfd, TRII_READABLE, worker_ended);
        /* If the worker is gone already, its end is seen elsewhere. */
        if (status == TRI_OK &&
            trii_unix_send(w->fd, &port, sizeof(port), -1, trii_deadline_ms(1000)) != TRI_OK)
            port = 0;
    }
    return status == TRI_OK ? watch_stop(s) : status;
}

static void dispose(spawner *s)
{
    for (int i = 0; i < s->n; i++) {
        worker *w = &s->workers[i];

        if (w->live) { /* the start of another failed */
            trii_loop_unwatch(&w->watch);
            trii_process_signal(&w->process, SIGKILL);
            trii_process_wait(w->process.pid);
            trii_fd_close(w->process.pidfd);
        }
        trii_fd_close(w->fd);
    }
    if (s->loop != NULL) {
        trii_loop_timer_stop(s->loop, &s->grace);
        trii_loop_timer_stop(s->loop, &s->ask);
        trii_loop_unwatch(&s->stop);
    }
    trii_tcp_server_destroy(s->store);
    trii_loop_destroy(s->loop);
    trii_free(s->workers);
}

static double grace_of(const tri_spawn_options *opt)
{
    return opt != NULL ? trii_option(opt->grace_ms, GRACE_MS) : GRACE_MS;
}

static tri_status check(tri_status (*fn)(int rank, void *arg), int nprocs,
                        const tri_spawn_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_spawn_options, opt);

    if (status != TRI_OK)
        return status;
    if (tri_is_initialized())
        return TRII_FAIL(TRI_ERR_STATE,
                         "tri_spawn: this process has joined a world; call it before "
                         "tri_init, which belongs into fn");
    if (nprocs < 1 || nprocs > MAX_WORKERS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_spawn: nprocs is %d, not 1 to %d", nprocs,
                         MAX_WORKERS);
    if (fn == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_spawn: fn is NULL");
    if (own_depth() >= MAX_DEPTH)
        return TRII_FAIL(TRI_ERR_STATE,
                         "tri_spawn: called in a worker of a worker, %d deep: does fn call what "
                         "started it?",
                         MAX_DEPTH);
    if (opt != NULL && (opt->how > TRI_SPAWN_ANEW || !(grace_of(opt) >= 0 && grace_of(opt) < 1e15)))
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "tri_spawn: options how %d and grace_ms %g: a value of tri_spawn_how and at "
            "least 0 are allowed",
            (int)opt->how, grace_of(opt));
    return TRI_OK;
}

/* With too few the store would close connections, and their ranks would wait for the time-out. */
static tri_status check_descriptors(int nprocs)
{
    char what[48];

    snprintf(what, sizeof(what), "tri_spawn with %d workers", nprocs);
    return trii_descriptors_want(FDS_OF_WORKER * nprocs + FDS_OF_STORE, what);
}

/* Starts all workers; in a copy of this process it does not return. */
static tri_status start_all(spawner *s, bool copy, int call, tri_status (*fn)(int rank, void *arg),
                            void *arg)
{
    for (int i = 0; i < s->n; i++) {
        int copy_fd;
        tri_status status;

        s->workers[i].rank = i;
        s->workers[i].owner = s;
        status = start(s, &s->workers[i], copy, call, &copy_fd);
        if (copy_fd >= 0) {
            for (int j = 0; j <= i; j++) /* the parent's ends */
                trii_fd_close(s->workers[j].fd);
            run_worker(fn, arg, i, s->n, copy_fd);
        }
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "rank %d", i);
    }
    return TRI_OK;
}

/* A copy of a process that has computed could not compute. A worker has no choice: run again, it
 * would begin at main. Where threads cannot be counted (no /proc), programs cannot be started again
 * either. */
static bool is_copy(tri_spawn_how how)
{
    if (how != TRI_SPAWN_AUTO)
        return how == TRI_SPAWN_COPY;
    return trii_process_threads() <= 1 && (!trii_forked_watched() || own_depth() > 0);
}

tri_status tri_spawn(tri_status (*fn)(int rank, void *arg), void *arg, int nprocs,
                     const tri_spawn_options *opt)
{
    spawner s = {.n = nprocs};
    tri_spawn_how how = opt != NULL ? opt->how : TRI_SPAWN_AUTO;
    int call = n_calls++, rank, size, fd;
    bool is_this, copy = is_copy(how);
    tri_status status;

    if (find_call(call, &rank, &size, &fd, &is_this)) {
        if (is_this)
            run_worker(fn, arg, rank, size, fd);
        return TRI_OK;
    }
    status = check(fn, nprocs, opt);
    if (status == TRI_OK && !copy && own_depth() > 0)
        status = TRII_FAIL(TRI_ERR_STATE, "tri_spawn: a worker cannot start workers with "
                                          "TRI_SPAWN_ANEW: they would begin at main "
                                          "and not come here; use TRI_SPAWN_COPY");
    if (status == TRI_OK)
        status = check_descriptors(nprocs);
    if (status != TRI_OK)
        return status;
    s.grace_ms = (int64_t)grace_of(opt);
    s.workers = trii_alloc((size_t)nprocs, sizeof(*s.workers), "workers");
    if (s.workers == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < nprocs; i++)
        s.workers[i].fd = -1;
    fflush(NULL); /* or a copy would write it again */
    status = start_all(&s, copy, call, fn, arg);
    if (status == TRI_OK)
        status = open_store(&s);
    while (status == TRI_OK && s.n_live > 0)
        trii_loop_run_once(s.loop, TRII_NO_DEADLINE);
    if (status == TRI_OK && s.status != TRI_OK)
        status = TRII_FAIL(s.status, "%s", s.text);
    dispose(&s);
    return status;
}
