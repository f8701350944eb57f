/* sync_norm_uses_test.c - batch norm by the batches of all ranks as programs use it under tri_ddp:
 * what is trained, evaluated, frozen and converted, and inputs of any shape. As one process. */
#include <trireme/sync_batch_norm.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"

#define UPDATES 3

/* --- training ------------------------------------------------------------- */

typedef struct plan {
    int rows[3];    /* of each rank, in all at most ROWS */
    bool frozen;    /* parameters of the norms, and all in front of the first */
    bool evaluates; /* after each update */
    bool idle;      /* a forward in training whose result nobody differentiates */
    bool twice;     /* the loss is of two forwards */
    bool converted; /* after tri_ddp, to a group of its own */
    bool no_affine, no_track, cumulative;
} plan;

static int count(const plan *p, int from, int to)
{
    int n = 0;

    for (int r = from; r < to; r++)
        n += p->rows[r];
    return n;
}

static tri_module *norm(const plan *p, int64_t channels, tri_group *group)
{
    const tri_nn_batch_norm2d_options plain = {.cumulative = p->cumulative};
    const tri_nn_sync_batch_norm_options shared = {.group = group,
                                                   .cumulative = p->cumulative,
                                                   .no_affine = p->no_affine,
                                                   .no_track_running_stats = p->no_track};

    return p->converted ? tri_nn_batch_norm2d(channels, &plain)
                        : tri_nn_sync_batch_norm(channels, &shared);
}

