/*
 * safetensors_write.c - writes safetensors files (format.h), byte for byte as the Python package
 * does; the other half of safetensors.c. Called by checkpoint.c, commit.c and programs.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/json.h"
#include "os/file.h"
#include "train/torch/tensor_entries.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian; this needs a conversion on other machines"
#endif

/* The file's name of a type, and its place in the order of a file, as in the Python package. */
static const struct {
    const char *name;
    int order;
} types[TRII_TENSOR_DTYPES] = {
    [TRI_DTYPE_I64] = {"I64", 1},         [TRI_DTYPE_F64] = {"F64", 2},
    [TRI_DTYPE_F32] = {"F32", 3},         [TRI_DTYPE_I32] = {"I32", 4},
    [TRI_DTYPE_BF16] = {"BF16", 5},       [TRI_DTYPE_F16] = {"F16", 6},
    [TRI_DTYPE_I16] = {"I16", 7},         [TRI_DTYPE_F8_E4M3] = {"F8_E4M3", 8},
    [TRI_DTYPE_F8_E5M2] = {"F8_E5M2", 9}, [TRI_DTYPE_I8] = {"I8", 10},
    [TRI_DTYPE_U8] = {"U8", 11},          [TRI_DTYPE_BOOL] = {"BOOL", 12},
};

int trii_safetensors_compare(const void *a, const void *b)
{
    const tri_safetensors_entry *const *x = a, *const *y = b;
    int order = types[(*x)->dtype].order - types[(*y)->dtype].order;

    return order != 0 ? order : strcmp((*x)->name, (*y)->name);
}

/* {"dtype":..,"shape":..,"data_offsets":..}; NULL: out of memory. */
static json_t *entry_to_json(const tri_safetensors_entry *e, uint64_t begin)
{
    json_t *object = json_object(), *shape = json_array();
    bool ok = object != NULL && shape != NULL;
    uint64_t end = begin + e->bytes;

    for (int d = 0; d < e->ndim && ok; d++)
        ok = json_array_append_new(shape, json_integer(e->shape[d])) == 0;
    ok = ok && trii_json_put(object, "dtype", json_string(types[e->dtype].name)) &&
         json_object_set(object, "shape", shape) == 0 &&
         trii_json_put(object, "data_offsets",
                       json_pack("[I,I]", (json_int_t)begin, (json_int_t)end));
    json_decref(shape);
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static tri_status put_text(json_t *object, const char *key, json_t *own_value, const char *what)
{
    if (json_object_get(object, key) != NULL) {
        json_decref(own_value);
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s occurs twice", what, key);
    }
    if (!trii_json_put(object, key, own_value))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s: not UTF-8, or out of memory", what, key);
    return TRI_OK;
}

static tri_status build_header(const tri_safetensors_entry *const *sorted, int64_t n,
                               const tri_metadata *meta, int n_meta, json_t *header)
{
    tri_status status = TRI_OK;
    uint64_t at = 0;

    if (n_meta > 0) {
        json_t *object = json_object();

        if (!trii_json_put(header, "__metadata__", object))
            return TRII_FAIL(TRI_ERR_NO_MEMORY, "header: out of memory");
        for (int i = 0; i < n_meta && status == TRI_OK; i++)
            status = put_text(object, meta[i].key, json_string(meta[i].value), "metadata");
    }
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        if (strcmp(sorted[i]->name, "__metadata__") == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "a tensor cannot be named __metadata__");
        status = put_text(header, sorted[i]->name, entry_to_json(sorted[i], at), "tensor");
        at += sorted[i]->bytes;
    }
    return status;
}

/* Control characters as the Python package writes them, \u001f and not \u001F; backslashes occur
 * only within texts. */
static void lower_escapes(char *json, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        if (json[i] != '\\')
            continue;
        i++;
        for (size_t k = 1; json[i] == 'u' && k <= 4 && i + k < n; k++)
            json[i + k] = (char)tolower((unsigned char)json[i + k]);
    }
}

/* Length, JSON, spaces up to a multiple of 8; release with trii_free. */
static tri_status dump_header(const json_t *header, char **bytes_out, size_t *n_out)
{
    size_t length = json_dumpb(header, NULL, 0, JSON_COMPACT);
    size_t padded = (length + 7) / 8 * 8;
    char *bytes;

    if (length == 0 || padded > TRII_SAFETENSORS_MAX_HEADER)
        return TRII_FAIL(length == 0 ? TRI_ERR_NO_MEMORY : TRI_ERR_INVALID_ARG,
                         "header of %zu bytes: at most %" PRIu64 " can be", length,
                         TRII_SAFETENSORS_MAX_HEADER);
    bytes = trii_alloc(8 + padded, 1, "header");
    if (bytes == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(unsigned char)(padded >> (8 * i));
    memset(bytes + 8, ' ', padded);
    if (json_dumpb(header, bytes + 8, length, JSON_COMPACT) != length) {
        trii_free(bytes);
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "header: out of memory");
    }
    lower_escapes(bytes + 8, length);
    *bytes_out = bytes;
    *n_out = 8 + padded;
    return TRI_OK;
}

static tri_status put(trii_writer *writer, trii_checksum *sum, const void *data, size_t bytes)
{
    trii_checksum_add(sum, data, bytes);
    return trii_writer_put(writer, data, bytes);
}

