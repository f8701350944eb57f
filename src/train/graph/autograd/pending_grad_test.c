/* pending_grad_test.c - tri_grad before, after and without the run that computes the gradient. */
#include <math.h>

#include <trireme/context.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "os/thread.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *parameter(float a, float b)
{
    tri_tensor *w = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (const float[]){a, b});

    tri_requires_grad(w, true);
    return w;
}

static tri_tensor *total(tri_tensor *x)
{
    return tri_sum(x, NULL, 0, false);
}

static tri_tensor *squares(tri_tensor *w)
{
    return total(tri_square(w)); /* gradient: 2w */
}

/* Rows of logits without an element 9: fails when it runs, before or after what else is
 * recorded. */
static tri_tensor *failing(tri_tensor *w)
{
    static const int64_t at[1] = {9};
    tri_tensor *target = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, at), *loss;

    loss = tri_cross_entropy(tri_reshape(w, TRI_SHAPE(1, 2)), target, NULL);
    tri_tensor_unref(target); /* the step holds it */
    return loss;
}

#define CHECK_GRAD(w, a, b)                                                                        \
    do {                                                                                           \
        float got_[2] = {NAN, NAN};                                                                \
        assert_non_null(tri_grad(w));                                                              \
        CHECK_OK(tri_tensor_copy_out(tri_grad(w), got_, sizeof(got_)));                            \
        CHECK_NEAR(got_[0], a, 0);                                                                 \
        CHECK_NEAR(got_[1], b, 0);                                                                 \
    } while (0)

static void a_pending_gradient_is_a_step_tensor_until_it_has_run(void **state)
{
    tri_tensor *w = parameter(1, 3), *pending, *done;
    const float other[2] = {0, 0};

    (void)state;
    assert_null(tri_grad(w));
    tri_backward(squares(w));
    pending = tri_grad(w);
    assert_true(trii_is_handle(pending));
    assert_ptr_equal(tri_grad(w), pending);
    assert_int_equal(tri_tensor_size(pending, 0), 2);
    assert_int_equal(tri_tensor_dtype(pending), TRI_DTYPE_F32);
    CHECK_FAILS(tri_tensor_copy_in(pending, other, sizeof(other)), TRI_ERR_INVALID_ARG,
                "only persistent tensors can be written: run the step (tri_run), then ask tri_grad "
                "again");
    CHECK_NEAR(tri_item(total(pending)), 8, 0);
    done = tri_grad(w);
    assert_false(trii_is_handle(done));
    CHECK_NEAR(tri_item(total(pending)), 8, 0); /* until the step ends */
    CHECK_OK(tri_step_end_status());
    CHECK_FAILS(tri_tensor_status(pending), TRI_ERR_STATE, "ended");
    assert_ptr_equal(tri_grad(w), done);
    CHECK_GRAD(w, 2, 6);
    CHECK_OK(tri_tensor_copy_in(tri_grad(w), other, sizeof(other)));
    CHECK_GRAD(w, 0, 0);
    tri_tensor_unref(w);
}

static void a_release_of_what_is_lent_is_ignored(void **state)
{
    tri_tensor *w = parameter(1, 3), *kept;

    (void)state;
    tri_backward(squares(w));
    CHECK_OK(tri_run());
    tri_tensor_unref(tri_grad(w)); /* the step has a reference, too */
    tri_step_end();
    tri_tensor_unref(tri_grad(w));
    tri_tensor_unref(tri_grad(w));
    CHECK_GRAD(w, 2, 6);
    kept = tri_tensor_ref(tri_grad(w));
    tri_tensor_unref(w);
    CHECK_NEAR(tri_item(total(kept)), 8, 0); /* of the program that kept it */
    tri_step_end();
    tri_tensor_unref(kept);
}

