/*
 * hierarchy.c - the engine: child engines as one. Ranks of a host meet in shared memory, and what
 * leaves a host leaves it once. See hierarchy.h for the children and the files.
 */
#include "comm/composites/hierarchy/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"

static tri_status hierarchy_submit(void *self, trii_op *op, bool waits)
{
    bool failed;
    hierarchy *h = self;

    (void)waits;
    if (!trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        return hierarchy_call_submit(h, op);
    trii_mutex_lock(&h->mutex);
    failed = hierarchy_check_faults(h);
    trii_mutex_unlock(&h->mutex);
    if (failed)
        return TRII_FAIL(trii_fault_cause(h->fault), "%s", h->fault->text);
    return hierarchy_message_submit(h, op);
}

static void hierarchy_progress(void *self, trii_op *op, int64_t until_ns)
{
    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        hierarchy_message_progress(self, op, until_ns);
    else
        hierarchy_call_progress(self, op, until_ns);
}

static void hierarchy_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        hierarchy_message_describe(self, op, text, size);
    else
        hierarchy_call_describe(self, op, text, size);
}

/* What the others hear is the call that holds this one up. */
static void hierarchy_announce_wait(void *self, const trii_op *op)
{
    hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];

    trii_mutex_lock(&h->mutex);
    if (h->first != NULL && !trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        op = h->first->op;
    flat->engine->announce_wait(flat->self, op);
    trii_mutex_unlock(&h->mutex);
}

static void hierarchy_abort(void *self)
{
    hierarchy *h = self;

    if (trii_fault_status(h->fault) == TRI_OK)
        return; /* somebody is just writing it, and will come here */
    hierarchy_abort_children(h);
    trii_mutex_lock(&h->mutex);
    hierarchy_advance(h);
    trii_cond_broadcast(&h->turn);
    trii_mutex_unlock(&h->mutex);
}

/* A rank that is alone on its host has no child that shares memory. */
static tri_status hierarchy_alloc(void *self, size_t bytes, void **p_out)
{
    const hierarchy_child *in = &((hierarchy *)self)->children[HIERARCHY_IN];

    if (in->self != NULL)
        return in->engine->alloc(in->self, bytes, p_out);
    return trii_group_heap(bytes, p_out);
}

static void hierarchy_free(void *self, void *p)
{
    const hierarchy_child *in = &((hierarchy *)self)->children[HIERARCHY_IN];

    if (in->self != NULL)
        in->engine->free(in->self, p);
    else
        trii_free(p);
}

/* Ranks of a host agree, hosts do not. */
static void *hierarchy_alloc_room(void *self)
{
    return ((hierarchy *)self)->alloc_room;
}

/* FLAT has everybody, and knows of each process. */
static trii_loss hierarchy_loss(void *self, int rank)
{
    const hierarchy *h = self;
    const hierarchy_child *flat = &h->children[HIERARCHY_FLAT];

    return flat->engine->loss(flat->self, rank);
}

static void hierarchy_disconnect(void *self, uint32_t draw, bool half)
{
    const hierarchy_child *flat = &((hierarchy *)self)->children[HIERARCHY_FLAT];

    flat->engine->disconnect(flat->self, draw, half);
}

/* --- life ----------------------------------------------------------------- */

static void release(hierarchy *h)
{
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        if (h->children[i].self != NULL)
            h->children[i].engine->destroy(h->children[i].self);
    }
    for (int i = 0; i < HIERARCHY_CALLS; i++)
        trii_free(h->calls[i].memory);
    trii_free(h->calls[0].columns); /* and all others' */
    hierarchy_message_fini(h);
    trii_free(h->sources);
    trii_free(h->from);
    trii_free(h->sum_room);
    trii_free(h->alloc_room);
    hierarchy_layout_fini(&h->layout);
    trii_cond_fini(&h->turn);
    trii_mutex_fini(&h->mutex);
    trii_free(h);
}

