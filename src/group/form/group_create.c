/*
 * group_create.c - tri_group_create: a view of the store of its own, an engine that all ranks agree
 * on (engine_make.c), the group. world.c, subgroup.c and shrink.c make theirs here too.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "group/form/engine_make.h"
#include "group/group_internal.h"
#include "group/group_limits.h"
#include "os/clock.h"
#include "os/process.h"
#include "store/store_ops.h"

/* A view of the store that no other group uses: every rank counts the groups that it makes
 * there, and all make them in the same order. What lacks memory was not counted. */
static tri_status private_store(tri_store *store, int rank, tri_store **view_out, int64_t *n_out)
{
    char text[64];
    tri_status status;

    snprintf(text, sizeof(text), "tri_group/made_by/%d", rank);
    status = tri_store_add(store, text, 1, n_out);
    if (status == TRI_ERR_NO_MEMORY)
        status = tri_store_add(store, text, 1, n_out);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "group_create, rank %d", rank);
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

/* Why this rank cannot be in the group, found before the others were met. */
typedef struct refusal {
    tri_status status;
    char line[TRII_ERR_BYTES];
} refusal;

/* Keeps the first of this rank's own failures. */
static void refuse(refusal *why, tri_status status)
{
    if (status == TRI_OK || why->status != TRI_OK)
        return;
    why->status = status;
    snprintf(why->line, sizeof(why->line), "%s", tri_last_error());
}

/* What this rank does by itself before it meets the others. */
static void prepare(tri_group *g, const tri_group_options *opt, int64_t n, refusal *why)
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
        refuse(why, TRI_ERR_NO_MEMORY);
    refuse(why, trii_chaos_create(world_rank(g), g->name, &g->chaos));
}

/* why: what has failed already, which the others shall hear. */
static tri_status create_self(tri_group *g, tri_store *store, const tri_group_options *opt,
                              const trii_forming *forming, refusal *why)
{
    const char *name = opt->engine != NULL ? opt->engine : trii_param_text(TRII_PARAM_ENGINE);
    trii_group_args args = {.rank = g->rank, .size = g->size, .name = g->name};
    trii_made_engine made = {0};
    int64_t n = 0;
    tri_status status;

    refuse(why, trii_group_timeout_of(opt, &args.timeout_ns));
    atomic_init(&g->timeout_ns, args.timeout_ns);
    if (store != NULL && forming->own_view) {
        g->store = tri_store_ref(store);
    } else if (store != NULL) {
        status = private_store(store, g->rank, &g->store, &n);
        if (status != TRI_OK)
            return status;
    }
    if (forming->own_store)
        trii_group_note_keys(g);
    prepare(g, opt, n, why);
    args.deadline_ns = trii_deadline_after(
        trii_now_ns(), forming->timeout_ns > 0 ? forming->timeout_ns : args.timeout_ns);
    args.is_over = forming->is_over;
    args.is_over_arg = forming->arg;
    args.bind_host = opt->bind_host;
    args.fault = &g->fault;
    if (why->status == TRI_OK)
        open_recorder(g, g->store);
    else
        (void)TRII_FAIL(why->status, "%s", why->line);
    status = trii_engine_make(name, why->status, g->store, &args, &made);
    if (forming->own_store)
        trii_group_stop_noting(g);
    if (status != TRI_OK && g->recorder != NULL)
        trii_recorder_failed(g->recorder, g->record_group, status, tri_last_error());
    g->engine = made.engine;
    g->self = made.self;
    g->submit_compared = made.checks_calls ? trii_call_check_submit : NULL;
    if (status != TRI_OK)
        trii_group_close_recorder(g);
    else if (g->recorder != NULL)
        trii_recorder_group_state(g->recorder, g->record_group, TRII_RECORD_GROUP_FORMED,
                                  g->engine->name);
    return status;
}

tri_status trii_group_form(tri_store *store, int rank, int size, const tri_group_options *opt,
                           const trii_forming *forming, tri_group **group_out)
{
    const tri_group_options defaults = {0};
    const trii_forming usual = {0};
    refusal why = {.status = TRI_OK};
    tri_group *g, stand_in = {0}; /* where there is no memory, while the others are told */
    tri_status status;

    status = check_create(store, rank, size, group_out);
    if (status != TRI_OK)
        return status;
    g = trii_alloc(1, sizeof(*g), "group");
    if (g == NULL)
        refuse(&why, TRI_ERR_NO_MEMORY);
    g = g != NULL ? g : &stand_in;
    atomic_init(&g->refs, 1);
    trii_fork_level_watch();
    g->process = trii_process_id();
    g->fork_level = atomic_load(&trii_fork_level);
    g->rank = rank;
    g->size = size;
    trii_mutex_init(&g->memory_lock);
    trii_mutex_init(&g->check_lock);
    status = create_self(g, store, opt != NULL ? opt : &defaults,
                         forming != NULL ? forming : &usual, &why);
    if (status == TRI_OK) {
        TRII_LOG(TRII_LOG_INFO, "group", "%s: rank %d of %d, engine %s", g->name, rank, size,
                 g->engine->name);
        *group_out = g;
        return TRI_OK;
    }
    status = TRII_FAIL_CTX(status, "group_create, rank %d of %d", rank, size);
    trii_mutex_fini(&g->check_lock);
    trii_mutex_fini(&g->memory_lock);
    trii_chaos_destroy(g->chaos);
    tri_store_unref(g->store);
    trii_free(g->keys.text);
    trii_free(g->pair_seq);
    if (g != &stand_in)
        trii_free(g);
    return status;
}

tri_status tri_group_create(tri_store *store, int rank, int size, const tri_group_options *opt,
                            tri_group **group_out)
{
    return trii_group_form(store, rank, size, opt, NULL, group_out);
}
