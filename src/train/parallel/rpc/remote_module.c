/*
 * remote_module.c - forwards of remote modules: which types their results have, which the owner is
 * asked once for each combination of operands and modes. What is recorded: remote_call.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"
#include "train/parallel/rpc/remote_internal.h"

/* --- types of results ----------------------------------------------------- */

static bool fits(const trii_remote_answer *a, const trii_remote_answer *question)
{
    if (a->n_in != question->n_in || a->n_out != question->n_out ||
        a->requires_grad != question->requires_grad || a->flags != question->flags ||
        a->autocast != question->autocast)
        return false;
    for (int i = 0; i < a->n_in; i++) {
        if (!trii_type_equal(&a->in[i], &question->in[i]))
            return false;
    }
    return true;
}

static tri_status read_answer(trii_remote_answer *a, const tri_rpc_message *m)
{
    trii_remote_results head;
    tri_device device = a->out[0].device;
    tri_status status;

    if (m->bytes < sizeof(head))
        return trii_remote_refuse("types");
    memcpy(&head, m->data, sizeof(head));
    if (head.magic != TRII_REMOTE_MAGIC || head.n_types != (uint32_t)a->n_out)
        return trii_remote_refuse("types");
    status = trii_remote_types_get(m, sizeof(head), head.n_types, -1, 0, a->out);
    for (int o = 0; o < a->n_out && status == TRI_OK; o++) {
        if (a->out[o].dtype == TRI_DTYPE_NONE)
            status = trii_remote_refuse("a result without a type");
        a->out[o].device = device;
    }
    a->out_requires_grad = head.requires_grad;
    a->n_random = head.n_random;
    return status;
}

/* The owner records a forward of operands of these types, and runs nothing. */
static tri_status ask(trii_remote *r, trii_remote_answer *a)
{
    const trii_remote_running *running = trii_remote_now();
    const tri_rpc_call_options options = {.timeout_ms = trii_remote_timeout_ms(r)};
    struct {
        trii_remote_forward head;
        trii_remote_type types[TRI_REMOTE_TENSORS];
    } question;
    tri_rpc_ref *session = NULL;
    tri_rpc_message reply;
    tri_status status = trii_remote_session(r, &session, NULL);

    if (status != TRI_OK)
        return status;
    question.head = (trii_remote_forward){.magic = TRII_REMOTE_MAGIC,
                                          .kind = TRII_REMOTE_TYPES,
                                          .flags = a->flags,
                                          .autocast = a->autocast,
                                          .n_types = (uint32_t)a->n_in,
                                          .n_results = (uint32_t)a->n_out,
                                          .requires_grad = a->requires_grad};
    if (running != NULL)
        question.head.path = *running->path;
    for (int i = 0; i < a->n_in; i++)
        trii_remote_type_put(&question.types[i], &a->in[i]);
    status = tri_rpc_sync(session, trii_remote_functions[TRII_REMOTE_TYPES],
                          &(tri_rpc_message){.data = &question,
                                             .bytes = sizeof(question.head) +
                                                      (size_t)a->n_in * sizeof(trii_remote_type)},
                          &options, &reply);
    if (status == TRI_ERR_NOT_FOUND)
        trii_remote_forget(r, session);
    tri_rpc_ref_unref(session);
    if (status != TRI_OK)
        return status;
    status = read_answer(a, &reply);
    tri_rpc_message_free(&reply);
    return status;
}

#define ANSWERS 256 /* are kept; the one that was used longest ago goes */

/* Locked. The one that fits is the first from now on; NULL: there is none. */
static trii_remote_answer *answer_to(trii_remote *r, const trii_remote_answer *question)
{
    trii_remote_answer **at = &r->answers, *there;

    while (*at != NULL && !fits(*at, question))
        at = &(*at)->next;
    there = *at;
    if (there == NULL)
        return NULL;
    *at = there->next;
    there->next = r->answers;
    r->answers = there;
    return there;
}

/* Locked. */
static void keep_answer(trii_remote *r, trii_remote_answer *answer)
{
    trii_remote_answer **at = &r->answers;

    answer->next = r->answers;
    r->answers = answer;
    for (int n = 0; n < ANSWERS && *at != NULL; n++)
        at = &(*at)->next;
    trii_free(*at);
    *at = NULL;
}

/* Completes `a`, whose inputs and modes are set. */
static tri_status find_answer(trii_remote *r, trii_remote_answer *a)
{
    trii_remote_answer *there, *copy;
    tri_rpc_ref *session = NULL;
    tri_status status = trii_remote_session(r, &session, NULL); /* forgets answers of another one */

    tri_rpc_ref_unref(session);
    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&r->lock);
    there = answer_to(r, a);
    if (there != NULL)
        *a = *there;
    trii_mutex_unlock(&r->lock);
    if (there != NULL)
        return TRI_OK;
    status = ask(r, a);
    copy = status == TRI_OK ? trii_alloc(1, sizeof(*copy), "types of results") : NULL;
    if (copy == NULL)
        return status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    *copy = *a;
    trii_mutex_lock(&r->lock);
    keep_answer(r, copy);
    trii_mutex_unlock(&r->lock);
    return TRI_OK;
}

