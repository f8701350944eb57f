/*
 * loop.c - see loop.h. epoll, level-triggered; one eventfd ends a wait.
 *
 * A batch has room for all that is watched, so that it tells of all that was ready. Events of it
 * may belong to a watch that was removed meanwhile: an earlier callback's removal takes them out
 * of the batch, and one by another thread between the wait and the batch drops it all: what still
 * holds is reported again.
 */
#include "os/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/thread.h"

#define FIRST_ROOM 64

struct trii_loop {
    int epoll_fd;
    int wake_fd;
    trii_mutex mutex;   /* recursive: callbacks hold it and call in again */
    uint64_t removals;  /* guarded by mutex, as all below */
    trii_timer *timers; /* few, unsorted */
    int n_watches;
    uint64_t passes;
    struct epoll_event *batch; /* changed by the thread that runs the loop */
    int room;
    int n_batch; /* events in it whose callbacks run now */
};

/* The loop whose callbacks this thread runs: it needs no wake to see a change. */
static _Thread_local trii_loop *running_loop;

void trii_loop_lock(trii_loop *loop)
{
    trii_mutex_lock(&loop->mutex);
}

void trii_loop_unlock(trii_loop *loop)
{
    trii_mutex_unlock(&loop->mutex);
}

static uint32_t to_epoll(unsigned events)
{
    return (events & TRII_READABLE ? EPOLLIN : 0u) | (events & TRII_WRITABLE ? EPOLLOUT : 0u) |
           (events & TRII_HANGUP ? EPOLLRDHUP : 0u);
}

static unsigned from_epoll(uint32_t events)
{
    return (events & EPOLLIN ? TRII_READABLE : 0) | (events & EPOLLOUT ? TRII_WRITABLE : 0) |
           (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? TRII_HANGUP : 0);
}

tri_status trii_loop_create(trii_loop **loop_out)
{
    trii_loop *loop = trii_alloc(1, sizeof(*loop), "event loop");
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = loop}};
    tri_status status;

    if (loop == NULL)
        return TRI_ERR_NO_MEMORY;
    loop->room = FIRST_ROOM;
    loop->batch = trii_alloc(FIRST_ROOM, sizeof(*loop->batch), "event loop");
    if (loop->batch == NULL) {
        trii_free(loop);
        return TRI_ERR_NO_MEMORY;
    }
    loop->epoll_fd = trii_fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    loop->wake_fd = trii_fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (loop->epoll_fd < 0 || loop->wake_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) != 0) {
        status = TRII_FAIL(TRI_ERR_IO, "event loop: %s", strerror(errno));
        goto err_free;
    }
    trii_mutex_init_recursive(&loop->mutex);
    *loop_out = loop;
    return TRI_OK;

err_free:
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    trii_free(loop->batch);
    trii_free(loop);
    return status;
}

void trii_loop_destroy(trii_loop *loop)
{
    if (loop == NULL)
        return;
    close(loop->epoll_fd);
    close(loop->wake_fd);
    trii_mutex_fini(&loop->mutex);
    trii_free(loop->batch);
    trii_free(loop);
}

tri_status trii_wakeup_create(int *fd_out)
{
    int fd = trii_fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));

    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "eventfd: %s", strerror(errno));
    *fd_out = fd;
    return TRI_OK;
}

void trii_wakeup_signal(int fd)
{
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof(one));

    (void)written; /* full means that a wake is pending already */
}

void trii_wakeup_clear(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof(count));

    (void)got; /* nothing to read: another thread was quicker */
}

void trii_loop_wake(trii_loop *loop)
{
    trii_wakeup_signal(loop->wake_fd);
}

/* Those that were started in this pass wait for the next: a timer that is started again at once
 * shall not keep us here. */
static void fire_timers(trii_loop *loop)
{
    int64_t now = trii_now_ns();
    trii_timer *due;

    do {
        due = loop->timers;
        while (due != NULL && (due->deadline_ns > now || due->pass == loop->passes))
            due = due->next;
        if (due != NULL) {
            trii_loop_timer_stop(loop, due);
            due->fire(due);
        }
    } while (due != NULL);
}

/* Room for all that is watched, and one to see that nothing is left. Without memory it takes more
 * passes. */
static void grow_batch(trii_loop *loop)
{
    int room = 2 * (loop->n_watches + 1);
    struct epoll_event *more;

    if (loop->room > loop->n_watches + 1)
        return;
    more = trii_realloc(loop->batch, (size_t)room, sizeof(*more), "event loop");
    if (more != NULL) {
        loop->batch = more;
        loop->room = room;
    }
}

void trii_loop_run_once(trii_loop *loop, int64_t deadline_ns)
{
    uint64_t removals;
    int n;

    trii_mutex_lock(&loop->mutex);
    grow_batch(loop);
    loop->passes++;
    removals = loop->removals;
    for (const trii_timer *t = loop->timers; t != NULL; t = t->next)
        deadline_ns = t->deadline_ns < deadline_ns ? t->deadline_ns : deadline_ns;
    trii_mutex_unlock(&loop->mutex);

    n = epoll_wait(loop->epoll_fd, loop->batch, loop->room, trii_deadline_left_ms(deadline_ns));

    trii_mutex_lock(&loop->mutex);
    running_loop = loop;
    loop->n_batch = loop->removals == removals && n > 0 ? n : 0;
    for (int i = 0; i < loop->n_batch; i++) {
        trii_watch *watch = loop->batch[i].data.ptr;

        if (loop->batch[i].data.ptr == loop)
            trii_wakeup_clear(loop->wake_fd);
        else if (watch != NULL)
            watch->ready(watch, from_epoll(loop->batch[i].events));
    }
    loop->n_batch = 0;
    fire_timers(loop);
    running_loop = NULL;
    trii_mutex_unlock(&loop->mutex);
}

