/* plan_test.c - memory planning, cache, fusion, binding and host operations, against eager runs. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"
#include "train/plan/memory.h"
#include "train/plan/plan.h"
#include "testing/check.h"

static uint32_t random_state = 12345;

static uint32_t random_next(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

static void no_two_live_buffers_overlap(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        trii_interval it[120];
        int32_t n = (int32_t)random_next(120);
        size_t total = 1, live_max = 0;

        for (int32_t i = 0; i < n; i++) {
            it[i].first = (int32_t)random_next(100);
            it[i].last = it[i].first + (int32_t)random_next(round % 2 ? 100 : 8);
            it[i].bytes = random_next(10) == 0 ? 0 : random_next(5000);
        }
        CHECK_OK(trii_memory_plan(it, n, &total));
        for (int32_t t = 0; t < 200; t++) {
            size_t live = 0;

            for (int32_t i = 0; i < n; i++)
                live += it[i].first <= t && t <= it[i].last ? it[i].bytes : 0;
            live_max = live > live_max ? live : live_max;
        }
        assert_true(total >= live_max);
        for (int32_t i = 0; i < n; i++) {
            assert_true(it[i].offset % TRII_MEMORY_ALIGN == 0);
            assert_true(it[i].offset + it[i].bytes <= total);
            for (int32_t j = 0; j < i; j++) {
                bool together = it[i].first <= it[j].last && it[j].first <= it[i].last;
                bool apart = it[i].offset + it[i].bytes <= it[j].offset ||
                             it[j].offset + it[j].bytes <= it[i].offset;

                assert_true(!together || apart);
            }
        }
    }
}

/* --- training steps, planned and eager ------------------------------------ */

#define BATCH 20
typedef struct mlp {
    tri_tensor *x, *y, *w1, *b1, *w2, *b2;
} mlp;

static tri_tensor *noise(const int64_t *shape, int ndim, uint32_t seed)
{
    float data[4096];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    random_state = seed;
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((int)random_next(2001) - 1000) / 1000;
    return tri_tensor_from(shape, ndim, TRI_DTYPE_F32, data);
}

static void mlp_init(mlp *m)
{
    m->x = noise((int64_t[]){BATCH, 10}, 2, 1);
    m->y = noise((int64_t[]){BATCH, 5}, 2, 2);
    m->w1 = noise((int64_t[]){10, 10}, 2, 3);
    m->b1 = noise((int64_t[]){10}, 1, 4);
    m->w2 = noise((int64_t[]){5, 10}, 2, 5);
    m->b2 = noise((int64_t[]){5}, 1, 6);
    tri_requires_grad(m->w1, true);
    tri_requires_grad(m->b1, true);
    tri_requires_grad(m->w2, true);
    tri_requires_grad(m->b2, true);
}

static void mlp_fini(mlp *m)
{
    tri_tensor_unref(m->x);
    tri_tensor_unref(m->y);
    tri_tensor_unref(m->w1);
    tri_tensor_unref(m->b1);
    tri_tensor_unref(m->w2);
    tri_tensor_unref(m->b2);
}

static void sgd(tri_tensor *p)
{
    trii_step *step = trii_step_current();
    trii_vid g = TRII_NO_VALUE, update = TRII_NO_VALUE;

    CHECK_OK(trii_grad_consume(step, p, &g));
    CHECK_OK(trii_resolve(step, tri_sub(p, tri_mul_scalar(trii_handle(step, g), 0.1)), &update));
    CHECK_OK(trii_bind(step, update, p));
}

static bool may_allocate = true;

static double mlp_step(const mlp *m, bool read)
{
    tri_tensor *h, *loss;
    double value = 0;

    trii_alloc_fail_at(may_allocate ? 0 : 1);
    h = tri_relu(tri_linear(m->x, m->w1, m->b1));
    loss = tri_mse_loss(tri_linear(h, m->w2, m->b2), m->y, NULL);
    tri_backward(loss);
    sgd(m->w1);
    sgd(m->b1);
    sgd(m->w2);
    sgd(m->b2);
    CHECK_OK(tri_run());
    if (read)
        value = tri_item(loss);
    CHECK_OK(tri_step_end_status());
    trii_alloc_fail_at(0);
    return value;
}

static void check_close(tri_tensor *a, tri_tensor *b, double tolerance)
{
    float x[4096], y[4096];
    size_t bytes = (size_t)tri_tensor_numel(a) * sizeof(float);

    CHECK_OK(tri_tensor_copy_out(a, x, bytes));
    CHECK_OK(tri_tensor_copy_out(b, y, bytes));
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        if (!(fabs((double)x[i] - (double)y[i]) <= tolerance * (1 + fabs((double)y[i]))))
            fail_msg("element %zu: %.9g instead of %.9g", i, (double)x[i], (double)y[i]);
    }
}

