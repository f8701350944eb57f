/*
 * collective.c - the public calls with parts of one size: every argument is checked here, once
 * for all engines, and the message names it with its value. Then the call is run (post.c), or gets
 * a handle (work.c). Parts of different sizes are in collective_v.c, send and recv in
 * point_to_point.c.
 */
/* build: hot */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "comm/group/group_internal.h"
#include "comm/group/call/premul.h"

/* collective_v.c checks unequal parts itself. */
#define UNCHECKED_SHAPE TRII_KINDS_WITH(TRII_NO_DATA | TRII_UNEQUAL)

tri_status trii_call_bad(const trii_collective *call, const char *what)
{
    char text[256];

    trii_collective_describe(call, text, sizeof(text));
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s", text, what);
}

bool trii_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

static bool uses_src(const tri_group *group, const trii_collective *call)
{
    return !trii_kind_in(call->kind, TRII_KINDS_RECEIVING) &&
           (call->kind != TRII_KIND_SCATTER || call->root == group->rank);
}

static bool uses_dst(const tri_group *group, const trii_collective *call)
{
    return call->kind != TRII_KIND_SEND &&
           (!trii_kind_in(call->kind, TRII_KINDS_TO_ROOT) || call->root == group->rank);
}

/* Sizes, the dtype and NULL buffers. */
static tri_status check_shape(const tri_group *group, trii_collective *call)
{
    bool whole = trii_kind_in(call->kind, TRII_KINDS_WHOLE_SRC | TRII_KINDS_WHOLE_DST);
    size_t size = tri_dtype_size(call->dtype);
    size_t total;

    if (size == 0)
        return trii_call_bad(call, "dtype is not a known type");
    if (__builtin_mul_overflow(call->count, size, &call->bytes) ||
        __builtin_mul_overflow(call->bytes, whole ? (size_t)group->size : 1, &total) ||
        total > SIZE_MAX / 2)
        return trii_call_bad(call, "count is more than memory can hold");
    if (call->count > 0 && call->src == NULL && uses_src(group, call))
        return trii_call_bad(call, "src is NULL");
    if (call->count > 0 && call->dst == NULL && uses_dst(group, call))
        return trii_call_bad(call, "dst is NULL");
    return TRI_OK;
}

/* Complex numbers go as what they are two of. */
static tri_status as_real(trii_collective *call)
{
    tri_redop op = call->op;

    if (trii_dtype_real(call->dtype) == call->dtype)
        return TRI_OK;
    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING) && (unsigned)op < TRII_REDOPS &&
        op != TRI_REDOP_SUM && op != TRI_REDOP_AVG)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s of %s: complex numbers have sum, avg and premul_sum only",
                         tri_redop_name(op), tri_dtype_name(call->dtype));
    if (__builtin_mul_overflow(call->count, 2, &call->count))
        return trii_call_bad(call, "count is more than memory can hold");
    call->dtype = trii_dtype_real(call->dtype);
    call->parts = 2;
    return TRI_OK;
}

