/* lstm_layer_test.c - initial values, states, dropout between layers, and what is refused. Values
 * and gradients: tests/golden/ops.txt. */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/layer_calls.h"
#include "testing/nn_golden.h"

#define WEIGHTS 16

static double difference(tri_tensor *a, tri_tensor *b)
{
    double off;

    CHECK_OK(tri_tensor_status(a));
    CHECK_OK(tri_tensor_status(b));
    assert_int_equal(tri_tensor_ndim(a), tri_tensor_ndim(b));
    CHECK_OK(tri_item_status(tri_amax(tri_abs(tri_sub(a, b)), NULL, 0, false), &off));
    return off;
}

static void check_numbers(tri_tensor *tensor, const double **wanted_io, double bound)
{
    int64_t n = tri_tensor_numel(tensor);
    double got[64];

    assert_true(n <= 64);
    CHECK_OK(tri_tensor_status(tensor));
    CHECK_OK(tri_tensor_copy_out(tri_keep(tensor), got, (size_t)n * sizeof(*got)));
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(got[i] - *(*wanted_io)++) <= bound);
}

static void weights_start_as_in_torch_and_give_its_numbers(void **state)
{
    static const char *const last[4] = {"weight_ih_l1_reverse", "weight_hh_l1_reverse",
                                        "bias_ih_l1_reverse", "bias_hh_l1_reverse"};
    const double *wanted = golden_lstm_weights;
    double values[24];
    tri_module *layer;
    tri_tensor *x, *out[3];

    (void)state;
    tri_manual_seed(5);
    tri_set_default_dtype(TRI_DTYPE_F64);
    layer = tri_nn_lstm(3, 2, &(tri_nn_lstm_options){.num_layers = 2, .bidirectional = true});
    tri_set_default_dtype(TRI_DTYPE_F32);
    assert_int_equal(tri_module_state_count(layer), WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++)
        check_numbers(tri_module_state(layer, i).tensor, &wanted, 0);
    assert_string_equal(tri_module_state(layer, 0).name, "weight_ih_l0");
    assert_string_equal(tri_module_state(layer, 6).name, "bias_ih_l0_reverse");
    for (int i = 0; i < 4; i++)
        assert_string_equal(tri_module_state(layer, 12 + i).name, last[i]);
    for (int i = 0; i < 24; i++)
        values[i] = -1 + 2.0 * i / 23;
    x = tri_tensor_from(TRI_SHAPE(4, 2, 3), TRI_DTYPE_F64, values);
    tri_forward_n(layer, &x, 1, out, 3);
    wanted = golden_lstm_y;
    for (int i = 0; i < 3; i++)
        check_numbers(out[i], &wanted, 1e-15);
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
}

/* A sequence in two pieces, the second from the state of the first, is the sequence. */
static void states_go_on(void **state)
{
    tri_module *layer =
        tri_nn_lstm(3, 2, &(tri_nn_lstm_options){.num_layers = 2, .batch_first = true});
    tri_tensor *x = layer_input(TRI_SHAPE(2, 5, 3)), *whole[3], *first[3], *rest[3];

    (void)state;
    tri_forward_n(layer, &x, 1, whole, 3);
    tri_forward_n(layer, (tri_tensor *[]){tri_narrow(x, 1, 0, 2)}, 1, first, 3);
    tri_forward_n(layer, (tri_tensor *[]){tri_narrow(x, 1, 2, 3), first[1], first[2]}, 3, rest, 3);
    for (int i = 1; i < 3; i++)
        assert_true(difference(rest[i], whole[i]) < 1e-6);
    tri_step_end();
    tri_forward_n(layer, &x, 1, whole, 1);
    tri_forward_n(layer, (tri_tensor *[]){tri_narrow(x, 1, 0, 2)}, 1, first, 3);
    tri_forward_n(layer, (tri_tensor *[]){tri_narrow(x, 1, 2, 3), first[1], first[2]}, 3, rest, 1);
    assert_true(difference(tri_concat((tri_tensor *[]){first[0], rest[0]}, 2, 1), whole[0]) < 1e-6);
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
}

/* Without a batch, shapes lack it and the numbers are those of one row. */
static void a_sequence_may_lack_the_batch(void **state)
{
    tri_module *layer = tri_nn_lstm(3, 2, &(tri_nn_lstm_options){.bidirectional = true});
    tri_tensor *x = layer_input(TRI_SHAPE(4, 1, 3)), *one[3], *out[3];
    tri_tensor *alone = tri_select(x, 1, 0);

    (void)state;
    tri_forward_n(layer, &x, 1, out, 3);
    tri_forward_n(layer, &alone, 1, one, 3);
    for (int i = 0; i < 3; i++)
        out[i] = tri_select(out[i], 1, 0);
    for (int i = 0; i < 3; i++) {
        (void)tri_keep(out[i]);
        (void)tri_keep(one[i]);
    }
    for (int i = 0; i < 3; i++)
        assert_true(difference(one[i], out[i]) == 0);
    tri_forward_n(layer, (tri_tensor *[]){tri_select(x, 1, 0), one[1], one[2]}, 3, out, 1);
    CHECK_OK(tri_tensor_status(out[0]));
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
}

