/* attention_masks_test.c - masks of nn_multihead_attention against PyTorch's numbers, of
 * make_attention_masks.py, which has the same operands; and masks that do not fit. */
#include <math.h>

#include <trireme/trireme.h>

#include "golden/golden_sketch.h"
#include "testing/check.h"

enum { N = 2, T = 3, S = 4, C = 6, HEADS = 2, MOST = 128, CASES = 13 };

static tri_tensor *numbers(const int64_t *shape, int ndim, double seed)
{
    double values[MOST];

    for (int i = 0; i < MOST; i++)
        values[i] = sin(0.7 * i + seed);
    return tri_tensor_from(shape, ndim, TRI_DTYPE_F64, values);
}

static tri_tensor *padding_bools(void)
{
    uint8_t values[N * S];

    for (int i = 0; i < N * S; i++)
        values[i] = i / S == 1 && i % S >= 2;
    return tri_tensor_from(TRI_SHAPE(N, S), TRI_DTYPE_BOOL, values);
}

static tri_tensor *attn_bools(void)
{
    uint8_t values[T * S];

    for (int i = 0; i < T * S; i++)
        values[i] = i % S > i / S + 1;
    return tri_tensor_from(TRI_SHAPE(T, S), TRI_DTYPE_BOOL, values);
}

static tri_tensor *heads_bools(void)
{
    uint8_t values[N * HEADS * T * S];

    for (int i = 0; i < N * HEADS * T * S; i++)
        values[i] = (i / (T * S) + i / S % T + i % S) % 3 == 0;
    return tri_tensor_from(TRI_SHAPE(N * HEADS, T, S), TRI_DTYPE_BOOL, values);
}

/* Of the case's name: what begins with "padding", and what follows it. */
static tri_tensor *padding_of(const char *name)
{
    if (strncmp(name, "padding_numbers", 15) == 0)
        return numbers(TRI_SHAPE(N, S), 5);
    return strncmp(name, "padding", 7) == 0 ? padding_bools() : NULL;
}

static tri_tensor *attn_of(const char *name)
{
    if (strstr(name, "heads_numbers") != NULL)
        return numbers(TRI_SHAPE(N * HEADS, T, S), 7);
    if (strstr(name, "attn_numbers") != NULL)
        return numbers(TRI_SHAPE(T, S), 6);
    if (strstr(name, "heads") != NULL)
        return heads_bools();
    return strstr(name, "attn") != NULL ? attn_bools() : NULL;
}

static tri_module *layer(void)
{
    static const char *const names[4] = {"in_proj_weight", "in_proj_bias", "out_proj.weight",
                                         "out_proj.bias"};
    tri_module *module;

    tri_set_default_dtype(TRI_DTYPE_F64);
    module = tri_nn_multihead_attention(C, HEADS, NULL);
    CHECK_OK(tri_module_status(module));
    for (int i = 0; i < 4; i++) {
        tri_tensor *p = tri_module_find(module, names[i]);
        double values[MOST];

        for (int k = 0; k < MOST; k++)
            values[k] = sin(0.7 * k + i) / 2;
        CHECK_OK(tri_tensor_copy_in(p, values, (size_t)tri_tensor_numel(p) * sizeof(double)));
    }
    return module;
}

static void check_numbers(const char *name, tri_tensor *x, FILE *file)
{
    double got[MOST], wanted;
    int64_t n = tri_tensor_numel(x);

    CHECK_OK(tri_tensor_copy_out(x, got, (size_t)n * sizeof(double)));
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(fscanf(file, "%lf", &wanted), 1);
        if (!(fabs(got[i] - wanted) <= 1e-12))
            fail_msg("%s: element %lld is %.15g, not %.15g", name, (long long)i, got[i], wanted);
    }
}

static void masks_mean_what_torch_s_do(void **state)
{
    FILE *file = golden_open("attention_masks.txt");
    tri_module *module = layer();
    char name[64];
    int n = 0;

    (void)state;
    while (fscanf(file, " == %63s", name) == 1) {
        tri_tensor *in[5] = {numbers(TRI_SHAPE(N, T, C), 10), numbers(TRI_SHAPE(N, S, C), 11),
                             numbers(TRI_SHAPE(N, S, C), 12), padding_of(name), attn_of(name)};
        tri_tensor *y;

        for (int i = 0; i < 3; i++)
            tri_requires_grad(in[i], true);
        tri_forward_n(module, in, in[4] != NULL ? 5 : in[3] != NULL ? 4 : 3, &y, 1);
        tri_keep(y);
        tri_backward(tri_sum(tri_square(y), NULL, 0, false));
        check_numbers(name, y, file);
        for (int i = 0; i < 3; i++)
            check_numbers(name, tri_grad(in[i]), file);
        tri_step_end();
        for (int i = 0; i < 5; i++)
            tri_tensor_unref(in[i]);
        n++;
    }
    assert_int_equal(n, CASES);
    (void)fclose(file);
    tri_module_destroy(module);
}

