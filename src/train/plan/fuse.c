/*
 * fuse.c - the pass that cuts nodes into groups, each of which becomes one kernel. Called by plan.c
 * after ir.c; asks the device what it can fuse (chains, absorbs, absorbs_before and sums of
 * trii_device_ops).
 *
 * Nodes are taken in record order. An element-wise node joins the chain that makes one of its
 * inputs, or the operation that the device can extend by it, or makes one kernel of two operations
 * whose results it adds; any other node opens a group. A group runs at one position, so joining
 * moves work: earlier, if everything that the node reads is there already, or later, if nobody has
 * read the group's outputs yet. Either way every group still comes after all that it reads.
 */
#include "train/plan/ir.h"

#include <string.h>

typedef struct fuse {
    trii_ir *ir;
    const trii_device_ops *device;
    bool *read;        /* [group] a node outside the group has read one of its outputs */
    int32_t last_host; /* the last node so far that communicates; -1 */
} fuse;

static trii_group *producer(const fuse *f, int32_t value, int32_t *group_out)
{
    int32_t node = value >= 0 ? f->ir->values[value].node : -1;

    *group_out = node >= 0 ? f->ir->nodes[node].group : -1;
    return *group_out >= 0 ? f->ir->groups[*group_out] : NULL;
}

static const trii_type *group_type(const trii_ir *ir, const trii_group *group)
{
    return &ir->values[ir->nodes[group->nodes[0]].out[0]].type;
}

static bool has_bound_output(const trii_ir *ir, const trii_ir_node *node)
{
    for (int32_t o = 0; o < node->n_out; o++) {
        if (ir->values[node->out[o]].bound)
            return true;
    }
    return false;
}

/* A wait for peers must not move in front of a start that those peers may be waiting for. */
static bool waits_too_early(const fuse *f, const trii_group *from, int32_t position)
{
    return from->kind == TRII_GROUP_HOST && f->last_host * TRII_POSITION_STEP > position;
}

/* Everything else that the node reads is complete before the group runs. */
static bool can_move_up(const fuse *f, const trii_ir_node *node, int32_t group)
{
    if (has_bound_output(f->ir, node))
        return false; /* a later group may still read the old contents */
    for (int32_t i = 0; i < node->n_in; i++) {
        int32_t other;
        const trii_group *from = producer(f, node->in[i], &other);

        if (from != NULL && other != group &&
            (from->position >= f->ir->groups[group]->position ||
             waits_too_early(f, from, f->ir->groups[group]->position)))
            return false;
    }
    return true;
}

static bool may_fuse(const fuse *f, const trii_ir_node *node, const trii_group *group)
{
    const trii_ir_node *other = &f->ir->nodes[group->nodes[0]];

    return node->region == other->region && node->part == other->part;
}

static void join(const fuse *f, int32_t n, int32_t group)
{
    trii_group *to = f->ir->groups[group];

    to->nodes[to->n_nodes++] = n;
    f->ir->nodes[n].group = group;
}

/* Moves the nodes of an unread chain to the front of another chain: both feed the same node. */
static void merge(const fuse *f, int32_t from, int32_t to)
{
    trii_group *a = f->ir->groups[from], *b = f->ir->groups[to];
    int32_t merged[TRII_GROUP_NODES], n = 0, i = 0, j = 0;

    while (i < a->n_nodes || j < b->n_nodes) {
        if (j == b->n_nodes || (i < a->n_nodes && a->nodes[i] < b->nodes[j]))
            merged[n++] = a->nodes[i++];
        else
            merged[n++] = b->nodes[j++];
    }
    for (i = 0; i < a->n_nodes; i++)
        f->ir->nodes[a->nodes[i]].group = to;
    memcpy(b->nodes, merged, (size_t)n * sizeof(merged[0]));
    b->n_nodes = n;
    a->n_nodes = 0;
}

