/*
 * op_builds.h - the calls of op_cases.h: op_NAME records the case's operation with its operands.
 * Tests only.
 */
#ifndef TEST_OP_BUILDS_H
#define TEST_OP_BUILDS_H

#include <trireme/ops.h>

#include "testing/lone_exchange.h"

#define OP_CASE(name, expression)                                                                  \
    static tri_tensor *op_##name(tri_tensor **in)                                                  \
    {                                                                                              \
        tri_tensor *a = in[0], *b = in[1], *c = in[2];                                             \
                                                                                                   \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        (void)c;                                                                                   \
        return expression;                                                                         \
    }
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

OP_CASE(add, tri_add(a, b))
OP_CASE(sub, tri_sub(a, b))
OP_CASE(mul, tri_mul(a, b))
OP_CASE(div, tri_div(a, b))
OP_CASE(maximum, tri_maximum(a, b))
OP_CASE(minimum, tri_minimum(a, b))
OP_CASE(add_scalar, tri_add_scalar(a, 0.75))
OP_CASE(mul_scalar, tri_mul_scalar(a, -1.5))
OP_CASE(neg, tri_neg(a))
OP_CASE(abs, tri_abs(a))
OP_CASE(square, tri_square(a))
OP_CASE(sqrt, tri_sqrt(a))
OP_CASE(exp, tri_exp(a))
OP_CASE(log, tri_log(a))
OP_CASE(relu, tri_relu(a))
OP_CASE(leaky_relu, tri_leaky_relu(a, 0.125))
OP_CASE(sigmoid, tri_sigmoid(a))
OP_CASE(tanh, tri_tanh(a))
OP_CASE(gelu, tri_gelu(tri_mul_scalar(a, 3), TRI_GELU_ERF))
OP_CASE(gelu_tanh, tri_gelu(tri_mul_scalar(a, 3), TRI_GELU_TANH))
OP_CASE(silu, tri_silu(tri_mul_scalar(a, 3)))
OP_CASE(cast, tri_cast(tri_cast(a, TRI_DTYPE_F32), TRI_DTYPE_F64))
OP_CASE(dropout, tri_dropout(a, 0.25, true))
OP_CASE(dropout_off, tri_dropout(a, 0.25, false))
OP_CASE(reshape, tri_reshape(a, SHAPE(4, -1), 2))
OP_CASE(flatten, tri_flatten(a, 1))
OP_CASE(permute, tri_permute(a, DIMS(2, 0, 1), 3))
OP_CASE(transpose, tri_transpose(a, 0, -1))
OP_CASE(expand, tri_expand(a, SHAPE(2, 3, 4), 3))
OP_CASE(flip, tri_flip(a, 1))
OP_CASE(sum_all, tri_sum(a, NULL, 0, false))
OP_CASE(sum_dims, tri_sum(a, DIMS(0, 2), 2, false))
OP_CASE(sum_keep, tri_sum(a, DIMS(-2), 1, true))
OP_CASE(mean_all, tri_mean(a, NULL, 0, false))
OP_CASE(mean_dims, tri_mean(a, DIMS(1), 1, true))
OP_CASE(amax_all, tri_amax(a, NULL, 0, false))
OP_CASE(amax_dims, tri_amax(a, DIMS(0, 2), 2, false))
OP_CASE(amax_keep, tri_amax(a, DIMS(1), 1, true))
OP_CASE(argmax, tri_argmax(a, 1, false))
OP_CASE(matmul, tri_matmul(a, b))
OP_CASE(linear, tri_linear(a, b, c))
OP_CASE(embedding, tri_embedding(b, a, NULL))
OP_CASE(embedding_padding,
        tri_embedding(b, a, &(tri_embedding_options){.padding_idx = TRI_SET(-2)}))
OP_CASE(layer_norm, tri_layer_norm(a, 1, b, c, 1e-5))
OP_CASE(layer_norm_deep, tri_layer_norm(a, 2, b, c, 0.5))
OP_CASE(rms_norm, tri_rms_norm(a, 1, b, TRI_DEFAULT))
OP_CASE(attention, tri_attention(a, b, c, NULL))
OP_CASE(attention_causal,
        tri_attention(a, b, c, &(tri_attention_options){.is_causal = true, .scale = TRI_SET(0.7)}))
OP_CASE(attention_masked,
        tri_attention(a, b, c, &(tri_attention_options){.attn_mask = in[3], .enable_gqa = true}))
