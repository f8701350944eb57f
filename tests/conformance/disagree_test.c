/*
 * disagree_test.c - calls that cannot work: wrong arguments are refused by name, and ranks that
 * disagree about a call learn both sides.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/dtype.h"

/* With pretended hosts: rank 2 disagrees with a rank of its host, or of another. */
static const struct {
    const char *engine, *hosts;
} engines[] = {{"shm", NULL}, {"tcp", NULL}, {"hierarchy", "a,b,b"}, {"hierarchy", "a,a,b"}};

/* One way to disagree; odd is another rank's side of it. */
static tri_status disagree(tri_group *g, int what, bool odd, int rank, tri_work **work)
{
    static float x[2][64];
    const size_t even_counts[3] = {4, 5, 6}, odd_counts[3] = {4, 6, 5};
    const size_t to_all[3] = {2, 2, 2}, more[3] = {2, 3, 2};
    float *src = x[0], *dst = calloc(64, sizeof(*dst));
    tri_status st;

    switch (what) {
    case 0:
        st = tri_reduce(g, src, dst, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, odd, work);
        break;
    case 1:
        st = odd ? tri_gather(g, src, dst, 4, TRI_DTYPE_F32, 0, work)
                 : tri_reduce(g, src, dst, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, 0, work);
        break;
    case 2:
        st = tri_scatter(g, src, dst, odd ? 5 : 4, TRI_DTYPE_F32, 0, work);
        break;
    case 3:
        st = tri_all_gather_v(g, src, dst, odd ? odd_counts : even_counts, TRI_DTYPE_F32, work);
        break;
    case 4:
        st = tri_reduce_scatter_v(g, src, dst, odd ? odd_counts : even_counts, TRI_DTYPE_F32,
                                  TRI_REDOP_SUM, work);
        break;
    case 5:
        st = tri_all_to_all_v(g, src, odd ? more : to_all, dst, to_all, TRI_DTYPE_F32, work);
        if (odd && rank == 1) /* to itself it must agree */
            st = st == TRI_ERR_INVALID_ARG ? TRI_ERR_MISMATCH : st;
        break;
    case 6:
        st = odd ? tri_all_to_all(g, src, dst, 2, TRI_DTYPE_F32, work)
                 : tri_all_to_all_v(g, src, to_all, dst, to_all, TRI_DTYPE_F32, work);
        break;
    default:
        st = odd ? tri_all_reduce_premul_sum(g, src, dst, 4, TRI_DTYPE_F32, 0.5f, work)
                 : tri_all_reduce(g, src, dst, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, work);
        break;
    }
    free(dst);
    return st;
}

/* A rank that only sends may be done before it is heard; then the next call tells. */
static const char *sides(rank_env *env)
{
    int what = *(const int *)env->arg;
    tri_group *g = NULL;
    tri_status st;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    st = disagree(g, what, env->rank == 2, env->rank, NULL);
    for (int i = 0; i < 3 && st == TRI_OK; i++)
        st = tri_barrier(g, NULL);
    if (st != TRI_ERR_MISMATCH)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, what, tri_status_name(st),
                         tri_last_error());
    if (strstr(tri_last_error(), "rank 2") == NULL ||
        strstr(tri_last_error(), "disagree_test.c") == NULL)
        return RANK_FAIL(env, "rank %d, case %d: %s", env->rank, what, tri_last_error());
    if ((what == 3 || what == 4) &&
        strstr(tri_last_error(), "their lists of counts differ") == NULL)
        return RANK_FAIL(env, "rank %d, case %d: %s", env->rank, what, tri_last_error());
    tri_group_unref(g);
    return NULL;
}

static void ranks_that_disagree_about_any_call_are_named(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
        tri_group_options options = {.engine = engines[e].engine, .timeout_ms = 20000};

        if (engines[e].hosts != NULL)
            setenv("TRI_HOSTS", engines[e].hosts, 1);
        for (int what = 0; what <= 7; what++)
            run_threads(3, &options, sides, &what);
        unsetenv("TRI_HOSTS");
    }
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- one half against the other ------------------------------------------- */

