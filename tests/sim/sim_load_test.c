/*
 * sim_load_test.c - what agents ask of their store while they join and in a round, by their number.
 * TRI_SIM_AGENTS=1000 measures so many, too.
 */
/* ctest: timeout=120 */
#include "sim_agents.h"

typedef struct load {
    double join_requests, join_bytes;   /* until the round was on */
    double again_requests, again_bytes; /* until the next one was */
    double requests, bytes;             /* then, per second of virtual time */
} load;

/* What a hundred may ask for; virtual time makes it the same everywhere. Requests must not grow
 * with the square of the number of agents. Bytes do, slowly: each agent reads the state once, and
 * what all others say of themselves. */
static const load most = {.join_requests = 2700,
                          .join_bytes = 1400000,
                          .again_requests = 2100,
                          .again_bytes = 1050000,
                          .requests = 42, /* a heartbeat each 4 s, and what the leader asks */
                          .bytes = 54000};

static load measure(int n, int64_t settle_ms, int64_t ms)
{
    sim_job job;
    load is;
    int64_t requests, bytes, first;

    sim_job_begin(&job, 1, n, n, n);
    sim_start_within(&job, 0, n, 1000);
    sim_await_round(&job, n, 120000);
    sim_run_ms(&job, settle_ms);
    is.join_requests = (double)sim_shared.requests;
    is.join_bytes = (double)sim_shared.bytes;
    requests = sim_shared.requests;
    bytes = sim_shared.bytes;
    printf("%4d agents: %lld requests and %.2f MB until the round was on\n", n, (long long)requests,
           (double)bytes / 1e6);
    sim_run_ms(&job, ms);
    is.requests = (double)(sim_shared.requests - requests) * 1000 / (double)ms;
    is.bytes = (double)(sim_shared.bytes - bytes) * 1000 / (double)ms;
    printf("%4d agents: %.1f requests and %.0f bytes a second\n", n, is.requests, is.bytes);
    assert_true(sim_is_one_round(&job));
    requests = sim_shared.requests;
    bytes = sim_shared.bytes;
    first = job.agents[0].round;
    sim_fail_worker(&job, &job.agents[0]);
    sim_run_ms(&job, 500);
    sim_await_round(&job, n, 60000);
    for (int i = 0; i < n; i++)
        assert_int_equal(job.agents[i].round, first + 1);
    is.again_requests = (double)(sim_shared.requests - requests);
    is.again_bytes = (double)(sim_shared.bytes - bytes);
    printf("%4d agents: %.0f requests and %.2f MB until the next round was on\n", n,
           is.again_requests, is.again_bytes / 1e6);
    sim_job_end(&job);
    return is;
}

static void requests_do_not_grow_with_the_square_of_the_number_of_agents(void **state)
{
    load ten = measure(10, 3000, 20000), hundred = measure(100, 3000, 20000);

    (void)state;
    assert_true(hundred.join_requests < 15 * ten.join_requests);
    assert_true(hundred.again_requests < 15 * ten.again_requests);
    assert_true(hundred.requests < 11 * ten.requests);
    assert_true(hundred.join_requests < most.join_requests);
    assert_true(hundred.join_bytes < most.join_bytes);
    assert_true(hundred.again_requests < most.again_requests);
    assert_true(hundred.again_bytes < most.again_bytes);
    assert_true(hundred.requests < most.requests);
    assert_true(hundred.bytes < most.bytes);
    if (getenv("TRI_SIM_AGENTS") != NULL)
        measure((int)strtol(getenv("TRI_SIM_AGENTS"), NULL, 10), 3000, 10000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(requests_do_not_grow_with_the_square_of_the_number_of_agents),
};

TEST_MAIN(tests)
