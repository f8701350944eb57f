/*
 * buckets.c - where gradients lie: each bucket is one storage in the group's arena, and every
 * gradient is a view of it, so that kernels write, and peers read, without a copy. A gradient in a
 * device's own memory stays there and is copied to its bucket and back.
 *
 * The first backward uses the reverse order of the parameters. Before the second synchronised
 * forward the buckets get their final form: rank 0's order of completion, and the parameters'
 * layouts where all ranks have the same (else the gradient is kept and sent in plain order).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/group/join/world.h"
#include "train/dist/unit_collective.h"
#include "train/tensor/device_memory.h"

/* --- storage in the group's arena ----------------------------------------- */

static tri_status arena_alloc(void *ctx, size_t bytes, void **data_out)
{
    tri_status status = trii_group_alloc(ctx, bytes, data_out);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "bucket of %zu bytes", bytes);
    (void)tri_group_ref(ctx); /* the memory may outlive the model */
    return TRI_OK;
}

static void arena_free(void *ctx, void *data, size_t bytes)
{
    (void)bytes;
    tri_group_free(ctx, data);
    tri_group_unref(ctx);
}

tri_status trii_unit_storage_create(tri_group *group, size_t bytes, trii_storage **storage_out)
{
    static const trii_storage_ops arena = {
        .name = "group", .alloc = arena_alloc, .free = arena_free};

    return trii_storage_create(&arena, group, bytes, storage_out);
}

/* --- making --------------------------------------------------------------- */

/* Moves the gradient, in its new layout, into its bucket. */
static tri_status move_grad(trii_unit_param *param, const trii_layout *layout)
{
    tri_tensor *grad = param->tensor->grad;
    size_t bytes = trii_tensor_bytes(grad);
    trii_storage *storage = param->bucket->storage;
    char *view = (char *)storage->data + param->offset;
    void *plain;
    tri_status status = TRI_OK;

    if (grad->layout == layout) {
        memcpy(view, trii_tensor_data(grad), layout != NULL ? layout->bytes : bytes);
    } else {
        plain = trii_alloc_aligned(64, bytes, "gradient");
        if (plain == NULL)
            return TRI_ERR_NO_MEMORY;
        if (grad->layout != NULL)
            status = grad->layout->to_plain(grad->layout, trii_tensor_data(grad), plain);
        else
            memcpy(plain, trii_tensor_data(grad), bytes);
        if (status == TRI_OK && layout != NULL)
            status = layout->from_plain(layout, plain, view);
        else if (status == TRI_OK)
            memcpy(view, plain, bytes);
        trii_free(plain);
    }
    if (status != TRI_OK)
        return status;
    trii_storage_ref(storage);
    trii_storage_unref(grad->storage);
    grad->storage = storage;
    grad->offset = param->offset;
    grad->layout = layout;
    return TRI_OK;
}

/* The gradient stays in the device's memory; the bucket holds the copy that is communicated. */
static tri_status make_bucket_view(trii_unit_param *param)
{
    const tri_tensor *tensor = param->tensor;
    tri_tensor *view = NULL;
    tri_status status =
        trii_tensor_create(tensor->dtype, tensor->shape, tensor->ndim, TRI_CPU(0), &view);

    if (status == TRI_OK)
        status = trii_tensor_move(view, param->bucket->storage, param->offset);
    if (status != TRI_OK) {
        tri_tensor_unref(view);
        return status;
    }
    view->is_grad = true;
    tri_tensor_unref(param->bucket_view);
    param->bucket_view = view;
    return TRI_OK;
}

static tri_status make_grad(trii_unit_param *param, const trii_layout *layout)
{
    tri_status status = trii_grad_prepare(param->tensor);

    if (status != TRI_OK)
        return status;
    return trii_is_host(param->tensor->device) ? move_grad(param, layout) : make_bucket_view(param);
}

static bool is_small(const trii_unit *unit, const trii_unit_param *param)
{
    return tri_tensor_numel(param->tensor) < unit->keep_below;
}

/* Parameters of different numbers share no bucket: those that are divided, those that stay whole,
 * and those of each module that is gathered as one, have buckets of their own. */
static int place_of(const trii_unit *unit, const trii_unit_param *param)
{
    if (unit->stage == 0)
        return 0;
    return (int)param->tensor->device +
           ((2 * unit->placed[param->place].group + is_small(unit, param)) << 12);
}

