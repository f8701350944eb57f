/*
 * pickle_tensors.c - the tensors of a pickle (pickle.h): torch/_utils.py, _rebuild_tensor_v2 and
 * its kin. Called by pickle_calls.c.
 *
 * One whose elements are not plain numbers in a storage is listed and refused when it is read: the
 * others of its file are as good as ever.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/torch/pickle.h"
#include "train/torch/torch_dtype.h"

/* --- what is listed only -------------------------------------------------- */

/* A text that lives as long as the pickle's values; NULL: memory is out. */
static const char *text_of(trii_pickle *p, const char *format, ...) TRII_PRINTF(2, 3);

static const char *text_of(trii_pickle *p, const char *format, ...)
{
    char text[256], *kept;
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    kept = trii_arena_take(p->arena, strlen(text) + 1, 1);
    if (kept != NULL)
        memcpy(kept, text, strlen(text));
    return kept;
}

/* kind, size: NULL if it is not known. */
static tri_status refuse(trii_pickle *p, const char *kind, const trii_value *size, const char *why,
                         trii_value **made_out)
{
    trii_value *made = trii_value_new(p, TRI_TORCH_TENSOR);
    tri_torch_tensor *t = trii_arena_take(p->arena, 1, sizeof(*t));

    if (made == NULL || t == NULL || kind == NULL || why == NULL)
        return TRI_ERR_NO_MEMORY;
    *t = (tri_torch_tensor){.type_name = kind, .element_bytes = 1, .storage = "", .refused = why};
    for (int64_t d = 0;
         trii_value_is(size, TRI_TORCH_TUPLE) && size->v.n <= TRI_MAX_DIMS && d < size->v.n &&
         size->v.items[d]->kind == TRI_TORCH_INT && size->v.items[d]->integer >= 0;
         d++) {
        t->shape[d] = size->v.items[d]->integer;
        t->ndim = (int)d + 1;
    }
    made->v.tensor = made->tensor = t;
    *made_out = made;
    return TRI_OK;
}

/* "meta float32" */
static const char *kind_of(trii_pickle *p, const char *kind, const trii_value *dtype)
{
    const trii_torch_dtype *row =
        trii_value_is(dtype, TRI_TORCH_OBJECT) ? trii_torch_dtype_named(dtype->v.text) : NULL;

    return row != NULL ? text_of(p, "%s %s", kind, row->name) : kind;
}

/* dtype, size: NULL if they are not known. */
static tri_status refuse_class(trii_pickle *p, const trii_value *class, const trii_value *dtype,
                               const trii_value *size, trii_value **made_out)
{
    const char *name = trii_value_is(class, TRI_TORCH_OBJECT) ? class->v.text : "(none)",
               *dot = strrchr(name, '.');
    const char *kind = kind_of(p, text_of(p, "%.80s", dot != NULL ? dot + 1 : name), dtype);
    const char *why =
        strcmp(name, "torch.distributed.tensor.DTensor") == 0
            ? "a rank's part of a DTensor: save its full_tensor(), or the parts of all ranks by "
              "torch.distributed.checkpoint"
            : text_of(p, "of class %.120s, whose code is in a program: save a plain tensor", name);

    return refuse(p, kind, size, why, made_out);
}

/* (layout, (indices, values, size, ..)) */
static tri_status refuse_sparse(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *parts = trii_value_item(args, 1), *size = NULL;

    for (int64_t i = 0; trii_value_is(parts, TRI_TORCH_TUPLE) && i < parts->v.n; i++)
        if (parts->v.items[i]->kind == TRI_TORCH_TUPLE)
            size = trii_value_item(parts, i);
    return refuse(p, "sparse", size, "sparse: save its to_dense()", made_out);
}

/* (storage, offset, size, stride, quantizer, ..) */
static tri_status refuse_quantized(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *from = trii_value_item(args, 0);
    const trii_torch_storage *storage = from != NULL ? from->storage : NULL;

    return refuse(p, storage != NULL && storage->dtype != NULL ? storage->dtype->name : "quantized",
                  trii_value_item(args, 2), "quantized: save its dequantize()", made_out);
}

