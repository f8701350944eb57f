/*
 * lstm_cpu.c - the recurrence of an LSTM and its gradient, in f32. The rows of a batch do not know
 * of each other: a thread goes through all time steps with some rows, and waits for nobody. W lies
 * in panels for the product's inner loop, made once a run.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"

#define GRAIN 65536 /* multiplications per thread at least */

/* Arguments; -1 = absent. */
typedef struct lstm {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t steps, rows, hidden;
    bool reverse;
    int64_t parts, panel; /* of the rows; columns of a panel */
    int64_t k, n;         /* of W as the product reads it: [k, n] */
    bool transposed;      /* W is [n, k] */
    int gx, w, h0, c0;    /* forward; W and c0 also backward */
    int h, c, gates;
    int gh, gc, dgx, dh0, dc0; /* backward */
    int scratch;
} lstm;

typedef struct lstm_run {
    const lstm *l;
    void *const *args;
    float *panels; /* [n / panel, k, panel] */
    float *work;   /* [parts, ..] */
} lstm_run;

static float *at(const lstm_run *run, int arg)
{
    return arg >= 0 ? run->args[arg] : NULL;
}

/* The time step that comes k-th. */
static int64_t time_of(const lstm *l, int64_t k)
{
    return l->reverse ? l->steps - 1 - k : k;
}

static int64_t panel_count(const lstm *l)
{
    return (l->n + l->panel - 1) / l->panel;
}

/* --- the product ---------------------------------------------------------- */

static void pack_range(void *ctx, int64_t begin, int64_t end)
{
    const lstm_run *run = ctx;
    const lstm *l = run->l;

    for (int64_t p = begin; p < end; p++) {
        int64_t first = p * l->panel, n = l->n - first < l->panel ? l->n - first : l->panel;
        const float *w = at(run, l->w) + (l->transposed ? first * l->k : first);
        float *to = run->panels + first * l->k;

        if (l->transposed) {
            l->kernels->transpose(to, l->panel, w, l->k, n, l->k, 1);
            continue;
        }
        for (int64_t k = 0; k < l->k; k++)
            memcpy(to + k * l->panel, w + k * l->n, (size_t)n * sizeof(*to));
    }
}

/* y [rows, n] = x [rows, k] W, or is added to. */
static void multiply(const lstm_run *run, int64_t rows, const float *x, float *y, bool add,
                     float *pack)
{
    const lstm *l = run->l;

    for (int64_t first = 0; first < l->n; first += l->panel)
        l->kernels->gemm(&(trii_gemm_args){
            .m = rows,
            .n = l->n - first < l->panel ? l->n - first : l->panel,
            .k = l->k,
            .a = x,
            .a_row = l->k,
            .a_col = 1,
            .b = run->panels + first * l->k,
            .b_row = l->panel,
            .b_col = 1,
            .c = y + first,
            .ldc = l->n,
            .pack = pack,
            .add = add,
        });
}

static size_t pack_floats(const lstm *l)
{
    return (size_t)l->k * 2 * TRII_MAX_LANES;
}

/* --- forward -------------------------------------------------------------- */

/* The gates of a row, a, become i, f, g, o; c and h follow. before: c of the last step, or NULL. */
static void activate(const lstm *l, float *a, const float *before, float *c, float *h)
{
    const int64_t n = l->hidden;
    const trii_ew_fn sigmoid = l->kernels->ew[TRII_EW_sigmoid], tanh = l->kernels->ew[TRII_EW_tanh];
    const float *i = a, *f = a + n, *g = a + 2 * n, *o = a + 3 * n;

    sigmoid(a, a, NULL, NULL, (size_t)(2 * n), NULL);
    tanh(a + 2 * n, a + 2 * n, NULL, NULL, (size_t)n, NULL);
    sigmoid(a + 3 * n, a + 3 * n, NULL, NULL, (size_t)n, NULL);
    for (int64_t u = 0; u < n; u++)
        c[u] = (before != NULL ? f[u] * before[u] : 0) + i[u] * g[u];
    tanh(h, c, NULL, NULL, (size_t)n, NULL);
    for (int64_t u = 0; u < n; u++)
        h[u] *= o[u];
}

