/*
 * sim_rounds_test.c - a hundred agents and more in virtual time: however they come, die, leave, are
 * cut off and come back, those that live end in one round, each with a rank of its own.
 */
/* ctest: start=first labels=full timeout=120 */
#include "launch/rendezvous/rdzv_pickle.h"
#include "sim_agents.h"

static void a_hundred_agents_that_come_within_a_minute_form_one_round(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 100, 100, 100);
        sim_start_within(&job, 0, 100, 60000);
        sim_await_round(&job, 100, 65000);
        sim_run_ms(&job, 20000); /* nobody is taken for dead */
        for (int i = 0; i < job.n; i++)
            assert_int_equal(job.agents[i].rounds, 1);
        sim_job_end(&job);
    }
}

static void the_last_call_lets_in_whoever_comes_in_time(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 60, 20, 100);
        job.conf = "last_call_timeout=10";
        sim_start_within(&job, 0, 30, 2000);
        sim_run_ms(&job, 8000);
        assert_int_equal(sim_count(&job, SIM_RUNNING), 0);
        sim_await_round(&job, 30, 6000);
        sim_start_within(&job, 30, 60, 5000); /* late, but there is room */
        sim_run_ms(&job, 6000);
        sim_await_round(&job, 60, 30000);
        sim_job_end(&job);
    }
}

static void agents_beyond_the_maximum_wait_and_take_the_places_of_the_dead(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 40, 30, 30);
        job.peers = true;
        sim_start_within(&job, 0, 40, 5000);
        sim_run_ms(&job, 6000);
        sim_await_round(&job, 30, 5000);
        sim_run_ms(&job, 5000);
        assert_int_equal(sim_count(&job, SIM_JOINING), 10);
        for (int i = 1, killed = 0; i < 40 && killed < 4; i++) {
            if (job.agents[i].state != SIM_RUNNING)
                continue;
            sim_kill(&job.agents[i]);
            killed++;
        }
        sim_run_ms(&job, 3000);
        sim_await_round(&job, 30, 30000);
        assert_int_equal(sim_count(&job, SIM_JOINING), 6);
        sim_job_end(&job);
    }
}

static void the_dead_are_seen_by_their_silence_if_nobody_else_sees_them(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 50, 10, 50);
        sim_start_within(&job, 0, 50, 3000);
        sim_await_round(&job, 50, 10000);
        for (int i = 0; i < 5; i++)
            sim_kill(&job.agents[1 + sim_random(9) + 10 * (uint64_t)i]);
        sim_run_ms(&job, 10000);
        assert_int_equal(sim_count(&job, SIM_RUNNING), 45); /* 15 s of silence are allowed */
        sim_run_ms(&job, 12000);
        sim_await_round(&job, 45, 30000);
        sim_job_end(&job);
    }
}

static void a_host_that_died_while_it_waited_for_a_place_gets_none(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_agent *first = NULL;
        int killed = 0;

        sim_job_begin(&job, seed, 24, 20, 20);
        sim_start_within(&job, 0, 24, 2000);
        sim_run_ms(&job, 3000);
        sim_await_round(&job, 20, 5000);
        sim_run_ms(&job, 5000);
        for (int i = 0; i < 24; i++) {
            sim_agent *agent = &job.agents[i];

            agent->start_ns = 0;
            if (agent->state == SIM_RUNNING)
                first = agent;
            else if (agent->id > 0 && killed++ < 2)
                sim_kill(agent);
        }
        sim_run_ms(&job, 30000); /* 15 s of silence are allowed */
        sim_fail_worker(&job, first);
        sim_run_ms(&job, 500);
        sim_await_round(&job, 20, 5000);
        sim_job_end(&job);
    }
}

