/* context_test.c - several steps: what a context keeps for itself, and how it goes from thread to
 * thread. */
#include <trireme/context.h>
#include <trireme/nn.h>
#include <trireme/ops.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *vec(float a, float b)
{
    return tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, (const float[]){a, b});
}

static tri_context *new_context(void)
{
    tri_context *context = NULL;

    CHECK_OK(tri_context_create(&context));
    return context;
}

static tri_tensor *total(tri_tensor *x)
{
    return tri_sum(x, NULL, 0, false);
}

/* A step is left in the middle, another one comes and goes, and the first goes on. */
static void a_step_waits_in_its_context(void **state)
{
    tri_tensor *x = vec(1, 2), *y = vec(3, 5), *sum, *other;
    tri_context *context = new_context();

    (void)state;
    CHECK_OK(tri_context_enter(context));
    sum = total(x);
    CHECK_OK(tri_context_leave());
    other = total(y);
    CHECK_FAILS(tri_tensor_status(sum), TRI_ERR_STATE, "belongs to the step of context ");
    CHECK_NEAR(tri_item(other), 8, 0);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_enter(context));
    CHECK_FAILS(tri_tensor_status(other), TRI_ERR_STATE, "has ended");
    CHECK_NEAR(tri_item(tri_mul_scalar(sum, 2)), 6, 0);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_leave());
    tri_context_destroy(context);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void modes_are_the_contexts_own(void **state)
{
    tri_tensor *x = vec(1, 2);
    tri_context *outer = new_context(), *inner = new_context();

    (void)state;
    tri_requires_grad(x, true);
    CHECK_OK(tri_context_enter(outer));
    tri_no_grad_begin();
    CHECK_OK(tri_context_enter(inner));
    tri_backward(total(x));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_leave());
    tri_backward(total(x));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "tri_no_grad_begin");
    CHECK_OK(tri_context_leave());
    tri_backward(total(x));
    CHECK_OK(tri_step_end_status());
    tri_context_destroy(outer);
    tri_context_destroy(inner);
    tri_tensor_unref(x);
}

static void entering_and_leaving_must_match(void **state)
{
    tri_context *context = new_context();

    (void)state;
    CHECK_FAILS(tri_context_create(NULL), TRI_ERR_INVALID_ARG, "context_out is NULL");
    CHECK_FAILS(tri_context_enter(NULL), TRI_ERR_INVALID_ARG, "the context is NULL");
    CHECK_FAILS(tri_context_leave(), TRI_ERR_STATE, "without tri_context_enter");
    CHECK_OK(tri_context_enter(context));
    CHECK_FAILS(tri_context_enter(context), TRI_ERR_STATE, "is entered already, by thread");
    CHECK_OK(tri_context_leave());
    CHECK_NEAR(tri_item(tri_full(NULL, 0, 3, TRI_DTYPE_F32)), 3,
               0); /* now there is one of its own */
    CHECK_FAILS(tri_context_leave(), TRI_ERR_STATE, "without tri_context_enter");
    CHECK_OK(tri_step_end_status());
    tri_context_destroy(context);
    tri_context_destroy(NULL);
}

