/*
 * embedding_bag.c - sums, means and maxima over bags of rows of a table. It is made of operations:
 * rows are looked up, and added up by the number of their bag, which is the gradient of a lookup
 * (embedding_backward). Only two are its own: which bag an index is in, and where a bag's maxima
 * are; neither has a gradient.
 */
#include <inttypes.h>

#include "base/option.h"
#include "train/graph/ops/composer.h"
#include "train/graph/ops/kernel_rules.h"
#include "train/graph/ops/rules.h"

/* --- bag_ids -------------------------------------------------------------- */

/* in indices [n], offsets? (i64); i: padding index (-1 = none), indices in a bag if there are no
 * offsets, 1 = the last offset is an end; out i64 [n]: from 0 on, and the number of bags for what
 * is in none */
static tri_status ids_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    return trii_rule_index(in[0], "indices");
}

static tri_status check_offsets(const int64_t *offset, int64_t n_offsets, int64_t n)
{
    for (int64_t b = 0; b < n_offsets; b++) {
        int64_t least = b == 0 ? 0 : offset[b - 1], most = b == 0 ? 0 : n;

        if (offset[b] < least || offset[b] > most)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "offsets[%" PRId64 "] is %" PRId64
                             ": must begin at 0, not decrease, and be at most %" PRId64
                             ", the number of indices",
                             b, offset[b], n);
    }
    return TRI_OK;
}

static tri_status ids_reference(const trii_kernel_args *args)
{
    const int64_t *index = args->in[0].data, *offset = args->in[1].data;
    int64_t n = trii_type_numel(args->in[0].type), padding = args->iattr[0], each = args->iattr[1];
    int64_t n_offsets = offset != NULL ? trii_type_numel(args->in[1].type) : 0;
    int64_t bags = offset == NULL ? n / (each > 0 ? each : 1) : n_offsets - args->iattr[2];
    int64_t *id = args->out[0].data, bag = -1;
    tri_status status = check_offsets(offset, n_offsets, n);

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        if (offset == NULL)
            bag = i / each;
        while (offset != NULL && bag + 1 < n_offsets && offset[bag + 1] <= i)
            bag++;
        id[i] = index[i] == padding || bag > bags ? bags : bag;
    }
    return status;
}

const trii_graph_op trii_op_bag_ids = {
    .name = "embedding_bag",
    .may_refuse = true,
    .optional = 1 << 1,
    .shape = ids_shape,
    .reference = ids_reference,
};

/* --- bag_argmax ----------------------------------------------------------- */

/* in rows [n, D], ids [n]; i: bags; out i64 [bags, D]: the row that has the maximum, the first one
 * of equals, n of an empty bag */
static tri_status argmax_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    out->dtype = TRI_DTYPE_I64;
    out->shape[0] = attrs->i[0];
    return trii_rule_float(in[0], "rows");
}

static double row_value(const trii_array *rows, int64_t i)
{
    return rows->type->dtype == TRI_DTYPE_F32 ? (double)((const float *)rows->data)[i]
                                              : ((const double *)rows->data)[i];
}

static tri_status argmax_reference(const trii_kernel_args *args)
{
    const trii_array *rows = &args->in[0];
    const int64_t *id = args->in[1].data;
    int64_t n = rows->type->shape[0], cols = rows->type->shape[1], bags = args->iattr[0];
    int64_t *where = args->out[0].data;

    for (int64_t i = 0; i < bags * cols; i++)
        where[i] = n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < cols && id[i] < bags; c++) {
            int64_t *best = &where[id[i] * cols + c];

            if (*best == n || row_value(rows, i * cols + c) > row_value(rows, *best * cols + c))
                *best = i;
        }
    }
    return TRI_OK;
}

const trii_graph_op trii_op_bag_argmax = {
    .name = "bag_argmax",
    .shape = argmax_shape,
    .reference = argmax_reference,
};

/* --- public --------------------------------------------------------------- */

/* A call whose arguments have been checked. */
typedef struct bag_call {
    trii_composer c;
    tri_bag_mode mode;
    bool ends; /* the last offset is an end */
    trii_vid indices, weight, offsets, weights;
    int64_t padding, n, bags, dim;
    tri_dtype dtype;
} bag_call;

