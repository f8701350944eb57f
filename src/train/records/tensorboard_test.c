/* tensorboard_test.c - boards: files of a folder, and what they hold. tests/peers/ reads them with
 * TensorBoard itself. */
#include <math.h>

#include <trireme/records.h>
#include <trireme/tensor.h>

#include "base/alloc.h"
#include "train/image/pixels.h"
#include "os/folder.h"
#include "os/thread.h"
#include "train/records/event_read.h"
#include "testing/scratch.h"

/* The event files of a folder in the order of their names; n_out of them. */
static char **list_files(const char *folder, int *n_out)
{
    char **names;

    CHECK_OK(trii_folder_list(folder, 100, &names, n_out));
    return names;
}

/* The contents of the only file in a folder; release with free. */
static uint8_t *only_file(const char *folder, size_t *bytes_out)
{
    char path[512], **names;
    uint8_t *data;
    int n;

    names = list_files(folder, &n);
    assert_int_equal(n, 1);
    snprintf(path, sizeof(path), "%s/%s", folder, names[0]);
    trii_folder_free_names(names, n);
    data = (uint8_t *)scratch_read(path, bytes_out);
    return data;
}

typedef struct point {
    int64_t step;
    char tag[64];
    bool is_scalar;
    double value;
} point;

/* All values of the only file; starts_out: the step of its START, -1 without. */
static int read_points(const char *folder, point *points, int room, int64_t *start_out)
{
    size_t bytes;
    uint8_t *data = only_file(folder, &bytes);
    trii_event_reader reader = {.path = folder, .data = data, .bytes = bytes};
    trii_event event;
    int n = 0, versions = 0;

    *start_out = -1;
    while (trii_event_read(&reader, &event) == TRI_OK) {
        trii_event_value value;

        assert_true(event.wall_time > 1.7e9);
        if (event.is_start)
            *start_out = event.step;
        versions += event.summary == NULL && !event.is_start;
        while (trii_event_value_next(&reader, &event, &value) == TRI_OK) {
            assert_true(n < room && value.tag_bytes < sizeof(points->tag));
            points[n] = (point){event.step, "", value.is_scalar, value.value};
            memcpy(points[n].tag, value.tag, value.tag_bytes);
            n++;
        }
    }
    assert_int_equal(reader.at, bytes);
    assert_int_equal(versions, 1);
    free(data);
    return n;
}

static void scalars_are_points_of_curves(void **state)
{
    static const double values[] = {0.5, NAN, INFINITY, -INFINITY, 0, 1e300, 1e-320, -4194304};
    long live = trii_alloc_live();
    tri_tensorboard *board;
    point points[16];
    int64_t start;
    scratch s;
    int n;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "a/b"), NULL, &board));
    for (int i = 0; i < 8; i++)
        CHECK_OK(tri_tensorboard_scalar(board, "Verlust/\xc3\xbc", (int64_t)i << 22, values[i]));
    CHECK_OK(tri_tensorboard_scalar(board, "x", -1, 2));
    CHECK_OK(tri_tensorboard_scalar(board, "x", INT64_MAX, 2));
    CHECK_OK(tri_tensorboard_close(board));
    CHECK_OK(tri_tensorboard_close(NULL));
    n = read_points(scratch_path(&s, "a/b"), points, 16, &start);
    assert_int_equal(n, 10);
    assert_int_equal(start, -1);
    for (int i = 0; i < 8; i++) {
        float wanted = (float)values[i];

        assert_int_equal(points[i].step, (int64_t)i << 22);
        assert_string_equal(points[i].tag, "Verlust/\xc3\xbc");
        assert_true(points[i].is_scalar);
        assert_true(isnan(wanted) ? isnan(points[i].value) : points[i].value == (double)wanted);
    }
    assert_true(points[8].step == -1 && points[9].step == INT64_MAX);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* A viewer reads files by name, so that of a run that goes on has to be the last, whatever clocks
 * say; what it replaces is void from its first step on. */
