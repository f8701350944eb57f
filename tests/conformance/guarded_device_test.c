/* guarded_device_test.c - models on a device whose memory the host may not touch: training with the
 * bits of the cpu, moved there and back in the middle, several devices in one step, and what looks
 * at tensors, saves, loads and fails there. */
#include <trireme/trireme.h>

#include <math.h>
#include <sys/wait.h>

#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "train/tensor/device_memory.h"
#include "testing/guarded.h"
#include "testing/scratch.h"

#define BATCH 3
#define SIDE 6
#define CLASSES 5

static const float two[2] = {1.5f, -2};

/* --- a model -------------------------------------------------------------- */

typedef struct training {
    tri_module *net;
    tri_optimizer *optimizer;
} training;

/* Convolutions adopt layouts for their weights. */
static training begin(void)
{
    training t;

    tri_manual_seed(7);
    t.net =
        tri_nn_sequential(tri_nn_conv2d(3, 16, 3, &(tri_nn_conv2d_options){.padding = 1}),
                          tri_nn_batch_norm2d(16, NULL), tri_nn_relu(),
                          tri_nn_conv2d(16, 16, 3, NULL), tri_nn_flatten(1), tri_nn_dropout(0.2),
                          tri_nn_linear(16 * (SIDE - 2) * (SIDE - 2), 8, NULL),
                          tri_nn_layer_norm(TRI_SHAPE(8), NULL), tri_nn_linear(8, CLASSES, NULL));
    t.optimizer = tri_adamw(t.net, 0.01, NULL);
    CHECK_OK(tri_optimizer_status(t.optimizer));
    return t;
}

static void end(training *t)
{
    tri_optimizer_destroy(t->optimizer);
    tri_module_destroy(t->net);
}

static tri_tensor *images(int seed)
{
    float data[BATCH * 3 * SIDE * SIDE];

    for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
        data[i] = (float)((i * 7 + (size_t)seed * 13) % 11) / 8 - 0.6f;
    return tri_tensor_from(TRI_SHAPE(BATCH, 3, SIDE, SIDE), TRI_DTYPE_F32, data);
}

typedef struct seen {
    double loss, norm;
} seen;

/* Of the batch with this number, on the device of the model. */
static seen step(training *t, int number)
{
    const tri_rng random = {.seed = 7, .step = number};
    tri_device device = tri_tensor_device(tri_module_state(t->net, 0).tensor);
    const int64_t classes[BATCH] = {number % CLASSES, 4, 1};
    tri_tensor *x = images(number), *target, *loss, *norm;
    seen s;

    tri_rng_state_set(&random);
    target = tri_tensor_from(TRI_SHAPE(BATCH), TRI_DTYPE_I64, classes);
    loss = tri_keep(
        tri_cross_entropy(tri_forward(t->net, tri_to(x, device)), tri_to(target, device), NULL));
    tri_backward(loss);
    norm = tri_keep(tri_clip_grad_norm(t->optimizer, 0.5));
    CHECK_OK(tri_optimizer_step(t->optimizer));
    CHECK_OK(tri_item_status(loss, &s.loss));
    CHECK_OK(tri_item_status(norm, &s.norm));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    return s;
}

static uint64_t hash_of(tri_module *module)
{
    uint64_t hash = 0;

    CHECK_OK(tri_module_hash(module, &hash));
    return hash;
}

/* --- training ------------------------------------------------------------- */

static void the_host_dies_at_the_memory_of_a_device(void **state)
{
    tri_tensor *x;
    int ended = -1;
    pid_t child;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, two);
    CHECK_OK(tri_tensor_status(x));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(const volatile float *)x->storage->data == 1.5f ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
    tri_tensor_unref(x);
}

static void a_model_trains_there_with_the_bits_of_the_cpu(void **state)
{
    training here, there;

    (void)state;
    guarded_register();
    here = begin();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    there = begin();
    CHECK_OK(tri_set_device(TRI_CPU(0)));
    for (int i = 0; i < 5; i++) {
        seen a = step(&here, i), b = step(&there, i);

        assert_true(a.loss == b.loss && a.norm == b.norm);
    }
    assert_true(hash_of(here.net) == hash_of(there.net));
    assert_true(guarded_kernels() > 0 && guarded_bytes(0) > 0);
    end(&here);
    end(&there);
    trii_plan_release();
    assert_true(guarded_bytes(0) == 0);
}

