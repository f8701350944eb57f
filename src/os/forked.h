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

#endif
