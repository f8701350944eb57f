/*
 * zip_index.c - see zip_index.h. Called by torch_file.c.
 *
 * The directory at the end of the file says what there is; what stands before each entry only has
 * to agree with it. A byte that is wrong anywhere is found by that, or by the CRC of the data.
 */
#include "train/torch/zip_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/torch/crc32.h"

#define END_BYTES 22
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define DIRECTORY_BYTES 46
#define LOCAL_BYTES 30
#define MAX_COMMENT 65535

/* The directory, as the end of the file tells. */
typedef struct directory {
    uint64_t at, bytes, n;
} directory;

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static tri_status damaged(const trii_zip *zip, uint64_t at, const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "%s: offset %" PRIu64 ": %s", zip->path, at, what);
}

/* Whether a record before the directory's end says where that of 64 bits is. */
static bool has_locator(const trii_zip *zip, uint64_t end)
{
    const unsigned char *file = zip->map.data;

    return end >= LOCATOR_BYTES + END64_BYTES &&
           memcmp(file + end - LOCATOR_BYTES, "PK\6\7", 4) == 0;
}

/* Sizes and offsets of 64 bits, where 32 do not hold them. end: offset of the plain record. */
static tri_status read_end64(const trii_zip *zip, uint64_t end, directory *dir)
{
    const unsigned char *file = zip->map.data, *record;
    uint64_t at;

    if (!has_locator(zip, end))
        return damaged(zip, end,
                       "the file is of 64 bits, but has no record that says where its "
                       "directory is");
    at = number(file + end - LOCATOR_BYTES + 8, 8);
    if (at > end - LOCATOR_BYTES - END64_BYTES || memcmp(file + at, "PK\6\6", 4) != 0)
        return damaged(zip, end - LOCATOR_BYTES + 8, "points to no end of a directory of 64 bits");
    record = file + at;
    *dir = (directory){
        .n = number(record + 32, 8), .bytes = number(record + 40, 8), .at = number(record + 48, 8)};
    return TRI_OK;
}

static tri_status find_directory(const trii_zip *zip, directory *dir)
{
    const unsigned char *file = zip->map.data;
    uint64_t size = zip->map.bytes, end;
    bool found = false;
    tri_status status = TRI_OK;

    if (size < END_BYTES)
        return damaged(zip, size, "the file ends before its directory: is it cut short?");
    for (end = size - END_BYTES;; end--) {
        found = memcmp(file + end, "PK\5\6", 4) == 0 &&
                number(file + end + 20, 2) == size - end - END_BYTES;
        if (found || end == 0 || size - end - END_BYTES >= MAX_COMMENT)
            break;
    }
    if (!found)
        return damaged(zip, size, "the file ends without a directory: is it cut short?");
    *dir = (directory){.n = number(file + end + 10, 2),
                       .bytes = number(file + end + 12, 4),
                       .at = number(file + end + 16, 4)};
    /* 65535 entries may also be just as many. */
    if (dir->bytes == UINT32_MAX || dir->at == UINT32_MAX ||
        (dir->n == UINT16_MAX && has_locator(zip, end)))
        status = read_end64(zip, end, dir);
    if (status == TRI_OK && (dir->at > end || dir->bytes > end - dir->at))
        status = damaged(zip, end, "its directory does not lie in the file");
    /* Each takes as many bytes at least, so nobody makes us allocate for more than there can be. */
    if (status == TRI_OK && dir->n > dir->bytes / DIRECTORY_BYTES)
        status = damaged(zip, end, "its directory has no room for so many entries");
    return status;
}

/* What is UINT32_MAX in an entry of the directory is in its extra field in 64 bits, in this order.
 */
static bool read_extra64(const unsigned char *extra, uint64_t bytes, uint64_t *values[], int n)
{
    for (uint64_t at = 0; at + 4 <= bytes;) {
        uint64_t id = number(extra + at, 2), length = number(extra + at + 2, 2), k = at + 4;

        if (length > bytes - k)
            return false;
        for (int i = 0; id == 1 && i < n; i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (k + 8 > at + 4 + length)
                return false;
            *values[i] = number(extra + k, 8);
            k += 8;
        }
        if (id == 1)
            return true;
        at += 4 + length;
    }
    return false;
}

/* Where the data begin: after a header of their own, whose name must be the same. */
static tri_status find_data(const trii_zip *zip, uint64_t at, trii_zip_entry *e)
{
    const unsigned char *file = zip->map.data;
    uint64_t size = zip->map.bytes, name_bytes = strlen(e->name), data;

    if (at > size || size - at < LOCAL_BYTES || memcmp(file + at, "PK\3\4", 4) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: offset %" PRIu64 ": no entry %s begins there",
                         zip->path, at, e->name);
    data = at + LOCAL_BYTES + number(file + at + 26, 2) + number(file + at + 28, 2);
    if (number(file + at + 26, 2) != name_bytes || data > size ||
        memcmp(file + at + LOCAL_BYTES, e->name, name_bytes) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": another entry than %s begins there", zip->path,
                         at, e->name);
    if (e->bytes > size - data)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": the %" PRIu64 " bytes of %s do not lie in the "
                         "file's %" PRIu64,
                         zip->path, data, e->bytes, e->name, size);
    e->at = data;
    return TRI_OK;
}

