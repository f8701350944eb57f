/*
 * remote_call.c - forwards and backwards of remote modules as operations of the caller's step
 * (train/graph/step/host_op.h): start sends the request with the operands as its parts, poll and
 * wait are those of the call, and the reply is copied to the results.
 *
 * A gradient records the second operation, which reads the gradients of those results that the loss
 * reaches. A forward whose backward is never sent has its graph at the owner released when the
 * step ends.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/parallel/rpc/remote_op.h"

static const trii_host_kind forward_kind, backward_kind;

/* Those of this thread that have been sent and are not over: a wait for one ends with any. */
static _Thread_local trii_remote_op *under_way;

/* --- sending -------------------------------------------------------------- */

/* The head of the message; the types follow, then `data_bytes`. */
static size_t put_forward(const trii_remote_op *r, unsigned char *to)
{
    const tri_rng from = trii_random_from(r->step, &r->random);
    const trii_remote_forward head = {
        .magic = TRII_REMOTE_MAGIC,
        .kind = TRII_REMOTE_FORWARD,
        .call = r->number,
        .flags = r->flags,
        .autocast = r->autocast,
        .n_types = (uint32_t)r->n_in,
        .n_results = (uint32_t)r->n_out,
        .requires_grad = r->requires_grad,
        .elsewhere = trii_remote_elsewhere(r),
        .unsent = r->unsent,
        .stay = r->stay,
        .data_bytes = r->remote->function != NULL ? (uint32_t)r->remote->function->size : 0,
        .random_first = r->random.first,
        .random_seed = from.seed,
        .random_stream = from.stream,
        .random_step = from.step,
        .path = r->path};

    memcpy(to, &head, sizeof(head));
    return sizeof(head);
}

/* The owner shall drop the graph: of the backwards recorded before a run the last one says so. Not
 * while results that would go with it may still be fetched. */
static bool ends_graph(const trii_remote_op *r)
{
    const trii_remote_op *forward = r->forward;

    return forward->n_backwards == 1 && !r->keeps && (forward->left == 0 || forward->n_open == 0);
}

static size_t put_backward(const trii_remote_op *r, unsigned char *to)
{
    const trii_remote_backward head = {.magic = TRII_REMOTE_MAGIC,
                                       .kind = TRII_REMOTE_BACKWARD,
                                       .call = r->number,
                                       .present = r->present,
                                       .wanted = r->wanted,
                                       .elsewhere = trii_remote_elsewhere(r),
                                       .unsent = trii_remote_as_sent(r, r->unsent),
                                       .stay = trii_remote_as_sent(r, r->stay),
                                       .number = r->stay_number,
                                       .n_types = (uint32_t)r->n_in,
                                       .flags = ends_graph(r) ? 0 : TRII_REMOTE_KEEP,
                                       .key = r->key,
                                       .order = r->order};

    memcpy(to, &head, sizeof(head));
    return sizeof(head);
}

/* m: data and references; the parts are those of the operands. */
static tri_status send_message(trii_remote_op *r, const tri_rpc_message *m, bool may_wait)
{
    const tri_rpc_call_options options = {.timeout_ms = trii_remote_timeout_ms(r->remote),
                                          .no_wait = !may_wait};
    tri_rpc_part parts[TRI_REMOTE_TENSORS];
    tri_rpc_message whole = *m;
    int n = 0, operand = 0;
    tri_status status;

    for (int i = 0; i < r->n_in; i++) {
        if (r->in[i].dtype == TRI_DTYPE_NONE)
            continue;
        if (!trii_remote_is_elsewhere(r, i))
            parts[n++] = (tri_rpc_part){r->parts[operand], trii_type_bytes(&r->in[i])};
        operand++;
    }
    whole.parts = parts;
    whole.n_parts = n;
    if (r->site.file != NULL)
        tri_site_set(r->site.file, r->site.line);
    status = (tri_rpc_async)(r->session,
                             trii_remote_functions[r->is_backward ? TRII_REMOTE_BACKWARD
                                                                  : TRII_REMOTE_FORWARD],
                             &whole, &options, &r->call);
    if (status != TRI_OK)
        return status;
    r->is_sent = true;
    r->at = &under_way;
    r->next = under_way;
    if (r->next != NULL)
        r->next->at = &r->next;
    under_way = r;
    return TRI_OK;
}

