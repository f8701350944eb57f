/*
 * rpc_batch_rl.c - PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous
 * Executions", its second part: an agent that decides for all of its observers together, once the
 * last of them has asked.
 *
 *     python reinforce.py                becomes  build/bin/rpc_batch_rl
 *
 * The agent plays ten episodes like that, and then ten in which it decides for each observer alone.
 * The last line has the number of processes and both times. All of it is done with two processes,
 * and again with three, unless an argument says how many:
 *
 *     build/bin/rpc_batch_rl [WORLD_SIZE [EPISODES]]
 *
 * A launcher that starts the processes decides how many there are:
 *
 *     trirun --nproc_per_node=3 build/bin/rpc_batch_rl
 *     torchrun --no-python --nproc_per_node=3 build/bin/rpc_batch_rl
 *     mpirun -np 3 build/bin/rpc_batch_rl
 */
#include <string.h>
#include <time.h>

#include <trireme/rpc.h>
#include <trireme/trireme.h>

#include "../command_line.h"
#include "cart_pole.h"

enum { NUM_STEPS = MAX_STEPS, SEED = 543 };

static int64_t world_size, n_episodes = 10;

/* --- the agent ------------------------------------------------------------ */

typedef struct agent {
    tri_rpc_ref *self, *observers[MAX_OBSERVERS];
    trajectory *trajectories[MAX_OBSERVERS];
    int n;
    bool batch;
    policy policy; /* for n states at a time, or for one */
    float states[MAX_OBSERVERS][4];
    tri_rpc_request *waiting[MAX_OBSERVERS]; /* for the others' states */
    int n_waiting;
    double running_reward;
} agent;

typedef struct observation {
    int id; /* of the observer, from 0 */
    float state[4];
} observation;

static tri_status read_observation(const agent *self, tri_rpc_request *request, observation *o)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    if (in->bytes == sizeof(*o))
        memcpy(o, in->data, sizeof(*o));
    if (in->bytes != sizeof(*o) || o->id < 0 || o->id >= self->n ||
        self->trajectories[o->id]->n == MAX_STEPS)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "this is not an observer's state");
    return TRI_OK;
}

static tri_status reply_action(const agent *self, int id, tri_rpc_request *request)
{
    const trajectory *t = self->trajectories[id];

    return tri_rpc_reply(
        request, &(tri_rpc_message){.data = &t->actions[t->n - 1], .bytes = sizeof(t->actions[0])});
}

static tri_status agent_select_action(tri_rpc_request *request, void *object)
{
    agent *self = object;
    observation o;
    tri_status status = read_observation(self, request, &o);

    if (status != TRI_OK)
        return status;
    policy_decide(&self->policy, &self->trajectories[o.id], o.state);
    return reply_action(self, o.id, request);
}

/* Only the last one of a round computes; no thread waits for it. */
static tri_status agent_select_action_batch(tri_rpc_request *request, void *object)
{
    agent *self = object;
    observation o;
    tri_status status = read_observation(self, request, &o);

    if (status != TRI_OK)
        return status;
    memcpy(self->states[o.id], o.state, sizeof(o.state));
    self->waiting[o.id] = request;
    if (++self->n_waiting < self->n)
        return TRI_INPROGRESS; /* kept, until it is answered below */
    self->n_waiting = 0;
    policy_decide(&self->policy, self->trajectories, self->states[0]);
    for (int i = 0; i < self->n && status == TRI_OK; i++)
        status = reply_action(self, i, self->waiting[i]);
    return status;
}

static const tri_rpc_function select_action = {.name = "Agent.select_action",
                                               .run = agent_select_action};
static const tri_rpc_function select_action_batch = {.name = "Agent.select_action_batch",
                                                     .run = agent_select_action_batch};
static const tri_rpc_object agent_class = {.name = "Agent", .serial = true};

/* --- an observer ---------------------------------------------------------- */

