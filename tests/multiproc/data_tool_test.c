/* data_tool_test.c - `trireme data check` from outside. */
#include "testing/check.h"
#include "testing/picture_files.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

static void run(spawn *s, int status, const char *a, const char *b, const char *c, const char *d)
{
    const char *const argv[] = {spawn_bin("trireme"), "data", a, b, c, d, NULL};

    spawn_start(s, argv, NULL);
    if (spawn_wait(s) != status)
        fail_msg("status %d instead of %d\n%s\n%s", s->status, status, SPAWN_OUT(s), SPAWN_ERR(s));
}

static void broken_files_are_named_and_counted(void **state)
{
    static const char table[] = "  images   broken  class\n"
                                "      20        0  ant\n"
                                "      22        2  b?e\n"
                                "       0        0  none\n";
    char want[1200], first[192];
    unsigned char *cut;
    size_t bytes;
    scratch f;
    spawn s;

    (void)state;
    scratch_begin(&f);
    for (int k = 0; k < 40; k++) {
        char name[64];

        snprintf(name, sizeof(name), "%s/%02d.jpg", k < 20 ? "ant" : "b\ne/in", k);
        image_file_write(&f, name, k, 30, 20, 80);
    }
    CHECK_OK(trii_folder_create(scratch_path(&f, "none")));
    run(&s, 0, "check", f.dir, NULL, NULL);
    assert_non_null(strstr(SPAWN_OUT(&s), "\n40 images, 0 broken, of 3 classes\n"));
    assert_string_equal(SPAWN_ERR(&s), "");
    spawn_free(&s);
    cut = (unsigned char *)scratch_read(scratch_path(&f, "ant/00.jpg"), &bytes);
    scratch_file(&f, "b\ne/cut.jpg", cut, bytes / 2);
    scratch_file(&f, "b\ne/in/99.png", "hello", 5);
    free(cut);
    snprintf(first, sizeof(first), "%s/b?e/cut.jpg: ", f.dir);
    for (int threads = 1; threads <= 4; threads += 3) {
        run(&s, 1, "check", f.dir, "--threads", threads == 1 ? "1" : "4");
        assert_int_equal(strncmp(SPAWN_OUT(&s), first, strlen(first)), 0);
        snprintf(want, sizeof(want), "\n%s/b?e/in/99.png: no image: it begins with", f.dir);
        assert_non_null(strstr(SPAWN_OUT(&s), want));
        assert_non_null(strstr(SPAWN_OUT(&s), table));
        assert_non_null(strstr(SPAWN_OUT(&s), "\n42 images, 2 broken, of 3 classes\n"));
        spawn_free(&s);
    }
    scratch_end(&f);
}

static void lists_are_read_and_mistakes_told(void **state)
{
    char list[200];
    scratch f;
    spawn s;

    (void)state;
    scratch_begin(&f);
    image_file(&f, "one.png", 1, 2, 2);
    snprintf(list, sizeof(list), "--annotations=%s/list.tsv", f.dir);
    scratch_file(&f, "list.tsv", "one.png\tx\n", 10);
    run(&s, 0, "check", f.dir, list, NULL);
    assert_non_null(strstr(SPAWN_OUT(&s),
                           "1 images, 0 broken, of 1 classes: one class only, every label is 0"));
    spawn_free(&s);
    run(&s, 1, "check", f.dir, NULL, NULL);
    assert_non_null(strstr(SPAWN_ERR(&s), "has 1 images of its own, but no class folder"));
    spawn_free(&s);
    run(&s, 2, "chekc", f.dir, NULL, NULL);
    assert_non_null(strstr(SPAWN_ERR(&s), "did you mean check?"));
    spawn_free(&s);
    run(&s, 2, "check", NULL, NULL, NULL);
    assert_non_null(strstr(SPAWN_ERR(&s), "check which folder?"));
    spawn_free(&s);
    run(&s, 2, "check", f.dir, "--threads", "0");
    assert_non_null(strstr(SPAWN_ERR(&s), "--threads 0: must be 1 to 256"));
    spawn_free(&s);
    run(&s, 2, "check", f.dir, "--threads", NULL);
    assert_non_null(strstr(SPAWN_ERR(&s), "--threads needs a value"));
    spawn_free(&s);
    run(&s, 2, "check", f.dir, f.dir, NULL);
    assert_non_null(strstr(SPAWN_ERR(&s), "one folder at a time"));
    spawn_free(&s);
    scratch_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(broken_files_are_named_and_counted),
    cmocka_unit_test(lists_are_read_and_mistakes_told),
};
TEST_MAIN(tests)
