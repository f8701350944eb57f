/*
 * ddp_test.c - data-parallel training with ranks as threads: the same as one worker on the whole
 * batch, whatever the number of ranks, parts, buckets and unused parameters.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "graph/step.h"
#include "os/thread.h"
#include "testing/check.h"

#define MAX_RANKS 4
#define ROWS 12
#define IN 6
#define OUT 3
#define STEPS 5
#define WEIGHTS 512

/* --- ranks as threads ----------------------------------------------------------------------- */

typedef struct rank rank;
typedef tri_status (*rank_body)(rank *r);

struct rank {
    int index, size;
    tri_store *store;
    tri_group *group;
    rank_body body;
    const void *arg;
    tri_status status;
    char line[512];
    double weights[WEIGHTS]; /* what the body leaves to be compared */
    int n_weights;
    uint64_t hash;
};

static void run_rank(void *arg)
{
    rank *r = arg;

    r->status = tri_group_create(r->store, r->index, r->size, NULL, &r->group);
    if (r->status == TRI_OK)
        r->status = r->body(r);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_group_unref(r->group);
}

static void run_ranks(rank *ranks, int size, rank_body body, const void *arg)
{
    trii_thread threads[MAX_RANKS];
    tri_store *store;

    CHECK_OK(tri_store_hash(&store));
    for (int i = 0; i < size; i++) {
        ranks[i] = (rank){.index = i, .size = size, .store = store, .body = body, .arg = arg};
        CHECK_OK(trii_thread_start(&threads[i], "rank", run_rank, &ranks[i]));
    }
    for (int i = 0; i < size; i++)
        trii_thread_join(&threads[i]);
    tri_store_unref(store);
}

static void check_ranks(const rank *ranks, int size)
{
    for (int i = 0; i < size; i++)
        if (ranks[i].status != TRI_OK)
            fail_msg("rank %d of %d: %s: %s", i, size, tri_status_name(ranks[i].status),
                     ranks[i].line);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tri_status try_status_ = (call);                                                           \
        if (try_status_ < 0)                                                                       \
            return try_status_;                                                                    \
    } while (0)

/* --- the problem: an MLP in double precision ------------------------------------------------ */

static double x_data[ROWS * IN], y_data[ROWS * OUT];

static void make_data(void)
{
    unsigned seed = 5;

    for (int i = 0; i < ROWS * IN + ROWS * OUT; i++) {
        double *to = i < ROWS * IN ? &x_data[i] : &y_data[i - ROWS * IN];

        seed = seed * 1664525u + 1013904223u;
        *to = (double)(seed >> 8) / (double)(1 << 23) - 1.0;
    }
}

static tri_tensor *rows_of(const double *data, int width, int first, int n)
{
    return tri_tensor_from(TRI_DTYPE_F64, (int64_t[]){n, width}, 2, data + first * width);
}

/* The seed is the process's: one rank at a time draws initial values. */
static trii_mutex drawing = TRII_MUTEX_INITIALIZER;

static tri_module *mlp(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_sequential(tri_nn_linear(IN, 8), tri_nn_relu(), tri_nn_linear(8, 8), tri_nn_relu(),
                         tri_nn_linear(8, OUT));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status take_weights(rank *r, tri_module *model)
{
    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *t = tri_module_state(model, i).tensor;
        int n = (int)tri_tensor_numel(t);

        if (tri_tensor_dtype(t) != TRI_DTYPE_F64)
            continue;
        TRY(tri_copy_out(t, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        r->n_weights += n;
    }
    return tri_module_hash(model, &r->hash);
}

static void check_near(const double *a, const double *b, int n, double bound)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= bound))
            fail_msg("weight %d: %.17g and %.17g", i, a[i], b[i]);
}

/* How a test trains. */
typedef struct plan {
    int parts[MAX_RANKS + 1]; /* rank r has rows parts[r] to parts[r + 1] */
    tri_ddp_options options;
    int micro; /* micro-batches of each step; all but the last inside no_sync if no_sync */
    bool no_sync;
    bool composed; /* the loss has a factor and a penalty */
} plan;

