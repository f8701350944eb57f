/* guarded_ranks_test.c - ranks whose models lie on devices with memory that the host may not touch:
 * what they communicate has the bits of the cpu, its gradients too, and DDP trains there as it does
 * on the cpu. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/guarded.h"
#include "testing/ranks.h"
#include "train/traffic/traffic.h"

static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};

static tri_status group_of(rank_env *env, tri_group **group_out)
{
    return tri_group_create(env->store, env->rank, env->size, env->options, group_out);
}

/* Where a rank's tensors lie: nowhere else than on the host, each on a device of its own, only some
 * there, or of each rank some on two devices. */
typedef enum where { ON_HOST, ON_DEVICES, ON_BOTH, SPLIT } where;

static tri_device device_of(where w, int rank)
{
    return w == ON_HOST || (w == ON_BOTH && rank % 2 == 1) ? TRI_CPU(0) : TRI_CUDA(rank % 2);
}

/* Of the second half of a model. */
static tri_device second_device_of(where w, int rank)
{
    return w != SPLIT ? device_of(w, rank) : rank == 0 ? TRI_CUDA(1) : TRI_CPU(0);
}

/* --- collectives and messages --------------------------------------------- */

#define CALLS 6
#define MOST 20011

/* *token_out: of a message, through which the backward pass goes; else NO_VALUE. */
static tri_status record(rank_env *env, tri_group *group, int call, trii_vid x, trii_vid *out,
                         trii_vid *token_out)
{
    trii_step *step = trii_step_current();
    int next = (env->rank + 1) % env->size, last = (env->rank + env->size - 1) % env->size;
    trii_type type = step->values[x].type;
    tri_status status;

    *token_out = TRII_NO_VALUE;
    switch (call) {
    case 0:
        return trii_record_all_reduce(step, group, x, TRI_REDOP_SUM, out);
    case 1:
        return trii_record_all_reduce(step, group, x, TRI_REDOP_AVG, out);
    case 2:
        return trii_record_all_gather(step, group, x, out);
    case 3:
        return trii_record_reduce_scatter(step, group, x, TRI_REDOP_AVG, out);
    case 4:
        return trii_record_all_to_all(step, group, x, out);
    default:
        status = trii_record_send(step, group, x, next, 3, token_out);
        return status == TRI_OK ? trii_record_recv(step, group, &type, true, last, 3, NULL, out)
                                : status;
    }
}

typedef struct crossing {
    where w;
    int64_t n;              /* elements of one part */
    float *seen[RANKS_MAX]; /* of each rank: results and gradients of all calls, one after the
                               other */
    size_t n_seen[RANKS_MAX];
} crossing;

static tri_status look(rank_env *env, tri_tensor *t)
{
    crossing *c = env->arg;
    size_t n = (size_t)tri_tensor_numel(t);
    tri_status status =
        tri_tensor_copy_out(t, c->seen[env->rank] + c->n_seen[env->rank], n * sizeof(float));

    c->n_seen[env->rank] += n;
    return status;
}

/* The loss is the sum of the squares of the call's result, on the device of its operand. */
static const char *one_call(rank_env *env, tri_group *group, int call, tri_tensor *x)
{
    trii_step *step = trii_step_current();
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE, token;
    tri_device device = tri_tensor_device(x);
    tri_tensor *y, *loss;

    RANK_TRY(env, trii_resolve(step, tri_mul_scalar(x, 1.5), &in));
    RANK_TRY(env, record(env, group, call, in, &out, &token));
    y = tri_keep(trii_handle_recorded(step, out));
    if (tri_tensor_device(y) != device)
        return RANK_FAIL(env, "call %d: the result lies on %s", call,
                         tri_device_text(tri_tensor_device(y)));
    loss = tri_sum(tri_mul_scalar(tri_square(y), 0.5 + env->rank), NULL, 0, false);
    if (token != TRII_NO_VALUE)
        loss = tri_add(loss, tri_sum(trii_handle_recorded(step, token), NULL, 0, false));
    tri_backward(loss);
    RANK_TRY(env, look(env, y));
    RANK_TRY(env, look(env, tri_grad(x)));
    RANK_TRY(env, tri_step_end_status());
    return NULL;
}

