/*
 * create.c - operations without operands; and the public functions of copies and conversions.
 */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/recorder.h"

void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs)
{
    attrs->n_i = 2 + type->ndim;
    attrs->i[0] = type->dtype;
    attrs->i[1] = type->device;
    for (int d = 0; d < type->ndim; d++)
        attrs->i[2 + d] = type->shape[d];
    attrs->n_f = 1;
    attrs->f[0] = value;
}

/* i: dtype, device, sizes.. */
static void created_type(const trii_attrs *attrs, trii_type *out)
{
    out[0].dtype = (tri_dtype)attrs->i[0];
    out[0].device = (tri_device)attrs->i[1];
    out[0].ndim = attrs->n_i - 2;
    for (int d = 0; d < out[0].ndim; d++)
        out[0].shape[d] = attrs->i[2 + d];
}

static tri_status created_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    *n_out = 1;
    created_type(attrs, out);
    return trii_rule_float(&out[0], "the new tensor");
}

static tri_status fill_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    *n_out = 1;
    created_type(attrs, out);
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %lld in dimension %d",
                             (long long)out->shape[d], d);
    }
    return TRI_OK;
}

static tri_status fill_reference(const trii_kernel_args *args)
{
    tri_dtype dtype = args->out[0].type->dtype;
    size_t size = tri_dtype_size(dtype);
    int64_t n = trii_type_numel(args->out[0].type);
    char element[8];

    trii_element_of(args->fattr[0], dtype, element);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)args->out[0].data + (size_t)i * size, element, size);
    return TRI_OK;
}

const trii_graph_op trii_op_fill = {
    .name = "fill",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = fill_shape,
    .reference = fill_reference,
};

tri_status trii_rec_zeros(trii_step *step, const trii_type *type, trii_vid *out)
{
    tri_dtype dtype = type->dtype; /* a value's, which may move */
    trii_type wide = *type;
    trii_attrs attrs;
    tri_status status;

    if (trii_dtype_is_half(wide.dtype))
        wide.dtype = TRI_DTYPE_F32;
    trii_fill_attrs(&wide, 0, &attrs);
    status = trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, out);
    return status == TRI_OK ? trii_rec_cast(step, *out, dtype, out) : status;
}

/* --- dropout_mask --------------------------------------------------------- */

/*
 * Element e: word e % 4 of Philox with key = seed and counter
 *   { e / 4 (low word), index | (e / 4 >> 32) << 20, step, stream | (step >> 32) << 16 }
 * where index is the number of the random operation in its step (below 2^20) and stream is
 * below 2^16. It is 0 where word < p 2^32, else 1 / (1 - p).
 */
void trii_random_words(const trii_random *r, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {
        (uint32_t)block,
        r->index | (uint32_t)(block >> 32) << 20,
        (uint32_t)r->step,
        r->stream | (uint32_t)(r->step >> 32) << 16,
    };

    trii_philox(counter, r->seed, out);
}

static tri_status dropout_mask_reference(const trii_kernel_args *args)
{
    int64_t n = trii_type_numel(args->out[0].type);
    bool narrow = args->out[0].type->dtype == TRI_DTYPE_F32;
    double p = args->fattr[0], scale = p < 1 ? 1 / (1 - p) : 0;
    double limit = p * 4294967296.0;
    float *y32 = args->out[0].data;
    double *y64 = args->out[0].data;

    for (int64_t i = 0; i < n; i += 4) {
        uint32_t word[4];

        trii_random_words(&args->random, (uint64_t)i / 4, word);
        for (int64_t k = 0; k < 4 && i + k < n; k++) {
            double value = (double)word[k] < limit ? 0 : scale;

            if (narrow)
                y32[i + k] = (float)value;
            else
                y64[i + k] = value;
        }
    }
    return TRI_OK;
}

const trii_graph_op trii_op_dropout_mask = {
    .name = "dropout_mask",
    .random = true,
    .shape = created_shape,
    .reference = dropout_mask_reference,
};

/* A range of the elements is not one of the blocks: each is looked up. */
static tri_status dropout_mask_part_reference(const trii_kernel_args *args)
{
    int64_t n = trii_type_numel(args->out[0].type);
    int64_t run = args->iattr[2], stride = args->iattr[3], start = args->iattr[4];
    bool narrow = args->out[0].type->dtype == TRI_DTYPE_F32;
    double p = args->fattr[0], scale = p < 1 ? 1 / (1 - p) : 0;
    double limit = p * 4294967296.0;
    uint64_t block = UINT64_MAX;
    uint32_t word[4] = {0};

    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(start + i / run * stride + i % run);
        double value;

        if (at / 4 != block)
            trii_random_words(&args->random, at / 4, word);
        block = at / 4;
        value = (double)word[at % 4] < limit ? 0 : scale;
        if (narrow)
            ((float *)args->out[0].data)[i] = (float)value;
        else
            ((double *)args->out[0].data)[i] = value;
    }
    return TRI_OK;
}