OP_CASE(attention_dropped, tri_attention(a, b, c, &(tri_attention_options){.dropout_p = 0.3}))
OP_CASE(conv, tri_conv(a, b, c, NULL))
OP_CASE(conv_pad, tri_conv(a, b, c, &(tri_conv_options){.padding = {1, 1}}))
OP_CASE(conv_stride, tri_conv(a, b, c, &(tri_conv_options){.stride = {2, 1}, .padding = {1, 2}}))
OP_CASE(conv_dilate, tri_conv(a, b, c, &(tri_conv_options){.dilation = {2, 1}, .padding = {2, 1}}))
OP_CASE(conv_groups, tri_conv(a, b, c, &(tri_conv_options){.padding = {1, 1}, .groups = 2}))
OP_CASE(conv_depth,
        tri_conv(a, b, c, &(tri_conv_options){.stride = {2, 2}, .padding = {1, 1}, .groups = 4}))
OP_CASE(conv_down, tri_conv(a, b, c, &(tri_conv_options){.stride = {2, 2}}))
OP_CASE(conv_stem, tri_conv(a, b, c, &(tri_conv_options){.stride = {2, 2}, .padding = {3, 3}}))
OP_CASE(conv_row,
        tri_conv(a, b, c,
                 &(tri_conv_options){.stride = {2}, .padding = {1}, .dilation = {2}, .groups = 2}))
OP_CASE(max_pool, tri_max_pool(a, &(tri_pool_options){.kernel = {2, 2}}))
OP_CASE(max_pool_over,
        tri_max_pool(a, &(tri_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}))
OP_CASE(max_pool_ceil,
        tri_max_pool(a, &(tri_pool_options){.kernel = {2, 3}, .stride = {2, 2}, .ceil_mode = true}))
OP_CASE(avg_pool, tri_avg_pool(a, &(tri_pool_options){.kernel = {2, 2}}))
OP_CASE(avg_pool_over,
        tri_avg_pool(a, &(tri_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}))
OP_CASE(avg_pool_ceil, tri_avg_pool(a, &(tri_pool_options){.kernel = {3, 2},
                                                           .stride = {2, 2},
                                                           .padding = {1, 1},
                                                           .ceil_mode = true,
                                                           .exclude_padding = true}))
OP_CASE(avg_pool_ceil_pad,
        tri_avg_pool(a,
                     &(tri_pool_options){
                         .kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true}))
OP_CASE(adaptive_avg, tri_adaptive_avg_pool(a, TRI_SHAPE(3, 2)))
OP_CASE(adaptive_avg_one, tri_adaptive_avg_pool(a, TRI_SHAPE(1, 1)))
OP_CASE(adaptive_max, tri_adaptive_max_pool(a, TRI_SHAPE(3, 2)))
OP_CASE(max_pool_row,
        tri_max_pool(a, &(tri_pool_options){.kernel = {3}, .stride = {2}, .padding = {1}}))
OP_CASE(avg_pool_row, tri_avg_pool(a, &(tri_pool_options){.kernel = {3},
                                                          .stride = {2},
                                                          .padding = {1},
                                                          .ceil_mode = true,
                                                          .exclude_padding = true}))
OP_CASE(adaptive_avg_row, tri_adaptive_avg_pool(a, TRI_SHAPE(3)))
OP_CASE(adaptive_max_row, tri_adaptive_max_pool(a, TRI_SHAPE(4)))
OP_CASE(softmax, tri_softmax(a, 1))
OP_CASE(softmax_first, tri_softmax(a, 0))
OP_CASE(log_softmax, tri_log_softmax(a, -1))
OP_CASE(log_softmax_mid, tri_log_softmax(a, 1))
OP_CASE(cross_entropy, tri_cross_entropy(a, b, NULL))
OP_CASE(cross_entropy_smooth,
        tri_cross_entropy(a, b, &(tri_cross_entropy_options){.label_smoothing = 0.1}))
OP_CASE(cross_entropy_weight,
        tri_cross_entropy(a, b,
                          &(tri_cross_entropy_options){.weight = c, .ignore_index = TRI_SET(1)}))
OP_CASE(cross_entropy_sum,
        tri_cross_entropy(a, b,
                          &(tri_cross_entropy_options){.label_smoothing = 0.2,
                                                       .reduction = TRI_REDUCTION_SUM}))
OP_CASE(cross_entropy_images,
        tri_cross_entropy(a, b,
                          &(tri_cross_entropy_options){
                              .label_smoothing = 0.1, .weight = c, .ignore_index = TRI_SET(2)}))
OP_CASE(cross_entropy_none,
        tri_cross_entropy(a, b,
                          &(tri_cross_entropy_options){.label_smoothing = 0.1,
                                                       .weight = c,
                                                       .ignore_index = TRI_SET(0),
                                                       .reduction = TRI_REDUCTION_NONE}))