/* Which parameters share a bucket, in this order. */
static tri_status assign(trii_unit *unit, const int *order, const trii_layout *const *layouts)
{
    trii_bucket_item *items =
        trii_alloc((size_t)unit->n_params, sizeof(*items), "buckets of a model");
    tri_status status;

    if (items == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int k = 0; k < unit->n_params; k++) {
        trii_unit_param *param = &unit->params[order[k]];
        const tri_tensor *tensor = param->tensor;
        const trii_layout *layout = layouts[order[k]];

        param->bytes = layout != NULL ? layout->bytes : trii_tensor_bytes(tensor);
        items[k] = (trii_bucket_item){.name = param->name,
                                      .count = (size_t)tri_tensor_numel(tensor),
                                      .rows = tensor->ndim >= 2 ? (size_t)tensor->shape[0] : 0,
                                      .bytes = param->bytes,
                                      .dtype = tensor->dtype,
                                      .index = order[k],
                                      .place = place_of(unit, param)};
    }
    status = trii_averager_make(&unit->averager, items, unit->n_params, unit->first_bucket_bytes,
                                unit->bucket_cap_bytes, TRII_UNIT_ITEMS);
    trii_free(items);
    return status;
}

/* Stage 2: buckets take turns in memory for two. If that and a rank's part are no less than all
 * buckets, as with a small network, the unit becomes one of stage 1. */
static tri_status make_staging(trii_unit *unit)
{
    size_t bytes = 0, all = 0, parts = (size_t)tri_group_size(trii_unit_parts(unit));
    size_t turns = unit->averager.n_buckets > 1 ? 2 : 1;
    tri_status status = TRI_OK;

    for (int b = 0; b < unit->averager.n_buckets; b++) {
        const tri_bucket *wire = &unit->averager.buckets[b].bucket;
        size_t its = wire->count * tri_dtype_size(wire->dtype);

        bytes = its > bytes ? its : bytes;
        all += its;
    }
    if (unit->stage == 2 && turns * bytes + all / parts >= all)
        unit->stage = 1;
    if (unit->stage < 2)
        return TRI_OK;
    for (int i = 0; i < 2 && i < unit->averager.n_buckets && status == TRI_OK; i++)
        status = trii_unit_storage_create(trii_unit_parts(unit), bytes, &unit->staging[i]);
    return status;
}

static tri_status make_bucket(trii_unit *unit, int index)
{
    trii_unit_bucket *bucket = &unit->buckets[index];
    tri_bucket *b;
    tri_status status = TRI_OK;

    bucket->wire = &unit->averager.buckets[index];
    b = &bucket->wire->bucket;
    if (unit->stage > 1)
        bucket->storage = trii_storage_ref(unit->staging[index % 2]);
    else
        status = trii_unit_storage_create(trii_unit_parts(unit),
                                          b->count * tri_dtype_size(b->dtype), &bucket->storage);
    if (status != TRI_OK)
        return status;
    b->data = bucket->storage->data;
    for (int i = 0; i < b->n_parts; i++) {
        trii_unit_param *param = &unit->params[b->parts[i].index];

        param->bucket = bucket;
        param->offset = b->parts[i].offset * tri_dtype_size(b->dtype);
        param->home_offset = param->offset;
    }
    return TRI_OK;
}

static void free_buckets(trii_unit_bucket *buckets, trii_averager *averager, bool forgets)
{
    trii_averager_drain(averager);
    for (int b = 0; b < averager->n_buckets && buckets != NULL; b++) {
        trii_unit_colls_free(buckets[b].colls);
        trii_unit_colls_free(buckets[b].ends);
        trii_storage_unref(buckets[b].storage);
    }
    trii_free(buckets);
    trii_averager_free(averager, forgets);
}

static tri_status make_with(trii_unit *unit, const int *order, const trii_layout *const *layouts)
{
    trii_unit_bucket *old = unit->buckets;
    trii_averager old_averager = unit->averager;
    tri_status status;

    unit->buckets = NULL;
    unit->averager.buckets = NULL;
    unit->averager.n_buckets = 0;
    unit->stats.n_passes = unit->stats.comm_ns = unit->stats.exposed_ns = 0; /* as of each bucket */
    status = assign(unit, order, layouts);
    if (status == TRI_OK) {
        unit->buckets = trii_alloc((size_t)unit->averager.n_buckets, sizeof(*unit->buckets),
                                   "buckets of a model");
        status = unit->buckets != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK && unit->stage > 1)
        status = make_staging(unit);
    for (int b = 0; b < unit->averager.n_buckets && status == TRI_OK; b++)
        status = make_bucket(unit, b);
    for (int i = 0; i < unit->n_params && status == TRI_OK && unit->stage == 0; i++)
        status = make_grad(&unit->params[i], layouts[i]);
    if (status != TRI_OK)
        trii_unit_buckets_free(
            unit); /* half-made buckets must not be sent: finish.c refuses without them */
    /* gradients that did not move keep their storage alive */
    free_buckets(old, &old_averager, false);
    return status;
}