static void an_mlp_trains_as_eager_does(void **state)
{
    mlp planned, eager;

    (void)state;
    mlp_init(&planned);
    mlp_init(&eager);
    for (int step = 0; step < 20; step++) {
        double a, b;

        trii_executor_set(NULL);
        a = mlp_step(&planned, step % 3 != 0);
        trii_executor_set(&trii_executor_reference);
        b = mlp_step(&eager, step % 3 != 0);
        CHECK_NEAR(a, b, 1e-5);
    }
    check_close(planned.w1, eager.w1, 1e-5);
    check_close(planned.b1, eager.b1, 1e-5);
    check_close(planned.w2, eager.w2, 1e-5);
    check_close(planned.b2, eager.b2, 1e-5);
    mlp_fini(&planned);
    mlp_fini(&eager);
    trii_executor_set(NULL);
    trii_step_release();
    assert_int_equal(trii_alloc_live(), 0);
}

static void equal_steps_hit_the_cache_and_allocate_nothing(void **state)
{
    mlp m;
    trii_plan_stats before, after;
    long live;

    (void)state;
    mlp_init(&m);
    for (int step = 0; step < 4; step++)
        mlp_step(&m, true);
    before = trii_plan_stats_get();
    live = trii_alloc_live();
    may_allocate = false;
    for (int step = 0; step < 10; step++)
        mlp_step(&m, true);
    after = trii_plan_stats_get();
    assert_int_equal(after.misses, before.misses);
    assert_int_equal(after.hits, before.hits + 10);
    assert_int_equal(trii_alloc_live(), live);
    mlp_fini(&m);
}

/* Each allocation of the first run fails once: the run says so, nothing leaks, and the next step
 * works. */
static void out_of_memory_while_compiling(void **state)
{
    int failures = 0;

    (void)state;
    for (long n = 1;; n++) {
        const float data[4] = {1, 2, 3, 4};
        tri_tensor *x = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, data), *y;
        tri_status status;
        float got[4];

        y = tri_keep(tri_relu(tri_matmul(tri_add(x, x), x)));
        trii_alloc_fail_at(n);
        status = tri_run();
        trii_alloc_fail_at(0);
        if (status == TRI_OK) {
            CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
            CHECK_NEAR(got[0], 14, 0);
        } else {
            assert_int_equal(status, TRI_ERR_NO_MEMORY);
            failures++;
        }
        tri_step_end();
        y = tri_keep(tri_matmul(x, x));
        if (status == TRI_OK)
            CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
        tri_step_end();
        tri_tensor_unref(x);
        trii_step_release();
        assert_int_equal(trii_alloc_live(), 0);
        if (status == TRI_OK)
            break;
    }
    assert_true(failures > 5);
}

/* --- host operations ------------------------------------------------------ */

static int events[64], n_events;

typedef struct late_op {
    trii_host_op base;
    int number, polls_left;
    trii_host_buffers buffers;
    size_t elems;
} late_op;

static tri_status late_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    late_op *l = (late_op *)op;

    l->buffers = *buffers;
    events[n_events++] = l->number;
    return TRI_OK;
}

/* What the network does, at last. */
static void late_finish(const late_op *l)
{
    const float *in = l->buffers.in[0];
    float *out = l->buffers.out[0];

    for (size_t i = 0; i < l->elems; i++)
        out[i] = in[i] * 2;
}

static tri_status late_poll(trii_host_op *op)
{
    late_op *l = (late_op *)op;

    if (--l->polls_left > 0)
        return TRI_INPROGRESS;
    late_finish(l);
    events[n_events++] = -l->number;
    return TRI_OK;
}

static tri_status late_wait(trii_host_op *op, int64_t for_ns)
{
    late_op *l = (late_op *)op;

    (void)for_ns;
    late_finish(l);
    events[n_events++] = -l->number;
    return TRI_OK;
}

static void late_abort(trii_host_op *op, const char *why)
{
    assert_non_null(strstr(why, "77"));
    events[n_events++] = 100 + ((late_op *)op)->number;
}

static const trii_host_kind late_kind = {.name = "late",
                                         .in_place = true,
                                         .start = late_start,
                                         .poll = late_poll,
                                         .wait = late_wait,
                                         .abort = late_abort};

static late_op late(int number, int polls, size_t elems)
{
    return (late_op){.base = {.kind = &late_kind, .identity = (uint64_t)number, .group = 1},
                     .number = number,
                     .polls_left = polls,
                     .elems = elems};
}

static tri_tensor *through(late_op *op, tri_tensor *x)
{
    trii_step *step = trii_step_current();
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(step, x, &in));
    CHECK_OK(trii_record_host_like(step, &op->base, &in, 1, &out));
    return trii_handle(step, out);
}

