/* function_test.c - operations of users: in plans and the eager engine, with several inputs and
 * results of several types, in replicas and threads, and when they fail. */
#include <string.h>

#include "testing/ddp_ranks.h"

static int64_t numel(const tri_function_array *array)
{
    int64_t n = 1;

    for (int d = 0; d < array->ndim; d++)
        n *= array->shape[d];
    return n;
}

/* --- scaled pick: y = scale x[index], with x floating-point, index i64 ---- */

/* out: y [index's shape], and how often each row was taken, i64 [rows]. */
typedef struct pick_data {
    double scale;
    tri_status fail; /* in forward */
    bool use_tensors;
} pick_data;

static tri_status pick_shape(const tri_function_call *call, tri_function_array *out)
{
    if (call->n_in != 2 || call->in[1].dtype != TRI_DTYPE_I64 || call->in[0].ndim != 1)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "pick takes x [n] and i64 indices");
    out[0] = call->in[1];
    out[0].dtype = call->in[0].dtype;
    out[1] = call->in[0];
    out[1].dtype = TRI_DTYPE_I64;
    return TRI_OK;
}

static double element(const tri_function_array *array, int64_t i)
{
    return array->dtype == TRI_DTYPE_F64 ? ((const double *)array->data)[i]
                                         : (double)((const float *)array->data)[i];
}

static void set_element(const tri_function_array *array, int64_t i, double value)
{
    if (array->dtype == TRI_DTYPE_F64)
        ((double *)array->data)[i] = value;
    else
        ((float *)array->data)[i] = (float)value;
}

static tri_tensor *shared; /* what a forward must not touch */

static tri_status pick_forward(const tri_function_call *call)
{
    const pick_data *data = call->data;
    const int64_t *index = call->in[1].data;
    int64_t *taken = call->out[1].data;

    if (data->use_tensors) {
        tri_tensor *y = tri_mul_scalar(shared, 2);

        if (tri_tensor_status(y) == TRI_OK || tri_run() == TRI_OK || tri_item(shared) == 1)
            return tri_status_fail(TRI_ERR_INTERNAL, "tensors work in here");
        return tri_run();
    }
    if (data->fail != TRI_OK)
        return tri_status_fail(data->fail, "picking went wrong at %d", 42);
    memset(taken, 0, (size_t)numel(&call->out[1]) * sizeof(*taken));
    for (int64_t i = 0; i < numel(&call->out[0]); i++) {
        if (index[i] < 0 || index[i] >= numel(&call->in[0]))
            return tri_status_fail(TRI_ERR_INVALID_ARG, "index %lld", (long long)index[i]);
        set_element(&call->out[0], i, data->scale * element(&call->in[0], index[i]));
        taken[index[i]]++;
    }
    return TRI_OK;
}

static tri_status pick_backward(const tri_function_call *call)
{
    const pick_data *data = call->data;
    const int64_t *index = call->in[1].data;

    if (call->grad_in[1].data != NULL || call->grad_out[1].data != NULL)
        return tri_status_fail(TRI_ERR_INTERNAL, "integers have no gradient");
    for (int64_t i = 0; i < numel(&call->grad_in[0]); i++)
        set_element(&call->grad_in[0], i, 0);
    for (int64_t i = 0; i < numel(&call->in[1]); i++)
        set_element(&call->grad_in[0], index[i],
                    element(&call->grad_in[0], index[i]) +
                        data->scale * element(&call->grad_out[0], i));
    return TRI_OK;
}

static const tri_function_class pick = {.name = "pick",
                                        .size = sizeof(pick_data),
                                        .shape = pick_shape,
                                        .forward = pick_forward,
                                        .backward = pick_backward,
                                        .backward_without_out = true};

static tri_tensor *indices(void)
{
    return tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_I64, (const int64_t[]){2, 0, 2, 1});
}

static tri_tensor *numbers(tri_dtype dtype)
{
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, (const float[]){1.5f, -2, 4});
    tri_tensor *same;

    if (dtype == TRI_DTYPE_F32)
        return x;
    same = tri_tensor_clone(tri_cast(x, dtype));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return same;
}

static void read(tri_tensor *tensor, float *values, int n)
{
    tri_tensor *wide = tri_keep(tri_cast(tensor, TRI_DTYPE_F32));

    CHECK_OK(tri_tensor_copy_out(wide, values, (size_t)n * sizeof(*values)));
}

