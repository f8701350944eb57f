/* gradient_edges_test.c - gradients where a graph is unusual: outputs that are inputs, inputs that
 * stand twice or come later, regions in regions and without gradients, functions of nothing, of too
 * many, and with backward passes that fail. */
#include <math.h>
#include <string.h>

#include <trireme/function.h>
#include <trireme/ops.h>

#include "testing/check.h"
#include "testing/op_cases.h"
#include "train/graph/step/step.h"

static tri_tensor *x, *y; /* [2] = {3, 5}, {2, 7} */

static tri_tensor *pair(double a, double b)
{
    return tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, (const double[]){a, b});
}

static int set_up(void **state)
{
    (void)state;
    x = pair(3, 5);
    y = pair(2, 7);
    tri_requires_grad(x, true);
    tri_requires_grad(y, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return 0;
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

static void check_pair(tri_tensor *tensor, double a, double b)
{
    double got[2];

    CHECK_OK(tri_tensor_copy_out(tensor, got, sizeof(got)));
    CHECK_NEAR(got[0], a, 1e-12);
    CHECK_NEAR(got[1], b, 1e-12);
}

/* --- inputs and outputs --------------------------------------------------- */

static void an_output_may_be_an_input(void **state)
{
    tri_tensor *square, *loss, *grads[3], *ones = pair(1, 1), *seeds[2] = {ones, NULL};

    (void)state;
    CHECK_OK(tri_gradients(&x, 1, &x, 1, &(tri_gradients_options){.seeds = seeds}, grads));
    check_pair(grads[0], 1, 1);
    tri_step_end();
    square = tri_square(x);
    loss = sum(tri_mul(square, y));
    /* the first output is itself the second input: 1 of its own, and y of the loss */
    CHECK_OK(tri_gradients((tri_tensor *[]){square, loss}, 2, (tri_tensor *[]){x, square, loss}, 3,
                           &(tri_gradients_options){.seeds = seeds}, grads));
    for (int i = 0; i < 3; i++)
        grads[i] = tri_keep(grads[i]);
    check_pair(grads[0], 2 * 3 * 3, 2 * 5 * 8);
    check_pair(grads[1], 3, 8);
    CHECK_NEAR(tri_item(grads[2]), 1, 0);
    tri_tensor_unref(ones);
}

static void an_input_may_stand_twice_and_behind_another(void **state)
{
    tri_tensor *e = tri_mul(x, y), *loss = sum(tri_square(e)), *grads[4];

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, (tri_tensor *[]){x, e, x, e}, 4, NULL, grads));
    for (int i = 0; i < 4; i++)
        grads[i] = tri_keep(grads[i]);
    for (int i = 0; i < 2; i++) {
        check_pair(grads[2 * i], 2 * 6 * 2, 2 * 35 * 7);
        check_pair(grads[2 * i + 1], 2 * 6, 2 * 35);
    }
}

/* What is made of the output, beside it, and of the same parameter. */
static void an_input_that_is_not_on_the_way_is_unused(void **state)
{
    tri_tensor *loss = sum(tri_square(x)), *later = tri_mul_scalar(loss, 2), *beside = tri_exp(x);
    tri_tensor *grads[3], *in[3] = {later, beside, x};

    (void)state;
    CHECK_OK(tri_gradients(&loss, 1, in, 3, &(tri_gradients_options){.allow_unused = true}, grads));
    assert_null(grads[0]);
    assert_null(grads[1]);
    check_pair(grads[2], 6, 10);
    CHECK_FAILS(tri_gradients(&loss, 1, in, 3, NULL, grads), TRI_ERR_INVALID_ARG,
                "the outputs do not depend on inputs[0]");
}

static void outputs_that_are_the_same_add_up_with_their_seeds(void **state)
{
    tri_tensor *square = tri_square(x), *seeds[3] = {y, NULL, y},
               *outputs[3] = {square, NULL, square};

    (void)state;
    outputs[1] = sum(square);
    tri_backward_of(outputs, 3, &(tri_backward_options){.seeds = seeds});
    CHECK_OK(tri_step_end_status());
    check_pair(tri_grad(x), 2 * 3 * 5, 2 * 5 * 15);
}

/* --- regions -------------------------------------------------------------- */

