/*
 * buckets.c - where gradients lie: each bucket is one storage in the group's arena, in which
 * every gradient has its place; so kernels write, and peers read, without a copy. Of a parameter in
 * a device's own memory the gradient lies there, and is copied to its place and back.
 *
 * The first backward uses the parameters' order backwards. Before the second synchronised forward
 * the buckets get their final form: rank 0's order of completion, and the parameters' layouts
 * where all ranks have the same (a gradient on which they differ lies and travels in plain order).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "group/world.h"
#include "parallel/ddp/ddp.h"
#include "reducer/bucket.h"
#include "tensor/device_memory.h"

#define PLACE_ALIGN ((size_t)64)

/* --- storage in the group's arena ----------------------------------------------------------- */

static tri_status arena_alloc(void *ctx, size_t bytes, void **data_out)
{
    tri_status st = trii_group_alloc(ctx, bytes, data_out);

    if (st != TRI_OK)
        return TRII_FAIL_CTX(st, "ddp bucket of %zu bytes", bytes);
    (void)tri_group_ref(ctx); /* the memory may outlive the model */
    return TRI_OK;
}

static void arena_free(void *ctx, void *data, size_t bytes)
{
    (void)bytes;
    tri_group_free(ctx, data);
    tri_group_unref(ctx);
}

tri_status trii_ddp_storage_create(trii_ddp *ddp, size_t bytes, trii_storage **storage_out)
{
    static const trii_storage_ops arena = {
        .name = "group", .alloc = arena_alloc, .free = arena_free};

    return trii_storage_create(&arena, ddp->group, bytes, storage_out);
}

/* --- making --------------------------------------------------------------------------------- */

