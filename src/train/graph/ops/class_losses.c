/*
 * class_losses.c - losses of classes: cross_entropy of logits, nll_loss of log-probabilities.
 *
 * The operation sees rows [N, C] with targets [N]; other shapes are brought into rows, and an
 * operation of its own computes what the mean divides by. i: reduction, the target that is ignored,
 * 1 = log-probabilities; f: label smoothing.
 */
#include <inttypes.h>
#include <math.h>

#include "base/option.h"
#include "train/graph/ops/reduce_rules.h"

#define IGNORE_INDEX (-100) /* torch's default */

enum { I_REDUCTION = TRII_CLASS_LOSS_REDUCTION, I_IGNORED, I_LOGARITHMS, N_I };

/* --- the rule ------------------------------------------------------------- */

static tri_status check_rows(const trii_type *x, const trii_type *target, const trii_type *weight,
                             const trii_attrs *attrs)
{
    tri_status status = trii_rule_float(x, attrs->i[I_LOGARITHMS] != 0 ? "input" : "logits");

    if (status == TRI_OK)
        status = trii_rule_ndim(x, 2, attrs->i[I_LOGARITHMS] != 0 ? "input" : "logits");
    if (status == TRI_OK && target->ndim == x->ndim && target->dtype == x->dtype)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "target must be i64, not %s: a class for each row; with a probability p "
                      "for each class, the loss of a row is -p * tri_log_softmax(x, 1), summed",
                      tri_dtype_name(target->dtype));
    if (status == TRI_OK)
        status = trii_rule_index(target, "target");
    if (status == TRI_OK)
        status = trii_rule_shape(target, "target", 1, &x->shape[0]);
    if (status == TRI_OK && weight != NULL)
        status = trii_rule_same_dtype(x, weight);
    if (status == TRI_OK && weight != NULL)
        status = trii_rule_shape(weight, "weight", 1, &x->shape[1]);
    return status;
}

static tri_status loss_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_scalar(out, in[0]->dtype);
    if (attrs->i[I_REDUCTION] == TRI_REDUCTION_NONE) {
        out->ndim = 1;
        out->shape[0] = in[0]->shape[0];
    }
    return check_rows(in[0], in[1], in[2], attrs);
}

static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[1]);
    return check_rows(in[1], in[2], in[3], attrs);
}

/* --- reference ------------------------------------------------------------ */

tri_status trii_target_check(int64_t target, int64_t row, int64_t n_classes)
{
    if (target >= 0 && target < n_classes)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "target %" PRId64 " of row %" PRId64 " is out of range (%" PRId64 " classes)",
                     target, row, n_classes);
}

typedef struct class_rows {
    const double *x, *weight; /* weight NULL: 1 */
    const int64_t *target;
    int64_t n, classes, reduction, ignored;
    bool logarithms;
    double smoothing, divisor, all; /* all: the sum of the weights */
} class_rows;

static double weight_of(const class_rows *r, int64_t k)
{
    return r->weight != NULL ? r->weight[k] : 1;
}

/* From operand `first` on: x target weight. */
static tri_status take_rows(const trii_kernel_args *args, int first, class_rows *r)
{
    *r = (class_rows){.x = args->in[first].data,
                      .target = args->in[first + 1].data,
                      .weight = args->in[first + 2].data,
                      .n = args->in[first].type->shape[0],
                      .classes = args->in[first].type->shape[1],
                      .reduction = args->iattr[I_REDUCTION],
                      .ignored = args->iattr[I_IGNORED],
                      .logarithms = args->iattr[I_LOGARITHMS] != 0,
                      .smoothing = args->fattr[0]};
    for (int64_t k = 0; k < r->classes; k++)
        r->all += weight_of(r, k);
    for (int64_t i = 0; i < r->n; i++) {
        tri_status status;

        if (r->target[i] == r->ignored)
            continue;
        status = trii_target_check(r->target[i], i, r->classes);
        if (status != TRI_OK)
            return status;
        r->divisor += weight_of(r, r->target[i]);
    }
    return TRI_OK;
}

/* log of the sum of exp; 0 where the elements are log-probabilities */
static double log_sum_exp(const class_rows *r, const double *x)
{
    double largest = -(double)INFINITY, sum = 0;

    if (r->logarithms)
        return 0;
    for (int64_t k = 0; k < r->classes; k++)
        largest = x[k] > largest ? x[k] : largest;
    for (int64_t k = 0; k < r->classes; k++)
        sum += exp(x[k] - largest);
    return largest + log(sum);
}

/* -(1-s) w[t] log p[t] - s/C sum w log p */
static double row_loss(const class_rows *r, int64_t row)
{
    const double *x = r->x + row * r->classes;
    int64_t t = r->target[row];
    double lse, sum = 0;

    if (t == r->ignored)
        return 0;
    lse = log_sum_exp(r, x);
    for (int64_t k = 0; k < r->classes && r->smoothing != 0; k++)
        sum += weight_of(r, k) * (lse - x[k]);
    return (1 - r->smoothing) * weight_of(r, t) * (lse - x[t]) +
           (r->smoothing != 0 ? r->smoothing / (double)r->classes * sum : 0);
}

