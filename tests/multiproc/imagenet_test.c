/*
 * imagenet_test.c - examples/imagenet.c on a made folder of images: what it prints, that it goes on
 * after whatever ends it, and what it refuses.
 */
/* ctest: start=first timeout=240 */
#include "testing/scratch.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { COMPUTING_MS = 90000 };

/* A network that takes milliseconds for images of 32 x 32. */
#define SMALL                                                                                      \
    "--arch", "vit:32,16,16,1,2,4", "--image-size", "32", "--batch-size", "4", "--threads", "1"

/* FOLDER/images: 4 classes, 8 images of each to learn from and 5 to test. layout: "tiny" or
 * "folders" (val/CLASS/..). */
static const char *make_images(scratch *s, const char *layout)
{
    static char dir[128];
    char script[512], build[512];
    const char *const env[] = {build, NULL};
    spawn make;

    snprintf(dir, sizeof(dir), "%s/images", s->dir);
    snprintf(build, sizeof(build), "TRI_BUILD=%s/..", getenv("TRI_TEST_BIN"));
    snprintf(script, sizeof(script), "%s/scripts/make_tiny_imagenet", getenv("TRI_TEST_SOURCE"));
    spawn_start(&make,
                (const char *const[]){script, "--out", dir, "--layout", layout, "--classes", "4",
                                      "--train", "8", "--val", "5", "--test", "0", NULL},
                env);
    if (spawn_wait(&make) != 0)
        fail_msg("%s%s", SPAWN_OUT(&make), SPAWN_ERR(&make));
    spawn_free(&make);
    return dir;
}

/* imagenet with the arguments, of which the last is NULL, as so many workers. */
static void start(spawn *s, int workers, const char *const *args)
{
    const char *argv[48] = {spawn_bin("imagenet")};
    char number[8];
    int n = 1;

    if (workers > 1) {
        snprintf(number, sizeof(number), "%d", workers);
        argv[0] = spawn_bin("trirun");
        argv[n++] = "--standalone";
        argv[n++] = "--nproc-per-node";
        argv[n++] = number;
        argv[n++] = spawn_bin("imagenet");
    }
    while (*args != NULL) {
        assert_true(n < 47);
        argv[n++] = *args++;
    }
    argv[n] = NULL;
    spawn_start(s, argv, NULL);
    s->deadline_ms = COMPUTING_MS;
}
#define START(s, workers, ...) start(s, workers, (const char *const[]){__VA_ARGS__, NULL})

static void expect_success(spawn *s)
{
    if (spawn_wait(s) != 0)
        fail_msg("status %d\n%s%s", s->status, SPAWN_OUT(s), SPAWN_ERR(s));
    spawn_expect_no_process(s);
}

