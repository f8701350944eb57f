/*
 * file_log.h - PyTorch's FileStore format, as bytes in memory: no files here, so that it can
 * be tested and fuzzed byte by byte.
 *
 * A file is nothing but records, one after the other, each the result of one write:
 *
 *   offset      bytes  what
 *   0           4      u32 k, length of the key, in host byte order
 *   4           k      key
 *   4 + k       4      u32 v, length of the value
 *   8 + k       v      value
 *
 * Keys of users begin with '/'. A key "-" + K with no value says that K was deleted. The keys
 * "refcount/" and "cleanup/" are decimal numbers: how many have the store open, and how many
 * have closed it. The last record may be torn: its writer died.
 */
#ifndef TRII_FILE_LOG_H
#define TRII_FILE_LOG_H

#include "store/kv.h"

#define TRII_FILE_REFCOUNT "refcount/"
#define TRII_FILE_CLEANUP "cleanup/"
#define TRII_FILE_MAX_KEY 65536u
#define TRII_FILE_MAX_VALUE ((uint32_t)1 << 30)

/**
 * Puts the whole records at the head of `data` into the table.
 *
 *   used_out  bytes of these records; written on every status
 *   need_out  bytes that the first incomplete record has, as far as it says; 0 if none is there
 *
 * Errors: FORMAT (no record: the line says what), NO_MEMORY. Those before it are in the table.
 */
tri_status trii_file_log_read(trii_kv *kv, const char *data, size_t bytes, size_t *used_out,
                              size_t *need_out) TRI_MUST_CHECK;

/* The eight bytes of lengths around a record's key and value. */
typedef struct trii_file_lengths {
    uint32_t key, value;
} trii_file_lengths;

#endif
