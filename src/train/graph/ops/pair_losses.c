/*
 * pair_losses.c - losses of a prediction and a target of one shape, made of element-wise operations
 * (which the plan fuses) and a mean or a sum.
 */
#include <math.h>

#include "base/option.h"
#include "train/graph/ops/composer.h"
#include "train/graph/ops/rows.h"
#include "train/graph/ops/reduce_rules.h"

/* --- elements ------------------------------------------------------------- */

static inline double smooth(double d, double beta)
{
    double size = fabs(d);

    return size < beta ? 0.5 * d * d / beta : size - 0.5 * beta;
}

static inline double smooth_slope(double d, double beta)
{
    return fabs(d) < beta ? d / beta : d > 0 ? 1 : d < 0 ? -1 : d;
}

/* -(y log p + (1 - y) log(1 - p)), the logarithms from -100 on, as PyTorch; of what is no
 * probability, where the bounds would hide it, NaN */
static inline double bce(double p, double y)
{
    double loss = -(y * fmax(log(p), -100) + (1 - y) * fmax(log1p(-p), -100));

    return p >= 0 && p <= 1 ? loss : NAN;
}

static inline double bce_slope(double p, double y)
{
    double slope = (p - y) / fmax(p * (1 - p), 1e-12);

    return p >= 0 && p <= 1 ? slope : NAN;
}

static inline double log_but_of_zero(double x)
{
    return x == 0 ? 0 : log(x);
}

/* d = a - b: f0 = beta */
TRII_BINARY(smooth_l1, smooth(a - b, f0))
TRII_BINARY(bce, bce(a, b))
/* target (log target - input), 0 where the target is 0; in input target */
TRII_BINARY(kl_div, b *(log_but_of_zero(b) - a))

/* in g a b */
#define BACKWARD(name, expression)                                                                 \
    TRII_BACKWARD_ROW(name, float, f32, expression)                                                \
    TRII_BACKWARD_ROW(name, double, f64, expression)                                               \
    TRII_ROW_REFERENCE(name##_backward, NULL)
#define TRII_BACKWARD_ROW(name, T, suffix, expression)                                             \
    static void name##_backward_##suffix(int64_t n, void *out, const void *const *in,              \
                                         const int64_t *stride, const trii_kernel_args *args)      \
    {                                                                                              \
        const T *x0 = in[0], *x1 = in[1], *x2 = in[2];                                             \
        double f0 = sizeof(T) == 4 ? (double)(float)args->fattr[0] : args->fattr[0];               \
        T *y = out;                                                                                \
                                                                                                   \
        (void)f0;                                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                          \
            double g = (double)x0[k * stride[0]], a = (double)x1[k * stride[1]];                   \
            double b = (double)x2[k * stride[2]];                                                  \
                                                                                                   \
            y[k] = (T)(g * (expression));                                                          \
        }                                                                                          \
    }
BACKWARD(smooth_l1, smooth_slope(a - b, f0))
BACKWARD(bce, bce_slope(a, b))

TRII_ELEMENTWISE(smooth_l1, trii_shape_broadcast_float, smooth_l1);
TRII_ELEMENTWISE(smooth_l1_backward, trii_shape_broadcast_float, smooth_l1_backward);
TRII_ELEMENTWISE(bce, trii_shape_broadcast_float, bce);
TRII_ELEMENTWISE(bce_backward, trii_shape_broadcast_float, bce_backward);
TRII_ELEMENTWISE(kl_div, trii_shape_broadcast_float, kl_div);

/* --- reduction ------------------------------------------------------------ */

tri_status trii_rec_loss(trii_step *step, trii_vid elements, tri_reduction reduction, trii_vid *out)
{
    tri_status status = TRI_OK;
    trii_attrs attrs;

    *out = elements;
    if (reduction == TRI_REDUCTION_NONE)
        return TRI_OK;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = (INT64_C(1) << trii_type_of(step, elements)->ndim) - 1;
    attrs.i[1] = 0;
    if (reduction == TRI_REDUCTION_SUM)
        return trii_record_values(step, &trii_op_sum, &elements, 1, &attrs, out);
    if (reduction == TRI_REDUCTION_BATCHMEAN && attrs.i[0] > 1) {
        attrs.i[0]--; /* the sum of each row, and the mean of those sums */
        status = trii_record_values(step, &trii_op_sum, &elements, 1, &attrs, &elements);
        attrs.i[0] = 1;
    }
    attrs.n_i = 3;
    attrs.i[2] = 1; /* which samples.c prefers to other means */
    return status == TRI_OK ? trii_record_values(step, &trii_op_mean, &elements, 1, &attrs, out)
                            : status;
}

tri_status trii_check_reduction(tri_reduction reduction)
{
    if (reduction == TRI_REDUCTION_MEAN || reduction == TRI_REDUCTION_SUM ||
        reduction == TRI_REDUCTION_NONE)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "reduction %d is not TRI_REDUCTION_MEAN, _SUM or _NONE",
                     (int)reduction);
}

