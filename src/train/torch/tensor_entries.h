/*
 * tensor_entries.h - what the writers of tensors, here and of safetensors, ask of their entries.
 */
#ifndef TRII_TENSOR_ENTRIES_H
#define TRII_TENSOR_ENTRIES_H

#include <trireme/checkpoint.h>

#include "base/compiler.h"

/* Whether each has a name of its own in UTF-8, a dtype that tensors have, and the bytes of its
 * shape. has_data: and data. Errors: INVALID_ARG (names the entry), NO_MEMORY. */
tri_status trii_entries_check(const tri_safetensors_entry *entries, int64_t n,
                              bool has_data) TRI_MUST_CHECK;

#endif
