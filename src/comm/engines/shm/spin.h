/*
 * spin.h - how long a rank looks for its peers before it sleeps, where ranks outnumber cores.
 *
 * There it gives up its core after each look. While only the ranks of the group want the core, it
 * has it back within microseconds, and that is ten times cheaper than a sleep and a wake. But what
 * else can run keeps the core for a quantum of the system (milliseconds), and Linux counts giving
 * up the core as having used it. So a look that cost a quantum ends with a sleep, and so do the
 * next waits: twice as many each time, until looks pay again.
 */
#ifndef TRII_SHM_SPIN_H
#define TRII_SHM_SPIN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shm_spin {
    int64_t ns, max_ns;     /* how long to look now; TRI_SPIN_US */
    int32_t sleeps;         /* so many waits sleep at once after the core was lost */
    int32_t sleeps_to_come; /* of them */
    uint64_t n_yields;      /* ever */
} shm_spin;

void shm_spin_init(shm_spin *spin, int64_t max_us);
/* How long to look in this wait; 0: sleep at once. */
int64_t shm_spin_budget(shm_spin *spin);
/* The core was given up and came back after that long; whether somebody else had it. */
bool shm_spin_lost_core(shm_spin *spin, int64_t away_ns);
/* A look ended: something came, or nothing did. */
void shm_spin_learn(shm_spin *spin, bool came);

#endif
