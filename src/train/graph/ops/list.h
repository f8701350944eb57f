/*
 * list.h - every operation once, with its operands and attributes. A template: include it with
 * TRII_OP(name) defined: table.h declares trii_op_NAME from it, table.c makes the table that tests
 * iterate.
 *
 *   in   inputs; "w?" may be absent     i  integer attributes (part of a plan's identity)
 *   out  outputs, "y" if not said       f  floating-point attributes (rewritten each run)
 *
 * [E] element-wise with broadcasting, [R] reduction, [V] view, [J] its opposite.
 * Operations called _backward are the gradients that tri_backward records: g is the gradient of the
 * result.
 */
/* clang-format off */

/* elementwise.c [E] */
#define TRII_EW_OP(name, operands, rule, formula) TRII_OP(name)
#include "train/graph/step/elementwise.def"
TRII_OP(extremum_backward) /* in g a b; i: 1 = of the minimum, 1 = gradient of b. g where the operand won, g/2 where equal. */
TRII_OP(pow_backward)      /* in g a b; i: 1 = gradient of b */

/* comparing.c [E] */
TRII_OP(eq) TRII_OP(ne) TRII_OP(lt) TRII_OP(le) TRII_OP(gt) TRII_OP(ge) /* in a b; bool */
TRII_OP(logical_and) TRII_OP(logical_or) TRII_OP(logical_xor) TRII_OP(logical_not) /* of bool */
TRII_OP(where)       /* in condition a b */
TRII_OP(masked_fill) /* in x mask; i: 1 = where the mask is false; f: value */

/* generate.c; no input; i: dtype, device, sizes.. */
TRII_OP(arange) /* f: start, step */
TRII_OP(eye)
TRII_OP(rand) TRII_OP(randn) /* random */
TRII_OP(randint)             /* random; f: low, high */
TRII_OP(bernoulli)           /* random; in p */
TRII_OP(multinomial)         /* random; in p; i: samples, replacement; i64 */

/* create.c */
TRII_OP(fill) /* [E] no input; i: dtype, device, sizes..; f: value */
TRII_OP(dropout_mask_part) /* no input, random; i: dtype, device, run, stride, start, sizes..; f: p. Element e is element start + (e / run) stride + e % run of a larger dropout_mask. */
TRII_OP(dropout_mask) /* no input, random; i: dtype, device, sizes..; f: p. 0 with probability p, else 1/(1-p): which element is which is written there, bit by bit. */

/* shaping.c; in x of any dtype */
TRII_OP(reshape) /* [V]; i: sizes.. of the result (one may be -1) */
TRII_OP(expand)  /* [V] the input broadcast; i: sizes.. of the result */
TRII_OP(permute) /* [V]; i: for each result dimension, which of x it is */
TRII_OP(flip)    /* i: dim */

/* record/cast.c, record/copy.c */
TRII_OP(copy) /* [E] in x of any dtype */
TRII_OP(cast) /* [E] in x; i: dtype */
TRII_OP(to) /* in x of any dtype; i: device */

/* slicing.c, joining.c; in x of any dtype */
TRII_OP(slice)          /* [V]; i: for each dimension start, step, number */
TRII_OP(slice_backward) /* in g; i: .., sizes of x */
TRII_OP(dist_scatter_to) TRII_OP(dist_copy_to) /* own_part.h; as slice; f: the gradient (two numbers) */
TRII_OP(slice_update)   /* part_update.c; in x part; i: as slice, 1 = added; out x with the part (may lie on x) */
TRII_OP(unfold)         /* windows.c [V]; i: dim, size, step */
TRII_OP(unfold_backward) /* in g; i: .., sizes of x */
TRII_OP(pad)            /* i: for each dimension elements before, after; f: their value */
TRII_OP(tril)           /* i: diagonal, 1 = the upper triangle */
TRII_OP(concat)         /* [J] in x..; i: dim, their sizes.. */
TRII_OP(split)          /* [V]; i: dim, sizes..; out part.. */