tri_status trii_pickle_other_tensor(trii_pickle *p, enum trii_other_tensor kind,
                                    const trii_value *args, trii_value **made_out)
{
    switch (kind) {
    case TRII_TENSOR_QUANTIZED:
        return refuse_quantized(p, args, made_out);
    case TRII_TENSOR_SPARSE:
        return refuse_sparse(p, args, made_out);
    case TRII_TENSOR_NESTED:
        return refuse(p, "nested", NULL, "nested: save the list that its unbind() is", made_out);
    case TRII_TENSOR_META:
        return refuse(p, kind_of(p, "meta", trii_value_item(args, 0)), trii_value_item(args, 1),
                      "on the meta device, where tensors have no elements", made_out);
    case TRII_TENSOR_WRAPPER:
        return refuse_class(p, trii_value_item(args, 0), trii_value_item(args, 1),
                            trii_value_item(args, 2), made_out);
    case TRII_TENSOR_TYPED:
        return refuse_class(p, trii_value_item(args, 1), NULL, NULL, made_out);
    default:
        return refuse(p, "of another device", NULL, "saved as an array of numpy: save its cpu()",
                      made_out);
    }
}

/* --- what is read --------------------------------------------------------- */

/* The first TRI_MAX_DIMS of n numbers, none of which is negative. */
static tri_status read_sizes(trii_pickle *p, const trii_value *tuple, const char *what,
                             int64_t sizes[TRI_MAX_DIMS], int64_t *n_out)
{
    if (!trii_value_is(tuple, TRI_TORCH_TUPLE) && !trii_value_is(tuple, TRI_TORCH_LIST))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "the %s of a tensor is not a tuple", what);
    for (int64_t i = 0; i < tuple->v.n; i++) {
        const trii_value *size = trii_value_item(tuple, i);

        if (!trii_value_is(size, TRI_TORCH_INT) || size->v.integer < 0)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                    "number %" PRId64 " of a tensor's %s is not a size", i, what);
        if (i < TRI_MAX_DIMS)
            sizes[i] = size->v.integer;
    }
    *n_out = tuple->v.n;
    return TRI_OK;
}

/* Elements, bytes, and whether the storage has all that the strides lead to. */
static tri_status check_extent(trii_pickle *p, tri_torch_tensor *t, const trii_torch_dtype *dtype,
                               const trii_torch_storage *storage)
{
    uint64_t numel = 1, last, room = storage->bytes / dtype->size;
    bool fits = !__builtin_add_overflow(t->offset, (int64_t)storage->first, &t->offset);

    for (int d = 0; d < t->ndim; d++)
        fits = fits && !__builtin_mul_overflow(numel, (uint64_t)t->shape[d], &numel);
    if (!fits || __builtin_mul_overflow(numel, (uint64_t)dtype->size, &t->bytes))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor whose size no number holds");
    t->storage_bytes = storage->bytes;
    last = (uint64_t)t->offset;
    if (numel == 0)
        return TRI_OK;
    for (int d = 0; d < t->ndim; d++) {
        uint64_t step;

        fits = fits &&
               !__builtin_mul_overflow((uint64_t)t->shape[d] - 1, (uint64_t)t->stride[d], &step) &&
               !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || last >= room)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                "a tensor of which element %" PRIu64
                                " of storage %.40s is a part, which has %" PRIu64,
                                last, storage->key, room);
    return TRI_OK;
}

/* Values that torch changes only when they are read, conj() and .imag of that: which of them a
 * tensor has; NULL: none. */
static const char *lazy_bit(const trii_value *bits)
{
    static const char *const names[] = {"conj", "neg"};

    for (size_t i = 0; i < TRII_COUNT_OF(names) && bits != NULL; i++) {
        const tri_torch_value *bit = tri_torch_item(&bits->v, names[i]);

        if (bit != NULL && (bit->kind != TRI_TORCH_BOOL || bit->integer != 0))
            return names[i];
    }
    return NULL;
}

/* *dtype_out: NULL if it is not known; then the tensor is refused. */
static tri_status find_dtype(trii_pickle *p, const trii_value *args, bool has_dtype,
                             const trii_torch_dtype **dtype_out, trii_value **made_out)
{
    const trii_value *from = trii_value_item(args, 0), *named = trii_value_item(args, 6);
    const char *name = from->v.text;

    *dtype_out = from->storage->dtype;
    if (has_dtype) {
        name = trii_value_is(named, TRI_TORCH_OBJECT) ? named->v.text : "(none)";
        *dtype_out = trii_torch_dtype_named(name);
    } else if (*dtype_out == NULL && !from->storage->is_unknown) {
        *dtype_out = trii_torch_dtype_of(TRI_DTYPE_U8);
    }
    if (*dtype_out != NULL)
        return TRI_OK;
    return refuse(p, text_of(p, "%.80s", name), trii_value_item(args, 2),
                  text_of(p, "of %.80s, a type that is not known here", name), made_out);
}

