/*
 * rpc_internal.h - what the files of this room offer each other.
 */
#ifndef TRII_RPC_INTERNAL_H
#define TRII_RPC_INTERNAL_H

#include "comm/rpc/rpc_types.h"

/* --- rpc_base.c: what all need -------------------------------------------- */

extern _Thread_local rpc_run *rpc_running;
/* The process's own; NULL. */
extern _Atomic(tri_rpc *) rpc_own;
/* Locked: it looks again; or all do that wait for something of the peer. */
void rpc_kick(rpc_waiter *waiter);
void rpc_kick_readers(const rpc_peer *peer);
/* Wakes it to look at its rings again; it stays in rpc_watch_all. */
void rpc_rouse(rpc_waiter *waiter);
/* NULL becomes the process's own. STATE: there is none, or a parent's. */
tri_status rpc_resolve(tri_rpc **rpc_io, const char *call) TRI_MUST_CHECK;
tri_status rpc_check_process(const tri_rpc *rpc, const char *call) TRI_MUST_CHECK;
/* In a forked child: its lock may be held by a thread that is not there, and what is sent goes out
 * in the parent's name. */
bool rpc_is_parents(const tri_rpc *rpc);
void rpc_use(tri_rpc *rpc);
void rpc_unuse(tri_rpc *rpc); /* without the lock */
void rpc_lock(tri_rpc *rpc);
/* And runs what was put aside: ends that programs want to know, releases of objects, events. */
void rpc_unlock(tri_rpc *rpc);
void rpc_tell(tri_rpc *rpc, tri_rpc_event_kind kind, const char *worker, const char *text);
/* Locked. Somebody who waits for a change looks again. */
void rpc_changed(tri_rpc *rpc);
/* And of peers: tri_rpc_join, too. */
void rpc_peers_changed(tri_rpc *rpc);
/* Locked: sleeps on a condition, after what was put aside. False: the deadline has passed. */
bool rpc_sleep(tri_rpc *rpc, trii_cond *cond, int64_t deadline_ns);
/* Any thread: the control thread looks at deadlines then, at the latest. */
void rpc_arm(tri_rpc *rpc, int64_t at_ns);
static inline void rpc_drop_use(tri_rpc *rpc) /* not the last one */
{
    (void)atomic_fetch_sub(&rpc->users, 1);
}
/* Locked. ABORTED: it has left, or was destroyed: it has no new peers, nor connections. */
tri_status rpc_check_on(const tri_rpc *rpc) TRI_MUST_CHECK;
/* The last thing that a thread of the library does. Locked; unlocks. */
void rpc_thread_ends(tri_rpc *rpc, int *count);
/* A name that may be published. */
tri_status rpc_check_name(const char *name, const char *call) TRI_MUST_CHECK;

/* --- rpc_job.c ------------------------------------------------------------ */

/* Locked: a thread of its own for something that happens now and then. */
tri_status rpc_start_job(tri_rpc *rpc, void (*run)(void *arg), void *arg) TRI_MUST_CHECK;
/* Not locked: a thread of the program is in a call of the worker, which another one may destroy
 * meanwhile: that ends the call, and waits for it, but not for long. The loop, which lives as long
 * as the call does, goes to rpc_stay_end; NULL: it could not be had. */
trii_loop *rpc_stay_begin(tri_rpc *rpc);
void rpc_stay_end(tri_rpc *rpc, const trii_loop *loop);

/* --- rpc_peer_life.c; locked ---------------------------------------------- */

rpc_peer *rpc_peer_of(tri_rpc *rpc, const char *name, uint64_t incarnation); /* NULL: no memory */
rpc_peer *rpc_peer_mirror(tri_rpc *rpc);
/* As `from` says. Errors: FORMAT (no name, or there are too many of them), NO_MEMORY. */
tri_status rpc_peer_told(rpc_peer *from, const rpc_wire_ref *wire,
                         rpc_peer **peer_out) TRI_MUST_CHECK;
