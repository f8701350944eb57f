/*
 * rdzv_phase.c - the table of rdzv_phase.h: which phase may follow which. Phases are changed only
 * by trii_rdzv_enter (rdzv_wait.c), which looks there.
 *
 *   CONNECTING -> CONNECTED -> APPLYING -> JOINING -> RUNNING -> FINISHING -> JOB_ENDED
 *                                             ^          |           |
 *                                             +------ STOPPED <------+
 *
 * Not drawn: NO_STORE where connecting failed, BROKEN where the store failed later, GONE when this
 * host has left, and DONE. The thread may be asked to end in any phase once it has tried to
 * connect, and a host may leave wherever it has a store. The agent may ask to join before it has
 * read that the job is over or that the store has failed (its peers told it something else first);
 * joining then fails and says so.
 */
#include "launch/rendezvous/rdzv_phase.h"

#define TO(phase) (1u << TRII_RDZV_##phase)

static const struct {
    const char *name;
    unsigned next; /* one bit for each */
} phases[TRII_RDZV_N_PHASES] = {
    [TRII_RDZV_CONNECTING] = {"connecting", TO(NO_STORE) | TO(CONNECTED)},
    [TRII_RDZV_NO_STORE] = {"no store", TO(DONE)},
    [TRII_RDZV_CONNECTED] = {"connected", TO(APPLYING) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_APPLYING] = {"applying", TO(JOINING) | TO(BROKEN) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_JOINING] = {"joining", TO(RUNNING) | TO(BROKEN) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_RUNNING] = {"running", TO(FINISHING) | TO(STOPPED) | TO(JOB_ENDED) | TO(JOINING) |
                                          TO(BROKEN) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_FINISHING] = {"finishing", TO(STOPPED) | TO(JOB_ENDED) | TO(JOINING) | TO(BROKEN) |
                                              TO(GONE) | TO(DONE)},
    [TRII_RDZV_STOPPED] = {"stopped", TO(JOINING) | TO(BROKEN) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_JOB_ENDED] = {"job ended", TO(JOINING) | TO(BROKEN) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_BROKEN] = {"broken", TO(JOINING) | TO(GONE) | TO(DONE)},
    [TRII_RDZV_GONE] = {"gone", TO(DONE)},
    [TRII_RDZV_DONE] = {"done", 0},
};

bool trii_rdzv_phase_may(trii_rdzv_phase from, trii_rdzv_phase to)
{
    return (phases[from].next >> to & 1) != 0;
}

const char *trii_rdzv_phase_name(trii_rdzv_phase phase)
{
    return phases[phase].name;
}

bool trii_rdzv_phase_is_on(trii_rdzv_phase phase)
{
    return phase == TRII_RDZV_RUNNING || phase == TRII_RDZV_FINISHING;
}

bool trii_rdzv_phase_is_member(trii_rdzv_phase phase)
{
    return trii_rdzv_phase_is_on(phase) || phase == TRII_RDZV_STOPPED ||
           phase == TRII_RDZV_JOB_ENDED;
}
