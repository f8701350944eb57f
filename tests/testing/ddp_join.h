/*
 * ddp_join.h - ranks with different numbers of batches, which tri_ddp_join ends, and one process
 * that has at each step what the ranks have together. Tests only.
 */
#ifndef DDP_JOIN_H
#define DDP_JOIN_H

#include <trireme/sync_batch_norm.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"

typedef struct plan {
    int steps[MAX_RANKS]; /* batches of each rank, 0 to MOST */
    bool norm;            /* with batch norm over all ranks */
    bool plain_norm;      /* with batch norm of its own on each, of the inputs */
    bool unseen;          /* the loss is a sum: ranks with data have equal weights */
    bool scaled;          /* the loss is a mean times a parameter */
    bool nan_check;       /* a NaN after the join is found */
    int per_update;       /* synchronised passes; 0 = 1 */
    bool kept;            /* rank 0's last batch is made under no_sync and not updated with */
    bool waits;           /* the last average is updated with after the join */
    tri_bucket_hook hook;
    int stage; /* of tri_zero; 0: tri_ddp */
} plan;

#define MOST 5
#define MORE 2 /* passes of all ranks after a join, with running statistics */

/* What rank r of the plan has at a step. */
static inline int first_row(int r, int step)
{
    return (2 * r + step) % 6;
}

static inline int count_rows(int r, int step)
{
    return 2 + (r + step) % 3; /* batch norm needs two */
}

static inline tri_module *build(const plan *p, tri_group *group)
{
    const tri_nn_sync_batch_norm_options options = {.group = group};
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(4);
    tri_set_default_dtype(TRI_DTYPE_F64);
    if (p->plain_norm)
        net = tri_nn_sequential(tri_nn_batch_norm2d(IN, NULL), tri_nn_flatten(1),
                                tri_nn_linear(IN, OUT, NULL));
    else
        net = p->norm ? tri_nn_sequential(tri_nn_conv2d(IN, 8, 1, NULL),
                                          tri_nn_sync_batch_norm(8, &options), tri_nn_tanh(),
                                          tri_nn_flatten(1), tri_nn_linear(8, OUT, NULL))
                      : tri_nn_sequential(tri_nn_flatten(1), tri_nn_linear(IN, 8, NULL),
                                          tri_nn_tanh(), tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    if (p->scaled)
        tri_module_add_parameter(net, "scale",
                                 tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &(double){2}));
    return net;
}

/* What the ranks from `from` to `to` - 1 have at the step, one after the other. */
typedef struct trainer {
    const plan *p;
    tri_module *model;
    tri_optimizer *opt;
    int from, to;
    int calls, updates;
} trainer;

static inline tri_tensor *loss_of_step(const trainer *t, int step)
{
    double x[ROWS * IN], y[ROWS * OUT];
    int n = 0;
    tri_tensor *in, *target, *loss;

    for (int r = t->from; r < t->to; r++) {
        int first = first_row(r, step), rows = step < t->p->steps[r] ? count_rows(r, step) : 0;

        memcpy(x + (size_t)n * IN, x_data + (size_t)first * IN, (size_t)rows * IN * sizeof(double));
        memcpy(y + (size_t)n * OUT, y_data + (size_t)first * OUT,
               (size_t)rows * OUT * sizeof(double));
        n += rows;
    }
    in = tri_tensor_from(TRI_SHAPE(n, IN, 1, 1), TRI_DTYPE_F64, x);
    target = tri_tensor_from(TRI_SHAPE(n, OUT), TRI_DTYPE_F64, y);
    loss = tri_forward(t->model, in);
    if (t->p->scaled) /* whose gradient is the mean of no rows */
        loss = tri_mul(tri_mean(tri_square(tri_sub(loss, target)), NULL, 0, false),
                       tri_module_find(t->model, "scale"));
    else
        loss = t->p->unseen ? tri_sum(tri_square(tri_sub(loss, target)), NULL, 0, false)
                            : tri_mse_loss(loss, target, NULL);
    tri_tensor_unref(in);
    tri_tensor_unref(target);
    return loss;
}

static inline tri_tensor *loss_of_nothing(void *arg)
{
    return loss_of_step(arg, MOST);
}

static inline tri_status update(void *arg)
{
    trainer *t = arg;

    if (t->p->per_update > 0 && ++t->calls % t->p->per_update != 0)
        return TRI_OK;
    t->updates++;
    return tri_optimizer_step(t->opt);
}

