/*
 * extremes.c - amax, its gradient, and argmax in f32.
 *
 * A reduction is cut into items: an element of the result, or a strip of neighbouring elements if
 * the last dimension is kept. If there are few items over many elements, they are cut once more,
 * along the reduction, into parts that are put together in order. Neither the largest element nor
 * which of equal ones comes first depends on the cuts, so the bits do not depend on the number of
 * threads.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"

#define STRIP 256       /* neighbouring results that are worked on together */
#define MAX_PARTS 64    /* of a reduction */
#define MIN_ELEMS 16384 /* of a part, and of a thread */

/* The dimensions of x, adjacent ones of a kind merged. Kept and reduced ones are counted in
 * order. */
typedef struct extremes {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t kept_size[TRI_MAX_DIMS], kept_step[TRI_MAX_DIMS];
    int64_t steps_size[TRI_MAX_DIMS], steps_step[TRI_MAX_DIMS];
    int n_kept, n_steps;  /* without the last dimension */
    int64_t kept, steps;  /* their products */
    int64_t width, run;   /* the last dimension: kept, or reduced; the other is 1 */
    int64_t items, parts; /* parts: of steps if there are several, else of the run */
    int64_t grain;
    bool where;                /* argmax: the place is wanted, not the element */
    int x, y, g, out, scratch; /* arguments */
} extremes;

typedef struct extremes_run {
    const extremes *k;
    const float *x, *y, *g;
    void *out;
    char *scratch;
} extremes_run;

/* --- walking -------------------------------------------------------------- */

/* What one call works on: result elements at .. at + n, over a part of their reduction. */
typedef struct piece {
    const float *x; /* of the first result element */
    int64_t at, n;
    int64_t step, step_end, run, run_end;
} piece;

static int64_t offset_of(const int64_t *size, const int64_t *step, int n, int64_t index)
{
    int64_t offset = 0;

    if (n == 1)
        return index * step[0];
    for (int d = n - 1; d >= 0; d--) {
        offset += index % size[d] * step[d];
        index /= size[d];
    }
    return offset;
}

static int64_t step_offset(const extremes *k, int64_t step)
{
    return offset_of(k->steps_size, k->steps_step, k->n_steps, step);
}

static piece piece_of(const extremes_run *run, int64_t item, int64_t part)
{
    const extremes *k = run->k;
    int64_t strips = (k->width + STRIP - 1) / STRIP, strip = item % strips * STRIP;
    int64_t row = item / strips;
    bool by_step = k->steps > 1;
    piece p = {.step_end = k->steps, .run_end = k->run};

    p.x = run->x + offset_of(k->kept_size, k->kept_step, k->n_kept, row) + strip;
    p.at = row * k->width + strip;
    p.n = k->width - strip < STRIP ? k->width - strip : STRIP;
    if (by_step) {
        p.step = k->steps * part / k->parts;
        p.step_end = k->steps * (part + 1) / k->parts;
    } else {
        p.run = k->run * part / k->parts;
        p.run_end = k->run * (part + 1) / k->parts;
    }
    return p;
}

/* --- the largest, and where it is ----------------------------------------- */

/* NaN wins and stays; of equals the first. */
static bool wins(float x, float best)
{
    return best == best && !(x <= best);
}

static void largest_of(const extremes_run *run, const piece *p, float *best)
{
    const extremes *k = run->k;

    for (int64_t j = 0; j < p->n; j++)
        best[j] = -INFINITY;
    for (int64_t s = p->step; s < p->step_end; s++) {
        const float *x = p->x + step_offset(k, s);

        if (k->width > 1) {
            k->kernels->ew[TRII_EW_maximum](best, best, x, NULL, (size_t)p->n, NULL);
        } else {
            float most = k->kernels->max(x + p->run, (size_t)(p->run_end - p->run));

            best[0] = wins(most, best[0]) ? most : best[0];
        }
    }
}

