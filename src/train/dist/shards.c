/*
 * shards.c - which part of a unit each rank has (ZeRO: Rajbhandari and others, arXiv 1910.02054).
 *
 * The parameters of a bucket lie next to each other, as their gradients do, and each rank has one
 * part of that memory: it gets the averages of its part alone, keeps state and updates for it, and
 * sends it to the others (gather_op.c). Parts begin at the blocks of parameters (placement.h) that
 * are nearest to equal shares, so they differ by at most one block; a parameter may lie in several
 * parts, and a rank has at most one piece of each.
 *
 * Parts do not move once states exist for them: the buckets keep the order that they begin with.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/step/grads.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/sharing.h"

/* --- cuts ----------------------------------------------------------------- */

/* Nearest to `wanted` of the blocks of the part's tensor, both ends included. */
static size_t nearest_in(const tri_bucket_part *part, size_t end, size_t wanted)
{
    size_t blocks = (wanted - part->offset + TRII_PIECE_BLOCK / 2) / TRII_PIECE_BLOCK;
    size_t at = part->offset + blocks * TRII_PIECE_BLOCK;

    if (at < part->offset + part->count)
        return at;
    /* Its last block is a shorter one. */
    at = part->count > 0 ? (part->count - 1) / TRII_PIECE_BLOCK * TRII_PIECE_BLOCK : 0;
    at += part->offset;
    return wanted - at < end - wanted ? at : end;
}

/* Of a place in the bucket, the border of a block. */
static size_t border_near(const tri_bucket *bucket, size_t wanted)
{
    for (int i = 0; i < bucket->n_parts; i++) {
        size_t end = i + 1 < bucket->n_parts ? bucket->parts[i + 1].offset : bucket->count;

        if (wanted < end)
            return nearest_in(&bucket->parts[i], end, wanted);
    }
    return bucket->count;
}

static tri_status cut(const trii_unit *unit, trii_unit_bucket *bucket)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    size_t begin = 0, size = (size_t)tri_group_size(trii_unit_parts(unit));
    size_t rank = (size_t)tri_group_rank(trii_unit_parts(unit));

    bucket->counts = trii_alloc(2 * size, sizeof(*bucket->counts), "parts of a bucket");
    if (bucket->counts == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t r = 0; r < size; r++) {
        /* count / size * (r + 1) without overflow */
        size_t wanted = wire->count / size * (r + 1) + wire->count % size * (r + 1) / size;
        size_t end = border_near(wire, wanted);

        bucket->counts[r] = end - begin;
        if (r == rank) {
            bucket->wire->first = begin;
            bucket->wire->own = end - begin;
        }
        begin = end;
    }
    bucket->some = bucket->counts + size;
    bucket->wire->counts = bucket->counts;
    return TRI_OK;
}

/* --- gradients on their way ----------------------------------------------- */

int trii_unit_staging_after(const trii_unit *unit, const trii_step *step, int index,
                            trii_vid *after)
{
    int i = index % 2;

    if (unit->stage < 2 || unit->staged[i].generation != step->generation ||
        step->values[unit->staged[i].value].state != TRII_VALUE_PENDING)
        return 0;
    *after = unit->staged[i].value;
    return 1;
}

void trii_unit_staging_taken(trii_unit *unit, const trii_step *step, int index, trii_vid by)
{
    unit->staged[index % 2].value = by;
    unit->staged[index % 2].generation = step->generation;
}

/* --- pieces --------------------------------------------------------------- */

/* Its gradient lies in the bucket of gradients where it lies among the parameters, or where nothing
 * stays there in memory of its own. */
static tri_status make_piece_grad(const trii_unit *unit, trii_unit_param *param, tri_tensor *piece)
{
    tri_status status = trii_grad_prepare(piece);

    return status == TRI_OK && unit->stage == 1
               ? trii_tensor_move(piece->grad, param->bucket->storage, param->home_offset)
               : status;
}

