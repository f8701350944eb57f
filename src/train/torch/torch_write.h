/*
 * torch_write.h - tri_torch_write for tensors that are not in memory.
 */
#ifndef TRII_TORCH_WRITE_H
#define TRII_TORCH_WRITE_H

#include <trireme/torch_file.h>

#include "train/torch/feed.h"

/* feed: NULL: the elements are where `data` of the entries says; otherwise that is not read.
 * Errors: those of tri_torch_write and of the feed. */
tri_status trii_torch_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                            const trii_feed *feed) TRI_MUST_CHECK;

#endif
