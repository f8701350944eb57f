/*
 * conv_sum.c - gradients of one convolution's weights by several batches (the pieces of a
 * pipeline's batch), and their sum, as one kernel: that of all images together. The fixed cost of
 * each (weights that are transformed for Winograd, written, and read again to be added) is then
 * paid once.
 *
 * The images are copied one after the other. They are kept until those of the last batch are there,
 * so this is only for weights of more bytes than the images of a batch. fuse.c asks
 * trii_onednn_conv_sums; conv.c compiles it.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/conv.h"
#include "train/graph/step/type.h"

/* Their convolutions, and that of all of them. */
typedef struct batches {
    convolution of[TRII_GROUP_NODES], whole;
    int n;
} batches;

static bool differ_in_batch_alone(const convolution *a, const convolution *b)
{
    for (int s = 0; s < N_SIDES; s++) {
        if (a->ndims[s] != b->ndims[s])
            return false;
        for (int d = s == W ? 0 : 1; d < a->ndims[s]; d++) {
            if (a->dims[s][d] != b->dims[s][d])
                return false;
        }
    }
    for (int d = 0; d < 2; d++) {
        if (a->stride[d] != b->stride[d] || a->dilation[d] != b->dilation[d] ||
            a->pad_l[d] != b->pad_l[d])
            return false;
    }
    return true;
}

/* False: some node is neither such a gradient nor the addition of two. */
static bool add_batches(const trii_ir *ir, const trii_group *group, batches *b)
{
    for (int32_t n = 0; n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];
        convolution *c = &b->of[b->n];

        if (node->op == &trii_op_add)
            continue;
        if (node->op != &trii_op_conv_backward_weight || !trii_node_f32(ir, node))
            return false;
        trii_conv_read(ir, node, c);
        if (b->n++ == 0) {
            b->whole = *c;
            continue;
        }
        if (!differ_in_batch_alone(c, &b->whole))
            return false;
        b->whole.dims[X][0] += c->dims[X][0];
        b->whole.dims[Y][0] += c->dims[Y][0];
    }
    return b->n > 0;
}

static int64_t elements(const convolution *c, int side)
{
    int64_t n = 1;

    for (int d = 0; d < c->ndims[side]; d++)
        n *= c->dims[side][d];
    return n;
}

/* The descriptors of a batch's images as they lie in the whole. */
static bool images_of(const batches *b, int k, const_dnnl_primitive_desc_t pd,
                      dnnl_memory_desc_t *md)
{
    const int sides[2] = {X, Y};

    for (int i = 0; i < 2; i++) {
        if (!trii_onednn_images(trii_conv_side(&b->whole, pd, sides[i]), b->of[k].dims[sides[i]][0],
                                &md[sides[i]]))
            return false;
    }
    return true;
}

bool trii_onednn_conv_sums(const trii_ir *ir, const trii_group *a, const trii_group *b,
                           const trii_ir_node *node)
{
    batches all = {.n = 0};
    trii_conv_choice chosen = {0};
    dnnl_memory_desc_t md[N_SIDES];
    int64_t images;
    bool behind_each_other;

    if (node->op != &trii_op_add || !add_batches(ir, a, &all) || !add_batches(ir, b, &all))
        return false;
    images = elements(&all.whole, X) + elements(&all.whole, Y);
    if (images == 0 || images > all.n * elements(&all.whole, W) ||
        trii_conv_choose(&all.whole, &chosen) != TRI_OK)
        return false;
    behind_each_other = images_of(&all, 0, chosen.pd, md);
    dnnl_primitive_desc_destroy(chosen.pd);
    return behind_each_other;
}

void trii_conv_sum_layouts(const trii_ir *ir, const trii_group *group, trii_layouts *want)
{
    batches all = {.n = 0};
    trii_conv_choice chosen = {0};

    if (!add_batches(ir, group, &all) || trii_conv_choose(&all.whole, &chosen) != TRI_OK)
        return; /* out of memory: compiling will report it */
    for (int k = 0; k < all.n; k++) {
        dnnl_memory_desc_t md[N_SIDES];

        if (!images_of(&all, k, chosen.pd, md))
            continue;
        for (int s = 0; s < N_SIDES; s++) {
            if (s != W && trii_onednn_layout(&md[s], &chosen.layout[s]) == TRI_OK)
                want->in[trii_group_in(group, all.of[k].value[s])] = chosen.layout[s];
        }
    }
    want->out[0] = chosen.layout[W];
    dnnl_primitive_desc_destroy(chosen.pd);
}

/* --- the kernel ----------------------------------------------------------- */