static void a_model_goes_there_and_back_in_the_middle(void **state)
{
    static const tri_device places[] = {TRI_CPU(0), TRI_CUDA(0), TRI_CUDA(1), TRI_CPU(0)};
    training still, moved;

    (void)state;
    guarded_register();
    still = begin();
    moved = begin();
    for (int i = 0; i < 8; i++) {
        seen a = step(&still, i), b;

        CHECK_OK(tri_module_to(moved.net, places[i / 2]));
        b = step(&moved, i);
        assert_true(a.loss == b.loss && a.norm == b.norm);
        assert_int_equal(tri_tensor_device(tri_module_state(moved.net, 0).tensor), places[i / 2]);
    }
    assert_true(hash_of(still.net) == hash_of(moved.net));
    end(&still);
    end(&moved);
}

static void the_interpreter_and_the_search_for_nan_work_there(void **state)
{
    training here, there;
    tri_tensor *x;

    (void)state;
    setenv("TRI_CHECK", "nan", 1);
    guarded_register();
    here = begin();
    there = begin();
    CHECK_OK(tri_module_to(there.net, TRI_CUDA(1)));
    trii_executor_set(&trii_executor_reference);
    for (int i = 0; i < 2; i++) {
        seen a = step(&here, i), b = step(&there, i);

        assert_true(a.loss == b.loss && a.norm == b.norm);
    }
    assert_true(hash_of(here.net) == hash_of(there.net));
    trii_executor_set(NULL);
    (void)step(&there, 2);
    CHECK_OK(tri_set_device(TRI_CUDA(1)));
    x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, two);
    tri_keep(tri_log(x));
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "NaN made by log(f32 [2])");
    tri_step_end();
    tri_tensor_unref(x);
    end(&here);
    end(&there);
}

/* --- several devices in one step ------------------------------------------ */

#define STAGES 3

static void train_stages(const tri_device *device, float weights[STAGES][36])
{
    tri_module *stage[STAGES];
    tri_optimizer *optimizer[STAGES];
    float data[4 * 6];

    for (int i = 0; i < 4 * 6; i++)
        data[i] = (float)(i % 7) / 4 - 0.5f;
    tri_manual_seed(5);
    for (int s = 0; s < STAGES; s++) {
        stage[s] = tri_nn_sequential(tri_nn_linear(6, 6, NULL), tri_nn_tanh());
        CHECK_OK(tri_module_to(stage[s], device[s]));
        optimizer[s] = tri_adam(stage[s], 0.05, NULL);
    }
    for (int i = 0; i < 5; i++) {
        tri_tensor *x = tri_tensor_from(TRI_SHAPE(4, 6), TRI_DTYPE_F32, data), *y;

        for (int micro = 0; micro < 2; micro++) {
            y = x;
            for (int s = 0; s < STAGES; s++)
                y = tri_forward(stage[s], tri_to(y, device[s]));
            tri_backward(tri_mean(tri_square(y), NULL, 0, false));
        }
        for (int s = 0; s < STAGES; s++)
            CHECK_OK(tri_optimizer_step(optimizer[s]));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    for (int s = 0; s < STAGES; s++) {
        CHECK_OK(tri_tensor_copy_out(tri_module_find(stage[s], "0.weight"), weights[s],
                                     sizeof(weights[s])));
        tri_optimizer_destroy(optimizer[s]);
        tri_module_destroy(stage[s]);
    }
}

static void stages_on_devices_of_two_kinds_have_the_bits_of_one(void **state)
{
    static const tri_device places[][STAGES] = {
        {TRI_CPU(0), TRI_CUDA(0), TRI_CUDA(1)},
        {TRI_CUDA(1), TRI_CPU(1), TRI_CUDA(0)},
        {TRI_CUDA(0), TRI_CUDA(0), TRI_CPU(0)},
    };
    static const tri_device alone[STAGES];
    float want[STAGES][36], have[STAGES][36];

    (void)state;
    guarded_register();
    CHECK_OK(tri_cpu_devices_set(2));
    train_stages(alone, want);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        train_stages(places[i], have);
        assert_memory_equal(want, have, sizeof(want));
    }
    assert_true(guarded_waits() > 0);
}

/* --- looking, saving ------------------------------------------------------ */

