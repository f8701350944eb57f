/*
 * contents.c - copies bytes into and out of tensors, also in the middle of a step.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/graph/step/retired.h"
#include "train/graph/step/hold.h"
#include "train/graph/step/overlaps.h"
#include "train/graph/step/recorder.h"
#include "train/graph/values/contents.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/packed.h"
#include "train/tensor/sharing.h"

tri_status trii_contents_fail(tri_status status, const char *call)
{
    trii_site site = trii_site_last();

    if (site.file == NULL)
        return TRII_FAIL_CTX(status, "%s", call);
    return TRII_FAIL_CTX(status, "%s at %s:%d", call, site.file, site.line);
}

static tri_status no_step(void)
{
    return TRI_ERR_NO_MEMORY; /* the line is there already */
}

/* Recorded work keeps the old contents: they leave the tensor, which gets new storage. */
static tri_status detach(trii_step *step, tri_tensor *tensor)
{
    trii_vid id = trii_known_value(step, tensor);
    trii_value *value;
    trii_storage *fresh = NULL;
    tri_status status;

    if (id == TRII_NO_VALUE)
        return TRI_OK;
    value = &step->values[id];
    if (value->state == TRII_VALUE_READY && value->leaf != NULL && !value->used)
        return TRI_OK;
    trii_known_find(step, tensor)->value = TRII_NO_VALUE;
    if (value->bound == tensor && value->state == TRII_VALUE_PENDING) {
        trii_vid before = value->replaces;

        value->bound = NULL; /* only its readers still want the result */
        value->replaces = TRII_NO_VALUE;
        tri_tensor_unref(tensor);
        if (before == TRII_NO_VALUE)
            return TRI_OK;
        value = &step->values[before];
    }
    if (value->state != TRII_VALUE_READY || value->storage != NULL)
        return TRI_OK;
    if (trii_value_is_stale(value, tensor))
        return TRI_OK; /* what it was is gone: its readers fail */
    if (!trii_storage_is_movable(tensor->storage) || tensor->offset != 0 || tensor->shares)
        /* storage with a fixed place (a bucket, a unit): the tensor stays there, the old contents
         * move */
        return trii_value_move_out(value);
    status = trii_storage_create_on(tensor->storage->device, trii_tensor_bytes(tensor), &fresh);
    if (status != TRI_OK)
        return status;
    value->storage = tensor->storage;
    value->offset = tensor->offset;
    value->layout = tensor->layout;
    tensor->storage = fresh;
    tensor->offset = 0;
    tensor->layout = NULL;
    return TRI_OK;
}

/* The tensor is held for writing. */
static tri_status overwrite(trii_step *step, tri_tensor *tensor, const void *data, size_t bytes)
{
    tri_status status;

    if (TRII_UNLIKELY(tensor->shares))
        trii_overlaps_cover(step, tensor);
    status = detach(step, tensor);
    if (status == TRI_OK && TRII_UNLIKELY(tensor->shares))
        status = trii_overlaps_move_out(step, tensor);
    if (status != TRI_OK)
        return status;
    trii_hold_written(trii_recorder_of(step), tensor);
    trii_tensor_rewritten(tensor);
    if (bytes == 0)
        return TRI_OK;
    return trii_memory_write(tensor->device, tensor->layout, data, trii_tensor_data(tensor), bytes);
}

static bool is_gradient(const trii_step *step, const tri_tensor *handle)
{
    trii_vid id = trii_handle_value(step, handle);
    const tri_tensor *bound = id != TRII_NO_VALUE ? step->values[id].bound : NULL;

    return bound != NULL && bound->is_grad;
}

