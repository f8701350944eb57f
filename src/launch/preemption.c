/*
 * preemption.c - SIGUSR1 to the agent announces that this host will be taken away: the cluster's
 * notice before preemption. Workers that handle SIGUSR1 get it, with the time left; it would kill
 * one without a handler. The job continues: what to do about it is for the workers to decide.
 */
#include "launch/agent_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "launch/os/process_notify.h"
#include "os/clock.h"
#include "os/signal.h"

/* A worker may be starting, and install its handler soon. */
#define RETRY_MS INT64_C(1000)
#define RETRY_FOR_MS INT64_C(60000)
/* A Slurm job that ends later than this was not signalled because it ends: another job wants the
 * host before. */
#define SLURM_MAX_MS INT64_C(3600000)

enum { MAX_SHOWN = 8 };

/* Until SLURM_JOB_END_TIME (seconds since 1970); -1 = it is not set, or says nothing. */
static int64_t slurm_left_ms(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    char *end;
    long long seconds;
    int64_t left_ms;

    if (text == NULL || *text == '\0')
        return -1;
    seconds = strtoll(text, &end, 10);
    if (*end != '\0' || seconds < 0 || seconds > INT64_C(1) << 40)
        return -1;
    left_ms = (int64_t)seconds * 1000 - trii_wall_ns() / TRII_NS_PER_MS;
    return left_ms > 0 && left_ms <= SLURM_MAX_MS ? left_ms : -1;
}

/* -1: not known when. */
static int64_t left_ms(const trii_agent *a)
{
    int64_t left = a->preemption.deadline_ns - trii_now_ns();

    if (a->preemption.deadline_ns == TRII_NO_DEADLINE)
        return -1;
    return left > 0 ? left / TRII_NS_PER_MS : 0;
}

static void describe_left(int64_t ms, char *text, size_t bytes)
{
    if (ms >= 0)
        snprintf(text, bytes, ms < 10000 ? "in %.3g s" : "in %.0f s", (double)ms / 1000);
    else
        snprintf(text, bytes, "soon");
}

/* Those that have a handler and have not been notified; returns how many. */
static int notify_workers(trii_agent *a)
{
    int64_t left = left_ms(a);
    int value = left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : left < 1 ? 1 : (int)left;
    int *notified = trii_alloc((size_t)a->n_workers, sizeof(*notified), "workers");
    int n = 0;

    if (notified == NULL)
        return 0;
    for (int i = 0; i < a->n_workers; i++) {
        a->live[i] = a->workers[i].process;
        if (!a->workers[i].live || a->workers[i].notified)
            a->live[i].pidfd = -1;
    }
    trii_process_notify(a->live, a->n_workers, SIGUSR1, value, notified);
    for (int i = 0; i < a->n_workers; i++) {
        a->workers[i].notified = a->workers[i].notified || notified[i] > 0;
        n += notified[i] > 0;
    }
    trii_free(notified);
    return n;
}

static void warn_unhandled(trii_agent *a)
{
    int shown = 0, more = 0;

    for (int i = 0; i < a->n_workers; i++) {
        const trii_worker *w = &a->workers[i];

        if (!w->live || w->notified)
            continue;
        if (shown++ < MAX_SHOWN)
            TRII_SAY(a,
                     "rank %d (pid %d) was not notified: it has no handler for SIGUSR1, "
                     "which would kill it\n",
                     w->rank, w->process.pid);
        else
            more++;
    }
    if (more > 0)
        TRII_SAY(a, "%d more were not notified\n", more);
}

static void notify_again(trii_timer *timer)
{
    trii_agent *a = TRII_CONTAINER(timer, trii_agent, preemption.again);
    int64_t now_ns = trii_now_ns();
    int n = a->state == TRII_AGENT_RUNNING ? notify_workers(a) : 0;

    if (n > 0)
        TRII_SAY(a, "%d more worker%s handle%s SIGUSR1 now: notified\n", n, n == 1 ? "" : "s",
                 n == 1 ? "s" : "");
    if (now_ns < a->preemption.until_ns)
        trii_loop_timer(a->loop, timer, now_ns + RETRY_MS * TRII_NS_PER_MS, notify_again);
}

void trii_preemption_received(trii_agent *a, int value_ms)
{
    int64_t ms = value_ms > 0                ? value_ms
                 : a->options->notice_ms > 0 ? a->options->notice_ms
                                             : slurm_left_ms();
    char when[40];
    int notified = 0;

    if (a->state >= TRII_AGENT_FLUSHING)
        return;
    a->preemption.deadline_ns = ms > 0 ? trii_deadline_ms(ms) : TRII_NO_DEADLINE;
    a->preemption.until_ns = ms > 0 ? a->preemption.deadline_ns : trii_deadline_ms(RETRY_FOR_MS);
    for (int i = 0; i < a->n_workers; i++)
        a->workers[i].notified = false;
    if (a->state == TRII_AGENT_RUNNING)
        notified = notify_workers(a);
    describe_left(ms, when, sizeof(when));
    TRII_SAY(a,
             "received SIGUSR1: this host will be preempted %s; notified %d of %d "
             "worker%s\n",
             when, notified, a->n_live, a->n_live == 1 ? "" : "s");
    if (a->state == TRII_AGENT_RUNNING)
        warn_unhandled(a);
    trii_monitor_preemption(&a->monitor, NULL, ms, notified);
    if (a->callbacks != NULL)
        a->callbacks->host_preempted(a, ms);
    trii_loop_timer(a->loop, &a->preemption.again, trii_deadline_ms(RETRY_MS), notify_again);
}

void trii_preemption_of_host(trii_agent *a, const char *host, int64_t pid, int64_t ms)
{
    char when[40];

    describe_left(ms, when, sizeof(when));
    TRII_SAY(a, "host %s (pid %lld) will be preempted %s\n", host, (long long)pid, when);
    trii_monitor_preemption(&a->monitor, host, ms, -1);
}

void trii_preemption_stop(trii_agent *a)
{
    trii_loop_timer_stop(a->loop, &a->preemption.again);
}
