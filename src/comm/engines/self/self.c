/*
 * self.c - the engine of a group of one: every collective is a copy, and so is a message, once
 * both its send and its receive are there.
 */
#include "comm/engines/self/self.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/engines/matching.h"
#include "os/futex.h"

typedef struct self_group {
    trii_fault *fault;
    const int *names;
    trii_lock lock;
    trii_tags recvs, any_recvs; /* guard: lock, as all below */
    trii_tags kept;             /* messages without a receive */
    size_t kept_bytes;
    uint64_t n_recvs;
} self_group;

typedef struct self_kept {
    trii_tagged tagged;
    trii_message message;
    trii_op *send; /* its data are in the sender's buffer; NULL = here */
    char data[];
} self_kept;

static tri_status self_create(const trii_group_args *args, void **self_out)
{
    self_group *g;

    if (args->size != 1)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine self: a group of %d, only 1 works",
                         args->size);
    g = trii_alloc(1, sizeof(*g), "group of one");
    if (g == NULL)
        return TRI_ERR_NO_MEMORY;
    g->fault = args->fault;
    g->names = args->names;
    *self_out = g;
    return TRI_OK;
}

/* --- messages (guard: lock) ----------------------------------------------- */

static trii_message message_of(const trii_op *send)
{
    return (trii_message){
        .dtype = send->call.dtype, .count = send->call.count, .bytes = send->call.bytes};
}

/* Ends the receive, with the message if both sides agree. False: the message still is there. */
static bool give(trii_op *recv, const trii_message *message, const void *data)
{
    char why[TRII_ERR_BYTES];

    recv->peer = 0;
    if (message->dtype != recv->call.dtype) {
        snprintf(why, sizeof(why), "the message is of %s; it stays for a receive of that",
                 tri_dtype_name(message->dtype));
        trii_op_finish(recv, TRI_ERR_INVALID_ARG, why);
        return false;
    }
    if (!trii_recv_fits(recv, message, why)) {
        trii_op_finish(recv, TRI_ERR_INVALID_ARG, why);
        return false;
    }
    if (message->bytes > 0)
        memcpy(recv->call.dst, data, message->bytes);
    trii_op_finish(recv, TRI_OK, NULL);
    return true;
}

static void drop(self_group *g, self_kept *kept)
{
    trii_tags_remove(&g->kept, &kept->tagged);
    if (kept->send == NULL)
        g->kept_bytes -= kept->message.bytes;
    g->kept_bytes -= sizeof(*kept);
    trii_free(kept);
}

static void post_send(self_group *g, trii_op *op)
{
    trii_message message = message_of(op);
    bool copied = trii_is_copied(message.bytes, g->kept_bytes);
    trii_op *recv;
    self_kept *kept;

    while ((recv = trii_recv_take(&g->recvs, &g->any_recvs, trii_tag_of(&op->call), 0)) != NULL) {
        if (give(recv, &message, op->call.src)) {
            trii_op_finish(op, TRI_OK, NULL);
            return;
        }
    }
    kept = trii_alloc(1, sizeof(*kept) + (copied ? message.bytes : 0), "message to oneself");
    if (kept == NULL) {
        trii_op_finish(op, TRI_ERR_NO_MEMORY, tri_last_error());
        return;
    }
    kept->tagged.tag = trii_tag_of(&op->call);
    kept->message = message;
    kept->send = copied ? NULL : op;
    g->kept_bytes += sizeof(*kept) + (copied ? message.bytes : 0);
    trii_tags_add(&g->kept, &kept->tagged);
    if (copied && message.bytes > 0)
        memcpy(kept->data, op->call.src, message.bytes);
    if (copied)
        trii_op_finish(op, TRI_OK, NULL);
}

