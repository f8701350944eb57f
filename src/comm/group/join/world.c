/*
 * world.c - the world: tri_init joins it once from what the launcher says (env.h), by a store
 * (world_store.h) that its group is formed in; tri_finalize leaves it once.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "base/param.h"
#include "comm/group/group_internal.h"
#include "comm/group/join/env.h"
#include "comm/group/join/world_store.h"
#include "os/descriptor.h"
#include "os/process.h"
#include "os/thread.h"

static struct {
    trii_mutex mutex; /* serialises init and finalize; the rest is read without it */
    trii_launch_env env;
    trii_world_store ws;
    int64_t timeout_ms;
    atomic_int rank, size, local_rank, local_size; /* the local ones: -1 = in no world */
    /* What tri_world_size returned before the world was first joined; 0 = nobody asked, -1 = it has
     * been joined, and maybe left since. */
    atomic_int early_size;
} joined = {.mutex = TRII_MUTEX_INITIALIZER, .size = 1, .local_rank = -1, .local_size = -1};

static void publish(const trii_launch_env *env)
{
    atomic_store(&joined.rank, env->rank);
    atomic_store(&joined.size, env->size);
    atomic_store(&joined.local_rank, env->local_rank);
    atomic_store(&joined.local_size, env->local_size);
}

/* Once a host: its ranks have one environment. */
static void warn_of_settings(const trii_launch_env *env)
{
    char text[TRII_PARAM_UNKNOWN];

    for (const char *const *e = trii_process_environment(); env->local_rank == 0 && *e != NULL;
         e++) {
        if (trii_param_unknown(*e, text))
            TRII_LOG(TRII_LOG_WARN, "group", "%s", text);
    }
}

/* While the ranks meet the world has no group yet, and who waits in tri_init wants to be seen. */
typedef struct meeting {
    trii_recorder *recorder; /* NULL = none */
    uint16_t group;
} meeting;

static meeting meeting_begin(const trii_launch_env *env, const char *name)
{
    trii_record_group facts = {.id = TRII_RECORD_MEETING, .rank = env->rank, .size = env->size};
    meeting m = {.recorder = env->size > 1 ? trii_recorder_open(env->rank, env->size) : NULL};

    snprintf(facts.name, sizeof(facts.name), "%s", name);
    if (m.recorder != NULL)
        m.group = trii_recorder_group_forms(m.recorder, &facts);
    return m;
}

/* The group has a record of its own, or there will be none. */
static void meeting_end(meeting *m, tri_status status)
{
    if (m->recorder != NULL && status != TRI_OK) {
        trii_recorder_failed(m->recorder, m->group, status, tri_last_error());
        trii_recorder_group_state(m->recorder, m->group, TRII_RECORD_GROUP_LEFT, NULL);
    }
    trii_recorder_close(m->recorder);
}

/* Workers print into a pipe, in which the C library would hold lines back until there are many, and
 * lose them where a worker is killed. */
static void print_line_by_line(void)
{
    if (trii_launch_env_text("TRI_RUN_DIR") != NULL ||
        trii_launch_env_text("TRI_AGENT_STORE") != NULL)
        trii_stdout_by_line();
}

