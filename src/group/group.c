/*
 * group.c - the life of a group: creating it with the best engine that all ranks have,
 * references, abort, memory, facts. The calls are in collective.c, the waits in wait.c.
 */
#include "group/group_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/note.h"
#include "base/param.h"
#include "group/form/choose.h"
#include "group/group_limits.h"
#include "os/clock.h"
#include "os/process.h"
#include "store/store_ops.h"

static _Atomic(tri_group *) world;
static atomic_bool world_left;

void trii_group_set_world(tri_group *group)
{
    atomic_store(&world_left, group == NULL);
    atomic_store(&world, group);
}

const char *trii_group_no_world(void)
{
    return atomic_load(&world_left) ? "tri_finalize has left it" : "tri_init was not called";
}

tri_group *trii_group_get_world(void)
{
    return atomic_load_explicit(&world, memory_order_acquire);
}

/* --- creation --------------------------------------------------------------------------- */

static tri_status group_timeout(const tri_group_options *opt, int64_t *timeout_ns_out)
{
    int64_t ms = opt->timeout_ms;

    if (ms == 0) {
        tri_status st = trii_param_i64(TRII_PARAM_TIMEOUT_MS, TRI_GROUP_TIMEOUT_MS, &ms);
        if (st != TRI_OK)
            return st;
        ms = ms == 0 ? TRI_GROUP_TIMEOUT_MS : ms;
    }
    *timeout_ns_out =
        ms < 0 || ms > INT64_MAX / TRII_NS_PER_MS ? TRII_NO_DEADLINE : ms * TRII_NS_PER_MS;
    return TRI_OK;
}

/* A view of the store that no other group uses: every rank counts the groups that it makes
 * there, and all make them in the same order. What lacks memory was not counted. */
static tri_status private_store(tri_store *store, int rank, tri_store **view_out, int64_t *n_out)
{
    char text[64];
    tri_status st;

    snprintf(text, sizeof(text), "tri_group/made_by/%d", rank);
    st = tri_store_add(store, text, 1, n_out);
    if (st == TRI_ERR_NO_MEMORY)
        st = tri_store_add(store, text, 1, n_out);
    if (st != TRI_OK)
        return TRII_FAIL_CTX(st, "group_create, rank %d", rank);
    snprintf(text, sizeof(text), "tri_group/%" PRId64, *n_out);
    return trii_group_view(text, store, view_out);
}

static tri_status check_create(tri_store *store, int rank, int size, tri_group **group_out)
{
    if (group_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_create: group_out is NULL");
    if (size < 1 || rank < 0 || rank >= size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_create: rank %d of %d does not exist", rank,
                         size);
    if (size > TRII_GROUP_MAX_RANKS)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "group_create: a group of %d; at most %d ranks", size,
                         TRII_GROUP_MAX_RANKS);
    if (store == NULL && size > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "group_create: store is NULL for a group of %d",
                         size);
    return TRI_OK;
}

/* Our rank in the job. */
static int world_rank(const tri_group *g)
{
    const tri_group *whole = trii_group_get_world();

    return whole != NULL ? whole->rank : g->rank;
}

/* Groups of a rank of the world record where the world does. */
static void open_recorder(tri_group *g, const tri_store *view)
{
    trii_record_group facts = {
        .id = view != NULL ? trii_store_path_hash(view) : 0, .rank = g->rank, .size = g->size};

    g->recorder = trii_recorder_open(world_rank(g), g->size);
    if (g->recorder == NULL)
        return;
    snprintf(facts.name, sizeof(facts.name), "%s", g->name);
    g->record_group = trii_recorder_group_forms(g->recorder, &facts);
}

static void close_recorder(tri_group *g)
{
    if (g->recorder == NULL)
        return;
    trii_recorder_group_left(g->recorder, g->record_group);
    trii_recorder_close(g->recorder);
}

