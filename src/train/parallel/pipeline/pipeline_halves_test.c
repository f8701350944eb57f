/* pipeline_halves_test.c - backwards in two halves have the bits of whole ones, in whatever order
 * and by whatever operations a stage reads its weights. */
#include "testing/pipeline_ranks.h"

enum { WIDTH = 4, ROWS = 4, MICROBATCHES = 4, STEPS = 3 };

typedef struct case_of_halves {
    tri_pipeline_schedule schedule;
    int stages;
    bool recompute, autocast;
    bool plain;       /* layers alone */
    uint64_t hash[2]; /* what each of two ranks ends with */
} case_of_halves;

/* Products, norms and plain operations read the same weights, in turn. */
static tri_tensor *knot_forward(tri_module *self, tri_tensor *x)
{
    tri_tensor *w = tri_module_find(self, "w"), *v = tri_module_find(self, "v");
    tri_tensor *u = tri_module_find(self, "u"), *y = tri_linear(x, w, v);

    y = tri_mul(tri_layer_norm(y, 1, v, NULL, 1e-5), v);
    y = tri_tanh(tri_add(y, tri_matmul(y, tri_mul(w, tri_tanh(w)))));
    y = tri_add(tri_rms_norm(y, 1, v, (tri_opt){0}), tri_linear(y, tri_add(w, w), v));
    /* two that give all gradients at once, then one that no input leads to */
    y = tri_mul(tri_layer_norm(y, 1, u, NULL, 1e-5), u);
    y = tri_add(y, tri_tanh(u));
    return tri_add(y, tri_mul_scalar(tri_softmax(tri_matmul(x, w), -1), 0.5));
}

static tri_tensor *layer_forward(tri_module *self, tri_tensor *x)
{
    return tri_tanh(tri_linear(x, tri_module_find(self, "w"), tri_module_find(self, "v")));
}

static void add_vector(tri_module *self, const char *name, double phase)
{
    float v[WIDTH];

    for (int i = 0; i < WIDTH; i++)
        v[i] = (float)cos(0.9 * i + phase);
    tri_module_add_parameter(self, name, tri_tensor_from(TRI_SHAPE(WIDTH), TRI_DTYPE_F32, v));
}

static tri_module *stage_create(int number, bool plain)
{
    tri_module *self = tri_module_simple("Stage", 0, plain ? layer_forward : knot_forward);
    float w[WIDTH * WIDTH];

    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = (float)sin(1.7 * i + number);
    tri_module_add_parameter(self, "w", tri_tensor_from(TRI_SHAPE(WIDTH, WIDTH), TRI_DTYPE_F32, w));
    add_vector(self, "v", number);
    if (!plain)
        add_vector(self, "u", number + 0.5);
    return self;
}

static const char *train(rank_env *env)
{
    case_of_halves *c = env->arg;
    tri_module *stages[PIPELINE_STAGES], *pipe;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(ROWS * MICROBATCHES, WIDTH), TRI_DTYPE_F32);
    tri_group *group = NULL;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int s = 0; s < c->stages; s++) {
        stages[s] = stage_create(s, c->plain);
        tri_module_set_recompute(stages[s], c->recompute);
    }
    pipe =
        tri_pipeline(stages, c->stages,
                     &(tri_pipeline_options){
                         .group = group, .n_microbatches = MICROBATCHES, .schedule = c->schedule});
    opt = tri_sgd(pipe, 0.05, NULL);
    for (int step = 0; step < STEPS; step++) {
        float data[ROWS * MICROBATCHES * WIDTH];

        for (int i = 0; i < ROWS * MICROBATCHES * WIDTH; i++)
            data[i] = (float)sin(0.3 * i + step);
        RANK_TRY(env, tri_tensor_copy_in(x, data, sizeof(data)));
        if (c->autocast)
            tri_autocast_begin(TRI_DTYPE_BF16);
        (void)tri_pipeline_step(pipe, x, x, pipeline_mse, NULL);
        if (c->autocast)
            tri_autocast_end();
        RANK_TRY(env, tri_optimizer_step(opt));
        RANK_TRY(env, tri_step_end_status());
    }
    RANK_TRY(env, tri_module_hash(pipe, &c->hash[env->rank]));
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void compare(case_of_halves c, tri_pipeline_schedule whole, tri_pipeline_schedule halves)
{
    case_of_halves other = c;

    c.schedule = whole;
    other.schedule = halves;
    run_threads(2, &(tri_group_options){.engine = "shm"}, train, &c);
    run_threads(2, &(tri_group_options){.engine = "shm"}, train, &other);
    assert_memory_equal(c.hash, other.hash, sizeof(c.hash));
}

static void compare_all(case_of_halves c)
{
    c.stages = 2;
    compare(c, TRI_PIPELINE_1F1B, TRI_PIPELINE_ZERO_BUBBLE);
    c.stages = 4;
    compare(c, TRI_PIPELINE_LOOPED_BFS, TRI_PIPELINE_ZERO_BUBBLE);
}

static void gradients_add_up_in_one_order(void **state)
{
    (void)state;
    compare_all((case_of_halves){0});
}

static void what_is_computed_again_is_so_once(void **state)
{
    (void)state;
    compare_all((case_of_halves){.recompute = true});
}

static void casts_of_weights_are_shared(void **state)
{
    (void)state;
    compare_all((case_of_halves){.autocast = true});
    compare_all((case_of_halves){.autocast = true, .recompute = true});
}

static void biases_sum_what_is_not_rounded(void **state)
{
    (void)state;
    compare_all((case_of_halves){.autocast = true, .plain = true});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_add_up_in_one_order),
    cmocka_unit_test(what_is_computed_again_is_so_once),
    cmocka_unit_test(casts_of_weights_are_shared),
    cmocka_unit_test(biases_sum_what_is_not_rounded),
};

TEST_MAIN(tests)
