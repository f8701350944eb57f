/*
 * agreement.c - see agreement.h. Where ranks differ, all of them learn which rank differs first,
 * and what it and rank 0 have there.
 */
/* build: leaf */
#include "comm/reducer/agreement.h"

#include "base/alloc.h"
#include "base/err.h"
#include "comm/group/join/world.h"

/* Both ranks' words about the entry. */
static tri_status gather_words(const trii_agreement *a, int64_t index, int other,
                               trii_difference *difference)
{
    int size = tri_group_size(a->group), rank = tri_group_rank(a->group);
    char *lines = trii_alloc((size_t)size, TRII_AGREE_LINE, "agreement");
    char *mine;
    tri_status status;

    if (lines == NULL)
        return TRI_ERR_NO_MEMORY;
    mine = lines + (size_t)rank * TRII_AGREE_LINE;
    a->describe(a->ctx, index, mine);
    status = tri_all_gather(a->group, mine, lines, TRII_AGREE_LINE, TRI_DTYPE_U8, NULL);
    if (status == TRI_OK) {
        difference->rank = other;
        memcpy(difference->line_of_0, lines, TRII_AGREE_LINE);
        memcpy(difference->line, lines + (size_t)other * TRII_AGREE_LINE, TRII_AGREE_LINE);
    }
    trii_free(lines);
    return status;
}

static tri_status compare(const trii_agreement *a, uint64_t *hashes, int64_t n,
                          trii_difference *difference)
{
    int size = tri_group_size(a->group);
    uint64_t *mine = hashes + (size_t)tri_group_rank(a->group) * (size_t)n;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = a->hash(a->ctx, i, &mine[i]);
    if (status == TRI_OK)
        status = tri_all_gather(a->group, mine, hashes, (size_t)n, TRI_DTYPE_I64, NULL);
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        for (int other = 1; other < size; other++)
            if (hashes[(size_t)other * (size_t)n + (size_t)i] != hashes[i])
                return gather_words(a, i, other, difference);
    return status;
}

tri_status trii_agree(const trii_agreement *a, trii_difference *difference)
{
    tri_work *batch = trii_batch_set(NULL); /* without a handle it blocks, whatever it begins */
    int64_t n = a->n;
    uint64_t *hashes = NULL;
    tri_status status = tri_all_reduce(a->group, &n, &n, 1, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL);

    difference->rank = 0;
    if (status == TRI_OK) {
        hashes =
            trii_alloc((size_t)tri_group_size(a->group) * (size_t)n, sizeof(*hashes), "agreement");
        status = hashes != NULL ? compare(a, hashes, n, difference) : TRI_ERR_NO_MEMORY;
    }
    trii_free(hashes);
    trii_batch_set(batch);
    return status;
}
