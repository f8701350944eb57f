/*
 * rpc.h - calls between named workers: functions, objects and references, bytes and buffers.
 *
 *     static tri_status add(tri_rpc_request *request, void *object)
 *     {
 *         const double *x = tri_rpc_request_message(request)->data;
 *         double sum = x[0] + x[1];
 *
 *         return tri_rpc_reply(request, &(tri_rpc_message){.data = &sum, .bytes = sizeof(sum)});
 *     }
 *     static const tri_rpc_function sum = {.name = "sum", .run = add};
 *     static const tri_rpc_function *const functions[] = {&sum};
 *
 *     TRI_TRY(tri_rpc_init("ps", &(tri_rpc_options){.functions = functions, .n_functions = 1}));
 *     TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));     // others: tri_rpc_find, tri_rpc_sync
 *     TRI_TRY(tri_rpc_fini());
 *
 * A NULL tri_rpc is the process's own, which tri_rpc_init made; in a handler, the worker that the
 * handler runs for. All functions may be called from any thread, and those that wait say so; in a
 * handler that is TRI_RPC_INLINE they fail with STATE.
 * A worker belongs to the process that made it: in a child of fork() every call fails with STATE,
 * and what releases something does nothing.
 * Buffers are memory of the host.
 *
 * A call is executed at most once. PEER_LOST says whether the request was sent; only functions that
 * are TRI_RPC_IDEMPOTENT are sent again. Calls of one thread on one reference start in the order in
 * which they were made; nothing else is ordered.
 *
 * While a thread waits for a call it runs requests of its own chain: what the callee calls in
 * return. So hold no lock that such a handler takes. The deadline is looked at again only when the
 * handler has returned; tri_rpc_request_left_ms tells it how long that is.
 *
 * Errors of a call: those of the handler, with its line, after the names of the function and the
 * worker; NOT_FOUND (no such function there), INVALID_ARG (the message exceeds a limit), TIMEOUT,
 * PEER_LOST, ABORTED (cancelled, or this worker has left), STATE (the other worker is leaving, has
 * no thread left, or has released the object; called in a forked child or where it may not block).
 */
#ifndef TRIREME_RPC_H
#define TRIREME_RPC_H

#include <trireme/call_site.h>
#include <trireme/status.h>
#include <trireme/store.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

#define TRI_RPC_TIMEOUT_MS INT64_C(60000)
#define TRI_RPC_MAX_NAME 127 /* bytes of the name of a worker, an object or a function */
#define TRI_RPC_MAX_PARTS 1024
#define TRI_RPC_MAX_REFS 256

typedef struct tri_rpc tri_rpc;                 /* a worker: tri_rpc_create/destroy */
typedef struct tri_rpc_ref tri_rpc_ref;         /* a worker, or an object of one: shared */
typedef struct tri_rpc_call tri_rpc_call;       /* a call under way: its caller's */
typedef struct tri_rpc_request tri_rpc_request; /* the same at the callee, until it is answered */

/* --- workers -------------------------------------------------------------- */

typedef enum tri_rpc_event_kind {
    TRI_RPC_CAME, /* a connection with the worker is there; told once, before the other two */
    TRI_RPC_LEFT, /* it has left in order */
    TRI_RPC_LOST  /* it has died, or cannot be reached any more */
} tri_rpc_event_kind;

/* What `event` of the options is told; borrowed during the call. */
typedef struct tri_rpc_event {
    tri_rpc_event_kind kind;
    const char *worker; /* its name */
    const char *text;   /* what has happened, one line */
    TRI_RESERVED(4);
} tri_rpc_event;

/* Zero means default. */
typedef struct tri_rpc_options {
    int threads;         /* of handlers that run at a time. One that waits for a call is not
                            counted; nor is one that has slept for milliseconds, say until another
                            handler has run, while requests are queued (/proc tells: without it
                            such handlers end at their deadlines). Threads start when needed.
                            0 = TRI_RPC_THREADS, else TRI_NUM_THREADS (under trirun a share of the
                            cores, often 1), else the cores */
    int max_threads;     /* of all handlers, also of those that wait; 0 = 64 */
    int64_t timeout_ms;  /* of calls, init and fini; 0 = TRI_RPC_TIMEOUT_MS; TRI_FOREVER = none */
    size_t window_bytes; /* of requests that a peer may have unanswered here, and of parts of
                            replies that it may have taken and not freed; 0 = 64 MiB */
    int window_calls;    /* the same in calls; 0 = 1024 */
    size_t max_message;  /* larger ones are refused before memory is taken; 0 = 1 GiB */
    bool open;           /* workers may come and go at any time; size is ignored */
    bool tcp_only;       /* no shared memory, also within a host */
    /* Called when a worker has come, has left or was lost, one event at a time and in their order,
     * perhaps before tri_rpc_init has returned; NULL = not wanted. Must not block, nor call a
     * function that waits. */
    void (*event)(tri_rpc *rpc, const tri_rpc_event *event, void *arg);
    void *arg;
    /* Served, as by tri_rpc_serve, before any worker can call; one that is added later may be
     * called too early. NULL = none */
    const struct tri_rpc_function *const *functions;
    int n_functions;
    TRI_RESERVED(8);
} tri_rpc_options;

