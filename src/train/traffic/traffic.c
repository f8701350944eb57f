/*
 * traffic.c - see traffic.h: what all operations have, and the collectives.
 */
#include "train/traffic/traffic.h"

#include "base/dtype.h"
#include "base/err.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/type.h"
#include "train/traffic/traffic_op.h"

/* --- while it runs -------------------------------------------------------- */

static tri_status named(const trii_traffic *t, tri_status status)
{
    return status != TRI_OK && t->what != NULL ? TRII_FAIL_CTX(status, "%s", t->what) : status;
}

/* A receive takes what is shorter, too; a value has as many elements as its type says. */
static tri_status check_length(const trii_traffic *t)
{
    if (tri_work_count(t->work) == t->count)
        return TRI_OK;
    (void)TRII_FAIL(TRI_ERR_MISMATCH,
                    "recv(%zu %s, rank %d, tag %d): a message of %zu came; sender and receiver "
                    "must have one shape",
                    t->count, tri_dtype_name(t->dtype), t->peer,
                    t->tag & ~TRII_TRAFFIC_GRADIENT_TAG, tri_work_count(t->work));
    return TRI_ERR_MISMATCH;
}

static tri_status ended(trii_traffic *t, tri_status status)
{
    char unmet[512] = "";

    if (status == TRI_INPROGRESS)
        return status;
    if (status == TRI_ERR_GROUP_TIMEOUT && t->compared)
        trii_group_name_unmet(t->group, unmet, sizeof(unmet));
    if (status != TRI_OK)
        status = TRII_FAIL(status, "%s%s", tri_work_error(t->work), unmet);
    else if (t->receives)
        status = check_length(t);
    status = named(t, status);
    tri_work_destroy(t->work);
    t->work = NULL;
    t->is_over = status == TRI_OK;
    return status;
}

tri_status trii_traffic_poll(trii_host_op *op)
{
    trii_traffic *t = (trii_traffic *)op;

    return t->work != NULL ? ended(t, trii_work_poll(t->work)) : TRI_OK;
}

tri_status trii_traffic_wait(trii_host_op *op, int64_t for_ns)
{
    trii_traffic *t = (trii_traffic *)op;

    return t->work != NULL ? ended(t, trii_work_wait_for(t->work, for_ns)) : TRI_OK;
}

void trii_traffic_abort(trii_host_op *op, const char *why)
{
    trii_traffic *t = (trii_traffic *)op;

    if (!t->is_over)
        tri_group_abort(t->group, why);
}

void trii_traffic_release(trii_host_op *op)
{
    trii_traffic *t = (trii_traffic *)op;

    tri_work_destroy(t->work);
    tri_group_unref(t->group);
}

static tri_status compare(trii_host_op *op, const char *what, const char *where)
{
    return trii_group_compare_order(((trii_traffic *)op)->group, what, where);
}

/* Ranks have as many rows as they like. */
static tri_status compare_rows(trii_host_op *op, const char *what, const char *where)
{
    const trii_traffic *t = (const trii_traffic *)op;
    char rows[64];

    (void)what;
    (void)snprintf(rows, sizeof(rows), "%s(%s, rows of %zu)", op->kind->name,
                   tri_dtype_name(t->dtype), t->count);
    return trii_group_compare_order(t->group, rows, where);
}

trii_traffic *trii_traffic_begin(trii_host_op *op)
{
    trii_traffic *t = (trii_traffic *)op;

    if (t->site.file != NULL)
        tri_site_set(t->site.file, t->site.line);
    return t;
}

static tri_status all_reduce_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return named(
        t, (tri_all_reduce)(t->group, b->in[0], b->out[0], t->count, t->dtype, t->redop, &t->work));
}

static tri_status all_gather_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return named(t, (tri_all_gather)(t->group, b->in[0], b->out[0], t->count, t->dtype, &t->work));
}

static tri_status reduce_scatter_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return (tri_reduce_scatter)(t->group, b->in[0], b->out[0], t->count, t->dtype, t->redop,
                                &t->work);
}

static tri_status all_to_all_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return (tri_all_to_all)(t->group, b->in[0], b->out[0], t->count, t->dtype, &t->work);
}

static tri_status all_to_all_v_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return (tri_all_to_all_v)(t->group, b->in[0], t->elements, b->out[0],
                              t->elements + tri_group_size(t->group), t->dtype, &t->work);
}

