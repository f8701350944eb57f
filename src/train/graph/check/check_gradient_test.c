/* check_gradient_test.c - what tri_gradcheck finds, what it lets pass, and that it leaves
 * everything as it was. */
#include <math.h>

#include <trireme/trireme.h>

#include "base/alloc.h"
#include "testing/check.h"

static tri_tensor *input(const char *name, const int64_t *shape, int ndim)
{
    double values[24];
    tri_tensor *x;

    for (int i = 0; i < 24; i++)
        values[i] = sin(1 + i) + 0.1 * ndim;
    x = tri_tensor_from(shape, ndim, TRI_DTYPE_F64, values);
    tri_requires_grad(x, true);
    return tri_tensor_set_name(x, name);
}

static tri_tensor *vector(void)
{
    return input("x", TRI_SHAPE(3));
}

/* --- a function of one's own: squares, with backwards of many kinds ------- */

typedef enum kind {
    RIGHT,
    DOUBLED,  /* the gradient of element 1 */
    UNSTEADY, /* another one each time */
    OF_ONE,   /* as if grad_out were 1 */
    FORWARD_UNSTEADY,
    WRONG_RECORD
} kind;

static int calls;

static int64_t count(const tri_function_array *array)
{
    int64_t n = 1;

    for (int d = 0; d < array->ndim; d++)
        n *= array->shape[d];
    return n;
}

static tri_status square_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

static tri_status square_forward(const tri_function_call *call)
{
    const double *x = call->in[0].data;
    double *y = call->out[0].data;

    for (int64_t i = 0; i < count(&call->in[0]); i++)
        y[i] = x[i] * x[i] + (*(const kind *)call->data == FORWARD_UNSTEADY ? calls++ : 0);
    return TRI_OK;
}

static tri_status square_backward(const tri_function_call *call)
{
    const double *x = call->in[0].data, *g = call->grad_out[0].data;
    double *dx = call->grad_in[0].data;
    kind how = *(const kind *)call->data;

    for (int64_t i = 0; i < count(&call->in[0]); i++) {
        dx[i] = 2 * x[i] * (how == OF_ONE ? 1 : g[i]);
        if (how == DOUBLED && i == 1)
            dx[i] *= 2;
        if (how == UNSTEADY)
            dx[i] += 1e-12 * calls++;
    }
    return TRI_OK;
}

static tri_status square_record(const tri_function_graph *graph)
{
    double factor = *(const kind *)graph->data == WRONG_RECORD ? 3 : 2;

    graph->grad_in[0] = tri_mul(graph->grad_out[0], tri_mul_scalar(graph->in[0], factor));
    return TRI_OK;
}

static const tri_function_class square_class = {.name = "squares",
                                                .size = sizeof(kind),
                                                .shape = square_shape,
                                                .forward = square_forward,
                                                .backward = square_backward};
static const tri_function_class twice_class = {.name = "squares",
                                               .size = sizeof(kind),
                                               .shape = square_shape,
                                               .forward = square_forward,
                                               .backward = square_backward,
                                               .record = square_record};

static tri_tensor *squares(tri_tensor *const *in, int n, void *arg)
{
    tri_tensor *y;

    (void)n;
    tri_function_apply(&square_class, arg, in, 1, &y, 1);
    return y;
}

static tri_tensor *recorded_squares(tri_tensor *const *in, int n, void *arg)
{
    kind right = RIGHT;
    tri_tensor *y;

    (void)n;
    tri_function_apply(&twice_class, arg != NULL ? arg : &right, in, 1, &y, 1);
    return y;
}

/* --- functions of recorded operations ------------------------------------- */

/* tanh(x * scale + bias), broadcast. */
static tri_tensor *three(tri_tensor *const *in, int n, void *arg)
{
    (void)arg;
    assert_int_equal(n, 3);
    return tri_tanh(tri_add(tri_mul(in[0], in[2]), in[1]));
}

static tri_tensor *sum(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_sum(tri_square(in[0]), NULL, 0, false);
}

static tri_tensor *itself(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return in[0];
}

