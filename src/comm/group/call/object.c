/*
 * object.c - collectives over bytes whose length only their owner knows: the lengths travel first,
 * then the bytes as parts of different sizes. Engines see ordinary calls.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/group/group_internal.h"

_Static_assert(sizeof(size_t) == sizeof(int64_t), "lengths travel as i64");

typedef struct object_call {
    tri_group *group;
    const char *what;
    trii_site site;
    size_t *sends, *comes; /* [size]: bytes to and from each rank, or NULL; one allocation */
    void *data;            /* what comes */
} object_call;

/* src_missing: it is NULL, and this rank has something to send. */
static tri_status begin(object_call *c, tri_group *group, bool src_missing, void *const *data_out)
{
    tri_status status = trii_group_resolve(&group, c->what);

    if (status != TRI_OK)
        return status;
    if (src_missing)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: src is NULL", c->what);
    if (data_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: data_out is NULL", c->what);
    if (trii_batch_is_open(group))
        return TRII_FAIL(TRI_ERR_STATE, "%s: not within a batch: it takes two calls", c->what);
    c->group = group;
    return TRI_OK;
}

static tri_status make_lists(object_call *c)
{
    c->sends = trii_alloc(2 * (size_t)c->group->size, sizeof(*c->sends), "object sizes");
    if (c->sends == NULL)
        return TRI_ERR_NO_MEMORY;
    c->comes = c->sends + c->group->size;
    return TRI_OK;
}

/* What came is the caller's, and n lengths of it. */
static tri_status end(object_call *c, tri_status status, void **data_out, const size_t *lengths,
                      size_t *bytes_out, int n)
{
    if (status != TRI_OK) {
        trii_free(c->data);
    } else {
        *data_out = c->data;
        if (bytes_out != NULL)
            memcpy(bytes_out, lengths, (size_t)n * sizeof(*lengths));
    }
    trii_free(c->sends);
    return status;
}

/* The next inner call is the caller's line again. */
static void blame(const object_call *c)
{
    tri_site_set(c->site.file, c->site.line);
}

static size_t sum(const size_t *sizes, int n)
{
    size_t total = 0;

    for (int r = 0; r < n; r++)
        total += sizes[r];
    return total;
}

/* Room for what comes, and a zero byte after it. The peers are in the call already, so a rank that
 * has none gives up for all. */
static tri_status make_room(object_call *c, size_t bytes)
{
    c->data = bytes < SIZE_MAX / 2 ? trii_alloc(bytes + 1, 1, "object") : NULL;
    if (c->data != NULL)
        return TRI_OK;
    tri_group_abort(c->group, c->what);
    return TRII_FAIL(TRI_ERR_ABORTED, "%s, rank %d: no memory for %zu bytes", c->what,
                     c->group->rank, bytes);
}

static tri_status exchange(object_call *c, const void *src)
{
    blame(c);
    return (tri_all_to_all_v)(c->group, src, c->sends, c->data, c->comes, TRI_DTYPE_U8, NULL);
}

void tri_object_free(void *data)
{
    trii_free(data);
}

tri_status(tri_all_gather_object)(tri_group *group, const void *src, size_t bytes, void **data_out,
                                  size_t *bytes_out)
{
    object_call c = {.what = "all_gather_object", .site = trii_site_take()};
    tri_status status = begin(&c, group, src == NULL && bytes > 0, data_out);

    if (status == TRI_OK && bytes_out == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes_out is NULL", c.what);
    if (status == TRI_OK)
        status = make_lists(&c);
    if (status == TRI_OK) {
        blame(&c);
        status = (tri_all_gather)(c.group, &bytes, c.comes, 1, TRI_DTYPE_I64, NULL);
    }
    if (status == TRI_OK)
        status = make_room(&c, sum(c.comes, c.group->size));
    if (status == TRI_OK) {
        blame(&c);
        status = (tri_all_gather_v)(c.group, src, c.data, c.comes, TRI_DTYPE_U8, NULL);
    }
    return end(&c, status, data_out, c.comes, bytes_out, tri_group_size(group));
}

tri_status(tri_gather_object)(tri_group *group, const void *src, size_t bytes, int root,
                              void **data_out, size_t *bytes_out)
{
    object_call c = {.what = "gather_object", .site = trii_site_take()};
    bool at_root = root == tri_group_rank(group);
    tri_status status = begin(&c, group, src == NULL && bytes > 0, data_out);

    if (status == TRI_OK && at_root && bytes_out == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes_out is NULL", c.what);
    if (status == TRI_OK)
        status = make_lists(&c);
    if (status == TRI_OK) {
        blame(&c);
        status = (tri_gather)(c.group, &bytes, c.comes, 1, TRI_DTYPE_I64, root, NULL);
    }
    if (status == TRI_OK && at_root)
        status = make_room(&c, sum(c.comes, c.group->size));
    if (status == TRI_OK) {
        c.sends[root] = bytes;
        status = exchange(&c, src);
    }
    return end(&c, status, data_out, c.comes, at_root ? bytes_out : NULL, tri_group_size(group));
}

tri_status(tri_broadcast_object)(tri_group *group, const void *src, size_t bytes, int root,
                                 void **data_out, size_t *bytes_out)
{
    object_call c = {.what = "broadcast_object", .site = trii_site_take()};
    bool at_root = root == tri_group_rank(group);
    tri_status status = begin(&c, group, at_root && src == NULL && bytes > 0, data_out);

    if (status == TRI_OK) {
        blame(&c);
        status = (tri_broadcast)(c.group, &bytes, 1, TRI_DTYPE_I64, root, NULL);
    }
    if (status == TRI_OK)
        status = make_room(&c, bytes);
    if (status == TRI_OK && at_root && src != NULL) /* else it has no bytes */
        memcpy(c.data, src, bytes);
    if (status == TRI_OK) {
        blame(&c);
        status = (tri_broadcast)(c.group, c.data, bytes, TRI_DTYPE_U8, root, NULL);
    }
    return end(&c, status, data_out, &bytes, bytes_out, 1);
}

/* One after the other, as they are sent. */
static void *join(const void *const *src, const size_t *bytes, int n)
{
    char *all = trii_alloc(sum(bytes, n) + 1, 1, "objects");
    size_t at = 0;

    for (int r = 0; r < n && all != NULL; r++) {
        if (bytes[r] > 0)
            memcpy(all + at, src[r], bytes[r]);
        at += bytes[r];
    }
    return all;
}

/* The root's objects, and how long each is. */
static tri_status take_objects(object_call *c, const void *const *src, const size_t *bytes,
                               void **all_out)
{
    int size = c->group->size;

    if (bytes == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: bytes is NULL", c->what);
    for (int r = 0; r < size; r++) {
        if (src[r] == NULL && bytes[r] > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: src of rank %d is NULL", c->what, r);
    }
    memcpy(c->sends, bytes, (size_t)size * sizeof(*bytes));
    *all_out = join(src, bytes, size);
    return *all_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status(tri_scatter_object)(tri_group *group, const void *const *src, const size_t *bytes,
                               int root, void **data_out, size_t *bytes_out)
{
    object_call c = {.what = "scatter_object", .site = trii_site_take()};
    bool at_root = root == tri_group_rank(group);
    size_t mine = 0;
    void *all = NULL;
    tri_status status = begin(&c, group, at_root && src == NULL, data_out);

    if (status == TRI_OK)
        status = make_lists(&c);
    if (status == TRI_OK && at_root)
        status = take_objects(&c, src, bytes, &all);
    if (status == TRI_OK) {
        blame(&c);
        status = (tri_scatter)(c.group, c.sends, &mine, 1, TRI_DTYPE_I64, root, NULL);
    }
    if (status == TRI_OK) {
        c.comes[root] = mine;
        status = make_room(&c, mine);
    }
    if (status == TRI_OK)
        status = exchange(&c, all);
    trii_free(all);
    return end(&c, status, data_out, &mine, bytes_out, 1);
}
