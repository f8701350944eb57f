/*
 * whole.c - parameters that are whole while the program reads or writes them (stage 3 of ZeRO;
 * torch's summon_full_params). Their memory is a range of addresses, one for a bucket, laid out as
 * the bucket is: opening it is one all_gather into it, and closing it takes this rank's part back.
 */
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "comm/group/join/world.h"
#include "os/reserve.h"
#include "train/dist/unit_collective.h"
#include "train/graph/step/recorder.h"

static tri_status reserve(void *ctx, size_t bytes, void **data_out)
{
    (void)ctx;
    return trii_reserve(bytes, data_out);
}

static void release(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    trii_reserve_free(data, bytes);
}

tri_status trii_unit_reserve(size_t bytes, trii_storage **storage_out)
{
    static const trii_storage_ops addresses = {
        .name = "addresses", .alloc = reserve, .free = release};
    tri_status status = trii_storage_create(&addresses, NULL, bytes, storage_out);

    return status == TRI_OK ? trii_reserve_open((*storage_out)->data, bytes) : status;
}

static uint64_t hash_of(const trii_unit_bucket *bucket)
{
    return trii_hash(TRII_HASH_SEED, bucket->whole->data,
                     bucket->wire->bucket.count * tri_dtype_size(bucket->wire->bucket.dtype));
}

static tri_status gather(const trii_unit *unit, const trii_unit_bucket *bucket)
{
    tri_status status;

    status = trii_reserve_open(bucket->whole->data, bucket->whole->bytes);
    if (status == TRI_OK)
        status = trii_all_gather_tagged(unit->apart, bucket->values->data, bucket->whole->data,
                                        bucket->counts, bucket->wire->bucket.dtype,
                                        bucket->wire->bucket.index + 1, NULL);
    return status;
}

/* What the step has of the parameters lies in their memory from now on, as that of other tensors
 * does: what writes there, or looks there, means these values. */
static void open_values(const trii_unit_bucket *bucket, trii_step *step)
{
    for (trii_vid v = 0; v < step->n_values; v++) {
        trii_value *value = &step->values[v];
        tri_tensor *tensor = value->owner;

        if (tensor == NULL || trii_unit_sharding(tensor) != bucket ||
            value->version != bucket->epoch ||
            (value->state != TRII_VALUE_READY && value->state != TRII_VALUE_DROPPED))
            continue;
        if (value->leaf == NULL && value->bound == NULL)
            value->leaf = tri_tensor_ref(tensor);
        trii_storage_unref(value->storage);
        value->storage = NULL;
        value->layout = NULL;
        value->state = TRII_VALUE_READY;
        value->retired = false;
        value->version = tensor->version;
    }
}

tri_status trii_unit_open(trii_unit *unit, trii_unit_bucket *bucket)
{
    trii_step *step = trii_step_current();
    tri_status status = TRI_OK;

    if (bucket->n_opened++ > 0)
        return TRI_OK;
    status = gather(unit, bucket);
    if (status != TRI_OK) {
        trii_reserve_close(bucket->whole->data, bucket->whole->bytes);
        bucket->n_opened = 0;
        return trii_unit_tell(unit, trii_unit_called(unit, status));
    }
    for (int i = 0; i < bucket->wire->bucket.n_parts; i++) {
        trii_unit_param *param = &unit->params[bucket->wire->parts[i].index];

        trii_tensor_mend(param->tensor);
        param->tensor->elsewhere = NULL;
        param->tensor->held = param->cut;
        param->tensor->address_lent = false;
        param->version = param->tensor->version;
    }
    bucket->is_hashed = step != NULL && bucket->read_in == step->generation;
    if (bucket->is_hashed)
        bucket->hash = hash_of(bucket);
    if (step != NULL)
        open_values(bucket, step);
    return TRI_OK;
}

/* Whether the program has written it, on all ranks alike; one that has an address, which ranks may
 * ask for to read alone, has if there is something else now. */
static bool was_written(const trii_unit *unit, const trii_unit_bucket *bucket)
{
    bool lent = false;

    for (int i = 0; i < bucket->wire->bucket.n_parts; i++) {
        const trii_unit_param *param = &unit->params[bucket->wire->parts[i].index];

        if (param->tensor->version != param->version)
            return true;
        lent = lent || param->tensor->address_lent;
    }
    return lent && (!bucket->is_hashed || hash_of(bucket) != bucket->hash);
}

static void keep_part(const trii_unit_bucket *bucket)
{
    size_t size = tri_dtype_size(bucket->wire->bucket.dtype);

    if (bucket->wire->own > 0)
        memcpy(bucket->values->data, (const char *)bucket->whole->data + bucket->wire->first * size,
               bucket->wire->own * size);
}

/* What the step has read of the parameters it gets from the ranks now, if it reads it again. What
 * was written over has memory of its own, or is gone. */
