/*
 * session.h - how the ranks of one run find each other in a store that may still hold what an
 * earlier run left: a file on a disk that nobody sweeps, or the store of an agent that restarted
 * its workers.
 */
#ifndef TRII_SESSION_H
#define TRII_SESSION_H

#include <trireme/store.h>

#define TRII_SESSION_TEXT 33

/**
 * Every rank calls it with a view of the same store; each gets the same fresh name, under which
 * it finds nobody's keys but those of this run.
 *
 * Blocks until all ranks came, and says in the log who is missing. Errors: TIMEOUT (names the
 * missing ranks), STATE (two processes have one rank), and the store's own.
 */
tri_status trii_session_agree(tri_store *store, int rank, int size, int64_t deadline_ns,
                              char session_out[TRII_SESSION_TEXT]) TRI_MUST_CHECK;

#endif
