/*
 * hierarchy.h - the engine for several ranks on some of several hosts: shm inside a host and tcp
 * between hosts as one. What its files share:
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

#include "composites/composites.h"
#include "group/group_limits.h"
#include "os/thread.h"

/* --- hierarchy_layout.c --------------------------------------------------- */

/* Hosts are numbered by their first rank, the ranks of a host by their order. A column is a rank of
 * each host: as many of them as the smallest host has ranks; what is summed or gathered in a host
 * is divided among its columns. A partial is a largest subtree of the canonical tree whose ranks
 * are all on one host: what that host can sum alone. */
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
    bool in_order;                    /* by_column is 0, 1, 2, ... */
    int n_partials;
    int *partial_at;                    /* [n_hosts + 1]: a host's, of all partials */
    int *partial_first, *partial_ranks; /* [n_partials]: first rank, how many */
    int *partial_of;                    /* [size]: the partial that begins with a rank, or -1 */
    /* there is one partial per host, and the tree over these is the one over n_hosts ranks */
    bool tree_fits;
    int *memory;
} hierarchy_layout;

/* Reads where the ranks are through the store. mine: a failure of ours before, which the others
 * hear; then layout may be NULL. Blocks. Errors: UNSUPPORTED (one host, or a rank for each). */
tri_status hierarchy_layout_init(hierarchy_layout *layout, const trii_group_args *args,
                                 tri_status mine) TRI_MUST_CHECK;
/* hosts: [size] numbers of hosts, as above. For tests too. Errors: NO_MEMORY. */
tri_status hierarchy_layout_fill(hierarchy_layout *layout, const int *hosts, int size,
                                 int rank) TRI_MUST_CHECK;
void hierarchy_layout_fini(hierarchy_layout *layout);

/* --- the engine ----------------------------------------------------------- */

/* Every call begins its stages in this order, and a stage only when the call before has begun it:
 * so all ranks of a child make its calls in one order, while several calls are under way. */
enum {
    HIERARCHY_IN,    /* shm, the ranks of this host */
    HIERARCHY_CROSS, /* tcp, the ranks of our column */
    HIERARCHY_BACK,  /* tcp, the same */
    HIERARCHY_OUT,   /* shm, the ranks of this host */
    HIERARCHY_FLAT,  /* tcp, everybody: calls that have no stages make theirs with CROSS */
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
    trii_op *op;                 /* NULL = nobody's */
    int stage;                   /* the next to begin */
    trii_op inner;               /* the stage's call to a child */
    hierarchy_child *inner_on;   /* NULL = none is under way */
    trii_op host_barrier;        /* shows this host's ranks a call that begins elsewhere */
    bool has_host_barrier;       /* it was posted */
    size_t *columns;             /* [size + 1]: where they begin in the vector, as hosts see it */
    size_t *pieces;              /* [n_hosts + 1]: of our column, for each host */
    size_t *src_at, *dst_at;     /* [size + 1]: of the inner call */
    char *memory;
    size_t bytes;
    /* Places in memory, or in the caller's buffers. */
    const char *whole;    /* the vector as this rank gives it */
    char *apart;          /* of all ranks of this host: their inputs of our column */
    const char *partials; /* our column: piece by piece, in it partial by partial of this host */
    char *received;       /* our piece: all partials */
    char *result;         /* our piece, summed; the vector as it comes */
    char *own;            /* what this rank's host gets of our column */
    tri_dtype dtype;      /* in which it is summed */
    size_t elem;          /* its size */
    bool at_once;         /* an all_reduce is one call of CROSS */
} hierarchy_call;

/* A receive from any rank: both engines have it, and the first to find a message wins it. */
typedef struct hierarchy_any {
    struct hierarchy_any *next; /* guard: mutex */
    struct hierarchy *h;
    trii_op *whole; /* until it is finished */
    trii_op near, far;
    atomic_int won;                  /* one of the two has a message */
    atomic_int no_sender_left;       /* of the two, how many can get no message any more */
    atomic_bool near_done, far_done; /* the engine does not have it any more */
    int users;                       /* guard: mutex; threads that wait for it */
} hierarchy_any;

typedef struct hierarchy {
    int rank, size;
    trii_fault *fault;
    hierarchy_layout layout;
    hierarchy_child children[HIERARCHY_CHILDREN];

    atomic_int n_near; /* messages on this host that are not done */

    trii_mutex mutex;
    trii_cond turn; /* the driver has left, or a call is over */
    bool driving;   /* guard: mutex, as all below; only the driver begins later stages */
    hierarchy_call calls[HIERARCHY_CALLS];
    hierarchy_call *first; /* of those under way, in order */
    trii_op *queue;        /* calls that wait for room */
    int64_t idle_ns;       /* when children that have nothing to do are polled next */
    hierarchy_any *anys;   /* not freed yet */
    const void **sources;  /* [size]: for sums */
    const char **from;     /* [n_partials]: likewise */
    char *sum_room;        /* likewise */
    void *alloc_room;      /* the group's */
} hierarchy;

