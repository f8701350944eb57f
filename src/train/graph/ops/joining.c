/*
 * joining.c - concatenates tensors along a dimension, and splits them again. A node takes or gives
 * up to FAN tensors; more become a tree of nodes.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/walks.h"
#include "train/graph/step/strides.h"

#define FAN 32 /* so that the sizes fit the attributes */

/* Where part o of a whole lies; i: dim, sizes.. */
static bool part_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                      const trii_strides *from, trii_strides *to)
{
    int64_t at = 0;

    (void)in;
    for (int k = 0; k < o; k++)
        at += iattr[1 + k];
    to->offset = from->offset + at * from->stride[iattr[0]];
    for (int d = 0; d < out->ndim; d++)
        to->stride[d] = from->stride[d];
    return true;
}

/* --- concat --------------------------------------------------------------- */

/* i: dim, sizes of the inputs.. */
static tri_status concat_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    int64_t dim = attrs->i[0];

    *n_out = 1;
    trii_type_copy(out, in[0]);
    for (int i = 1; i < n_in; i++) {
        char first[TRII_TYPE_TEXT], other[TRII_TYPE_TEXT];
        bool fits = in[i]->ndim == out->ndim && in[i]->dtype == out->dtype;

        for (int d = 0; d < out->ndim && fits; d++)
            fits = d == dim || in[i]->shape[d] == out->shape[d];
        if (!fits)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s does not fit %s but for dimension %d",
                             trii_type_text(in[i], other), trii_type_text(in[0], first), (int)dim);
        if (__builtin_add_overflow(out->shape[dim], in[i]->shape[dim], &out->shape[dim]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "the sizes overflow");
    }
    return TRI_OK;
}

/* Copies rows between the whole and a part that begins at `at` along the dimension. */
static void copy_rows(const trii_array *part, const trii_type *whole, char *data, int64_t dim,
                      int64_t at, bool into_whole)
{
    trii_around p = trii_around_of(part->type, dim), w = trii_around_of(whole, dim);
    size_t size = tri_dtype_size(whole->dtype), bytes = (size_t)(p.n * p.inner) * size;

    for (int64_t o = 0; o < p.outer && bytes > 0; o++) {
        char *row = data + (size_t)((o * w.n + at) * w.inner) * size;
        char *mine = (char *)part->data + (size_t)o * bytes;

        memcpy(into_whole ? row : mine, into_whole ? mine : row, bytes);
    }
}

static tri_status concat_reference(const trii_kernel_args *args)
{
    int64_t dim = args->iattr[0], at = 0;

    for (int i = 0; i < args->n_in; i++) {
        copy_rows(&args->in[i], args->out[0].type, args->out[0].data, dim, at, true);
        at += args->in[i].type->shape[dim];
    }
    return TRI_OK;
}

const trii_graph_op trii_op_concat = {
    .name = "concat",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_JOIN,
    .view = part_view,
    .shape = concat_shape,
    .gradient = TRII_GRADIENT_concat,
    .reference = concat_reference,
};

/* --- split ---------------------------------------------------------------- */

/* i: dim, sizes.. */
static tri_status split_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    int64_t sum = 0, dim = attrs->i[0];

    (void)n_in;
    *n_out = attrs->n_i - 1;
    for (int o = 0; o < *n_out; o++) {
        int64_t size = attrs->i[1 + o];

        if (size < 0 || __builtin_add_overflow(sum, size, &sum))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %" PRId64 " of part %d", size, o);
        trii_type_copy(&out[o], in[0]);
        out[o].shape[dim] = size;
    }
    if (sum != in[0]->shape[dim])
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the sizes add up to %" PRId64 ", but dimension %d has %" PRId64, sum,
                         (int)dim, in[0]->shape[dim]);
    return TRI_OK;
}

static tri_status split_reference(const trii_kernel_args *args)
{
    int64_t dim = args->iattr[0], at = 0;

    for (int o = 0; o < args->n_out; o++) {
        copy_rows(&args->out[o], args->in[0].type, args->in[0].data, dim, at, false);
        at += args->out[o].type->shape[dim];
    }
    return TRI_OK;
}

const trii_graph_op trii_op_split = {
    .name = "split",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_VIEW,
    .view = part_view,
    .shape = split_shape,
    .gradient = TRII_GRADIENT_split,
    .reference = split_reference,
};

/* --- public --------------------------------------------------------------- */

