/*
 * served_run.c - what the thread of a served module does with one request: forwards, each in a
 * context of its own that is kept until its backward, backwards, and the types of results.
 *
 * A context that has been used is used again: a forward that repeats the last one there is recorded
 * without being checked, and its plan is found again.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "nn/module.h"
#include "parallel/rpc/account.h"

/* --- graphs --------------------------------------------------------------- */

static void free_inputs(trii_remote_graph *g)
{
    for (int i = 0; i < g->n_in; i++)
        tri_tensor_unref(g->in[i]);
    g->n_in = 0;
}

static void graph_free(trii_remote_graph *g)
{
    tri_context_destroy(g->context);
    free_inputs(g);
    trii_free(g);
}

/* With a context that has no step. */
static tri_status graph_take(trii_served *s, trii_remote_graph **graph_out)
{
    trii_remote_graph *g = s->idle;
    tri_status status = TRI_OK;

    if (g != NULL) {
        s->idle = g->next;
    } else {
        g = trii_alloc(1, sizeof(*g), "graph");
        if (g == NULL)
            return TRI_ERR_NO_MEMORY;
        status = tri_context_create(&g->context);
        if (status != TRI_OK) {
            trii_free(g);
            return status;
        }
    }
    *graph_out = g;
    return TRI_OK;
}

/* Its step ends. `bad`: it may hold what must not run, so the context goes, too. The context must
 * not be entered. */
static void graph_give(trii_served *s, trii_remote_graph *g, bool bad)
{
    tri_status status = bad ? TRI_ERR_STATE : tri_context_enter(g->context);

    if (status == TRI_OK) {
        status = tri_step_end_status();
        if (tri_context_leave() != TRI_OK)
            status = TRI_ERR_STATE;
    }
    if (status != TRI_OK) {
        graph_free(g);
        return;
    }
    free_inputs(g);
    g->session = NULL;
    g->next = s->idle;
    s->idle = g;
}

static void graph_keep(trii_served *s, trii_remote_graph *g)
{
    g->session->n_graphs++;
    g->next = s->graphs;
    s->graphs = g;
}

/* Takes the graph of this call out of the list; NULL = there is none. */
static trii_remote_graph *graph_find(trii_served *s, const trii_session *session, uint64_t call)
{
    trii_remote_graph **at = &s->graphs, *g;

    while (*at != NULL && ((*at)->session != session || (*at)->call != call))
        at = &(*at)->next;
    g = *at;
    if (g != NULL) {
        *at = g->next;
        g->session->n_graphs--;
    }
    return g;
}

void trii_served_drop_graphs(trii_served *s, const trii_session *session)
{
    trii_remote_graph **at = &s->graphs;

    while (*at != NULL) {
        trii_remote_graph *g = *at;

        if (session != NULL && g->session != session) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        g->session->n_graphs--;
        graph_give(s, g, false);
    }
}

void trii_served_drop_all(trii_served *s)
{
    trii_served_drop_graphs(s, NULL);
    while (s->idle != NULL) {
        trii_remote_graph *g = s->idle;

        s->idle = g->next;
        graph_free(g);
    }
    trii_accounts_destroy(s->accounts);
    s->accounts = NULL;
    for (int i = 0; i < s->n_params; i++)
        tri_tensor_unref(s->params[i]);
    s->n_params = 0;
    trii_free(s->params);
    s->params = NULL;
}

/* --- forward -------------------------------------------------------------- */

typedef struct forward {
    trii_served *s;
    const tri_rpc_message *message;
    trii_remote_forward head;
    trii_type in[TRI_REMOTE_TENSORS];
    const void *data; /* of a function */
    trii_remote_graph *g;
    bool dry; /* only the types are wanted */
} forward;