static void a_resumed_run_begins_a_later_file(void **state)
{
    char **names, future[] = "events.out.tfevents.4102444800.other.1.0";
    tri_tensorboard *board;
    const char *folder;
    point points[4];
    int64_t start;
    scratch s;
    int n;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 12; i++) {
        const tri_tensorboard_open_options options = {.keep_steps = TRI_SET(i)};

        CHECK_OK(tri_tensorboard_open(scratch_path(&s, "same"), &options, &board));
        CHECK_OK(tri_tensorboard_close(board));
        names = list_files(scratch_path(&s, "same"), &n);
        assert_int_equal(n, i + 1);
        for (int k = 0; k < n; k++) { /* numbers at their ends count upwards: none came before */
            char end[8];

            snprintf(end, sizeof(end), ".%d", k);
            assert_string_equal(strrchr(names[k], '.'), end);
        }
        trii_folder_free_names(names, n);
    }
    folder = scratch_path(&s, "runs");
    assert_int_equal(mkdir(folder, 0700), 0);
    scratch_file(&s, "runs/events.out.tfevents.4102444800.other.1.0", "", 0);
    CHECK_OK(tri_tensorboard_open(folder, &(tri_tensorboard_open_options){.keep_steps = TRI_SET(3)},
                                  &board));
    CHECK_OK(tri_tensorboard_scalar(board, "loss", 4, 1));
    CHECK_OK(tri_tensorboard_close(board));
    names = list_files(folder, &n);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], future);
    assert_memory_equal(names[1], "events.out.tfevents.4102444801.", 31);
    trii_folder_free_names(names, n);
    assert_int_equal(unlink(scratch_path(&s, "runs/events.out.tfevents.4102444800.other.1.0")), 0);
    assert_int_equal(read_points(folder, points, 4, &start), 1);
    assert_int_equal(start, 4);
    scratch_end(&s);
}

static bool holds(const uint8_t *data, size_t bytes, const char *text, size_t n)
{
    for (size_t at = 0; at + n <= bytes; at++) {
        if (memcmp(data + at, text, n) == 0)
            return true;
    }
    return false;
}

static void text_and_histograms_name_their_plugins(void **state)
{
    const float values[] = {-1, 0, 2, NAN};
    tri_tensorboard *board;
    point points[4];
    int64_t start;
    uint8_t *data;
    size_t bytes;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "r"), NULL, &board));
    CHECK_OK(tri_tensorboard_text(board, "note", 1, "**bold** \xe2\x82\xac"));
    CHECK_OK(tri_tensorboard_text(board, "empty", 1, ""));
    CHECK_OK(tri_tensorboard_histogram(board, "weights", 2, values, 4, TRI_DTYPE_F32));
    CHECK_OK(tri_tensorboard_histogram(board, "none", 2, NULL, 0, TRI_DTYPE_F32));
    CHECK_OK(tri_tensorboard_close(board));
    assert_int_equal(read_points(scratch_path(&s, "r"), points, 4, &start), 4);
    assert_string_equal(points[0].tag, "note/text_summary");
    assert_string_equal(points[2].tag, "weights");
    for (int i = 0; i < 4; i++)
        assert_false(points[i].is_scalar);
    data = only_file(scratch_path(&s, "r"), &bytes);
    assert_true(holds(data, bytes, "\x42\x0c**bold** \xe2\x82\xac", 14)); /* string_val */
    assert_true(holds(data, bytes, "\x4a\x0a\x0a\x08\x0a\x04text\x12\x00", 12));
    free(data);
    scratch_end(&s);
}

static void images_are_png_files(void **state)
{
    static const uint8_t planes[3 * 2 * 2] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint8_t last[3 * 2 * 2] = {1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12};
    static const struct {
        int64_t shape[3];
        int ndim;
        const char *layout;
        const uint8_t *pixels;
        int channels;
    } cases[] = {{{3, 2, 2}, 3, "CHW", planes, 3},
                 {{3, 2, 2}, 3, NULL, planes, 3},
                 {{2, 2, 3}, 3, "HWC", last, 3},
                 {{1, 2, 2}, 3, "CHW", planes, 1},
                 {{2, 2}, 2, "HW", planes, 1}};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        trii_image image = {0};
        tri_tensorboard *board;
        char name[16];
        uint8_t *data;
        size_t bytes, at = 0;

        snprintf(name, sizeof(name), "r%zu", i);
        CHECK_OK(tri_tensorboard_open(scratch_path(&s, name), NULL, &board));
        CHECK_OK(tri_tensorboard_image(board, "x", 1, cases[i].pixels, cases[i].shape,
                                       cases[i].ndim, cases[i].layout));
        CHECK_OK(tri_tensorboard_close(board));
        data = only_file(scratch_path(&s, name), &bytes);
        while (at + 4 < bytes && memcmp(data + at, "\x89PNG", 4) != 0)
            at++;
        assert_true(at > 8 && at + 4 < bytes);
        assert_memory_equal(data + at - 8, "\x08\x02\x10\x02\x18", 5); /* 2 x 2 */
        assert_int_equal(data[at - 3], cases[i].channels);
        CHECK_OK(trii_image_decode(data + at, bytes - 4 - at, NULL, cases[i].channels, &image));
        assert_memory_equal(image.pixels, cases[i].channels == 3 ? last : planes,
                            (size_t)(4 * cases[i].channels));
        trii_free(image.pixels);
        free(data);
    }
    scratch_end(&s);
}

