/*
 * strategies.h - small models that are trained by any strategy and by several at once, and by one
 * process alone, in f64. Tests only.
 *
 * A model without random numbers and statistics is trained alone on the whole batch. With dropout
 * or batch norm a strategy has other numbers than the whole batch, which are those of one process
 * that takes the same parts one after the other: of each rank, and of each device within it, with
 * the random stream of the rank and, as torch's DataParallel, the running statistics of the first.
 */
#ifndef TEST_STRATEGIES_H
#define TEST_STRATEGIES_H

#include <trireme/trireme.h>

#include "os/thread.h"
#include "strategies/strategies_problem.h"
#include "testing/check.h"
#include "testing/ranks.h"

#define MAX_STATE 4096
#define BOUND 1e-9
#define CLIP 0.05 /* below the norm of nearly every gradient here, so that it does something */

/* --- what training leaves ------------------------------------------------- */

typedef struct result {
    double losses[MAX_STEPS]; /* sums over samples */
    double state[MAX_STATE];
    int n_state;
    uint64_t hash; /* of parameters */
} result;

static inline tri_status keep_result(tri_module *model, result *r)
{
    tri_status st = tri_unshard_begin(model);

    if (st != TRI_OK)
        return st;
    r->n_state = 0;
    r->hash = 1;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry e = tri_module_state(model, i);
        size_t n = (size_t)tri_tensor_numel(e.tensor);
        double *to = r->state + r->n_state;

        if (tri_tensor_dtype(e.tensor) != TRI_DTYPE_F64 || r->n_state + (int)n > MAX_STATE)
            continue;
        st = tri_tensor_copy_out(e.tensor, to, n * sizeof(double));
        if (st != TRI_OK)
            return st;
        r->n_state += (int)n;
        for (size_t j = 0; e.parameter && j < n * sizeof(double); j++)
            r->hash = (r->hash ^ ((const unsigned char *)to)[j]) * UINT64_C(0x100000001b3);
    }
    return tri_unshard_end(model);
}

/* --- one process alone ---------------------------------------------------- */

/* The seed is the process's: one thread at a time draws initial values. */
static trii_mutex drawing = TRII_MUTEX_INITIALIZER;

/* In parts where `part` is not NULL: returns NULL then. */
static inline tri_module *build(const kind *k, tri_module **part)
{
    tri_module *net = NULL;

    trii_mutex_lock(&drawing);
    tri_manual_seed(SEED);
    tri_set_default_dtype(k->f32 ? TRI_DTYPE_F32 : TRI_DTYPE_F64);
    if (part != NULL)
        k->parts(part);
    else
        net = k->build();
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static inline tri_optimizer *optimizer_of(const composition *c, tri_module *model)
{
    if (c->update == ADAMW || c->update == ADAMW_CLIP)
        return tri_adamw(model, 0.01, &(tri_adam_options){.weight_decay = TRI_SET(0.1)});
    return tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
}

static inline void clip(const composition *c, tri_optimizer *opt)
{
    if (c->update == SGD_CLIP || c->update == ADAMW_CLIP)
        (void)tri_clip_grad_norm(opt, CLIP);
}

static inline tri_status update(const composition *c, tri_optimizer *opt)
{
    clip(c, opt);
    return tri_optimizer_step(opt);
}

typedef struct buffers {
    unsigned char bytes[512];
} buffers;

static inline tri_status copy_buffers(tri_module *model, buffers *b, bool back)
{
    size_t at = 0;
    tri_status st = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(model) && st == TRI_OK; i++) {
        tri_state_entry e = tri_module_state(model, i);
        size_t bytes = (size_t)tri_tensor_numel(e.tensor) * 8;

        if (e.parameter)
            continue;
        if (at + bytes > sizeof(b->bytes))
            return TRI_ERR_NO_MEMORY;
        st = back ? tri_tensor_copy_in(e.tensor, b->bytes + at, bytes)
                  : tri_tensor_copy_out(e.tensor, b->bytes + at, bytes);
        at += bytes;
    }
    return st;
}

/* One process that does what all ranks do. */
typedef struct one_process {
    const kind *k;
    const composition *c;
    tri_module *net;
    tri_optimizer *opt;
    int step, samples; /* of the step, all ranks together */
    double *sum;       /* of its losses, over samples */
} one_process;

