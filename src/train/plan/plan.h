/*
 * plan.h - a compiled segment: entries in the order in which they run, with prepared pointers.
 * schedule.c builds it from the ir, run.c runs it, cache.c keeps it.
 */
#ifndef TRII_PLAN_H
#define TRII_PLAN_H

#include "base/compiler.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"
#include "train/plan/device_ops.h"
#include "train/tensor/packed.h"

typedef enum trii_entry_kind {
    TRII_ENTRY_KERNEL,
    TRII_ENTRY_PACK, /* the same, unless the copy that it makes is there already (prepack.c) */
    TRII_ENTRY_COPY, /* args[1] = args[0], `bytes` of them, both in the host's memory */
    TRII_ENTRY_MOVE, /* the same, where one of the memories is not the host's */
    TRII_ENTRY_START,
    TRII_ENTRY_WAIT
} trii_entry_kind;

typedef struct trii_entry {
    trii_entry_kind kind;
    int32_t host; /* START, WAIT: number in plan->hosts; PACK: in plan->packed */
    const trii_kernel *kernel;
    void **args;
    size_t bytes;
    tri_device from, to; /* MOVE */
    int32_t node;        /* number of its node in the segment, for messages; -1 = none */
} trii_entry;

typedef enum trii_host_state {
    TRII_HOST_IDLE,  /* its entry has not been reached */
    TRII_HOST_ARMED, /* reached; starts as soon as it may */
    TRII_HOST_RUNNING,
    TRII_HOST_DONE
} trii_host_state;

typedef struct trii_plan_host {
    int32_t node; /* number in the segment */
    trii_host_buffers buffers;
    int32_t before; /* the operation of its group that starts before it; -1 */
    /* operations whose results it reads, or that it comes after; each stands before it */
    int32_t *needs;
    int32_t n_needs;
    int32_t start; /* entry */
    bool at_once;  /* the next entry waits for it */

    trii_host_op *op; /* of this run, as is `state` */
    trii_host_state state;
} trii_plan_host;

/* The pointers that may change from run to run: slots[first[i] .. first[i + 1]) belong to input (or
 * output) i, each with the distance in bytes from its start. */
typedef struct trii_slots {
    int32_t *first;
    void ***slots;
    int64_t *offsets;
    void **now; /* the pointer that the slots are set to */
    int32_t n;
} trii_slots;

/* The slots of input (or output) i point to `data` from now on. */
static inline void trii_slots_set(trii_slots *slots, int32_t i, void *data)
{
    if (TRII_LIKELY(slots->now[i] == data))
        return;
    slots->now[i] = data;
    for (int32_t k = slots->first[i]; k < slots->first[i + 1]; k++)
        *slots->slots[k] = (char *)data + slots->offsets[k];
}

/* An output that is not bound: the plan's storages for it take turns, since the program may still
 * hold the value of the last run, or, in a pipeline, those of all pieces whose backward has not
 * run: storages that were freed meanwhile cost ResNet-50's second half 10 of 110 ms a piece. So a
 * plan keeps more than two where all of its outputs stay below so many bytes. */
#define TRII_OUTPUT_STORAGES 8
#define TRII_OUTPUTS_IN_TURNS 2
#define TRII_MORE_OUTPUTS_BYTES ((size_t)512 << 20)
typedef struct trii_plan_output {
    bool bound;
    int32_t first; /* the first entry that writes into its memory */
    /* the queue of that entry; communication belongs to the first queue, wherever it writes */
    int32_t queue;
    tri_device device;
    size_t bytes;
    const trii_layout *layout; /* the layout in which the plan leaves it */
    trii_storage *storages[TRII_OUTPUT_STORAGES];
    trii_storage *chosen; /* of this run; borrowed */
} trii_plan_output;

/* A pointer into an arena. */
typedef struct trii_arena_slot {
    void **slot;
    size_t offset;
    int32_t queue; /* queue whose arena it is; -1 = the arena of the host's memory */
} trii_arena_slot;

