/*
 * classy_test.c - examples/classy_train.c: the tutorials' container line with the template of
 * Classy Vision, its schedules, and files with mistakes.
 */
/* ctest: timeout=150 */
#include <math.h>

#include "testing/scratch.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { COMPUTING_MS = 90000, CONFIG_BYTES = 8192 };

/* A file of examples/, with a change in it. */
static void read_config(const char *name, char text[CONFIG_BYTES])
{
    char path[512], *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/examples/%s", getenv("TRI_TEST_SOURCE"), name);
    file = scratch_read(path, &n);
    assert_true(n < CONFIG_BYTES);
    memcpy(text, file, n + 1);
    free(file);
}

/* The first `from` in the text becomes `to`. */
static void change(char text[CONFIG_BYTES], const char *from, const char *to)
{
    char *at = strstr(text, from);
    size_t old = strlen(from), new = strlen(to);

    if (at == NULL)
        fail_msg("there is no %s in the file", from);
    assert_true(strlen(text) + new < CONFIG_BYTES);
    memmove(at + new, at + old, strlen(at + old) + 1);
    memcpy(at, to, new);
}

static const char *write_config(scratch *s, const char *text)
{
    return scratch_file(s, "config.json", text, strlen(text));
}

/* classy_train.py --device=cpu --config_file configs/template_config.json, as two workers. The two
 * classes differ in colour, which even my_model learns. */
static void the_template_trains(void **state)
{
    char text[CONFIG_BYTES];
    const char *out, *config;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "out");
    read_config("classy_template.json", text);
    config = write_config(&s, text);
    for (int i = 0; i < 2; i++) { /* the second goes on: nothing is left to do */
        spawn_start(&run,
                    (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc_per_node=2",
                                          spawn_bin("classy_train"), "--device=cpu",
                                          "--config_file", config, "--checkpoint_folder", out,
                                          NULL},
                    NULL);
        run.deadline_ms = COMPUTING_MS;
        if (spawn_wait(&run) != 0)
            fail_msg("%s%s", SPAWN_OUT(&run), SPAWN_ERR(&run));
        spawn_expect_no_process(&run);
        assert_int_equal(trirun_count(SPAWN_OUT(&run), "train phase: 0, train loss: "), 1 - i);
        if (i == 0) {
            trirun_has(SPAWN_OUT(&run), ", LR rate: 0.1\nMeters: {'name': 'accuracy', 'value': ");
            trirun_has(SPAWN_OUT(&run), "test phase: 1, test loss: ");
            trirun_has(SPAWN_OUT(&run), ", LR rate: 0.01\n");
            trirun_has(SPAWN_OUT(&run), "Meters: {'name': 'accuracy', 'value': {'top_1': 1}}\n");
        }
        trirun_has(SPAWN_OUT(&run), "Training successful!\n");
        spawn_free(&run);
    }
    scratch_end(&s);
}

/* What the file of Fashion-MNIST says of the rate, at each update: a rise over a tenth, then half a
 * cosine, as fvcore's CompositeParamScheduler has them. */
static void a_schedule_has_the_values_of_classy_vision(void **state)
{
    static const double expected[10] = {0.01,
                                        0.1,
                                        0.09698463103929542,
                                        0.08830222215594891,
                                        0.075,
                                        0.058682408883346526,
                                        0.04131759111665349,
                                        0.025,
                                        0.011697777844051105,
                                        0.0030153689607045806};
    char text[CONFIG_BYTES], *metrics;
    const char *line;
    scratch s;
    spawn run;
    size_t n;

    (void)state;
    scratch_begin(&s);
    read_config("classy_fashion.json", text);
    change(text, "\"num_epochs\": 3", "\"num_epochs\": 1");
    change(text, "\"batchsize_per_replica\": 64",
           "\"batchsize_per_replica\": 64, \"num_samples\": 640");
    change(text, "\"batchsize_per_replica\": 500",
           "\"batchsize_per_replica\": 100, \"num_samples\": 100");
    spawn_start(&run,
                (const char *const[]){spawn_bin("classy_train"), "--config", write_config(&s, text),
                                      "--log_freq", "1", "--checkpoint_folder",
                                      scratch_path(&s, "out"), NULL},
                NULL);
    run.deadline_ms = COMPUTING_MS;
    if (spawn_wait(&run) != 0)
        fail_msg("%s%s", SPAWN_OUT(&run), SPAWN_ERR(&run));
    spawn_free(&run);
    metrics = scratch_read(scratch_path(&s, "out/metrics.jsonl"), &n);
    line = metrics;
    for (int i = 0; i < 10; i++) {
        line = strstr(line, "\"lr\":");
        assert_non_null(line);
        assert_true(fabs(strtod(line + 5, NULL) - expected[i]) < 1e-9);
        line += 5;
    }
    free(metrics);
    scratch_end(&s);
}