static tri_status broadcast_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    if (tri_group_rank(t->group) == t->peer && b->out[0] != b->in[0] && t->count > 0)
        memcpy(b->out[0], b->in[0], t->count * tri_dtype_size(t->dtype));
    return (tri_broadcast)(t->group, b->out[0], t->count, t->dtype, t->peer, &t->work);
}

/* Elsewhere than at the root it gives zeros. */
static tri_status reduce_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    if (tri_group_rank(t->group) != t->peer && t->count > 0)
        memset(b->out[0], 0, t->count * tri_dtype_size(t->dtype));
    return (tri_reduce)(t->group, b->in[0], b->out[0], t->count, t->dtype, t->redop, t->peer,
                        &t->work);
}

static tri_group *mixes(const trii_host_op *op)
{
    return ((const trii_traffic *)op)->group;
}

/* --- gradients ------------------------------------------------------------ */

const trii_traffic *trii_traffic_differentiated(const trii_node *node)
{
    trii_traffic *t = (trii_traffic *)node->host;

    trii_await_no_more(&t->awaited);
    return t;
}

static tri_status has_gradient(const trii_traffic *t)
{
    if (t->redop == TRI_REDOP_SUM || t->redop == TRI_REDOP_AVG)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "only sums and averages over ranks have gradients: record what needs none "
                     "under TRI_NO_GRAD");
}

static tri_status all_reduce_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                                  const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);
    tri_status status = has_gradient(t);

    (void)needs;
    return status == TRI_OK
               ? trii_record_all_reduce(step, t->group, grad_out[0], t->redop, &grad_in[0])
               : status;
}

static tri_status all_gather_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                                  const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);

    (void)needs;
    return trii_record_reduce_scatter(step, t->group, grad_out[0], TRI_REDOP_SUM, &grad_in[0]);
}

static tri_status reduce_scatter_grad(trii_step *step, const trii_node *node,
                                      const trii_vid *grad_out, const bool *needs,
                                      trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);
    tri_status status = has_gradient(t);

    (void)needs;
    if (status != TRI_OK)
        return status;
    status = trii_record_all_gather(step, t->group, grad_out[0], &grad_in[0]);
    if (status == TRI_OK && t->redop == TRI_REDOP_AVG)
        status = trii_rec_scaled(step, grad_in[0], 1.0 / tri_group_size(t->group), &grad_in[0]);
    return status;
}

static tri_status all_to_all_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                                  const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);

    (void)needs;
    return trii_record_all_to_all(step, t->group, grad_out[0], &grad_in[0]);
}

static tri_status all_to_all_v_grad(trii_step *step, const trii_node *node,
                                    const trii_vid *grad_out, const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);
    const trii_row_exchange back = {.to = t->elements + tri_group_size(t->group),
                                    .from = t->elements,
                                    .type = step->values[step->in_ids[node->first_in]].type};

    (void)needs;
    return trii_record_all_to_all_v(step, t->group, grad_out[0], &back, &grad_in[0]);
}

static tri_status rooted(trii_step *step, tri_group *group, const trii_host_kind *kind, trii_vid x,
                         int root, trii_vid *out);
static const trii_host_kind reduce_kind;

static tri_status broadcast_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                                 const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);

    (void)needs;
    return rooted(step, t->group, &reduce_kind, grad_out[0], t->peer, &grad_in[0]);
}

static tri_status reduce_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                              const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);

    (void)needs;
    return trii_record_broadcast(step, t->group, grad_out[0], t->peer, &grad_in[0]);
}

static tri_status given_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                             const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);

    (void)needs;
    return t->grad(step, t->group, grad_out[0], &grad_in[0]);
}

/* --- kinds ---------------------------------------------------------------- */

TRII_TRAFFIC_KIND(all_reduce, all_reduce, true, compare, mixes, all_reduce_grad)
TRII_TRAFFIC_KIND(all_gather, all_gather, false, compare, mixes, all_gather_grad)
TRII_TRAFFIC_KIND(reduce_scatter, reduce_scatter, false, compare, mixes, reduce_scatter_grad)
TRII_TRAFFIC_KIND(all_to_all, all_to_all, false, compare, mixes, all_to_all_grad)
TRII_TRAFFIC_KIND(broadcast, broadcast, true, compare, mixes, broadcast_grad)
TRII_TRAFFIC_KIND(all_to_all_v, all_to_all_v, false, compare_rows, mixes, all_to_all_v_grad)
TRII_TRAFFIC_KIND(reduce, reduce, false, compare, mixes, reduce_grad)
TRII_TRAFFIC_KIND(reduce_from, all_reduce, true, compare, NULL, given_grad)
TRII_TRAFFIC_KIND(gather_from, all_gather, false, compare, NULL, given_grad)