static tri_status read_forward(forward *f)
{
    const tri_rpc_message *m = f->message;
    trii_remote_forward *h = &f->head;
    size_t types;
    tri_status status;

    if (m->bytes < sizeof(*h))
        return trii_remote_refuse("forward");
    memcpy(h, m->data, sizeof(*h));
    if (h->magic != TRII_REMOTE_MAGIC || h->n_results < 1 || h->n_results > TRI_REMOTE_TENSORS)
        return trii_remote_refuse("forward");
    status = trii_remote_types_get(m, sizeof(*h), h->n_types, f->dry ? -1 : 0, f->in);
    types = sizeof(*h) + h->n_types * sizeof(trii_remote_type);
    if (status == TRI_OK && (m->bytes - types != h->data_bytes ||
                             h->data_bytes != (f->s->function != NULL ? f->s->function->size : 0)))
        status = trii_remote_refuse("it has data of another function, or of another version of it");
    if (status == TRI_OK && h->autocast != TRI_DTYPE_NONE && h->autocast != TRI_DTYPE_BF16 &&
        h->autocast != TRI_DTYPE_F16)
        status = trii_remote_refuse("a mode that does not exist");
    if (status != TRI_OK)
        return status;
    f->data = (const char *)m->data + types;
    return TRI_OK;
}

/* A graph keeps its inputs. */
static tri_tensor *make_input(const forward *f, int i, int part)
{
    const trii_type *type = &f->in[i];

    if (trii_type_bytes(type) == 0)
        return tri_tensor_create(type->shape, type->ndim, type->dtype);
    if (f->dry)
        return trii_remote_untouched(type);
    if ((f->head.flags & TRII_REMOTE_NO_GRAD) != 0)
        return trii_remote_wrap(type, &f->message->parts[part]);
    return tri_tensor_from(type->shape, type->ndim, type->dtype, f->message->parts[part].data);
}

static tri_status make_inputs(const forward *f)
{
    trii_remote_graph *g = f->g;
    int part = 0;

    for (uint32_t i = 0; i < f->head.n_types; i++) {
        tri_tensor *input = NULL;
        tri_status status = TRI_OK;

        if (f->in[i].dtype != TRI_DTYPE_NONE) {
            input = make_input(f, (int)i, part++);
            status = tri_tensor_status(input);
        }
        g->in[g->n_in++] = input; /* a failed one, too, is the graph's to release */
        if (status != TRI_OK)
            return status;
        if (input != NULL && (f->head.requires_grad >> i & 1) != 0 &&
            trii_dtype_is_float(f->in[i].dtype))
            tri_requires_grad(input, true);
    }
    return TRI_OK;
}

static void call_module(const forward *f)
{
    trii_remote_graph *g = f->g;
    bool training = (f->head.flags & TRII_REMOTE_TRAINING) != 0;

    if (f->s->module == NULL) {
        for (int o = 0; o < g->n_out; o++)
            g->out[o] = NULL;
        f->s->function->record(f->data, g->in, g->n_in, g->out, g->n_out, f->s->object);
        return;
    }
    if (tri_module_is_training(f->s->module) != training)
        tri_module_train(f->s->module, training);
    tri_forward_n(f->s->module, g->in, g->n_in, g->out, g->n_out);
}

/* Random numbers of a module are those that the caller would draw; how many a function draws the
 * caller does not know, so they are of another stream. */
static void continue_random(const forward *f, trii_step *step)
{
    tri_rng from = {f->head.random_seed, f->head.random_stream, f->head.random_step};
    bool own = f->s->module == NULL;

    if (own)
        from.stream ^= (uint64_t)(f->head.random_first + 1) << 32;
    trii_random_continue(step, &from, own ? 0 : f->head.random_first);
}

