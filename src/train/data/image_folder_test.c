/* image_folder_test.c - folders of images: which files, which classes, what is wrong with them. */
#include <trireme/data.h>

#include "base/alloc.h"
#include "train/data/image_files.h"
#include "os/folder.h"
#include "testing/check.h"
#include "testing/picture_files.h"
#include "testing/scratch.h"

/* What `number` of tests/testing/picture_files.h the image of a sample has, and its label. */
static int number_of(tri_dataset *set, int64_t index, int64_t *label_out)
{
    tri_sample sample = {0};
    int number;

    CHECK_OK(tri_dataset_sample(set, &(tri_request){.indices = &index, .n = 1}, &sample));
    assert_int_equal(sample.n_fields, 2);
    number = ((const uint8_t *)sample.data[0])[0];
    *label_out = *(const int64_t *)sample.data[1];
    tri_sample_clear(&sample);
    return number;
}

/* The samples' numbers and labels are these, and no others. */
static void expect_samples(tri_dataset *set, const int (*want)[2], int n)
{
    assert_int_equal(tri_dataset_length(set), n);
    for (int i = 0; i < n; i++) {
        int64_t label;

        assert_int_equal(number_of(set, i, &label), want[i][0]);
        assert_int_equal(label, want[i][1]);
    }
}

static void expect_failure(tri_dataset *set, int64_t index, tri_status status, const char *line)
{
    tri_sample sample = {0};

    CHECK_FAILS(tri_dataset_sample(set, &(tri_request){.indices = &index, .n = 1}, &sample), status,
                line);
    tri_sample_clear(&sample);
}

static void close_folder(tri_dataset *set, scratch *s, long live)
{
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(s);
}

/* --- which files ---------------------------------------------------------- */

/* The order of sorted(os.walk(DIR, followlinks=True)): folders by their whole paths, then names. */
static void classes_and_files_are_those_of_torchvision(void **state)
{
    static const int want[][2] = {{1, 0}, {2, 0}, {4, 0}, {3, 0},  {5, 0}, {6, 1},
                                  {7, 1}, {8, 1}, {9, 2}, {10, 2}, {1, 2}, {2, 2}};
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "Zebra/b.PNG", 1, 2, 2);
    image_file(&s, "Zebra/c.JpEg", 2, 2, 2); /* a PNG, whatever its name says */
    image_file(&s, "Zebra/in-b/a.png", 3, 2, 2);
    image_file(&s, "Zebra/in/0.png", 4, 2, 2);
    image_file(&s, "Zebra/in/deep/er/1.png", 5, 2, 2);
    image_file(&s, "ape/.hidden.png", 6, 2, 2);
    image_file(&s, "ape/10.png", 7, 2, 2);
    image_file(&s, "ape/9.webp", 8, 2, 2);
    image_file(&s, "linked-from/1.png", 9, 2, 2);
    image_file(&s, "linked-from/2.png", 10, 2, 2);
    image_file(&s, "loose.png", 11, 2, 2); /* of no class */
    scratch_file(&s, "ape/9.gif", "GIF", 3);
    scratch_file(&s, "ape/notes.txt", "", 0);
    scratch_file(&s, "ape/png", "", 0);
    assert_int_equal(symlink("../Zebra/b.PNG", scratch_path(&s, "linked-from/3.png")), 0);
    assert_int_equal(mkdir(scratch_path(&s, "linked-from/x"), 0777), 0);
    assert_int_equal(symlink("../../Zebra/c.JpEg", scratch_path(&s, "linked-from/x/4.png")), 0);
    CHECK_OK(tri_dataset_image_folder(s.dir, NULL, &set));
    assert_int_equal(tri_dataset_class_count(set), 3);
    assert_string_equal(tri_dataset_class_name(set, 0), "Zebra");
    assert_string_equal(tri_dataset_class_name(set, 1), "ape");
    assert_null(tri_dataset_class_name(set, 3));
    assert_null(tri_dataset_class_name(set, -1));
    expect_samples(set, want, 12);
    close_folder(set, &s, live);
}

