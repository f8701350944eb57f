/*
 * served.c - modules and functions that other workers call: their names, sessions of callers, the
 * queue of requests, and the thread that works it off (served_run.c).
 *
 * Handlers are inline: they put the request into the queue and return. The thread of the served
 * module takes first what frees memory or is waited for by all owners (updates, releases), then
 * backwards, then forwards: a pipeline whose stages do that keeps as few graphs as 1F1B, without a
 * schedule.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"
#include "train/parallel/rpc/account.h"
#include "train/parallel/rpc/served_run.h"
#include "comm/rpc/rpc_standing.h"

#define MAX_GRAPHS 256
#define MAX_DATA ((size_t)32 << 10)

/* --- life ----------------------------------------------------------------- */

static _Thread_local const trii_served *own; /* whose thread this is; NULL: of none */

/* Locked. */
static void call_thread(trii_served *s)
{
    (void)atomic_fetch_add(&s->called, 1);
    trii_cond_signal(&s->work);
}

static void served_stop(trii_served *s)
{
    trii_mutex_lock(&s->lock);
    s->stop = true;
    call_thread(s);
    trii_mutex_unlock(&s->lock);
}

/* Whether the caller shall join the thread, or detach it: one does. */
static bool claim_thread(trii_served *s)
{
    bool first;

    trii_mutex_lock(&s->lock);
    first = !s->is_claimed;
    s->is_claimed = true;
    trii_mutex_unlock(&s->lock);
    return first;
}

/* The worker has left. */
static void served_released(void *object)
{
    trii_served *s = object;

    served_stop(s);
    if (claim_thread(s))
        trii_thread_detach(&s->thread);
    trii_served_unref(s);
}
static const tri_rpc_object served_type = {.name = "remote module", .release = served_released};

/* --- sessions ------------------------------------------------------------- */

static void session_free(trii_session *session)
{
    trii_places_drop(session);
    trii_free(session);
}

/* Takes out one that is lost. Locked. */
static trii_session *take_lost(trii_served *s)
{
    trii_session **at = &s->sessions, *lost;

    while (*at != NULL && !(*at)->lost)
        at = &(*at)->next;
    lost = *at;
    if (lost != NULL)
        *at = lost->next;
    else
        s->any_lost = false;
    return lost;
}

/* Nobody refers to it any more: the thread of the module forgets it. */
static void session_released(void *object)
{
    trii_session *session = object;
    trii_served *s = session->served;
    bool ended;

    trii_mutex_lock(&s->lock);
    session->lost = true;
    s->any_lost = true;
    ended = s->has_ended;
    if (ended)
        (void)take_lost(s);
    call_thread(s);
    trii_mutex_unlock(&s->lock);
    if (!ended)
        return;
    session_free(session);
    trii_served_unref(s);
}
static const tri_rpc_object session_type = {.name = "session of a remote module",
                                            .release = session_released};

/* A caller has a session for each of its remote modules. */
static bool is_last_of_caller(trii_served *s, const trii_session *session)
{
    const trii_session *other;

    trii_mutex_lock(&s->lock);
    other = s->sessions;
    while (other != NULL && (other->incarnation != session->incarnation ||
                             strcmp(other->caller, session->caller) != 0))
        other = other->next;
    trii_mutex_unlock(&s->lock);
    return other == NULL;
}

static void session_end(trii_served *s, trii_session *session)
{
    trii_served_drop_graphs(s, session);
    trii_stays_drop(s, session->number, 0);
    if (s->accounts != NULL && is_last_of_caller(s, session))
        trii_accounts_forget(s->accounts, session->caller, session->incarnation);
    session_free(session);
    trii_served_unref(s);
}

static tri_status not_served(void)
{
    return TRII_FAIL(TRI_ERR_NOT_FOUND, "it is not served any more");
}