static void merge_other_inputs(const fuse *f, int32_t n, int32_t group)
{
    const trii_ir_node *node = &f->ir->nodes[n];

    for (int32_t i = 0; i < node->n_in; i++) {
        int32_t other;
        trii_group *from = producer(f, node->in[i], &other), *to = f->ir->groups[group];

        if (from == NULL || other == group || from->kind != TRII_GROUP_CHAIN || f->read[other] ||
            !may_fuse(f, node, from) || from->n_nodes + to->n_nodes > TRII_GROUP_NODES ||
            !trii_type_same_shape(group_type(f->ir, from), group_type(f->ir, to)))
            continue;
        merge(f, other, group);
    }
}

/* The group whose result only this node reads; -1 = there is none, or it cannot take more nodes. */
static int32_t made_for(const fuse *f, const trii_ir_node *node, int32_t value)
{
    int32_t g;
    const trii_group *group = producer(f, value, &g);

    return group != NULL && group->kind == TRII_GROUP_OP && !f->read[g] &&
                   may_fuse(f, node, group) && f->ir->values[value].n_readers == 1 &&
                   f->ir->values[value].output < 0
               ? g
               : -1;
}

static bool join_both(const fuse *f, int32_t n)
{
    const trii_ir_node *node = &f->ir->nodes[n];
    int32_t a = node->n_in == 2 ? made_for(f, node, node->in[0]) : -1;
    int32_t b = a >= 0 ? made_for(f, node, node->in[1]) : -1;
    trii_group *const *groups = f->ir->groups;

    if (b < 0 || a == b || groups[a]->n_nodes + groups[b]->n_nodes >= TRII_GROUP_NODES ||
        !f->device->sums(f->ir, groups[a], groups[b], node))
        return false;
    join(f, n, a);
    merge(f, b, a);
    groups[a]->position = n * TRII_POSITION_STEP;
    return true;
}

/* Joins the element-wise node to a group that makes one of its inputs, if possible. */
static bool join_producer(const fuse *f, int32_t n, bool chains)
{
    const trii_ir_node *node = &f->ir->nodes[n];
    const trii_type *type = &f->ir->values[node->out[0]].type;

    /* kernels with a fixed core first: joining one of those saves more */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < node->n_in; i++) {
            int32_t g;
            trii_group *group = producer(f, node->in[i], &g);
            bool up, down;

            if (group == NULL || group->n_nodes == TRII_GROUP_NODES || !may_fuse(f, node, group))
                continue;
            down = !f->read[g];
            if (pass == 0) {
                if (group->kind != TRII_GROUP_OP || !down ||
                    f->ir->values[node->in[i]].n_readers != 1 ||
                    f->ir->values[node->in[i]].output >= 0 ||
                    !f->device->absorbs(f->ir, group, node))
                    continue;
            } else {
                if (!chains || group->kind != TRII_GROUP_CHAIN ||
                    !trii_type_same_shape(type, group_type(f->ir, group)))
                    continue;
            }
            up = can_move_up(f, node, g);
            if (!up && !down)
                continue;
            join(f, n, g);
            if (!up) {
                group->position = n * TRII_POSITION_STEP;
                if (pass == 1)
                    merge_other_inputs(f, n, g);
            }
            return true;
        }
    }
    return false;
}

/* A node with a kernel of its own may take a small node before it into that kernel. */
static bool take_before(const fuse *f, int32_t n)
{
    const trii_ir_node *node = &f->ir->nodes[n];

    for (int32_t i = 0; i < node->n_in; i++) {
        int32_t g;
        trii_group *group = producer(f, node->in[i], &g);

        if (group == NULL || group->kind != TRII_GROUP_CHAIN || group->n_nodes != 1 || f->read[g] ||
            !may_fuse(f, node, group) ||
            !f->device->absorbs_before(f->ir, &f->ir->nodes[group->nodes[0]], node))
            continue;
        join(f, n, g);
        group->kind = TRII_GROUP_OP;
        group->position = n * TRII_POSITION_STEP;
        return true;
    }
    return false;
}