static tri_status copy_in(tri_tensor *tensor, const void *data, size_t bytes)
{
    trii_step *step = trii_step_current();
    tri_status status;

    if (step == NULL)
        return no_step();
    if (tensor == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the tensor is NULL" TRII_WHENCE_NULL);
    if (trii_is_handle(tensor))
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG, "only persistent tensors can be written%s",
            is_gradient(step, tensor) ? ": run the step (tri_run), then ask tri_grad again" : "");
    if (tensor->status != TRI_OK && !trii_tensor_is_lost(tensor))
        return TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
    if (TRII_UNLIKELY(tensor->elsewhere != NULL))
        return TRII_FAIL(TRI_ERR_STATE, "%s", tensor->elsewhere->why);
    if (TRII_UNLIKELY(tensor->read_only))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "an operand of a remote call is not written: others may read it");
    if (bytes != trii_tensor_bytes(tensor))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes are given, the tensor has %zu", bytes,
                         trii_tensor_bytes(tensor));
    if (bytes > 0 && data == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "data is NULL, for %zu bytes", bytes);
    status = TRII_UNLIKELY(tensor->shares) ? trii_overlaps_settle_parts(step, tensor) : TRI_OK;
    if (status == TRI_OK)
        status = trii_hold_one(trii_recorder_of(step), tensor, true);
    if (status != TRI_OK)
        return status;
    status = overwrite(step, tensor, data, bytes);
    trii_hold_end(trii_recorder_of(step));
    return status;
}

tri_status tri_tensor_copy_in(tri_tensor *tensor, const void *data, size_t bytes)
{
    tri_status status = copy_in(tensor, data, bytes);

    return status == TRI_OK ? TRI_OK : trii_contents_fail(status, "tri_tensor_copy_in");
}

/* Runs what is pending so that the tensor can be read. Fills *value_out with what reading takes
 * (borrowed references). */
static tri_status make_readable(trii_step *step, tri_tensor *tensor, trii_value *value_out)
{
    trii_vid id = TRII_NO_VALUE;
    char text[TRII_VALUE_TEXT];
    tri_status status;

    if (tensor == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the tensor is NULL" TRII_WHENCE_NULL);
    if (!trii_is_handle(tensor) && TRII_UNLIKELY(tensor->elsewhere != NULL))
        return TRII_FAIL(TRI_ERR_STATE, "%s", tensor->elsewhere->why);
    if (!trii_is_handle(tensor) && tensor->status == TRI_OK)
        id = trii_known_value(step, tensor);
    if (!trii_is_handle(tensor) && id == TRII_NO_VALUE && tensor->status == TRI_OK) {
        /* nothing recorded touches it: no need to become part of the step */
        *value_out = (trii_value){.leaf = tensor};
        value_out->type.dtype = tensor->dtype;
        value_out->type.ndim = tensor->ndim;
        value_out->type.device = tensor->device;
        memcpy(value_out->type.shape, tensor->shape, sizeof(tensor->shape));
        return trii_step_run(step);
    }
    status = trii_resolve(step, tensor, &id);
    if (status != TRI_OK)
        return status;
    if (step->values[id].state == TRII_VALUE_PENDING)
        step->values[id].keep = true;
    status = trii_step_run(step);
    if (status != TRI_OK)
        return status;
    if (step->values[id].state != TRII_VALUE_READY)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%s was not kept when the step ran: call tri_keep before that",
                         trii_value_text(step, id, text));
    *value_out = step->values[id];
    return TRI_OK;
}

/* While the contents of a tensor are read, no other context's run may write them. */
static tri_status read_begin(trii_step *step, const trii_value *value)
{
    tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;

    if (trii_value_tensor(value) == NULL)
        return TRI_OK;
    return trii_hold_one(trii_recorder_of(step), tensor, false);
}

static void read_end(trii_step *step, const trii_value *value)
{
    if (trii_value_tensor(value) != NULL)
        trii_hold_end(trii_recorder_of(step));
}

static tri_status read_plain(trii_step *step, const trii_value *value, void *data, size_t bytes)
{
    tri_status status = read_begin(step, value);

    if (status != TRI_OK)
        return status;
    if (bytes > 0)
        status = trii_memory_read(value->type.device, trii_value_layout(value),
                                  trii_value_data(value), data, bytes);
    read_end(step, value);
    return status;
}

