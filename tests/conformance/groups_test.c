/*
 * groups_test.c - groups made of groups, objects, the monitored barrier: each engine with ranks as
 * threads.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "os/clock.h"

static const char *const engines[] = {"shm", "tcp"};

static void run_on_both(int size, int64_t timeout_ms, const char *(*main)(rank_env *env))
{
    for (int e = 0; e < 2; e++) {
        tri_group_options options = {.engine = engines[e], .timeout_ms = timeout_ms};

        run_threads(size, &options, main, NULL);
        assert_int_equal(trii_alloc_live(), 0);
    }
}

#define JOIN(env, g)                                                                               \
    RANK_TRY(env, tri_group_create((env)->store, (env)->rank, (env)->size, (env)->options, &(g)))

/* The sum over the group of what its ranks are in the world. */
static const char *check_sum(rank_env *env, tri_group *g)
{
    int32_t sum = 0, mine = env->rank;

    for (int r = 0; r < tri_group_size(g); r++)
        sum += tri_group_world_rank(g, r);
    RANK_TRY(env, tri_all_reduce(g, &mine, &mine, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL));
    if (mine != sum)
        return RANK_FAIL(env, "rank %d: sum %d instead of %d", env->rank, mine, sum);
    return NULL;
}

#define REFUSED(env, call)                                                                         \
    RANK_FAILS(env, call, TRI_ERR_INVALID_ARG, "this process is not a member of the group")

