/*
 * front.h - the inside of a process group: what group.h's functions share. Engines do not
 * see this (they get engine.h), other rooms only the world and the group's own facts.
 */
#ifndef TRII_FRONT_H
#define TRII_FRONT_H

#include "group/engine.h"
#include "group/flight_recorder.h"
#include "os/futex.h"

#define TRII_GROUP_NAME 32

struct tri_group {
    const trii_engine *engine;
    void *self; /* the engine's */
    int rank;
    int size;
    trii_lock lock;          /* order: seq and pair_seq are given and submitted under it */
    uint64_t seq;            /* guard: lock; last collective */
    uint64_t *pair_seq;      /* guard: lock; [2 * size]: sends to r at r, receives at size + r */
    trii_recorder *recorder; /* NULL = none */
    uint16_t record_group;   /* our number there */
    trii_lock idle_lock;     /* nothing is called under it */
    tri_work *idle;          /* guard: idle_lock; works for the next calls */
    int64_t timeout_ns;      /* INT64_MAX = none */
    atomic_int refs;
    char name[TRII_GROUP_NAME];
    trii_fault fault;
};

struct tri_work {
    tri_group *group; /* referenced by the handle, not by the running operation */
    atomic_int refs;  /* the handle, the running operation */
    int64_t deadline_ns;
    trii_op op;
    tri_work *next; /* while it is idle */
};

/* The world: what a NULL group means. world.c sets and clears it; borrowed. */
void trii_group_set_world(tri_group *group);
tri_group *trii_group_get_world(void);
/* Why there is none: "tri_init was not called", or that it was left. */
const char *trii_group_no_world(void);

/* Frees the works that wait for calls: the last act of a group's end. */
void trii_group_free_idle(tri_group *group);

/* Waits for op until it is finished or deadline_ns has come. When the deadline is the
 * group's, `fatal`, the group fails with TIMEOUT and op ends with that; else INPROGRESS. */
tri_status trii_group_wait(tri_group *group, trii_op *op, int64_t deadline_ns, bool fatal);

/* Checks done: posts the call, and waits if work_out is NULL. */
tri_status trii_group_post(tri_group *group, trii_collective *call, tri_work **work_out);

#endif