tri_status trii_reduction_check(tri_dtype dtype, tri_redop op)
{
    bool bitwise = op == TRI_REDOP_BAND || op == TRI_REDOP_BOR || op == TRI_REDOP_BXOR;

    if (tri_dtype_size(dtype) == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dtype %d is not a known type", (int)dtype);
    if ((unsigned)op >= TRII_REDOPS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "reduction %d is not a known reduction", (int)op);
    if (dtype == TRI_DTYPE_F8_E4M3 || dtype == TRI_DTYPE_F8_E5M2)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s is carried, not reduced", tri_dtype_name(dtype));
    if (op == TRI_REDOP_AVG && !trii_dtype_is_float(dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "avg of %s: only floating-point types have one",
                         tri_dtype_name(dtype));
    if (bitwise && trii_dtype_is_float(dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s of %s: only integers and bool have bits",
                         tri_redop_name(op), tri_dtype_name(dtype));
    return TRI_OK;
}

/* Of a call with a factor; its reduction is TRII_REDOP_PREMUL_SUM then. */
static tri_status check_premul(trii_collective *call)
{
    tri_status status = trii_reduction_check(call->dtype, TRI_REDOP_SUM);

    if (status != TRI_OK)
        return status;
    if (!trii_dtype_is_float(call->dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "premul_sum of %s: only floating-point types",
                         tri_dtype_name(call->dtype));
    if (!(call->factor >= 0.0f && call->factor <= 3.40282347e38f)) /* no NaN either */
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "premul_sum: factor is %g: must be finite and not negative",
                         (double)call->factor);
    call->factor += 0.0f; /* of -0 it makes 0 */
    call->op = TRII_REDOP_PREMUL_SUM;
    return TRI_OK;
}

static tri_status check_reduction(trii_collective *call)
{
    return TRII_LIKELY(!call->scaled) ? trii_reduction_check(call->dtype, call->op)
                                      : check_premul(call);
}

tri_status trii_call_begin(tri_group **group, trii_collective *call)
{
    tri_status status = as_real(call);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", trii_kind_name(call->kind));
    if (*group == NULL)
        *group = trii_group_get_world();
    if (TRII_UNLIKELY(*group == NULL || (*group)->engine == NULL || trii_group_of_parent(*group)))
        return trii_group_resolve(group, trii_kind_name(call->kind));
    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        status = check_reduction(call);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", trii_kind_name(call->kind));
    if (trii_kind_in(call->kind, TRII_KINDS_ROOTED) &&
        (call->root < 0 || call->root >= (*group)->size))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: root %d is out of range (group of %d)",
                         trii_kind_name(call->kind), call->root, (*group)->size);
    if (trii_kind_in(call->kind, UNCHECKED_SHAPE))
        return TRI_OK;
    status = check_shape(*group, call);
    if (status != TRI_OK)
        return status;
    if (!uses_src(*group, call))
        call->src = NULL;
    if (!uses_dst(*group, call))
        call->dst = NULL;
    return TRI_OK;
}

/* What is added is read as the dtype; the rest moves as bytes, from and to anywhere. */
static tri_status check_alignment(const trii_collective *call)
{
    uintptr_t size = tri_dtype_size(call->dtype);
    bool src = ((uintptr_t)call->src & (size - 1)) != 0;

    if (!src && ((uintptr_t)call->dst & (size - 1)) == 0)
        return TRI_OK;
    return TRII_FAIL(
        TRI_ERR_INVALID_ARG,
        "%s: %s is %p, which is not a multiple of %zu, the size of %s: align it, or copy "
        "it out of the packed structure",
        trii_kind_name(call->kind), src ? "src" : "dst", src ? call->src : call->dst, (size_t)size,
        tri_dtype_name(call->dtype));
}

/* What the engine can take. */
static tri_status make_postable(const tri_group *group, trii_collective *call)
{
    tri_status status = TRI_OK;

    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        status = check_alignment(call);
    if (status != TRI_OK)
        return status;
    if (!trii_kind_in(call->kind, group->engine->kinds))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: engine %s does not have it; shm, tcp and hierarchy do",
                         trii_kind_name(call->kind), group->engine->name);
    if (call->op != TRII_REDOP_PREMUL_SUM || group->engine->device != NULL)
        return TRI_OK;
    status = trii_premul_apply(group, call);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", trii_kind_name(call->kind));
}

tri_status trii_call_post(tri_group *group, trii_collective *call, tri_work **work_out)
{
    bool keeps = work_out != NULL || trii_batch_is_open(group);
    tri_status status = make_postable(group, call);

    if (status != TRI_OK)
        return status;
    if (TRII_UNLIKELY(group->chaos != NULL))
        trii_chaos_strike(group->chaos, group->engine, group->self, call);
    if (TRII_UNLIKELY(trii_fault_status(&group->fault) != TRI_OK))
        status = trii_group_report_failed(group, call);
    else
        status = keeps ? trii_work_post(group, call, work_out) : trii_group_run(group, call);
    if (!keeps || status != TRI_OK) /* else it is the handle's */
        trii_free(call->temporary);
    return status;
}

/* The smaller buffer may only lie at this rank's part of the larger one, or apart from it. */
static tri_status check_overlap(const tri_group *group, const trii_collective *call)
{
    size_t parts = (size_t)group->size, own = call->bytes * (size_t)group->rank;
    bool whole_src = trii_kind_in(call->kind, TRII_KINDS_WHOLE_SRC);
    bool whole_dst = trii_kind_in(call->kind, TRII_KINDS_WHOLE_DST);
    const char *src = call->src, *dst = call->dst;

    if (src == NULL || dst == NULL ||
        !trii_overlap(src, call->bytes * (whole_src ? parts : 1), dst,
                      call->bytes * (whole_dst ? parts : 1)))
        return TRI_OK;
    if (whole_src && whole_dst && parts > 1)
        return trii_call_bad(call, "src and dst overlap: it cannot work in place");
    if (whole_src)
        return dst == src + own
                   ? TRI_OK
                   : trii_call_bad(call, "dst overlaps src elsewhere than at its own part");
    if (whole_dst)
        return src == dst + own
                   ? TRI_OK
                   : trii_call_bad(call, "src overlaps dst elsewhere than at its own part");
    return src == dst ? TRI_OK : trii_call_bad(call, "src and dst overlap without being the same");
}

static tri_status run_or_post(tri_group *group, trii_collective *call, tri_work **work_out)
{
    tri_status status = trii_call_begin(&group, call);

    if (status == TRI_OK)
        status = check_overlap(group, call);
    return status == TRI_OK ? trii_call_post(group, call, work_out) : status;
}

tri_status trii_call_run(tri_group *group, trii_collective *call, tri_work **work_out)
{
    return run_or_post(group, call, work_out);
}

/* --- the public calls ----------------------------------------------------- */

static inline void call_init(trii_collective *call, trii_kind kind, const void *src, void *dst,
                             size_t count, tri_dtype dtype)
{
    trii_clear(call, sizeof(*call));
    call->kind = kind;
    call->dtype = dtype;
    call->src = src;
    call->dst = dst;
    call->count = count;
    call->site = trii_site_take();
}

tri_status(tri_all_reduce)(tri_group *group, const void *src, void *dst, size_t count,
                           tri_dtype dtype, tri_redop op, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_ALL_REDUCE, src, dst, count, dtype);
    call.op = op;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_reduce)(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype,
                       tri_redop op, int root, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_REDUCE, src, dst, count, dtype);
    call.op = op;
    call.root = root;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_broadcast)(tri_group *group, void *buf, size_t count, tri_dtype dtype, int root,
                          tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_BROADCAST, buf, buf, count, dtype);
    call.root = root;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_all_gather)(tri_group *group, const void *src, void *dst, size_t count,
                           tri_dtype dtype, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_ALL_GATHER, src, dst, count, dtype);
    return run_or_post(group, &call, work_out);
}