/* In a row: the first element that equals the largest. */
static int64_t first_of(const float *x, int64_t begin, int64_t end, float most)
{
    int64_t i = begin;

    if (most != most) {
        while (i < end - 1 && x[i] == x[i])
            i++;
    } else {
        while (i < end - 1 && x[i] != most)
            i++;
    }
    return i;
}

static void where_in_strip(const extremes *k, const piece *p, float *best, int64_t *at)
{
    const float *x = p->x + step_offset(k, p->step);

    for (int64_t j = 0; j < p->n; j++) {
        best[j] = x[j];
        at[j] = p->step;
    }
    for (int64_t s = p->step + 1; s < p->step_end; s++) {
        x = p->x + step_offset(k, s);
        for (int64_t j = 0; j < p->n; j++) {
            bool more = wins(x[j], best[j]);

            best[j] = more ? x[j] : best[j];
            at[j] = more ? s : at[j];
        }
    }
}

static void where_of(const extremes_run *run, const piece *p, float *best, int64_t *at)
{
    const extremes *k = run->k;

    if (k->width > 1 || k->steps > 1) { /* one dimension is reduced: a strip, or a row */
        where_in_strip(k, p, best, at);
        return;
    }
    best[0] = k->kernels->max(p->x + p->run, (size_t)(p->run_end - p->run));
    at[0] = first_of(p->x, p->run, p->run_end, best[0]);
}

/* Scratch of reductions in parts: for each part, the largest of each element and where it is. */
static float *part_best(const extremes_run *run, int64_t part)
{
    return (float *)(void *)(run->scratch + part * run->k->kept * run->k->width * 16);
}

static int64_t *part_where(const extremes_run *run, int64_t part)
{
    return (int64_t *)(void *)(part_best(run, part) + 2 * run->k->kept * run->k->width);
}

static void range(void *ctx, int64_t begin, int64_t end)
{
    const extremes_run *run = ctx;
    const extremes *k = run->k;

    for (int64_t i = begin; i < end; i++) {
        int64_t part = i % k->parts;
        piece p = piece_of(run, i / k->parts, part);
        bool whole = k->parts == 1;
        float here[STRIP], *best = whole ? here : part_best(run, part) + p.at;

        if (k->where)
            where_of(run, &p, best, (whole ? (int64_t *)run->out : part_where(run, part)) + p.at);
        else
            largest_of(run, &p, whole ? (float *)run->out + p.at : best);
    }
}

/* The part that has the largest of the parts' elements i, the first of equals. */
static int64_t best_part(const extremes_run *run, int64_t i)
{
    int64_t at = 0;

    for (int64_t part = 1; part < run->k->parts; part++) {
        if (wins(part_best(run, part)[i], part_best(run, at)[i]))
            at = part;
    }
    return at;
}

static extremes_run begin_run(const trii_kernel *kernel, void *const *args)
{
    const extremes *k = (const extremes *)kernel;

    return (extremes_run){.k = k,
                          .x = args[k->x],
                          .y = k->y >= 0 ? args[k->y] : NULL,
                          .g = k->g >= 0 ? args[k->g] : NULL,
                          .out = args[k->out],
                          .scratch = k->base.scratch_bytes > 0 ? args[k->scratch] : NULL};
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *unused)
{
    extremes_run run = begin_run(kernel, args);
    const extremes *k = run.k;

    (void)unused;
    trii_parallel_for(k->items * k->parts, k->grain, range, &run);
    for (int64_t i = 0; k->parts > 1 && i < k->kept * k->width; i++) {
        int64_t part = best_part(&run, i);

        if (k->where)
            ((int64_t *)run.out)[i] = part_where(&run, part)[i];
        else
            ((float *)run.out)[i] = part_best(&run, part)[i];
    }
    return TRI_OK;
}

/* --- the gradient of amax: equal largest elements share it -------------------
 *
 * The shares of a NaN, which nothing equals, are infinite or NaN: times 0 all get NaN. */

