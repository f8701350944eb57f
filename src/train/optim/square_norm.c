/*
 * square_norm.c - the sum of the squares of many gradients, for clips by their norm and for
 * scalers. Of pieces (train/dist/placement.h) ranks exchange the sums of blocks, once for each
 * group: the bits are those of whole gradients, which are sums of the same blocks in the same order
 * (train/graph/ops/grad_norm.c). Of parameters that tri_parallelize has cut they exchange sums, and
 * of the stages of a pipeline the sums of each parameter.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit.h"
#include "train/graph/ops/grad_norm.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/type.h"
#include "train/optim/optimizer.h"
#include "train/traffic/traffic.h"

static tri_device device_of(const trii_step *step, trii_vid value)
{
    return step->values[value].type.device;
}

/* square_sum or square_blocks of n gradients (some of which may be NO_VALUE), in their order;
 * NO_VALUE if there are none. The result goes from device to device, so its bits are those of one
 * device. */
static tri_status chain(trii_step *step, const trii_graph_op *op, const trii_vid *grads, int n,
                        trii_vid *total_out)
{
    trii_attrs attrs;
    int at = 0;

    attrs.n_i = 1;
    attrs.n_f = 0;
    *total_out = TRII_NO_VALUE;
    while (at < n) {
        trii_vid in[TRII_MAX_INPUTS], first = TRII_NO_VALUE;
        int n_in = 0;
        tri_status status = TRI_OK;

        attrs.i[0] = *total_out != TRII_NO_VALUE;
        n_in += (int)attrs.i[0];
        for (; at < n && n_in < TRII_MAX_INPUTS; at++) {
            if (grads[at] == TRII_NO_VALUE)
                continue;
            if (first != TRII_NO_VALUE && device_of(step, grads[at]) != device_of(step, first))
                break;
            first = first != TRII_NO_VALUE ? first : grads[at];
            in[n_in++] = grads[at];
        }
        if (first == TRII_NO_VALUE)
            return TRI_OK;
        if (attrs.i[0] != 0)
            status = trii_record_to(step, *total_out, device_of(step, first), &in[0]);
        if (status == TRI_OK)
            status = trii_record_values(step, op, in, n_in, &attrs, total_out);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

tri_status trii_optim_square_sum(trii_step *step, const trii_vid *grads, int n, trii_vid *total_out)
{
    return chain(step, &trii_op_square_sum, grads, n, total_out);
}

/* --- of pieces ------------------------------------------------------------ */

/* The groups over whose ranks the gradients are divided, in the order in which they exchange sums:
 * that of each group's oldest unit, which is the same on all ranks. */
typedef struct sharing {
    tri_group *group;
    trii_unit *unit;
    int64_t blocks; /* of gradients that are divided over it */
    int64_t first;  /* of them, among those of all groups */
} sharing;

typedef struct groups {
    sharing *list; /* [gradients]; NULL: all are whole here */
    trii_vid *all; /* [gradients]: what the ranks of each group have */
    int n;
} groups;

static int64_t blocks_in(int64_t elements)
{
    return (elements + TRII_PIECE_BLOCK - 1) / TRII_PIECE_BLOCK;
}

/* NULL: it is whole here. */
static trii_unit *divided_over(const tri_tensor *param)
{
    trii_unit *unit = trii_unit_of(param);

    return unit != NULL && param->placed->piece != NULL && unit->size > 1 ? unit : NULL;
}

static void note_group(groups *g, trii_unit *unit)
{
    int at = 0;

    for (; at < g->n && g->list[at].group != trii_unit_axis(unit); at++)
        ;
    if (at == g->n)
        g->list[g->n++] = (sharing){.group = trii_unit_axis(unit), .unit = unit};
    if (unit->id < g->list[at].unit->id)
        g->list[at].unit = unit;
}

static tri_status find_groups(groups *g, tri_tensor *const *params, const trii_vid *grads, int n)
{
    int first = 0;

    for (; first < n; first++)
        if (grads[first] != TRII_NO_VALUE && TRII_UNLIKELY(divided_over(params[first]) != NULL))
            break;
    if (TRII_LIKELY(first == n))
        return TRI_OK;
    g->list = trii_alloc((size_t)n, sizeof(*g->list), "groups of a norm");
    g->all = trii_alloc((size_t)n, sizeof(*g->all), "groups of a norm");
    if (g->list == NULL || g->all == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = first; i < n; i++)
        if (grads[i] != TRII_NO_VALUE && divided_over(params[i]) != NULL)
            note_group(g, divided_over(params[i]));
    for (int a = 1; a < g->n; a++)
        for (int b = a; b > 0 && g->list[b].unit->id < g->list[b - 1].unit->id; b--) {
            sharing later = g->list[b - 1];

            g->list[b - 1] = g->list[b];
            g->list[b] = later;
        }
    return TRI_OK;
}

/* From 1 on; 0: it is whole here. */
static int group_of(const groups *g, const tri_tensor *param)
{
    const trii_unit *unit = divided_over(param);
    int at = 0;

    for (; unit != NULL && g->list[at].group != trii_unit_axis(unit); at++)
        ;
    return unit != NULL ? at + 1 : 0;
}

/* Where the groups' blocks are, one group's after the other's. */
static void lay_out(groups *g, tri_tensor *const *params, const trii_vid *grads, int n)
{
    for (int i = 0; i < n; i++) {
        int group = grads[i] != TRII_NO_VALUE ? group_of(g, params[i]) : 0;

        if (group > 0)
            g->list[group - 1].blocks += blocks_in(tri_tensor_numel(params[i]));
    }
    for (int k = 1; k < g->n; k++)
        g->list[k].first = g->list[k - 1].first + g->list[k - 1].blocks;
}

/* The table of square_spread, square_total and square_each, as a value. */
static tri_status make_table(trii_step *step, groups *g, tri_tensor *const *params,
                             const trii_vid *grads, int n, trii_vid *table_out)
{
    int64_t shape[2] = {0, TRII_SQUARE_COLUMNS}, *row;
    tri_tensor *table = NULL;
    tri_status status;

    for (int i = 0; i < n; i++)
        shape[0] += grads[i] != TRII_NO_VALUE;
    status = trii_tensor_create(TRI_DTYPE_I64, shape, 2, TRI_CPU(0), &table);
    if (status != TRI_OK)
        return status;
    lay_out(g, params, grads, n);
    row = trii_tensor_data(table);
    for (int i = 0; i < n; i++) {
        int group = grads[i] != TRII_NO_VALUE ? group_of(g, params[i]) : 0;

        if (grads[i] == TRII_NO_VALUE)
            continue;
        row[TRII_SQUARE_GROUP] = group;
        row[TRII_SQUARE_BLOCKS] = blocks_in(tri_tensor_numel(params[i]));
        row[TRII_SQUARE_OWN] = blocks_in(tri_tensor_numel(trii_home(params[i])));
        if (params[i]->staged != NULL)
            row[TRII_SQUARE_PLACE] = params[i]->staged->place;
        if (group > 0) {
            row[TRII_SQUARE_START] = blocks_in(params[i]->placed->start);
            row[TRII_SQUARE_FROM] = g->list[group - 1].first;
            g->list[group - 1].first += row[TRII_SQUARE_BLOCKS];
        }
        row += TRII_SQUARE_COLUMNS;
    }
    status = trii_resolve(step, table, table_out);
    tri_tensor_unref(table); /* the step has it */
    return status;
}

/* What all ranks of the group have. */
static tri_status exchange(trii_step *step, const groups *g, int k, const trii_vid own_table[2],
                           trii_vid *all_out)
{
    const trii_attrs attrs = {.n_i = 2, .i = {k + 1, g->list[k].blocks}};
    trii_vid spread;
    tri_status status =
        trii_record_values(step, &trii_op_square_spread, own_table, 2, &attrs, &spread);

    if (status == TRI_OK)
        status = trii_record_all_reduce(step, g->list[k].group, spread, TRI_REDOP_SUM, all_out);
    if (status == TRI_OK)
        g->list[k].unit->volume.norm += g->list[k].blocks;
    if (status == TRI_OK)
        trii_traffic_is_for(step, *all_out, "norm of gradients that are divided");
    return status;
}

/* What the ranks of all groups have, one group's after the other's. */
static tri_status exchange_all(trii_step *step, const groups *g, const trii_vid own_table[2],
                               trii_vid *all_out)
{
    tri_status status = TRI_OK;

    for (int k = 0; k < g->n && status == TRI_OK; k++)
        status = exchange(step, g, k, own_table, &g->all[k]);
    *all_out = g->all[0];
    return status == TRI_OK && g->n > 1 ? trii_rec_concat(step, g->all, g->n, 0, all_out) : status;
}

static tri_status sum_over(trii_step *step, groups *g, tri_tensor *const *params,
                           const trii_vid *grads, int n, trii_vid *total_out)
{
    trii_vid in[3];
    tri_status status = chain(step, &trii_op_square_blocks, grads, n, &in[0]);

    if (status == TRI_OK)
        status = trii_record_to(step, in[0], TRI_CPU(0), &in[0]);
    if (status == TRI_OK)
        status = make_table(step, g, params, grads, n, &in[1]);
    if (status == TRI_OK)
        status = exchange_all(step, g, in, &in[2]);
    return status == TRI_OK
               ? trii_record_values(step, &trii_op_square_total, in, 3, NULL, total_out)
               : status;
}

static tri_status sum_of_homes(trii_step *step, tri_tensor *const *params, const trii_vid *grads,
                               int n, trii_vid *total_out)
{
    groups g = {0};
    tri_status status = find_groups(&g, params, grads, n);

    if (status == TRI_OK)
        status = g.n == 0 ? trii_optim_square_sum(step, grads, n, total_out)
                          : sum_over(step, &g, params, grads, n, total_out);
    trii_free(g.list);
    trii_free(g.all);
    return status;
}

/* --- of parameters that are cut ------------------------------------------- */

/* The group over whose ranks the parameter is cut (tri_parallelize); NULL: it is not. What is
 * divided over a unit is put together above. */
static tri_group *cut_over(const tri_tensor *param)
{
    return trii_tensor_is_cut(param) ? param->held->group : NULL;
}

/* Copies of what another rank has, too, are counted there. */
static bool is_counted(const tri_tensor *param)
{
    return !trii_tensor_is_cut(param) || !param->held->is_copy;
}

/* Sums over nothing: of copies alone, or on a rank that has no gradients. */
static tri_status no_sums(trii_step *step, const trii_type *type, trii_vid *out)
{
    trii_attrs attrs;

    trii_fill_attrs(type, 0, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, out);
}

/* Adds what the ranks of a group have of the gradients that are cut over it, which are in `some`.
 */
static tri_status add_cut(trii_step *step, tri_group *group, tri_tensor *const *params,
                          const trii_vid *some, int n, trii_vid *total_io)
{
    static const trii_type number = {.dtype = TRI_DTYPE_F64};
    trii_vid in[2] = {TRII_NO_VALUE, *total_io};
    tri_status status = sum_of_homes(step, params, some, n, &in[0]);

    if (status == TRI_OK && in[0] == TRII_NO_VALUE)
        status = no_sums(step, &number, &in[0]);
    if (status == TRI_OK)
        status = trii_record_to(step, in[0], TRI_CPU(0), &in[0]);
    if (status == TRI_OK)
        status = trii_record_all_reduce(step, group, in[0], TRI_REDOP_SUM, &in[0]);
    if (status == TRI_OK)
        trii_traffic_is_for(step, in[0], "norm of gradients of parameters that are cut");
    *total_io = in[0];
    if (status != TRI_OK || in[1] == TRII_NO_VALUE)
        return status;
    status = trii_record_to(step, in[1], TRI_CPU(0), &in[1]);
    return status == TRI_OK ? trii_record_values(step, &trii_op_add, in, 2, NULL, total_io)
                            : status;
}

/* All gradients: those that every rank has count once, of others the parts of all ranks. The bits
 * are the same on all ranks. */
static tri_status sum_with_cut(trii_step *step, tri_tensor *const *params, const trii_vid *grads,
                               int n, trii_vid *total_out)
{
    trii_vid *some = trii_alloc((size_t)n, sizeof(*some), "gradients of a norm");
    bool *done = trii_alloc((size_t)n, sizeof(*done), "gradients of a norm");
    tri_status status = some != NULL && done != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int i = 0; i < n && status == TRI_OK; i++)
        some[i] = cut_over(params[i]) == NULL ? grads[i] : TRII_NO_VALUE;
    if (status == TRI_OK)
        status = sum_of_homes(step, params, some, n, total_out);
    for (int first = 0; first < n && status == TRI_OK; first++) {
        tri_group *group = cut_over(params[first]);

        if (group == NULL || done[first] || grads[first] == TRII_NO_VALUE)
            continue;
        for (int i = 0; i < n; i++) {
            some[i] =
                cut_over(params[i]) == group && is_counted(params[i]) ? grads[i] : TRII_NO_VALUE;
            done[i] = done[i] || cut_over(params[i]) == group;
        }
        status = add_cut(step, group, params, some, n, total_out);
    }
    trii_free(some);
    trii_free(done);
    return status;
}

/* --- of stages ------------------------------------------------------------ */

/* The sum over each gradient, in its place among those of the whole network; zeros elsewhere. */
static tri_status each_of_homes(trii_step *step, const trii_stages *stages,
                                tri_tensor *const *params, const trii_vid *grads, int n,
                                trii_vid *each_out)
{
    const trii_attrs attrs = {.n_i = 1, .i = {stages->count}};
    groups g = {0};
    trii_vid in[3];
    int n_in = 2;
    tri_status status = find_groups(&g, params, grads, n);

    if (status == TRI_OK)
        status = chain(step, &trii_op_square_blocks, grads, n, &in[0]);
    if (status == TRI_OK)
        status = trii_record_to(step, in[0], TRI_CPU(0), &in[0]);
    if (status == TRI_OK)
        status = make_table(step, &g, params, grads, n, &in[1]);
    if (status == TRI_OK && g.n > 0) {
        status = exchange_all(step, &g, in, &in[2]);
        n_in = 3;
    }
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_square_each, in, n_in, &attrs, each_out);
    trii_free(g.list);
    trii_free(g.all);
    return status;
}

