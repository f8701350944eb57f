/*
 * current.c - the context in which this thread records now, and its modes.
 */
#include "train/graph/step/recorder.h"

_Thread_local trii_recorder *trii_recorder_now;

trii_recorder *trii_recorder_mine(void)
{
    return trii_recorder_now;
}

trii_modes trii_step_modes(const trii_step *step)
{
    const trii_recorder *r = step->recorder;

    return (trii_modes){.no_grad = r->scopes.no_grad > 0,
                        .autocast = trii_autocast_to(&r->scopes.autocast)};
}

bool trii_step_creates_graph(const trii_step *step)
{
    return step->recorder->scopes.create_graph;
}

bool trii_step_keeps_graph(const trii_step *step)
{
    return step->recorder->scopes.keep_graph || step->recorder->eager;
}

bool trii_step_walks_for_inputs(const trii_step *step)
{
    return step->recorder->scopes.for_inputs;
}

uint32_t trii_step_walk(const trii_step *step)
{
    return step->recorder->scopes.walks;
}