static void count_of(const extremes_run *run, const piece *p, int64_t *count)
{
    const float *y = run->y + p->at;

    memset(count, 0, (size_t)p->n * sizeof(*count));
    for (int64_t s = p->step; s < p->step_end; s++) {
        const float *x = p->x + step_offset(run->k, s);

        if (run->k->width > 1) {
            for (int64_t j = 0; j < p->n; j++)
                count[j] += x[j] == y[j];
        } else {
            for (int64_t i = p->run; i < p->run_end; i++)
                count[0] += x[i] == y[0];
        }
    }
}

static void shares_of(const extremes_run *run, const piece *p, const int64_t *count, float *share)
{
    for (int64_t j = 0; j < p->n; j++)
        share[j] = (float)((double)run->g[p->at + j] / (double)count[j]);
}

static void hand_out(const extremes_run *run, const piece *p, const float *share)
{
    const float *y = run->y + p->at;
    float *dx_of_first = (float *)run->out + (p->x - run->x);

    assert(p->n > 0);
    for (int64_t s = p->step; s < p->step_end; s++) {
        int64_t offset = step_offset(run->k, s);
        const float *x = p->x + offset;
        float *dx = dx_of_first + offset;

        if (run->k->width > 1) {
            for (int64_t j = 0; j < p->n; j++)
                dx[j] = (float)(x[j] == y[j]) * share[j];
        } else {
            for (int64_t i = p->run; i < p->run_end; i++)
                dx[i] = (float)(x[i] == y[0]) * share[0];
        }
    }
}

static int64_t *part_count(const extremes_run *run, int64_t part)
{
    return (int64_t *)(void *)run->scratch + part * run->k->kept * run->k->width;
}

static void count_range(void *ctx, int64_t begin, int64_t end)
{
    const extremes_run *run = ctx;

    for (int64_t i = begin; i < end; i++) {
        piece p = piece_of(run, i / run->k->parts, i % run->k->parts);

        count_of(run, &p, part_count(run, i % run->k->parts) + p.at);
    }
}

static void hand_out_range(void *ctx, int64_t begin, int64_t end)
{
    const extremes_run *run = ctx;

    for (int64_t i = begin; i < end; i++) {
        piece p = piece_of(run, i / run->k->parts, i % run->k->parts);
        int64_t count[STRIP];
        float share[STRIP];

        if (run->k->parts > 1)
            memcpy(count, part_count(run, 0) + p.at, (size_t)p.n * sizeof(*count));
        else
            count_of(run, &p, count);
        shares_of(run, &p, count, share);
        hand_out(run, &p, share);
    }
}

static tri_status amax_backward_run(const trii_kernel *kernel, void *const *args,
                                    const trii_run *unused)
{
    extremes_run run = begin_run(kernel, args);
    const extremes *k = run.k;

    (void)unused;
    if (k->parts > 1)
        trii_parallel_for(k->items * k->parts, k->grain, count_range, &run);
    for (int64_t part = 1; part < k->parts; part++) {
        for (int64_t i = 0; i < k->kept * k->width; i++)
            part_count(&run, 0)[i] += part_count(&run, part)[i];
    }
    trii_parallel_for(k->items * k->parts, k->grain, hand_out_range, &run);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

static bool amax_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node) && trii_type_numel(trii_in_type(ir, node, 0)) > 0;
}

static bool amax_backward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node) && trii_type_numel(trii_in_type(ir, node, 1)) > 0;
}

static bool argmax_takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *x = trii_in_type(ir, node, 0);

    return x->dtype == TRI_DTYPE_F32 && trii_type_numel(x) > 0;
}

