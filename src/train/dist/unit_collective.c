/*
 * unit_collective.c - the collectives of a step: creation and release, and what all kinds do alike
 * while they run.
 */
#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "comm/group/join/world.h"
#include "os/clock.h"
#include "train/dist/unit_collective.h"

size_t trii_unit_header_count(const trii_unit *unit)
{
    return 3 + (size_t)TRII_JOINED_WORDS(unit->size);
}

/* --- life ----------------------------------------------------------------- */

void trii_unit_coll_release(trii_host_op *op)
{
    trii_unit_coll *t = (trii_unit_coll *)op;

    if (atomic_fetch_sub(&t->owners, 1) > 1)
        return;
    tri_group_unref(t->left);
    trii_free(t);
}

void trii_unit_coll_drop_aside(trii_unit_coll *t)
{
    trii_free(t->aside);
    t->aside = NULL;
}

static void drop_work(trii_unit_coll *t)
{
    if (t->aside != NULL && t->work != NULL) { /* its step has failed, and the group with it */
        tri_status dropped = tri_work_wait(t->work, 0);

        (void)dropped;
    }
    tri_work_destroy(t->work);
    tri_work_destroy(t->map_work);
    t->work = NULL;
    t->map_work = NULL;
    trii_unit_coll_drop_aside(t);
}

tri_status trii_unit_coll_take(trii_unit *unit, trii_unit_coll **list, trii_step *step,
                               trii_unit_coll **coll_out)
{
    trii_unit_coll *t = *list;
    uint64_t number = 0;

    /* Those of a step that ended without running them are free as well. */
    while (t != NULL && atomic_load(&t->owners) > 1 &&
           (t->state != TRII_UNIT_COLL_FREE || t->generation != step->generation)) {
        t = t->next;
        number++;
    }
    if (t == NULL) {
        trii_unit_coll **end = list;

        t = trii_alloc(1, sizeof(*t) + trii_unit_header_count(unit) * sizeof(double),
                       "collective of a model");
        if (t == NULL)
            return TRI_ERR_NO_MEMORY;
        atomic_init(&t->owners, 1);
        t->unit = unit;
        t->place = -1;
        t->op.of = unit->call;
        t->op.group = (uint64_t)(uintptr_t)unit->group;
        t->op.identity = unit->id << 33 | (uint64_t)unit->rebuilt << 32 | number << 16;
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
    t->state = TRII_UNIT_COLL_RECORDED;
    t->site = trii_site_last();
    t->generation = step->generation;
    *coll_out = t;
    return TRI_OK;
}

static tri_status orphan_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)buffers;
    return TRII_FAIL(TRI_ERR_STATE, "the model of %s was destroyed while a step was pending",
                     op->of);
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
    trii_unit_coll *t = (trii_unit_coll *)op;

    if (t->left != NULL)
        tri_group_abort(t->left, why);
}

/* What is left of a model that is gone. */
static const trii_host_kind orphan_kind = {.name = "a model that is gone",
                                           .in_place = true,
                                           .start = orphan_start,
                                           .poll = orphan_poll,
                                           .wait = orphan_wait,
                                           .abort = orphan_abort,
                                           .release = trii_unit_coll_release};

/* In the order of the group of gathers. */
static inline bool runs_apart(const trii_unit_coll *t)
{
    return t->unit->apart != NULL && t->op.group == (uint64_t)(uintptr_t)t->unit->apart;
}

void trii_unit_colls_free(trii_unit_coll *list)
{
    while (list != NULL) {
        trii_unit_coll *next = list->next;

        drop_work(list);
        if (list->state != TRII_UNIT_COLL_FREE && list->op.kind->abort != NULL)
            list->left = tri_group_ref(runs_apart(list) ? list->unit->apart : list->unit->group);
        list->unit = NULL;
        list->op.kind = &orphan_kind;
        trii_unit_coll_release(&list->op);
        list = next;
    }
}

void trii_unit_coll_abort(trii_host_op *op, const char *why)
{
    trii_unit_coll *t = (trii_unit_coll *)op;

    if (t->state != TRII_UNIT_COLL_FREE)
        trii_unit_abort(t->unit, why);
}

/* Where ranks do not do the same, and so do not meet. */
static tri_status explain(const trii_unit *unit, tri_status status, const char *line)
{
    if (status != TRI_ERR_MISMATCH && status != TRI_ERR_GROUP_TIMEOUT)
        return TRII_FAIL(status, "%s", line);
    return TRII_FAIL(status,
                     "%s (a model of %s communicates when it is made or verified, in each %s: all "
                     "ranks of its group do these, or none)",
                     line, unit->call,
                     unit->stage == 0  ? "forward in training mode and each backward"
                     : unit->stage < 3 ? "forward in training mode, each backward and each update, "
                                         "and in tri_checkpoint_save of states in pieces"
                                       : "forward, each backward and wherever parameters become "
                                         "whole (tri_unshard_begin, tri_save, tri_load, "
                                         "tri_module_hash), and in tri_checkpoint_save");
}

