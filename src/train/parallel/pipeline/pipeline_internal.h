/*
 * pipeline_internal.h - what the files of this folder share: the module, and the notes by which a
 * rank learns what will come from the stage before.
 */
#ifndef TRII_PIPELINE_INTERNAL_H
#define TRII_PIPELINE_INTERNAL_H

#include "train/graph/step/cut_features.h"
#include "train/graph/step/step.h"
#include "train/parallel/pipeline/pipeline_schedule.h"
#include "train/tensor/pipeline_stages.h"

/* pipeline_updates.c: what the ranks of the stages so far know. */
typedef struct trii_pipeline_updates {
    bool any;                /* some optimizer has updated parameters of one */
    int without;             /* 1 + a rank that trains and has no optimizer; 0: none is known */
    trii_stages_given given; /* of this rank alone, before the pass */
} trii_pipeline_updates;

typedef struct trii_pipeline {
    trii_pipeline_shape shape;
    int rank, n_local;
    tri_module *module; /* whose data this is */
    tri_group *group;   /* of its own; NULL: there is one rank */
    /* This rank's modules in their order; owned by the module. Stage k of those here is parts
     * first[k] to first[k + 1] - 1. */
    tri_module **parts;
    int *first;                  /* [n_local + 1] */
    struct trii_staged *staged;  /* [entries of the state]: of their tensors; NULL: one rank */
    tri_pipeline_count_fn count; /* NULL: losses are means over rows */
    trii_pipeline_action *actions;
    int64_t n_actions;
    struct trii_pipeline_skip *skips; /* pipeline_skips.h */
    int n_skips;
    struct trii_pipeline_tie *ties; /* pipeline_ties.h */
    int n_ties;
    uint64_t generation;           /* of the step in which it last recorded */
    trii_pipeline_updates updates; /* of this pass */
    int n_trained;                 /* passes in training before the first update */
    bool has_warned, has_warned_of_rate;
    tri_module *taken_apart; /* owned: what is left of the network of tri_pipeline_split, or NULL */
} trii_pipeline;

/* What a pipeline is made of. Modules are owned by what makes it, also on failure. */
typedef struct trii_pipeline_recipe {
    const char *call;
    const tri_pipeline_options *options; /* NULL: all defaults */
    tri_module *const *modules;
    const char *const *names; /* of the modules; NULL: of one, the number of its stage */
    const int *first;         /* [stages + 1]: the modules of each stage; NULL: one */
    int stages;
    tri_status status; /* why it cannot be made, with the error line */
} trii_pipeline_recipe;
/* The first module of a stage; of the number of stages: how many modules there are. */
static inline int trii_pipeline_first_of(const trii_pipeline_recipe *recipe, int stage)
{
    return recipe->first != NULL ? recipe->first[stage] : stage;
}

/* pipeline_costs.c: what each of a network's modules, which run one after the other, computes for
 * the example; only records. */
tri_status trii_pipeline_costs(tri_module *net, tri_module *const *modules, int n,
                               tri_tensor *example, int64_t *costs_out) TRI_MUST_CHECK;
tri_module *trii_pipeline_make(const trii_pipeline_recipe *recipe);

/* pipeline_places.c: where this rank's tensors are in the state of the whole network, as they say
 * from now on. Collective. */
tri_status trii_pipeline_places_make(tri_module *model) TRI_MUST_CHECK;
void trii_pipeline_places_free(tri_module *model);

/* NULL: the module is no pipeline. */
trii_pipeline *trii_pipeline_of(tri_module *module);

/* What all ranks are doing; one that does something else is refused. */
typedef enum trii_pipeline_call {
    TRII_PIPELINE_TRAIN,
    TRII_PIPELINE_LOSS,   /* tri_pipeline_step without gradients */
    TRII_PIPELINE_OUTPUTS /* tri_forward */
} trii_pipeline_call;

/* What random numbers of the next stage depend on. */
typedef struct trii_pipeline_drawn {
    int64_t count;              /* of random operations of the stages up to this one, for one
                                 * micro-batch */
    trii_cut_features features; /* whose masks are those of the whole */
} trii_pipeline_drawn;

