/*
 * rank_text.c - see rank_text.h.
 */
#include "train/tensor/rank_text.h"

#include <stdio.h>

trii_rank_text trii_rank_text_of(const tri_group *group, int rank)
{
    int world_rank = tri_group_world_rank(group, rank);
    trii_rank_text t;

    if (world_rank == rank || world_rank < 0)
        snprintf(t.text, sizeof(t.text), "rank %d", rank);
    else
        snprintf(t.text, sizeof(t.text), "rank %d (world rank %d)", rank, world_rank);
    return t;
}
