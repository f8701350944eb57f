/*
 * rendezvous.h - how the agents of several hosts find each other and agree on ranks, and what in
 * the state that they share makes them do so again.
 *
 * A thread of its own talks to the store, since that can take long. The agent gives it orders and
 * gets events, through a descriptor that becomes readable. JOIN ends with JOINED or FAILED; while a
 * round is on, AGAIN or ENDED may come; FINISH ends with FINISHED, AGAIN or ENDED; LEAVE and CLOSE
 * end with LEFT. The text of a failure names the host and the cause.
 *
 * What ends a round is told from agent to agent (launch/peers), not through the store: the agent
 * hands on what its events say, and tells its rendezvous what it has heard.
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
    trii_rdzv_agent *agents; /* group_size; freed by the receiver of the event (trii_free) */
} trii_rdzv_round;

/* What all agents of a round have to know. */
typedef struct trii_rdzv_news {
    bool over;     /* the job ends; else everybody stops and joins again */
    bool counts;   /* as a restart: something failed; no host just came or left */
    bool hung;     /* over, since no rank makes progress any more */
    bool finished; /* it is not that: the workers of all hosts have succeeded */
    int gone;      /* group rank of an agent that is not there any more, or -1 */
    bool left;     /* ... and left in order */
    char why[TRII_ERR_BYTES];
} trii_rdzv_news;

typedef enum trii_rdzv_event_kind {
    TRII_RDZV_NOTHING,
    TRII_RDZV_NOTE, /* something that the user should know, in news.why */
    TRII_RDZV_JOINED,
    TRII_RDZV_AGAIN,    /* everybody stops and joins again; the news say why */
    TRII_RDZV_ENDED,    /* the job is over, elsewhere; the news say why */
    TRII_RDZV_FAILED,   /* no round, for good; news.why is an error line */
    TRII_RDZV_UNNEEDED, /* the job is over and had enough hosts without us */
    TRII_RDZV_FINISHED,
    TRII_RDZV_LEFT
} trii_rdzv_event_kind;

typedef struct trii_rdzv_event {
    trii_rdzv_event_kind kind;
    bool alone; /* AGAIN: it is about this host only, the others need not know */
    trii_rdzv_news news;
    trii_rdzv_round round;
} trii_rdzv_event;

typedef struct trii_rdzv_setup {
    const trii_launch_options *options; /* borrowed */
    trii_loop *loop;            /* where the agents' store is served, if we do; else NULL will do */
    trii_rdzv_agent self;       /* port, token and keyed: of our peers */
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
/* What this agent, or another one, has told the agents of that round. It needs no event. */
void trii_rendezvous_heard(trii_rendezvous *rdzv, int64_t round, const trii_rdzv_news *news);
/* The agent news->gone of that round is dead: it is taken out of the shared state. If it serves the
 * store, the store is asked whether that is so. AGAIN or ENDED with the news follows, or FAILED. */
void trii_rendezvous_lost(trii_rendezvous *rdzv, const trii_rdzv_round *round,
                          const trii_rdzv_news *news);
/* This host leaves; the job may continue without it. */
void trii_rendezvous_leave(trii_rendezvous *rdzv);
/* The job is over for everybody. */
void trii_rendezvous_close(trii_rendezvous *rdzv);
/* While a round is being formed: how many hosts have come, and where we wait for the others. */
void trii_rendezvous_describe(trii_rendezvous *rdzv, char *text_out, size_t bytes);
/* Whether the thread has a store, or has failed to get one. Until then no agent knows of us,
 * nothing has to be left in order, and the thread may be stuck in a connect. */
bool trii_rendezvous_has_begun(const trii_rendezvous *rdzv);
/* When the agents' store last did what it was asked for. */
int64_t trii_rendezvous_answered_ns(const trii_rendezvous *rdzv);
/* Where this agent serves the agents' store to the network without a job key; 0 = it does not. */
int trii_rendezvous_open_port(const trii_rendezvous *rdzv);

#endif
