/*
 * grads.h - what a tensor itself says about its gradient: whether it has one, and whether that can
 * be read.
 */
#ifndef TRII_GRADS_H
#define TRII_GRADS_H

#include "train/graph/step/step.h"

/* Relaxed: a context that relies on it has claimed the gradient, or is alone. */
static inline bool trii_grad_published(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->has_grad, memory_order_relaxed);
}

static inline bool trii_grad_shows(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->shows_grad, memory_order_acquire);
}

/* Release: pairs with tri_grad in another thread. */
static inline void trii_grad_show(tri_tensor *tensor, bool shows)
{
    atomic_store_explicit(&tensor->shows_grad, shows, memory_order_release);
}

static inline void trii_grad_set(tri_tensor *tensor, bool has, bool shows)
{
    atomic_store_explicit(&tensor->has_grad, has, memory_order_relaxed);
    trii_grad_show(tensor, shows);
}

/* Relaxed: its unit makes the promise and keeps it, and any thread that clears the gradient takes
 * it back. */
static inline bool trii_grad_promised(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->grad_promised, memory_order_relaxed);
}

static inline void trii_grad_promise(tri_tensor *tensor, bool promised)
{
    atomic_store_explicit(&tensor->grad_promised, promised, memory_order_relaxed);
}

#endif
