/*
 * cart_pole.h - a pole on a cart, a policy that learns to balance it, and the processes of both:
 * what rpc_rl.c and rpc_batch_rl.c have in common.
 *
 * The environment is Gym's CartPole-v1 (Barto, Sutton and Anderson 1983), the policy that of
 * PyTorch's examples of reinforcement learning. Theirs keep the graph of every decision until the
 * episode is over; here a decision keeps what it was made of, which units dropout had left
 * included, and one forward pass at the end computes the probabilities of all of them again.
 */
#ifndef EXAMPLES_CART_POLE_H
#define EXAMPLES_CART_POLE_H

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/rpc.h>
#include <trireme/trireme.h>

enum { MAX_STEPS = 500, HIDDEN = 128, MAX_OBSERVERS = 32 };

/* Uniform in [0, 1); splitmix64, so that a seed gives the same numbers everywhere. */
static inline double random_unit(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* --- the environment ------------------------------------------------------ */

typedef struct cart_pole {
    double x, x_dot, theta, theta_dot; /* m, m/s, rad, rad/s */
    int steps;
    uint64_t random;
} cart_pole;

static inline void cart_pole_look(const cart_pole *c, float state[4])
{
    state[0] = (float)c->x, state[1] = (float)c->x_dot;
    state[2] = (float)c->theta, state[3] = (float)c->theta_dot;
}

static inline void cart_pole_reset(cart_pole *c, float state[4])
{
    c->x = random_unit(&c->random) * 0.1 - 0.05;
    c->x_dot = random_unit(&c->random) * 0.1 - 0.05;
    c->theta = random_unit(&c->random) * 0.1 - 0.05;
    c->theta_dot = random_unit(&c->random) * 0.1 - 0.05;
    c->steps = 0;
    cart_pole_look(c, state);
}

/* Pushes to the right (1) or to the left (0) for a fiftieth of a second, which is worth a reward of
 * 1. True: the pole has fallen, the cart has left its track, or 500 steps are over. */
static inline bool cart_pole_step(cart_pole *c, int action, float state[4])
{
    const double gravity = 9.8, cart = 1.0, pole = 0.1, total = cart + pole, half_length = 0.5;
    const double force = action == 1 ? 10 : -10, tau = 0.02, limit = 12 * 3.14159265358979 / 180;
    const double cosine = cos(c->theta), sine = sin(c->theta);
    const double push = (force + pole * half_length * c->theta_dot * c->theta_dot * sine) / total;
    const double theta_acc = (gravity * sine - cosine * push) /
                             (half_length * (4.0 / 3.0 - pole * cosine * cosine / total));
    const double x_acc = push - pole * half_length * theta_acc * cosine / total;

    c->x += tau * c->x_dot, c->x_dot += tau * x_acc;
    c->theta += tau * c->theta_dot, c->theta_dot += tau * theta_acc;
    c->steps++;
    cart_pole_look(c, state);
    return fabs(c->x) > 2.4 || fabs(c->theta) > limit || c->steps == MAX_STEPS;
}

/* --- the policy ----------------------------------------------------------- */

/* What one observer has seen and been told since the policy learned last. */
typedef struct trajectory {
    int n; /* decisions; what comes after them is 0 */
    float states[MAX_STEPS][4];
    float kept[MAX_STEPS][HIDDEN]; /* dropout: what each hidden unit was multiplied by */
    int64_t actions[MAX_STEPS];
    float worth[MAX_STEPS]; /* of the action, when the episode is over */
    uint64_t random;        /* its own, so that no other observer changes what it is told */
} trajectory;

typedef struct policy {
    tri_module *affine1, *affine2;
    tri_optimizer *optimizer;
    int n;                     /* decisions at a time */
    tri_tensor *states, *kept; /* of these: [n, 4], [n, HIDDEN] */
} policy;

static inline policy policy_create(int n)
{
    policy p = {.n = n};

    p.affine1 = tri_nn_linear(4, HIDDEN, NULL);
    p.affine2 = tri_nn_linear(HIDDEN, 2, NULL); /* 898 parameters in all */
    p.optimizer =
        tri_adam_of((tri_param_group[]){{.model = p.affine1}, {.model = p.affine2}}, 2, 1e-2, NULL);
    p.states = tri_tensor_create(TRI_SHAPE(n, 4), TRI_DTYPE_F32);
    p.kept = tri_tensor_create(TRI_SHAPE(n, HIDDEN), TRI_DTYPE_F32);
    return p;
}

static inline void policy_destroy(const policy *p)
{
    tri_tensor_unref(p->states);
    tri_tensor_unref(p->kept);
    tri_optimizer_destroy(p->optimizer);
    tri_module_destroy(p->affine1);
    tri_module_destroy(p->affine2);
}

/* The probabilities of both actions, [n, 2]. */
static inline tri_tensor *policy_forward(const policy *p, tri_tensor *states, tri_tensor *kept)
{
    tri_tensor *hidden = tri_relu(tri_mul(tri_forward(p->affine1, states), kept));

    return tri_softmax(tri_forward(p->affine2, hidden), 1);
}

/* Draws the next action of each trajectory, of as many as it decides for at a time; states[n][4].
 */
static inline void policy_decide(const policy *p, trajectory *const *t, const float *states)
{
    enum { MOST = 32 };
    const double dropout = 0.6;
    float kept[MOST][HIDDEN];
    tri_tensor *both;
    const float *probabilities;

    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < HIDDEN; k++)
            kept[i][k] = random_unit(&t[i]->random) < dropout ? 0 : (float)(1 / (1 - dropout));
    }
    TRI_TRY(tri_tensor_copy_in(p->states, states, (size_t)p->n * 4 * sizeof(*states)));
    TRI_TRY(tri_tensor_copy_in(p->kept, kept, (size_t)p->n * sizeof(*kept)));
    tri_no_grad_begin();
    both = policy_forward(p, p->states, p->kept);
    tri_no_grad_end();
    probabilities = tri_data(both); /* runs it */
    if (probabilities == NULL)
        TRI_TRY(tri_tensor_status(both));
    for (int i = 0; i < p->n; i++) {
        const int at = t[i]->n++;

        memcpy(t[i]->states[at], &states[4 * i], 4 * sizeof(*states));
        memcpy(t[i]->kept[at], kept[i], sizeof(*kept));
        t[i]->actions[at] = random_unit(&t[i]->random) >= (double)probabilities[2 * i];
    }
    tri_step_end();
}

