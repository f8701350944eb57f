/*
 * ir.c - the first pass: copies a segment into the intermediate form (trii_ir), with casts around
 * 16-bit nodes (half.c), and drops dead code. Called by plan.c. The rest of the file keeps groups
 * and their operands consistent for the passes that change them (fuse.c, layout.c).
 */
#include "train/plan/ir.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"

/* Scratch of the build: the ir's value for each value of the step; -1 = none. */
typedef struct build {
    trii_ir *ir;
    const trii_step *step;
    const trii_segment *segment;
    int32_t *map;
} build;

static tri_status add_inputs(const build *b)
{
    for (int32_t i = 0; i < b->segment->n_inputs; i++) {
        trii_vid vid = b->segment->inputs[i];
        const trii_value *value = &b->step->values[vid];
        int32_t id = trii_ir_add_value(b->ir, &value->type);

        if (id < 0)
            return TRI_ERR_NO_MEMORY;
        b->map[vid] = id;
        b->ir->values[id].input = i;
        b->ir->values[id].layout = trii_value_layout(value);
        b->ir->values[id].persistent = trii_value_tensor(value) != NULL;
        b->ir->values[id].stays_plain =
            b->ir->values[id].persistent && trii_tensor_stays_plain(trii_value_tensor(value));
    }
    return TRI_OK;
}