static tri_status copy_out(tri_tensor *tensor, void *data, size_t bytes)
{
    trii_step *step = trii_step_current();
    trii_value value;
    tri_status status;

    if (step == NULL)
        return no_step();
    if (bytes > 0 && data == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "data is NULL, for %zu bytes", bytes);
    status = make_readable(step, tensor, &value);
    if (status != TRI_OK)
        return status;
    if (bytes != trii_type_bytes(&value.type))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "room for %zu bytes, the tensor has %zu", bytes,
                         trii_type_bytes(&value.type));
    return read_plain(step, &value, data, bytes);
}

tri_status tri_tensor_copy_out(tri_tensor *tensor, void *data, size_t bytes)
{
    tri_status status = copy_out(tensor, data, bytes);

    return status == TRI_OK ? TRI_OK : trii_contents_fail(status, "tri_tensor_copy_out");
}

/* --- reading -------------------------------------------------------------- */

tri_status trii_contents_visit(tri_tensor *tensor,
                               void (*see)(void *arg, const trii_type *type, const void *data),
                               void *arg)
{
    trii_step *step = trii_step_current();
    trii_value value;
    void *plain;
    tri_status status = step != NULL ? make_readable(step, tensor, &value) : no_step();

    if (status == TRI_OK)
        status = read_begin(step, &value);
    if (status != TRI_OK)
        return status;
    if (trii_value_layout(&value) == NULL && trii_is_host(value.type.device)) {
        see(arg, &value.type, trii_value_data(&value));
        read_end(step, &value);
        return TRI_OK;
    }
    read_end(step, &value);
    plain = trii_alloc(trii_type_bytes(&value.type), 1, "plain contents");
    status = plain != NULL ? read_plain(step, &value, plain, trii_type_bytes(&value.type))
                           : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        see(arg, &value.type, plain);
    trii_free(plain);
    return status;
}

typedef struct item {
    double value;
    tri_status status;
} item;

static void see_item(void *arg, const trii_type *type, const void *data)
{
    item *it = arg;
    char text[TRII_TYPE_TEXT];

    it->status = TRI_OK;
    if (trii_type_numel(type) == 1)
        it->value = trii_element_double(type->dtype, data);
    else
        it->status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "%s is not one element: only tensors of one have a value",
                               trii_type_text(type, text));
}

tri_status tri_item_status(tri_tensor *tensor, double *value_out)
{
    item it = {.value = (double)NAN};
    tri_status status = value_out == NULL ? TRII_FAIL(TRI_ERR_INVALID_ARG, "value_out is NULL")
                                          : trii_contents_visit(tensor, see_item, &it);

    if (status == TRI_OK)
        status = it.status;
    if (value_out != NULL)
        *value_out = it.value;
    return status == TRI_OK ? TRI_OK : trii_contents_fail(status, "tri_item_status");
}

double tri_item(tri_tensor *tensor)
{
    item it = {.value = (double)NAN};
    tri_status status = trii_contents_visit(tensor, see_item, &it);

    if (status == TRI_OK)
        status = it.status;
    if (status != TRI_OK) {
        (void)trii_contents_fail(status, "tri_item");
        /* a NaN that is printed would look like a loss that diverged */
        TRII_LOG(TRII_LOG_WARN, "graph", "%s", tri_last_error());
    }
    return it.value;
}

/* The program may write there, which changes no version: no copy of the contents is kept any more.
 */
static void lend_address(const trii_value *read)
{
    tri_tensor *tensor = read->leaf != NULL ? read->leaf : read->bound;
    trii_packed_dropped dropped;

    if (read->storage != NULL || tensor == NULL)
        return;
    trii_step_lock();
    tensor->address_lent = true;
    dropped = trii_packed_written(tensor);
    trii_step_unlock();
    trii_packed_release(&dropped);
    if (tensor->shares)
        trii_overlaps_drop(tensor, true);
}

