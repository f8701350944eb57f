/*
 * init.c - initial values of parameters: torch.nn.init's formulas on PyTorch's generator.
 * Uniform values have PyTorch's bits; normal ones its algorithm, with libm's logarithm and sine
 * in place of its vectorised ones (equal to a few units in the last place).
 */
#include <math.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/nn/module.h"
#include "train/nn/random_state.h"
#include "train/tensor/persistent.h"

#define NORMAL_BLOCK 16 /* torch draws normals in pairs, 8 apart, once there are this many */
#define TWO_PI 6.283185307179586476925286766559

static _Thread_local tri_dtype default_dtype = TRI_DTYPE_F32;

void tri_set_default_dtype(tri_dtype dtype)
{
    default_dtype = dtype;
}

tri_dtype tri_default_dtype(void)
{
    return default_dtype;
}

tri_tensor *trii_parameter_new(const int64_t *shape, int ndim)
{
    if (default_dtype != TRI_DTYPE_F32 && default_dtype != TRI_DTYPE_F64)
        return trii_tensor_failed(TRII_FAIL(TRI_ERR_UNSUPPORTED,
                                            "parameters of type %s (%d): f32 and f64 are supported",
                                            tri_dtype_name(default_dtype), (int)default_dtype));
    return tri_tensor_create(shape, ndim, default_dtype);
}

typedef struct filler {
    bool draws;
    void (*f32)(trii_mt19937 *mt, float *out, int64_t n, double a, double b);
    void (*f64)(trii_mt19937 *mt, double *out, int64_t n, double a, double b);
} filler;

/* Fill by a distribution with two parameters. */
static tri_status fill(tri_tensor *tensor, const filler *with, double a, double b)
{
    tri_status status = tri_tensor_status(tensor);
    int64_t n;
    size_t bytes;
    void *plain;

    if (status != TRI_OK)
        return status;
    if (trii_is_handle(tensor))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "init: only persistent tensors can be filled");
    if (tensor->dtype != TRI_DTYPE_F32 && tensor->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "init: a tensor of type %s, f32 and f64 are supported",
                         tri_dtype_name(tensor->dtype));
    if (with->draws && trii_tensor_is_cut(tensor))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "init: %s is one rank's part of a parameter that tri_parallelize has cut: "
                         "all ranks would draw the same numbers. Draw them before the cut, which "
                         "gives all ranks those of rank 0",
                         tri_tensor_shape_text(tensor));
    n = tri_tensor_numel(tensor);
    bytes = trii_tensor_bytes(tensor);
    plain = trii_alloc(1, bytes, "initial values");
    if (plain == NULL)
        return TRI_ERR_NO_MEMORY;
    if (tensor->dtype == TRI_DTYPE_F32)
        with->f32(trii_generator(), plain, n, a, b);
    else
        with->f64(trii_generator(), plain, n, a, b);
    status = tri_tensor_copy_in(tensor, plain, bytes);
    trii_free(plain);
    return status;
}

/* --- constant and uniform ------------------------------------------------- */

static void constant_f32(trii_mt19937 *mt, float *out, int64_t n, double a, double b)
{
    (void)mt;
    (void)b;
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)a;
}

static void constant_f64(trii_mt19937 *mt, double *out, int64_t n, double a, double b)
{
    (void)mt;
    (void)b;
    for (int64_t i = 0; i < n; i++)
        out[i] = a;
}

tri_status tri_init_constant(tri_tensor *tensor, double value)
{
    static const filler constant = {.f32 = constant_f32, .f64 = constant_f64};

    return fill(tensor, &constant, value, 0.0);
}

static void uniform_f32(trii_mt19937 *mt, float *out, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = trii_mt_uniform_f32(mt, (float)low, (float)high);
}

static void uniform_f64(trii_mt19937 *mt, double *out, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = trii_mt_uniform_f64(mt, low, high);
}

tri_status tri_init_uniform(tri_tensor *tensor, double low, double high)
{
    static const filler uniform = {.draws = true, .f32 = uniform_f32, .f64 = uniform_f64};

    return fill(tensor, &uniform, low, high);
}

/* --- normal (Box and Muller 1958) ----------------------------------------- */

static void normal_block_f32(float *v, double mean, double std)
{
    for (int j = 0; j < NORMAL_BLOCK / 2; j++) {
        float radius = sqrtf(-2.0f * logf(1.0f - v[j]));
        float angle = (float)TWO_PI * v[j + NORMAL_BLOCK / 2];

        v[j] = radius * cosf(angle) * (float)std + (float)mean;
        v[j + NORMAL_BLOCK / 2] = radius * sinf(angle) * (float)std + (float)mean;
    }
}

static void normal_block_f64(double *v, double mean, double std)
{
    for (int j = 0; j < NORMAL_BLOCK / 2; j++) {
        double radius = sqrt(-2.0 * log(1.0 - v[j]));
        double angle = TWO_PI * v[j + NORMAL_BLOCK / 2];

        v[j] = radius * cos(angle) * std + mean;
        v[j + NORMAL_BLOCK / 2] = radius * sin(angle) * std + mean;
    }
}