/* The piece is a part of the parameter's memory. */
static tri_status make_range(const trii_unit_param *param, trii_placed *placed, int64_t count)
{
    tri_status status = trii_tensor_move(param->tensor, param->bucket->values, param->offset);

    return status == TRI_OK
               ? trii_tensor_range(param->tensor, placed->start, &count, 1, &placed->piece)
               : status;
}

/* The piece has memory of its own, which gets its contents when the parameter's is closed. */
static tri_status make_apart(const trii_unit_param *param, trii_placed *placed, int64_t count,
                             size_t at)
{
    tri_status status = trii_tensor_move(param->tensor, param->bucket->whole, param->offset);

    param->tensor->stays_plain = true;
    return status == TRI_OK ? trii_tensor_over(param->bucket->values, at, param->tensor->dtype,
                                               &count, 1, param->tensor->device, &placed->piece)
                            : status;
}

static void holds(const trii_placed *placed, const tri_tensor *home, trii_held *held_out)
{
    const trii_unit *unit = placed->unit;
    const tri_tensor *tensor = placed->tensor;

    if (trii_tensor_is_cut(tensor)) { /* a range of what this rank has of it */
        *held_out = *tensor->held;
        held_out->tensor = NULL;
        held_out->shared_by = unit->group;
        held_out->from = placed->start;
        held_out->is_replica = unit->across != NULL && tri_group_rank(unit->across) > 0;
        return;
    }
    *held_out = (trii_held){.group = unit->group,
                            .is_replica = unit->across != NULL && tri_group_rank(unit->across) > 0,
                            .ndim = tensor->ndim,
                            .piece = trii_piece_range(placed->start, tri_tensor_numel(home))};
    memcpy(held_out->shape, tensor->shape, sizeof(held_out->shape));
}

bool trii_home_holds(const tri_tensor *param, const tri_tensor *home, trii_held *held_out)
{
    const trii_placed *placed = param->placed;

    if (home == param) {
        if (param->held != NULL)
            *held_out = *param->held;
        return param->held != NULL;
    }
    if (placed != NULL && placed->unit != NULL)
        holds(placed, home, held_out);
    return placed != NULL && placed->unit != NULL;
}

bool trii_home_keeps(const tri_tensor *param, const tri_tensor *home, trii_held *held_out)
{
    bool holds = trii_home_holds(param, home, held_out);

    if (holds)
        (void)tri_group_ref(held_out->group);
    if (holds && held_out->shared_by != NULL)
        (void)tri_group_ref(held_out->shared_by);
    return holds;
}

void trii_home_lets_go(trii_held *held)
{
    tri_group_unref(held->group);
    tri_group_unref(held->shared_by);
    *held = (trii_held){0};
}

static tri_status make_piece(trii_unit *unit, trii_unit_param *param)
{
    const trii_bucket *wire = param->bucket->wire;
    trii_placed *placed = &unit->placed[param->place];
    size_t size = tri_dtype_size(param->tensor->dtype), offset = param->offset / size;
    size_t end = offset + (size_t)tri_tensor_numel(param->tensor);
    int part = tri_group_rank(trii_unit_parts(unit));
    size_t own = wire->first, own_end = own + wire->counts[part];
    size_t first = own > offset ? own : offset, last = own_end < end ? own_end : end;
    int64_t count = last > first ? (int64_t)(last - first) : 0;
    tri_status status;

    if (count == 0)
        first = offset;
    placed->start = (int64_t)(first - offset);
    param->home_offset = first * size;
    status = param->bucket->whole == NULL
                 ? make_range(param, placed, count)
                 : make_apart(param, placed, count, count > 0 ? (first - own) * size : 0);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", param->name);
    placed->piece->placed = placed;
    param->home = placed->piece;
    param->tensor->in_pieces = true;
    param->cut = param->tensor->held;
    holds(placed, param->home, &param->held);
    param->held.tensor = param->home;
    return make_piece_grad(unit, param, placed->piece);
}