tri_status(tri_gather)(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype,
                       int root, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_GATHER, src, dst, count, dtype);
    call.root = root;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_scatter)(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype,
                        int root, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_SCATTER, src, dst, count, dtype);
    call.root = root;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_reduce_scatter)(tri_group *group, const void *src, void *dst, size_t count,
                               tri_dtype dtype, tri_redop op, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_REDUCE_SCATTER, src, dst, count, dtype);
    call.op = op;
    return run_or_post(group, &call, work_out);
}

tri_status(tri_all_to_all)(tri_group *group, const void *src, void *dst, size_t count,
                           tri_dtype dtype, tri_work **work_out)
{
    trii_collective call;

    call_init(&call, TRII_KIND_ALL_TO_ALL, src, dst, count, dtype);
    return run_or_post(group, &call, work_out);
}

tri_status(tri_barrier)(tri_group *group, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_BARRIER, .site = trii_site_take()};

    return run_or_post(group, &call, work_out);
}

tri_status(tri_monitored_barrier)(tri_group *group, int64_t timeout_ms)
{
    trii_collective call = {.kind = TRII_KIND_BARRIER, .site = trii_site_take()};
    tri_work *work = NULL;
    tri_status status = trii_call_begin(&group, &call);

    if (status == TRI_OK)
        status = trii_call_post(group, &call, &work);
    if (status != TRI_OK)
        return status;
    assert(work != NULL); /* posted */
    if (timeout_ms > 0 && timeout_ms < work->patience_ns / TRII_NS_PER_MS)
        work->patience_ns = timeout_ms * TRII_NS_PER_MS; /* the group's, so to speak */
    status = tri_work_wait(work, 0);
    tri_work_destroy(work);
    return status;
}
