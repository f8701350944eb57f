/*
 * hierarchy.h - the engine for several ranks on each of several hosts: shm inside a host and tcp
 * between hosts as one. What its two files share: hierarchy.c is the engine, hierarchy_stages.c
 * knows the calls that go in stages.
 */
#ifndef TRII_HIERARCHY_H
#define TRII_HIERARCHY_H

#include "group/front.h"
#include "os/thread.h"

extern const trii_engine trii_engine_hierarchy;

enum { HIERARCHY_LOCAL, HIERARCHY_CROSS, HIERARCHY_FLAT, HIERARCHY_CHILDREN };

typedef struct hierarchy_child {
    const trii_engine *engine;
    void *self; /* NULL = none */
    uint64_t seq;
    trii_fault fault;
    char name[TRII_GROUP_NAME];
} hierarchy_child;

typedef struct hierarchy {
    int rank, size;
    int n_hosts, host, local_size, local_rank;
    bool tree_fits; /* the canonical tree is one over hosts */
    trii_fault *fault;
    hierarchy_child children[HIERARCHY_CHILDREN];
    size_t *places; /* [local_size + 1]: the slices of an all_reduce */

    trii_mutex mutex;
    trii_cond turn;            /* the driver has left, or a call is over */
    bool driving;              /* guard: mutex, as all below */
    trii_op *queue;            /* staged calls; the first runs */
    trii_op inner;             /* its stage's call to a hierarchy_child */
    hierarchy_child *inner_on; /* NULL = none is under way */
    int stage;                 /* the next */
    char *wide;                /* memory of the running call */
    size_t wide_bytes;
} hierarchy;

/* Whether a call goes in stages; else it is flat. */
bool hierarchy_is_staged(const hierarchy *h, trii_kind kind);
int hierarchy_last_stage(trii_kind kind);
/* Begins stage h->stage of the call: does this rank's part, posts what a child has to do (or sets
 * h->inner_on to nothing). Guard: mutex. */
tri_status hierarchy_next_stage(hierarchy *h, const trii_collective *call);

#endif