static void regions_without_gradients_are_nothing(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) { /* the second step repeats the first; the third runs first */
        tri_tensor *a = NULL, *b = NULL, *grad;

        TRI_NO_GRAD
        {
            TRI_RECOMPUTE
            {
                a = tri_exp(tri_mul(x, y));
            }
        }
        TRI_RECOMPUTE
        {
            tri_tensor *c = tri_sin(x);

            TRI_NO_GRAD
            {
                c = tri_cos(c); /* which no gradient goes through, and which is needed again */
            }
            b = tri_mul(tri_square(x), c);
        }
        b = sum(tri_add(b, tri_mul_scalar(a, 0)));
        if (k == 2)
            CHECK_NEAR(tri_item(b), 9 * cos(sin(3.0)) + 25 * cos(sin(5.0)), 1e-12);
        CHECK_OK(tri_gradients(&b, 1, &x, 1, NULL, &grad));
        check_pair(grad, 6 * cos(sin(3.0)), 10 * cos(sin(5.0)));
        CHECK_OK(tri_step_end_status());
    }
}

static tri_tensor *deep(tri_tensor *t, int depth)
{
    if (depth > 0) {
        TRI_RECOMPUTE
        {
            t = deep(tri_sin(t), depth - 1);
            t = tri_mul(t, tri_square(t));
        }
    }
    return t;
}

static void nested_regions_have_the_bits_of_none(void **state)
{
    double got[2][2];

    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_tensor *w = pair(3, 5), *t, *loss, *g;

        tri_requires_grad(w, true);
        if (k == 0) {
            t = deep(w, 3);
        } else {
            t = tri_sin(tri_sin(tri_sin(w)));
            for (int i = 0; i < 3; i++)
                t = tri_mul(t, tri_square(t));
        }
        loss = sum(t);
        CHECK_OK(
            tri_gradients(&loss, 1, &w, 1, &(tri_gradients_options){.create_graph = true}, &g));
        tri_backward(sum(tri_square(g)));
        CHECK_OK(tri_step_end_status());
        CHECK_OK(tri_tensor_copy_out(tri_grad(w), got[k], sizeof(got[k])));
        tri_tensor_unref(w);
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* x^2 cos(sin x), of which the cosine counts as a constant. */
static tri_tensor *half_constant(void)
{
    tri_tensor *c = tri_sin(x);

    TRI_NO_GRAD
    {
        c = tri_cos(c);
    }
    return tri_mul(tri_square(x), c);
}

/* The copies of a region are recorded with create_graph, which gives gradients to what has none. */
static void what_had_no_gradient_has_none_when_computed_again(void **state)
{
    double got[2][2];

    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_tensor *t, *g, *h;

        if (k == 1)
            tri_recompute_begin();
        t = half_constant();
        if (k == 1)
            tri_recompute_end();
        t = sum(t);
        CHECK_OK(tri_gradients(&t, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &g));
        g = sum(tri_square(g));
        CHECK_OK(tri_gradients(&g, 1, &x, 1, NULL, &h));
        CHECK_OK(tri_tensor_copy_out(h, got[k], sizeof(got[k])));
        CHECK_OK(tri_step_end_status());
    }
    CHECK_NEAR(got[0][0], 8 * 3 * cos(sin(3.0)) * cos(sin(3.0)), 1e-12);
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* --- types ---------------------------------------------------------------- */

/* Three of it, one above the other: the gradient of y is a sum over bf16, which is f32. */
static tri_tensor *thrice(tri_tensor *y_of)
{
    int64_t shape[TRI_MAX_DIMS] = {1};
    int ndim = tri_tensor_ndim(y_of) + 1;

    for (int d = 1; d < ndim; d++)
        shape[d] = tri_tensor_size(y_of, d - 1);
    y_of = tri_reshape(y_of, shape, ndim);
    shape[0] = 3;
    return tri_expand(y_of, shape, ndim);
}

/* First and second gradients are recorded, have the operands' type, and run. */
static void check_twice(const char *name, tri_tensor *loss, tri_tensor *const *wanted, int n)
{
    const tri_gradients_options once = {.create_graph = true}, again = {.allow_unused = true};
    tri_tensor *grads[OP_CASE_INPUTS], *total_of = NULL;

    for (int k = 0; k < 2; k++) {
        tri_status status = tri_gradients(&loss, 1, wanted, n, k == 0 ? &once : &again, grads);

        if (k == 1 && status != TRI_OK && strstr(tri_last_error(), "depends on no tensor") != NULL)
            return;
        if (status != TRI_OK)
            fail_msg("%s: %s", name, tri_last_error());
        for (int i = 0; i < n; i++) {
            tri_tensor *part = grads[i];

            if (part == NULL)
                continue;
            if (tri_tensor_dtype(part) != TRI_DTYPE_BF16)
                fail_msg("%s: gradient %d is %s", name, i, tri_dtype_name(tri_tensor_dtype(part)));
            part = sum(tri_square(tri_cast(tri_keep(part), TRI_DTYPE_F32)));
            total_of = total_of == NULL ? part : tri_add(total_of, part);
        }
        loss = total_of;
    }
}

static void check_types(const op_case *c, bool wide)
{
    tri_tensor *own[OP_CASE_INPUTS], *in[OP_CASE_INPUTS], *wanted[OP_CASE_INPUTS];
    tri_tensor *loss;
    int n = 0;

    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        in[k] = own[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F32);
        if (own[k] == NULL || !op_case_is_activation(c, k))
            continue;
        in[k] = tri_cast(own[k], TRI_DTYPE_BF16);
        if (op_case_wants_grad(&c->in[k]))
            wanted[n++] = in[k];
    }
    loss = c->build(in);
    if (n > 0 && tri_tensor_dtype(loss) != TRI_DTYPE_I64 &&
        tri_tensor_dtype(loss) != TRI_DTYPE_BOOL) {
        loss = tri_cast(wide ? thrice(loss) : loss, TRI_DTYPE_F32);
        loss = sum(tri_square(loss));
        check_twice(c->name, loss, wanted, n);
    }
    if (tri_step_end_status() != TRI_OK)
        fail_msg("%s: %s", c->name, tri_last_error());
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(own[k]);
}

