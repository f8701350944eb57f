/*
 * join.c - see join.h.
 *
 * A store may hold what an earlier start of the world left: a worker may be a script that runs
 * several programs, a program may join again or try again after a timeout, torchrun's agent starts
 * its workers again with one store, and a file outlives all of them. So a key does not prove that
 * its writer lives. Each process therefore draws a name for its start, its incarnation, and rank 0
 * proves by repeating the name that it has read it:
 *
 *   rank/R           rank R, by compare and set: the process that has the rank, "0 NAME SIZE
 *                    PROCESS|JOB", or "STATUS WHY" if it cannot join; deleted when it leaves
 *   world/NAME       rank 0, once it has read that and the rank has not come: its own text from
 *                    rank/0, whose NAME is that of the world, or "STATUS WHY" if a rank cannot join
 *   WORLD/come/R     rank R, when it knows the world: "0 NAME". All other keys of the world begin
 *                    with WORLD/, too
 *   WORLD/go/NAME    rank 0, of each rank, when all have come: a rank that sees its own has joined
 *   over             rank 0, before it deletes rank/0: its world is over
 *   ended/R, ended   trirun and tri_spawn, in this order: how the worker of rank R ended while
 *                    others still ran, and that one did
 *   gave-up/R        rank R, which will end because another one has: that one is to be named
 *
 * Usually the value of rank/0 is of this start, so a rank comes at once (may_trust), and has
 * joined after two replies of the store, rank 0 after three. In a store that outlives processes,
 * and of a process that has left a world, a rank waits for the answer at world/NAME instead.
 * Meanwhile each looks now and then what has changed:
 *
 *   A duplicate finds another process at rank/R: STATE, which names it. In a store that outlives
 *   processes (a file, that of torchrun's agent) that process may be dead, so it is replaced; if it
 *   is alive and waits, it sees that and gets the STATE.
 *   Another job, or a rank with another WORLD_SIZE, reads that from rank 0: STATE, which names
 *   both. The job itself goes on.
 *   A stale rank/R is answered as any other, and nobody reads the answer. When another process
 *   replaces it, rank 0 sees a new NAME and answers again.
 *   A late rank is waited for until the deadline, or until its worker has ended: PEER_LOST.
 *   A rank 0 that ends, and its store with it, is not waited for: IO. Unless the store was of a
 *   world that is over: then the right one is still to come.
 *   A rank that tries again replaces its own rank/R. If it is rank 0, there is a new WORLD; the
 *   others see that at rank/0 or world/NAME and begin again.
 *   If the store is made again (the last rank of an earlier start removes the file), all
 *   begin again.
 */
/* build: leaf */
#include "comm/group/join/join.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/process.h"
#include "os/random.h"
#include "store/store_ops.h"

enum { NAME = 17, WHO = 96, JOB = 96, KEY = 48, TEXT = TRII_ERR_BYTES + 16 };

#define WELL "0 "                     /* how the text of a rank that can join begins */
#define LOOK_NS (32 * TRII_NS_PER_MS) /* the first look while others start */

/* The values of rank/R and world/NAME. */
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
    bool is_ours;              /* its value is ours */
    bool may_be_over;          /* the world whose rank 0 serves the store, when this rank came */
    char world[NAME];          /* "" = not known yet */
    char come[KEY];            /* WORLD/come; "" likewise */
    trii_store_call *calls;    /* what look reads, `ended` last: others than rank 0 as below ... */
    int n_calls;               /* ... rank 0 all of rank/R, then all of WORLD/come/R */
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

/* The writers of such a store may be dead, of another job or of one that was larger. */
static bool outlives_ranks(const trii_launch_env *env)
{
    return env->file[0] != '\0' || (env->agent_store && !env->new_store);
}

/* Whether the value of rank/0 is of this start. */
static bool may_trust(const joining *j)
{
    return !outlives_ranks(j->env) && !j->env->again;
}

static void know_world(joining *j, const char *name)
{
    memcpy(j->world, name, NAME);
    snprintf(j->come, KEY, "%s/come", name);
}

/* Another rank than 0, of what rank 0 says; INPROGRESS: the world that it came to is no more. */
static tri_status take_answer(joining *j, char *text)
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
    know_world(j, id.name);
    return status;
}

/* The value of rank/0. Rank 0 says whose store it is: if the first to come did, a stranger
 * could turn out the job. */
static tri_status check_rank_0(joining *j, char *text)
{
    identity id;

    if (text == NULL || outlives_ranks(j->env))
        return TRI_OK;
    if (j->env->rank != 0 && may_trust(j))
        return parse(text, &id) ? take_answer(j, text) : trii_agree_failure(&j->args, 0, text);
    return parse(text, &id) ? compare(j, &id) : TRI_OK;
}

