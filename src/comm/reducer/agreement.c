/*
 * agreement.c - see agreement.h. Where ranks differ, all of them learn which rank differs first,
 * and what it and rank 0 have there.
 */
/* build: leaf */
#include "comm/reducer/agreement.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"
#include "comm/group/join/world.h"

/* What this rank needs to compare. It is taken before the ranks meet over it. */
typedef struct room {
    uint64_t *hashes; /* [size][n] */
    char *lines;      /* [size][TRII_AGREE_LINE] */
} room;

static tri_status take_room(const trii_agreement *a, int64_t n, room *r)
{
    size_t size = (size_t)tri_group_size(a->group);
    uint64_t *mine;
    tri_status status = TRI_OK;

    r->hashes = trii_alloc(size * (size_t)n, sizeof(*r->hashes), "agreement");
    r->lines = trii_alloc(size, TRII_AGREE_LINE, "agreement");
    if (r->hashes == NULL || r->lines == NULL)
        return TRI_ERR_NO_MEMORY;
    mine = r->hashes + (size_t)tri_group_rank(a->group) * (size_t)n;
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = a->hash(a->ctx, i, &mine[i]);
    return status;
}

/* A rank that fails by itself would leave the others waiting: all fail then, it with its own line.
 */
static tri_status meet(const trii_agreement *a, tri_status status)
{
    int64_t rank = tri_group_rank(a->group);
    int64_t failed = status != TRI_OK ? (rank + 1) * 256 - (int64_t)status : 0; /* errors: < 0 */
    char line[TRII_ERR_BYTES];
    tri_status met;

    snprintf(line, sizeof(line), "%s", status != TRI_OK ? tri_last_error() : "");
    met = tri_all_reduce(a->group, &failed, &failed, 1, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL);
    if (status != TRI_OK) {
        trii_err_set("%s", line);
        return status;
    }
    if (met != TRI_OK || failed == 0)
        return met;
    status = (tri_status) - (failed % 256);
    return TRII_FAIL(status, "rank %d failed by itself: %s", (int)(failed / 256 - 1),
                     tri_status_name(status));
}

/* Both ranks' words about the entry. */
static tri_status gather_words(const trii_agreement *a, int64_t index, int other, const room *r,
                               trii_difference *difference)
{
    char *mine = r->lines + (size_t)tri_group_rank(a->group) * TRII_AGREE_LINE;
    tri_status status;

    a->describe(a->ctx, index, mine);
    status = tri_all_gather(a->group, mine, r->lines, TRII_AGREE_LINE, TRI_DTYPE_U8, NULL);
    if (status == TRI_OK) {
        difference->rank = other;
        memcpy(difference->line_of_0, r->lines, TRII_AGREE_LINE);
        memcpy(difference->line, r->lines + (size_t)other * TRII_AGREE_LINE, TRII_AGREE_LINE);
    }
    return status;
}

static tri_status compare(const trii_agreement *a, int64_t n, const room *r,
                          trii_difference *difference)
{
    int size = tri_group_size(a->group);
    uint64_t *hashes = r->hashes;
    tri_status status =
        tri_all_gather(a->group, hashes + (size_t)tri_group_rank(a->group) * (size_t)n, hashes,
                       (size_t)n, TRI_DTYPE_I64, NULL);

    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        for (int other = 1; other < size; other++)
            if (hashes[(size_t)other * (size_t)n + (size_t)i] != hashes[i])
                return gather_words(a, i, other, r, difference);
    return status;
}

tri_status trii_agree(const trii_agreement *a, trii_difference *difference)
{
    tri_work *batch = trii_batch_set(NULL); /* without a handle it blocks, whatever it begins */
    int64_t n = a->n;
    room r = {NULL, NULL};
    tri_status status = tri_all_reduce(a->group, &n, &n, 1, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL);

    difference->rank = 0;
    if (status == TRI_OK)
        status = meet(a, take_room(a, n, &r));
    if (status == TRI_OK)
        status = compare(a, n, &r, difference);
    trii_free(r.hashes);
    trii_free(r.lines);
    trii_batch_set(batch);
    return status;
}
