/* collate_test.c - samples of varying size: rooms, padding, own collate functions, failures. */
#include <trireme/data.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"

enum { LINES = 53, BATCH = 5 };

/* Line i: field 0 is i % 7 tokens, field 1 a picture of 2 x (i % 4) pixels, field 2 the length. */
static tri_status line_sample(tri_dataset *self, const tri_request *request, tri_sample *out)
{
    int64_t i = request->indices[0], length = i % 7, width = i % 4;
    int64_t *tokens = tri_sample_room(out, 0, TRI_DTYPE_I64, &length, 1);
    float *pixels = tri_sample_room(out, 1, TRI_DTYPE_F32, (const int64_t[]){2, width}, 2);
    int64_t *known = tri_sample_room(out, 2, TRI_DTYPE_I64, NULL, 0);

    (void)self;
    if (tokens == NULL || pixels == NULL || known == NULL)
        return TRI_ERR_IO; /* the library knows better */
    for (int64_t k = 0; k < length; k++)
        tokens[k] = 100 * i + k + request->epoch;
    for (int64_t k = 0; k < 2 * width; k++)
        pixels[k] = (float)(1000 * i + k);
    *known = length;
    return TRI_OK;
}

static const tri_dataset_class line_class = {.name = "lines", .sample = line_sample};

static tri_dataset line_set(void)
{
    return (tri_dataset){
        .cls = &line_class,
        .length = LINES,
        .n_fields = 3,
        .fields = {{TRI_DTYPE_I64, 1, {-1}}, {TRI_DTYPE_F32, 2, {2, -1}}, {TRI_DTYPE_I64, 0, {0}}}};
}

static int64_t largest(int64_t first, int64_t rows, int64_t modulus)
{
    int64_t most = 0;

    for (int64_t i = first; i < first + rows; i++)
        most = i % modulus > most ? i % modulus : most;
    return most;
}

/* Rows from line `first` on, padded with -100 and 0.5, tokens to a multiple. */
static void check_padded(const tri_batch *batch, int64_t first, int64_t epoch, int64_t multiple)
{
    int64_t rows = batch->size, length = largest(first, rows, 7), width = largest(first, rows, 4);
    const int64_t *tokens = trii_tensor_data(batch->fields[0]);
    const float *pixels = trii_tensor_data(batch->fields[1]);
    const int64_t *known = trii_tensor_data(batch->fields[2]);

    length = (length + multiple - 1) / multiple * multiple;
    assert_int_equal(batch->n_fields, 3);
    assert_int_equal(tri_tensor_size(batch->fields[0], 0), rows);
    assert_int_equal(tri_tensor_size(batch->fields[0], 1), length);
    assert_int_equal(tri_tensor_size(batch->fields[1], 2), width);
    assert_int_equal(tri_tensor_ndim(batch->fields[2]), 1);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = first + r;

        assert_int_equal(known[r], i % 7);
        for (int64_t k = 0; k < length; k++)
            assert_int_equal(tokens[r * length + k], k < i % 7 ? 100 * i + k + epoch : -100);
        for (int64_t h = 0; h < 2; h++) {
            for (int64_t w = 0; w < width; w++)
                assert_true(pixels[(r * 2 + h) * width + w] ==
                            (w < i % 4 ? (float)(1000 * i + h * (i % 4) + w) : 0.5f));
        }
    }
}

static void padded_batches_are_the_same_with_any_number_of_threads(void **state)
{
    tri_collate_pad_options pad = {.value = {-100, 0.5}};
    long live = trii_alloc_live();
    tri_dataset set = line_set();

    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        tri_loader *loader;
        tri_batch batch;

        pad.multiple[0] = threads % 2 == 0 ? 0 : 8; /* of pixels that dimension has 2 */
        set.fields[1].shape[0] = 2;
        CHECK_OK(tri_loader_create(&set, NULL, BATCH,
                                   &(tri_loader_options){.n_threads = threads,
                                                         .collate = tri_collate_pad,
                                                         .collate_arg = &pad},
                                   &loader));
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            CHECK_OK(tri_loader_begin(loader, epoch, epoch));
            for (int64_t k = epoch; k < 11; k++) {
                CHECK_OK(tri_loader_next(loader, &batch));
                assert_int_equal(batch.size, k == 10 ? 3 : BATCH);
                if (pad.multiple[0] == 0)
                    check_padded(&batch, k * BATCH, epoch, 1);
                else
                    assert_int_equal(tri_tensor_size(batch.fields[0], 1), 8);
            }
            assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
        }
        tri_loader_destroy(loader);
    }
    assert_int_equal(trii_alloc_live(), live);
}

