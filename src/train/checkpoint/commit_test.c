/* commit_test.c - checkpoints on disk: whole or not there, whatever happens to the writer. */
#include <inttypes.h>

#include "base/alloc.h"
#include "train/checkpoint/format.h"
#include "os/clock.h"
#include "testing/scratch.h"

enum { ELEMS = 20000 };

/* All values of checkpoint n are n. */
static tri_status commit(const char *folder, int64_t n, int keep)
{
    static float model[ELEMS];
    static int64_t momentum[ELEMS];
    tri_safetensors_entry a = {.name = "w",
                               .dtype = TRI_DTYPE_F32,
                               .ndim = 1,
                               .shape = {ELEMS},
                               .data = model,
                               .bytes = sizeof(model)};
    tri_safetensors_entry b = {.name = "m",
                               .dtype = TRI_DTYPE_I64,
                               .ndim = 1,
                               .shape = {ELEMS},
                               .data = momentum,
                               .bytes = sizeof(momentum)};
    trii_random_state random = {
        .steps = {.seed = UINT64_MAX - (uint64_t)n, .stream = UINT64_MAX - 1, .step = 2 * n}};
    char text[24];

    trii_mt_seed(&random.generator, (uint64_t)n);
    random.generator.next = (int)(n % 600);
    for (int i = 0; i < ELEMS; i++) {
        model[i] = (float)n;
        momentum[i] = n;
    }
    snprintf(text, sizeof(text), "%" PRId64, n);
    return trii_checkpoint_commit(
        folder,
        &(trii_save){
            .info =
                &(tri_checkpoint_info){
                    .step = n, .epoch = n / 10, .meta = &(tri_metadata){"best", text}, .n_meta = 1},
            .random = &random,
            .parts =
                (const trii_part[]){{"model.safetensors", &a, 1}, {"optimizer.safetensors", &b, 1}},
            .n_parts = 2,
            .keep = keep,
        });
}

/* The newest whole checkpoint's number; all of it is checked. */
static int64_t check_newest(const char *folder)
{
    trii_manifest m;
    trii_mt19937 generator;
    char *dir, *path;
    tri_safetensors *file;
    char text[24];
    int64_t n;

    CHECK_OK(trii_checkpoint_find(folder, &dir, &m));
    n = m.info.step;
    assert_int_equal(m.info.epoch, n / 10);
    assert_int_equal(m.random.steps.step, 2 * n);
    assert_true(m.random.steps.seed == UINT64_MAX - (uint64_t)n);
    assert_true(m.random.steps.stream == UINT64_MAX - 1);
    trii_mt_seed(&generator, (uint64_t)n);
    generator.next = (int)(n % 600);
    assert_memory_equal(&m.random.generator, &generator, sizeof(generator));
    assert_int_equal(m.info.n_meta, 1);
    assert_string_equal(m.info.meta[0].key, "best");
    snprintf(text, sizeof(text), "%" PRId64, n);
    assert_string_equal(m.info.meta[0].value, text);
    path = trii_path_join(dir, "model.safetensors");
    CHECK_OK(tri_safetensors_open(path, &file));
    assert_int_equal(tri_safetensors_at(file, 0)->bytes, ELEMS * sizeof(float));
    for (int i = 0; i < ELEMS; i++) {
        float v;

        memcpy(&v, (const char *)tri_safetensors_at(file, 0)->data + 4 * i, 4);
        assert_true(v == (float)n);
    }
    tri_safetensors_close(file);
    trii_free(path);
    trii_free(dir);
    trii_manifest_fini(&m);
    return n;
}