static trii_vid with_numbers(bag_call *b, const trii_graph_op *op, trii_vid x, trii_vid y,
                             const int64_t *numbers, int n)
{
    trii_attrs attrs;

    attrs.n_i = n;
    attrs.n_f = 0;
    for (int i = 0; i < n; i++)
        attrs.i[i] = numbers[i];
    return trii_compose(&b->c, op, (trii_vid[]){x, y}, 2, &attrs);
}

/* Rows of the same bag are added up. */
static trii_vid add_up(bag_call *b, trii_vid rows, trii_vid ids)
{
    trii_vid sums = with_numbers(b, &trii_op_embedding_backward, rows, ids,
                                 (int64_t[]){b->bags, b->bags + 1}, 2);

    if (b->c.status == TRI_OK)
        b->c.status = trii_rec_narrow(b->c.step, sums, 0, 0, b->bags, &sums);
    return sums;
}

/* How many rows each bag has, at least 1. */
static trii_vid count(bag_call *b, trii_vid ids)
{
    const trii_type ones = {.dtype = trii_compose_dtype(trii_type_of(b->c.step, b->weight)),
                            .ndim = 2,
                            .shape = {b->n, 1},
                            .device = trii_type_of(b->c.step, b->weight)->device};
    trii_type one = ones;

    one.ndim = 0;
    return trii_compose2(&b->c, &trii_op_maximum,
                         add_up(b, trii_compose_fill(&b->c, &ones, 1), ids),
                         trii_compose_fill(&b->c, &one, 1));
}

static trii_vid largest(bag_call *b, trii_vid rows, trii_vid ids)
{
    trii_vid where = with_numbers(b, &trii_op_bag_argmax, rows, ids, &b->bags, 1);
    trii_type none = *trii_type_of(b->c.step, b->weight);
    trii_vid parts[2] = {rows};

    none.shape[0] = 1;
    if (b->c.status == TRI_OK) /* of an empty bag */
        b->c.status = trii_rec_zeros(b->c.step, &none, &parts[1]);
    if (b->c.status == TRI_OK)
        b->c.status = trii_rec_concat(b->c.step, parts, 2, 0, &rows);
    return with_numbers(b, &trii_op_gather, rows, where, (int64_t[]){0}, 1);
}

/* Of 16 bits in f32, as the sums. */
static trii_vid weighted(bag_call *b, trii_vid rows)
{
    const trii_type type = *trii_type_of(b->c.step, b->weights);
    tri_dtype dtype = trii_compose_dtype(&type);
    trii_vid weights = trii_compose_cast(&b->c, b->weights, dtype);

    weights = trii_compose_reshape(&b->c, weights, (int64_t[]){b->n, 1}, 2);
    if (b->c.status == TRI_OK)
        rows = trii_compose_cast(&b->c, rows, dtype);
    return trii_compose2(&b->c, &trii_op_mul, rows, weights);
}

static trii_vid reduce(bag_call *b)
{
    int64_t each = b->offsets == TRII_NO_VALUE && b->bags > 0 ? b->n / b->bags : 0;
    trii_vid indices = trii_compose_reshape(&b->c, b->indices, &b->n, 1), ids, rows;

    ids = with_numbers(b, &trii_op_bag_ids, indices, b->offsets,
                       (int64_t[]){b->padding, each, b->ends}, 3);
    rows = with_numbers(b, &trii_op_embedding, b->weight, indices, &b->padding, 1);
    if (b->weights != TRII_NO_VALUE)
        rows = weighted(b, rows);
    if (b->c.status != TRI_OK)
        return TRII_NO_VALUE;
    if (b->mode == TRI_BAG_AMAX)
        return largest(b, rows, ids);
    rows = add_up(b, rows, ids);
    if (b->mode == TRI_BAG_MEAN)
        rows = trii_compose2(&b->c, &trii_op_div, rows, count(b, ids));
    return trii_compose_cast(&b->c, rows, b->dtype);
}