static trii_type type_of_each(const trii_stages *stages)
{
    return (trii_type){.dtype = TRI_DTYPE_F64, .ndim = 1, .shape = {stages->count}};
}

static bool has_some(const trii_vid *grads, int n)
{
    int i = 0;

    while (i < n && grads[i] == TRII_NO_VALUE)
        i++;
    return i < n;
}

/* Adds those of the parameters that are cut over this group (NULL: that are not), of which `some`
 * are the gradients. */
static tri_status add_each(trii_step *step, const trii_stages *stages, tri_group *group,
                           tri_tensor *const *params, const trii_vid *some, int n, trii_vid *io)
{
    const trii_type type = type_of_each(stages);
    trii_vid in[2] = {TRII_NO_VALUE, *io};
    tri_status status = has_some(some, n) ? each_of_homes(step, stages, params, some, n, &in[0])
                                          : no_sums(step, &type, &in[0]);

    if (status == TRI_OK && group != NULL)
        status = trii_record_all_reduce(step, group, in[0], TRI_REDOP_SUM, &in[0]);
    if (status == TRI_OK && group != NULL)
        trii_traffic_is_for(step, in[0], "norm of gradients of parameters that are cut");
    if (status != TRI_OK || in[1] == TRII_NO_VALUE) {
        *io = in[0];
        return status;
    }
    return trii_record_values(step, &trii_op_add, in, 2, NULL, io);
}

