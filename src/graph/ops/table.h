/*
 * table.h - every operation, with its operands and attributes.
 *
 *   in   inputs; "w?" may be absent     i  integer attributes (part of a plan's identity)
 *   out  outputs, "y" if not said       f  floating-point attributes (rewritten each run)
 *
 * [E] element-wise with broadcasting, [R] reduction, [V] view. Operations called _backward are
 * the gradients that tri_backward records: g is the gradient of the result.
 */
#ifndef TRII_OPS_TABLE_H
#define TRII_OPS_TABLE_H

#include "graph/op.h"

/* All of them; tests iterate. */
extern const trii_graph_op *const trii_ops_all[];
extern const int trii_ops_count;

/* elementwise.c [E] */
extern const trii_graph_op trii_op_add, trii_op_sub, trii_op_mul; /* in a b; f32 f64 i64 */
extern const trii_graph_op trii_op_div;                           /* in a b */
extern const trii_graph_op trii_op_maximum, trii_op_minimum;      /* in a b; NaN wins */
/* in g a b; i: 1 = of the minimum, 1 = gradient of b. g where the operand won, g/2 where equal. */
extern const trii_graph_op trii_op_extremum_backward;
extern const trii_graph_op trii_op_add_scalar, trii_op_mul_scalar; /* in x; f: number */
extern const trii_graph_op trii_op_neg, trii_op_abs, trii_op_square, trii_op_sqrt, trii_op_exp,
    trii_op_log;                                 /* in x */
extern const trii_graph_op trii_op_abs_backward; /* in g x */

/* activations.c [E]; in x. Gradients: in g y, or g x where noted. */
extern const trii_graph_op trii_op_relu, trii_op_sigmoid, trii_op_tanh, trii_op_gelu, trii_op_silu;
extern const trii_graph_op trii_op_leaky_relu;    /* f: slope */
extern const trii_graph_op trii_op_relu_backward; /* g where y > 0 (or NaN), else 0 */
extern const trii_graph_op trii_op_sigmoid_backward, trii_op_tanh_backward;
extern const trii_graph_op trii_op_leaky_relu_backward;                  /* in g x; f: slope */
extern const trii_graph_op trii_op_gelu_backward, trii_op_silu_backward; /* in g x */

/* create.c */
extern const trii_graph_op trii_op_fill; /* [E] no input; i: dtype, device, sizes..; f: value */
/* No input, random; i: dtype, device, sizes..; f: p. 0 with probability p, else 1/(1-p): which
 * element is which is written there, bit by bit. */
extern const trii_graph_op trii_op_dropout_mask;
extern const trii_graph_op trii_op_copy; /* [E] in x of any dtype */
extern const trii_graph_op trii_op_cast; /* [E] in x; i: dtype */
/* Runs the reference kernel; operands in bf16 are widened for it, its results rounded. */
tri_status trii_reference_kernel(const trii_graph_op *op,
                                 const trii_kernel_args *args) TRI_MUST_CHECK;
/* Zeroed memory for a reference kernel: lent by its caller as long as that has any, else allocated;
 * NULL (and the error line) without memory. Return it in either case. */
void *trii_work_take(const trii_kernel_args *args, size_t n, size_t size);
void trii_work_return(const trii_kernel_args *args, void *block);
/* What trii_reference_kernel takes to widen these operands. */
size_t trii_work_bytes(const trii_kernel_args *args);
void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs);

/* shaping.c; in x of any dtype */
extern const trii_graph_op trii_op_reshape; /* [V]; i: sizes.. of the result (one may be -1) */
extern const trii_graph_op trii_op_expand;  /* [E] the input broadcast; i: sizes.. of the result */
extern const trii_graph_op trii_op_permute; /* i: for each result dimension, which of x it is */
extern const trii_graph_op trii_op_flip;    /* i: dim */

