/*
 * group.c - a group that has been formed: references, its end, abort, timeout, facts, and which
 * group is the world. form/group_create.c makes it; its calls are in call/, its memory in
 * group_memory.c.
 */
#include "comm/group/group_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/process.h"

#define NAMED_WORKS 3

static _Atomic(tri_group *) world;
static atomic_bool world_left;

void trii_group_set_world(tri_group *group)
{
    atomic_store(&world_left, group == NULL);
    atomic_store(&world, group);
}

static const char *no_world(void)
{
    return atomic_load(&world_left) ? "tri_finalize has left it" : "tri_init was not called";
}

tri_group *trii_group_get_world(void)
{
    return atomic_load_explicit(&world, memory_order_acquire);
}

tri_group *trii_group_non_member(void)
{
    static tri_group non_member; /* has no engine, and no process that would free it */

    return tri_group_ref(&non_member);
}

#define NOT_FOUND 8

/* As a non-member's; one for each reason, which then stays. The last is for all that come late. */
static struct not_found {
    tri_group group; /* first */
    char why[256];
} not_found[NOT_FOUND];
static trii_mutex not_found_lock = TRII_MUTEX_INITIALIZER;

tri_group *trii_group_not_found(void)
{
    const char *why = tri_last_error();
    int i = 0;

    trii_mutex_lock(&not_found_lock);
    while (i < NOT_FOUND - 1 && not_found[i].why[0] != '\0' &&
           strncmp(not_found[i].why, why, sizeof(not_found[i].why) - 1) != 0)
        i++;
    if (not_found[i].why[0] == '\0')
        snprintf(not_found[i].why, sizeof(not_found[i].why), "%s",
                 i < NOT_FOUND - 1 ? why : "its mesh has no such axis");
    trii_mutex_unlock(&not_found_lock);
    return &not_found[i].group;
}

/* NULL: it is another group. */
static const char *why_not_found(const tri_group *group)
{
    for (int i = 0; i < NOT_FOUND; i++) {
        if (group == &not_found[i].group)
            return not_found[i].why;
    }
    return NULL;
}

tri_status trii_group_check_process(const tri_group *group, const char *call)
{
    if (!trii_group_of_parent(group))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s: group %s belongs to process %d, and this one (%d) was forked from it: "
                     "tri_finalize and join with a rank of its own, or start workers with trirun "
                     "or tri_spawn",
                     call, group->name, group->process, trii_process_id());
}

static tri_status check_member(const tri_group *group, const char *call)
{
    if (group == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "%s: the group is NULL and this process has no world: %s",
                         call, no_world());
    if (group->engine == NULL && why_not_found(group) != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the group was not found: %s", call,
                         why_not_found(group));
    if (group->engine == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: this process is not a member of the group (tri_group_rank is -1): "
                         "only the ranks that tri_group_new lists, or that give tri_group_split "
                         "its colour, may use it",
                         call);
    return trii_group_check_process(group, call);
}

tri_status trii_group_resolve(tri_group **group_io, const char *call)
{
    if (*group_io == NULL)
        *group_io = trii_group_get_world();
    return check_member(*group_io, call);
}

tri_status trii_group_timeout_of(const tri_group_options *opt, int64_t *timeout_ns_out)
{
    int64_t ms = opt->timeout_ms;

    if (ms == 0) {
        tri_status status = trii_param_i64(TRII_PARAM_TIMEOUT_MS, TRI_GROUP_TIMEOUT_MS, &ms);
        if (status != TRI_OK)
            return status;
        ms = ms == 0 ? TRI_GROUP_TIMEOUT_MS : ms;
    }
    *timeout_ns_out =
        ms < 0 || ms > INT64_MAX / TRII_NS_PER_MS ? TRII_NO_DEADLINE : ms * TRII_NS_PER_MS;
    return TRI_OK;
}

void trii_group_close_recorder(tri_group *g)
{
    if (g->recorder == NULL)
        return;
    if (!g->left)
        trii_recorder_group_state(g->recorder, g->record_group, TRII_RECORD_GROUP_LEFT, NULL);
    trii_recorder_close(g->recorder);
    g->recorder = NULL;
}

trii_loss trii_group_loss(tri_group *group, int rank)
{
    trii_loss loss = TRII_LOSS_NONE;

    if (rank != group->rank && group->engine->loss != NULL)
        loss = group->engine->loss(group->self, rank);
    return loss == TRII_LOSS_NONE && atomic_load(&group->fault.lost_rank) == rank + 1
               ? TRII_LOSS_CUT
               : loss;
}

bool trii_group_was_left(const tri_group *group)
{
    return group->engine->loss != NULL && atomic_load(&group->fault.lost_rank) == 0;
}

tri_group *tri_group_ref(tri_group *group)
{
    if (group != NULL)
        atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    return group;
}

bool trii_group_is_ours(const tri_group *group)
{
    return group->process == trii_process_id();
}

/* Frees the handles that wait for calls. */
static void free_idle(tri_group *group)
{
    while (group->idle != NULL) {
        tri_work *next = group->idle->next;

        trii_free(group->idle);
        group->idle = next;
    }
}

