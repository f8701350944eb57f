/* bag_layer_test.c - embedding_bag: where bags end, and what is refused; dropout2d. Values and
 * gradients: tests/golden/ops.txt. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/layer_calls.h"

/* Rows 0 to 3 of the weight are 1, 10, 100 and 1000. */
static double bag(tri_module *layer, tri_tensor *offsets, tri_tensor *factors, int64_t number)
{
    const int64_t indices[6] = {0, 1, 1, 3, 2, 0};
    tri_tensor *in[3] = {tri_tensor_from(TRI_SHAPE(6), TRI_DTYPE_I64, indices), offsets, factors};
    tri_tensor *y;
    double value;

    tri_forward_n(layer, in, 3, &y, 1);
    CHECK_OK(tri_item_status(tri_select(tri_flatten(y, 0), 0, number), &value));
    tri_step_end();
    tri_tensor_unref(in[0]);
    return value;
}

static tri_module *bags_of(tri_bag_mode mode, bool include_last_offset, double padding_idx)
{
    const float rows[4] = {1, 10, 100, 1000};
    tri_nn_embedding_bag_options opt = {.mode = mode, .include_last_offset = include_last_offset};
    tri_module *layer;

    if (padding_idx >= 0)
        opt.padding_idx = TRI_SET(padding_idx);
    layer = tri_nn_embedding_bag(4, 1, &opt);
    CHECK_OK(tri_tensor_copy_in(tri_module_find(layer, "weight"), rows, sizeof(rows)));
    return layer;
}

static void bags_end_where_offsets_say(void **state)
{
    const int64_t begin[4] = {0, 3, 3, 5};
    const float factors[6] = {1, 2, 3, 4, 5, 6};
    tri_tensor *offsets = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_I64, begin);
    tri_tensor *each = tri_tensor_from(TRI_SHAPE(6), TRI_DTYPE_F32, factors);
    tri_module *sum = bags_of(TRI_BAG_SUM, false, -1), *ends = bags_of(TRI_BAG_SUM, true, -1);
    tri_module *mean = bags_of(TRI_BAG_MEAN, false, 1), *most = bags_of(TRI_BAG_AMAX, true, 3);

    (void)state;
    assert_true(bag(sum, offsets, NULL, 0) == 21);
    assert_true(bag(sum, offsets, NULL, 1) == 0);
    assert_true(bag(sum, offsets, NULL, 2) == 1100);
    assert_true(bag(sum, offsets, NULL, 3) == 1);
    assert_true(bag(sum, offsets, each, 0) == 51);
    assert_true(bag(sum, offsets, each, 2) == 4500);
    assert_true(bag(ends, offsets, NULL, 2) == 1100); /* and index 5 is in no bag */
    assert_true(bag(mean, offsets, NULL, 0) == 1);    /* row 1 is not counted */
    assert_true(bag(mean, offsets, NULL, 2) == 550);
    assert_true(bag(most, offsets, NULL, 0) == 10);
    assert_true(bag(most, offsets, NULL, 2) == 100);
    tri_module_destroy(sum);
    tri_module_destroy(ends);
    tri_module_destroy(mean);
    tri_module_destroy(most);
    tri_tensor_unref(offsets);
    tri_tensor_unref(each);
}

static void check_run_refused(tri_module *layer, const int64_t *begin, int n, const char *line)
{
    const int64_t indices[3] = {0, 1, 1};
    tri_tensor *in[2] = {tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_I64, indices),
                         tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, begin)};
    tri_tensor *y;
    double value;

    tri_forward_n(layer, in, 2, &y, 1);
    CHECK_FAILS(tri_item_status(tri_sum(y, NULL, 0, false), &value), TRI_ERR_INVALID_ARG, line);
    tri_step_end();
    tri_tensor_unref(in[0]);
    tri_tensor_unref(in[1]);
}

static void bags_say_what_they_refuse(void **state)
{
    tri_module *layer = bags_of(TRI_BAG_MEAN, false, -1);
    tri_tensor *x = tri_zeros(TRI_SHAPE(3), TRI_DTYPE_I64), *y;
    tri_tensor *x2 = tri_reshape(x, TRI_SHAPE(3, 1));

    (void)state;
    layer_refused(tri_nn_embedding_bag(0, 3, NULL), "num_embeddings must be at least 1");
    layer_refused(tri_nn_embedding_bag(4, 3, &(tri_nn_embedding_bag_options){.mode = 7}),
                  "mode 7: mean, sum and max are allowed");
    layer_refused(
        tri_nn_embedding_bag(4, 3, &(tri_nn_embedding_bag_options){.padding_idx = TRI_SET(4)}),
        "padding_idx 4 is out of range (4 rows)");
    y = tri_forward(layer, x);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "indices of 1 dimension need offsets");
    tri_forward_n(layer, (tri_tensor *[]){x2, x}, 2, &y, 1);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                "indices of 2 dimensions take no offsets");
    tri_forward_n(layer, (tri_tensor *[]){x2, NULL, tri_ones(TRI_SHAPE(3, 1), TRI_DTYPE_F32)}, 3,
                  &y, 1);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "per_sample_weights are for sums only");
    tri_step_end();
    check_run_refused(layer, (const int64_t[]){1, 2}, 2, "offsets[0] is 1: must begin at 0");
    check_run_refused(layer, (const int64_t[]){0, 2, 1}, 3, "offsets[2] is 1");
    check_run_refused(layer, (const int64_t[]){0, 4}, 2, "offsets[1] is 4");
    tri_module_destroy(layer);
}

static void dropout2d_drops_whole_channels(void **state)
{
    tri_module *layer = tri_nn_dropout2d(0.5);
    float values[8 * 8 * 4], got[8 * 8 * 4];
    tri_tensor *x, *y;
    int dropped = 0;

    (void)state;
    for (int i = 0; i < 256; i++)
        values[i] = (float)(i + 1);
    x = tri_tensor_from(TRI_SHAPE(8, 8, 2, 2), TRI_DTYPE_F32, values);
    y = tri_keep(tri_forward(layer, x));
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    for (int channel = 0; channel < 64; channel++) {
        float factor = got[4 * channel] == 0 ? 0.0f : 2.0f;

        dropped += factor == 0;
        for (int i = 4 * channel; i < 4 * channel + 4; i++)
            assert_true(got[i] == factor * values[i]);
    }
    assert_true(dropped > 10 && dropped < 54);
    tri_module_train(layer, false);
    CHECK_OK(tri_tensor_copy_out(tri_keep(tri_forward(layer, x)), got, sizeof(got)));
    assert_memory_equal(got, values, sizeof(got));
    CHECK_FAILS(tri_tensor_status(tri_dropout2d(tri_flatten(x, 0), 0.5, true)), TRI_ERR_INVALID_ARG,
                "x has 1 dimensions, not [N, C, ..]");
    layer_refused(tri_nn_dropout2d(-0.5), "p must be in [0, 1]");
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bags_end_where_offsets_say),
    cmocka_unit_test(bags_say_what_they_refuse),
    cmocka_unit_test(dropout2d_drops_whole_channels),
};

TEST_MAIN(tests)
