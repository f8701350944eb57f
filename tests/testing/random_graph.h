/*
 * random_graph.h - a random step under a seed: parameters, a DAG of operations on images and
 * matrices, and a loss. The same seed records the same operations each time, so that two executors
 * (or two threads, or two splits of the step) can be compared.
 *
 *     random_graph g;
 *     random_graph_init(&g, seed, 30, TRI_DTYPE_F32);
 *     tri_tensor *loss = random_graph_record(&g);   (g.kept[0 .. g.n_kept) are kept values)
 *     tri_backward(loss); ... tri_item(loss); random_graph_update(&g, 0.1); tri_step_end(); ...
 *     random_graph_fini(&g);
 */
#ifndef TEST_RANDOM_GRAPH_H
#define TEST_RANDOM_GRAPH_H

#include <trireme/ops.h>

#include <stdlib.h>
#include <string.h>

#define RANDOM_GRAPH_MAX 256

typedef struct random_graph random_graph;
struct random_graph {
    uint64_t seed;
    int n_ops;
    tri_dtype dtype;
    /* May be set after init: the sizes of the first values (image[1] even); keep nothing, so that
     * plans may leave out what only gradients need. */
    bool sized, quiet;
    bool views; /* operations that only name elements of others, too; set after init */
    /* Set after init, see random_lookups.h: more operations, of which a third is; what a loss is
     * made of a value that nothing reads, instead of the mean. */
    tri_tensor *(*more)(random_graph *g, tri_tensor *x);
    tri_tensor *(*end)(random_graph *g, tri_tensor *x);
    int64_t image[4], matrix[2];

    tri_tensor *params[RANDOM_GRAPH_MAX]; /* persistent; most require a gradient */
    int n_params;
    tri_tensor *kept[RANDOM_GRAPH_MAX]; /* handles of the newest recording */
    int n_kept;

    uint64_t state; /* of the generator */
    int next_param; /* during a recording */
    tri_tensor *pool[RANDOM_GRAPH_MAX];
    bool used[RANDOM_GRAPH_MAX];
    int n_pool;
};

