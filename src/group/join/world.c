/*
 * world.c - the world: joined once from what the launcher says, left once.
 *
 * Its keys stand under "trireme/N/", N being the launcher's restart count: an agent's store
 * outlives its workers, and a new life must not read what an older one wrote. Where a worker was
 * replaced the count stays the same (as torchrun's does), so in such a store, as in a file, the
 * ranks first agree on a fresh name (session.h) under which they then work. trirun makes a new
 * store for each start of its workers and says so: there the ranks need no such name, which saves a
 * dozen questions to the store (1.5 ms of 7 from trirun's start to the first all_reduce).
 */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "base/ranks_text.h"
#include "group/join/identity.h"
#include "group/group_internal.h"
#include "group/join/env.h"
#include "group/join/session.h"
#include "group/join/incarnation.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/shared_file.h"
#include "os/thread.h"
#include "store/own_address.h"
#include "store/store_ops.h"

/* How long rank 0, when it serves the store, waits for the others to leave too. */
#define LEAVE_MS INT64_C(10000) /* no longer than the group's timeout */
#define LOOK_MS INT64_C(100)    /* between two looks whether there are others */
#define HEAR_MS INT64_C(1000)   /* for those that look now and then to hear of a failure */
#define TELL_MS INT64_C(10000)  /* for a rank that cannot join to reach the others */

static struct {
    trii_mutex mutex; /* serialises init and finalize; the rest is read without it */
    trii_launch_env env;
    tri_store *store;
    int64_t timeout_ms;
    int forming;     /* ranks of the world that is being joined */
    tri_store *life; /* meanwhile, where a launcher tells of workers that ended; NULL = none does */
    atomic_int rank, size, local_rank, local_size;
    /* The size that somebody was told before it was joined first; 0 = nobody asked, -1 = it has
     * been joined, and maybe left since. */
    atomic_int told;
} joined = {.mutex = TRII_MUTEX_INITIALIZER, .size = 1, .local_size = 1};

static void publish(const trii_launch_env *env)
{
    atomic_store(&joined.rank, env->rank);
    atomic_store(&joined.size, env->size);
    atomic_store(&joined.local_rank, env->local_rank);
    atomic_store(&joined.local_size, env->local_size);
}

/* A view of `base`, which outlives the ranks, that no earlier run has written to. */
static tri_status open_session(tri_store *base, const trii_launch_env *env, int64_t deadline_ns,
                               tri_store **store_out)
{
    char prefix[16 + TRII_SESSION_TEXT] = "trireme/", *session = prefix + strlen(prefix);
    tri_status status = trii_meet(base, env->rank, env->size, deadline_ns, session);

    return status == TRI_OK ? tri_store_prefix(prefix, base, store_out) : status;
}

static tri_status open_file(const trii_launch_env *env, int64_t timeout_ms, tri_store **store_out)
{
    const tri_store_file_options options = {.timeout_ms = timeout_ms};
    tri_store *base = NULL;
    tri_status status = tri_store_file(env->file, &options, &base);

    if (status == TRI_OK)
        status = open_session(base, env, trii_deadline_ms(timeout_ms), store_out);
    tri_store_unref(base); /* the session holds it */
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "rank %d at %s", env->rank, env->file);
}

/* Adds what the reader may do about ranks that did not come. */
static tri_status with_remedy(tri_status status, const trii_launch_env *env)
{
    char line[TRII_ERR_BYTES];

    if (status != TRI_ERR_TIMEOUT)
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(
        status, "%s at %s port %d: do they run, with this %s, and does no firewall stop them?",
        line, env->host, env->port, env->by_url ? "URL" : "MASTER_ADDR and MASTER_PORT");
}

/* Rank 0 that serves the store: others who do not come may have been given the wrong address. */
static tri_status watch_own(tri_store *base, const trii_launch_env *env, trii_own_address **own_out)
{
    char proof[40], claimed[40];
    const trii_own_search search = {.host = env->host,
                                    .port = env->port,
                                    .store = base,
                                    .proof_key = proof,
                                    .claim_key = claimed,
                                    .setting = env->by_url ? "the URL of tri_init (TRI_INIT)"
                                                           : "MASTER_ADDR"};

    snprintf(proof, sizeof(proof), "trireme/%d/own", env->restart_count);
    snprintf(claimed, sizeof(claimed), "trireme/%d/rank/0", env->restart_count);
    return trii_own_address_start(&search, own_out);
}