/* Fewer than a block: pairs of doubles, whatever the type. */
static double normal_single(trii_mt19937 *mt, int64_t i, double *kept_io)
{
    double angle, radius;

    if (i % 2 != 0)
        return *kept_io;
    angle = TWO_PI * trii_mt_f64(mt);
    radius = sqrt(-2.0 * log1p(-trii_mt_f64(mt)));
    *kept_io = radius * sin(angle);
    return radius * cos(angle);
}

static void normal_f32(trii_mt19937 *mt, float *out, int64_t n, double mean, double std)
{
    double kept = 0.0;

    if (n < NORMAL_BLOCK) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(normal_single(mt, i, &kept) * std + mean);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = trii_mt_f32(mt);
    for (int64_t i = 0; i + NORMAL_BLOCK <= n; i += NORMAL_BLOCK)
        normal_block_f32(out + i, mean, std);
    if (n % NORMAL_BLOCK != 0) { /* the last full block is drawn again, as torch does */
        for (int64_t i = n - NORMAL_BLOCK; i < n; i++)
            out[i] = trii_mt_f32(mt);
        normal_block_f32(out + n - NORMAL_BLOCK, mean, std);
    }
}

static void normal_f64(trii_mt19937 *mt, double *out, int64_t n, double mean, double std)
{
    double kept = 0.0;

    if (n < NORMAL_BLOCK) {
        for (int64_t i = 0; i < n; i++)
            out[i] = normal_single(mt, i, &kept) * std + mean;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = trii_mt_f64(mt);
    for (int64_t i = 0; i + NORMAL_BLOCK <= n; i += NORMAL_BLOCK)
        normal_block_f64(out + i, mean, std);
    if (n % NORMAL_BLOCK != 0) {
        for (int64_t i = n - NORMAL_BLOCK; i < n; i++)
            out[i] = trii_mt_f64(mt);
        normal_block_f64(out + n - NORMAL_BLOCK, mean, std);
    }
}

tri_status tri_init_normal(tri_tensor *tensor, double mean, double std)
{
    static const filler normal = {.draws = true, .f32 = normal_f32, .f64 = normal_f64};

    return fill(tensor, &normal, mean, std);
}

/* --- by fan: Kaiming (He et al. 2015), Xavier (Glorot and Bengio 2010) ---- */

/* Elements of one output's (dim 0 == 0) or one input's (dim 1) receptive field. */
static tri_status fan(const tri_tensor *tensor, int dim, double *fan_out)
{
    double n;
    tri_status status = tri_tensor_status(tensor);

    if (status != TRI_OK)
        return status;
    if (tri_tensor_ndim(tensor) < 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "init: a tensor of %d dimensions has no fan",
                         tri_tensor_ndim(tensor));
    n = (double)tri_tensor_size(tensor, dim);
    for (int d = 2; d < tri_tensor_ndim(tensor); d++)
        n *= (double)tri_tensor_size(tensor, d);
    *fan_out = n;
    return TRI_OK;
}

/* The standard deviation of Kaiming's values; 0 without elements. */
static tri_status kaiming_std(const tri_tensor *tensor, double a, tri_fan_mode mode,
                              double *std_out)
{
    double n;
    tri_status status;

    if (mode != TRI_FAN_IN && mode != TRI_FAN_OUT)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "init: mode %d is neither TRI_FAN_IN nor TRI_FAN_OUT",
                         (int)mode);
    status = fan(tensor, mode == TRI_FAN_IN ? 1 : 0, &n);
    if (status == TRI_OK)
        *std_out = n > 0.0 ? sqrt(2.0 / (1.0 + a * a)) / sqrt(n) : 0.0;
    return status;
}

tri_status tri_init_kaiming_uniform(tri_tensor *tensor, double a, tri_fan_mode mode)
{
    double std;
    tri_status status = kaiming_std(tensor, a, mode, &std);

    return status != TRI_OK ? status : tri_init_uniform(tensor, -sqrt(3.0) * std, sqrt(3.0) * std);
}

tri_status tri_init_kaiming_normal(tri_tensor *tensor, double a, tri_fan_mode mode)
{
    double std;
    tri_status status = kaiming_std(tensor, a, mode, &std);

    return status != TRI_OK ? status : tri_init_normal(tensor, 0.0, std);
}

tri_status tri_init_xavier_uniform(tri_tensor *tensor, double gain)
{
    double in, out, bound;
    tri_status status = fan(tensor, 1, &in);

    if (status != TRI_OK)
        return status;
    status = fan(tensor, 0, &out);
    if (status != TRI_OK)
        return status;
    if (in + out == 0.0)
        return TRI_OK; /* no elements */
    bound = sqrt(3.0) * (gain * sqrt(2.0 / (in + out)));
    return tri_init_uniform(tensor, -bound, bound);
}
