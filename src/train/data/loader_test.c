/* loader_test.c - batches: order, contents, threads, failures, early ends, memory. */
#include <stdatomic.h>
#include <string.h>

#include <trireme/data.h>
#include <trireme/ops.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"

enum { SAMPLES = 103, BATCH = 10 };

/* A set that makes its samples and counts who is at work. */
typedef struct made_set {
    tri_dataset base;
    atomic_int fails_at; /* index; -1 = never */
    atomic_int made;
} made_set;

static tri_status made_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    made_set *set = (made_set *)self;
    float *x = slots[0];
    int64_t *y = slots[1];

    for (int64_t i = 0; i < request->n; i++) {
        int64_t index = request->indices[i];

        if (index == atomic_load(&set->fails_at))
            return TRII_FAIL(TRI_ERR_IO, "sample %d is unreadable", (int)index);
        for (int k = 0; k < 3; k++)
            x[3 * i + k] =
                (float)(index * 1000 + request->epoch * 10 + k) + (float)request->seed * 0.5f;
        y[i] = index;
    }
    atomic_fetch_add(&set->made, 1);
    return TRI_OK;
}

static const tri_dataset_class made_class = {.name = "made", .read = made_read};

static made_set make_set(void)
{
    return (made_set){
        .base = {.cls = &made_class,
                 .length = SAMPLES,
                 .n_fields = 2,
                 .fields = {{TRI_DTYPE_F32, 1, {3}}, {TRI_DTYPE_I64, 0, {0}}}},
        .fails_at = -1,
    };
}

static void check_batch(const tri_batch *batch, const int64_t *order, int64_t epoch, int64_t rows)
{
    const float *x = trii_tensor_data(batch->fields[0]);
    const int64_t *y = trii_tensor_data(batch->fields[1]);

    assert_int_equal(batch->size, rows);
    assert_int_equal(batch->n_fields, 2);
    assert_int_equal(tri_tensor_size(batch->fields[0], 0), rows);
    assert_int_equal(tri_tensor_size(batch->fields[0], 1), 3);
    assert_int_equal(tri_tensor_ndim(batch->fields[1]), 1);
    for (int64_t i = 0; i < rows; i++) {
        int64_t index = order[batch->index * BATCH + i];

        assert_int_equal(y[i], index);
        assert_true(x[3 * i + 2] == (float)(index * 1000 + epoch * 10 + 2) + 4.5f);
    }
}

static void run_epochs(const tri_loader_options *opt, bool drop_last)
{
    long live = trii_alloc_live();
    made_set set = make_set();
    tri_loader_options options = *opt;
    tri_sampler *sampler;
    tri_loader *loader;
    tri_batch batch;

    options.seed = 9;
    options.drop_last = drop_last;
    CHECK_OK(tri_sampler_distributed(SAMPLES, &(tri_sampler_distributed_options){.n_replicas = 1},
                                     &sampler));
    CHECK_OK(tri_loader_create(&set.base, sampler, BATCH, &options, &loader));
    assert_int_equal(tri_loader_length(loader), drop_last ? 10 : 11);
    for (int64_t epoch = 3; epoch < 7; epoch++) {
        long before;

        CHECK_OK(tri_loader_begin(loader, epoch, 0));
        before = trii_alloc_live();
        for (int64_t k = 0; k < tri_loader_length(loader); k++) {
            CHECK_OK(tri_loader_next(loader, &batch));
            assert_int_equal(batch.index, k);
            check_batch(&batch, tri_sampler_indices(sampler), epoch, k == 10 ? 3 : 10);
        }
        assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
        assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
        if (epoch > 3) /* nothing is allocated any more (a thread that starts late frees) */
            assert_true(trii_alloc_live() <= before);
    }
    tri_loader_destroy(loader);
    tri_sampler_destroy(sampler);
    assert_int_equal(trii_alloc_live(), live);
}

static void batches_come_in_order_with_any_number_of_threads(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 5; threads++) {
        run_epochs(&(tri_loader_options){.n_threads = threads}, threads % 2 == 0);
        run_epochs(&(tri_loader_options){.n_threads = threads, .n_prefetch = 1}, false);
        run_epochs(&(tri_loader_options){.n_threads = threads, .n_prefetch = 40}, true);
    }
}

