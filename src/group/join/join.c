/*
 * join.c - see join.h.
 *
 * A store may hold what an earlier start of the world left: a worker may be a script that runs
 * several programs, a program may join again or try again after a timeout, torchrun's agent starts
 * its workers anew at one store, and a file outlives all of them. So a key does not prove that its
 * writer lives. Each process therefore draws a name for its start, its incarnation, and rank 0
 * proves by repeating the name that it has read it:
 *
 *   rank/R           rank R, by compare and set: who has the rank, "0 NAME SIZE PROCESS|JOB", or
 *                    "STATUS WHY" if it cannot join; deleted when it leaves
 *   world/NAME       rank 0, when every rank/R is there: its own text from rank/0, so that its NAME
 *                    becomes that of the world, or "STATUS WHY" if a rank cannot join
 *   WORLD/come/R     rank R, when it has read that. Whoever sees all of them has joined; all other
 *                    keys of the world begin with WORLD/, too
 *   ended/R, ended   trirun and tri_spawn, in this order: how the worker of rank R ended while
 *                    others went on, and that one did
 *
 * Each rank waits for four replies of the store. Meanwhile it looks now and then what has changed:
 *
 *   A duplicate finds another process at rank/R: STATE, which names it. In a store that outlives
 *   processes (a file, that of torchrun's agent) that process may be dead, so it is replaced; if it
 *   is alive and waits, it sees that and gets the STATE.
 *   Another job, or a rank with another WORLD_SIZE, reads that from rank 0: STATE, which names
 *   both. The job itself goes on.
 *   A stale rank/R is answered as any other, and nobody reads the answer. When another process
 *   replaces it, rank 0 sees a new NAME and answers again, unless all have come: then that process
 *   has left this world and waits for the next one.
 *   A late rank is waited for until the deadline, or until its worker has ended: PEER_LOST.
 *   A rank that tries again replaces its own rank/R. If it is rank 0, there is a new WORLD; the
 *   others see the new answer at world/NAME and begin again.
 *   If the store is made anew (the last rank of an earlier start removes the file), all
 *   begin again.
 */
#include "group/join/join.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "group/group_internal.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/process.h"
#include "os/random.h"
#include "store/store_ops.h"

enum { NAME = 17, WHO = 96, JOB = 96, KEY = 48, TEXT = TRII_ERR_BYTES + 16 };

/* What stands at rank/R and world/NAME. */
typedef struct identity {
    char name[NAME];
    int size;
    char who[WHO]; /* "process 123 on node1" */
    char job[JOB];
} identity;

typedef struct joining {
    tri_store *store;
    const trii_launch_env *env;
    trii_own_address *own;
    trii_group_args args;
    identity self;
    char key[KEY], text[TEXT]; /* rank/R, and what we write there */
    bool is_ours;              /* it stands there */
    bool is_rank_0_there;      /* rank/0, when last looked at */
    char answer_key[KEY];      /* world/NAME */
    char world[NAME];          /* "" = not known yet */
    trii_store_call *calls;    /* what look reads: of rank 0 all of rank/R, of others OTHERS */
    struct {
        char key[KEY];
        char answered[NAME]; /* of rank 0: the incarnation of rank R that has an answer */
    } * places;
} joining;

enum { RANK_0, OWN, ANSWER, OTHERS };

/* --- identities ----------------------------------------------------------- */

static void identify(const trii_launch_env *env, identity *id)
{
    unsigned char bytes[(NAME - 1) / 2] = {0};
    char host[64];

    (void)trii_random_bytes(bytes, sizeof(bytes)); /* to be told apart, not a secret */
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(id->name + 2 * i, 3, "%02x", bytes[i]);
    trii_host_name(host, sizeof(host));
    snprintf(id->who, WHO, "process %d on %s", trii_process_id(), host);
    snprintf(id->job, JOB, "%s", env->job);
    id->size = env->size;
}

