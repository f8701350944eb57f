/*
 * reduce.c - chooses the kernel of a reduction by the processor.
 */
#include "group/reduce/reduce.h"

#include <string.h>

#include "base/float_env.h"
#include "group/reduce/reduce_kernels.h"
#include "os/cpu.h"

#define FEW 16

/* A few numbers of two ranks, the common control call: half the time of starting a kernel that
 * has room for a tree. */
static bool sum_few(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                    tri_redop op)
{
    float sum[FEW], other[FEW];

    if (n_src != 2 || count > FEW || dtype != TRI_DTYPE_F32 || op != TRI_REDOP_SUM)
        return false;
    memcpy(sum, src[0], count * sizeof(*sum));
    memcpy(other, src[1], count * sizeof(*other));
    for (size_t i = 0; i < count; i++)
        sum[i] += other[i];
    memcpy(dst, sum, count * sizeof(*sum));
    return true;
}

static void push(const void *const *src, int n_src, void *const *dst, int n_dst, size_t count,
                 tri_dtype dtype, tri_redop op)
{
    trii_reduce_args args = {.src = src,
                             .dst = dst,
                             .n_src = n_src,
                             .n_dst = n_dst,
                             .count = count,
                             .dtype = dtype,
                             /* its factors were applied before */
                             .op = op == TRI_REDOP_PREMUL_SUM ? TRI_REDOP_SUM : op};

#if defined(__x86_64__)
    switch (trii_cpu_isa()) {
    case TRII_ISA_AVX512:
        trii_reduce_avx512(&args);
        return;
    case TRII_ISA_AVX2:
        trii_reduce_avx2(&args);
        return;
    default:
        break;
    }
#endif
    trii_reduce_portable(&args);
}

void trii_reduce_push(const void *const *src, int n_src, void *const *dst, int n_dst, size_t count,
                      tri_dtype dtype, tri_redop op)
{
    uint64_t env = trii_float_env_enter();

    push(src, n_src, dst, n_dst, count, dtype, op);
    trii_float_env_leave(env);
}

void trii_reduce(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                 tri_redop op)
{
    uint64_t env = trii_float_env_enter();

    if (!sum_few(src, n_src, dst, count, dtype, op))
        push(src, n_src, &dst, 1, count, dtype, op);
    trii_float_env_leave(env);
}
