/*
 * attention.c - scaled dot-product attention that never stores the [T, S] matrix of weights:
 * forward leaves the logarithm of each row's sum of exponentials, from which backward computes the
 * weights again.
 *
 * The weight of key s for query t of head h of batch b is dropped where word s % 4 of Philox block
 * ((b H + h) T + t) ceil(S / 4) + s / 4 (trii_random_words) is below p 2^32, else divided by 1 - p;
 * which random numbers those are is an operand (random_key), so that backward finds the same ones.
 * Where other ranks have other heads, H and h are those of all.
 */
#include <inttypes.h>
#include <math.h>

#include "base/option.h"
#include "train/graph/ops/kernel_rules.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/cut_features.h"
#include "train/graph/step/recorder.h"

/* --- random_key ----------------------------------------------------------- */

static tri_status key_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    *n_out = 1;
    *out = (trii_type){.dtype = TRI_DTYPE_I64,
                       .device = (tri_device)attrs->i[0],
                       .ndim = 1,
                       .shape = {TRII_RANDOM_KEY}};
    return TRI_OK;
}

static tri_status key_reference(const trii_kernel_args *args)
{
    int64_t *key = args->out[0].data;

    key[0] = (int64_t)args->random.seed;
    key[1] = (int64_t)args->random.step;
    key[2] = args->random.stream;
    key[3] = args->random.index;
    key[4] = args->iattr[1];
    key[5] = args->iattr[2];
    return TRI_OK;
}

const trii_graph_op trii_op_random_key = {
    .name = "random_key",
    .random = true,
    .shape = key_shape,
    .reference = key_reference,
};

trii_random trii_random_of_key(const int64_t *key)
{
    return (trii_random){.seed = (uint64_t)key[0],
                         .step = (uint64_t)key[1],
                         .stream = (uint32_t)key[2],
                         .index = (uint32_t)key[3]};
}

/* --- shapes --------------------------------------------------------------- */

/* in q k v mask? key? */
static tri_status check_operands(const trii_type *const *in)
{
    const trii_type *q = in[0], *k = in[1], *v = in[2];
    static const char *const names[3] = {"q", "k", "v"};
    tri_status status = TRI_OK;

    for (int i = 0; i < 3 && status == TRI_OK; i++) {
        status = trii_rule_float(in[i], names[i]);
        if (status == TRI_OK)
            status = trii_rule_ndim(in[i], 4, names[i]);
        if (status == TRI_OK)
            status = trii_rule_same_dtype(q, in[i]);
    }
    if (status != TRI_OK)
        return status;
    if (k->shape[0] != q->shape[0] || v->shape[0] != q->shape[0])
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "q, k and v have different batches");
    if (k->shape[1] != v->shape[1] || k->shape[2] != v->shape[2])
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "k and v have different heads or lengths");
    if (k->shape[3] != q->shape[3])
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "q has heads of size %" PRId64 ", k of %" PRId64,
                         q->shape[3], k->shape[3]);
    if (k->shape[1] != q->shape[1] && (k->shape[1] == 0 || q->shape[1] % k->shape[1] != 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%" PRId64 " heads of q cannot share %" PRId64 " of k and v", q->shape[1],
                         k->shape[1]);
    return TRI_OK;
}

static tri_status check_mask(const trii_type *q, const trii_type *k, const trii_type *mask)
{
    trii_type all = {.ndim = 4, .shape = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]}};
    trii_type out;
    tri_status status;

    if (mask->dtype != TRI_DTYPE_BOOL && mask->dtype != q->dtype)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "attn_mask must be bool or %s, not %s",
                         tri_dtype_name(q->dtype), tri_dtype_name(mask->dtype));
    if (mask->ndim > 4)
        return trii_rule_ndim(mask, 4, "attn_mask");
    status = trii_rule_broadcast(&all, mask, &out);
    return status == TRI_OK && !trii_type_same_shape(&all, &out)
               ? trii_rule_shape(mask, "attn_mask", 4, all.shape)
               : status;
}

/* i: causal; f: scale, p. out y [B, H, T, Dv], lse [B, H, T] */
static tri_status attention_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                  trii_type *out, int *n_out)
{
    tri_status status = check_operands(in);

    (void)n_in;
    (void)attrs;
    *n_out = 2;
    if (status == TRI_OK && in[3] != NULL)
        status = check_mask(in[0], in[1], in[3]);
    if (status != TRI_OK)
        return status;
    trii_type_copy(&out[0], in[0]);
    out[0].shape[3] = in[2]->shape[3];
    trii_type_copy(&out[1], in[0]);
    out[1].ndim = 3;
    return TRI_OK;
}

