/*
 * parallel_values.c - how a dimension is shared out, and a value that all ranks have becomes parts
 * of it, and these one value again. Equal parts travel as they are. Others are cut from a copy
 * whose gradients are added up, and joined as a sum of values that are 0 where other ranks have
 * something.
 */
#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/err.h"
#include "base/hash.h"
#include "train/graph/step/cut_features.h"
#include "train/graph/step/recorder.h"
#include "train/parallel/tensor/tensor_parallel.h"

trii_share trii_share_at(const trii_share *share, int rank)
{
    int64_t ranks = tri_group_size(share->group), blocks = share->whole / share->block;
    int64_t each = blocks / ranks, more = blocks % ranks;
    trii_share at = *share;

    if (share->copies > 1) {
        at.start = rank / share->copies * share->block;
        at.n = share->block;
    } else {
        at.start = (rank * each + (rank < more ? rank : more)) * share->block;
        at.n = (each + (rank < more)) * share->block;
    }
    return at;
}

trii_share trii_share_of(tri_group *group, int64_t size, int parts, int64_t block)
{
    const trii_share share = {
        .group = group, .parts = parts, .block = block, .whole = size / parts};

    return trii_share_at(&share, tri_group_rank(group));
}

bool trii_share_is_equal(const trii_share *share)
{
    return share->whole / share->block % tri_group_size(share->group) == 0;
}

tri_tensor *trii_pad_along(tri_tensor *x, int dim, int64_t before, int64_t after)
{
    int64_t pad[2 * TRI_MAX_DIMS] = {0};
    int ndim = tri_tensor_ndim(x), from_last = dim < 0 ? -1 - dim : ndim - 1 - dim;

    if (tri_tensor_status(x) != TRI_OK || from_last < 0 || from_last >= ndim)
        return x; /* a failure, which what follows passes on */
    pad[2 * from_last] = before;
    pad[2 * from_last + 1] = after;
    return tri_pad(x, pad, 2 * (from_last + 1), 0.0);
}

static tri_status too_few(int64_t blocks, int64_t block, const char *what, int ranks)
{
    if (block == 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%lld %s are fewer than %d ranks", (long long)blocks,
                         what, ranks);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%lld blocks of %lld %s are fewer than %d ranks",
                     (long long)blocks, (long long)block, what, ranks);
}

/* As many ranks as have room have the same block, in the order of the blocks. */
static tri_status copy_blocks(int64_t blocks, const char *what, trii_share *share)
{
    int ranks = tri_group_size(share->group);

    if (ranks % blocks != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%lld blocks of %lld %s are fewer than %d ranks, which do not share them "
                         "evenly: %lld ranks would have copies, and up to %lld a part each",
                         (long long)blocks, (long long)share->block, what, ranks,
                         (long long)((ranks / blocks + 1) * blocks), (long long)blocks);
    share->copies = (int)(ranks / blocks);
    *share = trii_share_at(share, tri_group_rank(share->group));
    return TRI_OK;
}

tri_status trii_share_out(int64_t size, const tri_parallel_rule *rule, const char *what,
                          trii_share *share_io)
{
    int parts = rule != NULL && rule->parts > 1 ? rule->parts : 1;
    int64_t block = rule != NULL && rule->block > 1 ? rule->block : 1, blocks;
    bool may_copy = share_io->copies > 0;

    if (size % parts != 0 || size / parts % block != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%lld %s are not %d parts of blocks of %lld",
                         (long long)size, what, parts, (long long)block);
    *share_io = trii_share_of(share_io->group, size, parts, block);
    blocks = size / parts / block;
    if (blocks >= tri_group_size(share_io->group))
        return TRI_OK;
    return may_copy && blocks > 0 ? copy_blocks(blocks, what, share_io)
                                  : too_few(blocks, block, what, tri_group_size(share_io->group));
}

tri_tensor *trii_share_take(const trii_share *share, tri_tensor *x, int dim)
{
    if (trii_share_is_equal(share))
        return tri_dist_scatter_to(x, dim, share->group);
    return tri_narrow(tri_dist_copy_to(x, share->group), dim, share->start, share->n);
}

tri_tensor *trii_share_join(const trii_share *share, tri_tensor *x, int dim)
{
    if (trii_share_is_equal(share))
        return tri_dist_gather_from(x, dim, share->group);
    x = trii_pad_along(x, dim, share->start, share->whole - share->start - share->n);
    return tri_dist_reduce_from(x, share->group);
}

