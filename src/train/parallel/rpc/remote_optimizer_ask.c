/*
 * remote_optimizer_ask.c - what a remote optimizer asks and tells owners.
 */
#include <string.h>

#include "base/err.h"
#include "train/parallel/rpc/remote_optimizer_internal.h"

void trii_remote_key_now(const tri_remote_optimizer *o, trii_remote_key *key_out)
{
    *key_out = (trii_remote_key){.optimizer = o->steps->optimizer, .step = o->steps->step};
    trii_remote_self(o->owners[0].remote->rpc, key_out->trainer, &key_out->incarnation);
}

/* The message for owner i. */
static size_t fill(tri_remote_optimizer *o, trii_remote_kind kind, int i, double factor)
{
    trii_account_request *r = o->request;
    trii_account_member *members = (trii_account_member *)(void *)(r + 1);

    *r = (trii_account_request){.head = {.magic = TRII_REMOTE_MAGIC,
                                         .kind = kind,
                                         .n_backwards = trii_remote_backwards(o->owners[i].remote)},
                                .lr = o->lr,
                                .factor = {factor, factor}};
    trii_remote_key_now(o, &r->head.key);
    r->flags =
        (o->has_lr ? TRII_ACCOUNT_LR : 0) | (o->options.max_norm > 0 ? TRII_ACCOUNT_NORM : 0);
    if (o->members == NULL || kind == TRII_REMOTE_DROP)
        return sizeof(*r);
    r->n_members = (uint32_t)o->size;
    for (int rank = 0; rank < o->size; rank++)
        members[rank] = o->members[(size_t)rank * (size_t)o->n + (size_t)i];
    return sizeof(*r) + (size_t)o->size * sizeof(*members);
}

/* What has been sent to the last session is lost with it, so another one is of no use. */
static tri_status find_session(const trii_remote_owner *owner, tri_rpc_ref **session_out)
{
    trii_remote *remote = owner->remote;
    tri_status status = TRI_OK;

    if (trii_remote_backwards(remote) == 0)
        return trii_remote_session(remote, session_out, NULL);
    trii_mutex_lock(&remote->lock);
    if (remote->session == NULL)
        status = TRII_FAIL(TRI_ERR_PEER_LOST, "the owner of the gradients was lost");
    else
        status = tri_rpc_ref_status(remote->session);
    if (status == TRI_OK)
        *session_out = tri_rpc_ref_ref(remote->session);
    trii_mutex_unlock(&remote->lock);
    return status;
}

static void note(trii_remote_owner *owner, tri_status status)
{
    owner->status = status;
    snprintf(owner->line, sizeof(owner->line), "%s", status != TRI_OK ? tri_last_error() : "");
}

static tri_status send(tri_remote_optimizer *o, trii_remote_kind kind, int i, double factor)
{
    trii_remote_owner *owner = &o->owners[i];
    /* it waits for what is left of the last backward, which may take as long as one */
    const tri_rpc_call_options options = {.timeout_ms = o->options.timeout_ms != 0
                                                            ? o->options.timeout_ms
                                                            : owner->remote->timeout_ms};
    size_t bytes = fill(o, kind, i, factor);
    tri_status status = find_session(owner, &owner->session);

    if (status == TRI_OK)
        status = (tri_rpc_async)(owner->session, trii_remote_functions[kind],
                                 &(tri_rpc_message){.data = o->request, .bytes = bytes}, &options,
                                 &owner->call);
    return status;
}

static tri_status receive(trii_remote_owner *owner)
{
    tri_rpc_message reply;
    tri_status status = tri_rpc_call_wait(owner->call, 0);

    if (status == TRI_OK)
        status = tri_rpc_call_take_reply(owner->call, &reply);
    if (status != TRI_OK)
        return status;
    if (reply.bytes == sizeof(owner->reply))
        memcpy(&owner->reply, reply.data, sizeof(owner->reply));
    if (reply.bytes != sizeof(owner->reply) || owner->reply.magic != TRII_REMOTE_MAGIC)
        status = trii_remote_refuse("updated");
    tri_rpc_message_free(&reply);
    return status;
}

static void release(trii_remote_owner *owner)
{
    tri_rpc_call_destroy(owner->call);
    tri_rpc_ref_unref(owner->session);
    owner->call = NULL;
    owner->session = NULL;
}

tri_status trii_remote_ask(tri_remote_optimizer *o, trii_remote_kind kind, double factor)
{
    int failed = -1;

    for (int i = 0; i < o->n; i++)
        note(&o->owners[i], send(o, kind, i, factor));
    for (int i = 0; i < o->n; i++) {
        if (o->owners[i].status == TRI_OK)
            note(&o->owners[i], receive(&o->owners[i]));
        release(&o->owners[i]);
        if (o->owners[i].status != TRI_OK && failed < 0)
            failed = i;
    }
    if (failed < 0)
        return TRI_OK;
    return TRII_FAIL(o->owners[failed].status, "%s: %s", o->owners[failed].remote->name,
                     o->owners[failed].line);
}

/* A later attempt says the same, should this one not arrive; and an owner without an optimizer has
 * refused the step itself. */
static void forget(tri_rpc_call *call, void *unused)
{
    (void)call;
    (void)unused;
}

void trii_remote_tell_drop(tri_remote_optimizer *o)
{
    const tri_rpc_call_options options = {
        .no_wait = true, .timeout_ms = o->options.timeout_ms, .done = forget};
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    for (int i = 0; i < o->n; i++) {
        trii_remote *remote = o->owners[i].remote;
        tri_rpc_ref *session = NULL;
        size_t bytes = fill(o, TRII_REMOTE_DROP, i, 0);

        trii_mutex_lock(&remote->lock);
        if (remote->session != NULL && tri_rpc_ref_status(remote->session) == TRI_OK)
            session = tri_rpc_ref_ref(remote->session);
        trii_mutex_unlock(&remote->lock);
        if (session == NULL)
            continue;
        (void)!(tri_rpc_async)(session, trii_remote_functions[TRII_REMOTE_DROP],
                               &(tri_rpc_message){.data = o->request, .bytes = bytes}, &options,
                               NULL);
        tri_rpc_ref_unref(session);
    }
    trii_err_set("%s", line);
}
