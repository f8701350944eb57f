/*
 * agent.c - see agent.h.
 *
 * Life of a job: RUN until a worker fails, a signal comes or all have ended; STOP while the
 * remaining workers get their polite signal, their grace and then SIGKILL; SWEEP while what the
 * workers left behind is ended in the same way; then the output is written out and the job is
 * over. Only events move it on, the loop never polls.
 */
#include "launch/agent.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "launch/environment.h"
#include "launch/devices.h"
#include "launch/guard.h"
#include "launch/run_folder.h"
#include "launch/worker.h"
#include "launch/worker_command.h"
#include "launch/worker_output.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/pipe.h"
#include "os/secret.h"
#include "os/signal.h"
#include "store/tcp_server.h"

#define MAX_SIGNALS 16
/* A job that is over sooner needs no guard: starting one costs as much as starting a worker. */
#define GUARD_DELAY_MS 20
/* What workers left behind gets at most so much grace. */
#define SWEEP_GRACE_MS INT64_C(5000)
/* A process that SIGKILL does not end is stuck in the kernel: give up, and say so. */
#define KILL_MS INT64_C(10000)
/* For the last words of a job that a signal ended. */
#define FLUSH_MS INT64_C(500)

typedef enum phase { PHASE_RUN, PHASE_STOP, PHASE_SWEEP, PHASE_FLUSH, PHASE_OVER } phase;

typedef struct agent {
    const trii_launch_options *options;
    trii_loop *loop;
    trii_run_folder folder;
    trii_guard guard;
    trii_launch_command command;
    trii_tcp_server *store;
    char run_id[64];
    trii_outputs outputs;
    trii_sink *err_sink; /* of outputs */
    trii_watch signals;
    trii_timer grace, guard_start;
    phase phase;
    bool killed;        /* SIGKILL was sent */
    bool gave_up;       /* ... and did not help */
    int stop_signal;    /* the user's signal that ends the job, or 0 */
    trii_worker *cause; /* who failed first, or NULL */
    trii_worker *workers;
    int n_workers, n_live;
    trii_process *live; /* room for n_workers */
} agent;

static void advance(agent *a);

/* --- ending workers --------------------------------------------------------------------- */

static void signal_workers(agent *a, int number)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_worker *w = &a->workers[i];

        if (!w->live)
            continue;
        w->told = true;
        trii_process_signal(&w->process, number);
        if (number != SIGKILL)
            trii_process_signal(&w->process, SIGCONT); /* a stopped one would not hear it */
    }
}

static void grace_over(trii_timer *timer)
{
    agent *a = TRII_CONTAINER(timer, agent, grace);

    if (a->phase == PHASE_FLUSH) {
        a->phase = PHASE_OVER; /* asked to stop, and nobody takes our output */
        return;
    }
    if (a->killed) {
        a->gave_up = true;
        advance(a);
        return;
    }
    a->killed = true;
    if (a->phase == PHASE_STOP) {
        trii_sink_print(a->err_sink, "trirun: %d worker%s did not end within %g s: killing\n",
                        a->n_live, a->n_live == 1 ? "" : "s",
                        (double)a->options->shutdown_timeout_ms / 1000);
        signal_workers(a, SIGKILL);
    } else {
        trii_process_signal_children(SIGKILL, a->guard.pid);
    }
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(KILL_MS), grace_over);
}

static void stop(agent *a, int number)
{
    a->phase = PHASE_STOP;
    signal_workers(a, number);
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(a->options->shutdown_timeout_ms),
                    grace_over);
    advance(a);
}

/* The next phase, if this one has nothing left to wait for. */
static void advance(agent *a)
{
    if (a->phase <= PHASE_STOP && (a->n_live == 0 || a->gave_up)) {
        int n_left = trii_process_signal_children(SIGTERM, a->guard.pid);

        a->phase = PHASE_SWEEP;
        if (n_left > 0 && !a->gave_up) {
            int64_t grace_ms = a->options->shutdown_timeout_ms;

            a->killed = false;
            grace_ms = grace_ms < SWEEP_GRACE_MS ? grace_ms : SWEEP_GRACE_MS;
            trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(grace_ms), grace_over);
            return;
        }
        a->phase = PHASE_FLUSH;
    }
    if (a->phase == PHASE_SWEEP) {
        /* Children of what ended came to us, and get the same. */
        int n_left = trii_process_signal_children(a->killed ? SIGKILL : SIGTERM, a->guard.pid);

        if (n_left > 0 && !a->gave_up)
            return;
        a->phase = PHASE_FLUSH;
    }
}

/* --- events ------------------------------------------------------------------------------- */