static tri_status rec_concat_node(trii_step *step, const trii_vid *ids, int n, int dim,
                                  trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = dim;
    for (int i = 0; i < n; i++) {
        const trii_type *type = trii_type_of(step, ids[i]);

        trii_attrs_add(&attrs, dim < type->ndim ? type->shape[dim] : 0); /* the rule refuses it */
    }
    return trii_record_values(step, &trii_op_concat, ids, n, &attrs, out);
}

/* The tree: groups of FAN become one value each, until one is left. */
tri_status trii_rec_concat(trii_step *step, trii_vid *ids, int64_t n, int dim, trii_vid *out)
{
    tri_status status = TRI_OK;

    do {
        int64_t kept = 0;

        for (int64_t i = 0; i < n && status == TRI_OK; i += FAN)
            status =
                rec_concat_node(step, ids + i, (int)(n - i < FAN ? n - i : FAN), dim, &ids[kept++]);
        n = kept;
    } while (n > 1 && status == TRI_OK);
    *out = ids[0];
    return status;
}

/* With a new dimension of size 1 each, for tri_stack. */
static tri_status resolve_all(trii_step *step, tri_tensor *const *xs, int n, int *dim, bool stack,
                              trii_vid *ids)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < n && status == TRI_OK; i++) {
        status = xs[i] != NULL ? trii_resolve(step, xs[i], &ids[i])
                               : TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %d is NULL", i);
        if (status == TRI_OK && !stack && trii_type_of(step, ids[i])->ndim == 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %d has no dimensions", i);
        if (status == TRI_OK && i == 0)
            status = trii_rule_dim(*dim, trii_type_of(step, ids[0])->ndim + stack, dim);
        if (status == TRI_OK && stack) {
            trii_type type = *trii_type_of(step, ids[i]);

            if (i > 0 && type.ndim + 1 != trii_type_of(step, ids[0])->ndim)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "tensor %d has %d dimensions, the first has %d", i, type.ndim,
                                 trii_type_of(step, ids[0])->ndim - 1);
            if (type.ndim == TRI_MAX_DIMS)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "a result of %d dimensions: at most %d are allowed", type.ndim + 1,
                                 TRI_MAX_DIMS);
            for (int d = type.ndim; d > *dim; d--)
                type.shape[d] = type.shape[d - 1];
            type.shape[*dim] = 1;
            status = trii_rec_reshape(step, ids[i], type.shape, type.ndim + 1, &ids[i]);
        }
    }
    return status;
}

/* Where f32 and a 16-bit type, or both 16-bit types, come together, everything becomes f32. */
static tri_status widen_mixed(trii_step *step, trii_vid *ids, int n)
{
    bool wide = false, f16 = false, bf16 = false;
    tri_status status = TRI_OK;

    for (int i = 0; i < n; i++) {
        tri_dtype dtype = trii_type_of(step, ids[i])->dtype;

        wide = wide || dtype == TRI_DTYPE_F32;
        f16 = f16 || dtype == TRI_DTYPE_F16;
        bf16 = bf16 || dtype == TRI_DTYPE_BF16;
    }
    wide = wide || (f16 && bf16);
    for (int i = 0; i < n && wide && status == TRI_OK; i++) {
        if (trii_dtype_is_half(trii_type_of(step, ids[i])->dtype))
            status = trii_rec_cast(step, ids[i], TRI_DTYPE_F32, &ids[i]);
    }
    return status;
}

static tri_tensor *joined(const char *name, tri_tensor *const *xs, int n, int dim, bool stack)
{
    trii_step *step = trii_step_current();
    trii_vid few[FAN], *ids = few, out = TRII_NO_VALUE;
    int shown = n < 4 ? n : 4;
    tri_status status = TRI_OK;

    if (step == NULL)
        return trii_handle_failed(NULL, TRI_ERR_NO_MEMORY);
    if (xs == NULL || n < 1) {
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%d tensors: must be at least 1", xs == NULL ? 0 : n);
        return trii_handle_refused(step, name, NULL, 0, status);
    }
    if (n > FAN)
        ids = trii_alloc((size_t)n, sizeof(*ids), "list of tensors");
    if (ids == NULL)
        return trii_handle_failed(step, TRI_ERR_NO_MEMORY);
    status = resolve_all(step, xs, n, &dim, stack, ids);
    if (status == TRI_OK)
        status = widen_mixed(step, ids, n);
    if (status == TRI_OK)
        status = trii_rec_concat(step, ids, n, dim, &out);
    if (ids != few)
        trii_free(ids);
    if (status != TRI_OK)
        return trii_handle_refused(step, name, xs, shown, status);
    return trii_handle_recorded(step, out);
}