static const char *crossing_rank(rank_env *env)
{
    const crossing *c = env->arg;
    int64_t total = c->n * env->size;
    float *data = malloc((size_t)(total > 0 ? total : 1) * sizeof(*data));
    tri_group *group = NULL;
    const char *wrong = NULL;

    for (int64_t i = 0; i < total; i++)
        data[i] = (float)((i * 7 + env->rank * 5) % 23) / 16 - 0.5f;
    RANK_TRY(env, group_of(env, &group));
    for (int call = 0; call < CALLS && wrong == NULL; call++) {
        tri_tensor *x = tri_tensor_from(TRI_SHAPE(env->size, c->n), TRI_DTYPE_F32, data);

        RANK_TRY(env, trii_tensor_send(x, device_of(c->w, env->rank)));
        tri_requires_grad(x, true);
        for (int round = 0; round < 2 && wrong == NULL; round++) /* the second finds its plan */
            wrong = one_call(env, group, call, x);
        tri_tensor_unref(x);
    }
    free(data);
    tri_group_unref(group);
    return wrong;
}

static void cross(where w, int64_t n, int size, const tri_group_options *engine, crossing *c)
{
    *c = (crossing){.w = w, .n = n};
    for (int r = 0; r < size; r++)
        c->seen[r] = calloc((size_t)(n + 1) * (size_t)(size * size) * 8 * CALLS, sizeof(float));
    run_threads(size, engine, crossing_rank, c);
}

static void compare(int64_t n, int size, const tri_group_options *engine)
{
    crossing here, there;

    cross(ON_HOST, n, size, engine, &here);
    for (where w = ON_DEVICES; w <= ON_BOTH; w++) {
        cross(w, n, size, engine, &there);
        for (int r = 0; r < size; r++) {
            assert_int_equal(here.n_seen[r], there.n_seen[r]);
            assert_memory_equal(here.seen[r], there.seen[r], here.n_seen[r] * sizeof(float));
            free(there.seen[r]);
        }
    }
    for (int r = 0; r < size; r++)
        free(here.seen[r]);
}

static void what_is_communicated_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    guarded_register();
    compare(0, 2, &engines[0]);
    compare(1009, 2, &engines[0]);
    compare(1, 3, &engines[1]);
    compare(7, 1, NULL);
    assert_true(guarded_kernels() > 0);
}

static void large_operands_too(void **state)
{
    (void)state;
    guarded_register();
    compare(MOST, 2, &engines[0]);
}

static void without_a_plan_too(void **state)
{
    (void)state;
    guarded_register();
    trii_executor_set(&trii_executor_reference);
    compare(7, 2, &engines[0]);
    trii_executor_set(NULL);
}

/* A backward pass that begins at a token that lies there. */
static const char *token_rank(rank_env *env)
{
    trii_step *step = trii_step_current();
    const trii_type type = {
        .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {3}, .device = TRI_CUDA(env->rank)};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, (const float[]){1, 2, 3});
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_device token_on = TRI_CUDA(0);
    tri_group *group = NULL;
    float grad[3];

    RANK_TRY(env, group_of(env, &group));
    RANK_TRY(env, trii_tensor_send(x, TRI_CUDA(env->rank)));
    tri_requires_grad(x, true);
    if (env->rank == 0) {
        RANK_TRY(env, trii_resolve(step, tri_square(x), &in));
        RANK_TRY(env, trii_record_send(step, group, in, 1, 0, &out));
        token_on = step->values[out].type.device;
        tri_backward(trii_handle_recorded(step, out));
        RANK_TRY(env, tri_tensor_copy_out(tri_grad(x), grad, sizeof(grad)));
        if (grad[0] != 6 || grad[1] != 12 || grad[2] != 18)
            return RANK_FAIL(env, "the gradient is %g %g %g", (double)grad[0], (double)grad[1],
                             (double)grad[2]);
    } else {
        RANK_TRY(env, trii_record_recv(step, group, &type, true, 0, 0, NULL, &out));
        tri_backward(tri_sum(tri_mul_scalar(trii_handle_recorded(step, out), 3), NULL, 0, false));
    }
    RANK_TRY(env, tri_step_end_status());
    if (token_on != TRI_CUDA(0))
        return RANK_FAIL(env, "the token lies on %s", tri_device_text(token_on));
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_backward_pass_begins_at_a_token_there(void **state)
{
    (void)state;
    guarded_register();
    run_threads(2, &engines[0], token_rank, NULL);
}

