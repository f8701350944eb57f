/*
 * gloo_engine_test.c - the gloo plug-in: the conformance suite with ranks as threads and as
 * processes, messages, a peer that dies.
 */
/* ctest: labels=full timeout=120 */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conformance/compared.h"

#include "base/alloc.h"
#include "comm/group/group_internal.h"
#include "comm/group/plugin.h"
#include "os/clock.h"
#include "os/thread.h"

static const size_t small_counts[] = {0, 17, SIZE_MAX};
static const size_t large_counts[] = {0, 1, 23, 4099, 40009, SIZE_MAX};
static const tri_dtype every_dtype[] = {
    TRI_DTYPE_U8,   TRI_DTYPE_I8,  TRI_DTYPE_I16, TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16,
    TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BOOL, TRI_DTYPE_NONE};
static const tri_dtype only_f32[] = {TRI_DTYPE_F32, TRI_DTYPE_NONE};

static const tri_group_options options = {.engine = "gloo", .timeout_ms = 60000};

static void conform(int size, const size_t *counts, const tri_dtype *dtypes)
{
    script what = {.counts = counts, .dtypes = dtypes, .all_ops = dtypes == every_dtype};

    run_threads(size, &options, run_script, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static void one_rank(void **state)
{
    (void)state;
    conform(1, small_counts, only_f32);
}

static void two_ranks(void **state)
{
    (void)state;
    conform(2, large_counts, only_f32);
}

static void five_ranks(void **state)
{
    (void)state;
    conform(5, large_counts, only_f32);
}

static void every_dtype_and_op(void **state)
{
    (void)state;
    conform(3, small_counts, every_dtype);
}

static void three_processes(void **state)
{
    script what = {.counts = large_counts, .dtypes = only_f32};

    (void)state;
    run_processes(3, &options, run_script, &what, NULL, 100);
}

static const char *from_anybody(rank_env *env)
{
    tri_group *g = NULL;
    int32_t x[8] = {env->rank};
    int seen = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 1; i < env->size && env->rank == 0; i++) {
        int from = -1;

        RANK_TRY(env, tri_recv_any(g, x, 8, TRI_DTYPE_I32, 5, &from, NULL));
        if (from < 1 || from >= env->size || x[0] != from)
            return RANK_FAIL(env, "a message from %d says %d", from, x[0]);
        seen |= 1 << from;
    }
    if (env->rank != 0)
        RANK_TRY(env, tri_send(g, x, 8, TRI_DTYPE_I32, 0, 5, NULL));
    else if (seen != (1 << env->size) - 2)
        return RANK_FAIL(env, "messages from %#x", seen);
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void messages_come_from_anybody(void **state)
{
    (void)state;
    run_threads(4, &options, from_anybody, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Rank 1 dies: ranks that wait for it, in a collective and for a message, end. */
static const char *rank_1_dies(rank_env *env)
{
    tri_group *g = NULL;
    tri_work *work = NULL;
    float x[5] = {0};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    if (env->rank == 1) {
        RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"posted"}, 1, 0));
        (void)raise(SIGKILL);
    }
    RANK_TRY(env, tri_recv(g, x, 5, TRI_DTYPE_F32, 1, 9, &work));
    RANK_TRY(env, tri_store_set(env->store, "posted", "", 0));
    RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_PEER_LOST, "gloo");
    if (strstr(tri_last_error(), "made fewer calls") != NULL)
        return RANK_FAIL(env, "rank %d: takes a death for an end: %s", env->rank, tri_last_error());
    RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_PEER_LOST, "");
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

static void a_dead_peer_ends_the_waits(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(2, &options, rank_1_dies, NULL, ends, 60);
}

/* Rank 1 keeps a handle, and its peer does not wait for it. */
static const char *rank_1_leaves(rank_env *env)
{
    tri_group *g = NULL;
    tri_work *work = NULL;
    float x[5] = {0};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    RANK_TRY(env, tri_work_wait(work, 0));
    if (env->rank == 1)
        trii_group_leave(g);
    RANK_TRY(env, ranks_meet(env, "left", -1));
    if (env->rank == 0)
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_PEER_LOST, "gloo");
    RANK_TRY(env, ranks_meet(env, "heard", -1));
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

static void a_group_is_left_though_a_handle_remains(void **state)
{
    (void)state;
    run_processes(2, &options, rank_1_leaves, NULL, NULL, 60);
}

