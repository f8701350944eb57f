/*
 * moves.h - a call as one or two moves of bytes with a reduction between them, for engines whose
 * library moves data well and adds in an order of its own: so their sums have our bits too.
 *
 * An all_reduce of much is "slice r of everybody to rank r", a sum, "slice r of rank r to
 * everybody": the least that has to be moved. Of little it is "all to everybody", and a sum.
 *
 * Needs nothing of the library, so plug-ins compile it in.
 */
#ifndef TRII_MOVES_H
#define TRII_MOVES_H

#include "comm/group/engine.h"

#define TRII_MOVES_SMALL ((size_t)32 << 10) /* bytes of all ranks that are rather sent whole */

typedef enum trii_move_kind {
    TRII_MOVE_NONE = 0,
    TRII_MOVE_BARRIER,
    TRII_MOVE_BROADCAST,  /* dst[count] of root */
    TRII_MOVE_GATHER,     /* src[count] of all, to dst's parts at root */
    TRII_MOVE_SCATTER,    /* src's parts at root, to dst[count] of all */
    TRII_MOVE_ALL_GATHER, /* src[count] of all, to dst's parts */
    TRII_MOVE_ALL_TO_ALL, /* src's parts to dst's parts; they never overlap */
    TRII_MOVE_SEND,
    TRII_MOVE_RECV,
    TRII_MOVE_RECV_ANY
} trii_move_kind;

typedef struct trii_move {
    trii_move_kind kind;
    int root; /* or peer */
    int tag;
    bool in_place; /* our own part is where it belongs already, in the buffer that has parts */
    const char *src;
    char *dst;
    size_t count;                  /* elements of our own part */
    const size_t *src_at, *dst_at; /* [size + 1] where parts begin, in elements */
} trii_move;

typedef struct trii_moves {
    size_t elem_bytes;
    trii_move first, second; /* second.kind NONE: there is one */
    /* Between them, if n_parts > 0: sum[part_count] = reduction of the parts, which lie one after
     * the other in `parts`. */
    int n_parts;
    size_t part_count;
    const char *parts;
    char *sum;
} trii_moves;

/* Bytes of memory that trii_moves_plan needs. */
size_t trii_moves_memory(const trii_collective *call, size_t elem_bytes, int rank, int size);
/* memory is aligned for any type and lives as long as the moves. */
void trii_moves_plan(const trii_collective *call, size_t elem_bytes, int rank, int size,
                     void *memory, trii_moves *moves_out);

#endif
