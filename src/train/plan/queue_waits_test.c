/* queue_waits_test.c - what entries of several queues wait for: whichever queues are quick and
 * whichever are slow, a step has the results of one device, and one that fails changes nothing. */
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "base/compiler.h"
#include "base/err.h"
#include "train/graph/step/host_op.h"
#include "testing/any_order.h"

#define LARGE 8192 /* floats: tensors of that size are updated where they lie */

typedef void (*scenario)(void);

/* Runs it in each order. */
static void in_any_order(scenario run)
{
    int before = any_order_runs;

    CHECK_OK(tri_cpu_devices_set(3));
    trii_executor_set(&any_order_executor);
    for (any_order_number = 0; any_order_number < ANY_ORDERS; any_order_number++)
        run();
    trii_executor_set(NULL);
    assert_true(any_order_runs >= before + ANY_ORDERS);
}

static tri_tensor *filled_on(tri_device device, int64_t n, double first, double by)
{
    float *data = malloc((size_t)n * sizeof(*data));
    tri_tensor *t = NULL;

    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)(first + by * (double)(i % 64));
    TRI_ON(device)
    {
        t = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_F32, data);
    }
    free(data);
    return t;
}

static void expect(tri_tensor *t, int64_t n, double first, double by)
{
    float *data = malloc((size_t)n * sizeof(*data));

    assert_non_null(data);
    CHECK_OK(tri_tensor_copy_out(t, data, (size_t)n * sizeof(*data)));
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(data[i], first + by * (double)(i % 64), 0.0);
    free(data);
}

static void leave_in(tri_tensor *value, tri_tensor *tensor)
{
    trii_vid id = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(trii_step_current(), value, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, tensor));
}

/* --- bytes that are used again -------------------------------------------- */

static void back_and_forth(void)
{
    enum { ROUNDS = 12 };
    tri_tensor *w = filled_on(TRI_CPU(0), 256, 1, 0), *x = w, *sum = NULL;
    double want = 0;

    for (int r = 0; r < ROUNDS; r++) {
        tri_tensor *there = tri_to(x, TRI_CPU(1 + r % 2));

        x = tri_add_scalar(x, 1); /* may lie where x did */
        there = tri_mul_scalar(there, r % 3 - 0.5);
        there = tri_to(there, TRI_CPU(0));
        sum = sum != NULL ? tri_add(sum, there) : there;
        want += (1 + r) * (r % 3 - 0.5);
    }
    expect(tri_keep(sum), 256, want, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
}

static void copies_are_made_before_their_source_is_overwritten(void **state)
{
    (void)state;
    in_any_order(back_and_forth);
}

/* On cpu:1 the scratch of a loss lies where something was that cpu:0 copies. */
static void scratch_over_a_copied_value(void)
{
    enum { ROWS = 64, CLASSES = 4 };
    const int64_t labels[ROWS] = {0};
    float data[ROWS * CLASSES], got[ROWS * CLASSES];
    tri_tensor *x = NULL, *target = NULL, *eye = NULL, *v, *there, *loss;

    for (int i = 0; i < ROWS * CLASSES; i++)
        data[i] = (float)i;
    TRI_ON(TRI_CPU(1))
    {
        x = tri_tensor_from(TRI_SHAPE(ROWS, CLASSES), TRI_DTYPE_F32, data);
        target = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, labels);
        eye = tri_eye(CLASSES, CLASSES, TRI_DTYPE_F32);
    }
    v = tri_mul_scalar(x, 2);
    there = tri_keep(tri_neg(tri_to(v, TRI_CPU(0))));
    loss = tri_keep(tri_cross_entropy(tri_matmul(v, eye), target, NULL));
    CHECK_OK(tri_tensor_copy_out(there, got, sizeof(got)));
    for (int i = 0; i < ROWS * CLASSES; i++)
        CHECK_NEAR(got[i], -2.0 * i, 0.0);
    CHECK_NEAR(tri_item(loss), 6.1451, 1e-3);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(target);
}

static void scratch_waits_for_the_copy_of_what_lay_there(void **state)
{
    (void)state;
    in_any_order(scratch_over_a_copied_value);
}