/* A program of a later version finds zeros where it has fields that this library does not know. */
static void a_batch_is_written_whole(void **state)
{
    static const tri_batch zero;
    made_set set = make_set();
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(&set.base, NULL, BATCH, NULL, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    memset(&batch, 0xff, sizeof(batch));
    CHECK_OK(tri_loader_next(loader, &batch));
    assert_memory_equal(batch.reserved, zero.reserved, sizeof(zero.reserved));
    assert_null(batch.fields[TRI_MAX_FIELDS - 1]);
    tri_loader_destroy(loader);
}

/* What a run that was stopped in the middle of an epoch sees when it continues. */
static void an_epoch_may_begin_with_any_batch(void **state)
{
    long live = trii_alloc_live();
    made_set set = make_set();
    tri_sampler *sampler;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_sampler_random(SAMPLES, NULL, &sampler));
    for (int threads = 0; threads <= 3; threads++) {
        tri_loader *loader;

        CHECK_OK(tri_loader_create(
            &set.base, sampler, BATCH,
            &(tri_loader_options){.n_threads = threads, .seed = 9, .pin_memory = true}, &loader));
        for (int64_t first = 0; first <= 11; first++) {
            atomic_store(&set.made, 0);
            CHECK_OK(tri_loader_begin(loader, 4, first));
            for (int64_t k = first; k < 11; k++) {
                CHECK_OK(tri_loader_next(loader, &batch));
                assert_int_equal(batch.index, k);
                check_batch(&batch, tri_sampler_indices(sampler), 4, k == 10 ? 3 : 10);
            }
            assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
            assert_int_equal(atomic_load(&set.made), 11 - first); /* the others are not made */
        }
        CHECK_OK(tri_loader_begin(loader, 4, 3));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_FAILS(tri_loader_begin(loader, 5, -1), TRI_ERR_INVALID_ARG,
                    "an epoch of 11 batches cannot begin with batch -1");
        CHECK_FAILS(tri_loader_begin(loader, 5, 12), TRI_ERR_INVALID_ARG, "batch 12");
        CHECK_OK(tri_loader_next(loader, &batch)); /* and this one goes on */
        check_batch(&batch, tri_sampler_indices(sampler), 4, 10);
        assert_int_equal(batch.index, 4);
        tri_loader_destroy(loader);
    }
    tri_sampler_destroy(sampler);
    assert_int_equal(trii_alloc_live(), live);
}

static tri_status draw_or_fail(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    if (epoch == 1)
        return TRII_FAIL(TRI_ERR_IO, "shard 1 is gone");
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = epoch == 2 && i == 7 ? SAMPLES : i;
    return TRI_OK;
}

static void a_sampler_that_fails_ends_the_epoch_that_it_should_begin(void **state)
{
    static const tri_sampler_class cls = {.name = "shards", .draw = draw_or_fail};
    long live = trii_alloc_live();

    (void)state;
    for (int threads = 0; threads <= 2; threads++) {
        made_set set = make_set();
        tri_sampler sampler = {.cls = &cls, .length = 20};
        tri_loader *loader;
        tri_batch batch;

        CHECK_OK(tri_loader_create(&set.base, &sampler, BATCH,
                                   &(tri_loader_options){.n_threads = threads}, &loader));
        CHECK_FAILS(tri_loader_begin(loader, 1, 0), TRI_ERR_IO, "shard 1 is gone");
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_FAILS(tri_loader_begin(loader, 1, 0), TRI_ERR_IO, "shard 1 is gone");
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_IO, "shard 1 is gone");
        CHECK_FAILS(tri_loader_begin(loader, 2, 0), TRI_ERR_INVALID_ARG,
                    "sampler shards (20 samples) draws sample 103, but data set made has 103");
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_INVALID_ARG, "draws sample 103");
        sampler.length = 30;
        CHECK_FAILS(tri_loader_begin(loader, 0, 0), TRI_ERR_INVALID_ARG,
                    "length of sampler shards was 20 and is 30");
        sampler.length = 20;
        CHECK_OK(tri_loader_begin(loader, 0, 1));
        CHECK_OK(tri_loader_next(loader, &batch));
        assert_int_equal(batch.index, 1);
        tri_loader_destroy(loader);
        tri_sampler_destroy(&sampler);
    }
    assert_int_equal(trii_alloc_live(), live);
}