/* The last line of the text that begins so; released with free. */
static char *last_line(const char *text, const char *begin)
{
    const char *found = NULL;
    char *line;

    for (const char *at = text; at != NULL && *at != '\0';) {
        if (strncmp(at, begin, strlen(begin)) == 0)
            found = at;
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    if (found == NULL)
        fail_msg("no line begins with \"%s\" in:\n%s", begin, text);
    line = strndup(found, strcspn(found, "\n"));
    assert_non_null(line);
    return line;
}

static void expect_same_file(scratch *s, const char *a, const char *b)
{
    size_t n, m;
    char *x = scratch_read(scratch_path(s, a), &n), *y = scratch_read(scratch_path(s, b), &m);

    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* --- what it prints ------------------------------------------------------- */

/* ResNet-18 as in the tutorials, whose lines these are. */
static void two_workers_train_and_print_the_lines(void **state)
{
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    START(&run, 2, "-a", "resnet18", "--epochs=1", "-b", "4", "-p", "3", "--image-size", "32",
          "--dist-backend", "gloo", "--checkpoint-file", scratch_path(&s, "run"), images);
    expect_success(&run);
    trirun_has(SPAWN_OUT(&run), "=> creating model: resnet18\n");
    trirun_has(SPAWN_OUT(&run), "=> no workers have checkpoints, starting from epoch 0\n");
    trirun_has(SPAWN_OUT(&run), "=> start_epoch: 0, best_acc1: 0.000\n");
    trirun_has(SPAWN_OUT(&run), "=> 4 x 2 workers = 8 samples per update\n");
    trirun_has(SPAWN_OUT(&run), "Epoch: [0][0/4]\tTime ");
    trirun_has(SPAWN_OUT(&run), "Epoch: [0][3/4]\tTime ");
    trirun_has(SPAWN_OUT(&run), ")\tAcc@5 100.00 (100.00)\n"); /* there are four classes */
    trirun_has(SPAWN_OUT(&run), "Test: [0/3]\tTime ");
    assert_int_equal(trirun_count(SPAWN_OUT(&run), "\tData "), 2);
    assert_int_equal(trirun_count(SPAWN_OUT(&run), "\n * Acc@1 "), 1);
    trirun_has(SPAWN_OUT(&run), " Acc@5 100.000\n");
    trirun_has(SPAWN_OUT(&run), "=> saved checkpoint for epoch 0 at ");
    trirun_has(SPAWN_OUT(&run), "/run/checkpoints/step-000000000004\n");
    assert_int_equal(scratch_count(scratch_path(&s, "run/checkpoints")), 1);
    spawn_free(&run);
    scratch_end(&s);
}

/* Counts over shares: the accuracy of the same weights does not depend on the number of workers;
 * nor does it matter which of the two layouts val/ has. */
static void evaluation_is_the_same_for_all_workers_and_layouts(void **state)
{
    char *trained, *evaluated;
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    START(&run, 1, SMALL, "--epochs", "2", "--lr", "0.01", "--checkpoint-file",
          scratch_path(&s, "run"), images);
    expect_success(&run);
    trained = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    spawn_free(&run);
    for (int i = 0; i < 4; i++) {
        if (i == 2) {
            spawn_remove_folder(images);
            images = make_images(&s, "folders");
        }
        START(&run, 1 + i % 2, SMALL, "-e", "--resume", scratch_path(&s, "run"), images);
        expect_success(&run);
        assert_null(strstr(SPAWN_OUT(&run), "Epoch: "));
        evaluated = last_line(SPAWN_OUT(&run), " * Acc@1 ");
        assert_string_equal(evaluated, trained);
        free(evaluated);
        spawn_free(&run);
    }
    free(trained);
    scratch_end(&s);
}

/* --- it goes on ----------------------------------------------------------- */

#define THREE_EPOCHS SMALL, "--epochs", "3", "--lr", "0.01"
#define LAST_MODEL "checkpoints/step-000000000012/model.safetensors"
#define IN_EPOCH_1 "@52" /* a call of its group, of some 16 in an epoch */

/* kill -9 for all of the job after its first epoch: the same command goes on, to the same bits. Its
 * workers stop in their second epoch: all would be over if this process saw that too late. */
static void a_killed_job_goes_on_bit_for_bit(void **state)
{
    char *whole, *parts;
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    START(&run, 2, THREE_EPOCHS, "--checkpoint-file", scratch_path(&s, "whole"), images);
    expect_success(&run);
    whole = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    spawn_free(&run);

    setenv("TRI_CHAOS", "stop=" IN_EPOCH_1, 1);
    START(&run, 2, THREE_EPOCHS, "--checkpoint-file", scratch_path(&s, "parts"), images);
    unsetenv("TRI_CHAOS");
    spawn_expect(&run, "=> saved checkpoint for epoch 0");
    spawn_signal(&run, SIGKILL);
    (void)spawn_wait(&run);
    spawn_expect_no_process(&run);
    spawn_free(&run);
    START(&run, 2, THREE_EPOCHS, "--checkpoint-file", scratch_path(&s, "parts"), images);
    expect_success(&run);
    assert_null(strstr(SPAWN_OUT(&run), "no workers have checkpoints"));
    assert_null(strstr(SPAWN_OUT(&run), "=> start_epoch: 0"));
    assert_null(strstr(SPAWN_OUT(&run), "Epoch: [0]"));
    parts = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    assert_string_equal(whole, parts);
    expect_same_file(&s, "whole/" LAST_MODEL, "parts/" LAST_MODEL);
    free(whole);
    free(parts);
    spawn_free(&run);
    scratch_end(&s);
}

/* A worker is killed after the first epoch was saved, and the launcher starts all again: without a
 * flag they go on in the folder that they had. */
static void workers_that_are_replaced_go_on(void **state)
{
    char script[1024];
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    snprintf(script, sizeof(script),
             "cd '%s' && if [ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ]; then export "
             "TRI_CHAOS=kill=" IN_EPOCH_1 "; fi && exec '%s' --arch vit:32,16,16,1,2,4 "
             "--image-size 32 -b 4 --threads 1 --epochs 3 '%s'",
             s.dir, spawn_bin("imagenet"), images);
    spawn_start(&run,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node", "2",
                                      "--max-restarts", "2", "sh", "-c", script, NULL},
                NULL);
    run.deadline_ms = COMPUTING_MS;
    expect_success(&run);
    trirun_has(SPAWN_ERR(&run), "rank 1 was killed by SIGKILL");
    assert_int_equal(scratch_count(scratch_path(&s, "runs")), 1);
    assert_int_equal(trirun_count(SPAWN_OUT(&run), "=> creating model: "), 2);
    assert_int_equal(trirun_count(SPAWN_OUT(&run), "=> start_epoch: 0,"), 1);
    assert_int_equal(trirun_count(SPAWN_OUT(&run), "=> start_epoch: 1,"), 1);
    trirun_has(SPAWN_OUT(&run), "=> saved checkpoint for epoch 2 at ");
    spawn_free(&run);
    scratch_end(&s);
}

/* One worker on each of two nodes, whose checkpoints are on disks of their own: relative paths in
 * the folders `cwds`. Returns what rank 0 printed, released with free. */
static char *run_on_two_nodes(const char *const cwds[2], const char *images, const char *epochs)
{
    char scripts[2][512], ranks[2][24], port[32], *printed;
    spawn nodes[2];

    snprintf(port, sizeof(port), "--master-port=%d", spawn_free_port());
    for (int i = 0; i < 2; i++) {
        snprintf(ranks[i], sizeof(ranks[i]), "--node-rank=%d", i);
        snprintf(scripts[i], sizeof(scripts[i]),
                 "cd '%s' && exec '%s' --arch vit:32,16,16,1,2,4 --image-size 32 -b 4 --lr 0.01 "
                 "--threads 1 --epochs %s --checkpoint-file run '%s'",
                 cwds[i], spawn_bin("imagenet"), epochs, images);
        spawn_start(&nodes[i],
                    (const char *const[]){spawn_bin("trirun"), "--nnodes=2", "--nproc-per-node=1",
                                          "--master-addr=127.0.0.1", port, ranks[i], "sh", "-c",
                                          scripts[i], NULL},
                    NULL);
        nodes[i].deadline_ms = COMPUTING_MS;
    }
    for (int i = 0; i < 2; i++)
        if (spawn_wait(&nodes[i]) != 0)
            fail_msg("node %d: %s%s", i, SPAWN_OUT(&nodes[i]), SPAWN_ERR(&nodes[i]));
    printed = strdup(SPAWN_OUT(&nodes[0]));
    assert_non_null(printed);
    for (int i = 0; i < 2; i++)
        spawn_free(&nodes[i]);
    return printed;
}

/* The node with the checkpoints comes back as the second one: the first has none, and gets the
 * newest from it. */
static void nodes_that_share_no_disk_go_on_from_the_newest(void **state)
{
    char cwds[2][128], *printed;
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    for (int i = 0; i < 2; i++) {
        snprintf(cwds[i], sizeof(cwds[i]), "%s/%d", s.dir, i);
        assert_int_equal(mkdir(cwds[i], 0777), 0);
    }
    printed = run_on_two_nodes((const char *const[]){cwds[0], cwds[1]}, images, "2");
    trirun_has(printed, "=> no workers have checkpoints, starting from epoch 0\n");
    free(printed);
    assert_int_equal(scratch_count(scratch_path(&s, "0/run/checkpoints")), 2);
    printed = run_on_two_nodes((const char *const[]){cwds[1], cwds[0]}, images, "3");
    trirun_has(printed, "=> start_epoch: 2, best_acc1: ");
    assert_null(strstr(printed, "Epoch: [1]"));
    free(printed);
    START(&run, 2, THREE_EPOCHS, "--checkpoint-file", scratch_path(&s, "whole"), images);
    expect_success(&run);
    spawn_free(&run);
    expect_same_file(&s, "whole/" LAST_MODEL, "1/run/" LAST_MODEL);
    scratch_end(&s);
}

/* --- what it begins with -------------------------------------------------- */

#define MODEL "hub/models--timm--resnet18.tv_in1k"

/* Both variables name `folder`, below which nothing else is looked at. */
static void start_pretrained(spawn *s, const char *folder, const char *images)
{
    char hf[300], torch[300];
    const char *const env[] = {hf, torch, "HF_HUB_CACHE", NULL};

    snprintf(hf, sizeof(hf), "HF_HOME=%s", folder);
    snprintf(torch, sizeof(torch), "TORCH_HOME=%s", folder);
    spawn_start(s,
                (const char *const[]){spawn_bin("imagenet"), "--pretrained", "-e", "--classes",
                                      "1000", "--image-size", "32", "--threads", "1", images, NULL},
                env);
    s->deadline_ms = COMPUTING_MS;
}

static void make_folders(scratch *s, const char *path)
{
    char name[128];

    for (const char *slash = path; slash != NULL;) {
        slash = strchr(slash + 1, '/');
        snprintf(name, sizeof(name), "%.*s",
                 (int)(slash != NULL ? slash - path : (long)strlen(path)), path);
        (void)mkdir(scratch_path(s, name), 0777);
    }
}

/* A file of weights, and the same one where Hugging Face and PyTorch keep theirs. */
static void weights_come_from_files_and_caches(void **state)
{
    char *trained, *loaded;
    char weights[192];
    const char *images;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    images = make_images(&s, "tiny");
    START(&run, 1, "--threads", "1", "--image-size", "32", "--epochs", "1", "--lr", "0.01",
          "--classes", "1000", "--checkpoint-file", scratch_path(&s, "run"), images);
    expect_success(&run);
    trained = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    spawn_free(&run);
    snprintf(weights, sizeof(weights), "%s/run/checkpoints/step-000000000001/model.safetensors",
             s.dir);
    START(&run, 1, "--threads", "1", "--image-size", "32", "-e", "--classes", "1000", "--weights",
          weights, images);
    expect_success(&run);
    loaded = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    assert_string_equal(trained, loaded);
    trirun_has(SPAWN_OUT(&run), "=> using pre-trained model 'resnet18'\n");
    free(loaded);
    spawn_free(&run);

    start_pretrained(&run, s.dir, images); /* neither has it */
    assert_int_equal(spawn_wait(&run), 2);
    trirun_has(SPAWN_ERR(&run), "--pretrained: no weights of resnet18: looked for ");
    trirun_has(SPAWN_ERR(&run), "/hub/checkpoints/resnet18*.safetensors (TORCH_HOME) and ");
    trirun_has(SPAWN_ERR(&run), "/" MODEL " (HF_HOME)");
    spawn_free(&run);
    make_folders(&s, "hub/checkpoints");
    scratch_file(&s, "hub/checkpoints/resnet18-f37072fd.pth", "", 0);
    start_pretrained(&run, s.dir, images);
    assert_int_equal(spawn_wait(&run), 2);
    trirun_has(SPAWN_ERR(&run), "resnet18-f37072fd.pth is a pickle of PyTorch; convert it once");
    spawn_free(&run);
    make_folders(&s, MODEL "/refs");
    make_folders(&s, MODEL "/snapshots/12ab");
    scratch_file(&s, MODEL "/refs/main", "12ab", 4);
    assert_int_equal(symlink(weights, scratch_path(&s, MODEL "/snapshots/12ab/model.safetensors")),
                     0);
    start_pretrained(&run, s.dir, images);
    expect_success(&run);
    loaded = last_line(SPAWN_OUT(&run), " * Acc@1 ");
    assert_string_equal(trained, loaded);
    free(loaded);
    free(trained);
    spawn_free(&run);
    scratch_end(&s);
}

/* --- what it refuses ------------------------------------------------------ */

static void wrong_options_are_refused_in_one_line(void **state)
{
    static const struct {
        const char *args[4], *line;
    } cases[] = {
        {{NULL}, "DIR is missing: the folder of the images comes last"},
        {{"a", "b"}, "b: one argument too many"},
        {{"--epochs", "0"}, "--epochs 0: must be a whole number from 1 to"},
        {{"--epochs"}, "--epochs needs a value"},
        {{"-j", "many"}, "--workers many: must be a whole number from 0 to 256"},
        {{"-b=4"}, "unknown option -b=4"},
        {{"--evaluate=1"}, "--evaluate takes no value"},
        {{"--gpu", "0"}, "--gpu: there are no GPUs here: leave it out"},
        {{"--dummy"}, "--dummy: scripts/make_tiny_imagenet "},
        {{"--world-size", "2"}, "--world-size: trirun starts the workers"},
        {{"--rank=0"}, "--rank: trirun starts the workers"},
        {{"--dist-url", "tcp://a:1"}, "--dist-url: trirun starts the workers"},
        {{"--multiprocessing-distributed"}, "--multiprocessing-distributed: trirun starts"},
        {{"--dist-backend", "smoke", "a"}, "--dist-backend smoke: must be gloo, nccl or mpi"},
        {{"--start-epoch", "90", "a"}, "--start-epoch is not below --epochs"},
        {{"--resume", "model_best.pth.tar", "a"},
         "model_best.pth.tar: is a pickle of PyTorch; convert it once: python3 "},
        {{"--weights", "a.pth", "a"}, "--weights a.pth: is a pickle of PyTorch"},
        {{"--image-size", "7"}, "--image-size 7: must be a whole number from 8 to 4096"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const *a = cases[i].args;
        spawn s;

        spawn_start(&s, (const char *const[]){spawn_bin("imagenet"), a[0], a[1], a[2], NULL}, NULL);
        if (spawn_wait(&s) != 2 || strncmp(SPAWN_ERR(&s), "imagenet: ", 10) != 0 ||
            strstr(SPAWN_ERR(&s), cases[i].line) == NULL)
            fail_msg("status %d, \"%s\" instead of: %s", s.status, SPAWN_ERR(&s), cases[i].line);
        assert_ptr_equal(strchr(SPAWN_ERR(&s), '\n'), SPAWN_ERR(&s) + strlen(SPAWN_ERR(&s)) - 1);
        spawn_free(&s);
    }
}

/* Another folder, or one without images, is named with what is missing. */
static void folders_without_images_are_named(void **state)
{
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    START(&run, 1, scratch_path(&s, "nothing"));
    assert_int_equal(spawn_wait(&run), 1);
    trirun_has(SPAWN_ERR(&run), "/nothing/train");
    spawn_free(&run);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_workers_train_and_print_the_lines),
    cmocka_unit_test(evaluation_is_the_same_for_all_workers_and_layouts),
    cmocka_unit_test(a_killed_job_goes_on_bit_for_bit),
    cmocka_unit_test(workers_that_are_replaced_go_on),
    cmocka_unit_test(nodes_that_share_no_disk_go_on_from_the_newest),
    cmocka_unit_test(weights_come_from_files_and_caches),
    cmocka_unit_test(wrong_options_are_refused_in_one_line),
    cmocka_unit_test(folders_without_images_are_named),
};
TEST_MAIN(tests)