static void hparams_are_a_run_of_their_own(void **state)
{
    const tri_hparam hparams[] = {{"lr", 0.1, NULL}, {"optimizer", 0, "sgd"}};
    const tri_metric metrics[] = {{"accuracy", 0.75}};
    tri_tensorboard *board;
    point points[8];
    int64_t start;
    uint8_t *data;
    size_t bytes;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "r"), NULL, &board));
    CHECK_OK(tri_tensorboard_hparams(board, "try", hparams, 2, metrics, 1));
    CHECK_OK(tri_tensorboard_hparams(board, NULL, NULL, 0, NULL, 0));
    CHECK_OK(tri_tensorboard_close(board));
    assert_int_equal(read_points(scratch_path(&s, "r/try"), points, 8, &start), 4);
    assert_int_equal(start, 0);
    assert_string_equal(points[0].tag, "_hparams_/experiment");
    assert_string_equal(points[1].tag, "_hparams_/session_start_info");
    assert_string_equal(points[2].tag, "_hparams_/session_end_info");
    assert_string_equal(points[3].tag, "accuracy");
    assert_true(points[3].value == 0.75);
    assert_int_equal(read_points(scratch_path(&s, "r/hparams"), points, 8, &start), 3);
    data = only_file(scratch_path(&s, "r/try"), &bytes);
    assert_true(holds(data, bytes, "\x0a\x12\x0a\x09optimizer\x12\x05\x1a\x03sgd", 20));
    free(data);
    scratch_end(&s);
}

static void arguments_that_cannot_be_are_named(void **state)
{
    static const uint8_t pixels[16];
    const tri_hparam bad_text = {"x", 0, "\xff"}, bad_name = {"", 0, NULL};
    const tri_metric bad_key = {"\xc3", 0};
    tri_tensorboard *board = NULL;
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "r");
    CHECK_FAILS(tri_tensorboard_open(NULL, NULL, &board), TRI_ERR_INVALID_ARG, "folder is NULL");
    CHECK_FAILS(tri_tensorboard_open("", NULL, &board), TRI_ERR_INVALID_ARG, "folder is empty");
    CHECK_FAILS(tri_tensorboard_open(path, NULL, NULL), TRI_ERR_INVALID_ARG, "board_out");
    CHECK_FAILS(tri_tensorboard_open(
                    path, &(tri_tensorboard_open_options){.flush_seconds = TRI_SET(-1)}, &board),
                TRI_ERR_INVALID_ARG, "flush_seconds -1");
    CHECK_FAILS(tri_tensorboard_open(
                    path, &(tri_tensorboard_open_options){.keep_steps = TRI_SET(1.5)}, &board),
                TRI_ERR_INVALID_ARG, "keep_steps is 1.5");
    CHECK_FAILS(
        tri_tensorboard_open(path, &(tri_tensorboard_open_options){.reserved = {1}}, &board),
        TRI_ERR_INVALID_ARG, "reserved");
    CHECK_OK(tri_tensorboard_open(path, NULL, &board));
    CHECK_FAILS(tri_tensorboard_scalar(NULL, "x", 0, 0), TRI_ERR_INVALID_ARG, "board is NULL");
    CHECK_FAILS(tri_tensorboard_scalar(board, NULL, 0, 0), TRI_ERR_INVALID_ARG, "tag is NULL");
    CHECK_FAILS(tri_tensorboard_scalar(board, "", 0, 0), TRI_ERR_INVALID_ARG, "tag is empty");
    CHECK_FAILS(tri_tensorboard_scalar(board, "ab\xff", 0, 0), TRI_ERR_INVALID_ARG,
                "is not UTF-8: byte 2 is 0xff");
    CHECK_FAILS(tri_tensorboard_text(board, "x", 0, "a\xc3"), TRI_ERR_INVALID_ARG,
                "is not UTF-8: byte 1 is 0xc3");
    CHECK_FAILS(tri_tensorboard_text(board, "x", 0, NULL), TRI_ERR_INVALID_ARG, "text is NULL");
    CHECK_FAILS(tri_tensorboard_histogram(board, "x", 0, NULL, 1, TRI_DTYPE_F32),
                TRI_ERR_INVALID_ARG, "values is NULL");
    CHECK_FAILS(tri_tensorboard_histogram(board, "x", 0, pixels, -1, TRI_DTYPE_F32),
                TRI_ERR_INVALID_ARG, "-1 values of f32");
    CHECK_FAILS(tri_tensorboard_histogram(board, "x", 0, pixels, 1, TRI_DTYPE_BF16),
                TRI_ERR_INVALID_ARG, "values of bf16");
    CHECK_FAILS(tri_tensorboard_image(board, "x", 0, pixels, TRI_SHAPE(2, 2, 2), NULL),
                TRI_ERR_INVALID_ARG, "as \"CHW\"");
    CHECK_FAILS(tri_tensorboard_image(board, "x", 0, pixels, TRI_SHAPE(1, 2, 2), "NCHW"),
                TRI_ERR_INVALID_ARG, "as \"NCHW\"");
    CHECK_FAILS(tri_tensorboard_image(board, "x", 0, pixels, TRI_SHAPE(2, 2), "CHW"),
                TRI_ERR_INVALID_ARG, "a shape of 2 sizes");
    CHECK_FAILS(tri_tensorboard_image(board, "x", 0, pixels, TRI_SHAPE(0, 2), "HW"),
                TRI_ERR_INVALID_ARG, "1 to 2^24");
    CHECK_FAILS(tri_tensorboard_image(board, "x", 0, NULL, TRI_SHAPE(2, 2), "HW"),
                TRI_ERR_INVALID_ARG, "pixels is NULL");
    CHECK_FAILS(tri_tensorboard_hparams(board, "", NULL, 0, NULL, 0), TRI_ERR_INVALID_ARG,
                "run_name is empty");
    CHECK_FAILS(tri_tensorboard_hparams(board, NULL, NULL, 1, NULL, 0), TRI_ERR_INVALID_ARG,
                "hparams is NULL");
    CHECK_FAILS(tri_tensorboard_hparams(board, NULL, &bad_text, 1, NULL, 0), TRI_ERR_INVALID_ARG,
                "x \"\xff\" is not UTF-8");
    CHECK_FAILS(tri_tensorboard_hparams(board, NULL, &bad_name, 1, NULL, 0), TRI_ERR_INVALID_ARG,
                "a name is empty");
    CHECK_FAILS(tri_tensorboard_hparams(board, NULL, NULL, 0, &bad_key, 1), TRI_ERR_INVALID_ARG,
                "is not UTF-8");
    CHECK_FAILS(tri_tensorboard_hparams(board, NULL, NULL, -1, NULL, 0), TRI_ERR_INVALID_ARG,
                "-1 hparams");
    CHECK_FAILS(tri_tensorboard_flush(NULL), TRI_ERR_INVALID_ARG, "board is NULL");
    CHECK_OK(tri_tensorboard_flush(board));
    CHECK_OK(tri_tensorboard_close(board));
    scratch_file(&s, "file", "", 0);
    CHECK_FAILS(tri_tensorboard_open(scratch_path(&s, "file/r"), NULL, &board), TRI_ERR_IO, "file");
    scratch_end(&s);
}

