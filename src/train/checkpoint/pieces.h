/*
 * pieces.h - tensors that no file has whole: each rank has written the pieces that it held, and the
 * manifest says where they are (format.h, "tensors").
 *
 * A piece is a box of the tensor, or of its elements as one dimension (train/tensor/piece.h).
 * Together the pieces of a tensor are all of it, and no element is in two. A reader says which
 * box it wants, and gets it from the boxes that are there: how many ranks wrote them, and how they
 * had divided the tensor, does not matter.
 */
#ifndef TRII_PIECES_H
#define TRII_PIECES_H

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "base/compiler.h"
#include "os/file.h"
#include "train/tensor/piece.h"

struct json_t;

/* --- in a manifest -------------------------------------------------------- */

typedef struct trii_stored_piece {
    trii_piece piece;
    int file;    /* index among the manifest's */
    uint64_t at; /* of its first byte in the file */
    uint64_t checksum;
} trii_stored_piece;

typedef struct trii_stored_tensor {
    char *name; /* "PART/NAME": optimizer/state.weight.exp_avg */
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    trii_stored_piece *pieces; /* [n]; none is empty */
    int64_t n;
} trii_stored_tensor;

/* All of a checkpoint, by name. */
typedef struct trii_stored {
    trii_stored_tensor *tensors; /* [n] */
    int64_t n;
} trii_stored;

/* A file that a manifest lists. */
typedef struct trii_listed {
    char *name;
    uint64_t bytes, checksum;
} trii_listed;

/* Reads the list and checks it against itself and the files' sizes. path: the manifest's, for
 * messages. Errors: FORMAT (names the tensor, the piece and the file), NO_MEMORY; then nothing is
 * left. */
tri_status trii_stored_read(const char *path, const struct json_t *list, const trii_listed *files,
                            int n_files, trii_stored *stored_out) TRI_MUST_CHECK;
void trii_stored_fini(trii_stored *stored);
/* The tensors of one part ("optimizer"), which are in a row. */
const trii_stored_tensor *trii_stored_part(const trii_stored *stored, const char *part,
                                           int64_t *n_out);
/* The first piece in a file that does not have its checksum, and its tensor; NULL: none. */
const trii_stored_tensor *trii_stored_damaged(const trii_stored *stored, int file,
                                              const trii_mapping *map,
                                              const trii_stored_piece **piece_out);

/* --- to be saved ---------------------------------------------------------- */

/* What a box is a part of. */
typedef struct trii_box {
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    trii_piece piece;
} trii_box;

/* What this rank saves of tensors that are in pieces. Of each it has an entry, though that may be
 * empty. */
typedef struct trii_piece_list {
    tri_group *group; /* NULL: all tensors are whole */
    int rank;
    const tri_safetensors_entry *entries; /* [n]; named PART/NAME; data: the box's elements */
    const trii_box *boxes;                /* [n] */
    int64_t n;
} trii_piece_list;

/* What ranks say of the files that they have written: {"part":..,"tensors":..}. */
typedef struct trii_pieces_told {
    char *own;     /* this rank's text */
    void *all;     /* rank 0: those of all, one after the other */
    size_t *bytes; /* their lengths: [size] */
    int size;
    bool has_failed; /* a rank could not write, and all know */
} trii_pieces_told;

/* Writes this rank's file below `dir`, unless `status` is a failure already, and tells rank 0.
 * Collective; blocks. OK: the files of all ranks are on disk. Otherwise the failure of the lowest
 * rank that has one, or the group's. Release with trii_pieces_told_fini in any case. */
tri_status trii_pieces_tell(const char *dir, const trii_piece_list *list, tri_status status,
                            trii_pieces_told *told) TRI_MUST_CHECK;
void trii_pieces_told_fini(trii_pieces_told *told);
/* Rank 0: adds what it was told to a manifest's lists of files and of tensors, and checks that they
 * are whole tensors. */
tri_status trii_pieces_join(const char *dir, const trii_pieces_told *told, struct json_t *parts,
                            struct json_t *tensors) TRI_MUST_CHECK;

/* What this rank holds of a tensor; NULL: all of it. */
const trii_held *trii_held_of(const tri_tensor *tensor);

/* --- ranks ---------------------------------------------------------------- */

/* snapshot.c. The group over which the state is in pieces, so that all its ranks save together;
 * NULL: all is whole. Any argument may be NULL, and info has been checked. */
tri_group *trii_group_of_state(tri_module *module, tri_optimizer *optimizer,
                               const tri_checkpoint_info *info);

#endif