static inline int longest(const plan *p)
{
    int most = 0;

    for (int r = 0; r < MAX_RANKS; r++)
        most = p->steps[r] > most ? p->steps[r] : most;
    return most;
}

static inline tri_status take_buffers(rank *r, tri_module *model)
{
    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry entry = tri_module_state(model, i);
        int n = (int)tri_tensor_numel(entry.tensor);
        int64_t whole;

        if (entry.parameter)
            continue;
        if (tri_tensor_dtype(entry.tensor) == TRI_DTYPE_I64) {
            TRY(tri_tensor_copy_out(entry.tensor, &whole, sizeof(whole)));
            r->weights[r->n_weights] = (double)whole;
        } else {
            TRY(tri_tensor_copy_out(entry.tensor, r->weights + r->n_weights,
                                    (size_t)n * sizeof(double)));
        }
        r->n_weights += n;
    }
    return TRI_OK;
}

/* A sum, whose passes are counted. */
static inline tri_status counted(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    if (stage > 0)
        return TRI_OK;
    *(int *)state += bucket->index == 0;
    return tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count, bucket->dtype,
                          TRI_REDOP_SUM, work_out);
}

static inline tri_status find_nan(void)
{
    tri_tensor *one = tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &(double){-1});
    double value;
    tri_status status = tri_item_status(tri_log(one), &value);

    tri_step_end();
    tri_tensor_unref(one);
    return status == TRI_ERR_NAN ? TRI_OK : TRII_FAIL(TRI_ERR_INTERNAL, "a NaN was not found");
}

static inline tri_status train(rank *r)
{
    const plan *p = r->arg;
    bool alone = r->size == 1;
    trainer t = {.p = p, .from = alone ? 0 : r->index, .to = alone ? MAX_RANKS : r->index + 1};
    int steps = alone ? longest(p) : p->steps[r->index], passes = 0;

    t.model = p->stage > 0
                  ? tri_zero(build(p, r->group), &(tri_zero_options){.group = r->group,
                                                                     .stage = p->stage,
                                                                     .hook = p->hook,
                                                                     .hook_state = &passes,
                                                                     .bucket_cap_bytes = 200,
                                                                     .first_bucket_bytes = 1})
                  : tri_ddp(build(p, r->group), &(tri_ddp_options){.group = r->group,
                                                                   .hook = p->hook,
                                                                   .hook_state = &passes,
                                                                   .bucket_cap_bytes = 200,
                                                                   .first_bucket_bytes = 1});
    TRY(tri_module_status(t.model));
    t.opt = tri_sgd(t.model, 0.05, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.01});
    for (int step = 0; step < steps; step++) {
        bool keep = p->kept && !alone && r->index == 0 && step == steps - 1;

        for (int pass = 1; pass < p->per_update; pass++, t.calls++)
            tri_backward(loss_of_step(&t, step));
        if (keep)
            tri_ddp_no_sync_begin(t.model);
        tri_backward(loss_of_step(&t, step));
        if (keep)
            tri_ddp_no_sync_end(t.model);
        else if (!p->waits || step < steps - 1)
            TRY(update(&t));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL));
    if (t.updates != longest(p) - p->waits ||
        (p->hook == counted && !alone && passes != longest(p)))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d updates, %d passes of a hook", t.updates, passes);
    TRY(tri_optimizer_step(t.opt)); /* finds no gradients, unless one waits */
    for (int i = 0; i < MORE * p->plain_norm; i++) {
        tri_backward(loss_of_step(&t, 0));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_sync_buffers(t.model));
    TRY(tri_ddp_verify(t.model, true));
    if (p->nan_check)
        TRY(find_nan());
    TRY(p->plain_norm ? take_buffers(r, t.model) : take_weights(r, t.model));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return TRI_OK;
}

/* By tri_ddp and by tri_zero, whose stage 2 refuses hooks that need all gradients at once. */
static inline void check(const plan *p, int size, double bound)
{
    static rank one[1], ranks[MAX_RANKS];
    plan with = *p;

    make_data();
    ranks_succeed(one, 1, train, p);
    assert_true(one[0].n_weights > 70);
    for (; with.stage <= (p->hook == counted ? 1 : 2); with.stage++) {
        ranks_succeed(ranks, size, train, &with);
        for (int i = 0; i < one[0].n_weights; i++)
            CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], bound);
        for (int i = 1; i < size; i++)
            assert_true(ranks[i].hash == ranks[0].hash);
    }
}

#endif
