/*
 * process_notify.c - see process_notify.h. Called by preemption.c alone: whether the signal would
 * end a process is read from /proc/PID/status of each of its threads before it is sent. It goes to
 * the processes below a worker, too, since that is often a shell.
 */
#include "launch/os/process_notify.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "os/proc.h"

/* A process, as all of them are searched for relatives. */
typedef struct relative {
    int pid, parent, group;
} relative;

typedef struct family {
    relative *all;
    int n, room;
    bool looked;
    bool failed; /* too little memory: no process has children */
} family;

/* Whether the signal is in the mask on the line "FIELD:\tHEX" of a status file. */
static bool in_mask(const char *status, const char *field, int number)
{
    const char *at = strstr(status, field);

    return at != NULL && (strtoull(at + strlen(field), NULL, 16) >> (number - 1) & 1) != 0;
}

/* One thread that does not block it is enough to end the process. With all signals blocked a thread
 * may be about to begin, or to start a process: that says nothing. */
static bool all_threads_block(int pid, int number)
{
    char path[40], thread[60], text[4096];
    const struct dirent *entry;
    bool blocked = true;
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    threads = opendir(path);
    while (threads != NULL && blocked && (entry = readdir(threads)) != NULL) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        snprintf(thread, sizeof(thread), "%d/task/%.20s", pid, entry->d_name);
        blocked = trii_proc_read(thread, "status", text, sizeof(text)) == 0 ||
                  (in_mask(text, "\nSigBlk:", number) && !in_mask(text, "\nSigBlk:", SIGSEGV));
    }
    if (threads != NULL)
        closedir(threads);
    return threads != NULL && blocked;
}

/* bash with a trap of EXIT handles whatever would end it, and then ends of it, trap or not.
 * Programs that handle all signals for their own reasons, as Go's do, also handle the two that bash
 * leaves. */
static bool is_dying_shell(const char *status)
{
    static const int ends[] = {SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGSYS, SIGTRAP};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (!in_mask(status, "\nSigCgt:", ends[i]) && !in_mask(status, "\nSigIgn:", ends[i]))
            return false;
    }
    return !in_mask(status, "\nSigCgt:", SIGPROF) && !in_mask(status, "\nSigCgt:", SIGURG);
}

/* It handles the signal, or waits for it with the signal blocked. */
static bool expects(int pid, int number)
{
    char name[16], text[4096];

    snprintf(name, sizeof(name), "%d", pid);
    if (trii_proc_read(name, "status", text, sizeof(text)) == 0)
        return false;
    if (in_mask(text, "\nSigCgt:", number))
        return !is_dying_shell(text);
    return !in_mask(text, "\nSigIgn:", number) && all_threads_block(pid, number);
}

static void add_relative(family *f, const relative *one)
{
    f->failed =
        trii_array_grow(&f->all, &f->room, f->n, 256, sizeof(*f->all), "processes") != TRI_OK;
    if (!f->failed)
        f->all[f->n++] = *one;
}

static void look(family *f)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;

    f->looked = true;
    while (proc != NULL && !f->failed && (entry = readdir(proc)) != NULL) {
        char text[512], *after;
        relative one;

        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        one.pid = (int)strtol(entry->d_name, NULL, 10);
        if (trii_proc_read(entry->d_name, "stat", text, sizeof(text)) == 0)
            continue;
        after = strrchr(text, ')'); /* after the name: state, parent, group */
        if (after != NULL && strlen(after) > 4) {
            one.parent = (int)strtol(after + 4, &after, 10);
            one.group = (int)strtol(after, NULL, 10);
            add_relative(f, &one);
        }
    }
    if (proc != NULL)
        closedir(proc);
}

/* To the process, or to those below it in its group that come first. */
static int notify(family *f, int pid, int group, int number, int value)
{
    int sent = 0;

    if (expects(pid, number))
        return sigqueue(pid, number, (union sigval){.sival_int = value}) == 0;
    if (!f->looked)
        look(f);
    for (int i = 0; i < f->n; i++) {
        if (f->all[i].parent == pid && f->all[i].group == group && f->all[i].pid != pid)
            sent += notify(f, f->all[i].pid, group, number, value);
    }
    return sent;
}

void trii_process_notify(const trii_process *processes, int n, int number, int value,
                         int *n_sent_out)
{
    family f = {0};

    for (int i = 0; i < n; i++)
        n_sent_out[i] = processes[i].pidfd >= 0
                            ? notify(&f, processes[i].pid, processes[i].pid, number, value)
                            : 0;
    trii_free(f.all);
}