static tri_status loss_kernel(const trii_kernel_args *args)
{
    class_rows r;
    double *y = args->out[0].data, total = 0;
    tri_status status = take_rows(args, 0, &r);

    if (status != TRI_OK)
        return status;
    for (int64_t i = 0; i < r.n; i++) {
        double loss = row_loss(&r, i);

        if (r.reduction == TRI_REDUCTION_NONE)
            y[i] = loss;
        else
            total += loss;
    }
    if (r.reduction != TRI_REDUCTION_NONE)
        *y = r.reduction == TRI_REDUCTION_MEAN ? total / r.divisor : total;
    return TRI_OK;
}

static tri_status loss_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, loss_kernel);
}

double trii_class_grad(double g, int64_t reduction, double divisor)
{
    /* a replica without a target has weight 0 in the mean, and must add 0 to it, not NaN */
    return reduction != TRI_REDUCTION_MEAN ? g : g == 0 ? 0 : g / divisor;
}

/* g (a p - s/C w), and at the target - g (1-s) w[t], where a is the sum of the weights of the
 * terms */
static void row_gradient(const class_rows *r, int64_t row, double g, double *dx)
{
    const double *x = r->x + row * r->classes;
    double lse = log_sum_exp(r, x), s = r->smoothing;
    double wt = weight_of(r, r->target[row]), other = s / (double)r->classes;
    double a = (1 - s) * wt + other * r->all;

    for (int64_t k = 0; k < r->classes; k++) {
        double wanted = other * weight_of(r, k) + (k == r->target[row] ? (1 - s) * wt : 0);

        if (r->logarithms) /* 0 even where g is infinite */
            dx[k] = wanted == 0 ? 0 : -g * wanted;
        else
            dx[k] = g * (a * exp(x[k] - lse) - wanted);
    }
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    const double *g = args->in[0].data;
    class_rows r;
    tri_status status = take_rows(args, 1, &r);

    if (status != TRI_OK)
        return status;
    for (int64_t i = 0; i < r.n; i++) {
        double *dx = (double *)args->out[0].data + i * r.classes;

        for (int64_t k = 0; k < r.classes; k++)
            dx[k] = 0;
        if (r.target[i] != r.ignored)
            row_gradient(&r, i,
                         trii_class_grad(g[r.reduction == TRI_REDUCTION_NONE ? i : 0], r.reduction,
                                         r.divisor),
                         dx);
    }
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

/* --- entries -------------------------------------------------------------- */

static tri_status target_weights_shape(const trii_type *const *in, int n_in,
                                       const trii_attrs *attrs, trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_scalar(out, TRI_DTYPE_F64);
    return in[0]->dtype == TRI_DTYPE_I64
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INTERNAL, "targets of %s", tri_dtype_name(in[0]->dtype));
}

/* Targets out of range are skipped here: the loss refuses them. */
static tri_status target_weights_kernel(const trii_kernel_args *args)
{
    const int64_t *target = args->in[0].data;
    const double *weight = args->in[1].data;
    int64_t n = trii_type_numel(args->in[0].type);
    int64_t classes = weight != NULL ? trii_type_numel(args->in[1].type) : 0;
    double total = 0;

    for (int64_t i = 0; i < n; i++) {
        if (target[i] == args->iattr[I_IGNORED])
            continue;
        if (weight == NULL)
            total += 1;
        else if (target[i] >= 0 && target[i] < classes)
            total += weight[target[i]];
    }
    *(double *)args->out[0].data = total;
    return TRI_OK;
}

static tri_status target_weights_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, target_weights_kernel);
}

const trii_graph_op trii_op_target_weights = {
    .name = "target_weights",
    .optional = 1 << 1,
    .shape = target_weights_shape,
    .reference = target_weights_reference,
};

const trii_graph_op trii_op_cross_entropy = {
    .name = "cross_entropy",
    .may_refuse = true,
    .optional = 1 << 2,
    .shape = loss_shape,
    .gradient = TRII_GRADIENT_class_loss,
    .reference = loss_reference,
};
const trii_graph_op trii_op_nll_loss = {
    .name = "nll_loss",
    .may_refuse = true,
    .optional = 1 << 2,
    .shape = loss_shape,
    .gradient = TRII_GRADIENT_class_loss,
    .reference = loss_reference,
};
const trii_graph_op trii_op_cross_entropy_backward = {
    .name = "cross_entropy_backward",
    .may_refuse = true,
    .optional = 1 << 3,
    .shape = backward_shape,
    .gradient = TRII_GRADIENT_cross_entropy_backward,
    .reference = backward_reference,
};

/* --- public --------------------------------------------------------------- */

typedef struct class_loss {
    const trii_graph_op *op;
    trii_attrs attrs;
} class_loss;