/* Two values share the room of one that left: the first of them does not begin where that began. */
static void pieces_over_a_copied_value(void)
{
    tri_tensor *x = filled_on(TRI_CPU(1), 256, 1, 0.5), *p = filled_on(TRI_CPU(1), 64, 1, 1);
    tri_tensor *q = filled_on(TRI_CPU(1), 128, 2, 1), *none = filled_on(TRI_CPU(0), 4, 1, 0);
    tri_tensor *v, *there, *a, *b;

    (void)tri_keep(tri_neg(none)); /* the first queue is that of cpu:0 */
    v = tri_mul_scalar(x, 2);
    there = tri_keep(tri_neg(tri_to(v, TRI_CPU(0))));
    a = tri_mul_scalar(p, 2);
    b = tri_mul_scalar(q, 2);
    a = tri_keep(tri_add(tri_sum(b, NULL, 0, false), tri_sum(a, NULL, 0, false)));
    expect(there, 256, -2, -1);
    CHECK_NEAR(tri_item(a), 4 * (64 * 2 + 2016) + 2 * (64 + 2016), 0.0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(none);
    tri_tensor_unref(x);
    tri_tensor_unref(p);
    tri_tensor_unref(q);
}

static void pieces_of_scratch_wait_for_the_copy_of_what_lay_there(void **state)
{
    (void)state;
    in_any_order(pieces_over_a_copied_value);
}

/* --- tensors that change -------------------------------------------------- */

/* What was recorded before the change sees the old contents, on all devices. */
static void read_and_change(int64_t n, bool risky)
{
    const int64_t label = 0;
    tri_tensor *w = filled_on(TRI_CPU(0), n, 1, 0.25);
    tri_tensor *target = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &label);

    for (int step = 0; step < 2; step++) {
        tri_tensor *early, *late, *ones = filled_on(TRI_CPU(1), n, 1, 0), *other = ones;

        early = tri_keep(tri_mul_scalar(tri_to(w, TRI_CPU(1)), 2));
        for (int k = 0; k < 3; k++)
            other = tri_mul_scalar(other, 2);
        late = tri_keep(tri_add(other, tri_to(w, TRI_CPU(1))));
        leave_in(tri_add_scalar(w, 1), w);
        if (risky) /* what may fail comes later: small tensors change at the very end */
            tri_keep(tri_cross_entropy(tri_reshape(tri_sum(w, NULL, 0, false), TRI_SHAPE(1, 1)),
                                       target, NULL));
        expect(early, n, 2.0 * (1 + step), 0.5);
        expect(late, n, 8 + 1 + step, 0.25);
        expect(w, n, 2 + step, 0.25);
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(ones);
    }
    tri_tensor_unref(w);
    tri_tensor_unref(target);
}

static void small_ones(void)
{
    read_and_change(64, false);
    read_and_change(64, true);
}

static void large_ones(void)
{
    read_and_change(LARGE, false);
    read_and_change(LARGE, true);
}

static void a_tensor_is_read_elsewhere_before_it_changes(void **state)
{
    (void)state;
    in_any_order(large_ones);
}

static void a_tensor_is_read_elsewhere_before_it_changes_at_the_end(void **state)
{
    (void)state;
    in_any_order(small_ones);
}

/* A large tensor of cpu:0 changes, and n elements of it are read on cpu:1: the update comes after
 * that, although it could come first, and so nothing is copied. */
static void change_in_place(tri_tensor *w, int64_t n)
{
    tri_tensor *x = filled_on(TRI_CPU(0), 4, 1, 0), *there, *old;

    (void)tri_keep(tri_neg(x)); /* the first queue is that of cpu:0 */
    old = n < LARGE ? tri_narrow(w, 0, 0, n) : w;
    there = tri_keep(tri_neg(tri_to(old, TRI_CPU(1))));
    leave_in(tri_add_scalar(w, 1), w);
    CHECK_OK(tri_run());
    assert_int_equal(trii_plan_stats_get().copied_bytes, 0);
    expect(there, n, -1, -0.25);
    expect(w, LARGE, 2, 0.25);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void an_update_is_written_where_it_belongs(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    change_in_place(filled_on(TRI_CPU(0), LARGE, 1, 0.25), LARGE);
    change_in_place(filled_on(TRI_CPU(0), LARGE, 1, 0.25), LARGE / 2);
}

/* --- failures ------------------------------------------------------------- */

/* A large tensor of cpu:1 is updated, and something on cpu:0 that comes before in the step
 * fails. */
static void fail_elsewhere(void)
{
    const int64_t labels[2] = {0, 9};
    tri_tensor *w = filled_on(TRI_CPU(1), LARGE, 1, 0.25), *x = filled_on(TRI_CPU(0), 4, 1, 1);
    tri_tensor *target = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels), *loss;

    loss = tri_keep(tri_cross_entropy(tri_reshape(x, TRI_SHAPE(2, 2)), target, NULL));
    leave_in(tri_cumsum(tri_mul_scalar(w, 2), 0), w);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "cross_entropy");
    CHECK_FAILS(tri_tensor_status(loss), TRI_ERR_INVALID_ARG, "cross_entropy");
    tri_step_end();
    expect(w, LARGE, 1, 0.25);
    tri_tensor_unref(w);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
}

