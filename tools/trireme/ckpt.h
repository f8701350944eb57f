/*
 * ckpt.h - `trireme ckpt`: its actions, one file each, and what they share.
 */
#ifndef TRIREME_CKPT_H
#define TRIREME_CKPT_H

#include <trireme/torch_file.h>

/* Prints what is in a file or a folder. Errors: those of reading it. */
tri_status ckpt_show(const char *path) TRI_MUST_CHECK;
/* Reads all of it, and prints what is damaged, which is no failure of the call. */
tri_status ckpt_verify(const char *path, bool *whole_out) TRI_MUST_CHECK;
/* kind: "safetensors", "torch", or NULL: by the suffix of `to`. prefix: as trii_conversion's. */
int ckpt_convert(const char *from, const char *to, const char *kind, const char *prefix);

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