/* --- forward -------------------------------------------------------------- */

tri_status trii_remote_check_counts(const trii_remote *r, int n_in, int n_out)
{
    if (n_in >= 0 && n_in <= TRI_REMOTE_TENSORS && n_out >= 1 && n_out <= TRI_REMOTE_TENSORS)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: %d inputs and %d results; 0 to %d and 1 to %d are allowed", r->name, n_in,
                     n_out, TRI_REMOTE_TENSORS, TRI_REMOTE_TENSORS);
}

tri_status trii_remote_describe(trii_step *step, tri_tensor *const *in, int n_in, int n_out,
                                trii_vid *ids, trii_remote_answer *a)
{
    const trii_modes modes = trii_step_modes(step);
    tri_device device = tri_current_device();

    memset(a, 0, sizeof(*a));
    a->n_in = n_in;
    a->n_out = n_out;
    a->flags = modes.no_grad ? TRII_REMOTE_NO_GRAD : 0;
    a->autocast = (uint32_t)modes.autocast;
    for (int i = 0; i < n_in; i++) {
        tri_status status;

        ids[i] = TRII_NO_VALUE;
        if (in[i] == NULL)
            continue;
        status = trii_resolve(step, in[i], &ids[i]);
        if (status != TRI_OK)
            return status;
        trii_type_copy(&a->in[i], &step->values[ids[i]].type);
        device = a->in[i].device;
        a->in[i].device = TRI_CPU(0);
        if (!modes.no_grad)
            a->requires_grad |= (uint64_t)step->values[ids[i]].requires_grad << i;
    }
    for (int o = 0; o < n_out; o++)
        a->out[o].device = device;
    return TRI_OK;
}

static tri_status forward_values(trii_remote *r, bool training, trii_step *step,
                                 tri_tensor *const *in, int n_in, trii_vid *out, int n_out)
{
    trii_remote_answer answer;
    trii_vid ids[TRI_REMOTE_TENSORS];
    tri_status status = trii_remote_check_counts(r, n_in, n_out);

    if (status == TRI_OK)
        status = trii_remote_describe(step, in, n_in, n_out, ids, &answer);
    if (status != TRI_OK)
        return status;
    answer.flags |= training ? TRII_REMOTE_TRAINING : 0;
    status = find_answer(r, &answer);
    return status == TRI_OK ? trii_remote_record(r, step, ids, n_in, NULL, &answer, out) : status;
}

typedef struct remote_module {
    trii_remote *remote; /* NULL: its making has failed */
} remote_module;

static void module_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    const remote_module *m = tri_module_data(self);
    trii_step *step = trii_step_current();
    trii_vid ids[TRI_REMOTE_TENSORS];
    tri_status status = TRI_ERR_NO_MEMORY;

    if (step != NULL)
        status =
            forward_values(m->remote, tri_module_is_training(self), step, in, n_in, ids, n_out);
    if (status != TRI_OK) {
        trii_forward_refused(status, out, n_out);
        return;
    }
    for (int o = 0; o < n_out; o++)
        out[o] = trii_handle_recorded(step, ids[o]);
}

static void module_destroy(tri_module *self)
{
    const remote_module *m = tri_module_data(self);

    if (m->remote != NULL)
        trii_remote_unref(m->remote);
}

static int module_repr(tri_module *self, char *text, size_t bytes)
{
    const remote_module *m = tri_module_data(self);

    return snprintf(text, bytes, "%s", m->remote != NULL ? m->remote->name : "");
}

static const tri_module_class remote_class = {.name = "RemoteModule",
                                              .size = sizeof(remote_module),
                                              .forward = module_forward,
                                              .destroy = module_destroy,
                                              .extra_repr = module_repr};

tri_module *tri_remote_module(tri_rpc *rpc, const char *name, const tri_remote_module_options *opt)
{
    tri_module *module = tri_module_create(&remote_class);
    tri_status status = tri_module_status(module);

    if (status != TRI_OK)
        return module;
    status = TRII_CHECK_RESERVED(tri_remote_module_options, opt);
    if (status == TRI_OK)
        status = trii_need_text(name, "remote_module", "name");
    if (status == TRI_OK)
        status = trii_remote_create(rpc, name, opt != NULL ? opt->timeout_ms : 0,
                                    &((remote_module *)tri_module_data(module))->remote);
    if (status != TRI_OK)
        trii_module_fail(module, TRII_FAIL_CTX(status, "tri_remote_module"));
    return module;
}

trii_remote *trii_remote_of(tri_module *module)
{
    if (module == NULL) {
        trii_err_set("the module is NULL");
        return NULL;
    }
    if (tri_module_status(module) != TRI_OK)
        return NULL;
    if (module->type != &remote_class) {
        trii_err_set("a %s is not a remote module (tri_remote_module)", module->type->name);
        return NULL;
    }
    return ((const remote_module *)tri_module_data(module))->remote;
}
