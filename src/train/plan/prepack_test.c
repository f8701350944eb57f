/*
 * prepack_test.c - copies of parameters that stay from run to run: when they are made, and that
 * nothing depends on them. Each model has a twin whose copies are made in every run.
 */
/* ctest: also=TRI_ISA=avx2 */
#include <trireme/context.h>
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "os/thread.h"
#include "train/plan/plan.h"
#include "train/tensor/packed.h"
#include "testing/check.h"
#include "testing/spread_values.h"

/* Convolutions whose gradients read the weights in another order than the forward pass. */
#define CHANNELS 32
#define WEIGHTS 2
#define WEIGHT_BYTES ((size_t)CHANNELS * CHANNELS * 9 * sizeof(float))
#define X_SHAPE TRI_SHAPE(2, CHANNELS, 6, 5)
#define N (2 * CHANNELS * 6 * 5)

typedef struct model {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x;
} model;

static tri_tensor *weight(const model *m, int i)
{
    return tri_module_state(m->net, i).tensor;
}

/* packs = false: no copy of its parameters stays. */
static void model_init(model *m, bool packs)
{
    const tri_nn_conv2d_options conv = {.padding = 1, .no_bias = true};

    tri_manual_seed(1);
    m->net = tri_nn_sequential(tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv), tri_nn_tanh(),
                               tri_nn_conv2d(CHANNELS, CHANNELS, 3, &conv));
    m->opt = tri_sgd(m->net, 0.1, NULL);
    m->x = spread_values(X_SHAPE, 2);
    tri_requires_grad(m->x, true);
    assert_int_equal(tri_module_state_count(m->net), WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++) {
        assert_true(weight(m, i)->is_parameter);
        weight(m, i)->is_parameter = packs;
    }
}

static void model_fini(model *m)
{
    tri_tensor_unref(m->x);
    tri_optimizer_destroy(m->opt);
    tri_module_destroy(m->net);
}

/* A forward and a backward, each a run of its own. The gradient of x adds up. */
static void run_piece(const model *m)
{
    tri_tensor *y = tri_keep(tri_forward(m->net, m->x));

    CHECK_OK(tri_run());
    tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    CHECK_OK(tri_run());
}

static void check_equal(tri_tensor *a, tri_tensor *b)
{
    static float x[CHANNELS * CHANNELS * 9], y[CHANNELS * CHANNELS * 9];
    size_t bytes = (size_t)tri_tensor_numel(a) * sizeof(float);

    assert_true(bytes <= sizeof(x));
    CHECK_OK(tri_tensor_copy_out(a, x, bytes));
    CHECK_OK(tri_tensor_copy_out(b, y, bytes));
    assert_memory_equal(x, y, bytes);
}

static void check_twins(const model *a, const model *b)
{
    check_equal(tri_grad(a->x), tri_grad(b->x));
    for (int i = 0; i < WEIGHTS; i++) {
        check_equal(weight(a, i), weight(b, i));
        if (tri_grad(weight(a, i)) != NULL)
            check_equal(tri_grad(weight(a, i)), tri_grad(weight(b, i)));
    }
}

/* Pieces of one update; returns what the last backward has moved. */
static size_t run_pieces(const model *m, int n)
{
    size_t copied = 0;

    for (int i = 0; i < n; i++) {
        run_piece(m);
        copied = trii_plan_stats_get().copied_bytes;
    }
    return copied;
}

static void update(const model *m)
{
    CHECK_OK(tri_optimizer_step(m->opt));
    CHECK_OK(tri_step_end_status());
}

static void pieces_that_accumulate_share_one_copy_of_each_weight(void **state)
{
    model m, twin;
    size_t all, spared;

    (void)state;
    model_init(&m, true);
    model_init(&twin, false);
    for (int step = 0; step < 3; step++) {
        spared = run_pieces(&m, 4);
        assert_int_equal(trii_plan_stats_get().packed_bytes, WEIGHTS * WEIGHT_BYTES);
        update(&m);
        all = run_pieces(&twin, 4);
        update(&twin);
        assert_int_equal(all - spared, WEIGHTS * WEIGHT_BYTES);
        check_twins(&m, &twin);
    }
    model_fini(&m);
    assert_int_equal(trii_plan_stats_get().packed_bytes, 0);
    model_fini(&twin);
}

/* A plan that writes a parameter asks for no copy of it: none of its runs looks for one. */
static void a_step_that_is_one_plan_asks_for_nothing(void **state)
{
    model m;

    (void)state;
    model_init(&m, true);
    for (int step = 0; step < 4; step++) {
        tri_backward(tri_sum(tri_square(tri_forward(m.net, m.x)), NULL, 0, false));
        update(&m);
        for (int i = 0; i < WEIGHTS; i++)
            assert_null(atomic_load(&weight(&m, i)->packed));
    }
    model_fini(&m);
}