/* Small parameters share buckets with small ones alone (buckets.c). */
static bool stays_whole(const trii_unit *unit, const trii_unit_bucket *bucket)
{
    return tri_tensor_numel(unit->params[bucket->wire->parts[0].index].tensor) < unit->keep_below;
}

/* Memory for the parameters of a bucket. */
static tri_status make_values(trii_unit *unit, trii_unit_bucket *bucket)
{
    const trii_bucket *wire = bucket->wire;
    size_t size = tri_dtype_size(wire->bucket.dtype), most = 0;
    tri_status status;

    if (unit->stage < 3 || stays_whole(unit, bucket))
        return trii_unit_storage_create(trii_unit_parts(unit), wire->bucket.count * size,
                                        &bucket->values);
    /* All ranks take as much of the arena. */
    for (int r = 0; r < tri_group_size(trii_unit_parts(unit)); r++)
        most = bucket->counts[r] > most ? bucket->counts[r] : most;
    status = trii_unit_storage_create(unit->apart, most * size, &bucket->values);
    if (status == TRI_OK)
        status = trii_unit_reserve(wire->bucket.count * size, &bucket->whole);
    if (status == TRI_OK)
        bucket->n_opened = 1;
    bucket->rounds = trii_unit_rounds(unit, bucket);
    return status;
}

static tri_status check(const trii_unit *unit)
{
    for (int i = 0; i < unit->n_params; i++) {
        const tri_tensor *tensor = unit->params[i].tensor;

        if (!trii_is_host(tensor->device))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s lies on %s: only parameters in the host's memory are sharded",
                             unit->params[i].name, tri_device_text(tensor->device));
        if (tensor->address_lent || tensor->read_only)
            return TRII_FAIL(TRI_ERR_STATE,
                             "%s lies in memory whose address the program has (tri_data or memory "
                             "of its own), and a sharded parameter has to move: wrap the network "
                             "before its memory is looked at",
                             unit->params[i].name);
    }
    return TRI_OK;
}

tri_status trii_unit_shard(trii_unit *unit)
{
    tri_status status = check(unit);

    for (int b = 0; b < unit->averager.n_buckets && status == TRI_OK; b++) {
        trii_unit_bucket *bucket = &unit->buckets[b];

        status = cut(unit, bucket);
        if (status == TRI_OK)
            status = make_values(unit, bucket);
        for (int i = 0; i < bucket->wire->bucket.n_parts && status == TRI_OK; i++)
            status = make_piece(unit, &unit->params[bucket->wire->parts[i].index]);
        if (status == TRI_OK && bucket->whole != NULL)
            status = trii_unit_close(unit, bucket, NULL);
    }
    if (status != TRI_OK)
        return status;
    unit->rebuilt = true; /* for parts do not move */
    return TRI_OK;
}

void trii_unit_shards_free(trii_unit *unit)
{
    for (int i = 0; i < unit->n_placed; i++) {
        tri_tensor *piece = unit->placed[i].piece;

        if (piece == NULL)
            continue;
        piece->placed = NULL;
        trii_grad_promise(piece, false);
        tri_tensor_unref(piece);
        unit->placed[i].piece = NULL;
        unit->placed[i].tensor->in_pieces = false;
    }
    for (int b = 0; b < unit->averager.n_buckets && unit->buckets != NULL; b++) {
        if (unit->buckets[b].whole != NULL)
            trii_unit_leave(unit, &unit->buckets[b]);
        trii_storage_unref(unit->buckets[b].whole);
        unit->buckets[b].whole = NULL;
        trii_unit_colls_free(unit->buckets[b].gathers);
        unit->buckets[b].gathers = NULL;
        trii_storage_unref(unit->buckets[b].values);
        unit->buckets[b].values = NULL;
        trii_free(unit->buckets[b].counts);
        unit->buckets[b].counts = NULL;
        unit->buckets[b].wire->counts = NULL;
    }
}
