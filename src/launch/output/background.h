/*
 * background.h - files that a thread writes, so that a disk that takes its time, or a FIFO that
 * nobody reads, blocks neither the agent's loop nor the other files.
 *
 * Call everything on the loop's thread. The writing thread starts with the first bytes and holds no
 * lock while it writes. At exit it is not waited for; ask trii_background_left_in_all. What cannot
 * be written is dropped, with one warning per file; the next bytes are tried again.
 */
#ifndef TRII_LAUNCH_BACKGROUND_H
#define TRII_LAUNCH_BACKGROUND_H

#include "os/loop.h"

typedef struct trii_background trii_background;
typedef struct trii_background_file trii_background_file;

typedef struct trii_background_kind {
    /* Writes all bytes, or fails and says why. Called on the writing thread. */
    tri_status (*put)(void *target, const char *data, size_t bytes);
    /* Releases the target, once the file is closed and written. */
    void (*release)(void *target);
    /* Only what was put last matters: it replaces what has not been written yet. */
    bool newest;
} trii_background_kind;

/* moved: called when a file's backlog has shrunk; NULL: nobody asks. warn: called when a file lost
 * something; text: "WHAT: WHY", without a newline. Both are called by the loop. Errors: NO_MEMORY.
 */
tri_status trii_background_create(trii_loop *loop, void (*moved)(void *arg),
                                  void (*warn)(void *arg, const char *text), void *arg,
                                  trii_background **background_out) TRI_MUST_CHECK;
/* kind: static. what: begins the warning; copied. own_target: released with the file, also where
 * this call fails. Errors: NO_MEMORY. */
tri_status trii_background_open(trii_background *background, const trii_background_kind *kind,
                                const char *what, void *own_target,
                                trii_background_file **file_out) TRI_MUST_CHECK;
/* Copies and queues; never waits. The caller limits the queue. */
void trii_background_put(trii_background_file *file, const char *data, size_t bytes);
/* Bytes that are not written yet. NULL: 0. */
size_t trii_background_left(const trii_background_file *file);
/* What was put is still written. NULL: does nothing. */
void trii_background_close(trii_background_file *file);
/* Bytes of all files that are not written yet, also of closed ones. NULL: 0. */
size_t trii_background_left_in_all(const trii_background *background);
/* Warns of each file with something left to write, which is lost then. A thread that is blocked in
 * a write cannot be ended: it, and what it uses, lives until the process ends. Files that are still
 * open are closed. NULL allowed. */
void trii_background_destroy(trii_background *background);

#endif