static void folders_may_be_links(void **state)
{
    static const int want[][2] = {{2, 0}, {1, 0}, {1, 1}};
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;
    char dir[200];

    (void)state;
    scratch_begin(&s);
    image_file(&s, "elsewhere/a.png", 1, 2, 2);
    image_file(&s, "set/one/b.png", 2, 2, 2);
    assert_int_equal(symlink("../../elsewhere", scratch_path(&s, "set/one/all")), 0);
    assert_int_equal(symlink("../elsewhere", scratch_path(&s, "set/two")), 0);
    snprintf(dir, sizeof(dir), "%s/set//", s.dir);
    CHECK_OK(tri_dataset_image_folder(dir, NULL, &set));
    expect_samples(set, want, 3);
    tri_dataset_destroy(set);
    assert_int_equal(symlink("..", scratch_path(&s, "set/one/back")), 0);
    CHECK_FAILS(tri_dataset_image_folder(dir, NULL, &set), TRI_ERR_FORMAT,
                "is a link to a folder that it lies in");
    assert_non_null(strstr(tri_last_error(), "set/one/back/one"));
    close_folder(NULL, &s, live);
}

/* A name may be any bytes; a line of an error is one line of characters all the same. */
static void names_may_be_odd(void **state)
{
    static const int want[][2] = {{1, 0}, {2, 1}, {3, 2}};
    static const char *const bad = "new\nline/x\n\xff.png";
    long live = trii_alloc_live();
    tri_dataset *set;
    int64_t label;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, " /-\t.png", 1, 2, 2);
    image_file(&s, bad, 2, 2, 2);
    image_file(&s, "\xc3\xa9t\xc3\xa9/\xfe.png", 3, 2, 2);
    CHECK_OK(tri_dataset_image_folder(s.dir, NULL, &set));
    assert_string_equal(tri_dataset_class_name(set, 1), "new\nline");
    expect_samples(set, want, 3);
    scratch_file(&s, bad, "no image", 8);
    assert_int_equal(number_of(set, 0, &label), 1);
    expect_failure(set, 1, TRI_ERR_FORMAT, "new?line/x??.png: no image");
    assert_null(strchr(tri_last_error(), '\n'));
    close_folder(set, &s, live);
}

static void what_is_no_class_folder_is_told(void **state)
{
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "gone"), NULL, &set), TRI_ERR_NOT_FOUND,
                "gone: No such file or directory");
    scratch_file(&s, "file", "", 0);
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "file"), NULL, &set), TRI_ERR_IO,
                "file: Not a directory");
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, &set), TRI_ERR_NOT_FOUND,
                "has no class folder");
    image_file(&s, "1.png", 1, 2, 2);
    image_file(&s, "2.png", 1, 2, 2);
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, &set), TRI_ERR_NOT_FOUND,
                "has 2 images of its own, but no class folder");
    image_file(&s, "all/1.png", 5, 2, 2);
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, &set), TRI_ERR_INVALID_ARG,
                "has one class only, all, with 1 images: every label would be 0");
    CHECK_OK(tri_dataset_image_folder(
        s.dir, &(tri_dataset_image_folder_options){.allow_one_class = true}, &set));
    expect_samples(set, (const int[][2]){{5, 0}}, 1);
    tri_dataset_destroy(set);
    assert_int_equal(mkdir(scratch_path(&s, "bees"), 0777), 0);
    scratch_file(&s, "bees/notes.txt", "", 0);
    assert_int_equal(mkdir(scratch_path(&s, "cats"), 0777), 0);
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, &set), TRI_ERR_NOT_FOUND,
                "2 of 3 classes have no image (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp): "
                "bees, cats; allow_empty");
    CHECK_OK(tri_dataset_image_folder(
        s.dir, &(tri_dataset_image_folder_options){.allow_empty = true}, &set));
    assert_int_equal(tri_dataset_class_count(set), 3);
    assert_int_equal(tri_dataset_length(set), 1);
    tri_dataset_destroy(set);
    CHECK_FAILS(
        tri_dataset_image_folder(s.dir, &(tri_dataset_image_folder_options){.channels = 4}, &set),
        TRI_ERR_INVALID_ARG, "4 channels");
    CHECK_FAILS(tri_dataset_image_folder(NULL, NULL, &set), TRI_ERR_INVALID_ARG, "dir is NULL");
    CHECK_FAILS(tri_dataset_image_folder("", NULL, &set), TRI_ERR_INVALID_ARG, "dir is empty");
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, NULL), TRI_ERR_INVALID_ARG, "dataset_out");
    assert_int_equal(tri_dataset_class_count(NULL), 0);
    assert_int_equal(tri_dataset_broken_count(NULL), 0);
    close_folder(NULL, &s, live);
}

