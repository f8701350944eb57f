/*
 * group_create.c - tri_group_create: a view of the store of its own, an engine that all ranks agree
 * on (engine_make.c), the group. world.c, subgroup.c and shrink.c make theirs here too.
 */
/* build: leaf */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/option.h"
#include "base/param.h"
#include "comm/group/form/engine_make.h"
#include "comm/group/group_internal.h"
#include "comm/group/group_limits.h"
#include "os/clock.h"
#include "os/process.h"
#include "store/exchange.h"
#include "store/store_ops.h"

/* --- where the ranks meet ------------------------------------------------- */

/* Every rank counts the groups that it makes in a store, and all make them in the same order: so
 * they meet under the number of the group. A rank that has waited for its whole timeout gives the
 * number up, for all: a rank that comes later, or waits still, takes the next one, where the ranks
 * meet if the first one tries again.
 *
 * A group that recovers in place, as none does yet, shall meet again below epoch/N of its view of
 * the store, which nothing else uses: keys, tokens and records of its epochs, which all follow from
 * that, are then told apart. */

#define GIVEN_UP "tri_group/given_up" /* the highest such number */

/* Where ranks meet, and what they look at while they wait there. */
typedef struct meeting {
    tri_store *store; /* borrowed; NULL = a store of this group's own, where nothing is counted */
    const trii_forming *forming;
    int64_t n;
    bool is_given_up; /* by another rank */
} meeting;

static tri_status read_given_up(tri_store *store, int64_t *n_out)
{
    const char *key = GIVEN_UP;
    bool there = false;
    tri_status status = tri_store_check(store, &key, 1, &there);

    *n_out = 0;
    return status == TRI_OK && there ? tri_store_add(store, key, 0, n_out) : status;
}

static bool is_over(void *arg)
{
    meeting *m = arg;
    int64_t given_up;

    if (m->forming->is_over != NULL && m->forming->is_over(m->forming->arg))
        return true;
    if (!m->is_given_up && read_given_up(m->store, &given_up) == TRI_OK)
        m->is_given_up = given_up >= m->n;
    return m->is_given_up;
}

/* Best effort: it fails where the store is gone, and is not tried where the store does not answer,
 * since that would be waited for. */
static void give_up(void *arg)
{
    enum { RIVALS = 64 }; /* ranks that give up at the same moment */
    const meeting *m = arg;
    char mine[24], seen[24] = "";

    if (trii_store_is_silent(m->store))
        return;
    snprintf(mine, sizeof(mine), "%" PRId64, m->n);
    for (int i = 0; i < RIVALS && strtoll(seen, NULL, 10) < m->n; i++) {
        void *now = NULL;
        tri_status status = tri_store_compare_set(m->store, GIVEN_UP, seen, strlen(seen), mine,
                                                  strlen(mine), &now, NULL);

        if (status != TRI_OK)
            return;
        snprintf(seen, sizeof(seen), "%s", (const char *)now);
        tri_store_free(now);
    }
}

/* What lacks memory was not counted. */
static tri_status count_in(tri_store *store, int rank, int64_t *n_out)
{
    char key[64];
    trii_store_call calls[] = {{.kind = TRII_STORE_CHECK, .key = GIVEN_UP},
                               {.kind = TRII_STORE_ADD, .key = key, .number = 1}};
    int64_t given_up = 0;
    tri_status status;

    snprintf(key, sizeof(key), "tri_group/made_by/%d", rank);
    status = trii_store_calls(store, calls, 2);
    if (status == TRI_ERR_NO_MEMORY)
        status = trii_store_calls(store, calls, 2);
    if (status == TRI_OK && calls[0].number != 0)
        status = read_given_up(store, &given_up);
    *n_out = calls[1].number;
    if (status == TRI_OK && given_up >= *n_out)
        status = tri_store_add(store, key, given_up + 1 - *n_out, n_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "group_create, rank %d", rank);
}

/* A view of the store that no other group uses. */
static tri_status open_view(tri_group *g, meeting *m)
{
    char text[64];
    tri_status status = count_in(m->store, g->rank, &m->n);

    m->is_given_up = false;
    if (status != TRI_OK)
        return status;
    snprintf(text, sizeof(text), "tri_group/%" PRId64, m->n);
    return trii_group_view(text, m->store, &g->store);
}

/* Of a group that could not be formed: whether another rank had given it up. */
static bool was_given_up(meeting *m, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (m->store == NULL || trii_store_is_silent(m->store))
        return false;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (status == TRI_ERR_TIMEOUT)
        give_up(m); /* where an engine's own wait had ended */
    else if (status == TRI_ERR_UNSUPPORTED || status == TRI_ERR_PEER_LOST ||
             status == TRI_ERR_ABORTED || status == TRI_ERR_IO)
        (void)is_over(m);
    trii_err_set("%s", line);
    return m->is_given_up;
}

/* --- the group ------------------------------------------------------------ */

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
    trii_record_group facts = {.id = view != NULL ? trii_store_path_hash(view) : 0,
                               .rank = g->rank,
                               .size = g->size,
                               .epoch = g->epoch};

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

/* Where the ranks meet, and a group there. why: what has failed already, which the others shall
 * hear. */