/* Two results of one size, one after the other: the second must not arrive where the copy of the
 * first to the device is still to come from. */
static const char *in_turn_rank(rank_env *env)
{
    trii_step *step = trii_step_current();
    float data[64], all[2 * 64];
    tri_tensor *x, *y[2];
    tri_group *group = NULL;

    for (int i = 0; i < 64; i++)
        data[i] = (float)(i + 1 + 100 * env->rank);
    RANK_TRY(env, group_of(env, &group));
    x = tri_tensor_from(TRI_SHAPE(1, 64), TRI_DTYPE_F32, data);
    RANK_TRY(env, trii_tensor_send(x, TRI_CUDA(env->rank % 2)));
    for (int k = 0; k < 2; k++) {
        trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;

        RANK_TRY(env, trii_resolve(step, tri_mul_scalar(x, k + 1), &in));
        RANK_TRY(env, trii_record_all_gather(step, group, in, &out));
        y[k] = tri_keep(trii_handle_recorded(step, out));
    }
    RANK_TRY(env, tri_run());
    for (int k = 0; k < 2; k++) {
        RANK_TRY(env, tri_tensor_copy_out(y[k], all, sizeof(all)));
        for (int i = 0; i < 2 * 64; i++)
            if (all[i] != (float)((k + 1) * (i % 64 + 1 + 100 * (i / 64))))
                return RANK_FAIL(env, "result %d, element %d: %g", k, i, (double)all[i]);
    }
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void results_that_follow_each_other_are_kept_apart(void **state)
{
    (void)state;
    guarded_register();
    run_threads(2, &engines[0], in_turn_rank, NULL);
}

/* Nothing on rank 1 says where its step begins but what it receives. */
static const char *receiving_rank(rank_env *env)
{
    const trii_type type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .device = TRI_CUDA(0)};
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    tri_group *group = NULL;
    float seen[2] = {0};

    RANK_TRY(env, group_of(env, &group));
    if (env->rank == 0) {
        tri_tensor *x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (float[]){3, 4});

        RANK_TRY(env, trii_resolve(step, x, &id));
        RANK_TRY(env, trii_record_send(step, group, id, 1, 3, &id));
        RANK_TRY(env, tri_run());
        tri_tensor_unref(x);
    } else {
        tri_tensor *y;

        RANK_TRY(env, trii_record_recv(step, group, &type, false, 0, 3, NULL, &id));
        y = tri_keep(tri_square(trii_handle_recorded(step, id)));
        RANK_TRY(env, tri_run());
        RANK_TRY(env, tri_tensor_copy_out(y, seen, sizeof(seen)));
        if (seen[0] != 9 || seen[1] != 16)
            return RANK_FAIL(env, "%g, %g", (double)seen[0], (double)seen[1]);
    }
    RANK_TRY(env, tri_step_end_status());
    tri_group_unref(group);
    return NULL;
}

static void a_rank_may_only_receive_there(void **state)
{
    (void)state;
    guarded_register();
    run_threads(2, &engines[0], receiving_rank, NULL);
}

/* --- DDP ------------------------------------------------------------------ */

#define SIDE 6
#define CLASSES 4
#define BATCH 6 /* of all ranks */
#define STEPS 4

typedef struct plan {
    where w;
    bool accumulates; /* two micro-batches, of which the first is not averaged */
    bool ignores;     /* targets that do not count: what the mean divides by is a value */
    bool skips;       /* rank 0 does not use the last layer but one */
    bool recomputes;  /* the first half, in backward */
    bool unfreezes;   /* the first convolution, after two steps */
    double clip;      /* 0 = none */
    double losses[RANKS_MAX][STEPS];
    uint64_t hashes[RANKS_MAX];
} plan;

