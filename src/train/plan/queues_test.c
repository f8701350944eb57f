/*
 * queues_test.c - steps over several devices: the bits of one device, whatever waits for whom;
 * stages that overlap; failures.
 */
#include <trireme/function.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/futex.h"
#include "train/plan/plan.h"
#include "testing/check.h"

#define ROWS 6
#define WIDTH 9
#define STAGES 4

static const double numbers[] = {0.25, -0.5, 0.75};

static tri_tensor *rows(int64_t n, int seed)
{
    float data[ROWS * WIDTH];

    for (int i = 0; i < ROWS * WIDTH; i++)
        data[i] = (float)((i * 7 + seed * 13) % 11 - 5) / 8;
    return tri_tensor_from(TRI_SHAPE(n, WIDTH), TRI_DTYPE_F32, data);
}

/* --- a pipeline ----------------------------------------------------------- */

typedef struct pipeline {
    tri_module *stages[STAGES];
    tri_device device[STAGES];
    tri_optimizer *optimizers[STAGES];
} pipeline;

static void build(pipeline *p, const int *devices)
{
    tri_manual_seed(5);
    for (int s = 0; s < STAGES; s++) {
        p->device[s] = TRI_CPU(devices[s]);
        p->stages[s] = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_tanh());
        CHECK_OK(tri_module_to(p->stages[s], p->device[s]));
        p->optimizers[s] = tri_adam(p->stages[s], 0.01, NULL);
    }
}

static void destroy(pipeline *p)
{
    for (int s = 0; s < STAGES; s++) {
        tri_optimizer_destroy(p->optimizers[s]);
        tri_module_destroy(p->stages[s]);
    }
}

static tri_tensor *forward(const pipeline *p, tri_tensor *x)
{
    for (int s = 0; s < STAGES; s++)
        x = tri_forward(p->stages[s], tri_to(x, p->device[s]));
    return x;
}

/* One step of `micro` batches, each with its own backward pass or all with one. */
static void train(const pipeline *p, int micro, bool one_backward, float *losses)
{
    tri_tensor *total = NULL, *each[8], *x[8];

    for (int m = 0; m < micro; m++) {
        x[m] = rows(ROWS, m);
        each[m] = tri_keep(tri_mean(tri_square(forward(p, x[m])), NULL, 0, false));
        if (one_backward)
            total = total != NULL ? tri_add(total, each[m]) : each[m];
        else
            tri_backward(each[m]);
    }
    if (one_backward)
        tri_backward(total);
    for (int s = 0; s < STAGES; s++)
        CHECK_OK(tri_optimizer_step(p->optimizers[s]));
    for (int m = 0; m < micro; m++)
        losses[m] = (float)tri_item(each[m]);
    CHECK_OK(tri_step_end_status());
    for (int m = 0; m < micro; m++)
        tri_tensor_unref(x[m]);
}

static void weights(const pipeline *p, float *out)
{
    for (int s = 0; s < STAGES; s++) {
        CHECK_OK(tri_tensor_copy_out(tri_module_find(p->stages[s], "0.weight"), out,
                                     WIDTH * WIDTH * sizeof(float)));
        out += WIDTH * WIDTH;
    }
}

static void check_pipeline(const int *devices, int micro, bool one_backward)
{
    static const int alone[STAGES];
    pipeline one, many;
    float a[STAGES * WIDTH * WIDTH], b[STAGES * WIDTH * WIDTH], losses_a[8], losses_b[8];

    build(&one, alone);
    build(&many, devices);
    for (int step = 0; step < 5; step++) {
        train(&one, micro, one_backward, losses_a);
        train(&many, micro, one_backward, losses_b);
        assert_memory_equal(losses_a, losses_b, (size_t)micro * sizeof(float));
    }
    weights(&one, a);
    weights(&many, b);
    assert_memory_equal(a, b, sizeof(a));
    destroy(&one);
    destroy(&many);
}

