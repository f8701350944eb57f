/*
 * ckpt.h - `trireme ckpt`: its actions, one file each, and what they share.
 */
#ifndef TRIREME_CKPT_H
#define TRIREME_CKPT_H

#include <trireme/torch_file.h>

#include "train/checkpoint/convert.h"
#include "train/checkpoint/tensor_stream.h"

/* Prints what is in a file or a folder. Errors: those of reading it. */
tri_status ckpt_show(const char *path) TRI_MUST_CHECK;
/* Reads all of it, and prints what is damaged, which is no failure of the call. */
tri_status ckpt_verify(const char *path, bool *whole_out) TRI_MUST_CHECK;
/* what: from, to, and what the options say; kind: of `to`, or NULL: by its suffix. The exit status.
 */
int ckpt_convert(trii_conversion *what, const char *kind);

/* --- ckpt_kind.c ---------------------------------------------------------- */

typedef struct ckpt_place {
    char *own_path;       /* release with trii_free in any case */
    bool has_checkpoints; /* of Trireme, though they may be damaged */
} ckpt_place;

/* What the path leads to: itself, or the folder of the tag that its `latest` names. */
tri_status ckpt_place_of(const char *path, ckpt_place *place_out) TRI_MUST_CHECK;

typedef struct ckpt_kind {
    const char *text; /* "a file of safetensors" */
    bool has_checksums;
} ckpt_kind;

/* Not of a model in pieces. */
ckpt_kind ckpt_kind_of(trii_tensor_stream *stream);

/* --- ckpt_table.c --------------------------------------------------------- */

typedef struct ckpt_row {
    const char *name; /* borrowed */
    const char *dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    uint64_t bytes;
    char note[256]; /* what is odd about it, or nothing */
} ckpt_row;

void ckpt_table_print(const ckpt_row *rows, int64_t n);
/* The shape that a table has, of an entry that has it. */
ckpt_row ckpt_row_of(const tri_safetensors_entry *entry);
/* A text of a file on one line: control characters as '?', cut at `most` bytes (0: never). */
void ckpt_print_text(const char *text, size_t most);
void ckpt_print_bytes(uint64_t bytes); /* "123 bytes", "46.8 MB" */

/* --- ckpt_values.c -------------------------------------------------------- */

/* What a file of torch.save holds beside tensors, as a tree of lines. */
void ckpt_values_print(const tri_torch_value *root);

#endif