static void a_failure_on_one_device_leaves_tensors_of_others_alone(void **state)
{
    (void)state;
    in_any_order(fail_elsewhere);
}

/* --- communication -------------------------------------------------------- */

typedef struct slow {
    trii_host_op op; /* first */
    size_t n;
    trii_host_buffers buffers;
} slow;

static tri_status slow_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    ((slow *)op)->buffers = *buffers;
    return TRI_OK;
}

static tri_status slow_poll(trii_host_op *op)
{
    (void)op;
    return TRI_INPROGRESS;
}

/* Twice the operand; done when somebody waits for it and no sooner. */
static tri_status slow_wait(trii_host_op *op, int64_t for_ns)
{
    const slow *s = (const slow *)op;
    const float *in = s->buffers.in[0];
    float *out = s->buffers.out[0];

    (void)for_ns;
    for (size_t i = 0; i < s->n; i++)
        out[i] = 2 * in[i];
    return TRI_OK;
}

static const trii_host_kind slow_kind = {
    .name = "slow", .start = slow_start, .poll = slow_poll, .wait = slow_wait};
static const trii_host_kind slow_kind_in_place = {
    .name = "slow", .in_place = true, .start = slow_start, .poll = slow_poll, .wait = slow_wait};

static tri_tensor *hosted(const trii_host_kind *kind, tri_tensor *x, tri_tensor *after)
{
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;
    trii_vid in = TRII_NO_VALUE, behind = TRII_NO_VALUE, out = TRII_NO_VALUE;
    trii_host_call call = {.in = &in, .n_in = 1, .after = &behind, .n_after = after != NULL};

    CHECK_OK(trii_host_op_new(step, kind, sizeof(slow), &op));
    ((slow *)op)->n = (size_t)tri_tensor_numel(x);
    CHECK_OK(trii_resolve(step, x, &in));
    if (after != NULL)
        CHECK_OK(trii_resolve(step, after, &behind));
    op->group = 1;
    CHECK_OK(trii_record_host(step, op, &call, &out));
    return trii_handle(step, out);
}

static tri_status cut_short(trii_host_op *op, int64_t for_ns)
{
    (void)slow_wait(op, for_ns);
    return TRII_FAIL(TRI_ERR_ABORTED, "cut short");
}

static const trii_host_kind cut_kind = {
    .name = "cut", .start = slow_start, .poll = slow_poll, .wait = cut_short};

/* It has written into a tensor of cpu:1, whose own queue has not begun anything. */
static void what_failed_communication_had_written_is_lost(void **state)
{
    tri_tensor *w, *x, *here;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    w = filled_on(TRI_CPU(1), LARGE, 1, 0.5);
    x = filled_on(TRI_CPU(1), LARGE, 3, 0.25);
    here = filled_on(TRI_CPU(0), 4, 1, 0);
    (void)tri_keep(tri_neg(here)); /* the first queue is that of cpu:0 */
    leave_in(hosted(&cut_kind, x, NULL), w);
    (void)tri_keep(tri_cumsum(w, 0));
    CHECK_FAILS(tri_run(), TRI_ERR_ABORTED, "cut short");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(w), TRI_ERR_STATE, "the contents are lost");
    tri_tensor_unref(here);
    tri_tensor_unref(w);
    tri_tensor_unref(x);
}

/* The first queue communicates what lies on cpu:1 and cpu:2, and their queues read it. */
static void communicate(bool in_place)
{
    tri_tensor *w[3], *sum = NULL;

    for (int d = 0; d < 3; d++)
        w[d] = filled_on(TRI_CPU(d), 512, 1 + d, 0.5);
    for (int round = 0; round < 4; round++) {
        for (int d = 1; d < 3; d++) {
            tri_tensor *x = tri_add_scalar(w[d], round), *y;

            y = hosted(in_place ? &slow_kind_in_place : &slow_kind, x, sum);
            if (round % 2 == 1)
                (void)tri_keep(y); /* nobody overwrites it: it is only read */
            x = tri_mul_scalar(tri_mul_scalar(w[d], 2), 4); /* may lie where the operand did */
            y = tri_add(tri_neg(y), x);
            y = tri_to(y, TRI_CPU(0));
            sum = sum != NULL ? tri_add(sum, y) : y;
        }
    }
    /* 6 (first + by i) - 2 round, for two devices */
    expect(tri_keep(sum), 512, 4 * 6 * (2 + 3) - 2 * 2 * 6, 4 * 6);
    CHECK_OK(tri_step_end_status());
    for (int d = 0; d < 3; d++)
        tri_tensor_unref(w[d]);
}

