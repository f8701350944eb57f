/*
 * forked.h - whether this process is a child of fork() that lacks the threads of its parent.
 */
#ifndef TRII_FORKED_H
#define TRII_FORKED_H

#include <stdatomic.h>
#include <stdbool.h>

/* True in a child of fork(), and below it, whose parent had called trii_forked_watch. */
extern atomic_bool trii_forked;
/* From now on this process has what a child of fork() would lack. Any thread, as often as they
 * like. */
void trii_forked_watch(void);
/* Whether somebody has called that. Any thread. */
bool trii_forked_watched(void);

/* How often a process between this one and its ancestor forked after trii_fork_level_watch: what
 * was made at another level belongs to an ancestor. */
extern atomic_int trii_fork_level;
/* From now on a child of fork() has a level of its own. Any thread, as often as they like. */
void trii_fork_level_watch(void);

#endif