/* One device of a plan: its entries, which run in this order. With one queue, all entries. */
#define TRII_PLAN_QUEUES 64
typedef struct trii_plan_queue {
    tri_device device;
    const trii_device_ops *ops; /* of the device */
    trii_queue *queue;
    trii_queue trivial; /* `queue` of a device that makes none */
    int32_t *entries;   /* with several queues */
    int32_t n_entries;
    int32_t n_events;
    int32_t reached; /* of a run that failed: the last entry that began */
    /* Arena of a device with memory of its own; others share the plan's. */
    size_t arena_bytes;
    void *arena; /* the arena that the slots are set to */
} trii_plan_queue;

/* A copy of a parameter in another layout, which may be kept from run to run. */
typedef struct trii_plan_packed {
    int32_t input; /* the parameter */
    int32_t from;  /* the copy that it is made of; -1: of the parameter itself */
    bool is_read;  /* by entries that do not make other copies of it */
    trii_packed_kind kind;
    /* where it lies if it is not kept: the buffer, and its place in the arena of a queue */
    int32_t buffer, queue;
    size_t offset;

    /* of this run: */
    tri_tensor *tensor; /* borrowed; NULL = it is not kept */
    trii_packed_use use;
    bool runs; /* its entry makes it */
} trii_plan_packed;

/* The first `count` entries of the queue must be complete. */
typedef struct trii_queue_wait {
    int32_t queue, count;
    /* -1, or it is enough that they have been put on their queue, and that the one which waits then
     * waits for this event of it (trii_device_ops.wait) */
    int32_t event;
} trii_queue_wait;

/* A persistent tensor whose contents must change to another layout before the first run. */
typedef struct trii_adoption {
    int32_t input;
    const trii_layout *layout;
} trii_adoption;

typedef struct trii_plan {
    trii_pool pool;
    uint64_t hash; /* trii_plan_hash of the segment */
    const uint64_t *key;
    size_t n_key;
    int threads; /* trii_threads_asked when it was compiled, and so when it runs */
    uint64_t runs;
    struct trii_entry_times *times; /* [entry] TRI_TRACE, TRI_LOG=plan:trace; else NULL */
    bool traced;                    /* TRI_TRACE */

    trii_entry *entries;
    int32_t n_entries;
    trii_plan_host *hosts;
    int32_t n_hosts;

    trii_plan_queue *queues; /* the first runs on the calling thread */
    int32_t n_queues;
    /* With several queues: waits[first_wait[e] .. first_wait[e + 1]) must be complete before entry
     * e; whether another queue waits for e, and needs it complete; and the event that others wait
     * for instead, -1 = none. */
    int32_t *first_wait;
    trii_queue_wait *waits;
    bool *signals, *completes;
    int32_t *events;
    struct trii_queue_state *queue_states; /* of the run under way */

    trii_kernel **kernels; /* owned */
    int32_t n_kernels;

    trii_slots inputs, outputs;
    trii_plan_output *output;

    trii_arena_slot *arena_slots;
    int32_t n_arena_slots;
    size_t arena_bytes;
    /* bytes that entries which only move them move: copies, changes of layout */
    size_t copied_bytes;
    size_t spared_bytes; /* of these, what the newest run has found made already */
    void *arena;         /* the arena that the slots are set to */
    bool own_arenas;     /* some queue has an arena of its own */

    double *f;       /* the scalar block */
    int32_t *f_node; /* live nodes with floats: number in the segment, n_f_nodes of them */
    int32_t n_f_nodes;
    trii_random *random;
    int32_t *random_node;
    int32_t n_random;

    trii_plan_packed *packed;
    int32_t n_packed;
    trii_slots packed_slots;

    trii_adoption *adoptions;
    int32_t n_adoptions;
    bool keeps_plain; /* compiled for tensors whose layout may not change now */

    size_t held_bytes; /* storages of outputs that the plan has */
    bool holds_more;   /* since its last run */

    /* cache.c's: */
    bool busy;
    uint64_t used; /* number of the last use */
    struct trii_plan *next;
} trii_plan;

/* Compiles the segment; TRI_LOG=plan shows the result. keep_plain: plain tensors stay plain. The
 * plan has no arena yet. */