/* A program that keeps a batch's tensor keeps its contents. */
static void a_kept_batch_is_not_overwritten(void **state)
{
    tri_collate_pad_options pad = {.value = {-100, 0.5}};
    long live = trii_alloc_live();
    tri_dataset set = line_set();
    tri_tensor *kept[10];
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(
        &set, NULL, BATCH,
        &(tri_loader_options){.n_threads = 1, .collate = tri_collate_pad, .collate_arg = &pad},
        &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int k = 0; k < 10; k++) {
        CHECK_OK(tri_loader_next(loader, &batch));
        kept[k] = tri_tensor_ref(batch.fields[2]);
    }
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < BATCH; i++)
            assert_int_equal(((const int64_t *)trii_tensor_data(kept[k]))[i], (k * BATCH + i) % 7);
        tri_tensor_unref(kept[k]);
    }
    tri_loader_destroy(loader);
    assert_int_equal(trii_alloc_live(), live);
}

static void samples_of_different_sizes_need_a_collate(void **state)
{
    tri_dataset set = line_set(), *part;
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(&set, NULL, BATCH, NULL, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_INVALID_ARG,
                "batch 0 of epoch 0: collate: field 0 of sample 1 is i64 [1], of sample 0 i64 [0]");
    tri_loader_destroy(loader);
    CHECK_OK(tri_loader_create(&set, NULL, 1, NULL, &loader)); /* one at a time goes */
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int64_t k = 0; k < LINES; k++) {
        CHECK_OK(tri_loader_next(loader, &batch));
        check_padded(&batch, k, 0, 1);
    }
    tri_loader_destroy(loader);
    CHECK_OK(tri_dataset_subset(&set, 29, 1, &part)); /* a part is a data set like the whole */
    CHECK_OK(tri_loader_create(part, NULL, BATCH, NULL, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    CHECK_OK(tri_loader_next(loader, &batch));
    assert_int_equal(((const int64_t *)trii_tensor_data(batch.fields[0]))[0], 2900);
    tri_loader_destroy(loader);
    tri_dataset_destroy(part);
    CHECK_FAILS(tri_dataset_read(&set, &(tri_request){.indices = (const int64_t[]){1}, .n = 1},
                                 (void *const[]){NULL, NULL, NULL}),
                TRI_ERR_INVALID_ARG, "samples vary in size");
}

/* Of samples of one size a batch of other fields: the sum over the batch, and how many there
 * were. */
static tri_status collate_sum(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg)
{
    float *sum = tri_sample_room(batch, 0, TRI_DTYPE_F32, samples[0].fields[0].shape, 1);
    int64_t *count = tri_sample_room(batch, 1, TRI_DTYPE_I64, NULL, 0);

    if (sum == NULL || count == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(sum, 0, 3 * sizeof(*sum));
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++)
            sum[k] += ((const float *)samples[i].data[0])[k] * *(const float *)arg;
    }
    *count = n;
    return TRI_OK;
}

