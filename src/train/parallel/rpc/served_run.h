/*
 * served_run.h - what the owner's files share: the table of what is served, graphs, and what is run
 * on the thread of a served module, forwards (served_run.c) and backwards (served_backward.c).
 */
#ifndef TRII_SERVED_RUN_H
#define TRII_SERVED_RUN_H

#include "train/parallel/rpc/remote_internal.h"

/* --- served_table.c ------------------------------------------------------- */

/* It was the last reference. */
void trii_served_free(trii_served *served);
trii_served *trii_served_ref(trii_served *served);
/* Each of them a reference, or NULL: the one of this name, and the one with this session. */
trii_served *trii_served_named(const tri_rpc *rpc, const char *name);
trii_served *trii_served_of_session(const void *session);
/* Starts its thread, which has a reference, and puts it into the table. STATE: its module or its
 * optimizer is served already. */
tri_status trii_served_start(trii_served *served, const char *call,
                             void (*run)(void *served)) TRI_MUST_CHECK;
void trii_served_leave(trii_served *served);

/* --- served_graphs.c ------------------------------------------------------ */

/* With a context that has no step. */
tri_status trii_graph_take(trii_served *served, trii_remote_graph **graph_out) TRI_MUST_CHECK;
/* Its step ends. bad: it may hold what must not run, so the context goes, too. The context must not
 * be entered. */
void trii_graph_give(trii_served *served, trii_remote_graph *graph, bool bad);
/* The graph waits for a backward. */
void trii_graph_keep(trii_served *served, trii_remote_graph *graph);
/* Takes the graph of this call out of those; NULL = there is none. */
trii_remote_graph *trii_graph_find(trii_served *served, const trii_session *session, uint64_t call);
/* The same, and the results of its call that stay are dropped. */
void trii_graph_drop(trii_served *served, const trii_session *session, trii_remote_graph *graph,
                     bool bad);

/* --- served_backward.c ---------------------------------------------------- */

tri_status trii_backward_run(trii_served *served, const trii_remote_job *job) TRI_MUST_CHECK;
/* Its caller counts the graph as used up. */
void trii_backward_cancelled(trii_served *served, const trii_remote_job *job);

#endif
