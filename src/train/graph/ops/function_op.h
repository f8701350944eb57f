/*
 * function_op.h - what a user's function (function_op.c) and its gradient
 * (gradients/function_gradient.c) share: the attributes.
 */
#ifndef TRII_FUNCTION_OP_H
#define TRII_FUNCTION_OP_H

#include <trireme/function.h>

#include "train/graph/ops/rules.h"

/* i: the class; counts; which inputs want a gradient, and which results give one (backward); types
 * of the results, one byte each; their sizes */
enum {
    TRII_FUNCTION_CLASS,
    TRII_FUNCTION_COUNTS,
    TRII_FUNCTION_WANTED,
    TRII_FUNCTION_TYPES,
    TRII_FUNCTION_SIZES = TRII_FUNCTION_TYPES + 2
};

/* in: inputs and results, except those that backward does not read, then the gradients that are
 * there. */
extern const trii_graph_op trii_op_apply_backward;

static inline const tri_function_class *trii_function_class_of(const int64_t *iattr)
{
    return (const tri_function_class *)(uintptr_t)iattr[TRII_FUNCTION_CLASS];
}

static inline const void *trii_function_data_of(const double *f)
{
    return (const void *)((uintptr_t)f[0] << 32 | (uintptr_t)f[1]);
}

/* n_out: with the results that are saved. */
void trii_function_begin_attrs(trii_attrs *attrs, const tri_function_class *class, int n_in,
                               int n_out, int64_t wanted);
void trii_function_put_data(trii_attrs *attrs, const void *data);
/* Result number k has this type. */
void trii_function_put_type(trii_attrs *attrs, int k, tri_dtype dtype, int ndim,
                            const int64_t *shape);

/* Around the user's code, which may return a status without setting the error line: before it, and
 * if it failed. */
void trii_function_expect_reason(void);
tri_status trii_function_failed_in(tri_status status, const char *what,
                                   const tri_function_class *class) TRI_MUST_CHECK;

#endif
