/*
 * secret.h - files that only their owner may read.
 */
#ifndef TRII_SECRET_H
#define TRII_SECRET_H

#include <trireme/status.h>

/* All of a file of at most `room` bytes that belongs to us or to root and that nobody else may
 * read or write. Errors: NOT_FOUND, IO (the line says what is wrong with it). */
tri_status trii_secret_read(const char *path, void *data, size_t room,
                            size_t *bytes_out) TRI_MUST_CHECK;
/* Overwrites memory that held a secret; not optimised away. */
void trii_secret_wipe(void *data, size_t bytes);

#endif