/* What the tensor's sizes are if they lead out of no storage. */
static tri_status read_view(trii_pickle *p, const trii_value *args, const trii_torch_dtype *dtype,
                            tri_torch_tensor *t)
{
    const trii_value *storage = trii_value_item(args, 0), *offset = trii_value_item(args, 1);
    int64_t n_sizes = 0, n_strides = 0;
    tri_status status;

    if (!trii_value_is(offset, TRI_TORCH_INT) || offset->v.integer < 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor's offset is not a size");
    t->offset = offset->v.integer;
    status = read_sizes(p, trii_value_item(args, 2), "size", t->shape, &n_sizes);
    if (status == TRI_OK)
        status = read_sizes(p, trii_value_item(args, 3), "stride", t->stride, &n_strides);
    if (status == TRI_OK && n_strides != n_sizes)
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                  "a tensor of %" PRId64 " sizes and %" PRId64 " strides", n_sizes,
                                  n_strides);
    if (status != TRI_OK || n_sizes > TRI_MAX_DIMS)
        return status;
    t->ndim = (int)n_sizes;
    return check_extent(p, t, dtype, storage->storage);
}

tri_status trii_pickle_tensor(trii_pickle *p, const trii_value *args, bool has_dtype,
                              trii_value **made_out)
{
    const trii_value *storage = trii_value_item(args, 0), *size = trii_value_item(args, 2),
                     *grad = trii_value_item(args, 4);
    const trii_torch_dtype *dtype = NULL;
    const char *bit = lazy_bit(trii_value_item(args, has_dtype ? 7 : 6));
    trii_value *made = trii_value_new(p, TRI_TORCH_TENSOR);
    tri_torch_tensor *t = trii_arena_take(p->arena, 1, sizeof(*t));
    tri_status status;

    if (made == NULL || t == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!trii_value_is(storage, TRI_TORCH_OBJECT) || storage->storage == NULL)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor without a storage");
    status = find_dtype(p, args, has_dtype, &dtype, made_out);
    if (status != TRI_OK || dtype == NULL)
        return status;
    status = read_view(p, args, dtype, t);
    if (status != TRI_OK)
        return status;
    if (size->v.n > TRI_MAX_DIMS)
        return refuse(p, text_of(p, "%s of %" PRId64 " dimensions", dtype->name, size->v.n), NULL,
                      text_of(p,
                              "of %" PRId64 " dimensions, at most %d are allowed: save a "
                              "reshape() of it",
                              size->v.n, TRI_MAX_DIMS),
                      made_out);
    if (bit != NULL)
        return refuse(p, text_of(p, "%s of %s", bit, dtype->name), size,
                      text_of(p, "with the %s bit set: save its resolve_%s()", bit, bit), made_out);
    t->dtype = dtype->dtype;
    t->type_name = dtype->name;
    t->element_bytes = dtype->size;
    t->storage = storage->storage->key;
    t->requires_grad = trii_value_is(grad, TRI_TORCH_BOOL) && grad->v.integer != 0;
    made->v.tensor = made->tensor = t;
    *made_out = made;
    return TRI_OK;
}

tri_status trii_pickle_parameter(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *tensor = trii_value_item(args, 0), *grad = trii_value_item(args, 1);
    trii_value *made = trii_value_new(p, TRI_TORCH_TENSOR);
    tri_torch_tensor *t = trii_arena_take(p->arena, 1, sizeof(*t));

    if (made == NULL || t == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!trii_value_is(tensor, TRI_TORCH_TENSOR))
        return refuse(p, "parameter", NULL, "a parameter of no tensor that is known here",
                      made_out);
    *t = *tensor->v.tensor;
    t->requires_grad = trii_value_is(grad, TRI_TORCH_BOOL) && grad->v.integer != 0;
    made->v.tensor = made->tensor = t;
    *made_out = made;
    return TRI_OK;
}