static tri_module *build(const plan *p, tri_group *group)
{
    static const char *const frozen[] = {"0.weight", "0.bias", "1.weight", "1.bias", "4.bias"};
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(7);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_conv2d(IN, 5, 1, NULL), norm(p, 5, group), tri_nn_tanh(),
                            tri_nn_conv2d(5, 4, 1, NULL), norm(p, 4, group), tri_nn_tanh(),
                            tri_nn_flatten(1), tri_nn_linear(4, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    for (size_t i = 0; i < TRII_COUNT_OF(frozen) && p->frozen; i++)
        tri_requires_grad(tri_module_find(net, frozen[i]), false);
    return net;
}

/* The mean over the rows of ranks `from` to `to` - 1, which differ from batch to batch. */
static tri_tensor *loss_of(const plan *p, tri_module *model, int batch, int from, int to)
{
    int first = count(p, 0, from), n = count(p, from, to);
    double data[ROWS * IN];
    tri_tensor *x, *y, *loss;

    for (int i = 0; i < n * IN; i++)
        data[i] = x_data[first * IN + i] * (1 + 0.1 * batch);
    x = tri_tensor_from(TRI_SHAPE(n, IN, 1, 1), TRI_DTYPE_F64, data);
    y = rows_of(y_data, OUT, first, n);
    loss = tri_mse_loss(tri_forward(model, x), y, NULL);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

/* Leaves the loss of all rows. */
static tri_status evaluate(rank *r, tri_module *model, int batch, double *out)
{
    const plan *p = r->arg;
    bool alone = r->size == 1;
    int from = alone ? 0 : r->index, to = alone ? 3 : r->index + 1, n = count(p, from, to);
    double loss = 0;

    tri_module_train(model, false);
    if (n > 0)
        TRY(tri_item_status(loss_of(p, model, batch, from, to), &loss));
    tri_module_train(model, true);
    *out = loss * n;
    return tri_all_reduce(r->group, out, out, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL);
}

static tri_status run_updates(rank *r, tri_module *model, tri_optimizer *opt, double *losses)
{
    const plan *p = r->arg;
    bool alone = r->size == 1;
    int from = alone ? 0 : r->index, to = alone ? 3 : r->index + 1;

    for (int u = 0; u < UPDATES; u++) {
        tri_tensor *loss;

        if (p->idle)
            (void)loss_of(p, model, u + 7, from, to);
        loss = loss_of(p, model, u, from, to);
        if (p->twice)
            loss = tri_add(loss, loss_of(p, model, u + 3, from, to));
        tri_backward(loss);
        TRY(tri_optimizer_step(opt));
        if (p->evaluates)
            TRY(evaluate(r, model, u, &losses[u]));
        TRY(tri_step_end_status());
    }
    return tri_ddp_verify(model, true);
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    double losses[UPDATES] = {0};
    tri_group *own = NULL;
    tri_module *model;
    tri_optimizer *opt;
    tri_status status;

    TRY(tri_group_split(r->group, 0, r->index, NULL, &own));
    model = tri_ddp(
        build(p, r->group),
        &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 200, .first_bucket_bytes = 1});
    if (p->converted && tri_convert_sync_batch_norm(model, own) != 2)
        return TRI_ERR_INTERNAL;
    tri_group_unref(own);
    opt = tri_sgd(model, 0.5, &(tri_sgd_options){.momentum = 0.9});
    status = tri_module_status(model);
    if (status == TRI_OK)
        status = run_updates(r, model, opt, losses);
    if (status == TRI_OK)
        status = take_weights(r, model);
    for (int u = 0; u < UPDATES; u++)
        r->weights[r->n_weights++] = losses[u];
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void synchronised_norm_trains_as_one_process_however_it_is_used(void **state)
{
    static const plan plans[] = {
        {.rows = {2, 7, 3}, .frozen = true},
        {.rows = {2, 0, 3}, .evaluates = true},
        {.rows = {0, 7, 3}, .idle = true},
        {.rows = {2, 7, 3}, .twice = true},
        {.rows = {2, 7, 3}, .converted = true, .evaluates = true},
        {.rows = {2, 7, 0}, .converted = true, .cumulative = true, .idle = true},
        {.rows = {2, 7, 3}, .no_affine = true, .evaluates = true},
        {.rows = {2, 7, 3}, .no_track = true},
    };
    static rank one[1], ranks[3];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(plans); i++) {
        ranks_succeed(one, 1, train, &plans[i]);
        ranks_succeed(ranks, 3, train, &plans[i]);
        assert_true(one[0].n_weights > 50);
        for (int k = 0; k < one[0].n_weights; k++)
            if (!(fabs(ranks[0].weights[k] - one[0].weights[k]) <= 1e-9))
                fail_msg("plan %zu: number %d is %.12g, not %.12g", i, k, ranks[0].weights[k],
                         one[0].weights[k]);
    }
}

/* --- shapes and types ----------------------------------------------------- */

#define C 3
#define MOST (ROWS * C * 12)

typedef struct input {
    int ndim;
    int64_t inner[3];
    tri_dtype param, x; /* of the layer, of what goes through it */
    bool evaluates;     /* without running statistics: each rank by its own batch */
    double bound;
    double y[MOST], dx[MOST];
} input;

static int64_t row_of(const input *in)
{
    int64_t n = C;

    for (int d = 2; d < in->ndim; d++)
        n *= in->inner[d - 2];
    return n;
}

/* y, and the gradient of x, of these rows. */
static tri_status pass(const input *in, tri_group *group, int first, int n, double *y_out,
                       double *dx_out)
{
    const int64_t shape[5] = {n, C, in->inner[0], in->inner[1], in->inner[2]};
    const tri_nn_sync_batch_norm_options opt = {.group = group,
                                                .no_track_running_stats = in->evaluates};
    size_t bytes = (size_t)(n * row_of(in)) * sizeof(double);
    double data[MOST];
    tri_module *layer;
    tri_tensor *x, *y;

    for (int64_t i = 0; i < n * row_of(in); i++)
        data[i] = 2 * sin((double)(first * row_of(in) + i) * 7 + 1);
    tri_set_default_dtype(in->param);
    layer = tri_nn_sync_batch_norm(C, &opt);
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_module_train(layer, !in->evaluates);
    x = tri_tensor_from(shape, in->ndim, TRI_DTYPE_F64, data);
    tri_requires_grad(x, true);
    y = tri_cast(tri_forward(layer, tri_cast(x, in->x)), TRI_DTYPE_F64);
    tri_backward(tri_sum(tri_mul(tri_square(y), tri_add_scalar(y, 1.5)), NULL, 0, false));
    TRY(tri_tensor_copy_out(y, y_out, bytes));
    TRY(tri_tensor_copy_out(tri_grad(x), dx_out, bytes));
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(layer);
    return TRI_OK;
}

static tri_status pass_of_rank(rank *r)
{
    const input *in = r->arg;
    int first = r->index == 0 ? 0 : 4, n = r->index == 0 ? 4 : ROWS - 4;
    double y[MOST], dx[MOST];

    TRY(pass(in, r->group, first, n, y, dx));
    for (int64_t i = 0, at = first * row_of(in); i < n * row_of(in); i++, at++)
        if (!(fabs(y[i] - in->y[at]) <= in->bound && fabs(dx[i] - in->dx[at]) <= in->bound))
            return TRII_FAIL(TRI_ERR_INTERNAL, "%d dimensions: y[%lld] %g, not %g; dx %g, not %g",
                             in->ndim, (long long)at, y[i], in->y[at], dx[i], in->dx[at]);
    return TRI_OK;
}

static void inputs_have_two_to_five_dimensions_of_any_type(void **state)
{
    static const int64_t inner[][3] = {{0}, {5}, {2, 3}, {2, 3, 2}, {1, 1}, {0}};
    static const int ndim[] = {2, 3, 4, 5, 4, 3};
    static const struct {
        tri_dtype param, x;
        double bound;
    } types[] = {{TRI_DTYPE_F64, TRI_DTYPE_F64, 1e-12},
                 {TRI_DTYPE_F32, TRI_DTYPE_F32, 3e-4},
                 {TRI_DTYPE_F32, TRI_DTYPE_F16, 0.05},
                 {TRI_DTYPE_F32, TRI_DTYPE_BF16, 0.4}};
    static input in;
    static rank ranks[2];

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(ndim); k++) {
        for (size_t t = 0; t < TRII_COUNT_OF(types); t++) {
            in = (input){.ndim = ndim[k],
                         .inner = {inner[k][0], inner[k][1], inner[k][2]},
                         .param = types[t].param,
                         .x = types[t].x,
                         .bound = types[t].bound};
            CHECK_OK(pass(&in, NULL, 0, ROWS, in.y, in.dx));
            ranks_succeed(ranks, 2, pass_of_rank, &in);
        }
    }
}

static void without_running_statistics_evaluation_is_by_ones_own_batch(void **state)
{
    static input in;
    static rank ranks[2];

    (void)state;
    in = (input){.ndim = 4,
                 .inner = {2, 3},
                 .param = TRI_DTYPE_F64,
                 .x = TRI_DTYPE_F64,
                 .evaluates = true,
                 .bound = 1e-12};
    CHECK_OK(pass(&in, NULL, 0, 4, in.y, in.dx));
    CHECK_OK(pass(&in, NULL, 4, ROWS - 4, in.y + 4 * row_of(&in), in.dx + 4 * row_of(&in)));
    ranks_succeed(ranks, 2, pass_of_rank, &in);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(synchronised_norm_trains_as_one_process_however_it_is_used),
    cmocka_unit_test(inputs_have_two_to_five_dimensions_of_any_type),
    cmocka_unit_test(without_running_statistics_evaluation_is_by_ones_own_batch),
};

TEST_MAIN(tests)