typedef struct net {
    tri_module *body, *extra, *head;
    bool skips;
    tri_device second; /* of what follows the body */
} net;

static void net_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    const net *n = tri_module_data(self);
    tri_tensor *x = tri_to(tri_forward(n->body, in[0]), n->second);

    (void)n_in;
    (void)n_out;
    if (!n->skips)
        x = tri_forward(n->extra, x);
    out[0] = tri_forward(n->head, x);
}

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

/* Convolutions adopt layouts for their weights; batch norm has buffers. */
static tri_module *build(bool skips, tri_device second)
{
    static const tri_module_class type = {
        .name = "Net", .size = sizeof(net), .forward = net_forward};
    tri_module *self = tri_module_create(&type);
    net *n = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(7);
    n->skips = skips;
    n->second = second;
    n->body = tri_module_add_child(
        self, "body",
        tri_nn_sequential(tri_nn_conv2d(3, 16, 3, &(tri_nn_conv2d_options){.padding = 1}),
                          tri_nn_batch_norm2d(16, NULL), tri_nn_relu(),
                          tri_nn_conv2d(16, 16, 3, NULL), tri_nn_flatten(1), tri_nn_dropout(0.2),
                          tri_nn_linear(16 * (SIDE - 2) * (SIDE - 2), 8, NULL)));
    n->extra = tri_module_add_child(self, "extra", tri_nn_linear(8, 8, NULL));
    n->head = tri_module_add_child(self, "head", tri_nn_linear(8, CLASSES, NULL));
    trii_mutex_unlock(&drawing);
    return self;
}

static tri_tensor *images(int first, int n)
{
    float data[BATCH * 3 * SIDE * SIDE];

    for (int i = 0; i < n * 3 * SIDE * SIDE; i++)
        data[i] = (float)(((i + first * 3 * SIDE * SIDE) * 7) % 13) / 8 - 0.6f;
    return tri_tensor_from(TRI_SHAPE(n, 3, SIDE, SIDE), TRI_DTYPE_F32, data);
}

static tri_tensor *targets(int first, int n, bool ignores)
{
    int64_t data[BATCH];

    for (int i = 0; i < n; i++)
        data[i] = ignores && (first + i) % 3 == 0 ? -100 : (first + i) % CLASSES;
    return tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, data);
}

static tri_tensor *loss_of(tri_module *model, const plan *p, int first, int n, int rank)
{
    tri_tensor *x = images(first, n), *y = targets(first, n, p->ignores), *loss;
    tri_device here = device_of(p->w, rank), there = second_device_of(p->w, rank);

    loss = tri_cross_entropy(tri_forward(model, tri_to(x, here)), tri_to(y, there), NULL);
    tri_backward(tri_keep(loss));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

static const char *train_step(rank_env *env, tri_module *model, tri_optimizer *optimizer, int step)
{
    plan *p = env->arg;
    int first = env->rank * BATCH / env->size, n = (env->rank + 1) * BATCH / env->size - first;
    tri_tensor *loss;

    if (p->accumulates) {
        tri_ddp_no_sync_begin(model);
        (void)loss_of(model, p, first, 1, env->rank);
        tri_ddp_no_sync_end(model);
        loss = loss_of(model, p, first + 1, n - 1, env->rank);
    } else {
        loss = loss_of(model, p, first, n, env->rank);
    }
    if (p->clip > 0)
        (void)tri_clip_grad_norm(optimizer, p->clip);
    RANK_TRY(env, tri_optimizer_step(optimizer));
    RANK_TRY(env, tri_item_status(loss, &p->losses[env->rank][step]));
    RANK_TRY(env, tri_step_end_status());
    return NULL;
}

static const char *training_rank(rank_env *env)
{
    plan *p = env->arg;
    tri_device device = device_of(p->w, env->rank), second = second_device_of(p->w, env->rank);
    tri_module *inner = build(p->skips && env->rank == 0, second), *model;
    tri_tensor *first = tri_module_find(inner, "body.0.weight");
    tri_optimizer *optimizer;
    tri_group *group = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, group_of(env, &group));
    RANK_TRY(env, tri_module_to(inner, second));
    RANK_TRY(env, tri_module_to(tri_module_submodule(inner, "body"), device));
    tri_module_set_recompute(tri_module_submodule(inner, "body"), p->recomputes);
    tri_requires_grad(first, !p->unfreezes);
    model = tri_ddp(
        inner,
        &(tri_ddp_options){.group = group, .first_bucket_bytes = 2048, .bucket_cap_bytes = 8192});
    RANK_TRY(env, tri_module_status(model));
    optimizer = tri_adamw(model, 0.01, NULL);
    for (int step = 0; step < STEPS && wrong == NULL; step++) {
        if (step == 2)
            tri_requires_grad(first, true);
        wrong = train_step(env, model, optimizer, step);
    }
    if (wrong != NULL)
        return wrong;
    if (tri_tensor_device(tri_module_find(inner, "body.0.weight")) != device ||
        tri_tensor_device(tri_grad(tri_module_find(inner, "head.weight"))) != second)
        return RANK_FAIL(env, "the model or its gradients left %s", tri_device_text(device));
    RANK_TRY(env, tri_ddp_sync_buffers(model));
    RANK_TRY(env, tri_ddp_verify(model, true));
    RANK_TRY(env, tri_module_hash(model, &p->hashes[env->rank]));
    RANK_TRY(env, tri_step_end_status());
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model);
    tri_group_unref(group);
    return NULL;
}

