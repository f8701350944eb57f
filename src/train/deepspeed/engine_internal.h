/*
 * engine_internal.h - an engine, as the files of this folder share it.
 */
#ifndef TRII_ENGINE_INTERNAL_H
#define TRII_ENGINE_INTERNAL_H

#include <trireme/deepspeed.h>
#include <trireme/records.h>

#include "base/err.h"
#include "train/deepspeed/engine_config.h"

/* lr, loss_scale, train_loss */
#define TRII_ENGINE_CURVES 3

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

    int64_t global_steps, skipped_steps, global_samples, micro_steps, in_group;
    bool backward_done; /* since the last step */
    bool quiet;         /* this micro-batch communicates nothing */
    bool applied;
    double norm, scale;
    int64_t clean_steps; /* of the scaler: updates since its scale last changed */
    int64_t left;        /* of the scaler: updates to leave out until the scale becomes smaller */
    int64_t rate_from;   /* the update with which the schedule began */
    tri_checkpoint *loaded; /* what tri_engine_client reads */

    tri_tensor *loss; /* of this step, for what is reported; borrowed */
    tri_csv *csv[TRII_ENGINE_CURVES];
    tri_tensorboard *board;
    int64_t begun_ns, update_ns, reported_steps; /* when it began; the update before; since then */
    int64_t forward_ns, backward_ns, step_ns;    /* since the update before */
};

/* Updates that were made. */
static inline int64_t trii_engine_updates(const tri_engine *e)
{
    return e->global_steps - e->skipped_steps;
}

static inline bool trii_engine_at_boundary(const tri_engine *e)
{
    return !e->config.managed || e->in_group + 1 >= e->config.accumulate;
}

/* A failure of one rank is that of all, who say which rank it was. Collective: they are the ranks
 * of the engine, and each has its own status and error line. */
tri_status trii_engine_agree(const tri_engine *e, tri_status mine) TRI_MUST_CHECK;

/* The optimizer that the file names. */
tri_status trii_engine_make_optimizer(tri_engine *e) TRI_MUST_CHECK;
/* After a load: the rate is that of the counters, and micro-batches from before are forgotten. */
void trii_engine_begin_anew(tri_engine *e);
/* Sets rate and momentum of the next update. */
void trii_engine_set_rate(tri_engine *e);
/* What is known of the scaler without asking each time. */
tri_status trii_engine_read_scaler(tri_engine *e) TRI_MUST_CHECK;

/* engine_foreign.c. Whether DeepSpeed itself has saved a tag's folder, as rank 0 sees it; and what
 * can be had of it. Collective. */
tri_status trii_engine_is_foreign(const tri_engine *e, const char *folder,
                                  bool *is_out) TRI_MUST_CHECK;
tri_status trii_engine_load_foreign(tri_engine *e, const char *folder,
                                    const tri_engine_load_checkpoint_options *opt) TRI_MUST_CHECK;

/* What rank 0 says of the configuration at the start, and of each update; files of monitors. */
tri_status trii_engine_report_begin(tri_engine *e) TRI_MUST_CHECK;
tri_status trii_engine_report(tri_engine *e) TRI_MUST_CHECK;
void trii_engine_report_end(tri_engine *e);

#endif
