/*
 * pieces.c - kernels for a batch of images made of kernels for 1, 2, 4.. images: if a program uses
 * many batch sizes, compiling code for each takes longer than running it. Used by conv_pieces.c and
 * layouts.c.
 *
 * A batch is cut into powers of two, the largest first. Gradients of weights are added up.
 */
#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/handles.h"
#include "train/device/cpu/variety.h"

#define FEW_SIZES 8 /* sizes that have code of their own */
#define MAX_ARGS 12
#define MAX_PIECES 63
#define ADD_GRAIN 4096 /* floats for a thread */

typedef struct pieces {
    trii_kernel base;
    int n, n_args;
    size_t step[MAX_ARGS]; /* bytes of an image; 0 = the same for all pieces */
    int sum;               /* the argument to which they all contribute, floats; -1 = none */
    /* of that argument; pieces after the first write it to the start of the scratch */
    size_t add_bytes;
    size_t sum_bytes; /* the same, rounded up: where the pieces' own scratch begins */
    struct piece {
        trii_kernel *kernel;
        int64_t begin;
    } piece[MAX_PIECES];
} pieces;

bool trii_onednn_varies(uint64_t kind, int64_t batch)
{
    return trii_kind_varies(kind, batch, FEW_SIZES);
}

bool trii_onednn_images(const dnnl_memory_desc_t *md, int64_t n, dnnl_memory_desc_t *some_out)
{
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;

    if (md->format_kind != dnnl_blocked || md->ndims < 2)
        return false;
    for (int k = 0; k < b->inner_nblks; k++) {
        if (b->inner_idxs[k] == 0)
            return false;
    }
    for (int d = 1; d < md->ndims; d++) {
        if (md->padded_dims[d] > 1 && b->strides[d] > b->strides[0])
            return false;
    }
    *some_out = *md;
    some_out->dims[0] = some_out->padded_dims[0] = n;
    return true;
}

typedef struct addition {
    float *to;
    const float *from;
} addition;

static void add_range(void *ctx, int64_t begin, int64_t end)
{
    const addition *a = ctx;

    trii_cpu_kernels_get()->ew[TRII_EW_add](a->to + begin, a->to + begin, a->from + begin, NULL,
                                            (size_t)(end - begin), NULL);
}

static tri_status pieces_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const pieces *p = (const pieces *)kernel;
    tri_status status = TRI_OK;

    for (int i = 0; i < p->n && status == TRI_OK; i++) {
        const struct piece *now = &p->piece[i];
        void *all[MAX_ARGS + 1];

        for (int k = 0; k < p->n_args; k++)
            all[k] = args[k] == NULL || p->step[k] == 0
                         ? args[k]
                         : (char *)args[k] + (size_t)now->begin * p->step[k];
        all[p->n_args] = (char *)args[p->n_args] + p->sum_bytes;
        if (p->sum >= 0 && i > 0)
            all[p->sum] = args[p->n_args];
        status = now->kernel->run(now->kernel, all, run);
        if (status == TRI_OK && p->sum >= 0 && i > 0) {
            addition a = {args[p->sum], args[p->n_args]};

            trii_parallel_for((int64_t)(p->add_bytes / sizeof(float)), ADD_GRAIN, add_range, &a);
        }
    }
    return status;
}

static void pieces_destroy(trii_kernel *kernel)
{
    pieces *p = (pieces *)kernel;

    for (int i = 0; i < p->n; i++)
        p->piece[i].kernel->destroy(p->piece[i].kernel);
    trii_free(p);
}

tri_status trii_onednn_pieces(const trii_onednn_batch *batch, const void *of,
                              trii_onednn_piece_fn make, trii_kernel **kernel_out)
{
    int64_t begin = 0;
    tri_status status = TRI_OK;
    pieces *p;

    if (batch->n_args > MAX_ARGS)
        return TRI_ERR_UNSUPPORTED;
    p = trii_alloc(1, sizeof(*p), "kernel");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->n_args = batch->n_args;
    p->sum = batch->sum;
    p->add_bytes = batch->sum >= 0 ? batch->sum_bytes : 0;
    p->sum_bytes = (p->add_bytes + 63) / 64 * 64;
    for (int i = 0; i < batch->n_operands; i++) {
        const dnnl_memory_desc_t *md = batch->operands[i].md;

        if (batch->in_images[i])
            p->step[batch->operands[i].index] =
                (size_t)md->format_desc.blocking.strides[0] *
                (md->data_type == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float));
    }
    for (int bit = MAX_PIECES - 1; bit >= 0 && status == TRI_OK; bit--) {
        int64_t size = INT64_C(1) << bit;
        struct piece *now = &p->piece[p->n];

        if ((batch->n & size) == 0)
            continue;
        status = make(of, size, &now->kernel);
        if (status != TRI_OK)
            break;
        now->begin = begin;
        begin += size;
        p->n++;
        if (now->kernel->scratch_bytes > p->base.scratch_bytes)
            p->base.scratch_bytes = now->kernel->scratch_bytes;
    }
    if (status != TRI_OK) {
        pieces_destroy(&p->base);
        return status;
    }
    if (p->n == 1) {
        *kernel_out = p->piece[0].kernel;
        trii_free(p);
        return TRI_OK;
    }
    p->base = (trii_kernel){.name = p->piece[0].kernel->name,
                            .run = pieces_run,
                            .destroy = pieces_destroy,
                            .scratch_bytes = p->base.scratch_bytes + p->sum_bytes};
    *kernel_out = &p->base;
    return TRI_OK;
}
