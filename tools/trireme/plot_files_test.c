/* plot_files_test.c - `trireme plot` of one run in the files of every kind: the same picture. */
#include <trireme/records.h>

#include "os/folder.h"
#include "train/records/event_encode.h"
#include "train/records/event_file.h"
#include "testing/plot_calls.h"
#include "testing/scratch.h"

#define MARK "\xef\xbb\xbf" /* of UTF-8, which programs for Windows begin files with */

static const double losses[] = {2, 1.5, 1.25, 1.125}; /* exact in f32 */

static void write_json(const char *path)
{
    tri_metrics *metrics;

    CHECK_OK(tri_metrics_open(path, -1, &metrics));
    for (int i = 0; i < 4; i++)
        CHECK_OK(tri_metrics_log(metrics, {"step", i}, {"loss", losses[i]}));
    CHECK_OK(tri_metrics_log(metrics, {"step", 3}, {"val_loss", 1.75}));
    tri_metrics_close(metrics);
}

static void write_csv(const char *path)
{
    tri_csv *csv;

    CHECK_OK(tri_csv_open(path, -1, &csv));
    for (int i = 0; i < 4; i++)
        CHECK_OK(tri_csv_write(csv, (const tri_metric[]){{"step", i}, {"loss", losses[i]}}, 2));
    CHECK_OK(tri_csv_write(csv, (const tri_metric[]){{"step", 3}, {"val_loss", 1.75}}, 2));
    tri_csv_close(csv);
}

/* Killed after step 2, and resumed after step 1: the points of steps 2 are void. */
static void write_events(const char *folder)
{
    tri_tensorboard *board;

    CHECK_OK(tri_tensorboard_open(folder, NULL, &board));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 0, losses[0]));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 1, losses[1]));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 2, 77));
    CHECK_OK(tri_tensorboard_scalar(board, "val_loss", 2, 77));
    CHECK_OK(tri_tensorboard_text(board, "loss", 2, "a text"));
    CHECK_OK(tri_tensorboard_close(board));
    CHECK_OK(tri_tensorboard_open(folder, &(tri_tensorboard_open_options){.keep_steps = TRI_SET(1)},
                                  &board));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 2, losses[2]));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 3, losses[3]));
    CHECK_OK(tri_tensorboard_scalar(board, "val_loss", 3, 1.75));
    CHECK_OK(tri_tensorboard_close(board));
}

static void check_same(const char *file, const char *svg, const char *wanted)
{
    char *have, *want;
    size_t n;

    if (plot(file, "-o", svg, NULL) != 0)
        fail_msg("%s", said);
    assert_string_equal(said, "");
    have = scratch_read(svg, &n);
    want = scratch_read(wanted, &n);
    assert_string_equal(have, want);
    free(have);
    free(want);
}

/* As spreadsheets and other languages write it: with a mark at the beginning, whole numbers beyond
 * 64 bits. */
static void texts_of_other_programs_are_read(void **state)
{
    const char json[] = MARK "{\"step\":0,\"loss\":2,\"id\":123456789012345678901234567890}\r\n"
                             "{\"step\":1,\"loss\":1}\r\n";
    const char csv[] = MARK "step,loss\r\n0,2\r\n1,1\r\n";
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "plain.csv", csv + 3, sizeof(csv) - 4);
    scratch_file(&s, "m.csv", csv, sizeof(csv) - 1);
    scratch_file(&s, "m.jsonl", json, sizeof(json) - 1);
    assert_int_equal(plot(scratch_path(&s, "plain.csv"), "-o", scratch_path(&s, "1.svg"), NULL), 0);
    check_same(scratch_path(&s, "m.csv"), scratch_path(&s, "2.svg"), scratch_path(&s, "1.svg"));
    check_same(scratch_path(&s, "m.jsonl"), scratch_path(&s, "3.svg"), scratch_path(&s, "1.svg"));
    scratch_end(&s);
}

/* Nothing is about loss or accuracy: which keys there are, in one line that no terminal obeys. */
static void keys_that_are_there_are_named(void **state)
{
    tri_tensorboard *board;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "board"), NULL, &board));
    CHECK_OK(tri_tensorboard_scalar(board, "reward\n\x1b[31m", 0, 1));
    CHECK_OK(tri_tensorboard_scalar(board, "speed", 0, 1));
    CHECK_OK(tri_tensorboard_close(board));
    assert_int_equal(plot(scratch_path(&s, "board"), "-o", scratch_path(&s, "1.svg"), NULL), 1);
    assert_non_null(strstr(said,
                           "no key is about loss or accuracy, so --keys must name some; there "
                           "are reward??[31m, speed\n"));
    assert_int_equal(
        plot(scratch_path(&s, "board"), "-o", scratch_path(&s, "1.svg"), "--keys", "x\n", NULL), 1);
    assert_non_null(strstr(said, "no key x?; there are reward??[31m, speed\n"));
    scratch_end(&s);
}