/* What a stage tells the next one before its messages: at the first micro-batch of a step, and at
 * the first of those that have one row less. */
typedef struct trii_pipeline_note {
    trii_pipeline_call call;
    int64_t rows;              /* of the whole batch */
    trii_pipeline_drawn drawn; /* of the first micro-batch's note */
    trii_pipeline_updates updates;
    trii_type type;
    bool requires_grad;
    bool in_parts; /* of a layer in several parts (trii_cut_parts_reach) */
} trii_pipeline_note;

/* What goes from one stage to a later one: the result, whose number is that of its stage, or a
 * tensor that was saved. */
#define TRII_PIPELINE_MOST_HOPS 2048
typedef struct trii_pipeline_edge {
    int number; /* at most TRII_PIPELINE_MOST_STAGES + TRII_PIPELINE_MOST_HOPS, a note's alone */
    int from, to;
} trii_pipeline_edge;
/* Of the messages of one micro-batch. */
static inline int trii_pipeline_tag(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                    int microbatch)
{
    return edge->number * p->shape.microbatches + microbatch;
}

/* Around the actions of a pass in training; join with each note, which a rank has sent. */
void trii_pipeline_updates_begin(trii_pipeline *p);
tri_status trii_pipeline_updates_join(trii_pipeline *p, int sender,
                                      const trii_pipeline_updates *before) TRI_MUST_CHECK;
void trii_pipeline_updates_end(trii_pipeline *p);

/* Both block; the receiver until the stage `from` has recorded its forward. */
tri_status trii_pipeline_note_send(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   const trii_pipeline_note *note) TRI_MUST_CHECK;
tri_status trii_pipeline_note_recv(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   trii_pipeline_call call,
                                   trii_pipeline_note *note_out) TRI_MUST_CHECK;
/* Sends the note of the first micro-batch of its kind, and keeps it; others have to be like it. */
tri_status trii_pipeline_note_tell(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   const trii_pipeline_note *note, bool is_first, int microbatch,
                                   trii_pipeline_note *told_io) TRI_MUST_CHECK;

/* pipeline_skips.c: which stages take what others have saved. Collective in the pipeline's group.
 */
tri_status trii_pipeline_skips_make(trii_pipeline *p) TRI_MUST_CHECK;

/* Records one pass of all micro-batches; never NULL. x, target, loss: where this rank needs
 * them. */
typedef struct trii_pipeline_inputs {
    tri_module *model; /* what tri_pipeline_step was given; NULL: a forward of the pipeline */
    tri_tensor *x, *target;
    tri_pipeline_loss_fn loss;
    void *arg;
} trii_pipeline_inputs;
tri_tensor *trii_pipeline_pass(trii_pipeline *p, trii_pipeline_call call,
                               const trii_pipeline_inputs *inputs);

/* pipeline_replicas.c: where the model is one of tri_ddp or tri_zero around the pipeline, so that
 * ranks with the same stages average. check: whether it is of all parameters here, if they have
 * one. begin and end around what is recorded; `rows` are known at the end. */
tri_status trii_pipeline_replicas_check(const trii_pipeline *p, const tri_module *model,
                                        trii_pipeline_call call) TRI_MUST_CHECK;
tri_status trii_pipeline_replicas_begin(tri_module *model, trii_step *step,
                                        trii_pipeline_call call) TRI_MUST_CHECK;
tri_status trii_pipeline_replicas_end(const trii_pipeline *p, tri_module *model, trii_step *step,
                                      trii_pipeline_call call, const int64_t *rows,
                                      tri_status status) TRI_MUST_CHECK;
/* Borrowed: the ranks with the same stages, where options.count is over all of them. NULL: it is
 * not, or there are none. */
tri_group *trii_pipeline_counted_over(const trii_pipeline *p, const tri_module *model,
                                      trii_pipeline_call call);
void trii_pipeline_replicas_abort(const tri_module *model, const char *why);

#endif
