/*
 * object.c - collectives over bytes whose length only their owner knows: the lengths travel first,
 * then the bytes as parts of different sizes. Engines see ordinary calls.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "group/group_internal.h"

static tri_status resolve(tri_group **group, const char *what, const void *src, size_t bytes,
                          void *const *data_out)
{
    tri_status status = trii_group_resolve(group, what);

    if (status != TRI_OK)
        return status;
    if (src == NULL && bytes > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: src is NULL", what);
    if (data_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: data_out is NULL", what);
    if (trii_batch_is_open(*group))
        return TRII_FAIL(TRI_ERR_STATE, "%s: not within a batch: it takes two calls", what);
    return TRI_OK;
}

/* The next inner call is the caller's line again. */
static void blame(const trii_site *site)
{
    tri_site_set(site->file, site->line);
}

/* Room for what comes, and a zero byte behind it. The peers are in the call already, so whoever has
 * none gives up for all. */
static void *receive_room(tri_group *group, const char *what, uint64_t bytes)
{
    void *room = bytes < SIZE_MAX / 2 ? trii_alloc((size_t)bytes + 1, 1, "object") : NULL;

    if (room == NULL)
        tri_group_abort(group, what);
    if (room == NULL)
        (void)TRII_FAIL(TRI_ERR_ABORTED, "%s, rank %d: no memory for %" PRIu64 " bytes", what,
                        group->rank, bytes);
    return room;
}

void tri_object_free(void *data)
{
    trii_free(data);
}

/* --- the lengths of all ranks --------------------------------------------- */

static tri_status gather_sizes(tri_group *group, const trii_site *site, size_t bytes,
                               size_t **sizes_out)
{
    uint64_t mine = bytes;
    uint64_t *all = trii_alloc((size_t)group->size, sizeof(*all), "object sizes");
    size_t *sizes = trii_alloc((size_t)group->size, sizeof(*sizes), "object sizes");
    tri_status status = all != NULL && sizes != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    blame(site);
    if (status == TRI_OK)
        status = (tri_all_gather)(group, &mine, all, 1, TRI_DTYPE_I64, NULL);
    for (int r = 0; r < group->size && status == TRI_OK; r++)
        sizes[r] = (size_t)all[r];
    trii_free(all);
    if (status != TRI_OK) {
        trii_free(sizes);
        return status;
    }
    *sizes_out = sizes;
    return TRI_OK;
}

static uint64_t sum(const size_t *sizes, int n)
{
    uint64_t total = 0;

    for (int r = 0; r < n; r++)
        total += sizes[r];
    return total;
}

