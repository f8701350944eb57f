/*
 * table.h - every operation, with its operands and attributes. in: inputs ("w?" = may be absent),
 * out: outputs, i: integer attributes, f: floating-point attributes.
 */
#ifndef TRII_OPS_TABLE_H
#define TRII_OPS_TABLE_H

#include "graph/op.h"

/* All of them; tests iterate. */
extern const trii_op *const trii_ops_all[];
extern const int trii_ops_count;

/* elementwise.c: in a b, broadcast; out y */
extern const trii_op trii_op_add, trii_op_sub, trii_op_mul, trii_op_div;
extern const trii_op trii_op_relu;          /* in x */
extern const trii_op trii_op_relu_backward; /* in g y: g where y > 0 (or NaN), else 0 */
extern const trii_op trii_op_neg;
extern const trii_op trii_op_mul_scalar; /* f: factor */
extern const trii_op trii_op_copy;       /* in x of any dtype */

/* create.c: no input; i: dtype, device, sizes..; f: value */
extern const trii_op trii_op_fill;
void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs);

/* shaping.c; i: sizes.. of the result */
extern const trii_op trii_op_reshape; /* a view */
extern const trii_op trii_op_expand;  /* element-wise: the input broadcast */

/* reductions.c */
extern const trii_op trii_op_sum, trii_op_mean; /* i: bit mask of dims, keepdim */
extern const trii_op trii_op_sum_to;            /* i: sizes.. of the result: undoes broadcasting */

/* matmul.c; in a b; i: transpose_a, transpose_b (of the last two dimensions) */
extern const trii_op trii_op_matmul;
/* in x [.., I] w [O, I] b? [O] */
extern const trii_op trii_op_linear;

/* losses.c */
extern const trii_op trii_op_mse_loss;          /* in a b; out scalar */
extern const trii_op trii_op_mse_loss_backward; /* in g (scalar) a b; f: 2/n; g * (a - b) * f */

#endif