/* Rank 0's connections to other ranks take no more bytes, as those of a peer that is gone. */
static void end_connections(rank_env *env)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage to = {0};
        socklen_t bytes = sizeof(to);
        const struct sockaddr_in *to4 = (const struct sockaddr_in *)(const void *)&to;

        if (getpeername(fd, (struct sockaddr *)&to, &bytes) == 0 && to.ss_family == AF_INET &&
            ntohs(to4->sin_port) != tri_store_port(env->store))
            (void)shutdown(fd, SHUT_WR);
    }
}

static const size_t many = (size_t)16 << 20;

/* What gloo writes meets a closed connection: in its own thread, as it is amid a long message, or
 * in the thread that calls (arg). That raises SIGPIPE, of which the program must not hear. */
static const char *connections_end(rank_env *env)
{
    bool amid_message = env->arg != NULL;
    tri_group *g = NULL;
    tri_work *work = NULL;
    float *x = calloc(many, sizeof(*x));

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (amid_message && env->rank == 1)
        RANK_TRY(env, tri_recv(g, x, many, TRI_DTYPE_F32, 0, 9, &work));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (amid_message && env->rank == 0)
        RANK_TRY(env, tri_send(g, x, many, TRI_DTYPE_F32, 1, 9, &work));
    if (env->rank == 0) {
        end_connections(env);
        RANK_FAILS(env, tri_send(g, x, 5, TRI_DTYPE_F32, 1, 8, NULL), TRI_ERR_PEER_LOST, "gloo");
    }
    RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_PEER_LOST, "");
    if (work != NULL) {
        tri_status status = tri_work_wait(work, 0);

        if (status != TRI_OK && status != TRI_ERR_PEER_LOST) /* the message may have been faster */
            return RANK_FAIL(env, "the message ended as %s", tri_status_name(status));
    }
    tri_work_destroy(work);
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_closed_connection_raises_no_signal(void **state)
{
    static int amid_message = 1;

    (void)state;
    run_processes(2, &options, connections_end, NULL, NULL, 60);
    run_processes(2, &options, connections_end, &amid_message, NULL, 60);
}

/* A call breaks while another thread has claimed the fault and still writes why: the call is
 * neither over nor well until that is written. */
static const char *breaks_meanwhile(rank_env *env)
{
    static const trii_collective call = {.kind = TRII_KIND_BARRIER, .seq = 1};
    trii_fault fault = {0};
    trii_group_args args = {.store = env->store,
                            .rank = env->rank,
                            .size = env->size,
                            .timeout_ns = TRII_NO_DEADLINE,
                            .deadline_ns = trii_deadline_ms(60000),
                            .name = "breaks",
                            .fault = &fault};
    const trii_engine *engine = NULL;
    void *self = NULL;
    trii_op op;

    RANK_TRY(env, trii_engine_find("gloo", &engine));
    RANK_TRY(env, engine->create(&args, &self));
    if (env->rank == 0) {
        trii_op_init(&op, &call);
        atomic_store(&fault.claimed, 1);
        RANK_TRY(env, engine->submit(self, &op, false));
        RANK_TRY(env, tri_store_set(env->store, "posted", "", 0));
        /* the failure comes within this, and must not show */
        trii_op_sleep(&op, trii_deadline_ms(300));
        if (trii_op_status(&op) != TRI_INPROGRESS)
            return RANK_FAIL(env, "ended as %s", tri_status_name(trii_op_status(&op)));
        snprintf(fault.text, sizeof(fault.text), "the other thread's");
        atomic_store(&fault.status, TRI_ERR_TIMEOUT);
        trii_op_sleep(&op, trii_deadline_ms(60000));
        if (trii_op_status(&op) != TRI_ERR_TIMEOUT || strcmp(op.error, fault.text) != 0)
            return RANK_FAIL(env, "ended as %s", tri_status_name(trii_op_status(&op)));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"posted"}, 1, 0));
        engine->abort(self);
    }
    engine->destroy(self);
    return NULL;
}