static tri_tensor *penalty(tri_module *model)
{
    tri_tensor *weight = tri_module_find(model, "0.weight");

    return tri_mul_scalar(tri_sum(tri_mul(weight, weight), NULL, 0, false), 0.01);
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int first = p->parts[r->index], n = p->parts[r->index + 1] - first;
    int micro = p->micro > 0 ? p->micro : 1;
    tri_ddp_options options = p->options;
    tri_module *model;
    tri_optimizer *opt;
    tri_tensor *x[2], *y[2];
    tri_status st;

    options.group = r->group;
    model = tri_ddp(mlp(1 + (uint64_t)r->index), &options);
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.01});
    for (int m = 0; m < micro; m++) {
        x[m] = rows_of(x_data, IN, first + m * (n / micro), n / micro);
        y[m] = rows_of(y_data, OUT, first + m * (n / micro), n / micro);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < micro; m++) {
            bool local = p->no_sync && m < micro - 1;
            tri_tensor *loss;

            if (local)
                tri_no_sync_begin(model);
            loss = tri_mse_loss(tri_forward(model, x[m]), y[m]);
            if (p->composed)
                loss = tri_add(tri_mul_scalar(loss, 0.5), penalty(model));
            tri_backward(loss);
            if (local)
                tri_no_sync_end(model);
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    st = r->size > 1 ? tri_ddp_verify(model, true) : TRI_OK;
    if (st == TRI_OK)
        st = take_weights(r, model);
    for (int m = 0; m < micro; m++) {
        tri_tensor_unref(x[m]);
        tri_tensor_unref(y[m]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return st;
}

static const plan whole = {.parts = {0, ROWS}};

/* Trains with the plan on `size` ranks and compares with one rank and its plan. */
static void check_plan(const plan *p, int size, const plan *reference)
{
    static rank one[1], ranks[MAX_RANKS];

    make_data();
    run_ranks(one, 1, train, reference);
    check_ranks(one, 1);
    run_ranks(ranks, size, train, p);
    check_ranks(ranks, size);
    assert_true(one[0].n_weights > 100);
    check_near(ranks[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    for (int i = 1; i < size; i++)
        assert_true(ranks[i].hash == ranks[0].hash);
}

static void equal_parts_are_the_whole_batch(void **state)
{
    (void)state;
    check_plan(&(plan){.parts = {0, 6, 12}}, 2, &whole);
    check_plan(&(plan){.parts = {0, 4, 8, 12}}, 3, &whole);
    check_plan(&(plan){.parts = {0, 3, 6, 9, 12}}, 4, &whole);
}

static void uneven_parts_are_the_whole_batch(void **state)
{
    (void)state;
    check_plan(&(plan){.parts = {0, 9, 12}}, 2, &whole);
    check_plan(&(plan){.parts = {0, 1, 5, 12}}, 3, &whole);
}

static void a_composed_loss_weighs_by_the_rows_under_its_mean(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .composed = true};

    (void)state;
    check_plan(&(plan){.parts = {0, 9, 12}, .composed = true}, 2, &reference);
}

static void buckets_change_no_bit(void **state)
{
    static rank a[2], b[2];
    const plan one_bucket = {.parts = {0, 5, 12}};
    const plan many = {.parts = {0, 5, 12},
                       .options = {.bucket_cap_bytes = 200, .first_bucket_bytes = 1}};

    (void)state;
    make_data();
    run_ranks(a, 2, train, &one_bucket);
    check_ranks(a, 2);
    run_ranks(b, 2, train, &many);
    check_ranks(b, 2);
    assert_true(a[0].hash == b[0].hash);
}

static void gradients_of_no_sync_travel_with_the_next(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .micro = 2};

    (void)state;
    /* Micro-batch m of both ranks together is not micro-batch m of one, but the sum over both is
     * the same: every row counts once, with the same weight. */
    check_plan(&(plan){.parts = {0, 6, 12}, .micro = 2, .no_sync = true}, 2, &reference);
}

/* Micro-batches of 3 and 3 rows on rank 0, of 5 and 1 on rank 1. A rank weighs by all the rows
 * since the last synchronised backward: here both the same. */
static tri_status train_unlike_parts(rank *r)
{
    static const int at[5] = {0, 3, 6, 11, 12};
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *held[8] = {NULL};

    TRY(tri_module_status(model));
    for (int m = 0; m < 4; m++) {
        held[m] = rows_of(x_data, IN, at[m], at[m + 1] - at[m]);
        held[4 + m] = rows_of(y_data, OUT, at[m], at[m + 1] - at[m]);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < 4; m++) {
            tri_tensor *loss;

            if (r->size == 2 && m / 2 != r->index)
                continue;
            if (m % 2 == 0)
                tri_no_sync_begin(model);
            loss = tri_mse_loss(tri_forward(model, held[m]), held[4 + m]);
            tri_backward(r->size == 2 ? loss : tri_mul_scalar(loss, 0.5));
            if (m % 2 == 0)
                tri_no_sync_end(model);
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    for (int i = 0; i < 8; i++)
        tri_tensor_unref(held[i]);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void ranks_weigh_by_all_rows_since_the_last_time(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    run_ranks(one, 1, train_unlike_parts, NULL);
    check_ranks(one, 1);
    run_ranks(two, 2, train_unlike_parts, NULL);
    check_ranks(two, 2);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

static void two_synchronised_backwards_add_up(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .micro = 2};

    (void)state;
    check_plan(&(plan){.parts = {0, 6, 12}, .micro = 2}, 2, &reference);
}

static void eager_mode_gives_the_same(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    check_plan(&(plan){.parts = {0, 5, 12}}, 2, &whole);
}

/* --- unused parameters ---------------------------------------------------------------------- */

/* A trunk and three heads; the forward takes the head by a number in its data. */
typedef struct forked {
    tri_module *trunk, *head[3];
    int chosen;
} forked;

static void forked_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    forked *f = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_forward(f->head[f->chosen], tri_relu(tri_forward(f->trunk, in[0])));
}

static tri_module *forked_create(void)
{
    static const tri_module_class type = {
        .name = "forked", .size = sizeof(forked), .forward = forked_forward};
    tri_module *self = tri_module_create(&type);
    forked *f = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    f->trunk = tri_module_child(self, "trunk", tri_nn_linear(IN, 5));
    f->head[0] = tri_module_child(self, "head0", tri_nn_linear(5, OUT));
    f->head[1] = tri_module_child(self, "head1", tri_nn_linear(5, OUT));
    f->head[2] = tri_module_child(self, "head2", tri_nn_linear(5, OUT));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

/* Rank r uses head (step + r) % 2; one rank alone plays both and weighs their losses by rows. */
static tri_status train_forked(rank *r)
{
    static const int parts[3] = {0, 8, ROWS};
    tri_module *net = forked_create();
    forked *f = tri_module_data(net);
    tri_module *model = tri_ddp(net, &(tri_ddp_options){
                                         .group = r->group,
                                         .bucket_cap_bytes = 300,
                                         .first_bucket_bytes = 100,
                                     });
    tri_optimizer *opt;

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.1});
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *total = NULL, *held[4] = {NULL};

        for (int part = 0; part < 2; part++) {
            int n = parts[part + 1] - parts[part];
            tri_tensor *loss;

            if (r->size == 2 && part != r->index)
                continue;
            held[2 * part] = rows_of(x_data, IN, parts[part], n);
            held[2 * part + 1] = rows_of(y_data, OUT, parts[part], n);
            f->chosen = (step / 2 + part) % 2; /* both, in steps 2 and 3 the other way round */
            if (step == 4)
                f->chosen = 0;
            loss = tri_mse_loss(tri_forward(model, held[2 * part]), held[2 * part + 1]);
            if (r->size == 2)
                total = loss;
            else
                total = part == 0 ? tri_mul_scalar(loss, (double)n / ROWS)
                                  : tri_add(total, tri_mul_scalar(loss, (double)n / ROWS));
        }
        tri_backward_n(total, parts[r->index + 1] - parts[r->index]);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        for (int i = 0; i < 4; i++)
            tri_tensor_unref(held[i]);
    }
    TRY(r->size > 1 ? tri_ddp_verify(model, true) : TRI_OK);
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void unused_parameters_are_zeros_or_left_alone(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    run_ranks(one, 1, train_forked, NULL);
    check_ranks(one, 1);
    run_ranks(two, 2, train_forked, NULL);
    check_ranks(two, 2);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* A backward whose gradients are thrown away, then one that counts. */
static tri_status train_after_zero_grad(rank *r)
{
    tri_module *net = forked_create();
    forked *f = tri_module_data(net);
    tri_module *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt;
    tri_tensor *x, *y;

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    x = rows_of(x_data, IN, r->index * (ROWS / r->size), ROWS / r->size);
    y = rows_of(y_data, OUT, r->index * (ROWS / r->size), ROWS / r->size);
    for (int step = 0; step < 3; step++) {
        f->chosen = step % 2;
        tri_backward(tri_mse_loss(tri_forward(model, x), y));
        if (step == 1) {
            TRY(tri_run());
            tri_optimizer_zero_grad(opt);
        } else {
            TRY(tri_optimizer_step(opt));
        }
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void gradients_may_be_thrown_away(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    run_ranks(one, 1, train_after_zero_grad, NULL);
    check_ranks(one, 1);
    run_ranks(two, 2, train_after_zero_grad, NULL);
    check_ranks(two, 2);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* The loss of every second step reaches a tensor outside of the model too. */
static tri_status train_beside_another_leaf(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt;
    tri_tensor *x, *y, *shift = tri_tensor_create(TRI_DTYPE_F64, (int64_t[]){OUT}, 1);

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    tri_requires_grad(shift, true);
    x = rows_of(x_data, IN, r->index * (ROWS / r->size), ROWS / r->size);
    y = rows_of(y_data, OUT, r->index * (ROWS / r->size), ROWS / r->size);
    for (int step = 0; step < 4; step++) {
        tri_tensor *out = tri_forward(model, x);

        tri_backward(tri_mse_loss(step % 2 ? tri_add(out, shift) : out, y));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(shift);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_leaf_outside_the_model_changes_no_weight(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    run_ranks(one, 1, train_beside_another_leaf, NULL);
    check_ranks(one, 1);
    run_ranks(two, 2, train_beside_another_leaf, NULL);
    check_ranks(two, 2);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* Two layers with one weight. */
typedef struct tied {
    tri_tensor *weight;
} tied;

static void tied_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    tied *t = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_matmul(tri_relu(tri_matmul(in[0], t->weight)), t->weight);
}

static tri_status train_tied(rank *r)
{
    static const tri_module_class type = {
        .name = "tied", .size = sizeof(tied), .forward = tied_forward};
    tri_module *net = tri_module_create(&type), *model;
    tied *t = tri_module_data(net);
    int first = r->size == 2 && r->index == 1 ? 5 : 0;
    int n = r->size == 1 ? ROWS : r->index == 0 ? 5 : ROWS - 5;
    tri_tensor *x = rows_of(x_data, IN, first, n);
    tri_optimizer *opt;

    t->weight = tri_module_parameter(
        net, "first", tri_tensor_from(TRI_DTYPE_F64, (int64_t[]){IN, IN}, 2, y_data));
    (void)tri_module_parameter(net, "second", tri_tensor_ref(t->weight));
    if (tri_module_num_parameters(net) != IN * IN)
        return TRI_ERR_INTERNAL;
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    if (tri_optimizer_state_count(opt) != 2)
        return TRI_ERR_INTERNAL;
    for (int step = 0; step < STEPS; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), x));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_shared_weight_is_one_parameter(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    run_ranks(one, 1, train_tied, NULL);
    check_ranks(one, 1);
    run_ranks(two, 2, train_tied, NULL);
    check_ranks(two, 2);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
    assert_true(fabs(one[0].weights[0] - y_data[0]) > 1e-6); /* it was trained */
}

/* --- failures ------------------------------------------------------------------------------- */

static tri_status destroy_while_pending(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_status st = tri_module_status(model);

    for (int step = 0; step < 3 && st == TRI_OK; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y));
        if (step == 2)
            tri_module_destroy(model);
        st = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return st;
}

static void a_pending_step_outlives_its_model(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, destroy_while_pending, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_STATE);
        assert_non_null(
            strstr(ranks[i].line, "the DDP model was destroyed while a step was pending"));
    }
}

/* Rank 1's second step has a label that is no class. */
static tri_status train_with_a_bad_label(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2);
    tri_status st = tri_module_status(model);

    for (int step = 0; step < 3 && st == TRI_OK; step++) {
        const int64_t labels[2] = {0, r->index == 1 && step == 1 ? 77 : 1};
        tri_tensor *y = tri_tensor_from(TRI_DTYPE_I64, (int64_t[]){2}, 1, labels);

        tri_backward(tri_cross_entropy(tri_forward(model, x), y, NULL));
        st = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        tri_tensor_unref(y);
    }
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return st;
}

static void a_failure_of_one_rank_is_the_peers_at_once(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    run_ranks(ranks, 3, train_with_a_bad_label, NULL);
    assert_int_equal(ranks[1].status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(ranks[1].line, "77"));
    for (int i = 0; i < 3; i += 2) {
        if (ranks[i].status != TRI_ERR_ABORTED && ranks[i].status != TRI_ERR_PEER_LOST)
            fail_msg("rank %d: %s: %s", i, tri_status_name(ranks[i].status), ranks[i].line);
        if (strstr(ranks[i].line, "rank 1 aborted the group") == NULL ||
            strstr(ranks[i].line, "77") == NULL)
            fail_msg("rank %d: %s", i, ranks[i].line);
    }
}

/* --- construction --------------------------------------------------------------------------- */

static tri_status differing_models(rank *r)
{
    tri_module *model = tri_ddp(
        tri_sequential(tri_nn_linear(4, 4), tri_nn_relu(), tri_nn_linear(4, r->index == 1 ? 3 : 2)),
        &(tri_ddp_options){.group = r->group});
    tri_status st = tri_module_status(model);

    tri_module_destroy(model);
    return st;
}

static void differing_models_are_named_on_every_rank(void **state)
{
    static rank ranks[3];

    (void)state;
    run_ranks(ranks, 3, differing_models, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(
            strstr(ranks[i].line, "rank 1 has 2.weight f32[3, 4], rank 0 has 2.weight f32[2, 4]"));
    }
}

static tri_status longer_model(rank *r)
{
    tri_module *net = r->index == 0 ? tri_sequential(tri_nn_linear(4, 4))
                                    : tri_sequential(tri_nn_linear(4, 4), tri_nn_linear(4, 4));
    tri_module *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_status st = tri_module_status(model);

    tri_module_destroy(model);
    return st;
}

static void missing_layers_are_named_too(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, longer_model, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[i].line, "rank 1 has 1.weight f32[4, 4], rank 0 has nothing "
                                              "more (2 entries)"));
    }
}

