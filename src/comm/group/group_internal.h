/*
 * group_internal.h - the inside of a process group: what group.h's functions share. Engines do not
 * see this (they get engine.h), other rooms only the world and the group's own facts.
 */
#ifndef TRII_GROUP_INTERNAL_H
#define TRII_GROUP_INTERNAL_H

#include "comm/group/composite.h"
#include "comm/group/join/world.h"
#include "comm/group/watch/chaos.h"
#include "comm/group/watch/flight_recorder.h"
#include "os/clock.h"
#include "os/forked.h"
#include "os/futex.h"
#include "os/thread.h"
#include "store/store_ops.h"

struct tri_group {
    const trii_engine *engine;
    void *self; /* the engine's */
    int rank;
    int size;
    trii_lock lock;             /* order: seq and pair_seq are given and submitted under it */
    uint64_t seq;               /* guard: lock; last collective */
    uint64_t *pair_seq;         /* guard: lock; [2 * size]: sends to r at r, receives at size + r */
    uint64_t any_seq;           /* guard: lock; last receive from any rank */
    _Atomic uint64_t order_seq; /* order_check.c: operations that were compared */
    trii_recorder *recorder;    /* NULL = none */
    uint16_t record_group;      /* our number there */
    trii_lock idle_lock;        /* nothing is called under it */
    tri_work *idle;             /* guard: idle_lock; works for the next calls */
    tri_work *live;             /* guard: idle_lock; those of calls, the last one first */
    tri_store *store; /* this group's own view, for groups made of it; NULL if size is 1 or left */
    trii_key_list keys; /* form/group_keys.c: what this rank wrote there while the group formed */
    bool left;          /* by tri_finalize, and still referenced */
    trii_mutex memory_lock; /* of tri_group_alloc */
    int *world_ranks;       /* [size]: in the outermost group; NULL = the same numbers */
    uint64_t number;        /* of no other group of this process, not even of a later one here */
    uint64_t outermost;     /* that group's */
    atomic_int n_splits;
    char engine_asked[256]; /* "" = none; groups made of this one inherit it, as the next */
    char bind_host[64];
    _Atomic int64_t timeout_ns;   /* INT64_MAX = none */
    _Atomic int64_t announced_ns; /* when a wait last called announce_wait */
    atomic_int refs;
    int process; /* whose it is: see trii_group_is_ours */
    int fork_level;
    /* How often it has recovered in place: not yet, but works and records tell epochs apart
     * already. Each epoch is an engine of its own, formed below a key of its own. */
    int epoch;
    char name[TRII_GROUP_NAME];
    trii_fault fault;
    trii_chaos *chaos; /* NULL = none */
    /* Takes a collective in the engine's place and compares it first (watch/call_check.c); NULL:
     * the engine compares calls itself, or nobody asked for it. */
    tri_status (*submit_compared)(tri_group *group, trii_op *op);
    trii_mutex check_lock; /* one comparison at a time */
};

/* False in a forked child: what it has a copy of is shared with the parent, memory and connections,
 * and so it neither leaves nor gives up in the parent's name. */
bool trii_group_is_ours(const tri_group *group);
/* Whether a forked child has a copy of it and would take part in the parent's place. A group of one
 * has no peers that it could deceive. */
static inline bool trii_group_of_parent(const tri_group *group)
{
    return TRII_UNLIKELY(group->fork_level !=
                         atomic_load_explicit(&trii_fork_level, memory_order_relaxed)) &&
           group->size > 1;
}
/* STATE if so. */
tri_status trii_group_check_process(const tri_group *group, const char *call);

struct tri_work {
    tri_group *group;    /* referenced by the handle, not by the running operation */
    int epoch;           /* the group's when it was posted */
    atomic_int refs;     /* the handle, the running operation */
    int64_t patience_ns; /* how long its callers may wait for it in all; INT64_MAX = for ever */
    int64_t waited_ns;   /* guard: group's idle_lock, as the next; so long they have */
    int64_t counted_ns;  /* until this moment; 0 = nobody has looked */
    tri_work **members;  /* of a batch, owned, which has no operation of its own; else NULL */
    int n_members, member_room;
    trii_op op;
    tri_work *prev, *next; /* of those alike, idle or live */
    size_t *parts;         /* owned: what op.call's places point at; NULL = none */
};

