/* double_gradients_test.c - gradients of gradients against central differences in f64, over all of
 * testing/op_cases.h, which leaves no operation out (gradients_test.c sees to that). */
/* ctest: threads=none */
#include <math.h>

#include "testing/check.h"
#include "testing/op_cases.h"
#include "train/graph/step/step.h"

static tri_tensor *weighted(tri_tensor *y, int number)
{
    op_input like = {.kind = 'N', .ndim = tri_tensor_ndim(y)};
    tri_tensor *weights;

    CHECK_OK(tri_tensor_status(y));
    for (int d = 0; d < like.ndim; d++)
        like.shape[d] = tri_tensor_size(y, d);
    weights = op_case_tensor(&like, number, TRI_DTYPE_F64);
    y = tri_sum(tri_mul(y, weights), NULL, 0, false);
    tri_tensor_unref(weights); /* the step holds it */
    return y;
}

typedef struct wanted {
    tri_tensor *in[OP_CASE_INPUTS];
    int n;
} wanted;

/* The weighted sum of all first gradients, or NULL: there are none. `square`: the loss is not
 * linear in the results, so that linear operations have second gradients as well. */
static tri_tensor *second_loss(const op_case *c, tri_tensor **in, const wanted *w, bool create)
{
    tri_tensor *y = c->build(in), *loss, *grads[OP_CASE_INPUTS], *total = NULL;

    CHECK_OK(tri_tensor_status(y));
    if (tri_tensor_dtype(y) != TRI_DTYPE_F64)
        return NULL;
    loss = weighted(tri_square(y), 9);
    CHECK_OK(tri_gradients(&loss, 1, w->in, w->n, &(tri_gradients_options){.create_graph = create},
                           grads));
    for (int i = 0; i < w->n; i++) {
        tri_tensor *part = weighted(grads[i], 5 + i);

        total = total == NULL ? part : tri_add(total, part);
    }
    return total;
}

static double value_of(const op_case *c, tri_tensor **in, const wanted *w)
{
    double value;

    tri_rng_state_set(&(tri_rng){.step = 7}); /* the same random numbers each time */
    value = tri_item(second_loss(c, in, w, false));
    CHECK_OK(tri_step_end_status());
    return value;
}