static void a_step_whose_backward_runs_once_keeps_nothing(void **state)
{
    model m;

    (void)state;
    model_init(&m, true);
    for (int step = 0; step < 4; step++) {
        run_piece(&m);
        assert_int_equal(trii_plan_stats_get().packed_bytes, 0); /* an update would free them */
        update(&m);
    }
    model_fini(&m);
}

static void memory_that_one_step_does_not_need_again_is_freed(void **state)
{
    model m;

    (void)state;
    model_init(&m, true);
    (void)run_pieces(&m, 3);
    update(&m);
    run_piece(&m);
    assert_int_equal(trii_plan_stats_get().packed_bytes, WEIGHTS * WEIGHT_BYTES);
    update(&m);
    assert_int_equal(trii_plan_stats_get().packed_bytes, 0);
    model_fini(&m);
}

static void new_contents_are_seen(void **state)
{
    model m, twin;

    (void)state;
    model_init(&m, true);
    model_init(&twin, false);
    for (int round = 0; round < 3; round++) {
        static float contents[CHANNELS * CHANNELS * 9];

        for (int i = 0; i < CHANNELS * CHANNELS * 9; i++)
            contents[i] = (float)((i * 7 + round) % 11) / 50;
        CHECK_OK(tri_tensor_copy_in(weight(&m, 1), contents, sizeof(contents)));
        CHECK_OK(tri_tensor_copy_in(weight(&twin, 1), contents, sizeof(contents)));
        (void)run_pieces(&m, 3);
        (void)run_pieces(&twin, 3);
        check_twins(&m, &twin);
        CHECK_OK(tri_step_end_status());
    }
    model_fini(&m);
    model_fini(&twin);
}

/* Reads the first weight as rows before the network does, so that it lies plain. */
static void run_plain_piece(const model *m)
{
    const int64_t rows[2] = {CHANNELS, (int64_t)CHANNELS * 9};
    tri_tensor *v = tri_reshape(weight(m, 0), rows, 2), *y;

    (void)tri_keep(tri_matmul(v, tri_transpose(v, 0, 1)));
    y = tri_keep(tri_forward(m->net, m->x));
    CHECK_OK(tri_run());
    tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    CHECK_OK(tri_run());
}

/* A program may write where tri_data says, and keep the address over steps. */
static void what_is_written_in_place_is_seen(void **state)
{
    static float contents[CHANNELS * CHANNELS * 9];
    float *place;
    model m, twin;

    (void)state;
    model_init(&m, true);
    model_init(&twin, false);
    for (int piece = 0; piece < 3; piece++) {
        run_plain_piece(&m);
        run_plain_piece(&twin);
    }
    CHECK_OK(tri_step_end_status());
    assert_true(trii_packed_bytes() > 0);
    place = (float *)(uintptr_t)tri_data(weight(&m, 0));
    assert_non_null(place);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CHANNELS * CHANNELS * 9; i++)
            contents[i] = (float)((i * 7 + round) % 11) / 50;
        memcpy(place, contents, sizeof(contents));
        CHECK_OK(tri_tensor_copy_in(weight(&twin, 0), contents, sizeof(contents)));
        for (int piece = 0; piece < 3; piece++) {
            run_plain_piece(&m);
            run_plain_piece(&twin);
        }
        check_twins(&m, &twin);
        CHECK_OK(tri_step_end_status());
    }
    model_fini(&m);
    model_fini(&twin);
}

/* A view wants the weight in plain order. tanh writes over what it reads, where it may. Another
 * reader gets the elements rounded, in the same order. */
static tri_tensor *square_of(const model *m)
{
    const int64_t rows[2] = {CHANNELS, (int64_t)CHANNELS * 9};
    tri_tensor *y, *rounded, *copy;

    tri_no_grad_begin();
    (void)tri_keep(tri_forward(m->net, m->x));
    rounded = tri_cast(tri_reshape(tri_cast(weight(m, 0), TRI_DTYPE_F16), rows, 2), TRI_DTYPE_F32);
    y = tri_tanh(tri_reshape(weight(m, 0), rows, 2));
    y = tri_matmul(y, tri_transpose(rounded, 0, 1));
    copy = tri_tensor_clone(y);
    tri_no_grad_end();
    CHECK_OK(tri_step_end_status());
    return copy;
}