static void results_and_gradients_of_every_type(void **state)
{
    static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16};

    (void)state;
    for (int k = 0; k < 3; k++) {
        tri_tensor *x = numbers(dtypes[k]), *index = indices(), *out[2], *loss;
        float y[4], g[3];
        int64_t taken[3];

        tri_requires_grad(x, true);
        for (int step = 1; step <= 3; step++) { /* its number is no part of the plan */
            tri_function_apply(&pick, &(pick_data){.scale = step}, (tri_tensor *[]){x, index}, 2,
                               out, 2);
            assert_int_equal(tri_tensor_dtype(out[0]), dtypes[k]);
            (void)tri_keep(out[1]);
            loss = tri_sum(tri_square(tri_cast(out[0], TRI_DTYPE_F32)), NULL, 0, false);
            tri_backward(loss);
            read(out[0], y, 4);
            CHECK_OK(tri_tensor_copy_out(out[1], taken, sizeof(taken)));
            assert_true(y[0] == (float)step * 4 && y[1] == (float)step * 1.5f);
            assert_true(taken[0] == 1 && taken[1] == 1 && taken[2] == 2);
            read(tri_grad(x), g, 3);
            CHECK_NEAR(g[0], 2 * 1.5 * step * step, 0);
            CHECK_NEAR(g[2], 2 * 2 * 4 * step * step, 0);
            trii_grad_clear(x);
            CHECK_OK(tri_step_end_status());
        }
        tri_tensor_unref(x);
        tri_tensor_unref(index);
    }
}

static void failures_name_the_function_and_the_line(void **state)
{
    tri_tensor *x = numbers(TRI_DTYPE_F32), *index = indices(), *out[2];
    tri_tensor *const in[2] = {x, index};

    (void)state;
    shared = x;
    tri_function_apply(&pick, &(pick_data){.fail = TRI_ERR_IO}, in, 2, out, 2);
    CHECK_FAILS(tri_tensor_copy_out(out[0], (float[4]){0}, 16), TRI_ERR_IO,
                "forward of pick: picking went wrong at 42");
    assert_non_null(strstr(tri_last_error(), "function_test.c:"));
    tri_step_end();
    tri_function_apply(&pick, &(pick_data){.fail = TRI_INPROGRESS}, in, 2, out, 2);
    CHECK_FAILS(tri_tensor_copy_out(out[0], (float[4]){0}, 16), TRI_ERR_INVALID_ARG, "went wrong");
    tri_step_end();
    tri_function_apply(&pick, &(pick_data){0}, in, 1, out, 2);
    CHECK_FAILS(tri_tensor_status(out[1]), TRI_ERR_INVALID_ARG,
                "shape of pick: pick takes x [n] and i64 indices");
    tri_step_end();
    tri_function_apply(&pick, &(pick_data){.use_tensors = true}, in, 2, out, 2);
    CHECK_FAILS(tri_tensor_copy_out(out[0], (float[4]){0}, 16), TRI_ERR_STATE,
                "inside of the function pick");
    tri_step_end();
    tri_function_apply(&pick, &(pick_data){.scale = 1}, in, 2, out, 2); /* and then all is well */
    CHECK_OK(tri_tensor_copy_out(tri_keep(out[0]), (float[4]){0}, 16));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(index);
}

static void bad_calls_are_refused(void **state)
{
    static const tri_function_class empty = {.name = "empty"};
    tri_tensor *x = numbers(TRI_DTYPE_F32), *out[2] = {NULL, NULL};
    tri_tensor *const in[2] = {x, NULL};

    (void)state;
    tri_function_apply(NULL, NULL, in, 1, out, 1);
    CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "a class needs a name");
    tri_function_apply(&empty, NULL, in, 1, out, 2);
    CHECK_FAILS(tri_tensor_status(out[1]), TRI_ERR_INVALID_ARG, "a class needs a name");
    tri_function_apply(&pick, NULL, in, 1, out, 1);
    CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "data is NULL");
    tri_function_apply(&pick, &(pick_data){0}, in, 0, out, 1);
    CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "0 inputs");
    tri_function_apply(&pick, &(pick_data){0}, in, 1, out, 0);
    tri_function_apply(&pick, &(pick_data){0}, in, 2, out, 2);
    CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "in[1] is NULL");
    tri_function_apply(&pick, &(pick_data){0}, in, 1, NULL, 1);
    tri_step_end();
    tri_tensor_unref(x);
}

/* What `shape` sets is whatever the user computed. */
static tri_function_array given;

static tri_status given_shape(const tri_function_call *call, tri_function_array *out)
{
    (void)call;
    out[0] = given;
    return TRI_OK;
}

