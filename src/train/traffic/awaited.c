/*
 * awaited.c - see awaited.h.
 */
#include "train/traffic/awaited.h"

static void failed(trii_witness *witness, const trii_step *step, const char *why)
{
    const trii_awaited *awaited = (const trii_awaited *)(const void *)witness;

    (void)step;
    if (awaited->group != NULL)
        tri_group_abort(awaited->group, why);
}

static void ended(trii_witness *witness)
{
    (void)witness;
}

void trii_await(trii_step *step, trii_awaited *awaited, tri_group *group)
{
    awaited->witness = (trii_witness){.failed = failed, .ended = ended};
    awaited->group = group;
    trii_step_add_witness(step, &awaited->witness);
}
