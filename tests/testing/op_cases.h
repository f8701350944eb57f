/*
 * op_cases.h - every public operation with small operands, for tests that compare: gradients with
 * finite differences, results with PyTorch's (tests/golden/ops.txt), devices with the reference.
 *
 * Operands are made from a formula that tests/golden/make_ops.py knows, too: element i of operand
 * k is u(k, i) of splitmix64 in [0, 1), turned into what the kind says.
 */
#ifndef TEST_OP_CASES_H
#define TEST_OP_CASES_H

#include <trireme/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/op_builds.h"

#define OP_CASE_INPUTS 5

/* kinds: n (-1, 1); p (0.5, 1.5); q one of -1, 0, 1; c class below 3 (i64); 0 none.
 * Upper case: the same, but no gradient is wanted (buffers, targets). m: true or false (bool). */
typedef struct op_input {
    char kind;
    int ndim;
    int64_t shape[4];
} op_input;

typedef struct op_case {
    const char *name;
    tri_tensor *(*build)(tri_tensor **in);
    op_input in[OP_CASE_INPUTS];
    bool rough; /* not differentiable everywhere: no finite differences */
} op_case;

#define C3                                                                                         \
    {                                                                                              \
        'n', 1,                                                                                    \
        {                                                                                          \
            3                                                                                      \
        }                                                                                          \
    }