OP_CASE(cross_entropy_one, tri_cross_entropy(a, b, NULL))
OP_CASE(nll_loss, tri_nll_loss(tri_log_softmax(a, 1), b,
                               &(tri_nll_loss_options){.weight = c, .ignore_index = TRI_SET(0)}))
OP_CASE(nll_loss_none,
        tri_nll_loss(a, b,
                     &(tri_nll_loss_options){
                         .weight = c, .ignore_index = TRI_SET(1), .reduction = TRI_REDUCTION_NONE}))
OP_CASE(mse_loss, tri_mse_loss(a, b, NULL))
OP_CASE(mse_loss_sum, tri_mse_loss(a, b, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_SUM}))
OP_CASE(mse_loss_none,
        tri_mse_loss(a, b, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_NONE}))
OP_CASE(l1_loss_none, tri_l1_loss(a, b, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_NONE}))
OP_CASE(kl_div_sum, tri_kl_div(a, b, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_SUM}))
OP_CASE(kl_div_batchmean,
        tri_kl_div(a, b, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_BATCHMEAN}))
OP_CASE(count_correct, tri_count_correct(a, b))

OP_CASE(pow, tri_pow(a, b))
OP_CASE(pow_scalar, tri_pow_scalar(a, 2.5))
OP_CASE(pow_cube, tri_pow_scalar(a, 3))
OP_CASE(pow_half, tri_pow_scalar(a, 0.5))
OP_CASE(clamp, tri_clamp(a, -0.5, 0.25))
OP_CASE(clamp_below, tri_clamp(a, 0, INFINITY))
OP_CASE(sign, tri_sign(a))
OP_CASE(floor, tri_floor(tri_mul_scalar(a, 4)))
OP_CASE(ceil, tri_ceil(tri_mul_scalar(a, 4)))
OP_CASE(round, tri_round(tri_mul_scalar(a, 0.5)))
OP_CASE(rsqrt, tri_rsqrt(a))
OP_CASE(sin, tri_sin(a))
OP_CASE(cos, tri_cos(a))
OP_CASE(elu, tri_elu(tri_mul_scalar(a, 3), 0.75))
OP_CASE(softplus, tri_softplus(tri_mul_scalar(a, 3), 1, 20))
OP_CASE(softplus_sharp, tri_softplus(a, 4, 2))
OP_CASE(hardswish, tri_hardswish(tri_mul_scalar(a, 4)))
OP_CASE(eq, tri_cast(tri_eq(a, b), TRI_DTYPE_I64))
OP_CASE(ne, tri_cast(tri_ne(a, b), TRI_DTYPE_I64))
OP_CASE(lt, tri_cast(tri_lt(a, b), TRI_DTYPE_I64))
OP_CASE(le, tri_cast(tri_le(a, b), TRI_DTYPE_I64))
OP_CASE(gt, tri_cast(tri_gt(a, b), TRI_DTYPE_I64))
OP_CASE(ge, tri_cast(tri_ge(a, b), TRI_DTYPE_I64))
OP_CASE(logical,
        tri_cast(tri_logical_or(tri_logical_and(a, b), tri_logical_xor(b, tri_logical_not(a))),
                 TRI_DTYPE_I64))