/* Each rank on two devices, all of them on devices with their own memory but one. */
static void trains_as_on_the_host(plan like, int size, const tri_group_options *engine)
{
    static plan here, there;

    here = there = like;
    there.w = like.w != ON_HOST ? like.w : SPLIT;
    here.w = ON_HOST;
    run_threads(size, engine, training_rank, &here);
    run_threads(size, engine, training_rank, &there);
    assert_memory_equal(here.losses, there.losses, sizeof(here.losses));
    assert_memory_equal(here.hashes, there.hashes, sizeof(here.hashes));
}

static void ddp_trains_there_with_the_bits_of_the_cpu(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.w = ON_DEVICES}, 2, &engines[0]);
    trains_as_on_the_host((plan){.w = ON_DEVICES}, 1, NULL);
    assert_true(guarded_kernels() > 0);
    trii_plan_release();
    assert_true(guarded_bytes(0) == 0 && guarded_bytes(1) == 0);
}

static void ddp_trains_there_beside_a_rank_on_the_host_with_the_same_bits(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.w = ON_BOTH}, 2, &engines[0]);
}

static void ddp_trains_there_over_sockets_with_the_same_bits(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.clip = 0.3}, 3, &engines[1]);
}

static void micro_batches_and_norms_are_those_of_the_cpu(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.accumulates = true, .clip = 0.3}, 2, &engines[0]);
}

static void what_means_divide_by_counts_as_on_the_cpu(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.ignores = true}, 2, &engines[0]);
    trains_as_on_the_host((plan){.ignores = true, .accumulates = true}, 2, &engines[0]);
}

static void what_a_rank_does_not_use_comes_from_others(void **state)
{
    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){.skips = true}, 2, &engines[0]);
    trains_as_on_the_host((plan){.unfreezes = true}, 2, &engines[0]);
}

static void what_is_computed_again_is_that_of_the_cpu(void **state)
{
    int once;

    (void)state;
    guarded_register();
    trains_as_on_the_host((plan){0}, 2, &engines[0]);
    once = guarded_kernels();
    trains_as_on_the_host((plan){.recomputes = true}, 2, &engines[0]);
    assert_true(guarded_kernels() - once > once);
}

static void the_search_for_nan_finds_nothing_there(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "nan", 1);
    guarded_register();
    trains_as_on_the_host((plan){.skips = true}, 2, &engines[0]);
}

