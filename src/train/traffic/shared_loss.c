/*
 * shared_loss.c - see shared_loss.h. Copies and own parts of a tensor that all ranks have are views
 * whose gradients communicate (graph/ops/own_part.h), sums and gathers are collectives whose
 * gradients do not: each is the other's gradient.
 */
#include "train/traffic/shared_loss.h"

#include "comm/group/join/world.h"
#include "train/graph/ops/own_part.h"
#include "train/graph/ops/rules.h"
#include "train/traffic/along.h"
#include "train/traffic/awaited.h"

/* One for each value; the step owns it. */
typedef struct shared {
    trii_host_op owned; /* first; never recorded */
    trii_part_gradient gradient;
    int dim;                            /* along which it was cut; -1: it was not */
    trii_awaited *awaited, of_gradient; /* the first is the second, also where all this is const */
} shared;

static tri_status record(const trii_part_gradient *gradient, trii_step *step, trii_vid g,
                         trii_vid *out)
{
    const shared *own =
        (const shared *)(const void *)((const char *)gradient - offsetof(shared, gradient));

    trii_await_no_more(own->awaited);
    return own->dim < 0 ? trii_record_reduce_from(step, gradient->group, g, out)
                        : trii_record_gather_along(step, gradient->group, trii_record_gather_from,
                                                   g, own->dim, out);
}

static void release(trii_host_op *owned)
{
    tri_group_unref(((shared *)(void *)owned)->gradient.group);
}

static tri_status shared_new(trii_step *step, tri_group *group, int dim,
                             const trii_part_gradient **gradient_out)
{
    static const trii_host_kind kind = {.name = "shared", .release = release};
    trii_host_op *owned = NULL;
    tri_status status = trii_host_op_new(step, &kind, sizeof(shared), &owned);
    shared *own = (shared *)(void *)owned;

    if (status != TRI_OK)
        return status;
    own->gradient = (trii_part_gradient){.record = record, .group = tri_group_ref(group)};
    own->dim = dim;
    own->awaited = &own->of_gradient;
    trii_await(step, own->awaited, group);
    *gradient_out = &own->gradient;
    return TRI_OK;
}

tri_status trii_record_copy_to(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    const trii_part_gradient *gradient = NULL;
    tri_status status = trii_group_resolve(&group, "copy_to");

    *out = x;
    if (status != TRI_OK || tri_group_size(group) == 1 || !step->values[x].requires_grad)
        return status;
    status = shared_new(step, group, -1, &gradient);
    return status == TRI_OK ? trii_rec_own_whole(step, x, gradient, out) : status;
}

tri_status trii_record_scatter_to(trii_step *step, tri_group *group, trii_vid x, int dim,
                                  trii_vid *out)
{
    const trii_part_gradient *gradient = NULL;
    int64_t n = 0;
    tri_status status = trii_group_resolve(&group, "scatter_to");

    if (status == TRI_OK)
        status = trii_divides(&step->values[x].type, dim, group, "scatter_to");
    if (status != TRI_OK)
        return status;
    n = step->values[x].type.shape[dim] / tri_group_size(group);
    *out = x;
    if (tri_group_size(group) == 1)
        return TRI_OK;
    status = shared_new(step, group, dim, &gradient);
    return status == TRI_OK
               ? trii_rec_own_part(step, x, dim, tri_group_rank(group) * n, n, gradient, out)
               : status;
}

tri_status trii_record_reduce_from(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    return trii_record_sum_by(step, group, x, trii_record_copy_to, out);
}

/* [size, ..] -> [..] */
static tri_status own_row(trii_step *step, tri_group *group, trii_vid g, trii_vid *out)
{
    const trii_type whole = *trii_type_of(step, g);
    tri_status status = trii_record_scatter_to(step, group, g, 0, out);

    return status == TRI_OK ? trii_rec_reshape(step, *out, whole.shape + 1, whole.ndim - 1, out)
                            : status;
}

tri_status trii_record_gather_from(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    return trii_record_gather_by(step, group, x, own_row, out);
}
