/*
 * engine_internal.h - an engine, as the files of this folder share it.
 */
#ifndef TRII_ENGINE_INTERNAL_H
#define TRII_ENGINE_INTERNAL_H

#include <trireme/deepspeed.h>

#include "base/err.h"
#include "train/deepspeed/engine_config.h"

struct tri_engine {
    trii_engine_config config;
    tri_group *group; /* NULL = the world */
    int rank, size;
    tri_module *model;
    tri_optimizer *optimizer;
    tri_grad_scaler *scaler;  /* NULL: none */
    tri_schedule_fn schedule; /* the program's; NULL: that of the file */
    void *arg;
    tri_sampler *sampler;
    tri_loader *loader;

    int64_t global_steps, skipped_steps, micro_steps, in_group;
    bool backward_done; /* since the last step */
    bool quiet;         /* this micro-batch communicates nothing */
    bool applied;
    double norm, scale;
    int64_t clean_steps; /* of the scaler: updates since its scale last changed */
};

static inline bool trii_engine_at_boundary(const tri_engine *e)
{
    return e->in_group + 1 >= e->config.accumulate;
}

/* The optimizer that the file names. */
tri_status trii_engine_make_optimizer(tri_engine *e) TRI_MUST_CHECK;
/* Sets rate and momentum of the next update. */
void trii_engine_set_rate(tri_engine *e);

#endif
