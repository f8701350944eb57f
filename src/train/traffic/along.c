/*
 * along.c - see along.h. Seen as [outer, n, inner], where n is the dimension, a tensor whose first
 * dimension it is needs no elements moved, and any other one swap.
 */
#include "train/traffic/along.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/ops/rules.h"

typedef struct block {
    int64_t outer, n, inner;
} block;

static block block_of(const trii_type *type, int dim)
{
    block b = {1, type->shape[dim], 1};

    for (int d = 0; d < dim; d++)
        b.outer *= type->shape[d];
    for (int d = dim + 1; d < type->ndim; d++)
        b.inner *= type->shape[d];
    return b;
}

tri_status trii_divides(const trii_type *x, int dim, const tri_group *group, const char *name)
{
    char text[TRII_TYPE_TEXT];

    if (x->shape[dim] % tri_group_size(group) == 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: dimension %d of %s does not divide into %d equal parts, one for each "
                     "rank: pad it (tri_pad)",
                     name, dim, trii_type_text(x, text), tri_group_size(group));
}

/* Swaps the first two of three dimensions. */
static tri_status swap(trii_step *step, trii_vid *x_io)
{
    const trii_attrs attrs = {.n_i = 3, .i = {1, 0, 2}};

    return trii_record_values(step, &trii_op_permute, x_io, 1, &attrs, x_io);
}

tri_status trii_record_gather_along(trii_step *step, tri_group *group, trii_gather_fn gather,
                                    trii_vid x, int dim, trii_vid *out)
{
    trii_type type = *trii_type_of(step, x);
    block b = block_of(&type, dim);
    const int64_t part[2] = {b.outer, b.n * b.inner};
    tri_status status = trii_rec_reshape(step, x, part, 2, out);

    type.shape[dim] *= tri_group_size(group);
    if (status == TRI_OK)
        status = gather(step, group, *out, out);
    if (status == TRI_OK && b.outer != 1)
        status = swap(step, out);
    return status == TRI_OK ? trii_rec_reshape(step, *out, type.shape, type.ndim, out) : status;
}

tri_status trii_record_reduce_scatter_along(trii_step *step, tri_group *group, trii_vid x,
                                            tri_redop op, int dim, trii_vid *out)
{
    trii_type type = *trii_type_of(step, x);
    block b = block_of(&type, dim);
    int64_t parts[3] = {b.outer, tri_group_size(group), 0};
    tri_status status = trii_divides(&type, dim, group, "reduce_scatter");

    if (status != TRI_OK)
        return status;
    type.shape[dim] /= parts[1];
    parts[2] = type.shape[dim] * b.inner;
    if (b.outer == 1)
        status = trii_rec_reshape(step, x, parts + 1, 2, out);
    else
        status = trii_rec_reshape(step, x, parts, 3, out);
    if (status == TRI_OK && b.outer != 1)
        status = swap(step, out);
    if (status == TRI_OK)
        status = trii_record_reduce_scatter(step, group, *out, op, out);
    return status == TRI_OK ? trii_rec_reshape(step, *out, type.shape, type.ndim, out) : status;
}

tri_status trii_record_all_to_all_rows(trii_step *step, tri_group *group, trii_vid x, trii_vid *out)
{
    const trii_type type = *trii_type_of(step, x);
    const int64_t parts[2] = {tri_group_size(group),
                              trii_type_numel(&type) / tri_group_size(group)};
    tri_status status = trii_divides(&type, 0, group, "all_to_all");

    if (status == TRI_OK)
        status = trii_rec_reshape(step, x, parts, 2, out);
    if (status == TRI_OK)
        status = trii_record_all_to_all(step, group, *out, out);
    return status == TRI_OK ? trii_rec_reshape(step, *out, type.shape, type.ndim, out) : status;
}

/* counts[r] = rows[r] of this many elements; how many rows that are, which must fit into x. */
static tri_status count_rows(const int64_t *rows, int size, int64_t elements, const char *which,
                             size_t *counts, int64_t *sum_out)
{
    int64_t sum = 0;

    if (rows == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL; it must have %d numbers of rows", which,
                         size);
    for (int r = 0; r < size; r++) {
        if (rows[r] < 0 || rows[r] > INT64_MAX - sum)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s[%d] is %" PRId64 " rows", which, r, rows[r]);
        sum += rows[r];
        counts[r] = (size_t)rows[r] * (size_t)elements;
    }
    *sum_out = sum;
    return TRI_OK;
}

tri_status trii_record_all_to_all_v_rows(trii_step *step, tri_group *group, trii_vid x,
                                         const int64_t *to, const int64_t *from, trii_vid *out)
{
    int size = tri_group_size(group);
    const trii_type type = *trii_type_of(step, x);
    size_t *counts = trii_alloc(2 * (size_t)size, sizeof(*counts), "parts of an exchange");
    trii_row_exchange exchange = {.to = counts, .from = counts + size, .type = type};
    int64_t elements = block_of(&type, 0).inner, sum = 0;
    char text[TRII_TYPE_TEXT];
    tri_status status = TRI_ERR_NO_MEMORY;

    if (counts != NULL)
        status = count_rows(to, size, elements, "to", counts, &sum);
    if (status == TRI_OK && sum != type.shape[0])
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "to adds up to %" PRId64 " rows; x is %s, and all of its rows are sent",
                           sum, trii_type_text(&type, text));
    if (status == TRI_OK)
        status = count_rows(from, size, elements, "from", counts + size, &exchange.type.shape[0]);
    if (status == TRI_OK)
        status = trii_type_check(&exchange.type);
    *out = x; /* what one rank has comes back */
    if (status == TRI_OK && (size > 1 || exchange.type.shape[0] != sum))
        status = trii_record_all_to_all_v(step, group, x, &exchange, out);
    trii_free(counts);
    return status;
}