/* INPROGRESS: the owner has too many calls of this worker unanswered. */
static tri_status send_call(trii_remote_op *r, bool may_wait)
{
    size_t data_bytes =
        !r->is_backward && r->remote->function != NULL ? r->remote->function->size : 0;
    unsigned char
        small[sizeof(trii_remote_forward) + sizeof(trii_remote_backward) +
              TRI_REMOTE_TENSORS * (sizeof(trii_remote_type) + sizeof(trii_remote_source))];
    unsigned char *message = small;
    tri_rpc_ref *refs[TRI_REMOTE_TENSORS];
    size_t used;
    int n_refs = 0;
    tri_status status;

    if (data_bytes > 0)
        message = trii_alloc(sizeof(small) + data_bytes, 1, "request");
    if (message == NULL)
        return TRI_ERR_NO_MEMORY;
    used = r->is_backward ? put_backward(r, message) : put_forward(r, message);
    for (int i = 0; i < r->n_in; i++, used += sizeof(trii_remote_type)) {
        trii_remote_type type;

        trii_remote_type_put(&type, &r->in[i]);
        memcpy(message + used, &type, sizeof(type));
    }
    used += trii_remote_put_sources(r, message + used, refs, &n_refs);
    memcpy(message + used, r->data, data_bytes);
    status = send_message(
        r,
        &(tri_rpc_message){
            .data = message, .bytes = used + data_bytes, .refs = refs, .n_refs = n_refs},
        may_wait);
    if (message != small)
        trii_free(message);
    if (status != TRI_OK)
        return status;
    r->has_graph = r->wants_graph;
    r->left = r->stay;
    if (r->is_backward && ends_graph(r)) { /* whatever becomes of it, the owner drops it */
        r->forward->has_graph = false;
        r->forward->left = 0;
    }
    if (r->is_backward)
        r->forward->n_backwards--;
    return TRI_OK;
}

/* --- the reply ------------------------------------------------------------ */

static tri_status check_results(const trii_remote_op *r, const tri_rpc_message *m,
                                const trii_remote_results *head)
{
    trii_type types[TRI_REMOTE_TENSORS];
    tri_status status = trii_remote_types_get(m, sizeof(*head), head->n_types, 0, 0, types);
    uint32_t n = 0;

    for (int o = 0; o < r->n_out && status == TRI_OK; o++) {
        char want[TRII_TYPE_TEXT], have[TRII_TYPE_TEXT];

        if ((r->unsent >> o & 1) != 0 || (r->is_backward && (head->present >> o & 1) == 0))
            continue;
        if (n >= head->n_types)
            return trii_remote_refuse("fewer results than were wanted");
        types[n].device = r->out[o].device;
        if (!trii_type_equal(&types[n], &r->out[o]))
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "result %d is %s, and was %s when the owner was asked: the types of "
                             "a module's results may depend on those of its inputs alone",
                             o, trii_type_text(&types[n], have), trii_type_text(&r->out[o], want));
        n++;
    }
    return status == TRI_OK && n != head->n_types ? trii_remote_refuse("too many results") : status;
}

/* Bits of `present` are those of inputs, of which the wanted ones have results here. */
static uint64_t of_wanted(const trii_remote_op *r, uint64_t present)
{
    uint64_t bits = 0;
    int o = 0;

    for (int i = 0; i < TRI_REMOTE_TENSORS; i++) {
        if ((r->wanted >> i & 1) != 0)
            bits |= (present >> i & 1) << o++;
    }
    return bits;
}

static tri_status take_results(trii_remote_op *r, const tri_rpc_message *m)
{
    trii_remote_results head;
    tri_status status;
    int n = 0;

    if (m->bytes < sizeof(head))
        return trii_remote_refuse("results");
    memcpy(&head, m->data, sizeof(head));
    if (head.magic != TRII_REMOTE_MAGIC || (head.present & ~r->wanted) != 0)
        return trii_remote_refuse("results");
    if (r->is_backward && r->wanted == 0)
        return TRI_OK; /* a token */
    head.present = of_wanted(r, head.present);
    r->reached = head.present;
    status = check_results(r, m, &head);
    for (int o = 0; o < r->n_out && status == TRI_OK; o++) {
        size_t bytes = trii_type_bytes(&r->out[o]);
        bool is_here = !r->is_backward || (head.present >> o & 1) != 0;

        if ((r->unsent >> o & 1) != 0)
            continue;
        if (bytes > 0 && is_here)
            memcpy(r->results[o], m->parts[n].data, bytes);
        else if (bytes > 0)
            memset(r->results[o], 0, bytes);
        n += is_here; /* a part without bytes is one, too */
    }
    return status;
}