static void check_input(const op_case *c, tri_tensor **in, const wanted *w, int i,
                        const double *got)
{
    int64_t n = tri_tensor_numel(w->in[i]);
    double *x = calloc((size_t)(n + 1), sizeof(*x));
    const double h = 1e-5;

    CHECK_OK(tri_tensor_copy_out(w->in[i], x, (size_t)n * sizeof(*x)));
    CHECK_OK(tri_step_end_status());
    /* few of them under ThreadSanitizer, for which it is the same code each time */
    for (int64_t k = 0; k < n; k += TEST_SANITIZED ? 1 + n / 3 : 1) {
        double kept = x[k], up, down, numeric;

        x[k] = kept + h;
        CHECK_OK(tri_tensor_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
        up = value_of(c, in, w);
        x[k] = kept - h;
        CHECK_OK(tri_tensor_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
        down = value_of(c, in, w);
        x[k] = kept;
        CHECK_OK(tri_tensor_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
        numeric = (up - down) / (2 * h);
        if (!(fabs(numeric - got[k]) <= 1e-7 + 1e-6 * fabs(numeric)))
            fail_msg("%s: second gradient of operand %d [%lld]: %.12g, by differences %.12g",
                     c->name, i, (long long)k, got[k], numeric);
    }
    free(x);
}

static void check_case(const op_case *c)
{
    tri_tensor *in[OP_CASE_INPUTS], *loss, *grads[OP_CASE_INPUTS];
    double *got[OP_CASE_INPUTS] = {NULL};
    wanted w = {.n = 0};

    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        in[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F64);
        if (op_case_wants_grad(&c->in[k]))
            w.in[w.n++] = in[k];
    }
    tri_rng_state_set(&(tri_rng){.step = 7});
    loss = w.n > 0 ? second_loss(c, in, &w, true) : NULL;
    if (loss != NULL && tri_gradients(&loss, 1, w.in, w.n, NULL, grads) != TRI_OK) {
        if (!c->rough || strstr(tri_last_error(), "depends on no tensor") == NULL)
            fail_msg("%s: %s", c->name, tri_last_error());
        loss = NULL; /* of steps: the first is zero whatever they are */
    }
    for (int i = 0; i < w.n && loss != NULL; i++)
        (void)tri_keep(grads[i]);
    for (int i = 0; i < w.n && loss != NULL; i++) {
        size_t n = (size_t)tri_tensor_numel(w.in[i]);

        got[i] = calloc(n + 1, sizeof(**got));
        CHECK_OK(tri_tensor_copy_out(grads[i], got[i], n * sizeof(**got)));
    }
    CHECK_OK(tri_step_end_status());
    for (int i = 0; i < w.n && got[i] != NULL && !c->rough; i++)
        check_input(c, in, &w, i, got[i]);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        tri_tensor_unref(in[k]);
        free(got[k]);
    }
}

static void every_second_gradient_matches_finite_differences(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    for (int i = 0; i < OP_CASE_COUNT; i++)
        check_case(&op_cases[i]);
}

static tri_tensor *columns(tri_tensor **in)
{
    return tri_prod(in[0], (const int64_t[]){1}, 1, false);
}

static tri_tensor *ends(tri_tensor **in)
{
    return tri_prod(in[0], (const int64_t[]){0, 2}, 2, true);
}

static void products_of_any_number_and_any_zeros_have_second_gradients(void **state)
{
    (void)state;
    for (int n = 0; n < 10; n++) {
        for (int zeros = 0; zeros < 2; zeros++) {
            op_case c = {"columns", columns, {{zeros != 0 ? 'q' : 'p', 3, {3, n, 2}}}, false};

            check_case(&c);
            c.name = "ends";
            c.build = ends;
            check_case(&c);
        }
    }
}

/* a^b where both are zero, or one; and where the exponent is. */
static void powers_of_zero_have_finite_gradients_to_the_second(void **state)
{
    const double base[5] = {0, 0, 0, 2, 0.5}, exponent[5] = {0, 1, 2, 0, 3};
    /* the sum of d/da of a^b: b a^(b - 1), 1 / a where only the exponent is 0 */
    const double want_a[5] = {0, 0, 2, 0, 3},
                 want_b[5] = {0, 1, 0, 0.5, 0.25 + 3 * 0.25 * log(0.5)};
    tri_tensor *in[2] = {tri_tensor_from((const int64_t[]){5}, 1, TRI_DTYPE_F64, base),
                         tri_tensor_from((const int64_t[]){5}, 1, TRI_DTYPE_F64, exponent)};
    tri_tensor *y, *first[2], *second[2];

    (void)state;
    for (int k = 0; k < 2; k++)
        tri_requires_grad(in[k], true);
    y = tri_sum(tri_pow(in[0], in[1]), NULL, 0, false);
    CHECK_OK(tri_gradients(&y, 1, in, 2, &(tri_gradients_options){.create_graph = true}, first));
    y = tri_sum(first[0], NULL, 0, false);
    CHECK_OK(tri_gradients(&y, 1, in, 2, NULL, second));
    for (int k = 0; k < 2; k++)
        second[k] = tri_keep(second[k]);
    for (int k = 0; k < 2; k++) {
        double got[5];

        CHECK_OK(tri_tensor_copy_out(second[k], got, sizeof(got)));
        for (int i = 0; i < 5; i++) {
            double want = k == 0 ? want_a[i] : want_b[i];

            if (!(fabs(got[i] - want) < 1e-12))
                fail_msg("%g^%g, operand %d: %g, not %g", base[i], exponent[i], k, got[i], want);
        }
        tri_tensor_unref(in[k]);
    }
}

/* --- where a factor is zero, or a formula changes ------------------------- */

typedef tri_tensor *(*function)(tri_tensor *x, double number);

/* The order-th gradient of sum f(x); 0 if nothing depends on x any more. */
static void gradient_of_order(int order, function f, double number, tri_dtype dtype,
                              const double *at, int n, double *out)
{
    const tri_gradients_options create = {.create_graph = true, .allow_unused = true};
    tri_tensor *x, *y, *g = NULL;
    float narrow[8];

    for (int i = 0; i < n; i++) {
        narrow[i] = (float)at[i];
        out[i] = 0;
    }
    x = tri_tensor_from(TRI_SHAPE(n), dtype, dtype == TRI_DTYPE_F64 ? (const void *)at : narrow);
    tri_requires_grad(x, true);
    y = f(x, number);
    for (int k = 0; k < order && y != NULL; k++, y = g) {
        y = tri_sum(y, NULL, 0, false);
        if (tri_gradients(&y, 1, &x, 1, &create, &g) != TRI_OK)
            g = NULL; /* a constant */
    }
    if (y != NULL)
        CHECK_OK(tri_tensor_copy_out(tri_cast(y, TRI_DTYPE_F64), out, (size_t)n * sizeof(*out)));
    tri_step_end();
    tri_tensor_unref(x);
}

static void a_power_whose_gradient_is_constant_has_zeros_at_zero_from_then_on(void **state)
{
    (void)state;
    for (int power = 0; power < 5; power++) {
        for (int order = power + 1; order < power + 4; order++) {
            const double at[2] = {0, 1.5};
            double got[2];

            gradient_of_order(order, tri_pow_scalar, power, TRI_DTYPE_F64, at, 2, got);
            if (got[0] != 0 || got[1] != 0)
                fail_msg("gradient %d of x^%d: %g at 0, %g at 1.5", order, power, got[0], got[1]);
        }
    }
}

static tri_tensor *power_of_tensor(tri_tensor *x, double number)
{
    tri_tensor *exponent = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &number);

    x = tri_pow(x, tri_cast(exponent, tri_tensor_dtype(x)));
    tri_tensor_unref(exponent); /* the step holds it */
    return x;
}