static bool is_elsewhere(void *own)
{
    char why[TRII_ERR_BYTES];

    return trii_own_address_verdict(own, why, sizeof(why)) == TRII_OWN_OTHER;
}

/* What rank 0 knows better than that others did not come. */
static tri_status judge_own(tri_status status, const trii_launch_env *env, trii_own_address *own)
{
    char why[TRII_ERR_BYTES], line[TRII_ERR_BYTES];
    trii_own_verdict verdict = trii_own_address_verdict(own, why, sizeof(why));

    if (status == TRI_OK)
        return status;
    if (verdict == TRII_OWN_OTHER)
        return trii_claim_is_taken(env, why);
    if (status != TRI_ERR_TIMEOUT || verdict != TRII_OWN_NOBODY)
        return with_remedy(status, env);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(status, "%s; %s", line, why);
}

/* Who waits for a rank that has ended would wait until the deadline. A launcher that serves the
 * store tells there of those that ended while others go on: how, at "ended/R", and then "ended". */
typedef struct ended {
    tri_store *life, *store;
    int size;
    int rank; /* out: that ended and had not come; -1 = none */
} ended;

/* Whether RANK of `what` is there; a store that fails says so elsewhere. */
static bool is_told(tri_store *store, const char *what, int rank)
{
    char key[32];
    const char *keys[] = {key};
    bool there = false;

    snprintf(key, sizeof(key), "%s/%d", what, rank);
    return tri_store_check(store, keys, 1, &there) == TRI_OK && there;
}

/* Of those that a launcher tells of; end before come, or one that came in between has ended. */
static bool one_has_ended(void *arg)
{
    static const char *const any[] = {"ended"};
    ended *e = arg;
    bool there = false;

    if (tri_store_check(e->life, any, 1, &there) != TRI_OK || !there)
        return false;
    for (int r = 0; r < e->size && e->rank < 0; r++) {
        if (is_told(e->life, "ended", r) && !is_told(e->store, "come", r))
            e->rank = r;
    }
    return e->rank >= 0;
}

static tri_status ended_early(const ended *e)
{
    char key[32];
    void *how = NULL;

    snprintf(key, sizeof(key), "ended/%d", e->rank);
    if (tri_store_get(e->life, key, 0, &how, NULL) != TRI_OK)
        how = NULL;
    (void)TRII_FAIL(TRI_ERR_PEER_LOST, "world: rank %d of %d %s before it joined the group",
                    e->rank, e->size, how != NULL ? (const char *)how : "ended");
    tri_store_free(how);
    return TRI_ERR_PEER_LOST;
}

/* Until all have come to a store that is new. */
static tri_status wait_for_all(tri_store *life, tri_store *store, const trii_launch_env *env,
                               int64_t deadline_ns, bool again, trii_own_address *own)
{
    char key[32];
    const char *keys[] = {key};
    bool said = false;
    tri_status status = TRI_OK;
    ended e = {.life = life, .store = store, .size = env->size, .rank = -1};
    const trii_group_args args = {.store = store,
                                  .rank = env->rank,
                                  .size = env->size,
                                  .name = "world",
                                  .deadline_ns = deadline_ns,
                                  .is_over = env->new_store ? one_has_ended : NULL,
                                  .is_over_arg = &e};

    snprintf(key, sizeof(key), "come/%d", env->rank);
    if (again)
        status = tri_store_check(store, keys, 1, &said);
    if (status == TRI_OK && !said)
        status = trii_group_say(&args, "come", TRI_OK);
    if (status == TRI_OK)
        status = trii_group_hear(&args, "come", own != NULL ? is_elsewhere : NULL, own);
    return e.rank >= 0 && status == TRI_ERR_PEER_LOST ? ended_early(&e) : status;
}

