/*
 * rdzv_state.h - what the nodes of a dynamic rendezvous agree on: torch.distributed's
 * _RendezvousState, as one table of nodes. Its rules are in rdzv_state.c, its bytes in
 * rdzv_pickle.c; no clocks, no stores.
 *
 * Wall times are microseconds since 1970, UTC.
 */
#ifndef TRII_RDZV_STATE_H
#define TRII_RDZV_STATE_H

#include <trireme/status.h>

#define TRII_RDZV_ADDR_BYTES 256
#define TRII_RDZV_MAX_NODES 16384 /* in the table */

typedef struct trii_rdzv_node {
    char addr[TRII_RDZV_ADDR_BYTES];
    int64_t pid, local_id;
} trii_rdzv_node;

typedef struct trii_rdzv_entry {
    trii_rdzv_node node;
    bool participant, waiting, redundant, beats;
    int64_t rank;    /* of a participant, once the round is complete */
    int64_t beat_us; /* last heartbeat, if `beats` */
} trii_rdzv_entry;

typedef struct trii_rdzv_state {
    int64_t round;
    bool complete, closed, has_deadline;
    int64_t deadline_us; /* of the last call */
    trii_rdzv_entry *entries;
    int n, room;
} trii_rdzv_state;

typedef struct trii_rdzv_rules {
    int min_nodes, max_nodes;
    int64_t last_call_us; /* after min_nodes have come */
} trii_rdzv_rules;

void trii_rdzv_state_init(trii_rdzv_state *state);
void trii_rdzv_state_fini(trii_rdzv_state *state);
/* copy_out: as trii_rdzv_state_init left it, also after a failure. Errors: NO_MEMORY. */
tri_status trii_rdzv_state_copy(const trii_rdzv_state *state,
                                trii_rdzv_state *copy_out) TRI_MUST_CHECK;
bool trii_rdzv_node_same(const trii_rdzv_node *a, const trii_rdzv_node *b);
/* PyTorch's order, by which ranks are given. */
int trii_rdzv_node_compare(const trii_rdzv_node *a, const trii_rdzv_node *b);
/* NULL: the node is not in the table. */
trii_rdzv_entry *trii_rdzv_find(const trii_rdzv_state *state, const trii_rdzv_node *node);
/* Adds a node that is not there; none of participant, waiting and redundant is set. Errors:
 * NO_MEMORY, FORMAT (too many). */
tri_status trii_rdzv_add(trii_rdzv_state *state, const trii_rdzv_node *node,
                         trii_rdzv_entry **entry_out) TRI_MUST_CHECK;
/* Finds the node or adds it. Errors: those of trii_rdzv_add. */
tri_status trii_rdzv_entry_of(trii_rdzv_state *state, const trii_rdzv_node *node,
                              trii_rdzv_entry **entry_out) TRI_MUST_CHECK;
int trii_rdzv_count_participants(const trii_rdzv_state *state);
int trii_rdzv_count_waiting(const trii_rdzv_state *state);

/* Removes the node; a round without participants ends. */
void trii_rdzv_remove(trii_rdzv_state *state, const trii_rdzv_node *node, int min_nodes);
/* The node joins the round that is being formed; if all places are taken then, it is formed, and
 * an agent that waits is redundant. */
tri_status trii_rdzv_participate(trii_rdzv_state *state, const trii_rdzv_node *node, int min_nodes,
                                 int max_nodes, int64_t now_us,
                                 int64_t last_call_us) TRI_MUST_CHECK;
/* The round is formed: everybody gets a rank. */
void trii_rdzv_complete(trii_rdzv_state *state);
/* It is in a round after the one that it left, and wants nothing more. */
bool trii_rdzv_is_in(const trii_rdzv_state *state, const trii_rdzv_entry *entry, int64_t left);
/* The job is over, and none waits until its members have left the state. */
bool trii_rdzv_is_left_to_end(const trii_rdzv_state *state, const trii_rdzv_entry *entry);
/* What a node does now that wants to be in a round after the one that it left. *dirty: the state
 * was changed and is to be written; else it is left alone. */
tri_status trii_rdzv_want(trii_rdzv_state *state, const trii_rdzv_node *node, int64_t left,
                          const trii_rdzv_rules *rules, int64_t now_us, bool *dirty) TRI_MUST_CHECK;

#endif
