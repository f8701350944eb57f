/*
 * fit_predict.c - predictions: each rank makes those of its share, and all get all of them.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "train/trainer/trainer_internal.h"

/* Of one rank; what it sends to the others before the contents. */
typedef struct shape {
    int64_t dtype, ndim;
    int64_t size[TRI_MAX_DIMS]; /* size[0]: samples of this rank */
} shape;

typedef struct share {
    shape of;
    char *data;
    size_t bytes, row_bytes, room;
} share;

/* The first batch says what predictions look like. */
static tri_status check_shape(share *s, tri_tensor *x, int64_t samples)
{
    int ndim = tri_tensor_ndim(x);
    bool same = ndim >= 1 && tri_tensor_size(x, 0) == samples;

    if (same && s->of.ndim == 0) {
        s->of.dtype = tri_tensor_dtype(x);
        s->of.ndim = ndim;
        s->row_bytes = tri_dtype_size(tri_tensor_dtype(x));
        for (int d = 1; d < ndim; d++) {
            s->of.size[d] = tri_tensor_size(x, d);
            s->row_bytes *= (size_t)s->of.size[d];
        }
        return TRI_OK;
    }
    same = same && s->of.ndim == ndim && s->of.dtype == (int64_t)tri_tensor_dtype(x);
    for (int d = 1; d < ndim && same; d++)
        same = s->of.size[d] == tri_tensor_size(x, d);
    return same ? TRI_OK
                : TRII_FAIL(TRI_ERR_INVALID_ARG,
                            "predictions of a batch of %" PRId64 " samples are %s %s: they must "
                            "have one row for each sample, and one dtype and shape of rows",
                            samples, tri_dtype_name(tri_tensor_dtype(x)), tri_tensor_shape_text(x));
}

static tri_status append(share *s, tri_tensor *x, int64_t samples)
{
    size_t bytes = s->row_bytes * (size_t)samples;
    char *data;
    tri_status status = TRI_OK;

    if (s->bytes + bytes > s->room) {
        size_t room = 2 * s->room > s->bytes + bytes ? 2 * s->room : s->bytes + bytes;

        data = trii_realloc(s->data, room, 1, "predictions");
        if (data == NULL)
            return TRI_ERR_NO_MEMORY;
        s->data = data;
        s->room = room;
    }
    if (bytes > 0)
        status = tri_tensor_copy_out(x, s->data + s->bytes, bytes);
    s->bytes += bytes;
    s->of.size[0] += samples;
    return status;
}

static tri_status predict_share(tri_trainer *t, share *s)
{
    const trii_part *part = &t->predict;
    bool is_whole;
    tri_status status = trii_fit_whole_begin(t, part->n_batches, &is_whole);
    tri_batch batch;

    if (status == TRI_OK && part->n_batches > 0) /* there may be fewer samples than ranks */
        status = tri_loader_begin(part->loader, 0, 0);
    for (int64_t b = 0; b < part->n_batches && status == TRI_OK; b++) {
        tri_tensor *x;

        status = tri_loader_next(part->loader, &batch);
        if (status != TRI_OK)
            return status < 0 ? status
                              : TRII_FAIL(TRI_ERR_INTERNAL, "the loader has too few batches");
        x = trii_fit_predict_step(t, &batch);
        if (x == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "predict_step of the task returned NULL");
        status = tri_tensor_status(tri_keep(x));
        if (status == TRI_OK)
            status = check_shape(s, x, batch.size);
        if (status == TRI_OK)
            status = append(s, x, batch.size);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    return status == TRI_OK ? trii_fit_whole_end(t, is_whole) : status;
}

/* The first rank that has predictions says what they look like. */
static tri_status agree(tri_trainer *t, const shape *all, shape *whole_out)
{
    const shape *first = NULL;
    int64_t n = 0;

    for (int r = 0; r < t->size; r++) {
        shape like = all[r];

        n += like.size[0];
        if (like.ndim == 0)
            continue;
        first = first != NULL ? first : &all[r];
        like.size[0] = first->size[0];
        if (memcmp(&like, first, sizeof(like)) != 0)
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "rank %d's predictions have another dtype or shape of rows than those "
                             "of rank %d",
                             r, (int)(first - all));
    }
    if (first == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "no rank has predicted anything");
    *whole_out = *first;
    whole_out->size[0] = n;
    return TRI_OK;
}

static tri_status gather(tri_trainer *t, const share *s, const shape *all, char *data)
{
    size_t at = 0;
    tri_status status = TRI_OK;

    for (int r = 0; r < t->size && status == TRI_OK; r++) {
        size_t bytes = s->row_bytes * (size_t)all[r].size[0];

        if (r == t->rank && bytes > 0 && s->data != NULL)
            memcpy(data + at, s->data, bytes);
        if (t->size > 1 && bytes > 0)
            status = tri_broadcast(t->group, data + at, bytes, TRI_DTYPE_U8, r, NULL);
        at += bytes;
    }
    return status;
}

/* A tensor of all, in memory that becomes its own. */
static tri_status make_whole(tri_trainer *t, share *s, const shape *all, const shape *whole)
{
    tri_tensor *tensor;
    char *data;
    tri_status status;

    s->row_bytes = tri_dtype_size((tri_dtype)whole->dtype);
    for (int d = 1; d < whole->ndim; d++)
        s->row_bytes *= (size_t)whole->size[d];
    data = trii_alloc_aligned(TRII_CACHE_LINE, s->row_bytes * (size_t)whole->size[0] + 1,
                              "predictions");
    status = data != NULL ? gather(t, s, all, data) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK) {
        trii_free(data);
        return status;
    }
    tensor = tri_tensor_wrap(whole->size, (int)whole->ndim, (tri_dtype)whole->dtype, data,
                             trii_free, data);
    status = tri_tensor_status(tensor);
    if (status == TRI_OK)
        *t->predictions_out = tensor;
    else
        trii_free(data); /* a failed tensor has not taken it */
    return status;
}

static tri_status share_all(tri_trainer *t, share *s)
{
    shape *all = trii_alloc((size_t)t->size, sizeof(*all), "shapes"), whole;
    tri_status status = TRI_OK;

    if (all == NULL)
        return TRI_ERR_NO_MEMORY;
    all[t->rank] = s->of;
    if (t->size > 1)
        status = tri_all_gather(t->group, &s->of, all, sizeof(shape) / sizeof(int64_t),
                                TRI_DTYPE_I64, NULL);
    if (status == TRI_OK)
        status = agree(t, all, &whole);
    if (status == TRI_OK)
        status = make_whole(t, s, all, &whole);
    trii_free(all);
    return status;
}

tri_status trii_fit_predict_all(tri_trainer *t)
{
    share s = {0};
    tri_status status = t->is_ddp ? tri_ddp_sync_buffers(t->model) : TRI_OK;

    if (status == TRI_OK) {
        t->phase = TRII_PHASE_PREDICT;
        tri_module_train(t->model, false);
        tri_no_grad_begin();
        status = predict_share(t, &s);
        tri_no_grad_end();
    }
    if (status == TRI_OK)
        status = share_all(t, &s);
    trii_free(s.data);
    return status;
}