/**
 * Makes this process a worker, and joins the world if that has not been done (tri_init).
 *
 *   name  unique in the job; letters, digits and -_:. ; NULL = "worker<rank>"
 *
 * Blocks until all workers of the world have come, at most for the timeout; a TIMEOUT names the
 * ranks that have not. Each is connected then, so that its end is known from then on. With
 * opt->open it waits for no other worker. Makes no collective of its own afterwards.
 * Errors: INVALID_ARG, TIMEOUT, STATE (called twice; a living worker has the name), IO, those of
 * tri_init.
 */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_init(const char *name, const tri_rpc_options *opt);
/* tri_rpc_leave and tri_rpc_destroy of the process's own worker, and tri_finalize if tri_rpc_init
 * has joined the world. Blocks as tri_rpc_leave does, whose status it returns: the worker is gone
 * all the same, unless a handler has called this (STATE). */
TRI_API tri_status tri_rpc_fini(void);
/* The general form: each of `size` workers calls it with the same store, of which a clone is kept.
 * Workers may be threads of one process. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_create(tri_store *store, const char *name, int rank,
                                                 int size, const tri_rpc_options *opt,
                                                 tri_rpc **rpc_out);
/* Waits for this worker's own calls, then serves until all others have left, are lost, or are in
 * this call too. With opt->open others are those that have come by then, and somebody is waited for
 * as long as this worker has neither called another one nor been called, and no other has left or
 * was lost: servers that know only each other wait for their first client. A worker that comes
 * after all have joined is not waited for. TIMEOUT names some of those that it still waits for, or,
 * two seconds later, the store, if it has not answered; 0 = the worker's timeout. STATE:
 * a handler of this worker calls this. */
TRI_API tri_status tri_rpc_join(tri_rpc *rpc, int64_t timeout_ms);
/* Leaves in order: others' new calls get STATE, own calls and running requests end, the others are
 * told. Blocks at most for the timeout (0 = the worker's); TIMEOUT names what is unfinished, which
 * ends with ABORTED, or, two seconds later, the store, if it has not answered. Lost workers are not
 * waited for. The log names references that others hold. STATE: it has left before, or a handler of
 * this worker calls this. */
TRI_API tri_status tri_rpc_leave(tri_rpc *rpc, int64_t timeout_ms);
/* Ends every call at once, here with ABORTED and at the peers with PEER_LOST. Never blocks. */
TRI_API void tri_rpc_abort(tri_rpc *rpc, const char *why);
/* Without tri_rpc_leave it aborts. Calls, references and messages may be released later, and kept
 * requests answered. Threads in tri_rpc_join, tri_rpc_find or tri_rpc_leave of this worker get
 * ABORTED; it waits up to a second for them. Not from a handler of this worker. NULL allowed. */
TRI_API void tri_rpc_destroy(tri_rpc *rpc);
/* Its name; "" without a worker. Borrowed. */
TRI_API const char *tri_rpc_name(const tri_rpc *rpc);

/* --- messages ------------------------------------------------------------- */

typedef struct tri_rpc_part {
    const void *data;
    size_t bytes;
} tri_rpc_part;

/* Data are copied. Parts are for large buffers: within a host the receiver maps memory of
 * tri_rpc_alloc, and sees later changes; other memory is copied once. Parts of a request are
 * borrowed until the call has ended, those of a reply until tri_rpc_reply returns, unless they are
 * memory of tri_rpc_alloc. What was received is borrowed: with a request until that is answered,
 * with a reply until tri_rpc_message_free. */
typedef struct tri_rpc_message {
    const void *data; /* 16-byte aligned where it was received */
    size_t bytes;
    const tri_rpc_part *parts;
    tri_rpc_ref *const *refs; /* the receiver holds its own */
    int n_parts, n_refs;
    void *owner; /* of a reply: what tri_rpc_message_free releases; a program leaves it NULL */
    TRI_RESERVED(4);
} tri_rpc_message;
TRI_API void tri_rpc_message_free(tri_rpc_message *message); /* NULL and zeroed allowed */

/* Memory that workers of this host map when this one first sends it to them, 64-byte aligned, until
 * tri_rpc_free or the worker's end. NULL: it failed, with the error line. */