static void without_a_sampler_they_count_up(void **state)
{
    made_set set = make_set();
    tri_loader *loader;
    tri_batch batch;
    int64_t next = 0;

    (void)state;
    CHECK_OK(tri_loader_create(&set.base, NULL, 60, NULL, &loader));
    assert_int_equal(tri_loader_next(loader, &batch), TRI_ERR_STATE);
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        for (int64_t i = 0; i < batch.size; i++)
            assert_int_equal(((const int64_t *)trii_tensor_data(batch.fields[1]))[i], next++);
    }
    assert_int_equal(next, SAMPLES);
    tri_loader_destroy(loader);
}

static void a_batch_larger_than_the_set_is_the_set(void **state)
{
    made_set set = make_set();
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(
        tri_loader_create(&set.base, NULL, 1000, &(tri_loader_options){.n_threads = 2}, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    CHECK_OK(tri_loader_next(loader, &batch));
    assert_int_equal(batch.size, SAMPLES);
    assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
    tri_loader_destroy(loader);
}

/* Threads run ahead by the prefetch and no further. */
static void threads_run_ahead_by_the_prefetch_only(void **state)
{
    made_set set = make_set();
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(&set.base, NULL, 1,
                               &(tri_loader_options){.n_threads = 3, .n_prefetch = 4}, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int k = 1; k <= 50; k++) {
        CHECK_OK(tri_loader_next(loader, &batch));
        /* k - 1 are free, one is ours, four lie ahead. */
        assert_in_range(atomic_load(&set.made), 1, k + 4);
    }
    tri_loader_destroy(loader);
}

static void a_failure_comes_out_at_its_batch(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        made_set set = make_set();
        tri_loader *loader;
        tri_batch batch;

        atomic_store(&set.fails_at, 57);
        CHECK_OK(tri_loader_create(&set.base, NULL, BATCH,
                                   &(tri_loader_options){.n_threads = threads}, &loader));
        CHECK_OK(tri_loader_begin(loader, 2, 0));
        for (int k = 0; k < 5; k++)
            CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_IO,
                    "batch 5 of epoch 2: sample 57 is unreadable");
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_IO, "sample 57");
        atomic_store(&set.fails_at, -1);
        CHECK_OK(tri_loader_begin(loader, 3, 0));
        for (int k = 0; k < 11; k++)
            CHECK_OK(tri_loader_next(loader, &batch));
        tri_loader_destroy(loader);
    }
    assert_int_equal(trii_alloc_live(), live);
}

/* As one that a user writes, who has no line to set. */
static tri_status read_nothing(tri_dataset *self, const tri_request *request, void *const *slots)
{
    (void)self;
    (void)request;
    (void)slots;
    return TRI_ERR_IO;
}

static void a_failure_without_a_line_names_the_data_set(void **state)
{
    static const tri_dataset_class mute = {.name = "mute", .read = read_nothing};

    (void)state;
    for (int threads = 0; threads <= 1; threads++) {
        made_set set = make_set();
        tri_loader *loader;
        tri_batch batch;

        set.base.cls = &mute;
        CHECK_OK(tri_loader_create(&set.base, NULL, BATCH,
                                   &(tri_loader_options){.n_threads = threads}, &loader));
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        CHECK_FAILS(tri_dataset_read(NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "dataset is NULL");
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_IO,
                    "batch 0 of epoch 0: data set mute: its read returned IO without a message");
        tri_loader_destroy(loader);
    }
}

