/*
 * rpc_rl.c - PyTorch's tutorial "Getting Started with Distributed RPC Framework", its first part:
 * reinforcement learning by an agent that has the policy, and observers that have an environment
 * each.
 *
 *     python main.py                     becomes  build/bin/rpc_rl
 *     python main.py --world-size=4      becomes  build/bin/rpc_rl --world-size=4
 *
 * The world size counts the agent, too. --gamma, --seed and --log-interval are the original's;
 * --episodes ends the training before the task is solved. A launcher that starts the processes
 * decides how many there are:
 *
 *     trirun --nproc_per_node=4 build/bin/rpc_rl
 *     torchrun --no-python --nproc_per_node=4 build/bin/rpc_rl
 *     mpirun -np 4 build/bin/rpc_rl
 */
#include <float.h>
#include <string.h>

#include <trireme/rpc.h>
#include <trireme/trireme.h>

#include "../command_line.h"
#include "cart_pole.h"

enum { TOTAL_EPISODE_STEP = 5000 };

typedef struct settings {
    int64_t world_size, seed, log_interval, episodes;
    double gamma;
} settings;

static settings args = {.world_size = 2, .gamma = 0.99, .seed = 543, .log_interval = 10};

/* What came with a request must be of the size that its function takes. */
static tri_status read_request(tri_rpc_request *request, void *to, size_t bytes)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    if (in->bytes != bytes)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "%zu bytes instead of %zu", in->bytes, bytes);
    memcpy(to, in->data, bytes);
    return TRI_OK;
}

/* --- the agent ------------------------------------------------------------ */

typedef struct agent {
    tri_rpc_ref *self, *observers[MAX_OBSERVERS];
    trajectory *trajectories[MAX_OBSERVERS];
    int n;
    policy policy;
    double running_reward;
} agent;

typedef struct observation {
    int id; /* of the observer, from 0 */
    float state[4];
    float reward;
} observation;

static tri_status read_observation(const agent *self, tri_rpc_request *request, observation *o)
{
    tri_status status = read_request(request, o, sizeof(*o));

    if (status == TRI_OK && (o->id < 0 || o->id >= self->n))
        status = tri_status_fail(TRI_ERR_INVALID_ARG, "observer %d is out of range (%d of them)",
                                 o->id, self->n);
    return status;
}

static tri_status agent_select_action(tri_rpc_request *request, void *object)
{
    agent *self = object;
    observation o;
    trajectory *t;
    tri_status status = read_observation(self, request, &o);

    if (status != TRI_OK)
        return status; /* the observer gets this line */
    t = self->trajectories[o.id];
    if (t->n == MAX_STEPS)
        return tri_status_fail(TRI_ERR_STATE, "an episode has at most %d steps", MAX_STEPS);
    policy_decide(&self->policy, &t, o.state);
    return tri_rpc_reply(
        request, &(tri_rpc_message){.data = &t->actions[t->n - 1], .bytes = sizeof(int64_t)});
}
static const tri_rpc_function select_action = {.name = "Agent.select_action",
                                               .run = agent_select_action};

static tri_status agent_report_reward(tri_rpc_request *request, void *object)
{
    agent *self = object;
    observation o;
    tri_status status = read_observation(self, request, &o);

    if (status == TRI_OK && self->trajectories[o.id]->n > 0)
        self->trajectories[o.id]->worth[self->trajectories[o.id]->n - 1] = o.reward;
    return status; /* OK: an empty reply is sent */
}
/* So little that the thread which receives it does it. */
static const tri_rpc_function report_reward = {
    .name = "Agent.report_reward", .flags = TRI_RPC_INLINE, .run = agent_report_reward};

/* One request at a time, whichever threads they are run by: nothing in it needs a lock. */
static const tri_rpc_object agent_class = {.name = "Agent", .serial = true};

/* --- the observer --------------------------------------------------------- */

typedef struct observer {
    int id;
    cart_pole env;
} observer;

static tri_status observer_run_episode(tri_rpc_request *request, void *object)
{
    observer *self = object;
    const tri_rpc_message *in = tri_rpc_request_message(request);
    observation o = {.id = self->id, .reward = 1};
    int n_steps = 0;
    bool done = false;
    tri_status status = read_request(request, &n_steps, sizeof(n_steps));

    if (status == TRI_OK && in->n_refs != 1)
        status = tri_status_fail(TRI_ERR_INVALID_ARG, "a reference to the agent is missing");
    cart_pole_reset(&self->env, o.state);
    for (int step = 0; step < n_steps && !done && status == TRI_OK; step++) {
        const tri_rpc_message message = {.data = &o, .bytes = sizeof(o)};
        tri_rpc_message reply;

        status = tri_rpc_sync(in->refs[0], &select_action, &message, NULL, &reply);
        if (status != TRI_OK)
            break;
        done = cart_pole_step(&self->env, *(const int64_t *)reply.data == 1, o.state);
        tri_rpc_message_free(&reply);
        status = tri_rpc_sync(in->refs[0], &report_reward, &message, NULL, NULL);
    }
    return status;
}
static const tri_rpc_function run_episode = {.name = "Observer.run_episode",
                                             .run = observer_run_episode};

static const tri_rpc_object observer_class = {.name = "Observer", .release = free};

