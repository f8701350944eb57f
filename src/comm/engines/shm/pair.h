/*
 * pair.h - send and recv. Guard of all: lock.
 */
#ifndef TRII_SHM_PAIR_H
#define TRII_SHM_PAIR_H

#include "comm/engines/shm/shm_group.h"

/* --- pair_in.c ------------------------------------------------------------ */

/* Of a send or receive. */
static inline void shm_pair_finish(shm_group *g, trii_op *op, tri_status status, const char *why)
{
    g->n_pair_ops--;
    trii_op_finish(op, status, why);
}

/* A receive from this rank, or from any, was posted; true: its message had come before. */
bool shm_pair_take_unexpected(shm_group *g, shm_peer *peer, trii_op *op);
/* Looks for new announcements. */
bool shm_pair_poll(shm_group *g, shm_peer *peer);
bool shm_pair_advance_in(shm_group *g, shm_peer *peer);
/* Forgets an offered message of this number, if no receive has it. */
bool shm_pair_forget(shm_group *g, shm_peer *peer, uint64_t number);
/* Drops what no receive was posted for. */
void shm_pair_drop_unexpected(shm_peer *peer);

/* --- pair_out.c ----------------------------------------------------------- */

/* *stuck_out is set if a send finds no free cell. */
bool shm_pair_advance_out(shm_group *g, shm_peer *peer, bool *stuck_out);

/* --- pair.c --------------------------------------------------------------- */

void shm_pair_submit(shm_group *g, trii_op *op);
bool shm_pair_advance(shm_group *g);
/* Takes in what has come without a receive, so that the senders can go on. */
bool shm_pair_poll_all(shm_group *g);
/* Ends all sends and receives. */
void shm_pair_fail_all(shm_group *g, tri_status status, const char *why);
/* Takes back a receive from any rank, or a send to ourselves, that has no message or receive yet;
 * false: it has. */
bool shm_pair_cancel(shm_group *g, trii_op *op);
/* No rank is left that could send: ends the receives from any rank that another engine has too. */
void shm_pair_fail_no_sender(shm_group *g);
/* A send or receive that needs the peer, or NULL. */
trii_op *shm_pair_needing(const shm_peer *peer);
void shm_pair_describe(const shm_group *g, trii_op *op, char *text, size_t size);

#endif