/* OK if the value of our key may be replaced. A store that rank 0 serves is as old as this world;
 * in trirun's, an earlier program of this worker may have ended. */
static tri_status check_holder(const joining *j, const char *holder)
{
    identity id;

    if (outlives_ranks(j->env) || !parse(holder, &id) || strcmp(id.who, j->self.who) == 0)
        return TRI_OK;
    /* rank 0 has come, and is of our job: one of another job hears that when it looks */
    if (j->env->rank != 0 && *j->world != '\0' && strcmp(id.job, j->self.job) != 0)
        return TRI_OK;
    if (j->env->agent_store && !is_alive_here(id.who))
        return TRI_OK;
    return is_taken(j, holder);
}

static tri_status claim(joining *j)
{
    char come[KEY], own[NAME + sizeof(WELL)];
    bool first = j->env->rank == 0;
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = "rank/0"},
                               {.kind = TRII_STORE_CLAIM, .key = j->key, .text = j->text},
                               {.kind = first ? TRII_STORE_SET : TRII_STORE_READ,
                                .key = first ? come : "over",
                                .text = own}};
    enum { N_CALLS = TRII_COUNT_OF(calls) };
    tri_status status = TRI_OK;

    snprintf(come, sizeof(come), "%s/0", j->come);
    snprintf(own, sizeof(own), WELL "%s", j->self.name);
    j->is_ours = false;
    while (status == TRI_OK && !j->is_ours) {
        void *now = NULL;
        const char *theirs;

        status = trii_store_calls(j->store, calls, N_CALLS);
        if (status != TRI_OK)
            return status;
        theirs = calls[1].value;
        j->may_be_over = calls[0].value == NULL && calls[2].value != NULL;
        j->is_ours = strcmp(theirs, j->text) == 0;
        status = check_rank_0(j, calls[0].value);
        if (status == TRI_OK && !j->is_ours)
            status = check_holder(j, theirs);
        if (status == TRI_OK && !j->is_ours)
            status = tri_store_compare_set(j->store, j->key, theirs, strlen(theirs), j->text,
                                           strlen(j->text), &now, NULL);
        j->is_ours = j->is_ours || (now != NULL && strcmp(now, j->text) == 0);
        tri_store_free(now);
        trii_store_calls_free(calls, N_CALLS);
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

/* Before the world is known only rank 0 can tell whether the value of rank/R is stale. */
static bool has_come(const joining *j, int rank)
{
    return *j->world != '\0' ? trii_join_has(j->store, j->come, rank)
                             : rank != 0 && trii_join_has(j->store, "rank", rank);
}

/* A rank that has ended and will not come, from 1 to the size, which stands for rank 0; 0 = none.
 * Its end is read first: it may have come in between. Rank 0 is the last one to ask for. One that
 * gave up because of another is the victim. */
static int find_ended(const joining *j, int *victim_out)
{
    for (int i = 1; i <= j->env->size; i++) {
        int r = i % j->env->size;

        if (!trii_join_has(j->store, "ended", r) || has_come(j, r))
            continue;
        if (!trii_join_has(j->store, "gave-up", r))
            return i;
        *victim_out = i;
    }
    return 0;
}

static tri_status check_ended(const joining *j)
{
    char key[KEY];
    void *how = NULL;
    int victim = 0, r = find_ended(j, &victim);

    if (r == 0 && victim != 0) { /* the one before it may have ended since it was asked for */
        r = find_ended(j, &victim);
        r = r != 0 ? r : victim;
    }
    if (r == 0)
        return TRI_OK;
    r %= j->env->size;
    snprintf(key, sizeof(key), "gave-up/%d", j->env->rank);
    if (tri_store_set(j->store, key, "", 0) != TRI_OK) /* others may name us */
        TRII_LOG(TRII_LOG_INFO, "group", "%s", tri_last_error());
    snprintf(key, sizeof(key), "ended/%d", r);
    if (tri_store_get(j->store, key, 0, &how, NULL) != TRI_OK)
        how = NULL;
    (void)TRII_FAIL(TRI_ERR_PEER_LOST, "world: rank %d of %d %s before it joined the group", r,
                    j->env->size, how != NULL ? (const char *)how : "ended");
    tri_store_free(how);
    return TRI_ERR_PEER_LOST;
}

/* --- looking -------------------------------------------------------------- */

/* Rank 0, which has read all of rank/R: the first rank that cannot join is the failure of all, but
 * they have to be there to hear it. */
static tri_status find_failure(const joining *j)
{
    tri_status failure = TRI_OK;

    for (int r = 0; r < j->env->size && failure == TRI_OK; r++) {
        if (j->calls[r].value != NULL && j->calls[r].value[0] == '-')
            failure = trii_agree_failure(&j->args, r, j->calls[r].value);
    }
    for (int r = 0; r < j->env->size; r++) {
        if (j->calls[r].value == NULL)
            return TRI_OK;
    }
    return failure;
}

/* Rank 0, to the incarnation of a rank. */
static tri_status tell(const joining *j, const char *where, const char *name, const char *text)
{
    char key[KEY];

    snprintf(key, sizeof(key), "%s/%s", where, name);
    return tri_store_set(j->store, key, text, strlen(text));
}

/* Rank 0, which has read all of rank/R and WORLD/come/R: repeats its own text to each incarnation
 * that has not come and that it has not answered. END: all have come, and hear that. */
static tri_status answer_ranks(joining *j)
{
    int size = j->env->size, n_here = 0;
    char answer[TEXT], go[KEY];
    tri_status failure = find_failure(j), status = TRI_OK;

    if (failure != TRI_OK)
        snprintf(answer, TEXT, "%d %s", (int)failure, tri_last_error());
    for (int r = 0; r < size && status == TRI_OK; r++) {
        const char *text = j->calls[r].value, *come = j->calls[size + r].value;
        char *answered = j->places[r].answered;
        bool is_here;
        identity id;

        if (text == NULL || !parse(text, &id))
            continue;
        is_here = come != NULL && strcmp(come + 2, id.name) == 0;
        n_here += is_here;
        if (failure == TRI_OK && (is_here || strcmp(id.name, answered) == 0))
            continue;
        memcpy(answered, id.name, NAME);
        status = tell(j, "world", id.name, failure == TRI_OK ? j->text : answer);
    }
    if (failure != TRI_OK)
        return TRII_FAIL(failure, "%s", strchr(answer, ' ') + 1);
    snprintf(go, sizeof(go), "%s/go", j->world);
    for (int r = 1; r < size && status == TRI_OK && n_here == size; r++)
        status = tell(j, go, j->calls[size + r].value + 2, "");
    return status == TRI_OK && n_here == size ? TRI_END : status;
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
    bool first = j->env->rank == 0, is_known = *j->world != '\0';
    const char *own;
    char *from_rank_0, *answer;
    tri_status status = trii_store_calls(j->store, j->calls, j->n_calls);

    if (status != TRI_OK)
        return status;
    own = j->calls[first ? RANK_0 : OWN].value;
    from_rank_0 = j->calls[RANK_0].value;
    answer = first ? NULL : j->calls[ANSWER].value;
    j->is_ours = own != NULL && strcmp(own, j->text) == 0;
    if (own == NULL || (!first && is_known && (may_trust(j) ? from_rank_0 : answer) == NULL))
        status = TRI_INPROGRESS; /* the store was made again, or rank 0 has left */
    else if (!j->is_ours)
        status = is_taken(j, own);
    else if (first)
        status = check_own_address(j);
    else if (answer != NULL)
        status = take_answer(j, answer);
    else
        status = check_rank_0(j, from_rank_0);
    if (status == TRI_OK && first)
        status = answer_ranks(j);
    if (status == TRI_OK && j->calls[j->n_calls - 1].value != NULL)
        status = check_ended(j); /* the others shall see who, too */
    trii_store_calls_free(j->calls, j->n_calls);
    return status;
}

/* --- joining -------------------------------------------------------------- */

static tri_status prepare(joining *j, tri_status mine)
{
    int rank = j->env->rank, size = j->env->size;

    identify(j->env, &j->self);
    snprintf(j->key, KEY, "rank/%d", rank);
    if (mine != TRI_OK)
        snprintf(j->text, TEXT, "%d %s", (int)mine, tri_last_error());
    else
        snprintf(j->text, TEXT, WELL "%s %d %s|%s", j->self.name, j->self.size, j->self.who,
                 j->self.job);
    if (rank == 0)
        know_world(j, j->self.name);
    j->n_calls = rank == 0 ? 2 * size + 1 : OTHERS + 1;
    j->calls = trii_alloc((size_t)j->n_calls, sizeof(*j->calls), "ranks that join");
    j->places = trii_alloc((size_t)j->n_calls, sizeof(*j->places), "ranks that join");
    if (j->calls == NULL || j->places == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < j->n_calls; i++)
        j->calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = j->places[i].key};
    for (int r = 0; r < size && rank == 0; r++) {
        snprintf(j->places[r].key, KEY, "rank/%d", r);
        snprintf(j->places[size + r].key, KEY, "%s/%d", j->come, r);
    }
    if (rank != 0) {
        snprintf(j->places[RANK_0].key, KEY, "rank/0");
        snprintf(j->places[OWN].key, KEY, "%s", j->key);
        snprintf(j->places[ANSWER].key, KEY, "world/%s", j->self.name);
    }
    snprintf(j->places[j->n_calls - 1].key, KEY, "ended");
    return TRI_OK;
}