static void stages_train_with_the_bits_of_one_device(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(5));
    for (int micro = 1; micro <= 8; micro += 7) {
        for (int one_backward = 0; one_backward < 2; one_backward++) {
            check_pipeline((const int[]){0, 0, 1, 1}, micro, one_backward != 0);
            check_pipeline((const int[]){1, 2, 3, 4}, micro, one_backward != 0);
            check_pipeline((const int[]){0, 1, 0, 1}, micro, one_backward != 0);
            check_pipeline((const int[]){3, 3, 3, 0}, micro, one_backward != 0);
        }
    }
}

/* --- the order ------------------------------------------------------------ */

static int32_t first_backward, forwards_before, most_queues, most_ahead, held_up;

/* What the backward pass makes for the stage before (a batch's gradient) although it has made
 * gradients of weights, on the last queue. */
static int32_t batches_behind_weights(const trii_plan *plan, const trii_step *step,
                                      const trii_segment *segment)
{
    const trii_plan_queue *queue = &plan->queues[plan->n_queues - 1];
    int32_t n_weights = 0, behind = 0;

    for (int32_t i = 0; i < queue->n_entries; i++) {
        int32_t n = plan->entries[queue->entries[i]].node;
        const trii_node *node = n >= 0 ? &step->nodes[segment->first_node + n] : NULL;
        const trii_type *type = node != NULL ? &step->values[node->first_out].type : NULL;

        if (node == NULL || !node->backward || type->ndim != 2)
            continue;
        n_weights += type->shape[0] == WIDTH;
        behind += type->shape[0] == ROWS && n_weights > 0;
    }
    assert_true(n_weights > 0);
    return behind;
}

/* Layers that have gone forward on the last queue and not back, at most. */
static int32_t layers_ahead(const trii_plan *plan, const trii_step *step,
                            const trii_segment *segment)
{
    const trii_plan_queue *queue = &plan->queues[plan->n_queues - 1];
    int32_t now = 0, most = 0;

    for (int32_t i = 0; i < queue->n_entries; i++) {
        int32_t n = plan->entries[queue->entries[i]].node;
        const trii_node *node = n >= 0 ? &step->nodes[segment->first_node + n] : NULL;

        now += node != NULL && !node->backward && strcmp(node->op->name, "linear") == 0;
        if (node != NULL && strcmp(node->op->name, "tanh_backward") == 0)
            now -= 2; /* the other one is a part of another entry */
        most = now > most ? now : most;
    }
    return most;
}

/* Looks at the plan of each segment; then the usual executor runs it. */
static tri_status look(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    int32_t n_queues;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, false, &plan);

    if (status != TRI_OK)
        return status;
    n_queues = plan->n_queues;
    most_queues = n_queues > most_queues ? n_queues : most_queues;
    if (n_queues > 1) {
        most_ahead = layers_ahead(plan, step, segment);
        held_up = batches_behind_weights(plan, step, segment);
    }
    for (int32_t i = 0; n_queues > 1 && i < plan->queues[0].n_entries; i++) {
        int32_t node = plan->entries[plan->queues[0].entries[i]].node;

        if (node < 0)
            continue;
        if (first_backward < 0 && step->nodes[segment->first_node + node].backward) {
            first_backward = i;
            forwards_before = 0;
            for (int32_t k = 0; k < i; k++) {
                int32_t before = plan->entries[plan->queues[0].entries[k]].node;

                forwards_before +=
                    before >= 0 &&
                    strcmp(step->nodes[segment->first_node + before].op->name, "linear") == 0;
            }
        }
    }
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

static const trii_executor looking = {.name = "looking", .run = look, .release = NULL};

static void a_stage_goes_on_with_the_next_batch_while_others_work(void **state)
{
    pipeline p;
    float losses[8];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    build(&p, (const int[]){0, 0, 1, 1});
    trii_executor_set(&looking);
    for (int one_backward = 0; one_backward < 2; one_backward++) {
        first_backward = forwards_before = -1;
        train(&p, 8, one_backward != 0, losses);
        assert_int_equal(most_queues, 2);
        /* two layers each of two or three batches, not of one, nor of all eight */
        assert_in_range(forwards_before, 4, 6);
        assert_int_equal(most_ahead, 2); /* the last stage turns round after one batch */
    }
    held_up = -1;
    train(&p, 1, false, losses);
    assert_int_equal(held_up, 0); /* gradients of weights can wait: no other stage does for them */
    trii_executor_set(NULL);
    destroy(&p);
}