static tri_status silent_forward(const tri_function_call *call)
{
    (void)call;
    return TRI_ERR_IO;
}

static void shapes_that_no_tensor_has_are_refused(void **state)
{
    static const tri_function_class any = {
        .name = "any", .shape = given_shape, .forward = silent_forward};
    tri_tensor *x = numbers(TRI_DTYPE_F32), *out;

    (void)state;
    given = (tri_function_array){.dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {4, -3}};
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG,
                "shape of any set size -3 in dimension 1 of out[0]");
    given.shape[0] = -4; /* whose product would pass */
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG, "set size -4 in dimension 0");
    given = (tri_function_array){.dtype = (tri_dtype)77};
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG, "set dtype 77 for out[0]");
    given.dtype = TRI_DTYPE_NONE;
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG, "set no dtype for out[0]");
    given = (tri_function_array){.dtype = TRI_DTYPE_F32, .ndim = 9};
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG, "set 9 dimensions");
    given = (tri_function_array){.dtype = TRI_DTYPE_F32};
    tri_function_apply(&any, NULL, &x, 1, &out, 1);
    CHECK_FAILS(tri_tensor_copy_out(out, (float[1]){0}, 4), TRI_ERR_IO,
                "forward of any: it returned IO, and no reason");
    tri_step_end();
    tri_tensor_unref(x);
}

/* --- what TRI_CHECK=nan finds --------------------------------------------- */

/* Which mistake is made: 1: forward leaves the last element, 2: it overwrites x, 3: backward leaves
 * all, 4: it overwrites the gradient that it is given. */
static int mistake;

static tri_status sloppy_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

static tri_status sloppy_forward(const tri_function_call *call)
{
    for (int64_t i = 0; i < numel(&call->in[0]) - (mistake == 1); i++)
        set_element(&call->out[0], i, 2 * element(&call->in[0], i));
    if (mistake == 2)
        set_element(&call->in[0], 0, 7);
    return TRI_OK;
}

static tri_status sloppy_backward(const tri_function_call *call)
{
    for (int64_t i = 0; i < numel(&call->in[0]) && mistake != 3; i++)
        set_element(&call->grad_in[0], i, 2 * element(&call->grad_out[0], i));
    if (mistake == 4)
        set_element(&call->grad_out[0], 0, 7);
    return TRI_OK;
}

static const tri_function_class sloppy = {.name = "sloppy",
                                          .shape = sloppy_shape,
                                          .forward = sloppy_forward,
                                          .backward = sloppy_backward};

static void what_a_function_forgets_is_found_when_asked_for(void **state)
{
    static const char *const lines[] = {"", "forward of sloppy: element 2 of the 3 of out[0]",
                                        "forward of sloppy: it wrote into what it may only read",
                                        "backward of sloppy: element 0 of the 3 of grad_in[0]",
                                        "backward of sloppy: it wrote into what it may only read"};
    static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16};

    (void)state;
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    for (int k = 0; k < 3 * 5; k++) {
        tri_tensor *x = numbers(dtypes[k / 5]), *y;

        mistake = k % 5;
        tri_requires_grad(x, true);
        tri_function_apply(&sloppy, NULL, &x, 1, &y, 1);
        tri_backward(tri_sum(tri_square(tri_cast(y, TRI_DTYPE_F32)), NULL, 0, false));
        if (mistake == 0)
            CHECK_OK(tri_step_end_status());
        else
            CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, lines[mistake]);
        tri_tensor_unref(x);
    }
    mistake = 0;
    assert_int_equal(unsetenv("TRI_CHECK"), 0);
}

/* --- product: y = a b, with a saved value, and gradients in both forms ---- */

static tri_status product_shape(const tri_function_call *call, tri_function_array *out)
{
    for (int o = 0; o < call->n_out; o++)
        out[o] = call->in[0];
    return TRI_OK;
}

/* y = a b, z = a + b; saved: 2 a */
static tri_status product_forward(const tri_function_call *call)
{
    for (int64_t i = 0; i < numel(&call->in[0]); i++) {
        double a = element(&call->in[0], i), b = element(&call->in[1], i);

        set_element(&call->out[0], i, a * b);
        set_element(&call->out[1], i, a + b);
        set_element(&call->out[2], i, 2 * a);
    }
    return TRI_OK;
}