/* The gradient of some rows, as a part of the step's. */
static inline void add_gradient(const one_process *a, const rows *parts, int n, tri_tensor **sum)
{
    tri_tensor *loss = loss_of_all(a->k, a->net, parts, n);
    int all = 0;

    for (int i = 0; i < n; i++)
        all += parts[i].n;
    loss = tri_mul_scalar(loss, (double)all / a->samples);
    tri_backward(loss);
    *sum = *sum != NULL ? tri_add(*sum, loss) : loss;
}

/* One rank's parts of a step: with statistics each is a step of its own, after which those of all
 * but the first device are taken back; random numbers are those of one step of the rank. */
static inline tri_status take_parts(const one_process *a, int rank)
{
    const composition *c = a->c;
    int pieces = c->place == REPLICAS_2 || c->place == REPLICAS_3 ? devices_of(c) : 1;
    tri_tensor *loss = NULL;
    buffers before;
    tri_status st = TRI_OK;

    for (int b = 0; b < batches_of(c); b++) {
        rows all = rows_of(a->k, c, rank, b);
        int piece = (all.n + pieces - 1) / pieces;

        for (int at = 0; at < all.n && st == TRI_OK; at += piece) {
            rows r = {all.first + at, at + piece < all.n ? piece : all.n - at};

            if (a->k->statistics)
                st = copy_buffers(a->net, &before, false);
            add_gradient(a, &r, 1, &loss);
            if (st != TRI_OK || !a->k->statistics)
                continue;
            *a->sum += tri_item(loss) * a->samples;
            loss = NULL;
            st = tri_step_end_status();
            if (st == TRI_OK && (rank > 0 || at > 0))
                st = copy_buffers(a->net, &before, true);
        }
    }
    if (loss != NULL)
        *a->sum += tri_item(loss) * a->samples;
    return st == TRI_OK ? tri_step_end_status() : st;
}

static inline tri_status train_by_parts(const one_process *a)
{
    tri_status st = TRI_OK;

    for (int rank = 0; rank < (a->c->ranks > 0 ? a->c->ranks : 1) && st == TRI_OK; rank++) {
        if (a->step >= steps_of(a->c, rank))
            continue;
        tri_rng_state_set(&(tri_rng){SEED, (uint64_t)rank, a->step});
        st = take_parts(a, rank);
    }
    return st == TRI_OK ? update(a->c, a->opt) : st;
}

/* All rows that there are, of all ranks together: each batch by itself where that matters. */
static inline tri_status train_on_whole(const one_process *a)
{
    const composition *c = a->c;
    int batches = batches_of(c);
    rows parts[2 * MAX_RANKS];
    tri_tensor *loss = NULL;
    int n = 0;
    tri_status st;

    for (int b = 0; b < batches; b++) {
        for (int r = 0; r < (c->ranks > 0 ? c->ranks : 1); r++) {
            if (a->step < steps_of(c, r))
                parts[n++] = rows_of(a->k, c, r, b);
        }
        if (a->k->shared || b + 1 == batches) {
            add_gradient(a, parts, n, &loss);
            n = 0;
        }
    }
    st = update(c, a->opt);
    *a->sum = tri_item(loss) * a->samples;
    return st;
}

/* What every strategy is compared with. */
static inline tri_status train_alone(const kind *k, const composition *c, result *to)
{
    one_process a = {.k = k, .c = c, .net = build(k, NULL)};
    tri_status st = tri_module_status(a.net);

    a.opt = optimizer_of(c, a.net);
    for (a.step = 0; a.step < STEPS && st == TRI_OK; a.step++) {
        a.samples = samples_of(k, c, a.step);
        a.sum = &to->losses[a.step];
        *a.sum = 0;
        st = k->random || k->statistics ? train_by_parts(&a) : train_on_whole(&a);
        if (st == TRI_OK)
            st = tri_step_end_status();
    }
    if (st == TRI_OK)
        st = keep_result(a.net, to);
    tri_optimizer_destroy(a.opt);
    tri_module_destroy(a.net);
    return st;
}

/* --- a rank of a composition ---------------------------------------------- */

typedef struct job {
    const kind *k;
    composition c;
    char name[256];
    result ranks[MAX_RANKS];
} job;