static void forward_rows(const lstm_run *run, int64_t begin, int64_t end, float *pack)
{
    const lstm *l = run->l;
    const float *h = at(run, l->h0), *c = at(run, l->c0); /* of the time step before */

    for (int64_t k = 0; k < l->steps && begin < end; k++) {
        int64_t row = time_of(l, k) * l->rows;
        float *a = at(run, l->gates) + (row + begin) * 4 * l->hidden;
        float *h_now = at(run, l->h) + row * l->hidden, *c_now = at(run, l->c) + row * l->hidden;

        memcpy(a, at(run, l->gx) + (row + begin) * 4 * l->hidden,
               (size_t)((end - begin) * 4 * l->hidden) * sizeof(*a));
        if (h != NULL)
            multiply(run, end - begin, h + begin * l->hidden, a, true, pack);
        for (int64_t r = begin; r < end; r++, a += 4 * l->hidden)
            activate(l, a, c != NULL ? c + r * l->hidden : NULL, c_now + r * l->hidden,
                     h_now + r * l->hidden);
        h = h_now;
        c = c_now;
    }
}

static void forward_range(void *ctx, int64_t begin, int64_t end)
{
    const lstm_run *run = ctx;
    const lstm *l = run->l;

    for (int64_t p = begin; p < end; p++)
        forward_rows(run, l->rows * p / l->parts, l->rows * (p + 1) / l->parts,
                     run->work + (size_t)p * pack_floats(l));
}

static size_t panel_floats(const lstm *l)
{
    return (size_t)(panel_count(l) * l->panel * l->k);
}

static tri_status lstm_execute(const lstm *l, void *const *args,
                               void (*range)(void *ctx, int64_t begin, int64_t end))
{
    lstm_run run = {.l = l, .args = args, .panels = args[l->scratch]};

    run.work = run.panels + panel_floats(l);
    trii_parallel_for(panel_count(l), 1 + GRAIN / (l->panel * l->k), pack_range, &run);
    trii_parallel_for(l->parts, 1, range, &run);
    return TRI_OK;
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    (void)run;
    return lstm_execute((const lstm *)kernel, args, forward_range);
}

/* --- backward ------------------------------------------------------------- */

/* One row at one time step. */
typedef struct row_back {
    int64_t n;
    const float *a, *c, *before; /* gates, tanh of c, c of the time step before or NULL */
    const float *gh, *gc;        /* NULL: none */
    const float *dh;             /* what the later time steps want */
    float *dc;                   /* likewise, and then what we want of the one before */
    float *da;
} row_back;

static void back_through(const row_back *r)
{
    const int64_t n = r->n;

    assert(r->a != NULL && r->da != NULL);
    for (int64_t u = 0; u < n; u++) {
        float i = r->a[u], f = r->a[n + u], g = r->a[2 * n + u], o = r->a[3 * n + u];
        float c = r->c[u], before = r->before != NULL ? r->before[u] : 0;
        float h_all = r->dh[u] + (r->gh != NULL ? r->gh[u] : 0);
        float c_all = r->dc[u] + (r->gc != NULL ? r->gc[u] : 0) + h_all * o * (1 - c * c);

        r->da[u] = c_all * g * i * (1 - i);
        r->da[n + u] = c_all * before * f * (1 - f);
        r->da[2 * n + u] = c_all * i * (1 - g * g);
        r->da[3 * n + u] = h_all * c * o * (1 - o);
        r->dc[u] = c_all * f;
    }
}

/* Of a part: to pack, dh and dc of its rows if nobody wants them, tanh of c. */
static size_t back_floats(const lstm *l)
{
    int64_t rows = l->rows / l->parts + 1;

    return pack_floats(l) + (size_t)((2 * rows + 1) * l->hidden);
}

static void backward_rows(const lstm_run *run, int64_t begin, int64_t end, float *work)
{
    const lstm *l = run->l;
    const int64_t n = l->hidden;
    float *c = work + pack_floats(l), *dh = c + n, *dc = dh + (end - begin) * n;

    if (l->dh0 >= 0) {
        dh = at(run, l->dh0) + begin * n;
        dc = at(run, l->dc0) + begin * n;
    }
    memset(dh, 0, (size_t)((end - begin) * n) * sizeof(*dh));
    memset(dc, 0, (size_t)((end - begin) * n) * sizeof(*dc));
    for (int64_t k = l->steps - 1; k >= 0 && begin < end; k--) {
        int64_t row = time_of(l, k) * l->rows + begin;
        const float *before =
            k > 0 ? at(run, l->c) + (time_of(l, k - 1) * l->rows + begin) * n : at(run, l->c0);
        const float *gh = at(run, l->gh), *gc = at(run, l->gc);
        float *da = at(run, l->dgx) + row * 4 * n;

        if (k == 0 && before != NULL)
            before += begin * n;
        for (int64_t r = 0; r < end - begin; r++) {
            l->kernels->ew[TRII_EW_tanh](c, at(run, l->c) + (row + r) * n, NULL, NULL, (size_t)n,
                                         NULL);
            back_through(&(row_back){
                .n = n,
                .a = at(run, l->gates) + (row + r) * 4 * n,
                .c = c,
                .before = before != NULL ? before + r * n : NULL,
                .gh = gh != NULL ? gh + (row + r) * n : NULL,
                .gc = gc != NULL ? gc + (row + r) * n : NULL,
                .dh = dh + r * n,
                .dc = dc + r * n,
                .da = da + r * 4 * n,
            });
        }
        if (k > 0 || l->dh0 >= 0)
            multiply(run, end - begin, da, dh, false, work);
    }
}

