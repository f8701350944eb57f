/*
 * pipeline_executed_test.c - what ranks really run, from the trace: the order of their schedules'
 * actions, how many micro-batches are under way meanwhile, and the memory that these take.
 */
/* ctest: tsan=no */
#include "train/parallel/pipeline/pipeline_schedule.h"
#include "train/graph/step/part.h"
#include "train/plan/plan.h"
#include "train/plan/trace.h"
#include "testing/pipeline_ranks.h"
#include "testing/scratch.h"

#define MOST_RANKS 4
#define MOST_ACTIONS 256

/* --- order ---------------------------------------------------------------- */

/* The actions of a rank that computed something, in the order in which they did. */
typedef struct executed {
    trii_pipeline_action actions[MOST_ACTIONS];
    int n;
} executed;

static trii_pipeline_kind kind_of(char letter)
{
    return (trii_pipeline_kind)(strchr("FBIW", letter) - "FBIW");
}

static bool same(const trii_pipeline_action *a, const trii_pipeline_action *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

static void read_line(const trii_pipeline_shape *shape, const char *line, executed *ranks)
{
    const char *part = strstr(line, "\"part\":\"");
    trii_pipeline_action a;
    executed *rank;
    char letter;

    if (part == NULL || strstr(line, "\"cat\":\"communication\"") != NULL)
        return;
    assert_int_equal(sscanf(part, "\"part\":\"%d%c%d\"", &a.stage, &letter, &a.microbatch), 3);
    a.kind = kind_of(letter);
    rank = &ranks[trii_pipeline_rank_of(shape, a.stage)];
    if (rank->n > 0 && same(&a, &rank->actions[rank->n - 1]))
        return;
    assert_in_range(rank->n, 0, MOST_ACTIONS - 1);
    rank->actions[rank->n++] = a;
}

/* One step, traced. */
static void execute(const trii_pipeline_shape *shape, executed *ranks)
{
    const pipeline_job job = {
        .options = {.n_microbatches = shape->microbatches, .schedule = shape->schedule},
        .stages = shape->stages,
        .rows = 2 * shape->microbatches,
        .steps = 1};
    pipeline_job arg = job;
    char *text, *line, *rest;
    size_t n;
    scratch s;

    memset(ranks, 0, MOST_RANKS * sizeof(*ranks));
    scratch_begin(&s);
    CHECK_OK(trii_trace_ask(scratch_path(&s, "t.json")));
    run_threads(shape->ranks, &(tri_group_options){.engine = "shm"}, pipeline_rank, &arg);
    CHECK_OK(trii_trace_ask(NULL));
    text = scratch_read(scratch_path(&s, "t.json"), &n);
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        read_line(shape, line, ranks);
    free(text);
    scratch_end(&s);
}

static void expect_order(const trii_pipeline_shape *shape, int rank, const executed *got)
{
    trii_pipeline_action list[MOST_ACTIONS];
    int64_t n = trii_pipeline_action_count(shape);
    int at = 0;

    assert_in_range(n, 1, MOST_ACTIONS);
    trii_pipeline_actions(shape, rank, list);
    for (int64_t i = 0; i < n; i++) {
        /* The first stage has no input to differentiate: its backward is whole. */
        if (list[i].stage == 0 && list[i].kind == TRII_PIPELINE_INPUT)
            continue;
        if (list[i].stage == 0 && list[i].kind == TRII_PIPELINE_WEIGHT)
            list[i].kind = TRII_PIPELINE_BACKWARD;
        if (at == got->n || !same(&got->actions[at], &list[i]))
            fail_msg("%s, rank %d of %d, %d micro-batches: action %d is not %d%c%d",
                     trii_pipeline_schedule_name(shape->schedule), rank, shape->ranks,
                     shape->microbatches, at, list[i].stage, "FBIW"[list[i].kind],
                     list[i].microbatch);
        at++;
    }
    assert_int_equal(at, got->n);
}

/* Of micro-batches of one stage. */
static int peak_of(const executed *got)
{
    int live = 0, peak = 0;

    for (int i = 0; i < got->n; i++) {
        live += got->actions[i].kind == TRII_PIPELINE_FORWARD;
        peak = live > peak ? live : peak;
        live -= got->actions[i].kind == TRII_PIPELINE_BACKWARD ||
                got->actions[i].kind == TRII_PIPELINE_WEIGHT;
    }
    return peak;
}

static void expect(tri_pipeline_schedule schedule, int ranks, int each, int m, const double *peaks)
{
    const trii_pipeline_shape shape = {schedule, ranks, ranks * each, m};
    executed *got = calloc(MOST_RANKS, sizeof(*got));

    assert_non_null(got);
    execute(&shape, got);
    for (int r = 0; r < ranks; r++) {
        expect_order(&shape, r, &got[r]);
        if (peak_of(&got[r]) != peaks[r] * each)
            fail_msg("%s: %d micro-batches of a stage are under way on rank %d",
                     trii_pipeline_schedule_name(schedule), peak_of(&got[r]), r);
    }
    free(got);
}

#define EXPECT(schedule, ranks, each, m, ...)                                                      \
    expect(TRI_PIPELINE_##schedule, ranks, each, m, (const double[]){__VA_ARGS__})

static void ranks_run_their_lists(void **state)
{
    (void)state;
    EXPECT(GPIPE, 2, 1, 4, 4, 4);
    EXPECT(1F1B, 2, 1, 4, 2, 1);
    EXPECT(INTERLEAVED, 2, 2, 4, 2.5, 1.5);
    EXPECT(LOOPED_BFS, 2, 2, 4, 4, 4);
    EXPECT(ZERO_BUBBLE, 2, 1, 4, 2, 2);
    EXPECT(ZERO_BUBBLE, 2, 2, 4, 2, 2);
    EXPECT(ZBV, 2, 2, 4, 2, 2);
    EXPECT(1F1B, 4, 1, 8, 4, 3, 2, 1);
    EXPECT(ZERO_BUBBLE, 4, 1, 8, 4, 4, 4, 4);
    EXPECT(INTERLEAVED, 4, 2, 8, 5.5, 4.5, 3.5, 2.5);
    EXPECT(ZERO_BUBBLE, 4, 2, 8, 4, 4, 4, 4);
    EXPECT(ZBV, 4, 2, 8, 4, 4, 4, 4);
}

/* --- memory --------------------------------------------------------------- */

enum { CHANNELS = 4, SIDE = 8, LAYERS = 3 };
#define MESSAGE (2.0 * CHANNELS * SIDE * SIDE * sizeof(float)) /* of two rows */

static trii_mutex looking_mutex = TRII_MUTEX_INITIALIZER;
static double arena[2]; /* bytes, by the rank whose stage it is */

static tri_status look(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, false, &plan);

    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&looking_mutex);
    for (int32_t n = segment->first_node; n < segment->end_node; n++)
        if (step->nodes[n].part != 0)
            arena[trii_part_stage(step->nodes[n].part)] = (double)plan->arena_bytes;
    trii_mutex_unlock(&looking_mutex);
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

static const trii_executor looking = {.name = "looking", .run = look, .release = NULL};

typedef struct memory_job {
    tri_pipeline_options options;
    bool recompute;
} memory_job;

static const char *use_memory(rank_env *env)
{
    const memory_job *job = env->arg;
    tri_pipeline_options options = job->options;
    int rows = 2 * options.n_microbatches;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(rows, CHANNELS, SIDE, SIDE), TRI_DTYPE_F32);
    tri_module *stages[2], *pipe;
    tri_optimizer *opt;
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    options.group = group;
    for (int s = 0; s < 2; s++) {
        const tri_nn_conv2d_options conv = {.padding = 1};

        stages[s] = tri_nn_sequential(tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv), tri_nn_tanh(),
                                      tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv), tri_nn_tanh(),
                                      tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv), tri_nn_tanh());
        tri_module_set_recompute(stages[s], job->recompute);
    }
    pipe = tri_pipeline(stages, 2, &options);
    opt = tri_sgd(pipe, 0.1, NULL);
    (void)tri_pipeline_step(pipe, x, x, pipeline_mse, NULL);
    RANK_TRY(env, tri_optimizer_step(opt));
    RANK_TRY(env, tri_step_end_status());
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

