/* deepspeed_example_test.c - examples/deepspeed.c with two workers: it learns, says what DeepSpeed
 * says, writes what the monitors are asked for, and goes on with three. */
/* ctest: timeout=120 */
#include "testing/scratch.h"
#include "testing/trirun_job.h"

static void run(trirun_job *j, const char *workers, const char *config, const char *save,
                const char *epochs)
{
    TRIRUN_START(j, "--standalone", "--nproc-per-node", workers, spawn_bin("deepspeed"),
                 "--deepspeed_config", config, "--limit", "512", "--save", save, "--epochs",
                 epochs);
    if (spawn_wait(&j->run) != 0)
        fail_msg("deepspeed: %s", SPAWN_ERR(&j->run));
}

static void two_workers_train_by_a_file_and_three_go_on(void **state)
{
    char text[1024];
    const char *config, *save;
    char *csv;
    size_t bytes;
    scratch s;
    trirun_job j;

    (void)state;
    scratch_begin(&s);
    snprintf(text, sizeof(text),
             "{\"train_micro_batch_size_per_gpu\": 16, \"steps_per_print\": 8, // a line\n"
             "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.003}},\n"
             "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 4}},\n"
             "\"csv_monitor\": {\"enabled\": true, \"output_path\": \"%s\", \"job_name\": \"j\"},\n"
             "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 100}}",
             s.dir);
    config = scratch_file(&s, "ds_config.json", text, strlen(text));
    save = scratch_path(&s, "saved");
    run(&j, "2", config, save, "2");
    trirun_has(SPAWN_OUT(&j.run), "epoch 2: loss ");
    trirun_has(SPAWN_OUT(&j.run), "test accuracy 0.");
    trirun_has(SPAWN_ERR(&j.run), "gradient_clipping is not given: gradients are clipped to a norm "
                                  "of 1.0");
    trirun_has(SPAWN_ERR(&j.run), "WarmupLR: the first 2 updates have a learning rate of 0");
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run), "step=8, skipped=0, lr=[0.003], "
                                                     "mom=[(0.9, 0.999)]\n"),
                     1);
    trirun_has(SPAWN_ERR(&j.run), "micro_step=32/global_step=32, RunningAvgSamplesPerSec=");
    trirun_end(&j, 0);
    csv = scratch_read(scratch_path(&s, "j/Train_Samples_lr.csv"), &bytes);
    if (strncmp(csv, "step,lr\n32,0\n64,", 16) != 0)
        fail_msg("%s", csv);
    free(csv);
    csv = scratch_read(scratch_path(&s, "saved/latest"), &bytes);
    assert_string_equal(csv, "global_step32");
    free(csv);
    run(&j, "3", config, save, "3");
    assert_null(strstr(SPAWN_OUT(&j.run), "epoch 2:"));
    trirun_has(SPAWN_OUT(&j.run), "epoch 3: loss ");
    trirun_end(&j, 0);
    scratch_file(&s, "saved/latest", "lost", 4); /* what cannot be read is not begun again */
    TRIRUN_START(&j, "--standalone", "--nproc-per-node", "2", spawn_bin("deepspeed"),
                 "--deepspeed_config", config, "--limit", "512", "--save", save);
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "saved/lost: `latest` names it");
    trirun_end(&j, 1);
    csv = scratch_read(scratch_path(&s, "saved/latest"), &bytes);
    assert_string_equal(csv, "lost");
    free(csv);
    scratch_end(&s);
}

static void get_started(trirun_job *j, const char *save, const char *steps)
{
    char config[512];

    snprintf(config, sizeof(config), "%s/examples/deepspeed_getting_started.json",
             getenv("TRI_TEST_SOURCE"));
    TRIRUN_START(j, "--standalone", "--nproc-per-node", "2", spawn_bin("deepspeed_getting_started"),
                 "--deepspeed_config", config, "--save_dir", save, "--steps", steps);
    if (spawn_wait(&j->run) != 0)
        fail_msg("deepspeed_getting_started: %s", SPAWN_ERR(&j->run));
}

static void the_lines_of_getting_started_go_on_where_they_were(void **state)
{
    double first = 0, last = 0;
    const char *save;
    scratch s;
    trirun_job j;

    (void)state;
    scratch_begin(&s);
    save = scratch_path(&s, "saved");
    get_started(&j, save, "20");
    assert_int_equal(sscanf(SPAWN_OUT(&j.run), "step 10: loss %lf", &first), 1);
    trirun_has(SPAWN_OUT(&j.run), "step 20: loss ");
    trirun_end(&j, 0);
    get_started(&j, save, "120");
    assert_int_equal(strncmp(SPAWN_OUT(&j.run), "step 30: loss ", 14), 0);
    assert_int_equal(sscanf(strstr(SPAWN_OUT(&j.run), "step 120"), "step 120: loss %lf", &last), 1);
    assert_true(last < first / 4);
    trirun_end(&j, 0);
    scratch_end(&s);
}

static void a_mistake_in_the_file_is_named(void **state)
{
    static const char text[] = "{\n\"train_batch_size\": 7,\n\"optimizer\": {\"type\": \"Adam\"}}";
    const char *config;
    scratch s;
    trirun_job j;

    (void)state;
    scratch_begin(&s);
    config = scratch_file(&s, "ds_config.json", text, strlen(text));
    TRIRUN_START(&j, "--standalone", "--nproc-per-node", "2", spawn_bin("deepspeed"),
                 "--deepspeed_config", config);
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "ds_config.json:2: train_batch_size is ");
    trirun_has(SPAWN_ERR(&j.run), "but 7 is not ? * ? * 2; this would fit: 6 = 3 * 1 * 2");
    trirun_end(&j, 1);
    scratch_end(&s);
}

/* DeepSpeed's warning: "cycle_momentum is disabled because optimizer SGD does not support momentum,
 * no betas attribute in defaults". */
static void a_cycle_of_no_momentum_is_named(void **state)
{
    static const char *const rows[] = {"SGD", "Adam"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *config;
        char text[512];
        scratch s;
        trirun_job j;

        scratch_begin(&s);
        snprintf(
            text, sizeof(text),
            "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": "
            "0.01}}, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.01, "
            "\"cycle_max_lr\": 0.1}}}",
            rows[i]);
        config = scratch_file(&s, "ds_config.json", text, strlen(text));
        TRIRUN_START(&j, "--standalone", "--nproc-per-node", "2", spawn_bin("deepspeed"),
                     "--deepspeed_config", config, "--limit", "16", "--epochs", "1");
        assert_int_equal(spawn_wait(&j.run), 0);
        assert_int_equal(trirun_count(SPAWN_ERR(&j.run), "OneCycle: the optimizer has no betas"),
                         i == 0);
        trirun_end(&j, 0);
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_workers_train_by_a_file_and_three_go_on),
    cmocka_unit_test(the_lines_of_getting_started_go_on_where_they_were),
    cmocka_unit_test(a_mistake_in_the_file_is_named),
    cmocka_unit_test(a_cycle_of_no_momentum_is_named),
};

TEST_MAIN(tests)
