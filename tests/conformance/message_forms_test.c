/*
 * message_forms_test.c - messages to oneself, and receives with more or less room than a message
 * needs: each engine with ranks as threads.
 */
#include <complex.h>

#include "testing/message_ranks.h"

enum { TIMEOUT_MS = 20000 };

static void run_everywhere(const char *(*main)(rank_env *env))
{
    run_ranks("self", NULL, 1, TIMEOUT_MS, main);
    run_ranks("shm", NULL, 1, TIMEOUT_MS, main);
    run_ranks("tcp", NULL, 1, TIMEOUT_MS, main);
    run_ranks("shm", NULL, 2, TIMEOUT_MS, main);
    run_ranks("tcp", NULL, 2, TIMEOUT_MS, main);
    run_ranks("hierarchy", "a,a,b", 3, TIMEOUT_MS, main);
}

/* --- to oneself ----------------------------------------------------------- */

enum { LARGE = 300000 };

/* Sends first or receives first, of each size; another tag in between. */
static const char *to_itself(rank_env *env)
{
    static const size_t counts[] = {0, 1, 1000, 65536, 65537, LARGE};
    int32_t *out = malloc(LARGE * sizeof(*out)), *in = malloc(LARGE * sizeof(*in)), other = 0;
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int i = 0; i < 12; i++) {
        size_t count = counts[i / 2];
        bool send_first = i % 2 == 0;
        tri_work *works[2];
        int32_t word = i;
        int from = -1;

        for (size_t k = 0; k < count; k++)
            out[k] = (int32_t)k + i;
        memset(in, 0xff, LARGE * sizeof(*in));
        for (int n = 0; n < 2; n++) {
            if ((n == 0) == send_first)
                RANK_TRY(env, tri_send(g, out, count, TRI_DTYPE_I32, env->rank, 5, &works[n]));
            else if (i % 3 == 0)
                RANK_TRY(env, tri_recv_any(g, in, count, TRI_DTYPE_I32, 5, &from, &works[n]));
            else
                RANK_TRY(env, tri_recv(g, in, count, TRI_DTYPE_I32, env->rank, 5, &works[n]));
            if (n == 0) {
                RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I32, env->rank, 6, NULL));
                RANK_TRY(env, tri_recv(g, &other, 1, TRI_DTYPE_I32, env->rank, 6, NULL));
            }
        }
        for (int n = 0; n < 2; n++) {
            RANK_TRY(env, tri_work_wait(works[n], 0));
            tri_work_destroy(works[n]);
        }
        if (other != i || memcmp(in, out, count * sizeof(*in)) != 0 ||
            (i % 3 == 0 && from != env->rank))
            return RANK_FAIL(env, "message %d: word %d, from %d", i, other, from);
    }
    RANK_TRY(env, tri_barrier(g, NULL)); /* who has no peers any more may not receive from any */
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void a_rank_sends_to_itself(void **state)
{
    (void)state;
    run_everywhere(to_itself);
}

/* A blocking send of much to oneself needs the receive: else it is refused, and forgotten. */
static const char *too_much_to_itself(rank_env *env)
{
    int32_t *out = calloc(LARGE, sizeof(*out)), *in = calloc(LARGE, sizeof(*in));
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    tri_work *work = NULL;

    if (failure != NULL)
        return failure;
    RANK_FAILS(env, tri_send(g, out, LARGE, TRI_DTYPE_I32, env->rank, 2, NULL), TRI_ERR_STATE,
               "post the receive first");
    out[LARGE - 1] = 9;
    RANK_TRY(env, tri_recv(g, in, LARGE, TRI_DTYPE_I32, env->rank, 2, &work));
    RANK_TRY(env, tri_send(g, out, LARGE, TRI_DTYPE_I32, env->rank, 2, NULL));
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    if (in[LARGE - 1] != 9)
        return RANK_FAIL(env, "rank %d got %d", env->rank, in[LARGE - 1]);
    RANK_TRY(env, tri_barrier(g, NULL)); /* none of it harmed the group */
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void too_much_to_oneself_is_refused(void **state)
{
    (void)state;
    run_everywhere(too_much_to_itself);
}

/* What was posted first is served first, by name or not. */
static const char *in_order_of_posting(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t in[2] = {0, 0};
    tri_work *works[2];

    if (failure != NULL)
        return failure;
    for (int named = 0; named < 2; named++) {
        for (int i = 0; i < 2; i++) {
            if (i == named)
                RANK_TRY(env, tri_recv(g, &in[i], 1, TRI_DTYPE_I32, env->rank, 4, &works[i]));
            else
                RANK_TRY(env, tri_recv_any(g, &in[i], 1, TRI_DTYPE_I32, 4, NULL, &works[i]));
        }
        for (int32_t word = 1; word <= 2; word++)
            RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I32, env->rank, 4, NULL));
        for (int i = 0; i < 2; i++) {
            RANK_TRY(env, tri_work_wait(works[i], 0));
            tri_work_destroy(works[i]);
        }
        if (in[0] != 1 || in[1] != 2)
            return RANK_FAIL(env, "named %d: got %d and %d", named, in[0], in[1]);
        RANK_TRY(env, tri_barrier(g, NULL));
    }
    tri_group_unref(g);
    return NULL;
}

