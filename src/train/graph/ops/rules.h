/*
 * rules.h - what operations and their gradients share: shape rules, recording, loops over
 * operands.
 *
 * Reference kernels of floating-point operations compute in f64 and round once to the type of their
 * result, so for f32 they are the truth to half a unit in the last place per operation (for one
 * sum, product, quotient or root that is exactly the f32 operation). The exception is updates
 * (update.h): there each step rounds to the tensor's type, because replicas must agree to the bit
 * with every device.
 */
#ifndef TRII_RULES_H
#define TRII_RULES_H

#include <trireme/ops.h>

#include "base/dtype.h"
#include "base/err.h"
#include "train/graph/ops/table.h"
#include "train/graph/record/record.h"
#include "train/graph/step/type.h"

/* --- shape rules ---------------------------------------------------------- */

/* f32 or f64; `what` names the operand. */
tri_status trii_rule_float(const trii_type *type, const char *what);
/* i64, which counts elements. */
tri_status trii_rule_index(const trii_type *type, const char *what);
/* Whether the dtype can represent the value; PyTorch refuses what overflows, too. */
tri_status trii_rule_number(double value, tri_dtype dtype);
tri_status trii_rule_same_dtype(const trii_type *a, const trii_type *b);
tri_status trii_rule_ndim(const trii_type *type, int ndim, const char *what);
/* out = a broadcast with b, as NumPy does; the dtype is a's. */
tri_status trii_rule_broadcast(const trii_type *a, const trii_type *b, trii_type *out);
/* The operand `what` has exactly this shape. */
tri_status trii_rule_shape(const trii_type *type, const char *what, int ndim, const int64_t *shape);
/* dim from [-ndim, ndim) to [0, ndim); a scalar counts as having one dimension. */
tri_status trii_rule_dim(int64_t dim, int ndim, int *dim_out);
void trii_type_scalar(trii_type *out, tri_dtype dtype);
/* Of x in rows over its last n_dims dimensions: the type of one number a row, and of what all rows
 * share. */
void trii_row_types(const trii_type *x, int64_t n_dims, trii_type *stats, trii_type *shared);
/* out = one floating-point input, as it is. */
tri_status trii_shape_unary_float(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                  trii_type *out, int *n_out);
/* All floating-point inputs broadcast together. */
tri_status trii_shape_broadcast_float(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out);

/* --- recording ------------------------------------------------------------ */

/* An operation on at most four values with at most one float attribute. */
tri_status trii_rec1(trii_step *step, const trii_graph_op *op, trii_vid a,
                     trii_vid *out) TRI_MUST_CHECK;
tri_status trii_rec2(trii_step *step, const trii_graph_op *op, trii_vid a, trii_vid b,
                     trii_vid *out) TRI_MUST_CHECK;
/* One whose integers are these sizes. */
tri_status trii_rec_shaped(trii_step *step, const trii_graph_op *op, trii_vid a,
                           const int64_t *shape, int ndim, trii_vid *out) TRI_MUST_CHECK;
/* Each function below is in the file of the operation that it records. */

tri_status trii_rec_scaled(trii_step *step, trii_vid a, double factor,
                           trii_vid *out) TRI_MUST_CHECK;
/* Sums `a` to the shape of `like` (what broadcasting repeated); `a` itself if it has it. */
tri_status trii_rec_sum_to(trii_step *step, trii_vid a, const trii_type *like,
                           trii_vid *out) TRI_MUST_CHECK;
tri_status trii_rec_reshape(trii_step *step, trii_vid a, const int64_t *shape, int ndim,
                            trii_vid *out) TRI_MUST_CHECK;
tri_status trii_rec_expand(trii_step *step, trii_vid a, const int64_t *shape, int ndim,
                           trii_vid *out) TRI_MUST_CHECK;
/* [M, K] x [K, N], each operand transposed if asked. */
tri_status trii_rec_matmul(trii_step *step, trii_vid a, trii_vid b, bool transpose_a,
                           bool transpose_b, trii_vid *out) TRI_MUST_CHECK;

/* Words 4 * block to 4 * block + 3 of a random operation; see create.c. */
void trii_random_words(const trii_random *random, uint64_t block, uint32_t out[4]);

/* trii_record for a function whose name is not that of its operation. */
tri_tensor *trii_record_as(const char *name, const trii_graph_op *op, tri_tensor *const *in,
                           int n_in, const trii_attrs *attrs);
/* x's elements start .. start + n of one dimension. */
tri_status trii_rec_narrow(trii_step *step, trii_vid x, int dim, int64_t start, int64_t n,
                           trii_vid *out) TRI_MUST_CHECK;
/* The parts one after the other along dim; overwrites ids. */
tri_status trii_rec_concat(trii_step *step, trii_vid *ids, int64_t n, int dim,
                           trii_vid *out) TRI_MUST_CHECK;
/* The attributes of the slice start:end:stride of one dimension, with all other dimensions
 * whole. */
tri_status trii_slice_attrs(const trii_type *x, int dim, int64_t start, int64_t end, int64_t stride,
                            trii_attrs *attrs) TRI_MUST_CHECK;
/* The slice of a padded tensor that is x; pads: for each dimension elements before and after. */
void trii_pad_slice(const trii_type *x, const int64_t *pads, int64_t *slice);
/* The operand of a public function that names one of its dimensions; resolves both. */
tri_status trii_dim_operand(trii_step *step, tri_tensor *x, int dim, trii_vid *id,
                            int *d) TRI_MUST_CHECK;
/* Zeros of this type, also of bf16 and f16. */
tri_status trii_rec_zeros(trii_step *step, const trii_type *type, trii_vid *out) TRI_MUST_CHECK;

/* --- kernels -------------------------------------------------------------- */

#define TRII_WALK_INPUTS 5

/* One row of an element-wise operation: y[k] = f(in[j][k * stride[j]]) for k < n; strides in
 * elements, 0 where an operand is broadcast. */
typedef void (*trii_row_fn)(int64_t n, void *y, const void *const *in, const int64_t *stride,
                            const trii_kernel_args *args);
/* Walks output 0 in plain order and calls the row function of its dtype (NULL = not admitted). */
tri_status trii_walk(const trii_kernel_args *args, trii_row_fn f32, trii_row_fn f64,
                     trii_row_fn i64);

/* The same with this row function, whatever the dtypes. */
tri_status trii_walk_rows(const trii_kernel_args *args, trii_row_fn fn);

/* Runs `kernel` with every f32 operand widened to f64, and rounds the results. */
tri_status trii_in_double(const trii_kernel_args *args,
                          tri_status (*kernel)(const trii_kernel_args *args));

/* c[M, N] = a b, all f64; element (i, k) of a is a[i * a_row + k * a_col], b is [K, N] plain, c has
 * rows of c_row elements. Sums run over k in order. */
typedef struct trii_gemm {
    int64_t m, n, k;
    const double *a;
    int64_t a_row, a_col;
    const double *b;
    int64_t b_row;
    double *c;
    int64_t c_row;
    bool accumulate; /* c += */
} trii_gemm;
void trii_gemm_run(const trii_gemm *g);

#endif