static void reap_orphans(agent *a)
{
    int n = 0;

    for (int i = 0; i < a->n_workers; i++) {
        if (a->workers[i].live)
            a->live[n++] = a->workers[i].process;
    }
    while (trii_process_reap_orphan(a->live, n) > 0)
        ;
    if (a->phase == PHASE_SWEEP)
        advance(a);
}

/* Deaths are seen in the order in which they are complete. A process can take long to end, and
 * its peers notice at once: who is ending at this moment may have begun before `worker`. */
static const trii_worker *find_suspects(agent *a)
{
    const trii_worker *first = NULL;

    for (int i = a->n_workers - 1; i >= 0; i--) {
        trii_worker *w = &a->workers[i];

        w->suspect = w->live && trii_process_is_ending(&w->process);
        if (w->suspect)
            first = w;
    }
    return first;
}

static void first_failure(agent *a, trii_worker *worker)
{
    const trii_worker *suspect = worker->exit.signal == 0 ? find_suspects(a) : NULL;
    char what[80], too[60] = "";

    a->cause = worker;
    trii_worker_describe(worker, what, sizeof(what));
    if (suspect != NULL)
        snprintf(too, sizeof(too), " while rank %d was ending", suspect->rank);
    if (a->n_live > 0)
        trii_sink_print(a->err_sink, "trirun: rank %d (pid %d) %s%s; stopping the other%s\n",
                        worker->rank, worker->process.pid, what, too, a->n_live == 1 ? "" : "s");
    stop(a, SIGTERM);
}

/* Once all have ended: the worker that failed first, or a suspect that is more to blame. */
static void settle_cause(agent *a)
{
    for (int i = 0; i < a->n_workers && a->cause != NULL; i++) {
        trii_worker *w = &a->workers[i];

        if (w->suspect && trii_worker_failed(w) &&
            trii_worker_blame(w) > trii_worker_blame(a->cause))
            a->cause = w;
    }
}

static void worker_ready(trii_watch *watch, unsigned events)
{
    trii_worker *worker = TRII_CONTAINER(watch, trii_worker, watch);
    agent *a = (agent *)worker->owner;
    tri_status status;

    (void)events;
    trii_loop_unwatch(watch); /* before the descriptor is closed */
    status = trii_process_reap(&worker->process, &worker->exit);
    if (status != TRI_OK) { /* cannot happen: a pidfd is readable at the end only */
        worker->exit = (trii_process_exit){.code = 1};
    }
    worker->live = false;
    worker->ended_wall_ns = trii_wall_ns();
    a->n_live--;
    trii_stream_drain(&worker->out);
    trii_stream_drain(&worker->err);
    if (trii_worker_failed(worker) && a->phase == PHASE_RUN)
        first_failure(a, worker);
    else
        advance(a);
}

static void resize(agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_terminal_resize(a->workers[i].out.fd, 1);
        trii_terminal_resize(a->workers[i].err.fd, 2);
    }
}

static void signal_ready(trii_watch *watch, unsigned events)
{
    agent *a = TRII_CONTAINER(watch, agent, signals);
    int number;

    (void)events;
    while ((number = trii_signal_next(watch->fd)) != 0) {
        if (number == SIGCHLD) {
            reap_orphans(a);
        } else if (number == SIGWINCH) {
            resize(a);
        } else if (a->phase == PHASE_RUN) {
            a->stop_signal = number;
            trii_sink_print(a->err_sink, "trirun: received %s: stopping %d worker%s\n",
                            trii_signal_name(number), a->n_live, a->n_live == 1 ? "" : "s");
            stop(a, number);
        } else if (a->stop_signal == 0 && a->phase < PHASE_FLUSH) {
            a->stop_signal = number; /* already stopping for another reason */
        } else {
            /* The second time means now. */
            trii_loop_timer(a->loop, &a->grace, trii_now_ns(), grace_over);
        }
    }
}

static void guard_due(trii_timer *timer)
{
    agent *a = TRII_CONTAINER(timer, agent, guard_start);

    if (trii_guard_start(&a->guard, &a->folder) != TRI_OK)
        trii_sink_print(a->err_sink, "trirun: no guard: %s\n", tri_last_error());
}

/* --- starting ----------------------------------------------------------------------------- */

static tri_status open_signals(agent *a)
{
    int numbers[MAX_SIGNALS] = {SIGCHLD, SIGWINCH}, n = 2, fd;
    const char *list = a->options->signals;
    tri_status status;

    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        char name[24];
        int number;

        snprintf(name, sizeof(name), "%.*s", (int)length, list);
        number = trii_signal_number(name);
        if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD ||
            number == SIGWINCH)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--signals-to-handle: cannot handle %s", name);
        /* nohup wants us to outlive the terminal. */
        if (n < MAX_SIGNALS && !(number == SIGHUP && trii_signal_is_ignored(SIGHUP)))
            numbers[n++] = number;
        list += length + (list[length] == ',');
    }
    trii_signal_ignore(SIGPIPE);
    status = trii_signal_open(numbers, n, &fd);
    if (status != TRI_OK)
        return status;
    status = trii_loop_watch(a->loop, &a->signals, fd, TRII_READABLE, signal_ready);
    if (status != TRI_OK)
        trii_fd_close(fd);
    return status;
}

