/*
 * transforms_golden_test.c - images against what torchvision makes of them (transforms.txt, made by
 * make_transforms.py): the same part gives the same bits, and the same draws the same part.
 */
#include <inttypes.h>

#include <trireme/data.h>

#include "train/data/image_view.h"
#include "testing/check.h"
#include "testing/golden.h"

enum { SIDE = 512, MOST_NUMBERS = 5 };

typedef struct golden_case {
    char name[32];
    int64_t height, width;
    double numbers[MOST_NUMBERS];
    int64_t out_height, out_width;
    uint64_t hash;
} golden_case;

static uint8_t pixels[3 * SIDE * SIDE], bytes_out[3 * SIDE * SIDE];
static float floats_out[3 * SIDE * SIDE];

static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};

static uint64_t fnv(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t value = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        value = (value ^ at[i]) * UINT64_C(0x100000001b3);
    return value;
}

/* The image of make_transforms.py, as [3, height, width]. */
static void make_pixels(const golden_case *g)
{
    assert_in_range(g->height, 1, SIDE);
    assert_in_range(g->width, 1, SIDE);
    for (int64_t c = 0; c < 3; c++) {
        for (int64_t h = 0; h < g->height; h++) {
            for (int64_t w = 0; w < g->width; w++)
                pixels[(c * g->height + h) * g->width + w] =
                    (uint8_t)((h * 131 + w * 71 + c * 37) ^ (h * w));
        }
    }
}

static bool read_case(FILE *file, golden_case *g)
{
    char line[256], *at;
    int used = 0;

    if (fgets(line, sizeof(line), file) == NULL)
        return false;
    *g = (golden_case){.height = 0};
    assert_int_equal(
        sscanf(line, "%31s %" SCNd64 " %" SCNd64 "%n", g->name, &g->height, &g->width, &used), 3);
    at = line + used;
    for (int k = 0; strncmp(at, " :", 2) != 0; k++) {
        assert_in_range(k, 0, MOST_NUMBERS - 1);
        g->numbers[k] = strtod(at, &at);
    }
    assert_int_equal(
        sscanf(at, " : %" SCNd64 " %" SCNd64 " %" SCNx64, &g->out_height, &g->out_width, &g->hash),
        3);
    return true;
}

/* [3, h, w] as [h, w, 3], as Pillow has them. */
static void check_bytes(const golden_case *g, const uint8_t *y, const int64_t *shape)
{
    static uint8_t turned[3 * 8 * SIDE * SIDE]; /* a long side may be many times SIDE */
    int64_t h = shape[1], w = shape[2];

    assert_in_range(3 * h * w, 1, sizeof(turned));
    if (shape[0] != 3 || h != g->out_height || w != g->out_width)
        fail_msg("%s %" PRId64 " %" PRId64 ": %" PRId64 " x %" PRId64 " pixels", g->name, g->height,
                 g->width, h, w);
    for (int64_t k = 0; k < 3 * h * w; k++)
        turned[k] = y[k % 3 * h * w + k / 3];
    if (fnv(turned, (size_t)(3 * h * w)) != g->hash)
        fail_msg("%s %" PRId64 " %" PRId64 " %g %g %g %g %g: other pixels", g->name, g->height,
                 g->width, g->numbers[0], g->numbers[1], g->numbers[2], g->numbers[3],
                 g->numbers[4]);
}

static void check_floats(const golden_case *g, const float *y)
{
    if (fnv(y, (size_t)(3 * g->out_height * g->out_width) * sizeof(*y)) != g->hash)
        fail_msg("%s %" PRId64 " %" PRId64 " %g %g %g %g: other numbers", g->name, g->height,
                 g->width, g->numbers[0], g->numbers[1], g->numbers[2], g->numbers[3]);
}

