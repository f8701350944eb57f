/*
 * ops_sites.h - wraps the functions of tensor.h and ops.h so that errors name the caller's line.
 * A part of ops.h; not meant to be included alone, but it may be.
 */
#ifndef TRIREME_OPS_SITES_H
#define TRIREME_OPS_SITES_H

#include <trireme/export.h>

TRI_BEGIN_DECLS
TRI_API void tri_site_set(const char *file, int line);
TRI_END_DECLS

#ifndef TRI_NO_SITES
#ifndef TRI_SITE_
#define TRI_SITE_(call) (tri_site_set(__FILE__, __LINE__), call)
#endif
#define tri_add(...) TRI_SITE_(tri_add(__VA_ARGS__))
#define tri_sub(...) TRI_SITE_(tri_sub(__VA_ARGS__))
#define tri_mul(...) TRI_SITE_(tri_mul(__VA_ARGS__))
#define tri_div(...) TRI_SITE_(tri_div(__VA_ARGS__))
#define tri_maximum(...) TRI_SITE_(tri_maximum(__VA_ARGS__))
#define tri_minimum(...) TRI_SITE_(tri_minimum(__VA_ARGS__))
#define tri_add_scalar(...) TRI_SITE_(tri_add_scalar(__VA_ARGS__))
#define tri_mul_scalar(...) TRI_SITE_(tri_mul_scalar(__VA_ARGS__))
#define tri_neg(...) TRI_SITE_(tri_neg(__VA_ARGS__))
#define tri_abs(...) TRI_SITE_(tri_abs(__VA_ARGS__))
#define tri_square(...) TRI_SITE_(tri_square(__VA_ARGS__))
#define tri_sqrt(...) TRI_SITE_(tri_sqrt(__VA_ARGS__))
#define tri_exp(...) TRI_SITE_(tri_exp(__VA_ARGS__))
#define tri_log(...) TRI_SITE_(tri_log(__VA_ARGS__))
#define tri_relu(...) TRI_SITE_(tri_relu(__VA_ARGS__))
#define tri_leaky_relu(...) TRI_SITE_(tri_leaky_relu(__VA_ARGS__))
#define tri_sigmoid(...) TRI_SITE_(tri_sigmoid(__VA_ARGS__))
#define tri_tanh(...) TRI_SITE_(tri_tanh(__VA_ARGS__))
#define tri_gelu(...) TRI_SITE_(tri_gelu(__VA_ARGS__))
#define tri_silu(...) TRI_SITE_(tri_silu(__VA_ARGS__))
#define tri_cast(...) TRI_SITE_(tri_cast(__VA_ARGS__))
#define tri_dropout(...) TRI_SITE_(tri_dropout(__VA_ARGS__))
#define tri_reshape(...) TRI_SITE_(tri_reshape(__VA_ARGS__))
#define tri_flatten(...) TRI_SITE_(tri_flatten(__VA_ARGS__))
#define tri_permute(...) TRI_SITE_(tri_permute(__VA_ARGS__))
#define tri_transpose(...) TRI_SITE_(tri_transpose(__VA_ARGS__))
#define tri_expand(...) TRI_SITE_(tri_expand(__VA_ARGS__))
#define tri_flip(...) TRI_SITE_(tri_flip(__VA_ARGS__))
#define tri_sum(...) TRI_SITE_(tri_sum(__VA_ARGS__))
#define tri_mean(...) TRI_SITE_(tri_mean(__VA_ARGS__))
#define tri_amax(...) TRI_SITE_(tri_amax(__VA_ARGS__))
#define tri_argmax(...) TRI_SITE_(tri_argmax(__VA_ARGS__))
#define tri_matmul(...) TRI_SITE_(tri_matmul(__VA_ARGS__))
#define tri_linear(...) TRI_SITE_(tri_linear(__VA_ARGS__))
#define tri_embedding(...) TRI_SITE_(tri_embedding(__VA_ARGS__))
#define tri_attention(...) TRI_SITE_(tri_attention(__VA_ARGS__))
#define tri_layer_norm(...) TRI_SITE_(tri_layer_norm(__VA_ARGS__))
#define tri_rms_norm(...) TRI_SITE_(tri_rms_norm(__VA_ARGS__))
#define tri_conv2d(...) TRI_SITE_(tri_conv2d(__VA_ARGS__))
#define tri_max_pool2d(...) TRI_SITE_(tri_max_pool2d(__VA_ARGS__))
#define tri_avg_pool2d(...) TRI_SITE_(tri_avg_pool2d(__VA_ARGS__))
#define tri_adaptive_avg_pool2d(...) TRI_SITE_(tri_adaptive_avg_pool2d(__VA_ARGS__))
#define tri_adaptive_max_pool2d(...) TRI_SITE_(tri_adaptive_max_pool2d(__VA_ARGS__))
#define tri_batch_norm(...) TRI_SITE_(tri_batch_norm(__VA_ARGS__))
#define tri_softmax(...) TRI_SITE_(tri_softmax(__VA_ARGS__))
#define tri_log_softmax(...) TRI_SITE_(tri_log_softmax(__VA_ARGS__))
#define tri_cross_entropy(...) TRI_SITE_(tri_cross_entropy(__VA_ARGS__))
#define tri_mse_loss(...) TRI_SITE_(tri_mse_loss(__VA_ARGS__))
#define tri_count_correct(...) TRI_SITE_(tri_count_correct(__VA_ARGS__))
#define tri_backward(...) TRI_SITE_(tri_backward(__VA_ARGS__))
#define tri_backward_n(...) TRI_SITE_(tri_backward_n(__VA_ARGS__))
#define tri_item(...) TRI_SITE_(tri_item(__VA_ARGS__))
#define tri_item_get(...) TRI_SITE_(tri_item_get(__VA_ARGS__))
#define tri_data(...) TRI_SITE_(tri_data(__VA_ARGS__))
#define tri_set_name(...) TRI_SITE_(tri_set_name(__VA_ARGS__))
#define tri_print(...) TRI_SITE_(tri_print(__VA_ARGS__))
#define tri_tensor_text(...) TRI_SITE_(tri_tensor_text(__VA_ARGS__))
#define tri_copy_out(...) TRI_SITE_(tri_copy_out(__VA_ARGS__))
#define tri_copy_in(...) TRI_SITE_(tri_copy_in(__VA_ARGS__))
#define tri_run(...) TRI_SITE_(tri_run(__VA_ARGS__))
#endif

#endif
