/*
 * nccl_call.c - see nccl_engine.h.
 */
#include "engine-nccl/nccl_engine.h"

#include "base/dtype.h"

static bool type_of(tri_dtype dtype, ncclDataType_t *type_out)
{
    switch (dtype) {
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
        *type_out = ncclUint8;
        return true;
    case TRI_DTYPE_I8:
        *type_out = ncclInt8;
        return true;
    case TRI_DTYPE_I32:
        *type_out = ncclInt32;
        return true;
    case TRI_DTYPE_I64:
        *type_out = ncclInt64;
        return true;
    case TRI_DTYPE_F16:
        *type_out = ncclFloat16;
        return true;
    case TRI_DTYPE_BF16:
        *type_out = ncclBfloat16;
        return true;
    case TRI_DTYPE_F32:
        *type_out = ncclFloat32;
        return true;
    case TRI_DTYPE_F64:
        *type_out = ncclFloat64;
        return true;
    default:
        return false;
    }
}

static bool op_of(tri_redop op, ncclRedOp_t *op_out)
{
    if (op == TRII_REDOP_PREMUL_SUM)
        op = TRI_REDOP_SUM; /* nccl_call_reduction makes it */
    switch (op) {
    case TRI_REDOP_SUM:
        *op_out = ncclSum;
        return true;
    case TRI_REDOP_AVG:
        *op_out = ncclAvg;
        return true;
    case TRI_REDOP_PRODUCT:
        *op_out = ncclProd;
        return true;
    case TRI_REDOP_MIN:
        *op_out = ncclMin;
        return true;
    case TRI_REDOP_MAX:
        *op_out = ncclMax;
        return true;
    default:
        return false;
    }
}

/* Calls are ordered by the queue of the group's GPU, which says nothing of another's memory. */
static bool on_gpu(const nccl_group *g, const void *p)
{
    struct cudaPointerAttributes where;

    if (p == NULL)
        return true;
    if (cudaPointerGetAttributes(&where, p) != cudaSuccess)
        return false;
    return where.type == cudaMemoryTypeManaged ||
           (where.type == cudaMemoryTypeDevice && where.device == g->device);
}

tri_status nccl_call_check(const nccl_group *g, const trii_collective *call)
{
    ncclDataType_t type;
    ncclRedOp_t op;
    char text[256];
    const char *what = NULL;

    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING) &&
        (!type_of(call->dtype, &type) || call->dtype == TRI_DTYPE_BOOL))
        what = "it cannot reduce this dtype";
    else if (trii_kind_in(call->kind, TRII_KINDS_REDUCING) && !op_of(call->op, &op))
        what = "it does not have this reduction";
    else if (call->bytes > 0 && (!on_gpu(g, call->src) || !on_gpu(g, call->dst)))
        what = "its buffers must be memory of the group's GPU";
    if (what == NULL)
        return TRI_OK;
    nccl_host->describe(call, text, sizeof(text));
    return nccl_host->fail(TRI_ERR_UNSUPPORTED, "engine nccl: %s: %s; engines shm and tcp have it",
                           text, what);
}