static void gradients_have_the_types_of_their_values(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * OP_CASE_COUNT; i++)
        check_types(&op_cases[i / 2], i % 2 != 0);
}

static void a_parameter_in_bf16_has_a_gradient_in_bf16(void **state)
{
    const uint16_t ones[2] = {0x3f80, 0x3f80};
    tri_tensor *w = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_BF16, ones);

    (void)state;
    tri_requires_grad(w, true);
    for (int k = 0; k < 2; k++) {
        tri_backward(sum(tri_cast(tri_expand(w, TRI_SHAPE(3, 2)), TRI_DTYPE_F32)));
        CHECK_OK(tri_step_end_status());
        assert_int_equal(tri_tensor_dtype(tri_grad(w)), TRI_DTYPE_BF16);
        check_pair(tri_cast(tri_grad(w), TRI_DTYPE_F64), 3 * k + 3, 3 * k + 3);
    }
    tri_tensor_unref(w);
}

/* A sum over what was broadcast is f32; that of a slice is added to what others give. */
static void a_slice_of_a_value_in_bf16_may_be_broadcast(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_tensor *h = tri_cast(x, TRI_DTYPE_BF16), *g;
        tri_tensor *wide = tri_expand(tri_narrow(h, 0, k, 1), TRI_SHAPE(3));
        tri_tensor *loss = sum(tri_concat((tri_tensor *[]){tri_neg(h), wide}, 2, 0));

        loss = tri_cast(loss, TRI_DTYPE_F64);
        CHECK_OK(tri_gradients(&loss, 1, &x, 1, NULL, &g));
        check_pair(g, k == 0 ? 2 : -1, k == 1 ? 2 : -1);
        CHECK_OK(tri_step_end_status());
    }
}

/* --- targets -------------------------------------------------------------- */

/* Where a logarithm has its bound, the gradient of the target is that of the bounded loss; and what
 * is no probability has none. */
static void targets_have_gradients_at_the_bounds_of_their_losses(void **state)
{
    const double p[4] = {0, 1, 0.25, 1.5}, t[4] = {0.5, 0.5, 0.5, 0.5};
    const double want[4] = {100, -100, log(3), (double)NAN};
    tri_tensor *input = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F64, p);
    tri_tensor *target = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F64, t);
    double got[4];

    (void)state;
    tri_requires_grad(target, true);
    tri_backward(
        tri_bce_loss(input, target, &(tri_bce_loss_options){.reduction = TRI_REDUCTION_SUM}));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_out(tri_grad(target), got, sizeof(got)));
    for (int i = 0; i < 4; i++) {
        if (isnan(want[i]) ? !isnan(got[i]) : !(fabs(got[i] - want[i]) < 1e-12))
            fail_msg("p = %g: %g, not %g", p[i], got[i], want[i]);
    }
    tri_tensor_unref(input);
    tri_tensor_unref(target);
}

