/*
 * zip_write.c - see zip_write.h. PKWARE's APPNOTE.TXT, 4.3. Called by torch_write.c.
 *
 * Checksum and size follow the data of an entry (bit 3 of its flags), so that nothing is written
 * twice.
 */
#include "train/torch/zip_write.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "train/torch/crc32.h"

#define ALIGN 64
#define FLAGS 0x0808 /* sizes after the data, names in UTF-8 */
#define VERSION 45   /* of the format: numbers of 64 bits */
#define LOCAL_BYTES 30
#define WIDE_EXTRA_BYTES 20

/* A record that is put together. */
typedef struct record {
    unsigned char bytes[160];
    size_t n;
} record;

static void put_number(record *r, uint64_t value, int bytes)
{
    assert(r->n + 8 <= sizeof(r->bytes));
    for (int i = 0; i < bytes; i++)
        r->bytes[r->n++] = (unsigned char)(value >> 8 * i);
}

static uint64_t low32(uint64_t value, bool is_wide)
{
    return is_wide ? UINT32_MAX : value;
}

static tri_status put_record(trii_zip_writer *zip, const record *r)
{
    return trii_writer_put(&zip->file, r->bytes, r->n);
}

tri_status trii_zip_writer_open(const char *path, trii_zip_writer *zip_out)
{
    *zip_out = (trii_zip_writer){.n = 0};
    return trii_writer_open(path, &zip_out->file);
}

/* What stands between an entry's header and its data, up to a multiple of 64: the field that torch
 * has there, of Z's. */
static void put_padding(record *r, uint64_t at, size_t name_bytes, size_t extra)
{
    uint64_t data = at + LOCAL_BYTES + name_bytes + extra + 4;
    size_t padding = (size_t)(-data % ALIGN);

    put_number(r, 0x4246, 2); /* "FB" */
    put_number(r, padding, 2);
    for (size_t i = 0; i < padding; i++)
        put_number(r, 'Z', 1);
}

tri_status trii_zip_writer_begin(trii_zip_writer *zip, const char *name, uint64_t bytes)
{
    record header = {.n = 0}, extra = {.n = 0};
    struct trii_zip_written *e;
    size_t name_bytes = strlen(name);
    bool is_wide = bytes >= UINT32_MAX;
    tri_status status = trii_array_grow(&zip->entries, &zip->room, zip->n, 16,
                                        sizeof(*zip->entries), "entries of a ZIP file");

    assert(zip->left == 0);
    if (status != TRI_OK)
        return status;
    e = &zip->entries[zip->n];
    *e = (struct trii_zip_written){.name = trii_strdup(name, "entry's name"),
                                   .header = zip->file.bytes,
                                   .bytes = bytes,
                                   .is_wide = is_wide};
    if (e->name == NULL)
        return TRI_ERR_NO_MEMORY;
    zip->n++;
    zip->left = bytes;
    if (is_wide) {
        put_number(&extra, 1, 2);
        put_number(&extra, WIDE_EXTRA_BYTES - 4, 2);
        put_number(&extra, 0, 8);
        put_number(&extra, 0, 8);
    }
    put_padding(&extra, e->header, name_bytes, extra.n);
    put_number(&header, 0x04034b50, 4);
    put_number(&header, VERSION, 2);
    put_number(&header, FLAGS, 2);
    put_number(&header, 0, 2); /* not compressed */
    put_number(&header, 0,
               2); /* time, and date: 1 January 1980, so that equal contents are equal */
    put_number(&header, 0x21, 2);
    put_number(&header, 0, 4);
    put_number(&header, low32(0, is_wide), 4);
    put_number(&header, low32(0, is_wide), 4);
    put_number(&header, name_bytes, 2);
    put_number(&header, extra.n, 2);
    status = put_record(zip, &header);
    if (status == TRI_OK)
        status = trii_writer_put(&zip->file, name, name_bytes);
    if (status == TRI_OK)
        status = put_record(zip, &extra);
    return status == TRI_OK ? trii_zip_writer_put(zip, NULL, 0) : status;
}