/* --- hierarchy_child.c ---------------------------------------------------- */

/* Makes one of the children, if this rank is in it. Blocks. */
tri_status hierarchy_child_create(hierarchy *h, const trii_group_args *args,
                                  int which) TRI_MUST_CHECK;
/* Posts op, as `piece` of the call `whole`; guard: mutex. */
tri_status hierarchy_child_post(hierarchy_child *child, trii_op *op, const trii_collective *piece,
                                const trii_op *whole) TRI_MUST_CHECK;
/* Posts a piece of c's call; the child's end of it is seen by its status. */
tri_status hierarchy_post(hierarchy *h, hierarchy_call *c, int child,
                          const trii_collective *piece) TRI_MUST_CHECK;
/* What has failed in a child, or was raised from outside, fails everything. True if failed. */
bool hierarchy_check_faults(hierarchy *h);
void hierarchy_abort_children(hierarchy *h);

/* --- hierarchy_calls.c ---------------------------------------------------- */

/* As the engine's functions, for collectives. */
tri_status hierarchy_call_submit(hierarchy *h, trii_op *op) TRI_MUST_CHECK;
void hierarchy_call_progress(hierarchy *h, trii_op *op, int64_t until_ns);
void hierarchy_call_describe(hierarchy *h, trii_op *op, char *text, size_t size);
/* Guard: mutex. One look at every child that has something to do, and whatever follows from it. */
void hierarchy_look(hierarchy *h);
/* Guard: mutex. Does what can be done now without a child. */
void hierarchy_advance(hierarchy *h);
/* Guard: mutex, given back meanwhile. Helps what is under way along, for a moment at most. */
void hierarchy_drive(hierarchy *h, int64_t until_ns);

#define HIERARCHY_LOOK_NS INT64_C(10000000) /* between two looks at the children's faults */
#define HIERARCHY_MIXED_NS INT64_C(200000)  /* between two looks at what moves elsewhere */
#define HIERARCHY_IDLE_NS INT64_C(50000000) /* between two looks at what others say */
static inline bool hierarchy_is_near(const hierarchy *h, int rank)
{
    return h->layout.host_of[rank] == h->layout.host;
}

/* --- hierarchy_messages.c ------------------------------------------------- */

/* As the engine's functions, for sends and receives. */
tri_status hierarchy_message_submit(hierarchy *h, trii_op *op) TRI_MUST_CHECK;
void hierarchy_message_progress(hierarchy *h, trii_op *op, int64_t until_ns);
void hierarchy_message_describe(hierarchy *h, trii_op *op, char *text, size_t size);
/* Of a send to ourselves only. */
bool hierarchy_message_cancel_recv(hierarchy *h, trii_op *op);
/* Guard: mutex. Frees receives from any rank that no engine has any more. */
void hierarchy_message_sweep(hierarchy *h);
/* At the end: frees them all. */
void hierarchy_message_fini(hierarchy *h);

/* --- hierarchy_stages.c (guard: mutex) ------------------------------------ */

/* Whether a call goes in stages; else it is one of `flat`. The same on all ranks that agree.
 * Ranks of a host that disagree find it by the host barrier on IN. Hosts of which one goes in
 * stages and another does not wait for each other on CROSS and FLAT: a barrier there would cost
 * every small call a round between hosts. So FLAT knows all calls, and ranks that wait for long
 * compare them there. */
bool hierarchy_is_staged(const hierarchy *h, const trii_collective *call);
/* Begins stage c->stage: does this rank's part, posts what a child has to do, which may be
 * nothing. */
tri_status hierarchy_next_stage(hierarchy *h, hierarchy_call *c) TRI_MUST_CHECK;

/* --- hierarchy_sum.c (guard: mutex) --------------------------------------- */

#define HIERARCHY_SUM_BYTES ((size_t)8 << 10) /* summed at a time */
#define HIERARCHY_SUM_DEPTH (2 * TRII_TREE_LEVELS)

/* dst[count] = the canonical tree over all ranks, of what h->from[n_partials] point to. */
void hierarchy_sum(hierarchy *h, char *dst, size_t count, tri_dtype dtype, tri_redop op);
/* Halves as f32, to be summed. */
void hierarchy_widen(const void *src, float *dst, size_t count, tri_dtype dtype);
/* A sum as the caller wants it: the mean, low precision rounded. src may be dst. */
void hierarchy_finish(const trii_collective *call, int size, char *src, size_t count, void *dst);

#endif
