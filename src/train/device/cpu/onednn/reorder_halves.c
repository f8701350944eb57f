/*
 * reorder_halves.c - changes of layout of 16-bit elements without the library, which takes a
 * hundred nanoseconds an element for them where there is no AVX-512. A blocked dimension is seen as
 * several, so that both orders are strides, and element_moves.c does the rest. Called by layouts.c.
 */
#include "train/device/cpu/onednn/handles.h"

/* A dimension of one side, from the innermost of its blocks on. */
typedef struct factors {
    int n;
    int64_t size[TRI_MAX_DIMS], stride[TRI_MAX_DIMS];
} factors;

static bool factorise(const dnnl_memory_desc_t *md, int d, factors *f)
{
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    int64_t inner = 1, rest = md->dims[d];

    f->n = 0;
    for (int k = b->inner_nblks - 1; k >= 0; k--) {
        if (b->inner_idxs[k] == d) {
            if (f->n == TRI_MAX_DIMS - 1)
                return false;
            f->size[f->n] = b->inner_blks[k];
            f->stride[f->n++] = inner;
            rest /= b->inner_blks[k];
        }
        inner *= b->inner_blks[k];
    }
    f->size[f->n] = rest;
    f->stride[f->n++] = b->strides[d];
    return true;
}

/* Takes a piece off the innermost factor that is left. */
static void take_off(factors *f, int *at, int64_t piece)
{
    f->size[*at] /= piece;
    f->stride[*at] *= piece;
    if (f->size[*at] == 1)
        ++*at;
}

/* The factors into which both sides cut dimension d. */
static bool split(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, int d,
                  trii_type *type, int64_t *from_stride, int64_t *to_stride)
{
    factors a, b;
    int i = 0, j = 0;

    if (!factorise(from, d, &a) || !factorise(to, d, &b))
        return false;
    while (i < a.n && j < b.n) {
        int64_t piece = a.size[i] < b.size[j] ? a.size[i] : b.size[j];

        if (type->ndim == TRI_MAX_DIMS || a.size[i] % piece != 0 || b.size[j] % piece != 0)
            return false;
        type->shape[type->ndim] = piece;
        from_stride[type->ndim] = a.stride[i];
        to_stride[type->ndim++] = b.stride[j];
        take_off(&a, &i, piece);
        take_off(&b, &j, piece);
    }
    return true;
}

tri_status trii_onednn_move_halves(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                   trii_kernel **kernel_out)
{
    trii_type type = {.dtype = TRI_DTYPE_BF16};
    int64_t from_stride[TRI_MAX_DIMS], to_stride[TRI_MAX_DIMS];

    for (int d = 0; d < from->ndims; d++) {
        if (from->dims[d] != 1 && !split(from, to, d, &type, from_stride, to_stride))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "a change between blocks of different sizes");
    }
    return trii_cpu_move(&type, from_stride, 0, to_stride, false, "reorder:moves", kernel_out);
}
