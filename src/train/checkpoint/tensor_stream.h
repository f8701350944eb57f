/*
 * tensor_stream.h - the tensors of a file or of a checkpoint's model, read in blocks and checked on
 * the way, for what does not want them in memory: `trireme ckpt`.
 */
#ifndef TRII_TENSOR_STREAM_H
#define TRII_TENSOR_STREAM_H

#include <trireme/torch_file.h>

#include "train/checkpoint/part_read.h"
#include "train/torch/feed.h"

typedef struct trii_tensor_stream {
    char *path;                     /* of the file that is read */
    tri_safetensors_entry *entries; /* [n]; no data; of a type that Trireme has not: dtype NONE */
    int64_t n;
    tri_safetensors *safetensors; /* one of these is there; */
    tri_torch_file *torch;
    struct trii_stream_part {
        char *dir;
        trii_manifest manifest;
        trii_part_reader reader;
    } * part;       /* this one if the model is in pieces */
    bool is_legacy; /* torch: from before 1.6 */
    int fd;
    char *block;
} trii_tensor_stream;

/* Which kind of file it is, its contents say; a folder is a checkpoint, or has some, whose newest
 * whole one is taken. Close it in any case. Errors: NOT_FOUND, IO, NO_MEMORY, FORMAT, UNSUPPORTED.
 */
tri_status trii_tensor_stream_open(const char *path, trii_tensor_stream *stream_out) TRI_MUST_CHECK;
/* "safetensors", "torch.save (ZIP)", ... */
const char *trii_tensor_stream_kind(const trii_tensor_stream *stream);
void trii_tensor_stream_close(trii_tensor_stream *stream);
/* Gives a tensor's elements, row-major, in blocks. Its checksum is compared while they pass, so
 * that a failure may come last. Errors: IO, NO_MEMORY, FORMAT, the sink's. */
tri_status trii_tensor_stream_give(trii_tensor_stream *stream, int64_t index,
                                   const trii_sink *to) TRI_MUST_CHECK;

#endif