/* What is to be written, and what is told of it. */
typedef struct contents {
    const tri_safetensors_entry *entries; /* [n], the caller's */
    int64_t n;
    const trii_feed *feed; /* NULL: the entries have data */
    trii_written *written; /* NULL with a feed */
} contents;

static tri_status write_file(const char *path, const char *header, size_t header_bytes,
                             const tri_safetensors_entry *const *sorted, const contents *c)
{
    struct trii_written_entry *told = c->written->entries;
    trii_writer writer;
    trii_checksum sum;
    uint64_t bytes;
    tri_status status = trii_checksum_init(&sum);

    if (status != TRI_OK)
        return status;
    status = trii_writer_open(path, &writer);
    if (status == TRI_OK)
        status = put(&writer, &sum, header, header_bytes);
    for (int64_t i = 0; i < c->n && status == TRI_OK; i++) {
        if (told != NULL)
            told[sorted[i] - c->entries] = (struct trii_written_entry){
                writer.bytes, trii_checksum_of(sorted[i]->data, sorted[i]->bytes)};
        status = put(&writer, &sum, sorted[i]->data, sorted[i]->bytes);
    }
    bytes = writer.bytes;
    if (status == TRI_OK)
        status = trii_writer_commit(&writer);
    else
        trii_writer_abort(&writer);
    if (status == TRI_OK) {
        c->written->bytes = bytes;
        c->written->hash = trii_checksum_value(&sum);
    }
    trii_checksum_fini(&sum);
    return status;
}

static tri_status put_piece(void *arg, const void *data, size_t bytes)
{
    return trii_writer_put(arg, data, bytes);
}

static tri_status write_fed(const char *path, const char *header, size_t header_bytes,
                            const tri_safetensors_entry *const *sorted, const contents *c)
{
    trii_writer writer;
    const trii_sink sink = {put_piece, &writer};
    tri_status status = trii_writer_open(path, &writer);

    if (status != TRI_OK)
        return status;
    status = trii_writer_put(&writer, header, header_bytes);
    for (int64_t i = 0; i < c->n && status == TRI_OK; i++)
        if (sorted[i]->bytes > 0)
            status = c->feed->give(c->feed->arg, sorted[i] - c->entries, &sink);
    if (status == TRI_OK)
        return trii_writer_commit(&writer);
    trii_writer_abort(&writer);
    return status;
}

static tri_status check_arguments(const char *path, const tri_safetensors_entry *entries, int64_t n,
                                  const tri_metadata *meta, int n_meta)
{
    const char *call = "tri_safetensors_write";
    tri_status status = trii_need_text(path, call, "path");

    if (status == TRI_OK && (n < 0 || n_meta < 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %" PRId64 " entries, %d texts of metadata",
                           call, n, n_meta);
    if (status == TRI_OK && n > 0)
        status = trii_need(entries, call, "entries");
    if (status == TRI_OK && n_meta > 0)
        status = trii_need(meta, call, "meta");
    for (int i = 0; i < n_meta && status == TRI_OK; i++) {
        if (meta[i].key == NULL || meta[i].value == NULL)
            status =
                TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: metadata %d has no key or no value", call, i);
    }
    return status;
}

static tri_status write_contents(const char *path, const contents *c, const tri_metadata *meta,
                                 int n_meta)
{
    const tri_safetensors_entry **sorted = trii_alloc((size_t)c->n, sizeof(*sorted), "entries");
    json_t *root = json_object();
    char *header = NULL;
    size_t header_bytes = 0;
    tri_status status = TRI_OK;

    if (sorted == NULL || root == NULL)
        status = TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: out of memory", path);
    if (status == TRI_OK)
        status = trii_entries_check(c->entries, c->n, c->feed == NULL);
    for (int64_t i = 0; i < c->n && status == TRI_OK; i++)
        sorted[i] = &c->entries[i];
    if (status == TRI_OK) {
        qsort(sorted, (size_t)c->n, sizeof(*sorted), trii_safetensors_compare);
        status = build_header(sorted, c->n, meta, n_meta, root);
    }
    if (status == TRI_OK)
        status = dump_header(root, &header, &header_bytes);
    if (status == TRI_OK)
        status = (c->feed != NULL ? write_fed : write_file)(path, header, header_bytes, sorted, c);
    trii_free(header);
    json_decref(root);
    trii_free(sorted);
    return status;
}

tri_status trii_safetensors_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                                  const tri_metadata *meta, int n_meta, trii_written *written)
{
    const contents c = {.entries = entries, .n = n, .written = written};

    return write_contents(path, &c, meta, n_meta);
}

tri_status trii_safetensors_write_fed(const char *path, const tri_safetensors_entry *entries,
                                      int64_t n, const tri_metadata *meta, int n_meta,
                                      const trii_feed *feed)
{
    const contents c = {.entries = entries, .n = n, .feed = feed};

    return write_contents(path, &c, meta, n_meta);
}

tri_status tri_safetensors_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                                 const tri_metadata *meta, int n_meta)
{
    trii_written written = {.entries = NULL};
    tri_status status = check_arguments(path, entries, n, meta, n_meta);

    if (status != TRI_OK)
        return status;
    status = trii_safetensors_write(path, entries, n, meta, n_meta, &written);
    return status == TRI_ERR_INVALID_ARG ? TRII_FAIL_CTX(status, "tri_safetensors_write") : status;
}
