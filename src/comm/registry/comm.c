/*
 * comm.c - the engines built into libtrireme-comm, in the order in which a group without a
 * named engine tries them.
 */
#include <stddef.h>

#include "comm/composites/composites.h"
#include "comm/engines/self/self.h"
#include "comm/engines/shm/shm.h"
#include "comm/engines/tcp/tcp.h"

const trii_engine *const *trii_engines(void)
{
    static const trii_engine *const engines[] = {&trii_engine_self, &trii_engine_shm,
                                                 &trii_engine_hierarchy, &trii_engine_tcp, NULL};

    return engines;
}
