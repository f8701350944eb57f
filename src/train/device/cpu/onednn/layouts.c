/*
 * layouts.c - oneDNN's blocked formats as layouts, and reorders between them.
 *
 * Only formats without padding become layouts: their elements are those of the plain tensor in
 * another order, so element-wise kernels and communication need not know them.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "train/device/cpu/onednn/handles.h"
#include "train/device/cpu/variety.h"
#include "train/graph/step/type.h"
#include "os/thread.h"

typedef struct layout {
    trii_layout base;
    struct layout *next;
    dnnl_memory_desc_t md;
    int block; /* of images: 8 or 16; 0 = something else */
    bool channels_last;
    char name[48];
} layout;

/* All layouts of the process, never freed: there are as many as kinds of operands. */
static layout *layouts; /* guarded by layouts_mutex */
static trii_mutex layouts_mutex = TRII_MUTEX_INITIALIZER;

static const layout *layout_of(const trii_layout *base)
{
    return (const layout *)base;
}

/* In blocked formats the position of an element is a sum over the dimensions of a function of its
 * index in that dimension: this one. */
static int64_t position(const dnnl_memory_desc_t *md, int d, int64_t index)
{
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    int64_t inner = 1, at = 0;

    for (int k = b->inner_nblks - 1; k >= 0; k--) {
        if (b->inner_idxs[k] == d) {
            at += index % b->inner_blks[k] * inner;
            index /= b->inner_blks[k];
        }
        inner *= b->inner_blks[k];
    }
    return at + index * b->strides[d];
}

static bool is_plain_order(const dnnl_memory_desc_t *md)
{
    int64_t stride = 1;

    for (int d = md->ndims - 1; d >= 0; d--) {
        for (int64_t i = 0; i < md->dims[d]; i++) {
            if (position(md, d, i) != i * stride)
                return false;
        }
        stride *= md->dims[d];
    }
    return true;
}

static size_t element_size(const dnnl_memory_desc_t *md)
{
    return md->data_type == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);
}

bool trii_onednn_padded(const dnnl_memory_desc_t *md)
{
    size_t elems = 1;

    for (int d = 0; d < md->ndims; d++) {
        elems *= (size_t)md->dims[d];
        if (md->padded_dims[d] != md->dims[d])
            return true;
    }
    return md->format_kind != dnnl_blocked || md->offset0 != 0 || md->extra.flags != 0 ||
           dnnl_memory_desc_get_size(md) != elems * element_size(md);
}

/* Copies elements between plain order and the descriptor's. */
static tri_status convert(const trii_layout *base, const void *from, void *to, bool to_plain)
{
    const dnnl_memory_desc_t *md = &layout_of(base)->md;
    size_t size = element_size(md);
    const char *src = from;
    char *dst = to;
    int64_t dims[5] = {1, 1, 1, 1, 1}, total = 0, *table, *at[5];
    int first = 5 - md->ndims;
    int64_t plain = 0;

    for (int d = 0; d < md->ndims; d++)
        dims[first + d] = md->dims[d];
    for (int d = 0; d < 5; d++)
        total += dims[d];
    table = trii_alloc((size_t)total, sizeof(*table), "layout change");
    if (table == NULL)
        return TRI_ERR_NO_MEMORY;
    at[0] = table;
    for (int d = 0; d < 5; d++) {
        for (int64_t i = 0; i < dims[d]; i++)
            at[d][i] = d >= first ? position(md, d - first, i) : 0;
        if (d < 4)
            at[d + 1] = at[d] + dims[d];
    }
    for (int64_t a = 0; a < dims[0]; a++) {
        for (int64_t b = 0; b < dims[1]; b++) {
            for (int64_t c = 0; c < dims[2]; c++) {
                for (int64_t d = 0; d < dims[3]; d++) {
                    int64_t row = at[0][a] + at[1][b] + at[2][c] + at[3][d];

                    for (int64_t e = 0; e < dims[4]; e++, plain++) {
                        size_t here = (size_t)plain * size, there = (size_t)(row + at[4][e]) * size;

                        memcpy(dst + (to_plain ? here : there), src + (to_plain ? there : here),
                               size);
                    }
                }
            }
        }
    }
    trii_free(table);
    return TRI_OK;
}

static tri_status layout_to_plain(const trii_layout *base, const void *src, void *dst)
{
    return convert(base, src, dst, true);
}

static tri_status layout_from_plain(const trii_layout *base, const void *src, void *dst)
{
    return convert(base, src, dst, false);
}

/* "aBcd16b": letters in the order of the outer strides, a capital one is blocked, then the
 * blocks from the outermost. */
