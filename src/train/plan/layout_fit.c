/*
 * layout_fit.c - gives a value the layout that a group wants: by a reorder, or for good if it is a
 * tensor. Called by layout.c for operands and results of kernels, and by views.c.
 */
#include "train/plan/layout_choice.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "train/graph/step/host_op.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

static void *grown(const trii_layout_choice *c, const void *old, int32_t room, size_t size)
{
    void *more = trii_pool_alloc(c->ir->pool, (size_t)room, size);

    if (more != NULL && c->room > 0)
        memcpy(more, old, (size_t)c->room * size);
    return more;
}

tri_status trii_layout_room(trii_layout_choice *c)
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
    trii_type copy_of_type = *type; /* it may lie in the array that grows */
    int32_t value = trii_ir_add_value(c->ir, &copy_of_type);

    if (value < 0)
        return TRI_ERR_NO_MEMORY;
    while (value >= c->room) {
        if (trii_layout_room(c) != TRI_OK)
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
    c->ir->values[from].n_readers++; /* so its kernel knows that somebody needs the value */
    group->n_in = group->n_out = 1;
    group->in[0] = from;
    group->out[0] = to;
    group->in_layout[0] = a;
    group->out_layout[0] = b;
    return TRI_OK;
}

/* Persistent state may change its layout for good, except where another group already reads it as
 * it is, or where padding would need more memory. */
static bool can_adopt(const trii_layout_choice *c, int32_t v, const trii_layout *want, bool wanted)
{
    const trii_ir_value *value = &c->ir->values[v];

    return value->input >= 0 && value->persistent && !value->stays_plain &&
           (wanted || value->updated) && c->now[v] == NULL && !c->used[v] &&
           !trii_is_strided(want) && want->bytes == trii_type_bytes(&value->type);
}

/* Where the reorder of operand i goes: right before the group. Communication starts when its last
 * operand is there, wherever it was recorded; so its operands are reordered where they are made,
 * and it need not wait for everything that was recorded before it. */
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

/* A tensor that has a layout keeps it: if the kernel makes another one, the result is reordered.
 * The same holds for a value that shall lie in another value but was not written there. */
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