static void post_recv(self_group *g, trii_op *op)
{
    self_kept *kept = (self_kept *)trii_tags_find(&g->kept, trii_tag_of(&op->call));
    trii_op *send;

    if (kept == NULL) {
        trii_recv_wait(op->call.kind == TRII_KIND_RECV ? &g->recvs : &g->any_recvs, op,
                       ++g->n_recvs);
        return;
    }
    send = kept->send;
    if (!give(op, &kept->message, send != NULL ? send->call.src : kept->data))
        return;
    if (send != NULL)
        trii_op_finish(send, TRI_OK, NULL);
    drop(g, kept);
}

/* Ends all that waits; messages are dropped. */
static void end_all(self_group *g, tri_status status, const char *why)
{
    trii_tags *const recvs[] = {&g->recvs, &g->any_recvs};
    trii_tagged *one;
    trii_op *op;

    for (int i = 0; i < 2; i++) {
        while ((op = trii_waiting_pop(recvs[i])) != NULL)
            trii_op_finish(op, status, why);
    }
    while ((one = trii_tags_walk(&g->kept, NULL)) != NULL) {
        self_kept *kept = (self_kept *)one;

        if (kept->send != NULL)
            trii_op_finish(kept->send, status, why);
        drop(g, kept);
    }
    trii_tags_clear(&g->kept);
}

static tri_status submit_message(self_group *g, trii_op *op)
{
    tri_status status;

    trii_lock_take(&g->lock);
    status = trii_fault_status(g->fault);
    if (status == TRI_OK && op->call.kind == TRII_KIND_SEND)
        post_send(g, op);
    else if (status == TRI_OK)
        post_recv(g, op);
    trii_lock_drop(&g->lock);
    return status == TRI_OK ? TRI_OK : TRII_FAIL(status, "%s", g->fault->text);
}

/* --- the table ------------------------------------------------------------ */

static tri_status self_submit(void *self, trii_op *op, bool waits)
{
    const trii_collective *call = &op->call;
    size_t bytes = call->bytes;

    (void)waits;
    if (trii_kind_in(call->kind, TRII_KINDS_PAIR))
        return submit_message(self, op);
    if (call->kind == TRII_KIND_ALL_TO_ALL_V)
        bytes = call->src_parts[1] * tri_dtype_size(call->dtype);
    /* The reduction over one rank is its value, avg too. */
    if (call->src != call->dst && bytes > 0)
        memcpy(call->dst, call->src, bytes);
    trii_op_finish(op, TRI_OK, NULL);
    return TRI_OK;
}

static void self_progress(void *self, trii_op *op, int64_t until_ns)
{
    (void)self;
    if (until_ns != 0) /* another thread may post the other side */
        trii_op_sleep(op, until_ns);
}

static void self_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    (void)self;
    snprintf(text, size, "this rank itself to %s the message",
             op->call.kind == TRII_KIND_SEND ? "take" : "send");
}

static void self_abort(void *self)
{
    self_group *g = self;

    trii_lock_take(&g->lock);
    end_all(g, trii_fault_status(g->fault), g->fault->text);
    trii_lock_drop(&g->lock);
}

static void self_leave(void *self)
{
    self_group *g = self;

    trii_fault_raise(g->fault, TRI_ERR_ABORTED, "the only rank left the group");
    self_abort(g);
}

static void self_destroy(void *self)
{
    self_leave(self);
    trii_free(self);
}

static bool self_cancel_recv(void *self, trii_op *op)
{
    self_group *g = self;
    trii_tagged *one;

    trii_lock_take(&g->lock);
    one = trii_tags_find(&g->kept, trii_tag_of(&op->call));
    while (one != NULL && ((self_kept *)one)->send != op)
        one = trii_tags_next(one);
    if (one != NULL)
        drop(g, (self_kept *)one);
    trii_lock_drop(&g->lock);
    return one != NULL;
}

const trii_engine trii_engine_self = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "self",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .create = self_create,
    .submit = self_submit,
    .progress = self_progress,
    .describe_wait = self_describe_wait,
    .abort = self_abort,
    .destroy = self_destroy,
    .leave = self_leave,
    .cancel_recv = self_cancel_recv,
};