/* --- public --------------------------------------------------------------- */

/* The operands, of one shape and floating-point dtype. by_batch: TRI_REDUCTION_BATCHMEAN is
 * allowed. */
static tri_status resolve_pair(trii_step *step, tri_tensor *const *in, tri_reduction reduction,
                               bool by_batch, trii_vid *ids)
{
    static const char *const names[2] = {"input", "target"};
    tri_status status =
        reduction == TRI_REDUCTION_BATCHMEAN && by_batch ? TRI_OK : trii_check_reduction(reduction);
    const trii_type *a, *b;

    for (int i = 0; i < 2 && status == TRI_OK; i++)
        status = in[i] != NULL ? trii_resolve(step, in[i], &ids[i])
                               : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL", names[i]);
    if (status != TRI_OK)
        return status;
    a = trii_type_of(step, ids[0]);
    b = trii_type_of(step, ids[1]);
    if (reduction == TRI_REDUCTION_BATCHMEAN && a->ndim == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "TRI_REDUCTION_BATCHMEAN needs a dimension 0, the batch");
    return trii_rule_shape(b, "target", a->ndim, a->shape);
}

static tri_status rec_number(trii_step *step, const trii_graph_op *op, trii_vid a, trii_vid b,
                             double number, trii_vid *out)
{
    trii_vid in[2] = {a, b};
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = number;
    return trii_record_values(step, op, in, 2, &attrs, out);
}

typedef struct pair_loss {
    const char *name;
    const trii_graph_op *op; /* computes the elements; NULL: of_difference of a - b */
    const trii_graph_op *of_difference;
    double number;
    tri_tensor *weight; /* NULL: none */
    bool by_batch;
    tri_status status; /* of the options */
} pair_loss;

/* a - b, widened: in 16 bits the difference of two close numbers has no digits left. */
static tri_status rec_difference(trii_step *step, const trii_vid *ids, trii_vid *out)
{
    trii_composer c = {step, TRI_OK};

    *out = trii_compose2(&c, &trii_op_sub, trii_compose_wide(&c, ids[0]),
                         trii_compose_wide(&c, ids[1]));
    return c.status;
}

static tri_status rec_pair(trii_step *step, const pair_loss *loss, tri_tensor *const *in,
                           tri_reduction reduction, trii_vid *out)
{
    trii_vid ids[2] = {TRII_NO_VALUE, TRII_NO_VALUE}, d = TRII_NO_VALUE, weight = TRII_NO_VALUE;
    tri_status status = resolve_pair(step, in, reduction, loss->by_batch, ids);

    if (status == TRI_OK)
        status = loss->op != NULL ? rec_number(step, loss->op, ids[0], ids[1], loss->number, &d)
                                  : rec_difference(step, ids, &d);
    if (status == TRI_OK && loss->op == NULL)
        status = trii_rec1(step, loss->of_difference, d, &d);
    if (status == TRI_OK && loss->weight != NULL) {
        status = trii_resolve(step, loss->weight, &weight);
        if (status == TRI_OK)
            status = trii_rec2(step, &trii_op_mul, d, weight, &d);
    }
    return status == TRI_OK ? trii_rec_loss(step, d, reduction, out) : status;
}

static tri_tensor *pair(const pair_loss *loss, tri_tensor *input, tri_tensor *target,
                        tri_reduction reduction)
{
    tri_tensor *const in[2] = {input, target};
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status = loss->status;

    if (status == TRI_OK)
        status = step != NULL ? rec_pair(step, loss, in, reduction, &out) : TRI_ERR_NO_MEMORY;
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, loss->name, in, 2, status);
}

static tri_reduction reduction_of(const tri_pair_loss_options *opt)
{
    return opt != NULL ? opt->reduction : TRI_REDUCTION_MEAN;
}

tri_tensor *tri_mse_loss(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_pair_loss_options, opt);

    if (TRII_LIKELY(status == TRI_OK && reduction_of(opt) == TRI_REDUCTION_MEAN))
        return trii_record(&trii_op_mse_loss, (tri_tensor *const[]){input, target}, 2, NULL);
    return pair(
        &(pair_loss){.name = "mse_loss", .of_difference = &trii_op_square, .status = status}, input,
        target, opt->reduction);
}

tri_tensor *tri_l1_loss(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt)
{
    return pair(&(pair_loss){.name = "l1_loss",
                             .of_difference = &trii_op_abs,
                             .status = TRII_CHECK_RESERVED_INLINE(tri_pair_loss_options, opt)},
                input, target, reduction_of(opt));
}

