/*
 * ddp_volume_test.c - tri_ddp_volume: how many elements enter each kind of call, against what the
 * strategies are known to send. With S elements of all gradients, each padded to 64 bytes, a step
 * of tri_ddp puts S into an all_reduce; tri_zero S into a reduce_scatter and S into an all_gather.
 */
#include "testing/ddp_ranks.h"
#include "train/parallel/ddp/ddp.h"

#define WIDTH 100 /* its square is more than two blocks of 4,096 elements */
#define BATCHES 3 /* for one update */

enum accumulation { LOCALLY, AS_AVERAGES };

typedef struct strategy {
    int stage;    /* of tri_zero; 0: tri_ddp */
    int replicas; /* along the first axis of a mesh; 0: no mesh */
    tri_bucket_hook hook;
} strategy;

static tri_module *network(void)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    net = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_batch_norm1d(WIDTH, NULL),
                            tri_nn_linear(WIDTH, WIDTH, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status wrap(const rank *r, const strategy *how, tri_module **model_out)
{
    const char *names[] = {"host", "core"};
    tri_mesh *mesh = NULL;

    if (how->replicas > 0)
        TRY(tri_mesh_create(r->group, TRI_SHAPE(how->replicas, r->size / how->replicas), names,
                            &mesh));
    if (how->stage == 0)
        *model_out = tri_ddp(
            network(),
            &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 20000, .hook = how->hook});
    else
        *model_out =
            tri_zero(network(), &(tri_zero_options){.group = mesh == NULL ? r->group : NULL,
                                                    .mesh = mesh,
                                                    .stage = how->stage,
                                                    .bucket_cap_bytes = 20000,
                                                    .hook = how->hook});
    tri_mesh_destroy(mesh);
    return tri_module_status(*model_out);
}

static void backward(tri_module *model, const tri_tensor *x)
{
    tri_tensor *out = tri_forward(model, (tri_tensor *)(uintptr_t)x);

    tri_backward(tri_mul_scalar(tri_mean(tri_square(out), NULL, 0, false), 1.0 / BATCHES));
}

/* One update of several batches. */
static tri_status update(tri_module *model, tri_optimizer *opt, enum accumulation how, double clip)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, WIDTH), TRI_DTYPE_F32);
    tri_status status;

    for (int b = 0; b < BATCHES; b++) {
        if (how == LOCALLY && b < BATCHES - 1)
            tri_ddp_no_sync_begin(model);
        backward(model, x);
        if (how == LOCALLY && b < BATCHES - 1)
            tri_ddp_no_sync_end(model);
    }
    if (clip > 0)
        tri_clip_grad_norm(opt, clip);
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_step_end();
    tri_tensor_unref(x);
    return status;
}

/* Elements in all buckets, blocks of parameters, and bytes of buffers. */
static void count(tri_module *model, int64_t *padded_out, int64_t *blocks_out, int64_t *buffers_out)
{
    *padded_out = *blocks_out = *buffers_out = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        const tri_state_entry entry = tri_module_state(model, i);
        const int64_t n = tri_tensor_numel(entry.tensor);
        const int64_t size = (int64_t)tri_dtype_size(tri_tensor_dtype(entry.tensor));

        if (entry.parameter) {
            *padded_out += (n * size + 63) / 64 * 64 / size;
            *blocks_out += (n + 4095) / 4096;
        } else {
            *buffers_out += (n * size + 63) / 64 * 64;
        }
    }
}

static tri_status differs(const char *what, int64_t got, int64_t wanted)
{
    return got == wanted ? TRI_OK
                         : tri_status_fail(TRI_ERR_INTERNAL, "%s: %lld in place of %lld", what,
                                           (long long)got, (long long)wanted);
}

/* The elements of the part that this rank has of all buckets. */
static int64_t own_part(const tri_module *model)
{
    const trii_unit *unit = &trii_ddp_of(model)->unit;
    int64_t own = 0;

    for (int b = 0; b < unit->averager.n_buckets; b++)
        own += (int64_t)unit->averager.buckets[b].own;
    return own;
}