static tri_status check_results(forward *f, trii_step *step)
{
    trii_remote_graph *g = f->g;

    g->out_requires_grad = 0;
    for (int o = 0; o < g->n_out; o++) {
        trii_vid id;
        tri_status status;

        if (g->out[o] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s has not set result %d", f->s->name, o);
        status = tri_tensor_status(g->out[o]);
        if (status == TRI_OK)
            status = trii_resolve(step, g->out[o], &id);
        if (status != TRI_OK)
            return status;
        g->out_requires_grad |= (uint64_t)step->values[id].requires_grad << o;
        (void)tri_keep(g->out[o]);
    }
    return step->failed;
}

static tri_status record_forward(forward *f)
{
    const trii_modes modes = {(f->head.flags & TRII_REMOTE_NO_GRAD) != 0,
                              (tri_dtype)f->head.autocast};
    trii_step *step = trii_step_current();

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (f->dry)
        trii_step_only_record(step); /* the context goes with it */
    continue_random(f, step);
    if (modes.no_grad)
        tri_no_grad_begin();
    if (modes.autocast != TRI_DTYPE_NONE)
        tri_autocast_begin(modes.autocast);
    f->g->n_out = (int)f->head.n_results;
    call_module(f);
    if (modes.autocast != TRI_DTYPE_NONE)
        tri_autocast_end();
    if (modes.no_grad)
        tri_no_grad_end();
    return check_results(f, step);
}

static uint32_t randoms_of(const forward *f)
{
    const trii_step *step = trii_step_current();

    return f->s->module == NULL ? 0 : step->random_count - f->head.random_first;
}

/* Types of the results, and what they contain. */
static tri_status answer_forward(const forward *f, tri_rpc_request *request)
{
    const trii_remote_graph *g = f->g;
    trii_step *step = trii_step_current();
    struct {
        trii_remote_results head;
        trii_remote_type types[TRI_REMOTE_TENSORS];
    } answer;
    tri_rpc_part parts[TRI_REMOTE_TENSORS];

    answer.head = (trii_remote_results){.magic = TRII_REMOTE_MAGIC,
                                        .n_types = (uint32_t)g->n_out,
                                        .requires_grad = g->out_requires_grad,
                                        .n_random = f->dry ? randoms_of(f) : 0};
    for (int o = 0; o < g->n_out; o++) {
        trii_vid id;
        tri_status status = trii_resolve(step, g->out[o], &id);

        if (status != TRI_OK)
            return status;
        trii_remote_type_put(&answer.types[o], &step->values[id].type);
        parts[o] = (tri_rpc_part){NULL, trii_type_bytes(&step->values[id].type)};
        if (f->dry)
            continue;
        parts[o].data = tri_data(g->out[o]);
        if (parts[o].data == NULL)
            return tri_tensor_status(g->out[o]) != TRI_OK ? tri_tensor_status(g->out[o])
                                                          : TRI_ERR_STATE;
    }
    return tri_rpc_reply(request,
                         &(tri_rpc_message){.data = &answer,
                                            .bytes = sizeof(answer.head) +
                                                     (size_t)g->n_out * sizeof(trii_remote_type),
                                            .parts = parts,
                                            .n_parts = f->dry ? 0 : g->n_out});
}

static tri_status do_forward(forward *f, const trii_remote_job *job)
{
    trii_served *s = f->s;
    tri_status status = make_inputs(f);

    if (status == TRI_OK)
        status = record_forward(f);
    if (status == TRI_OK && !f->dry)
        status = tri_run();
    if (status == TRI_OK && !f->dry && s->accounts != NULL && f->g->out_requires_grad != 0)
        trii_accounts_keep_read(s->accounts, trii_step_current());
    return status == TRI_OK ? answer_forward(f, job->request) : status;
}

static tri_status run_forward(trii_served *s, const trii_remote_job *job)
{
    forward f = {.s = s,
                 .message = tri_rpc_request_message(job->request),
                 .dry = job->kind == TRII_REMOTE_TYPES};
    trii_remote_running running = {.request = job->request};
    tri_status status = read_forward(&f);

    if (status == TRI_OK && job->session->n_graphs >= s->max_graphs)
        status = TRII_FAIL(TRI_ERR_STATE,
                           "%d forwards of %s wait for their backward, as many as are kept "
                           "(max_graphs): is tri_step_end called after each step?",
                           job->session->n_graphs, s->name);
    if (status == TRI_OK)
        status = graph_take(s, &f.g);
    if (status != TRI_OK)
        return status;
    f.g->path = f.head.path;
    f.g->path.served[f.g->path.n++] = s->number;
    running.path = &f.g->path;
    f.g->session = job->session;
    f.g->call = f.head.call;
    f.g->requires_grad = f.head.requires_grad;
    status = tri_context_enter(f.g->context);
    if (status == TRI_OK) {
        trii_remote_now_set(&running);
        status = do_forward(&f, job);
        trii_remote_now_set(NULL);
        (void)!tri_context_leave();
    }
    if (status == TRI_OK && !f.dry && f.g->out_requires_grad != 0)
        graph_keep(s, f.g);
    else
        graph_give(s, f.g, status != TRI_OK || f.dry);
    return status;
}

/* --- backward ------------------------------------------------------------- */

typedef struct backward {
    trii_served *s;
    const tri_rpc_message *message;
    trii_remote_backward head;
    trii_remote_graph *g;
    trii_type types[TRI_REMOTE_TENSORS];
    tri_tensor *seeds[TRI_REMOTE_TENSORS], *outputs[TRI_REMOTE_TENSORS];
    int n;
    tri_tensor **inputs, **grads; /* [n_wanted + the parameters] */
    int n_wanted;
    bool params; /* gradients of the parameters are wanted */
} backward;

/* The seeds of a bit mask's results, in order. */
static tri_status make_seeds(backward *b)
{
    trii_step *step = trii_step_current();

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
        seed = trii_remote_wrap(&b->types[b->n], &b->message->parts[b->n]);
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
    for (int i = 0; i < b->n_wanted && status == TRI_OK; i++) {
        if (b->grads[i] != NULL)
            (void)tri_keep(b->grads[i]);
    }
    return status == TRI_OK && b->params ? add_to_account(b, step) : status;
}

static tri_status answer_backward(backward *b, tri_rpc_request *request)
{
    struct {
        trii_remote_results head;
        trii_remote_type types[TRI_REMOTE_TENSORS];
    } answer = {.head = {.magic = TRII_REMOTE_MAGIC}};
    tri_rpc_part parts[TRI_REMOTE_TENSORS];
    trii_step *step = trii_step_current();
    int n = 0, k = 0;

    for (int i = 0; i < b->g->n_in; i++) {
        tri_tensor *grad;
        trii_vid id;
        tri_status status;

        if ((b->head.wanted >> i & 1) == 0)
            continue;
        grad = b->grads[k++];
        if (grad == NULL)
            continue;
        status = trii_resolve(step, grad, &id);
        if (status != TRI_OK)
            return status;
        trii_remote_type_put(&answer.types[n], &step->values[id].type);
        parts[n] = (tri_rpc_part){tri_data(grad), trii_type_bytes(&step->values[id].type)};
        if (parts[n].data == NULL)
            return TRI_ERR_STATE;
        answer.head.present |= (uint64_t)1 << i;
        n++;
    }
    answer.head.n_types = (uint32_t)n;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &answer,
                                                     .bytes = sizeof(answer.head) +
                                                              (size_t)n * sizeof(trii_remote_type),
                                                     .parts = parts,
                                                     .n_parts = n});
}

