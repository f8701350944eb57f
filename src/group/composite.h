/*
 * composite.h - engines made of engines (src/composites), as engine.h is for engines: what the
 * group gives them and what it asks of them. engine_make.c makes the children and hands them over
 * ready for use; a composite never makes engines by name, except hierarchy, whose children are
 * groups of other ranks.
 */
#ifndef TRII_COMPOSITE_H
#define TRII_COMPOSITE_H

#include "group/engine.h"

#define TRII_GROUP_NAME 32

/* An engine of a group, with its state. */
typedef struct trii_child {
    const trii_engine *engine;
    void *self;
} trii_child;

struct trii_choice;

/* Both are made in two steps: the memory before the children, so that the ranks can agree that all
 * have it, and the rest where nothing can fail any more. alloc: NULL = no memory; released with
 * trii_free. init: takes the children, which destroy() of the new engine destroys. */
typedef struct trii_composites {
    /* Several engines as one, by rules: children[of_rule[i]] for rule i of the choice, children[0]
     * where no rule fits. */
    void *(*routed_alloc)(void);
    void (*routed_init)(void *routed, const trii_group_args *args, const struct trii_choice *choice,
                        const int *of_rule, const trii_child *children, int n_children,
                        trii_child *routed_out);
    /* An engine that does not compare the ranks' calls, with another that does. */
    void *(*checked_alloc)(void);
    void (*checked_init)(void *checked, const trii_group_args *args, trii_child engine,
                         trii_child guard, trii_child *checked_out);
} trii_composites;

/* registry/comm.c: those of this library. */
const trii_composites *trii_composites_get(void);

/* --- what composites use of the group ------------------------------------- */

/* An operation of `call`, to be submitted to a child; only call and status may be changed then. */
void trii_op_init(trii_op *op, const trii_collective *call);
/* Memory of tri_group_alloc where no child has its own: zeroed. Refused before it is touched if
 * there is not so much. Released with trii_free. */
tri_status trii_group_heap(size_t bytes, void **p_out) TRI_MUST_CHECK;

#endif
