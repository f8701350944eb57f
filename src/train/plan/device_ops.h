/*
 * device_ops.h - the contract between the plan and a device.
 *
 * The plan turns a recorded segment into an intermediate form (trii_ir), cuts it into groups,
 * each of which becomes one kernel, asks the device which layouts a group wants, has it compiled
 * and later calls the kernel with prepared pointers. The device knows kernels and layouts; the
 * plan knows structure, memory and order.
 */
#ifndef TRII_DEVICE_OPS_H
#define TRII_DEVICE_OPS_H

#include "train/graph/step/op.h"
#include "train/plan/plan_pool.h"
#include "train/tensor/storage.h"

#define TRII_DEVICE_ABI 6
#define TRII_GROUP_NODES 16 /* nodes of a fused group, at most */
#define TRII_GROUP_VALUES 64

typedef struct trii_ir_value {
    trii_type type;
    int32_t node;   /* producer, or -1 */
    int32_t output; /* number in segment->outputs, or -1: not an output of the segment */
    int32_t input;  /* number in segment->inputs, or -1: not an input of the segment */
    bool bound;     /* the output must be left in a persistent tensor */
    int32_t old;    /* whose old contents are this value, an input; -1 = nobody reads them */
    /* The layout of the persistent tensor that the value comes from or is left in, when the plan
     * was compiled; NULL = plain. */
    const trii_layout *layout;
    bool persistent;   /* an input whose contents lie in a persistent tensor */
    bool stays_plain;  /* that tensor, or the one that the value is bound to, must stay plain */
    bool updated;      /* the segment writes that tensor */
    int32_t n_readers; /* live nodes that read the value */
    int32_t group;     /* producer, or -1 */
    int32_t buffer;
    /* A view: it lies in the memory of this value, which is not a view itself, `offset` bytes from
     * its start, in the order of its layout (often a strided one); -1 = in memory of its own. */
    int32_t base;
    int64_t offset;
} trii_ir_value;

typedef struct trii_ir_node {
    const trii_graph_op *op;
    int32_t source; /* number in the segment */
    int32_t n_in, n_out;
    int32_t *in; /* values; -1 = absent */
    int32_t *out;
    int32_t *after; /* of a host operation: values that are complete before it starts */
    int32_t n_after;
    const int64_t *iattr;
    int32_t n_i;
    int32_t first_f, n_f; /* where its floats are in the run's scalar block */
    int32_t random;       /* number in trii_run.random, or -1 */
    int32_t group;
    int32_t region; /* only nodes with the same number are fused; see
                       train/graph/autograd/recompute.c */
    int32_t part;   /* the same; see train/graph/step/part.h */
    bool dead;
    /* A cast that the plan itself put in front of a node (half.c): the node gets the value as it
     * would have been stored, even if one kernel computes both. */
    bool takes_stored;
} trii_ir_node;

typedef enum trii_group_kind {
    TRII_GROUP_OP,    /* nodes[0], and what the device fused into it */
    TRII_GROUP_CHAIN, /* element-wise nodes that share one shape */
    TRII_GROUP_VIEW,  /* no kernel: outputs are elements of the input in another order or part */
    TRII_GROUP_JOIN,  /* no kernel: inputs are parts of the output */
    TRII_GROUP_REORDER,
    /* a copy from another device, in the layout that it has there; if both devices use the
     * host's memory it is a view, unless the copy is an output of the plan */
    TRII_GROUP_TRANSFER,
    TRII_GROUP_HOST
} trii_group_kind;

typedef struct trii_group {
    trii_group_kind kind;
    int32_t position; /* groups run in ascending order of this, */
    int32_t number;   /* and groups with the same number in the order in which they were made */
    int32_t n_nodes, n_in, n_out;
    int32_t nodes[TRII_GROUP_NODES]; /* in record order */
    int32_t *in;                     /* [n_in] values from outside, each once */
    int32_t *out;                    /* [n_out] values that are needed outside */
    const trii_layout **in_layout;   /* [n_in] how the kernel sees them */
    /* before layouts are chosen: the one in which a reader would like the output */
    const trii_layout **out_layout;
    struct trii_kernel *kernel;
} trii_group;

typedef struct trii_ir {
    trii_pool *pool;
    trii_ir_value *values;
    trii_ir_node *nodes;
    trii_group **groups;
    int32_t n_values, n_nodes, n_groups;
    int32_t room_values, room_groups;
    struct trii_strided_list *strided; /* the plan's own */
} trii_ir;

/* The layout of a value whose elements are these distances apart (layout->strides); equal distances
 * give the same pointer, and those of the plain order give NULL. It lives as long as the ir, so
 * kernels copy what they need. A dimension of size 1 has the stride that plain order would give
 * it. */
tri_status trii_ir_strided(const trii_ir *ir, const trii_type *type, const int64_t *stride,
                           const trii_layout **layout_out) TRI_MUST_CHECK;

/* What runs on one device, in order. A kind that makes queues (queue_create) puts its own fields
 * after this one; any other has the plan's, which is no more than this. One thread at a time uses
 * a queue, not always the same one. */
typedef struct trii_queue {
    tri_device device;
} trii_queue;

/* What changes from run to run beside pointers. */
typedef struct trii_run {
    const double *f;           /* floating-point attributes of all nodes */
    const trii_random *random; /* of all random nodes */
    trii_queue *queue;         /* on which the kernel runs */
} trii_run;

