/* engine_checkpoint_test.c - engines that stop and go on: the same bits with as many ranks, and any
 * number of ranks; tags, `latest`, what the program adds. */
#include "testing/engine_ranks.h"

#define MICRO 12 /* before and after the save; two make an update */

typedef struct job {
    const char *config, *dir;
    bool save;       /* after MICRO micro-batches */
    bool load;       /* in place of the first MICRO */
    bool break_tags; /* each rank has one of its own */
    uint64_t hash[MAX_RANKS];
    int64_t steps, samples;
    double scale; /* of losses, at the save or after the load */
    char client[16];
} job;

static tri_status run(tri_engine *e, rank *r, void *arg)
{
    const tri_metadata client[] = {{"epoch", "7"}};
    job *j = arg;
    char own[16];

    snprintf(own, sizeof(own), "tag%d", r->index);
    if (j->load)
        TRY(tri_engine_load_checkpoint(e, j->dir, NULL, NULL));
    else
        TRY(engine_micro_steps(e, r, 0, MICRO));
    if (j->save)
        TRY(tri_engine_save_checkpoint(e, j->dir, j->break_tags ? own : NULL, client, 1));
    if (r->index == 0) {
        j->steps = tri_engine_global_steps(e);
        j->samples = tri_engine_global_samples(e);
        j->scale = tri_engine_loss_scale(e);
    }
    if (j->load && r->index == 0)
        snprintf(j->client, sizeof(j->client), "%s", tri_engine_client(e, "epoch"));
    TRY(engine_micro_steps(e, r, MICRO, MICRO));
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
    " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"Adam\"},"                              \
    " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.05,"               \
    " \"warmup_num_steps\": 20, \"count_from\": 1}},"                                              \
    " \"zero_optimization\": {\"stage\": " #stage                                                  \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"
#define F16 ", \"fp16\": {\"enabled\": true, \"loss_scale_window\": 4, \"initial_scale_power\": 4}"

static void an_engine_that_stops_goes_on_bit_for_bit(void **state)
{
    static const char *const configs[] = {CONFIG(0, ""), CONFIG(1, ""),  CONFIG(2, ""),
                                          CONFIG(3, ""), CONFIG(0, F16), CONFIG(2, F16)};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        scratch s;
        job never = {.config = configs[i]}, stops = never, goes_on = never, three = never;

        scratch_begin(&s);
        stops.dir = goes_on.dir = three.dir = s.dir;
        stops.save = true;
        goes_on.load = three.load = true;
        run_job(&never, 2);
        run_job(&stops, 2);
        run_job(&goes_on, 2);
        assert_true(stops.hash[0] == never.hash[0]);
        assert_true(goes_on.hash[0] == never.hash[0]);
        assert_int_equal(goes_on.steps, MICRO / 2);
        assert_string_equal(goes_on.client, "7");
        assert_true(goes_on.scale == stops.scale);
        assert_true(stops.scale == (i < 4 ? 1 : 32)); /* it has grown */
        run_job(&three, 3);
        assert_int_equal(three.steps, MICRO / 2);
        assert_int_equal(three.samples, MICRO * 4 * 2); /* of the two ranks that there were */
        run_job(&three, 1);
        scratch_end(&s);
    }
}

static void latest_names_the_tag(void **state)
{
    scratch s;
    job j = {.config = CONFIG(1, ""), .save = true};
    char path[512], tag[64] = "";
    FILE *file;

    (void)state;
    scratch_begin(&s);
    j.dir = s.dir;
    run_job(&j, 2);
    snprintf(path, sizeof(path), "%s/latest", s.dir);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(tag, sizeof(tag), file));
    fclose(file);
    assert_string_equal(tag, "global_step6");
    scratch_end(&s);
}

static void tags_that_differ_are_an_error_where_that_is_wanted(void **state)
{
    static const char fails[] = CONFIG(0, ", \"checkpoint\": {\"tag_validation\": \"Fail\"}");
    scratch s;
    rank ranks[MAX_RANKS];
    job j = {.config = fails, .save = true, .break_tags = true};

    (void)state;
    scratch_begin(&s);
    j.dir = s.dir;
    run_engines(ranks, 2, j.config, run, &j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[r].line, "tags differ: rank 0 has \"tag0\""));
    }
    j.config = CONFIG(0, ", \"checkpoint\": {\"tag_validation\": \"Ignore\"}");
    run_job(&j, 2);
    scratch_end(&s);
}

static void nothing_to_load_is_not_found_on_all_ranks(void **state)
{
    scratch s;
    rank ranks[MAX_RANKS];
    job j = {.config = CONFIG(2, ""), .load = true};

    (void)state;
    scratch_begin(&s);
    j.dir = s.dir;
    run_engines(ranks, 2, j.config, run, &j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, TRI_ERR_NOT_FOUND);
        assert_non_null(strstr(ranks[r].line, "latest"));
    }
    scratch_end(&s);
}

/* Rank 0 alone writes under stage 0, and the others hear of its failure. */
static void a_failure_to_save_is_that_of_all_ranks(void **state)
{
    rank ranks[MAX_RANKS];
    job j = {.config = CONFIG(0, ""), .save = true, .dir = "/dev/null/checkpoints"};

    (void)state;
    run_engines(ranks, 2, j.config, run, &j);
    for (int r = 0; r < 2; r++) {
        assert_true(ranks[r].status < 0);
        assert_non_null(strstr(ranks[r].line, "/dev/null"));
    }
    assert_non_null(strstr(ranks[1].line, "rank 0: "));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_engine_that_stops_goes_on_bit_for_bit),
    cmocka_unit_test(latest_names_the_tag),
    cmocka_unit_test(tags_that_differ_are_an_error_where_that_is_wanted),
    cmocka_unit_test(nothing_to_load_is_not_found_on_all_ranks),
    cmocka_unit_test(a_failure_to_save_is_that_of_all_ranks),
};

TEST_MAIN(tests)