static void an_own_collate_makes_any_batch(void **state)
{
    const tri_field field = {TRI_DTYPE_F32, 1, {3}};
    float data[11][3], factor = 2;
    long live = trii_alloc_live();
    tri_loader *loader;
    tri_dataset *set;
    tri_batch batch;

    (void)state;
    for (int i = 0; i < 11; i++) {
        for (int k = 0; k < 3; k++)
            data[i][k] = (float)(10 * i + k);
    }
    CHECK_OK(tri_dataset_arrays(11, &field, (const void *const[]){data}, 1, &set));
    CHECK_OK(tri_loader_create(
        set, NULL, 4,
        &(tri_loader_options){.n_threads = 2, .collate = collate_sum, .collate_arg = &factor},
        &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int k = 0; k < 3; k++) {
        int rows = k == 2 ? 3 : 4;

        CHECK_OK(tri_loader_next(loader, &batch));
        assert_int_equal(batch.n_fields, 2);
        assert_int_equal(*(const int64_t *)trii_tensor_data(batch.fields[1]), rows);
        assert_true(((const float *)trii_tensor_data(batch.fields[0]))[1] ==
                    2 * (float)(rows + 10 * (rows * 4 * k + rows * (rows - 1) / 2)));
    }
    tri_loader_destroy(loader);
    CHECK_OK(tri_loader_create(set, NULL, 11, &(tri_loader_options){.collate = tri_collate_default},
                               &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    CHECK_OK(tri_loader_next(loader, &batch));
    assert_memory_equal(trii_tensor_data(batch.fields[0]), data, sizeof(data));
    tri_loader_destroy(loader);
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
}

/* What a class may do wrong, by the index of the sample. */
static tri_status wrong_sample(tri_dataset *self, const tri_request *request, tri_sample *out)
{
    const int64_t two = 2;

    (void)self;
    switch (request->indices[0]) {
    case 0:
        return TRI_OK; /* no field */
    case 1:
        return tri_sample_room(out, 1, TRI_DTYPE_F32, &two, 1) != NULL ? TRI_OK : TRI_ERR_IO;
    case 2:
        (void)tri_sample_room(out, TRI_MAX_FIELDS, TRI_DTYPE_F32, &two, 1);
        return TRI_OK;
    case 3:
        return TRI_END;
    case 4:
        return TRI_ERR_IO;
    case 5:
        return TRII_FAIL(TRI_ERR_IO, "line 5 is unreadable");
    case 6:
        (void)tri_sample_room(out, 0, TRI_DTYPE_F64, &two, 1);
        return TRI_OK;
    case 7:
        (void)tri_sample_room(out, 0, TRI_DTYPE_F32, (const int64_t[]){3, 1}, 2);
        return TRI_OK;
    case 8:
        (void)tri_sample_room(out, 0, TRI_DTYPE_F32, (const int64_t[]){-1, 2}, 2);
        return TRI_OK;
    default:
        (void)tri_sample_room(out, 0, TRI_DTYPE_F32, (const int64_t[]){2, 0}, 2);
        (void)tri_sample_room(out, 1, TRI_DTYPE_F32, NULL, 0);
        return TRI_OK;
    }
}

static void wrong_samples_are_named(void **state)
{
    static const tri_dataset_class cls = {.name = "wrong", .sample = wrong_sample};
    static const struct {
        tri_status status;
        const char *text;
    } rows[] = {
        {TRI_ERR_INVALID_ARG, "data set wrong: its sample gave no field (tri_sample_room)"},
        {TRI_ERR_INVALID_ARG, "data set wrong: its sample gave no field 0"},
        {TRI_ERR_INVALID_ARG, "sample: field 16 is out of range (0 to 15)"},
        {TRI_ERR_INVALID_ARG, "data set wrong: its sample returned END"},
        {TRI_ERR_IO, "data set wrong: its sample returned IO without a message"},
        {TRI_ERR_IO, "line 5 is unreadable"},
        {TRI_ERR_INVALID_ARG,
         "field 0 of sample 6 is f64 with 1 dimensions, the data set says f32"},
        {TRI_ERR_INVALID_ARG, "dimension 0 of field 0 of sample 7 is 3, the data set says 2"},
        {TRI_ERR_INVALID_ARG, "size -1 of dimension 0 is negative or too large"},
        {TRI_ERR_INVALID_ARG, "sample 9 has 2 fields, the data set says 1"},
    };
    tri_dataset set = {
        .cls = &cls, .length = 10, .n_fields = 1, .fields = {{TRI_DTYPE_F32, 2, {2, -1}}}};
    long live = trii_alloc_live();
    tri_sample sample = {0};

    (void)state;
    for (int64_t i = 0; i < 10; i++) {
        const tri_request request = {.indices = &i, .n = 1};

        CHECK_FAILS(tri_dataset_sample(&set, &request, &sample), rows[i].status, rows[i].text);
    }
    CHECK_FAILS(tri_dataset_sample(&set, &(tri_request){.n = 0}, &sample), TRI_ERR_INVALID_ARG,
                "a request of 0 samples");
    CHECK_FAILS(tri_dataset_sample(NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "dataset is NULL");
    CHECK_FAILS(
        tri_dataset_sample(&set, &(tri_request){.indices = (const int64_t[]){0}, .n = 1}, NULL),
        TRI_ERR_INVALID_ARG, "sample_out is NULL");
    assert_null(tri_sample_room(NULL, 0, TRI_DTYPE_F32, NULL, 0));
    assert_null(tri_sample_room(&sample, 0, TRI_DTYPE_NONE, NULL, 0));
    assert_null(tri_sample_room(&sample, 0, TRI_DTYPE_F32, NULL, 1));
    assert_null(
        tri_sample_room(&sample, 0, TRI_DTYPE_F32, (const int64_t[]){INT64_MAX, INT64_MAX}, 2));
    tri_sample_clear(&sample);
    assert_null(sample.memory);
    tri_sample_clear(&sample);
    tri_sample_clear(NULL);
    set.fields[0].shape[1] = -2;
    CHECK_FAILS(tri_loader_create(&set, NULL, 1, NULL, &(tri_loader *){NULL}), TRI_ERR_INVALID_ARG,
                "size -2");
    assert_int_equal(trii_alloc_live(), live);
}

static void wrong_collates_are_named(void **state)
{
    float two[2] = {1, 2};
    tri_sample a = {.n_fields = 1, .fields = {{TRI_DTYPE_BF16, 1, {1}}}, .data = {two}}, b = a, out;
    tri_sample pair[2];
    long live = trii_alloc_live();

    (void)state;
    out = (tri_sample){0};
    b.fields[0] = (tri_field){TRI_DTYPE_BF16, 1, {2}};
    pair[0] = a;
    pair[1] = b;
#define REFUSED(call, what) CHECK_FAILS(call, TRI_ERR_INVALID_ARG, what)
    REFUSED(tri_collate_default(NULL, 1, &out, NULL), "samples is NULL");
    REFUSED(tri_collate_default(pair, 1, NULL, NULL), "batch is NULL");
    REFUSED(tri_collate_default(pair, 0, &out, NULL), "0 samples");
    REFUSED(tri_collate_pad(&(tri_sample){0}, 1, &out, NULL), "1 samples of 0 fields");
    REFUSED(tri_collate_default(pair, 2, &out, NULL), "field 0 of sample 1 is bf16 [2]");
    CHECK_OK(tri_collate_pad(pair, 2, &out, NULL)); /* zero goes with every type */
    assert_int_equal(out.fields[0].shape[1], 2);
    REFUSED(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.value = {1}}),
            "bf16 cannot be padded with 1");
    REFUSED(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.multiple = {-1}}),
            "multiples of -1");
    for (int i = 0; i < 2; i++)
        pair[i].fields[0].dtype = TRI_DTYPE_U8;
    REFUSED(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.value = {256}}), "with 256");
    REFUSED(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.value = {-1}}), "with -1");
    REFUSED(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.value = {0.5}}), "with 0.5");
    CHECK_OK(tri_collate_pad(pair, 2, &out, &(tri_collate_pad_options){.value = {255}}));
    assert_int_equal(((const uint8_t *)out.data[0])[1], 255);
    pair[1].fields[0].dtype = TRI_DTYPE_I8;
    REFUSED(tri_collate_pad(pair, 2, &out, NULL), "sample 1 has 1 fields, of which field 0 is i8");
#undef REFUSED
    tri_sample_clear(&out);
    assert_int_equal(trii_alloc_live(), live);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    long live = trii_alloc_live();

    (void)state;
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_dataset set = line_set();
        tri_loader *loader = NULL;
        tri_batch batch;

        trii_alloc_fail_at(n);
        status = tri_loader_create(&set, NULL, BATCH,
                                   &(tri_loader_options){.collate = tri_collate_pad}, &loader);
        if (status == TRI_OK)
            status = tri_loader_begin(loader, 0, 0);
        for (int k = 0; k < 2 && status == TRI_OK; k++)
            status = tri_loader_next(loader, &batch);
        trii_alloc_fail_at(0);
        tri_loader_destroy(loader);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(padded_batches_are_the_same_with_any_number_of_threads),
    cmocka_unit_test(a_kept_batch_is_not_overwritten),
    cmocka_unit_test(samples_of_different_sizes_need_a_collate),
    cmocka_unit_test(an_own_collate_makes_any_batch),
    cmocka_unit_test(wrong_samples_are_named),
    cmocka_unit_test(wrong_collates_are_named),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