/* Reads what is saved in place of a. */
static tri_status product_backward(const tri_function_call *call)
{
    for (int64_t i = 0; i < numel(&call->in[0]); i++) {
        double y = element(&call->grad_out[0], i), z = element(&call->grad_out[1], i);

        if (call->grad_in[0].data != NULL)
            set_element(&call->grad_in[0], i, y * element(&call->in[1], i) + z);
        if (call->grad_in[1].data != NULL)
            set_element(&call->grad_in[1], i, y * element(&call->out[2], i) / 2 + z);
    }
    return TRI_OK;
}

static tri_tensor *wrong_gradient;

static tri_status product_record(const tri_function_graph *g)
{
    for (int i = 0; i < 2; i++) {
        if (g->needs[i])
            g->grad_in[i] = tri_add(tri_mul(g->grad_out[0], g->in[1 - i]), g->grad_out[1]);
    }
    if (wrong_gradient != NULL)
        g->grad_in[0] = wrong_gradient;
    return TRI_OK;
}

static const tri_function_class product = {.name = "product",
                                           .saved = 1,
                                           .shape = product_shape,
                                           .forward = product_forward,
                                           .backward = product_backward,
                                           .record = product_record};
static const tri_function_class recorded = {.name = "recorded",
                                            .saved = 1,
                                            .shape = product_shape,
                                            .forward = product_forward,
                                            .record = product_record};
static const tri_function_class computed = {.name = "computed",
                                            .saved = 1,
                                            .shape = product_shape,
                                            .forward = product_forward,
                                            .backward = product_backward};
static const tri_function_class forward_only = {
    .name = "forward_only", .saved = 1, .shape = product_shape, .forward = product_forward};

static tri_tensor *parameter(double first)
{
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, (double[]){first, -first / 2});

    tri_requires_grad(x, true);
    return x;
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

static void both_forms_of_backward_agree(void **state)
{
    const tri_function_class *const classes[] = {&product, &recorded, &computed};

    (void)state;
    for (int k = 0; k < 3; k++) {
        for (int used = 0; used < 2; used++) {
            tri_tensor *a = parameter(3), *b = parameter(5), *out[2];
            double ga[2], gb[2];

            tri_function_apply(classes[k], NULL, (tri_tensor *[]){a, b}, 2, out, 2);
            tri_backward(used == 0 ? sum(tri_square(out[0])) : sum(tri_add(out[0], out[1])));
            CHECK_OK(tri_tensor_copy_out(tri_grad(a), ga, sizeof(ga)));
            CHECK_OK(tri_tensor_copy_out(tri_grad(b), gb, sizeof(gb)));
            CHECK_NEAR(ga[0], used == 0 ? 2 * 15 * 5 : 5 + 1, 0);
            CHECK_NEAR(gb[0], used == 0 ? 2 * 15 * 3 : 3 + 1, 0);
            CHECK_NEAR(gb[1], used == 0 ? 2 * 3.75 * -1.5 : -1.5 + 1, 0);
            CHECK_OK(tri_step_end_status());
            tri_tensor_unref(a);
            tri_tensor_unref(b);
        }
    }
}

static void recorded_gradients_can_be_differentiated_again(void **state)
{
    tri_tensor *a = parameter(3), *b = parameter(5), *out[2], *loss, *g;
    double gb[2];

    (void)state;
    tri_function_apply(&product, NULL, (tri_tensor *[]){a, b}, 2, out, 2);
    loss = sum(tri_square(out[0]));
    CHECK_OK(tri_gradients(&loss, 1, &a, 1, &(tri_gradients_options){.create_graph = true}, &g));
    loss = sum(g); /* 2 a b^2 */
    CHECK_OK(tri_gradients(&loss, 1, &b, 1, NULL, &g));
    CHECK_OK(tri_tensor_copy_out(tri_keep(g), gb, sizeof(gb)));
    CHECK_NEAR(gb[0], 4 * 3 * 5, 0);
    CHECK_OK(tri_step_end_status());
    tri_function_apply(&computed, NULL, (tri_tensor *[]){a, b}, 2, out, 2);
    loss = sum(out[0]);
    CHECK_OK(tri_gradients(&loss, 1, &a, 1, &(tri_gradients_options){.create_graph = true}, &g));
    loss = sum(g);
    CHECK_FAILS(tri_gradients(&loss, 1, &b, 1, NULL, &g), TRI_ERR_UNSUPPORTED, "apply_backward");
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

static void gradients_that_cannot_be_are_named(void **state)
{
    tri_tensor *a = parameter(3), *b = parameter(5), *out[2];

    (void)state;
    tri_function_apply(&forward_only, NULL, (tri_tensor *[]){a, b}, 2, out, 2);
    tri_backward(sum(out[0]));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_UNSUPPORTED,
                "forward_only has neither backward nor record");
    wrong_gradient = a;
    tri_requires_grad(a, true);
    tri_function_apply(&recorded, NULL, (tri_tensor *[]){a, b}, 2, out, 2);
    wrong_gradient = tri_ones(TRI_SHAPE(3), TRI_DTYPE_F64);
    tri_backward(sum(out[0]));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "record of recorded: grad_in[0] is f64 [3], but in[0] f64 [2]");
    wrong_gradient = NULL;
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

