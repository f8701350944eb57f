/*
 * travel.c - the collectives of a step: their life, and what their kinds have in common while they
 * run.
 */
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "group/join/world.h"
#include "parallel/ddp/travel.h"

size_t trii_ddp_header_count(const trii_ddp *ddp)
{
    return 3 + (size_t)TRII_JOINED_WORDS(ddp->size);
}

/* --- life ----------------------------------------------------------------------------------- */

void trii_travel_release(trii_host_op *op)
{
    trii_travel *t = (trii_travel *)op;

    if (atomic_fetch_sub(&t->owners, 1) > 1)
        return;
    tri_group_unref(t->left);
    trii_free(t);
}

static void drop_work(trii_travel *t)
{
    tri_work_destroy(t->work);
    tri_work_destroy(t->map_work);
    t->work = NULL;
    t->map_work = NULL;
}

tri_status trii_travel_take(trii_ddp *ddp, trii_travel **list, trii_step *step,
                            trii_travel **travel_out)
{
    trii_travel *t = *list;
    uint64_t number = 0;

    /* Those of a step that ended without running them are free as well. */
    while (t != NULL && atomic_load(&t->owners) > 1 &&
           (t->state != TRII_TRAVEL_FREE || t->generation != step->generation)) {
        t = t->next;
        number++;
    }
    if (t == NULL) {
        trii_travel **end = list;

        t = trii_alloc(1, sizeof(*t) + trii_ddp_header_count(ddp) * sizeof(double),
                       "ddp collective");
        if (t == NULL)
            return TRI_ERR_NO_MEMORY;
        atomic_init(&t->owners, 1);
        t->ddp = ddp;
        t->op.group = (uint64_t)(uintptr_t)ddp->group;
        t->op.identity = ddp->id << 33 | (uint64_t)ddp->rebuilt << 32 | number << 16;
        while (*end != NULL)
            end = &(*end)->next;
        *end = t;
    }
    if (atomic_load(&t->owners) == 1) {
        /* Ours alone: no other thread looks before the step hands it on. */
        atomic_store_explicit(&t->owners, 2, memory_order_release);
        trii_host_op_give(step, &t->op);
    }
    drop_work(t);
    t->state = TRII_TRAVEL_RECORDED;
    t->site = trii_site_last();
    t->generation = step->generation;
    *travel_out = t;
    return TRI_OK;
}

static tri_status orphan_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)op;
    (void)buffers;
    return TRII_FAIL(TRI_ERR_STATE, "the DDP model was destroyed while a step was pending");
}

static tri_status orphan_poll(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status orphan_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static void orphan_abort(trii_host_op *op, const char *why)
{
    trii_travel *t = (trii_travel *)op;

    if (t->left != NULL)
        tri_group_abort(t->left, why);
}

/* What is left of a model that is gone. */
static const trii_host_kind orphan_kind = {.name = "tri_ddp (a model that is gone)",
                                           .in_place = true,
                                           .start = orphan_start,
                                           .poll = orphan_poll,
                                           .wait = orphan_wait,
                                           .abort = orphan_abort,
                                           .release = trii_travel_release};

void trii_travels_free(trii_travel *list)
{
    while (list != NULL) {
        trii_travel *next = list->next;

        drop_work(list);
        if (list->state != TRII_TRAVEL_FREE && list->op.kind->abort != NULL)
            list->left = tri_group_ref(list->ddp->group);
        list->ddp = NULL;
        list->op.kind = &orphan_kind;
        trii_travel_release(&list->op);
        list = next;
    }
}

void trii_travel_abort(trii_host_op *op, const char *why)
{
    trii_travel *t = (trii_travel *)op;

    if (t->state != TRII_TRAVEL_FREE)
        tri_group_abort(t->ddp->group, why);
}

/* Where ranks do not do the same, and so do not meet. */
static tri_status explain(tri_status st, const char *line)
{
    return TRII_FAIL(st, "%s%s", line,
                     st == TRI_ERR_MISMATCH || st == TRI_ERR_GROUP_TIMEOUT
                         ? " (a model of tri_ddp communicates when it is made or verified, in each "
                           "forward in training mode and each backward: all ranks of its group do "
                           "these, or none)"
                         : "");
}

tri_status trii_ddp_called(tri_status st)
{
    return st < 0 ? explain(st, tri_last_error()) : st;
}

/* Of a pass: whoever left without a failure has most likely had fewer batches. */
static tri_status explain_pass(tri_status st, const char *line)
{
    if (st == TRI_ERR_PEER_LOST && strstr(line, " left the group") != NULL)
        return TRII_FAIL(st,
                         "%s (a rank whose batches are used up before others' calls "
                         "tri_ddp_join behind its loop, as all do)",
                         line);
    return explain(st, line);
}

tri_status trii_ddp_passed(tri_status st)
{
    return st < 0 ? explain_pass(st, tri_last_error()) : st;
}

/* The operation's failure as this thread's error, or its success. */
static tri_status work_ended(tri_work **work_io, tri_status st)
{
    if (st < 0)
        st = explain_pass(st, tri_work_error(*work_io));
    tri_work_destroy(*work_io);
    *work_io = NULL;
    return st;
}

tri_status trii_travel_work(tri_work **work_io, int64_t for_ns)
{
    tri_status st;

    if (*work_io == NULL)
        return TRI_OK;
    st = for_ns > 0 ? trii_work_wait_for(*work_io, for_ns) : trii_work_poll(*work_io);
    return st == TRI_INPROGRESS ? st : work_ended(work_io, st);
}

tri_status trii_travel_compare(trii_host_op *op, const char *what, const char *where)
{
    const trii_travel *t = (trii_travel *)op;
    char text[64];

    (void)what;
    if (t->bucket != NULL)
        (void)snprintf(text, sizeof(text), "%s %d", op->kind->name, t->bucket->wire->bucket.index);
    else if (t->block != NULL)
        (void)snprintf(text, sizeof(text), "%s %d", op->kind->name, t->block->first);
    else
        (void)snprintf(text, sizeof(text), "%s", op->kind->name);
    return trii_ddp_called(trii_group_compare_order(t->ddp->group, text, where));
}

void trii_travel_blame(const trii_travel *t)
{
    if (t->site.file != NULL)
        tri_site_set(t->site.file, t->site.line);
}
