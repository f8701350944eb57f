/*
 * spin.c - see spin.h.
 */
/* build: hot leaf */
#include "comm/engines/shm/spin.h"

#define LEAST_NS 5000
/* Longer than the ranks that share a core need for a step of a collective. */
#define LOST_NS 250000
#define LEAST_SLEEPS 16
#define MOST_SLEEPS 4096 /* a try may cost milliseconds */

void shm_spin_init(shm_spin *spin, int64_t max_us)
{
    *spin = (shm_spin){.ns = max_us * 1000, .max_ns = max_us * 1000, .sleeps = LEAST_SLEEPS / 2};
}

int64_t shm_spin_budget(shm_spin *spin)
{
    if (spin->sleeps_to_come == 0)
        return spin->ns;
    spin->sleeps_to_come--;
    return 0;
}

bool shm_spin_lost_core(shm_spin *spin, int64_t away_ns)
{
    spin->n_yields++;
    if (away_ns < LOST_NS)
        return false;
    spin->sleeps = spin->sleeps < MOST_SLEEPS / 2 ? 2 * spin->sleeps : MOST_SLEEPS;
    spin->sleeps_to_come = spin->sleeps;
    return true;
}

void shm_spin_learn(shm_spin *spin, bool came)
{
    if (!came) {
        int64_t least_ns = spin->max_ns < LEAST_NS ? spin->max_ns : LEAST_NS;

        spin->ns -= spin->ns / 4;
        spin->ns = spin->ns < least_ns ? least_ns : spin->ns;
        return;
    }
    if (spin->ns < spin->max_ns)
        spin->ns += spin->ns / 8 + 1;
    if (spin->sleeps > LEAST_SLEEPS / 2)
        spin->sleeps--;
}
