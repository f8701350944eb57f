/*
 * world_store.c - the store of the world, from its opening until the last rank has left it: a file,
 * or a TCP store that the launcher or rank 0 serves. How the ranks find each other there is join.c.
 *
 * Keys begin with "trireme/N/", N being the launcher's restart count.
 */
/* build: leaf */
#include "comm/group/join/world_store.h"

#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/ranks_text.h"
#include "comm/group/group_internal.h"
#include "comm/group/join/join.h"
#include "os/clock.h"
#include "os/shared_file.h"
#include "os/socket.h"
#include "store/own_address.h"
#include "store/store_ops.h"

/* How long rank 0, when it serves the store, waits for the others to leave too. */
#define LEAVE_MS INT64_C(10000)  /* no longer than the group's timeout */
#define LOOK_MS INT64_C(100)     /* between two looks whether there are others */
#define LINGER_MS INT64_C(1000)  /* for ranks that look now and then to see a failure */
#define REFUSE_MS INT64_C(10000) /* for a rank that cannot join to reach the others */

static tri_status open_file(const trii_launch_env *env, int64_t timeout_ms, trii_world_store *ws)
{
    const tri_store_file_options options = {.timeout_ms = timeout_ms};
    tri_status status = tri_store_file(env->file, &options, &ws->base);

    if (status == TRI_OK)
        status = trii_join(ws->base, env, NULL, TRI_OK, trii_deadline_ms(timeout_ms), &ws->store);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "rank %d at %s", env->rank, env->file);
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

/* Adds what the reader may do about ranks that did not come: rank 0 may know better than that. */
static tri_status with_remedy(const trii_launch_env *env, trii_own_address *own)
{
    char why[TRII_ERR_BYTES], line[TRII_ERR_BYTES];
    bool here;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_own_address_verdict(own, why, sizeof(why)) == TRII_OWN_NOBODY)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "%s; %s", line, why);
    here = env->rank == 0 && !env->agent_store && env->host[0] != '@' &&
           trii_socket_is_loopback(env->host);
    return TRII_FAIL(
        TRI_ERR_TIMEOUT,
        "%s at %s port %d: do they run, with this %s, and does no firewall stop them?%s", line,
        env->host, env->port, env->by_url ? "URL" : "MASTER_ADDR and MASTER_PORT",
        here ? " Other hosts cannot reach this address: name another one of rank 0's host" : "");
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

/* A launcher serves before it starts workers. trirun and tri_spawn say where; under another
 * launcher the place may be the program's own, and there is no way to tell. */
static tri_status with_launcher(const trii_launch_env *env, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (status != TRI_ERR_TIMEOUT || !env->agent_store || env->new_store)
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    return TRII_FAIL(status,
                     "%s TORCHELASTIC_USE_AGENT_STORE=True says that the launcher serves there; if "
                     "this program has set MASTER_ADDR or MASTER_PORT, take it out of the "
                     "environment, too",
                     line);
}

/* Also, of a rank 0 that serves it, *own_out. */
static tri_status connect_tcp(const trii_launch_env *env, tri_status mine, int64_t timeout_ms,
                              tri_store **base_out, trii_own_address **own_out)
{
    const tri_store_tcp_options options = {.serve = env->rank == 0 && !env->agent_store,
                                           .timeout_ms = timeout_ms};
    char prefix[40];
    tri_store *server = NULL;
    tri_status status;

    snprintf(prefix, sizeof(prefix), "trireme/%d", env->restart_count);
    status = with_launcher(env, tri_store_tcp(env->host, env->port, &options, &server));
    if (status == TRI_OK)
        status = tri_store_prefix(prefix, server, base_out);
    if (status == TRI_OK && options.serve && mine == TRI_OK)
        status = watch_own(server, env, own_out);
    tri_store_unref(server); /* the prefix holds it */
    return status;
}

/* mine: as trii_join. Of a rank 0 that serves, a failure is seen by the others before it ends. */
static tri_status open_tcp(const trii_launch_env *env, tri_status mine, int64_t timeout_ms,
                           trii_world_store *ws)
{
    const trii_group_args until = {.deadline_ns = trii_deadline_ms(timeout_ms)};
    char line[TRII_ERR_BYTES];
    trii_own_address *own = NULL;
    tri_status status = TRI_INPROGRESS;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    while (status == TRI_INPROGRESS) {
        tri_store_unref(ws->base);
        ws->base = NULL;
        status = connect_tcp(env, mine, timeout_ms, &ws->base, &own);
        if (status != TRI_OK)
            return status;
        if (mine != TRI_OK)
            trii_err_set("%s", line);
        status = trii_join(ws->base, env, own, mine, until.deadline_ns, &ws->store);
        timeout_ms = trii_group_left_ms(&until);
    }
    if (status == TRI_ERR_TIMEOUT && mine == TRI_OK)
        status = with_remedy(env, own);
    else if (status != TRI_OK && env->rank == 0 && !env->agent_store)
        trii_world_store_linger(ws->base);
    trii_own_address_stop(own);
    return status;
}

void trii_world_store_release(trii_world_store *ws)
{
    tri_store_unref(ws->store);
    tri_store_unref(ws->base);
}

tri_status trii_world_store_open(const trii_launch_env *env, int64_t timeout_ms,
                                 trii_world_store *ws_out)
{
    trii_world_store ws = {.size = env->size, .reports_ends = env->new_store};
    tri_status status;

    if (env->size == 1)
        status = tri_store_hash(&ws.store);
    else if (env->file[0] != '\0')
        status = open_file(env, timeout_ms, &ws);
    else
        status = open_tcp(env, TRI_OK, timeout_ms, &ws);
    if (status == TRI_OK)
        *ws_out = ws;
    else
        trii_world_store_release(&ws);
    return status;
}