static void a_host_that_was_taken_for_dead_while_it_waited_is_let_in(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_agent *silent;

        sim_job_begin(&job, seed, 40, 40, 40);
        sim_start_within(&job, 0, 39, 1000);
        sim_run_ms(&job, 3000);
        silent = &job.agents[7];
        sim_cut(silent, true);
        sim_run_ms(&job, 30000); /* 15 s of silence are allowed */
        assert_int_equal(job.agents[0].rdzv->state.n, 38);
        sim_cut(silent, false);
        sim_run_ms(&job, 8000);
        assert_int_equal(job.agents[0].rdzv->state.n, 39);
        sim_start_within(&job, 39, 40, 1000);
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 40, 5000);
        sim_job_end(&job);
    }
}

typedef struct rival {
    sim_link link;
    trii_thread thread;
    bool stops;
} rival;

/* Shows that it lives far too often, as many of torchrun's agents together do. */
static void write_state_often(void *arg)
{
    rival *self = arg;
    trii_rdzv_node node = {.addr = "torchrun"};
    tri_store *store = sim_store_create(&self->link);
    trii_rdzv_backend *backend;

    CHECK_OK(trii_rdzv_c10d_create(store, "job", &backend));
    while (!self->stops) {
        trii_wire_buffer raw = {0}, changed = {0};
        trii_rdzv_state s;
        trii_rdzv_entry *entry;
        bool won;

        trii_rdzv_state_init(&s);
        CHECK_OK(backend->ops->load(backend, &raw));
        if (raw.used > 0)
            CHECK_OK(trii_rdzv_pickle_read(raw.data, raw.used, &s));
        CHECK_OK(trii_rdzv_entry_of(&s, &node, &entry));
        entry->participant = entry->beats = true;
        entry->beat_us = sim_now() / 1000;
        trii_rdzv_pickle_write(&s, &changed);
        CHECK_OK(backend->ops->swap(backend, changed.data, changed.used, &won));
        sim_sleep_ms((int64_t)sim_random(6));
        trii_rdzv_state_fini(&s);
        trii_wire_buffer_fini(&raw);
        trii_wire_buffer_fini(&changed);
    }
    backend->ops->destroy(backend);
    tri_store_unref(store);
}

/* A request is not forgotten when somebody else was faster. */
static void agents_are_let_in_and_live_though_others_write_the_state_often(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        rival torchrun = {0};

        sim_job_begin(&job, seed, 39, 40, 40);
        CHECK_OK(sim_start(&torchrun.thread, "rival", write_state_often, &torchrun));
        sim_start_within(&job, 0, 38, 1000);
        sim_run_ms(&job, 2000);
        for (int i = 0; i < 40; i++) {
            assert_int_equal(job.agents[0].rdzv->state.n, 39);
            sim_run_ms(&job, 1000);
        }
        torchrun.stops = true;
        sim_join(&torchrun.thread);
        sim_job_end(&job);
    }
}

static void an_agent_that_leaves_while_a_round_forms_is_not_in_it(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(6)
    {
        sim_job_begin(&job, seed, 40, 20, 40);
        job.conf = "last_call_timeout=5";
        sim_start_within(&job, 0, 39, 1000);
        for (int i = 1; i < 11; i++) {
            sim_run_ms(&job, (int64_t)sim_random(400));
            if (job.agents[i].rdzv != NULL)
                sim_leave(&job, &job.agents[i]);
            job.agents[i].start_ns = 0;
        }
        sim_await_round(&job, 29, 12000); /* none of them is waited for */
        for (int i = 11; i < 39; i++)
            assert_int_equal(job.agents[i].rounds, 1);
        sim_job_end(&job);
    }
}

/* Also where no agent of trirun serves the store. */
static void an_agent_with_another_number_of_hosts_is_refused(void **state)
{
    sim_job job;

    (void)state;
    for (int led = 1; led >= 0; led--) {
        sim_job_begin(&job, 1, 40, 40, 40);
        job.led = led != 0;
        sim_start_within(&job, 0, 20, 1000);
        sim_run_ms(&job, 3000);
        job.max = 41;
        sim_start_within(&job, 20, 21, 1000);
        sim_run_ms(&job, 3000);
        assert_int_equal(job.agents[20].state, SIM_FAILED);
        assert_non_null(strstr(job.agents[20].why, "was started with --nnodes 40, this one"));
        assert_non_null(strstr(job.agents[20].why, "with --nnodes 40:41: give all agents"));
        assert_int_equal(sim_count(&job, SIM_JOINING), 20);
        sim_job_end(&job);
    }
}

