/*
 * format.h - the files of this room: their formats, and the functions that read and write them.
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
 * A training checkpoint is a folder FOLDER/step-%012d with safetensors files, texts (NAME.json) and
 * manifest.json, which lists them; a reader passes over those that it does not know:
 *
 *     {"format":"trireme checkpoint","version":2,"sequence":7,
 *      "step":1234,"epoch":5,"metadata":{"key":"value",..},
 *      "random":{"seed":"42","stream":"0","step":1300,
 *                "generator":"(624 words of 8 digits)","next":17},
 *      "parts":[{"file":"model.safetensors","bytes":4096,"xxh3":"0123456789abcdef"},..],
 *      "xxh3":"..."}        the checksum of the compact text of everything before it
 *
 * Where ranks hold pieces of tensors (pieces.h) it is "version":3, each rank has written a file of
 * its own, pieces.rankR.safetensors, which is among the parts, and there is one more list:
 *
 *      "tensors":[{"name":"optimizer/state.weight.exp_avg","dtype":"float32","shape":[5,8],
 *                  "pieces":[{"file":"pieces.rank0.safetensors","at":456,
 *                             "offset":[0],"size":[20],"xxh3":"..."},..]},..]
 *
 * It has what PART.safetensors has not: tensor NAME of a part is either whole in that file, which
 * rank 0 has written, or listed here as PART/NAME. `at` counts from the file's first byte, `offset`
 * and `size` elements: one number for each dimension of the shape; or one in all, for a range of
 * the elements in row-major order. A file's tensors have the same names, so that it can be read as
 * it is. Pieces are there once, without holes, and none is empty.
 *
 * It is made as FOLDER/.tmp-step-..., with {"format":"trireme checkpoint"} as manifest.json until
 * all else is there, so that what a killed writer leaves can be told from a user's folder. Every
 * file is synced, and the folder is renamed: a name step-N always shows a whole checkpoint.
 * `sequence` counts the saves of a folder: the highest is the newest, whatever its step. A lock on
 * FOLDER keeps savers apart. Only folders with exactly such a name that hold our files are ever
 * removed.
 */
#ifndef TRII_FORMAT_H
#define TRII_FORMAT_H

#include <trireme/checkpoint.h>

#include "base/compiler.h"
#include "train/checkpoint/pieces.h"
#include "train/nn/random_state.h"
#include "train/torch/feed.h"

#define TRII_SAFETENSORS_MAX_HEADER UINT64_C(100000000)

#define TRII_CHECKPOINT_VERSION 3      /* the highest that is read */
#define TRII_CHECKPOINT_WHOLE 2        /* all tensors are whole: earlier releases read it, too */
#define TRII_PIECES_FILE "pieces.rank" /* then the rank and the suffix */
#define TRII_TENSORS_SUFFIX ".safetensors" /* of a part that holds tensors */
#define TRII_TEXT_SUFFIX ".json"           /* of one that holds text */
#define TRII_MODEL_NAME "model"
#define TRII_OPTIMIZER_NAME "optimizer"
#define TRII_MODEL_FILE TRII_MODEL_NAME TRII_TENSORS_SUFFIX
#define TRII_OPTIMIZER_FILE TRII_OPTIMIZER_NAME TRII_TENSORS_SUFFIX
#define TRII_MANIFEST_FILE "manifest.json"
#define TRII_NO_MANIFEST_YET "{\"format\":\"trireme checkpoint\"}"
#define TRII_MAX_EXTRAS 8      /* files of tensors beside those two; also of texts */
#define TRII_MAX_EXTRA_NAME 40 /* letters */
#define TRII_FILE_NAME 64      /* room for the name of a file with its suffix */
#define TRII_TEMPORARY ".tmp-" /* prefix of a checkpoint's name while it is made */

/* What has been written, with its XXH3: the file, and the data of each entry. */
typedef struct trii_written {
    uint64_t bytes, hash;
    struct trii_written_entry {
        uint64_t at; /* of its first byte in the file */
        uint64_t hash;
    } * entries; /* [n], the caller's; NULL: not wanted */
} trii_written;

/* tri_safetensors_write; fills *written. */
tri_status trii_safetensors_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                                  const tri_metadata *meta, int n_meta,
                                  trii_written *written) TRI_MUST_CHECK;
/* The same, of elements that the feed gives, in the order of the file; `data` of the entries is not
 * read, and there are no checksums. Errors: also the feed's. */
tri_status trii_safetensors_write_fed(const char *path, const tri_safetensors_entry *entries,
                                      int64_t n, const tri_metadata *meta, int n_meta,
                                      const trii_feed *feed) TRI_MUST_CHECK;
/* Of pointers to entries, for qsort: which of them is first in a file. */
int trii_safetensors_compare(const void *a, const void *b);
/* Where in the file its first byte is. */
uint64_t trii_safetensors_offset(const tri_safetensors *file, const tri_safetensors_entry *entry);
const char *trii_safetensors_path(const tri_safetensors *file); /* borrowed */
/* The file's metadata, as in the file. Borrowed. */
const tri_metadata *trii_safetensors_texts(const tri_safetensors *file, int64_t *n_out);

/* One file of a checkpoint that is to be written. */
typedef struct trii_part {
    const char *file;
    const tri_safetensors_entry *entries;
    int64_t n;
} trii_part;

