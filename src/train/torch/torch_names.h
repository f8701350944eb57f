/*
 * torch_names.h - the tensors of a file of torch.save, by the keys that lead to them.
 */
#ifndef TRII_TORCH_NAMES_H
#define TRII_TORCH_NAMES_H

#include "train/torch/torch_storages.h"

typedef struct trii_torch_names {
    tri_torch_tensor *tensors; /* [n], in the order of the values */
    int64_t n, room;
    int64_t *by_name; /* [n] */
} trii_torch_names;

/* Tells the tensors, those of the values too, where in the file their storages are. most: how many
 * tensors an honest file of its size leads to. Errors: FORMAT, UNSUPPORTED (a name with a byte 0),
 * NO_MEMORY. Release with trii_torch_names_fini in any case. */
tri_status trii_torch_names_read(const char *path, const trii_value *root,
                                 const trii_torch_places *places, uint64_t most, trii_arena *arena,
                                 trii_torch_names *names_out) TRI_MUST_CHECK;
void trii_torch_names_fini(trii_torch_names *names);
/* NULL: there is none. */
const tri_torch_tensor *trii_torch_names_find(const trii_torch_names *names, const char *name);

#endif