/* Of rank 0, whose store ends with it: until the others have heard of the failure. */
static void let_them_hear(tri_store *store)
{
    static const char *const nothing[] = {"nothing"};
    int64_t deadline_ns = trii_deadline_ms(HEAR_MS);
    tri_status status = TRI_ERR_TIMEOUT;
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    while (status == TRI_ERR_TIMEOUT && trii_store_others(store) > 0 && trii_now_ns() < deadline_ns)
        status = tri_store_wait(store, nothing, 1, LOOK_MS);
    trii_err_set("%s", line);
}

static tri_status open_tcp(const trii_launch_env *env, int64_t timeout_ms, tri_store **store_out)
{
    const tri_store_tcp_options options = {.serve = env->rank == 0 && !env->agent_store,
                                           .timeout_ms = timeout_ms};
    int64_t deadline_ns = trii_deadline_ms(timeout_ms);
    tri_store *base = NULL, *life = NULL, *view = NULL;
    bool meet = env->agent_store && !env->new_store, again = false;
    trii_own_address *own = NULL;
    char prefix[40];
    tri_status status = tri_store_tcp(env->host, env->port, &options, &base);

    if (status != TRI_OK)
        return status;
    snprintf(prefix, sizeof(prefix), "trireme/%d", env->restart_count);
    status = tri_store_prefix(prefix, base, &life);
    if (status == TRI_OK && options.serve)
        status = watch_own(base, env, &own);
    tri_store_unref(base); /* the prefix holds it */
    if (status == TRI_OK)
        status = trii_claim_job(life, env);
    if (status == TRI_OK && meet)
        status = with_remedy(open_session(life, env, deadline_ns, &view), env);
    else if (status == TRI_OK && env->new_store)
        status = trii_turn_take(life, env, &view, &again);
    else if (status == TRI_OK)
        view = tri_store_ref(life);
    if (status == TRI_OK && !env->new_store)
        status = trii_claim_rank(view, env);
    if (status == TRI_OK && !meet)
        status = judge_own(wait_for_all(life, view, env, deadline_ns, again, own), env, own);
    if (status != TRI_OK && status != TRI_ERR_TIMEOUT && options.serve && view != NULL)
        let_them_hear(view);
    trii_own_address_stop(own);
    if (status == TRI_OK && env->new_store)
        status = trii_turn_met(view, env->rank);
    if (status == TRI_OK && env->new_store)
        joined.life = tri_store_ref(life);
    tri_store_unref(life);
    if (status != TRI_OK) {
        tri_store_unref(view);
        return status;
    }
    *store_out = view;
    return TRI_OK;
}

static tri_status open_store(const trii_launch_env *env, int64_t timeout_ms, tri_store **store_out)
{
    if (env->size == 1)
        return tri_store_hash(store_out);
    return env->file[0] != '\0' ? open_file(env, timeout_ms, store_out)
                                : open_tcp(env, timeout_ms, store_out);
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

/* Once all have come, what a rank has not said yet is waited for in vain if one is gone. The
 * launcher tells of that, or else rank 0, which serves the store: who ends is not connected to it
 * any more. */
static bool lacks_one(void *arg)
{
    static const char *const keys[] = {"lacks-one"}, *const ended_keys[] = {"ended"};
    int others = trii_store_others(arg);
    bool told = false;

    if (joined.life != NULL)
        return tri_store_check(joined.life, ended_keys, 1, &told) == TRI_OK && told;
    if (others < 0)
        return tri_store_check(arg, keys, 1, &told) == TRI_OK && told;
    return others < joined.forming - 1 && tri_store_set(arg, keys[0], "", 0) == TRI_OK;
}

/* To ranks that meet under `view`, all of them: rank 0, which serves it, hears them out. */
static tri_status say_refusal(tri_store *base, const trii_launch_env *env, tri_status mine,
                              const char *line)
{
    trii_group_args args = {.rank = env->rank,
                            .size = env->size,
                            .name = "world",
                            .deadline_ns = trii_deadline_ms(TELL_MS)};
    tri_store *view = NULL;
    char prefix[40];
    tri_status status;

    snprintf(prefix, sizeof(prefix), "trireme/%d", env->restart_count);
    status = tri_store_prefix(prefix, base, &view);
    args.store = view;
    if (status == TRI_OK)
        status = trii_claim_job(view, env);
    if (status == TRI_OK)
        status = trii_claim_rank(view, env);
    trii_err_set("%s", line);
    if (status == TRI_OK)
        status = trii_group_say(&args, "come", mine);
    if (status == TRI_OK && env->rank == 0) {
        status = trii_group_hear(&args, "come", NULL, NULL);
        let_them_hear(base);
    }
    tri_store_unref(view);
    return status;
}

/* A rank whose settings are wrong says so where the others would wait for it until their deadline,
 * unless a launcher serves the store, which hears that it ended. Returns the failure. */
static tri_status refuse(const char *url, tri_status mine)
{
    char line[TRII_ERR_BYTES];
    trii_launch_env env;
    tri_store *base = NULL;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_launch_env_read(url, &env) == TRI_OK && env.size > 1 && !env.agent_store &&
        env.file[0] == '\0') {
        const tri_store_tcp_options options = {.serve = env.rank == 0, .timeout_ms = TELL_MS};
        tri_status status;

        TRII_LOG(TRII_LOG_WARN, "group", "rank %d tells the others: %s", env.rank, line);
        status = tri_store_tcp(env.host, env.port, &options, &base);
        if (status == TRI_OK)
            status = say_refusal(base, &env, mine, line);
        if (status != TRI_OK)
            TRII_LOG(TRII_LOG_INFO, "group", "they may not know: %s", tri_last_error());
        tri_store_unref(base);
    }
    return TRII_FAIL(mine, "%s", line);
}