static void an_epoch_may_end_early(void **state)
{
    long live = trii_alloc_live();

    (void)state;
    for (int taken = 0; taken <= 11; taken++) {
        made_set set = make_set();
        tri_loader *loader;
        tri_batch batch;

        CHECK_OK(tri_loader_create(&set.base, NULL, BATCH,
                                   &(tri_loader_options){.n_threads = 2, .n_prefetch = 3},
                                   &loader));
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            CHECK_OK(tri_loader_begin(loader, epoch, 0));
            for (int k = 0; k < taken; k++) {
                CHECK_OK(tri_loader_next(loader, &batch));
                assert_int_equal(batch.index, k);
                assert_true(((const float *)trii_tensor_data(batch.fields[0]))[0] ==
                            (float)(k * 10 * 1000 + (int)epoch * 10));
            }
        }
        tri_loader_destroy(loader); /* in the middle of it */
    }
    assert_int_equal(trii_alloc_live(), live);
}

static void a_sampler_of_another_data_set_is_refused_at_the_beginning(void **state)
{
    made_set set = make_set();
    tri_sampler *longer;
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_sampler_sequential(SAMPLES + 7, &longer));
    for (int n_threads = 0; n_threads < 2; n_threads++) {
        CHECK_OK(tri_loader_create(&set.base, longer, BATCH,
                                   &(tri_loader_options){.n_threads = n_threads}, &loader));
        CHECK_FAILS(tri_loader_begin(loader, 0, 0), TRI_ERR_INVALID_ARG,
                    "sampler sequential (110 samples) draws sample 103, but data set");
        assert_non_null(strstr(tri_last_error(), " has 103: "));
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_STATE, "before tri_loader_begin");
        tri_loader_destroy(loader);
    }
    tri_sampler_destroy(longer);
}

/* The loader goes on, and what was really kept is released. */
static void a_batch_that_is_released_stays_the_loader_s(void **state)
{
    long live = trii_alloc_live();
    made_set set = make_set();
    tri_tensor *kept = NULL;
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    for (int n_threads = 0; n_threads < 2; n_threads++) {
        CHECK_OK(tri_loader_create(&set.base, NULL, BATCH,
                                   &(tri_loader_options){.n_threads = n_threads}, &loader));
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        for (int k = 0; k < 11; k++) {
            CHECK_OK(tri_loader_next(loader, &batch));
            assert_int_equal(((const int64_t *)trii_tensor_data(batch.fields[1]))[0], k * BATCH);
            if (k == 3)
                kept = tri_tensor_ref(batch.fields[1]);
            else
                tri_tensor_unref(batch.fields[1]); /* not ours */
        }
        tri_loader_destroy(loader);
        assert_int_equal(((const int64_t *)trii_tensor_data(kept))[0], 3 * BATCH);
        tri_tensor_unref(kept);
    }
    assert_int_equal(trii_alloc_live(), live);
}

/* A program that keeps a batch's tensor keeps its contents. */
static void a_kept_batch_is_not_overwritten(void **state)
{
    long live = trii_alloc_live();
    made_set set = make_set();
    tri_tensor *kept[4];
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(
        tri_loader_create(&set.base, NULL, BATCH, &(tri_loader_options){.n_threads = 1}, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    for (int k = 0; k < 11; k++) {
        CHECK_OK(tri_loader_next(loader, &batch));
        if (k < 4)
            kept[k] = tri_tensor_ref(batch.fields[1]);
    }
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < BATCH; i++)
            assert_int_equal(((const int64_t *)trii_tensor_data(kept[k]))[i], k * BATCH + i);
        tri_tensor_unref(kept[k]);
    }
    tri_loader_destroy(loader);
    assert_int_equal(trii_alloc_live(), live);
}

/* A tensor with a gradient is not filled again: the next batch begins without one, and the last may
 * be shorter. */
static void a_gradient_of_a_batch_goes_with_it(void **state)
{
    made_set set = make_set();
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(&set.base, NULL, BATCH, NULL, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        tri_tensor *x = batch.fields[0];
        const float *g, *v;

        tri_requires_grad(x, true);
        tri_backward(tri_sum(tri_square(x), NULL, 0, false));
        CHECK_OK(tri_step_end_status());
        assert_int_equal(tri_tensor_size(tri_grad(x), 0), batch.size);
        g = trii_tensor_data(tri_grad(x));
        v = trii_tensor_data(x);
        for (int64_t i = 0; i < 3 * batch.size; i++)
            assert_true(g[i] == 2 * v[i]);
    }
    assert_int_equal(batch.index, SAMPLES / BATCH);
    tri_loader_destroy(loader);
}