tri_status trii_loop_watch(trii_loop *loop, trii_watch *watch, int fd, unsigned events,
                           void (*ready)(trii_watch *watch, unsigned events))
{
    struct epoll_event event = {.events = to_epoll(events), .data = {.ptr = watch}};

    trii_loop_lock(loop);
    watch->loop = loop;
    watch->fd = fd;
    watch->ready = ready;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        watch->loop = NULL;
        trii_loop_unlock(loop);
        return TRII_FAIL(errno == ENOMEM ? TRI_ERR_NO_MEMORY : TRI_ERR_IO,
                         "event loop: descriptor %d: %s", fd, strerror(errno));
    }
    loop->n_watches++;
    trii_loop_unlock(loop);
    return TRI_OK;
}

void trii_loop_unwatch(trii_watch *watch)
{
    trii_loop *loop = watch->loop;

    if (loop == NULL)
        return;
    trii_loop_lock(loop);
    if (watch->loop != NULL) { /* else its callback, or another thread, was faster */
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
        watch->loop = NULL;
        loop->removals++;
        loop->n_watches--;
        for (int i = 0; i < loop->n_batch; i++) {
            if (loop->batch[i].data.ptr == watch)
                loop->batch[i].data.ptr = NULL;
        }
    }
    trii_loop_unlock(loop);
}

void trii_loop_change(trii_watch *watch, unsigned events)
{
    struct epoll_event event = {.events = to_epoll(events), .data = {.ptr = watch}};
    trii_loop *loop = watch->loop;

    if (loop != NULL)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void trii_loop_mute(trii_watch *watch)
{
    trii_loop *loop = watch->loop;

    if (loop != NULL)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

void trii_loop_timer(trii_loop *loop, trii_timer *timer, int64_t deadline_ns,
                     void (*fire)(trii_timer *timer))
{
    trii_loop_timer_stop(loop, timer);
    if (deadline_ns == TRII_NO_DEADLINE)
        return;
    trii_loop_lock(loop);
    timer->deadline_ns = deadline_ns;
    timer->fire = fire;
    timer->pass = loop->passes;
    timer->next = loop->timers;
    loop->timers = timer;
    trii_loop_unlock(loop);
    if (running_loop != loop)
        trii_loop_wake(loop); /* a wait that began with a later deadline starts again */
}

void trii_loop_timer_stop(trii_loop *loop, trii_timer *timer)
{
    trii_loop_lock(loop);
    for (trii_timer **link = &loop->timers; *link != NULL; link = &(*link)->next) {
        if (*link == timer) {
            *link = timer->next;
            break;
        }
    }
    trii_loop_unlock(loop);
}

/* --- the process's control thread ----------------------------------------- */

static struct {
    trii_mutex mutex; /* also serialises start and stop */
    int users;
    trii_loop *loop;
    trii_thread thread;
    atomic_bool stop;
} control = {.mutex = {PTHREAD_MUTEX_INITIALIZER}};

static void control_main(void *arg)
{
    trii_loop *loop = arg;

    while (!atomic_load(&control.stop))
        trii_loop_run_once(loop, TRII_NO_DEADLINE);
}

/* The epoll instance is shared with the parent, whose thread would call what we watch there; and
 * the parent's threads may have held the locks. */
static void in_child(void)
{
    trii_loop *inherited = control.loop;

    trii_mutex_init(&control.mutex);
    control.users = 0;
    control.loop = NULL;
    if (inherited == NULL)
        return;
    trii_mutex_init_recursive(&inherited->mutex);
    close(inherited->epoll_fd);
    close(inherited->wake_fd);
    inherited->epoll_fd = inherited->wake_fd = -1;
    inherited->timers = NULL;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

tri_status trii_control_take(trii_loop **loop_out)
{
    static trii_once once = TRII_ONCE_INITIALIZER;
    tri_status status = TRI_OK;

    trii_once_run(&once, watch_forks);
    trii_mutex_lock(&control.mutex);
    if (control.users == 0) {
        trii_loop *loop = NULL;

        status = trii_loop_create(&loop);
        if (status == TRI_OK) {
            atomic_store(&control.stop, false);
            status = trii_thread_start(&control.thread, "tri-control", control_main, loop);
        }
        if (status == TRI_OK)
            control.loop = loop;
        else
            trii_loop_destroy(loop);
    }
    if (status == TRI_OK) {
        control.users++;
        *loop_out = control.loop;
    }
    trii_mutex_unlock(&control.mutex);
    return status;
}

void trii_control_release(const trii_loop *loop)
{
    trii_mutex_lock(&control.mutex);
    if (loop == control.loop && --control.users == 0) {
        trii_loop *ended = control.loop;

        control.loop = NULL; /* before it is freed: another thread may fork */
        atomic_store(&control.stop, true);
        trii_loop_wake(ended);
        trii_thread_join(&control.thread);
        trii_loop_destroy(ended);
    }
    trii_mutex_unlock(&control.mutex);
}