static void the_newest_few_are_kept(void **state)
{
    long live = trii_alloc_live();
    const char *folder;
    scratch s;

    (void)state;
    scratch_begin(&s);
    folder = scratch_path(&s, "c");
    for (int64_t n = 1; n <= 7; n++) {
        CHECK_OK(commit(folder, n * 100, 3));
        assert_int_equal(check_newest(folder), n * 100);
        assert_int_equal(scratch_count(folder), n < 3 ? n : 3);
    }
    /* The same step again takes the place of the old one. */
    CHECK_OK(commit(folder, 700, 3));
    assert_int_equal(check_newest(folder), 700);
    assert_int_equal(scratch_count(folder), 3);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* A run that starts over in the folder of one that came further. */
static void what_was_just_made_is_kept(void **state)
{
    const char *folder;
    scratch s;

    (void)state;
    scratch_begin(&s);
    folder = scratch_path(&s, "c");
    for (int64_t n = 5; n <= 7; n++)
        CHECK_OK(commit(folder, n * 100, 3));
    CHECK_OK(commit(folder, 10, 3));
    assert_int_equal(scratch_count(folder), 3);
    assert_int_equal(check_newest(scratch_path(&s, "c/step-000000000010")), 10);
    scratch_end(&s);
}

static void nothing_there_is_said(void **state)
{
    trii_manifest m;
    scratch s;
    char *dir;

    (void)state;
    scratch_begin(&s);
    CHECK_FAILS(trii_checkpoint_find(s.dir, &dir, &m), TRI_ERR_NOT_FOUND, "no checkpoint found");
    CHECK_FAILS(trii_checkpoint_find(scratch_path(&s, "no"), &dir, &m), TRI_ERR_NOT_FOUND,
                "no checkpoint found");
    scratch_file(&s, "file", "", 0);
    CHECK_FAILS(commit(scratch_path(&s, "file/c"), 1, 3), TRI_ERR_IO, "file");
    scratch_end(&s);
}

/* Damage to any byte of any file of the newest: the one before is taken. */
static void damaged_ones_are_passed_over(void **state)
{
    static const char *const files[] = {"manifest.json", "model.safetensors",
                                        "optimizer.safetensors"};
    uint64_t random = 3;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 3));
    CHECK_OK(commit(s.dir, 2, 3));
    for (int round = 0; round < (TEST_SANITIZED ? 60 : 300); round++) {
        char name[96];
        size_t n, m, at;
        char *bytes, flip;

        snprintf(name, sizeof(name), "step-000000000002/%s", files[round % 3]);
        bytes = scratch_read(scratch_path(&s, name), &n);
        at = scratch_random(&random) % n;
        flip = (char)(1u << scratch_random(&random) % 8);
        bytes[at] ^= flip;
        m = round % 5 == 0 ? at : n;
        scratch_file(&s, name, bytes, m);
        /* White space at the manifest's end is no damage. */
        if (!(files[round % 3][1] == 'a' && at == n - 1))
            assert_int_equal(check_newest(s.dir), 1);
        bytes[at] ^= flip;
        scratch_file(&s, name, bytes, n);
        assert_int_equal(check_newest(s.dir), 2);
        free(bytes);
    }
    scratch_end(&s);
}

static void missing_parts_are_named(void **state)
{
    trii_manifest m;
    scratch s;
    char *dir;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 5, 3));
    assert_int_equal(unlink(scratch_path(&s, "step-000000000005/model.safetensors")), 0);
    CHECK_FAILS(trii_checkpoint_find(s.dir, &dir, &m), TRI_ERR_FORMAT,
                "step-000000000005/model.safetensors");
    CHECK_FAILS(trii_checkpoint_find(scratch_path(&s, "step-000000000005"), &dir, &m),
                TRI_ERR_FORMAT, "model.safetensors");
    scratch_end(&s);
}

/* kill -9 at a random moment, many times: the last good one is there, whole, and no older than
 * what the writer had reported. */
static void a_killed_writer_leaves_the_last_good_one(void **state)
{
    uint64_t random = 4;
    int64_t last = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int round = 0; round < 40; round++) {
        int report[2];
        int64_t reported = last, n;
        pid_t pid;

        assert_int_equal(pipe(report), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            for (n = last + 1;; n++) {
                if (commit(s.dir, n, 2) != TRI_OK || write(report[1], &n, sizeof(n)) != sizeof(n))
                    _exit(1);
            }
        }
        close(report[1]);
        if (round % 4 != 0) /* some are killed before their first one is done */
            assert_int_equal(read(report[0], &reported, sizeof(reported)), sizeof(reported));
        trii_sleep_until(trii_now_ns() + scratch_random(&random) % 8000000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (read(report[0], &n, sizeof(n)) == sizeof(n))
            reported = n;
        close(report[0]);
        if (reported == 0 && scratch_count(s.dir) <= 1)
            continue; /* nothing was finished yet */
        last = check_newest(s.dir);
        assert_in_range(last, reported, reported + 1);
    }
    CHECK_OK(commit(s.dir, last + 1, 2));
    assert_int_equal(scratch_count(s.dir), 2); /* leftovers of the killed are gone */
    scratch_end(&s);
}

static void a_full_disk_loses_nothing(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 1));
    scratch_limit_files(65536);
    CHECK_FAILS(commit(s.dir, 2, 1), TRI_ERR_IO, "File too large");
    assert_non_null(strstr(tri_last_error(), "step-000000000002"));
    assert_int_equal(check_newest(s.dir), 1);
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    long live = trii_alloc_live();
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(commit(s.dir, 1, 3));
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        trii_manifest m = {0};
        char *dir = NULL;

        trii_alloc_fail_at(n);
        status = commit(s.dir, 2, 3);
        if (status == TRI_OK)
            status = trii_checkpoint_find(s.dir, &dir, &m);
        trii_alloc_fail_at(0);
        trii_free(dir);
        trii_manifest_fini(&m);
        assert_int_equal(trii_alloc_live(), live);
        assert_in_range(check_newest(s.dir), 1, 2);
    }
    CHECK_OK(status);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_newest_few_are_kept),
    cmocka_unit_test(what_was_just_made_is_kept),
    cmocka_unit_test(nothing_there_is_said),
    cmocka_unit_test(damaged_ones_are_passed_over),
    cmocka_unit_test(missing_parts_are_named),
    cmocka_unit_test(a_killed_writer_leaves_the_last_good_one),
    cmocka_unit_test(a_full_disk_loses_nothing),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