static tri_status greedy_record(const tri_function_graph *g)
{
    if (tri_run() == TRI_OK || tri_step_end_status() == TRI_OK)
        return tri_status_fail(TRI_ERR_INTERNAL, "a run inside of a walk");
    tri_backward(sum(tri_square(g->in[0])));
    return TRI_OK;
}

static void a_walk_is_not_left_by_user_code(void **state)
{
    static const tri_function_class greedy = {.name = "greedy",
                                              .saved = 1,
                                              .shape = product_shape,
                                              .forward = product_forward,
                                              .record = greedy_record};
    tri_tensor *a = parameter(3), *b = parameter(5), *out[2];

    (void)state;
    tri_function_apply(&greedy, NULL, (tri_tensor *[]){a, b}, 2, out, 2);
    tri_backward(sum(out[0]));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "gradients are being recorded already");
    assert_null(tri_grad(a));
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

/* Copies of a function have its data, and an empty tensor is none. */
static void in_regions_and_with_nothing(void **state)
{
    tri_tensor *x = numbers(TRI_DTYPE_F64), *index = indices(), *out[2], *none, *y[2];
    double g[3];

    (void)state;
    tri_requires_grad(x, true);
    TRI_RECOMPUTE
    {
        tri_function_apply(&pick, &(pick_data){.scale = 3}, (tri_tensor *[]){tri_exp(x), index}, 2,
                           out, 2);
        out[0] = tri_square(out[0]);
    }
    tri_backward(sum(out[0]));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), g, sizeof(g)));
    CHECK_NEAR(g[1], 2 * 9 * exp(-4), 1e-12);
    none = tri_tensor_create(TRI_SHAPE(0, 3), TRI_DTYPE_I64);
    tri_function_apply(&pick, &(pick_data){.scale = 3}, (tri_tensor *[]){x, none}, 2, y, 2);
    tri_backward(sum(y[0]));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(index);
    tri_tensor_unref(none);
}

/* --- replicas, each a thread ---------------------------------------------- */

static tri_status train_replica(rank *r)
{
    tri_module *net = mlp(6), *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    for (int step = 0; step < STEPS; step++) {
        tri_tensor *x = rows_of(x_data, IN, 4 * r->index, 4), *y, *out[2];
        tri_tensor *t = rows_of(y_data, OUT, 4 * r->index, 4);

        y = tri_forward(model, x);
        if (*(const bool *)r->arg)
            tri_function_apply(&product, NULL, (tri_tensor *[]){y, y}, 2, out, 2);
        else
            out[0] = tri_square(y);
        tri_backward(tri_mse_loss(out[0], t, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(t);
    }
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void replicas_average_through_functions(void **state)
{
    rank ranks[2][MAX_RANKS];

    (void)state;
    make_data();
    for (int with = 0; with < 2; with++) {
        bool function = with != 0;

        run_ranks(ranks[with], 3, train_replica, &function);
        check_ranks(ranks[with], 3);
    }
    for (int i = 0; i < ranks[0][0].n_weights; i++)
        CHECK_NEAR(ranks[0][0].weights[i], ranks[1][0].weights[i], 1e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_and_gradients_of_every_type),
    cmocka_unit_test(failures_name_the_function_and_the_line),
    cmocka_unit_test(bad_calls_are_refused),
    cmocka_unit_test(shapes_that_no_tensor_has_are_refused),
    cmocka_unit_test(what_a_function_forgets_is_found_when_asked_for),
    cmocka_unit_test(both_forms_of_backward_agree),
    cmocka_unit_test(recorded_gradients_can_be_differentiated_again),
    cmocka_unit_test(gradients_that_cannot_be_are_named),
    cmocka_unit_test(a_walk_is_not_left_by_user_code),
    cmocka_unit_test(in_regions_and_with_nothing),
    cmocka_unit_test(replicas_average_through_functions),
};

TEST_MAIN(tests)
