/*
 * slow_wire.c - see slow_wire.h.
 */
#include "testing/slow_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <linux/if.h>
#include <linux/if_tun.h>

enum { FRAMES = 4096, FRAME_BYTES = 2048 };

typedef struct frame {
    long long due_us;
    size_t bytes;
    char data[FRAME_BYTES];
} frame;

/* One direction: frames by the moment at which they are due. */
typedef struct lane {
    int from, to;
    frame *frames;
    int order[FRAMES]; /* the first n are on their way, the others unused */
    int n;
    long long free_us; /* when the last of them is through, if there is a rate */
    unsigned draws;
} lane;

static long long now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The far end is made in the other namespace and served from here. */
static bool open_both(const slow_wire *w, const char *near, const char *far, int fds[2])
{
    char path[64];
    int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there;
    bool done;

    snprintf(path, sizeof(path), "/proc/%d/ns/net", w->holder);
    there = open(path, O_RDONLY | O_CLOEXEC);
    fds[0] = open_tap(near);
    fds[1] = -1;
    if (fds[0] >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0)
        fds[1] = open_tap(far);
    done = fds[1] >= 0 && here >= 0 && setns(here, CLONE_NEWNET) == 0;
    if (here >= 0)
        close(here);
    if (there >= 0)
        close(there);
    return done;
}

/* Below `limit`; the same numbers in every run. */
static int draw(lane *l, int limit)
{
    l->draws = l->draws * 1664525u + 1013904223u;
    return limit > 0 ? (int)((l->draws >> 8) % (unsigned)limit) : 0;
}

/* The frame that was read, the first that is unused, goes after those that are due before it. */
static void put_in_order(lane *l, long long due_us, size_t bytes)
{
    int own = l->order[l->n], at = l->n;

    l->frames[own].due_us = due_us;
    l->frames[own].bytes = bytes;
    while (at > 0 && l->frames[l->order[at - 1]].due_us > due_us) {
        l->order[at] = l->order[at - 1];
        at--;
    }
    l->order[at] = own;
    l->n++;
}

static void take(const slow_wire *w, lane *l)
{
    long long now = now_us();
    ssize_t got;

    while ((got = read(l->from, l->frames[l->order[l->n]].data, FRAME_BYTES)) > 0) {
        long long wait_us = l->free_us > now ? l->free_us - now : 0;

        if (l->n == FRAMES - 1 || (w->kbit > 0 && wait_us * w->kbit / 8000 + got > w->queue_bytes))
            continue; /* no room: lost */
        if (draw(l, 1000) < w->loss_per_mille)
            continue;
        if (w->kbit > 0)
            l->free_us = now + wait_us + got * 8000 / w->kbit;
        put_in_order(l,
                     (w->kbit > 0 ? l->free_us : now) + w->delay_ms * 1000LL +
                         draw(l, w->jitter_ms * 1000),
                     (size_t)got);
    }
}

/* How long until the next is due, in ms; -1: none waits. */
static int give(lane *l)
{
    long long now = now_us();
    int done = 0;

    while (done < l->n && l->frames[l->order[done]].due_us <= now) {
        const frame *f = &l->frames[l->order[done++]];

        if (write(l->to, f->data, f->bytes) < 0) {
            /* the interface is down: lost */
        }
    }
    for (int at = 0; done > 0 && at < l->n; at++) { /* those that are left go to the front */
        int index = l->order[at];

        if (at + done < l->n) {
            l->order[at] = l->order[at + done];
            l->order[at + done] = index;
        }
    }
    l->n -= done;
    return l->n > 0 ? (int)((l->frames[l->order[0]].due_us - now + 999) / 1000) : -1;
}

static void carry(const slow_wire *w, const int fds[2])
{
    static lane lanes[2];
    struct pollfd p[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};

    for (int i = 0; i < 2; i++) {
        lanes[i].from = fds[i];
        lanes[i].to = fds[1 - i];
        lanes[i].draws = (unsigned)i;
        lanes[i].frames = calloc(FRAMES, sizeof(frame));
        if (lanes[i].frames == NULL)
            _exit(1);
        for (int k = 0; k < FRAMES; k++)
            lanes[i].order[k] = k;
    }
    for (;;) {
        int a = give(&lanes[0]), b = give(&lanes[1]);

        (void)poll(p, 2, a < 0 ? b : (b < 0 || a < b ? a : b));
        take(w, &lanes[0]);
        take(w, &lanes[1]);
    }
}

bool slow_wire_start(const slow_wire *w, const char *near, const char *far, int *pid_out)
{
    char done = 0;
    int ready[2], pid;

    if (pipe2(ready, O_CLOEXEC) != 0)
        return false;
    pid = fork();
    if (pid == 0) {
        int fds[2];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!open_both(w, near, far, fds) || write(ready[1], "1", 1) != 1)
            _exit(1);
        carry(w, fds);
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &done, 1) != 1) {
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    close(ready[0]);
    if (pid > 0)
        *pid_out = pid;
    return pid > 0;
}
