/*
 * comm.c - the engines built into libtrireme-comm, in the order in which a group without a
 * named engine tries them, and those that are made of others.
 */
#include <stddef.h>

#include "composites/composites.h"
#include "engines/self/self.h"
#include "engines/shm/shm.h"
#include "engines/tcp/tcp.h"

const trii_engine *const *trii_engines(void)
{
    static const trii_engine *const engines[] = {&trii_engine_self, &trii_engine_shm,
                                                 &trii_engine_hierarchy, &trii_engine_tcp, NULL};

    return engines;
}

const trii_composites *trii_composites_get(void)
{
    static const trii_composites composites = {.routed_alloc = trii_routed_alloc,
                                               .routed_init = trii_routed_init,
                                               .checked_alloc = trii_checked_alloc,
                                               .checked_init = trii_checked_init};

    return &composites;
}