static void a_folder_that_cannot_be_read_is_told(void **state)
{
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(chmod(s.dir, 0755), 0);
    image_file(&s, "a/1.png", 1, 2, 2);
    image_file(&s, "b/shut/1.png", 1, 2, 2);
    assert_int_equal(chmod(scratch_path(&s, "b/shut"), 0), 0);
    if (geteuid() == 0)
        assert_int_equal(seteuid(65534), 0); /* whom no right concerns sees everything */
    CHECK_FAILS(tri_dataset_image_folder(s.dir, NULL, &set), TRI_ERR_IO,
                "b/shut: Permission denied");
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(scratch_path(&s, "b/shut"), 0700), 0);
    scratch_end(&s);
}

/* --- which classes -------------------------------------------------------- */

static void the_classes_of_training_count_for_validation(void **state)
{
    static const int want[][2] = {{4, 0}, {5, 2}};
    const tri_transform half = tri_transform_resize_to(1, 1);
    tri_dataset_image_folder_options opt = {0};
    long live = trii_alloc_live();
    tri_dataset *train, *val;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "train/ant/1.png", 1, 2, 2);
    image_file(&s, "train/bee/1.png", 2, 2, 2);
    image_file(&s, "train/cat/1.png", 3, 2, 2);
    image_file(&s, "val/ant/1.png", 4, 2, 2);
    image_file(&s, "val/cat/1.png", 5, 2, 2);
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "train"), NULL, &train));
    CHECK_OK(tri_dataset_subset(train, 1, 2, &train)); /* which has all classes still */
    CHECK_OK(tri_dataset_transform(train, &half, 1, &train));
    assert_string_equal(tri_dataset_class_name(train, 2), "cat");
    opt.classes = train;
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "val"), &opt, &val));
    assert_int_equal(tri_dataset_class_count(val), 3);
    expect_samples(val, want, 2);
    tri_dataset_destroy(val);
    image_file(&s, "val/dog/1.png", 6, 2, 2);
    image_file(&s, "val/eel/1.png", 6, 2, 2);
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "val"), &opt, &val), TRI_ERR_INVALID_ARG,
                "val: 2 of its 4 classes are not among the 3 of the data set `classes`: dog, eel");
    opt.classes = &(tri_dataset){.cls = &(tri_dataset_class){.name = "other"}};
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "val"), &opt, &val), TRI_ERR_INVALID_ARG,
                "is neither an image folder");
    close_folder(train, &s, live);
}

/* Of tiny-imagenet: without the list there would be one class called images. */
static void tiny_imagenet_s_validation_is_known(void **state)
{
    static const char list[] = "\xef\xbb\xbf" /* a program of Windows has rewritten it */
                               "val_1.JPEG\tn02\t0\t32\t44\t62\r\n"
                               "val_0.JPEG\tn09\t52\t55\t57\t59\n"
                               "\n"
                               "val_2.JPEG\tn02\t4\t0\t60\t55";
    static const int own[][2] = {{2, 0}, {1, 1}, {3, 0}}, trained[][2] = {{2, 1}, {1, 2}, {3, 1}};
    long live = trii_alloc_live();
    tri_dataset *train, *val;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "train/n01/images/a.JPEG", 7, 2, 2);
    image_file(&s, "train/n02/images/a.JPEG", 8, 2, 2);
    image_file(&s, "train/n09/images/a.JPEG", 9, 2, 2);
    scratch_file(&s, "train/n09/n09_boxes.txt", "", 0);
    image_file(&s, "val/images/val_0.JPEG", 1, 2, 2);
    image_file(&s, "val/images/val_1.JPEG", 2, 2, 2);
    image_file(&s, "val/images/val_2.JPEG", 3, 2, 2);
    scratch_file(&s, "val/val_annotations.txt", list, sizeof(list) - 1);
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "val"), NULL, &val));
    assert_int_equal(tri_dataset_class_count(val), 2);
    expect_samples(val, own, 3);
    tri_dataset_destroy(val);
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "train"), NULL, &train));
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "val"),
                                      &(tri_dataset_image_folder_options){.classes = train}, &val));
    expect_samples(val, trained, 3);
    tri_dataset_destroy(val);
    scratch_file(&s, "val/val_annotations.txt", "val_0.JPEG\tn03\n", 15);
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "val"),
                                         &(tri_dataset_image_folder_options){.classes = train},
                                         &val),
                TRI_ERR_INVALID_ARG, "val_annotations.txt, line 1: class n03 is not among the 3");
    close_folder(train, &s, live);
}