TRI_API void *tri_rpc_alloc(tri_rpc *rpc, size_t bytes);
/* Never blocks: the memory is reused once no message has it any more. What is not from
 * tri_rpc_alloc, or has been freed, is logged. NULL allowed. */
TRI_API void tri_rpc_free(tri_rpc *rpc, void *memory);

/* --- functions and objects ------------------------------------------------ */

/* Never blocks: runs in the thread that receives, whatever that is, even while locks of the library
 * are held. It calls nothing that waits, and takes no lock under which another thread waits. */
#define TRI_RPC_INLINE 1u
/* May be sent again after the worker was lost, to it or to the next worker of its name. */
#define TRI_RPC_IDEMPOTENT 2u

struct tri_rpc_object;

/* `static const`, in the caller and the callee; the name is what travels. */
typedef struct tri_rpc_function {
    const char *name;   /* required: "ps.update" */
    size_t max_request; /* bytes of data; 0 = 64 KiB */
    size_t max_reply;   /* 0 = 64 KiB */
    size_t max_part;    /* bytes of a part, of request or reply; 0 = it takes no parts */
    unsigned flags;     /* TRI_RPC_INLINE, TRI_RPC_IDEMPOTENT */
    /* Handles a request: TRI_OK (answered, or an empty reply is sent), a failure (tri_status_fail
     * sets its line), INPROGRESS = it is kept and answered later. object: NULL where a worker
     * was called. May block, unless inline; called from threads of the library, from several at
     * once. NULL: this program only calls it. */
    tri_status (*run)(tri_rpc_request *request, void *object);
    /* It is for objects of this kind only (the same, or one of the same name): called on anything
     * else it fails with INVALID_ARG, before run. NULL = for all */
    const struct tri_rpc_object *of;
    TRI_RESERVED(7);
} tri_rpc_function;

/* From now on others may call these; the table is copied, the functions are borrowed until the
 * worker is destroyed. STATE: another function has that name. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_serve(tri_rpc *rpc,
                                                const tri_rpc_function *const *functions, int n);

typedef struct tri_rpc_object {
    const char *name; /* of its kind, for messages */
    bool serial;      /* one request at a time, but for what it leads to while it waits for that */
    void (*release)(void *object); /* called after the last reference is gone, by any thread; must
                                      not block. NULL = nothing to do */
    TRI_RESERVED(8);
} tri_rpc_object;

/* Makes an object that others can call, of class `type` (borrowed while it lives).
 *   name_or_null  others find it as "worker/name", until the worker leaves
 * Never blocks. INVALID_ARG: it is not a name. STATE: the name is taken, or the worker leaves. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_own(tri_rpc *rpc, const char *name_or_null,
                                              const tri_rpc_object *type, void *object,
                                              tri_rpc_ref **ref_out);
/* "ps": a worker; "ps/server": its object. Waits until it is there, at most for the worker's
 * timeout. NOT_FOUND: all of a closed set have come, and none has that name. Calls on a reference
 * that was found by name go to the next worker of that name, if the first one was lost. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_find(tri_rpc *rpc, const char *name,
                                               tri_rpc_ref **ref_out);

TRI_API tri_rpc_ref *tri_rpc_ref_ref(tri_rpc_ref *ref); /* NULL allowed */
TRI_API void tri_rpc_ref_unref(tri_rpc_ref *ref);       /* NULL allowed; never blocks */
/* What was given to tri_rpc_own; NULL: another worker's, or a worker. Borrowed. */
TRI_API void *tri_rpc_ref_object(const tri_rpc_ref *ref);
/* The name of the worker that owns it; "" while it is a promise (tri_rpc_remote), and if that has
 * failed. Borrowed. */
TRI_API const char *tri_rpc_ref_owner(const tri_rpc_ref *ref);
/* OK; INPROGRESS: a promise; else why it is of no use, with the line. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_ref_status(const tri_rpc_ref *ref);

/* --- calling -------------------------------------------------------------- */

/* Zero means default. */
typedef struct tri_rpc_call_options {
    int64_t timeout_ms; /* 0 = the worker's; never more than what is left of the call that this
                           thread handles */
    bool no_wait;       /* where it would wait for a busy peer: INPROGRESS, and no call. Nor does it
                           wait for a connection: the call goes when there is one; until then as
                           many are kept, in calls and bytes, as the window of this worker allows */
    /* Called when the call has ended, by the thread that receives or the one that calls; under the
     * rules of TRI_RPC_INLINE. NULL = not wanted */
    void (*done)(tri_rpc_call *call, void *arg);
    void *arg;
    TRI_RESERVED(4);
} tri_rpc_call_options;

