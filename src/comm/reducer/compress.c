/*
 * compress.c - hooks that send 16 bits per element. Sums of 16-bit types are made in f32 and
 * rounded once, so a result is rounded twice: when it is sent, and in the sum.
 */
/* build: leaf */
#include "base/err.h"
#include "base/float_env.h"
#include "comm/group/reduce/reduce.h"
#include "comm/reducer/reducer_internal.h"

/* Doubles go by way of f32, a piece at a time. */
#define PIECE 256

/* So many elements of the bucket. */
static void send_as(const tri_bucket *bucket, size_t first, size_t count, uint16_t *wire,
                    tri_dtype wire_type)
{
    const double *wide = (const double *)bucket->data + first;
    float piece[PIECE];

    if (bucket->dtype == TRI_DTYPE_F32) {
        trii_narrow((const float *)bucket->data + first, wire, count, wire_type);
        return;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        for (size_t i = 0; i < n; i++)
            piece[i] = (float)wide[at + i];
        trii_narrow(piece, wire + at, n, wire_type);
    }
}

static void take_from(const uint16_t *wire, tri_dtype wire_type, tri_bucket *bucket, size_t first,
                      size_t count)
{
    double *wide = (double *)bucket->data + first;
    float piece[PIECE];

    if (bucket->dtype == TRI_DTYPE_F32) {
        trii_widen(wire, (float *)bucket->data + first, count, wire_type);
        return;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        trii_widen(wire + at, piece, n, wire_type);
        for (size_t i = 0; i < n; i++)
            wide[at + i] = (double)piece[i];
    }
}

/* --- a bucket of which each rank gets its part ---------------------------- */

/* Over a mesh of two axes the copies of a part share it out once more: a sum in 16 bits along each
 * axis would be rounded twice. So all ranks get their shares from one reduce_scatter, and the
 * copies gather each other's. Without copies a share is a part. */
static size_t share_of(size_t part, size_t copies, size_t copy)
{
    return part * (copy + 1) / copies - part * copy / copies;
}

#define WORD (sizeof(size_t) / sizeof(uint16_t))

/* What the bucket's memory holds. */
typedef struct shares {
    size_t copies, copy, parts, part; /* numbers of ranks along the axes, and this one's */
    uint16_t *wire;                   /* all shares */
    uint16_t *own, *whole;            /* this rank's share, and its part */
    size_t *of_all, *of_copies;       /* elements of the shares, in rank order */
} shares;

static tri_status find_shares(trii_bucket *b, shares *s)
{
    const trii_averager *a = b->averager;
    tri_group *axis = a->within != NULL ? a->within : a->group;
    size_t words, at = 0;

    s->copies = a->across != NULL ? (size_t)tri_group_size(a->across) : 1;
    s->copy = a->across != NULL ? (size_t)tri_group_rank(a->across) : 0;
    s->parts = (size_t)tri_group_size(axis);
    s->part = (size_t)tri_group_rank(axis);
    words = (b->bucket.count + b->own + WORD - 1) / WORD;
    s->wire = tri_bucket_memory(&b->bucket,
                                (words + s->copies * s->parts + s->copies) * sizeof(*s->of_all));
    if (s->wire == NULL)
        return TRI_ERR_NO_MEMORY;
    s->of_all = (size_t *)(void *)s->wire + words;
    s->of_copies = s->of_all + s->copies * s->parts;
    for (size_t c = 0; c < s->copies; c++) {
        s->of_copies[c] = share_of(b->own, s->copies, c);
        for (size_t p = 0; p < s->parts; p++) {
            if (c == s->copy && p == s->part)
                s->own = s->wire + at;
            s->of_all[c * s->parts + p] = share_of(b->counts[p], s->copies, c);
            at += s->of_all[c * s->parts + p];
        }
    }
    s->whole = a->across != NULL ? s->wire + b->bucket.count : s->own;
    return TRI_OK;
}

static tri_status scatter(trii_bucket *b, const shares *s, tri_dtype wire_type, tri_work **work_out)
{
    uint16_t *to = s->wire;

    for (size_t c = 0; c < s->copies; c++) {
        size_t first = 0; /* of the part */

        for (size_t p = 0; p < s->parts; p++) {
            size_t n = s->of_all[c * s->parts + p];

            send_as(&b->bucket, first + b->counts[p] * c / s->copies, n, to, wire_type);
            to += n;
            first += b->counts[p];
        }
    }
    b->goes_across = s->copies > 1;
    return tri_reduce_scatter_v(b->bucket.group, s->wire, s->own, s->of_all, wire_type,
                                TRI_REDOP_SUM, work_out);
}

static tri_status run_part_stage(trii_bucket *b, int stage, tri_dtype wire_type,
                                 tri_work **work_out)
{
    shares s = {0};
    tri_status status = find_shares(b, &s);

    if (status != TRI_OK)
        return status;
    if (stage == 0)
        return scatter(b, &s, wire_type, work_out);
    if (b->goes_across) {
        b->goes_across = false;
        return tri_all_gather_v(b->averager->across, s.own, s.whole, s.of_copies, wire_type,
                                work_out);
    }
    take_from(s.whole, wire_type, &b->bucket, b->first, b->own);
    return TRI_OK;
}

/* --- all ranks get all ---------------------------------------------------- */

static tri_status run_stage(tri_bucket *bucket, int stage, tri_dtype wire_type, tri_work **work_out)
{
    uint16_t *wire;

    if (tri_dtype_size(bucket->dtype) == sizeof(*wire))
        return stage > 0 ? TRI_OK
                         : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                          bucket->dtype, TRI_REDOP_SUM, work_out);
    wire = tri_bucket_memory(bucket, bucket->count * sizeof(*wire));
    if (wire == NULL)
        return TRI_ERR_NO_MEMORY;
    if (stage == 0) {
        send_as(bucket, 0, bucket->count, wire, wire_type);
        return tri_all_reduce(bucket->group, wire, wire, bucket->count, wire_type, TRI_REDOP_SUM,
                              work_out);
    }
    take_from(wire, wire_type, bucket, 0, bucket->count);
    return TRI_OK;
}

/* The same bits on all ranks. */
static tri_status narrow(tri_bucket *bucket, int stage, tri_dtype wire_type, tri_work **work_out)
{
    const char *call = wire_type == TRI_DTYPE_F16 ? "bucket_hook_f16" : "bucket_hook_bf16";
    tri_status status = trii_need(bucket, call, "bucket");
    trii_bucket *b;
    uint64_t env;

    if (status == TRI_OK)
        status = trii_need(work_out, call, "work_out");
    if (status != TRI_OK)
        return status;
    b = bucket->owner;
    env = trii_float_env_enter();
    /* A hook of the program may call this one, and needs all averages. */
    if (b != NULL && b->counts != NULL && b->averager->each_ends)
        status = run_part_stage(b, stage, wire_type, work_out);
    else
        status = run_stage(bucket, stage, wire_type, work_out);
    trii_float_env_leave(env);
    return status;
}

tri_status tri_bucket_hook_f16(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    (void)state;
    return narrow(bucket, stage, TRI_DTYPE_F16, work_out);
}

tri_status tri_bucket_hook_bf16(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    (void)state;
    return narrow(bucket, stage, TRI_DTYPE_BF16, work_out);
}