/* The second input has no part in it. */
static tri_tensor *dropped(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_dropout(tri_exp(in[0]), 0.5, true);
}

static tri_tensor *layer(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    return tri_forward(arg, in[0]);
}

static tri_tensor *in_f32(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_cast(tri_sigmoid(tri_cast(in[0], TRI_DTYPE_F32)), TRI_DTYPE_F64);
}

/* --- what passes ---------------------------------------------------------- */

static void right_gradients_pass(void **state)
{
    kind right = RIGHT;
    tri_tensor *in[3] = {input("x", TRI_SHAPE(2, 3)), input("bias", TRI_SHAPE(3)),
                         input("scale", NULL, 0)};
    tri_module *linear;

    (void)state;
    CHECK_OK(tri_gradcheck(three, NULL, in, 3, NULL));
    CHECK_OK(tri_gradcheck(three, NULL, in, 3, &(tri_gradcheck_options){.second_order = true}));
    CHECK_OK(tri_gradcheck(squares, &right, in, 1, NULL));
    CHECK_OK(tri_gradcheck(squares, &right, &in[2], 1, NULL)); /* one element, [] */
    CHECK_OK(tri_gradcheck(sum, NULL, in, 1, NULL));
    CHECK_OK(tri_gradcheck(itself, NULL, in, 1, NULL));
    CHECK_OK(tri_gradcheck(itself, NULL, in, 1, &(tri_gradcheck_options){.second_order = true}));
    CHECK_OK(tri_gradcheck(dropped, NULL, in, 2, NULL));
    CHECK_OK(tri_gradcheck(in_f32, NULL, in, 1,
                           &(tri_gradcheck_options){.eps = TRI_SET(1e-2), .atol = TRI_SET(1e-3)}));
    tri_set_default_dtype(TRI_DTYPE_F64);
    linear = tri_nn_linear(3, 2, NULL);
    CHECK_OK(tri_gradcheck(layer, linear,
                           (tri_tensor *[]){in[0], tri_module_find(linear, "weight")}, 2, NULL));
    tri_module_destroy(linear);
    for (int i = 0; i < 3; i++)
        tri_tensor_unref(in[i]);
}

static void nothing_at_all_passes(void **state)
{
    kind right = RIGHT;
    tri_tensor *empty = input("x", TRI_SHAPE(0, 3)), *full = vector();

    (void)state;
    CHECK_OK(tri_gradcheck(squares, &right, &empty, 1, NULL)); /* [0, 3] to [0, 3] */
    CHECK_OK(tri_gradcheck(sum, NULL, &empty, 1, &(tri_gradcheck_options){.second_order = true}));
    tri_tensor_unref(empty);
    tri_tensor_unref(full);
}

/* --- what does not -------------------------------------------------------- */

