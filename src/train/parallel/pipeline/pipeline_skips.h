/*
 * pipeline_skips.h - tensors that stages save by name (tri_nn_skip_save) and later ones take: each
 * goes from the stage that makes it to the ranks that take it.
 */
#ifndef TRII_PIPELINE_SKIPS_H
#define TRII_PIPELINE_SKIPS_H

#include "train/nn/skips.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* The stage `to` takes what the stage `from`, which is before it, has saved. */
typedef struct trii_pipeline_skip {
    char name[TRII_SKIP_NAME];
    int from, to;
} trii_pipeline_skip;

typedef struct trii_pipeline_hop {
    int skip; /* whose tensor goes there: the first one with its name and `from` */
    int from, to;
} trii_pipeline_hop;

/* A tensor of one micro-batch on this rank. */
typedef struct trii_skip_cell {
    tri_tensor *tensor; /* NULL: not here */
    int stage;          /* that made or received it */
} trii_skip_cell;

/* Where a backward begins; seed NULL: 1. */
typedef struct trii_skip_root {
    int stage, microbatch;
    tri_tensor *value, *seed;
} trii_skip_root;

/* Of one pass of all micro-batches. */
typedef struct trii_skip_pass {
    const trii_pipeline *p;
    trii_step *step;
    trii_pipeline_call call;
    bool halves;             /* backwards have two parts, so that each stage has its own */
    trii_pipeline_hop *hops; /* messages for each micro-batch, the same list on all ranks */
    int n_hops;
    trii_skip_cell *cells;     /* [skips][n_local][microbatches] */
    tri_tensor **tokens;       /* [hops][microbatches]: of what this rank has sent */
    trii_pipeline_note *notes; /* [hops][2]: of what comes or goes; rows 0: not yet */
    trii_skip_root *returned;  /* gradients that a later stage of this rank has given back */
    int n_returned, cap_returned;
    tri_tensor **roots, **seeds; /* of a backward; [as many as there can be] */
    trii_vid *stops, *stop_grads;
    trii_skip_cell *stopped;
} trii_skip_pass;

/* A micro-batch at one of this rank's stages. */
typedef struct trii_skip_place {
    int stage, microbatch;
    int kind;           /* which of two types, see trii_pipeline_note */
    bool first_of_kind; /* the types are told with it */
    int64_t rows;       /* of the whole batch */
    trii_vid after;     /* receives are posted once this value is complete */
} trii_skip_place;

/* A pipeline without skips has no pass: then all of these do nothing. */
tri_status trii_skips_begin(trii_skip_pass *t, const trii_pipeline *p, trii_step *step,
                            trii_pipeline_call call, bool halves) TRI_MUST_CHECK;
void trii_skips_end(trii_skip_pass *t);
/* Records receives ahead, if it is known what comes. */
tri_status trii_skips_expect(trii_skip_pass *t, const trii_skip_place *at) TRI_MUST_CHECK;
/* Before the stage is recorded: what it takes is there. */
tri_status trii_skips_arrive(trii_skip_pass *t, const trii_skip_place *at) TRI_MUST_CHECK;
/* After it: what it has saved goes on. */
tri_status trii_skips_leave(trii_skip_pass *t, const trii_skip_place *at) TRI_MUST_CHECK;
/* Where the backward of a piece begins, in roots and seeds: at `root` (with `seed`), unless NULL,
 * and wherever gradients of saved tensors come from. *n_out 0: it has none, or it is a part of that
 * of a later stage. */
tri_status trii_skips_roots(trii_skip_pass *t, const trii_skip_place *at, tri_tensor *root,
                            tri_tensor *seed, int *n_out) TRI_MUST_CHECK;
/* Where the first half of it ends, in stops: at `in`, unless NO_VALUE, and at what stages before it
 * on this rank have saved or received. */
tri_status trii_skips_stops(trii_skip_pass *t, const trii_skip_place *at, trii_vid in,
                            int *n_out) TRI_MUST_CHECK;
/* Their backwards begin at the gradients in stop_grads, but for the first one, if that is of `in`.
 */
tri_status trii_skips_return(trii_skip_pass *t, const trii_skip_place *at, int first,
                             int n) TRI_MUST_CHECK;
/* After the gradients of the stage's inputs are recorded: those that it has taken and not used have
 * gradients of zeros, for which others wait. */
tri_status trii_skips_answer(const trii_skip_pass *t, const trii_skip_place *at) TRI_MUST_CHECK;

#endif
