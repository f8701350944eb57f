/*
 * peer_messages.h - the messages that agents exchange once the hello is done: one letter each, two
 * of them with numbers. Letters that are not known belong to a later version, and count as a
 * heartbeat. No clocks, no sockets.
 *
 *   h                  heartbeat
 *   q                  goodbye: this agent leaves in order
 *   bMS;               heartbeat of an agent whose loop has been blocked for MS milliseconds
 *   nRANK,NUMBER,MS;   the host of agent RANK will be preempted in MS milliseconds
 *                      (-1 = nobody said when); NUMBER counts its notices
 *
 * Numbers are decimal; a message has at most 47 bytes.
 */
#ifndef TRII_PEER_MESSAGES_H
#define TRII_PEER_MESSAGES_H

#include <trireme/status.h>

#define TRII_PEER_MESSAGE_BYTES 48

typedef enum trii_peer_message_kind {
    TRII_PEER_HEARTBEAT, /* or any other letter */
    TRII_PEER_GOODBYE,
    TRII_PEER_STALLED,
    TRII_PEER_PREEMPTION
} trii_peer_message_kind;

typedef struct trii_peer_message {
    trii_peer_message_kind kind;
    int rank;        /* of PREEMPTION; not negative */
    int number;      /* of PREEMPTION; from 1 */
    int64_t left_ms; /* of PREEMPTION; of STALLED for how long */
} trii_peer_message;

/* One direction of a connection; all zero at first. */
typedef struct trii_peer_messages {
    char text[TRII_PEER_MESSAGE_BYTES]; /* the part of one with numbers that has come */
    size_t used;
} trii_peer_messages;

/* Takes bytes up to the end of the next message. True: there is one. False: all were taken. One
 * whose numbers are malformed is skipped. */
bool trii_peer_messages_next(trii_peer_messages *messages, const char **data, size_t *bytes,
                             trii_peer_message *message_out);
/* The text of a message, ended by a zero byte. */
void trii_peer_messages_preemption(const trii_peer_message *message,
                                   char text_out[TRII_PEER_MESSAGE_BYTES]);
void trii_peer_messages_stalled(int64_t ms, char text_out[TRII_PEER_MESSAGE_BYTES]);

/* Decimal digits without a sign, at most `max`; returns what follows them, or NULL. */
const char *trii_peer_read_number(const char *text, int64_t max, int64_t *number_out);

#endif
