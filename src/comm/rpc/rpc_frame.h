/*
 * rpc_frame.h - what workers send each other: frames of a header and a body. In shared memory and
 * over tcp they are the same, in the byte order of the sender (a magic of another order is
 * refused).
 *
 *   offset size  header
 *        0    4  magic "TRP1"
 *        4    1  kind
 *        5    1  flags: 1 the data are the first part
 *                  2 request: the object is the first reference of the reply of the sender's
 *                    call with that number; reply: that is another worker's, so send it there
 *                  4 request: its sender will say FREED when it names it so no more
 *        6    2  references
 *        8    8  bytes of the body
 *       16    8  number of the call, the sender's (request, cancel) or the receiver's
 *       24    8  chain of the call; drop: how many holds
 *       32    8  object, 0 = the worker
 *       40    8  request: ns until its deadline, -1 = none; where: ns since it was started
 *       48    4  request: function, a number of the sender's; reply: status
 *       52    4  parts
 *       56    8  bytes of data
 *
 *   body: references, parts, data (16-byte aligned), parts that lie in the frame (64-byte aligned)
 *
 *   kind      from         meaning
 *   REQUEST   caller       runs a function
 *   REPLY     callee       ends a call; of a failed one the data are the error line
 *   CANCEL    caller       nobody waits for the call any more
 *   WHERE     caller       asks what became of a call; the callee answers with the same
 *   FREED     caller       has done with the parts of the call's reply; chain 1: will not name the
 *                          call as a target any more
 *   DEFINE    caller       the number of a function; the data are its name
 *   HOLD      a holder     the worker (body: rpc_wire_ref) will hold the object, too
 *   HELD      owner        the answer: it counts that hold
 *   DROP      a holder     gives up holds
 *   GONE      anybody      a worker was lost: one that never had a connection with it forgets its
 *                          holds
 *   LEAVING   anybody      takes no further requests
 *   JOINED    anybody      is in tri_rpc_join
 *   BYE       anybody      the last frame
 *   ALIVE     anybody      nothing: it makes the other host's system answer
 */
#ifndef TRII_RPC_FRAME_H
#define TRII_RPC_FRAME_H

#include <trireme/rpc.h>

#define RPC_MAGIC 0x54525031u
#define RPC_NAME (TRI_RPC_MAX_NAME + 1)
#define RPC_MAX_FRAME ((size_t)128 << 10)  /* in shared memory, with its header */
#define RPC_EAGER_BYTES ((size_t)48 << 10) /* data and parts in one of these */
#define RPC_EAGER_PART ((size_t)4 << 10)
#define RPC_CONTROL_BYTES ((size_t)512) /* the body of other kinds than request and reply */

enum {
    RPC_REQUEST = 1,
    RPC_REPLY,
    RPC_CANCEL,
    RPC_WHERE,
    RPC_FREED,
    RPC_DEFINE,
    RPC_HOLD,
    RPC_HELD,
    RPC_DROP,
    RPC_GONE,
    RPC_LEAVING,
    RPC_JOINED,
    RPC_BYE,
    RPC_ALIVE
};

enum { RPC_DATA_IS_PART = 1, RPC_OF_PROMISE = 2, RPC_KEEPS = 4 };

typedef struct rpc_header {
    uint32_t magic;
    uint8_t kind;
    uint8_t flags;
    uint16_t n_refs;
    uint64_t bytes;
    uint64_t call;
    uint64_t chain;
    uint64_t object;
    int64_t ns;
    int32_t function; /* or a status */
    uint32_t n_parts;
    uint64_t data_bytes;
} rpc_header;

/* A reference: an object of the worker with that incarnation and name. */
typedef struct rpc_wire_ref {
    uint64_t incarnation;
    uint64_t object;
    char name[RPC_NAME];
} rpc_wire_ref;

typedef struct rpc_wire_part {
    uint64_t bytes;
    uint64_t at;    /* in the body, or in the arena */
    uint32_t arena; /* the sender's; 0 = in the body */
    uint32_t zero;
} rpc_wire_part;

_Static_assert(sizeof(rpc_header) == 64 && sizeof(rpc_wire_ref) == 144 &&
                   sizeof(rpc_wire_part) == 24,
               "as it is drawn");

/* Where things are in a body. */
typedef struct rpc_shape {
    size_t refs_at, parts_at, data_at, end; /* of the data, or of the lists if they are a part */
} rpc_shape;

/* What a receiver accepts, before it takes memory. */
typedef struct rpc_limits {
    size_t data, part, message;
    bool reply;
} rpc_limits;

#define RPC_NO_PARTS "n_parts is %d, but it takes none (max_part)"

static inline size_t rpc_round(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

rpc_shape rpc_frame_shape(uint32_t n_refs, uint32_t n_parts, size_t data_bytes);
/* Of a header alone. FORMAT: no frame, close the connection; INVALID_ARG: it exceeds a limit. */
tri_status rpc_frame_check(const rpc_header *h, const rpc_limits *limits) TRI_MUST_CHECK;
/* Of the body, h->bytes at `body`: all parts lie within it or within `arena_bytes(arg, arena)`, 0 =
 * there is none; names end. Errors: as above. */
tri_status rpc_frame_check_body(const rpc_header *h, const void *body, const rpc_limits *limits,
                                size_t (*arena_bytes)(void *arg, uint32_t arena),
                                void *arg) TRI_MUST_CHECK;

#endif