static bool parse(const char *text, identity *id)
{
    int at = 0;

    *id = (identity){.size = 0};
    if (sscanf(text, "0 %16s %d %95[^|]|%n", id->name, &id->size, id->who, &at) != 3 || at == 0)
        return false;
    snprintf(id->job, JOB, "%s", text + at);
    return true;
}

/* Whether the process is one of this host that has not ended. */
static bool is_alive_here(const char *who)
{
    char host[64], its[64];
    int pid = 0;

    trii_host_name(host, sizeof(host));
    return sscanf(who, "process %d on %63s", &pid, its) == 2 && strcmp(host, its) == 0 &&
           trii_process_exists(pid);
}

/* Returns what jobs must not have in common. */
static const char *name_store(const trii_launch_env *env, char text_out[300])
{
    if (env->file[0] == '\0')
        snprintf(text_out, 300, "the store %s port %d", env->host, env->port);
    else
        snprintf(text_out, 300, "the file %s", env->file);
    return env->file[0] == '\0' ? "port" : "file";
}

static tri_status is_taken(const joining *j, const char *holder)
{
    char at[300];
    const char *what = name_store(j->env, at);
    identity id;

    return TRII_FAIL(TRI_ERR_STATE,
                     "rank %d has already joined (%s) at %s: one rank started twice, or two jobs "
                     "with one %s",
                     j->env->rank, parse(holder, &id) ? id.who : holder, at, what);
}

/* Whether they are of one job and agree on its size. */
static tri_status compare(const joining *j, const identity *theirs)
{
    const identity *ours = &j->self;
    char at[300];
    const char *what = name_store(j->env, at);

    if (strcmp(theirs->job, ours->job) == 0 && theirs->size == ours->size)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s serves another job (%s%s%d ranks), this is %s%s%d ranks: give each job a "
                     "%s of its own",
                     at, theirs->job, *theirs->job != '\0' ? ", " : "", theirs->size, ours->job,
                     *ours->job != '\0' ? ", " : "", ours->size, what);
}

/* --- the own rank --------------------------------------------------------- */

/* Whoever wrote in such a store may be dead, of another job or of one that was larger. */
static bool outlives_ranks(const trii_launch_env *env)
{
    return env->file[0] != '\0' || (env->agent_store && !env->new_store);
}

/* What stands at rank/0. Rank 0 says whose store it is: if whoever comes first did, a stranger
 * could turn out the job. */
static tri_status check_rank_0(const joining *j, const char *text)
{
    identity id;

    return outlives_ranks(j->env) || text == NULL || !parse(text, &id) ? TRI_OK : compare(j, &id);
}

/* OK if what stands at our key may be replaced. A store that rank 0 serves is as old as this world;
 * in trirun's, an earlier program of this worker may have ended. */
static tri_status check_holder(const joining *j, const char *holder)
{
    identity id;

    if (outlives_ranks(j->env) || !parse(holder, &id) || strcmp(id.who, j->self.who) == 0)
        return TRI_OK;
    if (j->env->agent_store && !is_alive_here(id.who))
        return TRI_OK;
    return is_taken(j, holder);
}

static tri_status claim(joining *j)
{
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = "rank/0"},
                               {.kind = TRII_STORE_CLAIM, .key = j->key, .text = j->text}};
    tri_status status = TRI_OK;

    j->is_ours = false;
    while (status == TRI_OK && !j->is_ours) {
        void *now = NULL;
        const char *theirs;

        status = trii_store_exchange(j->store, calls, 2, NULL, 0, 0, NULL, NULL);
        if (status != TRI_OK)
            return status;
        theirs = calls[1].value;
        j->is_rank_0_there = calls[0].value != NULL;
        j->is_ours = strcmp(theirs, j->text) == 0;
        status = check_rank_0(j, calls[0].value);
        if (status == TRI_OK && !j->is_ours)
            status = check_holder(j, theirs);
        if (status == TRI_OK && !j->is_ours)
            status = tri_store_compare_set(j->store, j->key, theirs, strlen(theirs), j->text,
                                           strlen(j->text), &now, NULL);
        j->is_ours = j->is_ours || (now != NULL && strcmp(now, j->text) == 0);
        tri_store_free(now);
        trii_store_calls_free(calls, 2);
    }
    return status;
}

