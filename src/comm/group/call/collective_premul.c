/*
 * collective_premul.c - the sums in which each rank's part counts a factor times (premul.h).
 */
/* build: leaf */
#include "comm/group/call/premul.h"

#include "base/site.h"

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