static tri_status do_backward(backward *b, const trii_remote_job *job)
{
    trii_step *step = trii_step_current();
    trii_accounts *accounts = b->s->accounts;
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    b->params = accounts != NULL && b->head.key.optimizer != 0 &&
                trii_account_wants(accounts, &b->head.key);
    if (accounts != NULL)
        trii_accounts_read_again(accounts, step);
    status = record_backward(b, step);
    if (status == TRI_OK)
        status = tri_run();
    if (b->params)
        trii_account_added(accounts, &b->head.key, status);
    return status == TRI_OK ? answer_backward(b, job->request) : status;
}

static tri_status read_backward(backward *b)
{
    const tri_rpc_message *m = b->message;
    trii_remote_backward *h = &b->head;

    if (m->bytes < sizeof(*h))
        return trii_remote_refuse("backward");
    memcpy(h, m->data, sizeof(*h));
    if (h->magic != TRII_REMOTE_MAGIC || h->order.n_nested > TRII_REMOTE_LEVELS ||
        memchr(h->key.trainer, '\0', sizeof(h->key.trainer)) == NULL)
        return trii_remote_refuse("backward");
    return trii_remote_types_get(m, sizeof(*h), h->n_types, 0, b->types);
}

static tri_status run_backward(trii_served *s, const trii_remote_job *job)
{
    backward b = {.s = s, .message = tri_rpc_request_message(job->request)};
    trii_remote_running running = {
        .key = &b.head.key, .order = &b.head.order, .request = job->request};
    bool keep;
    tri_status status = read_backward(&b);

    if (status != TRI_OK)
        return status;
    b.g = graph_find(s, job->session, b.head.call);
    if (b.g == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "the forward of %s whose backward this is has been dropped",
                         s->name);
    running.path = &b.g->path;
    keep = (b.head.flags & TRII_REMOTE_KEEP) != 0;
    status = tri_context_enter(b.g->context);
    if (status == TRI_OK) {
        trii_remote_now_set(&running);
        status = do_backward(&b, job);
        trii_remote_now_set(NULL);
        (void)!tri_context_leave();
    }
    if (status == TRI_OK && keep)
        graph_keep(s, b.g);
    else
        graph_give(s, b.g, status != TRI_OK);
    for (int k = 0; k < b.n; k++)
        tri_tensor_unref(b.seeds[k]);
    trii_free(b.inputs);
    return status;
}