/* What the user asks for, in the options or by TRI_ENGINE: one engine, or several by rules. */
static tri_status choose_engine(tri_group *g, tri_store *store, const char *text,
                                trii_group_args *args)
{
    trii_choice choice = {0};
    const char *name = choice.engine;
    tri_status st = trii_choice_parse(text, g->name, &choice);

    if (st != TRI_OK)
        return trii_engine_refuse(store, args, st);
    if (choice.n_rules > 0 && g->size > 1) {
        g->engine = &trii_engine_mixed;
        return trii_mixed_make(&choice, text, store, args, &g->self);
    }
    return trii_engine_make(*name != '\0' ? name : NULL, store, args, &g->engine, &g->self);
}

/* Keeps the first of this rank's own failures. */
static void refuse(trii_refusal *refusal, tri_status st)
{
    if (st == TRI_OK || refusal->status != TRI_OK)
        return;
    refusal->status = st;
    snprintf(refusal->line, sizeof(refusal->line), "%s", tri_last_error());
}

/* What this rank does by itself before it meets the others. */
static void prepare(tri_group *g, const tri_group_options *opt, int64_t n, trii_refusal *refusal)
{
    if (opt->name != NULL)
        snprintf(g->name, sizeof(g->name), "%s", opt->name);
    else
        snprintf(g->name, sizeof(g->name), "%" PRId64, n);
    snprintf(g->engine_asked, sizeof(g->engine_asked), "%s",
             opt->engine != NULL ? opt->engine : "");
    snprintf(g->bind_host, sizeof(g->bind_host), "%s",
             opt->bind_host != NULL ? opt->bind_host : "");
    g->pair_seq = trii_alloc(2 * (size_t)g->size, sizeof(*g->pair_seq), "group, pairs");
    if (g->pair_seq == NULL)
        refuse(refusal, TRI_ERR_NO_MEMORY);
    refuse(refusal, trii_chaos_create(world_rank(g), g->name, &g->chaos));
}

/* refusal: what has failed already, which the others shall hear. */
static tri_status create_self(tri_group *g, tri_store *store, const tri_group_options *opt,
                              const trii_forming *forming, trii_refusal *refusal)
{
    const char *name = opt->engine != NULL ? opt->engine : trii_param_text(TRII_PARAM_ENGINE);
    trii_group_args args = {.rank = g->rank, .size = g->size, .name = g->name};
    int64_t n = 0;
    tri_status st;

    refuse(refusal, group_timeout(opt, &args.timeout_ns));
    atomic_init(&g->timeout_ns, args.timeout_ns);
    if (store != NULL) {
        st = private_store(store, g->rank, &g->store, &n);
        if (st != TRI_OK)
            return st;
    }
    prepare(g, opt, n, refusal);
    args.deadline_ns = trii_deadline_after(
        trii_now_ns(), forming->timeout_ns > 0 ? forming->timeout_ns : args.timeout_ns);
    args.is_over = forming->is_over;
    args.is_over_arg = forming->arg;
    args.bind_host = opt->bind_host;
    args.fault = &g->fault;
    args.refusal = refusal->status != TRI_OK ? refusal : NULL;
    if (args.refusal == NULL)
        open_recorder(g, g->store);
    if (args.refusal != NULL && g->size == 1)
        return TRII_FAIL(refusal->status, "%s", refusal->line);
    st = choose_engine(g, g->store, name, &args);
    if (st != TRI_OK && g->recorder != NULL)
        trii_recorder_failed(g->recorder, g->record_group, st, tri_last_error());
    if (st != TRI_OK)
        close_recorder(g);
    else if (g->recorder != NULL)
        trii_recorder_group_formed(g->recorder, g->record_group, g->engine->name);
    return st;
}

