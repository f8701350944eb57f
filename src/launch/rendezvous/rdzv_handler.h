/*
 * rdzv_handler.h - the kinds of rendezvous as one table, torch's RendezvousHandler: static (each
 * agent was given its rank), c10d and etcd (agents agree on a round by a state that they share; it
 * is kept by a backend of rdzv_backend.h). Rounds and what their members exchange are the same for
 * all (rdzv_thread.c, rdzv_exchange.c).
 *
 * All functions run on the rendezvous thread and may block in the store, unless it says otherwise.
 */
#ifndef TRII_RDZV_HANDLER_H
#define TRII_RDZV_HANDLER_H

#include "launch/rendezvous/rendezvous.h"

typedef enum trii_rdzv_server {
    TRII_RDZV_CLIENT,    /* another one serves the agents' store */
    TRII_RDZV_MAY_SERVE, /* we do, unless another agent of this host was faster */
    TRII_RDZV_MUST_SERVE /* it is our task */
} trii_rdzv_server;

struct trii_rdzv_order;

typedef struct trii_rdzv_handler {
    /* Hosts and their ranks are given: no other host can come, and without one of them there is no
     * round. Their store is the workers', too, and stays through restarts. */
    bool fixed_hosts;
    const char *timeout_key; /* of --rdzv-conf: how long hosts are waited for */
    int64_t timeout_ms;      /* ... if it is not said */

    /* Whether this agent serves the agents' store. NULL: none does. On the agent's thread. */
    trii_rdzv_server (*server)(const trii_launch_options *options);
    /* Where hosts meet, for people. Any thread, never blocks. */
    void (*describe_place)(const trii_launch_options *options, int port, char *text_out,
                           size_t bytes);
    /* Connects to the store: r->base and whatever else it needs. */
    tri_status (*open)(trii_rendezvous *r);

    /* Until a round is complete: r->kv, and number, rank and size in r->round. STATE: interrupted
     * by an order; INPROGRESS: the round was over at once, again. */
    tri_status (*join)(trii_rendezvous *r);
    /* What rank 0 says first, for the workers. NULL: nothing. */
    tri_status (*publish_master)(trii_rendezvous *r);
    /* Where the workers' store is, in r->round. addr, port: what rank 0 has said, NULL = not
     * yet. */
    tri_status (*find_master)(trii_rendezvous *r, const char *addr, const char *port,
                              int64_t deadline_ns);
    /* Called again and again while a round is complete and its members are waited for. INPROGRESS:
     * it is over already. */
    tri_status (*check_members)(trii_rendezvous *r);

    /* Looks at what all share, while we are a member, and shows that we live. event_out: what ends
     * the round that is on, or NOTHING. NULL: nothing is shared. */
    tri_status (*watch)(trii_rendezvous *r, trii_rdzv_event *event_out);
    /* Takes an agent that is gone out of what is shared; fails if the store does not answer. */
    tri_status (*drop)(trii_rendezvous *r, const struct trii_rdzv_order *lost);
    /* Takes us out; `close`: the job is over for everybody. NULL: there is nothing to do. */
    tri_status (*leave)(trii_rendezvous *r, bool close);
    /* A host waits for a place. NULL: none can. */
    bool (*is_awaited)(trii_rendezvous *r);

    /* A member, for people: "host NAME (pid N)"; -1: not known which. Never blocks. */
    void (*describe_member)(const trii_rendezvous *r, int rank, char *text_out, size_t bytes);
    /* Make the error line of a wait that has timed out: `came` members have said how many workers
     * they have, and `missing` have not. */
    tri_status (*too_few)(trii_rendezvous *r, int rank, int came, const char *missing);
    /* ... of a store that our address leads to although we serve ours; theirs: its server. */
    tri_status (*other_server)(const trii_rendezvous *r, const char *theirs);
    /* ... of a port that we must have; why: what the system said. */
    tri_status (*port_taken)(const trii_rendezvous *r, const char *why);
} trii_rdzv_handler;

extern const trii_rdzv_handler trii_rdzv_static;
extern const trii_rdzv_handler trii_rdzv_c10d;
extern const trii_rdzv_handler trii_rdzv_etcd;

#endif