static void make_run_id(agent *a)
{
    if (a->options->run_id != NULL)
        snprintf(a->run_id, sizeof(a->run_id), "%s", a->options->run_id);
    else
        snprintf(a->run_id, sizeof(a->run_id), "%s", strrchr(a->folder.path, '/') + 1);
}

static tri_status start_worker(agent *a, trii_worker *w, const trii_launch_job *job)
{
    trii_process_spec spec = {.path = a->command.path, .in_fd = -1, .out_fd = -1, .err_fd = -1};
    const char **argv = NULL, **envp = NULL;
    tri_status status = trii_launch_command_argv(&a->command, w->rank, &argv);

    if (status == TRI_OK)
        status = trii_launch_environment(job, w->rank, trii_process_environment(), &envp);
    if (status == TRI_OK)
        status = trii_outputs_open(&a->outputs, job, w->rank, &w->out, &w->err, &spec.out_fd,
                                   &spec.err_fd);
    spec.argv = argv;
    spec.envp = envp;
    if (status == TRI_OK)
        status = trii_process_start(&spec, &w->process);
    if (status == TRI_OK) {
        w->live = true;
        a->n_live++;
        status = trii_loop_watch(a->loop, &w->watch, w->process.pidfd, TRII_READABLE, worker_ready);
    }
    trii_fd_close(spec.out_fd);
    trii_fd_close(spec.err_fd);
    trii_free(argv);
    trii_free(envp);
    return status;
}

static tri_status start_workers(agent *a)
{
    const trii_launch_job job = {
        .local_size = a->n_workers,
        .world_size = a->n_workers,
        .group_size = 1,
        .role_size = a->n_workers,
        .use_agent_store = true,
        .error_dir = trii_log_folder_error_dir(&a->outputs.folder),
        .virtual_local_rank = a->options->virtual_local_rank,
        .master_addr = a->options->master_addr,
        .master_port = trii_tcp_server_port(a->store),
        .run_id = a->run_id,
        .run_dir = a->folder.path,
        .role = a->options->role,
        .signals = a->options->signals,
        .max_restarts = a->options->max_restarts,
        .cores = trii_launch_count_cores(),
    };

    for (int i = 0; i < a->n_workers; i++) {
        tri_status status;

        a->workers[i].rank = i;
        a->workers[i].owner = a;
        status = start_worker(a, &a->workers[i], &job);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "rank %d", i);
    }
    return TRI_OK;
}

/* The store of the job, in our own loop. A name that is not loopback is served everywhere, as
 * torchrun does: workers may resolve it to any of our addresses. */
static tri_status open_store(agent *a)
{
    const char *host = a->options->master_addr;
    bool loopback = trii_socket_is_loopback(host);
    trii_job_key key = {0};
    const trii_tcp_server_options server = {.host = loopback ? host : NULL,
                                            .port = a->options->master_port,
                                            .key = &key,
                                            .key_optional = loopback,
                                            .loop = a->loop};
    tri_status status = trii_job_key_load(&key);

    if (status == TRI_OK && a->options->require_key && !key.set)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "--require-key: TRI_JOB_KEY_FILE names no file with a key (head -c 32 "
                           "/dev/urandom | base64 >FILE; chmod 600 FILE)");
    if (status == TRI_OK)
        status = trii_tcp_server_create(&server, &a->store);
    trii_secret_wipe(&key, sizeof(key));
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "store of the job");
}

static tri_status prepare(agent *a)
{
    tri_status status = trii_loop_create(&a->loop);

    if (status != TRI_OK)
        return status;
    trii_outputs_init(&a->outputs, a->loop, a->options);
    a->err_sink = a->outputs.err_sink;
    status = open_signals(a);
    if (status == TRI_OK)
        status = open_store(a);
    if (status == TRI_OK)
        status = trii_run_folder_create(&a->folder);
    if (status == TRI_OK)
        make_run_id(a);
    if (status == TRI_OK)
        status = trii_outputs_prepare(&a->outputs, a->run_id, a->folder.path);
    if (status == TRI_OK)
        status = trii_outputs_attempt(&a->outputs, 0, a->n_workers);
    trii_process_adopt_orphans();
    return status;
}

/* --- the end ------------------------------------------------------------------------------ */

