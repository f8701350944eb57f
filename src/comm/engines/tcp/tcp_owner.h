/*
 * tcp_owner.h - who owns a frame. tcp_progress.c moves frames between sockets and memory and does
 * not know what they mean. Each type of frame has an owner, which says where a payload goes and
 * what is sent next: tcp_coll.c owns the frames of collectives, tcp_p2p.c those of messages. What
 * is left, goodbyes, faults and heartbeats, concerns the connection itself and stays in
 * tcp_progress.c.
 *
 * All functions are called with the group's mutex held and never block. Those that fail the group
 * do so by tcp_fail; the caller looks at g->failed.
 */
#ifndef TRII_ENGINE_TCP_OWNER_H
#define TRII_ENGINE_TCP_OWNER_H

#include "comm/group/engine.h"

struct tcp_conn;
struct tcp_group;

typedef enum tcp_verdict {
    TCP_ACCEPTED,  /* the payload goes to c->in_to, or where room() says */
    TCP_PARKED,    /* not now: this frame and all after it stay in the connection */
    TCP_MALFORMED, /* Trireme never sends such a frame */
} tcp_verdict;

typedef struct tcp_owner {
    uint32_t kinds;  /* bit 1u << TRII_KIND_x: the operations that are posted to it */
    uint32_t frames; /* bit 1u << TCP_FRAME_x: the frames that it owns */

    /* Required. Takes an operation. */
    void (*post)(struct tcp_group *g, trii_op *op);
    /* Optional: starts those of the posted operations that had to wait for others to end. */
    void (*start_queued)(struct tcp_group *g);

    /* Required. The header of one of its frames is in c->head; a parked one is tried again. */
    tcp_verdict (*accept)(struct tcp_conn *c);
    /* Optional: sets c->in_to for the next bytes, and returns how many of c->in_left may come now;
     * 0 = none. NULL = all of them, at the c->in_to that accept set. */
    size_t (*room)(struct tcp_conn *c);
    /* Required. Called when so many bytes of the payload have come; c->in_left = 0: all of it. */
    void (*received)(struct tcp_conn *c, size_t bytes);
    /* Optional: delivers frames that were put aside; false: none can be delivered now. */
    bool (*resume)(struct tcp_conn *c);

    /* Optional: as next_frame, for requests that the peer waits for: they go before all payloads.
     * Asked only after c->want_request was set. */
    bool (*next_request)(struct tcp_conn *c);
    /* Required. Fills c->out, c->out_from and c->out_op, the operation that the payload is of;
     * false: there is nothing to send now. */
    bool (*next_frame)(struct tcp_conn *c);
    /* Required. Called when that frame was sent, if it has an operation. */
    void (*sent)(struct tcp_conn *c, trii_op *op);

    /* Required. The first operation that needs this peer, or NULL. */
    const trii_op *(*needing)(const struct tcp_conn *c);
    /* Optional. Called when the peer has left the group and no operation of this owner needs it. */
    void (*peer_left)(struct tcp_conn *c);
    /* Required. Ends all operations with this status, and forgets what was put aside. */
    void (*fail_all)(struct tcp_group *g, tri_status status, const char *why);
} tcp_owner;

#define TCP_OWNERS 2
extern const tcp_owner tcp_coll_owner, tcp_p2p_owner;

#endif