/* All that one checkpoint will hold, and which earlier ones stay. */
typedef struct trii_save {
    const tri_checkpoint_info *info; /* its extras are not read, but these two: */
    const trii_part *parts;          /* [n_parts] */
    int n_parts;
    const tri_metadata *texts; /* [n_texts]: the key is the name of the file without its suffix */
    int n_texts;
    const trii_random_state *random;
    int keep;
    const int64_t *keep_steps; /* [n_keep_steps] */
    int n_keep_steps;
    tri_group *ranks; /* that save together; NULL: this process alone */
    trii_piece_list pieces;
} trii_save;

/* Writes FOLDER/step-N and removes what need not stay. With ranks: collective over them, of whom
 * rank 0 writes all but the files of pieces, and the parts of the others are not read; all ranks
 * return the same. */
tri_status trii_checkpoint_commit(const char *folder, const trii_save *save) TRI_MUST_CHECK;

/* The steps of that, which a checkpoint from another host takes, too (incoming.c). Makes the folder
 * and locks it against other writers; close with trii_folder_unlock. */
tri_status trii_checkpoint_claim(const char *folder, int *lock_out) TRI_MUST_CHECK;
/* Makes the folder under its temporary name; fails if that or the final one is somebody else's. */
tri_status trii_checkpoint_begin(const char *temporary, const char *final) TRI_MUST_CHECK;
/* Syncs and renames it. An earlier one of that name has the temporary name then. */
tri_status trii_checkpoint_publish(const char *folder, const char *temporary,
                                   const char *final) TRI_MUST_CHECK;

/* What a manifest says. */
typedef struct trii_manifest {
    tri_checkpoint_info info; /* without extras; its texts are owned */
    int64_t sequence;
    uint64_t checksum; /* of the manifest: what tells one checkpoint from another */
    trii_random_state random;
    tri_metadata *meta; /* = info.meta */
    trii_listed *files; /* [n_files]: every part */
    int n_files;
    trii_stored stored;  /* what of the tensors is in pieces */
    tri_metadata *texts; /* [n_texts]: as trii_save's */
    int n_texts;
} trii_manifest;

/* Reads DIR/manifest.json and verifies it and every part. */
tri_status trii_manifest_read(const char *dir, trii_manifest *manifest_out) TRI_MUST_CHECK;
void trii_manifest_fini(trii_manifest *manifest);
bool trii_manifest_has(const trii_manifest *manifest, const char *file);
/* A part's entry in the list: NULL when memory is out. */
struct json_t *trii_manifest_part(const char *file, uint64_t bytes, uint64_t checksum);
/* Adds what an entry says to files[*n_inout]; path: the manifest's. Errors: FORMAT, NO_MEMORY. */
tri_status trii_listed_read(const char *path, const struct json_t *part, trii_listed *files,
                            int *n_inout) TRI_MUST_CHECK;
void trii_listed_free(trii_listed *files, int n);
/* A checksum's text. */
struct json_t *trii_manifest_hex(uint64_t value);
/* The checksum that an object of a manifest has under "xxh3", 16 hexadecimal digits. False: none.
 */
bool trii_manifest_checksum(const struct json_t *object, uint64_t *value_out);
/* Compares a manifest with its own checksum, which is taken out of it. FORMAT: it is damaged;
 * NO_MEMORY. */
tri_status trii_manifest_is_whole(struct json_t *root) TRI_MUST_CHECK;
/* The newest checkpoint below `folder` (or `folder` itself) that is complete: its folder (release
 * with trii_free) and manifest. */
tri_status trii_checkpoint_find(const char *folder, char **dir_out,
                                trii_manifest *manifest_out) TRI_MUST_CHECK;

/* A checkpoint of a folder, by name; nothing of it has been verified. */
typedef struct trii_saved {
    char *name;       /* "step-..." */
    int64_t step;     /* from the name */
    int64_t sequence; /* -1 = no whole manifest says */
    bool is_ours;     /* may be removed */
} trii_saved;

/* The checkpoints of a folder, newest first; release with trii_saved_free. A missing folder has
 * none. */
tri_status trii_saved_list(const char *folder, trii_saved **saved_out, int *n_out) TRI_MUST_CHECK;
void trii_saved_free(trii_saved *saved, int n);
/* Removes what killed writers left; the caller holds the folder's lock. */
tri_status trii_saved_sweep(const char *folder) TRI_MUST_CHECK;
/* What DIR is. */
typedef struct trii_saved_look {
    bool counts;       /* a checkpoint, even a damaged one, or one that cannot be looked into */
    bool is_ours;      /* it has a manifest that says so, or nothing but our files; no link */
    bool has_manifest; /* as far as that can be known */
    int64_t sequence;  /* -1 = no whole manifest says */
} trii_saved_look;

trii_saved_look trii_saved_look_at(const char *dir);
/* Removes FOLDER/NAME; a failure goes to the log. */
void trii_saved_remove(const char *folder, const char *name);

/* "a/b"; release with trii_free. NULL when memory is out. */
char *trii_path_join(const char *a, const char *b);
/* A file in the folder of another, alike. */
char *trii_path_beside(const char *path, const char *name);

#endif