static void end_call(trii_remote_op *r)
{
    *r->at = r->next;
    if (r->next != NULL)
        r->next->at = r->at;
    tri_rpc_call_destroy(r->call);
    r->call = NULL;
}

static tri_status ended(trii_remote_op *r, tri_status status)
{
    tri_rpc_message reply;

    if (status == TRI_OK)
        status = tri_rpc_call_take_reply(r->call, &reply);
    if (status == TRI_OK) {
        status = take_results(r, &reply);
        tri_rpc_message_free(&reply);
        trii_remote_end_reading(r);
    } else {
        r->left = status == TRI_ERR_TIMEOUT || status == TRI_ERR_ABORTED ? r->left : 0;
        r->has_graph = r->has_graph && (status == TRI_ERR_TIMEOUT || status == TRI_ERR_ABORTED);
        if (status == TRI_ERR_NOT_FOUND)
            trii_remote_forget(r->remote, r->session);
    }
    end_call(r);
    r->is_over = true;
    return status;
}

/* --- while it runs -------------------------------------------------------- */

static tri_status refuse_aborted(const trii_remote_op *r)
{
    return TRII_FAIL(TRI_ERR_ABORTED, "%s: the step has failed", r->remote->name);
}

static tri_status start(trii_host_op *op, const trii_host_buffers *b)
{
    trii_remote_op *r = (trii_remote_op *)op;
    int n = 0;
    tri_status status;

    for (int i = 0; i < r->n_in; i++)
        n += r->in[i].dtype != TRI_DTYPE_NONE;
    for (int i = 0; i < n; i++)
        r->parts[i] = b->in[i];
    for (int o = 0; o < r->n_out; o++)
        r->results[o] = b->out[o];
    status = send_call(r, false);
    return status == TRI_INPROGRESS ? TRI_OK : status;
}

static tri_status poll(trii_host_op *op)
{
    trii_remote_op *r = (trii_remote_op *)op;
    tri_status status = TRI_OK;

    if (r->is_over)
        return TRI_OK;
    if (!r->is_sent && r->is_aborted)
        return refuse_aborted(r);
    if (!r->is_sent)
        status = send_call(r, false);
    if (status == TRI_OK)
        status = tri_rpc_call_test(r->call);
    return status == TRI_INPROGRESS || !r->is_sent ? status : ended(r, status);
}

#define WAIT_CALLS 64

/* Until one of all that are under way is over; false: none is, within `ms` (0 = no limit). */
static bool wait_any(const trii_remote_op *r, int64_t ms)
{
    tri_rpc_call *calls[WAIT_CALLS] = {r->call};
    int n = 1, which;

    for (const trii_remote_op *other = under_way; other != NULL && n < WAIT_CALLS;
         other = other->next) {
        if (other != r && other->remote->rpc == r->remote->rpc)
            calls[n++] = other->call;
    }
    return tri_rpc_wait_any(calls, n, ms, &which) == TRI_OK;
}

static tri_status wait_call(trii_remote_op *r, int64_t for_ns)
{
    const trii_remote_running *running = trii_remote_now();
    int64_t ms = for_ns == INT64_MAX ? 0 : (for_ns + 999999) / 1000000;

    if (running == NULL) {
        (void)wait_any(r, ms);
        return tri_rpc_call_test(r->call);
    }
    while (!wait_any(r, ms == 0 || ms > TRII_REMOTE_WATCH_MS ? TRII_REMOTE_WATCH_MS : ms)) {
        if (tri_rpc_request_is_cancelled(running->request))
            tri_rpc_call_cancel(r->call);
        if (ms > 0)
            break;
    }
    return tri_rpc_call_test(r->call);
}

static tri_status wait_for(trii_host_op *op, int64_t for_ns)
{
    trii_remote_op *r = (trii_remote_op *)op;
    tri_status status = TRI_OK;

    if (r->is_over)
        return TRI_OK;
    if (!r->is_sent && r->is_aborted)
        return refuse_aborted(r);
    if (!r->is_sent) /* what is under way may give the owner room for it */
        status = send_call(r, under_way == NULL);
    if (status == TRI_INPROGRESS) {
        (void)wait_any(under_way, 1);
        return status;
    }
    if (status == TRI_OK)
        status = wait_call(r, for_ns);
    return status == TRI_INPROGRESS || !r->is_sent ? status : ended(r, status);
}

