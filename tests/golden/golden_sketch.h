/*
 * golden_sketch.h - how far an array is from the one that make_bf16.py sketched: its sums under
 * patterns of signs tell two arrays apart as well as the norm of their difference does.
 */
#ifndef TEST_GOLDEN_SKETCH_H
#define TEST_GOLDEN_SKETCH_H

#include <math.h>

#include <trireme/tensor.h>

#include "testing/check.h"
#include "testing/golden.h"

#define SKETCH 24 /* patterns, as make_bf16.py has them */

static inline double sketch_sign(int pattern, int64_t i)
{
    uint64_t z =
        ((uint64_t)(pattern + 101) << 32) + (uint64_t)(i / 64) * UINT64_C(0x9e3779b97f4a7c15) + 1;

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (z >> (i % 64) & 1) != 0 ? 1 : -1;
}

/* The distance of the f32 tensor, in units of the array's norm; `numbers` is "NORM SUMS..". */
static inline double sketch_distance(const char *numbers, tri_tensor *tensor)
{
    int64_t n = tri_tensor_numel(tensor);
    float *data = malloc((size_t)n * sizeof(float));
    char *at;
    double norm = strtod(numbers, &at), off = 0;

    CHECK_OK(tri_tensor_copy_out(tensor, data, (size_t)n * sizeof(float)));
    for (int p = 0; p < SKETCH; p++) {
        double sum = 0, want = strtod(at, &at);

        for (int64_t i = 0; i < n; i++)
            sum += sketch_sign(p, i) * (double)data[i];
        off += (sum - want) * (sum - want) / SKETCH;
    }
    free(data);
    assert_true(norm > 0);
    return sqrt(off) / norm;
}

#endif
