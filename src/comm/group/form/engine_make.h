/*
 * engine_make.h - makes the engine of a group, for group_create.c.
 */
#ifndef TRII_ENGINE_MAKE_H
#define TRII_ENGINE_MAKE_H

#include "comm/group/engine.h"

typedef struct trii_made_engine {
    const trii_engine *engine;
    void *self;
    bool checks_calls; /* the group compares calls for the engine */
} trii_made_engine;

/* The engine that `text` (choose.h; NULL allowed) names for the group args->name. args->store is
 * replaced meanwhile. mine: a failure, which the others hear, if this rank cannot be in the group.
 * Blocks until all ranks are connected. */
tri_status trii_engine_make(const char *text, tri_status mine, tri_store *store,
                            trii_group_args *args, trii_made_engine *made_out) TRI_MUST_CHECK;

#endif