static void a_failure_waits_for_its_cause(void **state)
{
    (void)state;
    run_threads(2, NULL, breaks_meanwhile, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Rank 0 waits for what the other does not do. */
static const char *deadline(rank_env *env)
{
    tri_group_options short_ones = options;
    tri_group *g = NULL;

    short_ones.timeout_ms = 1500;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &short_ones, &g));
    if (env->rank == 0) {
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT, "barrier #1");
        RANK_TRY(env, tri_store_set(env->store, "late", "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"late"}, 1, 0));
    tri_group_unref(g);
    return NULL;
}

static void a_deadline_ends_the_wait(void **state)
{
    (void)state;
    run_threads(2, &options, deadline, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *two_groups(rank_env *env)
{
    for (int i = 0; i < 2; i++) {
        tri_group *g = NULL;

        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
        tri_group_unref(g);
    }
    return NULL;
}

/* With a key, one line of the process says that gloo does not prove it. */
static void a_key_that_is_not_proved_is_told(void **state)
{
    char text[4096] = "", *first;
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);

    (void)state;
    assert_non_null(file);
    setenv("TRI_JOB_KEY_FILE", "/nowhere/key", 1);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    run_threads(2, &options, two_groups, NULL);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    unsetenv("TRI_JOB_KEY_FILE");
    rewind(file);
    (void)!fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    close(kept);
    first = strstr(text, "engine gloo: its connections do not prove the key");
    assert_non_null(first);
    assert_null(strstr(strchr(first, '\n'), "do not prove"));
}

/* Where the group compares the calls. */
static void compared(int size, const char *(*main)(rank_env *env), void *arg)
{
    setenv("TRI_CHECK_CALLS", "1", 1);
    run_threads(size, &options, main, arg);
    assert_int_equal(trii_alloc_live(), 0);
}

static void compared_calls_are_what_they_were(void **state)
{
    script what = {.counts = small_counts, .dtypes = only_f32};

    (void)state;
    compared(3, run_script, &what);
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    compared(3, compared_sides, NULL);
}

/* rank 2 alone does not compare, or wants another engine. */
static const char *rank_2_is_alone(rank_env *env)
{
    tri_group *g = NULL;

    setenv("TRI_CHECK_CALLS", env->rank == 2 ? "0" : "1", 1);
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, env->options, &g),
               TRI_ERR_INVALID_ARG,
               "rank 0 has engine gloo and TRI_CHECK_CALLS=1, rank 2 has engine gloo and "
               "TRI_CHECK_CALLS=0");
    return NULL;
}

static void one_rank_that_does_not_compare_is_named(void **state)
{
    (void)state;
    run_processes(3, &options, rank_2_is_alone, NULL, NULL, 60);
}

/* Nobody asked for it: its ranks do not compare, as the one that says so. */
static const char *rank_0_is_silent(rank_env *env)
{
    tri_group *g = NULL;

    if (env->rank == 0)
        unsetenv("TRI_CHECK_CALLS");
    else
        setenv("TRI_CHECK_CALLS", "0", 1);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void calls_are_not_compared_unasked(void **state)
{
    (void)state;
    run_processes(2, &options, rank_0_is_silent, NULL, NULL, 60);
}

static void compared_messages_come_from_anybody(void **state)
{
    (void)state;
    compared(4, compared_anybody, NULL);
}

/* A rank that waits for it waits in the comparison. */
static void a_dead_peer_ends_a_comparison(void **state)
{
    setenv("TRI_CHECK_CALLS", "1", 1);
    a_dead_peer_ends_the_waits(state);
}

/* What the message names is the call, not the comparison that waits. */
static const char *rank_1_is_late(rank_env *env)
{
    tri_group_options soon = *env->options;
    tri_group *g = NULL;

    soon.timeout_ms = 1500;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &soon, &g));
    if (env->rank == 0) {
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT,
                   "in barrier #1 (gloo_engine_test.c:");
        RANK_TRY(env, tri_store_set(env->store, "late", "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"late"}, 1, 0));
    tri_group_unref(g);
    return NULL;
}

static void a_comparison_that_waits_names_the_call(void **state)
{
    (void)state;
    compared(2, rank_1_is_late, NULL);
}

/* Only some of the ranks differ, in a call after others that they have in common. */
static const char *the_third_differs(rank_env *env)
{
    float x[4] = {0};
    tri_group *g = NULL;
    tri_work *works[3];
    bool odd = env->rank == env->size - 1;
    tri_status status;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int k = 0; k < 2; k++)
        RANK_TRY(env, tri_all_reduce(g, &x[k], &x[k], 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[k]));
    status = odd ? tri_broadcast(g, x, 0, TRI_DTYPE_F32, 1, &works[2])
                 : tri_broadcast(g, x, 0, TRI_DTYPE_F32, 0, &works[2]);
    RANK_TRY(env, status);
    RANK_FAILS(env, tri_work_wait(works[2], 0), TRI_ERR_MISMATCH,
               "rank 0 calls broadcast #3 of 0 f32 from rank 0 (gloo_engine_test.c:");
    if (strstr(tri_last_error(), odd ? "; rank 3 calls broadcast #3 of 0 f32 from rank 1 "
                                     : "; rank 3 calls broadcast #3") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_MISMATCH, "the group has failed");
    for (int k = 0; k < 3; k++) {
        status = tri_work_wait(works[k], 0); /* over, well or not */
        if (status == TRI_INPROGRESS)
            return RANK_FAIL(env, "call %d still runs", k);
        tri_work_destroy(works[k]);
    }
    tri_group_unref(g);
    return NULL;
}

static void a_call_behind_others_is_named_by_its_number(void **state)
{
    (void)state;
    compared(4, the_third_differs, NULL);
}

/* A subgroup is compared for itself, and a world of one has nobody to compare with. */
static const char *in_parts(rank_env *env)
{
    float x = 1;
    tri_group *g = NULL, *half = NULL, *one = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_group_split(g, env->rank % 2, 0, NULL, &half));
    if (env->rank % 2 == 0)
        RANK_TRY(env, tri_barrier(half, NULL));
    RANK_TRY(env, tri_all_reduce(half, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, tri_group_split(g, env->rank, 0, NULL, &one));
    RANK_TRY(env, tri_all_reduce(one, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (x != (float)(env->size / 2))
        return RANK_FAIL(env, "rank %d: %g", env->rank, (double)x);
    tri_group_unref(one);
    tri_group_unref(half);
    tri_group_unref(g);
    return NULL;
}

static void subgroups_are_compared_for_themselves(void **state)
{
    (void)state;
    compared(4, in_parts, NULL);
}

/* Of a rank, a thread has messages and waits for a call that the other thread has posted. */
typedef struct side {
    rank_env *env;
    tri_group *group;
    tri_work *work;
    tri_status status;
} side;

enum { TURNS = 200 };

static void exchange_messages(void *arg)
{
    side *s = arg;
    int peer = s->env->rank ^ 1;

    for (int i = 0; i < TURNS && s->status == TRI_OK; i++) {
        float out = (float)i, in = -1;
        tri_work *work = NULL;

        s->status = tri_recv(s->group, &in, 1, TRI_DTYPE_F32, peer, i, &work);
        if (s->status == TRI_OK)
            s->status = tri_send(s->group, &out, 1, TRI_DTYPE_F32, peer, i, NULL);
        if (s->status == TRI_OK)
            s->status = tri_work_wait(work, 0);
        tri_work_destroy(work);
        if (s->status == TRI_OK && in != out)
            s->status = TRI_ERR_FORMAT;
    }
    if (s->status == TRI_OK)
        s->status = tri_work_wait(s->work, 0);
}

static const char *two_threads(rank_env *env)
{
    float first = 1, x = 1;
    trii_thread thread;
    side s = {.env = env};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &s.group));
    RANK_TRY(env,
             tri_all_reduce(s.group, &first, &first, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &s.work));
    RANK_TRY(env, trii_thread_start(&thread, "messages", exchange_messages, &s));
    for (int i = 0; i < TURNS; i++) {
        x = 1;
        RANK_TRY(env, tri_all_reduce(s.group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    }
    trii_thread_join(&thread);
    RANK_TRY(env, s.status);
    if (first != (float)env->size || x != (float)env->size)
        return RANK_FAIL(env, "%g, %g", (double)first, (double)x);
    tri_work_destroy(s.work);
    tri_group_unref(s.group);
    return NULL;
}

static void threads_share_a_compared_group(void **state)
{
    (void)state;
    compared(2, two_threads, NULL);
    compared(4, two_threads, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(compared_calls_are_what_they_were),
    cmocka_unit_test(calls_that_differ_are_named),
    cmocka_unit_test(compared_messages_come_from_anybody),
    cmocka_unit_test(a_dead_peer_ends_a_comparison),
    cmocka_unit_test(a_comparison_that_waits_names_the_call),
    cmocka_unit_test(a_call_behind_others_is_named_by_its_number),
    cmocka_unit_test(subgroups_are_compared_for_themselves),
    cmocka_unit_test(threads_share_a_compared_group),
    cmocka_unit_test(one_rank_that_does_not_compare_is_named),
    cmocka_unit_test(calls_are_not_compared_unasked),
    cmocka_unit_test(one_rank),
    cmocka_unit_test(two_ranks),
    cmocka_unit_test(five_ranks),
    cmocka_unit_test(every_dtype_and_op),
    cmocka_unit_test(three_processes),
    cmocka_unit_test(messages_come_from_anybody),
    cmocka_unit_test(a_dead_peer_ends_the_waits),
    cmocka_unit_test(a_group_is_left_though_a_handle_remains),
    cmocka_unit_test(a_closed_connection_raises_no_signal),
    cmocka_unit_test(a_failure_waits_for_its_cause),
    cmocka_unit_test(a_deadline_ends_the_wait),
    cmocka_unit_test(a_key_that_is_not_proved_is_told),
};

TEST_MAIN(tests)
