/* run_test.c - running steps: bindings, host operations, updates,
 * eager mode, TRI_CHECK=nan, running out of memory. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "base/err.h"
#include "testing/check.h"
#include "train/graph/ops/table.h"
#include "train/graph/ops/update.h"
#include "train/graph/step/host_op.h"
#include "testing/scratch.h" /* redirecting stderr */

static tri_tensor *vec(int n, const float *x)
{
    return tri_tensor_from((int64_t[]){n}, 1, TRI_DTYPE_F32, x);
}

static float first_of(tri_tensor *tensor)
{
    float out[8];

    CHECK_OK(tri_tensor_copy_out(tensor, out, (size_t)tri_tensor_numel(tensor) * sizeof(float)));
    return out[0];
}

/* --- bindings ------------------------------------------------------------- */

static void bind_value(tri_tensor *handle, tri_tensor *tensor)
{
    trii_vid id = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(trii_step_current(), handle, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, tensor));
}

static void a_bound_result_is_the_tensor_from_then_on(void **state)
{
    const float two = 2;
    tri_tensor *x = vec(1, &two), *before, *after;

    (void)state;
    before = tri_keep(tri_mul_scalar(x, 10));
    bind_value(tri_square(x), x);
    after = tri_keep(tri_mul_scalar(x, 10));
    bind_value(tri_square(x), x); /* the first binding is given up, its value is used */
    CHECK_OK(tri_run());
    CHECK_NEAR(first_of(before), 20, 0);
    CHECK_NEAR(first_of(after), 40, 0);
    CHECK_NEAR(first_of(x), 16, 0);
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(first_of(x), 16, 0);
    /* a value that has run, and another tensor, are bound by copying */
    after = tri_keep(tri_mul_scalar(x, 0.5));
    CHECK_OK(tri_run());
    bind_value(after, x);
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(first_of(x), 8, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void what_was_overwritten_cannot_be_differentiated(void **state)
{
    const float two = 2;
    tri_tensor *x = vec(1, &two), *loss;

    (void)state;
    tri_requires_grad(x, true);
    loss = tri_sum(tri_square(x), NULL, 0, false);
    CHECK_NEAR(tri_item(loss), 4, 0);
    tri_no_grad_begin();
    bind_value(tri_mul_scalar(x, 3), x);
    tri_no_grad_end();
    CHECK_OK(tri_run());
    tri_backward(loss);
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "overwritten");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "gradient of tri_square at ");
    tri_tensor_unref(x);
}

