/* ckpt_tool_test.c - `trireme ckpt` from outside: what it shows, verifies and converts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/torch_file.h>

#include "testing/ckpt_run.h"
#include "testing/scratch.h"

static void files_are_shown(void **state)
{
    (void)state;
    CKPT(0,
         ": a file of torch.save (ZIP)\n"
         "contents: dict of 2, all 2 tensors\n"
         "tensor  dtype  shape         bytes\n"
         "weight  f32    2x3              24\n"
         "bias    f32    2                 8\n"
         "2 tensors, 32 bytes\n",
         "show", golden_path("torch/state-1.13.pth"));
    CKPT(0, ": a file of torch.save, as torch before 1.6 writes it\n", "show",
         golden_path("torch/state-legacy-1.13.pth"));
    CKPT(0,
         ": a file of safetensors\n"
         "tensor       dtype  shape         bytes\n"
         "größe \"1\"/\\  f32    1                 4\n"
         "1 tensor, 4 bytes\n",
         "show", golden_path("safetensors/names.safetensors"));
    CKPT(0, "metadata:\n  format: pt\ntensor ", "show",
         golden_path("safetensors/types.safetensors"));
    CKPT(0, "u       U64    1                 8  a type that Trireme has not\n", "show",
         golden_path("safetensors/foreign.safetensors"));
    CKPT(0, "step 3, epoch 1, save 0 of its folder\n", "show", golden_path("checkpoint"));
    CKPT(1, "save its state_dict() instead", "show", golden_path("torch/whole-2.13.pth"));
    CKPT(1, "No such file", "show", golden_path("nothing.pth"));
}

static void what_is_odd_is_named(void **state)
{
    static const char *const lines[] = {
        "  epoch: 3\n",
        "  pair: (1.5, \"x\")\n",
        "  device: torch.device(\"cpu\")\n",
        "  state_dict: dict of 8, all 8 tensors\n",
        "  tied to state_dict.plain\n",
        "  shares its storage with state_dict.plain, not contiguous\n",
        "types.complex64       complex64  3                 24  a type that Trireme has not\n",
    };

    (void)state;
    for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++)
        CKPT(0, lines[k], "show", golden_path("torch/everything-2.13.pth"));
    CKPT(0, "0  sparse: save its to_dense()\n", "show", golden_path("torch/odd-tensors-2.13.pth"));
    CKPT(1, "tensor quantized is of qint8", "convert", golden_path("torch/odd-tensors-2.13.pth"),
         "/dev/null/x.safetensors");
}

static void assert_same_tensors(const char *safetensors, const char *torch, const char *prefix)
{
    tri_safetensors *a = NULL;
    tri_torch_file *b = NULL;

    CHECK_OK(tri_safetensors_open(safetensors, &a));
    CHECK_OK(tri_torch_open(torch, &b));
    for (int64_t i = 0; i < tri_safetensors_count(a); i++) {
        const tri_safetensors_entry *e = tri_safetensors_at(a, i);
        unsigned char bytes[512];
        char name[200];

        snprintf(name, sizeof(name), "%s%s", prefix, e->name);
        for (int64_t k = 0; k < tri_torch_count(b); k++) {
            const tri_torch_tensor *t = tri_torch_at(b, k);

            if (strcmp(t->name, name) != 0)
                continue;
            assert_int_equal(t->dtype, e->dtype);
            assert_int_equal(t->bytes, e->bytes);
            CHECK_OK(tri_torch_read(b, k, bytes, e->bytes));
            assert_memory_equal(bytes, e->data, e->bytes);
            name[0] = '\0';
        }
        assert_string_equal(name, "");
    }
    tri_torch_close(b);
    tri_safetensors_close(a);
}

static void tensors_go_there_and_back(void **state)
{
    static const char *const torch[] = {"torch/everything-2.13.pth",
                                        "torch/everything-legacy-2.13.pth"};
    char a[200], b[200], c[200];
    scratch f;

    (void)state;
    scratch_begin(&f);
    snprintf(a, sizeof(a), "%s/a.safetensors", f.dir);
    snprintf(b, sizeof(b), "%s/b.pth", f.dir);
    snprintf(c, sizeof(c), "%s/c.safetensors", f.dir);
    for (int k = 0; k < 2; k++) {
        char *first, *second;
        size_t n, m;

        CKPT(0, "18 left out: not below state_dict.", "convert", golden_path(torch[k]), a);
        assert_same_tensors(a, golden_path(torch[k]), "state_dict.");
        CKPT(0, "8 tensors, 344 bytes in ", "convert", a, b);
        assert_same_tensors(a, b, "");
        CKPT(0, "8 tensors, 344 bytes in ", "convert", b, c);
        first = (char *)scratch_read(a, &n);
        second = (char *)scratch_read(c, &m);
        assert_int_equal(n, m);
        assert_memory_equal(first, second, n);
        free(first);
        free(second);
    }
    CKPT(0, "0 tensors, 0 bytes in ", "convert", golden_path("safetensors/none.safetensors"), b);
    CKPT(0, "0 tensors, 0 bytes in ", "convert", b, a);
    CKPT(0, "4 tensors, 332 bytes in ", "convert", golden_path("checkpoint"), b);
    assert_same_tensors(golden_path("checkpoint/step-000000000003/model.safetensors"), b, "");
    CKPT(0, "1 tensor, 8 bytes in ", "convert", golden_path(torch[0]), a, "--prefix=list.");
    CKPT(1, "tensor types.uint16 is of uint16", "convert", golden_path(torch[0]), a, "--all");
    CKPT(1, "no tensor's name begins with zz", "convert", golden_path(torch[0]), a, "--prefix=zz");
    /* as Lightning writes it: below "state_dict", where tri_load finds the prefix, too */
    CKPT(0, "2 tensors, 32 bytes in ", "convert", golden_path("torch/lightning-2.13.pth"), a,
         "--prefix=model.");
    assert_same_tensors(a, golden_path("torch/lightning-2.13.pth"), "state_dict.model.");
    CKPT(0, "1 tensor, 8 bytes in ", "convert", golden_path(torch[0]), a, "--prefix=list.");
    CKPT(1, "not a file", "convert", golden_path(torch[0]), f.dir, "--to=torch");
    /* A failure leaves what was there, and nothing else. */
    CKPT(0, "1 tensor, 8 bytes", "show", a);
    assert_int_equal(scratch_count(f.dir), 3);
    scratch_end(&f);
}

