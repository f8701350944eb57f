/*
 * zip_index.h - where the entries of a ZIP file lie. Data are read where torch.save
 * leaves them: not compressed, in one file. PKWARE's APPNOTE.TXT, 4.3.
 */
#ifndef TRII_ZIP_INDEX_H
#define TRII_ZIP_INDEX_H

#include <trireme/status.h>

#include "os/file.h"

typedef struct trii_zip_entry {
    char *name;
    uint64_t at, bytes; /* of its data in the file */
    uint32_t crc;
    bool is_plain; /* neither compressed nor encrypted; of others bytes are as they lie there */
    bool checked;  /* the data have that CRC */
} trii_zip_entry;

typedef struct trii_zip {
    const char *path;        /* borrowed, for messages */
    trii_mapping map;        /* borrowed */
    trii_zip_entry *entries; /* [n], by name */
    int64_t n;
    bool unchecked; /* no entry has a CRC: torch.serialization.set_crc32_options(False) */
} trii_zip;

/* Errors: FORMAT (with the offset at fault), NO_MEMORY. Close it in any case. */
tri_status trii_zip_open(const char *path, const trii_mapping *map,
                         trii_zip *zip_out) TRI_MUST_CHECK;
void trii_zip_close(trii_zip *zip);
/* NULL: there is none. */
trii_zip_entry *trii_zip_find(const trii_zip *zip, const char *name);
/* UNSUPPORTED: the entry is compressed or encrypted. */
tri_status trii_zip_need_plain(const trii_zip *zip, const trii_zip_entry *entry) TRI_MUST_CHECK;
/* The data, once their CRC is that of the index. Errors: FORMAT, UNSUPPORTED. */
tri_status trii_zip_data(const trii_zip *zip, trii_zip_entry *entry,
                         const unsigned char **data_out) TRI_MUST_CHECK;

#endif
