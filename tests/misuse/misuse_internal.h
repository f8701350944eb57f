/*
 * misuse_internal.h - what the files that make arguments share.
 */
#ifndef TEST_MISUSE_INTERNAL_H
#define TEST_MISUSE_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "misuse/misuse.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline bool is(const char *type, const char *what)
{
    return strcmp(type, what) == 0;
}

/* misuse_objects.c: an object that works, for parameter i of the row; NULL where it cannot be made
 * here, as after tri_finalize. */
void *misuse_good_object(const misuse_pick *p, int i);
tri_status misuse_good_checkpoint(tri_checkpoint **checkpoint_out);
const char *misuse_good_file(void);
const char *misuse_good_torch_file(void);
const tri_batch_norm_args *misuse_good_norm(void);
extern const tri_rpc_function misuse_good_rpc_function;

/* misuse_structs.c: a structure of what the type names, filled in; NULL: another type, or its
 * defaults do. */
const void *misuse_good_struct(const char *type);

/* misuse_files.c: a text that the function understands; where it is a path, the file is there. */
const char *misuse_good_text(const misuse_pick *p, int i);
extern const char misuse_good_png[];
extern const size_t misuse_good_png_bytes;

#endif
