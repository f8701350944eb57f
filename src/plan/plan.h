/*
 * plan.h - a compiled segment: entries in the order in which they run, with prepared pointers.
 *
 * schedule.c builds it from the ir, run.c runs it, cache.c finds it again.
 */
#ifndef TRII_PLAN_H
#define TRII_PLAN_H

#include "graph/host_op.h"
#include "graph/step.h"
#include "plan/device_ops.h"

typedef enum trii_entry_kind {
    TRII_ENTRY_KERNEL,
    TRII_ENTRY_COPY, /* args[1] = args[0], `bytes` of them, in memory of the host */
    TRII_ENTRY_MOVE, /* the same, between memories of which one is not the host's */
    TRII_ENTRY_START,
    TRII_ENTRY_WAIT
} trii_entry_kind;

typedef struct trii_entry {
    trii_entry_kind kind;
    int32_t host; /* START, WAIT: number in plan->hosts */
    const trii_kernel *kernel;
    void **args;
    size_t bytes;
    tri_device from, to; /* MOVE */
    int32_t node;        /* number in the segment, for messages; -1 = none */
} trii_entry;

typedef enum trii_host_state {
    TRII_HOST_IDLE,  /* its entry has not come */
    TRII_HOST_ARMED, /* it has, and it starts as soon as it may */
    TRII_HOST_RUNNING,
    TRII_HOST_DONE
} trii_host_state;

typedef struct trii_plan_host {
    int32_t node; /* number in the segment */
    trii_host_buffers buffers;
    int32_t before; /* of its group, which starts first; -1 */
    int32_t *needs; /* whose results it reads, or that it comes after; each before it */
    int32_t n_needs;
    int32_t start; /* entry */
    bool at_once;  /* and the next entry waits for it */

    trii_host_op *op; /* of this run, as the next */
    trii_host_state state;
} trii_plan_host;

/* Where pointers go that may change from run to run: slots[first[i] .. first[i + 1]) belong to
 * input (or output) i, and get a pointer so many bytes behind it. */
typedef struct trii_slots {
    int32_t *first;
    void ***slots;
    int64_t *offsets;
    void **now; /* what the slots hold */
    int32_t n;
} trii_slots;

/* An output that is not bound: storages of the plan that take turns, since the value of the last
 * run may still be held. */
#define TRII_OUTPUT_STORAGES 2
typedef struct trii_plan_output {
    bool bound;
    int32_t first; /* the first entry that writes where it lies */
    int32_t queue; /* and whose that is: communication is the first one's, wherever it writes */
    tri_device device;
    size_t bytes;
    const trii_layout *layout; /* how the plan leaves it */
    trii_storage *storages[TRII_OUTPUT_STORAGES];
    trii_storage *chosen; /* of this run; borrowed */
} trii_plan_output;

/* A slot that points into the arena. */
typedef struct trii_arena_slot {
    void **slot;
    size_t offset;
    int32_t queue; /* whose arena; -1 = that of the host's memory */
} trii_arena_slot;

/* One device of a plan: its entries, which run in this order. Of a plan with one queue, all. */
#define TRII_PLAN_QUEUES 64
typedef struct trii_plan_queue {
    tri_device device;
    const trii_device_ops *ops; /* of the device */
    int32_t *entries;           /* with several queues */
    int32_t n_entries;
    int32_t reached; /* of a run that failed: the last entry that was begun */
    /* Of a device with memory of its own; others share the plan's. */
    size_t arena_bytes;
    void *arena; /* the base that the slots hold */
} trii_plan_queue;

/* The first `count` entries of the queue must be complete. */
typedef struct trii_queue_wait {
    int32_t queue, count;
} trii_queue_wait;

/* A persistent tensor's contents that must change their layout before the first run. */
typedef struct trii_adoption {
    int32_t input;
    const trii_layout *layout;
} trii_adoption;

