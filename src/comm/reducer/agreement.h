/*
 * agreement.h - do all ranks have the same: gradients, models, options?
 */
#ifndef TRII_AGREEMENT_H
#define TRII_AGREEMENT_H

#include <string.h>

#include <trireme/group.h>

#define TRII_AGREE_LINE 160
#define TRII_AGREE_NAME 64 /* at most so much of a name is in a line: its end */

/* Entries of which ranks say by hashes what they have. A line that describes one may be cut short;
 * its hash is of all of it. */
typedef struct trii_agreement {
    tri_group *group;
    int64_t n; /* of this rank; others may have more or less */
    void *ctx;
    /* Also called with an index from n on. */
    tri_status (*hash)(void *ctx, int64_t index, uint64_t *hash_out);
    void (*describe)(void *ctx, int64_t index, char line[TRII_AGREE_LINE]);
} trii_agreement;

/* The first entry in which a rank differs from rank 0, the same on all ranks. */
typedef struct trii_difference {
    int rank; /* 0: there is none */
    char line[TRII_AGREE_LINE], line_of_0[TRII_AGREE_LINE];
} trii_difference;

/* What a line shows of a name. */
static inline const char *trii_agree_name(const char *name)
{
    size_t n = strlen(name);

    return n > TRII_AGREE_NAME ? name + n - TRII_AGREE_NAME : name;
}

/* Collective; blocks. */
tri_status trii_agree(const trii_agreement *agreement,
                      trii_difference *difference_out) TRI_MUST_CHECK;

#endif