static void a_full_disk_is_told(void **state)
{
    const tri_tensorboard_open_options at_once = {.flush_seconds = TRI_SET(0)};
    tri_tensorboard *board;
    point points[100];
    tri_status status;
    int64_t start;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "r"), &at_once, &board));
    scratch_limit_files(1000);
    do {
        trii_thread_yield(); /* until the next call tells what the thread has met */
        status = tri_tensorboard_scalar(board, "loss", 1, 0.5);
    } while (status == TRI_OK);
    CHECK_FAILS(status, TRI_ERR_IO, "File too large");
    assert_non_null(strstr(tri_last_error(), "/r/events.out.tfevents."));
    CHECK_FAILS(tri_tensorboard_close(board), TRI_ERR_IO, "records were not written");
    assert_in_range(read_points(scratch_path(&s, "r"), points, 100, &start), 15, 25);
    scratch_end(&s);
}

static void a_forked_child_opens_a_board_of_its_own(void **state)
{
    tri_tensorboard *board, *own;
    int status = -1, n;
    char **names;
    pid_t child;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "r"), NULL, &board));
    CHECK_OK(tri_tensorboard_scalar(board, "x", 1, 1));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool good = tri_tensorboard_scalar(board, "x", 2, 1) == TRI_ERR_STATE &&
                    tri_tensorboard_close(board) == TRI_OK &&
                    tri_tensorboard_open(scratch_path(&s, "r"), NULL, &own) == TRI_OK &&
                    tri_tensorboard_scalar(own, "x", 2, 1) == TRI_OK &&
                    tri_tensorboard_close(own) == TRI_OK;

        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    CHECK_OK(tri_tensorboard_close(board));
    names = list_files(scratch_path(&s, "r"), &n);
    assert_int_equal(n, 2);
    trii_folder_free_names(names, n);
    scratch_end(&s);
}