static void tensors_there_can_be_looked_at(void **state)
{
    tri_tensor *x, *copy, *row;
    char text[128];
    float back[2];

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, two);
    (void)tri_tensor_text(x, text, sizeof(text));
    assert_non_null(strstr(text, "1.5"));
    assert_non_null(strstr(tri_tensor_debug(x), "on cuda:0"));
    assert_null(tri_data(x));
    assert_non_null(strstr(tri_last_error(), "cuda:0: tri_tensor_copy_out reads them"));
    row = tri_keep(tri_add_scalar(x, 1));
    CHECK_NEAR(tri_item(tri_sum(row, NULL, 0, false)), 1.5, 0.0);
    assert_non_null(strstr(tri_tensor_debug(row), "on cuda:0"));
    copy = tri_tensor_clone(x);
    assert_int_equal(tri_tensor_device(copy), TRI_CUDA(0));
    row = tri_keep(tri_square(x));
    CHECK_OK(tri_tensor_copy_in(x, (const float[]){7, 8},
                                sizeof(two))); /* what was recorded sees the old */
    CHECK_OK(tri_tensor_copy_out(row, back, sizeof(back)));
    assert_true(back[0] == 2.25f && back[1] == 4);
    CHECK_OK(tri_tensor_copy_out(copy, back, sizeof(back)));
    assert_memory_equal(back, two, sizeof(two));
    CHECK_OK(tri_tensor_copy_out(x, back, sizeof(back)));
    assert_true(back[0] == 7 && back[1] == 8);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(copy);
    tri_tensor_unref(x);
}

static void checkpoints_load_on_any_device(void **state)
{
    training a, b;
    tri_checkpoint *checkpoint = NULL;
    scratch s;

    (void)state;
    guarded_register();
    scratch_begin(&s);
    a = begin();
    CHECK_OK(tri_module_to(a.net, TRI_CUDA(0)));
    for (int i = 0; i < 3; i++)
        (void)step(&a, i);
    CHECK_OK(tri_checkpoint_save(scratch_path(&s, "c"), a.net, a.optimizer,
                                 &(tri_checkpoint_info){.step = 3}, NULL));
    CHECK_OK(tri_checkpoint_open(scratch_path(&s, "c"), &checkpoint));
    (void)step(&a, 3);
    for (int there = 0; there < 2; there++) {
        tri_manual_seed(99);
        b = begin();
        if (there == 1)
            CHECK_OK(tri_module_to(b.net, TRI_CUDA(1)));
        (void)step(&b, 9);
        CHECK_OK(tri_checkpoint_restore(checkpoint, b.net, b.optimizer));
        (void)step(&b, 3);
        assert_true(hash_of(a.net) == hash_of(b.net));
        end(&b);
    }
    tri_checkpoint_close(checkpoint);
    end(&a);
    scratch_end(&s);
}

/* The second of three updates overflows. */
static uint64_t scaled_on(tri_device device)
{
    training t = begin();
    tri_grad_scaler *scaler;
    uint64_t hash;

    CHECK_OK(tri_grad_scaler_create(NULL, &scaler));
    CHECK_OK(tri_module_to(t.net, device));
    for (int i = 0; i < 3; i++) {
        const tri_rng random = {.seed = 7, .step = i};
        const int64_t classes[BATCH] = {i, 4, 1};
        tri_tensor *target = tri_tensor_from(TRI_SHAPE(BATCH), TRI_DTYPE_I64, classes);
        tri_tensor *x = images(i), *loss;

        tri_rng_state_set(&random);
        loss =
            tri_cross_entropy(tri_forward(t.net, tri_to(x, device)), tri_to(target, device), NULL);
        loss = i == 1 ? tri_mul_scalar(loss, (double)INFINITY) : loss;
        tri_backward(tri_grad_scaler_scale(scaler, loss));
        if (i == 2)
            tri_grad_scaler_unscale(scaler, t.optimizer);
        CHECK_OK(tri_grad_scaler_step(scaler, t.optimizer));
        CHECK_OK(tri_grad_scaler_update(scaler));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(target);
    }
    assert_true(tri_grad_scaler_current_scale(scaler) == 32768);
    hash = hash_of(t.net);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    end(&t);
    return hash;
}

static uint64_t averaged_on(tri_device device)
{
    training t = begin();
    tri_ema *ema;
    uint64_t hash;

    CHECK_OK(tri_ema_create(t.net, 0.9, &ema));
    CHECK_OK(tri_module_to(t.net, device));
    for (int i = 0; i < 3; i++) {
        (void)step(&t, i);
        CHECK_OK(tri_ema_update(ema));
    }
    CHECK_OK(tri_ema_swap(ema));
    hash = hash_of(t.net);
    CHECK_OK(tri_step_end_status());
    tri_ema_destroy(ema);
    end(&t);
    return hash;
}

