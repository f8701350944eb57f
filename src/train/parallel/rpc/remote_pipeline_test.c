/*
 * remote_pipeline_test.c - models in parts on several workers: micro-batches, owners that are late,
 * replies in any order, tri_ddp beside them, and functions instead of modules.
 * ctest: start=first
 */
#include "train/parallel/rpc/remote_internal.h"
#include "testing/remote_workers.h"

#define WIDTH 8
#define ROWS 12
#define SPLITS 6
#define STEPS 3

/* --- an owner that is late ------------------------------------------------ */

static atomic_uint turns;

/* As long as nobody can foresee: up to 0.4 ms. */
static void be_late(void)
{
    const uint32_t turn = atomic_fetch_add(&turns, 1);
    const int64_t until = trii_now_ns() + (int64_t)(turn * 2654435761u >> 13) % 400000;

    while (trii_now_ns() < until)
        trii_thread_yield();
}

static tri_status late_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].data = NULL;
    return TRI_OK;
}

static size_t bytes_of(const tri_function_array *array)
{
    size_t n = sizeof(float);

    for (int d = 0; d < array->ndim; d++)
        n *= (size_t)array->shape[d];
    return n;
}

static tri_status late_forward(const tri_function_call *call)
{
    be_late();
    memcpy(call->out[0].data, call->in[0].data, bytes_of(&call->in[0]));
    return TRI_OK;
}

static tri_status late_backward(const tri_function_call *call)
{
    be_late();
    memcpy(call->grad_in[0].data, call->grad_out[0].data, bytes_of(&call->grad_in[0]));
    return TRI_OK;
}

static const tri_function_class late_class = {.name = "late",
                                              .shape = late_shape,
                                              .forward = late_forward,
                                              .backward = late_backward,
                                              .backward_without_in = true,
                                              .backward_without_out = true};

static tri_tensor *late(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = NULL;

    (void)self;
    tri_function_apply(&late_class, NULL, &x, 1, &y, 1);
    return y;
}

/* --- shards --------------------------------------------------------------- */

static tri_module *make_shard(uint64_t seed)
{
    tri_manual_seed(seed);
    return tri_nn_sequential(tri_nn_linear(WIDTH, 16, NULL), tri_nn_batch_norm1d(16, NULL),
                             tri_nn_relu(), tri_nn_dropout(0.3), tri_module_simple("Late", 0, late),
                             tri_nn_linear(16, WIDTH, NULL));
}

typedef struct shards {
    tri_module *net[2];
    tri_optimizer *opt[2];
} shards;

static void shards_begin(shards *s)
{
    for (int i = 0; i < 2; i++) {
        s->net[i] = make_shard((uint64_t)i + 1);
        s->opt[i] = tri_sgd(s->net[i], 0.05, &(tri_sgd_options){.momentum = 0.9});
    }
}

static void shards_end(shards *s)
{
    for (int i = 0; i < 2; i++) {
        tri_optimizer_destroy(s->opt[i]);
        tri_module_destroy(s->net[i]);
    }
}

/* All forwards, then one backward. */
static void record_at_once(tri_module *const *net, tri_tensor *x, tri_tensor *y)
{
    tri_tensor *piece[SPLITS], *out[SPLITS];

    tri_chunk(x, SPLITS, 0, piece);
    for (int i = 0; i < SPLITS; i++)
        out[i] = tri_forward(net[1], tri_forward(net[0], piece[i]));
    tri_backward(tri_mse_loss(tri_concat(out, SPLITS, 0), y, NULL));
}

/* A backward after each forward, as in 1F1B. */
static void record_in_turn(tri_module *const *net, tri_tensor *x, tri_tensor *y)
{
    tri_tensor *piece[SPLITS], *target[SPLITS];

    tri_chunk(x, SPLITS, 0, piece);
    tri_chunk(y, SPLITS, 0, target);
    for (int i = 0; i < SPLITS; i++)
        tri_backward(
            tri_mse_loss(tri_forward(net[1], tri_forward(net[0], piece[i])), target[i], NULL));
}

typedef void (*record_step)(tri_module *const *net, tri_tensor *x, tri_tensor *y);

static void compare_pipelines(record_step record)
{
    tri_module *remote[2];
    tri_remote_optimizer *opt;
    tri_tensor *x, *y;
    shards here, there;
    remote_workers r;

    remote_begin(&r, 3, NULL);
    shards_begin(&here);
    shards_begin(&there);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "shard1", there.net[0], there.opt[0], NULL));
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "shard2", there.net[1], there.opt[1], NULL));
    remote[0] = tri_remote_module(r.w.rpc[0], "w1/shard1", NULL);
    remote[1] = tri_remote_module(r.w.rpc[0], "w2/shard2", NULL);
    opt = tri_remote_optimizer_of(NULL, remote, 2, NULL);
    x = remote_tensor((int64_t[]){ROWS, WIDTH}, 2, TRI_DTYPE_F32, 1);
    y = remote_tensor((int64_t[]){ROWS, WIDTH}, 2, TRI_DTYPE_F32, 2);
    tri_manual_seed(7);
    for (int step = 0; step < STEPS; step++) {
        record(here.net, x, y);
        for (int i = 0; i < 2; i++)
            CHECK_OK(tri_optimizer_step(here.opt[i]));
        tri_step_end();
    }
    tri_manual_seed(7);
    for (int step = 0; step < STEPS; step++) {
        record(remote, x, y);
        CHECK_OK(tri_remote_optimizer_step(opt));
        tri_step_end();
    }
    for (int i = 0; i < 2; i++)
        remote_expect_equal_state(here.net[i], there.net[i]);
    tri_remote_optimizer_destroy(opt);
    for (int i = 0; i < 2; i++)
        tri_module_destroy(remote[i]);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "shard1"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "shard2"));
    shards_end(&here);
    shards_end(&there);
    remote_end(&r);
}