/* reductions.c [R]; in x; i: bit mask of dims, keepdim */
extern const trii_graph_op trii_op_sum, trii_op_mean, trii_op_amax;
extern const trii_graph_op trii_op_argmax;        /* i: dim; i64 */
extern const trii_graph_op trii_op_amax_backward; /* in g x y; not [R] */
extern const trii_graph_op trii_op_sum_to; /* i: sizes.. of the result: undoes broadcasting */

/* matmul.c */
extern const trii_graph_op trii_op_matmul; /* in a b; i: transpose_a, transpose_b (last two dims) */
/* Of linear's gradients in bf16: b is f32; the result is f32. */
extern const trii_graph_op trii_op_matmul_weight, trii_op_matmul_to_weight;
extern const trii_graph_op
    trii_op_linear; /* in x [.., I] w [O, I] b? [O]; gradients by matmul, sum_to */

/* conv2d.c; i: stride h w, padding h w, dilation h w, groups */
extern const trii_graph_op trii_op_conv2d;                 /* in x w b? */
extern const trii_graph_op trii_op_conv2d_backward_data;   /* in g w; i: .., shape of x */
extern const trii_graph_op trii_op_conv2d_backward_weight; /* in g x; i: .., shape of w */

/* pool2d.c; in x; i: kernel h w, stride h w, padding h w, ceil_mode, exclude_padding */
extern const trii_graph_op trii_op_max_pool2d, trii_op_avg_pool2d;
/* in g, for the maximum also x; i: .., image h w. The first of equals (row by row) gets all. */
extern const trii_graph_op trii_op_max_pool2d_backward, trii_op_avg_pool2d_backward;
/* i: output h w; window of output o: [floor(o H / h), ceil((o + 1) H / h)) */
extern const trii_graph_op trii_op_adaptive_max_pool2d, trii_op_adaptive_avg_pool2d;
extern const trii_graph_op trii_op_adaptive_max_pool2d_backward,
    trii_op_adaptive_avg_pool2d_backward;

/* batch_norm.c; f: momentum, eps */
/* in x w? b? running_mean? running_var?; out y, mean [C], invstd [C], and with running ones the new
 * running_mean, running_var (which may lie on the old). */
extern const trii_graph_op trii_op_batch_norm;
extern const trii_graph_op trii_op_batch_norm_backward; /* in g x w? mean invstd; out dx dw db */
extern const trii_graph_op trii_op_batch_norm_eval;     /* in as batch_norm; out y */
extern const trii_graph_op
    trii_op_batch_norm_eval_backward; /* in g x w? r_mean r_var; out dx dw db */

/* softmax.c; in x; i: dim. Gradients: in g y. */
extern const trii_graph_op trii_op_softmax, trii_op_log_softmax;
extern const trii_graph_op trii_op_softmax_backward, trii_op_log_softmax_backward;

/* losses.c; out: a scalar */
extern const trii_graph_op trii_op_mse_loss;               /* [R] in a b */
extern const trii_graph_op trii_op_mse_loss_backward;      /* [E] in g a b; f: 2/n. g (a - b) f */
extern const trii_graph_op trii_op_cross_entropy;          /* in logits target; f: smoothing */
extern const trii_graph_op trii_op_cross_entropy_backward; /* in g logits target; f: smoothing */
extern const trii_graph_op trii_op_count_correct;          /* in logits target; i64 */

/* sgd.c [E] in p g m?; i: nesterov, first_step, maximize; f: lr, momentum, dampening, weight_decay.
 * out p' (may lie on p), and m' (may lie on m) if m is given or first_step is 1:
 *   d = (maximize ? -g : g) + weight_decay p;  m' = m ? momentum m + (1 - dampening) d : d;
 *   d = nesterov ? d + momentum m' : m' (if there is m');  p' = p - lr d
 * Every product and sum is rounded to the tensor's type, in this order: the same bits everywhere.
 * Optimisers bind p' to the parameter and m' to its state. */
extern const trii_graph_op trii_op_sgd;

#endif
