/*
 * parallel_values.c - a value that all ranks have becomes parts of it, and these one value again.
 * Equal parts travel as they are. Others are cut from a copy whose gradients are added up, and
 * joined as a sum of values that are 0 where other ranks have something.
 */
#include <trireme/dist.h>
#include <trireme/ops.h>

#include "train/parallel/tensor/tensor_parallel.h"

trii_share trii_share_of(tri_group *group, int64_t size, int parts, int64_t block)
{
    int64_t ranks = tri_group_size(group), rank = tri_group_rank(group);
    int64_t blocks = size / parts / block, each = blocks / ranks, more = blocks % ranks;

    return (trii_share){.group = group,
                        .parts = parts,
                        .block = block,
                        .whole = size / parts,
                        .start = (rank * each + (rank < more ? rank : more)) * block,
                        .n = (each + (rank < more)) * block};
}

static bool is_equal(const trii_share *share)
{
    return share->whole / share->block % tri_group_size(share->group) == 0;
}

tri_tensor *trii_share_take(const trii_share *share, tri_tensor *x)
{
    if (is_equal(share))
        return tri_dist_scatter_to(x, -1, share->group);
    return tri_narrow(tri_dist_copy_to(x, share->group), -1, share->start, share->n);
}

tri_tensor *trii_share_join(const trii_share *share, tri_tensor *x)
{
    const int64_t pad[2] = {share->start, share->whole - share->start - share->n};

    if (is_equal(share))
        return tri_dist_gather_from(x, -1, share->group);
    return tri_dist_reduce_from(tri_pad(x, pad, 2, 0.0), share->group);
}
