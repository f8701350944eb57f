/*
 * endless.c - steps that the program has probably forgotten to end: warns once of each kind.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "train/graph/step/recorder.h"

/* Rounds of one step after which it looks forgotten: more than anybody accumulates on purpose, and
 * few enough that a toy model warns within its first second. */
#define TRII_LONG_STEP 500
/* The same for steps of optimizers, of which more than one in a step is rare. */
#define TRII_MANY_UPDATES 64
/* Operations of a step: some hundred batches of a network of a hundred layers. */
#define TRII_MANY_NODES (1 << 17)

/* A loop that never ends its step keeps everything that it recorded, and goes through it again and
 * again: each round is slower than the one before, and nothing fails. */
static TRII_NOINLINE void warn_of_endless_step(const trii_step *s, int times, const char *what)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(
        TRII_LOG_WARN, "graph",
        "%d %s one step, which has %d operations now (%s:%d): it grows with each, and so do its "
        "time and memory; call tri_step_end after each batch",
        times, what, s->n_nodes, site.file != NULL ? site.file : "?", site.line);
}

/* A round: something was recorded, then somebody asked for a value. */
void trii_step_count_round(trii_step *step)
{
    trii_rounds *rounds = &trii_recorder_of(step)->rounds;

    if (step->n_nodes == rounds->counted_nodes)
        return;
    rounds->counted_nodes = step->n_nodes;
    if (TRII_UNLIKELY(++rounds->n == TRII_LONG_STEP))
        warn_of_endless_step(step, rounds->n, "rounds of asking for values in");
}

void trii_step_count_update(trii_step *step)
{
    trii_rounds *rounds = &trii_recorder_of(step)->rounds;

    if (TRII_UNLIKELY(++rounds->updates == TRII_MANY_UPDATES))
        warn_of_endless_step(step, rounds->updates, "calls of tri_optimizer_step in");
}

/* Where nobody asks for a value nothing is freed. */
void trii_step_grew(const trii_step *step)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (step->n_nodes < TRII_MANY_NODES || atomic_exchange(&warned, true))
        return;
    TRII_LOG(TRII_LOG_WARN, "graph",
             "one step has %d operations now (%s:%d), and its memory grows with them; call "
             "tri_step_end after each batch",
             step->n_nodes, site.file != NULL ? site.file : "?", site.line);
}
