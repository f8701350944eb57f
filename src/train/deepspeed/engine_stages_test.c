/* engine_stages_test.c - DeepSpeed's loop: it learns, counts as DeepSpeed does, and every stage has
 * the same bits. */
#include "testing/engine_ranks.h"

typedef struct job {
    const char *config;
    int micro_steps;
    uint64_t hash[MAX_RANKS];
    double first[MAX_RANKS], last[MAX_RANKS];
    int64_t skipped[MAX_RANKS];
    double norm[MAX_RANKS]; /* of the last update */
} job;

static tri_status run(tri_engine *e, rank *r, void *arg)
{
    job *j = arg;

    for (int step = 0; step < j->micro_steps; step++) {
        double loss = 0;

        TRY(engine_micro_step(e, r, step % 4, &loss));
        if (step == 0)
            j->first[r->index] = loss;
        j->last[r->index] = loss;
    }
    j->skipped[r->index] = tri_engine_skipped_steps(e);
    j->norm[r->index] = tri_engine_global_grad_norm(e);
    return tri_module_hash(tri_engine_module(e), &j->hash[r->index]);
}

static void run_job(job *j, int size)
{
    rank ranks[MAX_RANKS];

    run_engines(ranks, size, j->config, run, j);
    check_ranks(ranks, size);
    for (int r = 1; r < size; r++)
        assert_true(j->hash[r] == j->hash[0]);
}

#define CONFIG(stage, more)                                                                        \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2,"                  \
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.05}},"                           \
    " \"zero_optimization\": {\"stage\": " #stage                                                  \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"

static void the_loss_falls_and_all_stages_have_the_same_bits(void **state)
{
    static const char *const configs[] = {CONFIG(0, ""), CONFIG(1, ""), CONFIG(2, ""),
                                          CONFIG(3, "")};

    (void)state;
    for (int size = 1; size <= 3; size++) {
        job jobs[4];

        for (int stage = 0; stage < 4; stage++) {
            jobs[stage] = (job){.config = configs[stage], .micro_steps = ENGINE_MICRO_STEPS};
            run_job(&jobs[stage], size);
            assert_true(jobs[stage].last[0] < jobs[stage].first[0] * 0.7);
            assert_true(jobs[stage].hash[0] == jobs[0].hash[0]);
        }
    }
}

/* One file of which only the stage is another. */
static void clipping_accumulation_and_precision_change_no_bit(void **state)
{
    static const struct {
        const char *keys;
        bool overflows;
        double most_norm; /* what is clipped is larger */
    } cases[] = {
        {"\"gradient_accumulation_steps\": 1, \"gradient_clipping\": 0", false, 0},
        {"\"gradient_accumulation_steps\": 1, \"gradient_clipping\": 1e-3", false, 1e-3},
        {"\"gradient_accumulation_steps\": 4, \"gradient_clipping\": 1e-3", false, 1e-3},
        {"\"gradient_accumulation_steps\": 3, \"gradient_clipping\": 1e-3,"
         " \"communication_data_type\": \"bf16\"",
         false, 1e-3},
        {"\"gradient_accumulation_steps\": 2, \"gradient_clipping\": 1e-3, \"fp16\": {\"enabled\":"
         " true, \"initial_scale_power\": 24, \"hysteresis\": 1}",
         true, 1e-3},
        {"\"gradient_accumulation_steps\": 2, \"gradient_clipping\": 1e-3, \"bf16\": {\"enabled\":"
         " true}",
         false, 1e-3},
        {"\"gradient_accumulation_steps\": 2, \"optimizer\": {\"type\": \"SGD\", \"params\":"
         " {\"lr\": 0.1, \"momentum\": 0.9}}, \"scheduler\": {\"type\": \"OneCycle\", \"params\":"
         " {\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, \"cycle_first_step_size\": 5}}",
         false, 0},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        job jobs[4];

        for (int stage = 0; stage < 4; stage++) {
            char config[768];
            job *j = &jobs[stage];

            snprintf(config, sizeof(config),
                     "{\"train_micro_batch_size_per_gpu\": 4, %s%s, \"zero_optimization\":"
                     " {\"stage\": %d, \"stage3_param_persistence_threshold\": 0}}",
                     cases[i].keys,
                     strstr(cases[i].keys, "optimizer") != NULL
                         ? ""
                         : ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.05}}",
                     stage);
            *j = (job){.config = config, .micro_steps = ENGINE_MICRO_STEPS};
            run_job(j, 2);
            assert_true(j->hash[0] == jobs[0].hash[0]);
            if (!(j->norm[0] == jobs[0].norm[0] && j->norm[1] == j->norm[0]))
                fail_msg("case %zu, stage %d: norms %.17g, %.17g; %.17g in stage 0; skipped %d", i,
                         stage, j->norm[0], j->norm[1], jobs[0].norm[0], (int)j->skipped[0]);
            assert_true(j->norm[0] > cases[i].most_norm);
            assert_int_equal(j->skipped[0], jobs[0].skipped[0]);
            assert_true(cases[i].overflows == (j->skipped[0] > 0));
            assert_true(j->skipped[0] < ENGINE_MICRO_STEPS / 2);
            for (int r = 0; r < 2; r++)
                assert_true(j->last[r] == jobs[0].last[r]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(clipping_accumulation_and_precision_change_no_bit),
    cmocka_unit_test(the_loss_falls_and_all_stages_have_the_same_bits),
};

TEST_MAIN(tests)