/* The dimensions of x, by whether they are in the mask; the last one is kept apart. */
static void read_dims(const trii_type *x, int64_t mask, extremes *k)
{
    int64_t size[TRI_MAX_DIMS], step = 1;
    bool reduced[TRI_MAX_DIMS];
    int n = 0;

    for (int d = 0; d < x->ndim; d++) {
        bool in_mask = (mask >> d & 1) != 0;

        if (x->shape[d] == 1)
            continue;
        if (n > 0 && reduced[n - 1] == in_mask) {
            size[n - 1] *= x->shape[d];
            continue;
        }
        size[n] = x->shape[d];
        reduced[n++] = in_mask;
    }
    k->kept = k->steps = k->width = k->run = 1;
    if (n > 0) {
        step = size[--n];
        *(reduced[n] ? &k->run : &k->width) = step;
    }
    k->n_kept = k->n_steps = 0;
    for (int d = 0; d < n; d++) {
        int64_t stride = step;

        for (int e = d + 1; e < n; e++)
            stride *= size[e];
        if (reduced[d]) {
            k->steps_size[k->n_steps] = size[d];
            k->steps_step[k->n_steps++] = stride;
            k->steps *= size[d];
        } else {
            k->kept_size[k->n_kept] = size[d];
            k->kept_step[k->n_kept++] = stride;
            k->kept *= size[d];
        }
    }
}

static void cut(extremes *k)
{
    int64_t elems = k->steps * k->run * (k->width < STRIP ? k->width : STRIP); /* of an item */
    int64_t most = k->steps > 1 ? k->steps : k->run;

    k->items = k->kept * ((k->width + STRIP - 1) / STRIP);
    k->parts = 1;
    if (k->items < MAX_PARTS / 2) {
        k->parts = elems / MIN_ELEMS < MAX_PARTS ? elems / MIN_ELEMS : MAX_PARTS;
        if (k->parts > most)
            k->parts = most;
        if (k->parts < 1)
            k->parts = 1;
    }
    k->grain = 1 + MIN_ELEMS / (elems / k->parts);
}

static tri_status new_kernel(const trii_ir *ir, const trii_group *group, int x, int64_t mask,
                             size_t part_bytes, extremes **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    extremes *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = node->op->name, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->x = trii_group_in(group, node->in[x]);
    k->y = k->g = -1;
    k->out = group->n_in;
    k->scratch = group->n_in + group->n_out;
    read_dims(trii_in_type(ir, node, x), mask, k);
    cut(k);
    if (k->parts > 1)
        k->base.scratch_bytes = (size_t)(k->parts * k->kept * k->width) * part_bytes;
    *kernel_out = k;
    return TRI_OK;
}

static tri_status compile(const trii_ir *ir, const trii_group *group, int64_t mask, bool where,
                          trii_kernel **kernel_out)
{
    extremes *k = NULL;
    tri_status status = new_kernel(ir, group, 0, mask, 16, &k);

    if (status != TRI_OK)
        return status;
    k->base.run = forward_run;
    k->where = where;
    *kernel_out = &k->base;
    return TRI_OK;
}

static tri_status amax_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    return compile(ir, group, ir->nodes[group->nodes[0]].iattr[0], false, kernel_out);
}

static tri_status argmax_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    return compile(ir, group, INT64_C(1) << ir->nodes[group->nodes[0]].iattr[0], true, kernel_out);
}

static tri_status amax_backward_compile(const trii_ir *ir, const trii_group *group,
                                        trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    extremes *k = NULL;
    tri_status status = new_kernel(ir, group, 1, node->iattr[0], sizeof(int64_t), &k);

    if (status != TRI_OK)
        return status;
    k->base.run = amax_backward_run;
    k->g = trii_group_in(group, node->in[0]);
    k->y = trii_group_in(group, node->in[2]);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_amax = {
    .op = {&trii_op_amax}, .takes = amax_takes, .compile = amax_compile};
const trii_cpu_family trii_cpu_amax_backward = {
    .op = {&trii_op_amax_backward}, .takes = amax_backward_takes, .compile = amax_backward_compile};
const trii_cpu_family trii_cpu_argmax = {
    .op = {&trii_op_argmax}, .takes = argmax_takes, .compile = argmax_compile};
