/*
 * agree.c - do all ranks have the same model? And if not, who differs first, and where: said on
 * every rank. Then rank 0's values to all.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "group/world.h"
#include "parallel/ddp/ddp.h"

#define LINE_BYTES 160

/* What a rank says about entry `index` of its state. */
static void describe_entry(tri_module *net, int64_t index, char *line)
{
    tri_state_entry entry = tri_module_state(net, index);
    int used;

    if (entry.name == NULL) {
        snprintf(line, LINE_BYTES, "nothing more (%lld entries)",
                 (long long)tri_module_state_count(net));
        return;
    }
    used = snprintf(line, LINE_BYTES, "%s %s[", entry.name, tri_dtype_name(entry.tensor->dtype));
    for (int d = 0; d < entry.tensor->ndim && used < LINE_BYTES; d++)
        used += snprintf(line + used, (size_t)(LINE_BYTES - used), d > 0 ? ", %lld" : "%lld",
                         (long long)entry.tensor->shape[d]);
    if (used < LINE_BYTES)
        snprintf(line + used, (size_t)(LINE_BYTES - used), "]%s",
                 entry.tensor->requires_grad || !entry.parameter ? "" : " without gradient");
}

static tri_status entry_hash(tri_module *net, int64_t index, bool contents, uint64_t *hash_out)
{
    tri_state_entry entry = tri_module_state(net, index);
    char line[LINE_BYTES] = {0};
    uint64_t hash = 1;
    tri_status st = TRI_OK;

    describe_entry(net, index, line);
    hash = trii_hash_bytes(hash, line, strlen(line));
    if (contents && entry.tensor != NULL)
        st = trii_hash_entry(&entry, &hash);
    if (st == TRI_OK)
        *hash_out = hash;
    return st;
}

/* The first entry in which some rank differs from rank 0, from all ranks' hashes. */
static bool first_difference(const uint64_t *hashes, int size, int64_t n, int64_t *index_out,
                             int *rank_out)
{
    for (int64_t i = 0; i < n; i++)
        for (int r = 1; r < size; r++)
            if (hashes[r * n + i] != hashes[i]) {
                *index_out = i;
                *rank_out = r;
                return true;
            }
    return false;
}

/* Both ranks' words about the entry, the same line on all ranks. */
static tri_status say_difference(trii_ddp *ddp, int64_t index, int rank, bool contents)
{
    char *lines = trii_alloc((size_t)ddp->size, LINE_BYTES, "ddp agreement");
    tri_status st;

    if (lines == NULL)
        return TRI_ERR_NO_MEMORY;
    describe_entry(ddp->net, index, lines + (size_t)ddp->rank * LINE_BYTES);
    st = trii_ddp_called(tri_all_gather(ddp->group, lines + (size_t)ddp->rank * LINE_BYTES, lines,
                                        LINE_BYTES, TRI_DTYPE_U8, NULL));
    if (st == TRI_OK && contents && strcmp(lines, lines + (size_t)rank * LINE_BYTES) == 0)
        st = TRII_FAIL(TRI_ERR_MISMATCH, "ddp: %s of rank %d has not the bits of rank 0", lines,
                       rank);
    else if (st == TRI_OK)
        st = TRII_FAIL(TRI_ERR_MISMATCH, "ddp: not the same model: rank %d has %s, rank 0 has %s",
                       rank, lines + (size_t)rank * LINE_BYTES, lines);
    trii_free(lines);
    return st;
}

static tri_status compare_hashes(trii_ddp *ddp, uint64_t *hashes, int64_t n, bool contents,
                                 bool buffers)
{
    uint64_t *mine = hashes + (size_t)ddp->rank * (size_t)n;
    int64_t index;
    int rank;
    tri_status st = TRI_OK;

    for (int64_t i = 0; i < n && st == TRI_OK; i++)
        if (buffers || i >= tri_module_state_count(ddp->net) ||
            tri_module_state(ddp->net, i).parameter)
            st = entry_hash(ddp->net, i, contents, &mine[i]);
    if (st == TRI_OK)
        st = trii_ddp_called(
            tri_all_gather(ddp->group, mine, hashes, (size_t)n, TRI_DTYPE_I64, NULL));
    if (st == TRI_OK && first_difference(hashes, ddp->size, n, &index, &rank))
        st = say_difference(ddp, index, rank, contents);
    return st;
}

static tri_status compare(trii_ddp *ddp, bool contents, bool buffers)
{
    int64_t n = tri_module_state_count(ddp->net);
    uint64_t *hashes;
    tri_status st =
        trii_ddp_called(tri_all_reduce(ddp->group, &n, &n, 1, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL));

    if (st < 0)
        return st;
    hashes = trii_alloc((size_t)ddp->size * (size_t)n, sizeof(*hashes), "ddp agreement");
    if (hashes == NULL)
        return TRI_ERR_NO_MEMORY;
    st = compare_hashes(ddp, hashes, n, contents, buffers);
    trii_free(hashes);
    return st;
}

tri_status trii_ddp_compare(trii_ddp *ddp, bool contents, bool buffers)
{
    tri_work *batch = trii_batch_set(NULL);
    tri_status st = compare(ddp, contents, buffers);

    trii_batch_set(batch);
    return st;
}

tri_status trii_ddp_broadcast_state(trii_ddp *ddp)
{
    tri_work *batch = trii_batch_set(NULL);
    tri_status st = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(ddp->net) && st == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(ddp->net, i);
        size_t bytes = trii_tensor_bytes(entry.tensor);
        void *plain = trii_alloc(1, bytes, "ddp broadcast");

        st = plain != NULL ? tri_copy_out(entry.tensor, plain, bytes) : TRI_ERR_NO_MEMORY;
        if (st == TRI_OK)
            st = trii_ddp_called(tri_broadcast(ddp->group, plain, bytes, TRI_DTYPE_U8, 0, NULL));
        if (st == TRI_OK && ddp->rank != 0)
            st = tri_copy_in(entry.tensor, plain, bytes);
        if (st < 0)
            st = TRII_FAIL_CTX(st, "ddp: %s from rank 0", entry.name);
        trii_free(plain);
    }
    trii_batch_set(batch);
    return st;
}