/* Rows whose keys are all masked have no weights: what comes out is out_proj's bias, not NaN. */
static void a_query_that_may_look_at_nothing_has_the_bias(void **state)
{
    const uint8_t all[N * T] = {1, 1, 1, 0, 0, 0};
    tri_module *module = layer();
    tri_tensor *x = numbers(TRI_SHAPE(N, T, C), 3), *y;
    tri_tensor *padding = tri_tensor_from(TRI_SHAPE(N, T), TRI_DTYPE_BOOL, all);
    double off;

    (void)state;
    tri_forward_n(module, (tri_tensor *[]){x, x, x, padding}, 4, &y, 1);
    y = tri_sub(tri_select(y, 0, 0), tri_module_find(module, "out_proj.bias"));
    CHECK_OK(tri_item_status(tri_norm(y, 2, NULL, 0, false), &off));
    CHECK_NEAR(off, 0, 0);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(padding);
    tri_module_destroy(module);
}

static tri_status status_of(tri_module *module, tri_tensor *x, tri_tensor *key, tri_tensor *padding,
                            tri_tensor *attn)
{
    tri_tensor *y;

    tri_forward_n(module, (tri_tensor *[]){x, key, key, padding, attn}, 5, &y, 1);
    return tri_tensor_status(y);
}

static void what_does_not_fit_is_named(void **state)
{
    tri_module *module = layer();
    tri_tensor *x = numbers(TRI_SHAPE(N, T, C), 3), *key = numbers(TRI_SHAPE(N, S, C), 3);
    tri_tensor *narrow = numbers(TRI_SHAPE(N, S, 5), 3), *more = numbers(TRI_SHAPE(3, S, C), 3);
    tri_tensor *padding = padding_bools(), *attn = attn_bools(), *heads = heads_bools();
    tri_tensor *i64 = tri_tensor_create(TRI_SHAPE(N, S), TRI_DTYPE_I64), *y;

    (void)state;
    CHECK_OK(status_of(module, x, key, padding, heads));
    CHECK_OK(status_of(module, x, key, NULL, NULL));
    CHECK_FAILS(status_of(module, x, narrow, NULL, NULL), TRI_ERR_INVALID_ARG,
                "key is f64 [2, 4, 5], not [N, S, 6]");
    CHECK_FAILS(status_of(module, x, NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "key is NULL");
    CHECK_FAILS(status_of(module, x, more, NULL, NULL), TRI_ERR_INVALID_ARG,
                "key is f64 [3, 4, 6], but query is f64 [2, 3, 6]: their batches differ");
    tri_forward_n(module, (tri_tensor *[]){x, key, x}, 3, &y, 1);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                "value is f64 [2, 3, 6], but key is f64 [2, 4, 6]: their lengths differ");
    CHECK_FAILS(status_of(module, x, key, attn, NULL), TRI_ERR_INVALID_ARG,
                "key_padding_mask is bool [3, 4], not [2, 4] (N, S)");
    CHECK_FAILS(status_of(module, x, key, i64, NULL), TRI_ERR_INVALID_ARG,
                "key_padding_mask is i64 [2, 4]: bool (true: not looked at)");
    CHECK_FAILS(status_of(module, x, x, NULL, attn), TRI_ERR_INVALID_ARG,
                "attn_mask is bool [3, 4], not [3, 3] (T, S) or [4, 3, 3] (N heads, T, S)");
    CHECK_FAILS(status_of(module, x, key, NULL, x), TRI_ERR_INVALID_ARG,
                "attn_mask is f64 [2, 3, 6]");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(key);
    tri_tensor_unref(narrow);
    tri_tensor_unref(more);
    tri_tensor_unref(padding);
    tri_tensor_unref(attn);
    tri_tensor_unref(heads);
    tri_tensor_unref(i64);
    tri_module_destroy(module);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks_mean_what_torch_s_do),
    cmocka_unit_test(a_query_that_may_look_at_nothing_has_the_bias),
    cmocka_unit_test(what_does_not_fit_is_named),
};

TEST_MAIN(tests)
