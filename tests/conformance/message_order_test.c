/*
 * message_order_test.c - any number of messages that nobody has received yet, in any order of tags:
 * each engine with ranks as threads.
 */
#include "testing/flood.h"
#include "testing/message_ranks.h"

/* hierarchy: the two ranks on one host, and apart. */
static void run_everywhere(const char *(*main)(rank_env *env))
{
    run_ranks("shm", NULL, 2, 40000, main);
    run_ranks("tcp", NULL, 2, 40000, main);
    run_ranks("hierarchy", "a,a,b", 3, 40000, main);
    run_ranks("hierarchy", "a,b,b", 3, 40000, main);
}

/* --- backwards ------------------------------------------------------------ */

enum { BACKWARDS = 400 };

/* From nothing to more than any buffer. */
static size_t count_of(int i)
{
    static const size_t counts[] = {1, 20, 0, 25, 1300, 1, 70000, 3, 120000, 16384};

    return counts[i % 10];
}

static void fill(int32_t *x, size_t count, int tag)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (int32_t)i * 7 + tag;
}

/* Rank 0 sends with many tags, rank 1 receives the last one first. */
static const char *backwards(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    static tri_work *works[BACKWARDS];
    int32_t *out[BACKWARDS] = {NULL}, *in = malloc(120000 * sizeof(*in));

    if (failure != NULL)
        return failure;
    for (int i = 0; i < BACKWARDS && env->rank == 0; i++) {
        out[i] = malloc(count_of(i) * sizeof(int32_t) + 1);
        fill(out[i], count_of(i), i);
        RANK_TRY(env, tri_send(g, out[i], count_of(i), TRI_DTYPE_I32, 1, i, &works[i]));
    }
    for (int i = BACKWARDS - 1; i >= 0 && env->rank == 1; i--) {
        memset(in, 0xff, count_of(i) * sizeof(*in));
        RANK_TRY(env, tri_recv(g, in, count_of(i), TRI_DTYPE_I32, 0, i, NULL));
        for (size_t k = 0; k < count_of(i); k++) {
            if (in[k] != (int32_t)k * 7 + i)
                return RANK_FAIL(env, "message %d, element %zu: %d", i, k, in[k]);
        }
    }
    for (int i = 0; i < BACKWARDS && env->rank == 0; i++) {
        RANK_TRY(env, tri_work_wait(works[i], 0));
        tri_work_destroy(works[i]);
        free(out[i]);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(in);
    return NULL;
}

static void messages_are_received_backwards(void **state)
{
    (void)state;
    run_everywhere(backwards);
}

/* --- more than is kept ---------------------------------------------------- */

enum { MANY = 600, EACH = 200000 }; /* bytes: together more than a receiver keeps */

/* Receives from the middle outwards. */
static const char *more_than_is_kept(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    static tri_work *works[MANY];
    static unsigned char out[MANY + EACH], in[EACH];

    if (failure != NULL)
        return failure;
    for (int i = 0; i < MANY + EACH && env->rank == 0; i++)
        out[i] = (unsigned char)(i * 31 >> 3);
    for (int i = 0; i < MANY && env->rank == 0; i++)
        RANK_TRY(env, tri_send(g, out + i, EACH, TRI_DTYPE_U8, 1, i, &works[i]));
    for (int n = 0; n < MANY && env->rank == 1; n++) {
        int i = n % 2 == 0 ? MANY / 2 + n / 2 : MANY / 2 - 1 - n / 2;

        RANK_TRY(env, tri_recv(g, in, EACH, TRI_DTYPE_U8, 0, i, NULL));
        for (int k = 0; k < EACH; k += 97) {
            if (in[k] != (unsigned char)((i + k) * 31 >> 3))
                return RANK_FAIL(env, "message %d, byte %d: %d", i, k, in[k]);
        }
    }
    for (int i = 0; i < MANY && env->rank == 0; i++) {
        RANK_TRY(env, tri_work_wait(works[i], 0));
        tri_work_destroy(works[i]);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void more_than_a_receiver_keeps_waits_at_the_sender(void **state)
{
    (void)state;
    run_everywhere(more_than_is_kept);
    assert_true(trii_alloc_largest() < (size_t)8 << 20);
}

/* A large message without a receive holds up none of the others. */
static const char *large_one_first(rank_env *env)
{
    enum { LARGE = 65 << 20 };
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    unsigned char *large = malloc(LARGE);
    int32_t word = 5;
    tri_work *work = NULL;

    if (failure != NULL)
        return failure;
    memset(large, env->rank == 0 ? 3 : 0, LARGE);
    if (env->rank == 0) {
        RANK_TRY(env, tri_send(g, large, LARGE, TRI_DTYPE_U8, 1, 0, &work));
        RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I32, 1, 1, NULL));
        RANK_TRY(env, tri_work_wait(work, 0));
        tri_work_destroy(work);
    } else if (env->rank == 1) {
        word = 0;
        RANK_TRY(env, tri_recv(g, &word, 1, TRI_DTYPE_I32, 0, 1, NULL));
        if (word != 5)
            return RANK_FAIL(env, "the word is %d", word);
        RANK_TRY(env, tri_recv(g, large, LARGE, TRI_DTYPE_U8, 0, 0, NULL));
        if (large[0] != 3 || memcmp(large, large + 1, LARGE - 1) != 0)
            return RANK_FAIL(env, "the message is not what was sent");
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(large);
    return NULL;
}

static void a_large_message_holds_up_no_other(void **state)
{
    (void)state;
    run_everywhere(large_one_first);
}

/* A send of more than is copied is over when its receive is there, and not before. */
static const char *large_sends(rank_env *env)
{
    static const size_t counts[] = {262145, 500000, 1 << 20, (1 << 20) + 1, 3 << 20};
    unsigned char *data = calloc(1, (3 << 20));
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    bool last = env->rank == env->size - 1;

    for (int i = 0; i < 5 && failure == NULL; i++) {
        tri_work *work = NULL;

        memset(data, env->rank == 0 ? i + 1 : 0, counts[i]);
        if (env->rank == 0)
            RANK_TRY(env, tri_send(g, data, counts[i], TRI_DTYPE_U8, env->size - 1, i, &work));
        RANK_TRY(env, tri_barrier(g, NULL)); /* the last rank looks at what came */
        RANK_TRY(env, tri_barrier(g, NULL));
        if (work != NULL && tri_work_test(work) != TRI_INPROGRESS)
            return RANK_FAIL(env, "the send of %zu bytes was over too soon", counts[i]);
        RANK_TRY(env, tri_barrier(g, NULL));
        if (last)
            RANK_TRY(env, tri_recv(g, data, counts[i], TRI_DTYPE_U8, 0, i, NULL));
        if (work != NULL)
            RANK_TRY(env, tri_work_wait(work, 0));
        tri_work_destroy(work);
        if (last && (data[0] != i + 1 || memcmp(data, data + 1, counts[i] - 1) != 0))
            return RANK_FAIL(env, "message %d came wrong", i);
    }
    tri_group_unref(g);
    free(data);
    return failure;
}

static void a_large_send_is_over_when_its_receive_is_there(void **state)
{
    (void)state;
    run_everywhere(large_sends);
}

/* --- storms --------------------------------------------------------------- */

/* Both send all that they have before either receives, with blocking calls. */
static const char *storm(rank_env *env)
{
    enum { N = TEST_SANITIZED ? 10000 : 100000 };
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int other = 1 - env->rank;

    if (failure != NULL)
        return failure;
    for (int i = 0; i < N && env->rank < 2; i++) {
        int32_t out = 10 * i + env->rank;

        RANK_TRY(env, tri_send(g, &out, 1, TRI_DTYPE_I32, other, i, NULL));
    }
    for (int i = N - 1; i >= 0 && env->rank < 2; i--) {
        int32_t in = -1;

        RANK_TRY(env, tri_recv(g, &in, 1, TRI_DTYPE_I32, other, i, NULL));
        if (in != 10 * i + other)
            return RANK_FAIL(env, "message %d is %d", i, in);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void both_may_send_all_before_they_receive(void **state)
{
    (void)state;
    run_everywhere(storm);
}

/* The receives are there first, and the messages come in another order. */
static const char *receives_first(rank_env *env)
{
    enum { N = TEST_SANITIZED ? 2000 : 20000 };
    static int32_t in[N];
    static tri_work *works[N];
    tri_group *g = NULL;
    const char *failure = join(env, &g), *posted = "posted";

    if (failure != NULL)
        return failure;
    for (int i = 0; i < N && env->rank == 1; i++)
        RANK_TRY(env, tri_recv(g, &in[i], 1, TRI_DTYPE_I32, 0, i, &works[i]));
    if (env->rank == 1)
        RANK_TRY(env, tri_store_set(env->store, posted, "", 0));
    if (env->rank == 0)
        RANK_TRY(env, tri_store_wait(env->store, &posted, 1, 20000));
    for (int i = N - 1; i >= 0 && env->rank == 0; i--)
        RANK_TRY(env, tri_send(g, &i, 1, TRI_DTYPE_I32, 1, i, NULL));
    for (int i = 0; i < N && env->rank == 1; i++) {
        RANK_TRY(env, tri_work_wait(works[i], 0));
        tri_work_destroy(works[i]);
        if (in[i] != i)
            return RANK_FAIL(env, "message %d is %d", i, in[i]);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void any_number_of_receives_may_wait(void **state)
{
    (void)state;
    run_everywhere(receives_first);
}

/* A rank that is in a collective takes what others send it. */
static const char *into_collectives(rank_env *env)
{
    enum { N = 3000, WORDS = 300 };
    static int32_t words[RANKS_MAX][RANKS_MAX * WORDS];
    int32_t *own = words[env->rank], out[WORDS] = {0};
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int what = 0; what < 4; what++) {
        for (int32_t i = 0; i < N && env->rank == 0; i++) {
            out[0] = i;
            RANK_TRY(env, tri_send(g, out, WORDS, TRI_DTYPE_I32, 1, 4, NULL));
        }
        if (what == 0)
            RANK_TRY(env, tri_barrier(g, NULL));
        else if (what == 1)
            RANK_TRY(env, tri_all_gather(g, out, own, WORDS, TRI_DTYPE_I32, NULL));
        else
            RANK_TRY(env, tri_broadcast(g, own, WORDS, TRI_DTYPE_I32, what == 2 ? 0 : env->size - 1,
                                        NULL));
        for (int32_t i = 0; i < N && env->rank == 1; i++) {
            RANK_TRY(env, tri_recv(g, own, WORDS, TRI_DTYPE_I32, 0, 4, NULL));
            if (own[0] != i)
                return RANK_FAIL(env, "message %d is %d", i, own[0]);
        }
    }
    tri_group_unref(g);
    return NULL;
}

static void a_rank_in_a_collective_takes_messages(void **state)
{
    (void)state;
    run_everywhere(into_collectives);
}

/* Rank 1 waits for a message of another host, which comes only once rank 0, on its own, has got rid
 * of those to rank 1. */
static const char *behind_a_neighbour(rank_env *env)
{
    enum { N = 200, WORDS = 300 };
    int32_t x[WORDS] = {0};
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int i = 0; i < N && env->rank == 0; i++)
        RANK_TRY(env, tri_send(g, x, WORDS, TRI_DTYPE_I32, 1, 4, NULL));
    if (env->rank == 0)
        RANK_TRY(env, tri_send(g, x, 1, TRI_DTYPE_I32, 2, 4, NULL));
    if (env->rank == 2)
        RANK_TRY(env, tri_recv(g, x, 1, TRI_DTYPE_I32, 0, 4, NULL));
    if (env->rank == 2)
        RANK_TRY(env, tri_send(g, x, 1, TRI_DTYPE_I32, 1, 4, NULL));
    if (env->rank == 1)
        RANK_TRY(env, tri_recv(g, x, 1, TRI_DTYPE_I32, 2, 4, NULL));
    for (int i = 0; i < N && env->rank == 1; i++)
        RANK_TRY(env, tri_recv(g, x, WORDS, TRI_DTYPE_I32, 0, 4, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void a_rank_that_receives_takes_all_messages(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 3, 20000, behind_a_neighbour);
    run_ranks("tcp", NULL, 3, 20000, behind_a_neighbour);
    run_ranks("hierarchy", "a,a,b", 3, 20000, behind_a_neighbour);
}

/* Rank 1 is in a collective when it receives. Rank 0 has seen that, and comes to the collective
 * only when its message is sent. */
static const char *collective_later(rank_env *env)
{
    enum { LARGE = 3 << 20, N = 3000 };
    tri_group *g = NULL;
    const char *failure = join(env, &g), *posted = "posted";
    unsigned char *large = calloc(1, LARGE), word = 1;
    static float x[3][N];
    tri_work *sum = NULL;

    if (failure != NULL)
        return failure;
    if (env->rank == 1) {
        RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_U8, 0, 1, NULL));
        RANK_TRY(env, tri_all_reduce(g, x[1], x[1], N, TRI_DTYPE_F32, TRI_REDOP_SUM, &sum));
        RANK_TRY(env, tri_store_set(env->store, posted, "", 0));
        RANK_TRY(env, tri_recv(g, large, LARGE, TRI_DTYPE_U8, 0, 2, NULL));
        RANK_TRY(env, tri_work_wait(sum, 0));
        tri_work_destroy(sum);
    } else {
        if (env->rank == 0) {
            RANK_TRY(env, tri_store_wait(env->store, &posted, 1, 20000));
            RANK_TRY(env, tri_recv(g, &word, 1, TRI_DTYPE_U8, 1, 1, NULL));
            RANK_TRY(env, tri_send(g, large, LARGE, TRI_DTYPE_U8, 1, 2, NULL));
        }
        RANK_TRY(env, tri_all_reduce(g, x[env->rank], x[env->rank], N, TRI_DTYPE_F32, TRI_REDOP_SUM,
                                     NULL));
    }
    tri_group_unref(g);
    free(large);
    return NULL;
}

static void a_large_send_may_come_before_a_collective_that_its_receiver_is_in(void **state)
{
    (void)state;
    run_everywhere(collective_later);
}

/* --- ends ----------------------------------------------------------------- */

/* Messages that nobody ever receives: small ones, which are gone, are forgotten. */
static const char *leaves_them(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    static const char text[5000];

    if (failure != NULL)
        return failure;
    for (int i = 0; i < 50 && env->rank == 0; i++)
        RANK_TRY(env, tri_send(g, text, i % 2 ? 5000 : 3, TRI_DTYPE_U8, 1, i, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void messages_that_nobody_receives_are_forgotten(void **state)
{
    (void)state;
    run_everywhere(leaves_them);
}

/* A receiver that is aborted ends the sends that wait for it. */
static const char *aborts(rank_env *env)
{
    enum { LARGE = 4 << 20 };
    tri_group *g = NULL;
    const char *failure = join(env, &g), *sent = "sent";
    unsigned char *large = calloc(1, LARGE);
    tri_work *works[12];

    if (failure != NULL)
        return failure;
    for (int i = 0; i < 12 && env->rank == 0; i++)
        RANK_TRY(env, tri_send(g, large, LARGE, TRI_DTYPE_U8, 1, i, &works[i]));
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, sent, "", 0));
    if (env->rank == 1) {
        RANK_TRY(env, tri_store_wait(env->store, &sent, 1, 20000));
        RANK_TRY(env, tri_recv(g, large, LARGE, TRI_DTYPE_U8, 0, 7, NULL));
        tri_group_abort(g, "enough");
    }
    for (int i = 0; i < 12 && env->rank == 0; i++) {
        tri_status st = tri_work_wait(works[i], 0);

        if (i == 7 ? st != TRI_OK && st != TRI_ERR_ABORTED
                   : st != TRI_ERR_ABORTED || strstr(tri_last_error(), "enough") == NULL)
            return RANK_FAIL(env, "send %d: %s: %s", i, tri_status_name(st), tri_last_error());
        tri_work_destroy(works[i]);
    }
    tri_group_unref(g);
    free(large);
    return NULL;
}

static void an_abort_ends_the_sends_that_wait(void **state)
{
    (void)state;
    run_everywhere(aborts);
}

static const char *floods_with_pages(rank_env *env)
{
    return floods(env, 4096, "; this rank keeps 16 MiB of messages that it has not received");
}

/* Some are under way, and kept when they come. */
static const char *floods_over_tcp(rank_env *env)
{
    return floods(env, 4096, " MiB of messages that it has not received");
}

static void a_flood_ends_with_a_deadline_that_says_why(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 2, 600000, floods_with_pages);
    run_ranks("tcp", NULL, 2, 600000, floods_over_tcp);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_are_received_backwards),
    cmocka_unit_test(more_than_a_receiver_keeps_waits_at_the_sender),
    cmocka_unit_test(a_large_send_is_over_when_its_receive_is_there),
    cmocka_unit_test(a_large_message_holds_up_no_other),
    cmocka_unit_test(both_may_send_all_before_they_receive),
    cmocka_unit_test(any_number_of_receives_may_wait),
    cmocka_unit_test(a_rank_in_a_collective_takes_messages),
    cmocka_unit_test(a_rank_that_receives_takes_all_messages),
    cmocka_unit_test(a_large_send_may_come_before_a_collective_that_its_receiver_is_in),
    cmocka_unit_test(messages_that_nobody_receives_are_forgotten),
    cmocka_unit_test(an_abort_ends_the_sends_that_wait),
    cmocka_unit_test(a_flood_ends_with_a_deadline_that_says_why),
};

TEST_MAIN(tests)
