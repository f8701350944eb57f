/*
 * pipeline_stages.h - what a pipeline over several ranks says of its network and of the tensors
 * that this rank has of it, for what is over the whole network: norms of gradients, files.
 */
#ifndef TRII_PIPELINE_STAGES_H
#define TRII_PIPELINE_STAGES_H

#include <stdatomic.h>

#include "train/tensor/persistent.h"

/* An entry of the state of the whole network; every rank has the list. */
typedef struct trii_stages_entry {
    int64_t rank; /* whose it is */
    int64_t name; /* its hash */
} trii_stages_entry;

/* What the last calls of this rank were given; other ranks give theirs the same. -1: nothing. */
typedef struct trii_stages_given {
    double max_norm; /* of a clip by the norm over all stages, */
    double rate;     /* and of the update, by one optimizer with one group of parameters */
} trii_stages_given;

/* Of all stages; shared by the pipeline and the optimizers of its parameters. */
typedef struct trii_stages {
    atomic_int refs;
    tri_group *group;    /* the ranks that have stages; a reference */
    int64_t count;       /* entries of the state of the whole network */
    bool is_wide;        /* some parameter is f64 */
    bool is_updated;     /* an optimizer has stepped over some of this rank's, */
    uint64_t updated_by; /* which one; UINT64_MAX: rates may differ, as there are several */
    trii_stages_given given;
    /* [count]; those of this rank are in the order of the pipeline's own state */
    trii_stages_entry *entries;
} trii_stages;

/* Of a tensor (tri_tensor.staged). Owned by the pipeline. */
typedef struct trii_staged {
    trii_stages *of;
    int64_t place; /* of its entry in the state of the whole network; of several, the first */
    /* a rank of an earlier stage has it, too, and counts it in norms and files, under this name in
     * the state of the whole network, where it is at `place`; else NULL */
    bool is_copy;
    const char *name;
} trii_staged;

static inline trii_stages *trii_stages_ref(trii_stages *stages)
{
    if (stages != NULL)
        atomic_fetch_add_explicit(&stages->refs, 1, memory_order_relaxed);
    return stages;
}
/* pipeline_stages.c; NULL allowed. */
void trii_stages_unref(trii_stages *stages);
int64_t trii_stages_hash(const char *name);
/* Whether some rank has an entry of this name. */
bool trii_stages_has(const trii_stages *stages, const char *name);

#endif