static void mistakes_in_the_file_are_named(void **state)
{
    static const struct {
        const char *from, *to, *line;
    } cases[] = {
        {"\"num_epochs\"", "\"num_epoch\"",
         "config.json: num_epoch: no such key: did you mean num_epochs?"},
        {"\"num_epochs\": 2", "\"num_epochs\": 0", "num_epochs: must be a number from 1 to "},
        {"\"num_epochs\": 2", "\"num_epochs\": 1.5", "num_epochs: must be a whole number"},
        {"\"num_epochs\": 2,", "", "num_epochs: is missing"},
        {"classification_task", "segmentation", ".name \"segmentation\": is not known here"},
        {"my_loss", "CrossEntropyLos", "(did you mean CrossEntropyLoss?)"},
        {"batchsize_per_replica", "batchsize_per_replca",
         "dataset.train.batchsize_per_replca: no such key: did you mean batchsize_per_replica?"},
        {"\"batchsize_per_replica\": 32", "\"batchsize_per_replica\": 0",
         "dataset.train.batchsize_per_replica: must be a number from 1 to"},
        {"my_dataset", "clasy_imagenet",
         "dataset.train.name \"clasy_imagenet\": is not known here (did you mean "
         "classy_imagenet?)"},
        {"\"use_shuffle\": true", "\"use_shuffle\": 1",
         "dataset.train.use_shuffle: must be true or false"},
        {"\"test\": {", "\"tset\": {", "dataset.tset: no such key: did you mean test?"},
        {"RandomResizedCrop", "RandomResizeCrop", "(did you mean RandomResizedCrop?)"},
        {", \"size\": 224", "", "transforms[0].transforms[0].size: is missing"},
        {"\"std\": [0.229, 0.224, 0.225]", "\"std\": [1]",
         "std: must have as many numbers as mean"},
        {"\"topk\": [1]", "\"topk\": []", "meters.accuracy.topk: must be a list of 1 to 4 entries"},
        {"\"accuracy\"", "\"recall\"", "meters.recall: no such key"},
        {"my_model", "resnet19", "model.name: tri_model_resnet: depth 19: must be 18, 34"},
        {"\"sgd\"", "\"sdg\"", "optimizer.name \"sdg\": is not known here (did you mean sgd?)"},
        {"\"momentum\": 0.9", "\"momentum\": 2",
         "optimizer.momentum: must be a number from 0 to 1"},
        {"\"name\": \"step\"", "\"name\": \"stop\"",
         "optimizer.param_schedulers.lr.name \"stop\": is not known here (did you mean step?)"},
        {"[0.1, 0.01]", "[-1]", "values: must be numbers, none below 0"},
        {"\"name\": \"step\"", "\"name\": \"linear\", \"start_value\": 1",
         "param_schedulers.lr.end_value: is missing"},
        {"\"name\": \"step\"",
         "\"name\": \"composite\", \"lengths\": [0.5], \"schedulers\": [{\"name\": \"constant\", "
         "\"value\": 1}]",
         "lengths: must add up to 1, not to 0.5"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[CONFIG_BYTES];
        scratch s;
        spawn run;

        scratch_begin(&s);
        read_config("classy_template.json", text);
        change(text, cases[i].from, cases[i].to);
        spawn_start(&run,
                    (const char *const[]){spawn_bin("classy_train"), "--config_file",
                                          write_config(&s, text), "--checkpoint_folder",
                                          scratch_path(&s, "out"), NULL},
                    NULL);
        if (spawn_wait(&run) != 2 || strstr(SPAWN_ERR(&run), cases[i].line) == NULL)
            fail_msg("%s: status %d, \"%s\" instead of: %s", cases[i].to, run.status,
                     SPAWN_ERR(&run), cases[i].line);
        assert_ptr_equal(strchr(SPAWN_ERR(&run), '\n'),
                         SPAWN_ERR(&run) + strlen(SPAWN_ERR(&run)) - 1); /* one line */
        spawn_free(&run);
        scratch_end(&s);
    }
}

static void what_is_no_json_is_refused_by_its_line(void **state)
{
    static const char *const texts[] = {"{\"name\": 1,\n", "{\"a\": 1,\n \"a\": 2}", "[1]", ""};
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 4; i++) {
        spawn_start(&run,
                    (const char *const[]){spawn_bin("classy_train"), "--config_file",
                                          scratch_file(&s, "c.json", texts[i], strlen(texts[i])),
                                          NULL},
                    NULL);
        assert_int_equal(spawn_wait(&run), 2);
        trirun_has(SPAWN_ERR(&run), "/c.json: ");
        spawn_free(&run);
    }
    spawn_start(&run, (const char *const[]){spawn_bin("classy_train"), NULL}, NULL);
    assert_int_equal(spawn_wait(&run), 2);
    trirun_has(SPAWN_ERR(&run), "--config_file is missing");
    spawn_free(&run);
    spawn_start(&run,
                (const char *const[]){spawn_bin("classy_train"), "--device", "gpu", "--config_file",
                                      "a", NULL},
                NULL);
    assert_int_equal(spawn_wait(&run), 2);
    trirun_has(SPAWN_ERR(&run), "--device: there is only cpu here");
    spawn_free(&run);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_template_trains),
    cmocka_unit_test(a_schedule_has_the_values_of_classy_vision),
    cmocka_unit_test(mistakes_in_the_file_are_named),
    cmocka_unit_test(what_is_no_json_is_refused_by_its_line),
};
TEST_MAIN(tests)