enum { SMALL = 4, LARGE = 5000 }; /* elements */
enum { PAST = 2, AFTERWARDS = 100000 };

/* A call of one half of the ranks; roots: of the own half, or of the other one. */
typedef enum half_call {
    REDUCES,
    REDUCES_MUCH,
    GATHERS,
    GATHERS_MUCH,
    BARRIER,
    REDUCES_TO_OWN,
    GATHERS_AT_OTHER,
    SCATTERS_FROM_OTHER,
    BROADCASTS_OWN,
    BROADCASTS_MUCH,
    BROADCASTS_OTHER,
    BROADCASTS_FIRST,
    REDUCES_MUCH_TO_FIRST,
    SCATTERS_SUMS,
} half_call;

static const struct {
    half_call calls[2][2]; /* of the halves: the first and the second one */
    const char *names[2];
} halves[] = {
    {{{REDUCES, BARRIER}, {BARRIER, BARRIER}}, {"all_reduce #3", "barrier #3"}},
    /* either against a barrier, or under both its numbers */
    {{{REDUCES_MUCH, BARRIER}, {BARRIER, REDUCES_MUCH}}, {"all_reduce #", "calls "}},
    {{{REDUCES, BARRIER}, {GATHERS, BARRIER}}, {"all_reduce #3", "all_gather #3"}},
    {{{REDUCES_MUCH, BARRIER}, {GATHERS_MUCH, BARRIER}}, {"all_reduce #3", "all_gather #3"}},
    {{{BARRIER, GATHERS_MUCH}, {GATHERS_MUCH, BARRIER}}, {"barrier #3", "all_gather #3"}},
    {{{REDUCES_TO_OWN, BARRIER}, {GATHERS, BARRIER}}, {"reduce #3", "all_gather #3"}},
    {{{GATHERS_AT_OTHER, BARRIER}, {BROADCASTS_OTHER, BARRIER}}, {"gather #3", "broadcast #3"}},
    {{{BROADCASTS_OWN, BARRIER}, {BARRIER, BARRIER}}, {"broadcast #3", "barrier #3"}},
    {{{BROADCASTS_OWN, BARRIER}, {BROADCASTS_OWN, BARRIER}}, {"broadcast #3", "broadcast #3"}},
    {{{BROADCASTS_OTHER, BARRIER}, {BROADCASTS_OTHER, BARRIER}}, {"broadcast #3", "broadcast #3"}},
    {{{BROADCASTS_MUCH, BARRIER}, {BROADCASTS_MUCH, BARRIER}}, {"broadcast #3", "broadcast #3"}},
    {{{SCATTERS_FROM_OTHER, BARRIER}, {SCATTERS_FROM_OTHER, BARRIER}},
     {"scatter #3", "scatter #3"}},
};

