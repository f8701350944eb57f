/*
 * kinds.h - the one list of the calls that a group has. A new one is a line here, a function in
 * call/ and a case in each engine. Properties say what calls have in common, and sets of kinds
 * follow from the properties, so that no other file keeps a list of its own.
 */
#ifndef TRII_KINDS_H
#define TRII_KINDS_H

#include <stdbool.h>
#include <stdint.h>

/* Properties. */
enum {
    TRII_IS_MESSAGE = 1 << 0, /* between two ranks; else a collective, which all ranks call */
    TRII_RECEIVES = 1 << 1,   /* a message's receiving side */
    TRII_NO_DATA = 1 << 2,    /* has no buffers */
    TRII_REDUCES = 1 << 3,    /* applies a tri_redop */
    TRII_FROM_ROOT = 1 << 4,  /* the data are the root's */
    TRII_TO_ROOT = 1 << 5,    /* the result is the root's */
    TRII_WHOLE_SRC = 1 << 6,  /* src has a part for every rank */
    TRII_WHOLE_DST = 1 << 7,  /* dst has a part for every rank */
    TRII_UNEQUAL = 1 << 8,    /* those parts may differ in size */
};

/* X(NAME, name, properties, arg). The order is that of the numbers on the wire and in flight
 * records: new ones go to the end. */
#define TRII_KIND_LIST(X, arg)                                                                     \
    X(ALL_REDUCE, "all_reduce", TRII_REDUCES, arg)                                                 \
    X(BROADCAST, "broadcast", TRII_FROM_ROOT, arg)                                                 \
    X(ALL_GATHER, "all_gather", TRII_WHOLE_DST, arg)                                               \
    X(REDUCE_SCATTER, "reduce_scatter", TRII_REDUCES | TRII_WHOLE_SRC, arg)                        \
    X(BARRIER, "barrier", TRII_NO_DATA, arg)                                                       \
    X(SEND, "send", TRII_IS_MESSAGE, arg)                                                          \
    X(RECV, "recv", TRII_IS_MESSAGE | TRII_RECEIVES, arg)                                          \
    X(REDUCE, "reduce", TRII_REDUCES | TRII_TO_ROOT, arg)                                          \
    X(GATHER, "gather", TRII_TO_ROOT | TRII_WHOLE_DST, arg)                                        \
    X(SCATTER, "scatter", TRII_FROM_ROOT | TRII_WHOLE_SRC, arg)                                    \
    X(ALL_TO_ALL, "all_to_all", TRII_WHOLE_SRC | TRII_WHOLE_DST, arg)                              \
    X(ALL_GATHER_V, "all_gather_v", TRII_WHOLE_DST | TRII_UNEQUAL, arg)                            \
    X(REDUCE_SCATTER_V, "reduce_scatter_v", TRII_REDUCES | TRII_WHOLE_SRC | TRII_UNEQUAL, arg)     \
    X(ALL_TO_ALL_V, "all_to_all_v", TRII_WHOLE_SRC | TRII_WHOLE_DST | TRII_UNEQUAL, arg)           \
    X(RECV_ANY, "recv_any", TRII_IS_MESSAGE | TRII_RECEIVES,                                       \
      arg) /* from the first rank that sends */

typedef enum trii_kind {
    TRII_KIND_NONE = 0,
#define TRII_KIND_ENUM(NAME, name, properties, arg) TRII_KIND_##NAME,
    TRII_KIND_LIST(TRII_KIND_ENUM, )
#undef TRII_KIND_ENUM
        TRII_KIND_COUNT
} trii_kind;

/* --- sets of kinds: bit 1u << kind ---------------------------------------- */

#define TRII_KIND_BIT_IF(NAME, name, properties, any)                                              \
    | (((properties) & (any)) != 0 ? 1u << TRII_KIND_##NAME : 0u)
/* Those with any of the properties, as a constant. */
#define TRII_KINDS_WITH(any) (0u TRII_KIND_LIST(TRII_KIND_BIT_IF, any))

#define TRII_KINDS_ALL ((1u << TRII_KIND_COUNT) - 2u)
#define TRII_KINDS_PAIR TRII_KINDS_WITH(TRII_IS_MESSAGE)
#define TRII_KINDS_RECEIVING TRII_KINDS_WITH(TRII_RECEIVES)
#define TRII_KINDS_COLLECTIVE (TRII_KINDS_ALL & ~TRII_KINDS_PAIR)
#define TRII_KINDS_REDUCING TRII_KINDS_WITH(TRII_REDUCES)
#define TRII_KINDS_ROOTED TRII_KINDS_WITH(TRII_FROM_ROOT | TRII_TO_ROOT)
#define TRII_KINDS_FROM_ROOT TRII_KINDS_WITH(TRII_FROM_ROOT)
#define TRII_KINDS_TO_ROOT TRII_KINDS_WITH(TRII_TO_ROOT)
#define TRII_KINDS_WHOLE_SRC TRII_KINDS_WITH(TRII_WHOLE_SRC)
#define TRII_KINDS_WHOLE_DST TRII_KINDS_WITH(TRII_WHOLE_DST)

static inline bool trii_kind_in(trii_kind kind, uint32_t kinds)
{
    return (kinds >> kind & 1u) != 0;
}

/* "all_reduce", ...; static text. */
const char *trii_kind_name(trii_kind kind);

#endif
