/*
 * sim_agents.h - agents in virtual time: the real rendezvous threads over sim_store.h, and in the
 * place of agent.c a few rules: an agent that hears AGAIN stops its workers and joins again, one
 * that hears of the end leaves; what one agent tells, the others of its round hear at once unless
 * they are cut off. A test says when agents start, die, leave, are cut off and succeed.
 */
#ifndef TRII_SIM_AGENTS_H
#define TRII_SIM_AGENTS_H

#include "launch/rendezvous/rdzv_internal.h"
#include "sim_store.h"

enum {
    SIM_TICK_MS = 10,  /* how soon an agent hears of what its rendezvous says */
    SIM_STOP_MS = 300, /* at most: for workers to stop */
    SIM_SEEN_MS = 1500 /* for peers to see that one of them is gone */
};

typedef enum sim_state {
    SIM_OUT, /* not started, or gone */
    SIM_JOINING,
    SIM_RUNNING,
    SIM_STOPPING, /* its workers stop; then it joins again */
    SIM_LEAVING,
    SIM_FINISHING, /* its workers have succeeded */
    SIM_SUCCEEDED,
    SIM_FAILED
} sim_state;

typedef struct sim_agent {
    trii_launch_options options;
    sim_link link;
    trii_rendezvous *rdzv;
    sim_state state;
    int64_t start_ns, stopped_ns, died_ns; /* 0: not; INT64_MAX: peers have seen it */
    int id, lives;
    int given_rank;            /* of job->given */
    const trii_store_ops *ops; /* of its store; NULL = sim_store.h's */
    bool led;
    int64_t round, local_id;
    int rank, size, world_size, rounds;
    char why[TRII_ERR_BYTES];
} sim_agent;

typedef struct sim_job {
    sim_agent *agents;
    int n, min, max;
    const char *conf;
    bool peers;     /* agents see by themselves that others are gone */
    bool given;     /* agents have given ranks, and agree on no state */
    bool led;       /* agent 0 serves the store: it comes first and lives as long as the job */
    uint64_t trace; /* of all events and their moments */
} sim_job;

/* Each life of an agent is another process. */
static inline int64_t sim_pid(const sim_agent *agent)
{
    return 1000 * (int64_t)agent->id + agent->lives;
}

/* What the others know it by. */
static inline trii_rdzv_agent sim_known(const sim_agent *agent)
{
    trii_rdzv_agent known = {.port = 1,
                             .node = {.pid = sim_pid(agent), .local_id = agent->local_id}};

    snprintf(known.node.addr, sizeof(known.node.addr), "host%d", agent->id);
    snprintf(known.token, sizeof(known.token), "%lld", (long long)sim_pid(agent));
    return known;
}

static inline tri_status sim_open(trii_rendezvous *r)
{
    sim_agent *agent = (sim_agent *)(uintptr_t)r->options; /* its first field */

    r->base = sim_store_create(&agent->link);
    r->base->ops = agent->ops != NULL ? agent->ops : r->base->ops;
    snprintf(r->self.addr, sizeof(r->self.addr), "host%d", agent->id);
    r->self.pid = sim_pid(agent);
    r->self.local_id = agent->local_id;
    if (r->options->rdzv == TRII_RDZV_STATIC)
        return TRI_OK;
    if (agent->led && agent->id == 0) {
        char text[TRII_RDZV_ADDR_BYTES + 60];

        r->server = (trii_tcp_server *)agent; /* that there is one is all that is asked */
        trii_rdzv_settings_text(r, text, sizeof(text));
        CHECK_OK(tri_store_set(r->base, "job/trireme/serves", text, strlen(text)));
    }
    return trii_rdzv_share_c10d(r);
}

/* Only one that leads serves the store, and that is in sim_open. */
static inline trii_rdzv_server sim_server(const trii_launch_options *options)
{
    (void)options;
    return TRII_RDZV_CLIENT;
}

static inline void sim_start_agent(sim_job *job, sim_agent *agent)
{
    static trii_rdzv_handler handler;
    trii_rdzv_setup setup = {.options = &agent->options, .time = &sim_time, .handler = &handler};

    handler = job->given ? trii_rdzv_static : trii_rdzv_c10d;
    handler.server = sim_server;
    handler.open = sim_open;
    agent->options = (trii_launch_options){.nproc = 2,
                                           .min_nodes = job->min,
                                           .max_nodes = job->max,
                                           .rdzv_backend = job->given ? "static" : "c10d",
                                           .rdzv = job->given ? TRII_RDZV_STATIC : TRII_RDZV_C10D,
                                           .rdzv_endpoint = "sim",
                                           .rdzv_host = "sim",
                                           .node_rank = agent->given_rank,
                                           .rdzv_conf = job->conf,
                                           .run_id = "job",
                                           .role = "default",
                                           .host_timeout_ms = SIM_SEEN_MS,
                                           .max_restarts = 3};
    agent->link = (sim_link){0};
    agent->led = job->led;
    agent->lives++;
    agent->local_id = trii_rdzv_local_id(&agent->options, (uint32_t)sim_random(UINT32_MAX));
    agent->start_ns = agent->died_ns = 0;
    agent->round = -1;
    setup.self = sim_known(agent);
    CHECK_OK(trii_rendezvous_create(&setup, &agent->rdzv));
    agent->state = SIM_JOINING;
    trii_rendezvous_join(agent->rdzv, 2000 + agent->id, 0);
}

