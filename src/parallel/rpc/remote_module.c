/*
 * remote_module.c - the caller's side of remote modules and functions: sessions with owners, and
 * which types the results of a forward have. What is recorded: remote_call.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "nn/module.h"
#include "parallel/rpc/remote_internal.h"

/* --- who we are ----------------------------------------------------------- */

static trii_once number_once = TRII_ONCE_INITIALIZER;
static uint64_t number_of_process;

static void draw_number(void)
{
    number_of_process = trii_remote_number();
}

void trii_remote_self(tri_rpc *rpc, char name[TRII_REMOTE_NAME], uint64_t *incarnation_out)
{
    trii_once_run(&number_once, draw_number);
    snprintf(name, TRII_REMOTE_NAME, "%s", tri_rpc_name(rpc));
    *incarnation_out = number_of_process;
}

/* --- how backwards are counted -------------------------------------------- */

trii_remote_steps *trii_remote_steps_create(void)
{
    trii_remote_steps *steps = trii_alloc(1, sizeof(*steps), "remote optimizer");

    if (steps == NULL)
        return NULL;
    atomic_store(&steps->refs, 1);
    steps->optimizer = trii_remote_number();
    steps->step = 1;
    return steps;
}

void trii_remote_steps_unref(trii_remote_steps *steps)
{
    if (steps != NULL && atomic_fetch_sub(&steps->refs, 1) == 1)
        trii_free(steps);
}

void trii_remote_steps_next(trii_remote_steps *steps)
{
    steps->step++;
    steps->pass = 0;
    steps->generation = 0;
}

uint32_t trii_remote_backwards(const trii_remote *remote)
{
    return remote->steps != NULL && remote->counted_step == remote->steps->step ? remote->seq : 0;
}

/* --- life ----------------------------------------------------------------- */

tri_status trii_remote_create(tri_rpc *rpc, const char *name, int64_t timeout_ms,
                              trii_remote **remote_out)
{
    const char *slash = strchr(name, '/');
    trii_remote *r;

    if (slash == NULL || slash == name || slash[1] == '\0' || strchr(slash + 1, '/') != NULL ||
        strlen(name) >= sizeof(r->name))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "\"%.100s\" is no name of what a worker serves, like ps/table", name);
    r = trii_alloc(1, sizeof(*r), "remote module");
    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    atomic_store(&r->refs, 1);
    r->rpc = rpc;
    r->timeout_ms = timeout_ms;
    snprintf(r->name, sizeof(r->name), "%s", name);
    trii_mutex_init(&r->lock);
    *remote_out = r;
    return TRI_OK;
}

static void forget_answers(trii_remote *r)
{
    while (r->answers != NULL) {
        trii_remote_answer *next = r->answers->next;

        trii_free(r->answers);
        r->answers = next;
    }
}

/* Locked. What cannot be sent now is sent later, if there is room for it until then. */
static void send_released(trii_remote *r, bool may_wait)
{
    const tri_rpc_call_options options = {.no_wait = !may_wait};
    tri_status status = TRI_OK;

    r->released.magic = TRII_REMOTE_MAGIC;
    r->released.kind = TRII_REMOTE_RELEASE;
    if (r->session != NULL && tri_rpc_ref_status(r->session) == TRI_OK)
        status = (tri_rpc_async)(
            r->session, trii_remote_functions[TRII_REMOTE_RELEASE],
            &(tri_rpc_message){.data = &r->released, .bytes = sizeof(r->released)}, &options, NULL);
    if (status != TRI_INPROGRESS)
        r->released.n = 0;
}

void trii_remote_release_later(trii_remote *r, tri_rpc_ref *session, uint64_t call)
{
    trii_mutex_lock(&r->lock);
    if (session == r->session) {
        r->released.call[r->released.n++] = call;
        send_released(r, r->released.n == TRII_REMOTE_RELEASED);
    }
    trii_mutex_unlock(&r->lock);
}

void trii_remote_unref(trii_remote *r)
{
    if (atomic_fetch_sub(&r->refs, 1) > 1)
        return;
    forget_answers(r);
    tri_rpc_ref_unref(r->session); /* graphs that are left go with it */
    tri_rpc_ref_unref(r->found);
    trii_remote_steps_unref(r->steps);
    trii_mutex_fini(&r->lock);
    trii_free(r);
}