/* in g q k v y lse mask? key?; out dq dk dv */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 3;
    for (int i = 0; i < 3; i++)
        trii_type_copy(&out[i], in[1 + i]);
    return TRI_OK;
}

/* --- reference ------------------------------------------------------------ */

void trii_attention_sizes(const trii_type *q, const trii_type *k, const trii_type *v,
                          trii_attention_size *size)
{
    *size = (trii_attention_size){.batch = q->shape[0],
                                  .heads = q->shape[1],
                                  .kv_heads = k->shape[1],
                                  .queries = q->shape[2],
                                  .keys = k->shape[2],
                                  .depth = q->shape[3],
                                  .v_depth = v->shape[3]};
}

void trii_attention_mask_strides(const trii_type *mask, int64_t stride[4])
{
    int64_t step = 1;

    for (int d = 3; d >= 0; d--) {
        int e = d - (4 - mask->ndim);
        int64_t n = e >= 0 ? mask->shape[e] : 1;

        stride[d] = n == 1 ? 0 : step;
        step *= n;
    }
}

/* Values shared by a whole call. */
typedef struct attention {
    trii_attention_size size;
    const double *q, *k, *v;
    const trii_array *mask;
    int64_t mask_stride[4];
    trii_random random;
    const int64_t *key;
    bool dropped, causal;
    double scale, p;
} attention;

static attention attention_of(const trii_kernel_args *args, int q, int mask)
{
    attention a = {.q = args->in[q].data,
                   .k = args->in[q + 1].data,
                   .v = args->in[q + 2].data,
                   .mask = args->in[mask].data != NULL ? &args->in[mask] : NULL,
                   .dropped = args->in[mask + 1].data != NULL,
                   .causal = args->iattr[0] != 0,
                   .scale = args->fattr[0],
                   .p = args->fattr[1]};

    trii_attention_sizes(args->in[q].type, args->in[q + 1].type, args->in[q + 2].type, &a.size);
    if (a.mask != NULL)
        trii_attention_mask_strides(a.mask->type, a.mask_stride);
    if (a.dropped) {
        a.key = args->in[mask + 1].data;
        a.random = trii_random_of_key(a.key);
    }
    return a;
}

/* The score of one key: -inf if the query may not look at it. */
static double score(const attention *a, int64_t b, int64_t h, int64_t t, int64_t s)
{
    const trii_attention_size *z = &a->size;
    const double *q = a->q + ((b * z->heads + h) * z->queries + t) * z->depth;
    const double *k =
        a->k + ((b * z->kv_heads + h / (z->heads / z->kv_heads)) * z->keys + s) * z->depth;
    double sum = 0, added = 0;

    if (a->causal && s > t)
        return -(double)INFINITY;
    if (a->mask != NULL) {
        int64_t at = b * a->mask_stride[0] + h * a->mask_stride[1] + t * a->mask_stride[2] +
                     s * a->mask_stride[3];

        if (a->mask->type->dtype != TRI_DTYPE_BOOL)
            added = ((const double *)a->mask->data)[at];
        else if (((const uint8_t *)a->mask->data)[at] == 0)
            return -(double)INFINITY;
    }
    for (int64_t d = 0; d < z->depth; d++)
        sum += q[d] * k[d];
    return sum * a->scale + added;
}

/* 0, or the factor of a weight that is kept. */
static double kept(const attention *a, int64_t b, int64_t h, int64_t t, int64_t s)
{
    const trii_attention_size *z = &a->size;
    uint64_t row;
    uint32_t word[4];

    if (!a->dropped)
        return 1;
    row = (uint64_t)(trii_random_head(a->key, b, z->heads, h) * z->queries + t);
    trii_random_words(&a->random, row * (((uint64_t)z->keys + 3) / 4) + (uint64_t)s / 4, word);
    return (double)word[s % 4] < a->p * 4294967296.0 ? 0 : 1 / (1 - a->p);
}

/* Calls row() for each query. */
static void each_query(const attention *a, void *ctx,
                       void (*row)(const attention *a, void *ctx, int64_t b, int64_t h, int64_t t))
{
    for (int64_t b = 0; b < a->size.batch; b++) {
        for (int64_t h = 0; h < a->size.heads; h++) {
            for (int64_t t = 0; t < a->size.queries; t++)
                row(a, ctx, b, h, t);
        }
    }
}