/* As PyTorch: the logarithm of what is negative is no number, and 0 log 0 is 0. */
static void a_divergence_from_what_is_negative_is_nan(void **state)
{
    tri_tensor *target = pair(-0.5, 0), *loss;
    double got[2];

    (void)state;
    loss = tri_kl_div(x, target, &(tri_pair_loss_options){.reduction = TRI_REDUCTION_NONE});
    CHECK_OK(tri_tensor_copy_out(loss, got, sizeof(got)));
    assert_true(isnan(got[0]));
    CHECK_NEAR(got[1], 0, 0);
    tri_tensor_unref(target);
}

/* --- what is not finite, or almost ---------------------------------------- */

static tri_tensor *numbers(tri_dtype dtype, const double *values, int n)
{
    float narrow[8];

    for (int i = 0; i < n; i++)
        narrow[i] = (float)values[i];
    return tri_tensor_from(TRI_SHAPE(n), dtype,
                           dtype == TRI_DTYPE_F64 ? (const void *)values : narrow);
}

static void check_numbers(const char *what, tri_tensor *got, const double *want, int n,
                          double tolerance)
{
    double is[8];

    CHECK_OK(tri_tensor_copy_out(tri_cast(got, TRI_DTYPE_F64), is, (size_t)n * sizeof(*is)));
    for (int i = 0; i < n; i++) {
        bool same = isnan(want[i])   ? isnan(is[i])
                    : isinf(want[i]) ? is[i] == want[i]
                                     : fabs(is[i] - want[i]) <= tolerance * fabs(want[i]);

        if (!same)
            fail_msg("%s, element %d: %.9g, not %.9g", what, i, is[i], want[i]);
    }
}

/* Of each factor the product of the others: the same with create_graph. */
static void a_product_hides_nothing_that_is_not_finite_behind_a_zero(void **state)
{
    static const struct {
        double x[4], want[4];
    } cases[] = {
        {{2, 0, NAN, 3}, {NAN, NAN, 0, NAN}},
        {{2, 0, INFINITY, 3}, {NAN, INFINITY, 0, NAN}},
        {{2, 5, INFINITY, 3}, {INFINITY, INFINITY, 30, INFINITY}},
        {{2, 5, NAN, 3}, {NAN, NAN, 30, NAN}},
        {{2, 0, 0, 3}, {0, 0, 0, 0}},
        {{1e200, 1e-200, 1e-200, 1e150}, {1e-250, 1e150, 1e150, 1e-200}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int create = 0; create < 2; create++) {
            tri_tensor *p = numbers(TRI_DTYPE_F64, cases[i].x, 4), *loss, *g;

            tri_requires_grad(p, true);
            loss = tri_prod(p, NULL, 0, false);
            CHECK_OK(tri_gradients(&loss, 1, &p, 1,
                                   &(tri_gradients_options){.create_graph = create != 0}, &g));
            check_numbers(create ? "with create_graph" : "one gradient", g, cases[i].want, 4,
                          1e-12);
            tri_step_end();
            tri_tensor_unref(p);
        }
    }
}

/* (1 - t) x + log(1 + e^-x): x - t x would be NaN at infinity, and cancels before. */
static void a_logit_of_any_size_has_the_loss_of_its_soft_target(void **state)
{
    const double logit[3] = {INFINITY, 100, 1e4}, target[3] = {0.25, 0.9999, 0.9999};
    const double wide[3] = {INFINITY, 100 * (1 - 0.9999), 1e4 * (1 - 0.9999)};
    const double left = 1 - (double)(float)0.9999;
    const double single[3] = {INFINITY, 100 * left, 1e4 * left}, slope[3] = {0.75, left, left};

    (void)state;
    for (int dtype = TRI_DTYPE_F32; dtype <= TRI_DTYPE_F64; dtype++) {
        tri_tensor *p, *t, *loss;

        if (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_F64)
            continue;
        p = numbers((tri_dtype)dtype, logit, 3);
        t = numbers((tri_dtype)dtype, target, 3);
        tri_requires_grad(p, true);
        loss = tri_bce_with_logits_loss(p, t,
                                        &(tri_bce_loss_options){.reduction = TRI_REDUCTION_NONE});
        tri_backward(tri_sum(loss, NULL, 0, false));
        check_numbers("loss", loss, dtype == TRI_DTYPE_F64 ? wide : single, 3,
                      dtype == TRI_DTYPE_F64 ? 1e-12 : 1e-7);
        if (dtype == TRI_DTYPE_F32)
            check_numbers("gradient", tri_grad(p), slope, 3, 1e-7);
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(p);
        tri_tensor_unref(t);
    }
}