/* --- sessions ------------------------------------------------------------- */

static tri_status take_session(trii_remote *r, const tri_rpc_message *reply)
{
    if (reply->bytes != sizeof(r->opened) || reply->n_refs != 1)
        return trii_remote_refuse("opened");
    memcpy(&r->opened, reply->data, sizeof(r->opened));
    if (r->opened.magic != TRII_REMOTE_MAGIC)
        return trii_remote_refuse("opened");
    if ((r->opened.is_function != 0) != (r->function != NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is a %s: %s", r->name,
                         r->opened.is_function != 0 ? "function" : "module",
                         r->opened.is_function != 0 ? "call it by tri_remote_apply"
                                                    : "call it by tri_remote_module");
    r->session = tri_rpc_ref_ref(reply->refs[0]);
    return TRI_OK;
}

/* Locked. */
static tri_status open_session(trii_remote *r)
{
    const tri_rpc_call_options options = {.timeout_ms = trii_remote_timeout_ms(r)};
    trii_remote_open open = {.magic = TRII_REMOTE_MAGIC, .kind = TRII_REMOTE_OPEN};
    char self[TRII_REMOTE_NAME];
    tri_rpc_message reply;
    tri_status status = TRI_OK;

    tri_rpc_ref_unref(r->session);
    r->session = NULL;
    r->released.n = 0;
    forget_answers(r);
    if (r->found == NULL)
        status = tri_rpc_find(r->rpc, r->name, &r->found);
    if (status != TRI_OK)
        return status;
    trii_remote_self(r->rpc, self, &open.incarnation);
    status = tri_rpc_sync(r->found, trii_remote_functions[TRII_REMOTE_OPEN],
                          &(tri_rpc_message){.data = &open, .bytes = sizeof(open)}, &options,
                          &reply);
    if (status != TRI_OK)
        return status;
    status = take_session(r, &reply);
    tri_rpc_message_free(&reply);
    return status;
}

tri_status trii_remote_session(trii_remote *r, tri_rpc_ref **session_out)
{
    tri_status status = TRI_OK;

    trii_mutex_lock(&r->lock);
    if (r->session == NULL || tri_rpc_ref_status(r->session) != TRI_OK)
        status = open_session(r);
    if (status == TRI_OK && r->released.n > 0)
        send_released(r, false);
    if (status == TRI_OK)
        *session_out = tri_rpc_ref_ref(r->session);
    trii_mutex_unlock(&r->lock);
    return status;
}

void trii_remote_forget(trii_remote *r, const tri_rpc_ref *session)
{
    trii_mutex_lock(&r->lock);
    if (r->session == session) {
        tri_rpc_ref_unref(r->session);
        r->session = NULL;
    }
    trii_mutex_unlock(&r->lock);
}

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
    status = trii_remote_types_get(m, sizeof(head), head.n_types, -1, a->out);
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
    tri_status status = trii_remote_session(r, &session);

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
    status = tri_rpc_sync(
        session, trii_remote_functions[TRII_REMOTE_TYPES],
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

/* Completes `a`, whose inputs and modes are set. */
static tri_status find_answer(trii_remote *r, trii_remote_answer *a)
{
    trii_remote_answer *there, *copy;
    tri_rpc_ref *session = NULL;
    tri_status status = trii_remote_session(r, &session); /* forgets answers of another one */

    tri_rpc_ref_unref(session);
    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&r->lock);
    there = r->answers;
    while (there != NULL && !fits(there, a))
        there = there->next;
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
    copy->next = r->answers;
    r->answers = copy;
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

tri_module *tri_remote_module(tri_rpc *rpc, const char *name, const tri_remote_options *opt)
{
    tri_module *module = tri_module_create(&remote_class);
    tri_status status = tri_module_status(module);

    if (status != TRI_OK)
        return module;
    status = TRII_CHECK_RESERVED(tri_remote_options, opt);
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
        trii_err_set("a %s is no remote module (tri_remote_module)", module->type->name);
        return NULL;
    }
    return ((const remote_module *)tri_module_data(module))->remote;
}