/* Rank 0: until all have come. */
static tri_status await_ranks(joining *j, tri_status mine)
{
    const trii_looks looks = {.look = look, .arg = j, .first_ns = LOOK_NS};
    tri_status status = TRI_OK;

    for (int r = 0; r < j->env->size; r++)
        j->places[r].answered[0] = '\0';
    if (mine != TRI_OK || !may_trust(j)) { /* they come when they have an answer */
        status = trii_agree_await(&j->args, "rank", NULL, NULL, &looks);
        if (status == TRI_OK)
            status = look(j);
    }
    if (status == TRI_OK)
        status = trii_agree_await(&j->args, j->come, NULL, NULL, &looks);
    if (status == TRI_OK)
        status = look(j);
    if (status == TRI_OK) /* one that tries again had come before */
        status = trii_agree_await(&j->args, j->come, NULL, "never", &looks);
    return status == TRI_END ? TRI_OK : status;
}

/* Another rank: until it hears that all have come. */
static tri_status follow_rank_0(joining *j)
{
    const trii_looks looks = {.look = look, .arg = j, .first_ns = LOOK_NS, .whom = "rank 0"};
    char own[NAME + sizeof(WELL)], go[KEY];
    tri_status status = TRI_OK;

    if (*j->world == '\0') {
        status = trii_agree_await(&j->args, "rank", NULL,
                                  j->places[may_trust(j) ? RANK_0 : ANSWER].key, &looks);
        if (status == TRI_OK)
            status = look(j);
        if (status == TRI_OK && *j->world == '\0')
            status = TRI_INPROGRESS;
    }
    snprintf(own, sizeof(own), WELL "%s", j->self.name);
    snprintf(go, sizeof(go), "%s/go/%s", j->world, j->self.name);
    return status == TRI_OK ? trii_agree_await(&j->args, j->come, own, go, &looks) : status;
}