static tri_status drift(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *bias = tri_module_find(model, "2.bias");
    double values[8] = {0};
    tri_status st;

    TRY(tri_module_status(model));
    TRY(tri_ddp_verify(model, true));
    if (r->index == 1)
        TRY(tri_copy_in(bias, values, sizeof(values)));
    st = tri_ddp_verify(model, true);
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    return st;
}

static void verify_names_who_drifted(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, drift, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[i].line, "2.bias f64[8] of rank 1"));
    }
}

/* --- votes, counts, buffers ----------------------------------------------------------------- */

static tri_status vote(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 2 + r->index),
               *y = rows_of(y_data, OUT, 0, 2 + r->index);
    int steps = 0;

    for (; steps < 10 && !tri_ddp_stopped(model); steps++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y));
        if (steps == 3 && r->index == 1)
            tri_ddp_vote_stop(model); /* too late for this one: goes with the next */
        TRY(tri_optimizer_step(opt));
        tri_step_end();
    }
    r->n_weights = steps;
    r->hash = (uint64_t)tri_ddp_sample_count(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void one_vote_stops_all_in_the_same_step(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    run_ranks(ranks, 3, vote, NULL);
    check_ranks(ranks, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].n_weights, 5);
        assert_int_equal(ranks[i].hash, 2 + 3 + 4);
    }
}