tri_status trii_plan_create(const trii_step *step, const trii_segment *segment,
                            const trii_device_ops *device, bool keep_plain,
                            trii_plan **plan_out) TRI_MUST_CHECK;
/* Hash of the segment's key. The cache compares the key with that of the last plan first, and then
 * needs none. */
uint64_t trii_plan_hash(const trii_segment *segment);
void trii_plan_destroy(trii_plan *plan); /* NULL allowed */
/* Storages of outputs that are still read belong to their readers. */
void trii_plan_forget_outputs(trii_plan *plan);
/* Before a run: changes the layouts of the tensors that the plan wants in others, for good. If a
 * run of another context reads one of them, changes none and writes false to *done_out. */
tri_status trii_plan_adopt(const trii_plan *plan, trii_step *step, const trii_segment *segment,
                           bool *done_out) TRI_MUST_CHECK;
/* The arena with this number is at `data`: queue -1: plan->arena_bytes or more; a queue with an
 * arena of its own: that one's. Before the first run, and whenever an arena has changed. */
void trii_plan_bind_arena(trii_plan *plan, int32_t queue, void *data);
tri_status trii_plan_run(trii_plan *plan, trii_step *step,
                         const trii_segment *segment) TRI_MUST_CHECK;

/* host_run.c: communication of a run; the thread that runs the first queue makes all calls. */
void trii_hosts_begin(trii_plan *plan, const trii_step *step, const trii_segment *segment);
/* The entry that starts it has been reached. */
tri_status trii_host_arrives(trii_plan *plan, int32_t host, const trii_step *step,
                             const trii_segment *segment, int32_t *n_running) TRI_MUST_CHECK;
/* Progresses what is under way, and starts what may start now. */
tri_status trii_hosts_poll(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                           int32_t *n_running) TRI_MUST_CHECK;
/* Waits until it is complete, and progresses everything under way meanwhile. */
tri_status trii_host_wait(trii_plan *plan, int32_t host, const trii_step *step,
                          const trii_segment *segment, int32_t *n_running) TRI_MUST_CHECK;
/* After a failure: ends everything that is under way. */
void trii_hosts_stop(trii_plan *plan, const trii_step *step, const trii_segment *segment);

/* prepack.c, before and after a run of a plan with copies that may be kept: finds which are there
 * already, and keeps what the run has made. */
void trii_prepack_begin(trii_plan *plan, const trii_step *step, const trii_segment *segment);
void trii_prepack_end(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                      bool complete);
/* schedule.c: fills in everything that has to do with entries, from an ir with kernels. */
tri_status trii_plan_schedule(trii_plan *plan, trii_ir *ir, const trii_step *step,
                              const trii_segment *segment) TRI_MUST_CHECK;
/* plan_log.c: after compiling, and, with times, where the time went. */
void trii_plan_log(const trii_plan *plan, const trii_ir *ir, double compile_ms, uint64_t compiled);
void trii_plan_log_times(const trii_plan *plan);

/* --- cache.c -------------------------------------------------------------- */

/* Runs segments through plans, which it keeps for the process. train/registry/train.c makes it the
 * default. */
extern const trii_executor trii_executor_plan;
/* What plans ask of devices; defined by device_of.c, which passes it on to the kind of device. */
extern const trii_device_ops trii_plan_device;
typedef struct trii_plan_stats {
    uint64_t hits, misses;
    uint64_t arenas_made;
    size_t arena_bytes;
    size_t copied_bytes; /* bytes that the newest run moved by entries that only move them */
    size_t held_bytes;   /* bytes of outputs that plans keep */
    size_t packed_bytes; /* bytes of copies that parameters keep (train/tensor/packed.h) */
    int32_t n_plans;
    uint64_t compiled; /* kernels for which devices compiled code */
} trii_plan_stats;
/* Kernels that devices compiled for plans of the calling thread. */
uint64_t trii_compiled_here(void);
/* Sums over all threads. */
uint64_t trii_compiled_all(void);
/* The figures of the process. */
trii_plan_stats trii_plan_stats_get(void);
/* Frees the plans and arenas that no run uses: the executor's release(). */
void trii_plan_release(void);

#endif
