/*
 * agent.c - see agent.h. The life of a job: attempts (attempt.c), one after the other, until one
 * succeeds, the restarts are used up or a signal comes; then the output is written out and the job
 * is over. Called by tools/trirun/trirun.c; the loop that it runs calls everything else of this
 * room.
 */
#include "launch/agent_hosts.h"
#include "launch/agent_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "launch/os/descendants.h"
#include "launch/os/pipe.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/signal.h"

/* A job that is over sooner needs no guard: starting one costs as much as starting a worker. */
#define GUARD_DELAY_MS 20
/* For the last output of a job that a signal ended. */
#define FLUSH_MS INT64_C(500)
/* Files in the background that make no progress for so long are given up. */
#define FILES_MS INT64_C(5000)

static void guard_due(trii_timer *timer)
{
    trii_agent *a = TRII_CONTAINER(timer, trii_agent, guard_start);

    if (trii_guard_start(&a->guard, &a->folder, &a->cgroup) != TRI_OK)
        TRII_SAY(a, "cannot start the guard process: %s\n", tri_last_error());
}

/* --- the beginning -------------------------------------------------------- */

static void make_run_id(trii_agent *a)
{
    if (a->options->run_id != NULL)
        snprintf(a->run_id, sizeof(a->run_id), "%s", a->options->run_id);
    else
        snprintf(a->run_id, sizeof(a->run_id), "%s", strrchr(a->folder.path, '/') + 1);
}

static void job_hung(void *agent)
{
    trii_agent *a = (trii_agent *)agent;
    char reason[128];

    if (a->state != TRII_AGENT_RUNNING)
        return;
    a->verdict = TRII_VERDICT_HUNG;
    snprintf(
        reason, sizeof(reason),
        "trirun ended the job: for %g s no rank began a call and none printed (--hang-timeout)",
        (double)a->options->hang_timeout_ms / 1000);
    trii_run_folder_note_stop(&a->folder, trii_now_ns(), reason);
    if (a->callbacks != NULL)
        a->callbacks->job_hung(a);
    trii_shutdown_begin(a, SIGTERM);
}

static int64_t last_progress(void *agent, int64_t own_ns)
{
    trii_agent *a = (trii_agent *)agent;

    return a->callbacks != NULL ? a->callbacks->progressed(a, own_ns) : own_ns;
}

static tri_status open_binding(trii_agent *a)
{
    trii_cpu_set allowed;
    tri_status status;

    if (a->options->numa_binding == NULL)
        return TRI_OK;
    trii_cpu_allowed(&allowed);
    status = trii_binding_open(&a->binding, a->options->numa_binding, "/sys", &allowed);
    if (status == TRI_OK && a->binding.n_groups == 1 &&
        strcmp(a->options->numa_binding, "exclusive") != 0)
        TRII_SAY(a, "--numa-binding: this host has only one %s\n", a->options->numa_binding);
    return status;
}

/* A job without a control group is as good, but for what hides from its agent and outlives it. */
static tri_status open_cgroup(trii_agent *a)
{
    char own[TRII_CGROUP_BYTES];
    int64_t wanted;
    tri_status status = trii_param_i64(TRII_PARAM_CGROUP, 1, &wanted);

    if (status != TRI_OK || wanted == 0)
        return status;
    status = trii_cgroup_own("", own);
    if (status == TRI_OK)
        status = trii_cgroup_create(own, &a->cgroup);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_DEBUG, "launch", "no control group: %s", tri_last_error());
    return TRI_OK;
}

static tri_status open_monitor(trii_agent *a)
{
    const trii_monitor_setup setup = {.options = a->options,
                                      .loop = a->loop,
                                      .sink = a->outputs.err_sink,
                                      .files = a->outputs.files,
                                      .run_id = a->run_id,
                                      .run_dir = a->folder.path,
                                      .hung = job_hung,
                                      .last_progress = last_progress,
                                      .agent = a};

    return trii_monitor_open(&a->monitor, &setup);
}