static tri_status check_staged(const trii_stages *stages, tri_tensor *const *params,
                               const trii_vid *grads, int n)
{
    for (int i = 0; i < n; i++)
        if (grads[i] != TRII_NO_VALUE &&
            (params[i]->staged == NULL || params[i]->staged->of != stages))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "parameter %d is in no stage of the pipeline that has others, or that "
                             "is gone: a norm is over one pipeline alone",
                             i);
    return TRI_OK;
}

/* All ranks get the sum over all stages, with the bits that one process gets if nothing is cut:
 * parameter by parameter in the order of the whole network. */
static tri_status sum_of_stages(trii_step *step, const trii_stages *stages,
                                tri_tensor *const *params, const trii_vid *grads, int n,
                                trii_vid *total_out)
{
    const trii_type type = type_of_each(stages);
    trii_vid *some = trii_alloc((size_t)n + 1, sizeof(*some), "gradients of a norm"), each;
    bool *done = trii_alloc((size_t)n + 1, sizeof(*done), "gradients of a norm");
    tri_status status = check_staged(stages, params, grads, n);

    if (status == TRI_OK && (some == NULL || done == NULL))
        status = TRI_ERR_NO_MEMORY;
    each = TRII_NO_VALUE;
    for (int first = 0; first < n && status == TRI_OK; first++) {
        tri_group *group = cut_over(params[first]);

        if (done[first] || grads[first] == TRII_NO_VALUE || params[first]->staged->is_copy)
            continue;
        for (int i = 0; i < n; i++) {
            some[i] = cut_over(params[i]) == group && grads[i] != TRII_NO_VALUE &&
                              !params[i]->staged->is_copy && is_counted(params[i])
                          ? grads[i]
                          : TRII_NO_VALUE;
            done[i] = done[i] || cut_over(params[i]) == group;
        }
        status = add_each(step, stages, group, params, some, n, &each);
    }
    trii_free(some);
    trii_free(done);
    if (status == TRI_OK && each == TRII_NO_VALUE)
        status = no_sums(step, &type, &each);
    if (status == TRI_OK)
        status = trii_record_all_reduce(step, stages->group, each, TRI_REDOP_SUM, &each);
    if (status != TRI_OK)
        return status;
    trii_traffic_is_for(step, each, "norm of gradients of all stages");
    return trii_record_values(step, &trii_op_sum_in_order, &each, 1, NULL, total_out);
}

tri_status trii_home_square_sum(trii_step *step, const trii_stages *stages,
                                tri_tensor *const *params, const trii_vid *grads, int n,
                                trii_vid *total_out)
{
    if (TRII_UNLIKELY(stages != NULL))
        return sum_of_stages(step, stages, params, grads, n, total_out);
    for (int i = 0; i < n; i++) {
        if (TRII_UNLIKELY(grads[i] != TRII_NO_VALUE && cut_over(params[i]) != NULL))
            return sum_with_cut(step, params, grads, n, total_out);
    }
    return sum_of_homes(step, params, grads, n, total_out);
}
