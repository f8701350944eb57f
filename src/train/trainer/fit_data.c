/*
 * fit_data.c - each rank's samples: training dealt out, evaluation in shares.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "train/trainer/trainer_internal.h"

#define CALL trii_fit_call_name(t->call)

/* --- a share: samples that follow each other ------------------------------ */

typedef struct share {
    tri_sampler base; /* first */
    int64_t first;
} share;

static tri_status share_draw(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    (void)epoch;
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = ((share *)self)->first + i;
    return TRI_OK;
}

static void share_destroy(tri_sampler *self)
{
    trii_free(self);
}

static tri_status make_share(int64_t first, int64_t length, tri_sampler **sampler_out)
{
    static const tri_sampler_class share_class = {
        .name = "share", .draw = share_draw, .destroy = share_destroy};
    share *s = trii_alloc(1, sizeof(*s), "sampler");

    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->base.cls = &share_class;
    s->base.length = length;
    s->first = first;
    *sampler_out = &s->base;
    return TRI_OK;
}

/* --- parts ---------------------------------------------------------------- */

static int64_t limited(int64_t n, int64_t count, double part)
{
    if (part > 0)
        count = (int64_t)((double)n * part) > 0 ? (int64_t)((double)n * part) : 1;
    return count > 0 && count < n ? count : n;
}

static tri_status open_loader(const tri_trainer *t, trii_part *part, bool drop_last)
{
    tri_loader_options options = t->data->loader;
    tri_status status;

    options.drop_last = drop_last;
    if (options.seed == 0)
        options.seed = t->opt->seed;
    status =
        tri_loader_create(part->dataset, part->sampler, part->batch_size, &options, &part->loader);
    if (status == TRI_OK)
        part->n_batches = tri_loader_length(part->loader);
    return status;
}

static tri_status open_train(tri_trainer *t, int64_t batch_size)
{
    const tri_fit_options *opt = t->opt;
    trii_part *part = &t->train;
    bool drop_last = t->data->loader.drop_last;
    tri_status status;

    part->dataset = t->data->train;
    part->batch_size = batch_size;
    status =
        tri_sampler_distributed(tri_dataset_length(part->dataset),
                                &(tri_sampler_distributed_options){
                                    .n_replicas = t->size,
                                    .rank = t->rank,
                                    .sequential = t->data->no_shuffle || opt->overfit_batches > 0,
                                    .drop_last = drop_last,
                                    .seed = opt->seed},
                                &part->sampler);
    if (status == TRI_OK)
        status = open_loader(t, part, drop_last);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "train");
    part->length = tri_sampler_length(part->sampler);
    if (part->n_batches == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "train: %" PRId64 " samples do not fill a batch of %" PRId64
                         " for each of %d ranks: make the batch smaller, or leave loader.drop_last "
                         "out",
                         tri_dataset_length(part->dataset), batch_size, t->size);
    part->n_batches = limited(part->n_batches, opt->limit_train_batches, opt->limit_train_share);
    part->n_batches = limited(part->n_batches, opt->overfit_batches, 0);
    part->n_batches = limited(part->n_batches, opt->fast_dev_run, 0);
    if (opt->val_check_interval > part->n_batches && opt->check_val_every_n_epoch > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "val_check_interval %" PRId64 " is more than the %" PRId64
                         " batches of an epoch and is counted over epochs: leave "
                         "check_val_every_n_epoch %" PRId64 " out",
                         opt->val_check_interval, part->n_batches, opt->check_val_every_n_epoch);
    /* all but the last are full */
    t->samples_per_epoch = t->size * ((part->n_batches - 1) * batch_size +
                                      trii_part_batch_samples(part, part->n_batches - 1));
    return TRI_OK;
}

/* The limits of this part. */
static tri_status open_share(tri_trainer *t, trii_part *part, tri_dataset *dataset,
                             int64_t batch_size, int64_t limit, double limit_share)
{
    int64_t n = tri_dataset_length(dataset), first = n / t->size * t->rank, end;
    tri_status status;

    /* as n * rank / size, for any n */
    first += n % t->size * t->rank / t->size;
    end = n / t->size * (t->rank + 1) + n % t->size * (t->rank + 1) / t->size;
    part->dataset = dataset;
    part->batch_size = batch_size;
    part->length = end - first;
    if (part->length == 0)
        return TRI_OK;
    status = make_share(first, part->length, &part->sampler);
    if (status == TRI_OK)
        status = open_loader(t, part, false);
    if (status == TRI_OK) {
        part->n_batches = limited(part->n_batches, limit, limit_share);
        part->n_batches = limited(part->n_batches, t->opt->fast_dev_run, 0);
    }
    return status;
}

static tri_status find_batch_size(const tri_trainer *t, int64_t *batch_size_out)
{
    const tri_fit_data *data = t->data;
    int64_t batches = t->size * t->set.accumulate;

    *batch_size_out = data->batch_size;
    if (data->global_batch_size == 0)
        return TRI_OK;
    if (data->global_batch_size % batches != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: global_batch_size %" PRId64 " is not a multiple of %" PRId64
                         ", the %d ranks x %" PRId64 " batches of an update: %" PRId64 " would be",
                         CALL, data->global_batch_size, batches, t->size, t->set.accumulate,
                         (data->global_batch_size / batches + 1) * batches);
    *batch_size_out = data->global_batch_size / batches;
    if (data->batch_size != 0 && data->batch_size != *batch_size_out)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: batch_size %" PRId64 " x %d ranks x %" PRId64
                         " batches of an update is %" PRId64 ", and global_batch_size is %" PRId64
                         ": leave one of them out",
                         CALL, data->batch_size, t->size, t->set.accumulate,
                         data->batch_size * batches, data->global_batch_size);
    return TRI_OK;
}

tri_status trii_fit_open_data(tri_trainer *t)
{
    const tri_fit_data *data = t->data;
    const tri_fit_options *opt = t->opt;
    int64_t batch_size = 0, val_size;
    int64_t val_limit = opt->overfit_batches > 0 ? opt->overfit_batches : opt->limit_val_batches;
    tri_status status = find_batch_size(t, &batch_size);

    val_size = data->val_batch_size > 0 ? data->val_batch_size : batch_size;
    if (status == TRI_OK && t->call == TRII_FIT)
        status = open_train(t, batch_size);
    if (status == TRI_OK && data->val != NULL && (t->call == TRII_FIT || t->call == TRII_VALIDATE))
        status = open_share(t, &t->val, data->val, val_size, val_limit, opt->limit_val_share);
    if (status == TRI_OK && t->call == TRII_TEST)
        status = open_share(t, &t->test, data->test, val_size, opt->limit_test_batches,
                            opt->limit_test_share);
    if (status == TRI_OK && t->call == TRII_PREDICT)
        status = open_share(t, &t->predict, data->predict, val_size, opt->limit_predict_batches,
                            opt->limit_predict_share);
    return status;
}

void trii_fit_close_data(tri_trainer *t)
{
    trii_part *const parts[] = {&t->train, &t->val, &t->test, &t->predict};

    for (size_t i = 0; i < TRII_COUNT_OF(parts); i++) {
        tri_loader_destroy(parts[i]->loader);
        tri_sampler_destroy(parts[i]->sampler);
        *parts[i] = (trii_part){0};
    }
}