static void forward_row(const attention *a, void *ctx, int64_t b, int64_t h, int64_t t)
{
    const trii_kernel_args *args = ctx;
    const trii_attention_size *z = &a->size;
    int64_t row = (b * z->heads + h) * z->queries + t, kv = h / (z->heads / z->kv_heads);
    double *y = (double *)args->out[0].data + row * z->v_depth;
    double largest = -(double)INFINITY, sum = 0;

    for (int64_t d = 0; d < z->v_depth; d++)
        y[d] = 0;
    for (int64_t s = 0; s < z->keys; s++) {
        double x = score(a, b, h, t, s);

        largest = x > largest || isnan(x) ? x : largest;
    }
    for (int64_t s = 0; s < z->keys && largest != -(double)INFINITY; s++) { /* a NaN stays NaN */
        const double *v = a->v + ((b * z->kv_heads + kv) * z->keys + s) * z->v_depth;
        double e = exp(score(a, b, h, t, s) - largest), w = e * kept(a, b, h, t, s);

        sum += e;
        for (int64_t d = 0; d < z->v_depth; d++)
            y[d] += w * v[d];
    }
    for (int64_t d = 0; d < z->v_depth && sum != 0; d++)
        y[d] /= sum;
    ((double *)args->out[1].data)[row] = largest + log(sum);
}

static tri_status forward_kernel(const trii_kernel_args *args)
{
    attention a = attention_of(args, 0, 3);

    each_query(&a, (void *)(uintptr_t)args, forward_row);
    return TRI_OK;
}

static tri_status attention_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, forward_kernel);
}

/* ds = p (dp - sum of g y), dp = (g . v) where kept */
static void backward_row(const attention *a, void *ctx, int64_t b, int64_t h, int64_t t)
{
    const trii_kernel_args *args = ctx;
    const trii_attention_size *z = &a->size;
    int64_t row = (b * z->heads + h) * z->queries + t;
    int64_t kv = b * z->kv_heads + h / (z->heads / z->kv_heads);
    const double *g = (const double *)args->in[0].data + row * z->v_depth;
    const double *y = (const double *)args->in[4].data + row * z->v_depth;
    const double *q = a->q + row * z->depth;
    double lse = ((const double *)args->in[5].data)[row], total = 0;
    double *dq = (double *)args->out[0].data + row * z->depth;

    for (int64_t d = 0; d < z->v_depth; d++)
        total += g[d] * y[d];
    for (int64_t s = 0; s < z->keys && lse != -(double)INFINITY; s++) {
        const double *k = a->k + (kv * z->keys + s) * z->depth;
        const double *v = a->v + (kv * z->keys + s) * z->v_depth;
        double *dk = (double *)args->out[1].data + (kv * z->keys + s) * z->depth;
        double *dv = (double *)args->out[2].data + (kv * z->keys + s) * z->v_depth;
        double p = exp(score(a, b, h, t, s) - lse), keep = kept(a, b, h, t, s), dp = 0, ds;

        for (int64_t d = 0; d < z->v_depth; d++) {
            dp += g[d] * v[d];
            dv[d] += p * keep * g[d];
        }
        ds = p * (dp * keep - total) * a->scale;
        for (int64_t d = 0; d < z->depth; d++) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
        }
    }
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    attention a = attention_of(args, 1, 6);

    for (int o = 0; o < 3; o++) {
        int64_t n = trii_type_numel(args->out[o].type);

        for (int64_t i = 0; i < n; i++)
            ((double *)args->out[o].data)[i] = 0;
    }
    each_query(&a, (void *)(uintptr_t)args, backward_row);
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

/* --- the operation -------------------------------------------------------- */

static double attention_flops(const trii_type *const *in, int n_in, const trii_type *out)
{
    (void)n_in;
    return 2 * (double)in[1]->shape[2] *
           ((double)trii_type_numel(in[0]) + (double)trii_type_numel(out));
}

const trii_graph_op trii_op_attention = {
    .name = "attention",
    .precision = TRII_PRECISION_LOWERED,
    .activations_in = 1 << 0 | 1 << 1 | 1 << 2,
    .activations_out = 1 << 0,
    .optional = 1 << 3 | 1 << 4,
    .shape = attention_shape,
    .gradient = TRII_GRADIENT_attention,
    .reference = attention_reference,
    .flops = attention_flops,
};
const trii_graph_op trii_op_attention_backward = {
    .name = "attention_backward",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4,
    .activations_out = 1 << 0 | 1 << 1 | 1 << 2,
    .optional = 1 << 6 | 1 << 7,
    .shape = backward_shape,
    .reference = backward_reference,
};

/* --- public --------------------------------------------------------------- */

static tri_status check_options(const tri_attention_options *o, const trii_type *q,
                                const trii_type *k)
{
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_attention_options, o);

    if (status != TRI_OK)
        return status;
    if (!(o->dropout_p >= 0 && o->dropout_p < 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dropout_p is %g, not in [0, 1)", o->dropout_p);
    if (!(fabs(trii_option(o->scale, 0)) <= 1e30))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "scale %g is not a finite number", o->scale.value);
    if (!o->enable_gqa && q->ndim == 4 && k->ndim == 4 && q->shape[1] != k->shape[1])
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "q has %" PRId64 " heads, k %" PRId64 " (enable_gqa lets them share)",
                         q->shape[1], k->shape[1]);
    return TRI_OK;
}

