/*
 * handles.h - engine, layouts and kernels on top of oneDNN's C interface; only for the files of
 * this folder.
 */
#ifndef TRII_ONEDNN_HANDLES_H
#define TRII_ONEDNN_HANDLES_H

#include <dnnl.h>

#include "base/err.h"
#include "train/device/cpu/onednn/onednn.h"

/* One for the process; made on first use (a millisecond), limited to TRI_ISA. Errors: INTERNAL. */
tri_status trii_onednn_engine(dnnl_engine_t *engine_out) TRI_MUST_CHECK;

/* OK, or the library's status as an error line: UNSUPPORTED for unimplemented, NO_MEMORY. */
tri_status trii_onednn_status(dnnl_status_t status, const char *what) TRI_MUST_CHECK;

/* sgemm_onednn.c: how the library's functions for products must read a matrix, 'N' or 'T', and the
 * distance of its rows, or columns. */
char trii_onednn_order(int64_t rows, int64_t cols, int64_t row, int64_t col, dnnl_dim_t *ld_out);

/* --- layouts.c ------------------------------------------------------------ */

/* The layout of a memory descriptor; NULL in *layout_out where its bytes are in plain order.
 * UNSUPPORTED if it is padded or not a blocked format. */
tri_status trii_onednn_layout(const dnnl_memory_desc_t *md,
                              const trii_layout **layout_out) TRI_MUST_CHECK;
/* The descriptor of a value: of its layout, or plain. */
tri_status trii_onednn_md(const trii_type *type, const trii_layout *layout,
                          dnnl_memory_desc_t *md_out) TRI_MUST_CHECK;
/* Plain order of dims. */
tri_status trii_onednn_plain_md(dnnl_data_type_t type, const int64_t *dims, int ndim,
                                dnnl_memory_desc_t *md_out) TRI_MUST_CHECK;
/* reorder_halves.c: a change of layout of 16-bit elements, without the library. UNSUPPORTED: blocks
 * of which neither contains the other. */
tri_status trii_onednn_move_halves(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                   trii_kernel **kernel_out) TRI_MUST_CHECK;
/* f32; bf16 for any 16 bits. */
dnnl_data_type_t trii_onednn_type(tri_dtype dtype);
/* Whether there is padding that somebody must keep zero. */
bool trii_onednn_padded(const dnnl_memory_desc_t *md);

/* --- kernel.c ------------------------------------------------------------- */

#define TRII_ONEDNN_ARGS 5

/* One operand of a primitive: DNNL_ARG_*, its descriptor, where its pointer is among the
 * kernel's arguments. */
typedef struct trii_onednn_arg {
    int arg;
    const dnnl_memory_desc_t *md;
    int index;
} trii_onednn_arg;

/* A kernel that runs the primitive; the scratchpad is argument n_args. The name is "prefix:" and
 * the implementation's. */
tri_status trii_onednn_kernel(const_dnnl_primitive_desc_t pd, const char *prefix,
                              const trii_onednn_arg *args, int n_operands, int n_args,
                              trii_kernel **kernel_out) TRI_MUST_CHECK;
/* primitives.c: primitives, shared by kernels. */
typedef struct trii_onednn_primitive trii_onednn_primitive;
/* Compiles unless there is one for the same operands and the same number of threads. */
dnnl_status_t trii_onednn_primitive_get(const_dnnl_primitive_desc_t pd, const trii_onednn_arg *args,
                                        int n, trii_onednn_primitive **primitive_out);
dnnl_primitive_t trii_onednn_primitive_of(const trii_onednn_primitive *primitive);
void trii_onednn_primitive_unref(trii_onednn_primitive *primitive);

/* pieces.c: kernels for 1, 2, 4.. images that together make the kernel for a batch. */
typedef struct trii_onednn_batch {
    int64_t n;
    const trii_onednn_arg *operands; /* of the whole */
    const bool *in_images;           /* for each operand: dimension 0 is the batch */
    int n_operands, n_args;          /* the scratch is argument n_args */
    /* the argument, in f32, to which all pieces contribute; -1 = none */
    int sum;
    size_t sum_bytes;
} trii_onednn_batch;
/* Makes a kernel for n images, with the arguments of the whole. */
typedef tri_status (*trii_onednn_piece_fn)(const void *of, int64_t n, trii_kernel **kernel_out);
/* Errors: those of make(). */
tri_status trii_onednn_pieces(const trii_onednn_batch *batch, const void *of,
                              trii_onednn_piece_fn make, trii_kernel **kernel_out) TRI_MUST_CHECK;
/* Whether batches of this kind (variety.h) come in too many sizes to compile for each. */
bool trii_onednn_varies(uint64_t kind, int64_t batch);
/* The descriptor of n images of a batch; false if images are not contiguous. */
bool trii_onednn_images(const dnnl_memory_desc_t *md, int64_t n, dnnl_memory_desc_t *some_out);

/* compose.c: two kernels as one. Their arguments are those of the whole (n_args), then the copy,
 * which is copy_bytes at the start of the whole's scratch, then their own scratch. */
typedef struct trii_onednn_pair {
    trii_kernel *first, *second;
    int main; /* 0 or 1: which of them gives the name */
    size_t copy_bytes;
    int n_args;
} trii_onednn_pair;
/* Takes both kernels (either may be NULL if status is a failure, which it then returns). */
tri_status trii_onednn_compose(trii_onednn_pair *pair, tri_status status,
                               trii_kernel **kernel_out) TRI_MUST_CHECK;
/* A reorder between two arguments, which may also convert. */
tri_status trii_onednn_copy(const dnnl_memory_desc_t *from, int from_arg,
                            const dnnl_memory_desc_t *to, int to_arg, int n_args,
                            trii_kernel **kernel_out) TRI_MUST_CHECK;
/* Attributes of all our primitives; owned by this file. */
tri_status trii_onednn_attr(dnnl_primitive_attr_t *attr_out) TRI_MUST_CHECK;

#endif
