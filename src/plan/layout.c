/*
 * layout.c - decides in which order each value's elements lie.
 *
 * Groups are asked in the order in which they run; what they make keeps the layout that they
 * prefer, so a convolution's blocked output stays blocked through normalisation, ReLU, addition
 * and pooling. A reorder is inserted only where a reader wants something else; weights and other
 * persistent state take the wanted layout for good instead.
 */
#include "plan/layout_choice.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "graph/host_op.h"
#include "tensor/device_list.h"
#include "tensor/device_memory.h"

static void *grown(const trii_layout_choice *c, const void *old, int32_t room, size_t size)
{
    void *more = trii_pool_alloc(c->ir->pool, (size_t)room, size);

    if (more != NULL && c->room > 0)
        memcpy(more, old, (size_t)c->room * size);
    return more;
}

static tri_status make_room(trii_layout_choice *c)
{
    int32_t room = c->room * 2 + 64;

    c->now = grown(c, c->now, room, sizeof(*c->now));
    c->used = grown(c, c->used, room, sizeof(*c->used));
    c->copies = grown(c, c->copies, room, sizeof(*c->copies));
    c->place = grown(c, c->place, room, sizeof(*c->place));
    if (c->now == NULL || c->used == NULL || c->copies == NULL || c->place == NULL)
        return TRI_ERR_NO_MEMORY;
    c->room = room;
    return TRI_OK;
}

tri_status trii_layout_value(trii_layout_choice *c, const trii_type *type,
                             const trii_layout *layout, int32_t *value_out)
{
    trii_type copy_of_type = *type; /* may lie in the array that grows */
    int32_t value = trii_ir_add_value(c->ir, &copy_of_type);

    if (value < 0)
        return TRI_ERR_NO_MEMORY;
    while (value >= c->room) {
        if (make_room(c) != TRI_OK)
            return TRI_ERR_NO_MEMORY;
    }
    c->now[value] = layout;
    *value_out = value;
    return TRI_OK;
}

void trii_layout_replace(trii_ir *ir, const trii_group *group, int32_t from, int32_t to,
                         bool outputs)
{
    for (int32_t n = 0; n < group->n_nodes; n++) {
        trii_ir_node *node = &ir->nodes[group->nodes[n]];

        for (int32_t i = 0; i < node->n_in; i++) {
            if (node->in[i] == from)
                node->in[i] = to;
        }
        for (int32_t o = 0; outputs && o < node->n_out; o++) {
            if (node->out[o] == from)
                node->out[o] = to;
        }
    }
}

tri_status trii_layout_reorder(trii_layout_choice *c, int32_t from, int32_t to, int32_t position)
{
    const trii_layout *a = c->now[from], *b = c->now[to];
    trii_group *group;

    if (a != NULL && b != NULL && trii_is_strided(a) != trii_is_strided(b)) {
        int32_t plain;
        tri_status status = trii_layout_value(c, &c->ir->values[from].type, NULL, &plain);

        if (status == TRI_OK)
            status = trii_layout_reorder(c, from, plain, position);
        return status == TRI_OK ? trii_layout_reorder(c, plain, to, position) : status;
    }
    group = trii_ir_add_group(c->ir, TRII_GROUP_REORDER, position);
    if (group == NULL)
        return TRI_ERR_NO_MEMORY;
    group->in = trii_pool_alloc(c->ir->pool, 1, sizeof(*group->in));
    group->out = trii_pool_alloc(c->ir->pool, 1, sizeof(*group->out));
    group->in_layout = trii_pool_alloc(c->ir->pool, 1, sizeof(*group->in_layout));
    group->out_layout = trii_pool_alloc(c->ir->pool, 1, sizeof(*group->out_layout));
    if (group->in == NULL || group->out == NULL || group->in_layout == NULL ||
        group->out_layout == NULL)
        return TRI_ERR_NO_MEMORY;
    c->ir->values[from].n_readers++; /* so its kernel knows that somebody needs it */
    group->n_in = group->n_out = 1;
    group->in[0] = from;
    group->out[0] = to;
    group->in_layout[0] = a;
    group->out_layout[0] = b;
    return TRI_OK;
}

/* Persistent state may change its layout for good: not what another group already reads as it
 * is, and not where the padding would need more room. */
static bool can_adopt(const trii_layout_choice *c, int32_t v, const trii_layout *want, bool wanted)
{
    const trii_ir_value *value = &c->ir->values[v];

    return value->input >= 0 && value->persistent && !value->stays_plain &&
           (wanted || value->updated) && c->now[v] == NULL && !c->used[v] &&
           !trii_is_strided(want) && want->bytes == trii_type_bytes(&value->type);
}