/* As torch after zero_grad(set_to_none=True): nothing, not the gradient of yesterday. */
static void a_cleared_gradient_is_null(void **state)
{
    tri_tensor *w = parameter(1, 3);
    tri_tensor *const list[1] = {w};
    tri_optimizer *opt =
        tri_sgd_of(&(tri_param_group){.params = list, .n_params = 1}, 1, 0.5, NULL);

    (void)state;
    tri_backward(squares(w));
    tri_optimizer_zero_grad(opt); /* before it has run */
    assert_null(tri_grad(w));
    CHECK_OK(tri_step_end_status());
    assert_null(tri_grad(w));
    tri_backward(squares(w));
    CHECK_OK(tri_step_end_status());
    tri_optimizer_zero_grad(opt); /* after it */
    assert_null(tri_grad(w));
    tri_backward(squares(w));
    assert_true(trii_is_handle(tri_grad(w)));
    CHECK_GRAD(w, 2, 6);
    CHECK_OK(tri_optimizer_step(opt)); /* uses it; it can be looked at */
    CHECK_GRAD(w, 2, 6);
    CHECK_OK(tri_step_end_status());
    CHECK_GRAD(w, 2, 6);
    tri_backward(squares(w)); /* of the new w: 0, 0 */
    CHECK_NEAR(tri_item(total(tri_grad(w))), 0, 0);
    CHECK_OK(tri_step_end_status());
    tri_optimizer_destroy(opt);
    tri_tensor_unref(w);
}

static void a_gradient_that_an_optimizer_uses_is_the_value_to_come(void **state)
{
    tri_tensor *w = parameter(1, 3);
    trii_vid used = TRII_NO_VALUE;

    (void)state;
    tri_backward(squares(w));
    CHECK_OK(trii_grad_consume(trii_step_current(), w, &used));
    assert_ptr_equal(tri_grad(w), trii_handle(trii_step_current(), used));
    CHECK_OK(tri_step_end_status());
    CHECK_GRAD(w, 2, 6);
    tri_tensor_unref(w);
}

static void micro_batches_add_up_in_it(void **state)
{
    tri_tensor *w = parameter(1, 3), *first, *both;

    (void)state;
    tri_backward(squares(w));
    first = tri_grad(w);
    tri_backward(total(w));
    both = tri_grad(w);
    assert_true(both != first);
    first = tri_keep(first); /* no longer the gradient, an ordinary value of the step */
    CHECK_NEAR(tri_item(total(both)), 2 + 6 + 2, 0);
    CHECK_NEAR(tri_item(total(first)), 2 + 6, 0);
    tri_backward(total(w)); /* the next segment, the same step */
    assert_true(trii_is_handle(tri_grad(w)));
    CHECK_NEAR(tri_item(total(tri_grad(w))), 2 + 6 + 4, 0);
    CHECK_OK(tri_step_end_status());
    tri_backward(total(w)); /* the next step */
    CHECK_GRAD(w, 5, 9);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
}

/* What pends in one is not there for the other, and no garbage either. */
static void another_context_sees_what_has_run(void **state)
{
    tri_tensor *w = parameter(1, 3);
    tri_context *context = NULL;

    (void)state;
    CHECK_OK(tri_context_create(&context));
    CHECK_OK(tri_context_enter(context));
    tri_backward(squares(w));
    assert_true(trii_is_handle(tri_grad(w)));
    CHECK_OK(tri_context_leave());
    assert_null(tri_grad(w));
    CHECK_OK(tri_context_enter(context));
    CHECK_OK(tri_run());
    CHECK_OK(tri_context_leave());
    CHECK_GRAD(w, 2, 6);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_enter(context));
    CHECK_OK(tri_step_end_status());
    tri_backward(squares(w));
    CHECK_OK(tri_context_leave());
    CHECK_GRAD(w, 2, 6); /* without what pends there */
    CHECK_OK(tri_step_end_status());
    tri_context_destroy(context);
    CHECK_GRAD(w, 2, 6);
    tri_tensor_unref(w);
}

typedef struct watch {
    tri_tensor *w;
    atomic_bool stop, begun;
    tri_status status;
    int seen;
} watch;

