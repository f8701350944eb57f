/*
 * call_check.c - TRI_CHECK_CALLS: before an engine that does not compare calls itself begins a
 * collective, the ranks compare what they call, by an all_gather of 8 bytes (a hash of the call)
 * over the same engine. Where the hashes differ, a second one of the calls themselves finds whose
 * call is another one, and the group fails with the line that shm and tcp have, before the engine
 * could hang or write where it must not. Messages are not compared.
 *
 * The comparison of a call begins when the call before it has been handed to the engine, so all
 * ranks give the engine comparisons and calls in one order: compare 1, call 1, compare 2, call 2.
 * Posting waits for nobody: what moves comparisons along is whoever waits or tests, on any call
 * of the group. post.c, wait.c and work.c come here where group->check is not NULL.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "group/group_internal.h"

#define LOOK_NS TRII_NS_PER_MS /* between two looks at comparisons that nobody waits for */

/* What must be the same on all ranks, then what messages say of it. The same layout on all ranks,
 * and no padding. */
typedef struct signature {
    int32_t kind, dtype, op, root;
    uint64_t count, seq;
    int32_t line;
    char file[60]; /* the end of its path; "" = unknown */
} signature;

typedef enum check_step { CHECK_NOTHING, CHECK_HASHES, CHECK_SIGNATURES } check_step;

struct trii_call_check {
    check_step step;  /* guard: the group's lock, as all below */
    bool renumber;    /* the engine needs all its collectives numbered, comparisons too */
    uint64_t seq;     /* then the last number */
    int users;        /* threads that wait for probe, outside the lock */
    trii_op probe;    /* the comparison of `first`, if step is not NOTHING */
    trii_op *first;   /* calls that have not begun, in order */
    signature *all;   /* [size] */
    uint64_t *hashes; /* [size] */
    signature own;
    uint64_t own_hash;
};

trii_call_check *trii_call_check_create(int size)
{
    trii_call_check *c = trii_alloc(1, sizeof(*c), "comparison of calls");

    if (c == NULL)
        return NULL;
    c->all = trii_alloc((size_t)size, sizeof(*c->all) + sizeof(*c->hashes), "comparison of calls");
    if (c->all == NULL) {
        trii_free(c);
        return NULL;
    }
    c->hashes = (uint64_t *)(void *)(c->all + size);
    return c;
}

void trii_call_check_renumber(trii_call_check *c)
{
    c->renumber = true;
}

void trii_call_check_destroy(trii_call_check *c)
{
    if (c != NULL)
        trii_free(c->all);
    trii_free(c);
}

/* --- one comparison (guard: the group's lock) ----------------------------- */

static signature signature_of(const trii_collective *call)
{
    signature s = {.kind = (int32_t)call->kind,
                   .dtype = (int32_t)call->dtype,
                   .op = (int32_t)call->op,
                   .root = call->root,
                   .count = call->count,
                   .seq = call->seq,
                   .line = call->site.line};
    size_t length = call->site.file != NULL ? strlen(call->site.file) : 0;

    if (length > 0)
        snprintf(s.file, sizeof(s.file), "%s",
                 call->site.file + (length < sizeof(s.file) ? 0 : length - sizeof(s.file) + 1));
    return s;
}

static trii_collective call_of(signature *s)
{
    s->file[sizeof(s->file) - 1] = '\0';
    return (trii_collective){.kind = (trii_kind)s->kind,
                             .dtype = (tri_dtype)s->dtype,
                             .op = (tri_redop)s->op,
                             .root = s->root,
                             .count = s->count,
                             .seq = s->seq,
                             .site = {s->file[0] != '\0' ? s->file : NULL, s->line}};
}

static void fail(tri_group *group, tri_status status, const char *why)
{
    trii_fault_raise(&group->fault, status, "rank %d: %s", group->rank, why);
    group->engine->abort(group->self);
}

static tri_status submit(tri_group *group, trii_op *op)
{
    trii_call_check *c = group->check;

    if (c->renumber)
        op->call.seq = ++c->seq;
    return group->engine->submit(group->self, op);
}

/* An all_gather of each rank's `bytes` at own, into all. */
static void gather(tri_group *group, check_step step, const void *own, void *all, size_t bytes)
{
    trii_call_check *c = group->check;
    const trii_collective call = {.kind = TRII_KIND_ALL_GATHER,
                                  .dtype = TRI_DTYPE_U8,
                                  .src = own,
                                  .dst = all,
                                  .count = bytes,
                                  .bytes = bytes,
                                  .site = c->first->call.site};
    tri_status status;

    trii_op_init(&c->probe, &call);
    c->step = step;
    status = submit(group, &c->probe);
    if (status == TRI_OK)
        return;
    fail(group, status, tri_last_error());
    c->step = CHECK_NOTHING;
}