/* Where operand i is put into order: right before the group. What communicates starts when the last
 * operand is there, wherever it was recorded: its operands are put into order where they are made,
 * so that it need not wait for all that was recorded before it. */
static int32_t position_before(const trii_layout_choice *c, const trii_group *group, int32_t i)
{
    int32_t from = c->ir->values[group->in[i]].group;
    const trii_group *maker = from >= 0 ? c->ir->groups[from] : NULL;

    if (group->kind != TRII_GROUP_HOST || maker == NULL ||
        (maker->kind != TRII_GROUP_OP && maker->kind != TRII_GROUP_CHAIN))
        return group->position - 1 - i;
    return maker->position + TRII_POSITION_STEP / 2;
}

tri_status trii_layout_fit_input(trii_layout_choice *c, trii_group *group, int32_t i,
                                 const trii_layout *layout, bool adopt)
{
    int32_t v = group->in[i], made, position = position_before(c, group, i);
    trii_layout_copy *entry;
    tri_status status;

    group->in_layout[i] = layout;
    if (c->now[v] == layout) {
        c->used[v] = true;
        return TRI_OK;
    }
    if (layout != NULL && can_adopt(c, v, layout, adopt)) {
        c->adopt[v] = layout;
        c->now[v] = layout;
        c->used[v] = true;
        return TRI_OK;
    }
    for (trii_layout_copy *old = c->copies[v]; old != NULL; old = old->next) {
        if (old->layout == layout) {
            trii_layout_replace(c->ir, group, v, old->value, false);
            group->in[i] = old->value;
            return TRI_OK;
        }
    }
    status = trii_layout_value(c, &c->ir->values[v].type, layout, &made);
    if (status != TRI_OK)
        return status;
    c->used[v] = true;
    entry = trii_pool_alloc(c->ir->pool, 1, sizeof(*entry));
    if (entry == NULL)
        return TRI_ERR_NO_MEMORY;
    *entry = (trii_layout_copy){c->copies[v], made, layout};
    c->copies[v] = entry;
    trii_layout_replace(c->ir, group, v, made, false);
    group->in[i] = made;
    return trii_layout_reorder(c, v, made, position);
}

/* A tensor that has a layout keeps it: what the kernel makes in another one is reordered, and so is
 * what shall lie in another value but was not written there. */
