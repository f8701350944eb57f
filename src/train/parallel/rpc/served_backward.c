/*
 * served_backward.c - what the thread of a served module does with a BACKWARD: gradients of a
 * forward's graph by its inputs, which are sent or stay for other owners, and by the parameters,
 * which go into the account of the trainer's step.
 *
 * Others wait for the former alone. So they are computed first, and an operation of the run sends
 * them as soon as they are there: in a pipeline the owner before this one works meanwhile (the
 * parts B and W of Qi et al. 2023, "Zero Bubble Pipeline Parallelism"). What fails afterwards is
 * told by the account.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "train/graph/step/host_op.h"
#include "train/parallel/rpc/account.h"
#include "train/parallel/rpc/served_run.h"

typedef struct backward {
    trii_served *s;
    const tri_rpc_message *message;
    trii_remote_backward head;
    trii_remote_graph *g;
    trii_type types[TRI_REMOTE_TENSORS];
    trii_remote_source sources[TRI_REMOTE_TENSORS]; /* of seeds that are elsewhere */
    tri_tensor *stay[TRI_REMOTE_TENSORS];           /* of inputs whose gradients stay */
    tri_rpc_request *request;
    tri_tensor *seeds[TRI_REMOTE_TENSORS], *outputs[TRI_REMOTE_TENSORS];
    int n;
    tri_tensor **inputs, **grads; /* [n_wanted + the parameters] */
    int n_wanted;
    bool params; /* gradients of the parameters are wanted */
    bool early;  /* the answer is sent by the run */
    bool answered;
    /* [n_wanted], in the order of `inputs`; data NULL: the results do not depend on that input */
    trii_type grad_types[TRI_REMOTE_TENSORS];
    const void *grad_data[TRI_REMOTE_TENSORS];
} backward;

static tri_tensor *copy_of(const trii_type *type, const void *data)
{
    return trii_type_bytes(type) > 0 ? tri_tensor_from(type->shape, type->ndim, type->dtype, data)
                                     : tri_tensor_create(type->shape, type->ndim, type->dtype);
}

/* The seeds of a bit mask's results, in order. */
static tri_status make_seeds(backward *b)
{
    trii_step *step = trii_step_current();
    int part = 0;

    for (int o = 0; o < b->g->n_out; o++) {
        tri_tensor *seed;
        trii_vid id;
        tri_status status;

        if ((b->head.present >> o & 1) == 0)
            continue;
        if ((uint32_t)b->n >= b->head.n_types)
            return trii_remote_refuse("fewer seeds than it says");
        status = trii_resolve(step, b->g->out[o], &id);
        if (status != TRI_OK)
            return status;
        if ((b->g->out_requires_grad >> o & 1) == 0 ||
            b->types[b->n].dtype != step->values[id].type.dtype ||
            !trii_type_same_shape(&b->types[b->n], &step->values[id].type))
            return trii_remote_refuse("a seed of another type than its result");
        if ((b->head.elsewhere >> b->n & 1) != 0)
            seed = trii_stay_read(b->g->session, b->request, &b->sources[b->n], &b->types[b->n]);
        else if (b->early) /* with the answer the request has gone */
            seed = copy_of(&b->types[b->n], b->message->parts[part++].data);
        else
            seed = trii_remote_wrap(&b->types[b->n], &b->message->parts[part++]);
        b->seeds[b->n] = seed;
        b->outputs[b->n++] = b->g->out[o];
        status = tri_tensor_status(seed);
        if (status != TRI_OK)
            return status;
    }
    return (uint32_t)b->n == b->head.n_types && b->n > 0
               ? TRI_OK
               : trii_remote_refuse("seeds of results that there are not");
}

/* What gradients are taken by: the wanted inputs, then the parameters. */
static tri_status list_inputs(backward *b)
{
    size_t n = TRI_REMOTE_TENSORS + (size_t)b->s->n_params;

    b->inputs = trii_alloc(2 * n, sizeof(tri_tensor *), "gradients");
    if (b->inputs == NULL)
        return TRI_ERR_NO_MEMORY;
    b->grads = b->inputs + n;
    for (int i = 0; i < b->g->n_in; i++) {
        if ((b->head.wanted >> i & 1) == 0)
            continue;
        if (b->g->in[i] == NULL || (b->g->requires_grad >> i & 1) == 0)
            return trii_remote_refuse("a gradient of an input that requires none");
        b->inputs[b->n_wanted++] = b->g->in[i];
    }
    for (int p = 0; p < b->s->n_params && b->params; p++)
        b->inputs[b->n_wanted + p] = b->s->params[p];
    return TRI_OK;
}

static tri_status add_to_account(backward *b, trii_step *step)
{
    trii_vid *ids = trii_alloc((size_t)b->s->n_params + 1, sizeof(*ids), "gradients");
    tri_status status = ids != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int p = 0; p < b->s->n_params && status == TRI_OK; p++) {
        ids[p] = TRII_NO_VALUE;
        if (b->grads[b->n_wanted + p] != NULL)
            status = trii_resolve(step, b->grads[b->n_wanted + p], &ids[p]);
    }
    if (status == TRI_OK)
        status = trii_account_add(b->s->accounts, &b->head.key, &b->head.order, step, ids);
    trii_free(ids);
    return status;
}

