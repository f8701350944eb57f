/* ckpt_odd_test.c - `trireme ckpt convert` where FROM and TO are odd, names and types change, or
 * something ends it. */
#include <signal.h>
#include <stdio.h>

#include <trireme/torch_file.h>

#include "base/dtype.h"
#include "testing/ckpt_run.h"
#include "testing/scratch.h"

static void what_is_read_is_not_written(void **state)
{
    char from[200], *before, *after;
    size_t n, m;
    scratch s;

    (void)state;
    scratch_begin(&s);
    before = scratch_read(golden_path("torch/state-2.13.pth"), &n);
    snprintf(from, sizeof(from), "%s", scratch_file(&s, "from.pth", before, n));
    assert_int_equal(symlink("from.pth", scratch_path(&s, "soft.pth")), 0);
    assert_int_equal(link(from, scratch_path(&s, "hard.pth")), 0);
    CKPT(1, "from.pth: that is ", "convert", from, from);
    CKPT(1, "which is read: name another file", "convert", from, scratch_path(&s, "soft.pth"));
    CKPT(1, "which is read: name another file", "convert", from, scratch_path(&s, "hard.pth"));
    CKPT(1, "which is read: name another file", "convert", scratch_path(&s, "soft.pth"), from);
    after = scratch_read(from, &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    assert_int_equal(scratch_count(s.dir), 3);
    free(before);
    free(after);
    scratch_end(&s);
}

static void only_files_are_read_and_written(void **state)
{
    const char *from = golden_path("torch/state-2.13.pth"), *name;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    name = scratch_path(&s, "fifo");
    CKPT(1, "a pipe or a device, and it is read at several places", "show", name);
    CKPT(1, "a pipe or a device, and it is read at several places", "verify", name);
    CKPT(1, "a pipe or a device, and it is read at several places", "convert", name,
         scratch_path(&s, "x.pth"));
    CKPT(1, "/dev/null: a pipe or a device", "show", "/dev/null");
    CKPT(1, "not a file, and only files are replaced", "convert", from, name, "--to=torch");
    CKPT(1, "not a file, and only files are replaced", "convert", from, "/dev/null", "--to=torch");
    CKPT(1, "not a file, and only files are replaced", "convert", from, s.dir, "--to=torch");
    CKPT(1, "nowhere/x.pth: No such file", "convert", from, scratch_path(&s, "nowhere/x.pth"));
    CKPT(1, "no empty folder", "convert", from, "/dev/null", "--to=hub");
    /* What is there and a file is replaced. */
    scratch_file(&s, "x.pth", "old", 3);
    CKPT(0, "2 tensors, 32 bytes in ", "convert", from, scratch_path(&s, "x.pth"));
    CKPT(0, "2 tensors, 32 bytes\n", "show", scratch_path(&s, "x.pth"));
    assert_int_equal(scratch_count(s.dir), 2);
    scratch_end(&s);
}

static void floats_are_converted(void **state)
{
    static const float values[] = {1, 1.00390625F, -3.3F, 65520, 0};
    static const int64_t integers[] = {1, -2};
    const tri_safetensors_entry entries[] = {
        {.name = "a.f",
         .dtype = TRI_DTYPE_F32,
         .ndim = 1,
         .shape = {5},
         .data = values,
         .bytes = 20},
        {.name = "a.i",
         .dtype = TRI_DTYPE_I64,
         .ndim = 1,
         .shape = {2},
         .data = integers,
         .bytes = 16},
        {.name = "b.empty", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {0, 3}},
        {.name = "b.scalar", .dtype = TRI_DTYPE_F32, .data = values, .bytes = 4},
    };
    uint16_t got[5];
    tri_torch_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "a.safetensors"), entries, 4, NULL, 0));
    CKPT(0, "4 tensors, 28 bytes in ", "convert", scratch_path(&s, "a.safetensors"),
         scratch_path(&s, "b.pth"), "--dtype=bf16", "--rename=a.=x.y.");
    CHECK_OK(tri_torch_open(scratch_path(&s, "b.pth"), &file));
    assert_int_equal(tri_torch_count(file), 4);
    for (int64_t i = 0; i < 4; i++) {
        const tri_torch_tensor *t = tri_torch_at(file, i);

        if (strcmp(t->name, "x.y.i") == 0) {
            int64_t same[2];

            CHECK_OK(tri_torch_read(file, i, same, sizeof(same)));
            assert_memory_equal(same, integers, sizeof(same));
            continue;
        }
        assert_int_equal(t->dtype, TRI_DTYPE_BF16);
        if (strcmp(t->name, "x.y.f") != 0)
            continue;
        CHECK_OK(tri_torch_read(file, i, got, sizeof(got)));
        for (int k = 0; k < 5; k++)
            assert_int_equal(got[k], trii_f32_to_bf16(values[k]));
    }
    assert_non_null(tri_torch_find(file, "x.y.f"));
    assert_int_equal(tri_torch_find(file, "b.empty")->shape[1], 3);
    assert_int_equal(tri_torch_find(file, "b.scalar")->ndim, 0);
    tri_torch_close(file);
    CKPT(0, "4 tensors, 28 bytes", "convert", scratch_path(&s, "a.safetensors"),
         scratch_path(&s, "c"), "--to=hub", "--dtype=float16");
    CKPT(0, "tensor a.f: 0 NaN, 1 Inf", "verify", scratch_path(&s, "c/model.safetensors"));
    scratch_end(&s);
}