/* --- workers that have ended ---------------------------------------------- */

bool trii_join_has(tri_store *store, const char *what, int rank)
{
    char key[KEY];
    const char *keys[] = {key};
    bool there = false;

    snprintf(key, sizeof(key), "%s/%d", what, rank);
    return tri_store_check(store, keys, 1, &there) == TRI_OK && there;
}

/* Before the world is known only rank 0 can tell whether what stands at rank/R is stale. */
static bool has_come(const joining *j, int rank)
{
    char come[KEY];

    snprintf(come, sizeof(come), "%s/come", j->world);
    return *j->world != '\0' ? trii_join_has(j->store, come, rank)
                             : rank != 0 && trii_join_has(j->store, "rank", rank);
}

/* One of those that have ended and will not come. Its end is read first: it may have come in
 * between. Rank 0 is the last one to ask for: it may have ended because of another. */
static tri_status check_ended(const joining *j)
{
    char key[KEY];
    void *how = NULL;
    int r = 1;

    while (r <= j->env->size &&
           !(trii_join_has(j->store, "ended", r % j->env->size) && !has_come(j, r % j->env->size)))
        r++;
    if (r > j->env->size)
        return TRI_OK;
    r %= j->env->size;
    snprintf(key, sizeof(key), "ended/%d", r);
    if (tri_store_get(j->store, key, 0, &how, NULL) != TRI_OK)
        how = NULL;
    (void)TRII_FAIL(TRI_ERR_PEER_LOST, "world: rank %d of %d %s before it joined the group", r,
                    j->env->size, how != NULL ? (const char *)how : "ended");
    tri_store_free(how);
    return TRI_ERR_PEER_LOST;
}

/* --- looking -------------------------------------------------------------- */

/* Rank 0, of another incarnation of a rank that it has answered, after it has read it: whether that
 * is one of the next world, since this world is complete and the rank has left it. */
static tri_status is_of_next_world(const joining *j, bool *next_out)
{
    char come[KEY];

    snprintf(come, sizeof(come), "%s/come", j->world);
    return trii_agree_have_arrived(&j->args, come, next_out);
}

/* Rank 0, which has read all of rank/R: repeats its own text to each incarnation that it has not
 * answered. The first rank that cannot join is the failure of all. */
static tri_status answer_ranks(joining *j)
{
    char answer[TEXT];
    tri_status failure = TRI_OK, status = TRI_OK;
    bool next = false;

    for (int r = 0; r < j->env->size && failure == TRI_OK; r++) {
        if (j->calls[r].value != NULL && j->calls[r].value[0] == '-')
            failure = trii_agree_failure(&j->args, r, j->calls[r].value);
    }
    if (failure != TRI_OK)
        snprintf(answer, TEXT, "%d %s", (int)failure, tri_last_error());
    for (int r = 1; r < j->env->size && status == TRI_OK; r++) {
        const char *text = j->calls[r].value;
        char key[KEY], *answered = j->places[r].answered;
        identity id;

        if (text == NULL || !parse(text, &id) ||
            (failure == TRI_OK && strcmp(id.name, answered) == 0))
            continue;
        if (*answered != '\0' && failure == TRI_OK)
            status = is_of_next_world(j, &next);
        if (status != TRI_OK || next)
            break; /* all have come: this rank will see that, too */
        memcpy(answered, id.name, NAME);
        snprintf(key, sizeof(key), "world/%s", id.name);
        text = failure == TRI_OK ? j->text : answer;
        status = tri_store_set(j->store, key, text, strlen(text));
    }
    return failure == TRI_OK ? status : TRII_FAIL(failure, "%s", strchr(answer, ' ') + 1);
}