static void a_destroyed_context_drops_its_step(void **state)
{
    tri_tensor *x = vec(1, 2);
    tri_context *context;
    long live;

    (void)state;
    CHECK_NEAR(tri_item(total(x)), 3, 0); /* what is kept from now on is there */
    CHECK_NEAR(tri_item(total(tri_mul_scalar(x, 2))), 6, 0);
    CHECK_OK(tri_step_end_status());
    live = trii_alloc_live();
    context = new_context();
    CHECK_OK(tri_context_enter(context));
    CHECK_NEAR(tri_item(total(tri_mul_scalar(x, 2))), 6, 0); /* values that it keeps */
    (void)total(x);
    (void)tri_tensor_set_name(total(x), "sum");
    tri_context_destroy(context); /* when it is left */
    assert_int_equal(tri_tensor_status(total(x)), TRI_OK);
    CHECK_OK(tri_context_leave());
    assert_int_equal(trii_alloc_live(), live);
    CHECK_NEAR(tri_item(total(x)), 3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* --- random numbers ------------------------------------------------------- */

static void random_state_is_the_contexts_own(void **state)
{
    tri_context *context;
    tri_rng random;

    (void)state;
    tri_manual_seed(11);
    context = new_context();
    tri_rng_state_set(&(tri_rng){.seed = 4, .stream = 5, .step = 6});
    CHECK_OK(tri_context_enter(context));
    random = tri_rng_state();
    assert_int_equal(random.seed, 11); /* the default */
    assert_int_equal(random.stream, 0);
    assert_int_equal(random.step, 0);
    (void)tri_rand(TRI_SHAPE(1), TRI_DTYPE_F32);
    CHECK_OK(tri_step_end_status());
    assert_int_equal(tri_rng_state().step, 1);
    tri_manual_seed(12);
    assert_int_equal(tri_rng_state().seed, 12);
    assert_int_equal(tri_rng_state().step, 0);
    CHECK_OK(tri_context_leave());
    random = tri_rng_state();
    assert_int_equal(random.seed, 4);
    assert_int_equal(random.stream, 5);
    assert_int_equal(random.step, 6);
    tri_rng_state_set(NULL);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "the state is NULL");
    tri_context_destroy(context);
}

/* --- gradients ------------------------------------------------------------ */

static float grad_of(tri_tensor *w)
{
    float grad[2] = {0};

    CHECK_OK(tri_tensor_copy_out(tri_grad(w), grad, sizeof(grad)));
    return grad[0];
}

/* Of one that another context's pending step will write, and only until that has run. */
static void a_gradient_is_written_by_one_step_at_a_time(void **state)
{
    tri_tensor *w = vec(1, 2);
    tri_context *context = new_context();

    (void)state;
    tri_requires_grad(w, true);
    CHECK_OK(tri_context_enter(context));
    tri_backward(total(w));
    CHECK_OK(tri_context_leave());
    assert_false(trii_has_grad(w)); /* here; there it pends */
    tri_backward(total(w));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "the step of context ");
    tri_backward(total(w));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "src/train/graph/step/context_test.c:");
    trii_grad_clear(w);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "needs the gradient of a tensor f32 [2]");
    CHECK_OK(tri_context_enter(context));
    assert_true(trii_has_grad(w));
    CHECK_OK(tri_run());
    CHECK_OK(tri_context_leave());
    assert_true(trii_has_grad(w));
    tri_backward(total(w));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(w), 2, 0);
    tri_context_destroy(context);
    tri_tensor_unref(w);
}

static void a_context_that_goes_gives_its_gradients_back(void **state)
{
    tri_tensor *w = vec(1, 2);
    tri_context *context = new_context();

    (void)state;
    tri_requires_grad(w, true);
    CHECK_OK(tri_context_enter(context));
    tri_backward(total(w));
    CHECK_OK(tri_context_leave());
    tri_context_destroy(context);
    assert_false(trii_has_grad(w));
    tri_backward(total(w));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(w), 1, 0);
    tri_tensor_unref(w);
}

/* Thousands of tensors in one step, and steps that know others than the one before; the first has
 * got other contents before the rest came. */
static void a_step_knows_any_number_of_tensors(void **state)
{
    enum { N = 3000 };
    tri_tensor *x[N], *w = vec(1, 2), *sum = NULL;

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = vec((float)i, 1);
    for (int round = 0; round < 3; round++) {
        int from = round == 1 ? N - 5 : 0;
        double expected = 3 + 2 * (round + 1);
        trii_vid next = TRII_NO_VALUE;

        CHECK_OK(trii_resolve(trii_step_current(), tri_add_scalar(w, 1), &next));
        CHECK_OK(trii_bind(trii_step_current(), next, w));
        for (int i = from; i < N; i++) {
            sum = i > from ? tri_add(sum, x[i]) : tri_mul_scalar(x[i], 1);
            (void)tri_add(x[i], x[from]);
            expected += i + 1;
        }
        sum = tri_add(sum, w);
        CHECK_NEAR(tri_item(total(tri_cast(sum, TRI_DTYPE_F64))), expected, 0);
        CHECK_OK(tri_step_end_status());
    }
    for (int i = 0; i < N; i++)
        tri_tensor_unref(x[i]);
    tri_tensor_unref(w);
}

/* --- threads -------------------------------------------------------------- */

typedef struct relay {
    trii_thread thread;
    tri_context *context;
    tri_tensor *w, *loss;
    double value;
    tri_status status;
} relay;

static void run_on_a_thread(relay *r, void (*part)(void *arg))
{
    CHECK_OK(trii_thread_start(&r->thread, "relay", part, r));
    trii_thread_join(&r->thread);
    CHECK_OK(r->status);
}

static void record(void *arg)
{
    relay *r = arg;

    r->status = tri_context_enter(r->context);
    if (r->status != TRI_OK)
        return;
    r->loss = total(tri_square(r->w));
    r->status = tri_context_leave();
}

static void differentiate(void *arg)
{
    relay *r = arg;

    r->status = tri_context_enter(r->context);
    if (r->status != TRI_OK)
        return;
    tri_backward(r->loss);
    r->status = tri_item_status(r->loss, &r->value);
    /* the thread ends without leaving it */
}