/* --- the answer ----------------------------------------------------------- */

/* grad_data is there; the gradients that stay can be found from now on. */
static tri_status send_answer(backward *b)
{
    struct {
        trii_remote_results head;
        trii_remote_type types[TRI_REMOTE_TENSORS];
    } answer = {.head = {.magic = TRII_REMOTE_MAGIC}};
    tri_rpc_part parts[TRI_REMOTE_TENSORS];
    int n = 0, k = -1;
    tri_status status = trii_stays_add(b->s, b->g->session->number, b->head.number, b->stay);

    if (status != TRI_OK)
        return status;
    for (int i = 0; i < b->g->n_in; i++) {
        k += (int)(b->head.wanted >> i & 1);
        if ((b->head.wanted >> i & 1) == 0 || b->grads[k] == NULL)
            continue;
        answer.head.present |= (uint64_t)1 << i;
        if ((b->head.unsent >> i & 1) != 0)
            continue;
        trii_remote_type_put(&answer.types[n], &b->grad_types[k]);
        parts[n++] = (tri_rpc_part){b->grad_data[k], trii_type_bytes(&b->grad_types[k])};
    }
    answer.head.n_types = (uint32_t)n;
    status =
        tri_rpc_reply(b->request, &(tri_rpc_message){.data = &answer,
                                                     .bytes = sizeof(answer.head) +
                                                              (size_t)n * sizeof(trii_remote_type),
                                                     .parts = parts,
                                                     .n_parts = n});
    b->answered = status == TRI_OK;
    if (status != TRI_OK)
        trii_stays_drop(b->s, b->g->session->number, b->head.number);
    return status;
}

/* What is computed, and looked at when the run has ended. */
static tri_status keep_gradients(backward *b, trii_step *step)
{
    tri_status status = TRI_OK;
    int k = -1;

    for (int i = 0; i < b->g->n_in && status == TRI_OK; i++) {
        trii_vid id;

        k += (int)(b->head.wanted >> i & 1);
        if ((b->head.wanted >> i & 1) == 0 || b->grads[k] == NULL)
            continue;
        (void)tri_keep(b->grads[k]);
        status = trii_resolve(step, b->grads[k], &id);
        if (status != TRI_OK)
            break;
        trii_type_copy(&b->grad_types[k], &step->values[id].type);
        if ((b->head.stay >> i & 1) != 0)
            status = trii_stay_record(step, id, &b->stay[i]);
    }
    return status;
}

static tri_status answer_late(backward *b)
{
    int k = -1;

    for (int i = 0; i < b->g->n_in; i++) {
        k += (int)(b->head.wanted >> i & 1);
        if ((b->head.wanted >> i & 1) == 0 || b->grads[k] == NULL || (b->head.unsent >> i & 1) != 0)
            continue;
        b->grad_data[k] = tri_data(b->grads[k]);
        if (b->grad_data[k] == NULL)
            return TRI_ERR_STATE;
    }
    return send_answer(b);
}

typedef struct answer_op {
    trii_host_op op; /* first */
    backward *b;
} answer_op;

/* The operands are those of grads that are not NULL. What stays is copied: the run uses the memory
 * for something else afterwards. */
static tri_status answer_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    backward *b = ((answer_op *)op)->b;
    int k = -1, operand = 0;

    for (int i = 0; i < b->g->n_in; i++) {
        k += (int)(b->head.wanted >> i & 1);
        if ((b->head.wanted >> i & 1) == 0 || b->grads[k] == NULL)
            continue;
        b->grad_data[k] = buffers->in[operand++];
        if ((b->head.stay >> i & 1) == 0)
            continue;
        b->stay[i] = copy_of(&b->grad_types[k], b->grad_data[k]);
        if (tri_tensor_status(b->stay[i]) != TRI_OK)
            return tri_tensor_status(b->stay[i]);
    }
    return send_answer(b);
}