tri_status trii_layout_fit_output(trii_layout_choice *c, trii_group *group, int32_t o,
                                  const trii_layout *layout)
{
    int32_t v = group->out[o], made;
    trii_ir_value *value = &c->ir->values[v];
    const trii_layout_place *place = c->place[v].chosen ? &c->place[v] : NULL;
    bool fits = layout == value->layout ||
                (value->layout == NULL && !value->stays_plain && !trii_is_strided(layout) &&
                 layout->bytes == trii_type_bytes(&value->type));

    group->out_layout[o] = layout;
    if (place != NULL) {
        value->base = place->base;
        value->offset = place->offset;
        fits = layout == place->layout;
    } else if (!value->bound) {
        fits = value->output < 0 || !trii_is_strided(layout);
    }
    if (fits) {
        c->now[v] = layout;
        return TRI_OK;
    }
    c->now[v] = place != NULL ? place->layout : value->layout;
    if (trii_layout_value(c, &value->type, layout, &made) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    trii_layout_replace(c->ir, group, v, made, true);
    group->out[o] = made;
    c->ir->values[made].node = c->ir->values[v].node;
    return trii_layout_reorder(c, made, v, group->position + 1 + o);
}

/* Operand k in the layout of the tensor that result k is bound to: what all ranks agreed on. The
 * rest is plain, since another rank may lay it out differently. */
static void host_layouts(const trii_layout_choice *c, const trii_group *group, trii_layouts *want)
{
    const trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
    const trii_host_op *host = c->step->nodes[c->segment->first_node + node->source].host;

    for (int32_t k = 0; host->any_layout && k < node->n_in && k < node->n_out; k++) {
        const trii_ir_value *result = &c->ir->values[node->out[k]];
        const trii_layout *layout = result->bound ? result->layout : NULL;

        for (int32_t i = 0; i < group->n_in; i++)
            want->in[i] = group->in[i] == node->in[k] ? layout : want->in[i];
        for (int32_t o = 0; o < group->n_out; o++)
            want->out[o] = group->out[o] == node->out[k] ? layout : want->out[o];
    }
}

/* Between kinds of devices: neither knows the other's orders. */
static bool crosses(const trii_ir *ir, const trii_group *group)
{
    return trii_device_kind_of(ir->values[group->in[0]].type.device) !=
           trii_device_kind_of(ir->values[group->out[0]].type.device);
}

/* Memory of the host is that of every cpu device: what goes from one to another stays where it is,
 * unless it leaves the plan or is written into another value. */
static bool stays(const trii_layout_choice *c, const trii_group *group)
{
    const trii_ir_value *in = &c->ir->values[group->in[0]], *out = &c->ir->values[group->out[0]];

    return trii_is_host(in->type.device) && trii_is_host(out->type.device) && out->output < 0 &&
           !c->place[group->out[0]].chosen;
}

static void leave_there(trii_layout_choice *c, trii_group *group)
{
    int32_t in = group->in[0], out = group->out[0];
    trii_ir_value *values = c->ir->values;

    group->kind = TRII_GROUP_VIEW;
    group->in_layout[0] = group->out_layout[0] = c->now[out] = c->now[in];
    c->used[in] = true;
    values[out].base = values[in].base >= 0 ? values[in].base : in;
    values[out].offset = values[in].base >= 0 ? values[in].offset : 0;
}

static tri_status choose_group(trii_layout_choice *c, trii_group *group)
{
    const trii_layout *have[TRII_GROUP_VALUES];
    trii_layouts want = {0};
    tri_status status = TRI_OK;

    if (group->kind == TRII_GROUP_VIEW || group->kind == TRII_GROUP_JOIN)
        return trii_views_choose(c, group);
    assert(group->kind != TRII_GROUP_TRANSFER || group->n_in == 1);
    if (group->kind == TRII_GROUP_TRANSFER && stays(c, group)) {
        leave_there(c, group);
        return TRI_OK;
    }
    for (int32_t i = 0; i < group->n_in; i++)
        have[i] = c->now[group->in[i]];
    for (int32_t o = 0; o < group->n_out; o++) {
        const trii_layout_place *place = &c->place[group->out[o]];

        group->out_layout[o] = place->chosen ? place->layout : NULL;
    }
    if (group->kind == TRII_GROUP_HOST)
        host_layouts(c, group, &want);
    else if (group->kind == TRII_GROUP_TRANSFER) /* moves memory as it is, if it is one piece */
        want.in[0] = want.out[0] =
            trii_is_strided(have[0]) || crosses(c->ir, group) ? NULL : have[0];
    else
        c->device->layouts(c->ir, group, have, &want);
    for (int32_t i = 0; status == TRI_OK && i < group->n_in; i++)
        status = trii_layout_fit_input(c, group, i, want.in[i], (want.adopt >> i & 1) != 0);
    for (int32_t o = 0; status == TRI_OK && o < group->n_out; o++)
        status = trii_layout_fit_output(c, group, o, want.out[o]);
    return status;
}

tri_status trii_ir_layouts(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                           const trii_device_ops *device, const trii_layout **adopt_out)
{
    trii_layout_choice c = {
        .ir = ir, .step = step, .segment = segment, .device = device, .adopt = adopt_out};
    int32_t n_groups = ir->n_groups;
    tri_status status = TRI_OK;

    do
        status = make_room(&c);
    while (status == TRI_OK && c.room < ir->n_values);
    for (int32_t v = 0; status == TRI_OK && v < ir->n_values; v++)
        c.now[v] = ir->values[v].input >= 0 ? ir->values[v].layout : NULL;
    if (status == TRI_OK)
        status = trii_views_place(&c);
    for (int32_t g = 0; status == TRI_OK && g < n_groups; g++)
        status = choose_group(&c, ir->groups[g]);
    trii_ir_sort_groups(ir);
    return status;
}

tri_status trii_ir_compile(trii_ir *ir, const trii_device_ops *device)
{
    tri_status status = TRI_OK;

    for (int32_t g = 0; status == TRI_OK && g < ir->n_groups; g++) {
        trii_group *group = ir->groups[g];

        if (group->n_out > 0)
            device->enter(ir->values[group->out[0]].type.device);
        if (group->kind == TRII_GROUP_REORDER)
            status = device->compile_reorder(&ir->values[group->in[0]].type, group->in_layout[0],
                                             group->out_layout[0], &group->kernel);
        else if (group->kind == TRII_GROUP_OP || group->kind == TRII_GROUP_CHAIN)
            status = device->compile(ir, group, &group->kernel);
    }
    return status;
}
