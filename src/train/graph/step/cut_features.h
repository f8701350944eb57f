/*
 * cut_features.h - what features layers have cut in this thread's step, for what works on this
 * rank's part of them without saying what it is a part of. A pipeline tells the ranks of later
 * stages the last of them, as token_counts.h.
 */
#ifndef TRII_CUT_FEATURES_H
#define TRII_CUT_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "train/graph/step/op.h"

/* Of each of so many equal parts in a row this rank has n features of `whole`, from `start` on. */
typedef struct trii_cut_features {
    int64_t parts, whole, start, n; /* parts 0: nothing was cut */
    int64_t group;                  /* a hash of its ranks; 0: it is that of a rank before this */
    int64_t ranks, rank;            /* how many they are, and which of them this one is */
} trii_cut_features;

trii_cut_features trii_cut_features_now(void);
/* The last that was cut over this group, of which the fields above are set. */
trii_cut_features trii_cut_features_over(const trii_cut_features *group);
void trii_cut_features_note(const trii_cut_features *features);

/* A layer has given a value of several parts. */
void trii_cut_parts_note(trii_vid value);
/* Whether x is such a value, element by element: with a bias, after an activation or dropout. */
bool trii_cut_parts_reach(trii_vid x);

/* A layer that is cut gets a value that is whole, of which all ranks have the same. */
void trii_cut_input_note(trii_vid x);
bool trii_cut_input_is_noted(void);
/* The first such value of this step; NO_VALUE: there is none. */
trii_vid trii_cut_input_now(void);

/* This rank's heads of queries, and those of keys or values that they share. */
typedef struct trii_cut_heads {
    int64_t queries, keys, query_width, key_width; /* numbers of heads, and the width of one */
} trii_cut_heads;

/* Whether each query here finds the keys that it shares in one process, as far as the sizes tell
 * which features the heads are. False: `queries` and `keys` are those that do not fit. */
bool trii_cut_heads_fit(const trii_cut_heads *heads, trii_cut_features *queries,
                        trii_cut_features *keys);

#endif