static tri_status open_agent(trii_agent *a)
{
    tri_status status = trii_loop_create(&a->loop);

    a->workers = trii_alloc((size_t)a->options->nproc, sizeof(*a->workers), "workers");
    a->live = trii_alloc((size_t)a->options->nproc, sizeof(*a->live), "workers");
    if (status == TRI_OK && (a->workers == NULL || a->live == NULL))
        status = TRI_ERR_NO_MEMORY;
    if (status != TRI_OK)
        return status;
    a->n_workers = a->options->nproc;
    status = trii_outputs_init(&a->outputs, a->loop, a->options);
    if (status != TRI_OK)
        return status;
    status = trii_agent_signals_open(a);
    if (status == TRI_OK)
        status = open_binding(a);
    if (status == TRI_OK)
        status = trii_run_folder_create(&a->folder);
    if (status == TRI_OK && a->folder.lock_fd < 0)
        TRII_SAY(a,
                 "no locks in %s: `trireme ps` will not know when this job is over, "
                 "and its folder stays if it fails\n",
                 a->folder.parent);
    if (status == TRI_OK)
        make_run_id(a);
    if (status == TRI_OK)
        status = open_cgroup(a);
    if (status == TRI_OK)
        status = trii_outputs_prepare(&a->outputs, a->run_id, a->folder.path);
    if (status == TRI_OK)
        status = open_monitor(a);
    trii_process_adopt_orphans();
    /* With several hosts there will be threads with locks, and it is a copy of a process without.
     * The one that writes files holds none while it writes. */
    if (status == TRI_OK && a->options->max_nodes > 1)
        guard_due(&a->guard_start);
    else if (status == TRI_OK)
        trii_loop_timer(a->loop, &a->guard_start, trii_deadline_ms(GUARD_DELAY_MS), guard_due);
    return status;
}

/* --- attempts ------------------------------------------------------------- */

static void run_to_the_end(trii_agent *a)
{
    while (trii_agent_state_is_attempt(a->state))
        trii_loop_run_once(a->loop, TRII_NO_DEADLINE);
}

/* Ends what was started before the start of another failed, here and on other hosts. */
static void stop_partial_start(trii_agent *a)
{
    char why[TRII_ERR_BYTES];

    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (a->n_live > 0) {
        trii_shutdown_begin(a, SIGKILL);
        run_to_the_end(a);
    }
    if (a->hosts != NULL)
        trii_agent_hosts_cannot_start(a, why);
    trii_err_set("%s", why);
}

static bool may_start_again(const trii_agent *a)
{
    return a->cause != NULL && a->stop_signal == 0 && a->verdict == TRII_VERDICT_NONE &&
           a->restarts < a->options->max_restarts && !trii_attempt_lost_its_reader(a);
}

/* Whether another attempt follows. */
static bool conclude_attempt(trii_agent *a)
{
    bool more;

    if (a->hosts != NULL) {
        more = trii_agent_hosts_conclude(a);
        trii_monitor_ended(&a->monitor, a->cause, more);
        return more;
    }
    if (trii_attempt_has_survivors(a)) {
        trii_attempt_report(a, false);
        TRII_SAY(a, "the other workers have succeeded without it\n");
        a->verdict = TRII_VERDICT_SURVIVED;
        a->cause = NULL;
        trii_monitor_ended(&a->monitor, NULL, false);
        return false;
    }
    more = may_start_again(a);
    trii_attempt_report(a, more);
    trii_monitor_ended(&a->monitor, a->cause, more);
    a->restarts += more;
    return more;
}

static tri_status run_attempts(trii_agent *a)
{
    bool more = true;

    while (more) {
        tri_status status = a->hosts != NULL ? trii_agent_hosts_join(a) : TRI_OK;

        if (status != TRI_OK)
            return status == TRI_END ? TRI_OK : status;
        status = trii_attempt_start(a);
        if (status != TRI_OK) {
            stop_partial_start(a);
            return status;
        }
        run_to_the_end(a);
        more = conclude_attempt(a);
        trii_attempt_dispose(a);
    }
    return TRI_OK;
}

/* --- the end -------------------------------------------------------------- */

/* Writes out what is queued. A reader that does not read is waited for, as any program does,
 * until a signal comes; if one has come already, only a moment. */