/* A layer with a buffer and a counter that its forward changes. */
typedef struct counting {
    tri_tensor *scale, *seen, *calls;
} counting;

static void counting_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    counting *c = tri_module_data(self);
    trii_step *step = trii_step_current();
    tri_tensor *next = tri_add(c->seen, tri_sum(in[0], NULL, 0, false));
    trii_vid value;

    (void)n_in;
    (void)n_out;
    if (trii_resolve(step, next, &value) == TRI_OK && trii_bind(step, value, c->seen) == TRI_OK)
        out[0] = tri_mul(in[0], c->scale);
    ++*(int64_t *)trii_tensor_data(c->calls);
}

static tri_module *counting_create(void)
{
    static const tri_module_class type = {
        .name = "counting", .size = sizeof(counting), .forward = counting_forward};
    tri_module *self = tri_module_create(&type);
    counting *c = tri_module_data(self);

    c->scale = tri_module_parameter(self, "scale", tri_tensor_create(TRI_DTYPE_F64, NULL, 0));
    c->seen = tri_module_buffer(self, "seen", tri_tensor_create(TRI_DTYPE_F64, NULL, 0));
    c->calls = tri_module_buffer(self, "calls", tri_tensor_create(TRI_DTYPE_I64, NULL, 0));
    return self;
}