/* --- recording ------------------------------------------------------------ */

static tri_status group_of(tri_group *given, const char *name, tri_group **group_out)
{
    *group_out = given;
    return trii_group_resolve(group_out, name);
}

/* What every operation has; `call` is whole. exchange: NULL, or all_to_all_v's. */
static tri_status record_with(trii_step *step, const trii_host_kind *kind, const trii_traffic *like,
                              const trii_row_exchange *exchange, const trii_host_call *call,
                              trii_vid *out)
{
    size_t size = exchange != NULL ? (size_t)tri_group_size(like->group) : 0;
    trii_host_op *op = NULL;
    trii_traffic *t;
    tri_status status =
        trii_host_op_new(step, kind, sizeof(*t) + 2 * size * sizeof(*t->elements), &op);

    if (status != TRI_OK)
        return status;
    t = (trii_traffic *)op;
    for (size_t r = 0; r < size; r++) {
        t->elements[r] = exchange->to[r];
        t->elements[size + r] = exchange->from[r];
    }
    t->group = tri_group_ref(like->group);
    t->site = trii_site_last();
    t->dtype = like->dtype;
    t->count = like->count;
    t->redop = like->redop;
    t->peer = like->peer;
    t->tag = like->tag;
    t->receives = like->receives;
    t->answer = TRII_NO_VALUE;
    op->group = (uint64_t)(uintptr_t)like->group;
    op->identity = (uint64_t)like->redop << 32; /* the types are in the plan's key themselves */
    status = trii_record_host(step, op, call, out);
    if (status == TRI_OK && step->values[*out].requires_grad)
        trii_await(step, &t->awaited, t->group);
    return status;
}

tri_status trii_traffic_record(trii_step *step, const trii_host_kind *kind,
                               const trii_traffic *like, const trii_host_call *call, trii_vid *out)
{
    return record_with(step, kind, like, NULL, call, out);
}

trii_traffic *trii_traffic_of(const trii_step *step, trii_vid out)
{
    const trii_node *node = &step->nodes[step->values[out].node];

    while (node->host == NULL) /* a copy to its device */
        node = &step->nodes[step->values[step->in_ids[node->first_in]].node];
    return (trii_traffic *)node->host;
}

/* One operand and one result. `parts`: of what count is one part, the operand or the result. */
static tri_status collective(trii_step *step, tri_group *given, const trii_host_kind *kind,
                             trii_vid x, tri_redop redop, const trii_type *out_type,
                             const trii_type *part, trii_vid *out)
{
    const trii_host_result result = {.type = *out_type,
                                     .requires_grad = step->values[x].requires_grad};
    const trii_host_call call = {.in = &x, .n_in = 1, .out = &result, .n_out = 1};
    trii_traffic like = {.dtype = part->dtype, .redop = redop};
    tri_status status = group_of(given, kind->name, &like.group);

    like.count = (size_t)trii_type_numel(part);
    return status == TRI_OK ? trii_traffic_record(step, kind, &like, &call, out) : status;
}

tri_status trii_record_all_reduce(trii_step *step, tri_group *group, trii_vid x, tri_redop op,
                                  trii_vid *out)
{
    const trii_type type = step->values[x].type;

    return collective(step, group, &all_reduce_kind, x, op, &type, &type, out);
}

static tri_status rooted(trii_step *step, tri_group *given, const trii_host_kind *kind, trii_vid x,
                         int root, trii_vid *out)
{
    const trii_value *value = &step->values[x];
    trii_traffic like = {.dtype = value->type.dtype, .redop = TRI_REDOP_SUM, .peer = root};
    tri_status status = group_of(given, kind->name, &like.group);
    const trii_host_result result = {.type = value->type, .requires_grad = value->requires_grad};
    const trii_host_call call = {.in = &x, .n_in = 1, .out = &result, .n_out = 1};

    if (status == TRI_OK && (root < 0 || root >= tri_group_size(like.group)))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: root %d is out of range (group of %d)",
                           kind->name, root, tri_group_size(like.group));
    if (status != TRI_OK)
        return status;
    like.count = (size_t)trii_type_numel(&value->type);
    return trii_traffic_record(step, kind, &like, &call, out);
}