/* What a rank gets that the others left out: no call takes it for the world. */
static const char *is_no_member(rank_env *env, tri_group *g)
{
    const int all[1] = {0};
    float x[8] = {0};
    size_t bytes[8];
    void *data = NULL;
    tri_group *made = NULL;

    if (g == NULL || tri_group_rank(g) != -1 || tri_group_size(g) != 0 ||
        tri_group_world_rank(g, 0) != -1 || tri_group_find_rank(g, env->rank) != -1 ||
        strcmp(tri_group_engine(g), "none") != 0)
        return RANK_FAIL(env, "rank %d is rank %d of %d", env->rank, tri_group_rank(g),
                         tri_group_size(g));
    REFUSED(env, tri_all_reduce(g, x, x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    REFUSED(env, tri_broadcast(g, x, 1, TRI_DTYPE_F32, 0, NULL));
    REFUSED(env, tri_all_gather_v(g, x, x, bytes, TRI_DTYPE_F32, NULL));
    REFUSED(env, tri_send(g, x, 1, TRI_DTYPE_F32, 0, 0, NULL));
    REFUSED(env, tri_recv_any(g, x, 1, TRI_DTYPE_F32, 0, NULL, NULL));
    REFUSED(env, tri_barrier(g, NULL));
    REFUSED(env, tri_monitored_barrier(g, 1000));
    REFUSED(env, tri_all_gather_object(g, x, 1, &data, bytes));
    REFUSED(env, tri_group_batch_begin(g));
    REFUSED(env, tri_group_new(g, all, 1, NULL, &made));
    REFUSED(env, tri_group_split(g, 0, 0, NULL, &made));
    REFUSED(env, tri_group_shrink(g, NULL, &made));
    REFUSED(env, tri_group_status(g));
    if (tri_group_alloc(g, 64) != NULL || strstr(tri_last_error(), "not a member") == NULL)
        return RANK_FAIL(env, "rank %d has memory of another's group", env->rank);
    tri_group_set_timeout(g, 1000);
    tri_group_abort(g, "it is not ours");
    tri_group_unref(tri_group_ref(g));
    return NULL;
}

static const char *split(rank_env *env)
{
    tri_group *world = NULL, *half = NULL, *pair = NULL, *none = NULL;
    const char *failure;

    JOIN(env, world);
    /* odd and even ranks, the highest first; rank 6 stays outside */
    RANK_TRY(env,
             tri_group_split(world, env->rank == 6 ? -1 : env->rank % 2, -env->rank, NULL, &half));
    if ((tri_group_rank(half) < 0) != (env->rank == 6))
        return RANK_FAIL(env, "rank %d: who is outside?", env->rank);
    if (env->rank == 6) {
        failure = is_no_member(env, half);
        tri_group_unref(half);
        tri_group_unref(world);
        return failure;
    }
    if (tri_group_size(half) != 3 ||
        tri_group_world_rank(half, tri_group_rank(half)) != env->rank ||
        tri_group_world_rank(half, 0) != (env->rank % 2 ? 5 : 4) ||
        tri_group_find_rank(half, env->rank) != tri_group_rank(half) ||
        tri_group_find_rank(half, 6) != -1 || tri_group_world_rank(half, 3) != -1)
        return RANK_FAIL(env, "rank %d is rank %d of %d", env->rank, tri_group_rank(half),
                         tri_group_size(half));
    if (strcmp(tri_group_engine(half), env->options->engine) != 0)
        return RANK_FAIL(env, "engine %s is not inherited", tri_group_engine(half));
    failure = check_sum(env, half);
    if (failure != NULL)
        return failure;
    tri_group_unref(world); /* its groups do not need it */
    /* a group of a group: world ranks stay those of the outermost */
    RANK_TRY(env, tri_group_split(half, tri_group_rank(half) / 2, 0, NULL, &pair));
    failure = check_sum(env, pair);
    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_group_split(half, -1, 0, NULL, &none));
    failure = is_no_member(env, none);
    if (failure != NULL)
        return failure;
    tri_group_unref(none);
    tri_group_unref(pair);
    tri_group_unref(half);
    return NULL;
}

/* Groups of ranks of one host, and of one rank of each. */
static const char *parts_of_hosts(rank_env *env)
{
    tri_group *world = NULL, *part = NULL, *pair = NULL;
    const int list[2] = {0, 1};
    const char *failure = NULL;

    JOIN(env, world);
    if (strcmp(tri_group_engine(world), "hierarchy") != 0)
        return RANK_FAIL(env, "engine %s", tri_group_engine(world));
    for (int by_host = 0; by_host < 2 && failure == NULL; by_host++) {
        RANK_TRY(env,
                 tri_group_split(world, by_host ? env->rank / 2 : env->rank % 2, 0, NULL, &part));
        failure = check_sum(env, part);
        tri_group_unref(part);
    }
    if (env->rank < 2 && failure == NULL) {
        RANK_TRY(env, tri_group_new(world, list, 2, NULL, &pair));
        failure = check_sum(env, pair);
        tri_group_unref(pair);
    }
    tri_group_unref(world);
    return failure;
}

static void a_group_made_of_a_hierarchy_need_not_be_one(void **state)
{
    tri_group_options options = {.timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", "a,a,b,b", 1);
    setenv("TRI_ENGINE", "hierarchy", 1);
    run_threads(4, &options, parts_of_hosts, NULL);
    unsetenv("TRI_ENGINE");
    options.engine = "hierarchy";
    run_threads(4, &options, parts_of_hosts, NULL);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *listed(rank_env *env)
{
    const int list[3] = {3, 0, 2}, twice[2] = {1, 1}, far[1] = {9};
    tri_group *world = NULL, *g = NULL;

    JOIN(env, world);
    RANK_FAILS(env, tri_group_new(world, twice, 2, NULL, &g), TRI_ERR_INVALID_ARG, "twice");
    RANK_FAILS(env, tri_group_new(world, far, 1, NULL, &g), TRI_ERR_INVALID_ARG, "rank 9");
    for (int again = 0; again < 2; again++) {
        const char *failure;

        if (env->rank == 1 && again == 1)
            break; /* it need not even call */
        RANK_TRY(env, tri_group_new(world, list, 3, NULL, &g));
        if (env->rank == 1) {
            failure = is_no_member(env, g);
            if (failure != NULL)
                return failure;
            tri_group_unref(g);
            continue;
        }
        if (tri_group_world_rank(g, 0) != 3 || list[tri_group_rank(g)] != env->rank)
            return RANK_FAIL(env, "rank %d is rank %d", env->rank, tri_group_rank(g));
        failure = check_sum(env, g);
        if (failure != NULL)
            return failure;
        tri_group_unref(g);
        g = NULL;
    }
    tri_group_unref(world);
    return NULL;
}

/* --- several groups from several threads ---------------------------------- */

enum { THREADS = 3, CALLS = 60 };

typedef struct crew {
    rank_env *env;
    tri_group *world;
    int number;
    char text[200]; /* "" = all went well */
} crew;

/* Makes a group of its own beside the other threads, and works on it. */
static void crew_works(void *arg)
{
    crew *c = arg;
    int size = c->env->size, ranks[RANKS_MAX];
    tri_group *g = NULL;
    tri_status st;

    for (int r = 0; r < size; r++)
        ranks[r] = (r + c->number) % size; /* another list for each thread */
    st = tri_group_new(c->world, ranks, size, NULL, &g);
    for (int i = 0; i < CALLS && st == TRI_OK; i++) {
        int64_t x = c->env->rank + 100 * c->number + i, sum = 0;

        for (int r = 0; r < size; r++)
            sum += r + 100 * c->number + i;
        st = tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_I64, TRI_REDOP_SUM, NULL);
        if (st == TRI_OK && x != sum) {
            snprintf(c->text, sizeof(c->text), "thread %d, call %d: a wrong sum", c->number, i);
            break;
        }
    }
    if (st != TRI_OK)
        snprintf(c->text, sizeof(c->text), "thread %d: %s", c->number, tri_last_error());
    tri_group_unref(g);
}

static const char *many_groups(rank_env *env)
{
    tri_group *world = NULL;
    trii_thread threads[THREADS];
    crew crews[THREADS];

    JOIN(env, world);
    for (int t = 0; t < THREADS; t++) {
        int i = (t + env->rank) % THREADS; /* in another order on each rank */

        crews[i] = (crew){.env = env, .world = world, .number = i};
        RANK_TRY(env, trii_thread_start(&threads[i], "crew", crew_works, &crews[i]));
    }
    for (int t = 0; t < THREADS; t++)
        trii_thread_join(&threads[t]);
    for (int t = 0; t < THREADS; t++) {
        if (crews[t].text[0] != '\0')
            return RANK_FAIL(env, "rank %d, %s", env->rank, crews[t].text);
    }
    RANK_TRY(env, tri_barrier(world, NULL));
    tri_group_unref(world);
    return NULL;
}

/* --- objects -------------------------------------------------------------- */

/* The object of a rank in a call: `length` bytes that say whose they are. */
static size_t object_of(int rank, int call, char *out)
{
    static const size_t lengths[4] = {0, 11, 2000, 40000};
    size_t length = lengths[(rank + call) % 4];

    for (size_t i = 0; i < length; i++)
        out[i] = (char)('a' + (rank * 7 + call * 3 + (int)(i % 13)) % 26);
    return length;
}

static bool is_object(const void *data, size_t bytes, int rank, int call, char *scratch)
{
    return object_of(rank, call, scratch) == bytes && memcmp(data, scratch, bytes) == 0;
}

static bool are_objects(const char *data, const size_t *bytes, int size, int call, char *scratch)
{
    size_t at = 0;

    for (int r = 0; r < size; r++) {
        if (!is_object(data + at, bytes[r], r, call, scratch))
            return false;
        at += bytes[r];
    }
    return data[at] == '\0';
}

static const char *objects(rank_env *env)
{
    char *mine = malloc(40000), *scratch = malloc(40000), *each = malloc(40000 * RANKS_MAX);
    const void *src[RANKS_MAX];
    size_t ones[RANKS_MAX];
    tri_group *g = NULL;

    JOIN(env, g);
    for (int call = 0; call < 8; call++) {
        size_t bytes[RANKS_MAX], length = object_of(env->rank, call, mine), n = 99;
        int root = call % env->size;
        void *data = NULL;

        RANK_TRY(env, tri_all_gather_object(g, mine, length, &data, bytes));
        if (!are_objects(data, bytes, env->size, call, scratch))
            return RANK_FAIL(env, "rank %d, call %d: all_gather_object", env->rank, call);
        tri_object_free(data);
        RANK_TRY(env, tri_gather_object(g, mine, length, root, &data, bytes));
        if ((data == NULL) != (env->rank != root) ||
            (data != NULL && !are_objects(data, bytes, env->size, call, scratch)))
            return RANK_FAIL(env, "rank %d, call %d: gather_object", env->rank, call);
        tri_object_free(data);
        RANK_TRY(env, tri_broadcast_object(g, mine, length, root, &data, &n));
        if (!is_object(data, n, root, call, scratch) || ((char *)data)[n] != '\0')
            return RANK_FAIL(env, "rank %d, call %d: broadcast_object", env->rank, call);
        tri_object_free(data);
        for (int r = 0; r < env->size; r++) {
            src[r] = each + 40000 * r;
            bytes[r] = object_of(r, call + 1, each + 40000 * r);
        }
        RANK_TRY(env, tri_scatter_object(g, env->rank == root ? src : NULL,
                                         env->rank == root ? bytes : NULL, root, &data, &n));
        if (!is_object(data, n, env->rank, call + 1, scratch))
            return RANK_FAIL(env, "rank %d, call %d: scatter_object", env->rank, call);
        tri_object_free(data);
    }
    RANK_FAILS(env, tri_gather_object(g, mine, 1, 77, (void **)&mine, NULL), TRI_ERR_INVALID_ARG,
               "root 77 is out of range (group of ");
    src[env->size - 1] = NULL;
    for (int r = 0; r < env->size; r++)
        ones[r] = 1;
    if (env->rank == 0)
        RANK_FAILS(env, tri_scatter_object(g, src, ones, 0, (void **)&mine, NULL),
                   TRI_ERR_INVALID_ARG, "is NULL");
    tri_group_unref(g);
    free(mine);
    free(scratch);
    free(each);
    return NULL;
}

/* --- monitored barrier ---------------------------------------------------- */

/* Ranks 1, 3, 4 and 5 do not come before the others have given up. */
static const char *some_are_missing(rank_env *env)
{
    const char *const given_up[2] = {"rank 0 has given up", "rank 2 has given up"};
    const char *const comes = "rank 2 comes";
    tri_group *g = NULL;

    JOIN(env, g);
    RANK_TRY(env, tri_monitored_barrier(g, 0));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 0) {
        RANK_TRY(env, tri_store_wait(env->store, &comes, 1, 20000));
        RANK_FAILS(env, tri_monitored_barrier(g, 400), TRI_ERR_GROUP_TIMEOUT,
                   "ranks 1, 3-5: rank 1");
        if (strstr(tri_last_error(), "groups_test.c") == NULL)
            return RANK_FAIL(env, "no line: %s", tri_last_error());
        RANK_TRY(env, tri_store_set(env->store, given_up[0], "", 0));
    } else if (env->rank == 2) {
        tri_status st = tri_store_set(env->store, comes, "", 0);

        if (st == TRI_OK)
            st = tri_monitored_barrier(g, 20000);
        if (st != TRI_ERR_ABORTED && st != TRI_ERR_GROUP_TIMEOUT)
            return RANK_FAIL(env, "rank 2: %s", tri_last_error());
        if (strstr(tri_last_error(), "ranks 1, 3-5") == NULL)
            return RANK_FAIL(env, "rank 2 was not told: %s", tri_last_error());
        RANK_TRY(env, tri_store_set(env->store, given_up[1], "", 0));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, given_up, 2, 20000));
    }
    tri_group_unref(g);
    return NULL;
}