static tri_status attempt(joining *j, tri_status mine, tri_store **view_out)
{
    bool first = j->env->rank == 0;
    tri_status status;

    if (!first)
        j->world[0] = '\0';
    status = claim(j);
    if (status != TRI_OK || (mine != TRI_OK && !first))
        return status != TRI_OK ? status : mine;
    status = first ? await_ranks(j, mine) : follow_rank_0(j);
    return status == TRI_OK ? trii_group_view(j->world, j->store, view_out) : status;
}

/* Whether the server ended that an earlier rank 0 still had, and not the one that is joining. Of a
 * process that joins again, the value of rank/0 may be that of the world that it has left. */
static bool was_earlier_store(const joining *j, tri_status status)
{
    const trii_launch_env *env = j->env;

    return status == TRI_ERR_IO && env->rank != 0 && !env->agent_store && env->file[0] == '\0' &&
           *j->world == '\0' && (j->may_be_over || env->again) &&
           trii_now_ns() < j->args.deadline_ns;
}

/* At the deadline, of a store that outlives ranks: rank 0 does not look for ranks beyond its size,
 * and the value of rank/0 may be stale, so it is no more than a hint. */
static tri_status add_other_size(const joining *j)
{
    trii_store_call call = {.kind = TRII_STORE_READ, .key = "rank/0"};
    char line[TRII_ERR_BYTES], at[300];
    identity id = {.size = j->env->size};

    snprintf(line, sizeof(line), "%s", tri_last_error());
    (void)name_store(j->env, at);
    if (!trii_store_is_silent(j->store) && /* else it would be waited for */
        trii_store_calls(j->store, &call, 1) == TRI_OK) {
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
                 .may_be_over = true,
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
    trii_store_call calls[] = {{.kind = TRII_STORE_SET, .key = "over", .text = ""},
                               {.kind = TRII_STORE_DELETE, .key = key}};
    int skip = rank != 0;

    snprintf(key, sizeof(key), "rank/%d", rank);
    return trii_store_calls(store, calls + skip, 2 - skip);
}

trii_join_holder trii_join_holder_of(tri_store *store, tri_store *view, int rank)
{
    char key[KEY], come[KEY];
    trii_store_call holder = {.kind = TRII_STORE_READ, .key = key};
    trii_store_call last = {.kind = TRII_STORE_READ, .key = come};
    trii_join_holder is = TRII_HOLDER_NONE;

    snprintf(key, sizeof(key), "rank/%d", rank);
    snprintf(come, sizeof(come), "come/%d", rank);
    if (trii_store_calls(store, &holder, 1) == TRI_OK &&
        trii_store_calls(view, &last, 1) == TRI_OK && holder.value != NULL &&
        holder.value[0] == WELL[0]) /* both begin with "0 NAME" */
        is = last.value != NULL && strncmp(last.value, holder.value, strlen(last.value)) == 0
                 ? TRII_HOLDER_CAME
                 : TRII_HOLDER_CLAIMED;
    trii_store_calls_free(&holder, 1);
    trii_store_calls_free(&last, 1);
    return is;
}