tri_status trii_unit_called(const trii_unit *unit, tri_status status)
{
    return status != TRI_OK ? explain(unit, status, tri_last_error()) : status;
}

TRII_NOINLINE tri_status trii_unit_tell(const trii_unit *unit, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (unit->group == NULL)
        return status;
    (void)snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_unit_abort(unit, line);
    trii_err_set("%s", line);
    return status;
}

/* Of a pass: a rank that left without a failure has most likely had fewer batches. */
static tri_status explain_pass(const trii_unit *unit, tri_status status, const char *line)
{
    if (status == TRI_ERR_PEER_LOST && trii_group_was_left(unit->group))
        return TRII_FAIL(status,
                         "%s (a rank whose batches are used up before others' calls "
                         "tri_ddp_join after its loop, as all do)",
                         line);
    return explain(unit, status, line);
}

tri_status trii_unit_passed(const trii_unit *unit, tri_status status)
{
    return status != TRI_OK ? explain_pass(unit, status, tri_last_error()) : status;
}

/* The operation's failure as this thread's error, or its success. */
static tri_status work_ended(const trii_unit *unit, tri_work **work_io, tri_status status)
{
    if (status != TRI_OK)
        status = explain_pass(unit, status, tri_work_error(*work_io));
    tri_work_destroy(*work_io);
    *work_io = NULL;
    return status;
}

tri_status trii_unit_coll_work(const trii_unit *unit, tri_work **work_io, int64_t for_ns)
{
    tri_status status;

    if (*work_io == NULL)
        return TRI_OK;
    status = for_ns > 0 ? trii_work_wait_for(*work_io, for_ns) : trii_work_poll(*work_io);
    return status == TRI_INPROGRESS ? status : work_ended(unit, work_io, status);
}

/* --- gathers -------------------------------------------------------------- */

/* How many of `count` elements from `begin` on are gathered. */
static size_t among(const trii_unit_coll *t, size_t begin, size_t count, size_t *first_out)
{
    size_t first = begin > t->from ? begin : t->from;
    size_t end = begin + count < t->until ? begin + count : t->until;

    *first_out = first;
    return end > first ? end - first : 0;
}

size_t trii_unit_coll_own(const trii_unit_coll *t, size_t *first_out)
{
    return among(t, t->bucket->wire->first, t->bucket->wire->own, first_out);
}

tri_status trii_unit_coll_send(trii_unit_coll *t, const void *part, void *whole, tri_dtype dtype)
{
    tri_group *axis = runs_apart(t) ? t->unit->apart : trii_unit_parts(t->unit);

    t->state = TRII_UNIT_COLL_STARTED;
    t->sent = t->bucket->some[tri_group_rank(axis)] * tri_dtype_size(dtype);
    t->unit->volume.all_gather += (int64_t)(t->until - t->from);
    if (TRII_UNLIKELY(t->unit->stats.on))
        t->sent_ns = trii_now_ns();
    trii_unit_coll_blame(t);
    return trii_unit_called(t->unit,
                            trii_all_gather_tagged(axis, part, whole, t->bucket->some, dtype,
                                                   t->bucket->wire->bucket.index + 1, &t->work));
}

tri_status trii_unit_coll_gather(trii_unit_coll *t, const void *part, void *whole)
{
    const size_t *counts = t->bucket->counts;
    size_t begin = 0, unused;

    for (int r = 0; r < tri_group_size(trii_unit_parts(t->unit)); begin += counts[r++])
        t->bucket->some[r] = among(t, begin, counts[r], &unused);
    return trii_unit_coll_send(t, part, whole, t->bucket->wire->bucket.dtype);
}

tri_status trii_unit_coll_gathered(trii_unit_coll *t, int64_t for_ns)
{
    int64_t since = TRII_UNLIKELY(t->unit->stats.on) && for_ns > 0 ? trii_now_ns() : 0;
    tri_status status = trii_unit_coll_work(t->unit, &t->work, for_ns);

    if (since != 0)
        trii_unit_stats_waited(t->unit, t->bucket, since);
    if (status == TRI_OK && TRII_UNLIKELY(t->unit->stats.on))
        trii_unit_stats_over(t->unit, t->bucket, &t->sent_ns, t->sent);
    return status;
}

/* --- comparing ------------------------------------------------------------ */

tri_status trii_unit_coll_compare(trii_host_op *op, const char *what, const char *where)
{
    const trii_unit_coll *t = (trii_unit_coll *)op;
    char name[TRII_OP_TEXT], text[TRII_OP_TEXT + 12];

    (void)what;
    (void)trii_host_text(op, name);
    if (t->place >= 0)
        (void)snprintf(text, sizeof(text), "%s %d", name, t->place);
    else
        (void)snprintf(text, sizeof(text), "%s", name);
    return trii_unit_called(
        t->unit,
        trii_group_compare_order(runs_apart(t) ? t->unit->apart : t->unit->group, text, where));
}

void trii_unit_coll_blame(const trii_unit_coll *t)
{
    if (t->site.file != NULL)
        tri_site_set(t->site.file, t->site.line);
}