/* Makes an observer here, and hands out the only reference to it. */
static tri_status observer_new(tri_rpc_request *request, void *object)
{
    observer *self = calloc(1, sizeof(*self));

    (void)object;
    if (self == NULL)
        return tri_status_fail(TRI_ERR_NO_MEMORY, "an observer");
    self->id = tri_rank() - 1;
    self->env.random = (uint64_t)args.seed + (uint64_t)tri_rank();
    return reply_object(request, &observer_class, self);
}
static const tri_rpc_function new_observer = {.name = "Observer", .run = observer_new};

/* --- episodes ------------------------------------------------------------- */

static void agent_begin(agent *self)
{
    self->n = tri_world_size() - 1;
    self->policy = policy_create(1);
    TRI_TRY(tri_rpc_own(NULL, NULL, &agent_class, self, &self->self));
    for (int i = 0; i < self->n; i++) {
        char name[32];
        tri_rpc_ref *worker;

        self->trajectories[i] = calloc(1, sizeof(*self->trajectories[i]));
        if (self->trajectories[i] == NULL)
            exit(1);
        self->trajectories[i]->random = (uint64_t)args.seed + (uint64_t)i;
        snprintf(name, sizeof(name), "observer%d", i + 1);
        TRI_TRY(tri_rpc_find(NULL, name, &worker));
        TRI_TRY(tri_rpc_remote(worker, &new_observer, NULL, NULL, &self->observers[i]));
        tri_rpc_ref_unref(worker);
    }
}

static void agent_run_episode(agent *self, int n_steps)
{
    const tri_rpc_message message = {
        .data = &n_steps, .bytes = sizeof(n_steps), .refs = &self->self, .n_refs = 1};
    tri_rpc_call *calls[MAX_OBSERVERS];

    for (int i = 0; i < self->n; i++)
        TRI_TRY(tri_rpc_async(self->observers[i], &run_episode, &message, NULL, &calls[i]));
    for (int i = 0; i < self->n; i++) {
        TRI_TRY(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
}

/* Learns from what all have seen; returns the smallest reward. */
static double agent_finish_episode(agent *self)
{
    double least = INFINITY, sum = 0, squares = 0, mean, std;
    int n = 0;

    for (int i = 0; i < self->n; i++) {
        float *worth = self->trajectories[i]->worth; /* rewards, so far */
        double R = 0, reward = 0;

        for (int k = self->trajectories[i]->n - 1; k >= 0; k--) {
            reward += (double)worth[k];
            R = (double)worth[k] + args.gamma * R;
            worth[k] = (float)R; /* with all that came after it */
            sum += R, squares += R * R, n++;
        }
        least = reward < least ? reward : least;
    }
    mean = sum / n;
    std = sqrt((squares - sum * mean) / (n - 1));
    for (int i = 0; i < self->n; i++) {
        trajectory *t = self->trajectories[i];

        for (int k = 0; k < t->n; k++)
            t->worth[k] = (float)(((double)t->worth[k] - mean) / (std + (double)FLT_EPSILON));
    }
    policy_learn(&self->policy, self->trajectories, self->n);
    self->running_reward = 0.05 * least + (1 - 0.05) * self->running_reward;
    return least;
}

static void run_agent(void)
{
    const double reward_threshold = 475;
    static agent self;

    tri_manual_seed((uint64_t)args.seed);
    agent_begin(&self);
    for (int64_t i_episode = 1;; i_episode++) {
        double last_reward;

        agent_run_episode(&self, TOTAL_EPISODE_STEP / self.n);
        last_reward = agent_finish_episode(&self);
        if (i_episode % args.log_interval == 0)
            printf("Episode %lld\tLast reward: %.2f\tAverage reward: %.2f\n", (long long)i_episode,
                   last_reward, self.running_reward);
        if (self.running_reward > reward_threshold)
            printf("Solved! Running reward is now %.13f!\n", self.running_reward);
        if (self.running_reward > reward_threshold || i_episode == args.episodes)
            break;
    }
    for (int i = 0; i < self.n; i++) {
        tri_rpc_ref_unref(self.observers[i]);
        free(self.trajectories[i]);
    }
    tri_rpc_ref_unref(self.self);
    policy_destroy(&self.policy);
}

/* --- processes ------------------------------------------------------------ */

static tri_status run_worker(int rank, void *arg)
{
    static const tri_rpc_function *const of_agent[] = {&select_action, &report_reward};
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
        {"--world-size", NULL, "an agent and its observers (2)", .integer = &args.world_size,
         .min = 2, .max = MAX_OBSERVERS + 1},
        {"--gamma", NULL, "what a later reward counts (0.99)", .number = &args.gamma},
        {"--seed", NULL, "(543)", .integer = &args.seed},
        {"--log-interval", NULL, "episodes from line to line (10)", .integer = &args.log_interval,
         .min = 1},
        {"--episodes", NULL, "at most; else until it is solved", .integer = &args.episodes,
         .min = 1}};

    options_parse(argc, argv, "usage: rpc_rl [options]", options);
}

/* Starts the workers, unless a launcher has done so: then this is one of them. */
static tri_status start(tri_status (*run)(int rank, void *arg), int world_size)
{
    return strcmp(tri_launcher(), "none") == 0 ? tri_spawn(run, NULL, world_size, NULL)
                                               : run(0, NULL);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    TRI_TRY(start(run_worker, (int)args.world_size));
    return 0;
}
