/*
 * compiler.h - what the language lacks, under names of our own.
 */
#ifndef TRII_COMPILER_H
#define TRII_COMPILER_H

#include <trireme/export.h>

#define TRII_LIKELY(x) __builtin_expect(!!(x), 1)
#define TRII_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TRII_PRINTF(text, first) TRI_PRINTF(text, first)
#define TRII_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
/* The value of a macro as a string. */
#define TRII_TEXT(macro) TRII_TEXT_(macro)
#define TRII_TEXT_(text) #text
#define TRII_ALIGNED(n) __attribute__((aligned(n)))
/* The struct whose member `pointer` points to. */
#define TRII_CONTAINER(pointer, type, member)                                                      \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define TRII_UNUSED __attribute__((unused))
#define TRII_NOINLINE __attribute__((noinline))
/* A type of `bytes` bytes that the arithmetic operators take element by element, at any
 * address that is a multiple of `align`. */
#define TRII_VECTOR(bytes, align) __attribute__((vector_size(bytes), aligned(align), may_alias))
#define TRII_INLINE inline __attribute__((always_inline))
/* A function compiled for a newer processor than the rest; call it only after
 * os/cpu.h said that the processor has it. */
#define TRII_TARGET(features) __attribute__((target(features)))

/* Whether a sanitizer is built in: gcc says so by a macro, clang if it is asked. */
#if defined(__has_feature)
#define TRII_HAS_FEATURE(name) __has_feature(name)
#else
#define TRII_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || TRII_HAS_FEATURE(thread_sanitizer)
#define TRII_TSAN 1
#else
#define TRII_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TRII_HAS_FEATURE(address_sanitizer)
#define TRII_ASAN 1
#else
#define TRII_ASAN 0
#endif
/* A function whose accesses ThreadSanitizer is not shown. */
#define TRII_NO_TSAN __attribute__((no_sanitize("thread")))

#define TRII_CACHE_LINE 64

/* Asks for the cache line at p, to write into it soon. gcc emits prefetchw only where it may assume
 * the processor to have it; those that do not ignore it. */
#if defined(__x86_64__)
#define TRII_PREFETCH_WRITE(p) __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)(p)))
#else
#define TRII_PREFETCH_WRITE(p) __builtin_prefetch((p), 1)
#endif

#if defined(__x86_64__)
#define TRII_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TRII_PAUSE() __asm__ __volatile__("yield")
#else
#define TRII_PAUSE() ((void)0)
#endif

#endif