static void one_device_has_one_queue(void **state)
{
    pipeline p;
    float losses[8];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    build(&p, (const int[]){1, 1, 1, 1});
    trii_executor_set(&looking);
    TRI_ON(TRI_CPU(1))
    {
        train(&p, 2, false, losses);
    }
    trii_executor_set(NULL);
    assert_int_equal(most_queues, 1);
    destroy(&p);
}

/* --- memory --------------------------------------------------------------- */

/* Many values that leave their queue and are overwritten there, back and forth. */
static void copies_are_made_before_their_source_is_overwritten(void **state)
{
    enum { N = 50000, ROUNDS = 24 };
    static float out[N];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    for (int step = 0; step < 5; step++) {
        tri_tensor *x = tri_full(TRI_SHAPE(N), 1, TRI_DTYPE_F32), *sum = NULL;
        double want = 0, a = 1;

        for (int r = 0; r < ROUNDS; r++) {
            tri_device device = TRI_CPU(1 + r % 2);
            tri_tensor *there = tri_to(x, device);

            x = tri_add_scalar(x, 1); /* may lie where x did */
            there = tri_mul_scalar(there, numbers[r % 3]);
            there = tri_to(there, TRI_CPU(0));
            sum = sum != NULL ? tri_add(sum, there) : there;
            want += a * numbers[r % 3];
            a += 1;
        }
        CHECK_OK(tri_tensor_copy_out(tri_keep(sum), out, sizeof(out)));
        for (int i = 0; i < N; i++)
            CHECK_NEAR(out[i], want, 0.0);
        CHECK_OK(tri_step_end_status());
    }
}

/* The other device has much to do before it reads. */
static void a_parameter_is_read_elsewhere_before_it_changes(void **state)
{
    enum { N = 300000 };
    tri_tensor *w = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (const float[]){1, 2});
    float out[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int step = 0; step < 8; step++) {
        tri_tensor *there, *busy = NULL;
        trii_vid next = TRII_NO_VALUE;

        TRI_ON(TRI_CPU(1))
        {
            busy = tri_full(TRI_SHAPE(N), 0, TRI_DTYPE_F32);
        }
        for (int k = 0; k < 4; k++)
            busy = tri_cumsum(busy, 0);
        there = tri_mul_scalar(tri_to(w, TRI_CPU(1)), 2);
        there = tri_keep(tri_add(there, tri_sum(busy, NULL, 0, false)));
        CHECK_OK(trii_resolve(trii_step_current(), tri_add_scalar(w, 1), &next));
        CHECK_OK(trii_bind(trii_step_current(), next, w));
        CHECK_OK(tri_tensor_copy_out(there, out, sizeof(out)));
        CHECK_NEAR(out[0], 2.0 * (1 + step), 0.0);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(w);
}

/* Parts and other orders of a parameter that changes in the same step, and parts that are joined
 * where they were not made. */
static void views_cross_and_see_what_was_there(void **state)
{
    const float data[6] = {1, 2, 3, 4, 5, 6};
    tri_tensor *w = tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, data);
    float out[9];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int step = 0; step < 8; step++) {
        tri_tensor *parts[3], *there;
        trii_vid next = TRII_NO_VALUE;

        parts[0] = tri_to(tri_transpose(w, 0, 1), TRI_CPU(1));
        parts[1] = tri_mul_scalar(tri_to(tri_narrow(w, 1, 1, 1), TRI_CPU(1)), 2);
        parts[1] = tri_reshape(tri_expand(parts[1], TRI_SHAPE(2, 3)), TRI_SHAPE(3, 2));
        parts[1] = tri_narrow(parts[1], 1, 1, 1);
        there = tri_keep(tri_to(tri_concat(parts, 2, 1), TRI_CPU(0)));
        CHECK_OK(trii_resolve(trii_step_current(), tri_add_scalar(w, 1), &next));
        CHECK_OK(trii_bind(trii_step_current(), next, w));
        CHECK_OK(tri_tensor_copy_out(there, out, sizeof(out)));
        for (int row = 0; row < 3; row++) {
            CHECK_NEAR(out[row * 3], 1.0 + row + step, 0.0);
            CHECK_NEAR(out[row * 3 + 1], 4.0 + row + step, 0.0);
            CHECK_NEAR(out[row * 3 + 2], 2 * (row == 0 ? 2.0 + step : 5.0 + step), 0.0);
        }
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(w);
}

