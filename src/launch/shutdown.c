/*
 * shutdown.c - how an attempt ends: the polite signal, its grace, SIGKILL, and the same for
 * whatever the workers left behind. Only events move it on.
 */
#include "launch/agent_internal.h"

#include "os/clock.h"
#include "os/signal.h"

/* What workers left behind gets at most so much grace. */
#define SWEEP_GRACE_MS INT64_C(5000)
/* A process that SIGKILL does not end is stuck in the kernel: give up, and say so. */
#define KILL_MS INT64_C(10000)

static void signal_workers(trii_agent *a, int number)
{
    for (int i = 0; i < a->n_workers; i++) {
        trii_worker *w = &a->workers[i];

        if (!w->live)
            continue;
        w->told = true;
        trii_process_signal(&w->process, number);
        if (number != SIGKILL)
            trii_process_continue(&w->process); /* a stopped one would not hear it */
    }
}

void trii_shutdown_grace_over(trii_timer *timer)
{
    trii_agent *a = TRII_CONTAINER(timer, trii_agent, grace);

    if (a->phase >= TRII_PHASE_ENDED) {
        a->phase = TRII_PHASE_OVER; /* asked to stop, and nobody takes our output */
        return;
    }
    if (a->killed) {
        a->gave_up = true;
        trii_shutdown_advance(a);
        return;
    }
    a->killed = true;
    if (a->phase == TRII_PHASE_STOP) {
        if (a->hurry)
            trii_sink_print(a->err_sink, "trirun: a second signal: killing %d worker%s\n",
                            a->n_live, a->n_live == 1 ? "" : "s");
        else
            trii_sink_print(a->err_sink, "trirun: %d worker%s did not end within %g s: killing\n",
                            a->n_live, a->n_live == 1 ? "" : "s",
                            (double)a->options->shutdown_timeout_ms / 1000);
        signal_workers(a, SIGKILL);
    } else {
        trii_process_signal_children(SIGKILL, a->guard.pid);
        trii_cgroup_kill(&a->cgroup);
    }
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(KILL_MS), trii_shutdown_grace_over);
}

void trii_shutdown_begin(trii_agent *a, int number)
{
    a->phase = TRII_PHASE_STOP;
    signal_workers(a, number);
    trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(a->options->shutdown_timeout_ms),
                    trii_shutdown_grace_over);
    trii_shutdown_advance(a);
}

void trii_shutdown_advance(trii_agent *a)
{
    if (a->phase <= TRII_PHASE_STOP && (a->n_live == 0 || a->gave_up)) {
        int n_left = trii_process_signal_children(SIGTERM, a->guard.pid);

        a->phase = TRII_PHASE_SWEEP;
        if (n_left > 0 && !a->gave_up) {
            int64_t grace_ms = a->options->shutdown_timeout_ms;

            a->killed = false;
            grace_ms = grace_ms < SWEEP_GRACE_MS ? grace_ms : SWEEP_GRACE_MS;
            trii_loop_timer(a->loop, &a->grace, trii_deadline_ms(grace_ms),
                            trii_shutdown_grace_over);
            return;
        }
        a->phase = TRII_PHASE_ENDED;
    }
    if (a->phase == TRII_PHASE_SWEEP) {
        /* Children of what ended came to us, and get the same. */
        int n_left = trii_process_signal_children(a->killed ? SIGKILL : SIGTERM, a->guard.pid);

        if (n_left > 0 && !a->gave_up)
            return;
        a->phase = TRII_PHASE_ENDED;
    }
    if (a->phase == TRII_PHASE_ENDED) {
        trii_loop_timer_stop(a->loop, &a->grace);
        /* No descendant of ours is left, so what is there came from elsewhere, or is a thread whose
         * process has ended. */
        if (!a->gave_up)
            trii_cgroup_clear(&a->cgroup);
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
            trii_sink_print(a->err_sink,
                            "trirun: its guard (pid %d) was killed: if trirun is killed too, what "
                            "the workers have started may go on\n",
                            pid);
    }
    if (a->phase == TRII_PHASE_SWEEP)
        trii_shutdown_advance(a);
}