tri_status trii_record_broadcast(trii_step *step, tri_group *group, trii_vid x, int root,
                                 trii_vid *out)
{
    return rooted(step, group, &broadcast_kind, x, root, out);
}

tri_status trii_record_sum_by(trii_step *step, tri_group *group, trii_vid x, trii_traffic_grad grad,
                              trii_vid *out)
{
    const trii_type type = step->values[x].type;
    tri_status status =
        collective(step, group, &reduce_from_kind, x, TRI_REDOP_SUM, &type, &type, out);

    if (status == TRI_OK)
        trii_traffic_of(step, *out)->grad = grad;
    return status;
}

static tri_status gathered(trii_step *step, tri_group *group, const trii_host_kind *kind,
                           trii_vid x, trii_vid *out)
{
    const trii_type part = step->values[x].type;
    trii_type whole = part;
    tri_status status = group_of(group, kind->name, &group);

    if (status != TRI_OK)
        return status;
    if (part.ndim == TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: the operand has %d dimensions; the result has one more, and at most "
                         "%d",
                         kind->name, part.ndim, TRI_MAX_DIMS);
    whole.ndim = part.ndim + 1;
    whole.shape[0] = tri_group_size(group);
    for (int d = 0; d < part.ndim; d++)
        whole.shape[d + 1] = part.shape[d];
    return collective(step, group, kind, x, TRI_REDOP_SUM, &whole, &part, out);
}

tri_status trii_record_all_gather(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    return gathered(step, group, &all_gather_kind, x, out);
}

tri_status trii_record_gather_by(trii_step *step, tri_group *group, trii_vid x,
                                 trii_traffic_grad grad, trii_vid *out)
{
    tri_status status = gathered(step, group, &gather_from_kind, x, out);

    if (status == TRI_OK)
        trii_traffic_of(step, *out)->grad = grad;
    return status;
}

/* The type of one rank's part of x [size, ..]. */
static tri_status part_of(const trii_step *step, const tri_group *group, const char *name,
                          trii_vid x, trii_type *part)
{
    const trii_type *whole = &step->values[x].type;
    char text[TRII_TYPE_TEXT];

    if (whole->ndim < 1 || whole->shape[0] != tri_group_size(group))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: the operand is %s; its first dimension must be the size of the "
                         "group, %d",
                         name, trii_type_text(whole, text), tri_group_size(group));
    *part = (trii_type){.dtype = whole->dtype, .device = whole->device, .ndim = whole->ndim - 1};
    for (int d = 0; d < part->ndim; d++)
        part->shape[d] = whole->shape[d + 1];
    return TRI_OK;
}

tri_status trii_record_reduce_scatter(trii_step *step, tri_group *group, trii_vid x, tri_redop op,
                                      trii_vid *out)
{
    trii_type part;
    tri_status status = group_of(group, "reduce_scatter", &group);

    if (status == TRI_OK)
        status = part_of(step, group, "reduce_scatter", x, &part);
    return status == TRI_OK
               ? collective(step, group, &reduce_scatter_kind, x, op, &part, &part, out)
               : status;
}

tri_status trii_record_all_to_all(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    const trii_type whole = step->values[x].type;
    trii_type part;
    tri_status status = group_of(group, "all_to_all", &group);

    if (status == TRI_OK)
        status = part_of(step, group, "all_to_all", x, &part);
    return status == TRI_OK
               ? collective(step, group, &all_to_all_kind, x, TRI_REDOP_SUM, &whole, &part, out)
               : status;
}

tri_status trii_record_all_to_all_v(trii_step *step, tri_group *group, trii_vid x,
                                    const trii_row_exchange *exchange, trii_vid *out)
{
    const trii_host_result result = {.type = exchange->type,
                                     .requires_grad = step->values[x].requires_grad};
    const trii_host_call call = {.in = &x, .n_in = 1, .out = &result, .n_out = 1};
    trii_traffic like = {.dtype = exchange->type.dtype};
    tri_status status = group_of(group, "all_to_all_v", &like.group);

    like.count = 1;
    for (int d = 1; d < exchange->type.ndim; d++)
        like.count *= (size_t)exchange->type.shape[d];
    return status == TRI_OK ? record_with(step, &all_to_all_v_kind, &like, exchange, &call, out)
                            : status;
}

void trii_traffic_is_for(trii_step *step, trii_vid out, const char *what)
{
    trii_traffic_of(step, out)->what = what;
}
