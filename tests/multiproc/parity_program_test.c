/*
 * parity_program_test.c - build/bin/parity with one, two and three workers against what PyTorch
 * made of the same weights and batches (tests/golden/parity_files.py); and the toy example.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define STEPS 10
#define BOUND 1e-12

static const char *golden(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/tests/golden/parity/%s", getenv("TRI_TEST_SOURCE"), name);
    return path;
}

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
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - wanted[i]) <= BOUND))
            fail_msg("%s, element %lld: %.17g instead of %.17g", what, (long long)i, got[i],
                     wanted[i]);
}

static void check_results(const char *wanted_file, const char *losses_path,
                          const char *weights_path)
{
    static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};
    tri_safetensors *ours, *theirs;
    double losses[STEPS];

    CHECK_OK(tri_safetensors_open(weights_path, &ours));
    CHECK_OK(tri_safetensors_open(golden(wanted_file), &theirs));
    assert_int_equal(tri_safetensors_count(ours), 4);
    for (int i = 0; i < 4; i++) {
        const tri_safetensors_entry *a = tri_safetensors_find(ours, names[i]);
        const tri_safetensors_entry *b = tri_safetensors_find(theirs, names[i]);
        double x[256], y[256];

        assert_non_null(a);
        assert_int_equal(a->dtype, TRI_DTYPE_F64);
        assert_int_equal(a->bytes, b->bytes);
        assert_true(a->bytes <= sizeof(x));
        memcpy(x, a->data, a->bytes);
        memcpy(y, b->data, b->bytes);
        check_near(names[i], x, y, (int64_t)(a->bytes / sizeof(double)));
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

/* What to compare with, and how it was made. */
static const char *const with_sgd[] = {"out.safetensors", "--optim=sgd", "--lr=0.1",
                                       "--momentum=0.9", "--weight-decay=1e-3"};
static const char *const with_adamw[] = {"out_adamw.safetensors", "--optim=adamw", "--lr=0.02",
                                         "--clip-norm=0.25", "--weight-decay=0.1"};

static void run_parity(const char *workers, const char *const with[5])
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
                                      "mlp:10,12,5",
                                      "--init",
                                      golden("init.safetensors"),
                                      "--data",
                                      golden("data.safetensors"),
                                      with[1],
                                      with[2],
                                      with[3],
                                      with[4],
                                      "--loss=cross_entropy",
                                      "--steps=10",
                                      "--batch=21",
                                      "--dtype=fp64",
                                      "--losses-out",
                                      losses,
                                      "--out",
                                      out,
                                      NULL},
                NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("parity: %s", SPAWN_ERR(&s));
    check_results(with[0], losses, out);
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static void one_worker_trains_as_torch_does(void **state)
{
    (void)state;
    run_parity("1", with_sgd);
}

static void two_workers_with_uneven_parts_do_the_same(void **state)
{
    (void)state;
    run_parity("2", with_sgd);
}

static void three_workers_do_the_same(void **state)
{
    (void)state;
    run_parity("3", with_sgd);
}

/* AdamW on gradients clipped by their norm: alone, and on uneven parts. */
static void adamw_with_a_clipped_norm_is_torchs(void **state)
{
    (void)state;
    run_parity("1", with_adamw);
    run_parity("2", with_adamw);
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
        cmocka_unit_test(wrong_usage_says_what_is_wrong),
        cmocka_unit_test(the_toy_example_runs_alone_and_with_workers),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