/* indexing.c */
TRII_OP(gather)       /* in x index; i: dim */
TRII_OP(scatter_add)  /* in x index src; i: dim */
TRII_OP(index_select) /* in x index; i: dim */
TRII_OP(index_select_backward) /* in g index; i: dim, its size in x */
TRII_OP(one_hot)      /* in index; i: classes; i64 */

/* extents.c [R]; in x; i: bit mask of dims, keepdim */
TRII_OP(prod) TRII_OP(prod_backward) /* the latter in g x, not [R] */
TRII_OP(any) TRII_OP(all)            /* of bool */
TRII_OP(logsumexp)
TRII_OP(cumsum) /* not [R]; i: dim, 1 = from the end */
TRII_OP(topk)   /* not [R]; i: dim, k, trii_topk_order; out values, indices (i64) */

/* reductions.c [R]; in x; i: bit mask of dims, keepdim; mean: and if it is that of a loss, 1 */
TRII_OP(sum) TRII_OP(mean) TRII_OP(amax)
TRII_OP(argmax)        /* i: dim, keepdim; i64 */
TRII_OP(amax_backward) /* in g x y; not [R] */
TRII_OP(sum_to)        /* i: sizes.. of the result: undoes broadcasting */

/* matmul.c */
TRII_OP(matmul) /* in a b; i: transpose_a, transpose_b (last two dims) */
TRII_OP(matmul_weight) TRII_OP(matmul_to_weight) /* of linear's gradients in bf16: b is f32; the result is f32 */
TRII_OP(linear) /* in x [.., I] w [O, I] b? [O]; gradients by matmul, sum_to */

/* embedding.c */
TRII_OP(embedding)          /* in weight [V, D] indices (i64); i: padding index, -1 = none */
TRII_OP(embedding_backward) /* in g indices; i: padding index, V */

/* embedding_bag.c; see there */
TRII_OP(bag_ids)    /* in indices offsets?; i: padding index, indices in a bag, 1 = the last offset is an end; i64 */
TRII_OP(bag_argmax) /* in rows ids; i: bags; i64 */

/* lstm.c; i: 1 = backwards in time; see there */
TRII_OP(lstm_layer)          /* in gx W h0? c0?; out h, c, gates of all time steps */
TRII_OP(lstm_layer_backward) /* in gh? gc? W gates c c0?; i: .., 1 = dh0 dc0; out dgx, and those */

/* layer_norm.c; i: normalised dimensions (the last ones); f: eps */
TRII_OP(layer_norm)        /* in x w? b?; out y, mean, rstd of each row */
TRII_OP(rms_norm)          /* in x w?; out y, rstd */
TRII_OP(row_norm_backward) /* in g x w? mean? rstd (no mean: rms); i: .., 1 = dw, 1 = db; out dx, dw and db if wanted */

/* attention.c; i: causal; f: scale, p; see there */
TRII_OP(random_key)         /* no input, random; i: device, heads in all (0: those of q), first head here; i64 [6]: seed, step, rank, index, and these heads */
TRII_OP(attention)          /* in q k v mask? key?; out y, lse */
TRII_OP(attention_backward) /* in g q k v y lse mask? key?; out dq dk dv */

/* convolution.c; i: stride h w, padding h w, dilation h w, groups */
TRII_OP(conv)                 /* in x w b? */
TRII_OP(conv_backward_data)   /* in g w; i: .., shape of x */
TRII_OP(conv_backward_weight) /* in g x; i: .., shape of w */

/* pooling.c; in x; i: kernel h w, stride h w, padding h w, ceil_mode, exclude_padding */
TRII_OP(max_pool) TRII_OP(avg_pool)
/* in g, for the maximum also x; i: .., image h w. The first of equals (row by row) gets all. */
TRII_OP(max_pool_backward) TRII_OP(avg_pool_backward)
/* i: output h w; window of output o: [floor(o H / h), ceil((o + 1) H / h)) */
TRII_OP(adaptive_max_pool) TRII_OP(adaptive_avg_pool)
TRII_OP(adaptive_max_pool_backward) TRII_OP(adaptive_avg_pool_backward)
TRII_OP(max_pool_argmax) /* in x; i: see there; i64: where in its plane each maximum is */