static tri_status create_there(tri_group *g, meeting *m, const char *engine, trii_group_args *args,
                               const refusal *why)
{
    trii_made_engine made = {0};
    tri_status status;

    if (m->forming->own_store)
        trii_group_note_keys(g);
    if (why->status == TRI_OK)
        open_recorder(g, g->store);
    else
        (void)TRII_FAIL(why->status, "%s", why->line);
    status = trii_engine_make(engine, why->status, g->store, args, &made);
    if (m->forming->own_store)
        trii_group_stop_noting(g);
    g->engine = made.engine;
    g->self = made.self;
    g->submit_compared = made.checks_calls ? trii_call_check_submit : NULL;
    if (status == TRI_OK && g->recorder != NULL)
        trii_recorder_group_state(g->recorder, g->record_group, TRII_RECORD_GROUP_FORMED,
                                  g->engine->name);
    return status;
}

/* The ranks meet elsewhere now. */
static tri_status move_on(tri_group *g, meeting *m, const trii_group_args *args, int64_t start_ns)
{
    const int64_t now = trii_now_ns();

    if (now >= args->deadline_ns)
        return TRII_FAIL(TRI_ERR_TIMEOUT,
                         "%s: rank %d of %d waited %.1f s; other ranks gave up meanwhile", g->name,
                         g->rank, g->size, (double)(now - start_ns) / TRII_NS_PER_S);
    TRII_LOG(TRII_LOG_INFO, "group", "%s: rank %d of %d keeps waiting; another rank gave up",
             g->name, g->rank, g->size);
    trii_group_close_recorder(g); /* this rank has not failed */
    tri_store_unref(g->store);
    g->store = NULL;
    trii_free(g->keys.text);
    g->keys = (trii_key_list){0};
    return open_view(g, m);
}

static tri_status create_self(tri_group *g, tri_store *store, const tri_group_options *opt,
                              const trii_forming *forming, refusal *why)
{
    const char *engine = opt->engine != NULL ? opt->engine : trii_param_text(TRII_PARAM_ENGINE);
    trii_group_args args = {.rank = g->rank,
                            .size = g->size,
                            .name = g->name,
                            .is_over = forming->is_over,
                            .is_over_arg = forming->arg,
                            .bind_host = opt->bind_host,
                            .fault = &g->fault};
    meeting m = {.store = forming->own_view ? NULL : store, .forming = forming};
    int64_t start_ns;
    bool again;
    tri_status status = TRI_OK;

    refuse(why, trii_group_timeout_of(opt, &args.timeout_ns));
    atomic_init(&g->timeout_ns, args.timeout_ns);
    if (m.store != NULL) {
        args.is_over = is_over;
        args.give_up = give_up;
        args.is_over_arg = &m;
        status = open_view(g, &m);
    } else if (store != NULL) {
        g->store = tri_store_ref(store);
    }
    if (status != TRI_OK)
        return status;
    prepare(g, opt, m.n, why);
    start_ns = trii_now_ns();
    args.deadline_ns = trii_deadline_after(start_ns, forming->timeout_ns > 0 ? forming->timeout_ns
                                                                             : args.timeout_ns);
    do {
        status = create_there(g, &m, engine, &args, why);
        again = status != TRI_OK && why->status == TRI_OK && was_given_up(&m, status);
        if (again)
            status = move_on(g, &m, &args, start_ns);
    } while (again && status == TRI_OK);
    if (status != TRI_OK && g->recorder != NULL)
        trii_recorder_failed(g->recorder, g->record_group, status, tri_last_error());
    if (status != TRI_OK)
        trii_group_close_recorder(g);
    return status;
}

tri_status trii_group_form(tri_store *store, int rank, int size, const tri_group_options *opt,
                           const trii_forming *forming, tri_group **group_out)
{
    static _Atomic uint64_t n_groups;
    const tri_group_options defaults = {0};
    const trii_forming usual = {0};
    refusal why = {.status = TRI_OK};
    tri_group *g, stand_in = {0}; /* where there is no memory, while the others are told */
    tri_status status;

    status = check_create(store, rank, size, group_out);
    if (status != TRI_OK)
        return status;
    g = trii_alloc(1, sizeof(*g), "group");
    if (g == NULL || (forming != NULL && forming->no_memory))
        refuse(&why, TRI_ERR_NO_MEMORY);
    g = g != NULL ? g : &stand_in;
    atomic_init(&g->refs, 1);
    trii_fork_level_watch();
    g->process = trii_process_id();
    g->fork_level = atomic_load(&trii_fork_level);
    g->rank = rank;
    g->size = size;
    g->number = 1 + atomic_fetch_add_explicit(&n_groups, 1, memory_order_relaxed);
    g->outermost = g->number;
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

/* Ranks that are threads may share a store, which makes one call at a time: the others could not
 * say that they are here while one of them waits in it. */
tri_status tri_group_create(tri_store *store, int rank, int size, const tri_group_options *opt,
                            tri_group **group_out)
{
    tri_store *own = NULL;
    tri_status status = TRII_CHECK_RESERVED(tri_group_options, opt);

    if (status != TRI_OK)
        return status;
    if (store != NULL && size > 1)
        status = tri_store_clone(store, &own);
    if (status != TRI_OK) /* the store itself may do */
        TRII_LOG(TRII_LOG_INFO, "group", "rank %d of %d: %s", rank, size, tri_last_error());
    status = trii_group_form(own != NULL ? own : store, rank, size, opt, NULL, group_out);
    tri_store_unref(own);
    return status;
}
