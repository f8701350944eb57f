/*
 * context.h - several steps at once.
 *
 * A context holds a step, its modes (tri_no_grad_begin, tri_autocast_begin, tri_device_begin and
 * the device of tri_set_device) and its random state. Every thread has a context of its own, made
 * when it first records and freed when it ends, so a program with one step per thread does not need
 * this header. Make more contexts for steps that outlive a call, or that move from thread to
 * thread: a thread enters a context, and until it leaves, all that it records, runs and reads
 * belongs to that context.
 *
 * A thread that computes needs a stack of 128 KiB. What a step needed to run once is kept for the
 * next one: the process holds up to 1,024 compiled plans, some 100 KB each where models are small,
 * also those of models that are gone, and forgets the one that was used longest ago.
 */
#ifndef TRIREME_CONTEXT_H
#define TRIREME_CONTEXT_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef struct tri_context tri_context;

/* A context with no step and no modes, whose random state is the seed of tri_manual_seed, stream 0
 * and step 0, and whose default device is the current device of its maker. Errors: INVALID_ARG
 * (NULL), NO_MEMORY. Any thread. */
TRI_API TRI_MUST_CHECK tri_status tri_context_create(tri_context **context_out);
/* From now on this thread records into the context; its step continues where a thread left it,
 * whichever that was. Contexts nest. Errors: INVALID_ARG (NULL), STATE (this or another thread has
 * entered it already). */
TRI_API TRI_MUST_CHECK tri_status tri_context_enter(tri_context *context);
/* Returns the thread to the context that it had before; the context that it leaves keeps its step,
 * with what has not run. A thread that ends leaves its contexts. Errors: STATE (none entered). */
TRI_API TRI_MUST_CHECK tri_status tri_context_leave(void);
/* Drops its step without running what was recorded last (call tri_run first). A context that a
 * thread has entered is destroyed when it is left. Any thread; NULL allowed. */
TRI_API void tri_context_destroy(tri_context *context);

TRI_END_DECLS

#endif
