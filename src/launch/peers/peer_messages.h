/*
 * peer_messages.h - what agents say to each other behind the hello, and how that is understood: 'h'
 * I live, 'q' I go in order, and two with numbers. Other letters are of a later version, and are
 * passed by. No clocks, no sockets.
 *
 *   bMS;               I live, but my loop has stood still for MS milliseconds
 *   nRANK,NUMBER,MS;   the host of that agent will be taken away in MS milliseconds, -1 = nobody
 *                      said when; its NUMBER-th notice. Decimal, at most 47 bytes
 */
#ifndef TRII_PEER_MESSAGES_H
#define TRII_PEER_MESSAGES_H

#include <trireme/status.h>

#define TRII_PEER_NOTICE_BYTES 48

typedef enum trii_peer_message_kind {
    TRII_PEER_BEAT, /* or any other letter */
    TRII_PEER_BYE,
    TRII_PEER_HELD_UP,
    TRII_PEER_NOTICE
} trii_peer_message_kind;

typedef struct trii_peer_message {
    trii_peer_message_kind kind;
    int rank;        /* of a NOTICE; not negative */
    int number;      /* of a NOTICE; from 1 */
    int64_t left_ms; /* of a NOTICE; of HELD_UP for how long */
} trii_peer_message;

/* One direction of a connection; all zero at first. */
typedef struct trii_peer_messages {
    char text[TRII_PEER_NOTICE_BYTES]; /* the part of one with numbers that has come */
    size_t used;
} trii_peer_messages;

/* Takes bytes up to the end of the next word. True: there is one. False: all were taken. Numbers
 * that are not understood make no word. */
bool trii_peer_messages_next(trii_peer_messages *words, const char **data, size_t *bytes,
                             trii_peer_message *word_out);
/* The text of a notice, ended by a zero byte. */
void trii_peer_messages_preemption(const trii_peer_message *word,
                                   char text_out[TRII_PEER_NOTICE_BYTES]);
void trii_peer_messages_stalled(int64_t ms, char text_out[TRII_PEER_NOTICE_BYTES]);

#endif
