/* ckpt_tool_test.c - `trireme ckpt` from outside: what it shows, verifies and converts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/torch_file.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

/* Good for the next seven calls. */
static const char *golden(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/tests/golden/%s", getenv("TRI_TEST_SOURCE"), name);
    return path;
}

static void run(spawn *s, int status, const char *action, const char *a, const char *b,
                const char *c)
{
    const char *const argv[] = {spawn_bin("trireme"), "ckpt", action, a, b, c, NULL};

    spawn_start(s, argv, NULL);
    if (spawn_wait(s) != status)
        fail_msg("status %d instead of %d\n%s\n%s", s->status, status, SPAWN_OUT(s), SPAWN_ERR(s));
}

/* Runs it and looks for a text in what it prints. */
static void expect(int status, const char *action, const char *a, const char *b, const char *c,
                   const char *text)
{
    spawn s;

    run(&s, status, action, a, b, c);
    if (strstr(SPAWN_OUT(&s), text) == NULL && strstr(SPAWN_ERR(&s), text) == NULL)
        fail_msg("no \"%s\" in:\n%s\n%s", text, SPAWN_OUT(&s), SPAWN_ERR(&s));
    spawn_free(&s);
}

static void files_are_shown(void **state)
{
    (void)state;
    expect(0, "show", golden("torch/state-1.13.pth"), NULL, NULL,
           ": a file of torch.save (ZIP)\n"
           "contents: dict of 2, all 2 tensors\n"
           "tensor  dtype  shape         bytes\n"
           "weight  f32    2x3              24\n"
           "bias    f32    2                 8\n"
           "2 tensors, 32 bytes\n");
    expect(0, "show", golden("torch/state-legacy-1.13.pth"), NULL, NULL,
           ": a file of torch.save, as torch before 1.6 writes it\n");
    expect(0, "show", golden("safetensors/names.safetensors"), NULL, NULL,
           ": a file of safetensors\n"
           "tensor       dtype  shape         bytes\n"
           "größe \"1\"/\\  f32    1                 4\n"
           "1 tensor, 4 bytes\n");
    expect(0, "show", golden("safetensors/types.safetensors"), NULL, NULL,
           "metadata:\n  format: pt\ntensor ");
    expect(0, "show", golden("safetensors/foreign.safetensors"), NULL, NULL,
           "u       U64    1                 8  a type that Trireme has not\n");
    expect(0, "show", golden("checkpoint"), NULL, NULL, "step 3, epoch 1, save 0 of its folder\n");
    expect(1, "show", golden("torch/whole-2.13.pth"), NULL, NULL, "save its state_dict() instead");
    expect(1, "show", golden("nothing.pth"), NULL, NULL, "No such file");
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
        expect(0, "show", golden("torch/everything-2.13.pth"), NULL, NULL, lines[k]);
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

        expect(0, "convert", golden(torch[k]), a, NULL, "18 left out: not below state_dict.");
        assert_same_tensors(a, golden(torch[k]), "state_dict.");
        expect(0, "convert", a, b, NULL, "8 tensors, 344 bytes in ");
        assert_same_tensors(a, b, "");
        expect(0, "convert", b, c, NULL, "8 tensors, 344 bytes in ");
        first = (char *)scratch_read(a, &n);
        second = (char *)scratch_read(c, &m);
        assert_int_equal(n, m);
        assert_memory_equal(first, second, n);
        free(first);
        free(second);
    }
    expect(0, "convert", golden("safetensors/none.safetensors"), b, NULL, "0 tensors, 0 bytes in ");
    expect(0, "convert", b, a, NULL, "0 tensors, 0 bytes in ");
    expect(0, "convert", golden("checkpoint"), b, NULL, "4 tensors, 332 bytes in ");
    assert_same_tensors(golden("checkpoint/step-000000000003/model.safetensors"), b, "");
    expect(0, "convert", golden(torch[0]), a, "--prefix=list.", "1 tensor, 8 bytes in ");
    expect(1, "convert", golden(torch[0]), a, "--all", "tensor types.uint16 is of uint16");
    expect(1, "convert", golden(torch[0]), a, "--prefix=zz", "no tensor's name begins with zz");
    expect(1, "convert", golden(torch[0]), f.dir, "--to=torch", "not a file");
    /* A failure leaves what was there, and nothing else. */
    expect(0, "show", a, NULL, NULL, "1 tensor, 8 bytes");
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
    CHECK_OK(tri_torch_open(golden("torch/everything-2.13.pth"), &file));
    at = tri_torch_find(file, "state_dict.plain")->file_offset;
    tri_torch_close(file);
    bytes = (unsigned char *)scratch_read(golden("torch/everything-2.13.pth"), &n);
    bytes[at + 95] ^= 1;
    scratch_file(&f, "cut.pth", bytes, n - 100);
    scratch_file(&f, "bad.pth", bytes, n);
    free(bytes);
    snprintf(path, sizeof(path), "%s/bad.pth", f.dir);
    snprintf(text, sizeof(text), "offset %" PRIu64 ": the 96 bytes of storage", at);
    expect(0, "verify", golden("torch/everything-2.13.pth"), NULL, NULL, "26 tensors");
    expect(1, "verify", path, NULL, NULL, text);
    expect(1, "verify", path, NULL, NULL, "5 damaged, 0 with NaN or Inf\n");
    snprintf(to, sizeof(to), "%s/to.safetensors", f.dir);
    expect(1, "convert", path, to, NULL, text);
    expect(1, "verify", scratch_path(&f, "cut.pth"), NULL, NULL, "cut.pth: ");
    assert_int_equal(scratch_count(f.dir), 2);
    CHECK_OK(tri_safetensors_write(to, &odd, 1, NULL, 0));
    expect(0, "verify", to, NULL, NULL, "tensor odd?: 1 NaN, 1 Inf\n");
    expect(0, "verify", golden("checkpoint"), NULL, NULL, "step-000000000003: whole, step 3\n");
    expect(1, "verify", f.dir, NULL, NULL, "there is no checkpoint of Trireme in it");
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
                    (const char *const[]){"sh", "-c", script, spawn_bin("trireme"), golden(from[k]),
                                          to, NULL},
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
                                    golden(from[0]),
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
    expect(2, "shwo", "x", NULL, NULL, "did you mean show?");
    expect(2, "show", NULL, NULL, NULL, "which file? PATH is missing");
    expect(2, "show", "x", "y", NULL, "show takes 1 path: what is y?");
    expect(2, "show", "--all", NULL, NULL, "no option named --all");
    expect(2, "convert", "x", NULL, NULL, "TO is missing");
    expect(2, "convert", "x", "y", NULL, "what kind of file is y?");
    expect(2, "convert", "x", "y", "--to=torhc", "did you mean torch?");
    expect(2, "convert", "x", "y", "--to", "--to needs a value");
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
