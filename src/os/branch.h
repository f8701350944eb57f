/*
 * branch.h - copies of this process, and this program started again: what tri_spawn is made of.
 */
#ifndef TRII_BRANCH_H
#define TRII_BRANCH_H

#include "os/process.h"

/* Two connected sockets, closed on exec. Errors: IO. */
tri_status trii_pair_open(int *a_out, int *b_out) TRI_MUST_CHECK;
/* A copy of this process, which has one thread; it is killed when we end. *is_child_out: true in
 * the copy, whose standard input is empty. Errors: IO. */
tri_status trii_process_branch(trii_process *process_out, bool *is_child_out) TRI_MUST_CHECK;
/* What tells a socket of trii_pair_open from others, and it is closed on exec from now on; 0: fd is
 * no socket. */
uint64_t trii_channel_take(int fd);
/* Whether fd is still that socket: a program may close all that it does not know. */
bool trii_channel_is(int fd, uint64_t id);
/* An empty file to read from, closed on exec; -1 = none. */
int trii_nothing_open(void);
/* Threads of this process; 0: nobody can tell, without /proc. */
int trii_process_threads(void);
/* The arguments that this process was started with; ends with NULL, one piece of memory: release
 * with trii_free. Errors: IO, NO_MEMORY. */
tri_status trii_process_arguments(const char ***argv_out) TRI_MUST_CHECK;
/* Ends at once, without what was registered for the end. */
_Noreturn void trii_process_leave(int code);

#endif