/* x: room for what all ranks have, twice. */
static tri_status call_half(const rank_env *env, tri_group *g, half_call what, float *x,
                            tri_work **work)
{
    bool second = env->rank >= env->size / 2;
    int own = second ? env->size - 1 : 0, other = second ? 0 : env->size - 1;
    float *dst = x + LARGE * 4;

    switch (what) {
    case REDUCES:
        return tri_all_reduce(g, x, x, SMALL, TRI_DTYPE_F32, TRI_REDOP_SUM, work);
    case REDUCES_MUCH:
        return tri_all_reduce(g, x, x, LARGE, TRI_DTYPE_F32, TRI_REDOP_SUM, work);
    case GATHERS:
        return tri_all_gather(g, x, dst, SMALL, TRI_DTYPE_F32, work);
    case GATHERS_MUCH:
        return tri_all_gather(g, x, dst, LARGE, TRI_DTYPE_F32, work);
    case REDUCES_TO_OWN:
        return tri_reduce(g, x, dst, SMALL, TRI_DTYPE_F32, TRI_REDOP_SUM, own, work);
    case GATHERS_AT_OTHER:
        return tri_gather(g, x, dst, SMALL, TRI_DTYPE_F32, other, work);
    case SCATTERS_FROM_OTHER:
        return tri_scatter(g, x, dst, SMALL, TRI_DTYPE_F32, other, work);
    case BROADCASTS_OWN:
        return tri_broadcast(g, x, SMALL, TRI_DTYPE_F32, own, work);
    case BROADCASTS_OTHER:
        return tri_broadcast(g, x, SMALL, TRI_DTYPE_F32, other, work);
    case BROADCASTS_MUCH:
        return tri_broadcast(g, x, 4 * LARGE, TRI_DTYPE_F32, other, work);
    case BROADCASTS_FIRST:
        return tri_broadcast(g, x, SMALL, TRI_DTYPE_F32, 0, work);
    case REDUCES_MUCH_TO_FIRST:
        return tri_reduce(g, x, dst, LARGE, TRI_DTYPE_F32, TRI_REDOP_SUM, 0, work);
    case SCATTERS_SUMS:
        return tri_reduce_scatter(g, x, dst, LARGE, TRI_DTYPE_F32, TRI_REDOP_SUM, work);
    default:
        return tri_barrier(g, work);
    }
}

/* Posts both, waits for the second one first if the case is odd: the first still is what differs. A
 * root may be done before it is heard; then one of the next calls tells. */
static tri_status make_calls(const rank_env *env, tri_group *g, const half_call *calls, bool odd,
                             float *x)
{
    tri_work *work[2] = {NULL, NULL};
    tri_status st = TRI_OK;

    for (int i = 0; i < 2 && st == TRI_OK; i++)
        st = call_half(env, g, calls[i], x, odd ? &work[i] : NULL);
    for (int i = 1; i >= 0; i--) {
        if (work[i] != NULL && st == TRI_OK)
            st = tri_work_wait(work[i], 0);
        tri_work_destroy(work[i]);
    }
    for (int i = 0; i < AFTERWARDS && st == TRI_OK; i++)
        st = tri_barrier(g, NULL);
    return st;
}