/* The one that is up, or is still to be tried; NULL. */
rpc_peer *rpc_peer_named(tri_rpc *rpc, const char *name);
void rpc_peer_use(rpc_peer *peer);
void rpc_peer_unuse(rpc_peer *peer);
void rpc_peer_lose(rpc_peer *peer, bool left, const char *format, ...) TRII_PRINTF(3, 4);
void rpc_peer_lose_by_error(rpc_peer *peer); /* the error line says why */
/* The first of a list: the peer reads the parts of that reply no more. */
void rpc_kept_drop(rpc_peer *peer, rpc_kept **at);

/* --- rpc_peer.c: frames in and out; all locked ---------------------------- */

/* request: its call's number, or 0. Never blocks. */
void rpc_send(rpc_peer *peer, const void *frame, size_t bytes, uint64_t request);
void rpc_send_kind(rpc_peer *peer, int kind, uint64_t call, uint64_t object, uint64_t chain);
void rpc_flush(rpc_peer *peer);
/* Reads all that is there; may unlock meanwhile. The caller holds a use of the peer. */
void rpc_read(rpc_peer *peer);
/* The thread that takes over from a reader is told. */
void rpc_stop_reading(rpc_peer *peer);
/* The same of a waiter, which may be back in microseconds while it has calls in flight: to have
 * itself woken in between would cost the peer a system call for each reply. */
void rpc_leave_ring(rpc_peer *peer);
/* The timer: reads rings that were left; true: some are left still. */
#define RPC_LEFT_NS (2 * TRII_NS_PER_MS)
bool rpc_take_over_left(tri_rpc *rpc);
/* One frame that is no longer in a ring; frees what is owned. May unlock. */
void rpc_take_frame(rpc_peer *peer, const rpc_header *h, rpc_source *source);
bool rpc_peer_is_active(rpc_peer *peer); /* also unlocked */
/* Wakes a reader of its ring that sleeps in a thread of the program: a frame will be there in some
 * microseconds. */
void rpc_wake_early(rpc_peer *peer);

/* --- rpc_beside.c; locked ------------------------------------------------- */

/* A reader that slept so does not any more. */
void rpc_wake_by(rpc_peer *peer, int how);
/* Sends the file of an arena, unless the peer has it. */
void rpc_send_arena(rpc_peer *peer, uint32_t arena);
/* Takes in what its socket has beside the rings: files of arenas. */
void rpc_take_records(rpc_peer *peer);

/* --- rpc_link.c; locked --------------------------------------------------- */

/* A connection becomes the peer's, with its rings; then it is watched, and up. */
void rpc_peer_take(rpc_peer *peer, int fd, bool is_unix, const trii_shmem *shm, bool connects);
void rpc_peer_give_back(rpc_peer *peer); /* it cannot be watched */
void rpc_peer_up(rpc_peer *peer);
/* The kernel's word of the connection: the loop's callback. */
void rpc_peer_ready(trii_watch *watch, unsigned events);
/* Closes the descriptor; from the loop, or not locked. */
void rpc_peer_close(rpc_peer *peer);
/* Others that know it hear that it is lost. */
void rpc_say_gone(rpc_peer *lost);

/* --- rpc_unsent.c; locked ------------------------------------------------- */

/* NO_MEMORY, or PEER_LOST: it is there, and the peer is to be given up. */
tri_status rpc_unsent_add(rpc_peer *peer, const void *frame, size_t bytes, size_t sent,
                          uint64_t request) TRI_MUST_CHECK;
void rpc_unsent_drop(rpc_peer *peer); /* the first, which is there */

/* --- rpc_stream.c: tcp; locked -------------------------------------------- */

void rpc_stream_read(rpc_peer *peer);
void rpc_stream_flush(rpc_peer *peer);
/* A thread that waits polls the socket from now on, or the loop does again. False: it could not be
 * woken. */
bool rpc_stream_claim(rpc_peer *peer);
void rpc_stream_release(rpc_peer *peer);

/* --- rpc_heartbeat.c; locked ---------------------------------------------- */

/* TRI_HEARTBEAT_MS. */
tri_status rpc_heartbeat_init(tri_rpc *rpc) TRI_MUST_CHECK;
/* It may be on another host, and is looked at from now on. */
void rpc_heartbeat_begin(rpc_peer *peer);
/* The timer: loses those whose hosts are silent. When it looks next. */
int64_t rpc_heartbeat(tri_rpc *rpc, int64_t now_ns);

