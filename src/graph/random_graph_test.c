/* random_graph_test.c - random steps give the same numbers however they are run: in one piece, in
 * pieces, operation by operation. */
#include <math.h>

#include "base/alloc.h"
#include "graph/step.h"
#include "testing/check.h"
#include "testing/random_graph.h"

typedef struct result {
    double loss;
    double grads[RANDOM_GRAPH_MAX][2]; /* sum, weighted sum */
    int n;
} result;

static void read_grads(random_graph *g, result *r)
{
    r->n = g->n_params;
    for (int k = 0; k < g->n_params; k++) {
        tri_tensor *grad = tri_grad(g->params[k]);
        int64_t n = tri_tensor_numel(g->params[k]);
        double *data = calloc((size_t)n, sizeof(*data));

        r->grads[k][0] = r->grads[k][1] = 0;
        if (grad != NULL)
            CHECK_OK(tri_copy_out(grad, data, (size_t)n * sizeof(*data)));
        for (int64_t i = 0; i < n; i++) {
            r->grads[k][0] += data[i];
            r->grads[k][1] += data[i] * (double)(i % 7 - 3);
        }
        free(data);
    }
}

/* split: read the loss before the gradients are recorded. */
static void run_graph(uint64_t seed, bool split, result *r)
{
    random_graph g;
    tri_tensor *loss;

    random_graph_init(&g, seed, 25, TRI_DTYPE_F64);
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

static void compare(uint64_t seed, const result *a, const result *b)
{
    if (!(a->loss == b->loss))
        fail_msg("seed %d: loss %.17g and %.17g", (int)seed, a->loss, b->loss);
    assert_int_equal(a->n, b->n);
    for (int k = 0; k < a->n; k++) {
        for (int j = 0; j < 2; j++) {
            if (!(a->grads[k][j] == b->grads[k][j]))
                fail_msg("seed %d: gradient %d: %.17g and %.17g", (int)seed, k, a->grads[k][j],
                         b->grads[k][j]);
        }
    }
}

static void random_steps_do_not_depend_on_how_they_run(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        result whole, split, eager;

        unsetenv("TRI_EAGER");
        run_graph(seed, false, &whole);
        run_graph(seed, true, &split);
        trii_step_release();
        setenv("TRI_EAGER", "1", 1);
        run_graph(seed, false, &eager);
        trii_step_release();
        compare(seed, &whole, &split);
        compare(seed, &whole, &eager);
        assert_true(isfinite(whole.loss));
    }
    unsetenv("TRI_EAGER");
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_steps_do_not_depend_on_how_they_run),
};

TEST_MAIN(tests)