/* The curves of a picture, without texts; release with free. */
static char *curves_of(const char *svg)
{
    const char *mark = "stroke-width:2;";
    size_t n;
    char *text = scratch_read(svg, &n), *to = text;

    for (char *at = text; (at = strstr(at, mark)) != NULL;) {
        size_t length = strcspn(at, "\n");

        memmove(to, at, length);
        to += length;
        at += length;
    }
    *to = '\0';
    return text;
}

/* As they are in a list of keys: the longest one counts. */
static void keys_may_have_the_characters_of_a_list(void **state)
{
    static const char odd[] = "{\"step\": 1, \"f1, macro\": 2, \"a+b\": 5, \"a\": 7, \"b\": 8}\n"
                              "{\"step\": 2, \"f1, macro\": 3, \"a+b\": 4, \"a\": 9, \"b\": 6}\n";
    static const char even[] = "{\"step\": 1, \"f1\": 2, \"ab\": 5, \"a\": 7, \"b\": 8}\n"
                               "{\"step\": 2, \"f1\": 3, \"ab\": 4, \"a\": 9, \"b\": 6}\n";
    static const char *const lists[][2] = {{"f1, macro", "f1"},
                                           {"a+b,f1, macro+a", "ab,f1+a"},
                                           {"b+a,a+b+b", "b+a,ab+b"},
                                           {"f1, macro+a+b,b", "f1+ab,b"}};
    char *curves[2];
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "odd.jsonl", odd, sizeof(odd) - 1);
    scratch_file(&s, "even.jsonl", even, sizeof(even) - 1);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            assert_int_equal(plot(scratch_path(&s, k == 0 ? "odd.jsonl" : "even.jsonl"), "-o",
                                  scratch_path(&s, "keys.svg"), "--keys", lists[i][k], NULL),
                             0);
            curves[k] = curves_of(scratch_path(&s, "keys.svg"));
        }
        assert_true(strlen(curves[0]) > 100);
        assert_string_equal(curves[0], curves[1]);
        free(curves[0]);
        free(curves[1]);
    }
    assert_int_equal(plot(scratch_path(&s, "odd.jsonl"), "-o", scratch_path(&s, "1.svg"), "--keys",
                          "a+bb", NULL),
                     1);
    assert_non_null(strstr(said, "no key bb; there are"));
    scratch_end(&s);
}

static void one_run_is_one_picture_whatever_its_file(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    write_json(scratch_path(&s, "m.jsonl"));
    write_csv(scratch_path(&s, "m.CSV"));
    write_events(scratch_path(&s, "board"));
    assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", scratch_path(&s, "1.svg"), NULL), 0);
    check_same(scratch_path(&s, "m.CSV"), scratch_path(&s, "2.svg"), scratch_path(&s, "1.svg"));
    check_same(scratch_path(&s, "board"), scratch_path(&s, "3.svg"), scratch_path(&s, "1.svg"));
    scratch_end(&s);
}

static void event_files_are_known_by_name_or_contents(void **state)
{
    char path[400], **names;
    char *data;
    size_t bytes;
    scratch s;
    int n;

    (void)state;
    scratch_begin(&s);
    write_events(scratch_path(&s, "board"));
    CHECK_OK(trii_folder_list(scratch_path(&s, "board"), 10, &names, &n));
    assert_int_equal(n, 2);
    snprintf(path, sizeof(path), "%s/%s", scratch_path(&s, "board"), names[0]);
    trii_folder_free_names(names, n);
    data = scratch_read(path, &bytes);
    scratch_file(&s, "copy", data, bytes);
    scratch_file(&s, "cut.tfevents", data, 5);
    scratch_file(&s, "cut", data, bytes - 5);
    free(data);
    assert_int_equal(plot(path, "-o", scratch_path(&s, "1.svg"), NULL), 0);
    check_same(scratch_path(&s, "copy"), scratch_path(&s, "2.svg"), scratch_path(&s, "1.svg"));
    assert_int_equal(plot(scratch_path(&s, "cut"), "-o", scratch_path(&s, "1.svg"), NULL), 0);
    assert_int_equal(plot(scratch_path(&s, "cut.tfevents"), "-o", scratch_path(&s, "1.svg"), NULL),
                     1);
    assert_non_null(strstr(said, "nothing to draw"));
    scratch_end(&s);
}

