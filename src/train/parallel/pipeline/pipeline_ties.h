/*
 * pipeline_ties.h - parameters that are in stages of several ranks, such as the table of words that
 * is also a language model's head. Each of these ranks has a copy; all have the sum of the copies'
 * gradients, and so they stay equal.
 */
#ifndef TRII_PIPELINE_TIES_H
#define TRII_PIPELINE_TIES_H

#include "train/parallel/pipeline/pipeline_internal.h"

typedef struct trii_pipeline_tie {
    tri_tensor *tensor; /* this rank's copy, which its module owns; NULL: it has none */
    tri_group *group;   /* of the ranks that have copies; NULL: this one has not */
    bool *has;          /* [ranks] */
    int64_t place;      /* of its first entry in the state of the whole network */
    char *name;         /* of that entry; owned */
    int first;          /* the rank of that: there it counts in norms and in files */
    trii_vid before;    /* in a pass: the gradient that it had; NO_VALUE: none */
} trii_pipeline_tie;

/* Finds them while all modules of the recipe are there. */
tri_status trii_pipeline_ties_find(trii_pipeline *p, const trii_pipeline_recipe *r) TRI_MUST_CHECK;
/* What all ranks have to agree on. */
uint64_t trii_pipeline_ties_hash(const trii_pipeline *p, uint64_t hash);
/* Makes their groups, in which all get the first one's values. Collective in the pipeline's group.
 */
tri_status trii_pipeline_ties_make(trii_pipeline *p) TRI_MUST_CHECK;
void trii_pipeline_ties_free(trii_pipeline *p);

/* Around the backwards of a pass: afterwards each copy has the gradients of all. */
tri_status trii_pipeline_ties_begin(trii_pipeline *p, trii_step *step) TRI_MUST_CHECK;
tri_status trii_pipeline_ties_end(trii_pipeline *p, trii_step *step) TRI_MUST_CHECK;

/* The others, which wait for this rank in the pipeline's group or in one of these, hear why it
 * gives up. */
void trii_pipeline_abort(const trii_pipeline *p, const char *why);

#endif