static void a_list_of_files_and_classes_is_checked(void **state)
{
    static const struct {
        const char *text;
        tri_status status;
        const char *line;
    } wrong[] = {
        {"one.png\tx\nsub/two.png y\n", TRI_ERR_FORMAT, "line 2: is not a file, a tab"},
        {"one.png\t\n", TRI_ERR_FORMAT, "line 1: is not a file"},
        {"\tx\n", TRI_ERR_FORMAT, "line 1: is not a file"},
        {"one.png\tx\nsub/three.png\ty\nfour.png\ty\n", TRI_ERR_NOT_FOUND,
         "2 of the 3 files of the list are missing, the first is"},
        {"one.png\tx\nsub/two.png\ty\none.png\ty\n", TRI_ERR_FORMAT,
         "names the file one.png twice"},
        {"\n\r\n", TRI_ERR_NOT_FOUND, "names no file"},
        {"one.png\tx\n", TRI_ERR_INVALID_ARG, "has one class only, x"},
    };
    static const char good[] = "sub/two.png\ty\none.png\tx\tmore\n";
    static const int want[][2] = {{2, 1}, {1, 0}};
    tri_dataset_image_folder_options opt = {0};
    long live = trii_alloc_live();
    char list[200];
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "images/one.png", 1, 2, 2);
    image_file(&s, "images/sub/two.png", 2, 2, 2);
    snprintf(list, sizeof(list), "%s/list.tsv", s.dir);
    opt.annotations = list;
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "images"), &opt, &set), TRI_ERR_NOT_FOUND,
                "list.tsv");
    scratch_file(&s, "list.tsv", good, sizeof(good) - 1);
    CHECK_OK(tri_dataset_image_folder(scratch_path(&s, "images"), &opt, &set));
    expect_samples(set, want, 2);
    assert_string_equal(tri_dataset_class_name(set, 1), "y");
    tri_dataset_destroy(set);
    for (size_t k = 0; k < TRII_COUNT_OF(wrong); k++) {
        scratch_file(&s, "list.tsv", wrong[k].text, strlen(wrong[k].text));
        CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "images"), &opt, &set),
                    wrong[k].status, wrong[k].line);
    }
    scratch_file(&s, "list.tsv", "one.png\tx\0\n", 11);
    CHECK_FAILS(tri_dataset_image_folder(scratch_path(&s, "images"), &opt, &set), TRI_ERR_FORMAT,
                "has bytes of 0");
    close_folder(NULL, &s, live);
}

/* --- samples -------------------------------------------------------------- */

static void samples_are_pixels_and_a_number(void **state)
{
    long live = trii_alloc_live();
    tri_sample sample = {0};
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "a/1.png", 40, 5, 7);
    image_file(&s, "b/1.png", 80, 1, 1);
    for (int channels = 1; channels <= 3; channels += 2) {
        CHECK_OK(tri_dataset_image_folder(
            s.dir, &(tri_dataset_image_folder_options){.channels = channels}, &set));
        for (int64_t i = 1; i >= 0; i--) {
            int64_t h = i == 0 ? 5 : 1, w = i == 0 ? 7 : 1;

            CHECK_OK(tri_dataset_sample(set, &(tri_request){.indices = &i, .n = 1}, &sample));
            assert_int_equal(sample.fields[0].shape[0], channels);
            assert_int_equal(sample.fields[0].shape[1], h);
            assert_int_equal(sample.fields[0].shape[2], w);
            assert_int_equal(*(const int64_t *)sample.data[1], i);
            for (int64_t k = 0; k < 3 * h * w && channels == 3; k++)
                assert_int_equal(((const uint8_t *)sample.data[0])[k],
                                 image_file_pixel(i == 0 ? 40 : 80, (int)(k / w % h), (int)(k % w),
                                                  (int)(k / (h * w))));
        }
        tri_dataset_destroy(set);
    }
    tri_sample_clear(&sample);
    close_folder(NULL, &s, live);
}