/**
 * Calls and waits for the reply.
 *
 *   in         NULL = an empty one
 *   opt        NULL = defaults
 *   reply_out  to be released with tri_rpc_message_free; NULL = what it has is dropped
 *
 * STATE, beside those of the call: as of tri_rpc_call_take_reply; the reply is dropped.
 */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_sync(tri_rpc_ref *to, const tri_rpc_function *function,
                                               const tri_rpc_message *in,
                                               const tri_rpc_call_options *opt,
                                               tri_rpc_message *reply_out);
/* Returns once the request is on its way, which waits only while the peer has too many unanswered
 * ones, or for a connection to a worker that took another's place. call_out NULL: no reply is
 * wanted; a failure is logged, unless opt->done hears of it. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_async(tri_rpc_ref *to, const tri_rpc_function *function,
                                                const tri_rpc_message *in,
                                                const tri_rpc_call_options *opt,
                                                tri_rpc_call **call_out);
/* As tri_rpc_async, with a promise instead of a call: the first reference of the reply, as soon as
 * that is there. It may be called and passed on at once; such calls start then, or fail as this one
 * does. They are sent at once, and wait for it at the callee, at most half of its window; calls of
 * inline functions, or with other promises as arguments, and all that come after them wait here. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_remote(tri_rpc_ref *to, const tri_rpc_function *function,
                                                 const tri_rpc_message *in,
                                                 const tri_rpc_call_options *opt,
                                                 tri_rpc_ref **ref_out);
/* Waits for the end and returns the call's status; TIMEOUT with timeout_ms over: it goes on.
 * 0 = until its own deadline. One thread waits for a call at a time; a second one gets STATE. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_call_wait(tri_rpc_call *call, int64_t timeout_ms);
/* INPROGRESS until it has ended, then its status. Never blocks. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_call_test(tri_rpc_call *call);
/* Waits until one of n calls of one worker has ended; NULL entries are passed over, but not all may
 * be NULL (INVALID_ARG). *which_out is its index, the status is OK even if the call failed.
 * TIMEOUT; 0 = without limit but the calls' deadlines. STATE: another thread waits for one of them.
 */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_wait_any(tri_rpc_call *const *calls, int n,
                                                   int64_t timeout_ms, int *which_out);
/* Ends it with ABORTED unless it has ended; the callee is told. Never blocks. */
TRI_API void tri_rpc_call_cancel(tri_rpc_call *call);
/* Why it failed; "" if it did not, or has not ended. Borrowed while the call lives. */
TRI_API const char *tri_rpc_call_error(const tri_rpc_call *call);
/* Moves the reply of a call that ended well to the caller. STATE: it has not, or it was taken; or
 * too many of that worker's replies have been taken and not freed (tri_rpc_options.window_calls and
 * window_bytes of that worker): the call keeps it. */
TRI_API TRI_MUST_CHECK tri_status tri_rpc_call_take_reply(tri_rpc_call *call,
                                                          tri_rpc_message *reply_out);
/* Releases the handle; a call under way goes on. A failure that nobody has read is logged. NULL
 * allowed. */
TRI_API void tri_rpc_call_destroy(tri_rpc_call *call);

/* --- handling ------------------------------------------------------------- */

/* What came with it; borrowed until it is answered. */
TRI_API const tri_rpc_message *tri_rpc_request_message(tri_rpc_request *request);
TRI_API const char *tri_rpc_request_caller(const tri_rpc_request *request); /* a worker's name */
/* Until the caller gives up, in milliseconds; TRI_FOREVER: it will not. */
TRI_API int64_t tri_rpc_request_left_ms(const tri_rpc_request *request);
/* The caller has given up, has left or was lost: nobody will read the reply. */
TRI_API bool tri_rpc_request_is_cancelled(const tri_rpc_request *request);
/* Answers, once, from any thread. The request ends, with what is borrowed from it: at once, or when
 * its handler returns. out NULL = empty. Never blocks. OK also if its caller is gone. INVALID_ARG
 * (a limit of the function is exceeded) and NO_MEMORY: it is not answered yet, and the line says
 * where this was called. */
TRI_API tri_status tri_rpc_reply(tri_rpc_request *request, const tri_rpc_message *out);
/* Answers, as tri_rpc_reply, with a failure (below 0) and this thread's error line. */
TRI_API void tri_rpc_fail(tri_rpc_request *request, tri_status status);
#ifndef TRI_NO_SITES
#define tri_rpc_sync(...) TRI_SITE_SET_(tri_rpc_sync(__VA_ARGS__))
#define tri_rpc_async(...) TRI_SITE_SET_(tri_rpc_async(__VA_ARGS__))
#define tri_rpc_remote(...) TRI_SITE_SET_(tri_rpc_remote(__VA_ARGS__))
#define tri_rpc_reply(...) TRI_SITE_SET_(tri_rpc_reply(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
