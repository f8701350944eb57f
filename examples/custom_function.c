/*
 * custom_function.c - your own operation in plain C: read this to write one.
 *
 *     build/bin/custom_function
 *
 * The function is swish with a slope, y = x sigmoid(beta x), of which a network here learns beta as
 * well. It has two inputs of different shapes, a number as its data, one value that forward saves
 * for backward, and gradients that can be differentiated again. Its gradient is compared with
 * differences first, as you should do with yours.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "command_line.h"

/* --- the function --------------------------------------------------------- */

/* What tri_function_apply gets besides tensors; it is copied. */
typedef struct swish_data {
    double scale; /* y = scale x sigmoid(beta x) */
} swish_data;

static int64_t count(const tri_function_array *array)
{
    int64_t n = 1;

    for (int d = 0; d < array->ndim; d++)
        n *= array->shape[d];
    return n;
}

/* in: x of any shape, beta []. out: y; saved: sigmoid(beta x). */
static tri_status swish_shape(const tri_function_call *call, tri_function_array *out)
{
    if (call->n_in != 2 || call->in[1].ndim != 0)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "swish takes x and beta [], not %d inputs",
                               call->n_in);
    for (int i = 0; i < 2; i++) {
        tri_dtype dtype = call->in[i].dtype;

        /* under TRI_AUTOCAST bf16 or f16, which come to the others as f32 */
        if (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_BF16 && dtype != TRI_DTYPE_F16)
            return tri_status_fail(TRI_ERR_INVALID_ARG, "swish takes f32, not %s",
                                   tri_dtype_name(dtype));
    }
    out[0] = out[1] = call->in[0];
    out[1].dtype = TRI_DTYPE_F32; /* what is saved is not rounded */
    return TRI_OK;
}

static tri_status swish_forward(const tri_function_call *call)
{
    const swish_data *data = call->data;
    const float *x = call->in[0].data, *beta = call->in[1].data;
    float *y = call->out[0].data, *s = call->out[1].data;

    for (int64_t i = 0; i < count(&call->in[0]); i++) {
        s[i] = 1 / (1 + expf(-beta[0] * x[i]));
        y[i] = (float)data->scale * x[i] * s[i];
    }
    return TRI_OK;
}

static tri_status swish_backward(const tri_function_call *call)
{
    const swish_data *data = call->data;
    const float *x = call->in[0].data, *beta = call->in[1].data, *s = call->out[1].data;
    const float *g = call->grad_out[0].data;
    float *dx = call->grad_in[0].data, *dbeta = call->grad_in[1].data; /* NULL: not needed */
    double sum = 0;

    for (int64_t i = 0; i < count(&call->in[0]); i++) {
        double slope = (double)s[i] * (1 - (double)s[i]), gs = g[i] * data->scale;

        if (dx != NULL)
            dx[i] = (float)(gs * (s[i] + beta[0] * x[i] * slope));
        sum += gs * x[i] * x[i] * slope;
    }
    if (dbeta != NULL)
        dbeta[0] = (float)sum;
    return TRI_OK;
}

/* The same by operations, which have gradients themselves: for tri_gradients with create_graph. */
static tri_status swish_record(const tri_function_graph *graph)
{
    const swish_data *data = graph->data;
    tri_tensor *x = graph->in[0], *beta = graph->in[1];
    tri_tensor *s = tri_sigmoid(tri_mul(x, beta));
    tri_tensor *g = tri_mul_scalar(graph->grad_out[0], data->scale);
    tri_tensor *bent = tri_mul(tri_mul(g, x), tri_sub(s, tri_square(s)));

    if (graph->needs[0])
        graph->grad_in[0] = tri_add(tri_mul(g, s), tri_mul(bent, beta));
    if (graph->needs[1])
        graph->grad_in[1] = tri_sum(tri_mul(bent, x), NULL, 0, false);
    return TRI_OK;
}

static const tri_function_class swish_class = {.name = "swish",
                                               .size = sizeof(swish_data),
                                               .saved = 1,
                                               .shape = swish_shape,
                                               .forward = swish_forward,
                                               .backward = swish_backward,
                                               .record = swish_record};

static tri_tensor *swish(tri_tensor *x, tri_tensor *beta, double scale)
{
    tri_tensor *y;

    tri_function_apply(&swish_class, &(swish_data){scale}, (tri_tensor *[]){x, beta}, 2, &y, 1);
    return y;
}

/* --- its gradient, by differences ----------------------------------------- */

/* In f64, as differences need it. */
static tri_tensor *swish_of(tri_tensor *const *in, int n, void *arg)
{
    (void)n;
    (void)arg;
    return tri_cast(swish(tri_cast(in[0], TRI_DTYPE_F32), tri_cast(in[1], TRI_DTYPE_F32), 2),
                    TRI_DTYPE_F64);
}

static void check_gradient(void)
{
    const double x[3] = {-0.5, 0.25, 1.5}, beta = 0.75;
    tri_tensor *in[2] = {tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F64, x),
                         tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &beta)};

    for (int i = 0; i < 2; i++)
        tri_requires_grad(in[i], true);
    /* swish computes in f32, for which steps of 1e-6 are too small */
    TRI_TRY(tri_gradcheck(swish_of, NULL, in, 2,
                          &(tri_gradcheck_options){
                              .eps = TRI_SET(1e-2), .atol = TRI_SET(1e-3), .second_order = true}));
    for (int i = 0; i < 2; i++)
        tri_tensor_unref(in[i]);
}

/* --- in a network --------------------------------------------------------- */

typedef struct learned {
    tri_tensor *beta; /* the module's parameter */
} learned;

static tri_tensor *learned_forward(tri_module *self, tri_tensor *x)
{
    return swish(x, ((learned *)tri_module_data(self))->beta, 1);
}

static tri_module *nn_swish(void)
{
    tri_module *self = tri_module_simple("swish", sizeof(learned), learned_forward);
    learned *data = tri_module_data(self);

    if (data != NULL)
        data->beta = tri_module_add_parameter(self, "beta",
                                              tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){1}));
    return self;
}

#define ROWS 32

static const char usage[] = "usage: custom_function\n\n"
                            "Checks the gradient of a function written in C, and trains a network "
                            "with it.";

int main(int argc, char **argv)
{
    float inputs[ROWS], targets[ROWS], beta;
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x, *y;

    options_none(argc, argv, usage);
    check_gradient();
    puts("gradients and differences agree");
    for (int i = 0; i < ROWS; i++) {
        inputs[i] = (float)i / ROWS * 4 - 2;
        targets[i] = fabsf(inputs[i]);
    }
    tri_manual_seed(1);
    x = tri_tensor_from(TRI_SHAPE(ROWS, 1), TRI_DTYPE_F32, inputs);
    y = tri_tensor_from(TRI_SHAPE(ROWS, 1), TRI_DTYPE_F32, targets);
    net = tri_nn_sequential(tri_nn_linear(1, 16, NULL), nn_swish(), tri_nn_linear(16, 1, NULL));
    opt = tri_sgd(net, 0.05, NULL);
    for (int step = 0; step <= 200; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(net, x), y, NULL);

        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(opt));
        if (step % 100 == 0)
            printf("step %3d, loss %.3f\n", step, tri_item(loss));
        tri_step_end();
    }
    TRI_TRY(tri_tensor_copy_out(tri_module_find(net, "1.beta"), &beta, sizeof(beta)));
    printf("beta was 1 and is %.2f\n", beta);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return 0;
}
