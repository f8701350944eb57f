/*
 * hierarchy.h - the engine for several hosts of which some have several ranks: it combines shm
 * inside a host with tcp between hosts. Its files:
 *
 *   hierarchy.c           the engine: its table, its memory, its end
 *   hierarchy_calls.c     collective calls under way: their order, driving, waiting
 *   hierarchy_messages.c  send and recv
 *   hierarchy_stages.c    calls as stages, each a call of a child
 *   hierarchy_child.c     a child: making it, posting to it, its failure
 *   hierarchy_layout.c    which rank is where, and what of the canonical tree a host sums alone
 *   hierarchy_sum.c       adds what several hosts have summed, in the canonical order
 */
#ifndef TRII_HIERARCHY_H
#define TRII_HIERARCHY_H

#include "comm/composites/composites.h"
#include "comm/group/group_limits.h"
#include "os/thread.h"

/* --- hierarchy_layout.c --------------------------------------------------- */

/* Hosts are numbered in the order of their first ranks, and the ranks of a host in their own order.
 * A column has one rank of each host; there are as many columns as the smallest host has ranks.
 * What is summed or gathered in a host is divided among the columns. A partial is a largest subtree
 * of the canonical tree whose ranks are all on one host: what that host can sum alone. */
typedef struct hierarchy_layout {
    int size, n_hosts, n_columns;
    int host, local_rank, local_size; /* of this rank */
    int column;                       /* -1: it is in none */
    int *host_of, *local_of;          /* [size], of a rank: its host, its number there */
    int *host_at;                     /* [n_hosts + 1] in by_host */
    int *by_host;                     /* [size]: ranks, host by host */
    int *by_column;                   /* [size]: the same, column by column, in each host by host;
                                         ranks without a column are with column (number there) %
                                         n_columns */
    int *piece_at;                    /* [n_columns * n_hosts + 1] in by_column */
    int *column_ranks;                /* [n_hosts]: of our column */
    int n_partials;
    int *partial_at;                    /* [n_hosts + 1]: a host's, of all partials */
    int *partial_first, *partial_ranks; /* [n_partials]: first rank, how many */
    int *partial_of;                    /* [size]: the partial that begins with a rank, or -1 */
    /* there is one partial per host, and the tree over these is the one over n_hosts ranks */
    bool tree_fits;
    int *memory;
} hierarchy_layout;

/* Exchanges through the store which rank is on which host; fails on all ranks or none. mine: this
 * rank's status; a failure is reported to the others, and then layout may be NULL. Blocks. Errors:
 * UNSUPPORTED (there is one host, or every host has one rank). */
tri_status hierarchy_layout_init(hierarchy_layout *layout, const trii_group_args *args,
                                 tri_status mine) TRI_MUST_CHECK;
/* hosts: [size] numbers of hosts, as above. For tests too. Errors: NO_MEMORY. */
tri_status hierarchy_layout_fill(hierarchy_layout *layout, const int *hosts, int size,
                                 int rank) TRI_MUST_CHECK;
void hierarchy_layout_fini(hierarchy_layout *layout);

/* --- the engine ----------------------------------------------------------- */

/* Every call begins its stages in this order, and each stage only after the call before it has
 * begun that stage. So all ranks of a child make its calls in the same order, although several
 * calls are under way. */
enum {
    HIERARCHY_IN,    /* shm, the ranks of this host */
    HIERARCHY_CROSS, /* tcp, the ranks of our column */
    HIERARCHY_BACK,  /* tcp, the same */
    HIERARCHY_OUT,   /* shm, the ranks of this host */
    HIERARCHY_FLAT,  /* tcp, all ranks: calls without stages, begun in CROSS's order */
    HIERARCHY_CHILDREN
};
#define HIERARCHY_STAGES (HIERARCHY_OUT + 2) /* and what a rank does alone */
#define HIERARCHY_CALLS 8                    /* under way */

typedef struct hierarchy_child {
    const trii_engine *engine;
    void *self; /* NULL = none */
    uint64_t seq;
    trii_fault fault;
    char name[TRII_GROUP_NAME];
} hierarchy_child;

/* A call under way. */
typedef struct hierarchy_call {
    struct hierarchy_call *next; /* the call after it */
    trii_op *op;                 /* NULL = this entry is free */
    int stage;                   /* the next to begin */
    trii_op inner;               /* the stage's call to a child */
    hierarchy_child *inner_on;   /* that child; NULL = no inner call is under way */
    bool met_here;               /* it has or had an inner call of IN */
    size_t *columns;             /* [size + 1]: where they begin in the vector, as hosts see it */
    size_t *pieces;              /* [n_hosts + 1]: of our column, for each host */
    size_t *src_at, *dst_at;     /* [size + 1]: of the inner call */
    char *memory;
    size_t bytes;
    /* Pointers into `memory` or into the caller's buffers. */
    const char *whole;    /* the vector as this rank gives it */
    char *apart;          /* the inputs of our column of all ranks of this host */
    const char *partials; /* our column: piece by piece, in it partial by partial of this host */
    char *received;       /* our piece: all partials */
    char *result;         /* our piece, summed; the vector as it comes */
    char *own;            /* what this rank's host gets of our column */
    tri_dtype dtype;      /* in which it is summed */
    size_t elem;          /* its size */
    bool at_once;         /* an all_reduce is one call of CROSS */
} hierarchy_call;