static void abort_call(trii_host_op *op, const char *why)
{
    trii_remote_op *r = (trii_remote_op *)op;

    (void)why;
    r->is_aborted = true;
    if (r->call != NULL)
        tri_rpc_call_cancel(r->call);
}

static void release(trii_host_op *op)
{
    trii_remote_op *r = (trii_remote_op *)op;

    if (r->call != NULL) {
        tri_rpc_call_cancel(r->call);
        (void)!tri_rpc_call_test(r->call); /* nobody wants to know how it ended */
        end_call(r);
    }
    if (r->has_graph || r->left != 0)
        trii_remote_release_later(r->remote, r->session, r->stay_number);
    tri_rpc_ref_unref(r->session);
    trii_remote_unref(r->remote);
}

/* --- gradients ------------------------------------------------------------ */

/* Whose backward this is, and which: of the call that this thread handles, else of the trainer. */
static tri_status number_backward(trii_remote_op *r, const trii_step *step)
{
    trii_remote_running *running = trii_remote_now();
    trii_remote *remote = r->remote;
    trii_remote_steps *steps = remote->steps;

    if (running != NULL && running->key != NULL) {
        r->key = *running->key;
        r->order = *running->order;
        if (r->order.n_nested == TRII_REMOTE_LEVELS)
            return TRII_FAIL(TRI_ERR_STATE, "remote modules are nested deeper than %d",
                             TRII_REMOTE_LEVELS);
        r->order.nested[r->order.n_nested++] = running->n_backwards++;
        return TRI_OK;
    }
    if (steps == NULL || trii_step_walks_for_inputs(step))
        return TRI_OK; /* no parameter's gradient changes */
    if (remote->counted_step != steps->step) {
        remote->counted_step = steps->step;
        remote->seq = 0;
    }
    if (steps->generation != 0 &&
        (steps->generation != step->generation || steps->walk != trii_step_walk(step)))
        steps->pass++;
    steps->generation = step->generation;
    steps->walk = trii_step_walk(step);
    trii_remote_self(remote->rpc, r->key.trainer, &r->key.incarnation);
    r->key.optimizer = steps->optimizer;
    r->key.step = steps->step;
    r->order =
        (trii_remote_order){.module = remote->index, .seq = remote->seq++, .pass = steps->pass};
    return TRI_OK;
}

static tri_status op_new(trii_step *step, const trii_host_kind *kind, trii_remote *remote,
                         tri_rpc_ref *session, uint64_t session_number, size_t data_bytes,
                         trii_remote_op **op_out)
{
    trii_host_op *op = NULL;
    tri_status status = trii_host_op_new(step, kind, sizeof(trii_remote_op) + data_bytes, &op);
    trii_remote_op *r = (trii_remote_op *)op;

    if (status != TRI_OK)
        return status;
    atomic_fetch_add(&remote->refs, 1);
    r->remote = remote;
    r->session = tri_rpc_ref_ref(session);
    r->session_number = session_number;
    trii_mutex_lock(&remote->lock);
    r->stay_number = ++remote->last_call;
    trii_mutex_unlock(&remote->lock);
    r->step = step;
    r->site = trii_site_last();
    r->is_backward = kind == &backward_kind;
    /* those of one direction start in the order of recording, and do not wait for the others */
    op->group = (uint64_t)(uintptr_t)remote + r->is_backward;
    *op_out = r;
    return TRI_OK;
}

/* The gradients of inputs that are wanted, as results; a token where there are none. */
static int list_gradients(const trii_step *step, const trii_node *node,
                          const trii_remote_op *forward, const bool *needs, trii_remote_op *r,
                          trii_host_result *out)
{
    int n = 0, operand = 0;

    for (int i = 0; i < forward->n_in; i++) {
        if (forward->in[i].dtype == TRI_DTYPE_NONE)
            continue;
        if (needs[operand] && (forward->requires_grad >> i & 1) != 0) {
            r->wanted |= (uint64_t)1 << i;
            out[n].type = step->values[step->in_ids[node->first_in + operand]].type;
            out[n].requires_grad = false;
            r->out[n] = out[n].type;
            n++;
        }
        operand++;
    }
    r->n_out = n;
    if (n > 0)
        return n;
    out[0] = (trii_host_result){.type = {.dtype = TRI_DTYPE_F32, .ndim = 1}};
    return 1;
}

