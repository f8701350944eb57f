/*
 * fit_stop.c - all ranks of a fit end at one update.
 *
 * A rank that wants to stop, because of a signal, the time or the program, votes: tri_backward
 * sends the vote with its sums, and after the update all ranks know that there was one. Only then
 * do they tell each other why.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <trireme/launch.h>

#include "os/clock.h"
#include "os/signal.h"
#include "train/trainer/trainer_internal.h"

void trii_fit_end_with(tri_trainer *t, tri_stop_reason reason, const char *format, ...)
{
    va_list args;

    t->reason = reason;
    va_start(args, format);
    vsnprintf(t->why, sizeof(t->why), format, args);
    va_end(args);
}

static void wish(tri_trainer *t, tri_stop_reason reason, const char *format, ...) TRII_PRINTF(3, 4);
static void wish(tri_trainer *t, tri_stop_reason reason, const char *format, ...)
{
    va_list args;

    t->wish = reason;
    va_start(args, format);
    vsnprintf(t->wish_why, sizeof(t->wish_why), format, args);
    va_end(args);
}

/* Signals and time. A signal counts more than all others, which min_.. may hold off. */
static void look(tri_trainer *t)
{
    int signal = tri_stop_signal();

    if (TRII_UNLIKELY(signal != 0) && t->wish != TRI_STOP_SIGNAL)
        wish(t, TRI_STOP_SIGNAL, "%s", trii_signal_name(signal));
    if (t->wish == TRI_STOP_NONE && t->deadline_ns != TRII_NO_DEADLINE &&
        trii_now_ns() >= t->deadline_ns)
        wish(t, TRI_STOP_MAX_TIME, "max_time_s=%g reached", t->opt->max_time_s);
}

/* Whether the wish counts once `epochs` and `steps` are complete. */
static bool counts(const tri_trainer *t, int64_t epochs, int64_t steps)
{
    if (t->wish == TRI_STOP_NONE)
        return false;
    return t->wish == TRI_STOP_SIGNAL ||
           (epochs >= t->opt->min_epochs && steps >= t->opt->min_steps);
}

/* Some rank stops: for which reason, the weightiest of all, and in whose words. */
static tri_status say_why(tri_trainer *t, bool mine)
{
    double reason = mine ? (double)t->wish : 0, first;
    tri_status status = trii_fit_max(t, &reason, 1);

    if (status != TRI_OK || reason == 0)
        return status;
    /* the first rank that has this reason */
    first = mine && (double)t->wish == reason ? -(double)t->rank : -(double)t->size;
    status = trii_fit_max(t, &first, 1);
    snprintf(t->why, sizeof(t->why), "%s", t->wish_why);
    if (status == TRI_OK && t->size > 1)
        status = tri_broadcast(t->group, t->why, sizeof(t->why), TRI_DTYPE_U8, (int)-first, NULL);
    t->reason = (tri_stop_reason)reason;
    return status;
}

void trii_fit_vote(tri_trainer *t)
{
    look(t);
    if (TRII_UNLIKELY(t->wish != TRI_STOP_NONE) && t->is_ddp && counts(t, t->epoch, t->step + 1))
        tri_ddp_vote_stop(t->model);
}

tri_status trii_fit_voted(tri_trainer *t)
{
    bool mine;

    if (TRII_LIKELY(t->is_ddp ? !tri_ddp_is_stopped(t->model) : t->wish == TRI_STOP_NONE))
        return TRI_OK;
    mine = counts(t, t->epoch, t->step);
    return t->is_ddp || mine ? say_why(t, mine) : TRI_OK;
}

tri_status trii_fit_agree(tri_trainer *t)
{
    look(t);
    return say_why(t, counts(t, t->epoch, t->step));
}
