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

#include "graph/op.h"
#include "plan/plan_pool.h"
#include "tensor/storage.h"

#define TRII_DEVICE_ABI 4
#define TRII_GROUP_NODES 16 /* nodes of a fused group, at most */
#define TRII_GROUP_VALUES 64

typedef struct trii_ir_value {
    trii_type type;
    int32_t node;   /* producer, or -1 */
    int32_t output; /* of the segment, or -1: number in segment->outputs */
    int32_t input;  /* of the segment, or -1: number in segment->inputs */
    bool bound;     /* the output must be left in a persistent tensor, */
    int32_t old;    /* whose contents before are this value, an input; -1 = nobody reads them */
    /* Of what the value is made of or left in, when the plan was compiled; NULL = plain. */
    const trii_layout *layout;
    bool persistent;   /* an input that lies in a persistent tensor */
    bool stays_plain;  /* and that tensor, or the one it is bound to, may have no other layout */
    bool updated;      /* that tensor is written by this segment */
    int32_t n_readers; /* live nodes that read it */
    int32_t group;     /* producer, or -1 */
    int32_t buffer;
    /* A view: it lies in the memory of this value, which is no view, `offset` bytes behind its
     * beginning, in the order of its layout (often a strided one); -1 = in its own. */
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
    int32_t region; /* nodes are fused only with those of the same; see graph/recompute.c */
    bool dead;
    /* A cast of the plan's own in front of a node (half.c): it gets what would have been stored,
     * also where the same kernel makes it. */
    bool takes_stored;
} trii_ir_node;

typedef enum trii_group_kind {
    TRII_GROUP_OP,    /* nodes[0], and what the device absorbed into it */
    TRII_GROUP_CHAIN, /* element-wise nodes over one shape */
    TRII_GROUP_VIEW,  /* no kernel: the outputs are elements of the input */
    TRII_GROUP_JOIN,  /* no kernel: the inputs are the elements of the output */
    TRII_GROUP_REORDER,
    TRII_GROUP_TRANSFER, /* a copy from another device, in the layout that it has; where both have
                            the memory of the host a view, unless the copy leaves the plan */
    TRII_GROUP_HOST
} trii_group_kind;

typedef struct trii_group {
    trii_group_kind kind;
    int32_t position; /* groups run in ascending order of it, */
    int32_t number;   /* and in that in which they were made */
    int32_t n_nodes, n_in, n_out;
    int32_t nodes[TRII_GROUP_NODES]; /* in record order */
    int32_t *in;                     /* [n_in] values from outside, each once */
    int32_t *out;                    /* [n_out] values that are needed outside */
    const trii_layout **in_layout;   /* [n_in] how the kernel sees them */
    const trii_layout **out_layout;  /* before they are chosen: in which a reader would like it */
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

/* The layout of a value whose elements lie at these distances (layout->strides), the same pointer
 * for the same ones; NULL where that is the plain order. It lives as long as the ir: kernels copy
 * what they need. Sizes of 1 have the stride that plain order would give them. */
tri_status trii_ir_strided(const trii_ir *ir, const trii_type *type, const int64_t *stride,
                           const trii_layout **layout_out) TRI_MUST_CHECK;

/* What changes from run to run beside pointers. */
typedef struct trii_run {
    const double *f;           /* floating-point attributes of all nodes */
    const trii_random *random; /* of all random nodes */
} trii_run;

/* A prepared kernel. args: inputs, outputs, then the scratch if it wants any. */
typedef struct trii_kernel {
    const char *name; /* for logs: operation and implementation; lives as long as the kernel */
    tri_status (*run)(const struct trii_kernel *kernel, void *const *args, const trii_run *run);
    void (*destroy)(struct trii_kernel *kernel);
    size_t scratch_bytes;
    /* NULL, or [n_out]: bit i set where output o may lie on input i (of the same bytes), that is,
     * where each element of the input is read before that of the output is written. Neither is a
     * view then, nor does another input lie there. */
    const uint64_t *in_place;
} trii_kernel;

/* Wanted by trii_device.layouts. adopt: bit i = where input i is a persistent tensor it should
 * take this layout for good (weights). */
typedef struct trii_layouts {
    const trii_layout *in[TRII_GROUP_VALUES];
    const trii_layout *out[TRII_GROUP_VALUES];
    uint64_t adopt;
} trii_layouts;

typedef struct trii_device_ops {
    int abi;
    size_t size;
    const char *name;
    /* Required. What the calling thread compiles and runs from now on is for this device: with its
     * number of threads, or on its stream. Called before each run; cheap. */
    void (*enter)(tri_device device);
    /* All kernels that the calling thread has run on the device that it entered are complete, or
     * have failed. Comes before anybody else reads what they made. NULL: kernels are complete when
     * run() returns. */
    tri_status (*synchronise)(void);
    /* Has the device no kernel for this node on bf16, but one on f32? Then it is asked for that
     * one, between casts. NULL: never. (Of f16 the plan widens all that computes.) */
    bool (*widens)(const trii_ir *ir, const trii_ir_node *node);
    /* Required. May this element-wise node be part of a chain? */
    bool (*chains)(const trii_ir *ir, const trii_ir_node *node);
    /* Required. May the node, which reads an output of the group that nothing else reads, be
     * computed by the group's kernel? (normalisation, then addition, then ReLU) */
    bool (*absorbs)(const trii_ir *ir, const trii_group *group, const trii_ir_node *node);
    /* Required. May the node before, whose output `node` reads, be computed by node's kernel?
     * Other readers of that output get it from this kernel. (ReLU's gradient before
     * normalisation's.) If so, it may exchange inputs of `before`, and count their readers. */
    bool (*absorbs_before)(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node);
    /* Required. May the node, which alone reads an output of each of two groups, be computed with
     * both of them by one kernel? (the sum of two gradients of one convolution's weights) */
    bool (*sums)(const trii_ir *ir, const trii_group *a, const trii_group *b,
                 const trii_ir_node *node);
    /* Required. have[i]: the layouts in which the inputs are; fills the wanted ones. The plan
     * reorders where they differ. Outputs of persistent state keep the layout `ir` says where
     * the device can. Inputs may be strided: views, which a kernel takes (want = have) or has
     * copied; with strides of 0 where they were expanded. group->out_layout[o] may be a strided
     * layout in which the reader of an output would save a copy; then want = that, or another. */
    void (*layouts)(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want_out);
    /* Required. For the layouts in the group. Memory of the kernel is the device's. */
    tri_status (*compile)(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out);
    /* Required. One input, one output; NULL = plain. A strided one meets plain or strided ones
     * only. */
    tri_status (*compile_reorder)(const trii_type *type, const trii_layout *from,
                                  const trii_layout *to, trii_kernel **kernel_out);
} trii_device_ops;

/* A device says that it has just had code compiled for a kernel: not where it found some that was
 * there, or where one function serves all sizes. Any thread. Shown in trii_plan_stats. */
void trii_count_compiled(void);

#endif