bool trii_world_store_lacks_one(void *world_store)
{
    static const char *const keys[] = {"lacks-one"}, *const ended_keys[] = {"ended"};
    const trii_world_store *ws = world_store;
    int others = trii_store_others(ws->store);
    bool known = false;

    if (ws->reports_ends)
        return tri_store_check(ws->base, ended_keys, 1, &known) == TRI_OK && known;
    if (others < 0)
        return tri_store_check(ws->store, keys, 1, &known) == TRI_OK && known;
    return others < ws->size - 1 && tri_store_set(ws->store, keys[0], "", 0) == TRI_OK;
}

/* --- a rank that cannot join ---------------------------------------------- */

tri_status trii_world_store_refuse(const tri_init_options *opt, const char *url, tri_status mine)
{
    char line[TRII_ERR_BYTES];
    trii_world_store ws = {0};
    trii_launch_env env;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (opt->store == NULL &&
        trii_launch_env_read_as(url, opt->rank, opt->world_size, &env) == TRI_OK && env.size > 1 &&
        !env.agent_store && env.file[0] == '\0') {
        TRII_LOG(TRII_LOG_WARN, "group", "rank %d tells the others: %s", env.rank, line);
        trii_err_set("%s", line);
        if (open_tcp(&env, mine, REFUSE_MS, &ws) != mine)
            TRII_LOG(TRII_LOG_INFO, "group", "they may not know: %s", tri_last_error());
        trii_world_store_release(&ws);
    }
    return TRII_FAIL(mine, "%s", line);
}

/* --- leaving -------------------------------------------------------------- */

/* The last to leave removes the file, so that it does not grow from run to run. */
static void leave_file(const trii_launch_env *env, tri_store *store)
{
    int64_t n = 0;
    tri_status status = tri_store_add(store, "left", 1, &n);

    if (status == TRI_OK && n == env->size)
        status = trii_shared_file_remove(env->file);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "finalize: %s", tri_last_error());
}

/* A process that has not left still holds its rank. waited_ms: -1 = none of them runs. */
static void say_who_stays(const trii_launch_env *env, tri_store *base, int64_t waited_ms)
{
    int ranks[64], n = 0;
    char whom[160];

    for (int r = 1; r < env->size && n < (int)TRII_COUNT_OF(ranks); r++) {
        if (trii_join_has(base, "rank", r))
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
static tri_status outstay(const trii_launch_env *env, const trii_world_store *ws,
                          int64_t patience_ms)
{
    static const char *const all_left[] = {"all-left"};
    int64_t deadline_ns = trii_deadline_ms(patience_ms);
    tri_status status = TRI_ERR_TIMEOUT;
    bool alone = false;

    while (status == TRI_ERR_TIMEOUT && !alone && trii_now_ns() < deadline_ns) {
        alone = trii_store_others(ws->store) == 0; /* what they had said is there */
        status =
            tri_store_wait(ws->store, all_left, 1, patience_ms < LOOK_MS ? patience_ms : LOOK_MS);
    }
    if (status == TRI_ERR_TIMEOUT)
        say_who_stays(env, ws->base, alone ? -1 : patience_ms);
    return status;
}

/* Whether some process has a rank in that way. */
static bool is_held(const trii_launch_env *env, const trii_world_store *ws, trii_join_holder how)
{
    bool held = false;

    for (int r = 1; r < env->size && !held; r++)
        held = trii_join_holder_of(ws->base, ws->store, r) == how;
    return held;
}

/* Of rank 0, which serves it: when all have left. Some may have come again with their next program,
 * or were about to, since rank/0 still stood there: they see that it is gone when they look, before
 * the store is gone, too. */
static tri_status leave_last(const trii_launch_env *env, const trii_world_store *ws,
                             int64_t patience_ms)
{
    bool coming = is_held(env, ws, TRII_HOLDER_CLAIMED);
    tri_status status = outstay(env, ws, patience_ms);

    if (status == TRI_OK && trii_store_others(ws->store) > 0 &&
        (coming || is_held(env, ws, TRII_HOLDER_CAME)))
        trii_world_store_linger(ws->base);
    return status;
}

/* Of a TCP store. */
static void leave_store(const trii_launch_env *env, const trii_world_store *ws, int64_t patience_ms)
{
    tri_status status = trii_join_leave(ws->base, env->rank);
    int64_t n = 0;

    if (status == TRI_OK && !env->agent_store) {
        if (env->rank == 0)
            status = leave_last(env, ws, patience_ms);
        else
            status = tri_store_add(ws->store, "left", 1, &n);
    }
    if (status == TRI_OK && n > 0 && n == env->size - 1)
        status = tri_store_set(ws->store, "all-left", "", 0);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "finalize: %s", tri_last_error());
}

void trii_world_store_leave(const trii_launch_env *env, trii_world_store *ws, int64_t timeout_ms)
{
    if (env->file[0] != '\0' && env->size > 1 && ws->base != NULL)
        leave_file(env, ws->store);
    else if (env->size > 1 && ws->base != NULL)
        leave_store(env, ws, timeout_ms > 0 && timeout_ms < LEAVE_MS ? timeout_ms : LEAVE_MS);
    trii_world_store_release(ws);
}
