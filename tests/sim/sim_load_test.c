/*
 * sim_load_test.c - what the agents of a round that is on ask of their store, by their number.
 * TRI_SIM_AGENTS=1000 measures so many, too.
 */
/* ctest: timeout=120 */
#include "sim_agents.h"

typedef struct load {
    double requests, bytes; /* per second of virtual time */
} load;

static load measure(int n, int64_t settle_ms, int64_t ms)
{
    sim_job job;
    load is;
    int64_t requests, bytes;

    sim_job_begin(&job, 1, n, n, n);
    sim_start_within(&job, 0, n, 1000);
    sim_await_round(&job, n, 120000);
    sim_run_ms(&job, settle_ms);
    requests = sim_shared.requests;
    bytes = sim_shared.bytes;
    printf("%4d agents: %lld requests and %.1f MB until the round was on\n", n, (long long)requests,
           (double)bytes / 1e6);
    sim_run_ms(&job, ms);
    is.requests = (double)(sim_shared.requests - requests) * 1000 / (double)ms;
    is.bytes = (double)(sim_shared.bytes - bytes) * 1000 / (double)ms;
    printf("%4d agents: %.1f requests and %.0f bytes a second\n", n, is.requests, is.bytes);
    assert_true(sim_is_one_round(&job));
    sim_job_end(&job);
    return is;
}

static void the_load_grows_with_the_number_of_agents_not_with_its_square(void **state)
{
    load ten = measure(10, 3000, 20000), hundred = measure(100, 3000, 20000);

    (void)state;
    assert_true(hundred.requests < 11 * ten.requests);
    assert_true(hundred.bytes < 25 * ten.bytes);
    if (getenv("TRI_SIM_AGENTS") != NULL)
        measure((int)strtol(getenv("TRI_SIM_AGENTS"), NULL, 10), 3000, 10000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_load_grows_with_the_number_of_agents_not_with_its_square),
};

TEST_MAIN(tests)