static size_t place_bytes(const trii_ddp_param *param, const trii_layout *layout)
{
    size_t bytes = layout != NULL ? layout->bytes : trii_tensor_bytes(param->tensor);

    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* The gradient's contents, in its new layout, to its new place; then that is where it lies. */
static tri_status move_grad(trii_ddp_param *param, const trii_layout *layout)
{
    tri_tensor *grad = param->tensor->grad;
    size_t bytes = trii_tensor_bytes(grad);
    trii_storage *storage = param->bucket->storage;
    char *place = (char *)storage->data + param->offset;
    void *plain;
    tri_status st = TRI_OK;

    if (grad->layout == layout) {
        memcpy(place, trii_tensor_data(grad), layout != NULL ? layout->bytes : bytes);
    } else {
        plain = trii_alloc_aligned(64, bytes, "gradient");
        if (plain == NULL)
            return TRI_ERR_NO_MEMORY;
        if (grad->layout != NULL)
            st = grad->layout->to_plain(grad->layout, trii_tensor_data(grad), plain);
        else
            memcpy(plain, trii_tensor_data(grad), bytes);
        if (st == TRI_OK && layout != NULL)
            st = layout->from_plain(layout, plain, place);
        else if (st == TRI_OK)
            memcpy(place, plain, bytes);
        trii_free(plain);
    }
    if (st < 0)
        return st;
    trii_storage_ref(storage);
    trii_storage_unref(grad->storage);
    grad->storage = storage;
    grad->offset = param->offset;
    grad->layout = layout;
    return TRI_OK;
}

/* The gradient stays in the device's memory; what travels has its place here. */
static tri_status make_place(trii_ddp_param *param)
{
    const tri_tensor *tensor = param->tensor;
    tri_tensor *place = NULL;
    tri_status st =
        trii_tensor_create(tensor->dtype, tensor->shape, tensor->ndim, TRI_CPU(0), &place);

    if (st == TRI_OK)
        st = trii_tensor_move(place, param->bucket->storage, param->offset);
    if (st < 0) {
        tri_tensor_unref(place);
        return st;
    }
    place->is_grad = true;
    tri_tensor_unref(param->place);
    param->place = place;
    return TRI_OK;
}

static tri_status make_grad(trii_ddp_param *param, const trii_layout *layout)
{
    tri_status st = trii_grad_prepare(param->tensor);

    if (st < 0)
        return st;
    return trii_is_host(param->tensor->device) ? move_grad(param, layout) : make_place(param);
}

static tri_status fill_buckets(trii_ddp *ddp, const int *order, const int *bucket_of,
                               const trii_layout *const *layouts)
{
    for (int k = 0; k < ddp->n_params; k++) {
        trii_ddp_param *param = &ddp->params[order[k]];
        trii_ddp_bucket *bucket = &ddp->buckets[bucket_of[k]];

        if (bucket->params == NULL) {
            bucket->params = trii_alloc(TRII_DDP_ITEMS, sizeof(int), "ddp bucket");
            if (bucket->params == NULL)
                return TRI_ERR_NO_MEMORY;
        }
        bucket->index = bucket_of[k];
        bucket->dtype = param->tensor->dtype;
        bucket->params[bucket->n_params++] = order[k];
        param->bucket = bucket;
        param->offset = bucket->bytes;
        param->bytes =
            layouts[order[k]] != NULL ? layouts[order[k]]->bytes : trii_tensor_bytes(param->tensor);
        bucket->bytes += place_bytes(param, layouts[order[k]]);
    }
    for (int b = 0; b < ddp->n_buckets; b++) {
        tri_status st =
            trii_ddp_storage_create(ddp, ddp->buckets[b].bytes, &ddp->buckets[b].storage);

        if (st < 0)
            return st;
    }
    return TRI_OK;
}

static void free_buckets(trii_ddp_bucket *buckets, int n)
{
    for (int b = 0; b < n && buckets != NULL; b++) {
        trii_travels_free(buckets[b].travels);
        trii_storage_unref(buckets[b].storage);
        trii_free(buckets[b].params);
    }
    trii_free(buckets);
}

static tri_status assign(trii_ddp *ddp, const int *order, const trii_layout *const *layouts,
                         int *bucket_of)
{
    size_t cap = ddp->options.bucket_cap_bytes, first = ddp->options.first_bucket_bytes;
    size_t *bytes = trii_alloc((size_t)ddp->n_params, sizeof(*bytes), "ddp buckets");
    int *keys = trii_alloc((size_t)ddp->n_params, sizeof(*keys), "ddp buckets");
    tri_status st = bytes != NULL && keys != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int k = 0; k < ddp->n_params && st == TRI_OK; k++) {
        bytes[k] = place_bytes(&ddp->params[order[k]], layouts[order[k]]);
        keys[k] = (int)ddp->params[order[k]].tensor->dtype;
    }
    if (st == TRI_OK)
        trii_bucket_assign(bytes, keys, ddp->n_params, first > 0 ? first : TRII_BUCKET_FIRST_BYTES,
                           cap > 0 ? cap : TRII_BUCKET_CAP_BYTES, TRII_DDP_ITEMS, bucket_of,
                           &ddp->n_buckets);
    trii_free(bytes);
    trii_free(keys);
    return st;
}

static tri_status make_with(trii_ddp *ddp, const int *order, const trii_layout *const *layouts)
{
    trii_ddp_bucket *old = ddp->buckets;
    int n_old = ddp->n_buckets;
    int *bucket_of = trii_alloc((size_t)ddp->n_params, sizeof(*bucket_of), "ddp buckets");
    tri_status st;

    if (bucket_of == NULL)
        return TRI_ERR_NO_MEMORY;
    ddp->buckets = NULL;
    ddp->n_buckets = 0;
    st = assign(ddp, order, layouts, bucket_of);
    if (st == TRI_OK) {
        ddp->buckets = trii_alloc((size_t)ddp->n_buckets, sizeof(*ddp->buckets), "ddp buckets");
        st =
            ddp->buckets != NULL ? fill_buckets(ddp, order, bucket_of, layouts) : TRI_ERR_NO_MEMORY;
    }
    for (int i = 0; i < ddp->n_params && st == TRI_OK; i++)
        st = make_grad(&ddp->params[i], layouts[i]);
    if (st < 0)
        trii_ddp_buckets_free(ddp); /* half-made ones must not be sent: attach refuses without */
    free_buckets(old, n_old);       /* gradients that did not move keep their storage alive */
    trii_free(bucket_of);
    return st;
}

