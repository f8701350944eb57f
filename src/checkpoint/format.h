/*
 * format.h - the files of this room.
 *
 * safetensors:
 *
 *     u64 little-endian   n, the length of the header
 *     n bytes             JSON: {"__metadata__":{"key":"value",..},
 *                                "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},..}
 *                         padded by spaces to a multiple of 8
 *     then                the tensors' bytes, row-major, little-endian; offsets count from here;
 *                         no holes, no overlaps, nothing after the last
 *
 * A training checkpoint is a folder FOLDER/step-%012d with safetensors files and manifest.json:
 *
 *     {"format":"trireme checkpoint","version":1,
 *      "step":1234,"epoch":5,"seed":"42","step_number":1300,"metadata":{"key":"value",..},
 *      "parts":[{"file":"model.safetensors","bytes":4096,"xxh3":"0123456789abcdef"},..],
 *      "xxh3":"..."}        the checksum of the compact text of all that stands before it
 *
 * It is made as FOLDER/.tmp-..., every file synced, and renamed: a name step-N never shows less
 * than a whole checkpoint.
 */
#ifndef TRII_FORMAT_H
#define TRII_FORMAT_H

#include <trireme/checkpoint.h>

#include "base/compiler.h"

#define TRII_SAFETENSORS_MAX_HEADER UINT64_C(100000000)

/* Entries of a folder of checkpoints that are looked at. */
#define TRII_CHECKPOINT_MAX_NAMES 65536

/* tri_safetensors_write, and what was written: its bytes and their XXH3. */
tri_status trii_safetensors_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                                  const tri_metadata *meta, int n_meta, uint64_t *bytes_out,
                                  uint64_t *hash_out) TRI_MUST_CHECK;

/* One file of a checkpoint that is to be written. */
typedef struct trii_part {
    const char *file;
    const tri_safetensors_entry *entries;
    int64_t n;
} trii_part;

/* Writes FOLDER/step-N of these parts and removes the oldest beyond `keep`. */
tri_status trii_checkpoint_commit(const char *folder, const tri_checkpoint_info *info,
                                  int64_t step_number, const trii_part *parts, int n_parts,
                                  int keep) TRI_MUST_CHECK;

/* What a manifest says. */
typedef struct trii_manifest {
    tri_checkpoint_info info; /* its texts are owned */
    int64_t step_number;
    tri_metadata *meta; /* = info.meta */
} trii_manifest;

/* Reads DIR/manifest.json and verifies it and every part. */
tri_status trii_manifest_read(const char *dir, trii_manifest *manifest_out) TRI_MUST_CHECK;
void trii_manifest_fini(trii_manifest *manifest);
/* The newest checkpoint below `folder` (or `folder` itself) that is whole: its folder (release
 * with trii_free) and manifest. */
tri_status trii_checkpoint_find(const char *folder, char **dir_out,
                                trii_manifest *manifest_out) TRI_MUST_CHECK;

/* "a/b"; release with trii_free. NULL when memory is out. */
char *trii_path_join(const char *a, const char *b);

#endif