/* Rank and size, and where the ranks meet unless the program gave a store. */
static tri_status find_world(const tri_init_options *opt, const char *url, trii_launch_env *env)
{
    if (opt->store == NULL)
        return trii_launch_env_read_as(url, opt->rank, opt->world_size, env);
    if (opt->url != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "url and store both say where the ranks meet; one is enough");
    if (opt->world_size == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a store is given, and no world_size");
    return trii_launch_env_at_store(opt->rank, opt->world_size, env);
}

/* Opens the store of the world; the program's own is only used. */
static tri_status open_store(const tri_init_options *opt, const trii_launch_env *env,
                             int64_t timeout_ms, trii_world_store *ws)
{
    if (opt->store == NULL)
        return trii_world_store_open(env, timeout_ms, ws);
    *ws = (trii_world_store){.store = tri_store_ref(opt->store), .size = env->size};
    return TRI_OK;
}

static tri_status join(const tri_init_options *opt)
{
    const char *url = opt->url != NULL ? opt->url : trii_param_text(TRII_PARAM_INIT);
    trii_forming forming = {0};
    tri_group_options options = opt->group;
    trii_launch_env env;
    trii_world_store ws = {0};
    tri_group *world = NULL;
    meeting m = {0};
    int64_t timeout_ms = options.timeout_ms;
    int early;
    tri_status status = trii_param_check_all();

    print_line_by_line();
    options.name = options.name != NULL ? options.name : "world";
    if (status != TRI_OK)
        return trii_world_store_refuse(opt, url, status);
    status = find_world(opt, url, &env);
    if (status == TRI_OK && timeout_ms == 0)
        status = trii_param_i64(TRII_PARAM_TIMEOUT_MS, TRI_GROUP_TIMEOUT_MS, &timeout_ms);
    if (status == TRI_OK) {
        trii_log_set_rank(env.size > 1 ? env.rank : -1); /* for what is said of waits */
        warn_of_settings(&env);
        env.again = atomic_load(&joined.early_size) == -1;
        m = meeting_begin(&env, options.name);
        status = open_store(opt, &env, timeout_ms, &ws);
    }
    if (status != TRI_OK) {
        meeting_end(&m, status);
        trii_log_set_rank(-1);
        return status;
    }
    if (opt->store == NULL)
        forming =
            (trii_forming){.is_over = trii_world_store_lacks_one, .arg = &ws, .own_view = true};
    status = trii_group_form(ws.store, env.rank, env.size, &options, &forming, &world);
    meeting_end(&m, status);
    if (status != TRI_OK) {
        if (status != TRI_ERR_TIMEOUT)
            trii_world_store_linger(ws.store);
        trii_world_store_release(&ws);
        trii_log_set_rank(-1);
        return status;
    }
    early = atomic_exchange(&joined.early_size, -1);
    if (early > 0 && early != env.size && env.local_rank == 0) /* once a host */
        TRII_LOG(TRII_LOG_WARN, "group",
                 "tri_world_size was %d before tri_init, which joined %d ranks: was work divided?",
                 early, env.size);
    joined.env = env;
    joined.ws = ws;
    joined.timeout_ms = timeout_ms;
    publish(&env);
    trii_group_set_world(world);
    return TRI_OK;
}

tri_status tri_init(const tri_init_options *opt)
{
    static const tri_init_options defaults = {0};
    tri_status status;

    opt = opt != NULL ? opt : &defaults;
    status = TRII_CHECK_RESERVED(tri_init_options, opt);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_group_options, &opt->group);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "init");
    trii_mutex_lock(&joined.mutex);
    if (trii_group_get_world() != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "rank %d has joined the world already", tri_rank());
    else
        status = join(opt);
    trii_mutex_unlock(&joined.mutex);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "init");
}

void tri_finalize(void)
{
    static const trii_launch_env alone = {.size = 1, .local_rank = -1, .local_size = -1};
    tri_group *world;

    trii_mutex_lock(&joined.mutex);
    world = trii_group_get_world();
    if (world != NULL) {
        bool ours = trii_group_is_ours(world);

        trii_group_set_world(NULL);
        if (ours && atomic_load(&world->refs) > 1)
            trii_group_leave(world);
        tri_group_unref(world);
        if (ours) /* else its connection is the parent's, too */
            trii_world_store_leave(&joined.env, &joined.ws, joined.timeout_ms);
        publish(&alone);
        trii_log_set_rank(-1);
    }
    trii_mutex_unlock(&joined.mutex);
}

bool tri_is_initialized(void)
{
    return trii_group_get_world() != NULL;
}

int tri_rank(void)
{
    return atomic_load_explicit(&joined.rank, memory_order_relaxed);
}

int tri_world_size(void)
{
    int size = atomic_load_explicit(&joined.size, memory_order_relaxed);

    if (size == 1 && atomic_load_explicit(&joined.early_size, memory_order_relaxed) == 0)
        atomic_store_explicit(&joined.early_size, 1, memory_order_relaxed);
    return size;
}

/* Programs choose their device by it before they join. */
int tri_local_rank(void)
{
    int rank = atomic_load_explicit(&joined.local_rank, memory_order_relaxed), size;

    if (rank < 0)
        trii_launch_env_here(&rank, &size);
    return rank;
}

int tri_local_world_size(void)
{
    int size = atomic_load_explicit(&joined.local_size, memory_order_relaxed), rank;

    if (size < 0)
        trii_launch_env_here(&rank, &size);
    return size;
}