static void write_name(layout *l)
{
    const dnnl_blocking_desc_t *b = &l->md.format_desc.blocking;
    bool written[DNNL_MAX_NDIMS] = {false}, blocked[DNNL_MAX_NDIMS] = {false};
    size_t n = 0;

    for (int k = 0; k < b->inner_nblks; k++)
        blocked[b->inner_idxs[k]] = true;
    for (int i = 0; i < l->md.ndims; i++) {
        int best = -1;

        for (int d = 0; d < l->md.ndims; d++) {
            if (!written[d] && (best < 0 || b->strides[d] > b->strides[best]))
                best = d;
        }
        written[best] = true;
        l->name[n++] = (char)((blocked[best] ? 'A' : 'a') + best);
    }
    for (int k = 0; k < b->inner_nblks && n + 8 < sizeof(l->name); k++)
        n += (size_t)snprintf(l->name + n, sizeof(l->name) - n, "%d%c", (int)b->inner_blks[k],
                              (char)('a' + b->inner_idxs[k]));
    l->name[n] = '\0';
}

static int block_of(const dnnl_memory_desc_t *md)
{
    const int blocks[2] = {16, 8};
    const dnnl_format_tag_t tags[2] = {dnnl_aBcd16b, dnnl_aBcd8b};

    for (int k = 0; md->ndims == 4 && k < 2; k++) {
        dnnl_memory_desc_t other;

        if (md->dims[1] % blocks[k] == 0 &&
            dnnl_memory_desc_init_by_tag(&other, 4, md->dims, md->data_type, tags[k]) ==
                dnnl_success &&
            dnnl_memory_desc_equal(&other, md))
            return blocks[k];
    }
    return 0;
}

static bool is_channels_last(const dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t other;

    return md->ndims == 4 && md->data_type == dnnl_bf16 &&
           dnnl_memory_desc_init_by_tag(&other, 4, md->dims, md->data_type, dnnl_acdb) ==
               dnnl_success &&
           dnnl_memory_desc_equal(&other, md);
}

tri_status trii_onednn_layout(const dnnl_memory_desc_t *md, const trii_layout **layout_out)
{
    layout *l;

    if (trii_onednn_padded(md) || md->ndims > 5)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: a padded or opaque layout");
    if (is_plain_order(md)) {
        *layout_out = NULL;
        return TRI_OK;
    }
    trii_mutex_lock(&layouts_mutex);
    for (l = layouts; l != NULL && !dnnl_memory_desc_equal(&l->md, md); l = l->next)
        ;
    if (l == NULL) {
        l = trii_alloc(1, sizeof(*l), "layout");
        if (l == NULL) {
            trii_mutex_unlock(&layouts_mutex);
            return TRI_ERR_NO_MEMORY;
        }
        l->md = *md;
        l->block = block_of(md);
        l->channels_last = is_channels_last(md);
        write_name(l);
        l->base = (trii_layout){.name = l->name,
                                .bytes = dnnl_memory_desc_get_size(md),
                                .to_plain = layout_to_plain,
                                .from_plain = layout_from_plain};
        l->next = layouts;
        layouts = l;
    }
    trii_mutex_unlock(&layouts_mutex);
    *layout_out = &l->base;
    return TRI_OK;
}

tri_status trii_onednn_plain_md(dnnl_data_type_t type, const int64_t *dims, int ndim,
                                dnnl_memory_desc_t *md_out)
{
    static const dnnl_format_tag_t tags[] = {dnnl_a,   dnnl_a,    dnnl_ab,
                                             dnnl_abc, dnnl_abcd, dnnl_abcde};
    dnnl_dims_t copy = {1};

    if (ndim > 5)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: %d dimensions", ndim);
    for (int d = 0; d < ndim; d++)
        copy[d] = dims[d];
    return trii_onednn_status(
        dnnl_memory_desc_init_by_tag(md_out, ndim > 0 ? ndim : 1, copy, type, tags[ndim]),
        "memory descriptor");
}

/* f16, in which the library does not compute on processors, is moved like any 16 bits. */
dnnl_data_type_t trii_onednn_type(tri_dtype dtype)
{
    return trii_dtype_is_half(dtype) ? dnnl_bf16 : dnnl_f32;
}

tri_status trii_onednn_md(const trii_type *type, const trii_layout *base,
                          dnnl_memory_desc_t *md_out)
{
    if (base != NULL) {
        *md_out = layout_of(base)->md;
        return TRI_OK;
    }
    return trii_onednn_plain_md(trii_onednn_type(type->dtype), type->shape, type->ndim, md_out);
}

static const trii_layout *layout_by_tag(const trii_type *type, dnnl_format_tag_t tag)
{
    const trii_layout *found = NULL;
    dnnl_memory_desc_t md;
    dnnl_dims_t dims;

    for (int d = 0; d < 4; d++)
        dims[d] = type->shape[d];
    if (dnnl_memory_desc_init_by_tag(&md, 4, dims, trii_onednn_type(type->dtype), tag) !=
            dnnl_success ||
        trii_onednn_layout(&md, &found) != TRI_OK)
        return NULL;
    return found;
}

const trii_layout *trii_cpu_blocked(const trii_type *type, int block)
{
    if (type->ndim != 4 || type->shape[1] % block != 0 || (block != 8 && block != 16))
        return NULL;
    return layout_by_tag(type, block == 16 ? dnnl_aBcd16b : dnnl_aBcd8b);
}