OP_CASE(where, tri_where(c, a, b))
OP_CASE(masked_fill, tri_masked_fill(a, b, 2.5))
OP_CASE(narrow, tri_narrow(a, 1, -3, 2))
OP_CASE(slice, tri_slice(a, 1, 1, INT64_MAX, 2))
OP_CASE(slice_last, tri_slice(a, -1, -5, -1, 3))
OP_CASE(slice_nothing, tri_slice(a, 0, 3, 1, 1))
OP_CASE(slice_scatter, tri_slice_scatter(a, b, 1, -5, INT64_MAX, 2))
OP_CASE(slice_scatter_all, tri_slice_scatter(a, b, 0, 0, INT64_MAX, 1))
OP_CASE(unfold, tri_unfold(a, 1, 3, 2))
OP_CASE(unfold_whole, tri_unfold(a, -1, 4, 1))
OP_CASE(squeeze, tri_squeeze(a, DIMS(1, -2), 2))
OP_CASE(squeeze_all, tri_squeeze(a, NULL, 0))
OP_CASE(unsqueeze, tri_unsqueeze(a, -2))
OP_CASE(select, tri_select(a, 1, -1))
OP_CASE(select_last, tri_select(a, -1, 1))
OP_CASE(pad, tri_pad(a, SHAPE(1, 2, 0, 1), 4, 0.5))
OP_CASE(pad_cut, tri_pad(a, SHAPE(-1, 2), 2, 0))
OP_CASE(tril, tri_tril(a, 0))
OP_CASE(triu, tri_triu(a, 1))
OP_CASE(concat, tri_concat(in, 3, 1))
OP_CASE(concat_empty, tri_concat(in, 2, 0))
OP_CASE(stack, tri_stack(in, 2, -1))
OP_CASE(gather, tri_gather_along(a, 1, b))
OP_CASE(scatter_add, tri_scatter_add(a, 0, b, c))
OP_CASE(index_select, tri_index_select(a, 1, b))
OP_CASE(one_hot, tri_one_hot(a, 4))
OP_CASE(argmin_keep, tri_argmin(a, -1, true))
OP_CASE(amin, tri_amin(a, DIMS(0, 2), 2, false))
OP_CASE(max, tri_max(a, 1, false, NULL))
OP_CASE(min_keep, tri_min(a, -1, true, NULL))
OP_CASE(topk, tri_topk(a, 2, 1, false, NULL))
OP_CASE(topk_smallest, tri_topk(a, 3, -1, true, NULL))
OP_CASE(prod, tri_prod(a, DIMS(1), 1, false))
OP_CASE(prod_zeros, tri_prod(a, DIMS(1), 1, true))
OP_CASE(any, tri_cast(tri_any(a, DIMS(1), 1, false), TRI_DTYPE_I64))
OP_CASE(all, tri_cast(tri_all(a, DIMS(1), 1, true), TRI_DTYPE_I64))
OP_CASE(var, tri_var(a, DIMS(0, 2), 2, false, 1))
OP_CASE(std, tri_std(a, DIMS(1), 1, true, 0))
OP_CASE(norm, tri_norm(a, 2, NULL, 0, false))
OP_CASE(norm_one, tri_norm(a, 1, DIMS(1), 1, false))
OP_CASE(norm_three, tri_norm(a, 3, DIMS(1), 1, false))
OP_CASE(norm_largest, tri_norm(a, INFINITY, DIMS(1), 1, true))
OP_CASE(logsumexp, tri_logsumexp(a, DIMS(1), 1, false))
OP_CASE(cumsum, tri_cumsum(a, 1))
OP_CASE(l1_loss, tri_l1_loss(a, b, NULL))
OP_CASE(smooth_l1_loss,
        tri_smooth_l1_loss(a, b,
                           &(tri_smooth_l1_loss_options){.beta = TRI_SET(0.5),
                                                         .reduction = TRI_REDUCTION_SUM}))
OP_CASE(bce_loss,
        tri_bce_loss(tri_sigmoid(a), tri_add_scalar(b, -0.5),
                     &(tri_bce_loss_options){.weight = c, .reduction = TRI_REDUCTION_NONE}))
OP_CASE(bce_loss_target, tri_bce_loss(tri_add_scalar(a, -0.5), tri_add_scalar(b, -0.5), NULL))
OP_CASE(bce_logits, tri_bce_with_logits_loss(tri_mul_scalar(a, 3), b, NULL))
OP_CASE(bce_logits_weighted,
        tri_bce_with_logits_loss(a, b,
                                 &(tri_bce_loss_options){.weight = c,
                                                         .pos_weight = in[3],
                                                         .reduction = TRI_REDUCTION_SUM}))
OP_CASE(kl_div, tri_kl_div(a, b, NULL))
OP_CASE(arange, tri_add(tri_arange(1, 2, 0.25, tri_tensor_dtype(a)), a))
OP_CASE(eye, tri_matmul(a, tri_eye(3, 0, tri_tensor_dtype(a))))
OP_CASE(rand, tri_mul(a, tri_rand(SHAPE(5, 3), 2, tri_tensor_dtype(a))))
OP_CASE(randn, tri_mul(a, tri_randn(SHAPE(5, 3), 2, tri_tensor_dtype(a))))
OP_CASE(randint, tri_gather_along(a, 0, tri_randint(0, 5, SHAPE(3, 3), 2, TRI_DTYPE_NONE)))
OP_CASE(bernoulli, tri_mul(a, tri_bernoulli(tri_full(SHAPE(5, 3), 2, 0.5, tri_tensor_dtype(a)))))
OP_CASE(multinomial, tri_index_select(a, 0, tri_multinomial(b, 3, false)))

