/*
 * rendezvous.h - how the agents of several hosts find each other, agree on ranks, and learn that
 * they have to do so again.
 *
 * A thread of its own speaks with the store, since that can take long; the agent gives it orders
 * and is told events, by a descriptor that becomes readable. An event of the orders: JOIN ends
 * with JOINED or FAILED; while a round is on, AGAIN or ENDED may come; FINISH ends with FINISHED,
 * AGAIN or ENDED; LEAVE and CLOSE end with LEFT. The text of a failure names who and what.
 */
#ifndef TRII_RENDEZVOUS_H
#define TRII_RENDEZVOUS_H

#include "base/err.h"
#include "launch/cli/options.h"
#include "launch/rendezvous/rdzv_state.h"
#include "launch/rendezvous/rdzv_time.h"
#include "os/loop.h"

/* Of an agent's descriptors: what a worker takes (pipes, files, a process), what the agent itself
 * does, and how many quarters the clients of the agents' store may have where the workers have
 * one, too; theirs may have the rest of three, less what the workers take. */
enum { TRII_FDS_OF_WORKER = 5, TRII_FDS_OF_AGENT = 32, TRII_RDZV_QUARTERS = 1 };

typedef struct trii_rendezvous trii_rendezvous;

/* One agent of a round; those of torchrun have no port. */
typedef struct trii_rdzv_agent {
    char host[TRII_RDZV_ADDR_BYTES]; /* where it listens to its peers */
    int port;
    bool serves; /* the store in which agents meet */
    bool keyed;  /* it has a job key */
    char token[17];
    char name[TRII_RDZV_ADDR_BYTES]; /* of its host, for people */
    trii_rdzv_node node;             /* pid 0: unknown */
    bool gone;                       /* for the agent: it was told that this one is gone */
} trii_rdzv_agent;

typedef struct trii_rdzv_round {
    int64_t number;
    int group_rank, group_size;
    int first_rank, world_size, first_role_rank, role_size;
    int restarts; /* the most that any agent counts */
    bool mixed;   /* some agents are not ours */
    bool master;  /* our store is the one for the workers */
    char master_addr[TRII_RDZV_ADDR_BYTES];
    int master_port;
    trii_rdzv_agent *agents; /* group_size; who receives the event frees them (trii_free) */
} trii_rdzv_round;

typedef enum trii_rdzv_event_kind {
    TRII_RDZV_NOTHING,
    TRII_RDZV_NOTE, /* something that the user should know, in why */
    TRII_RDZV_JOINED,
    TRII_RDZV_AGAIN,    /* everybody stops and joins again; why says what happened */
    TRII_RDZV_ENDED,    /* the job is over, elsewhere; why says what happened */
    TRII_RDZV_FAILED,   /* no round, for good; why is an error line */
    TRII_RDZV_UNNEEDED, /* the job is over and had enough hosts without us */
    TRII_RDZV_FINISHED,
    TRII_RDZV_LEFT
} trii_rdzv_event_kind;

typedef struct trii_rdzv_event {
    trii_rdzv_event_kind kind;
    bool counts; /* AGAIN: after a failure, not because somebody came or left */
    int gone;    /* AGAIN, ENDED: group rank of who is not there any more, or -1 */
    bool left;   /* ... and went in order */
    char why[TRII_ERR_BYTES];
    trii_rdzv_round round;
} trii_rdzv_event;

typedef struct trii_rdzv_setup {
    const trii_launch_options *options; /* borrowed */
    trii_loop *loop;            /* where the agents' store is served, if we do; else NULL will do */
    int peer_port;              /* where peers reach us */
    char token[17];             /* which they must know */
    bool keyed;                 /* and a job key */
    const trii_rdzv_time *time; /* NULL = the real one */
    const struct trii_rdzv_handler *handler; /* NULL = that of the options; for tests */
} trii_rdzv_setup;

/* Opens the store of the agents if that is our task, and starts the thread. Errors: INVALID_ARG
 * (settings), STATE (the port is taken), NOT_FOUND, IO, NO_MEMORY. */
tri_status trii_rendezvous_create(const trii_rdzv_setup *setup,
                                  trii_rendezvous **rdzv_out) TRI_MUST_CHECK;
/* Waits for the thread, unless it is stuck in a dead network: then it is left behind, with what it
 * uses, until the process ends. NULL allowed. */
void trii_rendezvous_destroy(trii_rendezvous *rdzv, int64_t patience_ms);

/* Readable while events wait. */
int trii_rendezvous_fd(const trii_rendezvous *rdzv);
void trii_rendezvous_next(trii_rendezvous *rdzv, trii_rdzv_event *event_out);

/* Leaves the round that is on, and takes part in the next. No worker of this host runs.
 * worker_port: of a store that workers could use if ours is the master. */
void trii_rendezvous_join(trii_rendezvous *rdzv, int worker_port, int restarts);
/* All workers of this host have succeeded. */
void trii_rendezvous_finish(trii_rendezvous *rdzv);
/* Tells the others: to start again, or that the job is over. */
void trii_rendezvous_tell(trii_rendezvous *rdzv, bool over, bool counts, const char *why);
/* The agent of that rank in that round is gone: the others are told, and it is taken out of the
 * state. */
void trii_rendezvous_lost(trii_rendezvous *rdzv, const trii_rdzv_round *round, int group_rank,
                          const char *why);
/* This host goes; others may go on. */
void trii_rendezvous_leave(trii_rendezvous *rdzv, const char *why);
/* The job is over for everybody. */
void trii_rendezvous_close(trii_rendezvous *rdzv);
/* While a round is being formed: how many hosts have come, and where we wait for the others. */
void trii_rendezvous_describe(trii_rendezvous *rdzv, char *text_out, size_t bytes);
/* Whether the thread has a store, or has failed to get one. Until then nobody knows of us, nothing
 * has to be left in order, and the thread may be stuck in a connect. */
bool trii_rendezvous_has_begun(const trii_rendezvous *rdzv);
/* When the agents' store last did what it was asked for. */
int64_t trii_rendezvous_answered_ns(const trii_rendezvous *rdzv);
/* Where this agent serves the agents' store to the network without a job key; 0 = it does not. */
int trii_rendezvous_open_port(const trii_rendezvous *rdzv);

#endif