/* clang-format off */
static const op_case op_cases[] = {
    {"add", op_add, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"add_broadcast", op_add, {{'n', 3, {2, 3, 4}}, {'n', 2, {3, 1}}}, false},
    {"add_scalar_tensor", op_add, {{'n', 0, {0}}, {'n', 2, {2, 3}}}, false},
    {"add_empty", op_add, {{'n', 2, {0, 3}}, {'n', 1, {3}}}, false},
    {"mul_empty", op_mul, {{'n', 2, {4, 1}}, {'n', 2, {1, 0}}}, false},
    {"sub_broadcast", op_sub, {{'n', 2, {4, 1}}, {'n', 2, {1, 3}}}, false},
    {"mul", op_mul, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"mul_broadcast", op_mul, {{'n', 1, {4}}, {'n', 3, {2, 3, 4}}}, false},
    {"div", op_div, {{'n', 2, {3, 4}}, {'p', 2, {3, 4}}}, false},
    {"div_broadcast", op_div, {{'n', 2, {1, 4}}, {'p', 2, {3, 1}}}, false},
    {"maximum", op_maximum, {{'n', 2, {3, 4}}, {'n', 1, {4}}}, false},
    {"minimum", op_minimum, {{'n', 2, {3, 4}}, {'n', 2, {3, 1}}}, false},
    {"maximum_ties", op_maximum, {{'q', 2, {3, 4}}, {'q', 2, {3, 4}}}, true},
    {"minimum_ties", op_minimum, {{'q', 2, {3, 4}}, {'q', 2, {3, 4}}}, true},
    {"add_scalar", op_add_scalar, {{'n', 2, {3, 4}}}, false},
    {"mul_scalar", op_mul_scalar, {{'n', 2, {3, 4}}}, false},
    {"neg", op_neg, {{'n', 2, {3, 4}}}, false},
    {"abs", op_abs, {{'n', 2, {3, 4}}}, false},
    {"abs_zero", op_abs, {{'q', 2, {3, 4}}}, true},
    {"square", op_square, {{'n', 2, {3, 4}}}, false},
    {"sqrt", op_sqrt, {{'p', 2, {3, 4}}}, false},
    {"exp", op_exp, {{'n', 2, {3, 4}}}, false},
    {"log", op_log, {{'p', 2, {3, 4}}}, false},
    {"relu", op_relu, {{'n', 2, {3, 4}}}, false},
    {"relu_zero", op_relu, {{'q', 2, {3, 4}}}, true},
    {"relu_empty", op_relu, {{'n', 2, {0, 4}}}, false},
    {"leaky_relu", op_leaky_relu, {{'n', 2, {3, 4}}}, false},
    {"sigmoid", op_sigmoid, {{'n', 2, {3, 4}}}, false},
    {"tanh", op_tanh, {{'n', 2, {3, 4}}}, false},
    {"gelu", op_gelu, {{'n', 2, {3, 4}}}, false},
    {"gelu_tanh", op_gelu_tanh, {{'n', 2, {3, 4}}}, false},
    {"silu", op_silu, {{'n', 2, {3, 4}}}, false},
    {"cast", op_cast, {{'n', 2, {3, 4}}}, true},
    {"dropout", op_dropout, {{'n', 2, {5, 7}}}, false},
    {"dropout_off", op_dropout_off, {{'n', 2, {3, 4}}}, false},
    {"dropout2d", op_dropout2d, {{'n', 4, {3, 4, 2, 2}}}, false},
    {"dropout2d_off", op_dropout2d_off, {{'n', 3, {3, 4, 2}}}, false},
    {"reshape", op_reshape, {{'n', 3, {2, 3, 4}}}, false},
    {"flatten", op_flatten, {{'n', 4, {2, 3, 2, 2}}}, false},
    {"permute", op_permute, {{'n', 3, {2, 3, 4}}}, false},
    {"transpose", op_transpose, {{'n', 3, {2, 3, 4}}}, false},
    {"expand", op_expand, {{'n', 2, {3, 1}}}, false},
    {"flip", op_flip, {{'n', 3, {2, 3, 4}}}, false},
    {"sum_all", op_sum_all, {{'n', 3, {2, 3, 4}}}, false},
    {"sum_empty", op_sum_all, {{'n', 2, {0, 3}}}, false},
    {"sum_empty_dim", op_sum_dims, {{'n', 3, {2, 3, 0}}}, false},
    {"sum_dims", op_sum_dims, {{'n', 3, {2, 3, 4}}}, false},
    {"sum_keep", op_sum_keep, {{'n', 3, {2, 3, 4}}}, false},
    {"mean_all", op_mean_all, {{'n', 3, {2, 3, 4}}}, false},
    {"mean_dims", op_mean_dims, {{'n', 3, {2, 3, 4}}}, false},
    {"mean_empty", op_mean_all, {{'n', 2, {0, 3}}}, true},
    {"mean_empty_dim", op_mean_dims, {{'n', 3, {2, 0, 4}}}, true},
    {"amax_all", op_amax_all, {{'n', 3, {2, 3, 4}}}, false},
    {"amax_dims", op_amax_dims, {{'n', 3, {2, 3, 4}}}, false},
    {"amax_ties", op_amax_keep, {{'q', 3, {2, 5, 4}}}, true},
    {"argmax", op_argmax, {{'N', 3, {2, 3, 4}}}, true},
    {"argmax_ties", op_argmax, {{'Q', 3, {2, 5, 4}}}, true},
    {"matmul", op_matmul, {{'n', 2, {5, 7}}, {'n', 2, {7, 6}}}, false},
    {"matmul_batch", op_matmul, {{'n', 3, {2, 3, 4}}, {'n', 3, {2, 4, 5}}}, false},
    {"matmul_left", op_matmul, {{'n', 3, {2, 3, 4}}, {'n', 2, {4, 5}}}, false},
    {"matmul_right", op_matmul, {{'n', 2, {3, 4}}, {'n', 4, {2, 2, 4, 5}}}, false},
    {"matmul_inner_empty", op_matmul, {{'n', 2, {3, 0}}, {'n', 2, {0, 5}}}, false},
    {"matmul_outer_empty", op_matmul, {{'n', 2, {0, 4}}, {'n', 2, {4, 5}}}, false},
    {"matmul_batch_empty", op_matmul, {{'n', 3, {0, 3, 4}}, {'n', 3, {0, 4, 5}}}, false},
    {"matmul_broadcast", op_matmul, {{'n', 4, {2, 1, 3, 4}}, {'n', 3, {3, 4, 5}}}, false},
    {"matmul_both_ways", op_matmul, {{'n', 4, {1, 3, 2, 4}}, {'n', 4, {2, 1, 4, 3}}}, false},
    {"matmul_vectors", op_matmul, {{'n', 1, {4}}, {'n', 1, {4}}}, false},
    {"matmul_row", op_matmul, {{'n', 1, {4}}, {'n', 3, {2, 4, 3}}}, false},
    {"matmul_column", op_matmul, {{'n', 3, {2, 3, 4}}, {'n', 1, {4}}}, false},
    {"embedding", op_embedding, {{'n', 2, {5, 4}}, {'C', 2, {3, 4}}}, false},
    {"embedding_padding", op_embedding_padding, {{'n', 2, {3, 4}}, {'C', 1, {9}}}, true},
    {"embedding_empty", op_embedding, {{'n', 2, {3, 4}}, {'C', 1, {0}}}, false},
    {"bag_mean", op_bag_mean, {{'n', 2, {3, 4}}, {'C', 1, {9}}}, false},
    {"bag_sum", op_bag_sum, {{'n', 2, {5, 4}}, {'C', 1, {5}}, {'n', 1, {5}}}, false},
    {"bag_max", op_bag_max, {{'n', 2, {3, 4}}, {'C', 1, {5}}}, false},
    {"bag_mean_even", op_bag_mean_even, {{'n', 2, {5, 4}}, {'C', 2, {3, 4}}}, false},
    {"bag_sum_even",
     op_bag_sum_even,
     {{'n', 2, {3, 4}}, {'C', 2, {3, 4}}, {'n', 2, {3, 4}}},
     false},
    {"bag_max_even", op_bag_max_even, {{'n', 2, {3, 4}}, {'C', 2, {5, 3}}}, false},
    {"bag_empty", op_bag_mean_even, {{'n', 2, {3, 4}}, {'C', 2, {0, 3}}}, false},
    {"lstm",
     op_lstm,
     {{'n', 3, {4, 3, 5}}, {'n', 2, {8, 5}}, {'n', 2, {8, 2}}, {'n', 1, {8}}, {'n', 1, {8}}},
     false},
    {"lstm_state",
     op_lstm_state,
     {{'n', 3, {5, 3, 4}},
      {'n', 2, {12, 4}},
      {'n', 2, {12, 3}},
      {'n', 3, {1, 5, 3}},
      {'n', 3, {1, 5, 3}}},
     false},
    {"lstm_deep",
     op_lstm_deep,
     {{'n', 3, {3, 2, 4}}, {'n', 2, {8, 4}}, {'n', 2, {8, 2}}, {'n', 1, {8}}, {'n', 1, {8}}},
     false},
    {"lstm_lone",
     op_lstm,
     {{'n', 2, {1, 3}}, {'n', 2, {4, 3}}, {'n', 2, {4, 1}}, {'n', 1, {4}}, {'n', 1, {4}}},
     false},
    {"lstm_empty",
     op_lstm,
     {{'n', 3, {2, 0, 3}}, {'n', 2, {4, 3}}, {'n', 2, {4, 1}}, {'n', 1, {4}}, {'n', 1, {4}}},
     false},
    {"layer_norm", op_layer_norm, {{'n', 3, {2, 3, 5}}, {'n', 1, {5}}, {'n', 1, {5}}}, false},
    {"layer_norm_deep", op_layer_norm_deep, {{'n', 3, {2, 3, 5}}, {'n', 2, {3, 5}}}, false},
    {"layer_norm_bare", op_layer_norm, {{'n', 2, {3, 7}}}, false},
    {"layer_norm_empty", op_layer_norm, {{'n', 2, {0, 5}}, {'n', 1, {5}}, {'n', 1, {5}}}, false},
    {"rms_norm", op_rms_norm, {{'n', 3, {2, 3, 5}}, {'n', 1, {5}}}, false},
    {"rms_norm_bare", op_rms_norm, {{'n', 2, {3, 7}}}, false},
    {"attention", op_attention, {{'n', 4, {2, 2, 3, 4}}, {'n', 4, {2, 2, 5, 4}}, {'n', 4, {2, 2, 5, 3}}}, false},
    {"attention_causal", op_attention_causal, {{'n', 4, {1, 2, 5, 4}}, {'n', 4, {1, 2, 5, 4}}, {'n', 4, {1, 2, 5, 4}}}, false},
    {"attention_masked", op_attention_masked, {{'n', 4, {2, 4, 3, 4}}, {'n', 4, {2, 2, 5, 4}}, {'n', 4, {2, 2, 5, 4}}, {'M', 2, {3, 5}}}, false},
    {"attention_biased", op_attention_masked, {{'n', 4, {2, 2, 3, 4}}, {'n', 4, {2, 2, 5, 4}}, {'n', 4, {2, 2, 5, 4}}, {'N', 4, {2, 1, 3, 5}}}, false},
    {"attention_dropped", op_attention_dropped, {{'n', 4, {2, 2, 3, 4}}, {'n', 4, {2, 2, 5, 4}}, {'n', 4, {2, 2, 5, 4}}}, false},
    {"attention_empty", op_attention, {{'n', 4, {0, 2, 3, 4}}, {'n', 4, {0, 2, 5, 4}}, {'n', 4, {0, 2, 5, 4}}}, false},
    {"linear", op_linear, {{'n', 2, {5, 6}}, {'n', 2, {9, 6}}, {'n', 1, {9}}}, false},
    {"linear_plain", op_linear, {{'n', 2, {3, 4}}, {'n', 2, {5, 4}}}, false},
    {"linear_deep", op_linear, {{'n', 3, {2, 3, 4}}, {'n', 2, {5, 4}}, {'n', 1, {5}}}, false},
    {"linear_vector", op_linear, {{'n', 1, {4}}, {'n', 2, {5, 4}}, {'n', 1, {5}}}, false},
    {"linear_empty", op_linear, {{'n', 2, {0, 4}}, {'n', 2, {5, 4}}, {'n', 1, {5}}}, false},
    {"conv", op_conv, {{'n', 4, {2, 3, 5, 6}}, {'n', 4, {4, 3, 3, 2}}, {'n', 1, {4}}}, false},
    {"conv_pad", op_conv_pad, {{'n', 4, {2, 3, 5, 5}}, {'n', 4, {4, 3, 3, 3}}}, false},
    {"conv_stride", op_conv_stride, {{'n', 4, {2, 2, 6, 5}}, {'n', 4, {3, 2, 3, 3}}, {'n', 1, {3}}}, false},
    {"conv_dilate", op_conv_dilate, {{'n', 4, {1, 2, 6, 5}}, {'n', 4, {3, 2, 3, 3}}, {'n', 1, {3}}}, false},
    {"conv_groups", op_conv_groups, {{'n', 4, {2, 4, 4, 4}}, {'n', 4, {6, 2, 3, 3}}, {'n', 1, {6}}}, false},
    {"conv_depth", op_conv_depth, {{'n', 4, {2, 4, 5, 5}}, {'n', 4, {4, 1, 3, 3}}}, false},
    {"conv_down", op_conv_down, {{'n', 4, {2, 3, 5, 5}}, {'n', 4, {4, 3, 1, 1}}}, false},
    {"conv_stem", op_conv_stem, {{'n', 4, {1, 2, 9, 8}}, {'n', 4, {2, 2, 7, 7}}}, false},
    {"conv_row", op_conv_row, {{'n', 3, {2, 4, 9}}, {'n', 3, {6, 2, 3}}, {'n', 1, {6}}}, false},
    {"conv_one_row", op_conv, {{'n', 2, {3, 7}}, {'n', 3, {4, 3, 2}}, {'n', 1, {4}}}, false},
    {"conv_one_image", op_conv_pad, {{'n', 3, {3, 5, 4}}, {'n', 4, {2, 3, 3, 3}}}, false},
    {"conv_empty", op_conv, {{'n', 4, {0, 3, 5, 6}}, {'n', 4, {4, 3, 3, 2}}, {'n', 1, {4}}}, false},
    {"max_pool", op_max_pool, {{'n', 4, {2, 3, 4, 5}}}, false},
    {"max_pool_over", op_max_pool_over, {{'n', 4, {2, 2, 5, 6}}}, false},
    {"max_pool_ceil", op_max_pool_ceil, {{'n', 4, {1, 2, 5, 6}}}, false},
    {"max_pool_ties", op_max_pool_over, {{'q', 4, {2, 2, 5, 6}}}, true},
    {"avg_pool", op_avg_pool, {{'n', 4, {2, 3, 4, 5}}}, false},
    {"avg_pool_over", op_avg_pool_over, {{'n', 4, {2, 2, 5, 6}}}, false},
    {"avg_pool_ceil", op_avg_pool_ceil, {{'n', 4, {1, 2, 6, 5}}}, false},
    {"avg_pool_ceil_pad", op_avg_pool_ceil_pad, {{'n', 4, {1, 2, 6, 5}}}, false},
    {"adaptive_avg", op_adaptive_avg, {{'n', 4, {2, 2, 5, 7}}}, false},
    {"adaptive_avg_one", op_adaptive_avg_one, {{'n', 4, {2, 3, 4, 5}}}, false},
    {"adaptive_max", op_adaptive_max, {{'n', 4, {2, 2, 5, 7}}}, false},
    {"max_pool_row", op_max_pool_row, {{'n', 3, {2, 3, 8}}}, false},
    {"max_pool_one_image", op_max_pool, {{'n', 3, {3, 4, 5}}}, false},
    {"avg_pool_row", op_avg_pool_row, {{'n', 3, {2, 3, 8}}}, false},
    {"avg_pool_one_row", op_avg_pool_row, {{'n', 2, {3, 7}}}, false},
    {"adaptive_avg_row", op_adaptive_avg_row, {{'n', 3, {2, 3, 7}}}, false},
    {"adaptive_max_row", op_adaptive_max_row, {{'n', 3, {2, 3, 7}}}, false},
    {"bn_train", op_bn_train, {{'n', 4, {2, 3, 2, 3}}, C3, C3, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"bn_train_rows", op_bn_train, {{'n', 2, {5, 3}}, C3, C3, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"bn_train_bare", op_bn_train, {{'n', 4, {2, 3, 2, 3}}}, false},
    {"bn_shared", op_bn_shared, {{'n', 4, {2, 3, 2, 3}}, C3, C3, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"bn_shared_rows", op_bn_shared, {{'n', 2, {5, 3}}, C3, C3, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"bn_shared_bare", op_bn_shared, {{'n', 4, {2, 3, 2, 3}}}, false},
    {"bn_eval", op_bn_eval, {{'n', 4, {2, 3, 2, 3}}, C3, C3, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"bn_eval_bare", op_bn_eval, {{'n', 3, {2, 3, 4}}, {0, 0, {0}}, {0, 0, {0}}, {'N', 1, {3}}, {'P', 1, {3}}}, false},
    {"pow", op_pow, {{'p', 2, {3, 4}}, {'n', 1, {4}}}, false},
    {"pow_scalar", op_pow_scalar, {{'p', 2, {3, 4}}}, false},
    {"pow_cube", op_pow_cube, {{'n', 2, {3, 4}}}, false},
    {"pow_half", op_pow_half, {{'p', 2, {3, 4}}}, false},
    {"clamp", op_clamp, {{'n', 2, {3, 4}}}, false},
    {"clamp_below", op_clamp_below, {{'q', 2, {3, 4}}}, true},
    {"sign", op_sign, {{'q', 2, {3, 4}}}, true},
    {"floor", op_floor, {{'n', 2, {3, 4}}}, true},
    {"ceil", op_ceil, {{'n', 2, {3, 4}}}, true},
    {"round", op_round, {{'q', 2, {3, 4}}}, true},
    {"rsqrt", op_rsqrt, {{'p', 2, {3, 4}}}, false},
    {"sin", op_sin, {{'n', 2, {3, 4}}}, false},
    {"cos", op_cos, {{'n', 2, {3, 4}}}, false},
    {"elu", op_elu, {{'n', 2, {3, 4}}}, false},
    {"softplus", op_softplus, {{'n', 2, {3, 4}}}, false},
    {"softplus_sharp", op_softplus_sharp, {{'n', 2, {3, 4}}}, false},
    {"hardswish", op_hardswish, {{'n', 2, {3, 4}}}, false},
    {"eq", op_eq, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"ne", op_ne, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"lt", op_lt, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"le", op_le, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"gt", op_gt, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"ge", op_ge, {{'Q', 2, {3, 4}}, {'Q', 1, {4}}}, true},
    {"logical", op_logical, {{'M', 2, {3, 4}}, {'M', 2, {3, 1}}}, true},
    {"where", op_where, {{'n', 2, {3, 4}}, {'n', 1, {4}}, {'M', 2, {3, 1}}}, false},
    {"masked_fill", op_masked_fill, {{'n', 3, {2, 3, 4}}, {'M', 2, {3, 1}}}, false},
    {"narrow", op_narrow, {{'n', 3, {2, 4, 3}}}, false},
    {"slice", op_slice, {{'n', 3, {2, 6, 3}}}, false},
    {"slice_last", op_slice_last, {{'n', 2, {2, 7}}}, false},
    {"slice_nothing", op_slice_nothing, {{'n', 2, {4, 3}}}, false},
    {"slice_scatter", op_slice_scatter, {{'n', 3, {2, 6, 3}}, {'n', 3, {2, 3, 3}}}, false},
    {"slice_scatter_all", op_slice_scatter_all, {{'n', 2, {2, 3}}, {'n', 2, {2, 3}}}, false},
    {"unfold", op_unfold, {{'n', 3, {2, 8, 3}}}, false},
    {"unfold_whole", op_unfold_whole, {{'n', 2, {3, 4}}}, false},
    {"squeeze", op_squeeze, {{'n', 4, {2, 1, 3, 1}}}, false},
    {"squeeze_all", op_squeeze_all, {{'n', 4, {1, 2, 1, 3}}}, false},
    {"unsqueeze", op_unsqueeze, {{'n', 2, {2, 3}}}, false},
    {"select", op_select, {{'n', 3, {2, 3, 4}}}, false},
    {"select_last", op_select_last, {{'n', 3, {2, 3, 4}}}, false},
    {"pad", op_pad, {{'n', 3, {2, 3, 2}}}, false},
    {"pad_cut", op_pad_cut, {{'n', 2, {3, 4}}}, false},
    {"tril", op_tril, {{'n', 3, {2, 3, 4}}}, false},
    {"triu", op_triu, {{'n', 2, {4, 3}}}, false},
    {"concat", op_concat, {{'n', 3, {2, 3, 2}}, {'n', 3, {2, 1, 2}}, {'n', 3, {2, 2, 2}}}, false},
    {"concat_empty", op_concat_empty, {{'n', 2, {2, 3}}, {'n', 2, {0, 3}}}, false},
    {"stack", op_stack, {{'n', 2, {2, 3}}, {'n', 2, {2, 3}}}, false},
    {"gather", op_gather, {{'n', 2, {3, 4}}, {'C', 2, {2, 5}}}, false},
    {"scatter_add", op_scatter_add, {{'n', 2, {3, 4}}, {'C', 2, {5, 3}}, {'n', 2, {5, 3}}}, false},
    {"index_select", op_index_select, {{'n', 3, {2, 3, 4}}, {'C', 1, {5}}}, false},
    {"one_hot", op_one_hot, {{'C', 2, {2, 3}}}, true},
    {"argmin_keep", op_argmin_keep, {{'Q', 3, {2, 5, 4}}}, true},
    {"amin", op_amin, {{'n', 3, {2, 3, 4}}}, false},
    {"max", op_max, {{'n', 3, {2, 3, 4}}}, false},
    {"min_keep", op_min_keep, {{'n', 3, {2, 3, 4}}}, false},
    {"topk", op_topk, {{'n', 3, {2, 5, 3}}}, false},
    {"topk_smallest", op_topk_smallest, {{'n', 2, {2, 5}}}, false},
    {"prod", op_prod, {{'p', 3, {2, 3, 4}}}, false},
    {"prod_zeros", op_prod_zeros, {{'q', 2, {4, 3}}}, false},
    {"any", op_any, {{'M', 2, {5, 2}}}, true},
    {"all", op_all, {{'M', 2, {5, 2}}}, true},
    {"var", op_var, {{'n', 3, {2, 3, 4}}}, false},
    {"std", op_std, {{'n', 2, {3, 4}}}, false},
    {"norm", op_norm, {{'n', 2, {3, 4}}}, false},
    {"norm_one", op_norm_one, {{'n', 2, {3, 4}}}, false},
    {"norm_three", op_norm_three, {{'n', 2, {3, 4}}}, false},
    {"norm_largest", op_norm_largest, {{'n', 2, {3, 4}}}, false},
    {"logsumexp", op_logsumexp, {{'n', 3, {2, 3, 4}}}, false},
    {"cumsum", op_cumsum, {{'n', 3, {2, 4, 3}}}, false},
    {"l1_loss", op_l1_loss, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"smooth_l1_loss", op_smooth_l1_loss, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"bce_loss", op_bce_loss, {{'n', 2, {3, 4}}, {'P', 2, {3, 4}}, {'P', 1, {4}}}, false},
    {"bce_loss_target", op_bce_loss_target, {{'p', 2, {3, 4}}, {'p', 2, {3, 4}}}, false},
    {"bce_logits", op_bce_logits, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"bce_logits_weighted", op_bce_logits_weighted, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}, {'P', 2, {3, 1}}, {'P', 1, {4}}}, false},
    {"kl_div", op_kl_div, {{'n', 2, {3, 4}}, {'p', 2, {3, 4}}}, false},
    {"arange", op_arange, {{'n', 1, {4}}}, false},
    {"eye", op_eye, {{'n', 2, {2, 3}}}, false},
    {"rand", op_rand, {{'n', 2, {5, 3}}}, false},
    {"randn", op_randn, {{'n', 2, {5, 3}}}, false},
    {"randint", op_randint, {{'n', 2, {5, 3}}}, false},
    {"bernoulli", op_bernoulli, {{'n', 2, {5, 3}}}, false},
    {"multinomial", op_multinomial, {{'n', 2, {5, 3}}, {'P', 1, {5}}}, false},
    {"softmax", op_softmax, {{'n', 2, {3, 5}}}, false},
    {"softmax_empty", op_softmax, {{'n', 2, {0, 5}}}, false},
    {"softmax_first", op_softmax_first, {{'n', 3, {3, 2, 2}}}, false},
    {"log_softmax", op_log_softmax, {{'n', 2, {3, 5}}}, false},
    {"log_softmax_empty", op_log_softmax, {{'n', 2, {5, 0}}}, false},
    {"log_softmax_mid", op_log_softmax_mid, {{'n', 3, {2, 3, 2}}}, false},
    {"cross_entropy", op_cross_entropy, {{'n', 2, {5, 3}}, {'C', 1, {5}}}, false},
    {"cross_entropy_smooth", op_cross_entropy_smooth, {{'n', 2, {5, 3}}, {'C', 1, {5}}}, false},
    {"cross_entropy_weight", op_cross_entropy_weight, {{'n', 2, {5, 3}}, {'C', 1, {5}}, {'P', 1, {3}}}, false},
    {"cross_entropy_sum", op_cross_entropy_sum, {{'n', 2, {5, 3}}, {'C', 1, {5}}}, false},
    {"cross_entropy_images", op_cross_entropy_images, {{'n', 4, {2, 3, 2, 4}}, {'C', 3, {2, 2, 4}}, {'P', 1, {3}}}, false},
    {"cross_entropy_none", op_cross_entropy_none, {{'n', 3, {2, 3, 4}}, {'C', 2, {2, 4}}, {'P', 1, {3}}}, false},
    {"cross_entropy_one", op_cross_entropy_one, {{'n', 1, {3}}, {'C', 0, {0}}}, false},
    {"nll_loss", op_nll_loss, {{'n', 2, {5, 3}}, {'C', 1, {5}}, {'P', 1, {3}}}, false},
    {"nll_loss_none", op_nll_loss_none, {{'n', 3, {2, 3, 4}}, {'C', 2, {2, 4}}, {'P', 1, {3}}}, false},
    {"cross_entropy_empty", op_cross_entropy, {{'n', 2, {0, 3}}, {'C', 1, {0}}}, true},
    {"mse_loss_empty", op_mse_loss, {{'n', 2, {0, 4}}, {'n', 2, {0, 4}}}, true},
    {"mse_loss", op_mse_loss, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"mse_loss_sum", op_mse_loss_sum, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"mse_loss_none", op_mse_loss_none, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"l1_loss_none", op_l1_loss_none, {{'n', 2, {3, 4}}, {'n', 2, {3, 4}}}, false},
    {"kl_div_sum", op_kl_div_sum, {{'n', 2, {3, 4}}, {'p', 2, {3, 4}}}, false},
    {"kl_div_batchmean", op_kl_div_batchmean, {{'n', 3, {3, 2, 4}}, {'p', 3, {3, 2, 4}}}, false},
    {"count_correct", op_count_correct, {{'N', 2, {9, 3}}, {'C', 1, {9}}}, true},
};
/* clang-format on */
#undef C3

#define OP_CASE_COUNT ((int)(sizeof(op_cases) / sizeof(op_cases[0])))

/* How many follow each other in it: the second reads what the first has rounded. */
static inline int op_case_layers(const op_case *op)
{
    return op->build == op_lstm_deep ? OP_LSTM_LAYERS : 1;
}

static inline double op_case_uniform(int operand, int64_t i)
{
    uint64_t z = ((uint64_t)(operand + 1) << 32) + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + 1;

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static inline bool op_case_wants_grad(const op_input *in)
{
    return in->kind == 'n' || in->kind == 'p' || in->kind == 'q';
}

static inline int64_t op_case_numel(const op_input *in)
{
    int64_t n = 1;

    for (int d = 0; d < in->ndim; d++)
        n *= in->shape[d];
    return n;
}

/* Element i of operand k as a number. */
static inline double op_case_value(const op_input *in, int k, int64_t i)
{
    double u = op_case_uniform(k, i);

    switch (in->kind | 0x20) {
    case 'n':
        return 2 * u - 1;
    case 'p':
        return 0.5 + u;
    case 'q':
        return (double)(int)(u * 3) - 1;
    case 'm':
        return u < 0.5;
    default:
        return (double)(int)(u * 3);
    }
}

/* What a step in bf16 or f16 rounds; weights, biases and statistics stay f32. */
static inline bool op_case_is_activation(const op_case *op, int k)
{
    return (op->in[k].kind | 0x20) != 'c' && (op->in[k].kind | 0x20) != 'm' &&
           (k == 0 || (strncmp(op->name, "linear", 6) != 0 && strncmp(op->name, "conv", 4) != 0 &&
                       strncmp(op->name, "lstm", 4) != 0 && strncmp(op->name, "bn", 2) != 0 &&
                       strstr(op->name, "_norm") == NULL));
}

/* The operand as a persistent tensor of the floating-point dtype (targets: i64); NULL if the case
 * has none. */
static inline tri_tensor *op_case_tensor(const op_input *in, int k, tri_dtype dtype)
{
    int64_t n = op_case_numel(in);
    void *data;
    tri_tensor *tensor;

    if (in->kind == 0)
        return NULL;
    if ((in->kind | 0x20) == 'c')
        dtype = TRI_DTYPE_I64;
    if ((in->kind | 0x20) == 'm')
        dtype = TRI_DTYPE_BOOL;
    data = calloc((size_t)(n > 0 ? n : 1), 8);
    for (int64_t i = 0; i < n && data != NULL; i++) {
        double value = op_case_value(in, k, i);

        if (dtype == TRI_DTYPE_F64)
            ((double *)data)[i] = value;
        else if (dtype == TRI_DTYPE_F32)
            ((float *)data)[i] = (float)value;
        else if (dtype == TRI_DTYPE_BOOL)
            ((bool *)data)[i] = value != 0;
        else
            ((int64_t *)data)[i] = (int64_t)value;
    }
    tensor = tri_tensor_from(in->shape, in->ndim, dtype, data);
    free(data);
    tri_requires_grad(tensor, op_case_wants_grad(in));
    return tensor;
}

#endif