static void writing_gives_up_a_binding_that_has_not_run(void **state)
{
    const float two = 2, five = 5;
    tri_tensor *x = vec(1, &two), *y;

    (void)state;
    bind_value(tri_mul_scalar(x, 3), x);
    y = tri_keep(tri_add_scalar(x, 1)); /* of 6 */
    CHECK_OK(tri_tensor_copy_in(x, &five, sizeof(five)));
    CHECK_OK(tri_run());
    CHECK_NEAR(first_of(y), 7, 0);
    CHECK_NEAR(first_of(x), 5, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* --- host operations ------------------------------------------------------ */

typedef struct doubler {
    trii_host_op op;
    int started;
    bool poison; /* the peer sends NaN */
    tri_status result;
} doubler;

static tri_status doubler_start(trii_host_op *op, const trii_host_buffers *b)
{
    doubler *d = (doubler *)(void *)op;
    const float *x = b->in[0];
    float *y = b->out[0];

    d->started++;
    y[0] = d->poison ? NAN : 2 * x[0];
    return d->result == TRI_OK ? TRI_OK : TRII_FAIL(d->result, "the peer is gone");
}

static tri_status doubler_done(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status doubler_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static const trii_host_kind doubler_kind = {.name = "doubler",
                                            .in_place = true,
                                            .start = doubler_start,
                                            .poll = doubler_done,
                                            .wait = doubler_wait};

static doubler make_doubler(tri_status result)
{
    return (doubler){.op = {.kind = &doubler_kind, .identity = 77}, .result = result};
}

/* The gradient of x goes through the operation. */
static void double_gradient(tri_tensor *x, doubler *host)
{
    trii_step *step = trii_step_current();
    trii_vid grad = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(step, tri_grad(x), &grad));
    CHECK_OK(trii_record_host_like(step, &host->op, &grad, 1, &grad));
    CHECK_OK(trii_grad_bind(step, grad, x));
}

static void a_host_operation_replaces_a_gradient(void **state)
{
    const float a = 3, b = 4;
    tri_tensor *x = vec(1, &a), *y = vec(1, &b);
    doubler host = make_doubler(TRI_OK);

    (void)state;
    tri_requires_grad(x, true);
    tri_requires_grad(y, true);
    tri_backward(tri_sum(tri_mul(x, y), NULL, 0, false));
    double_gradient(x, &host);
    CHECK_OK(tri_run());
    CHECK_NEAR(first_of(tri_grad(x)), 2 * 4, 0);
    CHECK_NEAR(first_of(tri_grad(y)), 3, 0);
    assert_int_equal(host.started, 1);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void a_failed_host_operation_fails_the_step(void **state)
{
    const float a = 3;
    tri_tensor *x = vec(1, &a), *loss;
    doubler host = make_doubler(TRI_ERR_PEER_LOST);

    (void)state;
    tri_requires_grad(x, true);
    loss = tri_sum(x, NULL, 0, false);
    tri_backward(loss);
    double_gradient(x, &host);
    CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "the peer is gone");
    assert_true(isnan(tri_item(loss)));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_PEER_LOST, "the peer is gone");
    CHECK_NEAR(tri_item(tri_sum(x, NULL, 0, false)), 3, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* --- the update of SGD ---------------------------------------------------- */

static void sgd_step(tri_tensor *p, tri_tensor *m, float g, bool first, bool nesterov)
{
    tri_tensor *grad = vec(1, &g), *next;
    const trii_attrs attrs = {
        .i = {TRII_UPDATE_SGD, TRII_UPDATE_MOMENTUM | (nesterov ? TRII_UPDATE_NESTEROV : 0)},
        .n_i = 2,
        .f = {0, 0.1, 0.9, first ? 0 : 0.5, 0.01},
        .n_f = 5};

    next = trii_record(&trii_op_update, (tri_tensor *const[]){p, grad, m}, 3, &attrs);
    CHECK_OK(tri_tensor_status(next));
    bind_value(trii_handle_output(next, 1), m);
    bind_value(next, p);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(grad);
}

static void sgd_is_pytorchs(void **state)
{
    const float start = 1, zero = 0;
    float p_want = 1, m_want = 0;
    tri_tensor *p = vec(1, &start), *m = vec(1, &zero);

    (void)state;
    for (int k = 0; k < 4; k++) {
        float g = 0.5f - (float)k, d = g + 0.01f * p_want;
        bool nesterov = k % 2 == 1;

        m_want = k == 0 ? d : m_want * 0.9f + 0.5f * d;
        p_want = p_want + -0.1f * (nesterov ? d + 0.9f * m_want : m_want);
        sgd_step(p, m, g, k == 0, nesterov);
        CHECK_NEAR(first_of(p), p_want, 0);
        CHECK_NEAR(first_of(m), m_want, 0);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(p);
    tri_tensor_unref(m);
}

/* --- modes ---------------------------------------------------------------- */

static void eager_mode_runs_each_operation_at_once(void **state)
{
    const int64_t wrong = 9;
    const float xs[2] = {2, 3};
    tri_tensor *x = vec(2, xs), *target = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_I64, &wrong);
    tri_tensor *y, *loss;

    (void)state;
    trii_step_release();
    setenv("TRI_EAGER", "1", 1);
    tri_requires_grad(x, true);
    y = tri_mul(x, x);
    assert_int_equal(trii_step_current()->first_pending, 1);
    loss = tri_sum(y, NULL, 0, false);
    CHECK_NEAR(first_of(y), 4, 0); /* everything can be read */
    tri_backward(loss);
    assert_int_equal(trii_step_current()->first_pending, trii_step_current()->n_nodes);
    CHECK_NEAR(first_of(tri_grad(x)), 4, 0);
    bind_value(tri_add_scalar(x, 1), x);
    CHECK_NEAR(first_of(x), 3, 0);
    loss = tri_cross_entropy(tri_reshape(x, (int64_t[]){1, 2}, 2), target, NULL);
    CHECK_FAILS(tri_tensor_status(loss), TRI_ERR_INVALID_ARG, "target 9 of row 0");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "target 9 of row 0");
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    trii_step_release();
    unsetenv("TRI_EAGER");
}

static void the_first_nan_is_named(void **state)
{
    const float xs[2] = {1, -1}, nan = NAN;
    tri_tensor *x = vec(2, xs), *y, *n = vec(1, &nan);

    (void)state;
    trii_step_release();
    setenv("TRI_CHECK", "nan", 1);
    CHECK_NEAR(tri_item(tri_sum(tri_relu(x), NULL, 0, false)), 1, 0);
    CHECK_OK(tri_step_end_status());
    y = tri_sqrt(x); /* here */
    bind_value(tri_mul_scalar(x, 2), x);
    y = tri_sum(tri_relu(tri_mul_scalar(y, 3)), NULL, 0, false);
    assert_true(isnan(tri_item(y)));
    assert_non_null(strstr(tri_last_error(), "NaN made by sqrt(f32 [2])"));
    assert_non_null(strstr(tri_last_error(), "run_test.c:"));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_NAN, "sqrt");
    assert_true(isnan(tri_item(tri_relu(n))));
    assert_non_null(strstr(tri_last_error(), "argument 0 of tri_relu"));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_NAN, "NaN already");
    tri_tensor_unref(x);
    tri_tensor_unref(n);
    trii_step_release();
    unsetenv("TRI_CHECK");
}

