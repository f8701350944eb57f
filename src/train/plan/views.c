/*
 * views.c - values that share memory with other values: a view reads its input's memory in place,
 * and the operands of a join (concat) are written in place. Called by layout.c for groups of these
 * kinds, and by train/device/cpu/flash_tiles.c, which asks where a view would have its result.
 *
 * A view's outputs get the memory of its input, an offset, and a strided layout (or the plain one,
 * if the elements lie that way). Each reader says whether it takes that; if not, the plan copies
 * once, for all readers. Outputs of the plan are plain.
 *
 * Joins are resolved from the back: a value that only the join reads, straight or through views, is
 * written where it will be a part of the joined one, by its kernel if that can, otherwise by a
 * copy. Operands that cannot be placed like this are copied into the join.
 */
#include "train/plan/layout_choice.h"

#include <assert.h>

#include "base/dtype.h"

typedef struct strided {
    trii_layout base;
    int64_t stride[TRI_MAX_DIMS];
    int ndim;
    struct strided *next;
} strided;

typedef struct trii_strided_list {
    strided *first;
} strided_list;

tri_status trii_ir_strided(const trii_ir *ir, const trii_type *type, const int64_t *stride,
                           const trii_layout **layout_out)
{
    int64_t own[TRI_MAX_DIMS] = {0}, step = 1;
    strided *s;

    *layout_out = NULL;
    if (trii_strides_are_plain(type, stride))
        return TRI_OK;
    for (int d = type->ndim - 1; d >= 0; d--) {
        own[d] = type->shape[d] == 1 ? step : stride[d];
        step = own[d] * type->shape[d];
    }
    for (s = ir->strided->first; s != NULL; s = s->next) {
        if (s->ndim == type->ndim && s->base.bytes == trii_type_bytes(type) &&
            memcmp(s->stride, own, sizeof(own)) == 0)
            break;
    }
    if (s == NULL) {
        s = trii_pool_alloc(ir->pool, 1, sizeof(*s));
        if (s == NULL)
            return TRI_ERR_NO_MEMORY;
        memcpy(s->stride, own, sizeof(own));
        s->ndim = type->ndim;
        s->base =
            (trii_layout){.name = "strided", .bytes = trii_type_bytes(type), .strides = s->stride};
        s->next = ir->strided->first;
        ir->strided->first = s;
    }
    *layout_out = &s->base;
    return TRI_OK;
}

/* Where the elements of a plain or strided value lie within its base. */
static void strides_of(const trii_layout_choice *c, int32_t v, trii_strides *strides)
{
    const trii_ir_value *value = &c->ir->values[v];

    trii_strides_plain(&value->type, strides);
    if (trii_is_strided(c->now[v]))
        memcpy(strides->stride, c->now[v]->strides,
               (size_t)value->type.ndim * sizeof(strides->stride[0]));
    if (value->base >= 0)
        strides->offset = value->offset / (int64_t)tri_dtype_size(value->type.dtype);
}

/* A value without elements begins where its base does. */
static int64_t offset_bytes(const trii_type *type, const trii_strides *strides)
{
    return trii_type_numel(type) == 0 ? 0 : strides->offset * (int64_t)tri_dtype_size(type->dtype);
}

/* --- joins, from the end -------------------------------------------------- */

static tri_status set_place(trii_layout_choice *c, int32_t v, int32_t base, const trii_strides *at)
{
    const trii_type *type = &c->ir->values[v].type;
    trii_layout_place *place = &c->place[v];

    place->chosen = true;
    place->base = base;
    place->offset = offset_bytes(type, at);
    return trii_ir_strided(c->ir, type, at->stride, &place->layout);
}

/* The value is to be written at `at` of `base`, if it may lie anywhere at all and some kernel
 * writes it. */