/* --- the others ----------------------------------------------------------- */

static tri_status run_release(trii_served *s, const trii_remote_job *job)
{
    const tri_rpc_message *m = tri_rpc_request_message(job->request);
    trii_remote_release release;

    if (m->bytes != sizeof(release))
        return trii_remote_refuse("release");
    memcpy(&release, m->data, sizeof(release));
    if (release.magic != TRII_REMOTE_MAGIC || release.n > TRII_REMOTE_RELEASED)
        return trii_remote_refuse("release");
    for (uint64_t i = 0; i < release.n; i++) {
        trii_remote_graph *g = graph_find(s, job->session, release.call[i]);

        if (g != NULL)
            graph_give(s, g, false);
    }
    return tri_rpc_reply(job->request, NULL);
}

static tri_status run_update(trii_served *s, const trii_remote_job *job)
{
    const tri_rpc_message *m = tri_rpc_request_message(job->request);
    trii_remote_updated updated = {.magic = TRII_REMOTE_MAGIC};
    trii_remote_update update;
    tri_status status;

    if (m->bytes < sizeof(update))
        return trii_remote_refuse("update");
    memcpy(&update, m->data, sizeof(update));
    if (update.magic != TRII_REMOTE_MAGIC || update.kind != job->kind ||
        memchr(update.key.trainer, '\0', sizeof(update.key.trainer)) == NULL)
        return trii_remote_refuse("update");
    if (s->accounts == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "%s is served without an optimizer", s->name);
    status = trii_account_update(s->accounts, m->data, m->bytes, &updated);
    return status == TRI_OK
               ? tri_rpc_reply(job->request,
                               &(tri_rpc_message){.data = &updated, .bytes = sizeof(updated)})
               : status;
}

void trii_served_run(trii_served *s, trii_remote_job *job)
{
    unsigned lines = trii_err_lines();
    tri_status status;

    if (tri_rpc_request_is_cancelled(job->request)) {
        if (job->kind == TRII_REMOTE_BACKWARD) { /* its caller counts the graph as used up */
            const tri_rpc_message *m = tri_rpc_request_message(job->request);
            backward b = {.s = s, .message = m};

            b.g = read_backward(&b) == TRI_OK ? graph_find(s, job->session, b.head.call) : NULL;
            if (b.g != NULL)
                graph_give(s, b.g, false);
        }
        tri_rpc_fail(job->request, TRII_FAIL(TRI_ERR_ABORTED, "it was cancelled before it ran"));
        return;
    }
    switch (job->kind) {
    case TRII_REMOTE_TYPES:
    case TRII_REMOTE_FORWARD:
        status = run_forward(s, job);
        break;
    case TRII_REMOTE_BACKWARD:
        status = run_backward(s, job);
        break;
    case TRII_REMOTE_RELEASE:
        status = run_release(s, job);
        break;
    default:
        status = run_update(s, job);
        break;
    }
    if (status == TRI_OK)
        return;
    if (trii_err_lines() == lines)
        trii_err_set("no memory, or no reason");
    tri_rpc_fail(job->request, status);
}
