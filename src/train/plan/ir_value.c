/*
 * ir_value.c - values of the intermediate form: making new ones, and their sizes in a layout. Below
 * all passes that insert casts (half.c) or copies (layout_fit.c).
 */
#include <string.h>

#include "train/plan/ir.h"

size_t trii_layout_bytes(const trii_type *type, const trii_layout *layout)
{
    return layout != NULL ? layout->bytes : trii_type_bytes(type);
}

int32_t trii_ir_add_value(trii_ir *ir, const trii_type *type)
{
    trii_ir_value *value;

    if (ir->n_values == ir->room_values) {
        int32_t room = ir->room_values * 2 + 16;
        trii_ir_value *more = trii_pool_alloc(ir->pool, (size_t)room, sizeof(*more));

        if (more == NULL)
            return -1;
        if (ir->n_values > 0)
            memcpy(more, ir->values, (size_t)ir->n_values * sizeof(*more));
        ir->values = more;
        ir->room_values = room;
    }
    value = &ir->values[ir->n_values];
    *value = (trii_ir_value){.type = *type,
                             .node = -1,
                             .output = -1,
                             .input = -1,
                             .old = -1,
                             .group = -1,
                             .buffer = -1,
                             .base = -1};
    return ir->n_values++;
}