static void averages_of_weights_follow_their_parameters(void **state)
{
    (void)state;
    guarded_register();
    assert_true(averaged_on(TRI_CPU(0)) == averaged_on(TRI_CUDA(0)));
}

static void what_overflows_is_skipped_there(void **state)
{
    (void)state;
    guarded_register();
    assert_true(scaled_on(TRI_CPU(0)) == scaled_on(TRI_CUDA(0)));
}

/* --- failures ------------------------------------------------------------- */

static void a_full_device_is_named_and_leaves_nothing_behind(void **state)
{
    tri_tensor *x;
    size_t before;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(1)));
    before = guarded_bytes(1);
    x = tri_tensor_create(TRI_SHAPE(1 << 25), TRI_DTYPE_F32);
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_NO_MEMORY, "cuda:1");
    tri_tensor_unref(x);
    x = tri_ones(TRI_SHAPE(1 << 12, 1), TRI_DTYPE_F32);
    tri_keep(tri_add(x, tri_ones(TRI_SHAPE(1, 1 << 13), TRI_DTYPE_F32)));
    CHECK_FAILS(tri_run(), TRI_ERR_NO_MEMORY, "cuda:1");
    assert_true(tri_step_end_status() != TRI_OK);
    trii_plan_release();
    assert_true(guarded_bytes(1) == before);
}

static void a_kernel_that_fails_late_fails_its_step(void **state)
{
    tri_tensor *x, *y;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, two);
    for (int over = 0; over < 3; over++) {
        y = tri_sum(tri_square(x), NULL, 0, false);
        y = tri_keep(over > 0 ? tri_neg(tri_to(y, over == 1 ? TRI_CPU(0) : TRI_CUDA(1))) : y);
        guarded_fail(GUARDED_KERNEL, 1);
        CHECK_FAILS(tri_run(), TRI_ERR_INTERNAL, "failed on cuda:0");
        CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INTERNAL, "failed on cuda:0");
        tri_step_end();
    }
    CHECK_NEAR(tri_item(tri_sum(x, NULL, 0, false)), -0.5, 0.0);
    tri_step_end();
    tri_tensor_unref(x);
}

/* In the last plan: events, and checks that somebody waits for until they are complete. */
static int n_events, n_complete_checks;

static tri_status count_waits(trii_step *own, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(own, segment, &trii_plan_device, false, &plan);

    if (status != TRI_OK)
        return status;
    n_events = n_complete_checks = 0;
    for (int32_t e = 0; plan->n_queues > 1 && e < plan->n_entries; e++) {
        int32_t node = plan->entries[e].node;

        n_events += plan->events[e] >= 0;
        n_complete_checks += plan->completes[e] && node >= 0 &&
                             own->nodes[segment->first_node + node].op->may_refuse;
    }
    trii_plan_destroy(plan);
    return trii_executor_plan.run(own, segment);
}

static const trii_executor counting = {.name = "counting", .run = count_waits};

/* The gradient from the other device, which checks the targets, is waited for by an event; by the
 * update, until it is complete. */
static void updates_wait_for_what_another_device_may_refuse(void **state)
{
    const int64_t right[2] = {0, 1}, wrong[2] = {0, 7};
    float before[6], after[6];

    (void)state;
    guarded_register();
    trii_executor_set(&counting);
    for (int fails = 0; fails < 2; fails++) {
        tri_module *first = tri_nn_linear(3, 2, NULL);
        tri_tensor *weight = tri_module_find(first, "weight"), *x, *target, *y;
        tri_optimizer *optimizer;

        CHECK_OK(tri_module_to(first, TRI_CUDA(0)));
        optimizer = tri_sgd(first, 0.5, NULL);
        CHECK_OK(tri_tensor_copy_out(weight, before, sizeof(before)));
        x = tri_to(tri_ones(TRI_SHAPE(2, 3), TRI_DTYPE_F32), TRI_CUDA(0));
        target = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, fails ? wrong : right);
        y = tri_to(tri_forward(first, x), TRI_CUDA(1));
        /* squared, so that the loss, which checks them as well, is not computed last */
        tri_backward(tri_square(tri_cross_entropy(y, tri_to(target, TRI_CUDA(1)), NULL)));
        if (fails)
            CHECK_FAILS(tri_optimizer_step(optimizer), TRI_ERR_INVALID_ARG, "7");
        else
            CHECK_OK(tri_optimizer_step(optimizer));
        tri_step_end();
        CHECK_OK(tri_tensor_copy_out(weight, after, sizeof(after)));
        assert_true((memcmp(before, after, sizeof(before)) == 0) == fails);
        assert_true(n_events > 0);
        assert_int_equal(n_complete_checks, 1);
        tri_tensor_unref(target);
        tri_optimizer_destroy(optimizer);
        tri_module_destroy(first);
    }
    trii_executor_set(NULL);
}