tri_status(tri_all_gather_object)(tri_group *group, const void *src, size_t bytes, void **data_out,
                                  size_t *bytes_out)
{
    const char *what = "all_gather_object";
    size_t *sizes = NULL;
    void *data = NULL;
    const trii_site site = trii_site_take();
    tri_status status = resolve(&group, what, src, bytes, data_out);

    if (status == TRI_OK && bytes_out == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes_out is NULL", what);
    if (status == TRI_OK)
        status = gather_sizes(group, &site, bytes, &sizes);
    if (status != TRI_OK)
        return status;
    data = receive_room(group, what, sum(sizes, group->size));
    blame(&site);
    status = data == NULL ? TRI_ERR_ABORTED
                          : (tri_all_gather_v)(group, src, data, sizes, TRI_DTYPE_U8, NULL);
    if (status == TRI_OK) {
        memcpy(bytes_out, sizes, (size_t)group->size * sizeof(*sizes));
        *data_out = data;
    } else {
        trii_free(data);
    }
    trii_free(sizes);
    return status;
}

static tri_status exchange(tri_group *group, const trii_site *site, const void *src,
                           const size_t *sends, void *dst, const size_t *receives)
{
    blame(site);
    return (tri_all_to_all_v)(group, src, sends, dst, receives, TRI_DTYPE_U8, NULL);
}

tri_status(tri_gather_object)(tri_group *group, const void *src, size_t bytes, int root,
                              void **data_out, size_t *bytes_out)
{
    const char *what = "gather_object";
    size_t *sizes = NULL, *counts = NULL;
    void *data = NULL;
    bool at_root;
    const trii_site site = trii_site_take();
    tri_status status = resolve(&group, what, src, bytes, data_out);

    if (status != TRI_OK)
        return status;
    if (root < 0 || root >= group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: root %d is out of range (group of %d)", what,
                         root, group->size);
    at_root = group->rank == root;
    if (at_root && bytes_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes_out is NULL", what);
    counts = trii_alloc((size_t)group->size, sizeof(*counts), "object sizes");
    if (counts == NULL)
        return TRI_ERR_NO_MEMORY;
    status = gather_sizes(group, &site, bytes, &sizes);
    if (status != TRI_OK)
        goto done;
    counts[root] = bytes;
    if (at_root) {
        data = receive_room(group, what, sum(sizes, group->size));
        status = data == NULL ? TRI_ERR_ABORTED : exchange(group, &site, src, counts, data, sizes);
    } else {
        memset(sizes, 0, (size_t)group->size * sizeof(*sizes));
        status = exchange(group, &site, src, counts, NULL, sizes);
    }
    if (status == TRI_OK) {
        *data_out = data;
        if (at_root)
            memcpy(bytes_out, sizes, (size_t)group->size * sizeof(*sizes));
    } else {
        trii_free(data);
    }
done:
    trii_free(sizes);
    trii_free(counts);
    return status;
}

tri_status(tri_broadcast_object)(tri_group *group, const void *src, size_t bytes, int root,
                                 void **data_out, size_t *bytes_out)
{
    const char *what = "broadcast_object";
    int64_t size = (int64_t)bytes;
    void *data = NULL;
    const trii_site site = trii_site_take();
    tri_status status =
        resolve(&group, what, root == tri_group_rank(group) ? src : what, bytes, data_out);

    blame(&site);
    if (status == TRI_OK)
        status = (tri_broadcast)(group, &size, 1, TRI_DTYPE_I64, root, NULL);
    if (status != TRI_OK)
        return status;
    data = receive_room(group, what, (uint64_t)size);
    if (data == NULL)
        return TRI_ERR_ABORTED;
    if (group->rank == root && bytes > 0)
        memcpy(data, src, bytes);
    blame(&site);
    status = (tri_broadcast)(group, data, (size_t)size, TRI_DTYPE_U8, root, NULL);
    if (status != TRI_OK) {
        trii_free(data);
        return status;
    }
    *data_out = data;
    if (bytes_out != NULL)
        *bytes_out = (size_t)size;
    return TRI_OK;
}

/* One behind the other, as they are sent. */
static void *join(const void *const *src, const size_t *bytes, int n)
{
    char *all = trii_alloc((size_t)sum(bytes, n) + 1, 1, "objects");
    size_t at = 0;

    for (int r = 0; r < n && all != NULL; r++) {
        if (bytes[r] > 0)
            memcpy(all + at, src[r], bytes[r]);
        at += bytes[r];
    }
    return all;
}

tri_status(tri_scatter_object)(tri_group *group, const void *const *src, const size_t *bytes,
                               int root, void **data_out, size_t *bytes_out)
{
    const char *what = "scatter_object";
    int64_t *sizes = NULL, mine = 0;
    size_t *none = NULL, *comes = NULL;
    void *all = NULL, *data = NULL;
    bool at_root = root == tri_group_rank(group);
    const trii_site site = trii_site_take();
    tri_status status = resolve(&group, what, at_root ? (const void *)src : what, 1, data_out);

    if (status != TRI_OK)
        return status;
    if (at_root && bytes == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes is NULL", what);
    for (int r = 0; r < group->size && at_root; r++) {
        if (src[r] == NULL && bytes[r] > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: src of rank %d is NULL", what, r);
    }
    none = trii_alloc((size_t)group->size, sizeof(*none), "object sizes");
    comes = trii_alloc((size_t)group->size, sizeof(*comes), "object sizes");
    sizes = trii_alloc((size_t)group->size, sizeof(*sizes), "object sizes");
    if (at_root)
        all = join(src, bytes, group->size);
    if (none == NULL || comes == NULL || sizes == NULL || (at_root && all == NULL)) {
        status = TRI_ERR_NO_MEMORY;
        goto done;
    }
    for (int r = 0; r < group->size && at_root; r++)
        sizes[r] = (int64_t)bytes[r];
    blame(&site);
    status = (tri_scatter)(group, sizes, &mine, 1, TRI_DTYPE_I64, root, NULL);
    if (status != TRI_OK)
        goto done;
    data = receive_room(group, what, (uint64_t)mine);
    comes[root] = (size_t)mine;
    status = data == NULL ? TRI_ERR_ABORTED
                          : exchange(group, &site, all, at_root ? bytes : none, data, comes);
    if (status == TRI_OK) {
        *data_out = data;
        if (bytes_out != NULL)
            *bytes_out = (size_t)mine;
    } else {
        trii_free(data);
    }
done:
    trii_free(all);
    trii_free(sizes);
    trii_free(comes);
    trii_free(none);
    return status;
}