static void receives_from_oneself_are_served_in_the_order_of_posting(void **state)
{
    (void)state;
    run_everywhere(in_order_of_posting);
}

/* A large message waits in its buffer: that is nothing that is kept. */
static const char *small_after_large(rank_env *env)
{
    enum { BYTES = 17 << 20 };
    char *out = calloc(1, BYTES), *in = calloc(1, BYTES);
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    tri_work *work = NULL;
    int64_t word = 3, got = 0;

    if (failure != NULL)
        return failure;
    out[BYTES - 1] = 9;
    RANK_TRY(env, tri_send(g, out, BYTES, TRI_DTYPE_I8, env->rank, 1, &work));
    for (int i = 0; i < 100; i++)
        RANK_TRY(env, tri_send(g, out, 1000, TRI_DTYPE_I8, env->rank, 2, NULL));
    RANK_TRY(env, tri_recv(g, in, BYTES, TRI_DTYPE_I8, env->rank, 1, NULL));
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    if (in[BYTES - 1] != 9)
        return RANK_FAIL(env, "the large one ends with %d", in[BYTES - 1]);
    /* Now much is kept: a few bytes are taken all the same. */
    for (int i = 0; i < 66; i++) {
        RANK_TRY(env, tri_send(g, out, 256 << 10, TRI_DTYPE_I8, env->rank, 2, &work));
        tri_work_destroy(work);
    }
    RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I64, env->rank, 3, NULL));
    RANK_FAILS(env, tri_send(g, out, 1000, TRI_DTYPE_I8, env->rank, 2, NULL), TRI_ERR_STATE,
               "keeps 16 MiB of messages to itself");
    RANK_TRY(env, tri_recv(g, &got, 1, TRI_DTYPE_I64, env->rank, 3, NULL));
    for (int i = 0; i < 166; i++)
        RANK_TRY(env, tri_recv(g, in, 256 << 10, TRI_DTYPE_I8, env->rank, 2, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(out);
    free(in);
    return got == word ? NULL : RANK_FAIL(env, "got %d", (int)got);
}

static void small_messages_to_oneself_are_taken_after_large_ones(void **state)
{
    (void)state;
    run_everywhere(small_after_large);
}

static const char *any_number_to_itself(rank_env *env)
{
    enum { N = 2000, EACH = 10000 };
    static tri_work *works[RANKS_MAX][N];
    unsigned char *out = calloc(1, EACH + N), *in = calloc(1, EACH);
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int i = 0; i < EACH + N; i++)
        out[i] = (unsigned char)(i >> 2);
    for (int i = 0; i < N; i++)
        RANK_TRY(env, tri_send(g, out + i, EACH, TRI_DTYPE_U8, env->rank, i, &works[env->rank][i]));
    for (int i = N - 1; i >= 0; i--) {
        RANK_TRY(env, tri_recv(g, in, EACH, TRI_DTYPE_U8, env->rank, i, NULL));
        if (memcmp(in, out + i, EACH) != 0)
            return RANK_FAIL(env, "message %d differs", i);
        RANK_TRY(env, tri_work_wait(works[env->rank][i], 0));
        tri_work_destroy(works[env->rank][i]);
    }
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void a_rank_sends_itself_any_number(void **state)
{
    (void)state;
    run_everywhere(any_number_to_itself);
}

/* The end of a group ends what waits in it. */
static const char *waits_for_itself(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t *out = calloc(LARGE, sizeof(*out)), in;
    tri_work *send = NULL, *recv = NULL;

    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_send(g, out, LARGE, TRI_DTYPE_I32, env->rank, 1, &send));
    RANK_TRY(env, tri_recv(g, &in, 1, TRI_DTYPE_I32, env->rank, 2, &recv));
    RANK_FAILS(env, tri_work_wait(recv, 20), TRI_ERR_TIMEOUT, "still waiting");
    tri_group_abort(g, "no more");
    RANK_FAILS(env, tri_work_wait(send, 0), TRI_ERR_ABORTED, "no more");
    RANK_FAILS(env, tri_work_wait(recv, 0), TRI_ERR_ABORTED, "no more");
    tri_work_destroy(send);
    tri_work_destroy(recv);
    tri_group_unref(g);
    free(out);
    return NULL;
}

static void an_abort_ends_messages_to_oneself(void **state)
{
    (void)state;
    run_ranks("self", NULL, 1, TIMEOUT_MS, waits_for_itself);
    run_ranks("shm", NULL, 1, TIMEOUT_MS, waits_for_itself);
    run_ranks("tcp", NULL, 1, TIMEOUT_MS, waits_for_itself);
}

/* --- more room, less room ------------------------------------------------- */

static int peer_of(const rank_env *env)
{
    return env->size == 1 ? 0 : 1 - env->rank;
}