/* Of one update. */
static tri_status check_volume(tri_module *model, const strategy *how, enum accumulation mode,
                               double clip)
{
    const int64_t passes = mode == LOCALLY ? 1 : BATCHES;
    int64_t padded, blocks, buffers, hooked;
    tri_ddp_volume_stats v;

    TRY(tri_ddp_volume(model, &v));
    count(model, &padded, &blocks, &buffers);
    hooked = how->hook != NULL ? passes * padded : 0;
    TRY(differs("hook_bytes", v.hook_bytes, hooked * 2));
    TRY(differs("header", v.header, passes * 4));
    TRY(differs("buffer_bytes", v.buffer_bytes, passes * buffers));
    if (how->stage == 0) {
        TRY(differs("all_reduce", v.all_reduce, passes * padded - hooked));
        TRY(differs("reduce_scatter", v.reduce_scatter, 0));
        TRY(differs("all_gather", v.all_gather, 0));
        return differs("norm", v.norm, 0);
    }
    TRY(differs("all_reduce", v.all_reduce, how->replicas > 1 ? passes * own_part(model) : 0));
    TRY(differs("reduce_scatter", v.reduce_scatter, passes * padded - hooked));
    /* parameters after the update (stage 3: in each forward, of few buckets), and averages to which
     * a further backward adds */
    TRY(differs("all_gather", v.all_gather,
                (how->stage == 3 ? BATCHES : 1) * padded + (passes - 1) * padded));
    return differs("norm", v.norm, clip > 0 ? blocks : 0);
}

static tri_status send(rank *r)
{
    const strategy *how = r->arg;
    tri_ddp_volume_stats none;
    tri_module *model = NULL;
    tri_optimizer *opt;

    TRY(wrap(r, how, &model));
    opt = tri_sgd(model, 0.01, NULL);
    for (int i = 0; i < 8; i++) {
        const enum accumulation mode = i & 1 ? AS_AVERAGES : LOCALLY;
        const double clip = i & 2 ? 0.5 : 0;

        TRY(update(model, opt, mode, clip));
        TRY(check_volume(model, how, mode, clip));
    }
    TRY(tri_ddp_volume(model, &none));
    TRY(differs("after the last look", none.header + none.all_gather + none.reduce_scatter, 0));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void each_kind_of_call_gets_what_the_formula_says(void **state)
{
    static const strategy strategies[] = {{.stage = 0},
                                          {.stage = 1},
                                          {.stage = 2},
                                          {.stage = 3},
                                          {.stage = 0, .hook = tri_bucket_hook_bf16},
                                          {.stage = 2, .hook = tri_bucket_hook_bf16},
                                          {.stage = 1, .replicas = 2},
                                          {.stage = 2, .replicas = 2},
                                          {.stage = 2, .replicas = 1}};
    static rank ranks[4];

    (void)state;
    for (size_t k = 0; k < sizeof(strategies) / sizeof(*strategies); k++) {
        for (int n = 2; n <= 4; n++) {
            if (strategies[k].replicas > 1 && n < 4)
                continue;
            ranks_succeed(ranks, n, send, &strategies[k]);
        }
    }
}

/* --- what else is sent, and what is not ----------------------------------- */

/* Where a rank leaves a parameter unused the ranks say which they used, a byte each. */
static tri_status leave_one_unused(rank *r)
{
    tri_module *first = tri_nn_linear(4, 4, NULL), *second = tri_nn_linear(4, 4, NULL);
    tri_module *model = tri_zero(tri_nn_sequential(first, second),
                                 &(tri_zero_options){.group = r->group, .stage = 2});
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 4), TRI_DTYPE_F32);
    tri_ddp_volume_stats v;

    TRY(tri_module_status(model));
    /* the forward of the model opens the pass; the loss of rank 0 ends before the second layer */
    tri_tensor *out = tri_forward(model, x);
    tri_backward(tri_mean(r->index == 0 ? tri_forward(first, x) : out, NULL, 0, false));
    TRY(tri_step_end_status());
    TRY(tri_ddp_volume(model, &v));
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return differs("header", v.header, 4 + 4);
}

static void ranks_say_which_parameters_they_used_if_some_are_not(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, leave_one_unused, NULL);
}

static tri_status train_alone(rank *r)
{
    tri_module *model = tri_zero(network(), &(tri_zero_options){.group = r->group, .stage = 2});
    tri_optimizer *opt = tri_sgd(model, 0.01, NULL);
    tri_ddp_volume_stats v;

    TRY(tri_module_status(model));
    TRY(update(model, opt, LOCALLY, 1));
    TRY(tri_ddp_volume(model, &v));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return differs("in all", v.all_reduce + v.reduce_scatter + v.all_gather + v.norm + v.header, 0);
}

