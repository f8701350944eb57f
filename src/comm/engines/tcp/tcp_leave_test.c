/*
 * tcp_leave_test.c - a rank leaves while its peer is stopped: it waits for a moment only, and what
 * it had sent arrives when the peer goes on. And what comes of a frame that is sent by half, when
 * its rank leaves and when it makes no other call.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "comm/engines/tcp/tcp.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"
#include "os/thread.h"

enum { LAST, OWED, FULL }; /* of what there is when rank 0 leaves: see the tests */
enum { PIECE = 16 << 10, PIECES = 16 };

static const tri_group_options options = {.engine = "tcp", .timeout_ms = 30000};

/* Until the process is stopped; false: it never is. */
static bool is_stopped(int64_t pid)
{
    int64_t deadline_ns = trii_deadline_ms(20000);
    char path[64], text[256];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    while (trii_now_ns() < deadline_ns) {
        FILE *file = fopen(path, "r");
        const char *at;

        if (file == NULL)
            return false;
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
        at = strrchr(text, ')');
        if (at != NULL && at[1] == ' ' && at[2] == 'T')
            return true;
    }
    return false;
}

/* Sends what the stopped peer does not take, until a send has to wait. */
static const char *fill(rank_env *env, tri_group *g, char *data, size_t bytes, tri_work **work_out)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < 1000 && status == TRI_OK; i++) {
        tri_work_destroy(*work_out);
        *work_out = NULL;
        RANK_TRY(env, tri_send(g, data, bytes, TRI_DTYPE_U8, 1, 2, work_out));
        status = tri_work_test(*work_out);
    }
    return status == TRI_INPROGRESS ? NULL : RANK_FAIL(env, "no send had to wait");
}

/* What rank 1 finds when it goes on; of what fills its socket rank 0 has left amid a call. */
static const char *take(rank_env *env, tri_group *g, int what, char *data)
{
    for (int i = 0; i < PIECES && what == OWED; i++) {
        RANK_TRY(env, tri_recv(g, data, PIECE, TRI_DTYPE_U8, 0, 1, NULL));
        if (data[0] != 'a' + i || data[PIECE - 1] != 'a' + i)
            return RANK_FAIL(env, "piece %d is %c", i, data[0]);
    }
    if (what == LAST) {
        RANK_TRY(env, tri_recv(g, data, PIECE, TRI_DTYPE_U8, 0, 1, NULL));
        if (tri_work_count(NULL) != 5 || memcmp(data, "last", 5) != 0)
            return RANK_FAIL(env, "came: %.5s", data);
    }
    /* the goodbye after it came too: rank 0 has not died */
    if (what != FULL && (tri_recv(g, data, PIECE, TRI_DTYPE_U8, 0, 1, NULL) == TRI_OK ||
                         strstr(tri_last_error(), "left the group") == NULL))
        return RANK_FAIL(env, "rank 0 has left, but: %s", tri_last_error());
    return NULL;
}

/* arg: what. Rank 1 goes on only when rank 0 has left. */
static const char *leaves_a_stopped_peer(rank_env *env)
{
    static char data[200 << 10];
    const int what = *(const int *)env->arg;
    const char *failure = NULL;
    int64_t pid = getpid(), pids[2];
    tri_work *work = NULL;
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_gather(g, &pid, pids, 1, TRI_DTYPE_I64, NULL));
    if (env->rank == 1) {
        (void)raise(SIGSTOP);
        failure = take(env, g, what, data);
        tri_group_unref(g);
        return failure;
    }
    if (!is_stopped(pids[1]))
        return RANK_FAIL(env, "rank 1 does not stop");
    if (what == LAST)
        RANK_TRY(env, tri_send(g, "last", 5, TRI_DTYPE_U8, 1, 1, NULL));
    for (int i = 0; i < PIECES && what == OWED; i++) {
        memset(data, 'a' + i, PIECE);
        RANK_TRY(env, tri_send(g, data, PIECE, TRI_DTYPE_U8, 1, 1, NULL));
    }
    if (what == FULL)
        failure = fill(env, g, data, sizeof(data), &work);
    tri_work_destroy(work);
    tri_group_unref(g);
    kill((pid_t)pids[1], SIGCONT);
    return failure;
}