#define JOB_TRY(env, job, call)                                                                    \
    do {                                                                                           \
        tri_status job_status_ = (call);                                                           \
        if (job_status_ != TRI_OK)                                                                 \
            return RANK_FAIL(env, "%s: rank %d, line %d: %s: %s: %s", (job)->name, (env)->rank,    \
                             __LINE__, #call, tri_status_name(job_status_), tri_last_error());     \
    } while (0)

/* The first input goes to the device. */
static inline void move_in(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                           void *arg)
{
    (void)self, (void)n_in, (void)out, (void)n_out;
    in[0] = tri_to(in[0], *(const tri_device *)arg);
}

static inline void move_back(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out,
                             int n_out, void *arg)
{
    (void)self, (void)in, (void)n_in, (void)n_out, (void)arg;
    out[0] = tri_to(out[0], TRI_CPU(0));
}

static const tri_device devices[MAX_DEVICES] = {TRI_CPU(0), TRI_CPU(1), TRI_CPU(2)};

static inline tri_status put_on(tri_module *part, int device)
{
    tri_status st = tri_module_to(part, devices[device]);

    return st != TRI_OK ? st
                        : tri_module_add_forward_pre_hook(
                              part, move_in, (void *)(uintptr_t)&devices[device], NULL);
}

/* The second half of the network on the second device, and of that what comes last on the third if
 * there is one. */
static inline tri_status cut(const kind *k, const composition *c, tri_module *net)
{
    tri_status st = put_on(tri_module_submodule(net, k->blocks[1]), 1);

    for (size_t i = 0; i < TRII_COUNT_OF(k->rest) && st == TRI_OK && k->rest[i] != NULL; i++)
        st = put_on(tri_module_submodule(net, k->rest[i]), devices_of(c) - 1);
    if (st == TRI_OK && k->back != NULL)
        st = tri_module_add_forward_hook(tri_module_submodule(net, k->back), move_back, NULL, NULL);
    return st;
}

/* What tri_ddp does without a hook. */
static inline tri_status sum_hook(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    (void)state;
    return stage > 0 ? TRI_OK
                     : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                      bucket->dtype, TRI_REDOP_SUM, work_out);
}

static inline tri_module *divided(const composition *c, tri_group *group, tri_module *net)
{
    tri_zero_options opt = {.group = group,
                            .stage = c->zero,
                            .first_bucket_bytes = c->small_buckets ? 256 : 0,
                            .bucket_cap_bytes = c->small_buckets ? 600 : 0,
                            .no_buffer_sync = c->own_buffers,
                            .hook = c->hook,
                            .hook_state = c->hook_state};
    tri_mesh *mesh = NULL;
    tri_module *model;

    if (c->replicas > 0) {
        const int64_t sizes[2] = {c->replicas, tri_group_size(group) / c->replicas};
        tri_status st =
            tri_mesh_create(group, sizes, 2, (const char *[]){"copies", "parts"}, &mesh);

        if (st != TRI_OK)
            fprintf(stderr, "mesh: %s\n", tri_last_error());
        opt.group = NULL;
        opt.mesh = mesh;
    }
    model = tri_zero(net, &opt);
    tri_mesh_destroy(mesh);
    return model;
}

static inline tri_module *averaged(const composition *c, tri_group *group, tri_module *net)
{
    if (c->ranks == 0)
        return net;
    if (c->zero > 0)
        return divided(c, group, net);
    return tri_ddp(net, &(tri_ddp_options){.group = group,
                                           .first_bucket_bytes = c->small_buckets ? 256 : 0,
                                           .bucket_cap_bytes = c->small_buckets ? 600 : 0,
                                           .no_buffer_sync = c->own_buffers,
                                           .hook = c->hook,
                                           .hook_state = c->hook_state});
}

static inline tri_module *on_devices(tri_module *net, int n)
{
    return tri_data_parallel(net,
                             &(tri_data_parallel_options){.device_ids = devices, .n_devices = n});
}

/* The network itself over the ranks. */
static inline tri_status divide(const composition *c, tri_group *group, tri_module *net,
                                tri_module **model_out)
{
    static const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "2", .style = TRI_ROWWISE},
                                              {.module = "4", .style = TRI_COLWISE},
                                              {.module = "6", .style = TRI_ROWWISE}};

    *model_out = net;
    if (c->place == IN_PARTS)
        return tri_parallelize(net, group, rules, 4);
    *model_out = tri_pipeline_split(
        net, NULL, tri_group_size(group),
        &(tri_pipeline_options){.group = group, .n_microbatches = 4, .schedule = c->schedule});
    return tri_module_status(*model_out);
}