static tri_status answer_poll(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status answer_wait(trii_host_op *op, int64_t for_ns)
{
    (void)for_ns;
    return answer_poll(op);
}

static const trii_host_kind answer_kind = {.name = "remote_answer",
                                           .start = answer_start,
                                           .poll = answer_poll,
                                           .wait = answer_wait,
                                           .urgent = true};

static tri_status record_answer(backward *b, trii_step *step)
{
    static const trii_host_result token = {.type = {.dtype = TRI_DTYPE_F32, .ndim = 1}};
    trii_vid in[TRI_REMOTE_TENSORS], out;
    trii_host_op *op = NULL;
    trii_host_call call = {.in = in, .out = &token, .n_out = 1};
    tri_status status = trii_host_op_new(step, &answer_kind, sizeof(answer_op), &op);

    for (int k = 0; k < b->n_wanted && status == TRI_OK; k++) {
        if (b->grads[k] == NULL)
            continue;
        status = trii_resolve(step, b->grads[k], &in[call.n_in]);
        if (status == TRI_OK)
            trii_type_copy(&b->grad_types[k], &step->values[in[call.n_in++]].type);
    }
    if (status != TRI_OK)
        return status;
    ((answer_op *)op)->b = b;
    return trii_record_host(step, op, &call, &out);
}

/* --- the run -------------------------------------------------------------- */

static tri_status record_backward(backward *b, trii_step *step)
{
    const tri_gradients_options options = {.seeds = b->seeds,
                                           .allow_unused = true,
                                           .keep_graph = (b->head.flags & TRII_REMOTE_KEEP) != 0};
    tri_status status = make_seeds(b);

    if (status == TRI_OK)
        status = list_inputs(b);
    if (status == TRI_OK)
        status = tri_gradients(b->outputs, b->n, b->inputs,
                               b->n_wanted + (b->params ? b->s->n_params : 0), &options, b->grads);
    /* Calls within this one end with its request. With all gradients of inputs first, all
     * recomputed parts would be in memory at once. */
    b->early = b->early && trii_remote_now()->n_backwards == 0 && !trii_step_computes_again(step);
    if (status == TRI_OK)
        status = b->early ? record_answer(b, step) : keep_gradients(b, step);
    return status == TRI_OK && b->params ? add_to_account(b, step) : status;
}

static tri_status do_backward(backward *b)
{
    trii_step *step = trii_step_current();
    trii_accounts *accounts = b->s->accounts;
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    b->params = accounts != NULL && b->head.key.optimizer != 0 &&
                trii_account_wants(accounts, &b->head.key);
    b->early = b->params && b->head.wanted != 0;
    if (accounts != NULL)
        trii_accounts_read_again(accounts, step);
    status = b->params ? trii_account_expect(accounts, &b->head.key, &b->head.order, step) : TRI_OK;
    if (status == TRI_OK)
        status = record_backward(b, step);
    if (status == TRI_OK)
        status = tri_run();
    if (b->params)
        trii_account_added(accounts, &b->head.key, status);
    return status == TRI_OK && !b->answered ? answer_late(b) : status;
}

static tri_status read_backward(backward *b)
{
    const tri_rpc_message *m = b->message;
    trii_remote_backward *h = &b->head;
    tri_status status;

    if (m->bytes < sizeof(*h))
        return trii_remote_refuse("backward");
    memcpy(h, m->data, sizeof(*h));
    if (h->magic != TRII_REMOTE_MAGIC || h->order.n_nested > TRII_REMOTE_LEVELS ||
        memchr(h->key.trainer, '\0', sizeof(h->key.trainer)) == NULL ||
        (h->unsent & ~h->wanted) != 0 || (h->stay & ~h->unsent) != 0 ||
        (h->stay != 0 && h->number == 0))
        return trii_remote_refuse("backward");
    status = trii_remote_types_get(m, sizeof(*h), h->n_types, 0, h->elsewhere, b->types);
    return status == TRI_OK
               ? trii_remote_sources_get(m, sizeof(*h) + h->n_types * sizeof(trii_remote_type),
                                         h->n_types, h->elsewhere, b->types, b->sources)
               : status;
}

tri_status trii_backward_run(trii_served *s, const trii_remote_job *job)
{
    backward b = {
        .s = s, .message = tri_rpc_request_message(job->request), .request = job->request};
    trii_remote_running running = {
        .key = &b.head.key, .order = &b.head.order, .request = job->request};
    bool keep;
    tri_status status = read_backward(&b);

    if (status != TRI_OK)
        return status;
    b.g = trii_graph_find(s, job->session, b.head.call);
    if (b.g == NULL) { /* perhaps by a backward that has failed after its answer */
        status = s->accounts != NULL ? trii_account_check(s->accounts, &b.head.key) : TRI_OK;
        if (status != TRI_OK)
            return status;
        return TRII_FAIL(TRI_ERR_STATE, "the forward of %s whose backward this is has been dropped",
                         s->name);
    }
    running.path = &b.g->path;
    keep = (b.head.flags & TRII_REMOTE_KEEP) != 0;
    status = trii_places_add(job->session, b.message, b.sources, b.head.n_types, b.head.elsewhere);
    if (status == TRI_OK)
        status = tri_context_enter(b.g->context);
    if (status == TRI_OK) {
        trii_remote_now_set(&running);
        status = do_backward(&b);
        trii_remote_now_set(NULL);
        (void)!tri_context_leave();
    }
    if (status == TRI_OK && keep)
        trii_graph_keep(s, b.g);
    else
        trii_graph_drop(s, job->session, b.g, status != TRI_OK);
    trii_stays_unref(b.stay);
    for (int k = 0; k < b.n; k++)
        tri_tensor_unref(b.seeds[k]);
    trii_free(b.inputs);
    return b.answered ? TRI_OK : status; /* what has failed since, the account says */
}

void trii_backward_cancelled(trii_served *s, const trii_remote_job *job)
{
    backward b = {.s = s, .message = tri_rpc_request_message(job->request)};

    b.g = read_backward(&b) == TRI_OK ? trii_graph_find(s, job->session, b.head.call) : NULL;
    if (b.g != NULL)
        trii_graph_drop(s, job->session, b.g, false);
}