/* Another rank than 0, of its answer. */
static tri_status take_answer(joining *j, const char *text)
{
    identity id;
    tri_status status;

    if (!parse(text, &id)) {
        const char *line = strchr(text, ' ');

        status = (tri_status)strtol(text, NULL, 10);
        return TRII_FAIL(status < 0 ? status : TRI_ERR_FORMAT, "%s", line != NULL ? line + 1 : "");
    }
    status = compare(j, &id);
    if (status == TRI_OK && *j->world != '\0' && strcmp(id.name, j->world) != 0)
        return TRI_INPROGRESS;
    memcpy(j->world, id.name, NAME);
    return status;
}

static tri_status check_own_address(const joining *j)
{
    char who[TRII_ERR_BYTES];

    return trii_own_address_verdict(j->own, who, sizeof(who)) == TRII_OWN_OTHER ? is_taken(j, who)
                                                                                : TRI_OK;
}

/* What may change while this rank waits. INPROGRESS: it has to begin again. */
static tri_status look(void *arg)
{
    joining *j = arg;
    bool first = j->env->rank == 0;
    int n = first ? j->env->size : OTHERS;
    const char *own;
    tri_status status = trii_store_exchange(j->store, j->calls, n + 1, NULL, 0, 0, NULL, NULL);

    if (status != TRI_OK)
        return status;
    own = j->calls[first ? RANK_0 : OWN].value;
    j->is_rank_0_there = j->calls[RANK_0].value != NULL;
    j->is_ours = own != NULL && strcmp(own, j->text) == 0;
    if (own == NULL || (!first && *j->world != '\0' && j->calls[ANSWER].value == NULL))
        status = TRI_INPROGRESS; /* the store was made anew */
    else if (!j->is_ours)
        status = is_taken(j, own);
    else if (first)
        status = check_own_address(j);
    else if (j->calls[ANSWER].value != NULL)
        status = take_answer(j, j->calls[ANSWER].value);
    else
        status = check_rank_0(j, j->calls[RANK_0].value);
    if (status == TRI_OK && first && *j->world != '\0')
        status = answer_ranks(j);
    if (status == TRI_OK && j->calls[n].value != NULL)
        status = check_ended(j); /* the others shall see who, too */
    trii_store_calls_free(j->calls, n + 1);
    return status;
}

/* --- joining -------------------------------------------------------------- */

static tri_status prepare(joining *j, tri_status mine)
{
    int rank = j->env->rank, n = rank == 0 ? j->env->size : OTHERS;

    identify(j->env, &j->self);
    snprintf(j->key, KEY, "rank/%d", rank);
    snprintf(j->answer_key, KEY, "world/%s", j->self.name);
    if (mine != TRI_OK)
        snprintf(j->text, TEXT, "%d %s", (int)mine, tri_last_error());
    else
        snprintf(j->text, TEXT, "0 %s %d %s|%s", j->self.name, j->self.size, j->self.who,
                 j->self.job);
    j->calls = trii_alloc((size_t)n + 1, sizeof(*j->calls), "ranks that join");
    j->places = trii_alloc((size_t)n, sizeof(*j->places), "ranks that join");
    if (j->calls == NULL || j->places == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < n; r++) {
        snprintf(j->places[r].key, KEY, "rank/%d", rank == 0 || r == RANK_0 ? r : rank);
        j->calls[r] = (trii_store_call){.kind = TRII_STORE_READ, .key = j->places[r].key};
    }
    if (rank != 0)
        j->calls[ANSWER].key = j->answer_key;
    j->calls[n] = (trii_store_call){.kind = TRII_STORE_READ, .key = "ended"};
    return TRI_OK;
}