static void an_infinite_gradient_reaches_only_the_class_that_was_meant(void **state)
{
    const double logs[3] = {-1, -2, -3}, want[3] = {0, -INFINITY, 0};
    const int64_t class_of = 1;
    tri_tensor *t = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &class_of);

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        tri_tensor *p = numbers(wide ? TRI_DTYPE_F64 : TRI_DTYPE_F32, logs, 3), *loss;

        tri_requires_grad(p, true);
        loss = tri_nll_loss(tri_reshape(p, TRI_SHAPE(1, 3)), t, NULL);
        tri_backward(tri_mul_scalar(loss, INFINITY));
        check_numbers("nll_loss", tri_grad(p), want, 3, 0);
        tri_step_end();
        tri_tensor_unref(p);
    }
    tri_tensor_unref(t);
}

static void activations_pass_a_nan_on_to_their_gradients(void **state)
{
    static tri_tensor *(*const functions[])(tri_tensor *) = {(tri_hardswish), (tri_relu),
                                                             (tri_sigmoid), (tri_tanh), (tri_silu)};

    (void)state;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        for (int wide = 0; wide < 2; wide++) {
            const double nan[1] = {NAN};
            tri_tensor *p = numbers(wide ? TRI_DTYPE_F64 : TRI_DTYPE_F32, nan, 1);
            double got;

            tri_requires_grad(p, true);
            tri_backward(tri_sum(functions[i](p), NULL, 0, false));
            CHECK_OK(tri_tensor_copy_out(tri_cast(tri_grad(p), TRI_DTYPE_F64), &got, sizeof(got)));
            if (i != 1 && !isnan(got))
                fail_msg("function %d: %g", (int)i, got);
            tri_step_end();
            tri_tensor_unref(p);
        }
    }
}

/* --- functions ------------------------------------------------------------ */

static tri_status fails;

/* The sum of all operands of one shape. */
static tri_status total_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

static int64_t numel(const tri_function_array *a)
{
    int64_t n = 1;

    for (int d = 0; d < a->ndim; d++)
        n *= a->shape[d];
    return n;
}

static tri_status total_forward(const tri_function_call *call)
{
    for (int64_t i = 0; i < numel(&call->out[0]); i++) {
        double *y_i = (double *)call->out[0].data + i;

        *y_i = 0;
        for (int k = 0; k < call->n_in; k++)
            *y_i += ((const double *)call->in[k].data)[i];
    }
    return TRI_OK;
}

static tri_status total_backward(const tri_function_call *call)
{
    if (fails != TRI_OK)
        return tri_status_fail(fails, "backward has had enough");
    for (int k = 0; k < call->n_in; k++) {
        const tri_function_array *to = &call->grad_in[k];

        if (to->data != NULL && numel(to) > 0)
            memcpy(to->data, call->grad_out[0].data, (size_t)numel(to) * sizeof(double));
    }
    return TRI_OK;
}

static const tri_function_class total = {.name = "total",
                                         .shape = total_shape,
                                         .forward = total_forward,
                                         .backward = total_backward,
                                         .backward_without_in = true,
                                         .backward_without_out = true};

static void a_function_of_nothing_has_gradients_of_nothing(void **state)
{
    tri_tensor *none = tri_zeros(TRI_SHAPE(0, 3), TRI_DTYPE_F64), *in[2], *out, *loss;

    (void)state;
    none = tri_tensor_clone(none);
    tri_requires_grad(none, true);
    for (int k = 0; k < 2; k++) {
        in[0] = in[1] = none;
        tri_function_apply(&total, NULL, in, 2, &out, 1);
        loss = tri_add(sum(out), sum(x));
        tri_backward(loss);
        CHECK_NEAR(tri_item(loss), 8, 0);
        CHECK_OK(tri_step_end_status());
        assert_int_equal(tri_tensor_numel(tri_grad(none)), 0);
        check_pair(tri_grad(x), k + 1, k + 1);
    }
    tri_tensor_unref(none);
}