/* Nobody knows of all of them by itself: each is seen by another agent, at another moment. */
static void several_hosts_that_die_at_once_are_not_waited_for(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(3)
    {
        sim_job_begin(&job, seed, 30, 10, 30);
        job.conf = "last_call_timeout=600";
        sim_start_within(&job, 0, 30, 3000);
        sim_await_round(&job, 30, 10000);
        sim_run_ms(&job, 7000);
        for (int i = 0; i < 5; i++)
            sim_kill(&job.agents[1 + sim_random(5) + 6 * (uint64_t)i]);
        sim_run_ms(&job, 12000);
        sim_await_round(&job, 25, 20000); /* 15 s of silence are allowed */
        sim_job_end(&job);
    }
}

/* A host that lives shows it in time, whatever the moments at which it and the leader look. */
static void nobody_who_lives_is_taken_for_dead_after_two_missed_beats(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 20, 2, 20);
        job.conf = "last_call_timeout=5,keep_alive_max_attempt=2";
        sim_start_within(&job, 0, 20, 1000);
        sim_await_round(&job, 20, 10000);
        sim_run_ms(&job, 120000);
        for (int i = 0; i < 20; i++)
            assert_int_equal(job.agents[i].rounds, 1);
        sim_job_end(&job);
    }
}

/* What it wrote last is read when the state does not have it any more. */
static void a_host_that_dies_after_it_showed_that_it_lives_is_not_let_in_again(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(6)
    {
        sim_agent *agent;
        int64_t beat_ns;

        sim_job_begin(&job, seed, 6, 2, 6);
        job.conf = "last_call_timeout=600";
        sim_start_within(&job, 0, 6, 500);
        sim_await_round(&job, 6, 10000);
        agent = &job.agents[3];
        beat_ns = agent->rdzv->lead.beat_ns;
        while (agent->rdzv->lead.beat_ns == beat_ns)
            sim_run_ms(&job, 1);
        sim_kill(agent);
        sim_see_death(&job, agent);
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 5, 2000);
        sim_job_end(&job);
    }
}

/* Before the leader looks at the state again, which it wrote. */
static void a_host_that_dies_as_its_round_begins_is_not_in_the_next(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(6)
    {
        sim_agent *agent;

        sim_job_begin(&job, seed, 6, 2, 6);
        job.conf = "last_call_timeout=600";
        sim_start_within(&job, 0, 6, 500);
        agent = &job.agents[3];
        while (sim_count(&job, SIM_RUNNING) < 6)
            sim_run_ms(&job, 1);
        sim_kill(agent);
        sim_see_death(&job, agent);
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 5, 2000);
        assert_int_equal(job.agents[0].rounds, 2);
        sim_job_end(&job);
    }
}

/* The leader has deleted its request, which it wants to write again. */
static void a_host_that_peers_gave_up_comes_back_if_it_lives(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(6)
    {
        sim_job_begin(&job, seed, 6, 2, 6);
        job.conf = "last_call_timeout=600";
        sim_start_within(&job, 0, 6, 500);
        sim_await_round(&job, 6, 10000);
        sim_see_death(&job, &job.agents[3]);
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 6, 3000);
        sim_job_end(&job);
    }
}

/* Its heartbeat arrives in two parts, between which the leader deletes the request: it has found it
 * there, and writes it. */
