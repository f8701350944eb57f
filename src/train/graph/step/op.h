/*
 * op.h - what an operation is: one static table entry, in the file of its family in ops/.
 *
 * To add one: docs/ARCHITECTURE.md. What 16 bits do to it is `precision`: by default they are
 * widened to f32. The plan runs it through the reference kernel until a device offers a faster one.
 */
#ifndef TRII_OP_H
#define TRII_OP_H

#include <trireme/tensor.h>

struct trii_step;
struct trii_node;
struct trii_strides; /* train/graph/step/strides.h */

typedef int32_t trii_vid; /* a value of the current step; -1 = none (an absent optional input) */
#define TRII_NO_VALUE (-1)

/* Of one node; an operation with more operands (tri_concat) or results (tri_split) becomes a tree
 * of nodes. */
#define TRII_MAX_INPUTS 64
#define TRII_MAX_OUTPUTS 64
#define TRII_MAX_IATTRS 40 /* five numbers for each of eight dimensions */
#define TRII_MAX_FATTRS 8

/* Shape and type of a value. */
typedef struct trii_type {
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    tri_device device;
} trii_type;

/* Integers are part of a plan's identity. Floats are not: they are in the plan's scalar block and
 * are written for each run. */
typedef struct trii_attrs {
    int n_i, n_f;
    double f[TRII_MAX_FATTRS];
    int64_t i[TRII_MAX_IATTRS]; /* last, since most operations touch only the first few */
} trii_attrs;

/* One more attribute. One too many is counted but not written, and recording then fails. */
static inline void trii_attrs_add(trii_attrs *attrs, int64_t value)
{
    if (attrs->n_i < TRII_MAX_IATTRS)
        attrs->i[attrs->n_i] = value;
    attrs->n_i++;
}
static inline void trii_attrs_add_f(trii_attrs *attrs, double value)
{
    if (attrs->n_f < TRII_MAX_FATTRS)
        attrs->f[attrs->n_f] = value;
    attrs->n_f++;
}

/* How a reference kernel sees its operands: plain, contiguous. data NULL = an absent input. */
typedef struct trii_array {
    void *data;
    const trii_type *type;
} trii_array;

/* Counter of a random operation: Philox key and the counter's upper words. */
typedef struct trii_random {
    uint64_t seed;
    uint64_t step;
    uint32_t stream; /* below 2^16 */
    uint32_t index;  /* n-th random operation of the step */
} trii_random;

/* Memory that a caller lends to reference kernels, so that they need not allocate. */
typedef struct trii_work {
    char *begin, *at;
    size_t bytes; /* from `at` on */
} trii_work;

typedef struct trii_kernel_args {
    int n_in, n_out;
    const trii_array *in;
    const trii_array *out; /* never aliases an input, except as the operation's `alias` says */
    const int64_t *iattr;
    const double *fattr;
    trii_random random;
    trii_work *work; /* NULL: none is lent */
} trii_kernel_args;

/* How the plan may fuse or place the operation. */
typedef enum trii_op_class {
    TRII_CLASS_OTHER,       /* a kernel of its own */
    TRII_CLASS_ELEMENTWISE, /* out[i] = f(in broadcast to out's shape at i); may run in place */
    TRII_CLASS_REDUCTION,
    TRII_CLASS_VIEW, /* outputs are elements of input 0 and nothing moves: see `view` */
    TRII_CLASS_JOIN, /* the inputs are the parts of output 0, as `view` says of a split of it */
    TRII_CLASS_HOST, /* a host operation, see host_op.h */
    /* a copy on another device, the first integer: the only operation whose results are on
     * another device than its operands */
    TRII_CLASS_TRANSFER
} trii_op_class;

/* What the operation does with operands of 16 bits, bf16 or f16; record/precision.c casts where
 * they are needed. */
typedef enum trii_precision {
    TRII_PRECISION_WIDE, /* takes none: they are widened to f32 */
    TRII_PRECISION_ANY,  /* moves elements of any type, or converts them itself */
    /* runs in 16 bits if all its activations are in them; else they are widened */
    TRII_PRECISION_FOLLOWS,
    TRII_PRECISION_LOWERED /* the same, and under tri_autocast its f32 activations are rounded */
} trii_precision;

/* Which rule records the gradient of an operation: rules are operations' users and stand above them
 * (gradients/gradient_rules.h), so that an entry has only the number. */
typedef enum trii_gradient {
    TRII_GRADIENT_NONE,
#define TRII_GRADIENT(name) TRII_GRADIENT_##name,
#include "train/graph/step/gradient_list.h"
#undef TRII_GRADIENT
} trii_gradient;

typedef struct trii_graph_op {
    const char *name; /* public name without tri_, e.g. "conv" */
    trii_op_class op_class;
    trii_precision precision;
    /* The rule that records its gradient; TRII_GRADIENT_NONE: it has none. */
    trii_gradient gradient;
    /* Which operands and results are activations, as bits: narrow when the operation runs in 16
     * bits. Others (parameters, statistics, gradients of parameters) stay f32. The shape rule and
     * the reference kernel see f32 in either case; results are rounded once. */
    uint8_t activations_in, activations_out;
    bool random;
    bool may_refuse; /* its kernels check the operands, and may fail */
    /* Operands (as bits) that it only reads to make new state, and how many of its last results are
     * that state: when it is computed again it gets and gives neither. They are optional. */
    uint8_t state_in, state_out;
    uint8_t optional; /* bit i set: input i may be absent; inputs from 8 on may not */
    /* Bit o set: output o may lie on input `alias[o]` (an update in place); the reference kernel
     * must allow it too. */
    uint32_t alias_mask;
    int8_t alias[8];

    /* Required. A function of its arguments' types and integers and of nothing else: it is not
     * called again in a step that repeats the last. Checks the operands (in[i] NULL = absent;
     * presence and equal devices were checked) and fills out[0 .. *n_out), at most
     * TRII_MAX_OUTPUTS, except the device. On failure one line with the reason (TRII_FAIL); the
     * caller prepends operation, operands and source line. */
    tri_status (*shape)(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                        trii_type *out, int *n_out);
    /* Required for operations that compute. Plain C for f32 and f64 (and the integer types that the
     * shape rule admits): the truth. Called through trii_reference_kernel (run/kernel.h), which
     * widens and rounds 16 bits. */
    tri_status (*reference)(const trii_kernel_args *args);
    /* TRII_CLASS_VIEW: where output o lies if the input lies at `from`. False: strides cannot say
     * it. TRII_CLASS_JOIN: where input o lies if the output, of type `in`, lies at `from`. */
    bool (*view)(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                 const struct trii_strides *from, struct trii_strides *to);
    /* For a view with one output that has each element of the input once: where the input lies if
     * the output lies at `from`. NULL: unknown. */
    bool (*view_from)(const trii_type *in, const trii_type *out, const int64_t *iattr,
                      const struct trii_strides *from, struct trii_strides *to);
    /* Floating-point operations of one run, for schedules and reports; NULL = one for each output
     * element. */
    double (*flops)(const trii_type *const *in, int n_in, const trii_type *out);
} trii_graph_op;

#endif
