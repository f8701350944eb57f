/*
 * texts.h - a list of many short texts, one after the other in one block.
 */
#ifndef TRII_TEXTS_H
#define TRII_TEXTS_H

#include <trireme/status.h>

/* {0} is an empty one. */
typedef struct trii_texts {
    char *bytes;
    uint32_t *at; /* [n]: where each begins in bytes */
    size_t used, room;
    int64_t n, n_room;
} trii_texts;

void trii_texts_fini(trii_texts *texts);
/* Errors: NO_MEMORY, UNSUPPORTED (more than 4 GB of texts). */
tri_status trii_texts_add(trii_texts *texts, const char *text) TRI_MUST_CHECK;
/* Gives back what it has too much of. */
void trii_texts_trim(trii_texts *texts);
static inline const char *trii_texts_get(const trii_texts *texts, int64_t i)
{
    return texts->bytes + texts->at[i];
}
/* Texts first .. end-1 in the order of their bytes. */
void trii_texts_sort(trii_texts *texts, int64_t first, int64_t end);
/* Which text of a sorted list it is; -1: none. */
int64_t trii_texts_find(const trii_texts *texts, const char *text);

#endif
