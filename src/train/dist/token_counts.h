/*
 * token_counts.h - how many tokens sequences have of which ranks hold a part. A part does not say
 * how large the others are, so what this thread's step has cut is noted, and a pipeline tells it to
 * the ranks of later stages.
 */
#ifndef TRII_TOKEN_COUNTS_H
#define TRII_TOKEN_COUNTS_H

#include <stdint.h>

#define TRII_TOKEN_COUNTS 8 /* different ones in a step that are told apart */

typedef struct trii_token_counts {
    int64_t of[TRII_TOKEN_COUNTS];
    int64_t n;
    int64_t
        others; /* what those for which there was no room have as a divisor; 0: there are none */
} trii_token_counts;

/* Of this thread's step: none before anything was cut in it. */
const trii_token_counts *trii_token_counts_now(void);
void trii_token_counts_add(int64_t tokens);
/* What another rank has noted. */
void trii_token_counts_join(const trii_token_counts *told);

#endif