static void an_unknown_check_is_an_error_of_the_run(void **state)
{
    const float one = 1;
    tri_tensor *x = vec(1, &one);

    (void)state;
    trii_step_release();
    setenv("TRI_CHECK", "bogus", 1);
    (void)tri_relu(x);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "TRI_CHECK=bogus must be nan");
    tri_step_end();
    tri_tensor_unref(x);
    trii_step_release();
    unsetenv("TRI_CHECK");
}

/* What is recorded after a collective is found as well, and the collective runs only once. */
static void a_nan_is_found_behind_host_operations(void **state)
{
    const float xs[2] = {1, 2};
    tri_tensor *x = vec(2, xs), *d;
    doubler host = make_doubler(TRI_OK);
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;

    (void)state;
    trii_step_release();
    setenv("TRI_CHECK", "nan", 1);
    tri_requires_grad(x, true);
    /* a header before the backward pass, a bucket after it */
    CHECK_OK(trii_resolve(trii_step_current(), tri_sum(x, NULL, 0, false), &id));
    CHECK_OK(trii_record_host_like(trii_step_current(), &host.op, &id, 1, &out));
    d = tri_mul(tri_sum(x, NULL, 0, false), trii_handle(trii_step_current(), out));
    tri_backward(tri_div(d, tri_sub(d, d)));
    double_gradient(x, &host);
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "NaN made by add(f32 [], f32 [])");
    assert_int_equal(host.started, 2);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_NAN, "add");
    /* a clean gradient, and a NaN from elsewhere */
    x->has_grad = false;
    host.poison = true;
    tri_backward(tri_sum(tri_mul(x, x), NULL, 0, false));
    double_gradient(x, &host);
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "NaN came in through doubler(f32 [2]) from another rank");
    assert_int_equal(host.started, 3);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_NAN, "doubler");
    tri_tensor_unref(x);
    trii_step_release();
    unsetenv("TRI_CHECK");
}

/* A NaN that says "I could not read it" is not to be taken for a loss. */
static void an_item_that_cannot_be_read_is_warned_about(void **state)
{
    const float two = 2;
    tri_tensor *x = vec(1, &two), *y, *dead;
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    char text[2048];
    size_t n;

    (void)state;
    assert_non_null(log);
    assert_true(before >= 0);
    dead = tri_square(x);
    y = tri_keep(tri_square(x));
    CHECK_OK(tri_run());
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    CHECK_NEAR(tri_item(y), 4, 0);
    assert_true(isnan(tri_item(dead)));
    tri_step_end();
    assert_true(isnan(tri_item(y)));
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    n = fread(text, 1, sizeof(text) - 1, log);
    text[n] = '\0';
    fclose(log);
    assert_non_null(strstr(text, "warn graph: tri_item at "));
    assert_non_null(strstr(text, "was not kept when the step ran"));
    assert_non_null(strstr(text, "step has ended"));
    assert_ptr_equal(strchr(strchr(text, '\n') + 1, '\n') + 1, text + n); /* two lines */
    tri_tensor_unref(x);
}

