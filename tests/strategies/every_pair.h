/*
 * every_pair.h - few choices in which every two levels of every two factors meet: what is wrong
 * with one strategy, or with two of them together, is seen without trying all combinations.
 */
#ifndef TEST_EVERY_PAIR_H
#define TEST_EVERY_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PAIRS_FACTORS 12 /* at most */
#define PAIRS_LEVELS 8

typedef struct pairs {
    int n_factors;
    int levels[PAIRS_FACTORS];
    bool (*goes)(const int *level); /* what can be chosen; NULL: everything */
    bool met[PAIRS_FACTORS][PAIRS_LEVELS][PAIRS_FACTORS][PAIRS_LEVELS];
} pairs;

static inline int pairs_all(const pairs *p)
{
    int all = 1;

    for (int f = 0; f < p->n_factors; f++)
        all *= p->levels[f];
    return all;
}

/* The levels of combination 0 <= number < pairs_all. */
static inline void pairs_levels(const pairs *p, int number, int *level)
{
    for (int f = 0; f < p->n_factors; f++) {
        level[f] = number % p->levels[f];
        number /= p->levels[f];
    }
}

/* How many pairs meet here for the first time; with `take` they have met from now on. */
static inline int pairs_new(pairs *p, const int *level, bool take)
{
    int n = 0;

    for (int a = 0; a < p->n_factors; a++) {
        for (int b = a + 1; b < p->n_factors; b++) {
            bool *met = &p->met[a][level[a]][b][level[b]];

            n += !*met;
            *met = *met || take;
        }
    }
    return n;
}

/* Of every `stride`-th combination from `from` on, the first of those in which most pairs meet for
 * the first time; *most_io, how many, has to grow. */
static inline void pairs_search(pairs *p, int from, int stride, int *most_io, int *best)
{
    int all = pairs_all(p), level[PAIRS_FACTORS];

    for (int i = 0; i < all; i += stride) {
        int n;

        pairs_levels(p, (from + i) % all, level);
        n = pairs_new(p, level, false);
        if (n <= *most_io || (p->goes != NULL && !p->goes(level)))
            continue;
        *most_io = n;
        memcpy(best, level, sizeof(level));
    }
}

/* The next choice: one in which many pairs meet for the first time. False: all that can have met.
 * The stride is a prime, so that it goes through all levels of every factor. */
static inline bool pairs_next(pairs *p, int from, int *level)
{
    int most = 0;

    pairs_search(p, from, pairs_all(p) > 20000 ? 17 : 1, &most, level);
    if (most == 0)
        pairs_search(p, from, 1, &most, level);
    return most > 0 && pairs_new(p, level, true) > 0;
}

#endif