/* A compiled kernel. args: inputs, outputs, then the scratch if it needs any. */
typedef struct trii_kernel {
    const char *name; /* for logs: operation and implementation; lives as long as the kernel */
    /* Puts it on run->queue. Pointers and numbers stay valid until that is synchronised. */
    tri_status (*run)(const struct trii_kernel *kernel, void *const *args, const trii_run *run);
    void (*destroy)(struct trii_kernel *kernel);
    size_t scratch_bytes;
    /* NULL, or [n_out]: bit i is set where output o may lie on input i (of equal size), because
     * each element of the input is read before that element of the output is written. Neither of
     * them is a view then, nor does any other input lie there. */
    const uint64_t *in_place;
} trii_kernel;

/* What trii_device_ops.layouts fills in. adopt: bit i = the persistent tensor that is input i
 * should change to this layout for good (weights). */
typedef struct trii_layouts {
    const trii_layout *in[TRII_GROUP_VALUES];
    const trii_layout *out[TRII_GROUP_VALUES];
    uint64_t adopt;
} trii_layouts;

/* What a kind of device can do. Two entries are required; any other may be NULL. A device is always
 * an argument, or that of an argument: what a thread did before tells an entry nothing. */
typedef struct trii_device_ops {
    int abi;
    size_t size;
    const char *name;
    /* Required. Whether the device has a kernel for this node on values of their types. If not, and
     * some are bf16, the plan puts casts around the node, so that it computes in f32 (around nodes
     * on f16 it always does); without a kernel for that either the step fails. Not asked about what
     * moves nothing or communicates (TRII_CLASS_VIEW, _JOIN, _HOST, _TRANSFER). */
    bool (*supports)(const trii_ir *ir, const trii_ir_node *node);
    /* Required. Compiles the group's kernel for the device and for the layouts that the group has
     * now. The kernel owns its memory. A group of kind TRII_GROUP_REORDER has no node: the kernel
     * brings group->in[0] from in_layout[0] to out_layout[0]; if one of them is strided, the other
     * is plain or strided. */
    tri_status (*compile)(tri_device device, const trii_ir *ir, const trii_group *group,
                          trii_kernel **kernel_out);

    /* --- what is fused; NULL: nothing of this kind ------------------------ */

    /* May this element-wise node be fused with others? */
    bool (*chains)(const trii_ir *ir, const trii_ir_node *node);
    /* May the node, the only reader of an output of the group, be computed by the group's kernel?
     * (An addition or ReLU after a normalisation; what is added to a product.) */
    bool (*absorbs)(const trii_ir *ir, const trii_group *group, const trii_ir_node *node);
    /* May the node `before`, whose output `node` reads, be computed by node's kernel? Other readers
     * of that output then get it from this kernel. (The gradient of a ReLU before that of a
     * normalisation.) If so, the device may exchange inputs of `before`, and then updates the
     * counts of their readers. */
    bool (*absorbs_before)(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node);
    /* May the node, the only reader of an output of each of two groups, be computed by one kernel
     * together with both? (The sum of two gradients of one convolution's weights.) */
    bool (*sums)(const trii_ir *ir, const trii_group *a, const trii_group *b,
                 const trii_ir_node *node);

    /* --- in which order elements lie -------------------------------------- */

    /* have[i]: the layout of each input; fills in the layouts that the kernel wants. The plan
     * reorders where they differ. Outputs left in persistent state keep the layout that `ir` names,
     * where the device can. Inputs may be strided views, which a kernel takes as they are (want =
     * have) or gets copied; expanded ones have strides of 0. group->out_layout[o] may be a strided
     * layout in which the reader of an output would save a copy: then want that, or another one.
     * NULL: all plain. */
    void (*layouts)(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want_out);

    /* --- queues ----------------------------------------------------------- */

    /* A queue of the device, for one plan, with events 0 to n_events - 1; several may share a
     * stream. NULL: a queue is its device and nothing else. With it comes queue_destroy, which
     * finds the queue synchronised. */
    tri_status (*queue_create)(tri_device device, int32_t n_events, trii_queue **queue_out);
    void (*queue_destroy)(trii_queue *queue);
    /* The calling thread begins a run on the queue, which comes after what it has put on its
     * current queue of the device (trireme/device_queue.h). Before each run, so it must be cheap.
     * (The host's kernels use threads: here it sets how many.) NULL: nothing has to be done. */
    tri_status (*begin)(trii_queue *queue);
    /* Puts a copy on the queue: to memory of its device, from that of the host or of a device of
     * the kind; both stay valid until the queue is synchronised. NULL: the queue is synchronised,
     * and the copy made by trii_memory. */
    tri_status (*copy)(trii_queue *queue, void *dst, tri_device src_device, const void *src,
                       size_t bytes);
    /* The event is reached when everything that is on the queue now is complete: once in a run. */
    tri_status (*record)(trii_queue *queue, int32_t event);
    /* What is put on the queue from now on begins when this event of another queue of the kind is
     * reached. It has been recorded, by another thread, which may be using that queue. If something
     * before the event has failed, this queue fails as well, or computes what nobody will see. With
     * `record`; both NULL: a queue that others wait for is synchronised. */
    tri_status (*wait)(trii_queue *queue, trii_queue *other, int32_t event);
    /* Waits until everything that was put on the queue is complete, or has failed; also after a
     * run() that has failed. Called before anybody else reads what the queue has made, or writes
     * what it reads. NULL: kernels are complete when run() returns. A kind with it has memory of
     * its own: the host reads and writes its own memory without asking a queue. */
    tri_status (*synchronise)(trii_queue *queue);
} trii_device_ops;

/* Where the group's kernel runs. */
static inline tri_device trii_group_device(const trii_ir *ir, const trii_group *group)
{
    int32_t out = group->n_nodes > 0 ? ir->nodes[group->nodes[0]].out[0] : group->out[0];

    return ir->values[out].type.device;
}

/* A device reports that it compiled code for a kernel just now (not: found code that was there, or
 * uses a function that serves all sizes). Any thread. Shown by trii_plan_stats. */
void trii_count_compiled(void);

#endif
