/*
 * part_read.h - the tensors of one part of a checkpoint (the module's, the optimizer's, an
 * extra's), whether they are whole in its file or in pieces in others.
 */
#ifndef TRII_PART_READ_H
#define TRII_PART_READ_H

#include "train/checkpoint/format.h"

typedef struct trii_part_reader {
    const char *dir, *name; /* borrowed, as the manifest */
    const trii_manifest *manifest;
    char *path; /* of the file, for messages */
    tri_safetensors *file;
    const trii_stored_tensor *stored; /* [n_stored]: those in pieces */
    int64_t n_stored;
    trii_mapping *maps; /* [manifest->n_files]: files of pieces, open from their first reader on */
    void *room;         /* for a tensor that is put together; [room_bytes] */
    size_t room_bytes;
} trii_part_reader;

/* Errors: FORMAT, IO, NO_MEMORY. Close it in any case. */
tri_status trii_part_open(const char *dir, const trii_manifest *manifest, const char *name,
                          trii_part_reader *reader_out) TRI_MUST_CHECK;
void trii_part_close(trii_part_reader *reader);
int64_t trii_part_count(const trii_part_reader *reader);
/* Name, dtype and shape of the whole tensor; data is not set. */
tri_safetensors_entry trii_part_at(const trii_part_reader *reader, int64_t index);
/* All of it is a piece, of one rank. */
bool trii_part_is_one_piece(const trii_part_reader *reader, int64_t index);
/* -1: there is none. */
int64_t trii_part_find(const trii_part_reader *reader, const char *name);
/* n of its elements from `first` on, counted row-major, until the next call of this or of _load. */
tri_status trii_part_range(trii_part_reader *reader, int64_t index, int64_t first, int64_t n,
                           const void **data_out) TRI_MUST_CHECK;
/* Fills the tensor, or where it holds a piece that piece. Dtype and the whole shape are those that
 * are stored. */
tri_status trii_part_load(trii_part_reader *reader, int64_t index,
                          tri_tensor *tensor) TRI_MUST_CHECK;

#endif
