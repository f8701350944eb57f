/*
 * shutdown.c - how an attempt ends: a signal, the grace period, SIGKILL, and the same for whatever
 * the workers left behind. Only events of the loop move it on; the states are agent_state.h's.
 */
#include "launch/agent_internal.h"
#include "launch/os/descendants.h"

#include "os/clock.h"
#include "os/signal.h"

/* The longest grace period of processes that workers left behind. */
#define SWEEP_GRACE_MS INT64_C(5000)
/* A process that SIGKILL does not end is stuck in the kernel: give up, and say so. */
#define KILL_MS INT64_C(10000)

static void signal_workers(trii_agent *a, int number)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_worker *w = &a->workers[i];

        if (!w->live)
            continue;
        w->signalled = true;
        trii_process_signal(&w->process, number);
        if (number != SIGKILL)
            trii_process_continue(&w->process); /* a stopped one would not handle it */
    }
}

/* Nothing of the attempt is left, or nothing that could be ended. */
static void stop_attempt(trii_agent *a, bool all_ended)
{
    trii_agent_state_enter(&a->state, TRII_AGENT_STOPPED);
    trii_loop_timer_stop(a->loop, &a->grace);
    /* No descendant is left, so what is in the control group came from elsewhere, or is a
     * thread whose process has ended. */
    if (all_ended)
        trii_cgroup_clear(&a->cgroup);
}

/* No worker is left: now what they left behind is ended in the same way. */
static void begin_sweep(trii_agent *a, bool all_ended)
{
    int64_t grace_ms = a->options->shutdown_timeout_ms;

    trii_agent_state_enter(&a->state, TRII_AGENT_SWEEPING);
    if (!all_ended) {
        trii_process_signal_children(SIGTERM, a->guard.pid);
        stop_attempt(a, false);
        return;
    }
    grace_ms = grace_ms < SWEEP_GRACE_MS ? grace_ms : SWEEP_GRACE_MS;
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(grace_ms), trii_shutdown_grace_over);
    trii_shutdown_advance(a);
}

static void give_up(trii_agent *a)
{
    if (a->verdict == TRII_VERDICT_NONE)
        a->verdict = TRII_VERDICT_UNKILLABLE;
    if (a->state == TRII_AGENT_KILLING)
        begin_sweep(a, false);
    else
        stop_attempt(a, false);
}

static void kill_workers(trii_agent *a)
{
    const char *plural = a->n_live == 1 ? "" : "s";

    if (a->second_signal)
        TRII_SAY(a, "a second signal: killing %d worker%s\n", a->n_live, plural);
    else
        TRII_SAY(a, "%d worker%s did not end within %g s: killing\n", a->n_live, plural,
                 (double)a->options->shutdown_timeout_ms / 1000);
    signal_workers(a, SIGKILL);
    trii_agent_state_enter(&a->state, TRII_AGENT_KILLING);
}

static void kill_leftovers(trii_agent *a)
{
    trii_process_signal_children(SIGKILL, a->guard.pid);
    trii_cgroup_kill(&a->cgroup);
    trii_agent_state_enter(&a->state, TRII_AGENT_SWEEP_KILLING);
}

void trii_shutdown_grace_over(trii_timer *timer)
{
    trii_agent *a = TRII_CONTAINER(timer, trii_agent, grace);

    switch (a->state) {
    case TRII_AGENT_STOPPING:
        kill_workers(a);
        break;
    case TRII_AGENT_SWEEPING:
        kill_leftovers(a);
        break;
    case TRII_AGENT_KILLING:
    case TRII_AGENT_SWEEP_KILLING:
        give_up(a);
        return;
    case TRII_AGENT_FLUSHING: /* asked to stop, and the output has no reader */
        trii_agent_state_enter(&a->state, TRII_AGENT_CLOSING);
        return;
    case TRII_AGENT_CLOSING:
        trii_agent_state_enter(&a->state, TRII_AGENT_CLOSED);
        return;
    default: /* no process of the job runs: what waits looks at a->second_signal */
        return;
    }
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(KILL_MS), trii_shutdown_grace_over);
}

void trii_shutdown_begin(trii_agent *a, int number)
{
    trii_agent_state_enter(&a->state, TRII_AGENT_STOPPING);
    trii_hang_stop(&a->monitor.hang); /* the grace period decides */
    signal_workers(a, number);
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(a->options->shutdown_timeout_ms),
                    trii_shutdown_grace_over);
    trii_shutdown_advance(a);
}

void trii_shutdown_advance(trii_agent *a)
{
    switch (a->state) {
    case TRII_AGENT_RUNNING:
    case TRII_AGENT_STOPPING:
    case TRII_AGENT_KILLING:
        if (a->n_live == 0)
            begin_sweep(a, true);
        break;
    case TRII_AGENT_SWEEPING: /* children of what ended came to us, and get the same */
    case TRII_AGENT_SWEEP_KILLING:
        if (trii_process_signal_children(a->state == TRII_AGENT_SWEEPING ? SIGTERM : SIGKILL,
                                         a->guard.pid) == 0)
            stop_attempt(a, true);
        break;
    default:
        break;
    }
}

void trii_shutdown_reap(trii_agent *a)
{
    int n = 0, pid;

    for (int i = 0; i < a->n_workers; i++) {
        if (a->workers[i].live)
            a->live[n++] = a->workers[i].process;
    }
    while ((pid = trii_process_reap_orphan(a->live, n)) > 0) {
        if (trii_guard_reaped(&a->guard, pid))
            TRII_SAY(a,
                     "the guard process (pid %d) was killed: if trirun is killed too, processes "
                     "that the workers started may live on\n",
                     pid);
    }
    if (a->state == TRII_AGENT_SWEEPING || a->state == TRII_AGENT_SWEEP_KILLING)
        trii_shutdown_advance(a);
}