static void count_victims(const agent *a, int *stopped_out, int *failed_out)
{
    *stopped_out = *failed_out = 0;
    for (int i = 0; i < a->n_workers; i++) {
        const trii_worker *w = &a->workers[i];

        if (w == a->cause || !trii_worker_failed(w))
            continue;
        if (w->told && !w->suspect)
            (*stopped_out)++;
        else
            (*failed_out)++;
    }
}

static void report(agent *a)
{
    int stopped, failed;
    char words[80];

    for (int i = 0; i < a->n_workers; i++) {
        trii_stream_close(&a->workers[i].out);
        trii_stream_close(&a->workers[i].err);
        if (a->workers[i].live)
            trii_sink_print(a->err_sink, "trirun: rank %d (pid %d) does not die of SIGKILL\n",
                            a->workers[i].rank, a->workers[i].process.pid);
    }
    if (a->cause == NULL)
        return;
    settle_cause(a);
    count_victims(a, &stopped, &failed);
    trii_worker_describe(a->cause, words, sizeof(words));
    trii_run_folder_note(&a->folder, a->cause->rank, words);
    trii_worker_report(a->cause, a->options->program, a->err_sink);
    if (stopped + failed > 0)
        trii_sink_print(a->err_sink, "  victims  : %d stopped because of it, %d failed after it\n",
                        stopped, failed);
    trii_sink_print(a->err_sink, "  kept     : %s\n", a->folder.path);
}

/* Runs the loop until the phase is reached. */
static void run_until(agent *a, phase wanted)
{
    while (a->phase < wanted)
        trii_loop_run_once(a->loop, TRII_NO_DEADLINE);
}

/* Writes out what is queued. A reader that does not read is waited for, as any program does,
 * until a signal comes; if one has come already, only a moment. */
static void flush_output(agent *a)
{
    trii_loop_timer_stop(a->loop, &a->grace);
    if (a->stop_signal != 0)
        trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(FLUSH_MS), grace_over);
    while (a->phase == PHASE_FLUSH &&
           !(trii_sink_is_empty(&a->outputs.out) && trii_sink_is_empty(&a->outputs.err)))
        trii_loop_run_once(a->loop, TRII_NO_DEADLINE);
    a->phase = PHASE_OVER;
}

static void dispose(agent *a)
{
    int signal_fd = a->signals.loop != NULL ? a->signals.fd : -1;

    for (int i = 0; i < a->n_workers; i++) {
        trii_stream_close(&a->workers[i].out);
        trii_stream_close(&a->workers[i].err);
    }
    trii_free(a->workers);
    trii_free(a->live);
    trii_outputs_fini(&a->outputs);
    if (a->loop != NULL) {
        trii_loop_timer_stop(a->loop, &a->grace);
        trii_loop_timer_stop(a->loop, &a->guard_start);
    }
    trii_loop_unwatch(&a->signals);
    trii_fd_close(signal_fd);
    trii_tcp_server_destroy(a->store);
    trii_loop_destroy(a->loop);
}

/* Ends what was started before the start of another failed. */
static void abandon(agent *a)
{
    char why[TRII_ERR_BYTES];

    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (a->n_live > 0) {
        stop(a, SIGKILL);
        run_until(a, PHASE_FLUSH);
    }
    trii_err_set("%s", why);
}

tri_status trii_agent_run(const trii_launch_options *options, int *exit_out)
{
    agent a = {.options = options, .folder = {.lock_fd = -1}};
    tri_status status;

    trii_fd_fill_standard();
    if (options->max_nodes > 1 || options->max_restarts > 0 ||
        strncmp(options->rdzv_backend, "etcd", 4) == 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "several hosts, restarts and etcd are not there yet in this version");
    status = trii_launch_command_find(&a.command, options);
    if (status != TRI_OK)
        return status;
    a.workers = trii_alloc((size_t)options->nproc, sizeof(*a.workers), "workers");
    a.live = trii_alloc((size_t)options->nproc, sizeof(*a.live), "workers");
    if (a.workers == NULL || a.live == NULL) {
        trii_free(a.workers);
        trii_free(a.live);
        return TRI_ERR_NO_MEMORY;
    }
    a.n_workers = options->nproc;
    status = prepare(&a);
    if (status == TRI_OK)
        status = start_workers(&a);
    if (status == TRI_OK) {
        trii_loop_timer(a.loop, &a.guard_start, trii_deadline_ms(GUARD_DELAY_MS), guard_due);
        run_until(&a, PHASE_FLUSH);
        report(&a);
        flush_output(&a);
        *exit_out = a.cause != NULL || a.stop_signal != 0 || a.gave_up;
    } else {
        abandon(&a);
    }
    trii_guard_dismiss(&a.guard);
    if (a.cause != NULL)
        trii_run_folder_keep(&a.folder);
    else if (a.folder.lock_fd >= 0)
        trii_run_folder_remove(&a.folder);
    dispose(&a);
    return status;
}
