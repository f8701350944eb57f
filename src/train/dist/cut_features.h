/*
 * cut_features.h - what features a layer has cut last in this thread's step, for what works on this
 * rank's part of them without saying what it is a part of. A pipeline tells it to the ranks of
 * later stages, as token_counts.h.
 */
#ifndef TRII_CUT_FEATURES_H
#define TRII_CUT_FEATURES_H

#include <stdint.h>

/* Of each of so many equal parts in a row this rank has n features of `whole`, from `start` on. */
typedef struct trii_cut_features {
    int64_t parts, whole, start, n; /* parts 0: nothing was cut */
} trii_cut_features;

trii_cut_features trii_cut_features_now(void);
void trii_cut_features_note(const trii_cut_features *features);

#endif
