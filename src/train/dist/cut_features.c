/*
 * cut_features.c - see cut_features.h.
 */
#include "train/dist/cut_features.h"

#include "train/graph/step/step.h"

static _Thread_local struct {
    uint64_t generation; /* of the step */
    trii_cut_features features;
} noted;

static uint64_t generation_now(void)
{
    const trii_step *step = trii_step_current();

    return step != NULL ? step->generation : 0;
}

trii_cut_features trii_cut_features_now(void)
{
    return noted.generation == generation_now() ? noted.features : (trii_cut_features){.parts = 0};
}

void trii_cut_features_note(const trii_cut_features *features)
{
    noted.generation = generation_now();
    noted.features = *features;
}