static void one_rank_sends_nothing(void **state)
{
    static rank ranks[1];

    (void)state;
    ranks_succeed(ranks, 1, train_alone, NULL);
}

/* An optimizer of some parameters sends these alone, whatever lies beside them in a bucket. */
static tri_status update_one_by_one(rank *r)
{
    const strategy *how = r->arg;
    tri_optimizer *opts[8];
    tri_module *model = NULL;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, WIDTH), TRI_DTYPE_F32);
    tri_ddp_volume_stats v;
    int64_t padded, blocks, buffers;
    int n = 0;

    TRY(wrap(r, how, &model));
    count(model, &padded, &blocks, &buffers);
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry entry = tri_module_state(model, i);

        if (entry.parameter)
            opts[n++] = tri_sgd_of(&(tri_param_group){.params = &entry.tensor, .n_params = 1}, 1,
                                   0.01, NULL);
    }
    for (int step = 0; step < 3; step++) {
        TRY(tri_ddp_volume(model, &v));
        backward(model, x);
        for (int i = 0; i < n; i++)
            TRY(tri_optimizer_step(opts[i]));
        TRY(tri_step_end_status());
        TRY(tri_ddp_volume(model, &v));
        TRY(differs("all_gather", v.all_gather, how->stage > 0 ? padded : 0));
    }
    TRY(tri_ddp_verify(model, false));
    for (int i = 0; i < n; i++)
        tri_optimizer_destroy(opts[i]);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return TRI_OK;
}

static void an_optimizer_of_one_parameter_sends_that_alone(void **state)
{
    static rank ranks[3];

    (void)state;
    for (int stage = 0; stage <= 2; stage++)
        ranks_succeed(ranks, 3, update_one_by_one, &(strategy){.stage = stage});
}

/* --- time ----------------------------------------------------------------- */

/* Gathers count as communication, and what a rank sends of them as sent. */
static tri_status measure(rank *r)
{
    tri_ddp_bucket_stats buckets[8] = {{0}};
    tri_ddp_pass_stats s;
    tri_module *model = NULL;
    tri_optimizer *opt;
    int64_t sent;

    TRY(wrap(r, &(strategy){.stage = 2}, &model));
    opt = tri_sgd(model, 0.01, NULL);
    TRY(tri_ddp_stats(model, &s, NULL, 0));
    for (int i = 0; i < 4; i++)
        TRY(update(model, opt, LOCALLY, 0));
    TRY(tri_ddp_stats(model, &s, buckets, 8));
    sent = (int64_t)s.bytes + own_part(model) * (int64_t)sizeof(float);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    TRY(differs("passes", s.n_passes, 4));
    TRY(differs("sent_bytes", (int64_t)s.sent_bytes, sent));
    for (int b = 0; b < s.n_buckets && b < 8; b++)
        if (!(buckets[b].comm_ms > 0))
            return differs("a bucket without time", b, -1);
    return s.comm_ms > 0 && s.hidden >= 0 && s.hidden <= 1 ? TRI_OK : TRI_ERR_INTERNAL;
}

static void gathers_are_measured_with_gradients(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, measure, NULL);
}

static void other_modules_are_refused(void **state)
{
    tri_module *plain = tri_nn_linear(2, 2, NULL), *failed = tri_nn_linear(-1, 2, NULL);
    tri_ddp_volume_stats v;

    (void)state;
    CHECK_FAILS(tri_ddp_volume(plain, &v), TRI_ERR_INVALID_ARG,
                "ddp_volume: the module was not made by tri_ddp, tri_zero or");
    CHECK_FAILS(tri_ddp_volume(plain, NULL), TRI_ERR_INVALID_ARG, "volume_out");
    assert_int_equal(tri_ddp_volume(failed, &v), tri_module_status(failed));
    assert_int_not_equal(tri_module_status(failed), TRI_OK);
    tri_module_destroy(failed);
    tri_module_destroy(plain);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_kind_of_call_gets_what_the_formula_says),
    cmocka_unit_test(ranks_say_which_parameters_they_used_if_some_are_not),
    cmocka_unit_test(one_rank_sends_nothing),
    cmocka_unit_test(an_optimizer_of_one_parameter_sends_that_alone),
    cmocka_unit_test(gathers_are_measured_with_gradients),
    cmocka_unit_test(other_modules_are_refused),
};

TEST_MAIN(tests)
