/*
 * reduce.c - chooses the kernel of a reduction by the processor.
 */
/* build: full leaf */
#include "comm/group/reduce/reduce.h"

#include <string.h>

#include "base/dtype.h"
#include "base/float_env.h"
#include "comm/group/reduce/reduce_kernels.h"
#include "os/cpu.h"

#define FEW 16
#define SUM_FEW(type, a, b, dst, count)                                                            \
    do {                                                                                           \
        type sum_[FEW], other_[FEW];                                                               \
                                                                                                   \
        memcpy(sum_, (a), (count) * sizeof(type));                                                 \
        memcpy(other_, (b), (count) * sizeof(type));                                               \
        for (size_t i_ = 0; i_ < (count); i_++)                                                    \
            sum_[i_] += other_[i_];                                                                \
        memcpy((dst), sum_, (count) * sizeof(type));                                               \
    } while (0)

/* A few numbers of two ranks, as most control calls are: takes half as long as only starting a
 * kernel that has room for a tree. */
static bool sum_few(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                    tri_redop op)
{
    if (n_src != 2 || count > FEW || op != TRI_REDOP_SUM)
        return false;
    if (dtype == TRI_DTYPE_F32)
        SUM_FEW(float, src[0], src[1], dst, count);
    else if (dtype == TRI_DTYPE_F64)
        SUM_FEW(double, src[0], src[1], dst, count);
    else
        return false;
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
                             /* the factors have been applied by now */
                             .op = op == TRII_REDOP_PREMUL_SUM ? TRI_REDOP_SUM : op};

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

void trii_widen(const uint16_t *src, float *dst, size_t n, tri_dtype dtype)
{
#if defined(__x86_64__)
    if (trii_cpu_isa() >= TRII_ISA_AVX2) {
        trii_widen_avx2(src, dst, n, dtype);
        return;
    }
#endif
    trii_widen_portable(src, dst, n, dtype);
}

void trii_narrow(const float *src, uint16_t *dst, size_t n, tri_dtype dtype)
{
#if defined(__x86_64__)
    if (trii_cpu_isa() >= TRII_ISA_AVX2) {
        trii_narrow_avx2(src, dst, n, dtype);
        return;
    }
#endif
    trii_narrow_portable(src, dst, n, dtype);
}
