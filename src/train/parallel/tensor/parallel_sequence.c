/*
 * parallel_sequence.c - each rank has a part of the tokens where a module works on each of them
 * alone. Sums over ranks are scattered, which is the first half of adding them on all ranks, and
 * parts gathered, which is the second: values have the bits that they have without this.
 *
 * Where the ranks do not divide the number of tokens, parts travel padded to the largest.
 */
#include <inttypes.h>

#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/err.h"
#include "train/dist/token_counts.h"
#include "train/parallel/tensor/tensor_parallel.h"

/* --- how many tokens there are -------------------------------------------- */

static trii_share share_of(const trii_tokens *tokens, int64_t whole)
{
    return trii_share_of(tokens->group, whole, 1, 1);
}

static trii_share note(const trii_tokens *tokens, int64_t whole)
{
    trii_token_counts_add(whole);
    return share_of(tokens, whole);
}

static bool are_equal_parts(const trii_tokens *tokens, const trii_token_counts *counts)
{
    int size = tri_group_size(tokens->group);

    for (int64_t i = 0; i < counts->n; i++)
        if (counts->of[i] % size != 0)
            return false;
    return counts->others % size == 0;
}

/* Of sequences whose numbers of tokens differ by less than the number of ranks, some rank has parts
 * of the same size. All ranks refuse them, though others could tell them apart. */
static tri_status check_others(const trii_token_counts *counts, int64_t whole, int size)
{
    for (int64_t i = 0; i < counts->n; i++) {
        int64_t other = counts->of[i], by = other < whole ? whole - other : other - whole;

        if (by != 0 && by < size)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "sequences of %" PRId64 " and of %" PRId64
                             " tokens in one step, which parts on %d ranks do not tell apart: pad "
                             "them to one length (tri_pad), or end the step between them",
                             whole < other ? whole : other, whole < other ? other : whole, size);
    }
    return TRI_OK;
}

/* What this rank's n tokens are a part of. Where nothing uneven was cut all parts are equal. */
static tri_status find(const trii_tokens *tokens, int64_t n, trii_share *share_out)
{
    const trii_token_counts *counts = trii_token_counts_now();
    int size = tri_group_size(tokens->group);

    *share_out = share_of(tokens, n * size);
    if (are_equal_parts(tokens, counts))
        return TRI_OK;
    if (counts->others != 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "sequences of more than %d lengths in one step, not all of which %d ranks "
                         "divide: pad them (tri_pad), or end the step between them",
                         TRII_TOKEN_COUNTS, size);
    for (int64_t i = 0; i < counts->n; i++) {
        *share_out = share_of(tokens, counts->of[i]);
        if (share_out->n == n)
            return check_others(counts, counts->of[i], size);
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%" PRId64 " tokens: this rank's part of %" PRId64 " is %" PRId64, n,
                     share_out->whole, share_out->n);
}

/* --- what is wrong -------------------------------------------------------- */

/* Written so that it counts from the first dimension. */
static tri_status check_dim(const trii_tokens *tokens, const tri_tensor *x, int *dim_out)
{
    int ndim, dim = tokens->dim;

    *dim_out = dim;
    if (x == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL");
    if (tri_tensor_status(x) != TRI_OK)
        return tri_tensor_status(x);
    ndim = tri_tensor_ndim(x);
    *dim_out = dim = dim < 0 ? dim + ndim : dim;
    if (dim >= 0 && dim < ndim - !tokens->may_be_last)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "x %s has no dimension %d of tokens before its last: tri_parallel_rule.dim "
                     "says which it is (TRI_SET(0) of [tokens, features])",
                     tri_tensor_shape_text(x), tokens->dim);
}

/* Peers may be waiting: the collective that a failure goes into gives up the group. */
tri_tensor *trii_tokens_refused(const trii_tokens *tokens, tri_tensor *x, tri_status status)
{
    if (x == NULL || tri_tensor_status(x) == TRI_OK)
        x = trii_forward_failed(status);
    return tri_dist_reduce_from(x, tokens->group);
}

/* --- parts ---------------------------------------------------------------- */