static const char *one_half(rank_env *env)
{
    int what = *(const int *)env->arg, n = (int)(sizeof(halves) / sizeof(halves[0]));
    bool swapped = what >= n, half = (env->rank >= env->size / 2) != swapped;
    float *x = calloc(LARGE * 4 * 2, sizeof(*x));
    tri_group *g = NULL;
    tri_status st;
    const char *line;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < PAST; i++)
        RANK_TRY(env, tri_all_reduce(g, x, x, LARGE, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    /* a failure may come before the end of a call that others have ended */
    RANK_TRY(env, ranks_meet(env, "through", -1));
    st = make_calls(env, g, halves[what % n].calls[half], what % 2 != 0, x);
    line = tri_last_error();
    if (st != TRI_ERR_MISMATCH || strstr(line, "the ranks disagree: rank ") == NULL ||
        strstr(line, halves[what % n].names[0]) == NULL ||
        strstr(line, halves[what % n].names[1]) == NULL || strstr(line, "; rank ") == NULL ||
        strstr(strstr(line, "; rank "), "(disagree_test.c:") == NULL)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, what, tri_status_name(st),
                         line);
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void run_halves(const char *engine, const char *hosts, int size)
{
    tri_group_options options = {.engine = engine, .timeout_ms = 20000};
    int n = (int)(sizeof(halves) / sizeof(halves[0]));

    if (hosts != NULL)
        setenv("TRI_HOSTS", hosts, 1);
    for (int what = 0; what < 2 * n; what++)
        run_threads(size, &options, one_half, &what);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

static void hosts_that_disagree_are_named(void **state)
{
    (void)state;
    run_halves("hierarchy", "a,a,b,b", 4);
}

static void hosts_that_share_no_subtree_are_named(void **state)
{
    (void)state;
    run_halves("hierarchy", "a,a,a,b,b,b", 6);
}

static void halves_of_a_mesh_are_named(void **state)
{
    (void)state;
    run_halves("tcp", NULL, 4);
    run_halves("shm", NULL, 4);
}

/* --- calls that have changed places --------------------------------------- */

static const struct {
    half_call calls[2];
    int odd; /* the rank on which they have changed places */
} swaps[] = {{{BROADCASTS_FIRST, REDUCES_MUCH_TO_FIRST}, 3},
             {{BROADCASTS_FIRST, SCATTERS_SUMS}, 3},
             {{BROADCASTS_FIRST, REDUCES}, 3},
             {{BROADCASTS_FIRST, SCATTERS_SUMS}, 2},
             {{BROADCASTS_FIRST, SCATTERS_SUMS}, 1},
             {{BROADCASTS_FIRST, GATHERS_MUCH}, 3}};

/* Both calls are under way before anybody waits, so on a hierarchy each stage finds its peers. */
static const char *one_swaps(rank_env *env)
{
    int what = *(const int *)env->arg / 2;
    bool swapped = (*(const int *)env->arg % 2 != 0) != (env->rank == swaps[what].odd);
    float *x = calloc(LARGE * 4 * 4, sizeof(*x));
    tri_work *work[2] = {NULL, NULL};
    tri_group *g = NULL;
    tri_status st = TRI_OK;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 2 && st == TRI_OK; i++) {
        half_call call = swaps[what].calls[swapped ? 1 - i : i];

        st = call_half(env, g, call, call == BROADCASTS_FIRST ? x : x + LARGE * 8, &work[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (work[i] != NULL && st == TRI_OK)
            st = tri_work_wait(work[i], 0);
        tri_work_destroy(work[i]);
    }
    for (int i = 0; i < 3 && st == TRI_OK; i++)
        st = tri_barrier(g, NULL);
    if (st != TRI_ERR_MISMATCH)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, what, tri_status_name(st),
                         tri_last_error());
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void calls_that_change_places_are_found(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};
    int n = (int)(sizeof(swaps) / sizeof(swaps[0]));

    (void)state;
    setenv("TRI_HOSTS", "a,a,b,b", 1);
    for (int what = 0; what < 2 * n; what++)
        run_threads(4, &options, one_swaps, &what);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- a root that is alone on its host ------------------------------------- */

static const half_call beside_root[] = {
    BARRIER,        REDUCES,      GATHERS_AT_OTHER, SCATTERS_FROM_OTHER,
    REDUCES_TO_OWN, GATHERS_MUCH, REDUCES_MUCH};

/* Rank 0 has skipped a call of the others. Its broadcast is over when it is sent, and then it makes
 * no call for as long as they wait. A rank that only sent hears of that in the next call. */
static const char *root_skips(rank_env *env)
{
    int what = *(const int *)env->arg;
    float *x = calloc(LARGE * 4 * 4, sizeof(*x));
    tri_group *g = NULL;
    tri_status st;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    /* a failure may come before the end of a call that others have ended */
    RANK_TRY(env, ranks_meet(env, "through", -1));
    st = call_half(env, g, env->rank == 0 ? BROADCASTS_FIRST : beside_root[what], x, NULL);
    RANK_TRY(env, ranks_meet(env, "ended", -1));
    for (int i = 0; i < AFTERWARDS && st == TRI_OK; i++)
        st = tri_barrier(g, NULL);
    if (st != TRI_ERR_MISMATCH || strstr(tri_last_error(), "rank 0 calls broadcast #2") == NULL)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, what, tri_status_name(st),
                         tri_last_error());
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_lone_root_that_skips_a_call_is_named(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 5000};
    int n = (int)(sizeof(beside_root) / sizeof(beside_root[0]));

    (void)state;
    setenv("TRI_HOSTS", "a,b,b", 1);
    setenv("TRI_HEARTBEAT_MS", "800", 1);
    for (int what = 0; what < n; what++)
        run_threads(3, &options, root_skips, &what);
    setenv("TRI_HEARTBEAT_MS", "0", 1);
    n = 0;
    run_threads(3, &options, root_skips, &n);
    unsetenv("TRI_HEARTBEAT_MS");
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

/* No mismatch, as another thread could still make the call: but both sides are told. */
static const char *one_receives(rank_env *env)
{
    float x[4] = {0};
    tri_group *g = NULL;
    tri_status st;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 0)
        st = tri_recv(g, x, 4, TRI_DTYPE_F32, env->size - 1, 7, NULL);
    else
        st = tri_barrier(g, NULL);
    if ((st != TRI_ERR_GROUP_TIMEOUT && st != TRI_ERR_ABORTED) ||
        strstr(tri_last_error(), "barrier #2 (disagree_test.c:") == NULL ||
        strstr(tri_last_error(), "recv #1 of 4 f32 from rank 3, tag 7 (disagree_test.c:") == NULL)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    tri_group_unref(g);
    return NULL;
}

/* The last rank receives from its neighbour on the host another type than that sends. */
static const char *another_type(rank_env *env)
{
    double x[4] = {0};
    tri_group *g = NULL;
    tri_status st = TRI_OK;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == env->size - 2)
        st = tri_send(g, x, 4, TRI_DTYPE_F64, env->size - 1, 7, NULL);
    else if (env->rank == env->size - 1)
        st = tri_recv(g, x, 4, TRI_DTYPE_F32, env->size - 2, 7, NULL);
    if (env->rank == env->size - 1 &&
        (st != TRI_ERR_MISMATCH || strstr(tri_last_error(), "rank 2 calls send") == NULL ||
         strstr(tri_last_error(), "to rank 3") == NULL ||
         strstr(tri_last_error(), "from rank 2") == NULL))
        return RANK_FAIL(env, "%s: %s", tri_status_name(st), tri_last_error());
    tri_group_unref(g);
    return NULL;
}

static void a_message_of_another_type_names_its_ranks(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", "a,a,b,b", 1);
    run_threads(4, &options, another_type, NULL);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_receive_against_a_collective_is_told(void **state)
{
    tri_group_options tcp = {.engine = "tcp", .timeout_ms = 3000};
    tri_group_options hierarchy = {.engine = "hierarchy", .timeout_ms = 3000};

    (void)state;
    run_threads(4, &tcp, one_receives, NULL);
    setenv("TRI_HOSTS", "a,a,b,b", 1);
    run_threads(4, &hierarchy, one_receives, NULL);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

/* A rank that waits for a late one says in what: that is not a mismatch, whatever is under way. */
static const char *one_is_late(rank_env *env)
{
    enum { CALLS = 30, EACH = LARGE * 4 * 2 };
    float *x = calloc(CALLS * EACH, sizeof(*x));
    char said[16];
    const char *key = said;
    tri_group *g = NULL;
    tri_work *work[CALLS];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int late = 0; late < env->size; late++) {
        for (int r = 0; r < env->size && env->rank == late; r++) {
            snprintf(said, sizeof(said), "%d waits %d", r, late);
            if (r != late)
                RANK_TRY(env, tri_store_wait(env->store, &key, 1, 20000));
        }
        snprintf(said, sizeof(said), "%d waits %d", env->rank, late);
        for (int i = 0; i < CALLS; i++)
            RANK_TRY(env,
                     call_half(env, g, (half_call)(i % (BARRIER + 1)), x + i * EACH, &work[i]));
        for (int i = 0; i < CALLS; i++) {
            tri_status st;

            while ((st = tri_work_wait(work[i], 1)) == TRI_ERR_TIMEOUT)
                RANK_TRY(env, tri_store_set(env->store, said, "", 0));
            RANK_TRY(env, st);
            tri_work_destroy(work[i]);
        }
    }
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_late_rank_is_no_mismatch(void **state)
{
    tri_group_options tcp = {.engine = "tcp", .timeout_ms = 20000};
    tri_group_options hierarchy = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    run_threads(4, &tcp, one_is_late, NULL);
    setenv("TRI_HOSTS", "a,a,b,b", 1);
    run_threads(4, &hierarchy, one_is_late, NULL);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *wrong_arguments(rank_env *env)
{
    float x[16] = {0}, y[16] = {0};
    const size_t counts[2] = {3, 4}, huge[2] = {SIZE_MAX, 2};
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_FAILS(env, tri_reduce(g, x, y, 2, TRI_DTYPE_F32, TRI_REDOP_SUM, 2, NULL),
               TRI_ERR_INVALID_ARG, "root 2");
    RANK_FAILS(env, tri_gather(g, x, y, 2, TRI_DTYPE_F32, -1, NULL), TRI_ERR_INVALID_ARG,
               "root -1");
    RANK_FAILS(env, tri_scatter(g, NULL, x, 2, TRI_DTYPE_F32, env->rank, NULL), TRI_ERR_INVALID_ARG,
               "src is NULL");
    RANK_FAILS(env, tri_gather(g, x, NULL, 2, TRI_DTYPE_F32, env->rank, NULL), TRI_ERR_INVALID_ARG,
               "dst is NULL");
    RANK_FAILS(env, tri_all_to_all(g, x, x, 2, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "in place");
    RANK_FAILS(env, tri_all_gather_v(g, x, y, NULL, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "counts is NULL");
    RANK_FAILS(env, tri_all_gather_v(g, x, y, huge, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "counts add up");
    RANK_FAILS(env, tri_all_gather_v(g, y + 1, y, counts, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "overlap");
    RANK_FAILS(env, tri_all_to_all_v(g, x, counts, x + 1, counts, TRI_DTYPE_F32, NULL),
               TRI_ERR_INVALID_ARG, "in place");
    RANK_FAILS(env, tri_all_reduce_premul_sum(g, x, y, 2, TRI_DTYPE_F32, -1.0f, NULL),
               TRI_ERR_INVALID_ARG,
               "all_reduce: premul_sum: factor is -1: must be finite and not negative");
    RANK_FAILS(env, tri_reduce_premul_sum(g, x, y, 2, TRI_DTYPE_F64, NAN, 0, NULL),
               TRI_ERR_INVALID_ARG, "reduce: premul_sum: factor is nan");
    RANK_FAILS(env, tri_reduce_scatter_premul_sum(g, x, y, 0, TRI_DTYPE_F16, INFINITY, NULL),
               TRI_ERR_INVALID_ARG, "reduce_scatter: premul_sum: factor is inf");
    RANK_FAILS(env, tri_all_reduce(g, x, y, 2, TRI_DTYPE_F32, TRII_REDOP_PREMUL_SUM, NULL),
               TRI_ERR_INVALID_ARG, "reduction 64 is not a known reduction");
    RANK_FAILS(env, tri_all_reduce_premul_sum(g, x, y, 2, TRI_DTYPE_I32, 0.5f, NULL),
               TRI_ERR_INVALID_ARG, "premul_sum of i32");
    RANK_FAILS(env, tri_recv_any(g, NULL, 2, TRI_DTYPE_I32, 0, NULL, NULL), TRI_ERR_INVALID_ARG,
               "dst is NULL");
    RANK_TRY(env, tri_barrier(g, NULL)); /* none of it harmed the group */
    tri_group_unref(g);
    return NULL;
}

static void wrong_arguments_are_named(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_threads(2, &options, wrong_arguments, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_that_disagree_about_any_call_are_named),
    cmocka_unit_test(hosts_that_disagree_are_named),
    cmocka_unit_test(hosts_that_share_no_subtree_are_named),
    cmocka_unit_test(halves_of_a_mesh_are_named),
    cmocka_unit_test(calls_that_change_places_are_found),
    cmocka_unit_test(a_lone_root_that_skips_a_call_is_named),
    cmocka_unit_test(a_message_of_another_type_names_its_ranks),
    cmocka_unit_test(a_receive_against_a_collective_is_told),
    cmocka_unit_test(a_late_rank_is_no_mismatch),
    cmocka_unit_test(wrong_arguments_are_named),
};

TEST_MAIN(tests)
