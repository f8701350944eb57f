/*
 * chaos.h - faults on purpose: TRI_CHAOS makes ranks slow, stops and kills them and breaks their
 * connections at calls that a seed chooses, so that a program's (and our own) handling of faults
 * can be tried. The same seed strikes the same calls of the same ranks.
 *
 *     TRI_CHAOS=seed=7,delay=0.1:20,kill=@50,rank=1
 *
 *   seed=N       of the choice (1)
 *   delay=P:MS   before a share P of the calls, up to MS milliseconds (10)
 *   stop=W       the process stops as by SIGSTOP; SIGCONT lets it go on
 *   kill=W       SIGKILL, at once or within the first millisecond of the call
 *   drop=W       a connection to one peer breaks, in both directions
 *   half=W       a connection to one peer is closed for sending
 *   rank=N       only this rank of the job (all)
 *
 * W is a probability for each call (0.001), or @N: the N-th call of a group, counted from 1. A call
 * is a collective, a send or a receive. Every strike is logged first.
 */
#ifndef TRII_CHAOS_H
#define TRII_CHAOS_H

#include <stdatomic.h>

#include "comm/group/engine.h"

typedef struct trii_chaos trii_chaos;

/* What TRI_CHAOS says for a group of this rank (of the job) and name; *chaos_out is NULL if it is
 * unset or another rank's matter, else released with trii_chaos_destroy.
 * Errors: INVALID_ARG (names the part that is wrong), NO_MEMORY. */
tri_status trii_chaos_create(int rank, const char *name, trii_chaos **chaos_out) TRI_MUST_CHECK;
void trii_chaos_destroy(trii_chaos *chaos); /* NULL allowed */
/* Before a call is posted. Any thread; may block for the delay, or never return. */
void trii_chaos_strike(trii_chaos *chaos, const trii_engine *engine, void *self,
                       const trii_collective *call);

#endif
