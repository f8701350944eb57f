/*
 * world_store.c - the store of the world, from its opening until the last rank has left it. How the
 * ranks find each other there, and no keys of an earlier run, depends on who made it:
 *
 *   trirun            new for each start of its workers; a worker that is a script may join several
 *                     times: incarnation.h
 *   torchrun          its agent's, which outlives the workers, also those that are replaced while
 *                     the restart count stays the same: a fresh name, session.h
 *   rank 0            served here: who has which rank is kept in identity.h; and rank 0 finds out
 *                     whether the others were given another address, store/own_address.h
 *   file:///PATH      may be an old one: a fresh name, session.h
 *
 * Keys stand under "trireme/N/", N being the launcher's restart count. With trirun the ranks need
 * no fresh name, which saves a dozen questions to the store (1.5 ms of 7 from trirun's start to the
 * first all_reduce).
 */
#include "group/join/world_store.h"

#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/ranks_text.h"
#include "group/group_internal.h"
#include "group/join/identity.h"
#include "group/join/incarnation.h"
#include "group/join/session.h"
#include "os/clock.h"
#include "os/shared_file.h"
#include "store/own_address.h"
#include "store/store_ops.h"

/* How long rank 0, when it serves the store, waits for the others to leave too. */
#define LEAVE_MS INT64_C(10000)  /* no longer than the group's timeout */
#define LOOK_MS INT64_C(100)     /* between two looks whether there are others */
#define LINGER_MS INT64_C(1000)  /* for ranks that look now and then to see a failure */
#define REFUSE_MS INT64_C(10000) /* for a rank that cannot join to reach the others */

/* A view of `base`, which outlives the ranks, that no earlier run has written to. */
static tri_status open_session(tri_store *base, const trii_launch_env *env, int64_t deadline_ns,
                               tri_store **store_out)
{
    char prefix[16 + TRII_SESSION_TEXT] = "trireme/", *session = prefix + strlen(prefix);
    tri_status status = trii_session_agree(base, env->rank, env->size, deadline_ns, session);

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
        return trii_identity_is_taken(env, why);
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
static bool is_set(tri_store *store, const char *what, int rank)
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
        if (is_set(e->life, "ended", r) && !is_set(e->store, "come", r))
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
        status = trii_agree_report(&args, "come", TRI_OK);
    if (status == TRI_OK)
        status = trii_agree_result(&args, "come", own != NULL ? is_elsewhere : NULL, own);
    return e.rank >= 0 && status == TRI_ERR_PEER_LOST ? ended_early(&e) : status;
}

void trii_world_store_linger(tri_store *store)
{
    static const char *const nothing[] = {"nothing"};
    int64_t deadline_ns = trii_deadline_ms(LINGER_MS);
    tri_status status = TRI_ERR_TIMEOUT;
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    while (status == TRI_ERR_TIMEOUT && trii_store_others(store) > 0 && trii_now_ns() < deadline_ns)
        status = tri_store_wait(store, nothing, 1, LOOK_MS);
    trii_err_set("%s", line);
}

static tri_status open_tcp(const trii_launch_env *env, int64_t timeout_ms, trii_world_store *ws)
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
        status = trii_identity_claim_job(life, env);
    if (status == TRI_OK && meet)
        status = with_remedy(open_session(life, env, deadline_ns, &view), env);
    else if (status == TRI_OK && env->new_store)
        status = trii_incarnation_take(life, env, &view, &again);
    else if (status == TRI_OK)
        view = tri_store_ref(life);
    if (status == TRI_OK && !env->new_store)
        status = trii_identity_claim_rank(view, env);
    if (status == TRI_OK && !meet)
        status = judge_own(wait_for_all(life, view, env, deadline_ns, again, own), env, own);
    if (status != TRI_OK && status != TRI_ERR_TIMEOUT && options.serve && view != NULL)
        trii_world_store_linger(view);
    trii_own_address_stop(own);
    if (status == TRI_OK && env->new_store)
        status = trii_incarnation_joined(view, env->rank);
    if (status == TRI_OK) {
        ws->store = view;
        ws->launcher = env->new_store ? tri_store_ref(life) : NULL;
    } else {
        tri_store_unref(view);
    }
    tri_store_unref(life);
    return status;
}

tri_status trii_world_store_open(const trii_launch_env *env, int64_t timeout_ms,
                                 trii_world_store *ws_out)
{
    trii_world_store ws = {.size = env->size};
    tri_status status;

    if (env->size == 1)
        status = tri_store_hash(&ws.store);
    else if (env->file[0] != '\0')
        status = open_file(env, timeout_ms, &ws.store);
    else
        status = open_tcp(env, timeout_ms, &ws);
    if (status == TRI_OK)
        *ws_out = ws;
    return status;
}

bool trii_world_store_lacks_one(void *world_store)
{
    static const char *const keys[] = {"lacks-one"}, *const ended_keys[] = {"ended"};
    const trii_world_store *ws = world_store;
    int others = trii_store_others(ws->store);
    bool known = false;

    if (ws->launcher != NULL)
        return tri_store_check(ws->launcher, ended_keys, 1, &known) == TRI_OK && known;
    if (others < 0)
        return tri_store_check(ws->store, keys, 1, &known) == TRI_OK && known;
    return others < ws->size - 1 && tri_store_set(ws->store, keys[0], "", 0) == TRI_OK;
}

/* --- a rank that cannot join ---------------------------------------------- */

/* To ranks that meet under `view`, all of them: rank 0, which serves it, hears them out. */
static tri_status say_refusal(tri_store *base, const trii_launch_env *env, tri_status mine,
                              const char *line)
{
    trii_group_args args = {.rank = env->rank,
                            .size = env->size,
                            .name = "world",
                            .deadline_ns = trii_deadline_ms(REFUSE_MS)};
    tri_store *view = NULL;
    char prefix[40];
    tri_status status;

    snprintf(prefix, sizeof(prefix), "trireme/%d", env->restart_count);
    status = tri_store_prefix(prefix, base, &view);
    args.store = view;
    if (status == TRI_OK)
        status = trii_identity_claim_job(view, env);
    if (status == TRI_OK)
        status = trii_identity_claim_rank(view, env);
    trii_err_set("%s", line);
    if (status == TRI_OK)
        status = trii_agree_report(&args, "come", mine);
    if (status == TRI_OK && env->rank == 0) {
        status = trii_agree_result(&args, "come", NULL, NULL);
        trii_world_store_linger(base);
    }
    tri_store_unref(view);
    return status;
}

tri_status trii_world_store_refuse(const char *url, tri_status mine)
{
    char line[TRII_ERR_BYTES];
    trii_launch_env env;
    tri_store *base = NULL;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_launch_env_read(url, &env) == TRI_OK && env.size > 1 && !env.agent_store &&
        env.file[0] == '\0') {
        const tri_store_tcp_options options = {.serve = env.rank == 0, .timeout_ms = REFUSE_MS};
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

/* --- leaving -------------------------------------------------------------- */

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
        if (is_set(store, "rank", r))
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

void trii_world_store_leave(const trii_launch_env *env, tri_store *store, int64_t timeout_ms)
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
    status = env->new_store ? trii_incarnation_left(store, env->rank)
                            : trii_identity_drop_rank(store, env->rank);
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
