/* loader_parts_test.c - batches of much data, which several threads fill in parts. */
#include <stdatomic.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "base/err.h"
#include "testing/check.h"
#include "train/tensor/persistent.h"

enum { LARGE = 32768, LARGE_ROWS = 61, LARGE_BATCH = 20, PARTS = 10 };

/* Fails for the samples whose bit is set, and counts how many ask for a part of a batch. */
typedef struct large_set {
    tri_dataset base;
    atomic_uint_least64_t broken;
    atomic_int asked;
} large_set;

static tri_status large_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    large_set *set = (large_set *)self;

    atomic_fetch_add(&set->asked, 1);
    for (int64_t i = 0; i < request->n; i++) {
        int64_t index = request->indices[i];
        int32_t *x = (int32_t *)slots[0] + i * LARGE;

        if ((atomic_load(&set->broken) >> index & 1) != 0)
            return TRII_FAIL(TRI_ERR_IO, "sample %d is unreadable", (int)index);
        for (int k = 0; k < LARGE; k++)
            x[k] = (int32_t)(index * 1000 + k % 997);
        ((int64_t *)slots[1])[i] = index;
    }
    return TRI_OK;
}

static large_set make_large(void)
{
    static const tri_dataset_class cls = {.name = "large", .read = large_read};

    return (large_set){.base = {.cls = &cls,
                                .length = LARGE_ROWS,
                                .n_fields = 2,
                                .fields = {{TRI_DTYPE_I32, 1, {LARGE}}, {TRI_DTYPE_I64, 0, {0}}}}};
}

static void check_large(const tri_batch *batch)
{
    const int32_t *x = trii_tensor_data(batch->fields[0]);
    const int64_t *y = trii_tensor_data(batch->fields[1]);

    assert_int_equal(batch->size, batch->index == 3 ? 1 : LARGE_BATCH);
    for (int64_t i = 0; i < batch->size; i++) {
        assert_int_equal(y[i], batch->index * LARGE_BATCH + i);
        for (int k = 0; k < LARGE; k += 101)
            assert_int_equal(x[i * LARGE + k], y[i] * 1000 + k % 997);
    }
}

static void threads_share_a_batch_of_much_data(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    for (int threads = 0; threads <= 5; threads++) {
        large_set set = make_large();
        tri_sampler *sampler = NULL;
        tri_loader *loader;
        tri_batch batch;

        if (threads % 2 == 0)
            CHECK_OK(tri_sampler_sequential(LARGE_ROWS, &sampler));
        CHECK_OK(tri_loader_create(&set.base, sampler, LARGE_BATCH,
                                   &(tri_loader_options){.n_threads = threads, .n_prefetch = 2},
                                   &loader));
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            atomic_store(&set.asked, 0);
            CHECK_OK(tri_loader_begin(loader, epoch, epoch));
            for (int64_t k = epoch; k < 4; k++) {
                CHECK_OK(tri_loader_next(loader, &batch));
                assert_int_equal(batch.index, k);
                check_large(&batch);
            }
            assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
            /* parts of 256 KB, of a last batch as many as it has rows */
            assert_int_equal(atomic_load(&set.asked),
                             threads < 2 ? 4 - epoch : PARTS * (3 - epoch) + 1);
        }
        CHECK_OK(tri_loader_begin(loader, 0, 0)); /* and is left in the middle */
        CHECK_OK(tri_loader_next(loader, &batch));
        tri_loader_destroy(loader);
        tri_sampler_destroy(sampler);
    }
    assert_int_equal(trii_alloc_live(), live);
}

static void of_several_parts_that_fail_the_first_one_is_told(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 5; threads++) {
        for (int times = 0; times < 5; times++) {
            large_set set = make_large();
            tri_loader *loader;
            tri_batch batch;

            /* of the second batch, of which samples 20 and 21 are whole, and of the third */
            atomic_store(&set.broken, UINT64_C(0xffffffff) << 22);
            CHECK_OK(tri_loader_create(&set.base, NULL, LARGE_BATCH,
                                       &(tri_loader_options){.n_threads = threads}, &loader));
            CHECK_OK(tri_loader_begin(loader, 2, 0));
            CHECK_OK(tri_loader_next(loader, &batch));
            check_large(&batch);
            CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_IO,
                        "batch 1 of epoch 2: sample 22 is unreadable");
            atomic_store(&set.broken, 0);
            CHECK_OK(tri_loader_begin(loader, 3, 1));
            for (int k = 1; k < 4; k++) {
                CHECK_OK(tri_loader_next(loader, &batch));
                check_large(&batch);
            }
            tri_loader_destroy(loader);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_share_a_batch_of_much_data),
    cmocka_unit_test(of_several_parts_that_fail_the_first_one_is_told),
};

TEST_MAIN(tests)