static void a_wrong_gradient_is_named(void **state)
{
    kind wrong = DOUBLED;
    tri_tensor *x = input("x", TRI_SHAPE(1, 3));

    (void)state;
    CHECK_FAILS(tri_gradcheck(squares, &wrong, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "check_gradient_test.c:");
    CHECK_FAILS(tri_gradcheck(squares, &wrong, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "inputs[0] \"x\" at [0, 1], result at [0, 1]: the gradient is 4.43718971, by "
                "differences it is 2.21859485 (1 of 9 derivatives differ");
    CHECK_OK(tri_gradcheck(squares, &wrong, &x, 1,
                           &(tri_gradcheck_options){.rtol = TRI_SET(2)})); /* as far as allowed */
    tri_tensor_unref(x);
}

static void what_differs_from_call_to_call_is_named(void **state)
{
    kind how = UNSTEADY;
    tri_tensor *x = vector();

    (void)state;
    CHECK_FAILS(tri_gradcheck(squares, &how, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "when it is computed again: backward depends on more than its operands");
    CHECK_OK(tri_gradcheck(squares, &how, &x, 1, &(tri_gradcheck_options){.nondet_tol = 1e-6}));
    how = FORWARD_UNSTEADY;
    CHECK_FAILS(tri_gradcheck(squares, &how, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "when it is computed again: the function depends on more than its inputs");
    tri_tensor_unref(x);
}

/* y of one element, so that grad_out is 1 in each row of the derivatives. */
static void a_backward_without_grad_out_is_named(void **state)
{
    kind how = OF_ONE;
    tri_tensor *x = input("x", TRI_SHAPE(1));

    (void)state;
    CHECK_FAILS(tri_gradcheck(squares, &how, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "backward multiplies by grad_out");
    tri_tensor_unref(x);
}

static void second_gradients_are_checked(void **state)
{
    const tri_gradcheck_options second = {.second_order = true};
    kind how = RIGHT;
    tri_tensor *x = vector();

    (void)state;
    CHECK_OK(tri_gradcheck(recorded_squares, &how, &x, 1, &second));
    CHECK_FAILS(tri_gradcheck(squares, &how, &x, 1, &second), TRI_ERR_UNSUPPORTED,
                "squares has no record");
    how = WRONG_RECORD; /* consistent with itself, but not with backward */
    CHECK_OK(tri_gradcheck(recorded_squares, &how, &x, 1, NULL));
    CHECK_FAILS(tri_gradcheck(recorded_squares, &how, &x, 1, &second), TRI_ERR_INVALID_ARG,
                "result at [0]: the gradient is 1.88294197, and with create_graph 2.82441295");
    tri_tensor_unref(x);
}

static tri_tensor *log_of(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_log(in[0]);
}

static void values_that_are_not_numbers_differ(void **state)
{
    const double zero = 0, infinite = (double)INFINITY;
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &zero);
    tri_tensor *far = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &infinite);

    (void)state;
    tri_requires_grad(x, true);
    tri_requires_grad(far, true);
    CHECK_FAILS(tri_gradcheck(log_of, NULL, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "by differences it is ");
    CHECK_FAILS(tri_gradcheck(log_of, NULL, &far, 1, NULL), TRI_ERR_INVALID_ARG,
                "inputs[0] at [0] is inf, to which an eps of 1e-06 adds nothing");
    tri_tensor_unref(x);
    tri_tensor_unref(far);
}

/* --- misuse --------------------------------------------------------------- */

static tri_tensor *null(tri_tensor *const *in, int n, void *arg)
{
    (void)in;
    (void)n;
    (void)arg;
    return NULL;
}

static tri_tensor *to_f32(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_cast(in[0], TRI_DTYPE_F32);
}

static tri_tensor *refused(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_reshape(in[0], TRI_SHAPE(7));
}

static tri_tensor *growing(tri_tensor *const *in, int n, void *arg)
{
    int *rows = arg;

    (void)n;
    ++*rows;
    return tri_expand(in[0], TRI_SHAPE(*rows, 3));
}

static tri_tensor *ending(tri_tensor *const *in, int n, void *arg)
{
    tri_tensor *y = tri_exp(in[0]);

    (void)n;
    (void)arg;
    tri_step_end();
    return y;
}

static void functions_that_do_not_fit_are_refused(void **state)
{
    tri_tensor *x = vector();
    int rows = 1;

    (void)state;
    CHECK_FAILS(tri_gradcheck(NULL, NULL, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "the function is NULL");
    CHECK_FAILS(tri_gradcheck(null, NULL, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "the function returned NULL");
    CHECK_FAILS(tri_gradcheck(to_f32, NULL, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "the function's result is f32, and differences need f64");
    CHECK_FAILS(tri_gradcheck(refused, NULL, &x, 1, NULL), TRI_ERR_INVALID_ARG, "tri_reshape");
    CHECK_FAILS(tri_gradcheck(growing, &rows, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                "result has 3 in dimension 0, and had 2 before");
    CHECK_FAILS(tri_gradcheck(ending, NULL, &x, 1, NULL), TRI_ERR_STATE, "step");
    tri_tensor_unref(x);
}

static void inputs_that_do_not_fit_are_refused(void **state)
{
    tri_tensor *x = vector(), *bad = tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F32);
    tri_tensor *frozen = tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F64);
    tri_tensor *failed = tri_tensor_create(TRI_SHAPE(-1), TRI_DTYPE_F64);

    (void)state;
    tri_requires_grad(bad, true);
    CHECK_FAILS(tri_gradcheck(sum, NULL, &bad, 1, NULL), TRI_ERR_INVALID_ARG,
                "inputs[0] is f32, and differences need f64");
    CHECK_FAILS(tri_gradcheck(sum, NULL, (tri_tensor *[]){x, frozen}, 2, NULL), TRI_ERR_INVALID_ARG,
                "inputs[1] requires no gradient (tri_requires_grad)");
    CHECK_FAILS(tri_gradcheck(sum, NULL, (tri_tensor *[]){x, x}, 2, NULL), TRI_ERR_INVALID_ARG,
                "inputs[1] is inputs[0] once more");
    CHECK_FAILS(tri_gradcheck(sum, NULL, (tri_tensor *[]){NULL}, 1, NULL), TRI_ERR_INVALID_ARG,
                "inputs[0] is NULL");
    CHECK_FAILS(tri_gradcheck(sum, NULL, &failed, 1, NULL), TRI_ERR_INVALID_ARG, "size -1");
    CHECK_FAILS(tri_gradcheck(sum, NULL, NULL, 1, NULL), TRI_ERR_INVALID_ARG, "1 inputs at NULL");
    CHECK_FAILS(tri_gradcheck(sum, NULL, &x, 0, NULL), TRI_ERR_INVALID_ARG, "0 inputs");
    CHECK_FAILS(tri_gradcheck(sum, NULL, &x, 1, &(tri_gradcheck_options){.eps = TRI_SET(-1)}),
                TRI_ERR_INVALID_ARG, "eps is -1");
    CHECK_FAILS(
        tri_gradcheck(sum, NULL, &x, 1, &(tri_gradcheck_options){.atol = TRI_SET((double)NAN)}),
        TRI_ERR_INVALID_ARG, "atol is nan");
    {
        tri_tensor *value = tri_exp(x);

        CHECK_FAILS(tri_gradcheck(sum, NULL, &value, 1, NULL), TRI_ERR_INVALID_ARG,
                    "inputs[0] is a value of a step");
    }
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(bad);
    tri_tensor_unref(frozen);
    tri_tensor_unref(failed);
}

static tri_status asking_forward(const tri_function_call *call)
{
    tri_tensor *x = *(tri_tensor *const *)call->data;

    CHECK_FAILS(tri_gradcheck(sum, NULL, &x, 1, NULL), TRI_ERR_STATE, "inside of the function");
    memset(call->out[0].data, 0, (size_t)count(&call->out[0]) * sizeof(double));
    return TRI_OK;
}

static const tri_function_class asking = {.name = "asking",
                                          .size = sizeof(tri_tensor *),
                                          .shape = square_shape,
                                          .forward = asking_forward};

static void functions_of_tensors_cannot_call_it(void **state)
{
    tri_tensor *x = vector(), *y;

    (void)state;
    tri_function_apply(&asking, &x, &x, 1, &y, 1);
    tri_keep(y);
    CHECK_OK(tri_run());
    tri_step_end();
    tri_tensor_unref(x);
}

/* --- what it leaves behind ------------------------------------------------ */

static void an_input_of_the_open_step_is_refused(void **state)
{
    tri_tensor *x = vector(), *y = tri_sum(tri_exp(x), NULL, 0, false);
    double before = tri_item(y);

    (void)state;
    CHECK_FAILS(tri_gradcheck(sum, NULL, &x, 1, NULL), TRI_ERR_STATE,
                "inputs[0] is in use by the open step");
    CHECK_NEAR(tri_item(tri_sum(tri_exp(x), NULL, 0, false)), before, 0); /* which goes on */
    tri_step_end();
    CHECK_OK(tri_gradcheck(sum, NULL, &x, 1, NULL));
    tri_tensor_unref(x);
}

static void nothing_of_the_caller_changes(void **state)
{
    double before[3], after[3], slope[3], slope_after[3];
    tri_tensor *x = vector(), *w = input("w", TRI_SHAPE(5)), *mask, *again;
    tri_rng random, now;
    const void *memory;
    kind wrong = DOUBLED;

    (void)state;
    tri_backward(tri_sum(tri_square(x), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), slope, sizeof(slope)));
    CHECK_OK(tri_tensor_copy_out(x, before, sizeof(before)));
    tri_step_end();
    memory = tri_data(x);
    tri_manual_seed(3);
    random = tri_rng_state();
    tri_no_grad_begin();
    tri_autocast_begin(TRI_DTYPE_BF16);
    mask = tri_dropout(w, 0.5, true); /* pends */
    CHECK_OK(tri_gradcheck(dropped, NULL, &x, 1, NULL));
    CHECK_FAILS(tri_gradcheck(squares, &wrong, &x, 1, NULL), TRI_ERR_INVALID_ARG, "differ");
    tri_autocast_end();
    tri_no_grad_end();
    now = tri_rng_state();
    assert_memory_equal(&random, &now, sizeof(random));
    tri_manual_seed(3);
    again = tri_dropout(w, 0.5, true);
    CHECK_NEAR(tri_item(tri_sum(tri_square(tri_sub(mask, again)), NULL, 0, false)), 0, 0);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_out(x, after, sizeof(after)));
    assert_memory_equal(before, after, sizeof(before));
    assert_ptr_equal(tri_data(x), memory);
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), slope_after, sizeof(slope_after)));
    assert_memory_equal(slope, slope_after, sizeof(slope));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static tri_tensor *failing_later(tri_tensor *const *in, int n, void *arg)
{
    int *left = arg;

    return --*left < 0 ? refused(in, n, NULL) : tri_exp(in[0]);
}

static void failures_put_elements_back(void **state)
{
    double before[3], after[3];
    tri_tensor *x = vector();

    (void)state;
    CHECK_OK(tri_tensor_copy_out(x, before, sizeof(before)));
    for (int calls_left = 0; calls_left < 16; calls_left++) {
        int left = calls_left;

        CHECK_FAILS(tri_gradcheck(failing_later, &left, &x, 1, NULL), TRI_ERR_INVALID_ARG,
                    "tri_reshape");
        CHECK_OK(tri_tensor_copy_out(x, after, sizeof(after)));
        assert_memory_equal(before, after, sizeof(before));
    }
    tri_tensor_unref(x);
}

static void without_memory_elements_are_put_back(void **state)
{
    double before[2], after[2];
    tri_tensor *x = input("x", TRI_SHAPE(2));
    tri_status status = TRI_ERR_NO_MEMORY;

    (void)state;
    CHECK_OK(tri_tensor_copy_out(x, before, sizeof(before)));
    for (long n = 1; status != TRI_OK; n++) {
        trii_alloc_fail_at(n);
        status = tri_gradcheck(recorded_squares, NULL, &x, 1,
                               &(tri_gradcheck_options){.second_order = true});
        trii_alloc_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
        CHECK_OK(tri_tensor_copy_out(x, after, sizeof(after)));
        assert_memory_equal(before, after, sizeof(before));
    }
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(right_gradients_pass),
    cmocka_unit_test(nothing_at_all_passes),
    cmocka_unit_test(a_wrong_gradient_is_named),
    cmocka_unit_test(what_differs_from_call_to_call_is_named),
    cmocka_unit_test(a_backward_without_grad_out_is_named),
    cmocka_unit_test(second_gradients_are_checked),
    cmocka_unit_test(values_that_are_not_numbers_differ),
    cmocka_unit_test(functions_that_do_not_fit_are_refused),
    cmocka_unit_test(inputs_that_do_not_fit_are_refused),
    cmocka_unit_test(functions_of_tensors_cannot_call_it),
    cmocka_unit_test(an_input_of_the_open_step_is_refused),
    cmocka_unit_test(nothing_of_the_caller_changes),
    cmocka_unit_test(failures_put_elements_back),
    cmocka_unit_test(without_memory_elements_are_put_back),
};

TEST_MAIN(tests)
