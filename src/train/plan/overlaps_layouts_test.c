/* overlaps_layouts_test.c - tensors that share memory: their layouts, copies of them in others, and
 * contexts that read one while others write another. */
/* ctest: also=TRI_EAGER=1 */
#include <trireme/context.h>

#include "testing/shared_unit.h"
#include "train/graph/step/hold.h"
#include "train/tensor/packed.h"

/* --- layouts and copies --------------------------------------------------- */

#define CHANNELS 32
#define WEIGHT (CHANNELS * CHANNELS * 9)

typedef struct layers {
    tri_module *net;
    tri_tensor *x, *flat, *weight[2];
} layers;

/* Two convolutions. shares: their weights are ranges of a unit. */
static layers make_layers(bool shares)
{
    const tri_nn_conv2d_options conv = {.padding = 1, .no_bias = true};
    float values[2 * CHANNELS * 6 * 5];
    layers l = {.flat = NULL};

    tri_manual_seed(1);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        values[i] = (float)(i * 37 % 101) / 50 - 1;
    l.net = tri_nn_sequential(tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv), tri_nn_tanh(),
                              tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv));
    l.x = tri_tensor_from(TRI_SHAPE(2, CHANNELS, 6, 5), TRI_DTYPE_F32, values);
    tri_requires_grad(l.x, true);
    for (int i = 0; i < 2; i++)
        l.weight[i] = tri_module_state(l.net, i).tensor;
    if (!shares)
        return l;
    l.flat = tri_tensor_create(TRI_SHAPE(2 * WEIGHT), TRI_DTYPE_F32);
    tri_tensor_unref(range(l.flat, 0, 1)); /* from now on it is shared */
    for (int i = 0; i < 2; i++)
        CHECK_OK(
            trii_tensor_move(l.weight[i], l.flat->storage, (size_t)i * WEIGHT * sizeof(float)));
    return l;
}

static void free_layers(const layers *l)
{
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(l->flat);
    tri_tensor_unref(l->x);
    tri_module_destroy(l->net);
}

/* A forward and a backward, each a run of its own. */
static double run_piece(const layers *l)
{
    tri_tensor *y = tri_keep(tri_forward(l->net, l->x)), *loss;

    CHECK_OK(tri_run());
    loss = tri_keep(tri_sum(tri_square(y), NULL, 0, false));
    tri_backward(loss);
    return tri_item(loss);
}

static void weights_of_a_unit_keep_their_layout(void **state)
{
    layers own = make_layers(false), shared = make_layers(true);
    double a = 0, b = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        a = run_piece(&own);
        b = run_piece(&shared);
        CHECK_OK(tri_step_end_status());
    }
    CHECK_NEAR(a, b, 1e-6 * a);
    for (int i = 0; i < 2; i++) {
        if (!is_eager())
            assert_non_null(own.weight[i]->layout); /* else this tests nothing */
        assert_null(shared.weight[i]->layout);
    }
    free_layers(&own);
    free_layers(&shared);
}

static void a_write_of_the_unit_drops_copies_of_its_weights(void **state)
{
    layers l = make_layers(true);
    double first = 0, second;
    float *data;

    (void)state;
    for (int i = 0; i < 3; i++)
        first = run_piece(&l);
    assert_true(trii_packed_bytes() > 0 || is_eager());
    CHECK_OK(tri_step_end_status());
    /* by a run */
    leave_in(tri_mul_scalar(l.flat, 0.5), l.flat);
    CHECK_OK(tri_run());
    CHECK_OK(tri_step_end_status());
    second = run_piece(&l);
    assert_true(second < 0.9 * first);
    CHECK_OK(tri_step_end_status());
    /* nor is their memory kept when nobody has asked for them between two writes */
    for (int i = 0; i < 2; i++)
        leave_in(tri_mul_scalar(l.flat, 0.5), l.flat);
    CHECK_OK(tri_run());
    leave_in(tri_mul_scalar(l.flat, 0.5), l.flat);
    CHECK_OK(tri_step_end_status());
    assert_int_equal(trii_packed_bytes(), 0);
    /* by the program */
    fill(l.flat, 0);
    assert_true(run_piece(&l) == 0);
    CHECK_OK(tri_step_end_status());
    /* and through its address */
    for (int i = 0; i < 3; i++)
        (void)run_piece(&l);
    assert_true(trii_packed_bytes() > 0 || is_eager());
    data = (float *)(uintptr_t)tri_data(l.flat); // NOLINT: the program's own way to write
    for (size_t i = 0; i < (size_t)2 * WEIGHT; i++)
        data[i] = 0.01f;
    assert_true(run_piece(&l) > 0);
    free_layers(&l);
}

/* --- several contexts ----------------------------------------------------- */

static void another_context_that_writes_the_unit_is_noticed(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_context *other = NULL;
    tri_tensor *y;

    (void)state;
    y = plus(u.a, 1);
    CHECK_OK(tri_run());
    CHECK_OK(tri_context_create(&other));
    CHECK_OK(tri_context_enter(other));
    leave_in(tri_mul_scalar(u.flat, 2), u.flat);
    CHECK_OK(tri_run());
    tri_step_end();
    CHECK_OK(tri_context_leave());
    EXPECT(y, 2);
    (void)tri_keep(tri_add(y, u.a));
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "has overwritten since");
    tri_step_end();
    tri_context_destroy(other);
    EXPECT(plus(u.a, 1), 3);
    free_unit(&u);
}

static tri_status hold(trii_recorder *r, tri_tensor *tensor, bool writes)
{
    tri_status status = trii_hold_one(r, tensor, writes);

    if (status == TRI_OK)
        trii_hold_end(r);
    return status;
}

/* While the run of one context reads or writes a part. */
static void runs_of_two_contexts_exclude_each_other_by_bytes(void **state)
{
    trii_recorder *here = trii_recorder_of(trii_step_current());
    unit u = make_unit(SMALL, 1);
    tri_context *other = NULL;

    (void)state;
    CHECK_OK(tri_context_create(&other));
    CHECK_OK(trii_hold_one(here, u.a, true));
    CHECK_FAILS(hold(other, u.flat, false), TRI_ERR_STATE, "");
    CHECK_FAILS(hold(other, u.shard, true), TRI_ERR_STATE, "");
    CHECK_OK(hold(other, u.b, true));
    trii_hold_end(here);
    CHECK_OK(trii_hold_one(here, u.a, false));
    CHECK_OK(hold(other, u.flat, false));
    CHECK_FAILS(hold(other, u.shard, true), TRI_ERR_STATE, "");
    CHECK_OK(hold(other, u.b, true));
    trii_hold_end(here);
    CHECK_OK(hold(other, u.shard, true));
    tri_context_destroy(other);
    free_unit(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_of_a_unit_keep_their_layout),
    cmocka_unit_test(a_write_of_the_unit_drops_copies_of_its_weights),
    cmocka_unit_test(another_context_that_writes_the_unit_is_noticed),
    cmocka_unit_test(runs_of_two_contexts_exclude_each_other_by_bytes),
};

TEST_MAIN(tests)
