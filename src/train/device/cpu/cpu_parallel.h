/*
 * cpu_parallel.h - loops over several threads within one kernel.
 *
 * The threads are libgomp's, the same that oneDNN uses: with a second pool, both would spin on the
 * same cores, which costs a hundredfold. How a loop is split never changes a result: kernels give
 * each output element, or each block of a sum (sum_tree.h), to one thread, which adds in one order.
 */
#ifndef TRII_CPU_PARALLEL_H
#define TRII_CPU_PARALLEL_H

#include <stdint.h>

/* Threads of the calling thread's device: its share of tri_num_threads, at least 1. While a plan is
 * compiled or runs it stays the same (trii_threads_pin). */
int trii_parallel_threads(void);
/* For tests: 0 restores the environment's. */
void trii_parallel_set_threads(int n_threads);
/* The calling thread computes for cpu:INDEX from now on. */
void trii_parallel_enter(int index);
/* Before a vendor library runs on the calling thread: makes it use as many threads as we do. */
void trii_parallel_adopt_thread(void);

/* run(ctx, begin, end) for disjoint ranges that cover [0, n); at most one range per thread and
 * at least `grain` items in each, so small loops stay on the caller. Returns when all are done.
 * run must not fail and must not call trii_parallel_for. */
void trii_parallel_for(int64_t n, int64_t grain, void (*run)(void *ctx, int64_t begin, int64_t end),
                       void *ctx);

#endif