static void a_heartbeat_that_writes_a_deleted_request_again_loses_no_host(void **state)
{
    static const char name[] = "trireme/job/request/1";
    trii_slice value;
    char text[400];
    sim_job job;
    int n_deleted = 0;

    (void)state;
    FOR_SEEDS(6)
    {
        sim_agent *agent = NULL;
        long long left, beat;
        unsigned long long local_id, pid;

        sim_job_begin(&job, seed, 4, 2, 4);
        job.conf = "last_call_timeout=2";
        sim_start_within(&job, 0, 4, 500);
        sim_await_round(&job, 4, 10000);
        assert_true(trii_kv_get(sim_shared.kv, sim_text(name), &value));
        snprintf(text, sizeof(text), "%.*s", (int)value.bytes, (const char *)value.data);
        assert_int_equal(sscanf(text, "%lld %lld %llx %llx", &left, &beat, &local_id, &pid), 4);
        agent = &job.agents[pid / 1000];
        sim_see_death(&job, agent);
        for (int ms = 0; ms < 1000 && trii_kv_has(sim_shared.kv, sim_text(name)); ms++)
            sim_run_ms(&job, 1); /* else it has asked for the next round before the leader looked */
        if (!trii_kv_has(sim_shared.kv, sim_text(name))) {
            CHECK_OK(trii_kv_set(sim_shared.kv, sim_text(name), sim_text(text)));
            n_deleted++;
        }
        sim_run_ms(&job, 1000);
        sim_await_round(&job, 4, 20000);
        sim_job_end(&job);
    }
    assert_true(n_deleted > 0 || getenv("TRI_SIM_SEEDS") != NULL);
}

static void several_hosts_that_leave_at_once_are_not_waited_for(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(3)
    {
        sim_job_begin(&job, seed, 50, 10, 50);
        job.conf = "last_call_timeout=600";
        sim_start_within(&job, 0, 50, 3000);
        sim_await_round(&job, 50, 10000);
        for (int i = 1; i < 11; i++)
            sim_leave(&job, &job.agents[i]);
        sim_run_ms(&job, 2000);
        sim_await_round(&job, 40, 8000);
        sim_job_end(&job);
    }
}

static void an_agent_that_leaves_in_order_is_not_waited_for(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 50, 10, 50);
        job.conf = "last_call_timeout=5";
        sim_start_within(&job, 0, 50, 3000);
        sim_await_round(&job, 50, 10000);
        for (int i = 1; i < 11; i++)
            sim_leave(&job, &job.agents[i]);
        sim_run_ms(&job, 2000);
        sim_await_round(&job, 40, 10000);
        for (int i = 11; i < 50; i++)
            assert_int_equal(job.agents[i].rounds, 2);
        sim_job_end(&job);
    }
}

static void a_short_cut_loses_nothing_and_a_long_one_a_host_that_comes_back(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 40, 10, 40);
        job.conf = "last_call_timeout=5";
        sim_start_within(&job, 0, 40, 3000);
        sim_await_round(&job, 40, 10000);
        for (int i = 1; i < 9; i++)
            sim_cut(&job.agents[i], true);
        sim_run_ms(&job, 8000);
        for (int i = 1; i < 9; i++)
            sim_cut(&job.agents[i], false);
        sim_run_ms(&job, 10000);
        assert_true(sim_is_one_round(&job));
        assert_int_equal(job.agents[1].rounds, 1);
        for (int i = 1; i < 9; i++)
            sim_cut(&job.agents[i], true);
        sim_run_ms(&job, 30000);
        for (int i = 9; i < 40; i++)
            assert_int_equal(job.agents[i].size, 32); /* the others go on */
        for (int i = 1; i < 9; i++)
            sim_cut(&job.agents[i], false);
        sim_run_ms(&job, 5000);
        sim_await_round(&job, 40, 60000);
        sim_job_end(&job);
    }
}

/* All are silent then, and none of them is dead. */
static void a_store_that_stands_still_costs_nobody_its_place(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        for (int n = 4; n <= 40; n += 36) {
            sim_job_begin(&job, seed, n, 2, n);
            sim_start_within(&job, 0, n, 3000);
            sim_await_round(&job, n, 10000);
            sim_run_ms(&job, (int64_t)sim_random(5000));
            for (int ms = 2000; ms <= 20000; ms += 18000) { /* 15 s of silence are allowed */
                for (int i = 0; i < n; i++)
                    sim_cut(&job.agents[i], true);
                sim_run_ms(&job, ms);
                for (int i = 0; i < n; i++)
                    sim_cut(&job.agents[i], false);
                sim_run_ms(&job, 10000);
                assert_int_equal(sim_count(&job, SIM_RUNNING), n);
                for (int i = 0; i < n; i++)
                    assert_int_equal(job.agents[i].rounds, 1);
            }
            sim_job_end(&job);
        }
    }
}