static tri_status take_options(class_loss *loss, const tri_cross_entropy_options *o)
{
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_cross_entropy_options, o);

    if (status == TRI_OK)
        status = trii_check_reduction(o->reduction);
    if (status == TRI_OK)
        status = trii_option_whole(o->ignore_index, "ignore_index", IGNORE_INDEX,
                                   &loss->attrs.i[I_IGNORED]);
    loss->attrs.n_i = N_I;
    loss->attrs.n_f = 1;
    loss->attrs.i[I_REDUCTION] = o->reduction;
    loss->attrs.i[I_LOGARITHMS] = loss->op == &trii_op_nll_loss;
    loss->attrs.f[0] = o->label_smoothing;
    if (status == TRI_OK && !(o->label_smoothing >= 0 && o->label_smoothing < 1))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "label_smoothing %g is not in [0, 1)",
                           o->label_smoothing);
    return status;
}

/* [C] with a target [], or [N, C, d..] with [N, d..]: rows. */
static tri_status rec_rows(trii_step *step, trii_vid *ids)
{
    trii_type x = *trii_type_of(step, ids[0]), target = *trii_type_of(step, ids[1]);
    int64_t rows = trii_type_numel(&target), shape[2] = {rows, x.shape[x.ndim > 1 ? 1 : 0]};
    trii_attrs last;
    tri_status status = TRI_OK;

    for (int d = 0, k = 0; d < x.ndim; d++) {
        if (d == (x.ndim > 1 ? 1 : 0))
            continue;
        if (target.ndim != x.ndim - 1 || target.shape[k++] != x.shape[d])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "target must have the shape of the first operand without its classes "
                             "(dimension %d)",
                             x.ndim > 1 ? 1 : 0);
    }
    last.n_i = x.ndim;
    last.n_f = 0;
    for (int d = 0; d < x.ndim; d++)
        last.i[d] = d == 0 ? 0 : d == x.ndim - 1 ? 1 : d + 1;
    if (x.ndim > 2)
        status = trii_record_values(step, &trii_op_permute, &ids[0], 1, &last, &ids[0]);
    if (status == TRI_OK)
        status = trii_rec_reshape(step, ids[0], shape, 2, &ids[0]);
    return status == TRI_OK ? trii_rec_reshape(step, ids[1], &rows, 1, &ids[1]) : status;
}

static tri_status rec_loss(trii_step *step, const class_loss *loss, tri_tensor *const *in,
                           trii_vid *out)
{
    static const char *const names[2] = {"logits", "target"};
    trii_vid ids[3] = {TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE};
    trii_type target;
    int ndim;
    tri_status status = TRI_OK;

    for (int i = 0; i < 3 && status == TRI_OK; i++) {
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], &ids[i]);
        else if (i < 2)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "argument %d is NULL (%s)" TRII_WHENCE_NULL, i,
                               names[i]);
    }
    if (status != TRI_OK)
        return status;
    ndim = trii_type_of(step, ids[0])->ndim;
    target = *trii_type_of(step, ids[1]);
    if (ndim != 2 && ndim != 0)
        status = rec_rows(step, ids);
    if (status == TRI_OK)
        status = trii_record_values(step, loss->op, ids, 3, &loss->attrs, out);
    if (status == TRI_OK && ndim != 2 && loss->attrs.i[I_REDUCTION] == TRI_REDUCTION_NONE)
        status = trii_rec_reshape(step, *out, target.shape, target.ndim, out);
    return status;
}

static tri_tensor *class_loss_of(const trii_graph_op *op, tri_tensor *x, tri_tensor *target,
                                 const tri_cross_entropy_options *opt)
{
    tri_tensor *const in[3] = {x, target, opt->weight};
    trii_step *step = trii_step_current();
    class_loss loss = {.op = op};
    trii_vid out = TRII_NO_VALUE;
    tri_status status = take_options(&loss, opt);

    if (status == TRI_OK)
        status = step != NULL ? rec_loss(step, &loss, in, &out) : TRI_ERR_NO_MEMORY;
    return status == TRI_OK
               ? trii_handle_recorded(step, out)
               : trii_handle_refused(step, op->name, in, in[2] != NULL ? 3 : 2, status);
}

tri_tensor *tri_cross_entropy(tri_tensor *logits, tri_tensor *target,
                              const tri_cross_entropy_options *opt)
{
    static const tri_cross_entropy_options none;

    return class_loss_of(&trii_op_cross_entropy, logits, target, opt != NULL ? opt : &none);
}

tri_tensor *tri_nll_loss(tri_tensor *input, tri_tensor *target, const tri_nll_loss_options *opt)
{
    static const tri_nll_loss_options none;
    const tri_nll_loss_options *o = opt != NULL ? opt : &none;
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_nll_loss_options, opt);

    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), "nll_loss",
                                   (tri_tensor *const[]){input, target}, 2, status);
    return class_loss_of(&trii_op_nll_loss, input, target,
                         &(tri_cross_entropy_options){.weight = o->weight,
                                                      .ignore_index = o->ignore_index,
                                                      .reduction = o->reduction});
}