static void finish(void *arg)
{
    relay *r = arg;

    r->status = tri_context_enter(r->context);
    if (r->status == TRI_OK)
        r->status = tri_step_end_status();
    if (r->status == TRI_OK)
        r->status = tri_context_leave();
}

static void a_context_goes_from_thread_to_thread(void **state)
{
    relay r = {.context = new_context(), .w = vec(2, 3)};
    float grad[2] = {0};

    (void)state;
    tri_requires_grad(r.w, true);
    run_on_a_thread(&r, record);
    run_on_a_thread(&r, differentiate);
    run_on_a_thread(&r, finish);
    CHECK_NEAR(r.value, 13, 0);
    CHECK_OK(tri_tensor_copy_out(tri_grad(r.w), grad, sizeof(grad)));
    CHECK_NEAR(grad[0], 4, 0);
    CHECK_NEAR(grad[1], 6, 0);
    tri_context_destroy(r.context);
    tri_tensor_unref(r.w);
}

static void a_context_is_entered_by_one_thread_at_a_time(void **state)
{
    relay r = {.context = new_context(), .w = vec(2, 3)};

    (void)state;
    CHECK_OK(tri_context_enter(r.context));
    CHECK_OK(trii_thread_start(&r.thread, "relay", record, &r));
    trii_thread_join(&r.thread);
    assert_int_equal(r.status, TRI_ERR_STATE);
    CHECK_OK(tri_context_leave());
    tri_context_destroy(r.context);
    tri_tensor_unref(r.w);
}

typedef struct there {
    tri_device seen[4];
    tri_context *context;
} there;

static void make_there(void *arg)
{
    tri_device *seen = ((there *)arg)->seen;

    seen[0] = tri_current_device();
    if (tri_context_enter(((there *)arg)->context) != TRI_OK)
        return;
    seen[1] = tri_current_device();
    seen[2] = tri_tensor_device(tri_zeros(TRI_SHAPE(2), TRI_DTYPE_F32));
    tri_step_end();
    if (tri_context_leave() == TRI_OK)
        seen[3] = tri_current_device();
}

/* The default device and the scopes stay with their context, which hands them from thread to
 * thread; a new one begins with its maker's. */
static void devices_are_the_contexts_own(void **state)
{
    there o = {{-1, -1, -1, -1}, NULL};
    tri_context *inherits = NULL;
    trii_thread thread;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(4));
    o.context = new_context();
    CHECK_OK(tri_set_device(TRI_CPU(1)));
    TRI_ON(TRI_CPU(3))
    {
        inherits = new_context();
    }
    CHECK_OK(tri_context_enter(o.context));
    assert_int_equal(tri_current_device(), TRI_CPU(0));
    CHECK_OK(tri_set_device(TRI_CPU(2)));
    CHECK_OK(tri_context_enter(inherits));
    assert_int_equal(tri_current_device(), TRI_CPU(3));
    tri_device_begin(TRI_CPU(0));
    CHECK_OK(tri_context_leave());
    assert_int_equal(tri_current_device(), TRI_CPU(2));
    CHECK_OK(tri_context_leave());
    assert_int_equal(tri_current_device(), TRI_CPU(1));
    CHECK_OK(tri_context_enter(inherits)); /* its scope is still open */
    assert_int_equal(tri_current_device(), TRI_CPU(0));
    tri_device_end();
    assert_int_equal(tri_current_device(), TRI_CPU(3));
    CHECK_OK(tri_context_leave());
    CHECK_OK(trii_thread_start(&thread, "other", make_there, &o));
    trii_thread_join(&thread);
    assert_int_equal(o.seen[0], TRI_CPU(0));
    assert_int_equal(o.seen[1], TRI_CPU(2));
    assert_int_equal(o.seen[2], TRI_CPU(2));
    assert_int_equal(o.seen[3], TRI_CPU(0));
    tri_context_destroy(o.context);
    tri_context_destroy(inherits);
    CHECK_OK(tri_step_end_status());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_waits_in_its_context),
    cmocka_unit_test(modes_are_the_contexts_own),
    cmocka_unit_test(devices_are_the_contexts_own),
    cmocka_unit_test(entering_and_leaving_must_match),
    cmocka_unit_test(a_destroyed_context_drops_its_step),
    cmocka_unit_test(random_state_is_the_contexts_own),
    cmocka_unit_test(a_gradient_is_written_by_one_step_at_a_time),
    cmocka_unit_test(a_context_that_goes_gives_its_gradients_back),
    cmocka_unit_test(a_step_knows_any_number_of_tensors),
    cmocka_unit_test(a_context_goes_from_thread_to_thread),
    cmocka_unit_test(a_context_is_entered_by_one_thread_at_a_time),
};

TEST_MAIN(tests)
