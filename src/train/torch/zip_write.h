/*
 * zip_write.h - a ZIP file, entry by entry, with the data of each at a multiple of 64 bytes, as
 * torch.save writes it so that a file can be mapped. It appears under its name when it is complete.
 */
#ifndef TRII_ZIP_WRITE_H
#define TRII_ZIP_WRITE_H

#include "os/file.h"

typedef struct trii_zip_writer {
    trii_writer file;
    struct trii_zip_written {
        char *name;
        uint64_t header, bytes; /* where its header is, and its size */
        uint32_t crc;
        bool is_wide; /* numbers of 64 bits after its data */
    } * entries;      /* [n] */
    int n, room;
    uint64_t left; /* bytes of the open entry that are still to come */
} trii_zip_writer;

/* After a failure of any of these, trii_zip_writer_abort; after open's failure it does no harm.
 * Errors: those of trii_writer_open and trii_writer_put. */
tri_status trii_zip_writer_open(const char *path, trii_zip_writer *zip_out) TRI_MUST_CHECK;
/* An entry of so many bytes, which then are put, in any pieces. */
tri_status trii_zip_writer_begin(trii_zip_writer *zip, const char *name,
                                 uint64_t bytes) TRI_MUST_CHECK;
tri_status trii_zip_writer_put(trii_zip_writer *zip, const void *data, size_t bytes) TRI_MUST_CHECK;
/* The directory; syncs and renames. The writer is closed, also on failure. */
tri_status trii_zip_writer_commit(trii_zip_writer *zip) TRI_MUST_CHECK;
void trii_zip_writer_abort(trii_zip_writer *zip);

#endif