static tri_status open_session(trii_served *s, tri_rpc_request *request)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    trii_remote_opened opened = {.magic = TRII_REMOTE_MAGIC,
                                 .is_function = s->module == NULL,
                                 .has_optimizer = s->optimizer != NULL,
                                 .served = s->number};
    trii_remote_open open;
    trii_session *session;
    tri_rpc_ref *ref = NULL;
    tri_status status;
    bool stop;

    if (in->bytes != sizeof(open))
        return trii_remote_refuse("open");
    memcpy(&open, in->data, sizeof(open));
    if (open.magic != TRII_REMOTE_MAGIC || open.kind != TRII_REMOTE_OPEN)
        return trii_remote_refuse("open");
    session = trii_alloc(1, sizeof(*session), "session");
    if (session == NULL)
        return TRI_ERR_NO_MEMORY;
    session->served = trii_served_ref(s);
    session->number = opened.session = trii_remote_number();
    session->incarnation = open.incarnation;
    snprintf(session->caller, sizeof(session->caller), "%s", tri_rpc_request_caller(request));
    trii_mutex_lock(&s->lock);
    stop = s->stop;
    if (!stop) {
        session->next = s->sessions;
        s->sessions = session;
    }
    trii_mutex_unlock(&s->lock);
    if (stop) {
        trii_free(session);
        trii_served_unref(s);
        return not_served();
    }
    status = tri_rpc_own(s->rpc, NULL, &session_type, session, &ref);
    if (status != TRI_OK) {
        session_released(session);
        return status;
    }
    status = tri_rpc_reply(
        request,
        &(tri_rpc_message){.data = &opened, .bytes = sizeof(opened), .refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref);
    return status;
}

static tri_status run_open(tri_rpc_request *request, void *object)
{
    trii_served *s = trii_served_find(object);
    tri_status status;

    if (s == NULL)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "it is not a remote module, or is not served any more");
    status = open_session(s, request);
    trii_served_unref(s);
    return status;
}

/* --- requests ------------------------------------------------------------- */

static int priority_of(trii_remote_kind kind)
{
    return kind == TRII_REMOTE_BACKWARD                               ? 1
           : kind == TRII_REMOTE_FORWARD || kind == TRII_REMOTE_TYPES ? 2
                                                                      : 0;
}

/* Before it is queued: a call that waits for itself would never be looked at. */
static tri_status check_path(const trii_served *s, tri_rpc_request *request)
{
    const tri_rpc_message *m = tri_rpc_request_message(request);
    trii_remote_forward head;

    if (m->bytes < sizeof(head))
        return trii_remote_refuse("forward");
    memcpy(&head, m->data, sizeof(head));
    if (head.magic != TRII_REMOTE_MAGIC || head.path.n > TRII_REMOTE_LEVELS)
        return trii_remote_refuse("forward");
    for (uint32_t i = 0; i < head.path.n; i++) {
        if (head.path.served[i] == s->number)
            return TRII_FAIL(TRI_ERR_STATE,
                             "%s calls itself through another worker, and would wait for itself",
                             s->name);
    }
    if (head.path.n == TRII_REMOTE_LEVELS)
        return TRII_FAIL(TRI_ERR_STATE, "%s: remote modules are nested deeper than %d", s->name,
                         TRII_REMOTE_LEVELS);
    return TRI_OK;
}

static tri_status enqueue(tri_rpc_request *request, void *object, trii_remote_kind kind)
{
    trii_served *s = trii_served_of_session(object);
    trii_remote_job *job;
    int p = priority_of(kind);
    tri_status status;
    bool stop;

    if (s == NULL && kind == TRII_REMOTE_RELEASE)
        return TRI_OK;
    if (s == NULL)
        return not_served();
    status = p == 2 ? check_path(s, request) : TRI_OK;
    job = status == TRI_OK ? trii_alloc(1, sizeof(*job), "request") : NULL;
    if (job == NULL) {
        trii_served_unref(s);
        return status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    }
    *job = (trii_remote_job){NULL, request, object, kind};
    trii_mutex_lock(&s->lock);
    stop = s->stop;
    if (!stop) {
        *s->queue_end[p] = job;
        s->queue_end[p] = &job->next;
        call_thread(s);
    }
    trii_mutex_unlock(&s->lock);
    trii_served_unref(s);
    if (!stop)
        return TRI_INPROGRESS;
    trii_free(job);
    if (kind == TRII_REMOTE_RELEASE)
        return TRI_OK;
    return not_served();
}

#define HANDLER(name_, kind_)                                                                      \
    static tri_status run_##name_(tri_rpc_request *request, void *object)                          \
    {                                                                                              \
        return enqueue(request, object, kind_);                                                    \
    }

