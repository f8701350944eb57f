/*
 * sim_given_ranks_test.c - agents with given ranks in virtual time: one that has lost its rank to
 * another agent takes no part, however late it hears of that, and one that comes early for the rank
 * of an agent that is gone waits for it.
 */
/* ctest: labels=full timeout=60 */
#include "sim_agents.h"

#define LATE 2 /* the agent that is cut off, and its rank */

static struct {
    sim_link *link; /* that is to be cut */
    bool cut;
} late;

/* The store has it, and answers; what it does next comes as late as the network is repaired. */
static tri_status claim_and_be_cut(tri_store *base, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   void **value_out, size_t *bytes_out)
{
    sim_link *link = ((sim_store *)base)->link;
    tri_status status = sim_store_compare_set(base, key, expected, expected_bytes, desired,
                                              desired_bytes, value_out, bytes_out);

    if (link == late.link && strstr(key, "/claim/") != NULL)
        late.cut = link->cut = true;
    return status;
}

/* It has claimed its rank for the next round before it is cut off, and says who it is in that round
 * when another one has its rank. */
static void one_that_was_replaced_while_it_joined_takes_no_part(void **state)
{
    static trii_store_ops ops;

    (void)state;
    ops = sim_store_ops;
    ops.compare_set = claim_and_be_cut;
    FOR_SEEDS(5)
    {
        const trii_rdzv_news news = {.gone = LATE, .why = "its agent is gone"};
        trii_rdzv_agent list[LATE + 1] = {0};
        sim_agent *agent;
        sim_job job;

        sim_job_begin(&job, seed, LATE + 2, 3, 3);
        job.given = true;
        job.led = false;
        for (int i = 0; i < job.n; i++) {
            job.agents[i].given_rank = i < LATE ? i : LATE;
            job.agents[i].ops = &ops;
        }
        late.link = NULL;
        late.cut = false;
        agent = &job.agents[LATE];
        sim_start_within(&job, 0, 3, 1000);
        sim_await_round(&job, 3, 10000);
        late.link = &agent->link;
        sim_fail_worker(&job, &job.agents[1]);
        while (!late.cut)
            sim_run_ms(&job, SIM_TICK_MS);
        late.link = NULL;
        list[LATE] = sim_known(agent);
        for (int i = 0; i < LATE; i++)
            trii_rendezvous_lost(job.agents[i].rdzv,
                                 &(trii_rdzv_round){.number = 0, .agents = list}, &news);
        sim_run_ms(&job, 1000);
        sim_start_within(&job, LATE + 1, LATE + 2, 1000);
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 3, 10000);
        sim_cut(agent, false);
        sim_run_ms(&job, 10000);
        assert_int_equal(agent->state, SIM_FAILED);
        if (strstr(agent->why, "has taken its --node-rank 2") == NULL)
            fail_msg("%s", agent->why);
        assert_true(sim_is_one_round(&job));
        sim_job_end(&job);
    }
}

/* --- a second agent of one rank ------------------------------------------- */

/* Three agents run a round, and a fourth has the rank of the third. */
static void begin_with_second(sim_job *job, uint64_t seed)
{
    sim_job_begin(job, seed, 4, 3, 3);
    job->given = job->peers = true;
    job->led = false;
    for (int i = 0; i < job->n; i++)
        job->agents[i].given_rank = i < 3 ? i : 2;
    sim_start_within(job, 0, 3, 1000);
    sim_await_round(job, 3, 10000);
}

static void one_that_comes_before_the_dead_is_missed_takes_its_place(void **state)
{
    (void)state;
    FOR_SEEDS(5)
    {
        sim_job job;

        begin_with_second(&job, seed);
        sim_kill(&job.agents[2]);
        sim_start_within(&job, 3, 4, 1);
        sim_run_ms(&job, SIM_SEEN_MS / 2);
        assert_int_equal(job.agents[3].state, SIM_JOINING);
        sim_await_round(&job, 3, 10000);
        assert_int_equal(job.agents[3].rank, 2);
        sim_job_end(&job);
    }
}

static void the_rank_of_one_that_lives_is_refused_and_its_round_goes_on(void **state)
{
    (void)state;
    FOR_SEEDS(5)
    {
        sim_job job;

        begin_with_second(&job, seed);
        sim_start_within(&job, 3, 4, 1);
        sim_run_ms(&job, SIM_SEEN_MS);
        assert_int_equal(job.agents[3].state, SIM_JOINING);
        sim_run_ms(&job, 2 * SIM_SEEN_MS);
        assert_int_equal(job.agents[3].state, SIM_FAILED);
        if (strstr(job.agents[3].why, "has --node-rank 2 already") == NULL)
            fail_msg("%s", job.agents[3].why);
        assert_int_equal(sim_count(&job, SIM_RUNNING), 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(job.agents[i].rounds, 1);
        sim_job_end(&job);
    }
}

static void one_that_waits_for_a_rank_leaves_at_once_when_it_is_told(void **state)
{
    sim_job job;

    (void)state;
    begin_with_second(&job, 1);
    sim_start_within(&job, 3, 4, 1);
    sim_run_ms(&job, 100);
    sim_leave(&job, &job.agents[3]);
    sim_run_ms(&job, 100);
    assert_int_equal(job.agents[3].state, SIM_OUT);
    assert_int_equal(sim_count(&job, SIM_RUNNING), 3);
    sim_job_end(&job);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_that_was_replaced_while_it_joined_takes_no_part),
    cmocka_unit_test(one_that_comes_before_the_dead_is_missed_takes_its_place),
    cmocka_unit_test(the_rank_of_one_that_lives_is_refused_and_its_round_goes_on),
    cmocka_unit_test(one_that_waits_for_a_rank_leaves_at_once_when_it_is_told),
};

TEST_MAIN(tests)
