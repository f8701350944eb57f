/*
 * call_check.c - TRI_CHECK_CALLS: before a plug-in, which does not compare calls itself, begins a
 * collective, the ranks compare what they call, by an all_gather of 8 bytes (a hash of the call)
 * over the same engine. Where the hashes differ, two broadcasts tell everybody the two calls, and
 * the group fails with the line that shm and tcp have, before the engine could hang or write where
 * it must not. Messages are not compared.
 *
 * Posting waits for the comparison and so for all ranks, as with torch.distributed's
 * TORCH_DISTRIBUTED_DEBUG=DETAIL.
 */
#include <string.h>

#include "base/hash.h"
#include "comm/group/group_internal.h"
#include "comm/group/group_limits.h"

/* What must be the same on all ranks, then what messages say of it. The same layout on all ranks,
 * and no padding. */
typedef struct signature {
    int32_t kind, dtype, op, root;
    uint64_t count;
    int32_t line;
    char file[60]; /* the end of its path; "" = unknown */
} signature;

static signature signature_of(const trii_collective *call)
{
    signature s = {.kind = (int32_t)call->kind,
                   .dtype = (int32_t)call->dtype,
                   .op = (int32_t)call->op,
                   .root = call->root,
                   .count = call->count,
                   .line = call->site.line};
    size_t length = call->site.file != NULL ? strlen(call->site.file) : 0;

    if (length > 0)
        snprintf(s.file, sizeof(s.file), "%s",
                 call->site.file + (length < sizeof(s.file) ? 0 : length - sizeof(s.file) + 1));
    return s;
}

static trii_collective call_of(signature *s, uint64_t seq)
{
    s->file[sizeof(s->file) - 1] = '\0';
    return (trii_collective){.kind = (trii_kind)s->kind,
                             .dtype = (tri_dtype)s->dtype,
                             .op = (tri_redop)s->op,
                             .root = s->root,
                             .count = s->count,
                             .seq = seq,
                             .site = {s->file[0] != '\0' ? s->file : NULL, s->line}};
}

/* Runs a collective of bytes for the comparison of `call`, which is what messages name. */
static tri_status exchange(tri_group *group, const trii_collective *call, trii_collective own)
{
    trii_op op;
    tri_status status;

    own.dtype = TRI_DTYPE_U8;
    own.bytes = own.count;
    own.seq = call->seq;
    own.site = call->site;
    own.piece_of = call;
    trii_op_init(&op, &own);
    trii_lock_take(&group->lock);
    status = group->engine->submit(group->self, &op, false);
    trii_lock_drop(&group->lock);
    if (status == TRI_OK)
        status = trii_group_wait(group, &op,
                                 (trii_patience){.deadline_ns = trii_deadline_after(
                                                     trii_now_ns(), trii_group_timeout_ns(group)),
                                                 .fatal = true});
    else
        snprintf(op.error, sizeof(op.error), "%s", tri_last_error());
    if (status != TRI_OK &&
        trii_fault_raise(&group->fault, status, "rank %d: %s", group->rank, op.error))
        group->engine->abort(group->self);
    return status;
}

static tri_status tell(tri_group *group, const trii_collective *call, int root, signature *s)
{
    return exchange(
        group, call,
        (trii_collective){
            .kind = TRII_KIND_BROADCAST, .root = root, .src = s, .dst = s, .count = sizeof(*s)});
}

/* Every rank finds the same two. The engine is not told: the others are about to find them too,
 * and would hear of a lost peer first. */
static tri_status name_difference(tri_group *group, const trii_collective *call, int odd)
{
    signature first = signature_of(call), other = first;
    trii_collective first_call, other_call;
    char text[TRII_ERR_BYTES];
    tri_status status = tell(group, call, 0, &first);

    if (status == TRI_OK)
        status = tell(group, call, odd, &other);
    if (status != TRI_OK)
        return status;
    first_call = call_of(&first, call->seq);
    other_call = call_of(&other, call->seq);
    trii_collective_disagree(0, &first_call, odd, &other_call, text, sizeof(text));
    trii_fault_raise(&group->fault, TRI_ERR_MISMATCH, "%s", text);
    return TRI_ERR_MISMATCH;
}

static tri_status compare(tri_group *group, const trii_collective *call)
{
    const signature own = signature_of(call);
    uint64_t hash = trii_hash(TRII_HASH_SEED, &own, offsetof(signature, line));
    uint64_t all[TRII_GROUP_MAX_RANKS];
    int odd = 1;
    tri_status status = exchange(
        group, call,
        (trii_collective){
            .kind = TRII_KIND_ALL_GATHER, .src = &hash, .dst = all, .count = sizeof(hash)});

    if (status != TRI_OK)
        return status;
    while (odd < group->size && all[odd] == all[0])
        odd++;
    return odd < group->size ? name_difference(group, call, odd) : TRI_OK;
}

tri_status trii_call_check_submit(tri_group *group, trii_op *op)
{
    tri_status status;

    trii_lock_drop(&group->lock);
    trii_mutex_lock(&group->check_lock);
    status = compare(group, &op->call);
    trii_lock_take(&group->lock);
    if (status == TRI_OK) {
        status = group->engine->submit(group->self, op, false);
    } else { /* it is taken: what it waits for says why */
        trii_op_finish(op, trii_fault_cause(&group->fault), group->fault.text);
        status = TRI_OK;
    }
    trii_mutex_unlock(&group->check_lock);
    return status;
}
