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
            [TRII_EW_copy] = ew_copy,
            [TRII_EW_round_bf16] = ew_round_bf16,
            [TRII_EW_round_f16] = ew_round_f16,
            [TRII_EW_mse_loss_backward] = ew_mse_loss_backward,
            [TRII_EW_fill] = ew_fill,
#define TRII_EW_KERNEL(name) [TRII_EW_##name] = ew_##name,
#include "train/graph/step/elementwise.def"
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
