/*
 * sim_keys_test.c - what is in the store after many rounds: no more than after a few.
 */
/* ctest: labels=full timeout=120 */
#include "sim_agents.h"

/* Two of another job, whose name begins as the key of one of our rounds does. */
static const char *const others_keys[] = {"torch.rendezvous.job.0/b",
                                          "torch.rendezvous.job.0/b.0/MASTER_ADDR"};

/* Each round and each host that dies leaves some keys; how many there are after the last one. */
static int64_t keys_after(int n_rounds, bool led)
{
    sim_job job;
    int64_t n;

    sim_job_begin(&job, 1, 16, 8, 16);
    job.conf = "last_call_timeout=5";
    job.led = led;
    job.peers = true;
    for (int i = 0; i < 2; i++)
        CHECK_OK(trii_kv_set(sim_shared.kv, sim_text(others_keys[i]), sim_text("theirs")));
    sim_start_within(&job, 0, 16, 500);
    for (int round = 0; round < n_rounds; round++) {
        sim_agent *agent = &job.agents[1 + round % 15];

        sim_await_round(&job, 16, 20000);
        sim_run_ms(&job, 3000);
        if (round % 3 == 0) { /* some say nothing more, and others come in their place */
            sim_kill(agent);
            sim_run_ms(&job, 3000);
            sim_start_within(&job, agent->id, agent->id + 1, 1000);
        } else {
            trii_rendezvous_tell(agent->rdzv, false, true, "a worker failed");
            sim_stop_workers(agent);
        }
        sim_run_ms(&job, 2000);
    }
    sim_await_round(&job, 16, 20000);
    sim_run_ms(&job, 3000);
    for (int i = 0; i < 2; i++)
        assert_true(trii_kv_has(sim_shared.kv, sim_text(others_keys[i])));
    n = trii_kv_count(sim_shared.kv);
    sim_job_end(&job);
    return n;
}

static void the_keys_of_former_rounds_do_not_stay(void **state)
{
    (void)state;
    for (int led = 1; led >= 0; led--)
        assert_in_range(keys_after(25, led != 0), 1, keys_after(4, led != 0));
}

/* Agent 3 dies each time when the next round is on and not all have said who they are; how many
 * keys there are after that. */
static int64_t keys_after_aborted(int n_rounds, bool led)
{
    sim_job job;
    int64_t n;

    sim_job_begin(&job, 1, 4, 2, 4);
    job.conf = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3";
    job.led = led;
    sim_start_within(&job, 0, 4, 100);
    for (int round = 0; round < n_rounds; round++) {
        sim_agent *agent = &job.agents[0];
        int64_t number;

        sim_await_round(&job, 4, 20000);
        number = agent->round;
        trii_rendezvous_tell(job.agents[1].rdzv, false, true, "a worker failed");
        sim_stop_workers(&job.agents[1]);
        while (agent->rdzv->round.number == number)
            sim_run_ms(&job, 1);
        assert_int_equal(agent->state, SIM_JOINING);
        sim_kill(&job.agents[3]);
        sim_await_round(&job, 3, 20000);
        assert_int_equal(agent->round, number + 2);
        sim_start_within(&job, 3, 4, 100);
    }
    sim_await_round(&job, 4, 20000);
    sim_run_ms(&job, 3000);
    n = trii_kv_count(sim_shared.kv);
    sim_job_end(&job);
    return n;
}

static void the_keys_of_rounds_that_did_not_begin_do_not_stay(void **state)
{
    (void)state;
    /* but for those of agent 3 itself, which had no time to clear up */
    for (int led = 1; led >= 0; led--)
        assert_in_range(keys_after_aborted(8, led != 0), 1,
                        keys_after_aborted(2, led != 0) + 6 * 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_keys_of_former_rounds_do_not_stay),
    cmocka_unit_test(the_keys_of_rounds_that_did_not_begin_do_not_stay),
};

TEST_MAIN(tests)