static void groups_are_split_by_colour(void **state)
{
    (void)state;
    run_on_both(7, 40000, split);
}

static void groups_are_made_of_listed_ranks(void **state)
{
    (void)state;
    run_on_both(4, 40000, listed);
}

static void threads_make_groups_and_use_them_at_once(void **state)
{
    (void)state;
    run_on_both(3, 40000, many_groups);
}

static void objects_travel_with_their_lengths(void **state)
{
    tri_group_options self = {0};

    (void)state;
    run_on_both(4, 40000, objects);
    run_threads(1, &self, objects, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static void monitored_barrier_names_every_missing_rank(void **state)
{
    (void)state;
    run_on_both(6, 40000, some_are_missing);
}

static void engines_are_known_by_name(void **state)
{
    (void)state;
    assert_true(tri_engine_is_available("shm"));
    assert_true(tri_engine_is_available("tcp"));
    assert_false(tri_engine_is_available("carrier pigeon"));
    assert_false(tri_engine_is_available(NULL));
}

/* Two by two, some of one list, and pairs of pairs, in a store that outlives them all. */
static const char *make_and_leave(rank_env *env, tri_group *g, int times)
{
    const int listed[] = {2, 0};

    for (int i = 0; i < times; i++) {
        tri_group *half = NULL, *pair = NULL, *list = NULL;

        RANK_TRY(env, tri_group_split(g, env->rank / 2, 0, NULL, &half));
        RANK_TRY(env, tri_group_split(half, 0, -env->rank, NULL, &pair));
        RANK_TRY(env, tri_group_new(g, listed, 2, NULL, &list));
        tri_group_unref(half);
        tri_group_unref(list);
        tri_group_unref(pair);
    }
    return NULL;
}

static const char *many_are_left(rank_env *env)
{
    tri_group *g = NULL;
    int64_t before = 0, after = 0;
    const char *failure;

    JOIN(env, g);
    failure = make_and_leave(env, g, 1); /* how often ranks used a list is counted, and stays */
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, tri_store_num_keys(env->store, &before));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (failure == NULL)
        failure = make_and_leave(env, g, 200); /* 1,000 groups */
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, tri_store_num_keys(env->store, &after));
    if (failure == NULL && before != after)
        failure = RANK_FAIL(env, "%d keys became %d", (int)before, (int)after);
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return failure;
}

