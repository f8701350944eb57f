/*
 * tcp_frame.h - what the connections of the tcp engine carry: frames, in host byte order, each a
 * header of 64 bytes and a payload, which follow each other in the order of the calls.
 *
 * A frame of a collective that this rank has not started stays in the kernel's buffers: that is the
 * flow control of collectives. Messages have the two protocols that MPI libraries and UCX have:
 *
 *   eager        MESSAGE, whole
 *   rendezvous   RTS with the first part of the message; the receiver answers CTS once it has a
 *                receive for it, which ends the send if the first part was all of it; else REST
 *
 * A receiver that keeps TRII_KEPT_EAGER bytes of messages without receives sends HOLD; from then on
 * an RTS carries no payload, unless the message is tiny.
 */
#ifndef TRII_ENGINE_TCP_FRAME_H
#define TRII_ENGINE_TCP_FRAME_H

#include <string.h>

#include "comm/group/engine.h"

typedef enum tcp_frame_type {
    TCP_FRAME_NONE = 0,
    TCP_FRAME_PART,      /* phase 1 of a collective: a rank's part, to be reduced or handed on */
    TCP_FRAME_RESULT,    /* phase 2: the final elements */
    TCP_FRAME_MESSAGE,   /* of a send, whole */
    TCP_FRAME_RTS,       /* ready to send: the first part of a message, or all of it */
    TCP_FRAME_CTS,       /* clear to send: a receive waits for the rest of message `seq` */
    TCP_FRAME_REST,      /* the rest of message `seq` */
    TCP_FRAME_HOLD,      /* root 1: send RTS without payload; 0: no longer */
    TCP_FRAME_GOODBYE,   /* the peer leaves the group, which is not a failure */
    TCP_FRAME_FAULT,     /* the peer's group failed: status in root, the error line as payload */
    TCP_FRAME_HEARTBEAT, /* the peer's process runs */
    TCP_FRAME_WAITS,     /* the collective that the peer has been waiting in for long */
    TCP_FRAME_LISTENS,   /* likewise, the send or receive */
} tcp_frame_type;

/* Sets of frame types. */
#define TCP_FRAME_BIT(type) (1u << TCP_FRAME_##type)
#define TCP_FRAMES_COLL (TCP_FRAME_BIT(PART) | TCP_FRAME_BIT(RESULT) | TCP_FRAME_BIT(WAITS))
#define TCP_FRAMES_P2P                                                                             \
    (TCP_FRAME_BIT(MESSAGE) | TCP_FRAME_BIT(RTS) | TCP_FRAME_BIT(CTS) | TCP_FRAME_BIT(REST) |      \
     TCP_FRAME_BIT(HOLD) | TCP_FRAME_BIT(LISTENS))
#define TCP_FRAMES_NO_PAYLOAD                                                                      \
    (TCP_FRAME_BIT(CTS) | TCP_FRAME_BIT(HOLD) | TCP_FRAME_BIT(WAITS) | TCP_FRAME_BIT(LISTENS) |    \
     TCP_FRAME_BIT(HEARTBEAT))

typedef struct tcp_frame {
    uint8_t type;
    uint8_t kind, dtype, op; /* the call, so that both can be named when they differ */
    int32_t root;            /* message: 0 */
    uint64_t seq;
    uint64_t count;
    uint64_t bytes; /* of the payload */
    uint32_t part;  /* message, listens: tag; fault: 1 + the lost rank; collective: its number
                       among the calls of the group, of which this may be a piece */
    uint32_t line;  /* of the caller; 0 = unknown */
    char file[24];  /* its first letters, then zeros */
} tcp_frame;
_Static_assert(sizeof(tcp_frame) == 64, "the size of a header is part of the wire format");

/* The header of a frame of this call; its payload would be the whole call. */
static inline void tcp_frame_fill(tcp_frame *frame, tcp_frame_type type,
                                  const trii_collective *piece)
{
    const trii_collective *call = trii_collective_whole(piece);
    const char *slash = call->site.file != NULL ? strrchr(call->site.file, '/') : NULL;
    const char *file = slash != NULL ? slash + 1 : call->site.file;

    *frame = (tcp_frame){.type = (uint8_t)type,
                         .kind = (uint8_t)call->kind,
                         .dtype = (uint8_t)call->dtype,
                         .op = (uint8_t)call->op,
                         .root = call->root,
                         .seq = piece->seq,
                         .count = call->count,
                         .bytes = piece->bytes,
                         .part = (uint32_t)call->seq,
                         .line = (uint32_t)call->site.line};
    if (file != NULL)
        strncpy(frame->file, file, sizeof(frame->file) - 1);
}

#endif
