/*
 * loop.h - an event loop over descriptors and timers, and the process's control thread.
 *
 * A loop is run by one thread at a time, either by trii_loop_run_once() of its owner or by
 * the control thread: one per process, started by the first trii_control_take(), asleep in
 * epoll unless something happens. Callbacks run with the loop's lock held, one at a time;
 * they must not block and must not take locks under which others call into the loop.
 */
#ifndef TRII_LOOP_H
#define TRII_LOOP_H

#include <trireme/status.h>

#include "os/socket.h" /* TRII_READABLE and its sisters */

typedef struct trii_loop trii_loop;

/* In its owner's memory; zero before the first use, the fields are the loop's. */
typedef struct trii_watch {
    _Atomic(trii_loop *) loop; /* NULL = not watched; two threads may unwatch at once */
    int fd;
    void (*ready)(struct trii_watch *watch, unsigned events);
} trii_watch;

typedef struct trii_timer {
    int64_t deadline_ns;
    void (*fire)(struct trii_timer *timer); /* once; may start the timer again */
    struct trii_timer *next;
    uint64_t pass; /* of the loop in which it was started */
} trii_timer;

tri_status trii_loop_create(trii_loop **loop_out) TRI_MUST_CHECK;
void trii_loop_destroy(trii_loop *loop); /* NULL allowed; nothing may be watched any more */
/* Waits for events until the deadline or a wake, runs their callbacks. */
void trii_loop_run_once(trii_loop *loop, int64_t deadline_ns);
/* Ends a running wait; any thread. */
void trii_loop_wake(trii_loop *loop);

/* watch, unwatch and timers: from callbacks of this loop, or from any other thread while it
 * holds no lock that a callback takes. After unwatch the callback neither runs nor will.
 * Level-triggered: `ready` comes again while the event lasts. Events 0 = hang-ups only if
 * TRII_HANGUP is asked for; a broken connection is always told.
 * Errors: IO (out of descriptors), NO_MEMORY. */
tri_status trii_loop_watch(trii_loop *loop, trii_watch *watch, int fd, unsigned events,
                           void (*ready)(trii_watch *watch, unsigned events)) TRI_MUST_CHECK;
void trii_loop_unwatch(trii_watch *watch); /* unwatched: nothing */
/* Other events from now on; any thread, any lock. */
void trii_loop_change(trii_watch *watch, unsigned events);
/* As change to nothing at all, not even broken connections, which level-triggered watching
 * would tell for ever; a callback that is on its way may still come. Unwatch it later. */
void trii_loop_mute(trii_watch *watch);
/* Start or move; TRII_NO_DEADLINE stops it. One that a callback starts fires in the next pass at
 * the earliest, after that pass's other callbacks. */
void trii_loop_timer(trii_loop *loop, trii_timer *timer, int64_t deadline_ns,
                     void (*fire)(trii_timer *timer));
void trii_loop_timer_stop(trii_loop *loop, trii_timer *timer);
/* For state that callbacks also touch; recursive, and callbacks hold it already. */
void trii_loop_lock(trii_loop *loop);
void trii_loop_unlock(trii_loop *loop);

/* A descriptor that one thread polls and another makes readable. Errors: IO. */
tri_status trii_wakeup_create(int *fd_out) TRI_MUST_CHECK;
void trii_wakeup_signal(int fd);
void trii_wakeup_clear(int fd);

/* The loop of the process's control thread, which runs until the last release. A child of fork has
 * no such thread: there the loop that it inherited does nothing any more, and the first take makes
 * another. */
tri_status trii_control_take(trii_loop **loop_out) TRI_MUST_CHECK;
void trii_control_release(const trii_loop *loop);

#endif