static void host_operations_start_early_and_in_order(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        const float data[4] = {1, 2, 3, 4};
        late_op first = late(1, 100, 4), second = late(2, 1, 4);
        tri_tensor *x = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, data), *a, *b, *c, *d,
                   *e;
        float got[4];

        n_events = 0;
        a = tri_matmul(x, x);        /* ready first */
        b = tri_matmul(a, x);        /* ready second */
        c = tri_matmul(b, x);        /* nobody waits for the network here */
        d = through(&first, a);      /* 2 x^2 */
        e = through(&second, b);     /* 2 x^3 */
        e = tri_matmul(e, x);        /* 2 x^4 */
        c = tri_keep(tri_add(c, d)); /* x^3 x + 2 x^2 */
        CHECK_OK(tri_tensor_copy_out(e, got, sizeof(got)));
        CHECK_NEAR(got[0], 2 * 199, 0);
        CHECK_OK(tri_tensor_copy_out(c, got, sizeof(got)));
        CHECK_NEAR(got[0], 199 + 2 * 7, 0);
        /* Both started before anything was waited for, in record order; the second finished by
         * being polled, the first only when it was waited for. */
        assert_int_equal(n_events, 4);
        assert_int_equal(events[0], 1);
        assert_int_equal(events[1], 2);
        assert_int_equal(events[2], -2);
        assert_int_equal(events[3], -1);
        tri_step_end();
        tri_tensor_unref(x);
    }
}

static void a_failed_kernel_aborts_communication_before_it_waits(void **state)
{
    const float data[4] = {1, 2, 3, 4};
    const int64_t labels[2] = {0, 77};
    late_op op = late(1, 100, 4);
    tri_tensor *x = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, data), *a;
    tri_tensor *t = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, labels);

    (void)state;
    n_events = 0;
    a = through(&op, tri_matmul(x, x));
    (void)tri_keep(tri_cross_entropy(tri_matmul(x, tri_matmul(x, x)), t, NULL));
    (void)tri_keep(tri_mul(a, x));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "77");
    assert_true(n_events >= 3);
    assert_int_equal(events[0], 1);
    assert_int_equal(events[1], 101);
    assert_int_equal(events[2], -1);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
}

static void a_bound_result_of_communication_lies_in_its_tensor(void **state)
{
    const float data[3] = {1, 2, 3};
    tri_tensor *x = tri_tensor_from((int64_t[]){3}, 1, TRI_DTYPE_F32, data);
    tri_tensor *g = tri_tensor_create((int64_t[]){3}, 1, TRI_DTYPE_F32);
    late_op op = late(1, 5, 3);
    trii_step *step;
    trii_vid id = TRII_NO_VALUE;
    float got[3];

    (void)state;
    n_events = 0;
    tri_tensor *y = through(&op, tri_mul(x, x));
    step = trii_step_current();
    CHECK_OK(trii_resolve(step, y, &id));
    CHECK_OK(trii_bind(step, id, g));
    CHECK_OK(tri_run());
    assert_ptr_equal(op.buffers.in[0], trii_tensor_data(g)); /* nothing is staged */
    assert_ptr_equal(op.buffers.out[0], trii_tensor_data(g));
    CHECK_OK(tri_tensor_copy_out(g, got, sizeof(got)));
    CHECK_NEAR(got[2], 18, 0);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(g);
}

/* The old contents are read after the new ones are known: they must not be overwritten early. */
static void an_update_waits_for_readers_of_the_old_contents(void **state)
{
    const float data[4] = {1, 2, 3, 4};
    tri_tensor *w = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, data), *y, *old;
    trii_step *step = trii_step_current();
    trii_vid update = TRII_NO_VALUE, before = TRII_NO_VALUE;
    float got[4];

    (void)state;
    CHECK_OK(trii_resolve(step, w, &before));
    CHECK_OK(trii_resolve(step, tri_matmul(w, w), &update)); /* 7 10 15 22 */
    CHECK_OK(trii_bind(step, update, w));
    y = tri_keep(tri_matmul(w, w));
    old = tri_keep(tri_mul_scalar(trii_handle(step, before), 10)); /* of what w was */
    CHECK_OK(tri_tensor_copy_out(old, got, sizeof(got)));
    CHECK_NEAR(got[3], 40, 0);
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    CHECK_NEAR(got[0], 49 + 150, 0);
    CHECK_OK(tri_tensor_copy_out(w, got, sizeof(got)));
    CHECK_NEAR(got[3], 22, 0);
    tri_step_end();
    tri_tensor_unref(w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_live_buffers_overlap),
        cmocka_unit_test(an_mlp_trains_as_eager_does),
        cmocka_unit_test(equal_steps_hit_the_cache_and_allocate_nothing),
        cmocka_unit_test(out_of_memory_while_compiling),
        cmocka_unit_test(host_operations_start_early_and_in_order),
        cmocka_unit_test(a_failed_kernel_aborts_communication_before_it_waits),
        cmocka_unit_test(a_bound_result_of_communication_lies_in_its_tensor),
        cmocka_unit_test(an_update_waits_for_readers_of_the_old_contents),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