static tri_status join(const tri_init_options *opt)
{
    const char *url = opt->url != NULL ? opt->url : trii_param_text(TRII_PARAM_INIT);
    tri_group_options options = opt->group;
    trii_launch_env env;
    tri_store *store = NULL;
    tri_group *world = NULL;
    int64_t timeout_ms = options.timeout_ms;
    int told;
    tri_status status = trii_param_check_all();

    if (status != TRI_OK)
        return refuse(url, status);
    status = trii_launch_env_read(url, &env);
    if (status == TRI_OK && timeout_ms == 0)
        status = trii_param_i64(TRII_PARAM_TIMEOUT_MS, TRI_GROUP_TIMEOUT_MS, &timeout_ms);
    if (status == TRI_OK) {
        trii_log_set_rank(env.size > 1 ? env.rank : -1); /* for what is said of waits */
        warn_of_settings(&env);
        status = open_store(&env, timeout_ms, &store);
    }
    if (status != TRI_OK) {
        trii_log_set_rank(-1);
        return status;
    }
    options.name = options.name != NULL ? options.name : "world";
    joined.forming = env.size;
    status = trii_group_form(store, env.rank, env.size, &options,
                             &(trii_forming){.is_over = lacks_one, .arg = store}, &world);
    tri_store_unref(joined.life);
    joined.life = NULL;
    if (status != TRI_OK) {
        if (status != TRI_ERR_TIMEOUT)
            let_them_hear(store);
        tri_store_unref(store);
        trii_log_set_rank(-1);
        return status;
    }
    told = atomic_exchange(&joined.told, -1);
    if (told > 0 && told != env.size && env.local_rank == 0) /* once a host */
        TRII_LOG(TRII_LOG_WARN, "group",
                 "tri_world_size was %d before tri_init, which joined %d ranks: was work divided?",
                 told, env.size);
    joined.env = env;
    joined.store = store;
    joined.timeout_ms = timeout_ms;
    publish(&env);
    trii_group_set_world(world);
    return TRI_OK;
}

tri_status tri_init(const tri_init_options *opt)
{
    static const tri_init_options defaults = {0};
    tri_status status;

    trii_mutex_lock(&joined.mutex);
    if (trii_group_get_world() != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "rank %d has joined the world already", tri_rank());
    else
        status = join(opt != NULL ? opt : &defaults);
    trii_mutex_unlock(&joined.mutex);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "init");
}