/* Asks until the other thread has published, and reads nothing that pends. */
static void watch_for_it(void *arg)
{
    watch *k = arg;
    tri_tensor *grad = NULL;

    atomic_store(&k->begun, true);
    while (grad == NULL && !atomic_load(&k->stop))
        grad = tri_grad(k->w);
    grad = tri_grad(k->w);
    k->status = grad == NULL || trii_is_handle(grad) || tri_tensor_numel(grad) != 2
                    ? TRI_ERR_INTERNAL
                    : TRI_OK;
}

static void a_second_thread_may_ask_meanwhile(void **state)
{
    watch k = {.w = parameter(1, 3)};
    trii_thread thread;

    (void)state;
    CHECK_OK(trii_thread_start(&thread, "watch", watch_for_it, &k));
    while (!atomic_load(&k.begun))
        trii_thread_yield();
    tri_backward(squares(k.w));
    CHECK_OK(tri_step_end_status());
    atomic_store(&k.stop, true);
    trii_thread_join(&thread);
    CHECK_OK(k.status);
    tri_tensor_unref(k.w);
}

static void clear_often(void *arg)
{
    for (int i = 0; i < 1000; i++)
        trii_grad_clear(arg);
}

static void two_threads_may_clear_it_at_once(void **state)
{
    tri_tensor *w = parameter(1, 3);
    trii_thread thread;

    (void)state;
    tri_backward(squares(w));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(trii_thread_start(&thread, "clear", clear_often, w));
    clear_often(w);
    trii_thread_join(&thread);
    assert_null(tri_grad(w));
    tri_tensor_unref(w);
}

static void a_failed_segment_publishes_none(void **state)
{
    tri_tensor *w = parameter(1, 3), *v = parameter(1, 3), *pending;

    (void)state;
    tri_backward(squares(v)); /* had run before */
    CHECK_OK(tri_step_end_status());
    tri_backward(failing(w));
    pending = tri_grad(w);
    assert_true(trii_is_handle(pending));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 9 of row 0");
    CHECK_FAILS(tri_tensor_status(pending), TRI_ERR_INVALID_ARG, "target 9 of row 0");
    assert_null(tri_grad(w));
    tri_step_end();
    assert_null(tri_grad(w));
    CHECK_GRAD(v, 2, 6);
    tri_backward(squares(w));
    CHECK_OK(tri_step_end_status());
    CHECK_GRAD(w, 2, 6);
    tri_tensor_unref(w);
    tri_tensor_unref(v);
}

/* A refused call fails the step before anything has run. */
static void a_refused_call_takes_the_value_to_come_back(void **state)
{
    tri_tensor *w = parameter(1, 3);

    (void)state;
    tri_backward(squares(w));
    CHECK_OK(tri_step_end_status());
    tri_backward(squares(w));
    assert_true(trii_is_handle(tri_grad(w)));
    tri_backward(w); /* no scalar */
    assert_false(trii_is_handle(tri_grad(w)));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "one floating-point number");
    CHECK_GRAD(w, 2, 6);
    tri_tensor_unref(w);
}

static void a_half_made_gradient_that_was_cleared_is_null(void **state)
{
    tri_tensor *w = parameter(1, 3);

    (void)state;
    tri_backward(squares(w));
    (void)tri_keep(failing(w));
    trii_grad_clear(w);
    assert_true(tri_run() == TRI_ERR_INVALID_ARG);
    tri_step_end();
    assert_null(tri_grad(w));
    tri_backward(squares(w));
    CHECK_GRAD(w, 2, 6);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
}

static void a_pending_gradient_requires_no_gradient(void **state)
{
    tri_tensor *w = parameter(1, 3), *norm;

    (void)state;
    tri_backward(squares(w));
    norm = squares(tri_grad(w)); /* no TRI_NO_GRAD is needed */
    tri_backward(norm);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "requires a gradient");
    TRI_NO_GRAD
    {
        assert_null(tri_grad(w));
        tri_backward(squares(w));
        CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "requires a gradient");
        assert_null(tri_grad(w));
    }
    tri_backward(squares(w));
    TRI_NO_GRAD
    {
        CHECK_NEAR(tri_item(squares(tri_grad(w))), 4 + 36, 0);
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
}