static inline uint64_t random_graph_word(random_graph *g)
{
    uint64_t z = g->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline int random_graph_below(random_graph *g, int n)
{
    return (int)(random_graph_word(g) % (uint64_t)n);
}

/* The next parameter of the recording; made the first time. Elements in [low, low + 1) * scale. */
static inline tri_tensor *random_graph_param(random_graph *g, const int64_t *shape, int ndim,
                                             double low, double scale, bool requires_grad)
{
    int64_t n = 1;
    void *data;
    tri_tensor *tensor;

    if (g->next_param < g->n_params) {
        for (int d = 0; d < ndim; d++) /* keep the generator in step */
            n *= shape[d];
        g->state += (uint64_t)n * UINT64_C(0x9e3779b97f4a7c15);
        return g->params[g->next_param++];
    }
    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    data = calloc((size_t)(n > 0 ? n : 1), 8);
    for (int64_t i = 0; i < n; i++) {
        double value = (low + (double)(random_graph_word(g) >> 11) * 0x1p-53) * scale;

        if (g->dtype == TRI_DTYPE_F64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
    }
    tensor = tri_tensor_from(shape, ndim, g->dtype, data);
    free(data);
    tri_requires_grad(tensor, requires_grad);
    g->params[g->n_params++] = tensor;
    g->next_param++;
    return tensor;
}

static inline void random_graph_push(random_graph *g, tri_tensor *value)
{
    if (g->n_pool == RANDOM_GRAPH_MAX)
        return;
    g->used[g->n_pool] = false;
    g->pool[g->n_pool++] = value;
}

static inline tri_tensor *random_graph_unary(random_graph *g, tri_tensor *x)
{
    switch (random_graph_below(g, 19)) {
    case 0:
        return tri_relu(x);
    case 1:
        return tri_tanh(x);
    case 2:
        return tri_sigmoid(x);
    case 3:
        return tri_gelu(x, random_graph_below(g, 2) != 0 ? TRI_GELU_TANH : TRI_GELU_ERF);
    case 4:
        return tri_silu(x);
    case 5:
        return tri_leaky_relu(x, 0.1);
    case 6:
        return tri_mul_scalar(x, -0.5);
    case 7:
        return tri_add_scalar(x, 0.25);
    case 8:
        return tri_neg(x);
    case 9:
        return tri_tanh(tri_square(x));
    case 10:
        return tri_sqrt(tri_add_scalar(tri_square(x), 0.5));
    case 11:
        return tri_dropout(x, 0.25, true);
    case 12:
        return tri_softplus(x, 2, 20);
    case 13:
        return tri_elu(x, 0.5);
    case 14:
        return tri_hardswish(x);
    case 15:
        return tri_clamp(tri_sin(x), -0.75, 0.5);
    case 16:
        return tri_rsqrt(tri_add_scalar(tri_square(x), 0.5));
    case 17:
        return tri_pow_scalar(tri_add_scalar(tri_abs(x), 0.5), -1.5);
    default:
        return tri_log(tri_add_scalar(tri_exp(tri_tanh(x)), 1));
    }
}

/* Which of the last dimension: what does not change, so that rounding decides nothing. */
static inline tri_tensor *random_graph_mask(random_graph *g, const tri_tensor *x)
{
    const int64_t n = tri_tensor_size(x, -1);

    return tri_gt(random_graph_param(g, &n, 1, -0.5, 1, false), tri_full(NULL, 0, 0, g->dtype));
}

/* With a value of the pool that has the same shape, or with a parameter that broadcasts. */
static inline tri_tensor *random_graph_binary(random_graph *g, tri_tensor *x)
{
    int64_t shape[TRI_MAX_DIMS];
    int ndim = tri_tensor_ndim(x), start = random_graph_below(g, g->n_pool);
    tri_tensor *y = NULL;

    for (int k = 0; k < g->n_pool && y == NULL; k++) {
        int i = (start + k) % g->n_pool;
        bool same = tri_tensor_ndim(g->pool[i]) == ndim;

        for (int d = 0; d < ndim && same; d++)
            same = tri_tensor_size(g->pool[i], d) == tri_tensor_size(x, d);
        if (same && g->pool[i] != x) {
            y = g->pool[i];
            g->used[i] = true;
        }
    }
    if (y == NULL || random_graph_below(g, 3) == 0) {
        int skip = random_graph_below(g, ndim); /* leading dimensions that are absent */

        for (int d = skip; d < ndim; d++)
            shape[d - skip] = random_graph_below(g, 2) ? tri_tensor_size(x, d) : 1;
        y = random_graph_param(g, shape, ndim - skip, -0.5, 1, true);
    }
    switch (random_graph_below(g, 8)) {
    case 0:
        return tri_mul(x, y);
    case 1:
        return tri_sub(x, y);
    case 2:
        return tri_maximum(x, y);
    case 3:
        return tri_minimum(y, x);
    case 4:
        return tri_div(x, tri_add_scalar(tri_square(y), 1));
    case 5:
        return tri_where(random_graph_mask(g, x), x, y);
    case 6:
        return tri_masked_fill(tri_add(x, y), random_graph_mask(g, x), 0.25);
    default:
        return tri_add(x, y);
    }
}

static inline tri_tensor *random_graph_norm(random_graph *g, tri_tensor *x)
{
    const int64_t c[1] = {tri_tensor_size(x, 1)};
    tri_batch_norm_args args = {
        .training = random_graph_below(g, 4) != 0, .momentum = TRI_SET(0.1), .eps = TRI_SET(1e-5)};
    int64_t values = tri_tensor_numel(x) / (c[0] > 0 ? c[0] : 1);

    args.training = args.training && values != 1; /* which has no variance */
    args.weight = random_graph_param(g, c, 1, 0.5, 1, true);
    args.bias = random_graph_param(g, c, 1, -0.5, 1, true);
    args.running_mean = random_graph_param(g, c, 1, -0.5, 0.5, false);
    args.running_var = random_graph_param(g, c, 1, 0.5, 1, false);
    x = tri_batch_norm(x, &args);
    switch (random_graph_below(g, 4)) { /* what kernels take along, or leave out */
    case 0:
        return tri_relu(x);
    case 1:
        return tri_adaptive_avg_pool(tri_relu(x), TRI_SHAPE(3, 2));
    default:
        return x;
    }
}

static inline tri_tensor *random_graph_conv(random_graph *g, tri_tensor *x)
{
    static const int kernels[4] = {1, 3, 3, 5};
    int kernel = kernels[random_graph_below(g, 4)];
    int64_t c = tri_tensor_size(x, 1), o = c * (1 + random_graph_below(g, 2));
    tri_conv_options opt = {.padding = {kernel / 2, kernel / 2}};
    tri_tensor *w, *b = NULL;

    if (o > 16)
        o = c;
    opt.groups = random_graph_below(g, 4) == 0 ? 2 : 1;
    if (tri_tensor_size(x, 2) >= 6)
        opt.stride[0] = opt.stride[1] = 1 + random_graph_below(g, 2);
    w = random_graph_param(g, (const int64_t[]){o, c / opt.groups, kernel, kernel}, 4, -0.5,
                           1.0 / kernel, true);
    if (random_graph_below(g, 2))
        b = random_graph_param(g, &o, 1, -0.5, 1, true);
    return tri_conv(x, w, b, &opt);
}

/* Cut in two along a dimension, and put together in the other order. */
static inline tri_tensor *random_graph_cut(random_graph *g, tri_tensor *x)
{
    int dim = random_graph_below(g, tri_tensor_ndim(x));
    int64_t size = tri_tensor_size(x, dim), first = size / 3;
    tri_tensor *part[2];

    if (random_graph_below(g, 2) != 0) {
        tri_split(x, (const int64_t[]){first, size - first}, 2, dim, part);
    } else {
        part[0] = tri_narrow(x, dim, 0, first);
        part[1] = tri_narrow(x, dim, first, size - first);
    }
    return tri_concat((tri_tensor *const[]){part[1], part[0]}, 2, dim);
}

/* The newer operations on matrices. */
static inline tri_tensor *random_graph_row_op(random_graph *g, tri_tensor *x)
{
    int64_t rows = tri_tensor_size(x, 0), cols = tri_tensor_size(x, 1);
    tri_tensor *w, *heads;

    switch (random_graph_below(g, 8)) {
    case 0:
        w = random_graph_param(g, &cols, 1, 0.5, 1, true);
        return tri_layer_norm(x, 1, w, random_graph_param(g, &cols, 1, -0.5, 1, true), 0.1);
    case 1:
        return tri_rms_norm(x, 1, random_graph_param(g, &cols, 1, 0.5, 1, true), TRI_SET(0.1));
    case 2:
        return random_graph_cut(g, x);
    case 3:
        return tri_cumsum(tri_mul_scalar(x, 1.0 / 64), random_graph_below(g, 2));
    case 4:
        return tri_sub(x, tri_logsumexp(x, TRI_SHAPE(1), true));
    case 5:
        return tri_mul(x, tri_var(x, TRI_SHAPE(1), true, 0));
    case 6:
        return tri_tril(x, random_graph_below(g, 3) - 1);
    default: /* of at most 64 rows, whose number is squared */
        if (rows > 64 || rows * cols == 0)
            return tri_neg(x);
        heads = tri_reshape(x, (const int64_t[]){1, 1, rows, cols}, 4);
        heads = tri_attention(heads, heads, heads,
                              &(tri_attention_options){.is_causal = random_graph_below(g, 2) != 0});
        return tri_reshape(heads, (const int64_t[]){rows, cols}, 2);
    }
}

static inline tri_tensor *random_graph_image_op(random_graph *g, tri_tensor *x)
{
    const tri_pool_options over = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    bool large = tri_tensor_size(x, 2) >= 4 && tri_tensor_size(x, 3) >= 4;

    switch (random_graph_below(g, large ? 11 : 6)) {
    case 0:
    case 1:
        return random_graph_conv(g, x);
    case 2:
    case 3:
        return random_graph_norm(g, x);
    case 4:
        return tri_flip(x, 2 + random_graph_below(g, 2));
    case 5:
        return random_graph_cut(g, x);
    case 6:
        return tri_max_pool(x, &over);
    case 7:
        return tri_avg_pool(x, &(tri_pool_options){.kernel = {2, 2}});
    case 8:
        return tri_flatten(tri_adaptive_avg_pool(x, TRI_SHAPE(1, 1)), 1);
    case 9:
        return tri_mean(x, TRI_SHAPE(2, 3), false);
    default:
        return tri_adaptive_max_pool(x, TRI_SHAPE(3, 2));
    }
}

static inline tri_tensor *random_graph_matrix_op(random_graph *g, tri_tensor *x)
{
    int64_t rows = tri_tensor_size(x, 0), cols = tri_tensor_size(x, 1);
    int64_t out = 3 + random_graph_below(g, 6);
    tri_tensor *w;

    switch (random_graph_below(g, 12)) {
    case 0:
    case 1:
        w = random_graph_param(g, (const int64_t[]){out, cols}, 2, -0.5, 0.5, true);
        return tri_linear(x, w, random_graph_param(g, &out, 1, -0.5, 1, true));
    case 2:
        w = random_graph_param(g, (const int64_t[]){cols, out}, 2, -0.5, 0.5, true);
        return tri_matmul(x, w);
    case 3:
        return tri_softmax(x, 1);
    case 4:
        return tri_log_softmax(x, 1);
    case 5:
        return tri_sub(x, tri_amax(x, TRI_SHAPE(1), true));
    case 6:
        return tri_mul(x, tri_mean(x, TRI_SHAPE(0), true));
    case 7:
    case 8:
    case 9:
    case 10:
        return random_graph_row_op(g, x);
    default:
        return tri_transpose(tri_transpose(tri_reshape(x, (const int64_t[]){cols, rows}, 2), 0, 1),
                             0, 1);
    }
}

/* x with parts of it elsewhere, or less of it, of as many dimensions. */
static inline tri_tensor *random_graph_view(random_graph *g, tri_tensor *x)
{
    int ndim = tri_tensor_ndim(x), d = random_graph_below(g, ndim);
    int e = ndim == 2 ? 1 - d : 2 + random_graph_below(g, 2);
    int64_t size = tri_tensor_size(x, d), at = random_graph_below(g, (int)size + 1);
    int64_t shape[TRI_MAX_DIMS];
    tri_tensor *parts[3];

    for (int k = 0; k < ndim; k++)
        shape[k] = tri_tensor_size(x, k);
    switch (random_graph_below(g, 8)) {
    case 0:
        return tri_tensor_numel(x) == 0 ? x : tri_transpose(x, ndim - 2, ndim - 1);
    case 1: /* of an even number, since channels are halved */
        return size < 8 ? x : tri_slice(x, d, 1, size - 1 - size % 2, 1 + size % 4 / 2);
    case 2:
        tri_split(x, (const int64_t[]){at, size - at}, 2, d, parts);
        parts[2] = parts[0];
        return tri_concat(parts + 1, 2, d);
    case 3:
        tri_split(x, (const int64_t[]){at, size - at}, 2, d, parts);
        parts[0] = random_graph_unary(g, parts[0]);
        return tri_concat(parts, 2, d);
    case 4:
        return size == 0 ? x : tri_expand(tri_narrow(x, d, size / 2, 1), shape, ndim);
    case 5:
        return shape[e] < 3 ? x : tri_mean(tri_unfold(x, e, 3, 1), TRI_SHAPE(-1), false);
    case 6:
        at = at > size / 2 ? size / 2 : at;
        parts[0] = tri_narrow(x, d, size - at, at);
        return tri_slice_scatter(x, random_graph_below(g, 2) ? tri_tanh(parts[0]) : parts[0], d, 0,
                                 at, 1);
    default:
        parts[0] = tri_neg(x);
        parts[1] = x;
        return tri_select(tri_stack(parts, 2, d), d, random_graph_below(g, 2));
    }
}

static inline void random_graph_init(random_graph *g, uint64_t seed, int n_ops, tri_dtype dtype)
{
    memset(g, 0, sizeof(*g));
    g->seed = seed;
    g->n_ops = n_ops;
    g->dtype = dtype;
}

/* Records the step; returns the loss (a scalar). */
static inline tri_tensor *random_graph_record(random_graph *g)
{
    tri_tensor *loss = NULL;
    int64_t size;

    g->state = g->seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    g->next_param = g->n_kept = g->n_pool = 0;
    size = 5 + random_graph_below(g, 5);
    if (!g->sized) {
        const int64_t image[4] = {2, 4, size, size}, matrix[2] = {4, 6};

        memcpy(g->image, image, sizeof(image));
        memcpy(g->matrix, matrix, sizeof(matrix));
    }
    random_graph_push(g, tri_mul_scalar(random_graph_param(g, g->image, 4, -0.5, 2, true), 1));
    random_graph_push(g, tri_mul_scalar(random_graph_param(g, g->matrix, 2, -0.5, 2, true), 1));
    for (int k = 0; k < g->n_ops; k++) {
        /* prefer what is new, so that graphs get deep */
        int recent = g->n_pool < 4 ? g->n_pool : 4;
        int i = random_graph_below(g, 4) ? g->n_pool - 1 - random_graph_below(g, recent)
                                         : random_graph_below(g, g->n_pool);
        tri_tensor *x = g->pool[i], *y;
        int kind = random_graph_below(g, 5);

        g->used[i] = true;
        if (g->views && random_graph_below(g, 2) == 0)
            y = random_graph_view(g, x);
        else if (g->more != NULL && random_graph_below(g, 3) == 0)
            y = g->more(g, x);
        else if (kind < 2)
            y = random_graph_unary(g, x);
        else if (kind == 2)
            y = random_graph_binary(g, x);
        else if (tri_tensor_ndim(x) == 4)
            y = random_graph_image_op(g, x);
        else
            y = random_graph_matrix_op(g, x);
        random_graph_push(g, y);
        if (random_graph_below(g, 6) == 0 && !g->quiet)
            g->kept[g->n_kept++] = tri_keep(y);
    }
    for (int i = 0; i < g->n_pool; i++) {
        tri_tensor *mean;

        if (g->used[i])
            continue;
        mean = g->end != NULL ? g->end(g, g->pool[i]) : tri_mean(g->pool[i], NULL, 0, false);
        loss = loss == NULL ? mean : tri_add(loss, mean);
    }
    return loss;
}

/* x -= rate * gradient for every parameter, by copies: no optimizer, no plan of its own. The
 * gradients stay to be added to; returns the first failure. */
static inline tri_status random_graph_update(random_graph *g, double rate)
{
    for (int k = 0; k < g->n_params; k++) {
        tri_tensor *grad = tri_grad(g->params[k]), *next;
        tri_status status;

        if (grad == NULL)
            continue;
        tri_no_grad_begin();
        next = tri_tensor_clone(tri_sub(g->params[k], tri_mul_scalar(grad, rate)));
        tri_no_grad_end();
        status = tri_tensor_status(next);
        if (status == TRI_OK) {
            size_t bytes = (size_t)tri_tensor_numel(next) * tri_dtype_size(g->dtype);
            void *data = malloc(bytes > 0 ? bytes : 1);

            status = tri_tensor_copy_out(next, data, bytes);
            if (status == TRI_OK)
                status = tri_tensor_copy_in(g->params[k], data, bytes);
            free(data);
        }
        tri_tensor_unref(next);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static inline void random_graph_fini(random_graph *g)
{
    for (int k = 0; k < g->n_params; k++)
        tri_tensor_unref(g->params[k]);
    g->n_params = 0;
}

#endif