const trii_layout *trii_cpu_channels_last(const trii_type *type)
{
    if (type->dtype != TRI_DTYPE_BF16 || type->ndim != 4)
        return NULL;
    return layout_by_tag(type, dnnl_acdb);
}

const trii_layout *trii_cpu_layout_for(tri_dtype dtype, const trii_layout *base)
{
    const trii_layout *found = NULL;
    dnnl_memory_desc_t md = layout_of(base)->md;

    md.data_type = trii_onednn_type(dtype);
    return trii_onednn_layout(&md, &found) == TRI_OK ? found : NULL;
}

/* The largest block that divides the channels. */
static int unit_in_channels_last(int64_t channels)
{
    int block = 16;

    while (channels % block != 0)
        block /= 2;
    return block;
}

bool trii_cpu_images(const trii_type *type, const trii_layout *base, trii_images *images_out)
{
    const layout *l = base != NULL ? layout_of(base) : NULL;

    if (type->ndim < 2 || type->ndim > 4 ||
        (type->dtype != TRI_DTYPE_F32 && type->dtype != TRI_DTYPE_BF16) ||
        (l != NULL && l->block == 0 && !l->channels_last))
        return false;
    *images_out = (trii_images){.n = type->shape[0],
                                .c = type->shape[1],
                                .h = type->ndim > 2 ? type->shape[2] : 1,
                                .w = type->ndim > 3 ? type->shape[3] : 1,
                                .block = 1,
                                .step = 1,
                                .bf16 = type->dtype == TRI_DTYPE_BF16};
    if (type->ndim == 2) { /* [N, C] is channels last anyway */
        images_out->block = unit_in_channels_last(images_out->c);
        images_out->step = images_out->c;
    }
    if (l != NULL) {
        images_out->block = l->channels_last ? unit_in_channels_last(images_out->c) : l->block;
        images_out->step = l->channels_last ? images_out->c : l->block;
    }
    return true;
}

/* A change of layout. */
typedef struct change {
    dnnl_memory_desc_t from, to;
} change;

static tri_status change_images(const void *of, int64_t n, trii_kernel **kernel_out)
{
    const change *c = of;
    dnnl_memory_desc_t from, to;

    if (!trii_onednn_images(&c->from, n, &from) || !trii_onednn_images(&c->to, n, &to))
        return TRI_ERR_UNSUPPORTED;
    return trii_onednn_copy(&from, 0, &to, 1, 2, kernel_out);
}

/* Tensors that differ only in their first dimension are of one kind. */
static bool is_varied(const change *c)
{
    const dnnl_memory_desc_t *md[2] = {&c->from, &c->to};
    uint64_t kind = trii_kind_add(0, c->from.ndims);

    for (int i = 0; i < 2; i++) {
        const dnnl_blocking_desc_t *b = &md[i]->format_desc.blocking;

        kind = trii_kind_add(kind, md[i]->data_type);
        kind = trii_kind_add(kind, b->inner_nblks > 0 ? b->inner_blks[0] : 0);
        for (int d = 1; d < md[i]->ndims; d++)
            kind = trii_kind_add(trii_kind_add(kind, md[i]->dims[d]), b->strides[d]);
    }
    return trii_onednn_varies(kind, c->from.dims[0]);
}

tri_status trii_onednn_reorder(const trii_type *type, const trii_layout *from,
                               const trii_layout *to, trii_kernel **kernel_out)
{
    const dnnl_memory_desc_t *shape = from != NULL ? &layout_of(from)->md : &layout_of(to)->md;
    dnnl_memory_desc_t plain;
    tri_status status;
    change c;

    /* Weights with groups have one more dimension in the library's view; plain order is the
     * same. */
    status = trii_onednn_plain_md(trii_onednn_type(type->dtype), shape->dims, shape->ndims, &plain);
    if (status != TRI_OK)
        return status;
    c.from = from != NULL ? layout_of(from)->md : plain;
    c.to = to != NULL ? layout_of(to)->md : plain;
    if (type->dtype == TRI_DTYPE_F16 ||
        (type->dtype == TRI_DTYPE_BF16 && !trii_onednn_has_bf16())) {
        status = trii_onednn_move_halves(&c.from, &c.to, kernel_out);
        if (status != TRI_ERR_UNSUPPORTED)
            return status;
    }
    if (is_varied(&c)) {
        const trii_onednn_arg operands[2] = {{DNNL_ARG_FROM, &c.from, 0}, {DNNL_ARG_TO, &c.to, 1}};
        const bool in_images[2] = {true, true};
        const trii_onednn_batch batch = {.n = shape->dims[0],
                                         .operands = operands,
                                         .in_images = in_images,
                                         .n_operands = 2,
                                         .n_args = 2,
                                         .sum = -1};

        status = trii_onednn_pieces(&batch, &c, change_images, kernel_out);
        if (status != TRI_ERR_UNSUPPORTED)
            return status;
    }
    return trii_onednn_copy(&c.from, 0, &c.to, 1, 2, kernel_out);
}