/* As of an agent that cannot start its workers: the others may see the end before they read why. */
static void the_end_of_a_job_is_told_after_its_cause(void **state)
{
    const trii_rdzv_news cause = {.over = true, .gone = -1, .why = "no such program"};
    sim_job job;

    (void)state;
    for (int told = 0; told < 2; told++) {
        sim_job_begin(&job, 1, 3, 3, 3);
        sim_start_within(&job, 0, 3, 100);
        sim_await_round(&job, 3, 10000);
        job.agents[1].state = SIM_SUCCEEDED; /* it does not come again */
        trii_rendezvous_close(job.agents[1].rdzv);
        sim_run_ms(&job, 400);
        assert_int_equal(job.agents[0].state, SIM_RUNNING); /* it leads: it has looked */
        if (told == 1) {
            sim_tell(&job, &job.agents[1], &cause);
            sim_run_ms(&job, 10);
            assert_int_equal(job.agents[0].rdzv->phase, TRII_RDZV_JOB_ENDED);
            assert_string_equal(job.agents[0].why, "no such program");
        } else {
            sim_run_ms(&job, 1000);
            assert_string_equal(job.agents[0].why, "another host has closed the job");
        }
        sim_job_end(&job);
    }
}

static void all_succeed_together(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 60, 60, 60);
        sim_start_within(&job, 0, 60, 2000);
        sim_await_round(&job, 60, 10000);
        for (int i = 0; i < job.n; i++) {
            assert_int_equal(sim_count(&job, SIM_SUCCEEDED), 0); /* before the last */
            job.agents[i].state = SIM_FINISHING;
            trii_rendezvous_finish(job.agents[i].rdzv);
            sim_run_ms(&job, (int64_t)sim_random(50));
        }
        sim_run_ms(&job, 3000);
        assert_int_equal(sim_count(&job, SIM_SUCCEEDED), 60);
        sim_job_end(&job);
    }
}

/* By its request, which the agent that serves the store reads four times a second. */
static void a_host_that_comes_to_a_round_is_let_in_soon(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 20, 2, 20);
        job.conf = "last_call_timeout=2";
        sim_start_within(&job, 0, 19, 500);
        sim_await_round(&job, 19, 5000);
        sim_run_ms(&job, (int64_t)sim_random(3000));
        sim_start_within(&job, 19, 20, 1);
        sim_await_round(&job, 20, 1200); /* the others stop for 300 ms at most */
        assert_int_equal(job.agents[0].rounds, 2);
        sim_job_end(&job);
    }
}

static void a_hundred_agents_of_which_nobody_leads_form_rounds(void **state)
{
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        sim_job_begin(&job, seed, 100, 90, 100);
        job.led = false;
        job.conf = "last_call_timeout=10";
        sim_start_within(&job, 0, 95, 5000);
        sim_await_round(&job, 95, 20000);
        sim_kill(&job.agents[0]);
        sim_start_within(&job, 95, 96, 1);
        sim_run_ms(&job, 5000);
        sim_await_round(&job, 95, 40000); /* 15 s of silence are allowed */
        sim_run_ms(&job, 25000);          /* and nobody who lives is that silent */
        assert_int_equal(sim_count(&job, SIM_RUNNING), 95);
        for (int i = 1; i < 96; i++)
            assert_int_equal(job.agents[i].rounds, i < 95 ? 2 : 1);
        sim_job_end(&job);
    }
}

