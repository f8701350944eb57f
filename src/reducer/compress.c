/*
 * compress.c - hooks that send 16 bits per element. Sums of 16-bit types are made in f32 and
 * rounded once, so a result has two roundings: on the way out and in the sum.
 */
#include "base/dtype.h"
#include "base/err.h"
#include "base/float_env.h"
#include "reducer/inside.h"

static float element(const tri_bucket *bucket, size_t i)
{
    return bucket->dtype == TRI_DTYPE_F64 ? (float)((const double *)bucket->data)[i]
                                          : ((const float *)bucket->data)[i];
}

static void set_element(tri_bucket *bucket, size_t i, float value)
{
    if (bucket->dtype == TRI_DTYPE_F64)
        ((double *)bucket->data)[i] = value;
    else
        ((float *)bucket->data)[i] = value;
}

static tri_status run_stage(tri_bucket *bucket, int stage, tri_dtype wire_type, tri_work **work_out)
{
    bool f16 = wire_type == TRI_DTYPE_F16;
    uint16_t *wire;

    if (tri_dtype_size(bucket->dtype) == sizeof(*wire))
        return stage > 0 ? TRI_OK
                         : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                          bucket->dtype, TRI_REDOP_SUM, work_out);
    wire = tri_bucket_memory(bucket, bucket->count * sizeof(*wire));
    if (wire == NULL)
        return TRI_ERR_NO_MEMORY;
    if (stage == 0) {
        for (size_t i = 0; i < bucket->count; i++)
            wire[i] =
                f16 ? trii_f32_to_f16(element(bucket, i)) : trii_f32_to_bf16(element(bucket, i));
        return tri_all_reduce(bucket->group, wire, wire, bucket->count, wire_type, TRI_REDOP_SUM,
                              work_out);
    }
    for (size_t i = 0; i < bucket->count; i++)
        set_element(bucket, i, f16 ? trii_f16_to_f32(wire[i]) : trii_bf16_to_f32(wire[i]));
    return TRI_OK;
}

/* The same bits on all ranks. */
static tri_status narrow(tri_bucket *bucket, int stage, tri_dtype wire_type, tri_work **work_out)
{
    const char *call = wire_type == TRI_DTYPE_F16 ? "bucket_hook_f16" : "bucket_hook_bf16";
    tri_status st = trii_need(bucket, call, "bucket");
    uint64_t env;

    if (st == TRI_OK)
        st = trii_need(work_out, call, "work_out");
    if (st != TRI_OK)
        return st;
    env = trii_float_env_enter();
    st = run_stage(bucket, stage, wire_type, work_out);
    trii_float_env_leave(env);
    return st;
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
