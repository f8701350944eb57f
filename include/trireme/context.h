/*
 * context.h - several steps at once.
 *
 * A context holds a step, its modes (tri_no_grad_begin, tri_autocast_begin, tri_device_begin and
 * the device of tri_set_device) and its random state.
 * Every thread has one of its own, made when it first records and freed when it ends, so a program
 * with one step a thread needs nothing of this header. More of them are for steps that outlive a
 * call, or that go from thread to thread: one is entered, and until it is left all that the thread
 * records, runs and asks for is the context's.
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
/* From now on this thread records into the context; its step goes on where it was left, whichever
 * thread that was. They nest. Errors: INVALID_ARG (NULL), STATE (it is entered already: one thread
 * at a time, and once). */
TRI_API TRI_MUST_CHECK tri_status tri_context_enter(tri_context *context);
/* Back to what the thread had before it entered; the context keeps its step, with what has not run.
 * Errors: STATE (none was entered). A thread that ends leaves what it had entered. */
TRI_API TRI_MUST_CHECK tri_status tri_context_leave(void);
/* Its step is dropped without running what was recorded last (tri_run does that). One that is
 * entered ends when it is left. Any thread; NULL allowed. */
TRI_API void tri_context_destroy(tri_context *context);

TRI_END_DECLS

#endif
