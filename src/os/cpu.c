/*
 * cpu.c - see cpu.h.
 */
/* build: leaf */
#include "os/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/log.h"
#include "base/param.h"

/* Not by __builtin_cpu_supports: it has a constructor, which every program that loads us
 * would run, and which asks the processor for all there is. */
static trii_isa processor_isa(void)
{
#if defined(__x86_64__)
    enum { AVX_SAVED = 0x6, AVX512_SAVED = 0xe6 }; /* registers that the system keeps for us */
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const unsigned beside_avx2 = bit_OSXSAVE | bit_FMA | bit_F16C | bit_PCLMUL;
    unsigned a, b, c, d, saved, high;

    if (__get_cpuid_max(0, NULL) < 7)
        return TRII_ISA_PORTABLE;
    __cpuid(1, a, b, c, d);
    if ((c & beside_avx2) != beside_avx2)
        return TRII_ISA_PORTABLE;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    __cpuid_count(7, 0, a, b, c, d);
    if ((saved & AVX512_SAVED) == AVX512_SAVED && (b & avx512) == avx512)
        return TRII_ISA_AVX512;
    if ((saved & AVX_SAVED) == AVX_SAVED && (b & bit_AVX2) != 0)
        return TRII_ISA_AVX2;
#endif
    return TRII_ISA_PORTABLE;
}

const char *trii_isa_name(trii_isa isa)
{
    static const char *const names[TRII_ISA_COUNT] = {"portable", "avx2", "avx512"};

    return (unsigned)isa < TRII_ISA_COUNT ? names[isa] : "unknown";
}

trii_isa trii_cpu_isa(void)
{
    static atomic_int cached = -1;
    int isa = atomic_load_explicit(&cached, memory_order_relaxed);
    int limit = -1;

    if (isa >= 0)
        return (trii_isa)isa;
    isa = (int)processor_isa();
    if (trii_param_choice(TRII_PARAM_ISA, &limit) != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "os", "%s; ignored", tri_last_error());
    if (limit >= 0 && limit < isa)
        isa = limit; /* the choices are in the enum's order */
    atomic_store_explicit(&cached, isa, memory_order_relaxed);
    return (trii_isa)isa;
}

enum { HAS_AVX512_BF16 = 1, HAS_AMX_BF16 = 2 };

/* What of the above this processor has; asked once, because in a virtual machine each question
 * costs tens of microseconds. */
static int bf16_features(void)
{
    static atomic_int cached = -1;
    int has = atomic_load_explicit(&cached, memory_order_relaxed);

    if (has >= 0)
        return has;
    has = 0;
#if defined(__x86_64__)
    if (trii_cpu_isa() == TRII_ISA_AVX512) {
        unsigned a = 0, b = 0, c = 0, d = 0;

        if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5)) != 0)
            has |= HAS_AVX512_BF16;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 22)) != 0)
            has |= HAS_AMX_BF16;
    }
#endif
    atomic_store_explicit(&cached, has, memory_order_relaxed);
    return has;
}

bool trii_cpu_has_avx512_bf16(void)
{
    return (bf16_features() & HAS_AVX512_BF16) != 0;
}

bool trii_cpu_has_amx_bf16(void)
{
    return (bf16_features() & HAS_AMX_BF16) != 0;
}

int trii_cpu_current(void)
{
    return sched_getcpu();
}

void trii_cpu_allowed(trii_cpu_set *set_out)
{
    cpu_set_t set;

    memset(set_out, 0, sizeof(*set_out));
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        set_out->words[0] = 1;
        return;
    }
    for (int i = 0; i < CPU_SETSIZE && i < 64 * TRII_CPU_WORDS; i++) {
        if (CPU_ISSET(i, &set))
            set_out->words[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

int trii_cpu_set_count(const trii_cpu_set *set)
{
    int n = 0;

    for (int i = 0; i < TRII_CPU_WORDS; i++)
        n += __builtin_popcountll(set->words[i]);
    return n;
}