static void kernels_do_not_write_over_copies(void **state)
{
    model m, twin;

    (void)state;
    model_init(&m, true);
    model_init(&twin, false);
    for (int round = 0; round < 5; round++) {
        tri_tensor *a = square_of(&m), *b = square_of(&twin);

        check_equal(a, b);
        tri_tensor_unref(a);
        tri_tensor_unref(b);
    }
    assert_int_equal(trii_plan_stats_get().packed_bytes, WEIGHT_BYTES);
    model_fini(&m);
    model_fini(&twin);
}

static int n_freed;

static tri_status lend(void *ctx, size_t bytes, void **data_out)
{
    (void)bytes;
    *data_out = ctx;
    return TRI_OK;
}

/* As a device's, it may take long: another run may begin meanwhile. */
static void free_unlocked(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)data;
    (void)bytes;
    trii_step_lock();
    n_freed++;
    trii_step_unlock();
}

/* As two runs do with such memory. */
static void keep_copy(tri_tensor *w)
{
    static const trii_storage_ops ops = {"the test", lend, free_unlocked};
    static float memory[4];
    static const trii_packed_kind kind = {.bytes = sizeof(memory)};
    trii_packed_use use;

    (void)trii_packed_take(w, &kind, w->version);
    use = trii_packed_take(w, &kind, w->version);
    assert_true(use.wanted);
    CHECK_OK(trii_storage_create(&ops, memory, sizeof(memory), &use.storage));
    assert_null(trii_packed_keep(w, &kind, w->version, use.storage));
    trii_storage_unref(use.storage);
}

static void memory_is_freed_without_the_lock(void **state)
{
    const float contents[4] = {1, 2, 3, 4};
    tri_tensor *w = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_F32, contents);

    (void)state;
    keep_copy(w);
    for (int i = 0; i < 2; i++) /* the next version is expected to be read as often */
        CHECK_OK(tri_tensor_copy_in(w, contents, sizeof(contents)));
    assert_int_equal(n_freed, 1);
    keep_copy(w);
    for (int i = 0; i < 2; i++)
        assert_non_null(tri_data(w));
    assert_int_equal(n_freed, 2);
    tri_tensor_unref(w);
}

/* --- several contexts ----------------------------------------------------- */

/* A context whose backward reads weights of before an update. */
static void write_and_run_kept(const model *m)
{
    tri_context *late;
    tri_tensor *y;
    trii_renewed old[WEIGHTS];

    (void)run_pieces(m, 3);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_create(&late));
    CHECK_OK(tri_context_enter(late));
    y = tri_keep(tri_forward(m->net, m->x));
    CHECK_OK(tri_run());
    for (int i = 0; i < WEIGHTS; i++)
        trii_step_keep_read(trii_step_current(), weight(m, i));
    CHECK_OK(tri_context_leave());
    for (int i = 0; i < WEIGHTS; i++)
        CHECK_OK(trii_tensor_renew(trii_step_current(), weight(m, i), &old[i]));
    CHECK_OK(tri_optimizer_step(m->opt));
    for (int i = 0; i < WEIGHTS; i++)
        trii_tensor_renew_end(weight(m, i), &old[i], true);
    CHECK_OK(tri_step_end_status());
    tri_optimizer_zero_grad(m->opt);
    (void)run_pieces(m, 2); /* copies are of the new contents */
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_enter(late));
    tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    CHECK_OK(tri_run());
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_leave());
    tri_context_destroy(late);
    (void)run_pieces(m, 2);
}

static void a_step_that_keeps_old_contents_reads_those(void **state)
{
    model m, twin;

    (void)state;
    model_init(&m, true);
    model_init(&twin, false);
    write_and_run_kept(&m);
    write_and_run_kept(&twin);
    check_twins(&m, &twin);
    model_fini(&m);
    model_fini(&twin);
}

typedef struct reader {
    const model *m;
    tri_tensor *x;
    float grad[N];
    tri_status status;
} reader;

static void read_weights(void *arg)
{
    reader *r = arg;

    r->status = TRI_OK;
    for (int i = 0; i < 4 && r->status == TRI_OK; i++) {
        tri_tensor *y = tri_keep(tri_forward(r->m->net, r->x)), *grad;

        r->status = tri_run();
        if (r->status == TRI_OK)
            r->status = tri_gradients((tri_tensor *[]){tri_sum(tri_square(y), NULL, 0, false)}, 1,
                                      &r->x, 1, NULL, &grad);
        if (r->status == TRI_OK)
            r->status = tri_tensor_copy_out(grad, r->grad, sizeof(r->grad));
        if (tri_step_end_status() != TRI_OK && r->status == TRI_OK)
            r->status = TRI_ERR_STATE;
    }
}

