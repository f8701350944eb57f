/*
 * attempt.c - one start of the workers: their streams and processes, which of them failed first,
 * and the report of it. Called by agent.c and agent_hosts.c; calls back through
 * trii_agent_callbacks.
 */
#include "launch/agent_internal.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/cli/devices.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/signal.h"

/* How long the others may run after the first victim, for the cause to end by itself. */
#define CAUSE_MS INT64_C(1000)

/* --- a worker ends -------------------------------------------------------- */

/* Deaths are seen in the order in which they are complete. A process can take long to end, and its
 * peers notice at once: one that is ending now may have begun to end before `worker`. Returns the
 * first of them by rank. */
static const trii_worker *mark_ending(trii_agent *a)
{
    const trii_worker *first = NULL;

    for (int i = a->n_workers - 1; i >= 0; i--) {
        trii_worker *w = &a->workers[i];

        w->was_ending = w->live && trii_process_is_ending(&w->process);
        if (w->was_ending)
            first = w;
    }
    return first;
}

bool trii_attempt_lost_its_reader(const trii_agent *a)
{
    return a->cause != NULL && a->cause->exit.signal == SIGPIPE && a->outputs.out.broken;
}

static void stop_others(trii_agent *a, const trii_worker *worker, trii_blame blame,
                        const trii_culprit *culprit)
{
    const trii_worker *ending = mark_ending(a);
    char what[80], too[80] = "";

    trii_worker_describe(worker, what, sizeof(what));
    if (culprit->rank >= 0 && culprit->rank != worker->rank)
        snprintf(too, sizeof(too), " after rank %d aborted the group", culprit->rank);
    else if (ending != NULL && worker->exit.signal == 0)
        snprintf(too, sizeof(too), " while rank %d was ending", ending->rank);
    if (a->n_live > 0 && !trii_attempt_lost_its_reader(a))
        TRII_SAY(a, "rank %d (pid %d) %s%s; stopping the other%s\n", worker->rank,
                 worker->process.pid, what, too, a->n_live == 1 ? "" : "s");
    if (a->callbacks != NULL && blame != TRII_BLAME_VICTIM &&
        (culprit->rank < 0 || culprit->rank == worker->rank))
        a->callbacks->worker_failed(
            a); /* else once it is known whether that rank is of this host */
    trii_shutdown_begin(a, SIGTERM);
}

static void cause_stays_away(trii_timer *timer);

/* Stops the others, unless the worker is a victim and its cause has to be awaited. */
static void judge_failure(trii_agent *a, trii_worker *worker, bool may_wait)
{
    trii_culprit culprit;
    trii_why_job records;
    trii_blame blame;
    bool is_first = a->cause == NULL, waits;

    (void)trii_why_read(a->folder.path, &records); /* there may be none */
    blame = trii_culprit_blame(&records, worker);
    waits = may_wait && a->n_live > 0 && trii_culprit_is_ahead(&records, worker);
    trii_culprit_find(&records, a->workers, a->n_workers, worker, &culprit);
    trii_why_free(&records);
    /* With --keep-survivors there may be an earlier one. */
    if (is_first || (blame != TRII_BLAME_VICTIM && !a->options->keep_survivors))
        a->cause = worker;
    trii_hang_stop(&a->monitor.hang); /* the attempt ends in any case, and may be repeated */
    if (!waits)
        stop_others(a, worker, blame, &culprit);
    else if (is_first)
        trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(CAUSE_MS), cause_stays_away);
}

static void cause_stays_away(trii_timer *timer)
{
    trii_agent *a = TRII_CONTAINER(timer, trii_agent, grace);

    assert(a->cause != NULL); /* its timer ends with the attempt */
    judge_failure(a, a->cause, false);
}

/* --keep-survivors. */
static void continue_without(trii_agent *a, trii_worker *worker)
{
    char what[80];

    if (a->cause == NULL)
        a->cause = worker;
    trii_worker_describe(worker, what, sizeof(what));
    TRII_SAY(a, "rank %d (pid %d) %s; %d other%s\n", worker->rank, worker->process.pid, what,
             a->n_live, a->n_live == 1 ? " continues" : "s continue");
}

