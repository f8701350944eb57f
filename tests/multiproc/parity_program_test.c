/*
 * parity_program_test.c - build/bin/parity with one, two and three workers against what PyTorch
 * made of the same weights and batches (tests/golden/parity_files.py); and the toy example.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#define GOLDEN_FOLDER "parity/"
#include "testing/golden.h"
#include "testing/spawn.h"

#define STEPS 10
#define BOUND 1e-12
/* Biases of keys do not change what attention gives, so their gradients are nothing but rounding,
 * which AdamW divides by its own size (and 1e-8). */
#define KEY_BIAS_BOUND 1e-9

static void read_losses(const char *path, double *losses)
{
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    for (int k = 0; k < STEPS; k++) {
        int step = -1;

        assert_int_equal(fscanf(file, "{\"step\":%d,\"loss\":%lf}\n", &step, &losses[k]), 2);
        assert_int_equal(step, k);
    }
    assert_int_equal(fgetc(file), EOF);
    (void)fclose(file);
}

static void check_near(const char *what, const double *got, const double *wanted, int64_t n)
{
    bool of_keys = strstr(what, "c_attn.bias") != NULL || strstr(what, "in_proj_bias") != NULL;
    double bound = of_keys ? KEY_BIAS_BOUND : BOUND;

    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - wanted[i]) <= bound))
            fail_msg("%s, element %lld: %.17g instead of %.17g", what, (long long)i, got[i],
                     wanted[i]);
}

/* What to compare with, and how it was made. */
typedef struct setup {
    const char *wanted, *model, *init, *data, *batch;
    const char *with[4];
} setup;

#define MLP "mlp:10,12,5", "init.safetensors", "data.safetensors", "--batch=21"
#define VIT "vit:8,4,8,2,2,5", "vit_init.safetensors", "vit_data.safetensors", "--batch=21"
/* Its file has the names of published ones, with masks of attention and the tied head. */
#define GPT "gpt:2,8,2,6,7", "gpt_init.safetensors", "gpt_data.safetensors", "--batch=21"

static const setup mlp_sgd = {
    "out.safetensors", MLP, {"--optim=sgd", "--lr=0.1", "--momentum=0.9", "--weight-decay=1e-3"}};
static const setup mlp_adamw = {
    "out_adamw.safetensors",
    MLP,
    {"--optim=adamw", "--lr=0.02", "--clip-norm=0.25", "--weight-decay=0.1"}};
static const setup gpt_sgd = {
    "gpt_sgd.safetensors", GPT, {"--optim=sgd", "--lr=0.1", "--momentum=0.9", "--weight-decay=0"}};
static const setup vit_sgd = {
    "vit_sgd.safetensors", VIT, {"--optim=sgd", "--lr=0.1", "--momentum=0.9", "--weight-decay=0"}};
static const setup vit_adam = {
    "vit_adam.safetensors",
    VIT,
    {"--optim=adam", "--lr=0.02", "--weight-decay=0", "--clip-norm=0.5"}};
static const setup gpt_adamw = {
    "gpt_adamw.safetensors",
    GPT,
    {"--optim=adamw", "--lr=0.02", "--clip-norm=0.5", "--weight-decay=0.1"}};

static void check_results(const char *wanted_file, const char *losses_path,
                          const char *weights_path)
{
    tri_safetensors *ours, *theirs;
    double losses[STEPS];

    CHECK_OK(tri_safetensors_open(weights_path, &ours));
    CHECK_OK(tri_safetensors_open(golden_path(wanted_file), &theirs));
    assert_int_equal(tri_safetensors_count(ours) + 1, tri_safetensors_count(theirs));
    for (int64_t i = 0; i < tri_safetensors_count(theirs); i++) {
        const tri_safetensors_entry *b = tri_safetensors_at(theirs, i);
        const tri_safetensors_entry *a = tri_safetensors_find(ours, b->name);
        double x[512], y[512];

        if (strcmp(b->name, "losses") == 0)
            continue;
        assert_non_null(a);
        assert_int_equal(a->dtype, TRI_DTYPE_F64);
        assert_int_equal(a->bytes, b->bytes);
        assert_true(a->bytes <= sizeof(x));
        memcpy(x, a->data, a->bytes);
        memcpy(y, b->data, b->bytes);
        check_near(b->name, x, y, (int64_t)(a->bytes / sizeof(double)));
    }
    read_losses(losses_path, losses);
    {
        double wanted[STEPS];

        memcpy(wanted, tri_safetensors_find(theirs, "losses")->data, sizeof(wanted));
        check_near("loss", losses, wanted, STEPS);
    }
    tri_safetensors_close(ours);
    tri_safetensors_close(theirs);
}

/* In single precision only the loss of the first step is compared. */
static void check_first_loss(const char *wanted_file, const char *losses_path)
{
    double losses[STEPS], wanted[STEPS];
    tri_safetensors *theirs;

    CHECK_OK(tri_safetensors_open(golden_path(wanted_file), &theirs));
    memcpy(wanted, tri_safetensors_find(theirs, "losses")->data, sizeof(wanted));
    read_losses(losses_path, losses);
    if (!(fabs(losses[0] - wanted[0]) <= 1e-6))
        fail_msg("loss of step 0: %.9g instead of %.9g", losses[0], wanted[0]);
    tri_safetensors_close(theirs);
}