/* Makes actions more probable that were worth much; the trajectories begin again. */
static inline void policy_learn(const policy *p, trajectory *const *t, int n)
{
    tri_tensor *loss = tri_zeros(NULL, 0, TRI_DTYPE_F32);

    for (int i = 0; i < n; i++) {
        tri_tensor *in[4] = {
            tri_tensor_from(TRI_SHAPE(MAX_STEPS, 4), TRI_DTYPE_F32, t[i]->states),
            tri_tensor_from(TRI_SHAPE(MAX_STEPS, HIDDEN), TRI_DTYPE_F32, t[i]->kept),
            tri_tensor_from(TRI_SHAPE(MAX_STEPS, 1), TRI_DTYPE_I64, t[i]->actions),
            tri_tensor_from(TRI_SHAPE(MAX_STEPS, 1), TRI_DTYPE_F32, t[i]->worth)};
        tri_tensor *chosen = tri_gather_along(policy_forward(p, in[0], in[1]), 1, in[2]);

        loss = tri_sub(loss, tri_sum(tri_mul(tri_log(chosen), in[3]), NULL, 0, false));
        for (int k = 0; k < 4; k++)
            tri_tensor_unref(in[k]); /* the step still holds them */
        memset(t[i], 0, offsetof(trajectory, random));
    }
    tri_backward(loss);
    TRI_TRY(tri_optimizer_step(p->optimizer));
    tri_step_end();
}

/* --- processes ------------------------------------------------------------ */

/* Replies with a reference to the object, which is from malloc: it lives until the caller releases
 * that reference. */
static inline tri_status reply_object(tri_rpc_request *request, const tri_rpc_object *cls,
                                      void *object)
{
    tri_rpc_ref *ref = NULL;
    tri_status status = tri_rpc_own(NULL, NULL, cls, object, &ref);

    if (status != TRI_OK) {
        free(object);
        return status;
    }
    status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref); /* the caller has its own now */
    return status;
}

/* Rank 0 is the worker "agent", the others are "observer1" and so on, who passively wait for
 * instructions. */
static inline tri_status run_agent_or_observer(const tri_rpc_options *of_agent,
                                               void (*run_agent)(void),
                                               const tri_rpc_options *of_observer)
{
    TRI_TRY(tri_init(NULL)); /* the names depend on the rank */
    if (tri_world_size() < 2 || tri_world_size() > MAX_OBSERVERS + 1)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "an agent and 1 to %d observers are needed",
                               MAX_OBSERVERS);
    if (tri_rank() == 0) {
        TRI_TRY(tri_rpc_init("agent", of_agent));
        run_agent();
    } else {
        char name[32];

        snprintf(name, sizeof(name), "observer%d", tri_rank());
        TRI_TRY(tri_rpc_init(name, of_observer));
    }
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
    tri_finalize();
    return TRI_OK;
}

#endif