static void layouts_and_empty_tensors_cross(void **state)
{
    tri_module *conv[2];
    float out[2][8 * 16];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int k = 0; k < 2; k++) {
        tri_tensor *x = tri_full(TRI_SHAPE(1, 8, 4, 4), 0.5, TRI_DTYPE_F32), *none;

        tri_manual_seed(1);
        conv[k] = tri_nn_sequential(tri_nn_conv2d(8, 8, 3, &(tri_nn_conv2d_options){.padding = 1}),
                                    tri_nn_relu());
        x = tri_to(tri_forward(conv[k], x), TRI_CPU(k));
        x = tri_to(tri_max_pool(x, &(tri_pool_options){.kernel = {1, 1}}), TRI_CPU(0));
        CHECK_OK(tri_tensor_copy_out(tri_keep(tri_forward(conv[k], x)), out[k], sizeof(out[k])));
        none = tri_to(tri_zeros(TRI_SHAPE(0, 3), TRI_DTYPE_F32), TRI_CPU(1));
        CHECK_OK(tri_tensor_copy_out(tri_keep(tri_add_scalar(none, 1)), NULL, 0));
        CHECK_OK(tri_step_end_status());
        tri_module_destroy(conv[k]);
    }
    assert_memory_equal(out[0], out[1], sizeof(out[0]));
}

/* --- failures ------------------------------------------------------------- */

static void a_failure_in_any_queue_names_its_operation_and_changes_nothing(void **state)
{
    const int64_t good[ROWS] = {0}, bad[ROWS] = {0, 0, 99, 0, 0, 0};

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    for (int round = 0; round < 12; round++) {
        pipeline p;
        float before[STAGES * WIDTH * WIDTH], after[STAGES * WIDTH * WIDTH];
        tri_tensor *x = rows(ROWS, 1), *target = NULL, *loss;
        bool fails = round % 2 == 0;

        build(&p, round % 3 == 0   ? (const int[]){0, 1, 2, 0}
                  : round % 3 == 1 ? (const int[]){0, 0, 0, 2}
                                   : (const int[]){2, 1, 0, 1});
        weights(&p, before);
        TRI_ON(p.device[STAGES - 1])
        {
            target = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, fails ? bad : good);
        }
        loss = tri_cross_entropy(forward(&p, x), target, NULL);
        tri_backward(loss);
        for (int s = 0; s < STAGES; s++) {
            tri_status status = tri_optimizer_step(p.optimizers[s]);

            if (status != TRI_OK || s == STAGES - 1)
                assert_int_equal(status == TRI_OK && tri_run() == TRI_OK, !fails);
        }
        if (fails)
            assert_non_null(strstr(tri_last_error(), "cross_entropy"));
        (void)!tri_step_end_status();
        weights(&p, after);
        assert_int_equal(memcmp(before, after, sizeof(before)) == 0, fails);
        tri_tensor_unref(x);
        tri_tensor_unref(target);
        destroy(&p);
    }
}

/* Two functions that fail on two devices: `first` stands before the other in the plan, and yet
 * fails when that one has begun, so that both do. */
static atomic_int other_has_begun;

