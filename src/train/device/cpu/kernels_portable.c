/*
 * kernels_portable.c - the kernels for the processor family's baseline.
 */
/* build: no-errno */
#include "train/device/cpu/kernels.h"

#define VEC_LANES 4
#define VEC_TARGET
#define VEC_FMA(a, b, c) ((a) * (b) + (c))
#define VEC_STORE_FEW(p, v, n)                                                                     \
    do {                                                                                           \
        for (int few = 0; few < (int)(n); few++)                                                   \
            (p)[few] = (v)[few];                                                                   \
    } while (0)
#define VEC_LOAD_FEW(p, n)                                                                         \
    ((vec){(n) > 0 ? (p)[0] : 0, (n) > 1 ? (p)[1] : 0, (n) > 2 ? (p)[2] : 0, 0})
#define VEC_WIDEN(h) __builtin_convertvector(h, vec_d)
#define VEC_LOAD_HALF_FEW(p, n) ((vec_half){(n) > 0 ? (p)[0] : 0})
#define VEC_TABLE trii_cpu_kernels_portable
#include "train/device/cpu/kernels_all.h"
