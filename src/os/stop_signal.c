/*
 * stop_signal.c - see stop_signal.h.
 */
/* build: leaf */
#include "os/stop_signal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/eventfd.h>

#include "base/compiler.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/proc.h"

static atomic_int seen;              /* the latest signal */
static _Atomic int64_t seen_ns;      /* written before `seen` */
static _Atomic int64_t seen_left_ms; /* time left; -1 = the sender did not say */
static atomic_bool ended[2];         /* SIGTERM, SIGINT: this process itself got one */
static atomic_int wake_fd = -1;      /* of the process below, not of its copies */
static atomic_int wake_pid;

static void wake(void)
{
    static const uint64_t one = 1;

    if (atomic_load(&wake_pid) == getpid() && write(atomic_load(&wake_fd), &one, sizeof(one)) < 0)
        return; /* it is readable already */
}

/* The signal's own action, once this handler has returned. */
static void end_by(int number)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};

    sigaction(number, &usual, NULL);
    raise(number);
}

/* Only atomics and what POSIX allows in a handler. A value above 0 is the time left, one below it
 * the signal that a parent passes on. */
static void note(int number, siginfo_t *info, void *context)
{
    int value = info->si_code == SI_QUEUE ? info->si_value.sival_int : 0, error = errno;
    int before = atomic_load(&seen);

    (void)context;
    if (number != SIGUSR1 && atomic_exchange(&ended[number == SIGINT], true)) {
        end_by(number);
        return;
    }
    if (number == SIGUSR1 && (value == -SIGTERM || value == -SIGINT))
        number = -value;
    if (before == SIGTERM || before == SIGINT)
        return; /* a notice adds nothing */
    if (number == SIGUSR1 && value <= 0 && atomic_load(&seen_left_ms) > 0)
        return; /* the cluster's signal; the launcher's has the time left */
    atomic_store(&seen_ns, trii_now_ns());
    atomic_store(&seen_left_ms, value > 0 ? value : -1);
    atomic_store(&seen, number);
    wake();
    errno = error;
}

tri_status trii_stop_signal_watch(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART}, old;

    action.sa_sigaction = note;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGUSR1);
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0 ||
        sigaction(SIGINT, NULL, &old) != 0 ||
        (old.sa_handler != SIG_IGN && sigaction(SIGINT, &action, NULL) != 0))
        return TRII_FAIL(TRI_ERR_IO, "sigaction: %s", strerror(errno));
#if TRII_TSAN
    /* A thread's first call that may block makes ThreadSanitizer's list of its signals, and one
     * that comes in the middle of that is lost (LLVM 14): not in a launcher's wait for workers. */
    (void)poll(NULL, 0, 0);
#endif
    return TRI_OK;
}

int trii_stop_signal_seen(int64_t *at_ns_out, int64_t *told_ms_out)
{
    int number = atomic_load(&seen);

    *at_ns_out = atomic_load(&seen_ns);
    *told_ms_out = atomic_load(&seen_left_ms);
    return number;
}

tri_status trii_stop_signal_descriptor(int *fd_out)
{
    if (atomic_load(&wake_pid) != getpid()) {
        int fd = trii_fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));

        if (fd < 0)
            return TRII_FAIL(TRI_ERR_IO, "eventfd: %s", strerror(errno));
        trii_fd_close(
            atomic_exchange(&wake_fd, fd)); /* that of the process that we are a copy of */
        atomic_store(&wake_pid, getpid());
    }
    *fd_out = atomic_load(&wake_fd);
    return TRI_OK;
}

/* From "SigCgt:\tHEX" of its status. */
static bool handles(int pid, int number)
{
    char name[16], text[4096];
    const char *field = "\nSigCgt:", *at;

    snprintf(name, sizeof(name), "%d", pid);
    at = trii_proc_read(name, "status", text, sizeof(text)) > 0 ? strstr(text, field) : NULL;
    return at != NULL && (strtoull(at + strlen(field), NULL, 16) >> (number - 1) & 1) != 0;
}

bool trii_stop_signal_pass_on(int pid)
{
    return handles(pid, SIGUSR1) &&
           sigqueue(pid, SIGUSR1, (union sigval){.sival_int = -atomic_load(&seen)}) == 0;
}