typedef struct copy {
    int arg;
    size_t to, bytes; /* `to` bytes into the scratch */
} copy;

typedef struct conv_sum {
    trii_kernel base;
    trii_kernel *whole; /* of X, Y and W, then its scratch */
    size_t y, scratch;  /* where they begin; X is at 0 */
    int n_args, n_copies;
    copy copies[2 * TRII_GROUP_NODES];
} conv_sum;

typedef struct copying {
    const conv_sum *k;
    void *const *args;
} copying;

static void copy_range(void *ctx, int64_t begin, int64_t end)
{
    const copying *c = ctx;

    for (int64_t i = begin; i < end; i++) {
        const copy *one = &c->k->copies[i];

        memcpy((char *)c->args[c->k->n_args] + one->to, c->args[one->arg], one->bytes);
    }
}

static tri_status conv_sum_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const conv_sum *k = (const conv_sum *)kernel;
    char *scratch = args[k->n_args];
    void *all[N_SIDES + 1] = {[X] = scratch,
                              [W] = args[k->n_args - 1],
                              [Y] = scratch + k->y,
                              [N_SIDES] = scratch + k->scratch};
    copying c = {k, args};

    trii_parallel_for(k->n_copies, 1, copy_range, &c);
    return k->whole->run(k->whole, all, run);
}

static void conv_sum_destroy(trii_kernel *kernel)
{
    conv_sum *k = (conv_sum *)kernel;

    if (k->whole != NULL)
        k->whole->destroy(k->whole);
    trii_free(k);
}

static size_t round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void list_copies(const trii_group *group, const batches *all, const trii_conv_choice *chosen,
                        conv_sum *k)
{
    size_t at[N_SIDES] = {[Y] = k->y};

    for (int b = 0; b < all->n; b++) {
        for (int s = 0; s < N_SIDES; s++) {
            const dnnl_memory_desc_t *md = trii_conv_side(&all->whole, chosen->pd, s);
            size_t bytes = (size_t)(all->of[b].dims[s][0] * md->format_desc.blocking.strides[0]) *
                           sizeof(float);

            if (s == W)
                continue;
            k->copies[k->n_copies++] =
                (copy){trii_group_in(group, all->of[b].value[s]), at[s], bytes};
            at[s] += bytes;
        }
    }
}

static bool as_chosen(const trii_group *group, const batches *all, const trii_conv_choice *chosen)
{
    bool same = group->out_layout[0] == chosen->layout[W];

    for (int k = 0; k < all->n; k++) {
        dnnl_memory_desc_t md[N_SIDES];

        same = same && images_of(all, k, chosen->pd, md);
        for (int s = 0; s < N_SIDES && same; s++) {
            const trii_layout *layout = NULL;

            same = s == W || (trii_onednn_layout(&md[s], &layout) == TRI_OK &&
                              layout == trii_conv_layout(group, all->of[k].value[s]));
        }
    }
    return same;
}

tri_status trii_conv_sum_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const int index[N_SIDES + 1] = {[X] = X, [W] = W, [Y] = Y, [N_SIDES] = -1};
    batches all = {.n = 0};
    trii_conv_choice chosen = {0};
    conv_sum *k = NULL;
    tri_status status = TRI_OK;

    if (!add_batches(ir, group, &all))
        return TRII_FAIL(TRI_ERR_INTERNAL, "a sum of other things than gradients of weights");
    status = trii_conv_choose(&all.whole, &chosen); /* as for the layouts */
    if (status != TRI_OK)
        return status;
    if (!as_chosen(group, &all, &chosen))
        status = TRII_FAIL(TRI_ERR_INTERNAL, "images in other layouts than were asked for");
    if (status == TRI_OK) {
        k = trii_alloc(1, sizeof(*k), "kernel");
        status = k != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK)
        status = trii_conv_kernel(&all.whole, chosen.pd, index, N_SIDES, &k->whole);
    if (status == TRI_OK) {
        k->n_args = group->n_in + group->n_out;
        k->y = round_up((size_t)elements(&all.whole, X) * sizeof(float));
        k->scratch = k->y + round_up((size_t)elements(&all.whole, Y) * sizeof(float));
        list_copies(group, &all, &chosen, k);
        k->base = (trii_kernel){.name = k->whole->name,
                                .run = conv_sum_run,
                                .destroy = conv_sum_destroy,
                                .scratch_bytes = k->scratch + k->whole->scratch_bytes};
        *kernel_out = &k->base;
    } else {
        trii_free(k);
    }
    dnnl_primitive_desc_destroy(chosen.pd);
    return status;
}
