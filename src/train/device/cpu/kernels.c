/*
 * kernels.c - picks the table of an instruction set.
 */
#include "train/device/cpu/kernels.h"

const trii_cpu_kernels *trii_cpu_kernels_of(trii_isa isa)
{
#if defined(__x86_64__)
    if (isa == TRII_ISA_AVX512)
        return trii_cpu_has_avx512_bf16() ? &trii_cpu_kernels_avx512_bf16
                                          : &trii_cpu_kernels_avx512;
    if (isa == TRII_ISA_AVX2)
        return &trii_cpu_kernels_avx2;
#else
    (void)isa;
#endif
    return &trii_cpu_kernels_portable;
}

const trii_cpu_kernels *trii_cpu_kernels_get(void)
{
    return trii_cpu_kernels_of(trii_cpu_isa());
}