static void close_values(trii_unit_bucket *bucket, trii_step *step)
{
    for (trii_vid v = 0; v < step->n_values; v++) {
        trii_value *value = &step->values[v];
        tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;
        trii_known *known;
        bool gone;

        if (tensor == NULL || tensor->elsewhere != &trii_unit_elsewhere ||
            trii_unit_sharding(tensor) != bucket || value->storage != NULL ||
            value->state != TRII_VALUE_READY)
            continue;
        gone = trii_value_is_stale(value, tensor);
        known = trii_known_find(step, tensor);
        if (gone && known->value == v)
            known->value = TRII_NO_VALUE;
        value->state = TRII_VALUE_DROPPED;
        value->version = gone ? bucket->epoch - 1 : bucket->epoch;
        bucket->read_in = step->generation;
        if (value->owner != NULL)
            continue;
        value->owner = tri_tensor_ref(tensor);
        value->replaces = TRII_NO_VALUE;
        trii_recorder_of(step)->retiring.owned_in = step->generation;
    }
}

tri_status trii_unit_close(trii_unit *unit, trii_unit_bucket *bucket, trii_step *step)
{
    if (bucket->n_opened == 0)
        return TRII_FAIL(TRI_ERR_STATE, "without tri_unshard_begin");
    if (--bucket->n_opened > 0)
        return TRI_OK;
    keep_part(bucket);
    bucket->live_in = 0; /* whatever this rank has written: all ranks gather it again */
    if (step != NULL && was_written(unit, bucket))
        trii_unit_forget_live(unit, bucket, step);
    for (int i = 0; i < bucket->wire->bucket.n_parts; i++) {
        trii_unit_param *param = &unit->params[bucket->wire->parts[i].index];

        trii_tensor_lose(param->tensor, trii_unit_elsewhere.why);
        param->tensor->elsewhere = &trii_unit_elsewhere;
        param->tensor->held = &param->held;
        param->tensor->address_lent = false;
    }
    trii_reserve_close(bucket->whole->data, bucket->whole->bytes);
    if (step != NULL)
        close_values(bucket, step);
    return TRI_OK;
}

/* --- a tensor ------------------------------------------------------------- */

static trii_unit_bucket *bucket_of(const tri_tensor *tensor)
{
    return trii_unit_of(tensor)->params[tensor->placed->index].bucket;
}

static tri_group *ranks_of(const tri_tensor *tensor)
{
    return trii_unit_of(tensor)->group;
}

static tri_status open_tensor(tri_tensor *tensor)
{
    trii_unit *unit = trii_unit_of(tensor);
    trii_step *step = trii_step_current();
    tri_status status = step != NULL ? trii_unit_settle(unit, step) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_step_run(step);
    if (status == TRI_OK)
        return trii_unit_open(unit, bucket_of(tensor));
    return status;
}

static tri_status close_tensor(tri_tensor *tensor)
{
    trii_step *step = trii_step_current();
    tri_status status = step != NULL ? trii_step_run(step) : TRI_ERR_NO_MEMORY;
    tri_status closed = trii_unit_close(trii_unit_of(tensor), bucket_of(tensor), step);

    return status != TRI_OK ? status : closed;
}

static void tensor_changed(tri_tensor *tensor)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_unit_forget_live(trii_unit_of(tensor), bucket_of(tensor), step);
}

const trii_elsewhere trii_unit_elsewhere = {
    .why = "it is sharded over the ranks: tri_unshard_begin (on all of them) makes it whole",
    .resolve = trii_unit_resolve,
    .ranks = ranks_of,
    .open = open_tensor,
    .close = close_tensor,
    .changed = tensor_changed};

/* --- the end -------------------------------------------------------------- */

static tri_status gone_resolve(trii_step *step, tri_tensor *tensor, trii_vid old,
                               trii_vid *value_out)
{
    (void)step;
    (void)old;
    (void)value_out;
    return TRII_FAIL(TRI_ERR_STATE, "%s", tensor->elsewhere->why);
}

static const trii_elsewhere gone = {
    .why = "its contents went with the model over whose ranks it was sharded: set them again "
           "(tri_tensor_copy_in, or load a checkpoint)",
    .resolve = gone_resolve};

void trii_unit_leave(trii_unit *unit, trii_unit_bucket *bucket)
{
    tri_status status;

    if (bucket->n_opened > 0)
        return;
    status = trii_reserve_open(bucket->whole->data, bucket->whole->bytes);
    for (int i = 0; i < bucket->wire->bucket.n_parts; i++) {
        const trii_unit_param *param = &unit->params[bucket->wire->parts[i].index];
        tri_tensor *tensor = param->tensor;

        if (tensor->elsewhere == NULL)
            continue;
        trii_tensor_lose(tensor, gone.why);
        tensor->held = param->cut;
        tensor->elsewhere = status == TRI_OK ? NULL : &gone;
    }
}