HANDLER(types, TRII_REMOTE_TYPES)
HANDLER(forward, TRII_REMOTE_FORWARD)
HANDLER(backward, TRII_REMOTE_BACKWARD)
HANDLER(release, TRII_REMOTE_RELEASE)
HANDLER(prepare, TRII_REMOTE_PREPARE)
HANDLER(commit, TRII_REMOTE_COMMIT)
HANDLER(drop, TRII_REMOTE_DROP)

#define ANY_PART (SIZE_MAX / 2) /* the worker's max_message limits it */
#define FUNCTION(name_, part_, flags_)                                                             \
    static const tri_rpc_function name_##_function = {                                             \
        .name = "remote." #name_, .max_part = (part_), .flags = (flags_), .run = run_##name_}

FUNCTION(open, 0, 0);
FUNCTION(types, 0, TRI_RPC_INLINE);
FUNCTION(forward, ANY_PART, TRI_RPC_INLINE);
FUNCTION(backward, ANY_PART, TRI_RPC_INLINE);
FUNCTION(release, 0, TRI_RPC_INLINE);
FUNCTION(prepare, 0, TRI_RPC_INLINE);
FUNCTION(commit, 0, TRI_RPC_INLINE);
FUNCTION(drop, 0, TRI_RPC_INLINE);

const tri_rpc_function *const trii_remote_functions[TRII_REMOTE_KINDS] = {
    [TRII_REMOTE_OPEN] = &open_function,       [TRII_REMOTE_TYPES] = &types_function,
    [TRII_REMOTE_FORWARD] = &forward_function, [TRII_REMOTE_BACKWARD] = &backward_function,
    [TRII_REMOTE_RELEASE] = &release_function, [TRII_REMOTE_PREPARE] = &prepare_function,
    [TRII_REMOTE_COMMIT] = &commit_function,   [TRII_REMOTE_DROP] = &drop_function,
    [TRII_REMOTE_FETCH] = &trii_remote_fetch,  [TRII_REMOTE_FETCH_LARGE] = &trii_remote_fetch_large,
};

/* --- the thread ----------------------------------------------------------- */

/* Locked. */
static trii_remote_job *take_job(trii_served *s)
{
    for (int p = 0; p < TRII_REMOTE_PRIORITIES; p++) {
        trii_remote_job *job = s->queue[p];

        if (job == NULL)
            continue;
        s->queue[p] = job->next;
        if (s->queue[p] == NULL)
            s->queue_end[p] = &s->queue[p];
        return job;
    }
    return NULL;
}

static void refuse_job(const trii_remote_job *job)
{
    tri_rpc_fail(job->request, not_served());
}

/* Afterwards this thread reads what the same caller sends, unless it was called meanwhile or the
 * service stops. The worker does not leave before that: a run may go on after the answer. */
static void run_job(trii_served *s, trii_remote_job *job, int called, bool stop)
{
    const trii_session *session = job->session; /* this thread alone may end it */

    trii_rpc_beyond_begin(s->rpc);
    trii_served_run(s, job);
    if (!stop)
        trii_rpc_linger(s->rpc, session->caller, &s->called, called);
    trii_rpc_beyond_end(s->rpc);
}

/* One thing to do; false: it ends. Locked, but not while it does it. */
static bool work(trii_served *s)
{
    trii_session *lost = s->any_lost ? take_lost(s) : NULL;
    trii_remote_job *job = lost == NULL ? take_job(s) : NULL;
    int called = atomic_load(&s->called);
    bool stop = s->stop;

    if (lost == NULL && job == NULL && !stop) {
        trii_cond_wait(&s->work, &s->lock);
        return true;
    }
    trii_mutex_unlock(&s->lock);
    if (lost != NULL)
        session_end(s, lost);
    else if (job != NULL && stop && job->kind != TRII_REMOTE_RELEASE)
        refuse_job(job);
    else if (job != NULL)
        run_job(s, job, called, stop);
    trii_free(job);
    trii_mutex_lock(&s->lock);
    return lost != NULL || job != NULL;
}