/* The second of two layers reads what tri_dropout makes of the first one's results. */
static void dropout_acts_between_layers_in_training(void **state)
{
    tri_module *layer = tri_nn_lstm(3, 4, &(tri_nn_lstm_options){.num_layers = 2, .dropout = 0.5});
    tri_tensor *x = layer_input(TRI_SHAPE(3, 2, 3)), *w[8], *y, *by_hand[3];

    (void)state;
    for (int i = 0; i < 8; i++)
        w[i] = tri_module_state(layer, i).tensor;
    tri_rng_state_set(&(tri_rng){.step = 7});
    y = tri_tensor_clone(tri_forward(layer, x));
    tri_step_end();
    tri_rng_state_set(&(tri_rng){.step = 7});
    tri_lstm(x, w, 4, NULL, by_hand);
    tri_lstm(tri_dropout(by_hand[0], 0.5, true), w + 4, 4, NULL, by_hand);
    assert_true(difference(y, by_hand[0]) == 0);
    tri_step_end();
    tri_module_train(layer, false);
    tri_lstm(x, w, 8, &(tri_lstm_options){.num_layers = 2}, by_hand);
    assert_true(difference(tri_forward(layer, x), by_hand[0]) == 0);
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void an_lstm_says_what_it_refuses(void **state)
{
    tri_module *layer = tri_nn_lstm(3, 2, NULL);
    tri_tensor *x = layer_input(TRI_SHAPE(4, 2, 3)), *h = layer_input(TRI_SHAPE(1, 3, 2)), *out[3];

    (void)state;
    layer_refused(tri_nn_lstm(3, 0, NULL), "both must be at least 1");
    layer_refused(tri_nn_lstm(3, 2, &(tri_nn_lstm_options){.num_layers = -1}),
                  "num_layers must be in [1, 1024]");
    layer_refused(tri_nn_lstm(3, 2, &(tri_nn_lstm_options){.dropout = 1.5}),
                  "dropout must be in [0, 1]");
    tri_forward_n(layer, (tri_tensor *[]){x, h}, 2, out, 1);
    CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "not 2 inputs to 1 outputs");
    tri_forward_n(layer, (tri_tensor *[]){x, h, h}, 3, out, 3);
    CHECK_FAILS(tri_tensor_status(out[2]), TRI_ERR_INVALID_ARG,
                "h0 is f32 [1, 3, 2], not f32 [1, 2, 2]");
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_tensor_unref(h);
}

/* What tri_lstm says of an argument that does not fit the others. */
static void refused(tri_tensor *x, tri_tensor *const *w, int n, tri_lstm_options opt,
                    const char *line)
{
    tri_tensor *out[3];

    tri_lstm(x, w, n, &opt, out);
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(tri_tensor_status(out[i]), TRI_ERR_INVALID_ARG, line);
}

static void operands_of_an_lstm_must_fit(void **state)
{
    tri_module *layer = tri_nn_lstm(3, 2, NULL);
    tri_tensor *x = layer_input(TRI_SHAPE(4, 2, 3)), *h = layer_input(TRI_SHAPE(1, 3, 2)), *w[4];
    const tri_lstm_options plain = {0};

    (void)state;
    for (int i = 0; i < 4; i++)
        w[i] = tri_module_state(layer, i).tensor;
    refused(x, w, 3, plain, "3 weights: 1 layers, 1 directions and biases take 4");
    refused(tri_narrow(x, 2, 0, 2), w, 4, plain, "weights[0] is f32 [8, 3], not f32 [8, 2]");
    refused(x, w, 4, (tri_lstm_options){.h0 = h}, "h0 is f32 [1, 3, 2], not f32 [1, 2, 2]");
    refused(x, w, 4, (tri_lstm_options){.h0 = tri_narrow(h, 1, 0, 2)}, "c0 is NULL");
    refused(tri_narrow(x, 0, 0, 0), w, 4, plain, "x has no time steps");
    refused(x, w, 4, (tri_lstm_options){.num_layers = 2000}, "2000 layers: 1 to 1024 are allowed");
    refused(x, w, 4, (tri_lstm_options){.dropout = -1}, "dropout is -1, not in [0, 1]");
    refused(tri_flatten(x, 0), w, 4, plain, "x has 1 dimensions: [T, N, features]");
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_tensor_unref(h);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_start_as_in_torch_and_give_its_numbers),
    cmocka_unit_test(states_go_on),
    cmocka_unit_test(a_sequence_may_lack_the_batch),
    cmocka_unit_test(dropout_acts_between_layers_in_training),
    cmocka_unit_test(an_lstm_says_what_it_refuses),
    cmocka_unit_test(operands_of_an_lstm_must_fit),
};

TEST_MAIN(tests)