static void hierarchy_leave(void *self)
{
    hierarchy *h = self;

    trii_mutex_lock(&h->mutex);
    if (h->first != NULL || h->queue != NULL) {
        trii_fault_raise(h->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                         h->rank);
        hierarchy_abort_children(h);
        while (h->first != NULL || h->queue != NULL) {
            hierarchy_drive(h, INT64_MAX);
            hierarchy_advance(h);
        }
    }
    trii_mutex_unlock(&h->mutex);
    hierarchy_message_sweep(h);
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        if (h->children[i].self != NULL)
            h->children[i].engine->leave(h->children[i].self);
    }
}

static void hierarchy_destroy(void *self)
{
    hierarchy_leave(self);
    release(self);
}

static tri_status allocate(hierarchy *h)
{
    size_t n = (size_t)h->size + 1;
    size_t *places = trii_alloc(4 * n * HIERARCHY_CALLS, sizeof(*places), "hierarchy");

    h->calls[0].columns = places;
    h->sources = trii_alloc(n, sizeof(*h->sources), "hierarchy");
    h->from = trii_alloc(n, sizeof(*h->from), "hierarchy");
    h->sum_room = trii_alloc_aligned(64, HIERARCHY_SUM_BYTES * HIERARCHY_SUM_DEPTH, "hierarchy");
    h->alloc_room = trii_alloc((size_t)h->size, TRII_ALLOC_ROOM, "hierarchy");
    if (places == NULL || h->sources == NULL || h->from == NULL || h->sum_room == NULL ||
        h->alloc_room == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < HIERARCHY_CALLS; i++, places += 4 * n) {
        h->calls[i].columns = places;
        h->calls[i].pieces = places + n;
        h->calls[i].src_at = places + 2 * n;
        h->calls[i].dst_at = places + 3 * n;
    }
    return TRI_OK;
}

static tri_status hierarchy_create(const trii_group_args *args, void **self_out)
{
    hierarchy *h;
    tri_status status;

    if (args->size < 3)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine hierarchy: a group of %d; it needs at least two hosts, one of "
                         "them with at least two ranks",
                         args->size);
    h = trii_alloc(1, sizeof(*h), "hierarchy");
    if (h == NULL) /* which the others have to be told */
        return hierarchy_layout_init(NULL, args, TRI_ERR_NO_MEMORY);
    h->rank = args->rank;
    h->size = args->size;
    h->fault = args->fault;
    trii_mutex_init(&h->mutex);
    trii_cond_init(&h->turn);
    status = hierarchy_layout_init(&h->layout, args, allocate(h));
    if (status == TRI_OK)
        status = trii_group_agree(args, "in", hierarchy_child_create(h, args, HIERARCHY_IN));
    if (status == TRI_OK)
        status = trii_group_agree(args, "out", hierarchy_child_create(h, args, HIERARCHY_OUT));
    if (status == TRI_OK)
        status = hierarchy_child_create(h, args, HIERARCHY_FLAT); /* agrees */
    if (status == TRI_OK)
        status = trii_group_agree(args, "cross", hierarchy_child_create(h, args, HIERARCHY_CROSS));
    if (status == TRI_OK)
        status = trii_group_agree(args, "back", hierarchy_child_create(h, args, HIERARCHY_BACK));
    if (status != TRI_OK) {
        release(h);
        return status;
    }
    if (h->children[HIERARCHY_OUT].self != NULL)
        h->children[HIERARCHY_OUT].engine->share_arena(h->children[HIERARCHY_OUT].self,
                                                       h->children[HIERARCHY_IN].self);
    *self_out = h;
    return TRI_OK;
}

const trii_engine trii_engine_hierarchy = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "hierarchy",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .create = hierarchy_create,
    .alloc = hierarchy_alloc,
    .free = hierarchy_free,
    .alloc_room = hierarchy_alloc_room,
    .submit = hierarchy_submit,
    .progress = hierarchy_progress,
    .describe_wait = hierarchy_describe_wait,
    .abort = hierarchy_abort,
    .destroy = hierarchy_destroy,
    .leave = hierarchy_leave,
    .disconnect = hierarchy_disconnect,
    .cancel_recv = hierarchy_message_cancel_recv,
    .loss = hierarchy_loss,
    .announce_wait = hierarchy_announce_wait,
};
