/*
 * stop_signal.c - see stop_signal.h.
 */
/* build: leaf */
#include "os/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "os/clock.h"

static atomic_int seen;              /* the latest signal */
static _Atomic int64_t seen_ns;      /* written before `seen` */
static _Atomic int64_t seen_left_ms; /* time left; -1 = the sender did not say */

/* Only atomics and what POSIX allows in a handler. */
static void note(int number, siginfo_t *info, void *context)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    bool has_time = info->si_code == SI_QUEUE && info->si_value.sival_int > 0;

    (void)context;
    if (atomic_load(&seen) == SIGTERM) {
        if (number != SIGTERM)
            return; /* a notice adds nothing */
        sigaction(SIGTERM, &usual, NULL);
        raise(SIGTERM);
        return;
    }
    if (number == SIGUSR1 && !has_time && atomic_load(&seen_left_ms) > 0)
        return; /* the cluster's signal; the launcher's has the time left */
    atomic_store(&seen_ns, trii_now_ns());
    atomic_store(&seen_left_ms, has_time ? info->si_value.sival_int : -1);
    atomic_store(&seen, number);
}

tri_status trii_stop_signal_watch(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};

    action.sa_sigaction = note;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGUSR1);
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        return TRII_FAIL(TRI_ERR_IO, "sigaction: %s", strerror(errno));
    return TRI_OK;
}

int trii_stop_signal_seen(int64_t *at_ns_out, int64_t *told_ms_out)
{
    int number = atomic_load(&seen);

    *at_ns_out = atomic_load(&seen_ns);
    *told_ms_out = atomic_load(&seen_left_ms);
    return number;
}