/* Nor is one whose gradients were asked for and never computed: nobody has asked for those of the
 * batch that would lie there. */
static void a_batch_that_may_have_a_gradient_is_not_filled_again(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        const tri_loader_options o = {.n_threads = how % 2,
                                      .collate = how < 2 ? NULL : tri_collate_default};
        made_set set = make_set();
        tri_loader *loader;
        tri_batch batch;

        CHECK_OK(tri_loader_create(&set.base, NULL, BATCH, &o, &loader));
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        while (tri_loader_next(loader, &batch) == TRI_OK) {
            assert_false(batch.fields[0]->requires_grad);
            if (batch.index % 2 == 0)
                tri_requires_grad(batch.fields[0], true);
        }
        assert_int_equal(batch.index, SAMPLES / BATCH);
        tri_loader_destroy(loader);
    }
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    long live = trii_alloc_live();

    (void)state;
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        made_set set = make_set();
        tri_sampler *sampler = NULL;
        tri_loader *loader = NULL;

        trii_alloc_fail_at(n);
        status = tri_sampler_distributed(
            SAMPLES, &(tri_sampler_distributed_options){.n_replicas = 2}, &sampler);
        if (status == TRI_OK)
            status = tri_loader_create(&set.base, sampler, BATCH,
                                       &(tri_loader_options){.n_threads = 2}, &loader);
        trii_alloc_fail_at(0);
        tri_loader_destroy(loader);
        tri_sampler_destroy(sampler);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
}

static void wrong_arguments_are_refused(void **state)
{
    made_set set = make_set();
    tri_loader *loader;

    (void)state;
    CHECK_FAILS(tri_loader_create(&set.base, NULL, 0, NULL, &loader), TRI_ERR_INVALID_ARG,
                "batch_size is 0: at least 1");
    CHECK_FAILS(
        tri_loader_create(&set.base, NULL, 1, &(tri_loader_options){.n_threads = -1}, &loader),
        TRI_ERR_INVALID_ARG, "-1 threads");
    set.base.length = 0;
    CHECK_FAILS(tri_loader_create(&set.base, NULL, 1, NULL, &loader), TRI_ERR_INVALID_ARG, "empty");
}

static tri_status ends_early(tri_dataset *self, const tri_request *request, void *const *slots)
{
    (void)self;
    (void)slots;
    return request->indices[0] >= 4 ? TRI_END : TRI_OK;
}

/* "Not done" is no way for a data set to fail: its samples would be what lay there before. */
static void a_data_set_cannot_end_in_the_middle(void **state)
{
    static const tri_dataset_class cls = {.name = "short", .read = ends_early};

    (void)state;
    for (int threads = 0; threads < 3; threads += 2) {
        tri_dataset set = {
            .cls = &cls, .length = 12, .n_fields = 1, .fields = {{.dtype = TRI_DTYPE_F32}}};
        tri_loader *loader;
        tri_batch batch;

        CHECK_OK(
            tri_loader_create(&set, NULL, 4, &(tri_loader_options){.n_threads = threads}, &loader));
        CHECK_OK(tri_loader_begin(loader, 0, 0));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_INVALID_ARG,
                    "data set short: its read returned END");
        tri_loader_destroy(loader);
    }
}