static void flush_output(trii_agent *a)
{
    trii_agent_state_enter(&a->state, TRII_AGENT_FLUSHING);
    if (a->stop_signal != 0)
        trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(FLUSH_MS), trii_shutdown_grace_over);
    while (a->state == TRII_AGENT_FLUSHING &&
           !(trii_sink_is_empty(&a->outputs.out) && trii_sink_is_empty(&a->outputs.err)))
        trii_loop_run_once(a->loop, TRII_NO_DEADLINE);
}

/* Waits for the files that are written in the background, while they get on and no further signal
 * comes. Streams are closed. */
static void finish_files(trii_agent *a)
{
    int64_t deadline_ns = trii_deadline_ms(FILES_MS);
    size_t before = SIZE_MAX;

    if (a->state != TRII_AGENT_CLOSING)
        trii_agent_state_enter(&a->state, TRII_AGENT_CLOSING);
    while (a->state == TRII_AGENT_CLOSING && trii_now_ns() < deadline_ns) {
        size_t left = trii_background_left_in_all(a->outputs.files) +
                      trii_background_left_in_all(a->monitor.event_files);

        if (left == 0)
            break;
        if (left < before)
            deadline_ns = trii_deadline_ms(FILES_MS);
        before = left;
        trii_loop_run_once(a->loop, deadline_ns);
    }
    trii_monitor_destroy(&a->monitor);
}

static void close_agent(trii_agent *a)
{
    trii_agent_hosts_close(a);
    trii_attempt_dispose(a);
    if (a->loop != NULL)
        finish_files(a);
    trii_outputs_fini(&a->outputs);
    if (a->loop != NULL) {
        trii_loop_timer_stop(a->loop, &a->grace);
        trii_loop_timer_stop(a->loop, &a->guard_start);
        trii_preemption_stop(a);
    }
    trii_agent_signals_close(a);
    trii_binding_close(&a->binding);
    trii_free(a->workers);
    trii_free(a->live);
    trii_loop_destroy(a->loop);
}

/* Three for each worker are taken when it starts: without them no start makes sense. A fourth is
 * its connection to the store. */
static tri_status check_descriptors(int nproc)
{
    char what[48];

    snprintf(what, sizeof(what), "an agent of %d workers", nproc);
    (void)trii_descriptor_limit_raise(); /* pipes of workers, connections to their store */
    if (trii_descriptors_want(3 * nproc, what) == TRI_OK)
        return TRI_OK;
    return trii_descriptors_want(4 * nproc, what);
}

static bool has_failed(trii_verdict verdict)
{
    return verdict != TRII_VERDICT_NONE && verdict != TRII_VERDICT_SURVIVED;
}

tri_status trii_agent_run(const trii_launch_options *options, const trii_launch_command *command,
                          int *exit_out)
{
    trii_agent a = {.options = options,
                    .command = command,
                    .folder = {.lock_fd = -1},
                    .cgroup = TRII_CGROUP_NONE};
    char why[TRII_ERR_BYTES];
    tri_status status;

    trii_fd_fill_standard();
    status = check_descriptors(options->nproc);
    if (status != TRI_OK)
        return status;
    status = open_agent(&a);
    if (status == TRI_OK)
        status = trii_agent_hosts_open(&a);
    if (status == TRI_OK)
        status = run_attempts(&a);
    if (status == TRI_OK) {
        flush_output(&a);
        *exit_out = a.cause != NULL || a.stop_signal != 0 || has_failed(a.verdict);
    }
    snprintf(why, sizeof(why), "%s", tri_last_error());
    trii_monitor_close(&a.monitor, status == TRI_OK ? *exit_out : TRII_LAUNCH_FAILED);
    trii_guard_dismiss(&a.guard);
    trii_cgroup_remove(&a.cgroup);
    if ((a.cause != NULL && !trii_attempt_lost_its_reader(&a)) || a.workers_waited ||
        a.verdict == TRII_VERDICT_HUNG || a.verdict == TRII_VERDICT_SURVIVED)
        trii_run_folder_keep(&a.folder);
    else if (a.folder.path[0] != '\0')
        trii_run_folder_remove(&a.folder);
    close_agent(&a);
    return status == TRI_OK ? TRI_OK : TRII_FAIL(status, "%s", why);
}