/* The process of the agent is gone, at once. */
static inline void sim_end_agent(sim_agent *agent, sim_state state)
{
    if (agent->rdzv == NULL)
        return;
    agent->link.dead = true;
    sim_notify(&agent->link);
    agent->rdzv->server = NULL;
    trii_rendezvous_destroy(agent->rdzv, 20000);
    agent->rdzv = NULL;
    agent->state = state;
}

static inline void sim_kill(sim_agent *agent)
{
    agent->died_ns = sim_now();
    sim_end_agent(agent, SIM_OUT);
}

static inline void sim_cut(sim_agent *agent, bool cut)
{
    agent->link.cut = cut;
    sim_notify(&agent->link);
}

/* --- what agents do ------------------------------------------------------- */

/* Then it joins again. */
static inline void sim_stop_workers(sim_agent *agent)
{
    agent->state = SIM_STOPPING;
    agent->stopped_ns = sim_now() + (int64_t)sim_random(SIM_STOP_MS) * TRII_NS_PER_MS;
}

/* What `from` tells reaches the others of its round. */
static inline void sim_tell(sim_job *job, sim_agent *from, const trii_rdzv_news *news)
{
    int64_t round = from->round;

    for (int i = 0; i < job->n && round >= 0; i++) {
        sim_agent *agent = &job->agents[i];
        bool own = agent == from;

        if (agent->rdzv == NULL || agent->round != round ||
            (!own && (agent->link.cut || from->link.cut)))
            continue;
        trii_rendezvous_heard(agent->rdzv, round, news);
        if (own || news->finished)
            continue;
        snprintf(agent->why, sizeof(agent->why), "%s", news->why);
        if (agent->state == SIM_RUNNING || agent->state == SIM_FINISHING)
            sim_stop_workers(agent);
    }
}

static inline void sim_leave(sim_job *job, sim_agent *agent)
{
    trii_rdzv_news news = {.gone = agent->rank, .left = true, .why = "it was told to stop"};

    agent->state = SIM_LEAVING;
    sim_tell(job, agent, &news);
    trii_rendezvous_leave(agent->rdzv);
}

static inline void sim_fail_worker(sim_job *job, sim_agent *agent)
{
    const trii_rdzv_news news = {.counts = true, .gone = -1, .why = "a worker failed"};

    sim_tell(job, agent, &news);
    sim_stop_workers(agent);
}

static inline void sim_take_event(sim_job *job, sim_agent *agent, trii_rdzv_event *event)
{
    uint64_t what = (uint64_t)event->kind + 16 * (uint64_t)agent->id + (uint64_t)sim_now() * 65536;

    job->trace = (job->trace ^ what) * 0x100000001B3u;
    if (event->news.why[0] != '\0') /* that it has left says nothing new */
        snprintf(agent->why, sizeof(agent->why), "%s", event->news.why);
    switch (event->kind) {
    case TRII_RDZV_JOINED:
        trii_free(event->round.agents);
        agent->round = event->round.number;
        agent->rank = event->round.group_rank;
        agent->size = event->round.group_size;
        agent->world_size = event->round.world_size;
        agent->rounds++;
        agent->state = SIM_RUNNING;
        break;
    case TRII_RDZV_AGAIN:
        if (!event->alone && agent->state == SIM_RUNNING)
            sim_tell(job, agent, &event->news);
        if (agent->state == SIM_RUNNING || agent->state == SIM_FINISHING)
            sim_stop_workers(agent);
        break;
    case TRII_RDZV_FINISHED:
        sim_tell(job, agent, &(trii_rdzv_news){.finished = true, .gone = -1});
        agent->state = SIM_SUCCEEDED;
        trii_rendezvous_close(agent->rdzv);
        break;
    case TRII_RDZV_LEFT:
        sim_end_agent(agent, agent->state == SIM_LEAVING ? SIM_OUT : agent->state);
        break;
    case TRII_RDZV_ENDED:
    case TRII_RDZV_UNNEEDED:
    case TRII_RDZV_FAILED:
        agent->state = SIM_FAILED;
        trii_rendezvous_leave(agent->rdzv);
        break;
    case TRII_RDZV_NOTHING:
    case TRII_RDZV_NOTE:
        break;
    }
}

/* Those that were in its round see it, each at a moment of its own. */
static inline void sim_see_death(sim_job *job, sim_agent *gone)
{
    for (int i = 0; i < job->n; i++) {
        sim_agent *agent = &job->agents[i];
        trii_rdzv_agent known[2] = {0};
        trii_rdzv_round round = {.number = gone->round};
        const trii_rdzv_news news = {.gone = gone->rank, .why = "its agent is gone"};

        if (agent->rdzv == NULL || agent->round != gone->round || agent->state != SIM_RUNNING)
            continue;
        known[0] = sim_known(gone);
        round.agents = known - gone->rank; /* only its own is looked at */
        trii_rendezvous_lost(agent->rdzv, &round, &news);
    }
    gone->died_ns = INT64_MAX;
}