/* A receive from any rank: both engines have it, and the first to find a message completes it. */
typedef struct hierarchy_half {
    trii_op op;
    hierarchy_child *on;
    struct hierarchy_any *any;
    atomic_bool done; /* the engine has it no more */
} hierarchy_half;

typedef struct hierarchy_any {
    struct hierarchy_any *next; /* guard: mutex */
    trii_fault *fault;          /* the group's */
    int rank;
    trii_op *whole;            /* until it is finished */
    hierarchy_half halves[2];  /* of IN, of FLAT */
    atomic_int won;            /* one of the two has a message */
    atomic_int no_sender_left; /* how many of the two can get no message any more */
    int users;                 /* guard: mutex; threads that wait for it */
} hierarchy_any;

typedef struct hierarchy {
    int rank, size;
    trii_fault *fault;
    hierarchy_layout layout;
    hierarchy_child children[HIERARCHY_CHILDREN];

    atomic_int n_near; /* unfinished messages between ranks of this host */

    trii_mutex mutex;
    trii_cond turn; /* the driver has left, or a call is over */
    bool driving;   /* guard: mutex, as all below; only the driver begins later stages */
    hierarchy_call calls[HIERARCHY_CALLS];
    hierarchy_call *first; /* of those under way, in order */
    trii_op *queue;        /* calls that wait for a free entry of `calls` */
    int64_t idle_ns;       /* when children that have nothing to do are polled next */
    hierarchy_any *anys;   /* receives from any rank that are not freed yet */
    const void **sources;  /* [size]: for sums */
    const char **from;     /* [n_partials]: for sums */
    char *sum_room;        /* for sums */
    void *alloc_room;      /* owned by the group */
} hierarchy;

/* --- hierarchy_child.c ---------------------------------------------------- */

/* Makes one of the children, if this rank is in it. Blocks. */
tri_status hierarchy_child_create(hierarchy *h, const trii_group_args *args,
                                  int which) TRI_MUST_CHECK;
/* Posts a piece of c's call; its status shows when the child has finished it. */
tri_status hierarchy_post(hierarchy *h, hierarchy_call *c, int child,
                          const trii_collective *piece) TRI_MUST_CHECK;
/* A fault of a child, or one raised from outside, fails the group and all children. Returns whether
 * the group has failed. */
bool hierarchy_check_faults(hierarchy *h);
void hierarchy_abort_children(hierarchy *h);

/* --- hierarchy_calls.c ---------------------------------------------------- */

/* The engine's functions of these names, for collectives. */
tri_status hierarchy_call_submit(hierarchy *h, trii_op *op) TRI_MUST_CHECK;
void hierarchy_call_progress(hierarchy *h, trii_op *op, int64_t until_ns);
void hierarchy_call_describe(hierarchy *h, trii_op *op, char *text, size_t size);
/* Guard: mutex. Polls every child that has something to do, and does what follows from it. */
void hierarchy_look(hierarchy *h);
/* Guard: mutex. Does what can be done now without a child. */
void hierarchy_advance(hierarchy *h);
/* Guard: mutex, released meanwhile. Makes progress on calls under way, for a moment at most. */
void hierarchy_drive(hierarchy *h, int64_t until_ns);

/* Intervals between two checks: of the children's faults; of the other children while one is
 * waited for; of children between hosts that have nothing to do. */
#define HIERARCHY_LOOK_NS INT64_C(10000000)
#define HIERARCHY_MIXED_NS INT64_C(200000)
#define HIERARCHY_IDLE_NS INT64_C(50000000)
static inline bool hierarchy_is_near(const hierarchy *h, int rank)
{
    return h->layout.host_of[rank] == h->layout.host;
}

/* --- hierarchy_messages.c ------------------------------------------------- */

/* The engine's functions of these names, for sends and receives. */
tri_status hierarchy_message_submit(hierarchy *h, trii_op *op) TRI_MUST_CHECK;
void hierarchy_message_progress(hierarchy *h, trii_op *op, int64_t until_ns);
void hierarchy_message_describe(hierarchy *h, trii_op *op, char *text, size_t size);
/* Only for a send of this rank to itself. */
bool hierarchy_message_cancel_recv(void *self, trii_op *op);
/* Guard: mutex. Frees receives from any rank that no engine has any more. */
void hierarchy_message_sweep(hierarchy *h);
/* At the end: frees them all. */
void hierarchy_message_fini(hierarchy *h);

/* --- hierarchy_stages.c (guard: mutex) ------------------------------------ */

/* Begins stage c->stage: does this rank's part, and posts the call of a child, if the stage has
 * one. */
tri_status hierarchy_next_stage(hierarchy *h, hierarchy_call *c) TRI_MUST_CHECK;

/* --- hierarchy_sum.c (guard: mutex) --------------------------------------- */

#define HIERARCHY_SUM_BYTES ((size_t)8 << 10) /* summed at a time */
#define HIERARCHY_SUM_DEPTH (2 * TRII_TREE_LEVELS)

/* dst[count] = the canonical tree over all ranks, of what h->from[n_partials] point to. */
void hierarchy_sum(hierarchy *h, char *dst, size_t count, tri_dtype dtype, tri_redop op);
/* Turns a sum into the caller's result: the mean, or rounded to f16 or bf16; else src is dst. */
void hierarchy_finish(const trii_collective *call, int size, char *src, size_t count, void *dst);

#endif
