/*
 * reorder.c - changes of layout: between strides by element_moves.c, to and from oneDNN's layouts
 * by onednn/layouts.c. Called by cpu_device.c.
 */
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/graph/step/strides.h"

static bool is_strided(const trii_layout *layout)
{
    return layout != NULL && layout->strides != NULL;
}

tri_status trii_cpu_reorder(const trii_type *type, const trii_layout *from, const trii_layout *to,
                            trii_kernel **kernel_out)
{
    trii_strides plain;

    if ((from != NULL && !is_strided(from)) || (to != NULL && !is_strided(to)))
        return trii_onednn_reorder(type, from, to, kernel_out);
    trii_strides_plain(type, &plain);
    return trii_cpu_move(type, from != NULL ? from->strides : plain.stride, 0,
                         to != NULL ? to->strides : plain.stride, false, "copy", kernel_out);
}
