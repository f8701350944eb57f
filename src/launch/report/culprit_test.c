/*
 * culprit_test.c - flight records and exit statuses decide who is a victim; what was printed counts
 * for workers that left no record.
 */
/* ctest: threads=none */
#include "launch/report/culprit.h"

#include <stdlib.h>
#include <string.h>

#include "base/nan_words.h"
#include "testing/check.h"

enum { RANKS = 3 };

typedef struct scene {
    trii_worker workers[RANKS];
    trii_why_rank ranks[RANKS];
    trii_why_job records;
} scene;

static scene *make_scene(void)
{
    scene *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->records.ranks = s->ranks;
    s->records.size = RANKS;
    for (int i = 0; i < RANKS; i++) {
        s->workers[i].rank = i;
        s->workers[i].exit.code = 3;
    }
    return s;
}

static void free_scene(scene *s)
{
    for (int i = 0; i < RANKS; i++)
        free(s->ranks[i].log);
    free(s);
}

static void print(trii_worker *worker, const char *text)
{
    worker->err.tail_used = strlen(text);
    memcpy(worker->err.tail, text, worker->err.tail_used + 1);
}

static void record(scene *s, int rank, tri_status failed, const char *line)
{
    trii_record_file *log = calloc(1, sizeof(*log));

    assert_non_null(log);
    log->rank = rank;
    log->size = RANKS;
    log->failed = failed;
    snprintf(log->failure, sizeof(log->failure), "%s", line);
    s->ranks[rank].log = log;
}

static void a_worker_with_a_record_is_not_a_victim_for_its_words(void **state)
{
    scene *s = make_scene();

    (void)state;
    record(s, 0, TRI_OK, "");
    print(&s->workers[0], "database: Connection reset by peer\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_OWN);
    print(&s->workers[0], "rank 2 aborted the group\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_OWN);
    free_scene(s);
}

/* Its record begins with tri_init, and tells nothing before the world is there. */
static void a_rank_that_still_met_the_others_is_judged_by_its_words(void **state)
{
    scene *s = make_scene();

    (void)state;
    record(s, 0, TRI_ERR_TIMEOUT, "init: waited");
    s->ranks[0].log->groups[0].id = TRII_RECORD_MEETING;
    s->ranks[0].log->groups[0].number = 1;
    print(&s->workers[0], "PEER_LOST: init: rank 2 has ended\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_VICTIM);
    s->ranks[0].log->groups[0].id = 4711;
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_OWN);
    free_scene(s);
}

static void a_worker_that_lost_a_peer_is_a_victim_whatever_it_prints(void **state)
{
    scene *s = make_scene();

    (void)state;
    record(s, 1, TRI_ERR_PEER_LOST, "all_reduce: rank 0 has ended");
    print(&s->workers[1], "Traceback\nRuntimeError: boom\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[1]), TRII_BLAME_VICTIM);
    free_scene(s);
}

static void an_aborted_worker_is_a_victim_and_the_aborter_is_not(void **state)
{
    scene *s = make_scene();
    trii_culprit culprit;

    (void)state;
    record(s, 1, TRI_ERR_ABORTED, "rank 2 aborted the group: out of data");
    record(s, 2, TRI_ERR_ABORTED, "rank 2 aborted the group: out of data");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[1]), TRII_BLAME_VICTIM);
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[2]), TRII_BLAME_OWN);
    trii_culprit_find(&s->records, s->workers, RANKS, &s->workers[1], &culprit);
    assert_int_equal(culprit.rank, 2);
    free_scene(s);
}

static void words_count_where_there_is_no_record(void **state)
{
    static const char *const words[] = {"worker: PEER_LOST: rank 1 has ended\n",
                                        "RuntimeError: Connection closed by peer [127.0.0.1]\n",
                                        "OSError: Connection reset by peer\n",
                                        "BrokenPipeError: [Errno 32] Broken pipe\n",
                                        "writev [127.0.0.1]:4711: Broken pipe\n",
                                        "Connection was likely closed. Did the remote server "
                                        "shutdown or crash?\n",
                                        "ncclRemoteError: A call failed possibly due to a "
                                        "network error or a remote process exiting\n",
                                        "rank 1 aborted the group\n"};
    scene *s = make_scene();

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        print(&s->workers[0], words[i]);
        assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_VICTIM);
    }
    print(&s->workers[0], "ValueError: boom\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_OWN);
    print(&s->workers[1], "rank 1 aborted the group\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[1]), TRII_BLAME_OWN);
    free_scene(s);
}

static void only_a_victim_without_a_record_may_be_ahead_of_its_cause(void **state)
{
    scene *s = make_scene();

    (void)state;
    print(&s->workers[0], "ValueError: boom\n");
    assert_false(trii_culprit_is_ahead(&s->records, &s->workers[0]));
    print(&s->workers[0], "OSError: Connection reset by peer\n");
    assert_true(trii_culprit_is_ahead(&s->records, &s->workers[0]));
    s->workers[0].exit.signal = 6;
    assert_false(trii_culprit_is_ahead(&s->records, &s->workers[0]));
    s->workers[0].exit.signal = 0;
    record(s, 0, TRI_ERR_PEER_LOST, "barrier: rank 1 has ended");
    assert_false(trii_culprit_is_ahead(&s->records, &s->workers[0]));
    free_scene(s);
}

static void a_signal_weighs_more_than_any_record(void **state)
{
    scene *s = make_scene();

    (void)state;
    record(s, 0, TRI_ERR_PEER_LOST, "barrier: rank 1 has ended");
    s->workers[0].exit.signal = 11;
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_KILLED);
    free_scene(s);
}

static void a_nan_of_another_rank_makes_a_victim(void **state)
{
    scene *s = make_scene();

    (void)state;
    record(s, 0, TRI_OK, "");
    print(&s->workers[0], TRII_NAN_RECEIVED "tri_ddp (gradients) from another rank\n");
    print(&s->workers[1], TRII_NAN_MADE "log(f32 [2])\n");
    assert_int_equal(trii_culprit_blame(&s->records, &s->workers[0]), TRII_BLAME_VICTIM);
    assert_false(trii_culprit_made_nan(&s->workers[0]));
    assert_true(trii_culprit_made_nan(&s->workers[1]));
    free_scene(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_worker_with_a_record_is_not_a_victim_for_its_words),
    cmocka_unit_test(a_rank_that_still_met_the_others_is_judged_by_its_words),
    cmocka_unit_test(a_worker_that_lost_a_peer_is_a_victim_whatever_it_prints),
    cmocka_unit_test(an_aborted_worker_is_a_victim_and_the_aborter_is_not),
    cmocka_unit_test(words_count_where_there_is_no_record),
    cmocka_unit_test(only_a_victim_without_a_record_may_be_ahead_of_its_cause),
    cmocka_unit_test(a_signal_weighs_more_than_any_record),
    cmocka_unit_test(a_nan_of_another_rank_makes_a_victim),
};

TEST_MAIN(tests)
