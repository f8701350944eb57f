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

static void send_as(const tri_bucket *bucket, uint16_t *wire, tri_dtype wire_type)
{
    const double *wide = bucket->data;
    float piece[PIECE];

    if (bucket->dtype == TRI_DTYPE_F32) {
        trii_narrow(bucket->data, wire, bucket->count, wire_type);
        return;
    }
    for (size_t at = 0, n; at < bucket->count; at += n) {
        n = bucket->count - at < PIECE ? bucket->count - at : PIECE;
        for (size_t i = 0; i < n; i++)
            piece[i] = (float)wide[at + i];
        trii_narrow(piece, wire + at, n, wire_type);
    }
}

static void take_from(const uint16_t *wire, tri_dtype wire_type, tri_bucket *bucket)
{
    double *wide = bucket->data;
    float piece[PIECE];

    if (bucket->dtype == TRI_DTYPE_F32) {
        trii_widen(wire, bucket->data, bucket->count, wire_type);
        return;
    }
    for (size_t at = 0, n; at < bucket->count; at += n) {
        n = bucket->count - at < PIECE ? bucket->count - at : PIECE;
        trii_widen(wire + at, piece, n, wire_type);
        for (size_t i = 0; i < n; i++)
            wide[at + i] = (double)piece[i];
    }
}

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
        send_as(bucket, wire, wire_type);
        return tri_all_reduce(bucket->group, wire, wire, bucket->count, wire_type, TRI_REDOP_SUM,
                              work_out);
    }
    take_from(wire, wire_type, bucket);
    return TRI_OK;
}

/* The same bits on all ranks. */
static tri_status narrow(tri_bucket *bucket, int stage, tri_dtype wire_type, tri_work **work_out)
{
    const char *call = wire_type == TRI_DTYPE_F16 ? "bucket_hook_f16" : "bucket_hook_bf16";
    tri_status status = trii_need(bucket, call, "bucket");
    uint64_t env;

    if (status == TRI_OK)
        status = trii_need(work_out, call, "work_out");
    if (status != TRI_OK)
        return status;
    env = trii_float_env_enter();
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