static tri_status check_offsets_operand(bag_call *b)
{
    const trii_type *indices = trii_type_of(b->c.step, b->indices), *offsets;
    tri_status status;

    if (indices->ndim != 1 && indices->ndim != 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "indices of %d dimensions: [B, n], or [n] with "
                         "offsets",
                         indices->ndim);
    b->n = trii_type_numel(indices);
    b->bags = indices->shape[0];
    if ((indices->ndim == 1) != (b->offsets != TRII_NO_VALUE) || (indices->ndim == 2 && b->ends))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "indices of %d dimension%s %s offsets%s",
                         indices->ndim, indices->ndim == 1 ? "" : "s",
                         indices->ndim == 1 ? "need" : "take no",
                         b->ends ? ", so include_last_offset has no meaning" : "");
    if (b->offsets == TRII_NO_VALUE)
        return TRI_OK;
    offsets = trii_type_of(b->c.step, b->offsets);
    status = trii_rule_index(offsets, "offsets");
    if (status == TRI_OK)
        status = trii_rule_ndim(offsets, 1, "offsets");
    if (status == TRI_OK && b->ends && offsets->shape[0] < 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "offsets is empty: it has no last one");
    b->bags = offsets->shape[0] - b->ends;
    return status;
}

static tri_status check(bag_call *b, const tri_embedding_bag_options *opt, int64_t padding)
{
    const trii_type *weight = trii_type_of(b->c.step, b->weight);
    tri_status status = trii_rule_index(trii_type_of(b->c.step, b->indices), "indices");

    if (status == TRI_OK)
        status = trii_rule_ndim(weight, 2, "weight");
    if (status == TRI_OK)
        status = check_offsets_operand(b);
    if (status != TRI_OK)
        return status;
    b->dtype = weight->dtype;
    b->padding = -1;
    if (opt != NULL && opt->padding_idx.given != NULL) {
        b->padding = padding < 0 ? padding + weight->shape[0] : padding;
        if (b->padding < 0 || b->padding >= weight->shape[0])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "padding_idx %" PRId64 " is out of range (%" PRId64 " rows)", padding,
                             weight->shape[0]);
    }
    if (b->mode != TRI_BAG_SUM && b->mode != TRI_BAG_MEAN && b->mode != TRI_BAG_AMAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "mode %d: mean, sum and max are allowed",
                         (int)b->mode);
    if (b->weights == TRII_NO_VALUE)
        return TRI_OK;
    if (b->mode != TRI_BAG_SUM)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "per_sample_weights are for sums only");
    if (trii_compose_dtype(weight) != trii_compose_dtype(trii_type_of(b->c.step, b->weights)))
        status = trii_rule_same_dtype(weight, trii_type_of(b->c.step, b->weights));
    return status == TRI_OK
               ? trii_rule_shape(trii_type_of(b->c.step, b->weights), "per_sample_weights",
                                 trii_type_of(b->c.step, b->indices)->ndim,
                                 trii_type_of(b->c.step, b->indices)->shape)
               : status;
}

tri_tensor *tri_embedding_bag(tri_tensor *indices, tri_tensor *weight, tri_tensor *offsets,
                              const tri_embedding_bag_options *opt)
{
    trii_step *step = trii_step_current();
    bag_call b = {.c = {.step = step, .status = TRI_OK}};
    tri_tensor *in[4] = {indices, weight, offsets, NULL};
    trii_vid *ids[4] = {&b.indices, &b.weight, &b.offsets, &b.weights};
    static const char *const names[2] = {"indices", "weight"};
    trii_vid out = TRII_NO_VALUE;
    int64_t padding = -1;
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_embedding_bag_options, opt);

    if (status == TRI_OK && opt != NULL) {
        b.mode = opt->mode;
        b.ends = opt->include_last_offset;
        in[3] = opt->per_sample_weights;
        if (opt->padding_idx.given != NULL)
            status = trii_option_whole(opt->padding_idx, "padding_idx", -1, &padding);
    }
    for (int i = 0; i < 4 && step != NULL && status == TRI_OK; i++) {
        *ids[i] = TRII_NO_VALUE;
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], ids[i]);
        else if (i < 2)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL", names[i]);
    }
    if (status == TRI_OK && step != NULL)
        status = check(&b, opt, padding);
    if (status == TRI_OK && step != NULL) {
        out = reduce(&b);
        status = b.c.status;
    }
    if (step == NULL || status != TRI_OK)
        return trii_handle_refused(step, "embedding_bag", in, 4, status);
    return trii_handle_recorded(step, out);
}
