/*
 * hierarchy.h - the engine for several ranks on each of several hosts: shm inside a host and tcp
 * between hosts as one.
 */
#ifndef TRII_HIERARCHY_H
#define TRII_HIERARCHY_H

#include "group/engine.h"

extern const trii_engine trii_engine_hierarchy;

#endif