tri_tensor *tri_concat(tri_tensor *const *xs, int n, int dim)
{
    return joined("concat", xs, n, dim, false);
}

tri_tensor *tri_stack(tri_tensor *const *xs, int n, int dim)
{
    return joined("stack", xs, n, dim, true);
}

/* Cuts the part of x from `at` on into n parts of these sizes. */
static tri_status rec_split(trii_step *step, trii_vid x, int dim, const int64_t *sizes, int n,
                            trii_vid *first_out)
{
    trii_attrs attrs;

    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = dim;
    for (int i = 0; i < n; i++)
        trii_attrs_add(&attrs, sizes[i]);
    return trii_record_values(step, &trii_op_split, &x, 1, &attrs, first_out);
}

static tri_status check_sizes(const int64_t *sizes, int n, int64_t whole)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %" PRId64 " of part %d", sizes[i], i);
    }
    return sum == whole
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "the sizes add up to %" PRId64 ", but there are %" PRId64, sum, whole);
}

static tri_status split_all(trii_step *step, trii_vid x, int dim, const int64_t *sizes, int n,
                            tri_tensor **out)
{
    int64_t at = 0;
    tri_status status = check_sizes(sizes, n, trii_type_of(step, x)->shape[dim]);

    for (int i = 0; i < n && status == TRI_OK; i += FAN) {
        int some = n - i < FAN ? n - i : FAN;
        trii_vid part = x, first = TRII_NO_VALUE;
        int64_t all = 0;

        for (int k = 0; k < some; k++)
            all += sizes[i + k];
        if (n > FAN)
            status = trii_rec_narrow(step, x, dim, at, all, &part);
        if (status == TRI_OK)
            status = rec_split(step, part, dim, sizes + i, some, &first);
        for (int k = 0; k < some && status == TRI_OK; k++)
            out[i + k] = trii_handle_recorded(step, first + k);
        at += all;
    }
    return status;
}

static tri_status split_operand(trii_step *step, tri_tensor *x, int *dim, trii_vid *id)
{
    tri_status status = x != NULL ? trii_resolve(step, x, id)
                                  : TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL" TRII_WHENCE_NULL);

    if (status == TRI_OK && trii_type_of(step, *id)->ndim == 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x has no dimensions");
    return status == TRI_OK ? trii_rule_dim(*dim, trii_type_of(step, *id)->ndim, dim) : status;
}

static void give_failed(trii_step *step, const char *name, tri_tensor *x, tri_status status,
                        tri_tensor **out, int n)
{
    tri_tensor *failed = trii_handle_refused(step, name, &x, 1, status);

    for (int i = 0; i < n; i++)
        out[i] = failed;
}

void tri_split(tri_tensor *x, const int64_t *sizes, int n, int dim, tri_tensor **out)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (out == NULL || n < 1) {
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_split: %d parts: must be at least 1, with room "
                                           "for them",
                                           n));
        return;
    }
    if (status == TRI_OK && sizes == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "sizes is NULL");
    if (status == TRI_OK)
        status = split_operand(step, x, &dim, &id);
    if (status == TRI_OK)
        status = split_all(step, id, dim, sizes, n, out);
    if (status != TRI_OK)
        give_failed(step, "split", x, status, out, n);
}

int tri_chunk(tri_tensor *x, int n, int dim, tri_tensor **out)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    int64_t each, size, few[FAN], *sizes = few;
    int parts;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (out == NULL || n < 1) {
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_chunk: %d parts: must be at least 1, with room "
                                           "for them",
                                           n));
        return 0;
    }
    if (status == TRI_OK)
        status = split_operand(step, x, &dim, &id);
    if (status != TRI_OK) {
        give_failed(step, "chunk", x, status, out, n);
        return n;
    }
    size = trii_type_of(step, id)->shape[dim];
    each = size > 0 ? (size - 1) / n + 1 : 0;
    parts = size > 0 ? (int)((size - 1) / each) + 1 : n;
    if (parts > FAN)
        sizes = trii_alloc((size_t)parts, sizeof(*sizes), "list of sizes");
    for (int i = 0; i < parts && sizes != NULL; i++)
        sizes[i] = i + 1 < parts ? each : size - each * (parts - 1);
    status = sizes != NULL ? split_all(step, id, dim, sizes, parts, out) : TRI_ERR_NO_MEMORY;
    if (sizes != few)
        trii_free(sizes);
    if (status != TRI_OK)
        give_failed(step, "chunk", x, status, out, parts);
    return parts;
}