static void random_numbers_follow_their_state(void **state)
{
    tri_tensor *ones = tri_tensor_create((int64_t[]){1000}, 1, TRI_DTYPE_F32), *y, *z;
    float a[1000], b[1000], c[1000];
    int zeros = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        a[i] = 1;
    CHECK_OK(tri_tensor_copy_in(ones, a, sizeof(a)));
    tri_manual_seed(5);
    for (int round = 0; round < 6; round++) {
        float *into = round == 0 ? a : b;
        const tri_rng states[6] = {
            {5, 0, 0}, {5, 0, 0}, {5, 0, 1}, {5, 1, 0}, {5, UINT64_C(1) << 40, 0}, {6, 0, 0}};

        tri_rng_state_set(&states[round]);
        y = tri_keep(tri_dropout(ones, 0.25, true));
        z = tri_keep(tri_dropout(ones, 0.25, true));
        CHECK_OK(tri_tensor_copy_out(y, into, sizeof(a)));
        CHECK_OK(tri_tensor_copy_out(z, c, sizeof(c)));
        CHECK_OK(tri_step_end_status());
        assert_memory_not_equal(into, c, sizeof(a)); /* another operation, other numbers */
        if (round == 1)
            assert_memory_equal(a, b, sizeof(a));
        if (round > 1)
            assert_memory_not_equal(a, b, sizeof(a));
    }
    tri_rng_state_set(&(tri_rng){.seed = 5});
    for (int i = 0; i < 1000; i++) {
        zeros += a[i] == 0;
        assert_true(a[i] == 0 || a[i] == (float)(1 / 0.75));
    }
    assert_in_range(zeros, 200, 300);
    tri_tensor_unref(ones);
}

/* --- memory --------------------------------------------------------------- */

/* A step of training; whatever fails comes out of it. */
static tri_status train_once(double *loss_out)
{
    const float xs[4] = {1, 2, 3, 4}, ws[4] = {0.1f, 0.2f, 0.3f, 0.4f};
    const int64_t target[2] = {0, 1};
    tri_tensor *x = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, xs);
    tri_tensor *t = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, target);
    tri_tensor *w = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, ws), *loss;
    tri_status status, ended;

    tri_requires_grad(w, true);
    loss = tri_cross_entropy(tri_relu(tri_linear(x, w, NULL)), t, NULL);
    tri_backward(loss);
    status = tri_run();
    if (status == TRI_OK)
        status = tri_tensor_status(loss);
    if (status == TRI_OK)
        *loss_out = tri_item(loss);
    if (status == TRI_OK && isnan(*loss_out))
        status = TRI_ERR_NO_MEMORY;
    ended = tri_step_end_status();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_tensor_unref(w);
    return status == TRI_OK ? ended : status;
}

static void every_allocation_of_a_step_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    double want = 0, loss = 0;
    long n = 0, live;

    (void)state;
    CHECK_OK(train_once(&want));
    trii_step_release();
    live = trii_alloc_live();
    while (status != TRI_OK) {
        trii_alloc_fail_at(++n);
        status = train_once(&loss);
        trii_alloc_fail_at(0);
        if (status != TRI_OK)
            CHECK_FAILS(status, TRI_ERR_NO_MEMORY, "memory");
        loss = 0;
        CHECK_OK(train_once(&loss)); /* usable afterwards */
        CHECK_NEAR(loss, want, 0);
        trii_step_release();
        assert_int_equal(trii_alloc_live(), live);
        assert_true(n < 1000);
    }
    assert_true(n > 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_bound_result_is_the_tensor_from_then_on),
    cmocka_unit_test(what_was_overwritten_cannot_be_differentiated),
    cmocka_unit_test(writing_gives_up_a_binding_that_has_not_run),
    cmocka_unit_test(a_host_operation_replaces_a_gradient),
    cmocka_unit_test(a_failed_host_operation_fails_the_step),
    cmocka_unit_test(sgd_is_pytorchs),
    cmocka_unit_test(eager_mode_runs_each_operation_at_once),
    cmocka_unit_test(the_first_nan_is_named),
    cmocka_unit_test(an_unknown_check_is_an_error_of_the_run),
    cmocka_unit_test(a_nan_is_found_behind_host_operations),
    cmocka_unit_test(an_item_that_cannot_be_read_is_warned_about),
    cmocka_unit_test(random_numbers_follow_their_state),
    cmocka_unit_test(every_allocation_of_a_step_may_fail),
};

TEST_MAIN(tests)