/* The last use of it by its thread. Sessions that others still hold end later, without a thread. */
static void end_service(trii_served *s)
{
    trii_session *lost;
    bool last;

    trii_mutex_lock(&s->lock);
    while ((lost = take_lost(s)) != NULL) {
        trii_mutex_unlock(&s->lock); /* what it refers to may be this service */
        session_free(lost);
        (void)atomic_fetch_sub(&s->refs, 1); /* never the last one: the thread has its own */
        trii_mutex_lock(&s->lock);
    }
    s->has_ended = true;
    trii_cond_broadcast(&s->ended);
    last = atomic_fetch_sub(&s->refs, 1) == 1; /* locked: tri_remote_withdraw leaves nothing */
    trii_mutex_unlock(&s->lock);
    if (last)
        trii_served_free(s);
}

static void served_main(void *arg)
{
    trii_served *s = arg;

    own = s;
    trii_mutex_lock(&s->lock);
    while (work(s))
        ;
    trii_mutex_unlock(&s->lock);
    trii_served_drop_all(s);
    trii_served_leave(s);
    end_service(s);
}

/* --- serving -------------------------------------------------------------- */

static tri_status check_module(const trii_served *s)
{
    const tri_module *wrapper = trii_module_wrapper(s->module, NULL);

    if (wrapper != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the module has a %s inside, whose gradients are averaged by "
                         "tri_backward alone: serve the network without it",
                         wrapper->type->name);
    return trii_module_flatten(s->module);
}

static tri_status list_params(trii_served *s)
{
    int64_t n = s->module != NULL ? tri_module_state_count(s->module) : 0;

    s->params = trii_alloc((size_t)n + 1, sizeof(tri_tensor *), "parameters");
    if (s->params == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        tri_state_entry entry = tri_module_state(s->module, i);
        bool twice = false;

        for (int k = 0; k < s->n_params; k++)
            twice = twice || s->params[k] == entry.tensor;
        if (entry.parameter && entry.tensor->requires_grad && !twice)
            s->params[s->n_params++] = tri_tensor_ref(entry.tensor);
    }
    return TRI_OK;
}

static tri_status set_up(trii_served *s, const char *call)
{
    tri_status status = s->module != NULL ? check_module(s) : TRI_OK;

    if (status == TRI_OK)
        status = list_params(s);
    if (status == TRI_OK && s->optimizer != NULL)
        status =
            trii_accounts_create(s->params, s->n_params, s->optimizer, s->versions, &s->accounts);
    if (status == TRI_OK)
        status = tri_rpc_serve(s->rpc, trii_remote_functions, TRII_REMOTE_KINDS);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", call);
}

static bool is_withdrawn(const void *object)
{
    return atomic_load(&((const trii_served *)object)->is_withdrawn);
}

static tri_status start(trii_served *s, const char *call)
{
    tri_rpc_ref *self = NULL;
    void *old = NULL;
    tri_status status = trii_served_start(s, call, served_main);

    if (status != TRI_OK) {
        trii_served_drop_all(s);
        return status;
    }
    trii_served_ref(s); /* the object's */
    status = tri_rpc_own(s->rpc, s->name, &served_type, s, &self);
    if (status == TRI_OK) {
        tri_rpc_ref_unref(self); /* its name keeps it */
        return TRI_OK;
    }
    if (status == TRI_ERR_STATE &&
        trii_rpc_own_again(s->rpc, s->name, &served_type, s, is_withdrawn, &old)) {
        served_released(old);
        return TRI_OK;
    }
    status = TRII_FAIL_CTX(status, "%s", call);
    served_stop(s); /* until it has ended, a withdrawal of the name might find it */
    if (claim_thread(s))
        trii_thread_join(&s->thread);
    trii_served_unref(s);
    return status;
}