/* What torchrun's agent writes that has the only place. */
static void write_state_of_one(tri_store *store, bool closed)
{
    trii_rdzv_node node = {.addr = "torchrun"};
    trii_wire_buffer raw = {0}, changed = {0};
    trii_rdzv_backend *backend;
    trii_rdzv_state s;
    bool won;

    trii_rdzv_state_init(&s);
    CHECK_OK(trii_rdzv_c10d_create(store, "job", &backend));
    CHECK_OK(backend->ops->load(backend, &raw));
    if (raw.used > 0)
        CHECK_OK(trii_rdzv_pickle_read(raw.data, raw.used, &s));
    else
        CHECK_OK(trii_rdzv_participate(&s, &node, 1, 1, sim_now() / 1000, 1000));
    s.closed = closed;
    trii_rdzv_pickle_write(&s, &changed);
    CHECK_OK(backend->ops->swap(backend, changed.data, changed.used, &won));
    assert_true(won);
    trii_rdzv_state_fini(&s);
    trii_wire_buffer_fini(&raw);
    trii_wire_buffer_fini(&changed);
    backend->ops->destroy(backend);
}

/* It serves the store, which the others need until they know. */
static void a_leader_without_a_place_stays_until_the_others_know_the_end(void **state)
{
    sim_link link = {0};
    int64_t n;
    sim_job job;

    (void)state;
    FOR_SEEDS(2)
    {
        tri_store *store = sim_store_create(&link);

        sim_job_begin(&job, seed, 1, 1, 1);
        write_state_of_one(store, false);
        sim_start_within(&job, 0, 1, 1);
        sim_run_ms(&job, 2000);
        assert_true(job.agents[0].rdzv->redundant);
        write_state_of_one(store, true);
        sim_run_ms(&job, 2500);
        assert_int_equal(job.agents[0].state, SIM_FAILED); /* its place is not needed any more */
        assert_non_null(job.agents[0].rdzv);
        CHECK_OK(tri_store_add(store, "torch.rendezvous.job.0/trireme/left", 1, &n));
        sim_run_ms(&job, 200);
        assert_null(job.agents[0].rdzv);
        sim_job_end(&job);
        tri_store_unref(store);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_hundred_agents_that_come_within_a_minute_form_one_round),
    cmocka_unit_test(the_last_call_lets_in_whoever_comes_in_time),
    cmocka_unit_test(agents_beyond_the_maximum_wait_and_take_the_places_of_the_dead),
    cmocka_unit_test(the_dead_are_seen_by_their_silence_if_nobody_else_sees_them),
    cmocka_unit_test(a_host_that_died_while_it_waited_for_a_place_gets_none),
    cmocka_unit_test(a_host_that_was_taken_for_dead_while_it_waited_is_let_in),
    cmocka_unit_test(agents_are_let_in_and_live_though_others_write_the_state_often),
    cmocka_unit_test(an_agent_that_leaves_while_a_round_forms_is_not_in_it),
    cmocka_unit_test(an_agent_with_another_number_of_hosts_is_refused),
    cmocka_unit_test(several_hosts_that_die_at_once_are_not_waited_for),
    cmocka_unit_test(nobody_who_lives_is_taken_for_dead_after_two_missed_beats),
    cmocka_unit_test(a_host_that_dies_after_it_showed_that_it_lives_is_not_let_in_again),
    cmocka_unit_test(a_host_that_dies_as_its_round_begins_is_not_in_the_next),
    cmocka_unit_test(a_host_that_peers_gave_up_comes_back_if_it_lives),
    cmocka_unit_test(a_heartbeat_that_writes_a_deleted_request_again_loses_no_host),
    cmocka_unit_test(several_hosts_that_leave_at_once_are_not_waited_for),
    cmocka_unit_test(an_agent_that_leaves_in_order_is_not_waited_for),
    cmocka_unit_test(a_short_cut_loses_nothing_and_a_long_one_a_host_that_comes_back),
    cmocka_unit_test(a_store_that_stands_still_costs_nobody_its_place),
    cmocka_unit_test(the_end_of_a_job_is_told_after_its_cause),
    cmocka_unit_test(all_succeed_together),
    cmocka_unit_test(a_host_that_comes_to_a_round_is_let_in_soon),
    cmocka_unit_test(a_hundred_agents_of_which_nobody_leads_form_rounds),
    cmocka_unit_test(a_leader_without_a_place_stays_until_the_others_know_the_end),
};

TEST_MAIN(tests)
