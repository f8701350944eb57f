/*
 * memory_kills.h - whether the kernel killed a process for lack of memory, by its own counters.
 */
#ifndef TRII_LAUNCH_MEMORY_KILLS_H
#define TRII_LAUNCH_MEMORY_KILLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct trii_memory_kills {
    int64_t group; /* in our control group and below; -1 = it does not say */
    int64_t host;  /* on the whole host; -1 = it does not say */
} trii_memory_kills;

void trii_memory_kills_read(trii_memory_kills *kills_out);
/* Why SIGKILL ended a worker, given the counters before it started:
 * a sentence (static text), or NULL if memory was not the reason. */
const char *trii_memory_kills_explain(const trii_memory_kills *before,
                                      const trii_memory_kills *after);
/* The number after `name` and a blank in the lines of text; -1 if there is none. */
int64_t trii_memory_kills_find(const char *text, const char *name);

#endif
