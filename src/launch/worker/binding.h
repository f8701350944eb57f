/*
 * binding.h - which cores a worker gets with --numa-binding: those near its memory and its GPU.
 */
#ifndef TRII_LAUNCH_BINDING_H
#define TRII_LAUNCH_BINDING_H

#include <trireme/status.h>

#include "os/cpu.h"

typedef struct trii_binding {
    trii_cpu_set allowed; /* what this process may use, and so hands out */
    const char *how;      /* "node", "socket", "exclusive", "core-complex" */
    const char *system;   /* "/sys", or a copy of it for tests */
    trii_cpu_set *groups; /* cores that belong together */
    int n_groups, room;
} trii_binding;

/* Reads the topology of the host. how, system: borrowed. Errors: NO_MEMORY. A host that does not
 * show its topology is one group. */
tri_status trii_binding_open(trii_binding *binding, const char *how, const char *system,
                             const trii_cpu_set *allowed) TRI_MUST_CHECK;
void trii_binding_close(trii_binding *binding);
/* Cores of one worker: of the group of the GPU of its number where there is one, else of groups in
 * turn; `exclusive` shares a group's cores between its workers. Never empty. */
void trii_binding_of(const trii_binding *binding, int local_rank, int local_size,
                     trii_cpu_set *cores_out);

#endif
