/*
 * safetensors.c - reads safetensors files (format.h); safetensors_write.c writes them. Called by
 * checkpoint.c and by programs.
 *
 * Nothing in the file is trusted: the header is checked against the file's size and against itself
 * before the first entry can be seen.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "os/file.h"
#include "train/tensor/persistent.h"

/* Types of the format, with ours where there is one. In the order in which the Python package puts
 * them into a file: wide ones first, so that all are aligned. */
static const struct type_row {
    const char *name;
    tri_dtype dtype;
    unsigned bits;
} types[] = {
    {"U64", TRI_DTYPE_NONE, 64},
    {"I64", TRI_DTYPE_I64, 64},
    {"F64", TRI_DTYPE_F64, 64},
    {"C64", TRI_DTYPE_NONE, 64},
    {"F32", TRI_DTYPE_F32, 32},
    {"U32", TRI_DTYPE_NONE, 32},
    {"I32", TRI_DTYPE_I32, 32},
    {"BF16", TRI_DTYPE_BF16, 16},
    {"F16", TRI_DTYPE_F16, 16},
    {"U16", TRI_DTYPE_NONE, 16},
    {"I16", TRI_DTYPE_I16, 16},
    {"F8_E5M2FNUZ", TRI_DTYPE_NONE, 8},
    {"F8_E4M3FNUZ", TRI_DTYPE_NONE, 8},
    {"F8_E8M0", TRI_DTYPE_NONE, 8},
    {"F8_E4M3", TRI_DTYPE_F8_E4M3, 8},
    {"F8_E5M2", TRI_DTYPE_F8_E5M2, 8},
    {"I8", TRI_DTYPE_I8, 8},
    {"U8", TRI_DTYPE_U8, 8},
    {"F6_E3M2", TRI_DTYPE_NONE, 6},
    {"F6_E2M3", TRI_DTYPE_NONE, 6},
    {"F4", TRI_DTYPE_NONE, 4},
    {"BOOL", TRI_DTYPE_BOOL, 8},
};

struct tri_safetensors {
    char *path;
    trii_mapping map;
    tri_safetensors_entry *entries; /* [n], by offset */
    const tri_safetensors_entry **by_name;
    int64_t n;
    tri_metadata *meta; /* texts owned */
    int64_t n_meta;
};

/* --- reading -------------------------------------------------------------- */

static tri_status read_shape(const char *path, const json_t *shape, tri_safetensors_entry *e,
                             uint64_t *elems_out)
{
    uint64_t elems = 1;

    if (!json_is_array(shape))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: its shape is not a list", path, e->name);
    if (json_array_size(shape) > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: tensor %s has %zu dimensions, at most %d are allowed", path, e->name,
                         json_array_size(shape), TRI_MAX_DIMS);
    e->ndim = (int)json_array_size(shape);
    for (int d = 0; d < e->ndim; d++) {
        uint64_t size;

        if (!trii_json_size(json_array_get(shape, (size_t)d), &size) ||
            __builtin_mul_overflow(elems, size, &elems))
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: tensor %s: dimension %d of its shape is not a size", path,
                             e->name, d);
        e->shape[d] = (int64_t)size;
    }
    *elems_out = elems;
    return TRI_OK;
}

/* Checks type, shape and offsets of one tensor, each and together. data_bytes: after the header. */
static tri_status read_entry(const char *path, const json_t *object, const char *data,
                             uint64_t data_bytes, tri_safetensors_entry *e)
{
    const json_t *offsets = json_object_get(object, "data_offsets");
    const char *type = json_string_value(json_object_get(object, "dtype"));
    const struct type_row *row = NULL;
    uint64_t begin, end, elems, bits;
    tri_status status;

    for (size_t t = 0; type != NULL && t < TRII_COUNT_OF(types); t++) {
        if (strcmp(types[t].name, type) == 0)
            row = &types[t];
    }
    if (row == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: unknown dtype %s", path, e->name,
                         type != NULL ? type : "(none)");
    e->dtype = row->dtype;
    e->type_name = row->name;
    status = read_shape(path, json_object_get(object, "shape"), e, &elems);
    if (status != TRI_OK)
        return status;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !trii_json_size(json_array_get(offsets, 0), &begin) ||
        !trii_json_size(json_array_get(offsets, 1), &end))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: data_offsets are not two sizes", path,
                         e->name);
    if (begin > end || end > data_bytes)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s: offsets %" PRIu64 " to %" PRIu64
                         " do not lie in the file's %" PRIu64 " bytes of data",
                         path, e->name, begin, end, data_bytes);
    if (__builtin_mul_overflow(elems, (uint64_t)row->bits, &bits) || bits % 8 != 0 ||
        bits / 8 != end - begin)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s: %" PRIu64 " elements of %s do not fill the %" PRIu64
                         " bytes from offset %" PRIu64 " to %" PRIu64,
                         path, e->name, elems, type, end - begin, begin, end);
    e->data = data + begin;
    e->bytes = (size_t)(end - begin);
    return TRI_OK;
}

