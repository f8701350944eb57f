/*
 * kernels_all.h - all templates and the table VEC_TABLE of one instruction set; see vec.h.
 */
#include "train/device/cpu/vec.h"

#include "train/device/cpu/kernels_elementwise.h"
#include "train/device/cpu/kernels_attention.h"
#include "train/device/cpu/kernels_gemm.h"
#include "train/device/cpu/kernels_images.h"
#include "train/device/cpu/kernels_random.h"
#include "train/device/cpu/kernels_rows.h"
#include "train/device/cpu/kernels_sums.h"
#include "train/device/cpu/kernels_transpose.h"
#include "train/device/cpu/kernels_update.h"

const trii_cpu_kernels VEC_TABLE = {
    .lanes = VEC_LANES,
    .ew =
        {
            [TRII_EW_COPY] = ew_copy,
            [TRII_EW_ROUND_BF16] = ew_round_bf16,
            [TRII_EW_ROUND_F16] = ew_round_f16,
            [TRII_EW_ADD] = ew_add,
            [TRII_EW_SUB] = ew_sub,
            [TRII_EW_MUL] = ew_mul,
            [TRII_EW_DIV] = ew_div,
            [TRII_EW_MAXIMUM] = ew_maximum,
            [TRII_EW_MINIMUM] = ew_minimum,
            [TRII_EW_ADD_SCALAR] = ew_add_scalar,
            [TRII_EW_MUL_SCALAR] = ew_mul_scalar,
            [TRII_EW_NEG] = ew_neg,
            [TRII_EW_ABS] = ew_abs,
            [TRII_EW_SQUARE] = ew_square,
            [TRII_EW_SQRT] = ew_sqrt,
            [TRII_EW_EXP] = ew_exp,
            [TRII_EW_LOG] = ew_log,
            [TRII_EW_RELU] = ew_relu,
            [TRII_EW_LEAKY_RELU] = ew_leaky_relu,
            [TRII_EW_SIGMOID] = ew_sigmoid,
            [TRII_EW_TANH] = ew_tanh,
            [TRII_EW_GELU] = ew_gelu,
            [TRII_EW_GELU_TANH] = ew_gelu_tanh,
            [TRII_EW_SILU] = ew_silu,
            [TRII_EW_RELU_BACKWARD] = ew_relu_backward,
            [TRII_EW_LEAKY_RELU_BACKWARD] = ew_leaky_relu_backward,
            [TRII_EW_ABS_BACKWARD] = ew_abs_backward,
            [TRII_EW_SIGMOID_BACKWARD] = ew_sigmoid_backward,
            [TRII_EW_TANH_BACKWARD] = ew_tanh_backward,
            [TRII_EW_GELU_BACKWARD] = ew_gelu_backward,
            [TRII_EW_GELU_TANH_BACKWARD] = ew_gelu_tanh_backward,
            [TRII_EW_SILU_BACKWARD] = ew_silu_backward,
            [TRII_EW_MSE_BACKWARD] = ew_mse_backward,
            [TRII_EW_FILL] = ew_fill,
        },
    .add_values = add_values,
    .row_totals = row_totals,
    .total_product = total_product,
    .total_squared_difference = total_squared_difference,
    .add_rows = add_rows,
    .max = max,
    .to_bf16 = to_bf16,
    .from_bf16 = from_bf16,
    .to_f16 = to_f16,
    .from_f16 = from_f16,
    .images =
        {
            {
                .moments = moments,
                .norm = norm,
                .norm_backward_sums = norm_backward_sums,
                .norm_backward = norm_backward,
                .max_pool = max_pool,
                .max_pool_backward = max_pool_backward,
                .avg_pool = avg_pool,
                .avg_pool_backward = avg_pool_backward,
            },
            {
                .moments = moments_bf16,
                .norm = norm_bf16,
                .norm_backward_sums = norm_backward_sums_bf16,
                .norm_backward = norm_backward_bf16,
                .max_pool = max_pool_bf16,
                .max_pool_backward = max_pool_backward_bf16,
                .avg_pool = avg_pool_bf16,
                .avg_pool_backward = avg_pool_backward_bf16,
            },
        },
    .random_mask = random_mask,
    .gemm = gemm,
    .row_moments = row_moments,
    .row_normalise = row_normalise,
    .row_gradient_sums = row_gradient_sums,
    .row_gradient = row_gradient,
    .tile_softmax = tile_softmax,
    .tile_gradient = tile_gradient,
    .transpose = transpose,
    .update =
        {
            [TRII_UPDATE_SGD] = {sgd_f32, sgd_f64},
            [TRII_UPDATE_ADAM] = {adam_f32, adam_f64},
            [TRII_UPDATE_RMSPROP] = {rmsprop_f32, rmsprop_f64},
            [TRII_UPDATE_ADAGRAD] = {adagrad_f32, adagrad_f64},
            [TRII_UPDATE_LERP] = {lerp_f32, lerp_f64},
            [TRII_UPDATE_CLIP] = {clip_f32, clip_f64},
        },
};
