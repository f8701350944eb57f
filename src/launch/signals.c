/*
 * signals.c - signals of the user and the kernel to the agent, as events of its loop.
 */
#include "launch/agent_internal.h"

#include <string.h>

#include "base/err.h"
#include "launch/os/pseudo_terminal.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/signal.h"

#define PREEMPTION_SIGNAL SIGUSR1 /* unless the user wants it to stop the job */

static void resize_terminals(trii_agent *a)
{
    for (int i = 0; i < a->n_workers; i++) {
        const trii_worker *w = &a->workers[i];

        trii_pty_resize(w->out.fd, 1, strlen(w->out.label));
        trii_pty_resize(w->err.fd, 2, strlen(w->err.label));
    }
}

static void user_signal(trii_agent *a, int number)
{
    char reason[64];

    if (a->state == TRII_AGENT_RUNNING) {
        a->stop_signal = number;
        a->workers_waited = trii_hang_is_waiting(a->folder.path);
        snprintf(reason, sizeof(reason), "trirun ended the job: it received %s",
                 trii_signal_name(number));
        trii_run_folder_note_stop(&a->folder, trii_now_ns(), reason);
        trii_monitor_signal(&a->monitor, number);
        TRII_SAY(a, "received %s: stopping %d worker%s\n", trii_signal_name(number), a->n_live,
                 a->n_live == 1 ? "" : "s");
        trii_shutdown_begin(a, number);
    } else if (a->stop_signal == 0 && a->state < TRII_AGENT_FLUSHING) {
        a->stop_signal = number; /* already stopping for another reason, or nothing runs yet */
    } else {
        /* The second time means now. */
        a->second_signal = true;
        trii_loop_timer(a->loop, &a->grace, trii_now_ns(), trii_shutdown_grace_over);
    }
}

static void signal_ready(trii_watch *watch, unsigned events)
{
    trii_agent *a = TRII_CONTAINER(watch, trii_agent, signals);
    int number, value;

    (void)events;
    while ((number = trii_signal_next(watch->fd, &value)) != 0) {
        if (number == SIGCHLD)
            trii_shutdown_reap(a);
        else if (number == SIGWINCH)
            resize_terminals(a);
        else if (number == PREEMPTION_SIGNAL && a->preemption.enabled)
            trii_preemption_received(a, value);
        else
            user_signal(a, number);
    }
}

static bool can_handle(int number)
{
    return number != 0 && number != SIGKILL && number != SIGSTOP && number != SIGCHLD &&
           number != SIGWINCH;
}

static tri_status cannot_handle(const char *name)
{
    char list[400] = "";
    size_t used = 0;

    for (size_t i = 0; trii_signal_at(i) != 0 && used < sizeof(list); i++) {
        if (can_handle(trii_signal_at(i)))
            used += (size_t)snprintf(list + used, sizeof(list) - used, " %s",
                                     trii_signal_name(trii_signal_at(i)));
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "--signals-to-handle: cannot handle %s; allowed are numbers and%s", name,
                     list);
}

tri_status trii_agent_signals_open(trii_agent *a)
{
    bool wanted[NSIG] = {[SIGCHLD] = true, [SIGWINCH] = true, [PREEMPTION_SIGNAL] = true};
    const char *list = a->options->signals;
    int numbers[NSIG], n = 0, fd;
    tri_status status;

    a->preemption.enabled = true;
    while (*list != '\0') {
        size_t blanks = strspn(list, " \t"), length = strcspn(list, ",");
        size_t end = length;
        char name[24];
        int number;

        while (end > blanks && (list[end - 1] == ' ' || list[end - 1] == '\t'))
            end--;
        snprintf(name, sizeof(name), "%.*s", (int)(end - blanks), list + blanks);
        number = trii_signal_number(name);
        if (!can_handle(number))
            return cannot_handle(name);
        if (number == PREEMPTION_SIGNAL)
            a->preemption.enabled = false; /* as torchrun then: it stops the job */
        /* nohup wants us to outlive the terminal. */
        if (!(number == SIGHUP && trii_signal_is_ignored(SIGHUP)))
            wanted[number] = true;
        list += length + (list[length] == ',');
    }
    for (int i = 1; i < NSIG; i++) {
        if (wanted[i])
            numbers[n++] = i;
    }
    trii_signal_ignore(SIGPIPE);
    trii_signal_ignore(SIGXFSZ); /* a file that may not grow is an error as any other */
    status = trii_signal_open(numbers, n, &fd);
    if (status != TRI_OK)
        return status;
    status = trii_loop_watch(a->loop, &a->signals, fd, TRII_READABLE, signal_ready);
    if (status != TRI_OK)
        trii_fd_close(fd);
    return status;
}

void trii_agent_signals_close(trii_agent *a)
{
    int fd = a->signals.loop != NULL ? a->signals.fd : -1;

    trii_loop_unwatch(&a->signals);
    trii_fd_close(fd);
}