bool trii_attempt_has_survivors(const trii_agent *a)
{
    int64_t failed_ns = 0, succeeded_ns = 0;

    if (!a->options->keep_survivors || a->cause == NULL || a->stop_signal != 0 ||
        a->verdict != TRII_VERDICT_NONE)
        return false;
    for (int i = 0; i < a->n_workers; i++) {
        const trii_worker *w = &a->workers[i];
        int64_t *last_ns = trii_worker_failed(w) ? &failed_ns : &succeeded_ns;

        *last_ns = *last_ns > w->ended_ns ? *last_ns : w->ended_ns;
    }
    return succeeded_ns > failed_ns;
}

static void reap_worker(trii_agent *a, trii_worker *worker, int64_t ended_ns)
{
    trii_loop_unwatch(&worker->watch); /* before the descriptor is closed */
    if (trii_process_reap(&worker->process, &worker->exit) != TRI_OK)
        worker->exit = (trii_process_exit){.code = 1}; /* cannot happen: it has ended */
    worker->live = false;
    worker->ended_ns = ended_ns;
    a->n_live--;
    trii_stream_drain(&worker->out);
    trii_stream_drain(&worker->err);
    trii_monitor_worker_ended(&a->monitor, worker);
}

/* The loop reports ends one by one, in their order. Workers that have also ended by now did so by
 * themselves: they are reaped before the others are stopped. */
static void reap_others(trii_agent *a, const trii_worker *first)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_worker *w = &a->workers[i];

        if (w->live && trii_process_has_ended(&w->process))
            reap_worker(a, w, first->ended_ns);
    }
}

static void worker_ready(trii_watch *watch, unsigned events)
{
    trii_worker *worker = TRII_CONTAINER(watch, trii_worker, watch);
    trii_agent *a = (trii_agent *)worker->owner;

    (void)events;
    reap_worker(a, worker, trii_now_ns());
    if (a->state == TRII_AGENT_RUNNING &&
        (!trii_worker_failed(worker) || a->options->keep_survivors) &&
        (a->n_live > 0 || a->hosts != NULL))
        trii_early_exit_publish(a->early, worker);
    if (trii_worker_failed(worker) && a->state == TRII_AGENT_RUNNING) {
        reap_others(a, worker);
        if (a->options->keep_survivors && a->n_live > 0)
            continue_without(a, worker);
        else
            judge_failure(a, worker, true);
    } else {
        trii_shutdown_advance(a);
    }
}

/* --- starting ------------------------------------------------------------- */

static tri_status start_worker(trii_agent *a, trii_worker *w, const trii_launch_job *job)
{
    trii_process_spec spec = {.path = a->command->path,
                              .in_fd = -1,
                              .out_fd = -1,
                              .err_fd = -1,
                              .only_standard = true}; /* as torchrun's */
    const char **argv = NULL, **envp = NULL;
    trii_cpu_set cores;
    tri_status status = trii_launch_command_argv(a->command, w->local_rank, &argv);

    if (status == TRI_OK)
        status = trii_launch_environment(job, w->local_rank, trii_process_environment(), &envp);
    if (status == TRI_OK)
        status = trii_outputs_open(&a->outputs, job, w->local_rank, &w->out, &w->err, &spec.out_fd,
                                   &spec.err_fd);
    if (a->binding.n_groups > 0) {
        trii_binding_of(&a->binding, w->local_rank, job->local_size, &cores);
        spec.cores = &cores;
    }
    spec.cgroup_fd = a->cgroup.fd >= 0 ? &a->cgroup.fd : NULL;
    spec.argv = argv;
    spec.envp = envp;
    if (status == TRI_OK)
        status = trii_process_start(&spec, &w->process);
    if (status == TRI_OK) {
        w->live = true;
        w->started_ns = trii_now_ns();
        w->wall_ahead_ns = trii_wall_ns() - w->started_ns;
        a->n_live++;
        status = trii_loop_watch(a->loop, &w->watch, w->process.pidfd, TRII_READABLE, worker_ready);
    }
    trii_fd_close(spec.out_fd);
    trii_fd_close(spec.err_fd);
    trii_free(argv);
    trii_free(envp);
    return status;
}

