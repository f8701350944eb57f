/*
 * sim_random_test.c - agents that die, leave, are cut off and come back at random end in one round;
 * and a seed decides all of it.
 */
/* ctest: labels=full timeout=300 */
#include "sim_agents.h"

/* What they say to each other grows with the square of how many they are. */
#define AGENTS (TEST_SANITIZED ? 20 : 40)

/* What happens to one of the agents next. */
static void disturb(sim_job *job)
{
    sim_agent *agent = &job->agents[sim_random((uint64_t)job->n)];

    if (job->led && agent->id == 0)
        return;
    if (agent->rdzv == NULL) {
        if (agent->start_ns == 0)
            sim_start_within(job, agent->id, agent->id + 1, 5000);
        return;
    }
    switch (sim_random(4)) {
    case 0:
        sim_kill(agent);
        break;
    case 1:
        if (agent->state == SIM_RUNNING)
            sim_leave(job, agent);
        break;
    case 2:
        if (agent->state == SIM_RUNNING)
            sim_fail_worker(job, agent);
        break;
    default:
        sim_cut(agent, !agent->link.cut);
        break;
    }
}

static uint64_t random_minute(uint64_t seed, bool led)
{
    sim_job job;
    uint64_t trace;

    sim_job_begin(&job, seed, AGENTS, 2, AGENTS);
    job.conf = "last_call_timeout=5,join_timeout=300";
    job.peers = seed % 2 == 0;
    job.led = led;
    sim_start_within(&job, 0, AGENTS, 3000);
    for (int64_t until = sim_now() + 60 * TRII_NS_PER_S; sim_now() < until;) {
        sim_run_ms(&job, 500 + (int64_t)sim_random(2000));
        disturb(&job);
    }
    for (int i = 0; i < job.n; i++) /* and then all is well */
        sim_cut(&job.agents[i], false);
    sim_run_ms(&job, 10000); /* who leaves has left */
    for (int i = 0; i < job.n; i++) {
        if (job.agents[i].rdzv == NULL && job.agents[i].start_ns == 0)
            sim_start_within(&job, i, i + 1, 1000);
    }
    sim_run_ms(&job, 3000);
    sim_await_round(&job, AGENTS, 120000);
    sim_run_ms(&job, 5000);
    assert_true(sim_is_one_round(&job));
    trace = job.trace;
    sim_job_end(&job);
    return trace;
}

static void after_a_random_minute_all_are_in_one_round(void **state)
{
    (void)state;
    FOR_SEEDS(3)
    {
        random_minute(seed, true);
        random_minute(seed, false);
    }
}

static void the_same_seed_gives_the_same_minute(void **state)
{
    uint64_t trace = random_minute(7, true);

    (void)state;
    assert_true(random_minute(7, true) == trace);
    assert_true(random_minute(8, true) != trace);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(after_a_random_minute_all_are_in_one_round),
    cmocka_unit_test(the_same_seed_gives_the_same_minute),
};

TEST_MAIN(tests)
