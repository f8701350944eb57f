/*
 * gzip.h - files that may be compressed, read as streams of plain bytes. What follows the
 * compressed data and is none is left out, as gzip does.
 */
#ifndef TRII_GZIP_H
#define TRII_GZIP_H

#include <trireme/status.h>

typedef struct trii_gzip trii_gzip;

/* Errors: NOT_FOUND, IO, NO_MEMORY. */
tri_status trii_gzip_open(const char *path, trii_gzip **gzip_out) TRI_MUST_CHECK;
void trii_gzip_close(trii_gzip *gzip); /* NULL allowed */
/* Reads up to `bytes` bytes; fewer only at the end of the file. Errors: FORMAT (damaged or
 * truncated compressed data), IO. */
tri_status trii_gzip_read(trii_gzip *gzip, void *data, size_t bytes, size_t *n_out) TRI_MUST_CHECK;

#endif
