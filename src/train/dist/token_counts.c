/*
 * token_counts.c - see token_counts.h.
 */
#include "train/dist/token_counts.h"

#include "train/graph/step/step.h"

static _Thread_local struct {
    uint64_t generation; /* of the step that the counts are of */
    trii_token_counts counts;
} noted;

static trii_token_counts *now(void)
{
    const trii_step *step = trii_step_current();
    uint64_t generation = step != NULL ? step->generation : 0;

    if (noted.generation != generation)
        noted.counts = (trii_token_counts){.n = 0};
    noted.generation = generation;
    return &noted.counts;
}

const trii_token_counts *trii_token_counts_now(void)
{
    return now();
}

static int64_t divisor_of(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

void trii_token_counts_add(int64_t tokens)
{
    trii_token_counts *counts = now();

    for (int64_t i = 0; i < counts->n; i++)
        if (counts->of[i] == tokens)
            return;
    if (counts->n < TRII_TOKEN_COUNTS)
        counts->of[counts->n++] = tokens;
    else
        counts->others = divisor_of(counts->others, tokens);
}

void trii_token_counts_join(const trii_token_counts *told)
{
    trii_token_counts *counts = now();

    for (int64_t i = 0; i < told->n; i++)
        trii_token_counts_add(told->of[i]);
    counts->others = divisor_of(counts->others, told->others);
}
