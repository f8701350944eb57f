/*
 * layout_choice.h - what layout.c, which chooses layouts, shares with views.c.
 */
#ifndef TRII_LAYOUT_CHOICE_H
#define TRII_LAYOUT_CHOICE_H

#include "train/graph/step/strides.h"
#include "train/plan/ir.h"

/* A copy of a value in another layout. */
typedef struct trii_layout_copy {
    struct trii_layout_copy *next;
    int32_t value;
    const trii_layout *layout;
} trii_layout_copy;

/* Where a value shall be written, so that it is a part of another one. */
typedef struct trii_layout_place {
    bool chosen;
    int32_t base;
    int64_t offset; /* bytes */
    const trii_layout *layout;
} trii_layout_place;

typedef struct trii_layout_choice {
    trii_ir *ir;
    const trii_step *step;
    const trii_segment *segment;
    const trii_device_ops *device;
    /* Indexed by value, all with this capacity: */
    const trii_layout **now;
    bool *used;                /* some group reads the value as it is */
    trii_layout_copy **copies; /* number of copies that exist */
    trii_layout_place *place;
    int32_t room;
    const trii_layout **adopt;
} trii_layout_choice;

static inline bool trii_is_strided(const trii_layout *layout)
{
    return layout != NULL && layout->strides != NULL;
}

/* --- layout.c ------------------------------------------------------------- */

/* Room for twice as many values. */
tri_status trii_layout_room(trii_layout_choice *c) TRI_MUST_CHECK;
/* A new value of the type, in this layout. */
tri_status trii_layout_value(trii_layout_choice *c, const trii_type *type,
                             const trii_layout *layout, int32_t *value_out) TRI_MUST_CHECK;
/* A group that copies `from` into `to`, in their present layouts: by way of plain order where one
 * is strided and the other is a layout of the device's own. */
tri_status trii_layout_reorder(trii_layout_choice *c, int32_t from, int32_t to,
                               int32_t position) TRI_MUST_CHECK;
/* Gives input i of the group this layout: as it is, for good, or by a copy. */
tri_status trii_layout_fit_input(trii_layout_choice *c, trii_group *group, int32_t i,
                                 const trii_layout *layout, bool adopt) TRI_MUST_CHECK;
tri_status trii_layout_fit_output(trii_layout_choice *c, trii_group *group, int32_t o,
                                  const trii_layout *layout) TRI_MUST_CHECK;
/* Replaces it in the nodes of the group. */
void trii_layout_replace(trii_ir *ir, const trii_group *group, int32_t from, int32_t to,
                         bool outputs);

/* --- views.c -------------------------------------------------------------- */

/* Before layouts are chosen: a value whose only use is to become a part of a joined value shall be
 * written there. */
tri_status trii_views_place(trii_layout_choice *c) TRI_MUST_CHECK;
/* Places a group that is a view, or a join, when its turn comes. */
tri_status trii_views_choose(trii_layout_choice *c, trii_group *group) TRI_MUST_CHECK;

#endif