/* A value that a host operation comes after counts as read by it. */
static void mark_reads(fuse *f, int32_t n)
{
    const trii_ir_node *node = &f->ir->nodes[n];

    for (int32_t i = 0; i < node->n_in + node->n_after; i++) {
        int32_t value = i < node->n_in ? node->in[i] : node->after[i - node->n_in], g;

        if (producer(f, value, &g) != NULL && g != node->group)
            f->read[g] = true;
    }
    if (node->op->op_class == TRII_CLASS_HOST)
        f->last_host = n;
}

static tri_status place(const fuse *f, int32_t n)
{
    trii_ir_node *node = &f->ir->nodes[n];
    trii_group_kind kind = TRII_GROUP_OP;
    bool chains = false;

    if (node->op->op_class == TRII_CLASS_HOST) {
        kind = TRII_GROUP_HOST;
    } else if (node->op->op_class == TRII_CLASS_TRANSFER) {
        kind = TRII_GROUP_TRANSFER;
    } else if (node->op->op_class == TRII_CLASS_VIEW) {
        kind = TRII_GROUP_VIEW;
    } else if (node->op->op_class == TRII_CLASS_JOIN) {
        kind = TRII_GROUP_JOIN;
    } else if (node->op->op_class == TRII_CLASS_ELEMENTWISE) {
        chains = f->device->chains(f->ir, node);
        if (join_both(f, n) || join_producer(f, n, chains))
            return TRI_OK;
        kind = chains ? TRII_GROUP_CHAIN : TRII_GROUP_OP;
    } else if (take_before(f, n)) {
        return TRI_OK;
    }
    node->group = f->ir->n_groups;
    if (trii_ir_add_group(f->ir, kind, n * TRII_POSITION_STEP) == NULL)
        return TRI_ERR_NO_MEMORY;
    f->ir->groups[node->group]->nodes[0] = n;
    f->ir->groups[node->group]->n_nodes = 1;
    return TRI_OK;
}

/* Groups that were merged into others are empty now: removes them. */
static void drop_empty(trii_ir *ir)
{
    int32_t kept = 0;

    for (int32_t g = 0; g < ir->n_groups; g++) {
        if (ir->groups[g]->n_nodes > 0)
            ir->groups[kept++] = ir->groups[g];
    }
    ir->n_groups = kept;
}

/* Whatever host operations wait for, and whatever feeds nothing else, runs first, so that
 * communication is under way while the rest computes. */
static tri_status hurry_hosts(trii_ir *ir)
{
    /* [value] read by a node that computes */
    bool *computed = trii_pool_alloc(ir->pool, (size_t)ir->n_values, sizeof(*computed));

    if (computed == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t n = 0; n < ir->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[n];

        for (int32_t i = 0; i < node->n_in; i++) {
            if (node->in[i] >= 0 && !node->dead && node->op->op_class != TRII_CLASS_HOST)
                computed[node->in[i]] = true;
        }
    }
    for (int32_t g = 0; g < ir->n_groups; g++) {
        trii_group *group = ir->groups[g];
        bool early = group->kind == TRII_GROUP_OP && group->n_out > 0;

        for (int32_t i = 0; i < group->n_in && early; i++)
            early = ir->values[group->in[i]].input >= 0;
        for (int32_t o = 0; o < group->n_out && early; o++)
            early = ir->values[group->out[o]].output < 0 && !computed[group->out[o]];
        if (early)
            group->position -= ir->n_nodes * TRII_POSITION_STEP;
    }
    return TRI_OK;
}

tri_status trii_ir_fuse(trii_ir *ir, const trii_device_ops *device)
{
    fuse f = {ir, device, trii_pool_alloc(ir->pool, (size_t)ir->n_nodes, sizeof(bool)), -1};
    tri_status status = f.read != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int32_t n = 0; status == TRI_OK && n < ir->n_nodes; n++) {
        if (ir->nodes[n].dead)
            continue;
        status = place(&f, n);
        if (status == TRI_OK)
            mark_reads(&f, n);
    }
    drop_empty(ir);
    for (int32_t g = 0; status == TRI_OK && g < ir->n_groups; g++)
        status = trii_ir_finish_group(ir, g);
    if (status == TRI_OK)
        status = hurry_hosts(ir);
    trii_ir_sort_groups(ir);
    return status;
}