/* Four bags, or three that the last offset ends; the second is empty. */
static tri_tensor *op_bags(tri_tensor **in, bool include_last, tri_embedding_bag_options opt)
{
    int64_t n = tri_tensor_numel(in[1]);
    tri_tensor *begin[3] = {
        tri_zeros(SHAPE(1), 1, TRI_DTYPE_I64),
        tri_full(SHAPE(2), 1, (double)(n / 3), TRI_DTYPE_I64),
        tri_full(SHAPE(1), 1, (double)(include_last ? n : 2 * n / 3), TRI_DTYPE_I64),
    };

    opt.include_last_offset = include_last;
    return tri_embedding_bag(in[1], in[0], tri_concat(begin, 3, 0), &opt);
}

OP_CASE(bag_mean, op_bags(in, false, (tri_embedding_bag_options){.padding_idx = TRI_SET(-1)}))
OP_CASE(bag_sum, op_bags(in, true,
                         (tri_embedding_bag_options){.mode = TRI_BAG_SUM, .per_sample_weights = c}))
OP_CASE(bag_max, op_bags(in, true, (tri_embedding_bag_options){.mode = TRI_BAG_AMAX}))
OP_CASE(bag_mean_even, tri_embedding_bag(b, a, NULL, NULL))
OP_CASE(bag_sum_even, tri_embedding_bag(b, a, NULL,
                                        &(tri_embedding_bag_options){.mode = TRI_BAG_SUM,
                                                                     .per_sample_weights = c,
                                                                     .padding_idx = TRI_SET(0)}))
OP_CASE(bag_max_even, tri_embedding_bag(b, a, NULL,
                                        &(tri_embedding_bag_options){.mode = TRI_BAG_AMAX,
                                                                     .padding_idx = TRI_SET(1)}))
OP_CASE(dropout2d, tri_dropout2d(a, 0.25, true))
OP_CASE(dropout2d_off, tri_dropout2d(a, 0.25, false))

/* y, h_n and c_n, one after the other. */
static tri_tensor *op_lstm_all(tri_tensor *x, tri_tensor **weights, int n,
                               const tri_lstm_options *opt)
{
    tri_tensor *out[3];

    tri_lstm(x, weights, n, opt, out);
    for (int i = 0; i < 3; i++)
        out[i] = tri_flatten(out[i], 0);
    return tri_concat(out, 3, 0);
}

static tri_tensor *op_lstm(tri_tensor **in)
{
    return op_lstm_all(in[0], in + 1, 4, NULL);
}

static tri_tensor *op_lstm_state(tri_tensor **in)
{
    return op_lstm_all(
        in[0], in + 1, 2,
        &(tri_lstm_options){.no_bias = true, .batch_first = true, .h0 = in[3], .c0 = in[4]});
}

enum { OP_LSTM_LAYERS = 2 };

/* Layers in both directions; their weights are multiples of the first ones. */
static tri_tensor *op_lstm_deep(tri_tensor **in)
{
    enum { WEIGHTS = OP_LSTM_LAYERS * 2 * 4 };
    tri_tensor *weights[WEIGHTS];

    for (int i = 0; i < WEIGHTS; i++)
        weights[i] = tri_mul_scalar(in[1 + i % 4], 1 + 0.25 * (i / 4));
    return op_lstm_all(in[0], weights, WEIGHTS,
                       &(tri_lstm_options){.num_layers = OP_LSTM_LAYERS, .bidirectional = true});
}

static tri_tensor *op_batch_norm(tri_tensor **in, bool training)
{
    return tri_batch_norm(in[0], &(tri_batch_norm_args){.weight = in[1],
                                                        .bias = in[2],
                                                        .running_mean = in[3],
                                                        .running_var = in[4],
                                                        .training = training,
                                                        .momentum = TRI_SET(0.1),
                                                        .eps = TRI_SET(1e-5)});
}

static tri_tensor *op_bn_train(tri_tensor **in)
{
    return op_batch_norm(in, true);
}

/* As ranks run it, with whom this one shares its statistics. */
static tri_tensor *op_bn_shared(tri_tensor **in)
{
    const tri_batch_norm_args args = {.weight = in[1],
                                      .bias = in[2],
                                      .running_mean = in[3],
                                      .running_var = in[4],
                                      .training = true};

    if (tri_tensor_numel(in[0]) == tri_tensor_size(in[0], 1))
        return tri_batch_norm(in[0], &args); /* one value per channel: both refuse it */
    return trii_batch_norm_shared(in[0], &args, &lone_exchange);
}

static tri_tensor *op_bn_eval(tri_tensor **in)
{
    return op_batch_norm(in, false);
}

#endif
