/*
 * torch_storages.h - where the elements of a file of torch.save are, by the keys of its storages.
 */
#ifndef TRII_TORCH_STORAGES_H
#define TRII_TORCH_STORAGES_H

#include "train/torch/pickle.h"
#include "train/torch/zip_index.h"

typedef struct trii_torch_place {
    const char *key;
    const trii_torch_storage *storage; /* one that has it */
    uint64_t at, bytes;
    trii_zip_entry *entry; /* NULL: legacy file, which has no checksums */
} trii_torch_place;

typedef struct trii_torch_places {
    trii_torch_place *places; /* [n], by key */
    int64_t n;
} trii_torch_places;

/* One place for each key that the list of storages has; none is known yet. NO_MEMORY. */
tri_status trii_torch_places_list(const trii_torch_storage *storages,
                                  trii_torch_places *places_out) TRI_MUST_CHECK;
void trii_torch_places_fini(trii_torch_places *places);
/* NULL: there is none. */
trii_torch_place *trii_torch_places_find(const trii_torch_places *places, const char *key);
/* Whether every storage has as many bytes as its place. Errors: FORMAT. */
tri_status trii_torch_places_check(const char *path, const trii_torch_places *places,
                                   const trii_torch_storage *storages) TRI_MUST_CHECK;

/* Whether the storage of a tensor has a checksum (CRC-32) that has not been compared yet; a caller
 * that has compared it says so by the other. */
bool trii_torch_has_unchecked(const tri_torch_file *file, const tri_torch_tensor *tensor,
                              uint32_t *crc_out);
void trii_torch_set_checked(const tri_torch_file *file, const tri_torch_tensor *tensor);

const char *trii_torch_path(const tri_torch_file *file); /* borrowed */

/* Whether a file begins as one of torch.save. */
bool trii_torch_is_file(const trii_mapping *map);
/* The parts of a file from before torch 1.6: several pickles, then the storages (torch_legacy.c).
 */
bool trii_torch_is_legacy(const trii_mapping *map);
/* pickled_out: the object; fills places_out, release it in any case. Errors: FORMAT, UNSUPPORTED,
 * NO_MEMORY. */
tri_status trii_torch_legacy_read(const char *path, const trii_mapping *map, trii_arena *arena,
                                  trii_pickled *pickled_out,
                                  trii_torch_places *places_out) TRI_MUST_CHECK;

#endif
