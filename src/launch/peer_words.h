/*
 * peer_words.h - what agents say to each other behind the hello, and how that is understood: 'h' I
 * live, 'q' I go in order, and notices. Other letters are of a later version, and are passed by. No
 * clocks, no sockets.
 *
 *   nRANK,NUMBER,MS;   the host of that agent will be taken away in MS milliseconds, -1 = nobody
 *                      said when; its NUMBER-th notice. Decimal, at most 47 bytes
 */
#ifndef TRII_PEER_WORDS_H
#define TRII_PEER_WORDS_H

#include <trireme/status.h>

#define TRII_PEER_NOTICE_BYTES 48

typedef enum trii_peer_word_kind {
    TRII_PEER_BEAT, /* or any other letter */
    TRII_PEER_BYE,
    TRII_PEER_NOTICE
} trii_peer_word_kind;

typedef struct trii_peer_word {
    trii_peer_word_kind kind;
    int rank;   /* of a NOTICE, as all below; not negative */
    int number; /* from 1 */
    int64_t left_ms;
} trii_peer_word;

/* One direction of a connection; all zero at first. */
typedef struct trii_peer_words {
    char notice[TRII_PEER_NOTICE_BYTES]; /* the part of one that has come */
    size_t used;
} trii_peer_words;

/* Takes bytes up to the end of the next word. True: there is one. False: all were taken. A notice
 * that is not understood is no word. */
bool trii_peer_words_next(trii_peer_words *words, const char **data, size_t *bytes,
                          trii_peer_word *word_out);
/* The text of a notice, ended by a zero byte. */
void trii_peer_words_notice(const trii_peer_word *word, char text_out[TRII_PEER_NOTICE_BYTES]);

#endif
