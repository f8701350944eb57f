/*
 * reduce_scalar.h - the truth that reductions and their kernels are tested against: one element at
 * a time, slow, by recursion over the canonical tree (comm/group/reduce/reduce.h).
 */
#ifndef TEST_REDUCE_SCALAR_H
#define TEST_REDUCE_SCALAR_H

#include <stddef.h>

#include <trireme/types.h>

/* As trii_reduce. */
void reduce_scalar(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                   tri_redop op);

#endif