static void what_the_loss_was_not_made_of_has_none(void **state)
{
    tri_tensor *w = parameter(1, 3), *other = parameter(1, 3), *y;

    (void)state;
    y = tri_square(w);
    tri_backward(total(tri_add(y, tri_mul_scalar(tri_square(other), 0))));
    assert_true(trii_is_handle(tri_grad(other))); /* zeros are a gradient */
    assert_null(tri_grad(y));                     /* step tensors have none: tri_gradients */
    CHECK_OK(tri_step_end_status());
    CHECK_GRAD(other, 0, 0);
    trii_grad_clear(other);
    tri_backward(squares(w));
    assert_null(tri_grad(other));
    CHECK_OK(tri_step_end_status());
    assert_null(tri_grad(other));
    tri_requires_grad(other, false);
    tri_backward(tri_sum(tri_mul(w, other), NULL, 0, false));
    assert_null(tri_grad(other));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
    tri_tensor_unref(other);
}

/* The norm comes out of the run that computes the gradients. */
static void clip_by_hand(tri_tensor *const *params, int n, double max)
{
    tri_tensor *sum = NULL;
    double scale;

    for (int i = 0; i < n; i++) {
        tri_tensor *part = squares(tri_grad(params[i]));

        sum = sum == NULL ? part : tri_add(sum, part);
    }
    scale = fmin(1, max / sqrt(tri_item(sum)));
    for (int i = 0; i < n; i++) {
        float g[2];

        CHECK_OK(tri_tensor_copy_out(tri_grad(params[i]), g, sizeof(g)));
        g[0] *= (float)scale;
        g[1] *= (float)scale;
        CHECK_OK(tri_tensor_copy_in(tri_grad(params[i]), g, sizeof(g)));
    }
}

static void clipping_by_hand_is_clipping(void **state)
{
    float out[2][4];

    (void)state;
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        tri_tensor *const params[2] = {parameter(1, 3), parameter(-2, 5)};
        tri_optimizer *opt = tri_sgd_of(&(tri_param_group){.params = params, .n_params = 2}, 1, 0.5,
                                        &(tri_sgd_options){.momentum = 0.5});

        for (int step = 0; step < 3; step++) {
            for (int micro = 0; micro < 2; micro++)
                tri_backward(tri_add(squares(params[0]), squares(tri_square(params[1]))));
            if (by_hand)
                clip_by_hand(params, 2, 1.5);
            else
                (void)tri_clip_grad_norm(opt, 1.5);
            CHECK_OK(tri_optimizer_step(opt));
            CHECK_OK(tri_step_end_status());
        }
        for (int i = 0; i < 2; i++)
            CHECK_OK(tri_tensor_copy_out(params[i], &out[by_hand][2 * i], 2 * sizeof(float)));
        tri_optimizer_destroy(opt);
        tri_tensor_unref(params[0]);
        tri_tensor_unref(params[1]);
    }
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(out[1][i], out[0][i], 1e-6);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pending_gradient_is_a_step_tensor_until_it_has_run),
    cmocka_unit_test(a_release_of_what_is_lent_is_ignored),
    cmocka_unit_test(a_cleared_gradient_is_null),
    cmocka_unit_test(a_gradient_that_an_optimizer_uses_is_the_value_to_come),
    cmocka_unit_test(micro_batches_add_up_in_it),
    cmocka_unit_test(another_context_sees_what_has_run),
    cmocka_unit_test(a_second_thread_may_ask_meanwhile),
    cmocka_unit_test(two_threads_may_clear_it_at_once),
    cmocka_unit_test(a_failed_segment_publishes_none),
    cmocka_unit_test(a_refused_call_takes_the_value_to_come_back),
    cmocka_unit_test(a_half_made_gradient_that_was_cleared_is_null),
    cmocka_unit_test(a_pending_gradient_requires_no_gradient),
    cmocka_unit_test(what_the_loss_was_not_made_of_has_none),
    cmocka_unit_test(clipping_by_hand_is_clipping),
};

TEST_MAIN(tests)