static inline void sim_tick(sim_job *job)
{
    int64_t now = sim_now();

    for (int i = 0; i < job->n; i++) {
        sim_agent *agent = &job->agents[i];

        while (agent->rdzv != NULL && agent->rdzv->events != NULL) {
            trii_rdzv_event event;

            trii_rendezvous_next(agent->rdzv, &event);
            sim_take_event(job, agent, &event);
        }
        if (agent->start_ns > 0 && now >= agent->start_ns && agent->rdzv == NULL)
            sim_start_agent(job, agent);
        if (agent->state == SIM_STOPPING && now >= agent->stopped_ns) {
            agent->state = SIM_JOINING;
            trii_rendezvous_join(agent->rdzv, 2000 + agent->id, 0);
        }
        if (job->peers && agent->died_ns > 0 && agent->died_ns < now - SIM_SEEN_MS * TRII_NS_PER_MS)
            sim_see_death(job, agent);
    }
}

static inline void sim_run_ms(sim_job *job, int64_t ms)
{
    int64_t until = sim_now() + ms * TRII_NS_PER_MS;

    while (sim_now() < until) {
        sim_tick(job);
        sim_sleep_ms(SIM_TICK_MS);
    }
}

/* --- what must be so ------------------------------------------------------ */

static inline int sim_count(const sim_job *job, sim_state state)
{
    int n = 0;

    for (int i = 0; i < job->n; i++)
        n += job->agents[i].state == state;
    return n;
}

/* All that run are in one round, each with a rank of its own. */
static inline bool sim_is_one_round(const sim_job *job)
{
    const sim_agent *first = NULL;
    bool *taken = calloc((size_t)job->n + 1, 1), good = taken != NULL;
    int n = sim_count(job, SIM_RUNNING);

    for (int i = 0; i < job->n && good; i++) {
        const sim_agent *agent = &job->agents[i];

        if (agent->state != SIM_RUNNING)
            continue;
        first = first != NULL ? first : agent;
        good = agent->round == first->round && agent->size == n && agent->world_size == 2 * n &&
               agent->rank >= 0 && agent->rank < n && !taken[agent->rank];
        if (good)
            taken[agent->rank] = true;
    }
    free(taken);
    return good;
}

/* Until n agents run, in one round: within so long. */
static inline void sim_await_round(sim_job *job, int n, int64_t ms)
{
    int64_t until = sim_now() + ms * TRII_NS_PER_MS;

    while (sim_count(job, SIM_RUNNING) != n || !sim_is_one_round(job)) {
        if (sim_now() >= until) {
            for (int i = 0; i < job->n; i++)
                fprintf(stderr, "  agent %d: state %d round %lld rank %d of %d: %s\n", i,
                        job->agents[i].state, (long long)job->agents[i].round, job->agents[i].rank,
                        job->agents[i].size, job->agents[i].why);
            fail_msg("seed %llu: after %lld ms not %d agents in one round, but %d",
                     (unsigned long long)sim.seed, (long long)ms, n, sim_count(job, SIM_RUNNING));
        }
        sim_run_ms(job, 100);
    }
}

static inline void sim_job_begin(sim_job *job, uint64_t seed, int n, int min, int max)
{
    *job = (sim_job){.agents = calloc((size_t)n, sizeof(*job->agents)),
                     .n = n,
                     .min = min,
                     .max = max,
                     .conf = "",
                     .led = true,
                     .trace = 1};
    assert_non_null(job->agents);
    sim_begin(seed);
    sim_shared.requests = sim_shared.bytes = sim_shared.ended_waits = 0;
    CHECK_OK(trii_kv_create(&sim_shared.kv));
    for (int i = 0; i < n; i++)
        job->agents[i].id = i;
}

/* Agents start at moments of the next ms milliseconds. */
static inline void sim_start_within(sim_job *job, int from, int to, int64_t ms)
{
    for (int i = from; i < to; i++)
        job->agents[i].start_ns =
            sim_now() + 1 + (int64_t)sim_random((uint64_t)ms) * TRII_NS_PER_MS;
    if (from == 0 && job->led) {
        job->agents[0].start_ns = sim_now();
        sim_run_ms(job, SIM_TICK_MS);
    }
}

static inline void sim_job_end(sim_job *job)
{
    for (int i = 0; i < job->n; i++)
        sim_end_agent(&job->agents[i], SIM_OUT);
    sim_end();
    if (!job->led) /* torchrun's agent serves */
        assert_int_equal(sim_shared.ended_waits, 0);
    trii_kv_destroy(sim_shared.kv);
    free(job->agents);
}

/* Each scenario runs with some seeds; a failure names the one. */
#define FOR_SEEDS(n) for (uint64_t seed = 1; seed <= seeds(n); seed++)

/* TRI_SIM_SEEDS: so many of each. */
static inline uint64_t seeds(uint64_t n)
{
    const char *text = getenv("TRI_SIM_SEEDS");

    return text != NULL ? strtoull(text, NULL, 10) : n;
}

#endif