/* Started by a daemon with its outputs closed: what somebody prints must not land in our files. */
static void closed_outputs_spoil_no_events(void **state)
{
    tri_tensorboard *board;
    point points[4];
    int64_t start;
    scratch s;
    int kept[3];

    (void)state;
    scratch_begin(&s);
    for (int fd = 1; fd < 3; fd++)
        kept[fd] = dup(fd);
    close(1);
    close(2);
    if (tri_tensorboard_open(scratch_path(&s, "r"), NULL, &board) == TRI_OK) {
        ssize_t lost = write(1, "hello\n", 6) + write(2, "warning\n", 8);

        (void)lost;
        (void)!tri_tensorboard_scalar(board, "x", 1, 1);
        (void)!tri_tensorboard_close(board);
    }
    for (int fd = 1; fd < 3; fd++) {
        (void)dup2(kept[fd], fd);
        close(kept[fd]);
    }
    assert_int_equal(read_points(scratch_path(&s, "r"), points, 4, &start), 1);
    scratch_end(&s);
}

static tri_tensorboard *shared;

static void record_many(void *arg)
{
    tri_status *status_out = arg;

    for (int i = 0; i < 100 && *status_out == TRI_OK; i++)
        *status_out = tri_tensorboard_scalar(shared, "second", i, i);
}

static void two_threads_share_a_board(void **state)
{
    tri_status status = TRI_OK;
    static point points[300];
    trii_thread thread;
    int64_t start;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_tensorboard_open(scratch_path(&s, "r"), NULL, &shared));
    CHECK_OK(trii_thread_start(&thread, "second", record_many, &status));
    for (int i = 0; i < 100; i++)
        CHECK_OK(tri_tensorboard_scalar(shared, "first", i, i));
    trii_thread_join(&thread);
    CHECK_OK(status);
    CHECK_OK(tri_tensorboard_close(shared));
    assert_int_equal(read_points(scratch_path(&s, "r"), points, 300, &start), 200);
    scratch_end(&s);
}

static tri_status use_all(const char *folder)
{
    static const uint8_t pixels[12];
    const tri_hparam hparam = {"lr", 0.1, NULL};
    tri_tensorboard *board;
    tri_status status = tri_tensorboard_open(folder, NULL, &board), closed;

    if (status != TRI_OK)
        return status;
    status = tri_tensorboard_scalar(board, "x", 1, 1);
    if (status == TRI_OK)
        status = tri_tensorboard_text(board, "x", 1, "y");
    if (status == TRI_OK)
        status = tri_tensorboard_histogram(board, "x", 1, pixels, 12, TRI_DTYPE_U8);
    if (status == TRI_OK)
        status = tri_tensorboard_image(board, "x", 1, pixels, TRI_SHAPE(3, 2, 2), NULL);
    if (status == TRI_OK)
        status = tri_tensorboard_hparams(board, NULL, &hparam, 1, NULL, 0);
    closed = tri_tensorboard_close(board);
    return status != TRI_OK ? status : closed;
}

static void boards_without_memory_leave_nothing(void **state)
{
    long live = trii_alloc_live();
    tri_status status;
    scratch s;
    int n = 1;

    (void)state;
    scratch_begin(&s);
    do {
        char name[16];

        snprintf(name, sizeof(name), "r%d",
                 n); /* a list of older files would take more each time */
        trii_alloc_fail_at(n++);
        status = use_all(scratch_path(&s, name));
        trii_alloc_fail_at(0);
        if (status != TRI_OK && status != TRI_ERR_NO_MEMORY)
            fail_msg("allocation %d: %s", n - 1, tri_last_error());
        assert_int_equal(trii_alloc_live(), live);
    } while (status != TRI_OK);
    assert_true(n > 20);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(scalars_are_points_of_curves),
    cmocka_unit_test(a_resumed_run_begins_a_later_file),
    cmocka_unit_test(text_and_histograms_name_their_plugins),
    cmocka_unit_test(images_are_png_files),
    cmocka_unit_test(hparams_are_a_run_of_their_own),
    cmocka_unit_test(arguments_that_cannot_be_are_named),
    cmocka_unit_test(a_full_disk_is_told),
    cmocka_unit_test(a_forked_child_opens_a_board_of_its_own),
    cmocka_unit_test(closed_outputs_spoil_no_events),
    cmocka_unit_test(two_threads_share_a_board),
    cmocka_unit_test(boards_without_memory_leave_nothing),
};
TEST_MAIN(tests)