static tri_status one_number(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

static tri_status fail_first(const tri_function_call *call)
{
    (void)call;
    while (!atomic_load(&other_has_begun))
        trii_futex_wait(&other_has_begun, 0, TRII_NO_DEADLINE);
    return tri_status_fail(TRI_ERR_INVALID_ARG, "this comes first");
}

static tri_status fail_then(const tri_function_call *call)
{
    (void)call;
    atomic_store(&other_has_begun, 1);
    trii_futex_wake_all(&other_has_begun);
    return tri_status_fail(TRI_ERR_NAN, "this comes later");
}

static void failing(bool first, tri_tensor *x)
{
    static const tri_function_class types[2] = {
        {.name = "behind", .shape = one_number, .forward = fail_then},
        {.name = "first", .shape = one_number, .forward = fail_first}};
    tri_tensor *y;

    tri_function_apply(&types[first], NULL, &x, 1, &y, 1);
    (void)tri_keep(y);
}

static void of_two_failures_the_first_in_the_order_is_told(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int round = 0; round < 4; round++) {
        int here = round % 2; /* the first queue has what fails first, or a long way to the other */
        tri_tensor *x[2], *y;

        for (int d = 0; d < 2; d++) {
            TRI_ON(TRI_CPU(d))
            {
                x[d] = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (const float[]){1, 2});
            }
        }
        atomic_store(&other_has_begun, 0);
        y = x[0];
        for (int k = 0; k < 20 && here == 1; k++)
            y = tri_cumsum(tri_add(x[0], y), 0);
        failing(here == 0, y); /* cpu:0 is the first queue */
        failing(here == 1, x[1]);
        CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "this comes first");
        tri_step_end();
        tri_tensor_unref(x[0]);
        tri_tensor_unref(x[1]);
    }
}

/* A step over several devices that runs out of memory before its first operation has run has not
 * lost what that operation overwrites. */
static void a_step_that_cannot_begin_has_changed_nothing(void **state)
{
    enum { DEVICES = 40, LARGE = 8192 /* floats: updated where they lie */ };
    static float ones[LARGE], have[LARGE];
    tri_status status = TRI_ERR_NO_MEMORY;
    int n_failed = 0;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(DEVICES));
    for (int i = 0; i < LARGE; i++)
        ones[i] = 1;
    for (long nth = 1; status != TRI_OK; nth++) {
        tri_tensor *w = tri_tensor_from(TRI_SHAPE(LARGE), TRI_DTYPE_F32, ones), *x[DEVICES];
        trii_vid id = TRII_NO_VALUE;

        CHECK_OK(trii_resolve(trii_step_current(), tri_add_scalar(w, 1), &id));
        CHECK_OK(trii_bind(trii_step_current(), id, w));
        for (int d = 1; d < DEVICES; d++) {
            TRI_ON(TRI_CPU(d))
            {
                x[d] = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, ones);
            }
            (void)tri_keep(tri_neg(x[d]));
        }
        trii_plan_release();
        trii_alloc_fail_at(nth);
        status = tri_run();
        trii_alloc_fail_at(0);
        n_failed += status != TRI_OK;
        (void)!tri_step_end_status();
        CHECK_OK(tri_tensor_copy_out(w, have, sizeof(have)));
        assert_true(have[0] == (status == TRI_OK ? 2 : 1) && have[LARGE - 1] == have[0]);
        tri_tensor_unref(w);
        for (int d = 1; d < DEVICES; d++)
            tri_tensor_unref(x[d]);
    }
    assert_true(n_failed > 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_train_with_the_bits_of_one_device),
    cmocka_unit_test(a_stage_goes_on_with_the_next_batch_while_others_work),
    cmocka_unit_test(one_device_has_one_queue),
    cmocka_unit_test(copies_are_made_before_their_source_is_overwritten),
    cmocka_unit_test(a_parameter_is_read_elsewhere_before_it_changes),
    cmocka_unit_test(views_cross_and_see_what_was_there),
    cmocka_unit_test(layouts_and_empty_tensors_cross),
    cmocka_unit_test(a_failure_in_any_queue_names_its_operation_and_changes_nothing),
    cmocka_unit_test(of_two_failures_the_first_in_the_order_is_told),
    cmocka_unit_test(a_step_that_cannot_begin_has_changed_nothing),
};

TEST_MAIN(tests)