static inline int64_t trii_group_timeout_ns(const tri_group *group)
{
    return atomic_load_explicit(&group->timeout_ns, memory_order_relaxed);
}
static inline int64_t trii_deadline_after(int64_t start_ns, int64_t timeout_ns)
{
    return timeout_ns >= TRII_NO_DEADLINE - start_ns ? TRII_NO_DEADLINE : start_ns + timeout_ns;
}

/* --- group.c -------------------------------------------------------------- */

/* Set and cleared by world.c. */
void trii_group_set_world(tri_group *group);
/* What a rank gets that is not in the group which others make: rank -1, size 0, and no call. */
tri_group *trii_group_non_member(void);
/* The timeout that the options or the environment name, in nanoseconds; INT64_MAX = none. */
tri_status trii_group_timeout_of(const tri_group_options *opt, int64_t *timeout_ns_out);
/* What is known of a rank of the group: its engine's answer, or the fault's. */
trii_loss trii_group_loss(tri_group *group, int rank);
/* Leaves the group although others still hold it, as handles of calls do: they can give it back,
 * and its memory stays until then. Names in the log the calls that nobody has given back. */
void trii_group_leave(tri_group *group);
/* The calls of the handles that are not destroyed, some of them, into text; how many there are. */
int trii_group_name_works(tri_group *group, char *text, size_t size);
void trii_group_close_recorder(tri_group *group);

/* --- call/post.c ---------------------------------------------------------- */

/* Numbers a checked call and hands it to the engine, in one order for both; waits: as `submit`. */
tri_status trii_group_start(tri_group *group, trii_op *op, bool waits) TRI_MUST_CHECK;
/* How long a caller may wait for an operation. */
typedef struct trii_patience {
    int64_t deadline_ns;
    int64_t before_ns; /* waited for it earlier: for messages */
    bool fatal;        /* the deadline is the group's */
} trii_patience;

/* Waits for op until it is finished or the deadline has come. If that is fatal the group fails with
 * TIMEOUT and op ends with that; else INPROGRESS. */
tri_status trii_group_wait(tri_group *group, trii_op *op, trii_patience patience);
/* Posts a checked call and waits for it, whatever batch is open; allocates nothing. */
tri_status trii_group_run(tri_group *group, const trii_collective *call) TRI_MUST_CHECK;
/* Puts the operation's failure into this thread's line. */
tri_status trii_op_report(const tri_group *group, const trii_op *op);
/* The same for a call that cannot be made because the group has failed. */
tri_status trii_group_report_failed(const tri_group *group, const trii_collective *call);
/* The same for a call that the engine did not take, with this status: if the group has failed since
 * the call was checked, the line is that of a group that had failed before. */
tri_status trii_group_report_not_taken(const tri_group *group, const trii_collective *call,
                                       tri_status status);
/* The end of an operation, for the flight recorder. */
void trii_record_end(tri_group *group, uint64_t record, tri_status status);
/* Elements that a receive got; 0 for other calls. */
size_t trii_op_received(const trii_op *op);
/* Of this thread's last receive without a handle. */
extern _Thread_local size_t trii_received;

/* --- call/work.c ---------------------------------------------------------- */

/* The batch that this thread collects, or NULL. */
extern _Thread_local tri_work *trii_open_batch;
/* Whether it is of this group. */
static inline bool trii_batch_is_open(const tri_group *group)
{
    return TRII_UNLIKELY(trii_open_batch != NULL) && trii_open_batch->group == group;
}
/* Posts a checked call and makes a handle of it, which goes into the open batch if work_out is
 * NULL. On success the handle owns call->temporary. */
tri_status trii_work_post(tri_group *group, const trii_collective *call,
                          tri_work **work_out) TRI_MUST_CHECK;

/* --- call/collective.c: checking, for all calls --------------------------- */

/* How every call begins: its group (*group NULL = the world), whether dtype, reduction and root
 * fit; for parts of one size also the sizes and NULL buffers; a buffer that this rank does not use
 * becomes NULL. Fills call->bytes. */
tri_status trii_call_begin(tri_group **group, trii_collective *call);
/* TRI_OK if elements of dtype can be reduced by op, else INVALID_ARG (it makes no sense: avg of
 * integers, band of floats) or UNSUPPORTED, and the error line. */
/* INVALID_ARG: the call in words, and what is wrong with it. */
tri_status trii_call_bad(const trii_collective *call, const char *what);
/* Whether the two have a byte in common. */
bool trii_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes);
/* Makes a checked call, if the engine has its kind: waits for it if work_out is NULL and no batch
 * is open, else posts it. Takes call->temporary, on failure too. */