static void groups_that_were_left_leave_no_keys(void **state)
{
    (void)state;
    run_on_both(4, 20000, many_are_left);
}

static void groups_that_were_left_leave_no_keys_in_a_served_store(void **state)
{
    tri_group_options options = {.timeout_ms = 20000};

    (void)state;
    run_processes(4, &options, many_are_left, NULL, NULL, 60);
}

/* Rank 0 serves the store of the group, and is stopped while rank 1 leaves one. */
static const char *server_stops(rank_env *env)
{
    const tri_store_tcp_options serves = {.serve = env->rank == 0};
    int64_t mine[2] = {getpid(), 0}, all[4], before = 0, after = 0;
    tri_group *whole = NULL, *g = NULL, *pair = NULL;
    tri_store *store = NULL;

    JOIN(env, whole);
    if (env->rank == 0)
        RANK_TRY(env, tri_store_tcp("127.0.0.1", 0, &serves, &store));
    mine[1] = env->rank == 0 ? tri_store_port(store) : 0;
    RANK_TRY(env, tri_all_gather(whole, mine, all, 2, TRI_DTYPE_I64, NULL));
    if (env->rank == 1)
        RANK_TRY(env, tri_store_tcp("127.0.0.1", (int)all[1], &serves, &store));
    RANK_TRY(env, tri_group_create(store, env->rank, 2, env->options, &g));
    RANK_TRY(env, tri_group_split(g, 0, 0, NULL, &pair));
    RANK_TRY(env, tri_barrier(whole, NULL));
    if (env->rank == 1) {
        kill((pid_t)all[0], SIGSTOP);
        trii_sleep_until(trii_deadline_ms(100)); /* until it has */
    }
    tri_group_unref(pair);
    if (env->rank == 1)
        kill((pid_t)all[0], SIGCONT);
    trii_sleep_until(trii_deadline_ms(5500)); /* then it is asked again */
    RANK_TRY(env, tri_barrier(whole, NULL));
    RANK_TRY(env, tri_store_num_keys(store, &before));
    RANK_TRY(env, tri_barrier(whole, NULL));
    RANK_TRY(env, tri_group_split(g, 0, 0, NULL, &pair));
    tri_group_unref(pair);
    RANK_TRY(env, tri_barrier(whole, NULL));
    RANK_TRY(env, tri_store_num_keys(store, &after));
    if (before != after)
        return RANK_FAIL(env, "%d keys became %d", (int)before, (int)after);
    RANK_TRY(env, tri_barrier(whole, NULL));
    tri_group_unref(g);
    tri_group_unref(whole);
    tri_store_unref(store);
    return NULL;
}