/* All ranks call the same: the call itself. */
static void begin_first(tri_group *group)
{
    trii_call_check *c = group->check;
    trii_op *op = c->first;
    char why[TRII_ERR_BYTES];
    tri_status status;

    c->step = CHECK_NOTHING;
    c->first = op->next;
    op->next = NULL; /* as engines get it */
    status = submit(group, op);
    if (status == TRI_OK)
        return;
    snprintf(why, sizeof(why), "%s", tri_last_error());
    fail(group, status, why);
    trii_op_finish(op, status, why);
}

/* Every rank finds the same two. The engine is not told: the others are about to find them too,
 * and would hear of a lost peer first. */
static void name_difference(tri_group *group)
{
    trii_call_check *c = group->check;
    trii_collective first = call_of(&c->all[0]), other;
    char text[TRII_ERR_BYTES];
    int rank = 1;

    while (rank + 1 < group->size && c->hashes[rank] == c->hashes[0])
        rank++;
    other = call_of(&c->all[rank]);
    trii_collective_disagree(0, &first, rank, &other, text, sizeof(text));
    trii_fault_raise(&group->fault, TRI_ERR_MISMATCH, "%s", text);
}

static bool are_alike(const tri_group *group)
{
    const trii_call_check *c = group->check;
    int rank = 1;

    while (rank < group->size && c->hashes[rank] == c->hashes[0])
        rank++;
    return rank == group->size;
}

/* The step that is over, and what follows. */
static void next_step(tri_group *group)
{
    trii_call_check *c = group->check;
    tri_status status = c->step != CHECK_NOTHING ? trii_op_status(&c->probe) : TRI_OK;

    if (status != TRI_OK) {
        fail(group, status, c->probe.error);
    } else if (c->step == CHECK_NOTHING) {
        c->own = signature_of(&c->first->call);
        c->own_hash = trii_hash(TRII_HASH_SEED, &c->own, offsetof(signature, line));
        gather(group, CHECK_HASHES, &c->own_hash, c->hashes, sizeof(c->own_hash));
    } else if (c->step == CHECK_SIGNATURES) {
        name_difference(group);
    } else if (are_alike(group)) {
        begin_first(group);
    } else {
        gather(group, CHECK_SIGNATURES, &c->own, c->all, sizeof(c->own));
    }
}

static bool is_comparing(const trii_call_check *c)
{
    return c->step != CHECK_NOTHING && trii_op_status(&c->probe) == TRI_INPROGRESS;
}

/* Guard: the group's lock. Does what can be done now; a failed group's calls end. */
static void advance(tri_group *group)
{
    trii_call_check *c = group->check;

    while (c->first != NULL && c->users == 0 && !is_comparing(c) &&
           trii_fault_status(&group->fault) == TRI_OK)
        next_step(group);
    while (c->first != NULL && trii_fault_status(&group->fault) != TRI_OK) {
        trii_op *op = c->first;

        c->first = op->next;
        trii_op_finish(op, trii_fault_status(&group->fault), group->fault.text);
    }
}

/* --- calls ---------------------------------------------------------------- */

tri_status trii_call_check_submit(tri_group *group, trii_op *op)
{
    trii_op **at = &group->check->first;

    while (*at != NULL)
        at = &(*at)->next;
    op->next = NULL;
    *at = op;
    advance(group);
    return TRI_OK;
}

/* Guard: the group's lock. What the engine can do for op: its comparison, or an earlier call's,
 * until it has begun. */
static trii_op *under_way(trii_call_check *c, trii_op *op)
{
    const trii_op *waiting = c->first;

    while (waiting != NULL && waiting != op)
        waiting = waiting->next;
    return waiting != NULL ? &c->probe : op;
}

void trii_call_check_progress(tri_group *group, trii_op *op, int64_t until_ns)
{
    trii_call_check *c = group->check;

    do {
        int64_t look_ns = trii_now_ns() + LOOK_NS;
        bool compares, is_over;
        trii_op *on;

        trii_lock_take(&group->lock);
        on = under_way(c, op);
        compares = on == &c->probe;
        /* else threads that come back to it could keep the next step from beginning for ever */
        is_over = compares && !is_comparing(c);
        c->users += compares && !is_over;
        trii_lock_drop(&group->lock);
        if (is_over)
            trii_thread_yield();
        else
            group->engine->progress(group->self, on, until_ns < look_ns ? until_ns : look_ns);
        trii_lock_take(&group->lock);
        c->users -= compares && !is_over;
        advance(group);
        trii_lock_drop(&group->lock);
    } while (trii_op_status(op) == TRI_INPROGRESS && trii_now_ns() < until_ns);
}

void trii_call_check_describe(tri_group *group, trii_op *op, char *text, size_t size)
{
    trii_op *on;

    trii_lock_take(&group->lock);
    on = under_way(group->check, op);
    group->engine->describe_wait(group->self, on, text, size);
    trii_lock_drop(&group->lock);
}

void trii_call_check_leave(tri_group *group)
{
    trii_lock_take(&group->lock);
    if (group->check->first != NULL) {
        trii_fault_raise(&group->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                         group->rank);
        group->engine->abort(group->self);
    }
    advance(group);
    trii_lock_drop(&group->lock);
}
