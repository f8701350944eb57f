/*
 * witness.c - what outside of a step is told of its failure and of its end.
 */
#include "train/graph/step/recorder.h"

void trii_step_add_witness(trii_step *step, trii_witness *witness)
{
    trii_recorder *r = trii_recorder_of(step);

    witness->next = r->witnesses;
    r->witnesses = witness;
}

void trii_witnesses_failed(const trii_recorder *r, const char *why)
{
    for (trii_witness *w = r->witnesses; w != NULL; w = w->next)
        w->failed(w, &r->step, why);
}

void trii_witnesses_ended(trii_recorder *r)
{
    while (r->witnesses != NULL) {
        trii_witness *w = r->witnesses;

        r->witnesses = w->next;
        w->ended(w);
    }
}
