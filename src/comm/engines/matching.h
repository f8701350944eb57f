/*
 * matching.h - messages and the receives that they are for. Either may come first, so each side
 * waits in a table for the other: by tag, the oldest first, found without a look at those of other
 * tags, however many there are.
 * How much may wait is in comm/group/group_limits.h.
 */
#ifndef TRII_MATCHING_H
#define TRII_MATCHING_H

#include "comm/group/engine.h"
#include "comm/group/group_limits.h"

/* Whether a message is copied where `kept` bytes of its sender wait already. */
static inline bool trii_is_copied(size_t bytes, size_t kept)
{
    if (kept >= TRII_KEPT_EAGER)
        return bytes <= TRII_TINY_BYTES && kept < TRII_KEPT_MOST;
    return bytes <= TRII_EAGER_BYTES;
}

/* "; WHO keeps 16 MiB of messages that it has not received" where so many are kept that sends to it
 * wait, else "". */
void trii_kept_describe(const char *who, size_t kept, char *text, size_t size);

/* --- tables by tag -------------------------------------------------------- */

/* Is part of what waits. */
typedef struct trii_tagged {
    struct trii_tagged *next;
    uint64_t tag;
} trii_tagged;

typedef struct trii_tag_chain {
    trii_tagged *first, *last;
} trii_tag_chain;

/* Zeroed: empty. A few of them need no memory. */
#define TRII_TAG_CHAINS 4
typedef struct trii_tags {
    size_t count;
    size_t n_chains; /* a power of two; 0 = those of `few` */
    trii_tag_chain *chains;
    trii_tag_chain few[TRII_TAG_CHAINS];
} trii_tags;

void trii_tags_add(trii_tags *tags, trii_tagged *one);
/* The oldest with the tag, or NULL; the next one of the same tag. */
trii_tagged *trii_tags_find(const trii_tags *tags, uint64_t tag);
trii_tagged *trii_tags_next(const trii_tagged *one);
void trii_tags_remove(trii_tags *tags, trii_tagged *one);
/* Walks over all, in no order: NULL gives the first, the last one NULL. */
trii_tagged *trii_tags_walk(const trii_tags *tags, const trii_tagged *after);
/* Frees what the table itself has taken; it is empty then. */
void trii_tags_clear(trii_tags *tags);

/* --- receives ------------------------------------------------------------- */

/* How the scratch of sends and receives begins, in every engine that uses these tables. */
typedef struct trii_waiting {
    trii_tagged tagged;
    uint64_t posted; /* order of posting, of a receive */
} trii_waiting;

static inline trii_waiting *trii_waiting_of(trii_op *op)
{
    return (trii_waiting *)(void *)op->scratch;
}

static inline trii_op *trii_waiting_op(const trii_tagged *one)
{
    return (trii_op *)(void *)((char *)(uintptr_t)one - offsetof(trii_op, scratch));
}

static inline uint64_t trii_tag_of(const trii_collective *call)
{
    return (uint32_t)call->tag;
}

/* A receive begins to wait, as the n-th of its group. */
void trii_recv_wait(trii_tags *recvs, trii_op *op, uint64_t posted);
/* The receive that was posted first, of those from this rank and those from any rank, and takes a
 * message with this tag of rank `from`: out of its table; or NULL. */
trii_op *trii_recv_take(trii_tags *recvs, trii_tags *any_recvs, uint64_t tag, int from);

/* Takes one of the operations that wait out of the table, in no order; NULL: it was the last, and
 * the table is cleared. */
trii_op *trii_waiting_pop(trii_tags *tags);
/* Takes this receive out of its table; false: it is not there. */
bool trii_recv_cancel(trii_tags *recvs, const trii_op *op);

/* A message, as its receive is told of it. */
typedef struct trii_message {
    tri_dtype dtype;
    size_t count;
    size_t bytes;
} trii_message;

/* Whether there is room for the message: then the receive's call becomes the message's. If not, a
 * reason into why: the receive fails alone, and the message stays. The dtypes are the same. */
bool trii_recv_fits(trii_op *op, const trii_message *message, char why[TRII_ERR_BYTES]);

#endif
