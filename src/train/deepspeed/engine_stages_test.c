/* engine_stages_test.c - DeepSpeed's loop: it learns, counts as DeepSpeed does, and every stage has
 * the same bits. */
#include "testing/engine_ranks.h"

typedef struct job {
    const char *config;
    int micro_steps;
    uint64_t hash[MAX_RANKS];
    double first[MAX_RANKS], last[MAX_RANKS];
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_loss_falls_and_all_stages_have_the_same_bits),
};

TEST_MAIN(tests)
