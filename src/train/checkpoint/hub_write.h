/*
 * hub_write.h - a folder as huggingface's save_pretrained writes it: safetensors files of a bounded
 * size, model-00001-of-0000N.safetensors, and model.safetensors.index.json, which says where each
 * tensor is; model.safetensors alone if one file is enough.
 */
#ifndef TRII_HUB_WRITE_H
#define TRII_HUB_WRITE_H

#include <trireme/checkpoint.h>

#include "train/torch/feed.h"

typedef struct trii_hub {
    const char *path;                     /* of the folder: not there yet, or empty */
    const tri_safetensors_entry *entries; /* [n]; data is not read */
    int64_t n;
    const tri_metadata *meta; /* [n_meta]: of each file */
    int n_meta;
    uint64_t shard_bytes; /* of tensors in a file; one that is larger has a file of its own */
} trii_hub;

/* The folder appears when all of it is complete and on disk. Errors: IO (also: something is there),
 * NO_MEMORY, those of trii_safetensors_write_fed. */
tri_status trii_hub_write(const trii_hub *hub, const trii_feed *feed) TRI_MUST_CHECK;

#endif