static tri_status claim(trii_layout_choice *c, int32_t v, int32_t base, const trii_strides *at,
                        bool *claimed_out)
{
    const trii_ir_value *value = &c->ir->values[v];
    const trii_group *group = value->group >= 0 ? c->ir->groups[value->group] : NULL;
    tri_status status = TRI_OK;

    *claimed_out = false;
    if (group == NULL || value->input >= 0 || value->output >= 0 || value->n_readers != 1 ||
        c->place[v].chosen || group->kind == TRII_GROUP_HOST || group->kind == TRII_GROUP_TRANSFER)
        return TRI_OK;
    *claimed_out = true;
    if (group->kind == TRII_GROUP_VIEW) {
        const trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
        const trii_type *in = &c->ir->values[node->in[0]].type;
        trii_strides inner;

        *claimed_out = node->op->view_from != NULL &&
                       node->op->view_from(in, &value->type, node->iattr, at, &inner);
        if (*claimed_out)
            status = claim(c, node->in[0], base, &inner, claimed_out);
    }
    return *claimed_out && status == TRI_OK ? set_place(c, v, base, at) : status;
}

/* A joined value that has changed to a layout of the device's is made plain first. */
static tri_status plain_whole(trii_layout_choice *c, trii_group *group)
{
    int32_t whole = group->out[0], made;
    tri_status status;

    if (!c->ir->values[whole].bound || c->ir->values[whole].layout == NULL)
        return TRI_OK;
    c->now[whole] = c->ir->values[whole].layout;
    status = trii_layout_value(c, &c->ir->values[whole].type, NULL, &made);
    if (status != TRI_OK)
        return status;
    trii_layout_replace(c->ir, group, whole, made, true);
    group->out[0] = made;
    c->ir->values[made].node = c->ir->values[whole].node;
    return trii_layout_reorder(c, made, whole, group->position + 1);
}

/* Where the joined value lies, and in whose memory. */
static int32_t whole_of(const trii_layout_choice *c, const trii_group *group, trii_strides *at)
{
    int32_t whole = group->out[0];
    const trii_type *type = &c->ir->values[whole].type;
    const trii_layout_place *place = &c->place[whole];

    trii_strides_plain(type, at);
    if (!place->chosen)
        return whole;
    at->offset = place->offset / (int64_t)tri_dtype_size(type->dtype);
    if (place->layout != NULL)
        memcpy(at->stride, place->layout->strides, (size_t)type->ndim * sizeof(at->stride[0]));
    return place->base;
}

tri_status trii_views_place(trii_layout_choice *c)
{
    tri_status status = TRI_OK;

    c->ir->strided = trii_pool_alloc(c->ir->pool, 1, sizeof(*c->ir->strided));
    if (c->ir->strided == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t g = c->ir->n_groups - 1; g >= 0 && status == TRI_OK; g--) {
        trii_group *group = c->ir->groups[g];
        const trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
        trii_strides at, part;
        int32_t base;
        bool claimed;

        if (group->kind != TRII_GROUP_JOIN)
            continue;
        status = plain_whole(c, group);
        base = whole_of(c, group, &at);
        for (int32_t i = 0; i < node->n_in && status == TRI_OK; i++) {
            int32_t v = node->in[i];

            node->op->view(&c->ir->values[group->out[0]].type, &c->ir->values[v].type, node->iattr,
                           i, &at, &part);
            status = claim(c, v, base, &part, &claimed);
        }
    }
    return status;
}

/* --- in their turn -------------------------------------------------------- */

static tri_status join(trii_layout_choice *c, trii_group *group)
{
    trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
    int32_t whole = group->out[0], base;
    trii_strides at, part;
    tri_status status = TRI_OK;

    base = whole_of(c, group, &at);
    c->now[whole] = group->out_layout[0] = c->place[whole].chosen ? c->place[whole].layout : NULL;
    if (c->place[whole].chosen) {
        c->ir->values[whole].base = base;
        c->ir->values[whole].offset = c->place[whole].offset;
    }
    group->n_in = node->n_in;
    for (int32_t i = 0; i < node->n_in && status == TRI_OK; i++) {
        int32_t v = node->in[i], made = v;

        if (!c->place[v].chosen) {
            const trii_type type = c->ir->values[v].type;
            const trii_layout *layout = NULL;

            node->op->view(&c->ir->values[whole].type, &type, node->iattr, i, &at, &part);
            status = trii_ir_strided(c->ir, &type, part.stride, &layout);
            if (status == TRI_OK)
                status = trii_layout_value(c, &type, layout, &made);
            if (status != TRI_OK)
                return status;
            c->ir->values[made].base = base;
            c->ir->values[made].offset = offset_bytes(&type, &part);
            c->used[v] = true;
            if (trii_type_numel(&type) > 0)
                status = trii_layout_reorder(c, v, made, group->position - 1 - i);
        }
        node->in[i] = group->in[i] = made;
        group->in_layout[i] = c->now[made];
    }
    return status;
}