static void backward_range(void *ctx, int64_t begin, int64_t end)
{
    const lstm_run *run = ctx;
    const lstm *l = run->l;

    for (int64_t p = begin; p < end; p++)
        backward_rows(run, l->rows * p / l->parts, l->rows * (p + 1) / l->parts,
                      run->work + (size_t)p * back_floats(l));
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    (void)run;
    return lstm_execute((const lstm *)kernel, args, backward_range);
}

/* --- compiling ------------------------------------------------------------ */

static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node) && trii_type_numel(trii_out_type(ir, node, 0)) > 0;
}

static int argument(const trii_group *group, const trii_ir_node *node, int i)
{
    return trii_has_in(node, i) ? trii_group_in(group, node->in[i]) : -1;
}

static int result(const trii_group *group, const trii_ir_node *node, int o)
{
    return group->n_in + trii_group_out(group, node->out[o]);
}

/* `type`: of h or c. */
static lstm *create(const trii_group *group, const trii_ir_node *node, const trii_type *type)
{
    lstm *l = trii_alloc(1, sizeof(*l), "kernel");
    int64_t threads = trii_parallel_threads(), work;

    if (l == NULL)
        return NULL;
    l->kernels = trii_cpu_kernels_get();
    l->steps = type->shape[0];
    l->rows = type->shape[1];
    l->hidden = type->shape[2];
    l->reverse = node->iattr[0] != 0;
    l->panel = 2 * (int64_t)l->kernels->lanes;
    work = l->steps * l->rows * l->hidden * l->hidden * 4 / GRAIN + 1;
    l->parts = threads < l->rows ? threads : l->rows;
    l->parts = l->parts < work ? l->parts : work;
    l->scratch = group->n_in + group->n_out;
    l->gx = l->h0 = l->gh = l->gc = l->dgx = l->dh0 = l->dc0 = -1;
    return l;
}

/* in gx W h0? c0?; out h c gates */
static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    lstm *l = create(group, node, trii_out_type(ir, node, 0));

    if (l == NULL)
        return TRI_ERR_NO_MEMORY;
    l->k = l->hidden;
    l->n = 4 * l->hidden;
    l->transposed = true;
    l->gx = argument(group, node, 0);
    l->w = argument(group, node, 1);
    l->h0 = argument(group, node, 2);
    l->c0 = argument(group, node, 3);
    l->h = result(group, node, 0);
    l->c = result(group, node, 1);
    l->gates = result(group, node, 2);
    l->base = (trii_kernel){.name = node->op->name,
                            .run = forward_run,
                            .destroy = trii_cpu_kernel_free,
                            .scratch_bytes = (panel_floats(l) + (size_t)l->parts * pack_floats(l)) *
                                             sizeof(float)};
    *kernel_out = &l->base;
    return TRI_OK;
}

/* in gh? gc? W gates c c0?; out dgx, dh0 and dc0 if wanted */
static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    lstm *l = create(group, node, trii_in_type(ir, node, 4));

    if (l == NULL)
        return TRI_ERR_NO_MEMORY;
    l->k = 4 * l->hidden;
    l->n = l->hidden;
    l->gh = argument(group, node, 0);
    l->gc = argument(group, node, 1);
    l->w = argument(group, node, 2);
    l->gates = argument(group, node, 3);
    l->c = argument(group, node, 4);
    l->c0 = argument(group, node, 5);
    l->dgx = result(group, node, 0);
    if (node->iattr[1] != 0) {
        l->dh0 = result(group, node, 1);
        l->dc0 = result(group, node, 2);
    }
    l->base = (trii_kernel){.name = node->op->name,
                            .run = backward_run,
                            .destroy = trii_cpu_kernel_free,
                            .scratch_bytes = (panel_floats(l) + (size_t)l->parts * back_floats(l)) *
                                             sizeof(float)};
    *kernel_out = &l->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_lstm = {
    .op = {&trii_op_lstm_layer}, .takes = takes, .compile = forward_compile};
const trii_cpu_family trii_cpu_lstm_backward = {
    .op = {&trii_op_lstm_layer_backward}, .takes = takes, .compile = backward_compile};
