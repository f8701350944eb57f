/*
 * background.h - files that a thread writes, so that a disk that takes its time, or a FIFO that
 * nobody reads, blocks neither the agent's loop nor the other files.
 *
 * All calls are the loop's. The thread starts with the first bytes, holds no lock while it writes
 * and is not waited for at the end beyond what trii_background_is_idle tells. What cannot be
 * written is lost, and said once for each file; the next bytes are tried again.
 */
#ifndef TRII_LAUNCH_BACKGROUND_H
#define TRII_LAUNCH_BACKGROUND_H

#include "os/loop.h"

typedef struct trii_background trii_background;
typedef struct trii_background_file trii_background_file;

typedef struct trii_background_kind {
    /* Writes all of it, or says why not; on the thread. */
    tri_status (*put)(void *target, const char *data, size_t bytes);
    /* Ends the target when the file is closed and written. */
    void (*release)(void *target);
    /* Only what was put last matters: it takes the place of what has not been written yet. */
    bool newest;
} trii_background_kind;

/* moved: some file has less left to write, or none. warn: a file lost something; text: "WHAT: WHY",
 * without a newline. Both are called by the loop. Errors: NO_MEMORY. */
tri_status trii_background_create(trii_loop *loop, void (*moved)(void *arg),
                                  void (*warn)(void *arg, const char *text), void *arg,
                                  trii_background **background_out) TRI_MUST_CHECK;
/* kind: static. what: begins the warning; copied. own_target: released with the file, also where
 * this call fails. Errors: NO_MEMORY. */
tri_status trii_background_open(trii_background *background, const trii_background_kind *kind,
                                const char *what, void *own_target,
                                trii_background_file **file_out) TRI_MUST_CHECK;
/* Queues it, copied; never waits. What the caller lets grow has no other limit. */
void trii_background_put(trii_background_file *file, const char *data, size_t bytes);
/* Bytes that are not written yet. NULL: 0. */
size_t trii_background_left(const trii_background_file *file);
/* What was put is still written. NULL: nothing. */
void trii_background_close(trii_background_file *file);
/* Nothing is left to write. */
bool trii_background_is_idle(const trii_background *background);
/* Bytes written or lost so far, to see whether it gets on. */
uint64_t trii_background_done(const trii_background *background);
/* Warns of each file with something left to write, which is lost then. Such a thread cannot be
 * ended: it, and what it uses, goes with the process. Files that are not closed end too. NULL
 * allowed. */
void trii_background_destroy(trii_background *background);

#endif