static void run_parity(const char *workers, const setup *u, const char *dtype)
{
    char folder[256], losses[300], out[300];
    spawn s;

    spawn_make_folder(folder, sizeof(folder));
    snprintf(losses, sizeof(losses), "%s/losses.jsonl", folder);
    snprintf(out, sizeof(out), "%s/out.safetensors", folder);
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"),
                                      "--standalone",
                                      "--nproc-per-node",
                                      workers,
                                      spawn_bin("parity"),
                                      "--model",
                                      u->model,
                                      "--init",
                                      golden_path(u->init),
                                      "--data",
                                      golden_path(u->data),
                                      u->with[0],
                                      u->with[1],
                                      u->with[2],
                                      u->with[3],
                                      "--loss=cross_entropy",
                                      "--steps=10",
                                      u->batch,
                                      dtype,
                                      "--losses-out",
                                      losses,
                                      "--out",
                                      out,
                                      NULL},
                NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("parity: %s", SPAWN_ERR(&s));
    if (strcmp(dtype, "--dtype=fp32") == 0)
        check_first_loss(u->wanted, losses);
    else
        check_results(u->wanted, losses, out);
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static void one_worker_trains_as_torch_does(void **state)
{
    (void)state;
    run_parity("1", &mlp_sgd, "--dtype=fp64");
}

static void two_workers_with_uneven_parts_do_the_same(void **state)
{
    (void)state;
    run_parity("2", &mlp_sgd, "--dtype=fp64");
}

static void three_workers_do_the_same(void **state)
{
    (void)state;
    run_parity("3", &mlp_sgd, "--dtype=fp64");
}

/* AdamW on gradients clipped by their norm: alone, and on uneven parts. */
static void adamw_with_a_clipped_norm_is_torchs(void **state)
{
    (void)state;
    run_parity("1", &mlp_adamw, "--dtype=fp64");
    run_parity("2", &mlp_adamw, "--dtype=fp64");
}

/* From tokens to weights: embeddings, attention, norms, and a head that is the table of tokens. */
static void gpt_trains_as_torchs_does(void **state)
{
    (void)state;
    run_parity("1", &gpt_sgd, "--dtype=fp64");
    run_parity("1", &gpt_adamw, "--dtype=fp64");
}

static void gpt_on_two_and_three_workers_does_the_same(void **state)
{
    (void)state;
    run_parity("2", &gpt_adamw, "--dtype=fp64");
    run_parity("3", &gpt_sgd, "--dtype=fp64");
}

static void a_vision_transformer_trains_as_torchs_does(void **state)
{
    (void)state;
    run_parity("1", &vit_sgd, "--dtype=fp64");
    run_parity("1", &vit_adam, "--dtype=fp64");
    run_parity("3", &vit_sgd, "--dtype=fp64");
    run_parity("2", &vit_adam, "--dtype=fp32");
}

static void gpt_in_single_precision_begins_with_torchs_loss(void **state)
{
    (void)state;
    run_parity("1", &gpt_adamw, "--dtype=fp32");
    run_parity("2", &gpt_adamw, "--dtype=fp32");
}

static void wrong_usage_says_what_is_wrong(void **state)
{
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("parity"), "--model", "cnn", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 2);
    assert_string_equal(SPAWN_ERR(&s), "parity: missing option --init (--help says more)\n");
    spawn_free(&s);
    spawn_start(&s, (const char *const[]){spawn_bin("parity"), "--steps=1.5", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 2);
    assert_string_equal(
        SPAWN_ERR(&s),
        "parity: --steps is a whole number from 1 to 1e9, not 1.5 (--help says more)\n");
    spawn_free(&s);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void the_toy_example_runs_alone_and_with_workers(void **state)
{
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("toy_ddp"), NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    assert_int_equal(count(SPAWN_OUT(&s), ": loss "), 10);
    spawn_free(&s);
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node", "3",
                                      spawn_bin("toy_ddp"), NULL},
                NULL);
    assert_int_equal(spawn_wait(&s), 0);
    assert_int_equal(count(SPAWN_OUT(&s), ": loss "), 30);
    assert_int_equal(count(SPAWN_OUT(&s), "of 3: all replicas are equal"), 3);
    spawn_free(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_trains_as_torch_does),
        cmocka_unit_test(two_workers_with_uneven_parts_do_the_same),
        cmocka_unit_test(three_workers_do_the_same),
        cmocka_unit_test(adamw_with_a_clipped_norm_is_torchs),
        cmocka_unit_test(gpt_trains_as_torchs_does),
        cmocka_unit_test(gpt_on_two_and_three_workers_does_the_same),
        cmocka_unit_test(gpt_in_single_precision_begins_with_torchs_loss),
        cmocka_unit_test(a_vision_transformer_trains_as_torchs_does),
        cmocka_unit_test(wrong_usage_says_what_is_wrong),
        cmocka_unit_test(the_toy_example_runs_alone_and_with_workers),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