/* Each message is shorter than its receive, which learns by how much. */
static const char *more_room(rank_env *env)
{
    static const size_t counts[] = {0, 1, 50, 5000, LARGE - 1};
    int32_t *out = calloc(LARGE, sizeof(*out)), *in = calloc(LARGE, sizeof(*in));
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int i = 0; i < 10 && env->rank < 2; i++) {
        size_t count = counts[i / 2];
        tri_work *send = NULL, *recv = NULL;
        double _Complex z[3] = {1, 2, 3}, y[8] = {0};
        int from = -1;

        out[0] = out[count > 0 ? count - 1 : 0] = i + 1;
        in[count] = -7;
        RANK_TRY(env, tri_send(g, out, count, TRI_DTYPE_I32, peer_of(env), 3, &send));
        if (i % 2 == 0) {
            RANK_TRY(env, tri_recv(g, in, LARGE, TRI_DTYPE_I32, peer_of(env), 3, NULL));
            if (tri_work_count(NULL) != count)
                return RANK_FAIL(env, "%zu came, not %zu", tri_work_count(NULL), count);
        } else {
            RANK_TRY(env, tri_recv_any(g, in, LARGE, TRI_DTYPE_I32, 3, &from, &recv));
            RANK_TRY(env, tri_work_wait(recv, 0));
            if (tri_work_count(recv) != count || from != peer_of(env))
                return RANK_FAIL(env, "%zu came from %d, not %zu", tri_work_count(recv), from,
                                 count);
            tri_work_destroy(recv);
        }
        RANK_TRY(env, tri_work_wait(send, 0));
        if (tri_work_count(send) != 0)
            return RANK_FAIL(env, "a send counts %zu", tri_work_count(send));
        tri_work_destroy(send);
        if (in[count] != -7 || (count > 0 && in[count - 1] != i + 1))
            return RANK_FAIL(env, "message %d: %d, %d", i, in[count],
                             in[count > 0 ? count - 1 : 0]);
        RANK_TRY(env, tri_send(g, z, 3, TRI_DTYPE_C128, peer_of(env), 4, NULL));
        RANK_TRY(env, tri_recv(g, y, 8, TRI_DTYPE_C128, peer_of(env), 4, NULL));
        if (tri_work_count(NULL) != 3)
            return RANK_FAIL(env, "%zu complex numbers came", tri_work_count(NULL));
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void a_receive_may_have_more_room(void **state)
{
    (void)state;
    run_everywhere(more_room);
}

/* Nothing is lost and nobody fails but the receive: whether it is there first or not, named or not,
 * whatever the size. */
static const char *less_room(rank_env *env)
{
    static const size_t counts[] = {5, 5000, LARGE};
    int32_t *out = calloc(LARGE, sizeof(*out)), *in = calloc(LARGE, sizeof(*in));
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    for (int i = 0; i < 12 && env->rank < 2; i++) {
        size_t count = counts[i % 3];
        bool late = i % 2 != 0, any = i >= 6;
        tri_work *send = NULL, *recv = NULL;
        char text[80];

        out[count - 1] = i;
        snprintf(text, sizeof(text), "has %zu i32, the receive has room for 3", count);
        for (int n = 0; n < 2; n++) {
            if ((n == 0) == late)
                RANK_TRY(env, tri_send(g, out, count, TRI_DTYPE_I32, peer_of(env), i, &send));
            else if (any)
                RANK_TRY(env, tri_recv_any(g, in, 3, TRI_DTYPE_I32, i, NULL, &recv));
            else
                RANK_TRY(env, tri_recv(g, in, 3, TRI_DTYPE_I32, peer_of(env), i, &recv));
        }
        RANK_FAILS(env, tri_work_wait(recv, 0), TRI_ERR_INVALID_ARG, text);
        if (tri_work_count(recv) != 0)
            return RANK_FAIL(env, "a failed receive counts %zu", tri_work_count(recv));
        tri_work_destroy(recv);
        RANK_TRY(env, tri_recv(g, in, count, TRI_DTYPE_I32, peer_of(env), i, NULL));
        if (in[count - 1] != i)
            return RANK_FAIL(env, "message %d: %d", i, in[count - 1]);
        RANK_TRY(env, tri_work_wait(send, 0));
        tri_work_destroy(send);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void a_receive_with_less_room_fails_alone(void **state)
{
    (void)state;
    run_everywhere(less_room);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_sends_to_itself),
    cmocka_unit_test(too_much_to_oneself_is_refused),
    cmocka_unit_test(receives_from_oneself_are_served_in_the_order_of_posting),
    cmocka_unit_test(small_messages_to_oneself_are_taken_after_large_ones),
    cmocka_unit_test(a_rank_sends_itself_any_number),
    cmocka_unit_test(an_abort_ends_messages_to_oneself),
    cmocka_unit_test(a_receive_may_have_more_room),
    cmocka_unit_test(a_receive_with_less_room_fails_alone),
};

TEST_MAIN(tests)
