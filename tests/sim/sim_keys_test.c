/*
 * sim_keys_test.c - what rounds leave in the store: a few keys for each host, and no more for hosts
 * that came, died and left.
 */
/* ctest: labels=full timeout=120 */
#include "sim_agents.h"

/* How many keys there are after so many rounds. */
static int64_t keys_after(int n_rounds, bool led)
{
    sim_job job;
    int64_t n;

    sim_job_begin(&job, 1, 16, 8, 16);
    job.conf = "last_call_timeout=5";
    job.led = led;
    job.peers = true;
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
            sim_fail_worker(&job, agent);
        }
        sim_run_ms(&job, 2000);
    }
    sim_await_round(&job, 16, 20000);
    sim_run_ms(&job, 3000);
    n = trii_kv_count(sim_shared.kv);
    sim_job_end(&job);
    return n;
}

/* Each round leaves what its hosts have said and were told, and where its master is. There are 28
 * more, since a host that dies and comes back makes two. */
static void a_round_leaves_few_keys(void **state)
{
    (void)state;
    for (int led = 1; led >= 0; led--)
        assert_in_range(keys_after(25, led != 0) - keys_after(4, led != 0), 0, 28 * (3 * 16 + 4));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_round_leaves_few_keys),
};

TEST_MAIN(tests)