static void a_broken_file_is_named_with_its_reason(void **state)
{
    static const int whole[][2] = {{1, 0}, {4, 1}, {4, 1}, {4, 1}, {1, 0}, {1, 0}};
    static const char *const reasons[] = {"a/2.png: no image: it is empty",
                                          "a/3.png: no image: it begins with", "b/5.jpg: a GIF",
                                          "b/6.png: No such file"};
    static const int places[] = {1, 2, 4, 5};
    long live = trii_alloc_live();
    tri_dataset *set;
    int64_t label;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "a/1.png", 1, 2, 2);
    scratch_file(&s, "a/2.png", "", 0);
    scratch_file(&s, "a/3.png", "no image", 8);
    image_file(&s, "b/4.png", 4, 2, 2);
    scratch_file(&s, "b/5.jpg", "GIF89a..", 8);
    assert_int_equal(symlink("gone", scratch_path(&s, "b/6.png")), 0);
    CHECK_OK(tri_dataset_image_folder(s.dir, NULL, &set));
    for (int k = 0; k < 4; k++) {
        expect_failure(set, places[k],
                       k == 2   ? TRI_ERR_UNSUPPORTED
                       : k == 3 ? TRI_ERR_NOT_FOUND
                                : TRI_ERR_FORMAT,
                       reasons[k]);
    }
    assert_int_equal(number_of(set, 3, &label), 4);
    assert_int_equal(tri_dataset_broken_count(set), 0);
    tri_dataset_destroy(set);
    CHECK_OK(tri_dataset_image_folder(
        s.dir, &(tri_dataset_image_folder_options){.skip_broken = true}, &set));
    for (int times = 0; times < 2; times++) {
        expect_samples(set, whole, 6);
        assert_int_equal(tri_dataset_broken_count(set), 4);
    }
    scratch_file(&s, "a/1.png", "x", 1);
    scratch_file(&s, "b/4.png", "x", 1);
    expect_failure(set, 2, TRI_ERR_FORMAT, "no file is whole (skip_broken), the last one is");
    close_folder(set, &s, live);
}

/* Of a pipe nothing is awaited, and a run that skips broken files does not end at one either. */
/* Numbers 3 and 4 are training's, and 1, 2 and 5 are none of its. */
static void a_subset_takes_its_own_files_for_broken_ones(void **state)
{
    static const int whole[][2] = {{3, 0}, {4, 1}, {3, 0}};
    const tri_transform same = tri_transform_random_horizontal_flip(0);
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;

    (void)state;
    for (int k = 0; k < 4; k++) {
        scratch_begin(&s);
        image_file(&s, "a/1.png", 1, 2, 2);
        image_file(&s, "a/2.png", 2, 2, 2);
        image_file(&s, "a/3.png", 3, 2, 2);
        image_file(&s, "b/4.png", 4, 2, 2);
        scratch_file(&s, "b/4x.png", "no image", 8);
        image_file(&s, "b/5.png", 5, 2, 2);
        CHECK_OK(tri_dataset_image_folder(
            s.dir, &(tri_dataset_image_folder_options){.skip_broken = true}, &set));
        if (k > 0)
            CHECK_OK(tri_dataset_subset(set, 1, 5, &set));
        if (k > 1) /* below and above a subset */
            CHECK_OK(tri_dataset_transform(set, &same, 1, &set));
        CHECK_OK(tri_dataset_subset(set, k > 0 ? 1 : 2, 3, &set));
        if (k > 2)
            CHECK_OK(tri_dataset_transform(set, &same, 1, &set));
        expect_samples(set, whole, 3);
        scratch_file(&s, "a/3.png", "x", 1);
        scratch_file(&s, "b/4.png", "x", 1);
        expect_failure(set, 1, TRI_ERR_FORMAT, "no file is whole (skip_broken), the last one is");
        close_folder(set, &s, live);
    }
}