static void threads_share_copies(void **state)
{
    static reader readers[3];
    trii_thread threads[2];
    model m;

    (void)state;
    model_init(&m, true);
    for (int i = 0; i < 3; i++) {
        readers[i].m = &m;
        readers[i].x = spread_values(X_SHAPE, 2);
        tri_requires_grad(readers[i].x, true);
    }
    read_weights(&readers[2]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(trii_thread_start(&threads[i], "reader", read_weights, &readers[i]));
    for (int i = 0; i < 2; i++)
        trii_thread_join(&threads[i]);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(readers[i].status);
        assert_memory_equal(readers[i].grad, readers[2].grad, sizeof(readers[i].grad));
        tri_tensor_unref(readers[i].x);
    }
    assert_int_equal(trii_plan_stats_get().packed_bytes, WEIGHTS * WEIGHT_BYTES);
    model_fini(&m);
}

static void each_device_of_a_plan_finds_its_copies(void **state)
{
    model m, twin;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    model_init(&m, true);
    model_init(&twin, false);
    for (int i = 0; i < 2; i++) {
        tri_module *net = i == 0 ? m.net : twin.net;

        CHECK_OK(tri_module_to(tri_module_child(net, 2), TRI_CPU(1)));
    }
    for (int step = 0; step < 3; step++) {
        for (int piece = 0; piece < 3; piece++) {
            for (int i = 0; i < 2; i++) {
                const model *of = i == 0 ? &m : &twin;
                tri_tensor *y = tri_forward(tri_module_child(of->net, 0), of->x);

                y = tri_keep(
                    tri_forward(tri_module_child(of->net, 2), tri_to(tri_tanh(y), TRI_CPU(1))));
                CHECK_OK(tri_run());
                tri_backward(tri_sum(tri_square(y), NULL, 0, false));
                CHECK_OK(tri_run());
            }
        }
        assert_int_equal(trii_plan_stats_get().packed_bytes, WEIGHTS * WEIGHT_BYTES);
        CHECK_OK(tri_optimizer_step(m.opt));
        CHECK_OK(tri_optimizer_step(twin.opt));
        check_twins(&m, &twin);
        CHECK_OK(tri_step_end_status());
    }
    model_fini(&m);
    model_fini(&twin);
}

/* --- memory --------------------------------------------------------------- */

/* The run that would keep copies, with one failing allocation; whether it succeeded. */
static bool run_short_of_memory(const model *m, int fail_at)
{
    tri_tensor *y;
    tri_status status;

    run_piece(m);
    y = tri_keep(tri_forward(m->net, m->x));
    CHECK_OK(tri_run());
    tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    trii_alloc_fail_at(fail_at);
    status = tri_run();
    trii_alloc_fail_at(0);
    return status == TRI_OK;
}

static void a_run_without_memory_for_copies_makes_them_in_the_arena(void **state)
{
    model m, twin;
    size_t kept = 0;
    bool found = false;

    (void)state;
    model_init(&m, true); /* the plans are made for a model that packs */
    (void)run_pieces(&m, 2);
    model_fini(&m);
    model_init(&twin, false);
    (void)run_pieces(&twin, 2);
    for (int n = 1; n < 100 && kept < WEIGHTS * WEIGHT_BYTES; n++) {
        model_init(&m, true);
        if (run_short_of_memory(&m, n)) {
            kept = trii_plan_stats_get().packed_bytes;
            found = found || kept < WEIGHTS * WEIGHT_BYTES;
            check_twins(&m, &twin);
        }
        (void)!tri_step_end_status();
        model_fini(&m);
    }
    assert_true(found);
    assert_int_equal(kept, WEIGHTS * WEIGHT_BYTES);
    model_fini(&twin);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_that_accumulate_share_one_copy_of_each_weight),
    cmocka_unit_test(a_step_that_is_one_plan_asks_for_nothing),
    cmocka_unit_test(a_step_whose_backward_runs_once_keeps_nothing),
    cmocka_unit_test(memory_that_one_step_does_not_need_again_is_freed),
    cmocka_unit_test(new_contents_are_seen),
    cmocka_unit_test(what_is_written_in_place_is_seen),
    cmocka_unit_test(kernels_do_not_write_over_copies),
    cmocka_unit_test(memory_is_freed_without_the_lock),
    cmocka_unit_test(a_step_that_keeps_old_contents_reads_those),
    cmocka_unit_test(threads_share_copies),
    cmocka_unit_test(each_device_of_a_plan_finds_its_copies),
    cmocka_unit_test(a_run_without_memory_for_copies_makes_them_in_the_arena),
};

TEST_MAIN(tests)