/* Two calls change places on rank 1. */
static const char *swapped_rank(rank_env *env)
{
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 1), TRI_DTYPE_F32, (const float[]){1, 2});
    trii_step *step = trii_step_current();
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE, token;
    tri_group *group = NULL;

    RANK_TRY(env, group_of(env, &group));
    RANK_TRY(env, trii_tensor_send(x, TRI_CUDA(env->rank)));
    RANK_TRY(env, trii_resolve(step, tri_square(x), &in));
    for (int i = 0; i < 2; i++) {
        RANK_TRY(env, record(env, group, i == env->rank ? 2 : 4, in, &out, &token));
        (void)tri_keep(trii_handle_recorded(step, out));
    }
    RANK_FAILS(env, tri_step_end_status(), TRI_ERR_MISMATCH, "all_gather(f32 [2, 1])");
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void the_order_of_ranks_is_compared_there(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    guarded_register();
    run_threads(2, &engines[0], swapped_rank, NULL);
    trains_as_on_the_host((plan){0}, 2, &engines[0]);
    compare(7, 2, &engines[0]);
}

static void ddp_trains_there_without_a_plan(void **state)
{
    (void)state;
    guarded_register();
    trii_executor_set(&trii_executor_reference);
    trains_as_on_the_host((plan){0}, 2, &engines[0]);
    trii_executor_set(NULL);
}

/* --- failures ------------------------------------------------------------- */

static const char *failing_rank(rank_env *env)
{
    const int64_t labels[2] = {0, env->rank == 0 ? 77 : 1};
    tri_module *model;
    tri_optimizer *optimizer;
    tri_group *group = NULL;
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, (const float[]){1, 2, 3, 4});
    tri_tensor *t = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels);
    uint64_t before = 0, after = 0;

    RANK_TRY(env, group_of(env, &group));
    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    model = tri_nn_linear(2, 2, NULL);
    trii_mutex_unlock(&drawing);
    RANK_TRY(env, tri_module_to(model, TRI_CUDA(env->rank)));
    model = tri_ddp(model, &(tri_ddp_options){.group = group});
    RANK_TRY(env, tri_module_status(model));
    optimizer = tri_sgd(model, 0.1, NULL);
    RANK_TRY(env, tri_module_hash(model, &before));
    RANK_TRY(env, ranks_meet(env, "made", -1));
    tri_backward(tri_cross_entropy(tri_forward(model, tri_to(x, TRI_CUDA(env->rank))),
                                   tri_to(t, TRI_CUDA(env->rank)), NULL));
    (void)!tri_optimizer_step(optimizer);
    RANK_FAILS(env, tri_step_end_status(), env->rank == 0 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED,
               "77");
    RANK_TRY(env, tri_module_hash(model, &after));
    if (after != before)
        return RANK_FAIL(env, "rank %d: a step that failed changed the model", env->rank);
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_group_unref(group);
    return NULL;
}

static void a_failed_step_there_ends_on_all_ranks(void **state)
{
    (void)state;
    guarded_register();
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], failing_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_communicated_has_the_bits_of_the_cpu),
    cmocka_unit_test(large_operands_too),
    cmocka_unit_test(without_a_plan_too),
    cmocka_unit_test(a_backward_pass_begins_at_a_token_there),
    cmocka_unit_test(results_that_follow_each_other_are_kept_apart),
    cmocka_unit_test(a_rank_may_only_receive_there),
    cmocka_unit_test(ddp_trains_there_with_the_bits_of_the_cpu),
    cmocka_unit_test(ddp_trains_there_beside_a_rank_on_the_host_with_the_same_bits),
    cmocka_unit_test(ddp_trains_there_over_sockets_with_the_same_bits),
    cmocka_unit_test(micro_batches_and_norms_are_those_of_the_cpu),
    cmocka_unit_test(what_means_divide_by_counts_as_on_the_cpu),
    cmocka_unit_test(what_a_rank_does_not_use_comes_from_others),
    cmocka_unit_test(what_is_computed_again_is_that_of_the_cpu),
    cmocka_unit_test(the_search_for_nan_finds_nothing_there),
    cmocka_unit_test(the_order_of_ranks_is_compared_there),
    cmocka_unit_test(ddp_trains_there_without_a_plan),
    cmocka_unit_test(a_failed_step_there_ends_on_all_ranks),
};

TEST_MAIN(tests)