tri_tensor *tri_smooth_l1_loss(tri_tensor *input, tri_tensor *target,
                               const tri_smooth_l1_loss_options *opt)
{
    const tri_smooth_l1_loss_options o = opt != NULL ? *opt : (tri_smooth_l1_loss_options){0};
    pair_loss loss = {.name = "smooth_l1_loss",
                      .op = &trii_op_smooth_l1,
                      .of_difference = &trii_op_abs,
                      .status = TRII_CHECK_RESERVED_INLINE(tri_smooth_l1_loss_options, opt)};

    loss.number = trii_option(o.beta, 1);
    if (loss.number == 0)
        loss.op = NULL;
    else if (!(loss.number > 0 && loss.number <= 1e30))
        return trii_handle_refused(
            trii_step_current(), loss.name, (tri_tensor *const[]){input, target}, 2,
            TRII_FAIL(TRI_ERR_INVALID_ARG, "beta %g is not a positive number", loss.number));
    return pair(&loss, input, target, o.reduction);
}

tri_tensor *tri_bce_loss(tri_tensor *input, tri_tensor *target, const tri_bce_loss_options *opt)
{
    static const tri_bce_loss_options none;
    const tri_bce_loss_options *o = opt != NULL ? opt : &none;

    if (o->pos_weight != NULL)
        return trii_handle_refused(
            trii_step_current(), "bce_loss", (tri_tensor *const[]){input, target}, 2,
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "pos_weight belongs to logits: tri_bce_with_logits_loss takes it"));
    return pair(&(pair_loss){.name = "bce_loss",
                             .op = &trii_op_bce,
                             .weight = o->weight,
                             .status = TRII_CHECK_RESERVED_INLINE(tri_bce_loss_options, opt)},
                input, target, o->reduction);
}

/* x (1 - y) + (1 + (pos - 1) y) softplus(-x), weighted. x - x y instead would have no digits left
 * where y is close to 1, and is NaN where x is infinite; nor are there enough in 16 bits. */
static tri_status rec_logits(trii_step *step, tri_tensor *const *in, const tri_bce_loss_options *o,
                             trii_vid *out)
{
    /* 40: from where on softplus is its argument to the last bit */
    const trii_attrs attrs = {.n_f = 2, .f = {1, 40}};
    trii_vid ids[2] = {TRII_NO_VALUE, TRII_NO_VALUE}, factor = TRII_NO_VALUE, d, log, x, y;
    trii_composer c = {step, resolve_pair(step, in, o->reduction, false, ids)};
    tri_dtype narrow;

    if (c.status == TRI_OK && o->pos_weight != NULL)
        c.status = trii_resolve(step, o->pos_weight, &factor);
    if (c.status != TRI_OK)
        return c.status;
    narrow = trii_type_of(step, ids[0])->dtype;
    x = trii_compose_wide(&c, ids[0]);
    y = trii_compose_wide(&c, ids[1]);
    d = trii_compose1(&c, &trii_op_neg, x);
    log = trii_compose(&c, &trii_op_softplus, &d, 1, &attrs);
    if (o->pos_weight != NULL) {
        factor = trii_compose_number(&c, &trii_op_add_scalar, trii_compose_wide(&c, factor), -1);
        factor = trii_compose2(&c, &trii_op_mul, y, factor);
        factor = trii_compose_number(&c, &trii_op_add_scalar, factor, 1);
        log = trii_compose2(&c, &trii_op_mul, log, factor);
    }
    d = trii_compose2(&c, &trii_op_mul, x, trii_compose_one_less(&c, y));
    d = trii_compose2(&c, &trii_op_add, d, log);
    if (c.status == TRI_OK && trii_type_of(step, ids[1])->dtype == narrow)
        d = trii_compose_cast(&c, d, narrow);
    if (c.status == TRI_OK && o->weight != NULL)
        c.status = trii_resolve(step, o->weight, &factor);
    if (c.status == TRI_OK && o->weight != NULL)
        d = trii_compose2(&c, &trii_op_mul, d, factor);
    return c.status == TRI_OK ? trii_rec_loss(step, d, o->reduction, out) : c.status;
}

tri_tensor *tri_bce_with_logits_loss(tri_tensor *input, tri_tensor *target,
                                     const tri_bce_loss_options *opt)
{
    static const tri_bce_loss_options none;
    tri_tensor *const in[2] = {input, target};
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_bce_loss_options, opt);

    if (status == TRI_OK)
        status = step != NULL ? rec_logits(step, in, opt != NULL ? opt : &none, &out)
                              : TRI_ERR_NO_MEMORY;
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, "bce_with_logits_loss", in, 2, status);
}

tri_tensor *tri_kl_div(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt)
{
    return pair(&(pair_loss){.name = "kl_div",
                             .op = &trii_op_kl_div,
                             .by_batch = true,
                             .status = TRII_CHECK_RESERVED_INLINE(tri_pair_loss_options, opt)},
                input, target, reduction_of(opt));
}