static tri_status add_node(const build *b, const trii_node *from, trii_ir_node *to)
{
    trii_pool *pool = b->ir->pool;
    int64_t *iattr = trii_pool_alloc(pool, (size_t)from->attrs.n_i, sizeof(*iattr));

    to->op = from->op;
    to->n_in = from->n_in;
    to->n_out = from->n_out;
    to->n_i = from->attrs.n_i;
    to->n_f = from->attrs.n_f;
    to->random = -1;
    to->group = -1;
    to->region = from->region < 0 ? -from->region : 0;
    to->part = from->part;
    to->iattr = iattr;
    to->n_after = from->n_after;
    to->after = trii_pool_alloc(pool, (size_t)from->n_after, sizeof(*to->after));
    to->in = trii_pool_alloc(pool, (size_t)from->n_in, sizeof(*to->in));
    to->out = trii_pool_alloc(pool, (size_t)from->n_out, sizeof(*to->out));
    if (iattr == NULL || to->after == NULL || to->in == NULL || to->out == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(iattr, from->attrs.i, (size_t)from->attrs.n_i * sizeof(*iattr));
    for (int i = 0; i < from->n_in; i++) {
        trii_vid vid = b->step->in_ids[from->first_in + i];

        to->in[i] = vid >= 0 ? b->map[vid] : -1;
        if (vid >= 0 && to->in[i] < 0)
            return TRII_FAIL(TRI_ERR_INTERNAL, "plan: input %d of %s is not in the segment", i,
                             from->op->name);
    }
    for (int i = 0; i < from->n_after; i++) /* pending: made by a node of the segment */
        to->after[i] = b->map[b->step->in_ids[from->first_in + from->n_in + i]];
    for (int o = 0; o < from->n_out; o++) {
        const trii_value *value = &b->step->values[from->first_out + o];
        int32_t id = trii_ir_add_value(b->ir, &value->type);

        if (id < 0)
            return TRI_ERR_NO_MEMORY;
        b->map[from->first_out + o] = id;
        to->out[o] = id;
    }
    return TRI_OK;
}

static tri_status mark_outputs(const build *b)
{
    trii_ir *ir = b->ir;

    for (int32_t o = 0; o < b->segment->n_outputs; o++) {
        trii_vid vid = b->segment->outputs[o];
        const trii_value *value = &b->step->values[vid];
        int32_t id = b->map[vid];

        if (id < 0)
            return TRII_FAIL(TRI_ERR_INTERNAL, "plan: output %d is not in the segment", o);
        ir->values[id].output = o;
        ir->values[id].bound = value->bound != NULL;
        if (value->bound == NULL)
            continue;
        ir->values[id].layout = value->bound->layout;
        ir->values[id].stays_plain = trii_tensor_stays_plain(value->bound);
        if (value->replaces != TRII_NO_VALUE)
            ir->values[id].old = b->map[value->replaces];
        if (ir->values[id].old >= 0)
            ir->values[ir->values[id].old].updated = true;
    }
    return TRI_OK;
}

/* From the back: a node lives if somebody reads it. Numbers the floats and the random operations of
 * live nodes. */
static void drop_dead(trii_ir *ir, int32_t *n_f_out, int32_t *n_random_out)
{
    int32_t n_f = 0, n_random = 0;

    for (int32_t n = ir->n_nodes - 1; n >= 0; n--) {
        trii_ir_node *node = &ir->nodes[n];

        node->dead = node->op->op_class != TRII_CLASS_HOST;
        for (int32_t o = 0; node->dead && o < node->n_out; o++) {
            const trii_ir_value *value = &ir->values[node->out[o]];

            node->dead = value->output < 0 && value->n_readers == 0;
        }
        for (int32_t i = 0; !node->dead && i < node->n_in; i++) {
            if (node->in[i] >= 0)
                ir->values[node->in[i]].n_readers++;
        }
    }
    for (int32_t n = 0; n < ir->n_nodes; n++) {
        trii_ir_node *node = &ir->nodes[n];

        if (node->dead)
            continue;
        node->first_f = n_f;
        n_f += node->n_f;
        if (node->op->random)
            node->random = n_random++;
    }
    *n_f_out = n_f;
    *n_random_out = n_random;
}

tri_status trii_ir_build(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                         const trii_device_ops *device, int32_t *n_f_out, int32_t *n_random_out)
{
    int32_t n_nodes = segment->end_node - segment->first_node;
    build b = {ir, step, segment, trii_alloc((size_t)step->n_values, sizeof(int32_t), "plan")};
    tri_status status;

    if (b.map == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(b.map, 0xff, (size_t)step->n_values * sizeof(int32_t));
    ir->nodes = trii_pool_alloc(ir->pool, (size_t)n_nodes, sizeof(*ir->nodes));
    ir->n_nodes = n_nodes;
    status = ir->nodes != NULL ? add_inputs(&b) : TRI_ERR_NO_MEMORY;
    for (int32_t n = 0; status == TRI_OK && n < n_nodes; n++) {
        const trii_node *from = &step->nodes[segment->first_node + n];

        ir->nodes[n].source = n;
        status = add_node(&b, from, &ir->nodes[n]);
        for (int32_t o = 0; status == TRI_OK && o < from->n_out; o++) {
            ir->values[ir->nodes[n].out[o]].node = n;
        }
    }
    if (status == TRI_OK)
        status = mark_outputs(&b);
    if (status == TRI_OK)
        status = trii_ir_widen(ir, device);
    if (status == TRI_OK)
        drop_dead(ir, n_f_out, n_random_out);
    trii_free(b.map);
    return status;
}

/* --- groups --------------------------------------------------------------- */

trii_group *trii_ir_add_group(trii_ir *ir, trii_group_kind kind, int32_t position)
{
    trii_group *group = trii_pool_alloc(ir->pool, 1, sizeof(*group));

    if (group == NULL)
        return NULL;
    if (ir->n_groups == ir->room_groups) {
        int32_t room = ir->room_groups * 2 + 16;
        trii_group **more = trii_pool_alloc(ir->pool, (size_t)room, sizeof(*more));

        if (more == NULL)
            return NULL;
        if (ir->n_groups > 0)
            memcpy(more, ir->groups, (size_t)ir->n_groups * sizeof(*more));
        ir->groups = more;
        ir->room_groups = room;
    }
    group->kind = kind;
    group->position = position;
    group->number = ir->n_groups;
    ir->groups[ir->n_groups++] = group;
    return group;
}

static bool holds(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

static bool in_group(const trii_group *group, int32_t node)
{
    return node >= 0 && holds(group->nodes, group->n_nodes, node);
}

/* Whether a live node outside the group reads the value. */
static bool read_outside(const trii_ir *ir, const trii_group *group, int32_t value)
{
    int32_t inside = 0;

    for (int32_t n = 0; n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];

        for (int32_t i = 0; i < node->n_in; i++)
            inside += node->in[i] == value;
    }
    return ir->values[value].n_readers > inside;
}

tri_status trii_ir_finish_group(trii_ir *ir, int32_t index)
{
    trii_group *group = ir->groups[index];
    int32_t room_in = 0, room_out = 0;

    for (int32_t n = 0; n < group->n_nodes; n++) {
        room_in += ir->nodes[group->nodes[n]].n_in;
        room_out += ir->nodes[group->nodes[n]].n_out;
    }
    group->in = trii_pool_alloc(ir->pool, (size_t)room_in, sizeof(*group->in));
    group->out = trii_pool_alloc(ir->pool, (size_t)room_out, sizeof(*group->out));
    group->in_layout = trii_pool_alloc(ir->pool, (size_t)room_in, sizeof(*group->in_layout));
    group->out_layout = trii_pool_alloc(ir->pool, (size_t)room_out, sizeof(*group->out_layout));
    if (group->in == NULL || group->out == NULL || group->in_layout == NULL ||
        group->out_layout == NULL)
        return TRI_ERR_NO_MEMORY;
    group->n_in = group->n_out = 0;
    for (int32_t n = 0; n < group->n_nodes; n++) {
        trii_ir_node *node = &ir->nodes[group->nodes[n]];
        /* Kernels know their operands by number, so a group of one node keeps all of them. */
        bool all = group->n_nodes == 1;

        node->group = index;
        for (int32_t i = 0; i < node->n_in; i++) {
            int32_t value = node->in[i];

            if (value >= 0 && !in_group(group, ir->values[value].node) &&
                !holds(group->in, group->n_in, value))
                group->in[group->n_in++] = value;
        }
        for (int32_t o = 0; o < node->n_out; o++) {
            ir->values[node->out[o]].group = index;
            if (all || ir->values[node->out[o]].output >= 0 ||
                read_outside(ir, group, node->out[o]))
                group->out[group->n_out++] = node->out[o];
        }
    }
    if (group->n_in > TRII_GROUP_VALUES || group->n_out > TRII_GROUP_VALUES)
        return TRII_FAIL(TRI_ERR_INTERNAL, "plan: group of %d inputs and %d outputs", group->n_in,
                         group->n_out);
    return TRI_OK;
}

static int by_position(const void *a, const void *b)
{
    const trii_group *x = *(trii_group *const *)a, *y = *(trii_group *const *)b;

    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

void trii_ir_sort_groups(trii_ir *ir)
{
    if (ir->n_groups > 1)
        qsort(ir->groups, (size_t)ir->n_groups, sizeof(trii_group *), by_position);
    for (int32_t g = 0; g < ir->n_groups; g++) {
        for (int32_t n = 0; n < ir->groups[g]->n_nodes; n++) {
            trii_ir_node *node = &ir->nodes[ir->groups[g]->nodes[n]];

            node->group = g;
            /* including those that do not leave the group */
            for (int32_t o = 0; o < node->n_out; o++)
                ir->values[node->out[o]].group = g;
        }
        for (int32_t o = 0; o < ir->groups[g]->n_out; o++)
            ir->values[ir->groups[g]->out[o]].group = g;
    }
}