/* --- rpc_message.c -------------------------------------------------------- */

/* Not locked: builds the frame of a message, with its parts in arenas. What it uses is released by
 * rpc_packet_fini. Errors: INVALID_ARG, NO_MEMORY. */
tri_status rpc_pack(tri_rpc *rpc, const tri_rpc_message *message, const rpc_header *head,
                    const rpc_limits *limits, const char *what, rpc_packet *packet) TRI_MUST_CHECK;
void rpc_packet_fini(tri_rpc *rpc, rpc_packet *packet); /* locked */
/* Locked: sends it, its references and arenas. NO_MEMORY. */
tri_status rpc_send_packet(rpc_peer *peer, rpc_packet *packet, bool is_request) TRI_MUST_CHECK;
/* Locked: takes a body in. INVALID_ARG: it exceeds a limit; NOT_FOUND: it was skipped. Of what
 * fails nobody holds the references, unless it is no frame (FORMAT). */
tri_status rpc_receive(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                       const rpc_limits *limits, rpc_received *received_out) TRI_MUST_CHECK;
/* Locked: nobody wants it. Lets go of the references in it, which its sender has counted. */
void rpc_receive_nothing(rpc_peer *peer, const rpc_header *h, rpc_source *source);
void rpc_received_fini(rpc_received *received); /* locked */
rpc_limits rpc_limits_of(const tri_rpc *rpc, const tri_rpc_function *function, bool reply);

/* --- rpc_call_end.c, rpc_call.c ------------------------------------------- */