static int compare_offset(const void *a, const void *b)
{
    const tri_safetensors_entry *x = a, *y = b;
    const char *x_data = x->data, *y_data = y->data;

    if (x_data != y_data)
        return x_data < y_data ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b)
{
    const tri_safetensors_entry *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* Sorted by offset, tensors lie end to end from the first byte to the last. */
static tri_status check_coverage(const tri_safetensors *f, const char *data, uint64_t data_bytes)
{
    uint64_t at = 0;

    for (int64_t i = 0; i < f->n; i++) {
        const tri_safetensors_entry *e = &f->entries[i];
        uint64_t begin = (uint64_t)((const char *)e->data - data);

        if (begin != at)
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: tensor %s: offsets %" PRIu64 " to %" PRIu64 " %s, since %" PRIu64
                             " is where the one before ends",
                             f->path, e->name, begin, begin + e->bytes,
                             begin < at ? "overlap another tensor" : "leave a hole", at);
        at = begin + e->bytes;
    }
    if (at != data_bytes)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensors end at offset %" PRIu64 ", the file has %" PRIu64
                         " bytes of data",
                         f->path, at, data_bytes);
    return TRI_OK;
}

static tri_status read_metadata(tri_safetensors *f, json_t *object)
{
    const char *key;
    json_t *value;

    if (json_is_null(object)) /* none, as for the Python package */
        return TRI_OK;
    if (!json_is_object(object))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: __metadata__ is not an object", f->path);
    f->meta = trii_alloc(json_object_size(object), sizeof(*f->meta), "metadata");
    if (f->meta == NULL)
        return TRI_ERR_NO_MEMORY;
    json_object_foreach(object, key, value)
    {
        tri_metadata *m = &f->meta[f->n_meta];

        if (!json_is_string(value))
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: __metadata__ %s is not text", f->path, key);
        f->n_meta++;
        m->key = trii_strdup(key, "metadata");
        m->value = trii_strdup(json_string_value(value), "metadata");
        if (m->key == NULL || m->value == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    return TRI_OK;
}

static tri_status read_header(tri_safetensors *f, json_t *header, const char *data,
                              uint64_t data_bytes)
{
    tri_status status = TRI_OK;
    const char *key;
    json_t *value;

    f->entries = trii_alloc(json_object_size(header), sizeof(*f->entries), "entries");
    if (f->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    json_object_foreach(header, key, value)
    {
        tri_safetensors_entry *e = &f->entries[f->n];

        if (strcmp(key, "__metadata__") == 0) {
            status = read_metadata(f, value);
        } else {
            e->name = trii_strdup(key, "tensor's name");
            if (e->name == NULL)
                return TRI_ERR_NO_MEMORY;
            f->n++;
            status = read_entry(f->path, value, data, data_bytes, e);
        }
        if (status != TRI_OK)
            return status;
    }
    qsort(f->entries, (size_t)f->n, sizeof(*f->entries), compare_offset);
    status = check_coverage(f, data, data_bytes);
    if (status != TRI_OK)
        return status;
    f->by_name = trii_alloc((size_t)f->n, sizeof(*f->by_name), "entries");
    if (f->by_name == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < f->n; i++)
        f->by_name[i] = &f->entries[i];
    qsort(f->by_name, (size_t)f->n, sizeof(*f->by_name), compare_name);
    return TRI_OK;
}

static tri_status parse(tri_safetensors *f)
{
    const unsigned char *bytes = f->map.data;
    uint64_t length = 0;
    json_error_t error;
    json_t *header;
    tri_status status;

    if (f->map.bytes < 8)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                         f->path, f->map.bytes);
    if (memcmp(bytes, "PK\3\4", 4) == 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: a file of torch.save, not of safetensors: write it with "
                         "safetensors.torch.save_file",
                         f->path);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > TRII_SAFETENSORS_MAX_HEADER)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: a header of %" PRIu64 " bytes: at most %" PRIu64
                         " are allowed; not a safetensors file?",
                         f->path, length, TRII_SAFETENSORS_MAX_HEADER);
    if (length > f->map.bytes - 8)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: truncated: a header of %" PRIu64 " bytes in a file of %zu", f->path,
                         length, f->map.bytes);
    header = json_loadb((const char *)bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL && json_error_code(&error) == json_error_null_character)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: header, byte %d: a text with \\u0000, which no name in C can hold",
                         f->path, error.position);
    if (header == NULL && json_error_code(&error) == json_error_null_byte_in_key)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: header, byte %d: a name with \\u0000, which no name in C can hold",
                         f->path, error.position);
    if (header == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: header, byte %d: %s", f->path, error.position,
                         error.text);
    if (json_is_object(header))
        status =
            read_header(f, header, (const char *)bytes + 8 + length, f->map.bytes - 8 - length);
    else
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s: the header is not a JSON object", f->path);
    json_decref(header);
    return status;
}

