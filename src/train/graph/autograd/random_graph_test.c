/* random_graph_test.c - random steps give the same numbers however they are run: in one piece, in
 * pieces, operation by operation. */
#include <math.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/random_lookups.h"
#include "train/graph/step/step.h"

typedef struct result {
    double loss;
    double *grads[RANDOM_GRAPH_MAX]; /* NULL: none */
    int64_t n_elems[RANDOM_GRAPH_MAX];
    int n;
} result;

static void read_grads(random_graph *g, result *r)
{
    r->n = g->n_params;
    for (int k = 0; k < g->n_params; k++) {
        tri_tensor *grad = tri_grad(g->params[k]);

        r->n_elems[k] = tri_tensor_numel(g->params[k]);
        r->grads[k] = NULL;
        if (grad == NULL)
            continue;
        r->grads[k] = calloc((size_t)r->n_elems[k] + 1, sizeof(double));
        CHECK_OK(tri_tensor_copy_out(grad, r->grads[k], (size_t)r->n_elems[k] * sizeof(double)));
    }
}

static void release(result *r)
{
    for (int k = 0; k < r->n; k++)
        free(r->grads[k]);
}

static void begin(random_graph *g, uint64_t seed)
{
    random_graph_init(g, seed, 25, TRI_DTYPE_F64);
    if (seed % 3 == 0) {
        g->more = random_lookup;
        g->end = random_loss;
    }
}

/* split: read the loss before the gradients are recorded. */
static void run_graph(uint64_t seed, bool split, result *r)
{
    random_graph g;
    tri_tensor *loss;

    begin(&g, seed);
    tri_rng_state_set(&(tri_rng){.step = 100}); /* the same random numbers */
    for (int step = 0; step < 2; step++) {
        loss = random_graph_record(&g);
        if (split)
            r->loss = tri_item(loss);
        tri_backward(loss);
        CHECK_OK(tri_run());
        r->loss = tri_item(loss);
        CHECK_OK(random_graph_update(&g, 0.01));
        CHECK_OK(tri_step_end_status());
    }
    read_grads(&g, r);
    random_graph_fini(&g);
    CHECK_OK(tri_step_end_status());
}

/* Nobody looks at anything but the gradients: their difference to the others is the loss's. */
static void run_quietly(uint64_t seed, result *r)
{
    random_graph g;

    begin(&g, seed);
    g.quiet = true;
    tri_rng_state_set(&(tri_rng){.step = 100});
    for (int step = 0; step < 2; step++) {
        tri_backward(random_graph_record(&g));
        CHECK_OK(tri_step_end_status());

        CHECK_OK(random_graph_update(&g, 0.01));
    }
    read_grads(&g, r);
    random_graph_fini(&g);
    CHECK_OK(tri_step_end_status());
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (1 + fabs(b));
}

static void compare(uint64_t seed, const char *what, const result *a, const result *b,
                    double tolerance)
{
    if (!near(a->loss, b->loss, tolerance))
        fail_msg("seed %d, %s: loss %.17g and %.17g", (int)seed, what, a->loss, b->loss);
    assert_int_equal(a->n, b->n);
    for (int k = 0; k < a->n; k++) {
        assert_int_equal(a->n_elems[k], b->n_elems[k]);
        assert_int_equal(a->grads[k] == NULL, b->grads[k] == NULL);
        for (int64_t i = 0; a->grads[k] != NULL && i < a->n_elems[k]; i++) {
            if (!near(a->grads[k][i], b->grads[k][i], tolerance))
                fail_msg("seed %d, %s: gradient %d [%lld]: %.17g and %.17g", (int)seed, what, k,
                         (long long)i, a->grads[k][i], b->grads[k][i]);
        }
    }
}

static void random_steps_do_not_depend_on_how_they_run(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        result whole, split, eager, plan, plan_split, quiet;

        run_graph(seed, false, &plan);
        run_graph(seed, true, &plan_split);
        run_quietly(seed, &quiet);
        trii_executor_set(&trii_executor_reference);
        run_graph(seed, false, &whole);
        run_graph(seed, true, &split);
        trii_executor_set(NULL);
        trii_step_release();
        setenv("TRI_EAGER", "1", 1);
        run_graph(seed, false, &eager);
        trii_step_release();
        unsetenv("TRI_EAGER");
        compare(seed, "in pieces", &whole, &split, 0);
        compare(seed, "one by one", &whole, &eager, 0);
        compare(seed, "as a plan", &plan, &whole, 1e-10);
        compare(seed, "as two plans", &plan_split, &whole, 1e-10);
        assert_true(isfinite(whole.loss));
        quiet.loss = whole.loss; /* which nobody has seen */
        compare(seed, "unseen", &quiet, &whole, 1e-10);
        release(&whole);
        release(&split);
        release(&eager);
        release(&plan);
        release(&plan_split);
        release(&quiet);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_steps_do_not_depend_on_how_they_run),
};

TEST_MAIN(tests)
