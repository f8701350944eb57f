/*
 * kernels_update.h - the loops of optimisers in f32 and f64; a template, see vec.h. The formulas
 * are those of the reference kernel (train/graph/ops/update_loops.h).
 */
#define UPDATE_FN VEC_FN
#define UPDATE_INLINE VEC_INLINE
#define UPDATE_LOOP VEC_LOOP
#define UPDATE_T float
#define UPDATE_NAME(rule) rule##_f32
#define UPDATE_SQRT __builtin_sqrtf
#include "train/graph/ops/update_loops.h"
#undef UPDATE_T
#undef UPDATE_NAME
#undef UPDATE_SQRT
#define UPDATE_T double
#define UPDATE_NAME(rule) rule##_f64
#define UPDATE_SQRT __builtin_sqrt
#include "train/graph/ops/update_loops.h"