typedef struct observer {
    int id;
    cart_pole env;
    const tri_rpc_function *select_action;
} observer;

typedef struct episode {
    float rewards[NUM_STEPS]; /* with those that came after them until the pole fell */
    int first;                /* steps until it fell for the first time */
} episode;

/* NUM_STEPS steps: where the pole falls, the next one stands up at once. */
static tri_status observer_run_episode(tri_rpc_request *request, void *object)
{
    observer *self = object;
    const tri_rpc_message *in = tri_rpc_request_message(request);
    observation o = {.id = self->id};
    episode e = {.first = NUM_STEPS};
    int start = 0;

    if (in->n_refs != 1)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "a reference to the agent is missing");
    cart_pole_reset(&self->env, o.state);
    for (int step = 0; step < NUM_STEPS; step++) {
        tri_rpc_message reply;
        bool done;
        tri_status status =
            tri_rpc_sync(in->refs[0], self->select_action,
                         &(tri_rpc_message){.data = &o, .bytes = sizeof(o)}, NULL, &reply);

        if (status != TRI_OK)
            return status;
        done = cart_pole_step(&self->env, *(const int64_t *)reply.data == 1, o.state);
        tri_rpc_message_free(&reply);
        if (!done && step + 1 < NUM_STEPS)
            continue;
        for (int i = step; i >= start; i--) /* gamma is 1 */
            e.rewards[i] = (float)(step - i + 1);
        e.first = start == 0 ? step + 1 : e.first;
        start = step + 1;
        cart_pole_reset(&self->env, o.state);
    }
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &e, .bytes = sizeof(e)});
}
static const tri_rpc_function run_episode = {.name = "Observer.run_episode",
                                             .run = observer_run_episode};
static const tri_rpc_object observer_class = {.name = "Observer", .release = free};

/* Makes an observer here, and hands out the only reference to it. Data: whether to batch. */
static tri_status observer_new(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    observer *self = calloc(1, sizeof(*self));

    (void)object;
    if (self == NULL || in->bytes != sizeof(bool)) {
        free(self);
        return tri_status_fail(TRI_ERR_INVALID_ARG, "an observer cannot be made");
    }
    self->id = tri_rank() - 1;
    self->env.random = SEED + (uint64_t)tri_rank();
    self->select_action = *(const bool *)in->data ? &select_action_batch : &select_action;
    return reply_object(request, &observer_class, self);
}
static const tri_rpc_function new_observer = {.name = "Observer", .run = observer_new};

/* --- episodes ------------------------------------------------------------- */

static void agent_begin(agent *self, bool batch)
{
    const tri_rpc_message message = {.data = &batch, .bytes = sizeof(batch)};

    memset(self, 0, sizeof(*self));
    self->n = tri_world_size() - 1;
    self->batch = batch;
    self->policy = policy_create(batch ? self->n : 1);
    TRI_TRY(tri_rpc_own(NULL, NULL, &agent_class, self, &self->self));
    for (int i = 0; i < self->n; i++) {
        char name[32];
        tri_rpc_ref *worker;

        self->trajectories[i] = calloc(1, sizeof(*self->trajectories[i]));
        if (self->trajectories[i] == NULL)
            exit(1);
        self->trajectories[i]->random = SEED * UINT64_C(1000) + (uint64_t)i;
        snprintf(name, sizeof(name), "observer%d", i + 1);
        TRI_TRY(tri_rpc_find(NULL, name, &worker));
        TRI_TRY(tri_rpc_remote(worker, &new_observer, &message, NULL, &self->observers[i]));
        tri_rpc_ref_unref(worker);
    }
}

/* As soon as one fails: if an observer is lost, the others wait for a decision that is not made
 * without it. */