tri_status tri_safetensors_open(const char *path, tri_safetensors **file_out)
{
    tri_status status = trii_need_text(path, "tri_safetensors_open", "path");
    tri_safetensors *f;

    if (status == TRI_OK)
        status = trii_need(file_out, "tri_safetensors_open", "file_out");
    if (status != TRI_OK)
        return status;
    f = trii_alloc(1, sizeof(*f), "safetensors file");
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    f->path = trii_strdup(path, "path");
    status = f->path != NULL ? trii_mapping_open(path, &f->map) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = parse(f);
    if (status != TRI_OK) {
        tri_safetensors_close(f);
        return status;
    }
    *file_out = f;
    return TRI_OK;
}

static void free_text(const char *text)
{
    void *p;

    memcpy(&p, &text, sizeof(p)); /* ours, though the public struct says const */
    trii_free(p);
}

void tri_safetensors_close(tri_safetensors *file)
{
    if (file == NULL)
        return;
    for (int64_t i = 0; i < file->n; i++)
        free_text(file->entries[i].name);
    for (int64_t i = 0; i < file->n_meta; i++) {
        free_text(file->meta[i].key);
        free_text(file->meta[i].value);
    }
    trii_free(file->meta);
    trii_free(file->by_name);
    trii_free(file->entries);
    trii_mapping_close(&file->map);
    trii_free(file->path);
    trii_free(file);
}

int64_t tri_safetensors_count(const tri_safetensors *file)
{
    return file != NULL ? file->n : 0;
}

const tri_safetensors_entry *tri_safetensors_at(const tri_safetensors *file, int64_t index)
{
    return file != NULL && index >= 0 && index < file->n ? &file->entries[index] : NULL;
}

const tri_safetensors_entry *tri_safetensors_find(const tri_safetensors *file, const char *name)
{
    const tri_safetensors_entry key = {.name = name}, *key_at = &key, **found;

    if (file == NULL || name == NULL)
        return NULL;
    found = bsearch(&key_at, file->by_name, (size_t)file->n, sizeof(*file->by_name), compare_name);
    return found != NULL ? *found : NULL;
}

const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key)
{
    for (int64_t i = 0; file != NULL && key != NULL && i < file->n_meta; i++) {
        if (strcmp(file->meta[i].key, key) == 0)
            return file->meta[i].value;
    }
    return NULL;
}

uint64_t trii_safetensors_offset(const tri_safetensors *file, const tri_safetensors_entry *entry)
{
    return (uint64_t)((const char *)entry->data - (const char *)file->map.data);
}

const char *trii_safetensors_path(const tri_safetensors *file)
{
    return file->path;
}

const tri_metadata *trii_safetensors_texts(const tri_safetensors *file, int64_t *n_out)
{
    *n_out = file->n_meta;
    return file->meta;
}

tri_tensor *tri_safetensors_tensor(const tri_safetensors *file, const char *name)
{
    const tri_safetensors_entry *e;
    tri_status status = trii_need(file, "tri_safetensors_tensor", "file");

    if (status == TRI_OK)
        status = trii_need(name, "tri_safetensors_tensor", "name");
    if (status != TRI_OK)
        return trii_tensor_failed(status);
    e = tri_safetensors_find(file, name);
    if (e == NULL)
        return trii_tensor_failed(
            TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: no tensor %s", file->path, name));
    if (e->dtype == TRI_DTYPE_NONE)
        return trii_tensor_failed(TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: tensor %s is of %s",
                                            file->path, name, e->type_name));
    return tri_tensor_from(e->shape, e->ndim, e->dtype, e->data);
}
