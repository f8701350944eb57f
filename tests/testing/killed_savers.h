/*
 * killed_savers.h - three processes that save pieces of tensors, one checkpoint after the other,
 * until one of them is killed at a random moment. Tests only.
 */
#ifndef TEST_KILLED_SAVERS_H
#define TEST_KILLED_SAVERS_H

#include "os/clock.h"
#include "testing/divided_state.h"
#include "testing/ranks.h"
#include "testing/scratch.h"

enum { SAVERS = 3 };

/* Saves steps from `step` on until a save fails; reports 0 when all three have met, and then each
 * step that succeeded. */
static inline int savers_save(const char *folder, int rank, int port, int step, int report)
{
    const tri_group_options options = {.timeout_ms = 20000};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_store *store = NULL;
    tri_group *group = NULL;
    divided_state s;
    int met = 0;
    tri_status status = tri_store_tcp("127.0.0.1", port, NULL, &store);

    if (status == TRI_OK)
        status = tri_group_create(store, rank, SAVERS, &options, &group);
    if (status == TRI_OK)
        divided_begin(&s, group, rank, SAVERS, DIVIDED_UNEVENLY);
    if (status == TRI_OK && write(report, &met, sizeof(met)) != (ssize_t)sizeof(met))
        status = TRI_ERR_IO;
    for (; status == TRI_OK; step++) {
        tri_checkpoint_info info = {.step = step, .extras = &s.extra, .n_extras = 1};

        status = divided_fill(&s, step);
        if (status == TRI_OK)
            status = tri_checkpoint_save(folder, net, NULL, &info,
                                         &(tri_checkpoint_save_options){.keep = 2});
        if (status == TRI_OK && write(report, &step, sizeof(step)) != (ssize_t)sizeof(step))
            status = TRI_ERR_IO;
    }
    /* The group's failure, and no other: the disk has room, and nobody else saves there. */
    if (status == TRI_ERR_PEER_LOST || status == TRI_ERR_ABORTED)
        return 0;
    fprintf(stderr, "rank %d: %s: %s\n", rank, tri_status_name(status), tri_last_error());
    return 1;
}

/* The newest one is whole, and not older than `reported`; its step. */
static inline int savers_check(const char *folder, int reported)
{
    tri_checkpoint *checkpoint;
    divided_state s;
    int step;

    CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
    step = (int)tri_checkpoint_step(checkpoint);
    assert_in_range(step, reported, reported + 1);
    divided_begin(&s, NULL, 0, 1, DIVIDED_NOT);
    CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "divided", s.entries, DIVIDED_TENSORS));
    assert_null(divided_differs(&s, step));
    divided_end(&s);
    tri_checkpoint_close(checkpoint);
    return step;
}

/* One life of the three; the step of the newest checkpoint after it, `last` being that before. */
static inline int savers_live(const char *folder, int last, uint64_t *random)
{
    int tell[2], report[2], reported = last, step;
    int killed = (int)(scratch_random(random) % (SAVERS + 1)); /* the last: all of them */
    bool early = scratch_random(random) % 4 == 0;
    tri_store *store = NULL;
    pid_t pids[SAVERS];

    assert_int_equal(pipe(tell), 0);
    assert_int_equal(pipe(report), 0);
    fflush(NULL);
    for (int r = 0; r < SAVERS; r++) {
        pids[r] = test_fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            int port = 0, code = 1;

            alarm(60);
            close(tell[1]);
            close(report[0]);
            if (read(tell[0], &port, sizeof(port)) == (ssize_t)sizeof(port))
                code = savers_save(folder, r, port, last + 1, report[1]);
            fflush(NULL);
            _exit(code);
        }
    }
    close(report[1]);
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store));
    for (int r = 0; r < SAVERS; r++) {
        int port = tri_store_port(store);

        assert_int_equal(write(tell[1], &port, sizeof(port)), sizeof(port));
    }
    close(tell[0]);
    close(tell[1]);
    for (int r = 0; r < SAVERS; r++) { /* a step is done only after all have met */
        assert_int_equal(read(report[0], &step, sizeof(step)), sizeof(step));
        assert_int_equal(step, 0);
    }
    if (!early) /* else perhaps before the first one is done */
        assert_int_equal(read(report[0], &reported, sizeof(reported)), sizeof(reported));
    trii_sleep_until(trii_now_ns() + scratch_random(random) % 60000000);
    for (int r = 0; r < SAVERS; r++) {
        if (r == killed || killed == SAVERS)
            assert_int_equal(kill(pids[r], SIGKILL), 0);
    }
    for (int r = 0; r < SAVERS; r++) {
        int status = 0;

        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        /* One that has heard of the death of another may end before it is killed itself. */
        if (r == killed ? !WIFSIGNALED(status)
                        : status != 0 && (killed < SAVERS || !WIFSIGNALED(status)))
            fail_msg("rank %d of 3, %d was killed: status %#x", r, killed, (unsigned)status);
    }
    while (read(report[0], &step, sizeof(step)) == (ssize_t)sizeof(step))
        reported = step > reported ? step : reported;
    close(report[0]);
    tri_store_unref(store);
    return reported > 0 || scratch_count(folder) > 1 ? savers_check(folder, reported) : 0;
}

/* Whatever was killed, the newest checkpoint is whole; and a save after that leaves nothing of
 * those that had begun. */
static inline void savers_are_killed(int rounds)
{
    uint64_t random = 11;
    int last = 0;
    scratch s;

    scratch_begin(&s);
    for (int i = 0; i < rounds; i++)
        last = savers_live(s.dir, last, &random);
    assert_true(last > rounds / 2);
    scratch_end(&s);
}

#endif