static void a_pipeline_of_late_owners_has_the_bits_of_one_process(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        compare_pipelines(record_at_once);
}

static void a_backward_after_each_forward_has_the_bits_of_one_process(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        compare_pipelines(record_in_turn);
}

/* --- beside tri_ddp ------------------------------------------------------- */

#define TRAINERS 2
#define TABLE 20

typedef struct trainer {
    int rank;
    tri_store *store;
    tri_rpc *rpc; /* NULL: its table is its own */
    tri_module *table;
    tri_optimizer *table_opt;
    trii_thread thread;
    tri_status status;
    char error[512];
    float weight[WIDTH * 3];
} trainer;

static tri_module *make_table(void)
{
    tri_manual_seed(3);
    return tri_nn_embedding(TABLE, WIDTH, NULL);
}

static tri_status ddp_step(trainer *t, tri_module *net, tri_module *table, tri_optimizer *own,
                           tri_remote_optimizer *opt, int step)
{
    int64_t at[4], class[4];
    tri_tensor *indices, *targets;
    tri_status status;

    for (int i = 0; i < 4; i++) { /* no row is both trainers': their updates come in any order */
        at[i] = (step * 7 + i * 3) % (TABLE / 2) * 2 + t->rank;
        class[i] = (step + i + t->rank) % 3;
    }
    indices = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_I64, at);
    targets = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_I64, class);
    tri_backward(tri_cross_entropy(tri_forward(net, tri_forward(table, indices)), targets, NULL));
    status = opt != NULL ? tri_remote_optimizer_step(opt) : tri_optimizer_step(own);
    if (status == TRI_OK && opt == NULL)
        status = tri_optimizer_step(t->table_opt);
    tri_tensor_unref(indices);
    tri_tensor_unref(targets);
    if (status == TRI_OK)
        status = tri_step_end_status();
    return status;
}

static tri_status run_trainer(trainer *t)
{
    tri_group *group = NULL;
    tri_module *net, *table = t->table;
    tri_optimizer *own;
    tri_remote_optimizer *opt = NULL;
    tri_status status = tri_group_create(t->store, t->rank, TRAINERS, NULL, &group);

    if (status != TRI_OK)
        return status;
    for (int i = 0; i < WIDTH * 3; i++)
        t->weight[i] = (float)remote_spread(i, 5);
    net = tri_ddp(tri_nn_linear(WIDTH, 3, &(tri_nn_linear_options){.no_bias = true}),
                  &(tri_ddp_options){.group = group});
    status = tri_tensor_copy_in(tri_module_find(net, "weight"), t->weight, sizeof(t->weight));
    own = tri_sgd(net, 0.1, NULL);
    if (t->rpc != NULL) {
        table = tri_remote_module(t->rpc, "w2/table", NULL);
        opt = tri_remote_optimizer_of(own, &table, 1, NULL);
    }
    for (int step = 0; step < 20 && status == TRI_OK; step++)
        status = ddp_step(t, net, table, own, opt, step);
    if (status == TRI_OK)
        status = tri_tensor_copy_out(tri_module_find(net, "weight"), t->weight, sizeof(t->weight));
    if (status != TRI_OK)
        snprintf(t->error, sizeof(t->error), "%s", tri_last_error());
    tri_step_end();
    tri_remote_optimizer_destroy(opt);
    if (t->rpc != NULL)
        tri_module_destroy(table);
    tri_optimizer_destroy(own);
    tri_module_destroy(net);
    tri_group_unref(group);
    trii_step_release();
    return status;
}

static void trainer_main(void *arg)
{
    trainer *t = arg;

    t->status = run_trainer(t);
}

static void run_trainers(trainer *trainers)
{
    tri_store *store = NULL;

    tri_manual_seed(11);
    CHECK_OK(tri_store_hash(&store));
    for (int i = 0; i < TRAINERS; i++) {
        trainers[i].rank = i;
        trainers[i].store = store;
        CHECK_OK(trii_thread_start(&trainers[i].thread, "trainer", trainer_main, &trainers[i]));
    }
    for (int i = 0; i < TRAINERS; i++)
        trii_thread_join(&trainers[i].thread);
    for (int i = 0; i < TRAINERS; i++) {
        if (trainers[i].status != TRI_OK)
            fail_msg("trainer %d: %s", i, trainers[i].error);
    }
    tri_store_unref(store);
}