/* Locked. The call has ended. */
void rpc_call_end(tri_rpc_call *call, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* Locked: its deadline has passed. */
void rpc_call_expire(tri_rpc_call *call);
void rpc_call_unuse(tri_rpc_call *call); /* locked */
tri_rpc_call *rpc_call_at(const tri_rpc *rpc, uint64_t number);
uint64_t rpc_call_number(const tri_rpc_call *call);
void rpc_call_log(const tri_rpc_call *call); /* that it failed and nobody has looked */
bool rpc_call_is_over(void *call);
/* When somebody looks at it: some time before its deadline the callee is asked where it is. */
int64_t rpc_call_look_ns(const tri_rpc_call *call);
void rpc_call_ask(tri_rpc_call *call);
/* To the program, which may have only so many of a peer: STATE, and the call keeps its reply. */
tri_status rpc_reply_lend(tri_rpc_call *call) TRI_MUST_CHECK;
/* The reply's parts are not read any more. */
void rpc_reply_release(tri_rpc_call *call);

typedef struct rpc_plan { /* of a call */
    tri_rpc_ref *to;
    const tri_rpc_function *function;
    const tri_rpc_message *in;
    const tri_rpc_call_options *options;
    const char *what; /* "rpc_sync" */
} rpc_plan;
/* Not locked: a call that is ready to be submitted, with one user. */
tri_status rpc_call_make(const rpc_plan *plan, tri_rpc_call **call_out) TRI_MUST_CHECK;

/* --- rpc_flight.c: calls on their way; locked ----------------------------- */

/* The next state of a call that is new, or whose promise or credits have come. */
void rpc_call_submit(tri_rpc_call *call);
/* As a reference that it needs has. */
void rpc_call_fail(tri_rpc_call *call, tri_rpc_ref *failed);
/* Whether it would have to wait for credits. */
bool rpc_would_starve(const tri_rpc_call *call);
void rpc_on_reply(rpc_peer *peer, const rpc_header *h, rpc_source *source);
/* Calls of the peer's that wait, or are in flight, when it was lost. */
void rpc_calls_lose(rpc_peer *peer);
void rpc_pump(rpc_peer *peer);
/* The control thread: calls whose deadline has passed; when the next one does. */
int64_t rpc_calls_expire(tri_rpc *rpc);
/* Calls that have waited in the reference. */
void rpc_submit_waiting(tri_rpc_ref *ref);

/* --- rpc_find.c ----------------------------------------------------------- */

/* Blocks, not locked: a connected worker, and its object if the name has one. */
tri_status rpc_look_up(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                       tri_rpc_ref **ref_out) TRI_MUST_CHECK;
/* Built in: finds an object by name. */
extern const tri_rpc_function rpc_find_function;
bool rpc_forget_find(tri_rpc_request *request);
/* Locked: calls wait in the reference until there is a next worker, or none. */
void rpc_revive(tri_rpc_ref *ref, tri_rpc_call *call);

/* --- rpc_record.c; locked ------------------------------------------------- */

void rpc_record_open(tri_rpc *rpc);
void rpc_record_close(tri_rpc *rpc);
void rpc_record_call(tri_rpc_call *call);
void rpc_record_state(tri_rpc_call *call, int state); /* 0: it is over */
/* A handler that a thread runs which waits. Its place, for rpc_record_end; -1 = none. */
int rpc_record_handler(const tri_rpc_request *request, const rpc_waiter *waiter);
void rpc_record_end(const tri_rpc *rpc, int place);

/* --- rpc_wait.c ----------------------------------------------------------- */

/* Locked, and again at its end; unlocked in between. False: the deadline has passed. */
bool rpc_wait(tri_rpc *rpc, rpc_peer *peer, bool (*is_over)(void *arg), void *arg,
              rpc_waiter *waiter, int64_t deadline_ns);
/* Locked: the ring, or the socket, of the peer is this thread's to read, until rpc_stop_reading. */
bool rpc_may_read(rpc_peer *peer);
/* Not locked: looks at the ring until there is something or `*called` is not `before`; false: it
 * has been long enough. *began_out, then: when it began; 0: the peer is on the core of this thread.
 */
bool rpc_spin_on(rpc_peer *peer, const atomic_int *called, int before, int64_t *began_out);
/* STATE where this thread must not block. */
tri_status rpc_may_block(const char *call) TRI_MUST_CHECK;
/* Sleeps until it is kicked. Not locked. */
void rpc_sleep_on(rpc_waiter *waiter, int64_t deadline_ns);

/* --- rpc_watch.c ---------------------------------------------------------- */

/* tri_rpc_join's thread: reads all rings, asleep where nothing comes. Locked, and unlocked
 * meanwhile; returns when kicked, or at the deadline. */
void rpc_watch_all(tri_rpc *rpc, rpc_waiter *waiter, int64_t deadline_ns);

/* --- rpc_request.c -------------------------------------------------------- */

/* All locked. *run_out: one to be run at once by rpc_run_request; NULL = none. */
void rpc_on_request(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                    tri_rpc_request **run_out);
/* INVALID_ARG: its function is not for its object. NOT_FOUND: it has none. */
tri_status rpc_check_kind(const tri_rpc_request *request) TRI_MUST_CHECK;
void rpc_request_fail_line(tri_rpc_request *request, tri_status status, const char *line);
/* The frame alone; then it has been answered, and nobody finds it any more. */
void rpc_request_status(tri_rpc_request *request, tri_status status, const char *line);
void rpc_request_retire(tri_rpc_request *request);
bool rpc_is_wanted(rpc_peer *peer, const rpc_header *h);
void rpc_on_cancel(rpc_peer *peer, uint64_t call);
void rpc_on_where(rpc_peer *peer, const rpc_header *h);
void rpc_requests_lose(rpc_peer *peer); /* the peer was lost */
/* Locked, unlocked meanwhile. */
void rpc_run_request(tri_rpc_request *request, bool inlined, rpc_place *place);
void rpc_request_fail(tri_rpc_request *request, tri_status status, const char *format, ...)
    TRII_PRINTF(3, 4);
/* Locked: its thread waits for what its handler has called, or does not any more. */
void rpc_request_waits(tri_rpc_request *request, bool waits);
/* Locked: the thread that it was given to does not wait any more. */
void rpc_request_hand_back(tri_rpc_request *request);
/* Locked: where it runs. NULL, or it is to be run at once. */
tri_rpc_request *rpc_dispatch(tri_rpc_request *request);

/* --- rpc_serve.c; locked -------------------------------------------------- */

#define RPC_NEAREST 240
/* "most like it, of 15: a, b, c", of the n_names that there are, or that there is none, and what
 * makes one. name_at: NULL = none. */
void rpc_name_nearest(const tri_rpc *rpc, int n_names, const char *(*name_at)(const tri_rpc *, int),
                      const char *name, char text_out[RPC_NEAREST]);
void rpc_on_define(rpc_peer *peer, const rpc_header *h, rpc_source *source);
/* NOT_FOUND, with its line. */
tri_status rpc_not_served(const tri_rpc_request *request) TRI_MUST_CHECK;
/* INVALID_ARG: a function for objects of one kind was called on one of another; NULL = a worker. */
tri_status rpc_not_of_kind(const tri_rpc_object *of, const tri_rpc_object *on) TRI_MUST_CHECK;

/* --- rpc_reply.c; locked -------------------------------------------------- */

void rpc_answer_with(tri_rpc_request *request, tri_rpc_ref *ref);
/* Those that have waited for the promise. */
void rpc_submit_replies(tri_rpc_ref *promise);

/* --- rpc_promise.c; locked ------------------------------------------------ */

/* The request's target is what that call of its caller's makes; it starts, now or later. */
void rpc_promise_wait(tri_rpc_request *request, uint64_t call);
/* It was answered: what waits for what it made. */
void rpc_promise_end(tri_rpc_request *request);
/* It is not to be started. False: it does not wait. */
bool rpc_promise_forget(tri_rpc_request *request);
void rpc_promise_freed(rpc_peer *peer, uint64_t call);
void rpc_promises_lose(rpc_peer *peer);

/* --- rpc_executor.c; locked ----------------------------------------------- */

void rpc_execute(tri_rpc_request *request);
/* What is queued, or comes later, is not run. */
void rpc_executor_stop(tri_rpc *rpc);
/* The handler in that place waits for what it has called, or does not any more. */
void rpc_executor_lend(tri_rpc *rpc, rpc_place *place);
void rpc_executor_return(tri_rpc *rpc, rpc_place *place);
bool rpc_executor_remove(tri_rpc_request *request);
/* The timer: looks for handlers that wait for something else than calls while requests have no
 * place. When it looks next. Unlocks meanwhile. */
int64_t rpc_executor_look(tri_rpc *rpc, int64_t now_ns);
/* Whether max_threads handlers wait, and for whom: what is queued will not be run. */
bool rpc_executor_is_stuck(const tri_rpc *rpc, char *line, size_t size);

/* --- rpc_leave.c; locked -------------------------------------------------- */

/* Every call ends with ABORTED. */
void rpc_end_calls(tri_rpc *rpc, const char *why);
/* And every peer is lost. */
void rpc_end_all(tri_rpc *rpc, const char *why);

/* --- rpc_ref.c; locked ---------------------------------------------------- */

tri_rpc_ref *rpc_ref_make(tri_rpc *rpc, rpc_peer *peer, rpc_object *local, uint64_t object);
void rpc_ref_unuse(tri_rpc_ref *ref);
/* As it goes to `to`: counts what the owner must know. */
void rpc_ref_write(rpc_peer *to, tri_rpc_ref *ref, rpc_wire_ref *wire_out);
/* As it came. Errors: FORMAT, NO_MEMORY. */
tri_status rpc_ref_read(rpc_peer *from, const rpc_wire_ref *wire,
                        tri_rpc_ref **ref_out) TRI_MUST_CHECK;
void rpc_on_hold(rpc_peer *peer, const rpc_header *h, rpc_source *source);
void rpc_on_held(rpc_peer *peer, const rpc_header *h);
void rpc_on_drop(rpc_peer *peer, const rpc_header *h);
void rpc_on_gone(rpc_peer *peer, const rpc_header *h);
void rpc_object_unuse(tri_rpc *rpc, rpc_object *object);
rpc_object *rpc_object_at(tri_rpc *rpc, uint64_t id);
/* The call that made it has ended. */
void rpc_promise_resolve(tri_rpc_ref *promise, tri_rpc_call *call);
rpc_object *rpc_object_named(const tri_rpc *rpc, const char *name);
tri_status rpc_object_add(tri_rpc *rpc, rpc_object *object) TRI_MUST_CHECK;
/* What a lost peer held, and its word for what others hold. */
void rpc_refs_lose(rpc_peer *peer);
/* The log names what others hold, and counts replies that the program has not freed. */
void rpc_log_holds(tri_rpc *rpc);

#endif