tri_status trii_group_form(tri_store *store, int rank, int size, const tri_group_options *opt,
                           const trii_forming *forming, tri_group **group_out)
{
    const tri_group_options defaults = {0};
    const trii_forming usual = {0};
    trii_refusal refusal = {.status = TRI_OK};
    tri_group *g, stand_in = {0}; /* where there is no memory, while the others are told */
    tri_status st;

    st = check_create(store, rank, size, group_out);
    if (st != TRI_OK)
        return st;
    g = trii_alloc(1, sizeof(*g), "group");
    if (g == NULL)
        refuse(&refusal, TRI_ERR_NO_MEMORY);
    g = g != NULL ? g : &stand_in;
    atomic_init(&g->refs, 1);
    g->process = trii_process_id();
    g->rank = rank;
    g->size = size;
    trii_mutex_init(&g->memory_lock);
    st = create_self(g, store, opt != NULL ? opt : &defaults, forming != NULL ? forming : &usual,
                     &refusal);
    if (st == TRI_OK) {
        TRII_LOG(TRII_LOG_INFO, "group", "%s: rank %d of %d, engine %s", g->name, rank, size,
                 g->engine->name);
        *group_out = g;
        return TRI_OK;
    }
    st = TRII_FAIL_CTX(st, "group_create, rank %d of %d", rank, size);
    trii_mutex_fini(&g->memory_lock);
    trii_chaos_destroy(g->chaos);
    tri_store_unref(g->store);
    trii_free(g->pair_seq);
    if (g != &stand_in)
        trii_free(g);
    return st;
}

tri_status tri_group_create(tri_store *store, int rank, int size, const tri_group_options *opt,
                            tri_group **group_out)
{
    return trii_group_form(store, rank, size, opt, NULL, group_out);
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

void tri_group_unref(tri_group *group)
{
    if (group == NULL || atomic_fetch_sub(&group->refs, 1) != 1 || !trii_group_is_ours(group))
        return;
    group->engine->destroy(group->self);
    trii_group_free_idle(group);
    close_recorder(group);
    trii_chaos_destroy(group->chaos);
    tri_store_unref(group->store);
    trii_mutex_fini(&group->memory_lock);
    trii_free(group->world_ranks);
    trii_free(group->pair_seq);
    trii_free(group);
}

void trii_group_leave(tri_group *group)
{
    char what[600];
    int n;

    if (group->engine->leave != NULL) {
        group->engine->leave(group->self);
        trii_fault_raise(&group->fault, TRI_ERR_ABORTED, "rank %d left the group", group->rank);
        if (group->recorder != NULL)
            trii_recorder_group_left(group->recorder, group->record_group);
    }
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
    tri_status st;

    group = group != NULL ? group : trii_group_get_world();
    if (group == NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "group_status: the group is NULL and this process has no world: %s",
                         trii_group_no_world());
    st = trii_fault_status(&group->fault);
    return st == TRI_OK ? TRI_OK : TRII_FAIL(st, "%s", group->fault.text);
}

void tri_group_set_timeout(tri_group *group, int64_t timeout_ms)
{
    const tri_group_options options = {.timeout_ms = timeout_ms};
    int64_t timeout_ns = TRI_GROUP_TIMEOUT_MS * TRII_NS_PER_MS;
    tri_status st = group_timeout(&options, &timeout_ns);

    group = group != NULL ? group : trii_group_get_world();
    if (st != TRI_OK) /* TRI_TIMEOUT_MS is no number; creating the group said so already */
        TRII_LOG(TRII_LOG_WARN, "group", "set_timeout: %s", tri_last_error());
    if (group != NULL)
        atomic_store_explicit(&group->timeout_ns, timeout_ns, memory_order_relaxed);
}

int tri_group_rank(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL ? group->rank : 0;
}

int tri_group_size(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL ? group->size : 1;
}

int tri_group_world_rank(const tri_group *group, int rank)
{
    group = group != NULL ? group : trii_group_get_world();
    if (rank < 0 || rank >= (group != NULL ? group->size : 1))
        return -1;
    return group != NULL && group->world_ranks != NULL ? group->world_ranks[rank] : rank;
}

int tri_group_rank_of(const tri_group *group, int world_rank)
{
    int size = tri_group_size(group);

    for (int r = 0; r < size; r++) {
        if (tri_group_world_rank(group, r) == world_rank)
            return r;
    }
    return -1;
}

const char *tri_group_engine(const tri_group *group)
{
    group = group != NULL ? group : trii_group_get_world();
    return group != NULL ? group->engine->name : "none";
}