static void what_is_no_file_is_broken(void **state)
{
    static const char *const reasons[] = {"a/2.png: not a file", "a/3.png: Too many levels",
                                          "b/4.png: not a file"};
    static const int whole[][2] = {{1, 0}, {5, 1}, {5, 1}, {5, 1}, {5, 1}};
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "a/1.png", 1, 2, 2);
    image_file(&s, "b/5.png", 5, 2, 2);
    assert_int_equal(mkfifo(scratch_path(&s, "a/2.png"), 0666), 0);
    assert_int_equal(symlink("3.png", scratch_path(&s, "a/3.png")), 0);
    assert_int_equal(symlink("/dev/null", scratch_path(&s, "b/4.png")), 0);
    CHECK_OK(tri_dataset_image_folder(s.dir, NULL, &set));
    for (int k = 0; k < 3; k++)
        expect_failure(set, k + 1, TRI_ERR_FORMAT, reasons[k]);
    tri_dataset_destroy(set);
    CHECK_OK(tri_dataset_image_folder(
        s.dir, &(tri_dataset_image_folder_options){.skip_broken = true}, &set));
    expect_samples(set, whole, 5);
    assert_int_equal(tri_dataset_broken_count(set), 3);
    close_folder(set, &s, live);
}

/* What fails in the system says nothing about a file: such a sample is never another one. */
static void no_file_is_skipped_for_want_of_descriptors(void **state)
{
    struct rlimit limit;
    tri_dataset *set;
    int64_t label;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "a/1.png", 1, 2, 2);
    image_file(&s, "b/1.png", 2, 2, 2);
    CHECK_OK(tri_dataset_image_folder(
        s.dir, &(tri_dataset_image_folder_options){.skip_broken = true}, &set));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}), 0);
    expect_failure(set, 0, TRI_ERR_IO, "a/1.png: Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(number_of(set, 0, &label), 1);
    tri_dataset_destroy(set);
    scratch_end(&s);
}

/* --- memory --------------------------------------------------------------- */

/* A million names must not take more than the names themselves and a few bytes each. */
static void names_are_kept_in_few_bytes(void **state)
{
    enum { N = 300 };
    trii_image_files files;
    size_t bytes;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int k = 0; k < N; k++) {
        char name[64];

        snprintf(name, sizeof(name), "n%02d/n%02d_%05d.JPEG", k % 3, k % 3, k);
        CHECK_OK(trii_folder_create_above(scratch_path(&s, name)));
        scratch_file(&s, name, "", 0);
    }
    CHECK_OK(trii_image_files_find(s.dir, &(trii_image_files_options){.classes = NULL}, &files));
    assert_int_equal(files.names.n, N);
    bytes = files.names.room + (size_t)files.names.n_room * sizeof(*files.names.at) +
            (size_t)files.n_rooms[1] * sizeof(*files.labels) + files.folders.room;
    assert_in_range(bytes, 1, N * (sizeof("n00_00000.JPEG") + 4 + 4) + 600);
    trii_image_files_fini(&files);
    scratch_end(&s);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    long live;
    scratch s;

    (void)state;
    scratch_begin(&s);
    image_file(&s, "a/in/1.png", 1, 3, 3);
    image_file(&s, "b/1.png", 2, 3, 3);
    live = trii_alloc_live();
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_sample sample = {0};
        tri_dataset *set = NULL;

        trii_alloc_fail_at(n);
        status = tri_dataset_image_folder(
            s.dir, &(tri_dataset_image_folder_options){.skip_broken = true}, &set);
        if (status == TRI_OK)
            status =
                tri_dataset_sample(set, &(tri_request){.indices = &(int64_t){1}, .n = 1}, &sample);
        trii_alloc_fail_at(0);
        if (set != NULL)
            assert_int_equal(tri_dataset_broken_count(set), 0);
        tri_sample_clear(&sample);
        tri_dataset_destroy(set);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(classes_and_files_are_those_of_torchvision),
    cmocka_unit_test(folders_may_be_links),
    cmocka_unit_test(names_may_be_odd),
    cmocka_unit_test(what_is_no_class_folder_is_told),
    cmocka_unit_test(a_folder_that_cannot_be_read_is_told),
    cmocka_unit_test(the_classes_of_training_count_for_validation),
    cmocka_unit_test(tiny_imagenet_s_validation_is_known),
    cmocka_unit_test(a_list_of_files_and_classes_is_checked),
    cmocka_unit_test(samples_are_pixels_and_a_number),
    cmocka_unit_test(a_broken_file_is_named_with_its_reason),
    cmocka_unit_test(a_subset_takes_its_own_files_for_broken_ones),
    cmocka_unit_test(what_is_no_file_is_broken),
    cmocka_unit_test(no_file_is_skipped_for_want_of_descriptors),
    cmocka_unit_test(names_are_kept_in_few_bytes),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