typedef struct trii_plan {
    trii_pool pool;
    uint64_t hash;
    const uint64_t *key;
    size_t n_key;
    uint64_t runs;
    struct trii_entry_times *times; /* [entry] TRI_TRACE, TRI_LOG=plan:trace; else NULL */
    bool traced;                    /* TRI_TRACE */

    trii_entry *entries;
    int32_t n_entries;
    trii_plan_host *hosts;
    int32_t n_hosts;

    trii_plan_queue *queues; /* the first is the calling thread's */
    int32_t n_queues;
    /* With several: waits[first_wait[e] .. first_wait[e + 1]) come before entry e; and whether
     * another queue waits for it. */
    int32_t *first_wait;
    trii_queue_wait *waits;
    bool *signals;
    struct trii_queue_state *queue_states; /* of the run that is under way */

    trii_kernel **kernels; /* owned */
    int32_t n_kernels;

    trii_slots inputs, outputs;
    trii_plan_output *output;

    trii_arena_slot *arena_slots;
    int32_t n_arena_slots;
    size_t arena_bytes;
    size_t copied_bytes; /* by entries that only move them: copies, changes of layout */
    void *arena;         /* the base that the slots hold */
    bool own_arenas;     /* queues have some */

    double *f;       /* the scalar block */
    int32_t *f_node; /* live nodes with floats: number in the segment, n_f_nodes of them */
    int32_t n_f_nodes;
    trii_random *random;
    int32_t *random_node;
    int32_t n_random;

    trii_adoption *adoptions;
    int32_t n_adoptions;
    bool keeps_plain; /* made for tensors that may not change their layout now */

    size_t held_bytes; /* storages of outputs that the plan has */
    bool holds_more;   /* since its last run */

    /* cache.c's: */
    bool busy;
    uint64_t used; /* when */
    struct trii_plan *next;
} trii_plan;

/* Compiles the segment; TRI_LOG=plan says what came out. keep_plain: no tensor that is in plain
 * order changes it. The plan is not bound to an arena. */
tri_status trii_plan_create(const trii_step *step, const trii_segment *segment,
                            const trii_device_ops *device, bool keep_plain,
                            trii_plan **plan_out) TRI_MUST_CHECK;
void trii_plan_destroy(trii_plan *plan); /* NULL allowed */
/* The storages of its outputs belong to who still reads them. */
void trii_plan_forget_outputs(trii_plan *plan);
/* Changes the layouts of the tensors that the plan wants in others, for good, before its run; or
 * none, and false in *done_out, because another context's run reads one of them. */
tri_status trii_plan_adopt(const trii_plan *plan, trii_step *step, const trii_segment *segment,
                           bool *done_out) TRI_MUST_CHECK;
/* The arena with this number is at `data`: queue -1, plan->arena_bytes or more; of a queue with an
 * arena, likewise. Before the first run, and whenever they have changed. */
void trii_plan_bind_arena(trii_plan *plan, int32_t queue, void *data);
tri_status trii_plan_run(trii_plan *plan, trii_step *step,
                         const trii_segment *segment) TRI_MUST_CHECK;

/* host_run.c: communication of a run, all by the calling thread. */
void trii_hosts_begin(trii_plan *plan, const trii_step *step, const trii_segment *segment);
/* The entry that starts it has come. */
tri_status trii_host_arrives(trii_plan *plan, int32_t host, const trii_step *step,
                             const trii_segment *segment, int32_t *n_running) TRI_MUST_CHECK;
/* What runs moves on, and what may start now does. */
tri_status trii_hosts_poll(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                           int32_t *n_running) TRI_MUST_CHECK;
/* Until it is done; all that runs moves on meanwhile. */
tri_status trii_host_wait(trii_plan *plan, int32_t host, const trii_step *step,
                          const trii_segment *segment, int32_t *n_running) TRI_MUST_CHECK;
/* After a failure: nothing moves any more. */
void trii_hosts_stop(trii_plan *plan, const trii_step *step, const trii_segment *segment);

/* schedule.c: fills everything that has to do with entries, from an ir with kernels. */
tri_status trii_plan_schedule(trii_plan *plan, trii_ir *ir, const trii_step *step,
                              const trii_segment *segment) TRI_MUST_CHECK;
/* plan_log.c: after compiling, and (with times) where the time went. */
void trii_plan_log(const trii_plan *plan, const trii_ir *ir, double compile_ms, uint64_t compiled);
void trii_plan_log_times(const trii_plan *plan);

/* --- cache.c -------------------------------------------------------------- */

/* Runs segments through plans, which it keeps for the process. registry/train.c puts it in place.
 */
extern const trii_executor trii_executor_plan;
/* The device that plans are made for; defined by registry/train.c. */
extern const trii_device_ops trii_plan_device;
typedef struct trii_plan_stats {
    uint64_t hits, misses;
    uint64_t arenas_made;
    size_t arena_bytes;
    size_t copied_bytes; /* in the newest run, by what only moves them */
    size_t held_bytes;   /* storages of outputs that plans have */
    int32_t n_plans;
    uint64_t compiled; /* kernels for which devices compiled code */
} trii_plan_stats;
/* What devices compiled for plans of the calling thread. */
uint64_t trii_compiled_here(void);
/* Of all threads. */
uint64_t trii_compiled_all(void);
/* Of the process. */
trii_plan_stats trii_plan_stats_get(void);
/* Frees the plans and arenas that no run has: the executor's release. */
void trii_plan_release(void);

#endif
