/*
 * premul.c - see premul.h.
 */
/* build: leaf */
#include "comm/group/call/premul.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/float_env.h"

void trii_scale(const void *src, void *dst, size_t count, tri_dtype dtype, double factor)
{
    const float narrow = (float)factor;

    if (dtype == TRI_DTYPE_F64)
        for (size_t i = 0; i < count; i++)
            ((double *)dst)[i] = ((const double *)src)[i] * factor;
    else if (dtype == TRI_DTYPE_F32)
        for (size_t i = 0; i < count; i++)
            ((float *)dst)[i] = ((const float *)src)[i] * narrow;
    else
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)dst)[i] = trii_f32_to_half(
                dtype, trii_half_to_f32(dtype, ((const uint16_t *)src)[i]) * narrow);
}

tri_status trii_premul_apply(const tri_group *group, trii_collective *call)
{
    size_t count = call->count;
    void *to = call->dst;
    uint64_t env;

    if (call->kind == TRII_KIND_REDUCE_SCATTER)
        count *= (size_t)group->size;
    if (call->kind != TRII_KIND_ALL_REDUCE && count > 0) {
        call->temporary = trii_alloc_aligned(64, count * tri_dtype_size(call->dtype), "premul_sum");
        if (call->temporary == NULL)
            return TRI_ERR_NO_MEMORY;
        to = call->temporary;
    }
    env = trii_float_env_enter();
    trii_scale(call->src, to, count, call->dtype, call->factor);
    trii_float_env_leave(env);
    call->src = to;
    return TRI_OK;
}
