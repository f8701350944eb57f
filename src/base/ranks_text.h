/*
 * ranks_text.h - ranks in a message: "rank 3", "ranks 1, 3-5".
 */
#ifndef TRII_RANKS_TEXT_H
#define TRII_RANKS_TEXT_H

#include <stddef.h>

/* n ranks, ascending, into text; returns how long that is. What does not fit is cut off. */
size_t trii_ranks_text(const int *ranks, int n, char *text, size_t size);

#endif