/* As tf.summary.scalar of TensorFlow 2 writes a number. */
static void tensors_of_one_number_are_scalars(void **state)
{
    static const trii_event_file_options options = {.max_waiting = 1 << 20};
    trii_event_file *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_event_file_open(scratch_path(&s, "e"), &options, &file));
    for (int i = 0; i < 4; i++) {
        const float value = (float)losses[i];
        trii_proto record = {0};
        size_t summary, one, tensor;

        trii_proto_double(&record, 1, 1);
        trii_proto_int(&record, 2, i);
        summary = trii_proto_begin(&record, 5);
        one = trii_proto_begin(&record, 1);
        trii_proto_text(&record, 1, "loss");
        tensor = trii_proto_begin(&record, 8);
        trii_proto_int(&record, 1, 1);
        trii_proto_bytes(&record, 4, &value, sizeof(value));
        trii_proto_end(&record, tensor);
        trii_proto_end(&record, one);
        trii_proto_end(&record, summary);
        CHECK_OK(trii_proto_status(&record));
        CHECK_OK(trii_event_file_put(file, record.data, record.used));
        trii_proto_fini(&record);
    }
    CHECK_OK(trii_event_file_close(file));
    write_json(scratch_path(&s, "m.jsonl"));
    assert_int_equal(
        plot(scratch_path(&s, "m.jsonl"), "-o", scratch_path(&s, "1.svg"), "--keys", "loss", NULL),
        0);
    check_same(scratch_path(&s, "e"), scratch_path(&s, "2.svg"), scratch_path(&s, "1.svg"));
    scratch_end(&s);
}

static void damaged_files_are_named_with_the_place(void **state)
{
    char path[400], out[200], **names, *data;
    size_t bytes;
    scratch s;
    int n;

    (void)state;
    scratch_begin(&s);
    snprintf(out, sizeof(out), "%s", scratch_path(&s, "o.svg"));
    write_events(scratch_path(&s, "board"));
    CHECK_OK(trii_folder_list(scratch_path(&s, "board"), 10, &names, &n));
    snprintf(path, sizeof(path), "%s/%s", scratch_path(&s, "board"), names[1]);
    trii_folder_free_names(names, n);
    data = scratch_read(path, &bytes);
    data[60] ^= 1;
    scratch_file(&s, path + strlen(s.dir) + 1, data, bytes);
    free(data);
    assert_int_equal(plot(scratch_path(&s, "board"), "-o", out, NULL), 1);
    assert_non_null(strstr(said, path));
    assert_non_null(strstr(said, ", byte 40: a record is damaged"));
    scratch_file(&s, "m.csv", "step,loss\n1,2,3\n", 16);
    assert_int_equal(plot(scratch_path(&s, "m.csv"), "-o", out, NULL), 1);
    assert_non_null(strstr(said, "m.csv, line 2: more cells than the 2 names"));
    scratch_file(&s, "m.csv", "step,loss\n1,2\n\"3\n4,5\n", 21);
    assert_int_equal(plot(scratch_path(&s, "m.csv"), "-o", out, NULL), 1);
    assert_non_null(strstr(said, "m.csv, line 3: "));
    scratch_file(&s, "m.csv", "", 0);
    assert_int_equal(plot(scratch_path(&s, "m.csv"), "-o", out, NULL), 1);
    assert_non_null(strstr(said, "nothing to draw"));
    assert_int_equal(mkdir(scratch_path(&s, "empty"), 0700), 0);
    assert_int_equal(plot(scratch_path(&s, "empty"), "-o", out, NULL), 1);
    assert_non_null(strstr(said, "empty: no event file (*tfevents*)"));
    scratch_end(&s);
}

static void event_files_have_steps_only(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    write_events(scratch_path(&s, "board"));
    assert_int_equal(
        plot(scratch_path(&s, "board"), "-o", scratch_path(&s, "1.svg"), "--x", "epoch", NULL), 1);
    assert_non_null(strstr(said, "--x epoch: event files have values over steps only"));
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_run_is_one_picture_whatever_its_file),
    cmocka_unit_test(texts_of_other_programs_are_read),
    cmocka_unit_test(keys_that_are_there_are_named),
    cmocka_unit_test(keys_may_have_the_characters_of_a_list),
    cmocka_unit_test(event_files_are_known_by_name_or_contents),
    cmocka_unit_test(tensors_of_one_number_are_scalars),
    cmocka_unit_test(damaged_files_are_named_with_the_place),
    cmocka_unit_test(event_files_have_steps_only),
};
TEST_MAIN(tests)