static tri_status attempt(joining *j, tri_status mine, tri_store **view_out)
{
    const bool first = j->env->rank == 0;
    trii_looks looks = {.look = look, .arg = j, .whom = first ? NULL : "rank 0"};
    trii_group_args args = j->args;
    tri_status status = claim(j);

    j->world[0] = '\0';
    if (status != TRI_OK || (mine != TRI_OK && !first))
        return status != TRI_OK ? status : mine;
    status = trii_agree_await(&j->args, "rank", first ? NULL : j->answer_key, &looks);
    if (status == TRI_OK && first) {
        memcpy(j->world, j->self.name, NAME);
        for (int r = 0; r < j->env->size; r++)
            j->places[r].answered[0] = '\0';
        looks.first_ns = 4 * TRII_NS_PER_MS; /* it may have answered one that is stale */
    }
    if (status == TRI_OK)
        status = look(j);
    if (status == TRI_OK && *j->world == '\0')
        status = TRI_INPROGRESS;
    if (status == TRI_OK)
        status = tri_store_prefix(j->world, j->store, &args.store);
    if (status != TRI_OK)
        return status;
    status = trii_agree_arrive(&args, "come", &looks);
    if (status == TRI_OK)
        *view_out = args.store;
    else
        tri_store_unref(args.store);
    return status;
}

/* Whether the server ended that an earlier rank 0 still had, and not the one that is joining: that
 * would have written rank/0. Of a process that joins again, what stands there may be that of the
 * world that it has left. */
static bool was_earlier_store(const joining *j, tri_status status)
{
    const trii_launch_env *env = j->env;

    return status == TRI_ERR_IO && env->rank != 0 && !env->agent_store && env->file[0] == '\0' &&
           *j->world == '\0' && (!j->is_rank_0_there || env->again) &&
           trii_now_ns() < j->args.deadline_ns;
}

/* At the deadline, of a store that outlives ranks: rank 0 does not look for ranks beyond its size,
 * and what stands at rank/0 may be stale, so it is no more than a hint. */
static tri_status add_other_size(const joining *j)
{
    trii_store_call call = {.kind = TRII_STORE_READ, .key = "rank/0"};
    char line[TRII_ERR_BYTES], at[300];
    identity id = {.size = j->env->size};

    snprintf(line, sizeof(line), "%s", tri_last_error());
    (void)name_store(j->env, at);
    if (!trii_store_is_silent(j->store) && /* else it would be waited for */
        trii_store_exchange(j->store, &call, 1, NULL, 0, 0, NULL, NULL) == TRI_OK) {
        if (call.value == NULL || !parse(call.value, &id))
            id.size = j->env->size;
        trii_store_calls_free(&call, 1);
    }
    return id.size == j->env->size
               ? TRII_FAIL(TRI_ERR_TIMEOUT, "%s", line)
               : TRII_FAIL(TRI_ERR_TIMEOUT, "%s; rank 0 at %s (%s) is of %d ranks, this one of %d",
                           line, at, id.who, id.size, j->env->size);
}

/* A stranger makes room for the rank whose key it has. */
static void withdraw(const joining *j)
{
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_join_leave(j->store, j->env->rank) != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "%s", tri_last_error());
    trii_err_set("%s", line);
}

tri_status trii_join(tri_store *store, const trii_launch_env *env, trii_own_address *own,
                     tri_status mine, int64_t deadline_ns, tri_store **view_out)
{
    joining j = {.store = store,
                 .env = env,
                 .own = own,
                 .args = {.store = store,
                          .rank = env->rank,
                          .size = env->size,
                          .name = "world",
                          .deadline_ns = deadline_ns}};
    tri_status status = prepare(&j, mine);

    if (status == TRI_OK)
        status = attempt(&j, mine, view_out);
    while (status == TRI_INPROGRESS)
        status = attempt(&j, mine, view_out);
    if (status == TRI_ERR_STATE && j.is_ours && env->rank != 0)
        withdraw(&j);
    else if (status == TRI_ERR_TIMEOUT && env->rank != 0 && *j.world == '\0')
        status = add_other_size(&j);
    else if (mine == TRI_OK && was_earlier_store(&j, status))
        status = TRI_INPROGRESS;
    trii_free(j.calls);
    trii_free(j.places);
    return status;
}

tri_status trii_join_leave(tri_store *store, int rank)
{
    char key[KEY];

    snprintf(key, sizeof(key), "rank/%d", rank);
    return tri_store_delete(store, key, NULL);
}
