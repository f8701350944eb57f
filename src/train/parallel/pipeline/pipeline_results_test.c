/* pipeline_results_test.c - what stages may give to the next: what they got, a parameter, something
 * without a gradient, a derivative of their own; and layers that are not trained. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

static tri_module *layer(int s, int n)
{
    return tri_nn_sequential(
        tri_nn_linear(PIPELINE_WIDTH, s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH, NULL),
        tri_nn_tanh());
}

/* Stages of a layer, but for this one, unless NULL. */
static void others(tri_module **stages, int n, int own, tri_module *own_stage)
{
    for (int s = 0; s < n; s++)
        stages[s] = s == own && own_stage != NULL ? own_stage : layer(s, n);
}

/* All schedules of two stages a rank come to the bits of the first, and to one process. */
static void compare(void (*build)(tri_module **stages, int n))
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_LOOPED_BFS,
                                                      TRI_PIPELINE_INTERLEAVED,
                                                      TRI_PIPELINE_ZERO_BUBBLE, TRI_PIPELINE_ZBV};
    pipeline_result *want = pipeline_result_new(), *results[4];
    pipeline_job job = {
        .options = {.n_microbatches = 4}, .stages = 4, .rows = 8, .steps = 3, .build = build};

    pipeline_one_process(&job, want);
    job.want = want;
    for (int i = 0; i < 4; i++) {
        results[i] = pipeline_result_new();
        pipeline_train_all(schedules[i], 2, &job, results[i]);
        pipeline_same(results[0], results[i]);
    }
    for (int i = 0; i < 4; i++)
        free(results[i]);
    free(want);
}

/* --- without a gradient --------------------------------------------------- */

static tri_tensor *place_of_largest(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_argmax(x, -1, false);
}

static void stages_with_integers(tri_module **stages, int n)
{
    others(stages, n, 1, tri_module_simple("Largest", 0, place_of_largest));
    stages[2] =
        tri_nn_sequential(tri_nn_embedding(PIPELINE_WIDTH, PIPELINE_WIDTH, NULL), stages[2]);
}

static tri_tensor *ones(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_full(TRI_SHAPE(tri_tensor_size(x, 0), PIPELINE_WIDTH), 1, TRI_DTYPE_F64);
}

static void stages_with_a_constant(tri_module **stages, int n)
{
    others(stages, n, 2, tri_module_simple("Ones", 0, ones));
}

/* The result of stage 1 goes no further; what it has saved does. */
static void stages_past_others(tri_module **stages, int n)
{
    others(stages, n, -1, NULL);
    stages[0] = tri_nn_sequential(stages[0], tri_nn_skip_save("a"));
    stages[1] = tri_nn_sequential(stages[1], tri_nn_skip_save("b"), tri_nn_tanh());
    stages[2] = tri_nn_sequential(tri_nn_skip_take("a", TRI_SKIP_ALONE), stages[2]);
    stages[3] = tri_nn_sequential(tri_nn_skip_take("b", TRI_SKIP_ADD), stages[3]);
}

static tri_tensor *without_what_it_takes(tri_module *self, tri_tensor *x)
{
    (void)tri_forward(tri_module_submodule(self, "take"), x);
    return tri_forward(tri_module_submodule(self, "layer"), x);
}

static void stages_that_take_in_vain(tri_module **stages, int n)
{
    tri_module *last = tri_module_simple("InVain", 0, without_what_it_takes);

    tri_module_add_child(last, "take", tri_nn_skip_take("a", TRI_SKIP_ADD));
    tri_module_add_child(last, "layer", layer(n - 1, n));
    others(stages, n, n - 1, last);
    stages[0] = tri_nn_sequential(stages[0], tri_nn_skip_save("a"), tri_nn_tanh());
}

static void a_stage_may_give_no_gradients(void **state)
{
    (void)state;
    compare(stages_with_integers);
    compare(stages_with_a_constant);
    compare(stages_past_others);
    compare(stages_that_take_in_vain);
}

/* --- nothing of its own --------------------------------------------------- */

static tri_tensor *what_it_gets(tri_module *self, tri_tensor *x)
{
    (void)self;
    return x;
}

static void stages_that_pass_on(tri_module **stages, int n)
{
    others(stages, n, 1, tri_module_simple("Same", 0, what_it_gets));
    tri_module_destroy(stages[2]);
    stages[2] = tri_nn_flatten(1);
}

static tri_tensor *its_parameter(tri_module *self, tri_tensor *x)
{
    (void)x;
    return tri_module_find(self, "rows");
}

/* For micro-batches of two rows. */
static void stages_with_a_parameter(tri_module **stages, int n)
{
    tri_module *self = tri_module_simple("Rows", 0, its_parameter);
    double rows[2 * PIPELINE_WIDTH];

    for (int i = 0; i < 2 * PIPELINE_WIDTH; i++)
        rows[i] = cos(i);
    tri_module_add_parameter(self, "rows",
                             tri_tensor_from(TRI_SHAPE(2, PIPELINE_WIDTH), TRI_DTYPE_F64, rows));
    others(stages, n, 1, self);
}

static void a_stage_may_give_what_it_has(void **state)
{
    (void)state;
    compare(stages_that_pass_on);
    compare(stages_with_a_parameter);
}

/* --- differentiated by the stage itself ----------------------------------- */

/* A penalty on gradients is such a stage. */
static tri_tensor *with_its_derivative(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_forward(tri_module_submodule(self, "layer"), x), *slope = NULL;
    tri_tensor *sum = tri_sum(tri_square(y), NULL, 0, false);

    if (tri_gradients(&sum, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &slope) !=
        TRI_OK)
        return NULL;
    return tri_add(y, tri_narrow(slope, 1, 0, tri_tensor_size(y, 1)));
}

static void stages_that_differentiate(tri_module **stages, int n)
{
    stages[0] = tri_nn_sequential(layer(0, n), tri_nn_skip_save("a"));
    for (int s = 1; s < n; s++) {
        stages[s] = tri_module_simple("Slope", 0, with_its_derivative);
        tri_module_add_child(
            stages[s], "layer",
            s < n - 1 ? layer(s, n)
                      : tri_nn_sequential(tri_nn_skip_take("a", TRI_SKIP_ADD), layer(s, n)));
    }
}

static void a_stage_may_differentiate(void **state)
{
    (void)state;
    compare(stages_that_differentiate);
}

/* --- not trained ---------------------------------------------------------- */

static void stages_of_which_two_are_frozen(tri_module **stages, int n)
{
    others(stages, n, -1, NULL);
    tri_module_requires_grad(stages[0], false);
    tri_module_requires_grad(stages[2], false);
}

static void stages_of_which_the_last_is_frozen(tri_module **stages, int n)
{
    others(stages, n, -1, NULL);
    tri_module_requires_grad(stages[n - 1], false);
}

static void stages_with_frozen_parameters(tri_module **stages, int n)
{
    others(stages, n, -1, NULL);
    for (int s = 0; s < n; s++)
        tri_requires_grad(tri_module_find(stages[s], s % 2 == 0 ? "0.weight" : "0.bias"), false);
}

static void parts_of_the_network_may_be_frozen(void **state)
{
    (void)state;
    compare(stages_of_which_two_are_frozen);
    compare(stages_of_which_the_last_is_frozen);
    compare(stages_with_frozen_parameters);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stage_may_give_no_gradients),
    cmocka_unit_test(a_stage_may_give_what_it_has),
    cmocka_unit_test(a_stage_may_differentiate),
    cmocka_unit_test(parts_of_the_network_may_be_frozen),
};

TEST_MAIN(tests)
