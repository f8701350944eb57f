/*
 * rank_text.h - a rank of a group in a message, which readers look for among those of the world.
 */
#ifndef TRII_RANK_TEXT_H
#define TRII_RANK_TEXT_H

#include <trireme/group.h>

typedef struct trii_rank_text {
    char text[48];
} trii_rank_text;

/* "rank 1", or "rank 1 (world rank 5)" where the world has another number for it. */
trii_rank_text trii_rank_text_of(const tri_group *group, int rank);

#endif
