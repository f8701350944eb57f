/*
 * premul.c - see premul.h.
 */
/* build: leaf */
#include "group/call/premul.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/float_env.h"

tri_status trii_premul_check(trii_collective *call)
{
    tri_status status = trii_reduction_check(call->dtype, TRI_REDOP_SUM);

    if (status != TRI_OK)
        return status;
    if (!trii_dtype_is_float(call->dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "premul_sum of %s: only floating-point types",
                         tri_dtype_name(call->dtype));
    if (!(call->factor >= 0.0f && call->factor <= 3.40282347e38f)) /* no NaN either */
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "premul_sum: factor is %g: must be finite and not negative",
                         (double)call->factor);
    call->factor += 0.0f; /* of -0 it makes 0 */
    call->op = TRII_REDOP_PREMUL_SUM;
    return TRI_OK;
}

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

/* --- the public calls ----------------------------------------------------- */

tri_status(tri_all_reduce_premul_sum)(tri_group *group, const void *src, void *dst, size_t count,
                                      tri_dtype dtype, float factor, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_REDUCE,
                            .dtype = dtype,
                            .scaled = true,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .factor = factor,
                            .site = trii_site_take()};

    return trii_call_run(group, &call, work_out);
}

tri_status(tri_reduce_premul_sum)(tri_group *group, const void *src, void *dst, size_t count,
                                  tri_dtype dtype, float factor, int root, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_REDUCE,
                            .dtype = dtype,
                            .root = root,
                            .scaled = true,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .factor = factor,
                            .site = trii_site_take()};

    return trii_call_run(group, &call, work_out);
}

tri_status(tri_reduce_scatter_premul_sum)(tri_group *group, const void *src, void *dst,
                                          size_t count, tri_dtype dtype, float factor,
                                          tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_REDUCE_SCATTER,
                            .dtype = dtype,
                            .scaled = true,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .factor = factor,
                            .site = trii_site_take()};

    return trii_call_run(group, &call, work_out);
}