/* batch_norm.c; f: momentum, eps */
/* in x w? b? running_mean? running_var?; out y, mean [C], invstd [C], and with running ones the new running_mean, running_var (which may lie on the old). */
TRII_OP(batch_norm)
TRII_OP(batch_norm_backward)      /* in g x w? mean invstd; out dx dw db */
TRII_OP(batch_norm_eval)          /* in as batch_norm; out y */
TRII_OP(batch_norm_eval_backward) /* in g x w? r_mean r_var; out dx dw db */

/* batch_norm_shared.c; f: eps. statistics: mean [C], var [C], count */
TRII_OP(batch_norm_stats)           /* in x; out statistics [2 C + 1] */
/* in statistics [size, 2 C + 1] running_mean? running_var?; out mean var count, and as batch_norm; f: momentum, eps */
TRII_OP(batch_norm_gather_stats)
TRII_OP(batch_norm_elemt)           /* in x w? b? mean var count; f: momentum, eps, exchange (two numbers) */
TRII_OP(batch_norm_backward_reduce) /* in g x w? mean var; out sums [2 C], dw, db */
TRII_OP(batch_norm_backward_elemt)  /* in g x w? mean var sums count */

/* softmax.c; in x; i: dim. Gradients: in g y. */
TRII_OP(softmax) TRII_OP(log_softmax)
TRII_OP(softmax_backward) TRII_OP(log_softmax_backward)

/* losses.c; out: a scalar */
TRII_OP(mse_loss)               /* [R] in a b */
TRII_OP(mse_loss_backward)      /* [E] in g a b; f: 2/n. g (a - b) f */
TRII_OP(count_correct)          /* in logits target; i64 */

/* class_losses.c; i: reduction, ignored target, 1 = logarithms of probabilities; f: smoothing */
TRII_OP(cross_entropy) TRII_OP(nll_loss) /* in x target w? */
TRII_OP(target_weights) /* in target w?; i: as above; f64: of what is not ignored */
TRII_OP(cross_entropy_backward)          /* of both; in g x target w? */

/* pair_losses.c [E]; in input target: what a loss is the mean or sum of */
TRII_OP(smooth_l1) TRII_OP(smooth_l1_backward) /* f: beta; in g input target */
TRII_OP(bce) TRII_OP(bce_backward)             /* in g input target */
TRII_OP(kl_div)

/* update_op.c; in (p g state..).. scale? skip? (f32); i: rule, flags; f: limit, the rule's numbers; out
 * (p' state'..)..: see update.h. The same bits everywhere. Optimisers bind the results to the
 * parameters and their state. */
TRII_OP(update)

/* grad_norm.c */
TRII_OP(square_sum) /* in total? (f64) x..; i: has_total; out f64 */
TRII_OP(square_blocks) /* in before? (f64) x..; i: has_before; out f64 [blocks] */
TRII_OP(square_spread) /* in blocks table; i: group, its blocks; out f64 [blocks of the group] */
TRII_OP(square_total)  /* in blocks table blocks of groups (f64); out f64 */
TRII_OP(square_each)   /* in blocks table blocks of groups?; i: n; out f64 [n]: of each gradient */
TRII_OP(sum_in_order)  /* in x (f64 [n]); out f64 */
/* in total (f64); i: dtype; f: max_norm; out norm, factor = min(1, max_norm / (norm + 1e-6)) */
TRII_OP(clip_factor)

/* loss_scale.c; of tri_grad_scaler. f32 scalars but for total (f64) and growth_tracker (i64) */
TRII_OP(loss_unscale) /* in total? scale; out found, 1 / scale, and that as f64 */
/* in scale growth_tracker found..; i: growth_interval; f: growth_factor, backoff_factor; out scale', growth_tracker', and for each found -1 */
TRII_OP(loss_rescale)