tri_status trii_zip_writer_put(trii_zip_writer *zip, const void *data, size_t bytes)
{
    struct trii_zip_written *e = &zip->entries[zip->n - 1];
    record after = {.n = 0};
    tri_status status = TRI_OK;

    assert(bytes <= zip->left);
    if (bytes > 0) {
        e->crc = trii_crc32(e->crc, data, bytes);
        status = trii_writer_put(&zip->file, data, bytes);
        zip->left -= bytes;
    }
    if (status != TRI_OK || zip->left > 0)
        return status;
    put_number(&after, 0x08074b50, 4);
    put_number(&after, e->crc, 4);
    put_number(&after, e->bytes, e->is_wide ? 8 : 4);
    put_number(&after, e->bytes, e->is_wide ? 8 : 4);
    return put_record(zip, &after);
}

static tri_status put_directory_entry(trii_zip_writer *zip, const struct trii_zip_written *e)
{
    record r = {.n = 0}, extra = {.n = 0};
    bool is_far = e->header >= UINT32_MAX;
    tri_status status;

    if (e->is_wide || is_far) {
        put_number(&extra, 1, 2);
        put_number(&extra, (e->is_wide ? 16 : 0) + (is_far ? 8 : 0), 2);
        if (e->is_wide) {
            put_number(&extra, e->bytes, 8);
            put_number(&extra, e->bytes, 8);
        }
        if (is_far)
            put_number(&extra, e->header, 8);
    }
    put_number(&r, 0x02014b50, 4);
    put_number(&r, VERSION, 2);
    put_number(&r, VERSION, 2);
    put_number(&r, FLAGS, 2);
    put_number(&r, 0, 2);
    put_number(&r, 0, 2);
    put_number(&r, 0x21, 2);
    put_number(&r, e->crc, 4);
    put_number(&r, low32(e->bytes, e->is_wide), 4);
    put_number(&r, low32(e->bytes, e->is_wide), 4);
    put_number(&r, strlen(e->name), 2);
    put_number(&r, extra.n, 2);
    put_number(&r, 0, 2); /* comment, disk, attributes */
    put_number(&r, 0, 2);
    put_number(&r, 0, 2);
    put_number(&r, 0, 4);
    put_number(&r, low32(e->header, is_far), 4);
    status = put_record(zip, &r);
    if (status == TRI_OK)
        status = trii_writer_put(&zip->file, e->name, strlen(e->name));
    return status == TRI_OK ? put_record(zip, &extra) : status;
}

/* The directory's end in 64 bits and in 32; where the latter are not enough, the former counts. */
static tri_status put_end(trii_zip_writer *zip, uint64_t directory)
{
    uint64_t end = zip->file.bytes, bytes = end - directory, n = (uint64_t)zip->n;
    record r = {.n = 0};

    put_number(&r, 0x06064b50, 4);
    put_number(&r, 44, 8); /* bytes that follow */
    put_number(&r, VERSION, 2);
    put_number(&r, VERSION, 2);
    put_number(&r, 0, 4);
    put_number(&r, 0, 4);
    put_number(&r, n, 8);
    put_number(&r, n, 8);
    put_number(&r, bytes, 8);
    put_number(&r, directory, 8);
    put_number(&r, 0x07064b50, 4);
    put_number(&r, 0, 4);
    put_number(&r, end, 8);
    put_number(&r, 1, 4);
    put_number(&r, 0x06054b50, 4);
    put_number(&r, 0, 2);
    put_number(&r, 0, 2);
    put_number(&r, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put_number(&r, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put_number(&r, low32(bytes, bytes >= UINT32_MAX), 4);
    put_number(&r, low32(directory, directory >= UINT32_MAX), 4);
    put_number(&r, 0, 2);
    return put_record(zip, &r);
}

static void fini(trii_zip_writer *zip)
{
    for (int i = 0; i < zip->n; i++)
        trii_free(zip->entries[i].name);
    trii_free(zip->entries);
    *zip = (trii_zip_writer){.n = 0, .file = zip->file};
}

tri_status trii_zip_writer_commit(trii_zip_writer *zip)
{
    uint64_t directory = zip->file.bytes;
    tri_status status = TRI_OK;

    assert(zip->left == 0);
    for (int i = 0; i < zip->n && status == TRI_OK; i++)
        status = put_directory_entry(zip, &zip->entries[i]);
    if (status == TRI_OK)
        status = put_end(zip, directory);
    if (status == TRI_OK)
        status = trii_writer_commit(&zip->file);
    else
        trii_writer_abort(&zip->file);
    fini(zip);
    return status;
}

void trii_zip_writer_abort(trii_zip_writer *zip)
{
    trii_writer_abort(&zip->file);
    fini(zip);
}