/* One part to each and one from each, as far as there are any; elements from the places. */
static ncclResult_t exchange(const nccl_group *g, const trii_collective *call, const char *src,
                             const size_t *src_at, char *dst, const size_t *dst_at)
{
    size_t elem = nccl_host->dtype_size(call->dtype);
    ncclResult_t result = ncclGroupStart(), end;

    if (result != ncclSuccess) /* nothing has begun that would have to end */
        return result;
    for (int r = 0; r < g->size && result == ncclSuccess; r++) {
        size_t out = src != NULL ? trii_part_count(src_at, call->count, r) * elem : 0;
        size_t in = dst != NULL ? trii_part_count(dst_at, call->count, r) * elem : 0;

        if (out > 0)
            result = ncclSend(src + trii_part_at(src_at, call->count, r) * elem, out, ncclUint8, r,
                              g->comm, g->stream);
        if (in > 0 && (result == ncclSuccess || result == ncclInProgress))
            result = ncclRecv(dst + trii_part_at(dst_at, call->count, r) * elem, in, ncclUint8, r,
                              g->comm, g->stream);
        result = result == ncclInProgress ? ncclSuccess : result;
    }
    end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

/* Every rank's part from or to the root. */
static ncclResult_t rooted(const nccl_group *g, const trii_collective *call, bool gather)
{
    bool root = g->rank == call->root;
    size_t bytes = call->bytes;
    ncclResult_t result = ncclGroupStart(), end;

    if (result != ncclSuccess) /* nothing has begun that would have to end */
        return result;
    if (gather)
        result = ncclSend(call->src, bytes, ncclUint8, call->root, g->comm, g->stream);
    else
        result = ncclRecv(call->dst, bytes, ncclUint8, call->root, g->comm, g->stream);
    for (int r = 0; r < g->size && root; r++) {
        if (result != ncclSuccess && result != ncclInProgress)
            break;
        result = gather ? ncclRecv((char *)call->dst + bytes * (size_t)r, bytes, ncclUint8, r,
                                   g->comm, g->stream)
                        : ncclSend((const char *)call->src + bytes * (size_t)r, bytes, ncclUint8, r,
                                   g->comm, g->stream);
    }
    end = ncclGroupEnd();
    return result != ncclSuccess && result != ncclInProgress ? result : end;
}

/* Parts of different sizes: each rank's own is broadcast, or reduced to its owner. */
static ncclResult_t by_parts(const nccl_group *g, const trii_collective *call, bool gather,
                             ncclRedOp_t op)
{
    const size_t *at = gather ? call->dst_parts : call->src_parts;
    size_t elem = nccl_host->dtype_size(call->dtype);
    ncclDataType_t type = ncclUint8;
    ncclResult_t result = ncclGroupStart(), end;

    if (result != ncclSuccess) /* nothing has begun that would have to end */
        return result;
    if (!gather)
        (void)type_of(call->dtype, &type);
    for (int r = 0; r < g->size && (result == ncclSuccess || result == ncclInProgress); r++) {
        size_t count = at[r + 1] - at[r];

        if (count == 0)
            continue;
        result = gather ? ncclBroadcast(call->src, (char *)call->dst + at[r] * elem, count * elem,
                                        ncclUint8, r, g->comm, g->stream)
                        : ncclReduce((const char *)call->src + at[r] * elem, call->dst, count, type,
                                     op, r, g->comm, g->stream);
    }
    end = ncclGroupEnd();
    return result != ncclSuccess && result != ncclInProgress ? result : end;
}

ncclResult_t nccl_call_reduction(const nccl_group *g, const trii_collective *call,
                                 ncclRedOp_t *op_out)
{
    ncclDataType_t type = ncclFloat32;
    uint16_t half;
    double wide = (double)call->factor;
    float factor = call->factor;
    void *scalar = &factor;

    *op_out = ncclSum;
    if (!trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        return ncclSuccess;
    (void)(type_of(call->dtype, &type) && op_of(call->op, op_out));
    if (call->op != TRII_REDOP_PREMUL_SUM)
        return ncclSuccess;
    half = call->dtype == TRI_DTYPE_F16 ? nccl_host->f32_to_f16(factor) : trii_f32_to_bf16(factor);
    if (call->dtype == TRI_DTYPE_F16 || call->dtype == TRI_DTYPE_BF16)
        scalar = &half;
    else if (call->dtype == TRI_DTYPE_F64)
        scalar = &wide;
    return ncclRedOpCreatePreMulSum(op_out, scalar, type, ncclScalarHostImmediate, g->comm);
}

ncclResult_t nccl_call_start(const nccl_group *g, const trii_collective *call, ncclRedOp_t op)
{
    ncclDataType_t type = ncclUint8;

    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        (void)type_of(call->dtype, &type);
    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        return ncclAllReduce(call->src, call->dst, call->count, type, op, g->comm, g->stream);
    case TRII_KIND_REDUCE:
        return ncclReduce(call->src, call->dst, call->count, type, op, call->root, g->comm,
                          g->stream);
    case TRII_KIND_REDUCE_SCATTER:
        return ncclReduceScatter(call->src, call->dst, call->count, type, op, g->comm, g->stream);
    case TRII_KIND_BROADCAST:
        return ncclBroadcast(call->src, call->dst, call->bytes, ncclUint8, call->root, g->comm,
                             g->stream);
    case TRII_KIND_ALL_GATHER:
        return ncclAllGather(call->src, call->dst, call->bytes, ncclUint8, g->comm, g->stream);
    case TRII_KIND_GATHER:
        return rooted(g, call, true);
    case TRII_KIND_SCATTER:
        return rooted(g, call, false);
    case TRII_KIND_ALL_GATHER_V:
        return by_parts(g, call, true, op);
    case TRII_KIND_REDUCE_SCATTER_V:
        return by_parts(g, call, false, op);
    case TRII_KIND_ALL_TO_ALL:
    case TRII_KIND_ALL_TO_ALL_V:
        return exchange(g, call, call->src, call->src_parts, call->dst, call->dst_parts);
    case TRII_KIND_SEND:
        return ncclSend(call->src, call->bytes, ncclUint8, call->root, g->comm, g->stream);
    case TRII_KIND_RECV:
        return ncclRecv(call->dst, call->bytes, ncclUint8, call->root, g->comm, g->stream);
    default:
        return ncclAllReduce(g->token, g->token, 1, ncclUint8, ncclSum, g->comm, g->stream);
    }
}