/* *at_inout: offset of an entry of the directory, then of the next. */
static tri_status read_entry(const trii_zip *zip, uint64_t end, uint64_t *at_inout,
                             trii_zip_entry *e)
{
    const unsigned char *record = (const unsigned char *)zip->map.data + *at_inout;
    uint64_t at = *at_inout, room = end - at, name_bytes, extra_bytes, length, packed, local;
    uint64_t *wide[] = {&e->bytes, &packed, &local};

    if (room < DIRECTORY_BYTES || memcmp(record, "PK\1\2", 4) != 0)
        return damaged(zip, at, "its directory has another record than an entry");
    name_bytes = number(record + 28, 2);
    extra_bytes = number(record + 30, 2);
    length = DIRECTORY_BYTES + name_bytes + extra_bytes + number(record + 32, 2);
    if (length > room)
        return damaged(zip, at, "an entry of its directory ends after the directory");
    if (memchr(record + DIRECTORY_BYTES, 0, name_bytes) != NULL)
        return damaged(zip, at, "the name of an entry has a byte of value 0");
    e->name = trii_alloc(name_bytes + 1, 1, "entry's name");
    if (e->name == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(e->name, record + DIRECTORY_BYTES, name_bytes);
    e->crc = (uint32_t)number(record + 16, 4);
    packed = number(record + 20, 4);
    e->bytes = number(record + 24, 4);
    local = number(record + 42, 4);
    if ((packed == UINT32_MAX || e->bytes == UINT32_MAX || local == UINT32_MAX) &&
        !read_extra64(record + DIRECTORY_BYTES + name_bytes, extra_bytes, wide, 3))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": entry %s is of 64 bits and does "
                         "not say its size",
                         zip->path, at, e->name);
    e->is_plain =
        number(record + 10, 2) == 0 && packed == e->bytes && (number(record + 8, 2) & 1) == 0;
    if (!e->is_plain)
        e->bytes = packed;
    *at_inout = at + length;
    return find_data(zip, local, e);
}

static int compare(const void *a, const void *b)
{
    const trii_zip_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

tri_status trii_zip_open(const char *path, const trii_mapping *map, trii_zip *zip_out)
{
    trii_zip *zip = zip_out;
    directory dir = {.n = 0};
    uint64_t at, end;
    tri_status status;

    *zip = (trii_zip){.path = path, .map = *map};
    status = find_directory(zip, &dir);
    if (status != TRI_OK)
        return status;
    zip->entries = trii_alloc((size_t)dir.n, sizeof(*zip->entries), "entries");
    if (zip->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    at = dir.at;
    end = dir.at + dir.bytes;
    while (status == TRI_OK && (uint64_t)zip->n < dir.n) {
        status = read_entry(zip, end, &at, &zip->entries[zip->n]);
        zip->n++;
    }
    if (status == TRI_OK && at != end)
        status = damaged(zip, at, "its directory has more entries than it says");
    if (status != TRI_OK)
        return status;
    zip->unchecked = true;
    for (int64_t i = 0; i < zip->n; i++)
        zip->unchecked = zip->unchecked && zip->entries[i].crc == 0;
    qsort(zip->entries, (size_t)zip->n, sizeof(*zip->entries), compare);
    for (int64_t i = 1; i < zip->n; i++) {
        if (strcmp(zip->entries[i - 1].name, zip->entries[i].name) == 0)
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: offset %" PRIu64 ": a second entry %s", path,
                             zip->entries[i].at, zip->entries[i].name);
    }
    return TRI_OK;
}

void trii_zip_close(trii_zip *zip)
{
    for (int64_t i = 0; i < zip->n; i++)
        trii_free(zip->entries[i].name);
    trii_free(zip->entries);
    *zip = (trii_zip){.path = NULL};
}

trii_zip_entry *trii_zip_find(const trii_zip *zip, const char *name)
{
    int64_t low = 0, high = zip->n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(zip->entries[middle].name, name);

        if (order == 0)
            return &zip->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

tri_status trii_zip_need_plain(const trii_zip *zip, const trii_zip_entry *entry)
{
    if (entry->is_plain)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "%s: offset %" PRIu64 ": %s is compressed or encrypted, as torch.save never "
                     "does it: unpack the file and pack it again by zip -0",
                     zip->path, entry->at, entry->name);
}

tri_status trii_zip_data(const trii_zip *zip, trii_zip_entry *entry, const unsigned char **data_out)
{
    const unsigned char *data = (const unsigned char *)zip->map.data + entry->at;
    tri_status status = trii_zip_need_plain(zip, entry);

    if (status != TRI_OK)
        return status;
    if (!entry->checked && !zip->unchecked &&
        trii_crc32(0, data, (size_t)entry->bytes) != entry->crc)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": the %" PRIu64 " bytes of %s are damaged: their "
                         "CRC-32 is not the one that the file says",
                         zip->path, entry->at, entry->bytes, entry->name);
    entry->checked = true;
    *data_out = data;
    return TRI_OK;
}