static void wait_for_all(tri_rpc_call *const *calls, int n)
{
    tri_rpc_call *open[MAX_OBSERVERS];

    memcpy(open, calls, (size_t)n * sizeof(*open));
    for (int k = 0; k < n; k++) {
        int ended = 0;

        TRI_TRY(tri_rpc_wait_any(open, n, 0, &ended));
        TRI_TRY(tri_rpc_call_test(open[ended]));
        open[ended] = NULL;
    }
}

/* Returns the mean of the rewards. */
static double agent_run_episode(agent *self)
{
    const tri_rpc_message message = {.refs = &self->self, .n_refs = 1};
    tri_rpc_call *calls[MAX_OBSERVERS];
    double reward = 0;

    for (int i = 0; i < self->n; i++)
        TRI_TRY(tri_rpc_async(self->observers[i], &run_episode, &message, NULL, &calls[i]));
    wait_for_all(calls, self->n);
    for (int i = 0; i < self->n; i++) {
        tri_rpc_message reply;
        const episode *e;

        TRI_TRY(tri_rpc_call_take_reply(calls[i], &reply));
        e = reply.data;
        reward += (double)e->first / self->n;
        for (int k = 0; k < NUM_STEPS; k++)
            self->trajectories[i]->worth[k] = e->rewards[k] / (float)self->n;
        tri_rpc_message_free(&reply);
        tri_rpc_call_destroy(calls[i]);
    }
    policy_learn(&self->policy, self->trajectories, self->n);
    self->running_reward = 0.5 * reward + 0.5 * self->running_reward;
    return reward;
}

static void agent_end(const agent *self)
{
    for (int i = 0; i < self->n; i++) {
        tri_rpc_ref_unref(self->observers[i]);
        free(self->trajectories[i]);
    }
    tri_rpc_ref_unref(self->self);
    policy_destroy(&self->policy);
}

/* All episodes; returns how long they took, in seconds. */
static double run_episodes(bool batch)
{
    static agent self;
    struct timespec began, ended;

    timespec_get(&began, TIME_UTC);
    tri_manual_seed(SEED);
    agent_begin(&self, batch);
    for (int64_t i_episode = 0; i_episode < n_episodes; i_episode++) {
        const double last_reward = agent_run_episode(&self);

        printf("Episode %lld\tLast reward: %.2f\tAverage reward: %.2f\n", (long long)i_episode,
               last_reward, self.running_reward);
    }
    agent_end(&self);
    timespec_get(&ended, TIME_UTC);
    return (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9;
}

static void run_agent(void)
{
    const double batched = run_episodes(true), unbatched = run_episodes(false);

    printf("%d, %g, %g\n", tri_world_size(), batched, unbatched);
}

/* --- processes ------------------------------------------------------------ */

static tri_status run_worker(int rank, void *arg)
{
    static const tri_rpc_function *const of_agent[] = {&select_action, &select_action_batch};
    static const tri_rpc_function *const of_observer[] = {&new_observer, &run_episode};

    (void)rank;
    (void)arg;
    return run_agent_or_observer(&(tri_rpc_options){.functions = of_agent, .n_functions = 2},
                                 run_agent,
                                 &(tri_rpc_options){.functions = of_observer, .n_functions = 2});
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"WORLD_SIZE", .help = "without a launcher (2, then 3)", .integer = &world_size, .min = 2,
         .max = MAX_OBSERVERS + 1},
        {"EPISODES", .help = "(10)", .integer = &n_episodes, .min = 1}};

    options_parse(argc, argv, "usage: rpc_batch_rl [WORLD_SIZE [EPISODES]]", options);
}

/* Starts the workers, unless a launcher has done so: then this is one of them. */
static void start(void)
{
    if (strcmp(tri_launcher(), "none") != 0) {
        TRI_TRY(run_worker(0, NULL));
        return;
    }
    for (int64_t n = world_size > 0 ? world_size : 2; n <= (world_size > 0 ? world_size : 3); n++)
        TRI_TRY(tri_spawn(run_worker, NULL, (int)n, NULL));
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    start();
    return 0;
}
