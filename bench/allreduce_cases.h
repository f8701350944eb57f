/*
 * allreduce_cases.h - what allreduce.c and its peer measure.
 */
#ifndef BENCH_ALLREDUCE_CASES_H
#define BENCH_ALLREDUCE_CASES_H

#include <stddef.h>

#define MAX_SAMPLES 2000

typedef struct bench_case {
    const char *name;
    size_t bytes;
    int samples;
} bench_case;

static const bench_case cases[] = {
    {"4 B", 4, 1000},
    {"1 KiB", (size_t)1 << 10, 2000},
    {"16 KiB", (size_t)16 << 10, 2000},
    {"64 KiB", (size_t)64 << 10, 1000},
    {"256 KiB", (size_t)256 << 10, 400},
    {"1 MiB", (size_t)1 << 20, 200},
    {"4 MiB", (size_t)4 << 20, 60},
    {"16 MiB", (size_t)16 << 20, 20},
    {"64 MiB", (size_t)64 << 20, 8},
    {"256 MiB", (size_t)256 << 20, 5},
};

#endif