/* Of each rank's plan. */
static void memory_of(tri_pipeline_schedule schedule, int m, bool recompute, double bytes[2])
{
    memory_job job = {{.schedule = schedule, .n_microbatches = m}, recompute};

    trii_executor_set(&looking);
    run_threads(2, &(tri_group_options){.engine = "shm"}, use_memory, &job);
    trii_executor_set(NULL);
    memcpy(bytes, arena, sizeof(arena));
}

/* Neither messages nor what a backward needs may stay until the step ends. */
static void expect_no_more_with_more_microbatches(tri_pipeline_schedule schedule, bool recompute,
                                                  double bytes[2])
{
    double longer[2];

    memory_of(schedule, 8, recompute, bytes);
    memory_of(schedule, 12, recompute, longer);
    for (int r = 0; r < 2; r++)
        if (longer[r] > bytes[r] + MESSAGE / 2)
            fail_msg("%s: rank %d needs %g bytes for 8 micro-batches, %g for 12",
                     trii_pipeline_schedule_name(schedule), r, bytes[r], longer[r]);
}

/* most: of micro-batches that are kept, in which a stage's results and its input count. */
static void expect_kept(tri_pipeline_schedule schedule, const double *most)
{
    double all[2], got[2];

    memory_of(TRI_PIPELINE_GPIPE, 8, false, all);
    expect_no_more_with_more_microbatches(schedule, false, got);
    for (int r = 0; r < 2; r++) {
        double kept = 8 - (all[r] - got[r]) / ((LAYERS + 1) * MESSAGE);

        if (kept > most[r])
            fail_msg("%s: rank %d keeps %g micro-batches", trii_pipeline_schedule_name(schedule), r,
                     kept);
    }
}

/* pytorch/pytorch#136766: where the two halves of a backward recompute, memory grows. What rank 1
 * computes again it computes at once, and keeps from the first half to the second. */
static void expect_less_if_recomputed(void)
{
    double kept[2], again[2];

    memory_of(TRI_PIPELINE_ZERO_BUBBLE, 8, false, kept);
    expect_no_more_with_more_microbatches(TRI_PIPELINE_ZERO_BUBBLE, true, again);
    if (again[0] >= kept[0] || again[1] > kept[1])
        fail_msg("the ranks need %g and %g bytes recomputed, %g and %g else", again[0], again[1],
                 kept[0], kept[1]);
}

/* Beside the micro-batches under way there is what the action that runs needs. Between its two
 * backwards a micro-batch keeps the gradients of its layers' results as well: rank 1 has two such.
 */
static void memory_is_that_of_what_is_under_way(void **state)
{
    const double between = (double)LAYERS / (LAYERS + 1);

    (void)state;
    expect_kept(TRI_PIPELINE_1F1B, (const double[]){2.4, 1.9});
    expect_kept(TRI_PIPELINE_ZERO_BUBBLE, (const double[]){2.4, 2.5 + 2 * between});
    expect_less_if_recomputed();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_run_their_lists),
    cmocka_unit_test(memory_is_that_of_what_is_under_way),
};

TEST_MAIN(tests)