static tri_status forward_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                               const bool *needs, trii_vid *grad_in)
{
    trii_remote_op *forward = (trii_remote_op *)node->host, *r = NULL;
    trii_host_result results[TRI_REMOTE_TENSORS];
    trii_vid seeds[TRI_REMOTE_TENSORS], out[TRI_REMOTE_TENSORS], after = node->first_out;
    trii_host_call call = {.in = seeds, .after = &after, .n_after = 1, .out = results};
    int n_in = node->n_in, n = 0;
    tri_status status;

    status = op_new(step, &backward_kind, forward->remote, forward->session,
                    forward->session_number, 0, &r);
    if (status != TRI_OK)
        return status;
    r->forward = forward;
    r->number = forward->number;
    r->keeps = trii_step_keeps_graph(step);
    for (int o = 0; o < forward->n_out; o++) {
        if (grad_out[o] == TRII_NO_VALUE)
            continue;
        r->present |= (uint64_t)1 << o;
        r->in[r->n_in] = step->values[grad_out[o]].type;
        trii_remote_note_maker(r, step, r->n_in, grad_out[o]);
        seeds[r->n_in++] = grad_out[o];
    }
    call.n_in = r->n_in;
    call.n_out = list_gradients(step, node, forward, needs, r, results);
    status = number_backward(r, step);
    if (status == TRI_OK)
        status = trii_record_host(step, &r->op, &call, out);
    if (status == TRI_OK)
        forward->n_backwards++;
    for (int i = 0, operand = 0; i < forward->n_in && operand < n_in && status == TRI_OK; i++) {
        if (forward->in[i].dtype == TRI_DTYPE_NONE)
            continue;
        if ((r->wanted >> i & 1) != 0)
            grad_in[operand] = out[n++];
        operand++;
    }
    return status;
}

#define KIND(name_, gradient_)                                                                     \
    static const trii_host_kind name_##_kind = {.name = "remote_" #name_,                          \
                                                .start = start,                                    \
                                                .poll = poll,                                      \
                                                .wait = wait_for,                                  \
                                                .wait_any = true,                                  \
                                                .abort = abort_call,                               \
                                                .grad = (gradient_),                               \
                                                .grad_elsewhere = true,                            \
                                                .stays = trii_remote_stays,                        \
                                                .release = release}
KIND(forward, forward_grad);
KIND(backward, NULL);

/* --- recording ------------------------------------------------------------ */

tri_status trii_remote_record(trii_remote *remote, trii_step *step, const trii_vid *in, int n_in,
                              const void *data, const trii_remote_answer *answer, trii_vid *out)
{
    const trii_remote_running *running = trii_remote_now();
    size_t data_bytes = remote->function != NULL ? remote->function->size : 0;
    trii_host_result results[TRI_REMOTE_TENSORS];
    trii_vid operands[TRI_REMOTE_TENSORS];
    trii_host_call call = {.in = operands, .out = results, .n_out = answer->n_out};
    tri_rpc_ref *session = NULL;
    uint64_t session_number;
    trii_remote_op *r = NULL;
    tri_status status = trii_remote_session(remote, &session, &session_number);

    if (status != TRI_OK)
        return status;
    status = op_new(step, &forward_kind, remote, session, session_number, data_bytes, &r);
    tri_rpc_ref_unref(session);
    if (status != TRI_OK)
        return status;
    r->number = r->stay_number;
    r->flags = answer->flags | (answer->out_requires_grad == 0 ? TRII_REMOTE_NO_GRAD : 0);
    r->autocast = answer->autocast;
    r->requires_grad = answer->requires_grad;
    r->wants_graph = answer->out_requires_grad != 0;
    r->random = trii_random_take(step, answer->n_random);
    if (running != NULL)
        r->path = *running->path;
    r->n_in = n_in;
    r->n_out = answer->n_out;
    for (int i = 0; i < n_in; i++) {
        r->in[i] = answer->in[i];
        if (in[i] == TRII_NO_VALUE)
            continue;
        trii_remote_note_maker(r, step, i, in[i]);
        operands[call.n_in++] = in[i];
    }
    for (int o = 0; o < answer->n_out; o++) {
        r->out[o] = answer->out[o];
        results[o].type = answer->out[o];
        results[o].requires_grad = (answer->out_requires_grad >> o & 1) != 0;
    }
    memcpy(r->data, data != NULL ? data : "", data != NULL ? data_bytes : 0);
    return trii_record_host(step, &r->op, &call, out);
}
