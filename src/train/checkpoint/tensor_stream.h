/*
 * tensor_stream.h - the tensors of a file, a folder or a checkpoint's model, read in blocks and
 * checked on the way, for what does not want them in memory: `trireme ckpt`.
 */
#ifndef TRII_TENSOR_STREAM_H
#define TRII_TENSOR_STREAM_H

#include <trireme/torch_file.h>

#include "train/checkpoint/part_read.h"
#include "train/checkpoint/weights.h"
#include "train/torch/feed.h"

typedef struct trii_tensor_stream {
    tri_safetensors_entry *entries; /* [n]; no data; of a type that Trireme has not: dtype NONE */
    int64_t n;
    trii_weights weights; /* what is read; no kind if a checkpoint's model is in pieces: */
    struct trii_stream_part {
        char *dir;
        trii_manifest manifest;
        trii_part_reader reader;
    } * part;
    char *path; /* of the file that is open */
    int fd;
    char *block, *window; /* window: where elements that lie apart are gathered from */
} trii_tensor_stream;

/* What trii_weights_open takes, and a checkpoint of Trireme or a folder that has some, whose newest
 * whole one is taken. Close it in any case. Errors: NOT_FOUND, IO, NO_MEMORY, FORMAT, UNSUPPORTED.
 */
tri_status trii_tensor_stream_open(const char *path, trii_weights_scope scope,
                                   trii_tensor_stream *stream_out) TRI_MUST_CHECK;
void trii_tensor_stream_close(trii_tensor_stream *stream);
/* Gives a tensor's elements, row-major, in blocks. Its checksum is compared while they pass, so
 * that a failure may come last. Errors: IO, NO_MEMORY, FORMAT, the sink's. */
tri_status trii_tensor_stream_give(trii_tensor_stream *stream, int64_t index,
                                   const trii_sink *to) TRI_MUST_CHECK;
/* Whether a folder is a checkpoint of Trireme or has some, though they may be damaged. Errors: IO,
 * NO_MEMORY. */
tri_status trii_folder_has_checkpoints(const char *folder, bool *has_out) TRI_MUST_CHECK;

#endif
