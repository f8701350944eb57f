/*
 * layout.c - the pass that decides in which order each value's elements lie. Called by plan.c after
 * fusion; asks the device for each group (trii_device_ops.layouts), calls views.c for groups that
 * are views or joins and layout_fit.c for what does not fit.
 *
 * Groups are asked in the order in which they run; their results keep the layout that they prefer,
 * so a convolution's blocked output stays blocked through normalisation, ReLU, addition and
 * pooling. A reorder is inserted only where a reader wants something else; weights and other
 * persistent state change to the wanted layout for good.
 */
#include <assert.h>

#include "train/graph/step/host_op.h"
#include "train/plan/layout_choice.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

/* Operand k in the layout of the tensor that result k is bound to, on which all ranks agreed.
 * Everything else is plain, since another rank may have chosen another layout. */
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

/* Between kinds of devices: neither knows the other's layouts. */
static bool crosses(const trii_ir *ir, const trii_group *group)
{
    return trii_device_kind_of(ir->values[group->in[0]].type.device) !=
           trii_device_kind_of(ir->values[group->out[0]].type.device);
}

/* All cpu devices use the host's memory: a value that goes from one to another stays where it is,
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
    /* copies the memory as it is, if it is one piece */
    else if (group->kind == TRII_GROUP_TRANSFER)
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
        status = trii_layout_room(&c);
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

tri_status trii_ir_compile(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                           const trii_device_ops *device)
{
    tri_status status = TRI_OK;

    for (int32_t g = 0; status == TRI_OK && g < ir->n_groups; g++) {
        trii_group *group = ir->groups[g];

        if (group->kind == TRII_GROUP_REORDER || group->kind == TRII_GROUP_OP ||
            group->kind == TRII_GROUP_CHAIN)
            status = device->compile(trii_group_device(ir, group), ir, group, &group->kernel);
        if (status != TRI_OK && group->n_nodes > 0)
            status = trii_node_failed(step, segment->first_node + ir->nodes[group->nodes[0]].source,
                                      status);
    }
    return status;
}