static void damage_is_found(void **state)
{
    char path[200], to[200];
    const unsigned char infinite[] = {0, 0, 0x80, 0x7f, 1, 0, 0x80, 0xff};
    const tri_safetensors_entry odd = {.name = "odd\n",
                                       .dtype = TRI_DTYPE_F32,
                                       .ndim = 1,
                                       .shape = {2},
                                       .data = infinite,
                                       .bytes = sizeof(infinite)};
    unsigned char *bytes;
    tri_torch_file *file;
    char text[64];
    uint64_t at;
    scratch f;
    size_t n;

    (void)state;
    scratch_begin(&f);
    CHECK_OK(tri_torch_open(golden_path("torch/everything-2.13.pth"), &file));
    at = tri_torch_find(file, "state_dict.plain")->file_offset;
    tri_torch_close(file);
    bytes = (unsigned char *)scratch_read(golden_path("torch/everything-2.13.pth"), &n);
    bytes[at + 95] ^= 1;
    scratch_file(&f, "cut.pth", bytes, n - 100);
    scratch_file(&f, "bad.pth", bytes, n);
    free(bytes);
    snprintf(path, sizeof(path), "%s/bad.pth", f.dir);
    snprintf(text, sizeof(text), "offset %" PRIu64 ": the 96 bytes of storage", at);
    CKPT(0, "26 tensors", "verify", golden_path("torch/everything-2.13.pth"));
    CKPT(1, text, "verify", path);
    CKPT(1, "5 damaged, 0 with NaN or Inf\n", "verify", path);
    snprintf(to, sizeof(to), "%s/to.safetensors", f.dir);
    CKPT(1, text, "convert", path, to);
    CKPT(1, "cut.pth: ", "verify", scratch_path(&f, "cut.pth"));
    assert_int_equal(scratch_count(f.dir), 2);
    CHECK_OK(tri_safetensors_write(to, &odd, 1, NULL, 0));
    CKPT(0, "tensor odd?: 1 NaN, 1 Inf\n", "verify", to);
    CKPT(0, "step-000000000003: whole, step 3\n", "verify", golden_path("checkpoint"));
    CKPT(1, "a folder without weights", "verify", f.dir);
    scratch_end(&f);
}

static void a_disk_that_is_full_leaves_nothing(void **state)
{
    /* ThreadSanitizer writes a file before main, where the tool cannot ignore the signal yet. */
    static const char *const script =
        TEST_TSAN ? "trap '' XFSZ; ulimit -f 0; exec \"$0\" ckpt convert \"$1\" \"$2\""
                  : "ulimit -f 0; exec \"$0\" ckpt convert \"$1\" \"$2\"";
    const char *const from[] = {"torch/state-2.13.pth", "safetensors/types.safetensors"};
    char to[200];
    scratch f;
    spawn s;

    (void)state;
    scratch_begin(&f);
    for (int k = 0; k < 2; k++) {
        snprintf(to, sizeof(to), "%s/%s", f.dir, k == 0 ? "x.safetensors" : "x.pth");
        spawn_start(&s,
                    (const char *const[]){"sh", "-c", script, spawn_bin("trireme"),
                                          golden_path(from[k]), to, NULL},
                    NULL);
        assert_int_equal(spawn_wait(&s), 1);
        assert_non_null(strstr(SPAWN_ERR(&s), "File too large"));
        spawn_free(&s);
        assert_int_equal(scratch_count(f.dir), 0);
    }
    for (int k = 0; k < 2; k++) {
        const char *const argv[] = {"sh",
                                    "-c",
                                    k == 0 ? "exec \"$0\" ckpt show \"$1\" >/dev/full"
                                           : "exec \"$0\" ckpt show \"$1\" >&-",
                                    spawn_bin("trireme"),
                                    golden_path(from[0]),
                                    NULL};

        spawn_start(&s, argv, NULL);
        assert_int_equal(spawn_wait(&s), 1);
        assert_non_null(strstr(SPAWN_ERR(&s), "trireme ckpt: cannot write to stdout"));
        spawn_free(&s);
    }
    scratch_end(&f);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    CKPT(2, "did you mean show?", "shwo", "x");
    CKPT(2, "which file? PATH is missing", "show");
    CKPT(2, "show takes 1 path: what is y?", "show", "x", "y");
    CKPT(2, "no option named --all", "show", "--all");
    CKPT(2, "TO is missing", "convert", "x");
    CKPT(2, "what kind of file is y?", "convert", "x", "y");
    CKPT(2, "did you mean torch?", "convert", "x", "y", "--to=torhc");
    CKPT(2, "--to needs a value", "convert", "x", "y", "--to");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(files_are_shown),
    cmocka_unit_test(what_is_odd_is_named),
    cmocka_unit_test(tensors_go_there_and_back),
    cmocka_unit_test(damage_is_found),
    cmocka_unit_test(a_disk_that_is_full_leaves_nothing),
    cmocka_unit_test(mistakes_are_told),
};
TEST_MAIN(tests)