static void communicate_apart(void)
{
    communicate(false);
}

static void communicate_in_place(void)
{
    communicate(true);
}

/* What was received replaces a tensor of cpu:1 whose old contents are read after it came: at the
 * end it is copied there. Gradients do not even wait for what may fail. */
static void receive_over_what_is_read(bool is_grad)
{
    tri_tensor *w = filled_on(TRI_CPU(1), 512, 1, 0.5), *x = filled_on(TRI_CPU(1), 512, 3, 0.25);
    tri_tensor *here = filled_on(TRI_CPU(0), 512, 1, 0), *seen = tri_keep(tri_neg(here)), *old;
    tri_tensor *came = hosted(&slow_kind, x, NULL);

    w->is_grad = is_grad;
    old = tri_mul_scalar(tri_cumsum(tri_mul_scalar(w, 0), 0), 2);
    old = tri_keep(tri_add(old, w));
    leave_in(came, w);
    expect(old, 512, 1, 0.5);
    expect(w, 512, 6, 0.5);
    expect(seen, 512, -1, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(here);
    tri_tensor_unref(w);
    tri_tensor_unref(x);
}

static void receive_a_tensor(void)
{
    receive_over_what_is_read(false);
}

static void receive_a_gradient(void)
{
    receive_over_what_is_read(true);
}

static void what_comes_replaces_what_was_read(void **state)
{
    (void)state;
    in_any_order(receive_a_tensor);
    in_any_order(receive_a_gradient);
}

/* It looks at a tensor of cpu:1 that the step has written before, and says what was there. */
static const float *looked_at;
static float looked;

static tri_status look_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    looked = *looked_at;
    return slow_start(op, buffers);
}

static const trii_host_kind look_kind = {
    .name = "look", .start = look_start, .poll = slow_poll, .wait = slow_wait};

/* The tensor becomes x + 1: by a kernel, by a copy of a part of what one made, or by two kernels
 * that write a half each. */
typedef enum writing { BY_A_KERNEL, BY_A_COPY, IN_HALVES } writing;

static tri_tensor *plus_one(tri_tensor *x, writing how)
{
    tri_tensor *halves[2];

    if (how == BY_A_KERNEL)
        return tri_add_scalar(x, 1);
    if (how == BY_A_COPY)
        return tri_narrow(tri_add_scalar(tri_concat((tri_tensor *[]){x, x}, 2, 0), 1), 0, LARGE,
                          LARGE);
    for (int h = 0; h < 2; h++)
        halves[h] = tri_add_scalar(tri_narrow(x, 0, h * LARGE / 2, LARGE / 2), 1);
    return tri_concat(halves, 2, 0);
}