void tri_group_unref(tri_group *group)
{
    bool is_well;

    if (group == NULL || atomic_fetch_sub(&group->refs, 1) != 1 || !trii_group_is_ours(group))
        return;
    is_well = trii_fault_status(&group->fault) == TRI_OK; /* engines raise one as they leave */
    group->engine->destroy(group->self);
    free_idle(group);
    if (is_well)
        trii_group_delete_keys(group);
    trii_free(group->keys.text);
    trii_group_close_recorder(group);
    trii_chaos_destroy(group->chaos);
    tri_store_unref(group->store);
    trii_mutex_fini(&group->check_lock);
    trii_mutex_fini(&group->memory_lock);
    trii_free(group->world_ranks);
    trii_free(group->pair_seq);
    trii_free(group);
}

int trii_group_name_works(tri_group *group, char *text, size_t size)
{
    const tri_work *work;
    size_t used = 0;
    int n = 0;

    text[0] = '\0';
    trii_lock_take(&group->idle_lock);
    work = group->live;
    while (work != NULL && work->next != NULL)
        work = work->next;
    for (; work != NULL; work = work->prev) { /* the oldest first */
        char what[256];

        if (work->members != NULL)
            continue;
        if (++n > NAMED_WORKS + 1 || used >= size)
            continue;
        if (n > NAMED_WORKS) {
            used += (size_t)snprintf(text + used, size - used, ", ...");
            continue;
        }
        trii_op_describe(&work->op, what, sizeof(what));
        used += (size_t)snprintf(text + used, size - used, "%s%s", n > 1 ? ", " : "", what);
    }
    trii_lock_drop(&group->idle_lock);
    return n;
}

void trii_group_leave(tri_group *group)
{
    char what[600];
    int n;

    if (group->engine->leave != NULL) {
        group->engine->leave(group->self);
        trii_fault_raise(&group->fault, TRI_ERR_ABORTED, "rank %d left the group", group->rank);
    }
    if (group->recorder != NULL)
        trii_recorder_group_state(group->recorder, group->record_group, TRII_RECORD_GROUP_LEFT,
                                  NULL);
    group->left = true;
    tri_store_unref(group->store); /* a rank that serves it must not go on with that */
    group->store = NULL;
    n = trii_group_name_works(group, what, sizeof(what));
    if (n == 1)
        TRII_LOG(TRII_LOG_WARN, "group",
                 "finalize: one call was not given back (tri_work_destroy): %s", what);
    else if (n > 1)
        TRII_LOG(TRII_LOG_WARN, "group",
                 "finalize: %d calls were not given back (tri_work_destroy): %s", n, what);
}

void tri_group_abort(tri_group *group, const char *why)
{
    if (group == NULL)
        group = trii_group_get_world();
    if (group == NULL || !trii_group_is_ours(group))
        return;
    trii_fault_raise(&group->fault, TRI_ERR_ABORTED, "rank %d aborted the group: %s", group->rank,
                     why != NULL ? why : "no reason given");
    group->engine->abort(group->self);
}

tri_status tri_group_status(const tri_group *group)
{
    tri_status status;

    group = group != NULL ? group : trii_group_get_world();
    status = check_member(group, "group_status");
    if (status != TRI_OK)
        return status;
    status = trii_fault_status(&group->fault);
    return status == TRI_OK ? TRI_OK : TRII_FAIL(status, "%s", group->fault.text);
}

void tri_group_set_timeout(tri_group *group, int64_t timeout_ms)
{
    const tri_group_options options = {.timeout_ms = timeout_ms};
    int64_t timeout_ns = TRI_GROUP_TIMEOUT_MS * TRII_NS_PER_MS;
    tri_status status = trii_group_timeout_of(&options, &timeout_ns);

    group = group != NULL ? group : trii_group_get_world();
    if (status != TRI_OK) /* TRI_TIMEOUT_MS is no number; creating the group said so already */
        TRII_LOG(TRII_LOG_WARN, "group", "set_timeout: %s", tri_last_error());
    if (group != NULL)
        atomic_store_explicit(&group->timeout_ns, timeout_ns, memory_order_relaxed);
}

int tri_group_rank(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    if (group == NULL)
        return 0;
    return group->engine != NULL ? group->rank : -1;
}

int tri_group_size(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL ? group->size : 1;
}

int tri_group_epoch(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL ? group->epoch : 0;
}

int tri_group_world_rank(const tri_group *group, int rank)
{
    group = group != NULL ? group : trii_group_get_world();
    if (rank < 0 || rank >= (group != NULL ? group->size : 1))
        return -1;
    return group != NULL && group->world_ranks != NULL ? group->world_ranks[rank] : rank;
}

int tri_group_find_rank(const tri_group *group, int world_rank)
{
    int size = tri_group_size(group);

    for (int r = 0; r < size; r++) {
        if (tri_group_world_rank(group, r) == world_rank)
            return r;
    }
    return -1;
}

bool trii_group_meets(const tri_group *a, const tri_group *b)
{
    int common = 0;

    if (a == b || a->outermost != b->outermost)
        return a->size > 1 && b->size > 1;
    for (int r = 0; r < a->size && common < 2; r++)
        common += tri_group_find_rank(b, tri_group_world_rank(a, r)) >= 0;
    return common > 1;
}

uint64_t trii_group_number(const tri_group *group)
{
    return group->number;
}

const char *tri_group_engine(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL && group->engine != NULL ? group->engine->name : "none";
}