/* Which kernel it was is not known: what any of them may have begun to overwrite is lost. */
static void values_that_a_failure_may_have_overwritten_are_lost(void **state)
{
    enum { LARGE = 8192 };
    tri_tensor *x, *w;
    trii_vid id = TRII_NO_VALUE;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    x = tri_ones(TRI_SHAPE(LARGE), TRI_DTYPE_F32);
    w = tri_tensor_clone(x);
    CHECK_OK(trii_resolve(trii_step_current(), tri_cumsum(tri_cumsum(tri_neg(w), 0), 0), &id));
    CHECK_OK(trii_bind(trii_step_current(), id, w));
    guarded_fail(GUARDED_KERNEL, 3);
    CHECK_FAILS(tri_run(), TRI_ERR_INTERNAL, "failed on cuda:0");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(w), TRI_ERR_STATE, "the contents are lost");
    tri_tensor_unref(w);
}

static void memory_of_the_program_stays_where_it_is(void **state)
{
    static float own[2];
    tri_tensor *x;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    x = tri_tensor_wrap(TRI_SHAPE(2), TRI_DTYPE_F32, own, NULL, NULL);
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_INVALID_ARG, "cannot lie on cuda:0");
    tri_tensor_unref(x);
    CHECK_OK(tri_set_device(TRI_CPU(0)));
    x = tri_tensor_wrap(TRI_SHAPE(2), TRI_DTYPE_F32, own, NULL, NULL);
    CHECK_FAILS(trii_tensor_send(x, TRI_CUDA(0)), TRI_ERR_STATE, "tri_to copies it to cuda:0");
    CHECK_NEAR(tri_item(tri_sum(tri_to(x, TRI_CUDA(0)), NULL, 0, false)), 0, 0.0);
    tri_step_end();
    tri_tensor_unref(x);
}

/* Whatever makes them, they are written by the host. */
static void batches_lie_where_the_host_may_write(void **state)
{
    const tri_collate ways[] = {NULL, tri_collate_default, tri_collate_pad};
    const tri_field pairs = {TRI_DTYPE_F32, 1, {2}};
    tri_dataset *set;
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
    CHECK_OK(tri_dataset_arrays(1, &pairs, (const void *[]){two}, 1, &set));
    for (int w = 0; w < 3; w++) {
        CHECK_OK(
            tri_loader_create(set, NULL, 1, &(tri_loader_options){.collate = ways[w]}, &loader));
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_NEAR(tri_item(tri_sum(tri_to(batch.fields[0], tri_current_device()), NULL, 0, false)),
                   -0.5, 0.0);
        tri_step_end();
        tri_loader_destroy(loader);
    }
    tri_dataset_destroy(set);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_host_dies_at_the_memory_of_a_device),
    cmocka_unit_test(a_model_trains_there_with_the_bits_of_the_cpu),
    cmocka_unit_test(a_model_goes_there_and_back_in_the_middle),
    cmocka_unit_test(the_interpreter_and_the_search_for_nan_work_there),
    cmocka_unit_test(stages_on_devices_of_two_kinds_have_the_bits_of_one),
    cmocka_unit_test(tensors_there_can_be_looked_at),
    cmocka_unit_test(checkpoints_load_on_any_device),
    cmocka_unit_test(averages_of_weights_follow_their_parameters),
    cmocka_unit_test(what_overflows_is_skipped_there),
    cmocka_unit_test(a_full_device_is_named_and_leaves_nothing_behind),
    cmocka_unit_test(a_kernel_that_fails_late_fails_its_step),
    cmocka_unit_test(updates_wait_for_what_another_device_may_refuse),
    cmocka_unit_test(values_that_a_failure_may_have_overwritten_are_lost),
    cmocka_unit_test(memory_of_the_program_stays_where_it_is),
    cmocka_unit_test(batches_lie_where_the_host_may_write),
};

TEST_MAIN(tests)