static void groups_that_were_left_leave_no_keys_where_the_store_failed_once(void **state)
{
    tri_group_options options = {.timeout_ms = 20000};

    (void)state;
    run_processes(2, &options, server_stops, NULL, NULL, 60);
}

/* --- ranks that end ------------------------------------------------------- */

/* Rank 1 ends in front of a group of ranks 2 and 1. */
static const char *one_ends(rank_env *env)
{
    tri_group *g = NULL, *made = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, 3, env->options, &g));
    RANK_TRY(env, ranks_meet(env, "made", -1));
    if (env->rank == 1)
        raise(SIGKILL);
    if (env->rank == 2)
        RANK_FAILS(env, tri_group_new(g, (const int[]){2, 1}, 2, NULL, &made), TRI_ERR_PEER_LOST,
                   "rank 1 of crew has ended");
    RANK_TRY(env, ranks_meet(env, "seen", 1));
    tri_group_unref(g);
    return NULL;
}

static void a_rank_that_ends_before_a_group_of_it_is_made_is_named(void **state)
{
    static const rank_end ends[] = {{0}, {.signal = SIGKILL}, {0}};

    (void)state;
    for (size_t e = 0; e < TRII_COUNT_OF(engines); e++) {
        const tri_group_options options = {
            .engine = engines[e], .timeout_ms = 20000, .name = "crew"};

        run_processes(3, &options, one_ends, NULL, ends, 60);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(groups_are_split_by_colour),
    cmocka_unit_test(groups_are_made_of_listed_ranks),
    cmocka_unit_test(a_group_made_of_a_hierarchy_need_not_be_one),
    cmocka_unit_test(threads_make_groups_and_use_them_at_once),
    cmocka_unit_test(objects_travel_with_their_lengths),
    cmocka_unit_test(monitored_barrier_names_every_missing_rank),
    cmocka_unit_test(engines_are_known_by_name),
    cmocka_unit_test(groups_that_were_left_leave_no_keys),
    cmocka_unit_test(groups_that_were_left_leave_no_keys_in_a_served_store),
    cmocka_unit_test(groups_that_were_left_leave_no_keys_where_the_store_failed_once),
    cmocka_unit_test(a_rank_that_ends_before_a_group_of_it_is_made_is_named),
};

TEST_MAIN(tests)