/* What reads its result is not fused with what it comes after. */
static void begin_behind(tri_device device, writing how)
{
    tri_tensor *w = filled_on(device, LARGE, 1, 0.5), *x = filled_on(TRI_CPU(0), LARGE, 3, 0.25);
    tri_tensor *from = filled_on(device, LARGE, 1, 0.5), *changed, *y;

    (void)tri_keep(tri_neg(x)); /* the first queue is that of cpu:0 */
    looked_at = (const float *)trii_tensor_data(w) + LARGE - 64;
    changed = plus_one(from, how);
    leave_in(changed, w);
    y = hosted(&look_kind, x, changed);
    y = tri_keep(tri_add(changed, tri_to(y, device)));
    expect(y, LARGE, 2 + 2 * 3, 0.5 + 2 * 0.25);
    CHECK_NEAR(looked, 2, 0.0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(w);
    tri_tensor_unref(x);
    tri_tensor_unref(from);
}

static void begin_behind_another_device(void)
{
    begin_behind(TRI_CPU(1), BY_A_KERNEL);
    begin_behind(TRI_CPU(1), BY_A_COPY);
    begin_behind(TRI_CPU(1), IN_HALVES);
}

static void what_is_ordered_after_an_entry_begins_after_it(void **state)
{
    (void)state;
    in_any_order(begin_behind_another_device);
    begin_behind(TRI_CPU(0), BY_A_KERNEL);
    begin_behind(TRI_CPU(0), BY_A_COPY);
    begin_behind(TRI_CPU(0), IN_HALVES);
}

static void a_reader_of_what_was_communicated_waits_for_it(void **state)
{
    (void)state;
    in_any_order(communicate_apart);
    in_any_order(communicate_in_place);
}

/* --- all together --------------------------------------------------------- */

#define POOL 24
#define SIDE 8

static uint32_t word(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* One operation on one or two values of the pool, on the device of the first. All numbers are
 * small multiples of 1/64, and nothing rounds. */
static tri_tensor *random_value(tri_tensor **pool, int n, uint32_t *seed, bool spread)
{
    tri_tensor *a = pool[word(seed) % (uint32_t)n], *b = pool[word(seed) % (uint32_t)n], *y;
    uint32_t kind = word(seed) % 8;
    bool leaves = word(seed) % 2 == 0 && spread;
    tri_device device = TRI_CPU((int)(word(seed) % 3));

    if (spread && kind < 4)
        b = tri_to(b, tri_tensor_device(a));
    y = kind == 0   ? tri_sub(a, b)
        : kind == 1 ? tri_maximum(a, b)
        : kind == 2 ? tri_mul_scalar(tri_add(a, b), 0.5)
        : kind == 3 ? tri_add(tri_transpose(a, 0, 1), tri_neg(b))
        : kind == 4 ? tri_mul_scalar(tri_cumsum(a, 0), 0.125)
        : kind == 5 ? tri_relu(a)
        : kind == 6 ? tri_mul_scalar(a, 0.5)
                    : tri_reshape(a, TRI_SHAPE(SIDE, SIDE));
    y = tri_cast(tri_cast(tri_mul_scalar(y, 64), TRI_DTYPE_I64), TRI_DTYPE_F32);
    y = tri_clamp(tri_mul_scalar(y, 1.0 / 64), -1000, 1000);
    return leaves ? tri_to(y, device) : y;
}

/* Two steps; what they leave. */
static void random_step(uint32_t seed, bool spread, float out[3][SIDE * SIDE])
{
    tri_tensor *state[3];

    for (int d = 0; d < 3; d++) {
        tri_tensor *flat = filled_on(TRI_CPU(spread ? d : 0), SIDE * SIDE, d - 1, 0.25);

        state[d] = tri_tensor_clone(tri_keep(tri_reshape(flat, TRI_SHAPE(SIDE, SIDE))));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(flat);
    }
    for (int step = 0; step < 2; step++) {
        tri_tensor *pool[POOL + 3];
        uint32_t at = seed;

        for (int d = 0; d < 3; d++)
            pool[d] = state[d];
        for (int k = 0; k < POOL; k++) {
            pool[3 + k] = random_value(pool, 3 + k, &at, spread);
            if (k % 8 == 7) { /* one of them changes in the middle */
                int d = k / 8 % 3;

                leave_in(spread ? tri_to(pool[3 + k], TRI_CPU(d)) : pool[3 + k], state[d]);
            }
        }
        CHECK_OK(tri_step_end_status());
    }
    for (int d = 0; d < 3; d++) {
        CHECK_OK(tri_tensor_copy_out(state[d], out[d], sizeof(out[d])));
        tri_tensor_unref(state[d]);
    }
}

static void random_steps_have_the_results_of_one_device(void **state)
{
    enum { SEEDS = 6 };
    static float want[3][SIDE * SIDE], have[3][SIDE * SIDE];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        trii_executor_set(&trii_executor_reference);
        random_step(seed, false, want);
        trii_executor_set(&any_order_executor);
        for (any_order_number = 0; any_order_number < ANY_ORDERS; any_order_number++) {
            random_step(seed, true, have);
            assert_memory_equal(want, have, sizeof(want));
        }
    }
    trii_executor_set(NULL);
    assert_true(any_order_runs > SEEDS * ANY_ORDERS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_are_made_before_their_source_is_overwritten),
    cmocka_unit_test(scratch_waits_for_the_copy_of_what_lay_there),
    cmocka_unit_test(pieces_of_scratch_wait_for_the_copy_of_what_lay_there),
    cmocka_unit_test(a_tensor_is_read_elsewhere_before_it_changes),
    cmocka_unit_test(a_tensor_is_read_elsewhere_before_it_changes_at_the_end),
    cmocka_unit_test(an_update_is_written_where_it_belongs),
    cmocka_unit_test(a_failure_on_one_device_leaves_tensors_of_others_alone),
    cmocka_unit_test(what_failed_communication_had_written_is_lost),
    cmocka_unit_test(what_comes_replaces_what_was_read),
    cmocka_unit_test(what_is_ordered_after_an_entry_begins_after_it),
    cmocka_unit_test(a_reader_of_what_was_communicated_waits_for_it),
    cmocka_unit_test(random_steps_have_the_results_of_one_device),
};

TEST_MAIN(tests)
