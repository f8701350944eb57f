/*
 * float_env.h - how this thread rounds and what it makes of denormal numbers, which a program may
 * have changed for itself (PyTorch's set_flush_denormal, -Ofast, fesetround). What ranks compute
 * for each other is computed the same way on every thread: IEEE's, to the nearest, nothing flushed
 * and nothing trapped.
 */
#ifndef TRII_FLOAT_ENV_H
#define TRII_FLOAT_ENV_H

#include "base/compiler.h"

#include <stdint.h>

#if defined(__x86_64__)
#define TRII_FLOAT_ENV_OURS UINT64_C(0x1f80)
#define TRII_FLOAT_ENV_MODES UINT64_C(0xffc0) /* the others say what has happened */
#else
#define TRII_FLOAT_ENV_OURS UINT64_C(0)
#define TRII_FLOAT_ENV_MODES UINT64_MAX
#endif

/* The memory clobber keeps what is computed from memory and stored there in between. */
static inline uint64_t trii_float_env_get(void)
{
#if defined(__x86_64__)
    uint32_t word;

    __asm__ volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
#elif defined(__aarch64__)
    uint64_t word;

    __asm__ volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
#else
    return 0;
#endif
}

static inline void trii_float_env_set(uint64_t env)
{
#if defined(__x86_64__)
    uint32_t word = (uint32_t)env;

    __asm__ volatile("ldmxcsr %0" : : "m"(word) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(env) : "memory");
#else
    (void)env;
#endif
}

/* Returns what to hand to leave. Looking costs a nanosecond or two, and where nothing was changed
 * that is all. */
static inline uint64_t trii_float_env_enter(void)
{
    uint64_t before = trii_float_env_get();

    if (TRII_UNLIKELY((before & TRII_FLOAT_ENV_MODES) != TRII_FLOAT_ENV_OURS))
        trii_float_env_set(TRII_FLOAT_ENV_OURS);
    return before;
}

static inline void trii_float_env_leave(uint64_t before)
{
    if (TRII_UNLIKELY((before & TRII_FLOAT_ENV_MODES) != TRII_FLOAT_ENV_OURS))
        trii_float_env_set(before);
}

#endif