/* Layers that are cut over ranks have been told where: queries that share keys have to come along
 * with them. x: keys or values. */
static tri_status check_cut(const trii_type *q, const trii_type *x, const char *what)
{
    const trii_cut_heads heads = {.queries = q->shape[1],
                                  .keys = x->shape[1],
                                  .query_width = q->shape[3],
                                  .key_width = x->shape[3]};
    trii_cut_features queries, keys;

    if (trii_cut_heads_fit(&heads, &queries, &keys))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "this rank has heads %" PRId64 " to %" PRId64 " of %" PRId64
                     " of queries, which share others than the heads of %s that it has, %" PRId64
                     " to %" PRId64 " of %" PRId64 ": tri_parallelize has to cut queries with "
                     ".block %" PRId64 ", the width of all heads that share one (or, with more "
                     "ranks than heads of keys, of one: %" PRId64 ", and as many on each rank)",
                     queries.start / q->shape[3], (queries.start + queries.n) / q->shape[3] - 1,
                     queries.whole / q->shape[3], what, keys.start / x->shape[3],
                     (keys.start + keys.n) / x->shape[3] - 1, keys.whole / x->shape[3],
                     queries.whole / (keys.whole / x->shape[3]), q->shape[3]);
}

static tri_status check_shared(const trii_type *q, const trii_type *k, const trii_type *v)
{
    tri_status status = TRI_OK;

    if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4 || q->shape[1] == k->shape[1])
        return TRI_OK;
    status = check_cut(q, k, "keys");
    return status == TRI_OK ? check_cut(q, v, "values") : status;
}

/* heads: how many there are in all, and the first of those here; zeros: there are no others. */
static void part_of_heads(trii_step *step, const trii_type *q, int64_t heads[2])
{
    const trii_random_part *part = trii_recorder_of(step)->scopes.random_part;
    bool is_part = part != NULL && part->heads && q->ndim == 4 && q->shape[1] == part->n;

    heads[0] = is_part ? part->whole : 0;
    heads[1] = is_part ? part->start : 0;
}

static tri_status record(trii_step *step, tri_tensor *const *tensors,
                         const tri_attention_options *o, trii_vid *out)
{
    trii_vid in[5] = {TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE};
    trii_type q;
    trii_attrs attrs;
    tri_status status = TRI_OK;

    for (int i = 0; i < 4 && status == TRI_OK; i++) {
        if (tensors[i] != NULL)
            status = trii_resolve(step, tensors[i], &in[i]);
        else if (i < 3)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%c is NULL", "qkv"[i]);
    }
    if (status == TRI_OK)
        status = check_options(o, trii_type_of(step, in[0]), trii_type_of(step, in[1]));
    if (status == TRI_OK && o->enable_gqa)
        status = check_shared(trii_type_of(step, in[0]), trii_type_of(step, in[1]),
                              trii_type_of(step, in[2]));
    if (status != TRI_OK)
        return status;
    q = *trii_type_of(step, in[0]);
    attrs.n_i = 3;
    attrs.n_f = 0;
    attrs.i[0] = q.device;
    part_of_heads(step, &q, &attrs.i[1]);
    if (o->dropout_p > 0)
        status = trii_record_values(step, &trii_op_random_key, NULL, 0, &attrs, &in[4]);
    if (status != TRI_OK)
        return status;
    attrs.n_i = 1;
    attrs.n_f = 2;
    attrs.i[0] = o->is_causal;
    attrs.f[0] = trii_option(o->scale, 1);
    if (o->scale.given == NULL && q.ndim == 4 && q.shape[3] > 0)
        attrs.f[0] = 1 / sqrt((double)q.shape[3]);
    attrs.f[1] = o->dropout_p;
    return trii_record_values(step, &trii_op_attention, in, 5, &attrs, out);
}

tri_tensor *tri_attention(tri_tensor *q, tri_tensor *k, tri_tensor *v,
                          const tri_attention_options *opt)
{
    static const tri_attention_options none;
    const tri_attention_options *o = opt != NULL ? opt : &none;
    trii_step *step = trii_step_current();
    tri_tensor *const in[4] = {q, k, v, o->attn_mask};
    trii_vid out = TRII_NO_VALUE;
    tri_status status;

    if (step == NULL)
        return trii_handle_failed(NULL, TRI_ERR_NO_MEMORY);
    status = record(step, in, o, &out);
    if (status != TRI_OK)
        return trii_handle_refused(step, "attention", in, o->attn_mask != NULL ? 4 : 3, status);
    return trii_handle_recorded(step, out);
}
