/* pipeline_draw_test.c - schedules as text and as pictures. */
#include "testing/pipeline_ranks.h"
#include "testing/scratch.h"

/* One rank has all stages: what it draws needs no other. */
static tri_module *pipeline_of(tri_pipeline_schedule schedule, int stages)
{
    const pipeline_job job = {
        .options = {.n_microbatches = 2, .schedule = schedule}, .stages = stages, .rows = 2};

    return pipeline_make(&job, NULL);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        n++;
    return n;
}

static const char *draw_two(rank_env *env)
{
    const char *path = env->arg;
    const pipeline_job job = {.options = {.n_microbatches = 2}, .stages = 2, .rows = 4};
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = pipeline_make(&job, group);
    if (env->rank == 1) /* alone */
        RANK_TRY(env, tri_pipeline_draw(pipe, path));
    tri_module_destroy(pipe);
    tri_group_unref(group);
    return NULL;
}

static void a_picture_shows_all_ranks(void **state)
{
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(2, NULL, draw_two, (void *)(uintptr_t)scratch_path(&s, "p.svg"));
    svg = scratch_read(scratch_path(&s, "p.svg"), &n);
    assert_memory_equal(svg, "<svg ", 5);
    assert_string_equal(svg + n - 7, "</svg>\n");
    assert_non_null(strstr(svg, "1f1b: 2 ranks, 2 stages, 2 micro-batches; idle 33.3 %"));
    assert_int_equal(count(svg, "<title>"), 8);
    assert_non_null(strstr(svg, "<rect x=\"96\" y=\"64\" width=\"24\" height=\"30\" "
                                "fill=\"#0072b2\" stroke=\"white\"><title>0F0<"));
    assert_non_null(strstr(svg, "<rect x=\"144\" y=\"108\" width=\"48\" height=\"30\" "
                                "fill=\"#d55e00\" stroke=\"white\"><title>1B0<"));
    free(svg);
    scratch_end(&s);
}

static void expect_text(tri_module *module, const char *want)
{
    FILE *file = tmpfile();
    char text[1024];
    size_t n;

    tri_pipeline_print(module, file);
    rewind(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);
    assert_string_equal(text, want);
}

static void text_names_each_action(void **state)
{
    tri_module *pipe = pipeline_of(TRI_PIPELINE_ZBV, 2);

    (void)state;
    expect_text(pipe, "zbv: 1 rank, 2 stages, 2 micro-batches; idle 0.0 %\n"
                      "rank 0   0F0 1F0 1I0 1W0 0F1 0I0 0W0 1F1 1I1 1W1 0I1 0W1 \n");
    tri_module_destroy(pipe);
    pipe = pipeline_of(TRI_PIPELINE_GPIPE, 1);
    expect_text(pipe, "gpipe: 1 rank, 1 stage, 2 micro-batches; idle 0.0 %\n"
                      "rank 0   0F0 0F1 0B0     0B1     \n");
    tri_module_destroy(pipe);
}

static void mistakes_are_named(void **state)
{
    tri_module *pipe = pipeline_of(TRI_PIPELINE_1F1B, 1), *net = tri_nn_linear(2, 2, NULL);

    (void)state;
    CHECK_FAILS(tri_pipeline_draw(net, "p.svg"), TRI_ERR_INVALID_ARG, "the module is a Linear");
    CHECK_FAILS(tri_pipeline_draw(NULL, "p.svg"), TRI_ERR_INVALID_ARG, "NULL");
    CHECK_FAILS(tri_pipeline_draw(pipe, NULL), TRI_ERR_INVALID_ARG, "end its name with .svg");
    CHECK_FAILS(tri_pipeline_draw(pipe, "p.png"), TRI_ERR_INVALID_ARG, "end its name with .svg");
    CHECK_FAILS(tri_pipeline_draw(pipe, "/dev/null/p.svg"), TRI_ERR_IO, "/dev/null/p.svg");
    expect_text(net, "the module is a Linear; tri_pipeline makes pipelines\n");
    tri_module_destroy(pipe);
    tri_module_destroy(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_picture_shows_all_ranks),
    cmocka_unit_test(text_names_each_action),
    cmocka_unit_test(mistakes_are_named),
};

TEST_MAIN(tests)