static tri_status serve(const trii_served *like, const char *name,
                        const tri_remote_serve_options *opt, const char *call)
{
    static const tri_remote_serve_options defaults;
    tri_rpc *rpc = NULL;
    trii_served *s;
    tri_status status = TRII_CHECK_RESERVED(tri_remote_serve_options, opt);

    opt = opt != NULL ? opt : &defaults;
    if (status == TRI_OK)
        status = trii_need_text(name, call, "name");
    if (status == TRI_OK && strlen(name) > TRI_RPC_MAX_NAME)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the name is longer than %d bytes", call,
                           TRI_RPC_MAX_NAME);
    if (status == TRI_OK && (opt->max_graphs < 0 || opt->versions < TRI_REMOTE_COPY ||
                             opt->versions > TRI_REMOTE_REFUSE))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: max_graphs %d, versions %d", call,
                           opt->max_graphs, (int)opt->versions);
    if (status == TRI_OK) {
        rpc = trii_rpc_resolved(like->rpc, call, false);
        status = rpc != NULL ? TRI_OK : TRI_ERR_STATE;
    }
    s = status == TRI_OK ? trii_alloc(1, sizeof(*s), "remote module") : NULL;
    if (s == NULL)
        return status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    *s = *like;
    s->rpc = rpc;
    atomic_store(&s->refs, 1);
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->number = trii_remote_number();
    s->versions = opt->versions;
    s->max_graphs = opt->max_graphs > 0 ? opt->max_graphs : MAX_GRAPHS;
    trii_mutex_init(&s->lock);
    trii_cond_init(&s->work);
    trii_cond_init(&s->ended);
    for (int p = 0; p < TRII_REMOTE_PRIORITIES; p++)
        s->queue_end[p] = &s->queue[p];
    status = set_up(s, call);
    if (status == TRI_OK)
        status = start(s, call);
    else
        trii_served_drop_all(s);
    trii_served_unref(s);
    return status;
}

tri_status tri_remote_serve(tri_rpc *rpc, const char *name, tri_module *module,
                            tri_optimizer *optimizer, const tri_remote_serve_options *opt)
{
    const trii_served like = {.rpc = rpc, .module = module, .optimizer = optimizer};
    tri_status status = trii_need(module, "remote_serve", "module");

    if (status == TRI_OK)
        status = tri_module_status(module);
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    return status == TRI_OK ? serve(&like, name, opt, "remote_serve") : status;
}

tri_status trii_remote_function_check(const tri_remote_function *function, const char *call)
{
    tri_status status = trii_need(function, call, "function");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_remote_function, function);
    if (status == TRI_OK)
        status = trii_need_text(function->name, call, "function->name");
    if (status == TRI_OK && function->shape == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s has no shape", call, function->name);
    if (status == TRI_OK && function->size > MAX_DATA)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s has %zu bytes of data, at most %zu travel",
                           call, function->name, function->size, MAX_DATA);
    return status;
}

tri_status tri_remote_serve_function(tri_rpc *rpc, const tri_remote_function *function,
                                     void *object, const tri_remote_serve_options *opt)
{
    const trii_served like = {.rpc = rpc, .function = function, .object = object};
    tri_status status = trii_remote_function_check(function, "remote_serve_function");

    if (status == TRI_OK && function->record == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "remote_serve_function: %s has no record",
                           function->name);
    return status == TRI_OK ? serve(&like, function->name, opt, "remote_serve_function") : status;
}

/* What this thread runs is a call of it, or one that it waits for. */
static bool waits_for_us(const trii_served *s)
{
    const trii_remote_running *running = trii_remote_now();

    if (own == s)
        return true;
    for (uint32_t i = 0; running != NULL && i < running->path->n; i++) {
        if (running->path->served[i] == s->number)
            return true;
    }
    return false;
}

tri_status tri_remote_withdraw(tri_rpc *rpc, const char *name)
{
    trii_served *s;
    tri_status status = trii_need_text(name, "remote_withdraw", "name");

    if (status != TRI_OK)
        return status;
    rpc = trii_rpc_resolved(rpc, "remote_withdraw", true);
    if (rpc == NULL)
        return TRI_ERR_STATE;
    s = trii_served_named(rpc, name);
    if (s == NULL)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "remote_withdraw: nothing is served as %s", name);
    if (waits_for_us(s)) {
        trii_served_unref(s);
        return TRII_FAIL(TRI_ERR_STATE, "remote_withdraw: %s waits for this call", name);
    }
    served_stop(s);
    if (claim_thread(s))
        trii_thread_join(&s->thread);
    trii_mutex_lock(&s->lock);
    while (!s->has_ended)
        trii_cond_wait(&s->ended, &s->lock);
    trii_mutex_unlock(&s->lock);
    atomic_store(&s->is_withdrawn, true);
    trii_served_unref(s);
    return TRI_OK;
}