static void a_backward_that_fails_fails_the_step_and_no_more(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        tri_tensor *in[2] = {x, y}, *out;

        fails = k % 2 == 0 ? TRI_ERR_IO : TRI_OK;
        tri_function_apply(&total, NULL, in, 2, &out, 1);
        tri_backward(sum(tri_mul(out, y)));
        if (k % 2 == 0) {
            CHECK_FAILS(tri_step_end_status(), TRI_ERR_IO, "backward has had enough");
            assert_non_null(strstr(tri_last_error(), "total"));
        } else {
            CHECK_OK(tri_step_end_status());
        }
        if (k == 0)
            CHECK_FAILS(tri_tensor_status(tri_grad(x)), TRI_ERR_STATE,
                        "no gradient: the step that was to compute it failed");
        else /* what had added up before stays */
            check_pair(tri_grad(x), k == 3 ? 4 : 2, k == 3 ? 14 : 7);
    }
}

static void a_function_of_too_many_says_how_many_there_may_be(void **state)
{
    tri_tensor *in[100], *out;

    (void)state;
    fails = TRI_OK;
    for (int i = 0; i < 100; i++)
        in[i] = x;
    tri_function_apply(&total, NULL, in, TRI_FUNCTION_TENSORS, &out, 1);
    tri_backward(sum(out));
    CHECK_OK(tri_step_end_status());
    check_pair(tri_grad(x), TRI_FUNCTION_TENSORS, TRI_FUNCTION_TENSORS);
    tri_function_apply(&total, NULL, in, 100, &out, 1);
    assert_int_equal(TRI_FUNCTION_TENSORS, 16);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG,
                "tri_function_apply(total): 100 inputs: 1 to 16 are allowed");
    CHECK_OK(tri_step_end_status()); /* nobody has asked for it */
}

static int recorded_before;

/* A tensor of the program for a gradient, after so many operations that nobody reads. */
static tri_status ones_record(const tri_function_graph *graph)
{
    tri_tensor *t = graph->grad_out[0], *ones = pair(1, 1);

    for (int i = 0; i < recorded_before; i++)
        t = tri_neg(t);
    graph->grad_in[0] = ones;
    tri_keep(t);
    tri_tensor_unref(y); /* the next tear down has this one */
    y = ones;
    return TRI_OK;
}

static const tri_function_class ones_class = {
    .name = "ones", .shape = total_shape, .forward = total_forward, .record = ones_record};

/* Wherever the arrays of the step happen to end: it becomes a value of the step right after. */
static void a_recorded_gradient_may_be_a_tensor_of_the_program(void **state)
{
    (void)state;
    for (recorded_before = 0; recorded_before < 1000; recorded_before += 1 + 20 * TEST_SANITIZED) {
        tri_tensor *out, *grad;

        trii_step_release(); /* small arrays again */
        tri_function_apply(&ones_class, NULL, &x, 1, &out, 1);
        out = sum(out);
        CHECK_OK(tri_gradients(&out, 1, &x, 1, NULL, &grad));
        check_pair(grad, 1, 1);
        CHECK_OK(tri_step_end_status());
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_product_hides_nothing_that_is_not_finite_behind_a_zero,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_logit_of_any_size_has_the_loss_of_its_soft_target, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(an_infinite_gradient_reaches_only_the_class_that_was_meant,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(activations_pass_a_nan_on_to_their_gradients, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(an_output_may_be_an_input, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_input_may_stand_twice_and_behind_another, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_input_that_is_not_on_the_way_is_unused, set_up, tear_down),
    cmocka_unit_test_setup_teardown(outputs_that_are_the_same_add_up_with_their_seeds, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(regions_without_gradients_are_nothing, set_up, tear_down),
    cmocka_unit_test_setup_teardown(nested_regions_have_the_bits_of_none, set_up, tear_down),
    cmocka_unit_test_setup_teardown(what_had_no_gradient_has_none_when_computed_again, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(gradients_have_the_types_of_their_values, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_parameter_in_bf16_has_a_gradient_in_bf16, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_slice_of_a_value_in_bf16_may_be_broadcast, set_up, tear_down),
    cmocka_unit_test_setup_teardown(targets_have_gradients_at_the_bounds_of_their_losses, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_divergence_from_what_is_negative_is_nan, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_function_of_nothing_has_gradients_of_nothing, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_backward_that_fails_fails_the_step_and_no_more, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_function_of_too_many_says_how_many_there_may_be, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_recorded_gradient_may_be_a_tensor_of_the_program, set_up,
                                    tear_down),
};

TEST_MAIN(tests)