static tri_status part_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    trii_attrs created;

    created.n_i = attrs->n_i - 3;
    memcpy(created.i, attrs->i, 2 * sizeof(attrs->i[0]));
    memcpy(created.i + 2, attrs->i + 5, (size_t)(created.n_i - 2) * sizeof(attrs->i[0]));
    return created_shape(in, n_in, &created, out, n_out);
}

const trii_graph_op trii_op_dropout_mask_part = {
    .name = "dropout_mask_part",
    .random = true,
    .shape = part_shape,
    .reference = dropout_mask_part_reference,
};

/* The mask of this type, or, where it is a part of one that ranks share, that part. attrs: as
 * trii_fill_attrs makes them. */
static tri_status record_mask(trii_step *step, trii_attrs *attrs, trii_vid *out)
{
    const trii_random_part *part = trii_recorder_of(step)->scopes.random_part;
    int ndim = attrs->n_i - 2, dim = part == NULL ? 0 : part->dim + (part->dim < 0 ? ndim : 0);
    int64_t inner = 1;

    if (part == NULL || part->heads || dim < 0 || dim >= ndim ||
        attrs->i[2 + dim] != part->parts * part->n)
        return trii_record_values(step, &trii_op_dropout_mask, NULL, 0, attrs, out);
    for (int d = dim + 1; d < ndim; d++)
        inner *= attrs->i[2 + d];
    memmove(attrs->i + 5, attrs->i + 2, (size_t)ndim * sizeof(attrs->i[0]));
    attrs->n_i += 3;
    attrs->i[2] = part->n * inner > 0 ? part->n * inner : 1;
    attrs->i[3] = part->whole * inner;
    attrs->i[4] = part->start * inner;
    return trii_record_values(step, &trii_op_dropout_mask_part, NULL, 0, attrs, out);
}

/* planes: an element of the mask is for all of a channel, x [N, C, ..]. */
static tri_status dropout(trii_step *step, tri_tensor *x, double p, bool planes, trii_vid *out)
{
    trii_type type;
    trii_vid in = TRII_NO_VALUE, mask = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_dtype dtype;
    tri_status status;

    if (!(p >= 0 && p <= 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "p is %g, not in [0, 1]", p);
    status = trii_resolve(step, x, &in);
    if (status != TRI_OK)
        return status;
    type = *trii_type_of(step, in);
    if (planes && type.ndim < 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x has %d dimensions, not [N, C, ..]", type.ndim);
    for (int d = 2; d < type.ndim && planes; d++)
        type.shape[d] = 1;
    trii_fill_attrs(&type, p, &attrs);
    dtype = (tri_dtype)attrs.i[0];
    if (trii_dtype_is_half(dtype)) /* 1 / (1 - p) itself must not be rounded */
        attrs.i[0] = TRI_DTYPE_F32;
    status = record_mask(step, &attrs, &mask);
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_mul, in, mask, out);
    if (status == TRI_OK && trii_dtype_is_half(dtype))
        status = trii_rec_cast(step, *out, dtype, out);
    return status;
}

static tri_tensor *dropped(const char *name, tri_tensor *x, double p, bool training, bool planes)
{
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status;

    if (x == NULL || step == NULL || !training || p == 0)
        return trii_record_as(name, &trii_op_copy, &x, 1, NULL);
    status = dropout(step, x, p, planes, &out);
    if (status != TRI_OK)
        return trii_handle_refused(step, name, &x, 1, status);
    return trii_handle_recorded(step, out);
}

tri_tensor *tri_dropout(tri_tensor *x, double p, bool training)
{
    return dropped("dropout", x, p, training, false);
}

tri_tensor *tri_dropout2d(tri_tensor *x, double p, bool training)
{
    return dropped("dropout2d", x, p, training, true);
}

/* --- cast ----------------------------------------------------------------- */

tri_tensor *tri_cast(tri_tensor *x, tri_dtype dtype)
{
    trii_attrs attrs;

    if ((unsigned)dtype >= TRII_TENSOR_DTYPES || dtype == TRI_DTYPE_NONE)
        return trii_handle_failed(
            trii_step_current(),
            TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_cast: dtype %d does not exist", (int)dtype));
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = dtype;
    return trii_record(&trii_op_cast, &x, 1, &attrs);
}

tri_tensor *(tri_to)(tri_tensor *x, tri_device device)
{
    trii_attrs attrs;

    if (x != NULL && tri_tensor_device(x) == device)
        return x;
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = device;
    return trii_record(&trii_op_to, &x, 1, &attrs);
}
