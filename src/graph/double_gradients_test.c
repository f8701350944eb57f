/* double_gradients_test.c - gradients of gradients against central differences in f64, over all of
 * testing/op_cases.h; and which operations have none, by name. */
#include <math.h>

#include "graph/step.h"
#include "testing/check.h"
#include "testing/op_cases.h"

/* Whose gradients have none of their own. A walk through them says so. */
static const char *const without[] = {
    "bce_backward",
    "pow_backward",
    "prod_backward",
};
#define WITHOUT (sizeof(without) / sizeof(without[0]))
static bool met[WITHOUT];

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
    for (int64_t k = 0; k < n; k += TEST_TSAN ? 1 + n / 3 : 1) {
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

/* Notes the operation that the line says has none; false: it is not one of those. */
static bool note_without(const char *line)
{
    for (size_t k = 0; k < WITHOUT; k++) {
        char text[64];

        snprintf(text, sizeof(text), "gradient of tri_%s at ", without[k]);
        if (strstr(line, text) != NULL) {
            met[k] = true;
            return true;
        }
    }
    return false;
}

static void check_case(const op_case *c)
{
    tri_tensor *in[OP_CASE_INPUTS], *loss, *grads[OP_CASE_INPUTS];
    double *got[OP_CASE_INPUTS] = {NULL};
    wanted w = {.n = 0};
    tri_status status;

    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        in[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F64);
        if (op_case_wants_grad(&c->in[k]))
            w.in[w.n++] = in[k];
    }
    tri_random_state_set(&(tri_random_state){.step = 7});
    loss = w.n > 0 ? second_loss(c, in, &w, true) : NULL;
    status = loss == NULL ? TRI_OK : tri_gradients(&loss, 1, w.in, w.n, NULL, grads);
    if (status == TRI_ERR_UNSUPPORTED && !note_without(tri_last_error()))
        fail_msg("%s: %s", c->name, tri_last_error());
    if (status != TRI_ERR_UNSUPPORTED)
        CHECK_OK(status);
    for (int i = 0; i < w.n && loss != NULL && status == TRI_OK; i++)
        (void)tri_keep(grads[i]);
    for (int i = 0; i < w.n && loss != NULL && status == TRI_OK; i++) {
        size_t n = (size_t)tri_tensor_numel(w.in[i]);

        got[i] = calloc(n + 1, sizeof(**got));
        CHECK_OK(tri_copy_out(grads[i], got[i], n * sizeof(**got)));
    }
    CHECK_OK(tri_step_end_status());
    for (int i = 0; i < w.n && got[i] != NULL; i++)
        check_input(c, in, &w, i, got[i]);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        tri_tensor_unref(in[k]);
        free(got[k]);
    }
}

static void every_second_gradient_matches_finite_differences_or_is_named(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    for (int i = 0; i < OP_CASE_COUNT; i++) {
        if (!op_cases[i].rough)
            check_case(&op_cases[i]);
    }
    for (size_t k = 0; k < WITHOUT; k++) {
        if (!met[k])
            fail_msg("%s has a gradient, or no case uses it", without[k]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_second_gradient_matches_finite_differences_or_is_named),
};

TEST_MAIN(tests)