tri_status trii_call_post(tri_group *group, trii_collective *call, tri_work **work_out);
/* All of a call with parts of one size: checks it and makes it. */
tri_status trii_call_run(tri_group *group, trii_collective *call, tri_work **work_out);

/* --- watch/call_check.c --------------------------------------------------- */

/* As the engine's submit, for a collective as group->submit_compared; guard: the group's lock,
 * given back meanwhile. Waits for all ranks. A call that differs is finished with MISMATCH. */
tri_status trii_call_check_submit(tri_group *group, trii_op *op) TRI_MUST_CHECK;

/* --- form/group_agree.c --------------------------------------------------- */

/* What a rank that waits looks at four times a second. */
typedef struct trii_looks {
    tri_status (*look)(void *arg); /* a failure or INPROGRESS ends the wait unless all is there;
                                      END ends it anyway */
    void *arg;
    int64_t first_ns; /* not 0: so early for the first time, then after twice as long, and so on */
    const char *whom; /* who is missing if all ranks have written STEP/rank; NULL = "the others" */
} trii_looks;
/* Returns when `key` is there, with NULL when all ranks have written STEP/rank. Says in the log who
 * has not, as does TIMEOUT. own: this rank's STEP/rank, "0 TEXT", written before; NULL = not. */
tri_status trii_agree_await(const trii_group_args *args, const char *step, const char *own,
                            const char *key, const trii_looks *looks) TRI_MUST_CHECK;
/* Instead of trii_group_begin, of a rank that cannot be in the group: tells the others why, and
 * waits for nobody. */
tri_status trii_agree_refuse(const trii_group_args *args, tri_status why,
                             const char *line) TRI_MUST_CHECK;
/* The failure that the report of a rank is, "STATUS LINE"; cuts the text. */
tri_status trii_agree_failure(const trii_group_args *args, int rank, char *text);
/* STEP/0, STEP/1, ...: one block, to be freed. NULL = no memory. */
const char **trii_agree_keys(const char *step, int n);
/* tri_store_prefix, for keys that other ranks wait for: tries again once if memory is short. */
tri_status trii_group_view(const char *prefix, tri_store *store,
                           tri_store **view_out) TRI_MUST_CHECK;

/* --- form/group_keys.c ---------------------------------------------------- */

/* Between these two, notes in g->keys which keys this rank writes. */
void trii_group_note_keys(tri_group *g);
void trii_group_stop_noting(tri_group *g);
/* Of a rank that has left the group, which had not failed: the last rank deletes what all have
 * noted. Waits for the store, but not long. */
void trii_group_delete_keys(tri_group *g);

/* --- form/build_id.c ------------------------------------------------------ */

#define TRII_BUILD_TEXT 64
/* The build of the library and the sizes, without spaces and bars. */
void trii_build_text(const trii_engine_id *id, char text_out[TRII_BUILD_TEXT]);
/* Errors: STATE (names both builds). */
tri_status trii_build_check(const trii_group_args *args, int rank, const char *theirs,
                            const char *ours) TRI_MUST_CHECK;

/* --- form/group_create.c -------------------------------------------------- */

/* What those who wait while a group forms look at now and then, and until when; NULL allowed. */
typedef struct trii_forming {
    bool (*is_over)(void *arg);
    void *arg;
    int64_t timeout_ns; /* 0 = the group's */
    bool no_memory;     /* the error line says for what: all ranks hear of it, and it fails */
    bool own_view;      /* the store is a view that no other group uses */
    bool own_store;     /* and its connection is this group's: keys of the forming are deleted */
} trii_forming;
/* tri_group_create. */
tri_status trii_group_form(tri_store *store, int rank, int size, const tri_group_options *opt,
                           const trii_forming *forming, tri_group **group_out);

/* --- form/subgroup.c ------------------------------------------------------ */

/* Makes a group of ranks of g, under `key` in its store. What opt leaves open comes from g.
 * own_world_ranks: [size], taken; NULL = there was no memory for it, which all ranks hear. */
typedef struct trii_subgroup {
    const char *key;
    bool own_key; /* for this one group only; else several may be made under it, one by one */
    int rank, size;
    int *own_world_ranks;
    int64_t timeout_ns; /* of the forming; 0 = the new group's */
} trii_subgroup;
tri_status trii_group_make(tri_group *g, const trii_subgroup *sub, const tri_group_options *opt,
                           tri_group **group_out);

#endif
