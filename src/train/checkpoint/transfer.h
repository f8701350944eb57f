/*
 * transfer.h - a checkpoint on its way from one folder to that of another host.
 */
#ifndef TRII_TRANSFER_H
#define TRII_TRANSFER_H

#include <trireme/checkpoint.h>

/* What tells a checkpoint from others, wherever its copies lie. */
typedef struct trii_checkpoint_id {
    int64_t sequence; /* saves before it: the higher one is newer */
    int64_t step;
    uint64_t checksum;
} trii_checkpoint_id;

trii_checkpoint_id trii_checkpoint_identify(const tri_checkpoint *checkpoint);
/* Its files, 0 to n-1, the manifest last; borrowed. */
int trii_checkpoint_file_count(const tri_checkpoint *checkpoint);
const char *trii_checkpoint_file(const tri_checkpoint *checkpoint, int index);

/* One that comes in, under a temporary name. */
typedef struct trii_incoming trii_incoming;

/* FOLDER, made if missing, is locked until commit or abort. Errors: as tri_checkpoint_save. */
tri_status trii_incoming_open(const char *folder, int64_t step,
                              trii_incoming **incoming_out) TRI_MUST_CHECK;
/* The next file begins, and the one before it ends. IO: its name is none of a checkpoint's. */
tri_status trii_incoming_file(trii_incoming *incoming, const char *name) TRI_MUST_CHECK;
tri_status trii_incoming_put(trii_incoming *incoming, const void *data,
                             size_t bytes) TRI_MUST_CHECK;
/* FORMAT: what has come is damaged. Whatever is returned: `incoming` is gone, and so is, after a
 * failure, all that has come. *dir_out: its folder, release with trii_free. */
tri_status trii_incoming_commit(trii_incoming *incoming, char **dir_out) TRI_MUST_CHECK;
void trii_incoming_abort(trii_incoming *incoming); /* NULL allowed */

#endif