/* Output o of the view lies at `at` of the memory of input v; an output of the plan is copied. */
static tri_status view_output(trii_layout_choice *c, trii_group *group, int32_t o, int32_t v,
                              const trii_strides *at)
{
    int32_t out = group->out[o], made = out;
    const trii_type type = c->ir->values[out].type;
    bool leaves = c->ir->values[out].output >= 0;
    const trii_layout *layout = NULL;
    tri_status status = trii_ir_strided(c->ir, &type, at->stride, &layout);

    if (status == TRI_OK && leaves)
        status = trii_layout_value(c, &type, layout, &made);
    if (status != TRI_OK)
        return status;
    c->now[made] = group->out_layout[o] = layout;
    c->ir->values[made].base = c->ir->values[v].base >= 0 ? c->ir->values[v].base : v;
    c->ir->values[made].offset = offset_bytes(&type, at);
    if (!leaves)
        return TRI_OK;
    c->now[out] = c->ir->values[out].bound ? c->ir->values[out].layout : NULL;
    trii_layout_replace(c->ir, group, out, made, true);
    group->out[o] = made;
    c->ir->values[made].node = c->ir->values[out].node;
    return trii_layout_reorder(c, made, out, group->position + 1 + o);
}

/* Where every output lies; false: no strides can say it. */
static bool find_outputs(const trii_layout_choice *c, const trii_group *group, trii_strides *at)
{
    const trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
    const trii_type *in = &c->ir->values[node->in[0]].type;
    trii_strides from;

    strides_of(c, node->in[0], &from);
    for (int32_t o = 0; o < group->n_out; o++) {
        if (!node->op->view(in, &c->ir->values[node->out[o]].type, node->iattr, o, &from, &at[o]))
            return false;
    }
    return true;
}

/* The output has the same bytes as a value that lies in plain order in memory of its own. */
static bool is_the_same(const trii_layout_choice *c, const trii_group *group,
                        const trii_strides *at)
{
    const trii_ir_value *in = &c->ir->values[group->in[0]], *out = &c->ir->values[group->out[0]];

    return group->n_out == 1 && c->now[group->in[0]] == NULL && in->base < 0 && at->offset == 0 &&
           trii_type_numel(&in->type) == trii_type_numel(&out->type) &&
           trii_strides_are_plain(&out->type, at->stride);
}

static tri_status view(trii_layout_choice *c, trii_group *group)
{
    const trii_ir_node *node = &c->ir->nodes[group->nodes[0]];
    trii_strides at[TRII_MAX_OUTPUTS];
    tri_status status = TRI_OK;
    int32_t out = group->out[0];

    assert(node->n_out == group->n_out && group->n_out > 0);
    if (c->place[out].chosen) { /* written in its final place */
        c->used[group->in[0]] = true;
        group->in_layout[0] = c->now[group->in[0]];
        c->now[out] = group->out_layout[0] = c->place[out].layout;
        c->ir->values[out].base = c->place[out].base;
        c->ir->values[out].offset = c->place[out].offset;
        return TRI_OK;
    }
    if ((c->now[group->in[0]] != NULL && !trii_is_strided(c->now[group->in[0]])) ||
        !find_outputs(c, group, at)) {
        status = trii_layout_fit_input(c, group, 0, NULL, false);
        if (status != TRI_OK)
            return status;
        (void)find_outputs(c, group, at); /* a plain value has every view */
    }
    c->used[group->in[0]] = true;
    group->in_layout[0] = c->now[group->in[0]];
    if (is_the_same(c, group, at))
        return trii_layout_fit_output(c, group, 0, NULL);
    for (int32_t o = 0; o < node->n_out && status == TRI_OK; o++)
        status = view_output(c, group, o, group->in[0], &at[o]);
    return status;
}

tri_status trii_views_choose(trii_layout_choice *c, trii_group *group)
{
    return group->kind == TRII_GROUP_JOIN ? join(c, group) : view(c, group);
}
