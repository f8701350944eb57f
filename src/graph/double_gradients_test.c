/* double_gradients_test.c - gradients of gradients against central differences in f64, over all of
 * testing/op_cases.h, which leaves no operation out (gradients_test.c sees to that). */
/* ctest: threads=none */
#include <math.h>

#include "graph/step.h"
#include "testing/check.h"
#include "testing/op_cases.h"

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

    tri_random_state_set(&(tri_random_state){.step = 7}); /* the same random numbers each time */
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

    CHECK_OK(tri_copy_out(w->in[i], x, (size_t)n * sizeof(*x)));
    CHECK_OK(tri_step_end_status());
    /* few of them under ThreadSanitizer, for which it is the same code each time */
    for (int64_t k = 0; k < n; k += TEST_SANITIZED ? 1 + n / 3 : 1) {
        double kept = x[k], up, down, numeric;

        x[k] = kept + h;
        CHECK_OK(tri_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
        up = value_of(c, in, w);
        x[k] = kept - h;
        CHECK_OK(tri_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
        down = value_of(c, in, w);
        x[k] = kept;
        CHECK_OK(tri_copy_in(w->in[i], x, (size_t)n * sizeof(*x)));
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
    tri_random_state_set(&(tri_random_state){.step = 7});
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
        CHECK_OK(tri_copy_out(grads[i], got[i], n * sizeof(**got)));
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
    tri_tensor *in[2] = {tri_tensor_from(TRI_DTYPE_F64, (const int64_t[]){5}, 1, base),
                         tri_tensor_from(TRI_DTYPE_F64, (const int64_t[]){5}, 1, exponent)};
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

        CHECK_OK(tri_copy_out(second[k], got, sizeof(got)));
        for (int i = 0; i < 5; i++) {
            double want = k == 0 ? want_a[i] : want_b[i];

            if (!(fabs(got[i] - want) < 1e-12))
                fail_msg("%g^%g, operand %d: %g, not %g", base[i], exponent[i], k, got[i], want);
        }
        tri_tensor_unref(in[k]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_second_gradient_matches_finite_differences),
    cmocka_unit_test(products_of_any_number_and_any_zeros_have_second_gradients),
    cmocka_unit_test(powers_of_zero_have_finite_gradients_to_the_second),
};

TEST_MAIN(tests)