/* Brings a step's value into plain order if it is not. */
static tri_status plain_data(tri_tensor *tensor, const void **data_out)
{
    static const char nothing[64];
    trii_step *step = trii_step_current();
    trii_storage *plain = NULL;
    trii_value read, *value;
    trii_vid id;
    tri_status status = step != NULL ? make_readable(step, tensor, &read) : no_step();

    if (status != TRI_OK)
        return status;
    if (!trii_is_host(read.type.device))
        return TRII_FAIL(TRI_ERR_STATE,
                         "the contents are in the memory of %s: tri_tensor_copy_out reads them",
                         tri_device_text(read.type.device));
    *data_out = trii_type_bytes(&read.type) > 0 ? trii_value_data(&read) : nothing;
    if (trii_value_layout(&read) == NULL) {
        lend_address(&read);
        return TRI_OK;
    }
    if (trii_value_tensor(&read) != NULL)
        return TRII_FAIL(
            TRI_ERR_STATE,
            "the tensor lies in the order of a kernel (%s): tri_tensor_copy_out reads it",
            trii_value_layout(&read)->name);
    status = trii_resolve(step, tensor, &id);
    if (status == TRI_OK)
        status = trii_storage_create(NULL, NULL, trii_type_bytes(&read.type), &plain);
    if (status == TRI_OK)
        status = read_plain(step, &read, plain->data, plain->bytes);
    if (status != TRI_OK) {
        trii_storage_unref(plain);
        return status;
    }
    value = &step->values[id];
    trii_storage_unref(value->storage);
    value->storage = plain;
    value->offset = 0;
    value->layout = NULL;
    *data_out = plain->data;
    return TRI_OK;
}

const void *tri_data(tri_tensor *tensor)
{
    const void *data = NULL;
    tri_status status = plain_data(tensor, &data);

    if (status == TRI_OK)
        return data;
    (void)trii_contents_fail(status, "tri_data");
    return NULL;
}

tri_tensor *tri_keep(tri_tensor *tensor)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    tri_status status;

    if (tensor == NULL)
        return trii_handle_failed(
            step,
            trii_contents_fail(
                TRII_FAIL(TRI_ERR_INVALID_ARG, "the tensor is NULL" TRII_WHENCE_NULL), "tri_keep"));
    if (!trii_is_handle(tensor) || step == NULL)
        return tensor;
    status = trii_resolve(step, tensor, &id);
    if (status != TRI_OK)
        return tensor; /* its reader gets the error */
    if (step->values[id].state == TRII_VALUE_PENDING)
        step->values[id].keep = true;
    return tensor;
}

/* Copies into a tensor on the value's device. */
static tri_status copy_plain(trii_step *step, const trii_value *value, tri_tensor *copy)
{
    size_t bytes = trii_tensor_bytes(copy);
    tri_status status;
    void *plain;

    if (trii_is_host(copy->device))
        return read_plain(step, value, trii_tensor_data(copy), bytes);
    plain = trii_alloc(bytes, 1, "plain contents");
    status = plain != NULL ? read_plain(step, value, plain, bytes) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = trii_memory_write(copy->device, NULL, plain, trii_tensor_data(copy), bytes);
    trii_free(plain);
    return status;
}

static tri_status clone(tri_tensor *tensor, tri_tensor **copy_out)
{
    trii_step *step = trii_step_current();
    trii_value value;
    tri_tensor *copy = NULL;
    tri_status status;

    if (step == NULL)
        return no_step();
    status = make_readable(step, tensor, &value);
    if (status != TRI_OK)
        return status;
    status = trii_tensor_create(value.type.dtype, value.type.shape, value.type.ndim,
                                value.type.device, &copy);
    if (status != TRI_OK)
        return status;
    status = copy_plain(step, &value, copy);
    if (status != TRI_OK) {
        tri_tensor_unref(copy);
        return status;
    }
    *copy_out = copy;
    return TRI_OK;
}

tri_tensor *tri_tensor_clone(tri_tensor *tensor)
{
    tri_tensor *copy = NULL;
    tri_status status = clone(tensor, &copy);

    return status == TRI_OK ? copy
                            : trii_tensor_failed(trii_contents_fail(status, "tri_tensor_clone"));
}
