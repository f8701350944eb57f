/*
 * composites.h - what registry/comm.c names of this room. The contracts are in group/composite.h.
 */
#ifndef TRII_COMPOSITES_H
#define TRII_COMPOSITES_H

#include "group/composite.h"

extern const trii_engine trii_engine_hierarchy; /* hierarchy/ */

/* routed.c */
void *trii_routed_alloc(void);
void trii_routed_init(void *self, const trii_group_args *args, const struct trii_choice *choice,
                      const int *of_rule, const trii_child *children, int n_children,
                      trii_child *routed_out);
/* checked.c */
void *trii_checked_alloc(void);
void trii_checked_init(void *self, const trii_group_args *args, trii_child engine, trii_child guard,
                       trii_child *checked_out);

#endif