static void arguments_that_cannot_be_are_named(void **state)
{
    static const float data[4];
    static const void *const at[] = {data};
    static const tri_dataset_class nothing = {.name = "nothing"};
    const tri_field field = {.dtype = TRI_DTYPE_F32};
    tri_dataset empty = {.cls = &nothing, .length = 4, .n_fields = 1, .fields = {field}};
    tri_dataset unfinished = {.length = 4, .n_fields = 1, .fields = {field}};
    tri_request request = {.indices = (const int64_t[]){0}, .n = 1};
    float slot;
    void *const slots[] = {&slot};
    tri_dataset *set, *out = NULL;
    tri_sampler *sampler;
    tri_loader *loader;
    tri_batch batch;

    (void)state;
#define REFUSED(call, what) CHECK_FAILS(call, TRI_ERR_INVALID_ARG, what)
    CHECK_OK(tri_dataset_arrays(4, &field, at, 1, &set));
    assert_int_equal(tri_dataset_length(NULL), 0);
    tri_dataset_destroy(NULL);
    REFUSED(tri_dataset_arrays(4, NULL, at, 1, &out), "fields is NULL");
    REFUSED(tri_dataset_arrays(4, &field, NULL, 1, &out), "data is NULL");
    REFUSED(tri_dataset_arrays(4, &field, at, 1, NULL), "dataset_out is NULL");
    REFUSED(tri_dataset_arrays(-1, &field, at, 1, &out), "-1 samples");
    REFUSED(tri_dataset_read(NULL, &request, slots), "dataset is NULL");
    REFUSED(tri_dataset_read(set, NULL, slots), "request is NULL");
    REFUSED(tri_dataset_read(set, &request, NULL), "slots is NULL");
    REFUSED(tri_dataset_read(set, &(tri_request){.n = 1}, slots), "request->indices is NULL");
    REFUSED(tri_dataset_read(set, &(tri_request){.n = -1}, slots), "-1 samples");
    REFUSED(tri_dataset_subset(NULL, 0, 1, &out), "dataset is NULL");
    REFUSED(tri_dataset_subset(&empty, 0, 1, &out), "neither read nor peek");
    REFUSED(tri_sampler_distributed(4, NULL, NULL), "sampler_out is NULL");
    REFUSED(tri_sampler_distributed(-1, NULL, &sampler), "-1 samples");
    REFUSED(tri_sampler_set_epoch(NULL, 1), "sampler is NULL");
    assert_int_equal(tri_sampler_length(NULL), 0);
    assert_null(tri_sampler_indices(NULL));
    REFUSED(tri_loader_create(NULL, NULL, 1, NULL, &loader), "dataset is NULL");
    REFUSED(tri_loader_create(&unfinished, NULL, 1, NULL, &loader), "dataset->cls is NULL");
    REFUSED(tri_loader_create(&empty, NULL, 1, NULL, &loader), "neither read nor peek");
    REFUSED(tri_loader_create(set, NULL, 0, NULL, &loader), "batch_size is 0: at least 1");
    REFUSED(tri_loader_create(set, NULL, 1, NULL, NULL), "loader_out is NULL");
    assert_int_equal(tri_loader_length(NULL), 0);
    REFUSED(tri_loader_begin(NULL, 0, 0), "loader is NULL");
    REFUSED(tri_loader_next(NULL, &batch), "loader is NULL");
    CHECK_OK(tri_loader_create(set, NULL, 1, NULL, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    REFUSED(tri_loader_next(loader, NULL), "batch_out is NULL");
    tri_loader_destroy(loader);
    REFUSED(tri_dataset_subset(set, 0, 1, NULL), "dataset_out is NULL"); /* set is gone */
#undef REFUSED
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_come_in_order_with_any_number_of_threads),
    cmocka_unit_test(a_batch_is_written_whole),
    cmocka_unit_test(an_epoch_may_begin_with_any_batch),
    cmocka_unit_test(a_sampler_that_fails_ends_the_epoch_that_it_should_begin),
    cmocka_unit_test(without_a_sampler_they_count_up),
    cmocka_unit_test(a_batch_larger_than_the_set_is_the_set),
    cmocka_unit_test(threads_run_ahead_by_the_prefetch_only),
    cmocka_unit_test(a_failure_comes_out_at_its_batch),
    cmocka_unit_test(a_failure_without_a_line_names_the_data_set),
    cmocka_unit_test(an_epoch_may_end_early),
    cmocka_unit_test(a_sampler_of_another_data_set_is_refused_at_the_beginning),
    cmocka_unit_test(a_batch_that_is_released_stays_the_loader_s),
    cmocka_unit_test(a_kept_batch_is_not_overwritten),
    cmocka_unit_test(a_gradient_of_a_batch_goes_with_it),
    cmocka_unit_test(a_batch_that_may_have_a_gradient_is_not_filled_again),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(wrong_arguments_are_refused),
    cmocka_unit_test(a_data_set_cannot_end_in_the_middle),
    cmocka_unit_test(arguments_that_cannot_be_are_named),
};
TEST_MAIN(tests)