static tri_status count_sums(rank *r)
{
    const double mine = 1.0 + r->index;
    tri_module *model = tri_ddp(counting_create(), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = tri_tensor_from(TRI_DTYPE_F64, (int64_t[]){1, 1}, 2, &mine);
    tri_tensor *y = tri_tensor_create(TRI_DTYPE_F64, (int64_t[]){1, 1}, 2);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    for (int step = 0; step < 3; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    /* Rank 0 has summed 3 times 1; rank r got 2 from rank 0 and added its own. */
    r->weights[0] = tri_item(tri_module_find(model, "seen"));
    tri_module_train(model, false);
    (void)tri_keep(tri_forward(model, x));
    TRY(tri_step_end_status());
    /* The evaluation began with rank 0's 3. */
    r->weights[1] = tri_item(tri_module_find(model, "seen"));
    r->weights[2] = tri_item(tri_module_find(model, "calls"));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void buffers_come_from_rank_0_before_each_forward(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, count_sums, NULL);
    check_ranks(ranks, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(ranks[i].weights[0] == 2.0 + (1.0 + i));
        assert_true(ranks[i].weights[1] == 3.0 + (1.0 + i));
        assert_true(ranks[i].weights[2] == 4.0);
    }
}

/* --- TRI_CHECK=nan -------------------------------------------------------------------------- */

/* Rank 0 makes a NaN in its backward pass, rank 1 none. */
static tri_status diverge(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4), *loss;
    tri_status st;

    TRY(tri_module_status(model));
    loss = tri_mse_loss(tri_forward(model, x), y);
    if (r->index == 0)
        loss = tri_div(loss, tri_sub(loss, loss));
    tri_backward(loss);
    st = tri_optimizer_step(opt);
    if (st == TRI_OK)
        st = tri_step_end_status();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return st;
}

static void a_nan_is_named_where_it_was_made(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    run_ranks(ranks, 2, diverge, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ranks[i].status, TRI_ERR_NAN);
    assert_non_null(strstr(ranks[0].line, "NaN made by add("));
    assert_non_null(strstr(ranks[1].line, "NaN came in through ddp bucket("));
}

static void a_world_of_one_has_no_hooks(void **state)
{
    tri_module *model = tri_ddp(mlp(1), NULL);

    (void)state;
    CHECK_OK(tri_module_status(model));
    for (int64_t i = 0; i < tri_module_state_count(model); i++)
        assert_null(tri_module_state(model, i).tensor->grad_hook);
    assert_string_equal(tri_module_state(model, 0).name, "0.weight");
    tri_ddp_vote_stop(model);
    assert_true(tri_ddp_stopped(model));
    tri_module_destroy(model);
    tri_finalize();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts_are_the_whole_batch),
        cmocka_unit_test(uneven_parts_are_the_whole_batch),
        cmocka_unit_test(a_composed_loss_weighs_by_the_rows_under_its_mean),
        cmocka_unit_test(buckets_change_no_bit),
        cmocka_unit_test(gradients_of_no_sync_travel_with_the_next),
        cmocka_unit_test(ranks_weigh_by_all_rows_since_the_last_time),
        cmocka_unit_test(two_synchronised_backwards_add_up),
        cmocka_unit_test(eager_mode_gives_the_same),
        cmocka_unit_test(unused_parameters_are_zeros_or_left_alone),
        cmocka_unit_test(gradients_may_be_thrown_away),
        cmocka_unit_test(a_leaf_outside_the_model_changes_no_weight),
        cmocka_unit_test(a_shared_weight_is_one_parameter),
        cmocka_unit_test(a_pending_step_outlives_its_model),
        cmocka_unit_test(a_failure_of_one_rank_is_the_peers_at_once),
        cmocka_unit_test(differing_models_are_named_on_every_rank),
        cmocka_unit_test(missing_layers_are_named_too),
        cmocka_unit_test(verify_names_who_drifted),
        cmocka_unit_test(one_vote_stops_all_in_the_same_step),
        cmocka_unit_test(buffers_come_from_rank_0_before_each_forward),
        cmocka_unit_test(a_nan_is_named_where_it_was_made),
        cmocka_unit_test(a_world_of_one_has_no_hooks),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
