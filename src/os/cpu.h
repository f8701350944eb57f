/*
 * cpu.h - what the processor can do and which cores we may use.
 */
#ifndef TRII_CPU_H
#define TRII_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* Instruction sets that kernels are written for, each one containing the former. */
typedef enum trii_isa {
    TRII_ISA_PORTABLE = 0,
    TRII_ISA_AVX2,   /* with FMA, F16C and PCLMULQDQ */
    TRII_ISA_AVX512, /* F, BW, DQ, VL */
    TRII_ISA_COUNT
} trii_isa;

/* The best one of this processor, limited by TRI_ISA; found once. */
trii_isa trii_cpu_isa(void);
/* "portable", "avx2", "avx512"; static text. */
const char *trii_isa_name(trii_isa isa);
bool trii_cpu_has_avx512_bf16(void);
bool trii_cpu_has_amx_bf16(void);

/* Cores as bits: enough for 1024. */
#define TRII_CPU_WORDS 16
typedef struct trii_cpu_set {
    uint64_t words[TRII_CPU_WORDS];
} trii_cpu_set;

/* The core that this thread is on, at this moment; -1: the system does not say. Takes a few ns. */
int trii_cpu_current(void);
/* The cores that this thread may run on. */
void trii_cpu_allowed(trii_cpu_set *set_out);
int trii_cpu_set_count(const trii_cpu_set *set);
static inline void trii_cpu_set_unite(trii_cpu_set *set, const trii_cpu_set *other)
{
    for (int i = 0; i < TRII_CPU_WORDS; i++)
        set->words[i] |= other->words[i];
}

#endif
