/*
 * served_run.c - what the thread of a served module does with one request: forwards, each in a
 * context of its own that is kept until its backward (served_backward.c), and the types of results.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/nn/module.h"
#include "train/parallel/rpc/account.h"
#include "train/parallel/rpc/served_run.h"

/* --- forward -------------------------------------------------------------- */

typedef struct forward {
    trii_served *s;
    trii_session *session;
    tri_rpc_request *request;
    const tri_rpc_message *message;
    trii_remote_forward head;
    trii_type in[TRI_REMOTE_TENSORS];
    trii_remote_source sources[TRI_REMOTE_TENSORS]; /* of inputs that are elsewhere */
    const void *data;                               /* of a function */
    tri_tensor *stay[TRI_REMOTE_TENSORS];           /* of results that stay; references */
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
    if (h->magic != TRII_REMOTE_MAGIC || h->n_results < 1 || h->n_results > TRI_REMOTE_TENSORS ||
        h->unsent >> h->n_results != 0 || (h->stay & ~h->unsent) != 0 ||
        (f->dry && (h->elsewhere | h->unsent) != 0) || (h->stay != 0 && h->call == 0))
        return trii_remote_refuse("forward");
    status = trii_remote_types_get(m, sizeof(*h), h->n_types, f->dry ? -1 : 0, h->elsewhere, f->in);
    types = sizeof(*h) + h->n_types * sizeof(trii_remote_type);
    if (status == TRI_OK)
        status = trii_remote_sources_get(m, types, h->n_types, h->elsewhere, f->in, f->sources);
    if (status == TRI_OK)
        status = trii_places_add(f->session, m, f->sources, h->n_types, h->elsewhere);
    types += (size_t)trii_remote_count(h->elsewhere) * sizeof(trii_remote_source);
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
    if ((f->head.elsewhere >> i & 1) != 0)
        return trii_stay_read(f->session, f->request, &f->sources[i], type);
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
            input = make_input(f, (int)i, part);
            part += (f->head.elsewhere >> i & 1) == 0;
            status = tri_tensor_status(input);
        }
        g->in[g->n_in++] = input; /* a failed one, too, is the graph's to release */
        if (status != TRI_OK)
            return status;
        if (input != NULL)
            input->read_only = true; /* of a request, or of what another owner has made */
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

static tri_status record_stays(forward *f)
{
    trii_step *step = trii_step_current();
    tri_status status = TRI_OK;

    for (int o = 0; o < f->g->n_out && status == TRI_OK; o++) {
        trii_vid id;

        if ((f->head.stay >> o & 1) == 0)
            continue;
        status = trii_resolve(step, f->g->out[o], &id);
        if (status == TRI_OK)
            status = trii_stay_record(step, id, &f->stay[o]);
    }
    return status;
}

/* Types of the results that are sent, and what they contain. */
static tri_status answer_forward(const forward *f)
{
    const trii_remote_graph *g = f->g;
    trii_step *step = trii_step_current();
    struct {
        trii_remote_results head;
        trii_remote_type types[TRI_REMOTE_TENSORS];
    } answer;
    tri_rpc_part parts[TRI_REMOTE_TENSORS];
    int n = 0;

    answer.head = (trii_remote_results){.magic = TRII_REMOTE_MAGIC,
                                        .requires_grad = g->out_requires_grad,
                                        .n_random = f->dry ? randoms_of(f) : 0};
    for (int o = 0; o < g->n_out; o++) {
        trii_vid id;
        tri_status status = trii_resolve(step, g->out[o], &id);

        if (status != TRI_OK)
            return status;
        if ((f->head.unsent >> o & 1) != 0)
            continue;
        trii_remote_type_put(&answer.types[n], &step->values[id].type);
        parts[n] = (tri_rpc_part){NULL, trii_type_bytes(&step->values[id].type)};
        if (!f->dry) {
            parts[n].data = tri_data(g->out[o]);
            if (parts[n].data == NULL)
                return tri_tensor_status(g->out[o]) != TRI_OK ? tri_tensor_status(g->out[o])
                                                              : TRI_ERR_STATE;
        }
        n++;
    }
    answer.head.n_types = (uint32_t)n;
    return tri_rpc_reply(
        f->request,
        &(tri_rpc_message){.data = &answer,
                           .bytes = sizeof(answer.head) + (size_t)n * sizeof(trii_remote_type),
                           .parts = parts,
                           .n_parts = f->dry ? 0 : n});
}

static tri_status do_forward(forward *f, const trii_remote_job *job)
{
    trii_served *s = f->s;
    tri_status status = make_inputs(f);

    if (status == TRI_OK)
        status = record_forward(f);
    if (status == TRI_OK)
        status = record_stays(f);
    if (status == TRI_OK && !f->dry)
        status = tri_run();
    if (status == TRI_OK && !f->dry && s->accounts != NULL && f->g->out_requires_grad != 0)
        trii_accounts_keep_read(s->accounts, trii_step_current());
    if (status == TRI_OK)
        status = trii_stays_add(s, job->session->number, f->head.call, f->stay);
    if (status != TRI_OK)
        return status;
    status = answer_forward(f);
    if (status != TRI_OK)
        trii_stays_drop(s, job->session->number, f->head.call);
    return status;
}

static tri_status run_forward(trii_served *s, const trii_remote_job *job)
{
    forward f = {.s = s,
                 .session = job->session,
                 .request = job->request,
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
        status = trii_graph_take(s, &f.g);
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
    trii_stays_unref(f.stay);
    if (status == TRI_OK && !f.dry && f.g->out_requires_grad != 0)
        trii_graph_keep(s, f.g);
    else
        trii_graph_give(s, f.g, status != TRI_OK || f.dry);
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
        trii_remote_graph *g = trii_graph_find(s, job->session, release.call[i]);

        if (release.call[i] != 0)
            trii_stays_drop(s, job->session->number, release.call[i]);
        if (g != NULL)
            trii_graph_give(s, g, false);
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

    /* a release is not repeated: what it names would stay until the end of the session */
    if (job->kind != TRII_REMOTE_RELEASE && tri_rpc_request_is_cancelled(job->request)) {
        if (job->kind == TRII_REMOTE_BACKWARD)
            trii_backward_cancelled(s, job);
        tri_rpc_fail(job->request, TRII_FAIL(TRI_ERR_ABORTED, "it was cancelled before it ran"));
        return;
    }
    switch (job->kind) {
    case TRII_REMOTE_TYPES:
    case TRII_REMOTE_FORWARD:
        status = run_forward(s, job);
        break;
    case TRII_REMOTE_BACKWARD:
        status = trii_backward_run(s, job);
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
        trii_err_set(
            "it failed without a line: memory is short, or a function has returned a failure "
            "without tri_status_fail");
    tri_rpc_fail(job->request, status);
}