static void leave_amid(int what)
{
    run_processes(2, &options, leaves_a_stopped_peer, &what, NULL, 60);
}

static void a_stopped_peer_gets_what_was_sent_last(void **state)
{
    (void)state;
    leave_amid(LAST);
}

/* More than its socket takes: the rest is with our kernel. */
static void a_stopped_peer_gets_more_than_its_socket_takes(void **state)
{
    (void)state;
    leave_amid(OWED);
}

static void a_peer_that_takes_nothing_holds_nobody_up(void **state)
{
    (void)state;
    leave_amid(FULL);
}

/* A frame that belongs to no operation is half in the socket when rank 0 leaves. */
static const char *leaves_amid_a_frame(rank_env *env)
{
    enum { HALF = sizeof(tcp_frame) / 2 };
    tri_group *g = NULL;
    unsigned char byte;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == 0) {
        tcp_conn *c = &((tcp_group *)g->self)->conns[1];

        c->out = (tcp_frame){.type = TCP_FRAME_HOLD};
        c->out_head_left = sizeof(c->out) - HALF;
        RANK_TRY(env, trii_socket_send_all(c->fd, &c->out, HALF, trii_deadline_ms(20000)));
    } else {
        RANK_FAILS(env, tri_recv(g, &byte, 1, TRI_DTYPE_U8, 0, 0, NULL), TRI_ERR_PEER_LOST,
                   "left the group");
    }
    tri_group_unref(g);
    return NULL;
}

static void a_frame_that_was_begun_is_ended_before_the_goodbye(void **state)
{
    (void)state;
    run_threads(2, &options, leaves_amid_a_frame, NULL);
}

/* The same frame, while this rank has no operation and makes no call any more: the peer may wait
 * for it (a CTS). */
static const char *stays_amid_a_frame(rank_env *env)
{
    enum { HALF = sizeof(tcp_frame) / 2 };
    tri_group *g = NULL;
    tri_work *work = NULL;
    unsigned char byte = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == 0) {
        tcp_group *self = g->self;
        tcp_conn *c = &self->conns[1];

        trii_mutex_lock(&self->mutex);
        c->out = (tcp_frame){.type = TCP_FRAME_HOLD, .root = 1};
        c->out_head_left = sizeof(c->out) - HALF;
        c->out_stuck = true;
        trii_mutex_unlock(&self->mutex);
        RANK_TRY(env, trii_socket_send_all(c->fd, &c->out, HALF, trii_deadline_ms(20000)));
        RANK_TRY(env, tri_send(g, &byte, 1, TRI_DTYPE_U8, 0, 0, &work)); /* to itself: is copied */
    } else {
        int64_t deadline_ns = trii_deadline_ms(20000);
        tcp_group *self = g->self;
        bool holds = false;

        RANK_TRY(env, tri_recv(g, &byte, 1, TRI_DTYPE_U8, 0, 0, &work));
        while (!holds && trii_now_ns() < deadline_ns) {
            trii_thread_yield();
            trii_mutex_lock(&self->mutex);
            holds = self->conns[0].peer_holds;
            trii_mutex_unlock(&self->mutex);
        }
        if (!holds)
            return RANK_FAIL(env, "the rest of the frame did not come");
    }
    RANK_TRY(env, ranks_meet(env, "whole", -1));
    if (env->rank == 0)
        RANK_TRY(env, tri_send(g, &byte, 1, TRI_DTYPE_U8, 1, 0, NULL));
    else
        RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

static void a_frame_that_was_begun_is_ended_without_another_call(void **state)
{
    (void)state;
    run_threads(2, &options, stays_amid_a_frame, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stopped_peer_gets_what_was_sent_last),
    cmocka_unit_test(a_stopped_peer_gets_more_than_its_socket_takes),
    cmocka_unit_test(a_peer_that_takes_nothing_holds_nobody_up),
    cmocka_unit_test(a_frame_that_was_begun_is_ended_before_the_goodbye),
    cmocka_unit_test(a_frame_that_was_begun_is_ended_without_another_call),
};

TEST_MAIN(tests)
