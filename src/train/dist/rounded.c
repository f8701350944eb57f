/*
 * rounded.c - gathers of stage 3 that send 16 bits an element (unit->gather_dtype): each rank
 * rounds its part before, and all widen what has come.
 *
 * A part lies on the wire as its pieces of the bucket's parameters, one after the other. Those of
 * fewer than two dimensions (biases, scales of norms) are not rounded: they are hardly any bytes,
 * and under tri_autocast, too, they are read as f32.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/float_env.h"
#include "comm/group/reduce/reduce.h"
#include "train/dist/unit_collective.h"

static bool is_rounded(const trii_unit_param *param)
{
    return param->tensor->dtype == TRI_DTYPE_F32 && param->tensor->ndim >= 2;
}

bool trii_unit_rounds(const trii_unit *unit, const trii_unit_bucket *bucket)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    bool rounds = false;

    for (int i = 0; i < wire->n_parts; i++)
        rounds = rounds || is_rounded(&unit->params[wire->parts[i].index]);
    return rounds && unit->gather_dtype != TRI_DTYPE_NONE;
}

/* Bytes on the wire of elements [begin, end) of the bucket; with `whole`, the bucket's memory, they
 * also come there. */
static size_t take(const trii_unit_coll *t, size_t begin, size_t end, const char *from, char *whole)
{
    const tri_bucket *wire = &t->bucket->wire->bucket;
    size_t size = tri_dtype_size(wire->dtype), bytes = 0;

    for (int i = 0; i < wire->n_parts; i++) {
        const tri_bucket_part *part = &wire->parts[i];
        size_t first = part->offset > begin ? part->offset : begin;
        size_t last = part->offset + part->count < end ? part->offset + part->count : end;
        size_t n = last > first ? last - first : 0;
        bool rounded = is_rounded(&t->unit->params[part->index]);

        if (n > 0 && whole != NULL && rounded)
            trii_widen((const uint16_t *)(const void *)(from + bytes),
                       (float *)(void *)whole + first, n, t->unit->gather_dtype);
        else if (n > 0 && whole != NULL)
            memcpy(whole + first * size, from + bytes, n * size);
        bytes += n * (rounded ? sizeof(uint16_t) : size);
    }
    return bytes;
}

/* The pieces of this rank, in the order of the bucket. */
static void put_own(const trii_unit_coll *t, void *const *in, char *to)
{
    uint64_t env = trii_float_env_enter();

    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param = &t->unit->params[t->item[i]];
        size_t n = (size_t)tri_tensor_numel(param->home), bytes = trii_tensor_bytes(param->home);

        if (is_rounded(param)) {
            trii_narrow(in[i], (uint16_t *)(void *)to, n, t->unit->gather_dtype);
            bytes = n * sizeof(uint16_t);
        } else if (bytes > 0) {
            memcpy(to, in[i], bytes);
        }
        to += bytes;
    }
    trii_float_env_leave(env);
}

tri_status trii_unit_rounded_start(trii_unit_coll *t, void *const *in, void *whole)
{
    const tri_group *axis = t->unit->apart;
    size_t begin = 0, total = 0, own = 0;

    for (int r = 0; r < tri_group_size(axis); begin += t->bucket->counts[r++]) {
        if (r == tri_group_rank(axis))
            own = total;
        t->bucket->some[r] = take(t, begin, begin + t->bucket->counts[r], NULL, NULL);
        total += t->bucket->some[r];
    }
    t->aside = trii_alloc_aligned(64, total, "parameters on their way");
    if (t->aside == NULL)
        return TRI_ERR_NO_MEMORY;
    t->out[0] = whole;
    put_own(t, in, t->aside + own);
    return trii_unit_coll_send(t, t->aside + own, t->aside, TRI_DTYPE_U8);
}

void trii_unit_rounded_end(trii_unit_coll *t)
{
    const tri_bucket *wire = &t->bucket->wire->bucket;
    size_t size = tri_dtype_size(wire->dtype), begin = 0;
    const char *from = t->aside;
    char *whole = t->out[0];

    for (int r = 0; r < tri_group_size(t->unit->apart); begin += t->bucket->counts[r++])
        from += take(t, begin, begin + t->bucket->counts[r], from, whole);
    /* what lies between parameters is a part of the result, too */
    for (int i = 0; i < wire->n_parts; i++) {
        size_t end = wire->parts[i].offset + wire->parts[i].count;
        size_t next = i + 1 < wire->n_parts ? wire->parts[i + 1].offset : wire->count;

        memset(whole + end * size, 0, (next - end) * size);
    }
}