tri_status trii_ddp_buckets_make(trii_ddp *ddp, const int *order)
{
    const trii_layout **plain =
        trii_alloc((size_t)ddp->n_params, sizeof(*plain), "ddp layouts"); /* all NULL */
    tri_status st = plain != NULL ? make_with(ddp, order, plain) : TRI_ERR_NO_MEMORY;

    trii_free((void *)(uintptr_t)plain);
    return st;
}

void trii_ddp_buckets_free(trii_ddp *ddp)
{
    free_buckets(ddp->buckets, ddp->n_buckets);
    ddp->buckets = NULL;
    ddp->n_buckets = 0;
}

/* --- the rebuild ---------------------------------------------------------------------------- */

/* In which the parameter's gradient can travel: what is copied from a device comes in plain order.
 */
static const trii_layout *own_layout(const tri_tensor *param)
{
    return trii_is_host(param->device) ? param->layout : NULL;
}

/* Smallest and largest of all ranks' layout names, as numbers: where they are equal, all agree.
 * Plain order is 0. */
static tri_status agree_on_layouts(trii_ddp *ddp, const trii_layout **layouts, bool *any_out)
{
    size_t n = (size_t)ddp->n_params;
    int64_t *low = trii_alloc(2 * n, sizeof(*low), "ddp layouts");
    int64_t *high = low + n;
    tri_status st;

    if (low == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const trii_layout *layout = own_layout(ddp->params[i].tensor);

        if (layout != NULL)
            low[i] =
                (int64_t)(trii_hash_bytes(layout->bytes, layout->name, strlen(layout->name)) >> 1 |
                          1);
        high[i] = low[i];
    }
    st = trii_ddp_called(
        tri_all_reduce(ddp->group, low, low, n, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL));
    if (st == TRI_OK)
        st = trii_ddp_called(
            tri_all_reduce(ddp->group, high, high, n, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL));
    *any_out = false;
    for (size_t i = 0; i < n && st == TRI_OK; i++) {
        bool agreed = low[i] == high[i] && low[i] != 0;

        layouts[i] = agreed ? ddp->params[i].tensor->layout : NULL;
        *any_out = *any_out || agreed;
    }
    trii_free(low);
    return st;
}

static bool same_order(const trii_ddp *ddp, const int *order)
{
    int k = 0;

    for (int b = 0; b < ddp->n_buckets; b++)
        for (int i = 0; i < ddp->buckets[b].n_params; i++)
            if (ddp->buckets[b].params[i] != order[k++])
                return false;
    return true;
}

static tri_status rebuild(trii_ddp *ddp, const trii_layout **layouts)
{
    bool any;
    tri_status st = trii_ddp_called(
        tri_broadcast(ddp->group, ddp->observed, (size_t)ddp->n_params, TRI_DTYPE_I32, 0, NULL));

    if (st == TRI_OK)
        st = agree_on_layouts(ddp, layouts, &any);
    /* Both are equal on all ranks by now, and so is what follows. */
    if (st == TRI_OK && (any || !same_order(ddp, ddp->observed)))
        st = make_with(ddp, ddp->observed, layouts);
    if (st < 0)
        return st;
    ddp->any_layout = true; /* what is not agreed upon is bound to plain places */
    for (int b = 0; b < ddp->n_buckets; b++)
        TRII_LOG(TRII_LOG_INFO, "ddp", "bucket %d: %d gradients, %zu bytes of %s", b,
                 ddp->buckets[b].n_params, ddp->buckets[b].bytes,
                 tri_dtype_name(ddp->buckets[b].dtype));
    return TRI_OK;
}

tri_status trii_ddp_buckets_rebuild(trii_ddp *ddp)
{
    const trii_layout **layouts =
        trii_alloc((size_t)ddp->n_params, sizeof(*layouts), "ddp layouts");
    tri_work *batch = trii_batch_set(NULL);
    tri_status st = layouts != NULL ? rebuild(ddp, layouts) : TRI_ERR_NO_MEMORY;

    trii_batch_set(batch);
    ddp->rebuilt = true;
    trii_free((void *)(uintptr_t)layouts);
    return st;
}
