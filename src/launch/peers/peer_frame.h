/*
 * peer_frame.h - what agents say to each other: frames of 40 bytes, in host byte order, and after
 * one with news the text that says why.
 *
 *   0   magic   u32       TRII_PEER_MAGIC
 *   4   kind    u32       below; others belong to a later version, and count as a heartbeat
 *   8   rank    i32
 *   12  number  i32
 *   16  value   i64
 *   24  token   char[16]
 *
 * The first frame is the dialer's HELLO; with a job key both sides prove it before
 * (store/handshake.h, for "agent"). Then frames go both ways. No clocks, no sockets.
 */
#ifndef TRII_PEER_FRAME_H
#define TRII_PEER_FRAME_H

#include "base/err.h"
#include "store/handshake.h"

#define TRII_PEER_MAGIC 0x33415254u /* "TRA3" */
#define TRII_PEER_PURPOSE "agent"

enum { TRII_PEER_TOKEN_BYTES = 16, TRII_PEER_TEXT_BYTES = TRII_ERR_BYTES };

typedef enum trii_peer_frame_kind {
    TRII_PEER_HEARTBEAT,  /* value: for how many ms the agent's loop has been blocked, or 0; number:
                             how many ms ago a worker of any host made progress, as far as the
                             sender knows; rank: of the agent of that host; token: its clock then,
                             in 8 bytes, by which news of it that comes round again is known */
    TRII_PEER_HELLO,      /* rank: the sender's own, in round `value`; token: of the agent that is
                             dialed, from the agents' store: a proof that it can be read */
    TRII_PEER_GOODBYE,    /* this agent leaves in order */
    TRII_PEER_PREEMPTION, /* the host of agent `rank` will be preempted in `value` ms (-1: nobody
                             said when); number: counts its notices, from 1 */
    TRII_PEER_NEWS        /* what all agents of the round have to know; number: TRII_PEER_OVER and
                             its sisters; rank: of the agent that is gone, or -1; `value` bytes of
                             text follow */
} trii_peer_frame_kind;

/* The fields of trii_rdzv_news. */
enum {
    TRII_PEER_OVER = 1,
    TRII_PEER_COUNTS = 2,
    TRII_PEER_LEFT = 4,
    TRII_PEER_HUNG = 8,
    TRII_PEER_FINISHED = 16
};

typedef struct trii_peer_frame {
    uint32_t magic, kind;
    int32_t rank, number;
    int64_t value;
    char token[TRII_PEER_TOKEN_BYTES];
} trii_peer_frame;

_Static_assert(sizeof(trii_peer_frame) == 40, "a frame has no gaps");

/* One direction of a connection, as bytes come in; all zero at first. */
typedef struct trii_peer_reader {
    trii_handshake shake; /* `proved`: not by an agent that was dialed */
    trii_peer_frame frame;
    char text[TRII_PEER_TEXT_BYTES]; /* of NEWS */
    size_t got;                      /* bytes of both */
} trii_peer_reader;

/**
 * Takes bytes up to the end of the next frame, or of its first 40 bytes.
 *
 *   used_out    how many were taken; written also where the frame is wrong
 *   answer_out  what to send back now; *answer_bytes_out 0 = nothing
 *
 * Returns OK (reader->frame is one, and every field that its kind uses has a value that it may
 * have), INPROGRESS, FORMAT (that is not a frame, or no proof of the job key).
 */
tri_status trii_peer_reader_feed(trii_peer_reader *reader, const trii_job_key *key,
                                 const void *data, size_t bytes, size_t *used_out,
                                 unsigned char answer_out[TRII_ANSWER_BYTES],
                                 size_t *answer_bytes_out) TRI_MUST_CHECK;

#endif
