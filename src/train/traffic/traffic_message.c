/*
 * traffic_message.c - sends and receives of traffic.h, and the messages of their gradients.
 */
#include "train/traffic/traffic_op.h"

#include "base/dtype.h"
#include "base/err.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/type.h"

/* --- while it runs -------------------------------------------------------- */

/* Sender and receiver may lay the elements out as they like. */
static tri_status compare_message(trii_host_op *op, const char *what, const char *where)
{
    trii_traffic *t = (trii_traffic *)op;
    char elements[64], tag[64];
    const trii_compared_message m = {
        .sends = !t->receives, .peer = t->peer, .what = elements, .tag = tag, .where = where};

    (void)what;
    (void)snprintf(elements, sizeof(elements), "%zu %s", t->count, tri_dtype_name(t->dtype));
    (void)snprintf(tag, sizeof(tag), "%stag %d",
                   t->tag & TRII_TRAFFIC_GRADIENT_TAG ? "gradient of " : "",
                   t->tag & ~TRII_TRAFFIC_GRADIENT_TAG);
    t->compared = true;
    return trii_group_compare_message(t->group, &m);
}

static tri_status send_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return (tri_send)(t->group, b->in[0], t->count, t->dtype, t->peer, t->tag, &t->work);
}

static tri_status recv_start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_traffic *t = trii_traffic_begin(op);

    return (tri_recv)(t->group, b->out[0], t->count, t->dtype, t->peer, t->tag, &t->work);
}

/* --- gradients ------------------------------------------------------------ */

static tri_status send_value(trii_step *step, tri_group *group, trii_vid x, int peer, int tag,
                             trii_vid *token_out);
static tri_status recv_value(trii_step *step, tri_group *group, const trii_type *type,
                             bool requires_grad, int peer, int tag, const trii_after *after,
                             trii_vid *out);

/* Comes when the message itself is sent, no earlier. */
static tri_status send_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                            const bool *needs, trii_vid *grad_in)
{
    const trii_traffic *t = trii_traffic_differentiated(node);
    const trii_type type = step->values[step->in_ids[node->first_in]].type;
    const trii_vid token = node->first_out;

    (void)grad_out;
    (void)needs;
    return recv_value(step, t->group, &type, true, t->peer, t->tag ^ TRII_TRAFFIC_GRADIENT_TAG,
                      &(trii_after){&token, 1}, &grad_in[0]);
}

static tri_status recv_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                            const bool *needs, trii_vid *grad_in)
{
    trii_traffic *t = (trii_traffic *)node->host;

    (void)needs;
    (void)grad_in;
    if (t->for_backward && trii_step_walks_for_inputs(step))
        return TRI_OK;
    trii_await_no_more(&t->awaited);
    return send_value(step, t->group, grad_out[0], t->peer, t->tag ^ TRII_TRAFFIC_GRADIENT_TAG,
                      &t->answer);
}

TRII_TRAFFIC_KIND(send, send, false, compare_message, NULL, send_grad)
TRII_TRAFFIC_KIND(recv, recv, false, compare_message, NULL, recv_grad)

/* --- recording ------------------------------------------------------------ */

static tri_status message(trii_step *step, tri_group *given, const trii_host_kind *kind,
                          const trii_host_call *call, int peer, int tag, trii_vid *out)
{
    const trii_type *type = call->n_in > 0 ? &step->values[call->in[0]].type : &call->out[0].type;
    trii_traffic like = {.group = given,
                         .dtype = type->dtype,
                         .peer = peer,
                         .tag = tag,
                         .receives = kind == &recv_kind};
    tri_status status = trii_group_resolve(&like.group, kind->name);

    if (status == TRI_OK && (peer < 0 || peer >= tri_group_size(like.group)))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is out of range (group of %d)",
                           kind->name, peer, tri_group_size(like.group));
    like.count = (size_t)trii_type_numel(type);
    return status == TRI_OK ? trii_traffic_record(step, kind, &like, call, out) : status;
}

static tri_status check_tag(const char *name, int tag)
{
    return tag >= 0 && tag < TRII_TRAFFIC_TAGS
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: tag %d is outside 0 to %d", name, tag,
                           TRII_TRAFFIC_TAGS - 1);
}

static tri_status send_value(trii_step *step, tri_group *group, trii_vid x, int peer, int tag,
                             trii_vid *token_out)
{
    const trii_host_result token = {
        .type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .device = step->values[x].type.device},
        .requires_grad = step->values[x].requires_grad};
    const trii_host_call call = {.in = &x, .n_in = 1, .out = &token, .n_out = 1};

    return message(step, group, &send_kind, &call, peer, tag, token_out);
}

static tri_status recv_value(trii_step *step, tri_group *group, const trii_type *type,
                             bool requires_grad, int peer, int tag, const trii_after *after,
                             trii_vid *out)
{
    const trii_host_result result = {
        .type = *type, .requires_grad = requires_grad && trii_dtype_is_float(type->dtype)};
    const trii_host_call call = {.after = after != NULL ? after->values : NULL,
                                 .n_after = after != NULL ? after->n : 0,
                                 .out = &result,
                                 .n_out = 1};

    return message(step, group, &recv_kind, &call, peer, tag, out);
}

trii_vid trii_traffic_answer(const trii_step *step, trii_vid received)
{
    return trii_traffic_of(step, received)->answer;
}

tri_status trii_traffic_answer_zeros(trii_step *step, trii_vid received)
{
    trii_traffic *t = trii_traffic_of(step, received);
    trii_attrs attrs;
    trii_vid zeros = TRII_NO_VALUE;
    tri_status status;

    if (t->answer != TRII_NO_VALUE || !step->values[received].requires_grad)
        return TRI_OK;
    trii_fill_attrs(&step->values[received].type, 0, &attrs);
    status = trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, &zeros);
    if (status != TRI_OK)
        return status;
    trii_await_no_more(&t->awaited);
    return send_value(step, t->group, zeros, t->peer, t->tag ^ TRII_TRAFFIC_GRADIENT_TAG,
                      &t->answer);
}

void trii_traffic_for_backward(trii_step *step, trii_vid received)
{
    trii_traffic_of(step, received)->for_backward = true;
}

tri_status trii_record_send(trii_step *step, tri_group *group, trii_vid x, int peer, int tag,
                            trii_vid *token_out)
{
    tri_status status = check_tag("send", tag);

    return status == TRI_OK ? send_value(step, group, x, peer, tag, token_out) : status;
}

tri_status trii_record_recv(trii_step *step, tri_group *group, const trii_type *type,
                            bool requires_grad, int peer, int tag, const trii_after *after,
                            trii_vid *out)
{
    tri_status status = check_tag("recv", tag);

    return status == TRI_OK ? recv_value(step, group, type, requires_grad, peer, tag, after, out)
                            : status;
}
