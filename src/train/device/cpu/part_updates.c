/*
 * part_updates.c - a tensor with a part replaced or added to, in place if nothing else reads the
 * tensor; and the gradient of a slice, which is a part of zeros.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/strides.h"

#define GRAIN (INT64_C(1) << 18) /* bytes for a thread */

typedef struct part_update {
    trii_kernel base;
    trii_kernel *move;          /* of the part */
    int in_whole, in_part, out; /* arguments; in_whole -1: zeros */
    int64_t bytes, offset;      /* of the whole; of the part in it */
    uint64_t in_place;
} part_update;

typedef struct fill_run {
    char *y;
    const char *x; /* NULL: zeros */
} fill_run;

static void fill_range(void *ctx, int64_t begin, int64_t end)
{
    const fill_run *run = ctx;

    if (run->x != NULL)
        memcpy(run->y + begin, run->x + begin, (size_t)(end - begin));
    else
        memset(run->y + begin, 0, (size_t)(end - begin));
}

static tri_status update_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const part_update *u = (const part_update *)kernel;
    char *y = args[u->out];
    fill_run fill = {y, u->in_whole >= 0 ? args[u->in_whole] : NULL};
    void *const parts[2] = {args[u->in_part], y + u->offset};

    if (fill.x != y)
        trii_parallel_for(u->bytes, GRAIN, fill_range, &fill);
    return u->move->run(u->move, parts, run);
}

static void update_destroy(trii_kernel *kernel)
{
    part_update *u = (part_update *)kernel;

    u->move->destroy(u->move);
    trii_free(u);
}

/* Parts of any shape; the whole is plain. */
static void update_layouts(const trii_ir *ir, const trii_group *group,
                           const trii_layout *const *have, trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int32_t part = node->in[node->n_in - 1];

    for (int i = 0; i < group->n_in; i++) {
        bool strided = have[i] != NULL && have[i]->strides != NULL;

        if (group->in[i] == part && (node->n_in == 1 || node->in[0] != part) && strided)
            want->in[i] = have[i];
    }
}

static bool update_takes(const trii_ir *ir, const trii_ir_node *node)
{
    (void)ir;
    (void)node;
    return true;
}

static tri_status update_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *whole = trii_out_type(ir, node, 0);
    const trii_type *part = trii_in_type(ir, node, node->n_in - 1);
    int64_t size = (int64_t)tri_dtype_size(whole->dtype);
    bool added = node->n_in > 1 && node->iattr[3 * whole->ndim] != 0;
    part_update *u = trii_alloc(1, sizeof(*u), "kernel");
    const trii_layout *layout;
    trii_strides from, to;
    tri_status status;

    if (u == NULL)
        return TRI_ERR_NO_MEMORY;
    u->base = (trii_kernel){.name = node->op->name, .run = update_run, .destroy = update_destroy};
    u->in_part = trii_group_in(group, node->in[node->n_in - 1]);
    u->in_whole = node->n_in > 1 ? trii_group_in(group, node->in[0]) : -1;
    u->out = group->n_in;
    u->bytes = trii_type_numel(whole) * size;
    trii_strides_plain(part, &from);
    layout = group->in_layout[u->in_part];
    if (layout != NULL)
        memcpy(from.stride, layout->strides, (size_t)part->ndim * sizeof(from.stride[0]));
    trii_strides_plain(whole, &to);
    for (int d = 0; d < part->ndim; d++) {
        u->offset += trii_type_numel(part) > 0 ? node->iattr[3 * d] * to.stride[d] * size : 0;
        to.stride[d] *= node->iattr[3 * d + 1];
    }
    if (u->in_whole >= 0 && u->in_whole != u->in_part) {
        u->in_place = UINT64_C(1) << u->in_whole;
        u->base.in_place = &u->in_place;
    }
    status = trii_cpu_move(part, from.stride, 0, to.stride, added, node->op->name, &u->move);
    if (status != TRI_OK) {
        trii_free(u);
        return status;
    }
    *kernel_out = &u->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_slice_update = {
    .op = {&trii_op_slice_update, &trii_op_slice_backward},
    .takes = update_takes,
    .strided = true,
    .layouts = update_layouts,
    .compile = update_compile,
};