/* Of a model in parts: one of them on two devices, or each of two models in a group of its own. */
static inline tri_status compose_parts(const job *j, tri_group *group, tri_module **model_out)
{
    const composition *c = &j->c;
    tri_group *second = NULL;
    tri_module *part[3];
    tri_status st = TRI_OK;

    if (c->place == TWO_GROUPS && c->ranks > 0)
        st = tri_group_split(group, 0, tri_group_rank(group), NULL, &second);
    (void)build(j->k, part);
    for (int b = 0; b < 2 && c->recompute; b++)
        tri_module_set_recompute(part[b], true);
    if (c->place == ONE_LAYER) {
        part[1] = on_devices(part[1], 2);
        *model_out = averaged(c, group, tri_nn_sequential_of(3, part));
    } else {
        tri_module *first = averaged(c, group, part[0]);

        *model_out =
            tri_nn_sequential(first, averaged(c, second, tri_nn_sequential(part[1], part[2])));
    }
    tri_group_unref(second);
    return st == TRI_OK ? tri_module_status(*model_out) : st;
}

static inline tri_status compose(const job *j, tri_group *group, tri_module **model_out)
{
    const composition *c = &j->c;
    tri_module *model;
    tri_status st;

    if (c->place == ONE_LAYER || c->place == TWO_GROUPS)
        return compose_parts(j, group, model_out);
    model = build(j->k, NULL);
    st = tri_module_status(model);
    if (st == TRI_OK && j->k->shared && tri_convert_sync_batch_norm(model, group) != 2)
        st = TRI_ERR_INTERNAL;
    for (int b = 0; b < 2 && c->recompute; b++)
        tri_module_set_recompute(tri_module_submodule(model, j->k->blocks[b]), true);
    if (st == TRI_OK && (c->place == CUT || c->place == CUT_IN_3))
        st = cut(j->k, c, model);
    if (c->place == REPLICAS_2 || c->place == REPLICAS_3)
        model = on_devices(model, devices_of(c));
    if (c->place >= IN_STAGES)
        return divide(c, group, model, model_out);
    *model_out = averaged(c, group, model);
    return st == TRI_OK ? tri_module_status(*model_out) : st;
}

/* How many models of tri_ddp there are: model i. */
static inline int averaged_models(const composition *c)
{
    return c->ranks == 0 || c->place >= IN_STAGES ? 0 : c->place == TWO_GROUPS ? 2 : 1;
}

static inline tri_module *averaged_model(const composition *c, tri_module *model, int i)
{
    return c->place == TWO_GROUPS ? tri_module_child(model, i) : model;
}

static inline void set_local(const composition *c, tri_module *model, bool local)
{
    for (int i = 0; i < averaged_models(c); i++)
        (local ? tri_ddp_no_sync_begin : tri_ddp_no_sync_end)(averaged_model(c, model, i));
}

/* A rank while it trains. */
typedef struct trainer {
    const job *j;
    tri_module *model;
    tri_optimizer *opt;
    tri_grad_scaler *scaler; /* NULL = none */
    int rank;
    /* Called between the last backward and the update; NULL: nothing is. */
    tri_status (*between)(const struct trainer *t);
} trainer;

static inline tri_tensor *loss_of(const trainer *t, rows r)
{
    tri_tensor *loss;

    if (t->j->c.autocast == TRI_DTYPE_NONE)
        return loss_of_all(t->j->k, t->model, &r, 1);
    tri_autocast_begin(t->j->c.autocast);
    loss = loss_of_all(t->j->k, t->model, &r, 1);
    tri_autocast_end();
    return loss;
}

static inline tri_tensor *mean_square(tri_tensor *out, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(out, target, NULL);
}