/* Gradients come out about in reverse order of use. Those of parameters that stay whole in stage 3
 * come last, since they lie between the others. */
tri_status trii_unit_buckets_make(trii_unit *unit)
{
    const trii_layout **plain =
        trii_alloc((size_t)unit->n_params, sizeof(*plain), "layouts of a model"); /* all NULL */
    tri_status status = TRI_ERR_NO_MEMORY;

    for (int small = 0, n = 0; small < 2; small++)
        for (int i = unit->n_params - 1; i >= 0; i--)
            if (is_small(unit, &unit->params[i]) == (small != 0))
                unit->observed[n++] = i;
    if (plain != NULL)
        status = make_with(unit, unit->observed, plain);
    trii_free((void *)(uintptr_t)plain);
    return status;
}

void trii_unit_buckets_free(trii_unit *unit)
{
    free_buckets(unit->buckets, &unit->averager, true);
    unit->buckets = NULL;
    for (int i = 0; i < 2; i++) {
        trii_storage_unref(unit->staging[i]);
        unit->staging[i] = NULL;
    }
}

/* --- the rebuild ---------------------------------------------------------- */

/* The layout in which the parameter's gradient can be sent: what is copied from a device is in
 * plain order. */
static const trii_layout *own_layout(const tri_tensor *param)
{
    return trii_is_host(param->device) ? param->layout : NULL;
}

/* Smallest and largest of all ranks' layout names, as numbers: where they are equal, all agree.
 * Plain order is 0. */
static tri_status agree_on_layouts(trii_unit *unit, const trii_layout **layouts, bool *any_out)
{
    size_t n = (size_t)unit->n_params;
    int64_t *low = trii_alloc(2 * n, sizeof(*low), "layouts of a model");
    int64_t *high = low + n;
    tri_status status;

    if (low == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const trii_layout *layout = own_layout(unit->params[i].tensor);

        if (layout != NULL)
            low[i] =
                (int64_t)(trii_hash_text(TRII_HASH_SEED ^ layout->bytes, layout->name) >> 1 | 1);
        high[i] = low[i];
    }
    status = trii_unit_called(
        unit, tri_all_reduce(unit->group, low, low, n, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL));
    if (status == TRI_OK)
        status = trii_unit_called(
            unit, tri_all_reduce(unit->group, high, high, n, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL));
    *any_out = false;
    for (size_t i = 0; i < n && status == TRI_OK; i++) {
        bool agreed = low[i] == high[i] && low[i] != 0;

        layouts[i] = agreed ? unit->params[i].tensor->layout : NULL;
        *any_out = *any_out || agreed;
    }
    trii_free(low);
    return status;
}

static bool same_order(const trii_unit *unit, const int *order)
{
    int k = 0;

    for (int b = 0; b < unit->averager.n_buckets; b++)
        for (int i = 0; i < unit->averager.buckets[b].bucket.n_parts; i++)
            if (unit->averager.buckets[b].parts[i].index != order[k++])
                return false;
    return true;
}

static tri_status rebuild(trii_unit *unit, const trii_layout **layouts)
{
    bool any = false;
    tri_status status =
        trii_unit_called(unit, tri_broadcast(unit->group, unit->observed, (size_t)unit->n_params,
                                             TRI_DTYPE_I32, 0, NULL));

    if (status == TRI_OK && unit->averager.each_ends) /* other hooks read rows and columns */
        status = agree_on_layouts(unit, layouts, &any);
    /* Both are equal on all ranks by now, and so is what follows. */
    if (status == TRI_OK && (any || !same_order(unit, unit->observed)))
        status = make_with(unit, unit->observed, layouts);
    if (status != TRI_OK)
        return status;
    /* Where the ranks do not agree on a layout, the gradient is bound in plain order. */
    unit->any_layout = unit->averager.each_ends;
    for (int b = 0; b < unit->averager.n_buckets; b++) {
        const tri_bucket *bucket = &unit->averager.buckets[b].bucket;

        TRII_LOG(TRII_LOG_INFO, "ddp", "bucket %d: %d gradients, %zu bytes of %s", b,
                 bucket->n_parts, bucket->count * tri_dtype_size(bucket->dtype),
                 tri_dtype_name(bucket->dtype));
    }
    return TRI_OK;
}

tri_status trii_unit_buckets_rebuild(trii_unit *unit)
{
    const trii_layout **layouts =
        trii_alloc((size_t)unit->n_params, sizeof(*layouts), "layouts of a model");
    tri_work *batch = trii_batch_set(NULL);
    tri_status status = layouts != NULL ? rebuild(unit, layouts) : TRI_ERR_NO_MEMORY;

    trii_batch_set(batch);
    unit->rebuilt = true;
    trii_free((void *)(uintptr_t)layouts);
    return status;
}