/* Whoever leaves last takes the file away, so that it does not grow from run to run. */
static void leave_file(const trii_launch_env *env, tri_store *store)
{
    int64_t n = 0;
    tri_status status = tri_store_add(store, "left", 1, &n);

    if (status == TRI_OK && n == env->size)
        status = trii_shared_file_remove(env->file);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "finalize: %s", tri_last_error());
}

/* Who has not left still holds its number. waited_ms: -1 = none of them runs. */
static void say_who_stays(const trii_launch_env *env, tri_store *store, int64_t waited_ms)
{
    int ranks[64], n = 0;
    char whom[160];

    for (int r = 1; r < env->size && n < (int)TRII_COUNT_OF(ranks); r++) {
        if (is_told(store, "rank", r))
            ranks[n++] = r;
    }
    if (n == 0)
        return;
    (void)trii_ranks_text(ranks, n, whom, sizeof(whom));
    if (waited_ms < 0)
        TRII_LOG(TRII_LOG_WARN, "group", "finalize: %s ended without tri_finalize", whom);
    else
        TRII_LOG(
            TRII_LOG_WARN, "group",
            "finalize: rank 0, which serves the store, waited %.1f s for %s to call tri_finalize, "
            "and leaves now",
            (double)waited_ms / 1000, whom);
}

/* Of rank 0, which serves the store: until all others have left it, or have ended without a word
 * and so are not connected to it any more. */
static tri_status outstay(const trii_launch_env *env, tri_store *store, int64_t patience_ms)
{
    static const char *const all_left[] = {"all-left"};
    int64_t deadline_ns = trii_deadline_ms(patience_ms);
    tri_status status = TRI_ERR_TIMEOUT;
    bool alone = false;

    while (status == TRI_ERR_TIMEOUT && !alone && trii_now_ns() < deadline_ns) {
        alone = trii_store_others(store) == 0; /* what they had said is there */
        status = tri_store_wait(store, all_left, 1, patience_ms < LOOK_MS ? patience_ms : LOOK_MS);
    }
    if (status == TRI_ERR_TIMEOUT)
        say_who_stays(env, store, alone ? -1 : patience_ms);
    return status;
}

/* The store ends with rank 0 if that serves it, so rank 0 leaves last. */
static void leave_store(const trii_launch_env *env, tri_store *store, int64_t timeout_ms)
{
    int64_t patience_ms = timeout_ms > 0 && timeout_ms < LEAVE_MS ? timeout_ms : LEAVE_MS;
    int64_t n = 0;
    tri_status status;

    if (env->size == 1)
        return;
    if (env->file[0] != '\0') {
        leave_file(env, store);
        return;
    }
    status = env->new_store ? trii_turn_left(store, env->rank) : trii_claim_drop(store, env->rank);
    if (env->agent_store)
        return;
    if (status == TRI_OK && env->rank != 0)
        status = tri_store_add(store, "left", 1, &n);
    if (status == TRI_OK && env->rank != 0 && n == env->size - 1)
        status = tri_store_set(store, "all-left", "", 0);
    if (status == TRI_OK && env->rank == 0)
        status = outstay(env, store, patience_ms);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "finalize: %s", tri_last_error());
}

void tri_finalize(void)
{
    static const trii_launch_env alone = {.size = 1, .local_size = 1};
    tri_group *world;

    trii_mutex_lock(&joined.mutex);
    world = trii_group_get_world();
    if (world != NULL) {
        bool ours = trii_group_is_ours(world);

        trii_group_set_world(NULL);
        if (ours && atomic_load(&world->refs) > 1)
            trii_group_leave(world);
        tri_group_unref(world);
        if (ours) { /* else its connection is the parent's, too */
            leave_store(&joined.env, joined.store, joined.timeout_ms);
            tri_store_unref(joined.store);
        }
        joined.store = NULL;
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

    if (size == 1 && atomic_load_explicit(&joined.told, memory_order_relaxed) == 0)
        atomic_store_explicit(&joined.told, 1, memory_order_relaxed);
    return size;
}

int tri_local_rank(void)
{
    return atomic_load_explicit(&joined.local_rank, memory_order_relaxed);
}

int tri_local_world_size(void)
{
    return atomic_load_explicit(&joined.local_size, memory_order_relaxed);
}