/* Forward and backward of all micro-batches. */
static inline tri_tensor *pass_through_stages(const trainer *t, rows r)
{
    tri_tensor *x = input_of(t->j->k, r), *y = target_of(t->j->k, r);
    tri_tensor *loss = tri_pipeline_step(t->model, x, y, mean_square, NULL);

    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

static inline tri_tensor *loss_of_nothing(void *arg)
{
    return loss_of(arg, (rows){0, 0});
}

static inline tri_status update_by(const trainer *t)
{
    tri_status st;

    if (t->scaler == NULL)
        return update(&t->j->c, t->opt);
    tri_grad_scaler_unscale(t->scaler, t->opt);
    clip(&t->j->c, t->opt);
    st = tri_grad_scaler_step(t->scaler, t->opt);
    return st == TRI_OK ? tri_grad_scaler_update(t->scaler) : st;
}

static inline tri_status update_joined(void *arg)
{
    return update_by(arg);
}

/* One update. */
static inline tri_status train_step(const trainer *t, double *loss_out)
{
    const composition *c = &t->j->c;
    int rank = c->place >= IN_STAGES ? 0 : t->rank; /* all have one batch */
    int batches = batches_of(c), share = share_of(t->j->k, c, rank);
    tri_tensor *sum = NULL;
    tri_status st = TRI_OK;

    for (int b = 0; b < batches; b++) {
        rows r = rows_of(t->j->k, c, rank, b);
        bool local = c->gather == NO_SYNC && b < batches - 1;
        tri_tensor *loss;

        if (c->place == IN_STAGES) {
            sum = pass_through_stages(t, r);
            continue;
        }
        if (local)
            set_local(c, t->model, true);
        loss = tri_mul_scalar(loss_of(t, r), 1.0 / batches);
        tri_backward(t->scaler != NULL ? tri_grad_scaler_scale(t->scaler, loss) : loss);
        if (local)
            set_local(c, t->model, false);
        sum = sum != NULL ? tri_add(sum, loss) : loss;
    }
    if (t->scaler != NULL) /* else the loss is kept as what the backward pass begins with */
        sum = tri_keep(sum);
    if (t->between != NULL)
        st = t->between(t);
    if (st == TRI_OK)
        st = update_by(t);
    *loss_out = share > 0 ? tri_item(sum) * share : 0;
    return st == TRI_OK ? tri_step_end_status() : st;
}

static inline const char *train_steps(rank_env *env, trainer *t, job *j)
{
    result *to = &j->ranks[env->rank];

    for (int step = 0; step < steps_of(&j->c, env->rank); step++)
        JOB_TRY(env, j, train_step(t, &to->losses[step]));
    if (j->c.join)
        JOB_TRY(env, j, tri_ddp_join(t->model, loss_of_nothing, update_joined, t, NULL));
    for (int i = 0; i < averaged_models(&j->c) && j->c.ranks > 1; i++)
        JOB_TRY(env, j, tri_ddp_verify(averaged_model(&j->c, t->model, i), false));
    JOB_TRY(env, j, keep_result(t->model, to));
    return NULL;
}

static inline const char *composed(rank_env *env, tri_group *group, job *j, tri_module **model_out)
{
    JOB_TRY(env, j, compose(j, group, model_out));
    return NULL;
}

static inline const char *train_rank(rank_env *env, tri_group *group, job *j)
{
    trainer t = {.j = j, .rank = env->rank};
    const char *failure = composed(env, group, j, &t.model);

    if (failure == NULL) {
        t.opt = optimizer_of(&j->c, t.model);
        failure = train_steps(env, &t, j);
    }
    tri_step_end();
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return failure;
}

/* --- comparison ----------------------------------------------------------- */

/* What differs, or NULL. `losses` are sums over all ranks. */
static inline const char *difference(const job *j, const double *losses, const result *got,
                                     const result *alone, char *text, size_t bytes)
{
    for (int s = 0; s < STEPS; s++) {
        if (!check_is_near(losses[s] / ROWS, alone->losses[s] / ROWS, BOUND)) {
            snprintf(text, bytes, "%s: loss of step %d is %.15g, alone %.15g", j->name, s,
                     losses[s] / ROWS, alone->losses[s] / ROWS);
            return text;
        }
    }
    for (int i = 0; i < alone->n_state; i++) {
        if (!check_is_near(got->state[i], alone->state[i], BOUND)) {
            snprintf(text, bytes, "%s: number %d of the state is %.15g, alone %.15g", j->name, i,
                     got->state[i], alone->state[i]);
            return text;
        }
    }
    if (got->n_state != alone->n_state || alone->n_state < 100) {
        snprintf(text, bytes, "%s: %d numbers, alone %d", j->name, got->n_state, alone->n_state);
        return text;
    }
    return NULL;
}

#endif
