/*
 * remote_session.c - what a caller has of an owner: a session, opened when it is first needed and
 * again after the owner was lost. Also how a trainer's backwards are numbered, and for how long it
 * waits.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "train/parallel/rpc/remote_internal.h"

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
                         "\"%.100s\" names nothing that a worker could serve, as ps/table does",
                         name);
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

/* An owner that has gone has released everything, and this worker that goes asks for no more. In
 * the thread of a trainer, too, whose line stays. */
static void end_release(tri_rpc_call *call, void *arg)
{
    char line[TRII_ERR_BYTES];
    tri_status status;

    (void)arg;
    if (tri_rpc_call_error(call)[0] == '\0')
        return;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    status = tri_rpc_call_test(call);
    if (status != TRI_ERR_PEER_LOST && status != TRI_ERR_STATE && status != TRI_ERR_ABORTED)
        TRII_LOG(TRII_LOG_WARN, "parallel", "an owner may still keep what a step has released: %s",
                 tri_rpc_call_error(call));
    trii_err_set("%s", line);
}

/* Locked. What cannot be sent now is sent later, if there is room for it until then. */
static void send_released(trii_remote *r, bool may_wait)
{
    const tri_rpc_call_options options = {.no_wait = !may_wait, .done = end_release};
    tri_status status = TRI_OK;

    r->released.magic = TRII_REMOTE_MAGIC;
    r->released.kind = TRII_REMOTE_RELEASE;
    if (r->session != NULL && tri_rpc_ref_status(r->session) == TRI_OK)
        status =
            (tri_rpc_async)(r->session, trii_remote_functions[TRII_REMOTE_RELEASE],
                            &(tri_rpc_message){.data = &r->released, .bytes = sizeof(r->released)},
                            &options, NULL);
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

int64_t trii_remote_timeout_ms(const trii_remote *remote)
{
    const trii_remote_running *running = trii_remote_now();
    int64_t left = running != NULL ? tri_rpc_request_left_ms(running->request) : TRI_FOREVER;

    if (left == TRI_FOREVER)
        return remote->timeout_ms;
    left = left > 0 ? left : 1;
    return remote->timeout_ms <= 0 || left < remote->timeout_ms ? left : remote->timeout_ms;
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
    memset(r->known, 0, sizeof(r->known));
    if (r->found == NULL)
        status = tri_rpc_find(r->rpc, r->name, &r->found);
    if (status != TRI_OK)
        return status;
    trii_remote_self(r->rpc, self, &open.incarnation);
    status =
        tri_rpc_sync(r->found, trii_remote_functions[TRII_REMOTE_OPEN],
                     &(tri_rpc_message){.data = &open, .bytes = sizeof(open)}, &options, &reply);
    if (status != TRI_OK)
        return status;
    status = take_session(r, &reply);
    tri_rpc_message_free(&reply);
    return status;
}

tri_status trii_remote_session(trii_remote *r, tri_rpc_ref **session_out, uint64_t *number_out)
{
    tri_status status = TRI_OK;

    trii_mutex_lock(&r->lock);
    if (r->session == NULL || tri_rpc_ref_status(r->session) != TRI_OK)
        status = open_session(r);
    if (status == TRI_OK && r->released.n > 0)
        send_released(r, false);
    if (status == TRI_OK)
        *session_out = tri_rpc_ref_ref(r->session);
    if (number_out != NULL)
        *number_out = r->opened.session;
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