tri_tensor *trii_share_find(const trii_share *share, tri_tensor *indices, tri_tensor **outside_out)
{
    tri_tensor *start = tri_full(NULL, 0, (double)share->start, TRI_DTYPE_I64);
    tri_tensor *end = tri_full(NULL, 0, (double)(share->start + share->n), TRI_DTYPE_I64);
    tri_tensor *below = tri_lt(indices, start), *above = tri_ge(indices, end);

    /* the first rank takes what is negative for its own, the last what is too large */
    if (share->start == 0 && share->n == share->whole)
        *outside_out = tri_logical_and(below, above);
    else if (share->start == 0)
        *outside_out = above;
    else if (share->start + share->n == share->whole)
        *outside_out = below;
    else
        *outside_out = tri_logical_or(below, above);
    return tri_masked_fill(tri_sub(indices, start), *outside_out, 0.0);
}

/* --- random numbers ------------------------------------------------------- */

/* Cut over this group. */
static trii_cut_features nothing_over(const tri_group *group)
{
    trii_cut_features cut = {.ranks = tri_group_size(group), .rank = tri_group_rank(group)};
    uint64_t hash = TRII_HASH_SEED;

    for (int r = 0; r < cut.ranks; r++) {
        int64_t rank = tri_group_world_rank(group, r);

        hash = trii_hash(hash, &rank, sizeof(rank));
    }
    cut.group = (int64_t)(hash | 1);
    return cut;
}

void trii_share_note(const trii_share *share)
{
    trii_cut_features cut = nothing_over(share->group);

    cut.parts = share->parts;
    cut.whole = share->whole;
    cut.start = share->start;
    cut.n = share->n;
    trii_cut_features_note(&cut);
}

/* The number of a value of this step; NO_VALUE: it is none. */
static trii_vid value_of(const tri_tensor *x)
{
    const trii_step *step = trii_step_current();

    return step != NULL && x != NULL && trii_is_handle(x) ? trii_handle_value(step, x)
                                                          : TRII_NO_VALUE;
}

void trii_share_note_of(const trii_share *share, const tri_tensor *y)
{
    trii_vid value = value_of(y);

    trii_share_note(share);
    if (share->parts > 1 && value != TRII_NO_VALUE)
        trii_cut_parts_note(value);
}

void trii_share_note_whole(tri_tensor *x)
{
    trii_step *step;
    trii_vid value;

    if (TRII_LIKELY(trii_cut_input_is_noted()) || x == NULL || tri_tensor_status(x) != TRI_OK)
        return;
    step = trii_step_current();
    if (step != NULL && trii_resolve(step, x, &value) == TRI_OK)
        trii_cut_input_note(value);
}

tri_status trii_share_check_order(const tri_tensor *x)
{
    trii_vid value = value_of(x);

    if (value == TRII_NO_VALUE || !trii_cut_parts_reach(value))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "x %s is this rank's part of each of several parts, as a layer with "
                     "tri_parallel_rule.parts gave it, and would be taken for one part of all: "
                     "leave .parts out there, or take the parts from each other first (tri_narrow)",
                     tri_tensor_shape_text(x));
}

tri_tensor *trii_share_give(const trii_share *share, tri_tensor *x)
{
    trii_share_note(share);
    return trii_share_take(share, x, -1);
}

trii_share trii_share_noted(tri_group *group, int64_t n)
{
    const trii_cut_features over = nothing_over(group), noted = trii_cut_features_over(&over);
    trii_share share = {.group = group,
                        .parts = (int)noted.parts,
                        .block = 1,
                        .whole = noted.whole,
                        .start = noted.start,
                        .n = noted.n};

    if (share.parts > 0 && n == share.n) /* of one of its parts */
        share.parts = 1;
    return share.parts > 0 && n == share.n * share.parts
               ? share
               : trii_share_of(group, n * tri_group_size(group), 1, 1);
}

void trii_forward_part(tri_module *self, tri_tensor *x, tri_tensor **out, const trii_share *share,
                       int dim)
{
    const trii_random_part part = {.dim = dim,
                                   .parts = share->parts,
                                   .whole = share->whole,
                                   .start = share->start,
                                   .n = share->n};
    trii_step *step = trii_step_current();
    const trii_random_part *outer = NULL; /* of a module around this one */

    if (step != NULL) {
        outer = trii_recorder_of(step)->scopes.random_part;
        trii_recorder_of(step)->scopes.random_part = &part;
    }
    self->type->forward(self, &x, 1, out, 1);
    if (step != NULL)
        trii_recorder_of(step)->scopes.random_part = outer;
}

void trii_parallel_add_part(trii_parallel_cut *cut, tri_tensor *tensor, int dim,
                            const trii_share *share)
{
    cut->parts[cut->n_parts++] =
        (trii_parallel_part){.tensor = tensor, .dim = dim, .share = *share};
}
