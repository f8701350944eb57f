/*
 * engine_make.h - makes the engine of a group, for group_create.c.
 */
#ifndef TRII_ENGINE_MAKE_H
#define TRII_ENGINE_MAKE_H

#include "group/composite.h"

/* The engine that `text` (choose.h; NULL allowed) names for the group args->name: one, or several
 * by rules. args->store is replaced meanwhile. Blocks until all ranks are connected. */
tri_status trii_engine_make(const char *text, tri_store *store, trii_group_args *args,
                            trii_child *engine_out) TRI_MUST_CHECK;

#endif
