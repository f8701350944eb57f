/*
 * premul.h - the reduction premul_sum: every rank's part times that rank's factor, then the sum.
 * The factor is applied before the engine sees the call, so that engines only sum.
 */
#ifndef TRII_PREMUL_H
#define TRII_PREMUL_H

#include "comm/group/group_internal.h"

/* Scales this rank's input: into dst where that is as large, else into call->temporary. */
tri_status trii_premul_apply(const tri_group *group, trii_collective *call) TRI_MUST_CHECK;

/* dst = src * factor, of floating-point types; they may be the same. Of less than f64 the product
 * is made in f32 and rounded once. */
void trii_scale(const void *src, void *dst, size_t count, tri_dtype dtype, double factor);

#endif
