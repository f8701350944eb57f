/*
 * spawned.h - whether this process is a worker of tri_spawn.
 */
#ifndef TRII_ELASTIC_SPAWNED_H
#define TRII_ELASTIC_SPAWNED_H

#include <stdbool.h>

bool trii_spawned(void);

#endif
