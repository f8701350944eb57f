/*
 * idx.c - see idx.h.
 */
#include "train/data/idx.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/data/dataset.h"
#include "train/data/gzip.h"

static tri_dtype dtype_of_code(unsigned code)
{
    static const tri_dtype dtypes[] = {
        [8] = TRI_DTYPE_U8,   [9] = TRI_DTYPE_I8,   [11] = TRI_DTYPE_I16,
        [12] = TRI_DTYPE_I32, [13] = TRI_DTYPE_F32, [14] = TRI_DTYPE_F64,
    };

    return code < TRII_COUNT_OF(dtypes) ? dtypes[code] : TRI_DTYPE_NONE;
}

static tri_status read_head(trii_gzip *gzip, const char *path, trii_idx *idx, size_t *bytes_out)
{
    unsigned char head[4], sizes[4 * TRI_MAX_DIMS];
    size_t n = 0, bytes;
    tri_status status = trii_gzip_read(gzip, head, sizeof(head), &n);

    if (status != TRI_OK)
        return status;
    if (n < sizeof(head))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated: %zu bytes are not an IDX file", path, n);
    idx->dtype = dtype_of_code(head[2]);
    idx->ndim = head[3];
    if (head[0] != 0 || head[1] != 0 || idx->dtype == TRI_DTYPE_NONE || idx->ndim < 1 ||
        idx->ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: not an IDX file: it begins with %02x %02x %02x %02x, not with 00 00, "
                         "a type (08 to 0e) and 1 to %d dimensions",
                         path, head[0], head[1], head[2], head[3], TRI_MAX_DIMS);
    status = trii_gzip_read(gzip, sizes, 4 * (size_t)idx->ndim, &n);
    if (status != TRI_OK)
        return status;
    if (n < 4 * (size_t)idx->ndim)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated within its header", path);
    bytes = tri_dtype_size(idx->dtype);
    for (int d = 0; d < idx->ndim; d++) {
        const unsigned char *s = sizes + 4 * d;

        idx->shape[d] = (int64_t)s[0] << 24 | (int64_t)s[1] << 16 | (int64_t)s[2] << 8 | s[3];
        if (__builtin_mul_overflow(bytes, (size_t)idx->shape[d], &bytes))
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: the sizes in its header exceed the address space",
                             path);
    }
    *bytes_out = bytes;
    return TRI_OK;
}

/* Exactly `bytes` bytes, and then the end. */
static tri_status read_body(trii_gzip *gzip, const char *path, size_t bytes, void **data_out)
{
    size_t have = 0, room = 0, n = 0;
    char *data = NULL, extra;
    tri_status status;

    do {
        size_t want = room == 0 ? (size_t)1 << 16 : 2 * room;
        char *grown;

        room = bytes < want ? bytes : want;
        grown = trii_realloc(data, room, 1, "IDX file");
        if (grown == NULL) {
            status = TRI_ERR_NO_MEMORY;
            goto err_free;
        }
        data = grown;
        status = trii_gzip_read(gzip, data + have, room - have, &n);
        if (status != TRI_OK)
            goto err_free;
        have += n;
    } while (have == room && have < bytes);
    if (have < bytes) {
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated: %zu bytes of elements instead of %zu",
                           path, have, bytes);
        goto err_free;
    }
    status = trii_gzip_read(gzip, &extra, 1, &n);
    if (status == TRI_OK && n > 0)
        status = TRII_FAIL(TRI_ERR_FORMAT,
                           "%s: has more than the %zu bytes of elements that its header announces",
                           path, bytes);
    if (status != TRI_OK)
        goto err_free;
    *data_out = data;
    return TRI_OK;

err_free:
    trii_free(data);
    return status;
}

static void to_machine_order(trii_idx *idx)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    size_t size = tri_dtype_size(idx->dtype);
    unsigned char *at = idx->data;

    for (size_t i = 0; size > 1 && i < idx->elems; i++, at += size) {
        for (size_t b = 0; b < size / 2; b++) {
            unsigned char t = at[b];

            at[b] = at[size - 1 - b];
            at[size - 1 - b] = t;
        }
    }
#else
    (void)idx;
#endif
}

tri_status trii_idx_read(const char *path, trii_idx *idx_out)
{
    trii_idx idx = {0};
    trii_gzip *gzip;
    size_t bytes = 0;
    tri_status status = trii_gzip_open(path, &gzip);

    if (status != TRI_OK)
        return status;
    status = read_head(gzip, path, &idx, &bytes);
    if (status == TRI_OK)
        status = read_body(gzip, path, bytes, &idx.data);
    trii_gzip_close(gzip);
    if (status != TRI_OK)
        return status;
    idx.elems = bytes / tri_dtype_size(idx.dtype);
    to_machine_order(&idx);
    *idx_out = idx;
    return TRI_OK;
}

void trii_idx_fini(trii_idx *idx)
{
    trii_free(idx->data);
    *idx = (trii_idx){0};
}

/* --- images and labels ---------------------------------------------------- */

static tri_status check_pair(const char *images_path, const trii_idx *images,
                             const char *labels_path, const trii_idx *labels)
{
    if (images->dtype != TRI_DTYPE_U8 || images->ndim != 3)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: holds %s with %d dimensions, not images u8 [N, H, W]",
                         images_path, tri_dtype_name(images->dtype), images->ndim);
    if (labels->dtype != TRI_DTYPE_U8 || labels->ndim != 1)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: holds %s with %d dimensions, not labels u8 [N]",
                         labels_path, tri_dtype_name(labels->dtype), labels->ndim);
    if (images->shape[0] != labels->shape[0])
        return TRII_FAIL(TRI_ERR_FORMAT, "%s has %" PRId64 " images and %s has %" PRId64 " labels",
                         images_path, images->shape[0], labels_path, labels->shape[0]);
    return TRI_OK;
}

static int64_t *widen(const uint8_t *bytes, int64_t n)
{
    int64_t *wide = trii_alloc((size_t)n, sizeof(*wide), "labels");

    for (int64_t i = 0; i < n && wide != NULL; i++)
        wide[i] = bytes[i];
    return wide;
}

tri_status tri_dataset_idx(const char *images_path, const char *labels_path,
                           tri_dataset **dataset_out)
{
    trii_idx images = {0}, labels = {0};
    tri_status status = trii_need_text(images_path, "tri_dataset_idx", "images_path");
    void *data[2];

    if (status == TRI_OK)
        status = trii_need_text(labels_path, "tri_dataset_idx", "labels_path");
    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_idx", "dataset_out");
    if (status == TRI_OK)
        status = trii_idx_read(images_path, &images);
    if (status == TRI_OK)
        status = trii_idx_read(labels_path, &labels);
    if (status == TRI_OK)
        status = check_pair(images_path, &images, labels_path, &labels);
    if (status != TRI_OK)
        goto end;
    data[1] = widen(labels.data, labels.shape[0]);
    if (data[1] == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto end;
    }
    data[0] = images.data; /* moves to the data set */
    images.data = NULL;
    status = trii_dataset_take_arrays(
        images.shape[0],
        (const tri_field[]){{TRI_DTYPE_U8, 3, {1, images.shape[1], images.shape[2]}},
                            {TRI_DTYPE_I64, 0, {0}}},
        data, 2, dataset_out);
end:
    trii_idx_fini(&labels);
    trii_idx_fini(&images);
    return status;
}