/* One part, which no list of transforms can ask for. */
static void check_part(const golden_case *g)
{
    const tri_field field = {TRI_DTYPE_U8, 3, {3, g->height, g->width}};
    const float means[3] = {0.485f, 0.456f, 0.406f}, stds[3] = {0.229f, 0.224f, 0.225f};
    trii_view view = trii_view_of(&field, pixels);
    trii_view_work work = {.turn = 0};

    trii_view_crop(&view, (int64_t)g->numbers[0], (int64_t)g->numbers[1], (int64_t)g->numbers[2],
                   (int64_t)g->numbers[3]);
    CHECK_OK(trii_view_resize(&view, 48, 40, &work));
    if (strcmp(g->name, "resized_crop") == 0) {
        trii_view_copy(&view, bytes_out);
        check_bytes(g, bytes_out, (const int64_t[]){3, view.height, view.width});
    } else {
        view.mirror = true;
        CHECK_OK(trii_view_to_float(&view, means, stds, floats_out, &work));
        check_floats(g, floats_out);
    }
    trii_view_work_fini(&work);
}

/* The case's list of transforms; returns how many there are. */
static int list_of(const golden_case *g, tri_transform list[4])
{
    const double *n = g->numbers;

    if (strcmp(g->name, "resize") == 0) {
        list[0] = tri_transform_resize((int64_t)n[0]);
    } else if (strcmp(g->name, "resize_to") == 0) {
        list[0] = tri_transform_resize_to((int64_t)n[0], (int64_t)n[1]);
    } else if (strcmp(g->name, "center_crop") == 0) {
        list[0] = tri_transform_center_crop((int64_t)n[0], (int64_t)n[1]);
    } else if (strcmp(g->name, "random_resized_crop") == 0) {
        list[0] = tri_transform_random_resized_crop(
            24, 20,
            &(tri_transform_random_resized_crop_options){.scale_min = TRI_SET(n[0]),
                                                         .scale_max = TRI_SET(n[1]),
                                                         .ratio_min = TRI_SET(n[2]),
                                                         .ratio_max = TRI_SET(n[3])});
    } else {
        assert_string_equal(g->name, "validation_normal");
        list[0] = tri_transform_resize(256);
        list[1] = tri_transform_center_crop(224, 224);
        list[2] = tri_transform_to_float();
        list[3] = tri_transform_normalize(mean, std, 3);
        return 4;
    }
    return 1;
}

/* A data set of the case's image, which is sample 3. */
static void check_list(const golden_case *g)
{
    const tri_field field = {TRI_DTYPE_U8, 3, {3, g->height, g->width}};
    const tri_request request = {
        .indices = (const int64_t[]){3}, .n = 1, .seed = 11, .epoch = (int64_t)g->numbers[4]};
    static uint8_t four[4][3 * SIDE * SIDE];
    tri_transform list[4];
    tri_sample sample = {0};
    size_t bytes = (size_t)(3 * g->height * g->width);
    tri_dataset *set;

    memcpy(&four[0][0] + 3 * bytes, pixels, bytes);
    CHECK_OK(tri_dataset_arrays(4, &field, (const void *const[]){four}, 1, &set));
    CHECK_OK(tri_dataset_transform(set, list, list_of(g, list), &set));
    CHECK_OK(tri_dataset_sample(set, &request, &sample));
    if (sample.fields[0].dtype == TRI_DTYPE_F32)
        check_floats(g, sample.data[0]);
    else
        check_bytes(g, sample.data[0], sample.fields[0].shape);
    tri_sample_clear(&sample);
    tri_dataset_destroy(set);
}

static void images_are_those_of_torchvision(void **state)
{
    golden_case g;
    FILE *file;
    int n = 0;

    (void)state;
    file = golden_open("transforms.txt");
    for (; read_case(file, &g); n++) {
        make_pixels(&g);
        if (strcmp(g.name, "resized_crop") == 0 || strcmp(g.name, "mirrored_normal") == 0)
            check_part(&g);
        else
            check_list(&g);
    }
    fclose(file);
    assert_in_range(n, 170, 1000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(images_are_those_of_torchvision),
};
TEST_MAIN(tests)