/* 1 / x is infinite in f32. */
static void the_gradient_of_the_power_0_is_0_wherever_the_base_is(void **state)
{
    const double at[4] = {1e-40, NAN, INFINITY, 2};
    double got[4];

    (void)state;
    gradient_of_order(1, power_of_tensor, 0, TRI_DTYPE_F32, at, 4, got);
    for (int i = 0; i < 4; i++) {
        if (got[i] != 0)
            fail_msg("x = %g: %g", at[i], got[i]);
    }
}

static tri_tensor *softplus_from_0(tri_tensor *x, double beta)
{
    return tri_softplus(x, beta, 0);
}

static tri_tensor *hardswish(tri_tensor *x, double number)
{
    (void)number;
    return tri_hardswish(x);
}

static tri_tensor *smooth_l1(tri_tensor *x, double beta)
{
    tri_tensor *zeros = tri_mul_scalar(x, 0);

    return tri_smooth_l1_loss(
        x, zeros,
        &(tri_smooth_l1_loss_options){.beta = TRI_SET(beta), .reduction = TRI_REDUCTION_SUM});
}

/* PyTorch's values: at a kink, the second gradient of the side that is straight. */
static void second_gradients_at_a_kink_are_those_of_torch(void **state)
{
    static const struct {
        const char *name;
        function f;
        double number, kink, inside; /* what it is a little inside of the kink */
    } kinks[] = {
        {"elu", tri_elu, 0.5, 0, 0.5},           {"softplus", softplus_from_0, 2, 0, 0.5},
        {"hardswish", hardswish, 0, 3, 1.0 / 3}, {"hardswish", hardswish, 0, -3, 1.0 / 3},
        {"smooth_l1", smooth_l1, 0.5, 0.5, 2},   {"smooth_l1", smooth_l1, 0.5, -0.5, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(kinks) / sizeof(kinks[0]); i++) {
        for (int wide = 0; wide < 2; wide++) {
            const double kink = kinks[i].kink, at[2] = {kink, kink > 0 ? kink - 1e-6 : kink + 1e-6};
            const double left = kink - 1e-6;
            double got[2];

            gradient_of_order(2, kinks[i].f, kinks[i].number, wide ? TRI_DTYPE_F64 : TRI_DTYPE_F32,
                              (const double[]){at[0], kink == 0 ? left : at[1]}, 2, got);
            if (got[0] != 0 || !(fabs(got[1] - kinks[i].inside) < 1e-5))
                fail_msg("%s at %g: %g, beside it %g", kinks[i].name, kink, got[0], got[1]);
        }
    }
}

#define SOFT_TARGET 0.9999f

static tri_tensor *bce(tri_tensor *x, double number)
{
    tri_tensor *target = tri_add_scalar(tri_mul_scalar(x, 0), SOFT_TARGET);

    (void)number;
    return tri_bce_loss(x, target, &(tri_bce_loss_options){.reduction = TRI_REDUCTION_SUM});
}

static void the_second_gradient_of_a_loss_near_1_keeps_its_digits(void **state)
{
    double at[8], got[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        at[i] = 1 - (i + 1) * 1.1e-4;
    gradient_of_order(2, bce, 0, TRI_DTYPE_F32, at, 8, got);
    for (int i = 0; i < 8; i++) {
        const double p = (double)(float)at[i], t = (double)SOFT_TARGET, v = p * (1 - p);
        const double want = ((p - t) * (p - t) + t * (1 - t)) / (v * v);

        CHECK_NEAR(got[i] / want, 1, 5e-6);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_power_whose_gradient_is_constant_has_zeros_at_zero_from_then_on),
    cmocka_unit_test(the_gradient_of_the_power_0_is_0_wherever_the_base_is),
    cmocka_unit_test(second_gradients_at_a_kink_are_those_of_torch),
    cmocka_unit_test(the_second_gradient_of_a_loss_near_1_keeps_its_digits),
    cmocka_unit_test(every_second_gradient_matches_finite_differences),
    cmocka_unit_test(products_of_any_number_and_any_zeros_have_second_gradients),
    cmocka_unit_test(powers_of_zero_have_finite_gradients_to_the_second),
};

TEST_MAIN(tests)
