/*
 * composites.h - what comm/registry/comm.c names of this room.
 */
#ifndef TRII_COMPOSITES_H
#define TRII_COMPOSITES_H

#include "comm/group/composite.h"

extern const trii_engine trii_engine_hierarchy; /* hierarchy/ */

#endif