static void names_are_renamed(void **state)
{
    const char *from = golden_path("torch/everything-2.13.pth"), *to;
    scratch s;

    (void)state;
    scratch_begin(&s);
    to = scratch_path(&s, "x.pth");
    CKPT(0, "8 tensors", "convert", from, to, "--rename=pl=PL", "--rename=p=Q");
    CKPT(0, "\nPLain ", "show", to);
    CKPT(1, "tensor x occurs twice", "convert", from, to, "--rename=plain=x", "--rename=tied=x");
    CKPT(2, "it is OLD=NEW", "convert", from, to, "--rename=x");
    CKPT(2, "did you mean bf16?", "convert", from, to, "--dtype=bf61");
    CKPT(0, "\nPLain ", "show", to); /* is as it was */
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

/* A file of zeros that takes no room on the disk. */
static void large_file(const char *path)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[250000000],"
                                 "\"data_offsets\":[0,1000000000]}}  ";
    FILE *file = fopen(path, "wb");
    unsigned char length[8] = {sizeof(header) - 1};

    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, sizeof(header) - 1, file), sizeof(header) - 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, 8 + (off_t)sizeof(header) - 1 + 1000000000), 0);
}

static void signals_leave_nothing(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    static const char *const kinds[] = {"--to=torch", "--to=hub"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    large_file(scratch_path(&s, "from"));
    for (int k = 0; k < 4; k++) {
        const char *const argv[] = {
            spawn_bin("trireme"),   "ckpt",       "convert", scratch_path(&s, "from"),
            scratch_path(&s, "to"), kinds[k / 2], NULL};
        spawn p;

        spawn_start(&p, argv, NULL);
        while (scratch_count(s.dir) < 2) /* it writes */
            spawn_poll(&p, 1);
        spawn_signal(&p, numbers[k % 2]);
        assert_int_equal(spawn_wait(&p), -numbers[k % 2]);
        assert_non_null(strstr(SPAWN_ERR(&p), "trireme ckpt: stopped; "));
        spawn_free(&p);
        assert_int_equal(scratch_count(s.dir), 1);
    }
    scratch_end(&s);
}

static void a_full_disk_leaves_no_folder(void **state)
{
    static const char *const script =
        "trap '' XFSZ; ulimit -f 0; exec \"$0\" ckpt convert \"$1\" \"$2\" --to hub";
    scratch s;
    spawn p;

    (void)state;
    scratch_begin(&s);
    spawn_start(&p,
                (const char *const[]){"sh", "-c", script, spawn_bin("trireme"),
                                      golden_path("torch/state-2.13.pth"), scratch_path(&s, "to"),
                                      NULL},
                NULL);
    assert_int_equal(spawn_wait(&p), 1);
    assert_non_null(strstr(SPAWN_ERR(&p), "File too large"));
    spawn_free(&p);
    assert_int_equal(scratch_count(s.dir), 0);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_read_is_not_written),
    cmocka_unit_test(only_files_are_read_and_written),
    cmocka_unit_test(floats_are_converted),
    cmocka_unit_test(names_are_renamed),
    cmocka_unit_test(signals_leave_nothing),
    cmocka_unit_test(a_full_disk_leaves_no_folder),
};
TEST_MAIN(tests)
