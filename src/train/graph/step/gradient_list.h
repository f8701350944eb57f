/*
 * gradient_list.h - every gradient rule once. A template: include it with TRII_GRADIENT(name)
 * defined: op.h numbers the rules by it (TRII_GRADIENT_name, which a table entry names),
 * gradients/gradient_rules.h declares the functions trii_grad_NAME, gradients/gradient_table.c
 * makes their table.
 *
 * A rule is called as the operation that it belongs to, but for those that several share.
 */
/* clang-format off */

/* of several operations */
TRII_GRADIENT(pass)       /* g itself */
TRII_GRADIENT(zero)       /* zeros: of step functions */
TRII_GRADIENT(flat)       /* second_order.c: linear in the first operand, piecewise constant in the others */
TRII_GRADIENT(class_loss) /* losses_gradient.c: cross_entropy, nll_loss */

/* elementwise_gradient.c */
#define TRII_EW_GRADIENT(name, recorded) TRII_GRADIENT(name)
#define TRII_EW_SECOND(name, recorded) TRII_GRADIENT(name##_backward) /* second_order.c */
#include "train/graph/step/elementwise.def"
TRII_GRADIENT(add) TRII_GRADIENT(sub) TRII_GRADIENT(mul) TRII_GRADIENT(div)
TRII_GRADIENT(maximum) TRII_GRADIENT(minimum) TRII_GRADIENT(pow)
TRII_GRADIENT(cast) TRII_GRADIENT(to)

/* comparing_gradient.c */
TRII_GRADIENT(where) TRII_GRADIENT(masked_fill)

/* shaping_gradient.c, slicing_gradient.c, joining_gradient.c, indexing_gradient.c */
TRII_GRADIENT(reshape) TRII_GRADIENT(expand) TRII_GRADIENT(permute) TRII_GRADIENT(flip)
TRII_GRADIENT(slice) TRII_GRADIENT(own_part) TRII_GRADIENT(slice_update) TRII_GRADIENT(pad) TRII_GRADIENT(tril)
TRII_GRADIENT(unfold) TRII_GRADIENT(unfold_backward)
TRII_GRADIENT(concat) TRII_GRADIENT(split)
TRII_GRADIENT(gather) TRII_GRADIENT(scatter_add) TRII_GRADIENT(index_select) TRII_GRADIENT(embedding)

/* reductions_gradient.c, extents_gradient.c */
TRII_GRADIENT(sum) TRII_GRADIENT(mean) TRII_GRADIENT(amax)
TRII_GRADIENT(prod) TRII_GRADIENT(logsumexp) TRII_GRADIENT(cumsum) TRII_GRADIENT(topk)

/* matmul_gradient.c, lstm_gradient.c, attention_gradient.c */
TRII_GRADIENT(matmul) TRII_GRADIENT(linear)
TRII_GRADIENT(lstm_layer)
TRII_GRADIENT(attention)

/* layer_norm_gradient.c, batch_norm_gradient.c */
TRII_GRADIENT(layer_norm) TRII_GRADIENT(rms_norm)
TRII_GRADIENT(batch_norm) TRII_GRADIENT(batch_norm_eval) TRII_GRADIENT(batch_norm_elemt)

/* convolution_gradient.c, pooling_gradient.c */
TRII_GRADIENT(conv)
TRII_GRADIENT(max_pool) TRII_GRADIENT(avg_pool) TRII_GRADIENT(adaptive_max_pool) TRII_GRADIENT(adaptive_avg_pool)
TRII_GRADIENT(avg_pool_backward) TRII_GRADIENT(adaptive_avg_pool_backward)

/* softmax_gradient.c, losses_gradient.c */
TRII_GRADIENT(softmax) TRII_GRADIENT(log_softmax)
TRII_GRADIENT(mse_loss) TRII_GRADIENT(smooth_l1) TRII_GRADIENT(bce) TRII_GRADIENT(kl_div)

/* function_gradient.c: tri_function_apply */
TRII_GRADIENT(apply) TRII_GRADIENT(apply_backward)

/* second_order.c */
TRII_GRADIENT(smooth_l1_backward) TRII_GRADIENT(bce_backward) TRII_GRADIENT(mse_loss_backward)
TRII_GRADIENT(softmax_backward) TRII_GRADIENT(log_softmax_backward) TRII_GRADIENT(cross_entropy_backward)
TRII_GRADIENT(sum_to) TRII_GRADIENT(amax_backward) TRII_GRADIENT(slice_backward)
TRII_GRADIENT(index_select_backward) TRII_GRADIENT(embedding_backward)
TRII_GRADIENT(conv_backward_data) TRII_GRADIENT(conv_backward_weight)