static void copy_table(tri_module *table, float data[TABLE][WIDTH])
{
    CHECK_OK(
        tri_tensor_copy_out(tri_module_find(table, "weight"), data, sizeof(float) * TABLE * WIDTH));
}

static void trainers_of_tri_ddp_share_a_remote_table(void **state)
{
    trainer alone[TRAINERS] = {{0}}, shared[TRAINERS] = {{0}};
    static float own[TRAINERS][TABLE][WIDTH], all[TABLE][WIDTH];
    tri_optimizer *opt;
    tri_module *table;
    remote_workers r;

    (void)state;
    remote_begin(&r, 3, NULL);
    for (int i = 0; i < TRAINERS; i++) {
        alone[i].table = make_table();
        alone[i].table_opt = tri_sgd(alone[i].table, 0.1, NULL);
    }
    run_trainers(alone);
    table = make_table();
    opt = tri_sgd(table, 0.1, NULL);
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "table", table, opt, NULL));
    for (int i = 0; i < TRAINERS; i++)
        shared[i].rpc = r.w.rpc[i];
    run_trainers(shared);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "table"));
    copy_table(table, all);
    for (int i = 0; i < TRAINERS; i++) {
        copy_table(alone[i].table, own[i]);
        for (int row = i; row < TABLE; row += TRAINERS)
            assert_memory_equal(all[row], own[i][row], sizeof(all[row]));
        assert_memory_equal(alone[i].weight, shared[i].weight, sizeof(alone[i].weight));
        tri_optimizer_destroy(alone[i].table_opt);
        tri_module_destroy(alone[i].table);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(table);
    remote_end(&r);
}

/* --- functions ------------------------------------------------------------ */

typedef struct scale_data {
    double factor;
} scale_data;

static tri_status scale_shape(const tri_function_call *call, tri_function_array *out)
{
    if (call->n_in != 2 || call->n_out != 2)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "scale takes 2 tensors and gives 2");
    for (int i = 0; i < 2; i++)
        out[i] = call->in[i];
    return TRI_OK;
}

static void scale_record(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out, void *object)
{
    const scale_data *d = data;
    const double *more = object;

    (void)n_in;
    (void)n_out;
    out[0] = tri_mul_scalar(tri_tanh(in[0]), d->factor * *more);
    out[1] = tri_dropout(in[1], 0.5, true);
}

static const tri_remote_function scale = {
    .name = "scale", .size = sizeof(scale_data), .shape = scale_shape, .record = scale_record};

static void a_function_runs_there_with_its_data_and_gradients(void **state)
{
    double more = 2;
    tri_tensor *x[2], *rx[2], *y, *ry[2];
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    CHECK_OK(tri_remote_serve_function(r.w.rpc[1], &scale, &more, NULL));
    for (int i = 0; i < 2; i++) {
        x[i] = remote_tensor((int64_t[]){3, 4}, 2, TRI_DTYPE_F64, i + 1);
        rx[i] = remote_tensor((int64_t[]){3, 4}, 2, TRI_DTYPE_F64, i + 1);
        tri_requires_grad(x[i], true);
        tri_requires_grad(rx[i], true);
    }
    for (int step = 1; step < 4; step++) {
        const scale_data data = {.factor = step};
        double dropped[12];
        int zeros = 0;

        y = tri_keep(tri_mul_scalar(tri_tanh(x[0]), 2.0 * step));
        tri_remote_apply(r.w.rpc[0], "w1", &scale, &data, rx, 2, ry, 2);
        CHECK_OK(tri_tensor_status(ry[0]));
        (void)tri_keep(ry[0]);
        (void)tri_keep(ry[1]);
        tri_backward(tri_sum(tri_square(y), NULL, 0, false));
        tri_backward(tri_sum(tri_square(ry[0]), NULL, 0, false));
        CHECK_OK(tri_run());
        remote_expect_equal(y, ry[0]);
        remote_expect_equal(tri_grad(x[0]), tri_grad(rx[0]));
        CHECK_OK(tri_tensor_copy_out(ry[1], dropped, sizeof(dropped)));
        for (int i = 0; i < 12; i++)
            zeros += dropped[i] == 0;
        assert_true(zeros > 0 && zeros < 12);
        tri_step_end();
    }
    tri_remote_apply(r.w.rpc[0], "w1", &scale, &(scale_data){1}, rx, 1, ry, 1);
    CHECK_FAILS(tri_tensor_status(ry[0]), TRI_ERR_INVALID_ARG, "scale takes 2 tensors");
    tri_step_end();
    for (int i = 0; i < 2; i++) {
        tri_tensor_unref(x[i]);
        tri_tensor_unref(rx[i]);
    }
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "scale"));
    remote_end(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pipeline_of_late_owners_has_the_bits_of_one_process),
    cmocka_unit_test(a_backward_after_each_forward_has_the_bits_of_one_process),
    cmocka_unit_test(trainers_of_tri_ddp_share_a_remote_table),
    cmocka_unit_test(a_function_runs_there_with_its_data_and_gradients),
};

TEST_MAIN(tests)
