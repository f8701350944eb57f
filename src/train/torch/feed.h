/*
 * feed.h - where a writer of tensors has their elements from, if they are not in memory.
 */
#ifndef TRII_FEED_H
#define TRII_FEED_H

#include <trireme/status.h>

/* Takes bytes of an entry, in order and in any pieces. */
typedef struct trii_sink {
    tri_status (*put)(void *arg, const void *data, size_t bytes);
    void *arg;
} trii_sink;

/* Gives all the bytes of an entry, once. What it returns the writer returns. */
typedef struct trii_feed {
    tri_status (*give)(void *arg, int64_t index, const trii_sink *to);
    void *arg;
} trii_feed;

#endif