/* x with another size of this dimension. */
static tri_tensor *resized(tri_tensor *y, const tri_tensor *x, int dim, int64_t n)
{
    int64_t shape[TRI_MAX_DIMS];
    int ndim = tri_tensor_ndim(x);

    for (int d = 0; d < ndim; d++)
        shape[d] = d == dim ? n : tri_tensor_size(x, d);
    return tri_reshape(y, shape, ndim);
}

/* Tokens of ranks that have `from` each become `to` each: zeros come in, or go. */
static tri_tensor *spaced(tri_tensor *x, int dim, int64_t ranks, int64_t from, int64_t to)
{
    int64_t shape[4] = {1, ranks, from, 1};
    tri_tensor *y;

    for (int d = 0; d < tri_tensor_ndim(x); d++) {
        if (d != dim)
            shape[d < dim ? 0 : 3] *= tri_tensor_size(x, d);
    }
    y = tri_reshape(x, shape, 4);
    y = to > from ? trii_pad_along(y, 2, 0, to - from) : tri_narrow(y, 2, 0, to);
    return resized(y, x, dim, ranks * to);
}

/* x as parts of equal size, one for each rank in a row, the last token of some of which is zeros;
 * and back. The first ranks have one token more than the others. */
static tri_tensor *padded(const trii_share *share, tri_tensor *x, int dim, bool back)
{
    int64_t size = tri_group_size(share->group), more = share->whole % size;
    int64_t each = share->whole / size, first = more * (each + 1), n = each + back;
    tri_tensor *both[2] = {tri_narrow(x, dim, 0, first),
                           tri_narrow(x, dim, first, (size - more) * n)};

    both[1] = spaced(both[1], dim, size - more, n, each + !back);
    return tri_concat(both, 2, dim);
}

tri_tensor *trii_tokens_take(const trii_tokens *tokens, tri_tensor *x)
{
    trii_share share;
    int dim;
    tri_status status = check_dim(tokens, x, &dim);

    if (status != TRI_OK)
        return trii_tokens_refused(tokens, x, status);
    share = note(tokens, tri_tensor_size(x, dim));
    return trii_share_take(&share, x, dim);
}

tri_tensor *trii_tokens_reduce(const trii_tokens *tokens, tri_tensor *x)
{
    trii_share share;
    int dim;
    tri_status status = check_dim(tokens, x, &dim);

    if (status != TRI_OK)
        return trii_tokens_refused(tokens, x, status);
    share = note(tokens, tri_tensor_size(x, dim));
    if (trii_share_is_equal(&share))
        return tri_dist_reduce_scatter(x, TRI_REDOP_SUM, dim, tokens->group);
    x = padded(&share, x, dim, false);
    x = tri_dist_reduce_scatter(x, TRI_REDOP_SUM, dim, tokens->group);
    return tri_narrow(x, dim, 0, share.n);
}

tri_status trii_tokens_share(const trii_tokens *tokens, tri_tensor *x, trii_share *share_out,
                             int *dim_out)
{
    tri_status status = check_dim(tokens, x, dim_out);

    return status == TRI_OK ? find(tokens, tri_tensor_size(x, *dim_out), share_out) : status;
}

tri_tensor *trii_tokens_join(const trii_tokens *tokens, tri_tensor *x)
{
    trii_share share;
    int dim;
    tri_status status = trii_tokens_share(tokens, x, &share, &dim);

    return status == TRI_OK ? trii_share_join(&share, x, dim)
                            : trii_tokens_refused(tokens, x, status);
}

tri_tensor *trii_tokens_gather(const trii_tokens *tokens, tri_tensor *x)
{
    trii_share share;
    int64_t each;
    int dim;
    tri_status status = trii_tokens_share(tokens, x, &share, &dim);

    if (status != TRI_OK)
        return trii_tokens_refused(tokens, x, status);
    if (trii_share_is_equal(&share))
        return tri_dist_all_gather(x, dim, tokens->group);
    each = share.whole / tri_group_size(tokens->group) + 1;
    x = tri_dist_all_gather(trii_pad_along(x, dim, 0, each - share.n), dim, tokens->group);
    return padded(&share, x, dim, true);
}
