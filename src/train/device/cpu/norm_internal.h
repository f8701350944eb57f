/*
 * norm_internal.h - what the kernels of batch normalisation share (norm.c, norm_backward.c).
 *
 * A unit is a channel, or a block of them.
 */
#ifndef TRII_NORM_INTERNAL_H
#define TRII_NORM_INTERNAL_H

#include <math.h>
#include <string.h>

#include "train/device/cpu/cpu_ops.h"
#include "train/graph/step/type.h"

#define TRII_NORM_MAX_BLOCK 16

/* Operands of batch_norm, batch_norm_eval and batch_norm_elemt (with the mean and variance over all
 * ranks instead of the running ones), outputs of the first. */
enum { IN_X, IN_WEIGHT, IN_BIAS, IN_RUNNING_MEAN, IN_RUNNING_VAR, N_FORWARD_IN };
enum { OUT_Y, OUT_MEAN, OUT_INVSTD, OUT_RUNNING_MEAN, OUT_RUNNING_VAR, N_FORWARD_OUT };
/* Operands of batch_norm_backward; the others have other means and variances:
 * batch_norm_eval_backward the running ones, batch_norm_backward_reduce and _elemt those over all
 * ranks. */
enum { OUT_DWEIGHT = 1, OUT_DBIAS }; /* 0: dx, of the last but one the sums for all ranks */
enum { IN_G, IN_BX, IN_BWEIGHT, IN_MEAN, IN_INVSTD, N_BACKWARD_IN };
#define IN_VAR IN_INVSTD
/* More operands, of batch_norm_backward_elemt. */
enum { IN_SUMS = N_BACKWARD_IN, IN_COUNT, N_ELEMT_IN };

static inline bool trii_norm_is(const trii_ir_node *node, const char *name)
{
    return strcmp(node->op->name, name) == 0;
}

/* Images, or rows, in f32 or bf16; parameters and statistics are f32. */
static inline bool trii_norm_takes(const trii_ir *ir, const trii_ir_node *node, int x)
{
    return trii_node_computes_f32(ir, node) && trii_has_in(node, x) &&
           trii_in_type(ir, node, x)->ndim <= 4 && trii_type_numel(trii_in_type(ir, node, x)) > 0;
}

/* The statistics in a gradient: of the batch, whose standard deviation forward has inverted; the
 * running ones; of the batches of all ranks. The last two come as variances. */
typedef enum trii_norm_by {
    TRII_NORM_BY_BATCH,
    TRII_NORM_BY_RUNNING,
    TRII_NORM_BY_ALL
} trii_norm_by;

typedef struct trii_norm_kernel {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    trii_images images;
    int in[N_ELEMT_IN], residual, out[N_FORWARD_OUT]; /* arguments; -1 = none */
    /* backward: argument with the sign, and the one that dy after the mask goes to */
    int mask, masked;
    trii_norm_mask mask_kind;
    trii_norm_by by;
    int dx, all_sums; /* arguments: the gradient of x; the sums for all ranks; -1 = none */
    bool sums;        /* a first pass adds up the sums */
    int32_t f;
    bool training, relu;
    uint64_t in_place[8];
} trii_norm_kernel;

typedef struct trii_norm_run {
    const trii_norm_kernel *k;
    void *const *args;
    double momentum, eps;
} trii_norm_run;

static inline float *trii_norm_floats(const trii_norm_run *run, int arg, int64_t offset)
{
    return arg >= 0 ? (float *)run->args[arg] + offset : NULL;
}

/* The unit of an operand of the images' shape and type. */
static inline void *trii_norm_unit(const trii_norm_run *run, int arg, int64_t unit)
{
    const trii_images *images = &run->k->images;
    int64_t size = images->bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);

    return arg >= 0 ? (char *)run->args[arg] + unit * trii_images_unit(images) * size : NULL;
}

/* y = x * alpha + beta; the backward pass must compute the same bits. */
static inline void trii_norm_line(const float *weight, const float *bias, float mean, float invstd,
                                  float *alpha, float *beta)
{
    *alpha = weight != NULL ? *weight * invstd : invstd;
    *beta = (bias != NULL ? *bias : 0) - mean * *alpha;
}

/* The divisor from var + eps. */
static inline float trii_norm_invstd(float var, double eps)
{
    return (float)(1 / sqrt((double)var + eps));
}

/* A kernel for the layout that value x has in the group. */
trii_norm_kernel *trii_norm_kernel_new(const trii_ir *ir, const trii_group *group, const char *name,
                                       int32_t x);
/* The argument of an output of the group; -1 = it is not an output. */
int trii_norm_out_arg(const trii_group *group, int32_t value);
/* Gives everything of the images' shape the layout of x. */
void trii_norm_follow(const trii_ir *ir, const trii_group *group, int32_t x,
                      const trii_layout *const *have, trii_layouts *want);

#endif
