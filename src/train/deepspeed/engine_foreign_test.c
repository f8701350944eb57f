/* engine_foreign_test.c - engines that go on from what DeepSpeed itself has saved, and what is not
 * there. Golden folders: tests/golden/make_deepspeed_folders.py. */
#define GOLDEN_FOLDER "folders/"
#include "testing/engine_ranks.h"
#include "testing/golden.h"

typedef struct job {
    const char *dir;
    int stage;
    tri_engine_load_checkpoint_options opt;
    const char *tag;
    double rate[MAX_RANKS];
    int64_t steps, micro_steps;
    bool same[MAX_RANKS]; /* as tri_load makes them */
} job;

static tri_module *network(void)
{
    return tri_nn_sequential(tri_nn_linear(3, 5, NULL), tri_nn_batch_norm1d(5, NULL),
                             tri_nn_linear(5, 2, NULL));
}

static tri_status load(tri_engine *e, rank *r, job *j)
{
    tri_module *want = network();
    uint64_t has = 0, wanted = 1;
    tri_status status = tri_engine_load_checkpoint(e, j->dir, j->tag, &j->opt);

    if (status == TRI_OK) {
        status = tri_module_hash(tri_engine_module(e), &has);
        j->rate[r->index] = tri_engine_lr(e);
        if (r->index == 0) {
            j->steps = tri_engine_global_steps(e);
            j->micro_steps = tri_engine_micro_steps(e);
        }
    }
    if (status == TRI_OK)
        status = tri_load(want, j->dir, NULL);
    if (status == TRI_OK)
        status = tri_module_hash(want, &wanted);
    j->same[r->index] = has == wanted;
    tri_module_destroy(want);
    return status;
}

static tri_status run_engine(rank *r)
{
    job *j = (job *)(uintptr_t)r->arg;
    tri_engine *e = NULL;
    char config[512];
    tri_status status;

    snprintf(config, sizeof(config),
             "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,"
             " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"Adam\"},"
             " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.05,"
             " \"warmup_num_steps\": 20}}, \"zero_optimization\": {\"stage\": %d,"
             " \"stage3_param_persistence_threshold\": 0}}",
             j->stage);
    TRY(tri_initialize(NULL, network(),
                       &(tri_initialize_options){.config = config, .group = r->group}, &e));
    status = load(e, r, j);
    tri_step_end();
    tri_engine_destroy(e);
    return status;
}

static void weights_and_counters_are_taken(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        for (int stage = 0; stage <= 3; stage += 3) {
            job j = {.dir = golden_path("deepspeed-run"), .stage = stage, .opt = {0}};
            rank ranks[MAX_RANKS];

            j.opt.no_optimizer_states = true;
            ranks_succeed(ranks, size, run_engine, &j);
            assert_int_equal(j.steps, 3);
            assert_int_equal(j.micro_steps, 6);
            for (int r = 0; r < size; r++) {
                assert_true(j.same[r]);
                /* DeepSpeed's of update 4: log(3) / log(20) of it */
                CHECK_NEAR(j.rate[r], 0.05 * log(3) / log(20), 1e-12);
            }
        }
    }
}

static void weights_alone_leave_the_counters(void **state)
{
    static const char *const names[] = {"deepspeed-run", "deepspeed-stage0",
                                        "deepspeed-stage2-bf16"};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(names); i++) {
        job j = {.dir = golden_path(names[i]), .stage = 2, .opt = {.load_module_only = true}};
        rank ranks[MAX_RANKS];

        ranks_succeed(ranks, 2, run_engine, &j);
        assert_true(j.same[0] && j.same[1]);
        assert_int_equal(j.steps, 0);
        CHECK_NEAR(j.rate[0], 0, 0);
    }
}

/* A program that takes NOT_FOUND as a reason to begin from the start must not hear it of these: its
 * next save would be in their place. */
static void what_cannot_be_gone_on_from_is_said(void **state)
{
    static const struct row {
        const char *latest; /* NULL: the golden folder */
        tri_status status;
        const char *text;
    } rows[] = {
        {NULL, TRI_ERR_UNSUPPORTED, "was saved by DeepSpeed"},
        {"global_step7", TRI_ERR_FORMAT, "global_step7: `latest` names it, but there is"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++) {
        for (int size = 1; size <= 2; size++) {
            rank ranks[MAX_RANKS];
            job j = {.dir = golden_path("deepspeed-run"), .stage = 3};
            scratch s;

            scratch_begin(&s);
            if (rows[i].latest != NULL) {
                scratch_file(&s, "latest", rows[i].latest, strlen(rows[i].latest));
                j.dir = s.dir;
            }
            run_ranks(ranks, size, run_engine, &j);
            for (int r = 0; r < size; r++) {
                assert_int_equal(ranks[r].status, rows[i].status);
                assert_non_null(strstr(ranks[r].line, rows[i].text));
            }
            scratch_end(&s);
        }
    }
}

/* Its name is the caller's: not to find it is an answer. */
static void a_tag_that_is_not_there_is_not_found(void **state)
{
    rank ranks[MAX_RANKS];
    job j = {.dir = golden_path("deepspeed-run"), .tag = "best"};

    (void)state;
    run_ranks(ranks, 2, run_engine, &j);
    for (int r = 0; r < 2; r++)
        assert_int_equal(ranks[r].status, TRI_ERR_NOT_FOUND);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_and_counters_are_taken),
    cmocka_unit_test(weights_alone_leave_the_counters),
    cmocka_unit_test(what_cannot_be_gone_on_from_is_said),
    cmocka_unit_test(a_tag_that_is_not_there_is_not_found),
};

TEST_MAIN(tests)