static tri_status start_workers(trii_agent *a)
{
    trii_launch_job job = {
        .options = a->options,
        .local_size = a->n_workers,
        .world_size = a->n_workers,
        .group_size = 1,
        .role_size = a->n_workers,
        .use_agent_store = true,
        .new_store = true,
        .error_dir = trii_log_folder_error_dir(&a->outputs.folder),
        .master_addr = a->options->master_addr,
        .run_id = a->run_id,
        .run_dir = a->folder.path,
        .restart_count = a->restarts,
        .cores = a->n_workers > 1 ? trii_launch_count_cores() : 1, /* one has them all */
    };
    tri_status status;

    if (a->callbacks != NULL) {
        a->callbacks->describe_round(a, &job);
        if (a->has_started)
            TRII_SAY(a, "restarting with %d host%s, %d worker%s in all\n", job.group_size,
                     job.group_size == 1 ? "" : "s", job.world_size,
                     job.world_size == 1 ? "" : "s");
        a->has_started = true;
    } else {
        job.master_port = trii_tcp_server_port(a->store);
    }
    status = trii_early_exit_create(&job, a->store, a->loop, &a->early);
    for (int i = 0; i < a->n_workers && status == TRI_OK; i++) {
        a->workers[i].rank = job.first_rank + i;
        a->workers[i].local_rank = i;
        a->workers[i].owner = a;
        status = start_worker(a, &a->workers[i], &job);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "rank %d", a->workers[i].rank);
    }
    if (status != TRI_OK)
        return status;
    trii_monitor_started(&a->monitor, &job, a->workers);
    return TRI_OK;
}

tri_status trii_attempt_start(trii_agent *a)
{
    tri_status status;

    memset(a->workers, 0, (size_t)a->n_workers * sizeof(*a->workers));
    trii_agent_state_enter(&a->state, TRII_AGENT_RUNNING);
    a->cause = NULL;
    a->failure = (trii_failure){0};
    a->n_live = 0;
    trii_run_folder_begin_attempt(&a->folder);
    trii_memory_kills_read(&a->kills);
    status = trii_outputs_attempt(&a->outputs, a->restarts, a->n_workers);
    if (status == TRI_OK && a->hosts == NULL)
        status = trii_job_store_open(a, a->options->master_addr, a->options->master_port);
    return status == TRI_OK ? start_workers(a) : status;
}

/* --- the report ----------------------------------------------------------- */

void trii_attempt_close_streams(trii_agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_stream_close(&a->workers[i].out);
        trii_stream_close(&a->workers[i].err);
        if (a->workers[i].live)
            TRII_SAY(a, "rank %d (pid %d) has survived SIGKILL: it is stuck in the kernel\n",
                     a->workers[i].rank, a->workers[i].process.pid);
    }
}

const trii_failure *trii_attempt_find_cause(trii_agent *a)
{
    if (a->failure.workers != NULL)
        return &a->failure;
    for (int i = 0; i < a->n_workers; i++) /* all that it said counts */
        trii_stream_close(&a->workers[i].err);
    a->failure = (trii_failure){.workers = a->workers,
                                .n_workers = a->n_workers,
                                .cause = a->cause,
                                .program = a->options->program,
                                .error_dir = trii_log_folder_error_dir(&a->outputs.folder),
                                .before = &a->kills,
                                .run_dir = a->folder.path};
    trii_failure_find_cause(&a->failure);
    a->cause = a->failure.cause;
    return &a->failure;
}

void trii_attempt_report(trii_agent *a, bool more)
{
    const trii_failure *failure;
    char what[120];

    trii_attempt_close_streams(a);
    if (a->cause == NULL) {
        trii_failure_report_leavers(a->workers, a->n_workers, a->outputs.err_sink);
        if (a->verdict == TRII_VERDICT_HUNG)
            trii_sink_print(a->outputs.err_sink, "  kept     : %s\n", a->folder.path);
        else if (a->workers_waited)
            TRII_SAY(a, "workers waited in a call; see for whom: trireme why %s\n", a->folder.path);
        return;
    }
    failure = trii_attempt_find_cause(a);
    if (trii_attempt_lost_its_reader(a)) {
        TRII_SAY(a, "the reader of stdout has ended, and so has the job\n");
        return;
    }
    trii_failure_describe(failure, what, sizeof(what));
    trii_run_folder_note(&a->folder, a->cause->rank, what);
    trii_failure_report(failure, a->outputs.err_sink);
    if (more)
        TRII_SAY(a, "restarting (restart %d of %d)\n", a->restarts + 1, a->options->max_restarts);
    else
        trii_sink_print(a->outputs.err_sink, "  kept     : %s\n", a->folder.path);
}

void trii_attempt_dispose(trii_agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_stream_close(&a->workers[i].out);
        trii_stream_close(&a->workers[i].err);
    }
    trii_early_exit_destroy(a->early);
    a->early = NULL;
    trii_job_store_close(a);
}
