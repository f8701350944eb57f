/* host_order_test.c - when communication of a plan starts and is waited for: by groups of ranks,
 * after what it is ordered after, over queues, and in parts that are computed again. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/host_op.h"
#include "train/graph/ops/rules.h"
#include "train/plan/plan.h"
#include "testing/check.h"

/* --- an operation that notes what becomes of it --------------------------- */

static int events[256], n_events;

typedef struct noted {
    trii_host_op op; /* first */
    int number, polls_left;
    size_t bytes;
    trii_host_buffers buffers;
} noted;

static void note(int event)
{
    if (n_events < 256)
        events[n_events++] = event;
}

/* The first operand doubled, or ones. */
static void finish(const noted *o)
{
    float *out = o->buffers.out[0];

    for (size_t i = 0; i < o->bytes / sizeof(float); i++)
        out[i] = o->number < 50 ? 2 * ((const float *)o->buffers.in[0])[i] : 1;
    note(-o->number);
}

static tri_status noted_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    noted *o = (noted *)op;

    o->buffers = *buffers;
    note(o->number);
    return TRI_OK;
}

static tri_status noted_poll(trii_host_op *op)
{
    noted *o = (noted *)op;

    if (--o->polls_left > 0)
        return TRI_INPROGRESS;
    finish(o);
    return TRI_OK;
}

static tri_status noted_wait(trii_host_op *op, int64_t for_ns)
{
    if (for_ns < INT64_MAX)
        return noted_poll(op);
    finish((noted *)op);
    return TRI_OK;
}

static tri_status noted_run(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)!noted_start(op, buffers);
    note(1000 + ((noted *)op)->number);
    return noted_wait(op, INT64_MAX);
}

/* Of twice the operand. */
static tri_status noted_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                             const bool *needs, trii_vid *grad_in)
{
    (void)node;
    (void)needs;
    note(500 + ((const noted *)node->host)->number);
    return node->n_in > 0 ? trii_rec_scaled(step, grad_out[0], 2, &grad_in[0]) : TRI_OK;
}

static const trii_host_kind plain_kind = {.name = "plain",
                                          .in_place = true,
                                          .start = noted_start,
                                          .poll = noted_poll,
                                          .wait = noted_wait};
static const trii_host_kind urgent_kind = {
    .name = "urgent", .start = noted_start, .poll = noted_poll, .wait = noted_wait, .urgent = true};
static const trii_host_kind noted_kind = {.name = "noted",
                                          .start = noted_start,
                                          .poll = noted_poll,
                                          .wait = noted_wait,
                                          .run = noted_run,
                                          .grad = noted_grad};

/* Numbers from 50 on have no operand; `after` NULL = none. */
static tri_tensor *record(const trii_host_kind *kind, int number, uint64_t group, int polls,
                          tri_tensor *x, tri_tensor *after)
{
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;
    trii_host_result result = {.requires_grad = number >= 50};
    trii_vid in = TRII_NO_VALUE, behind = TRII_NO_VALUE, out = TRII_NO_VALUE;
    trii_host_call call = {
        .in = &in, .n_in = number < 50, .after = &behind, .out = &result, .n_out = 1};

    CHECK_OK(trii_host_op_new(step, kind, sizeof(noted), &op));
    CHECK_OK(trii_resolve(step, x, &in));
    if (after != NULL)
        CHECK_OK(trii_resolve(step, after, &behind));
    call.n_after = after != NULL;
    result.type = step->values[in].type;
    result.requires_grad |= step->values[in].requires_grad;
    op->group = group;
    op->identity = (uint64_t)number;
    ((noted *)op)->number = number;
    ((noted *)op)->polls_left = polls;
    ((noted *)op)->bytes = trii_type_bytes(&result.type);
    CHECK_OK(trii_record_host(step, op, &call, &out));
    return trii_handle(step, out);
}

static void apart(tri_tensor *of)
{
    trii_step *step = trii_step_current();
    trii_vid value = TRII_NO_VALUE;

    CHECK_OK(trii_resolve(step, of, &value));
    step->nodes[step->values[value].node].host->apart = true;
}

static int when(int event)
{
    for (int i = 0; i < n_events; i++)
        if (events[i] == event)
            return i;
    return -1;
}

static void in_order(int first, int then)
{
    if (when(first) < 0 || when(then) < 0 || when(first) > when(then))
        fail_msg("%d came at %d, %d at %d", first, when(first), then, when(then));
}

static tri_tensor *square(float a)
{
    const float data[4] = {a, 2, 3, 4};

    return tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, data);
}

/* --- tests ---------------------------------------------------------------- */

static void an_operation_without_operands_holds_back_its_own_group_only(void **state)
{
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 3; round++) {
        tri_tensor *late, *a, *b, *c;

        n_events = 0;
        a = record(&plain_kind, 1, 7, 1000, x, NULL); /* long under way */
        late = record(&plain_kind, 2, 8, 1, a, NULL); /* lacks what that gives */
        b = record(&plain_kind, 3, 8, 1, x, NULL);    /* after it */
        c = record(&plain_kind, 4, 9, 1, x, NULL);
        c = tri_keep(tri_matmul(tri_matmul(c, x), x));
        late = tri_keep(tri_add(late, b));
        CHECK_OK(tri_step_end_status());
        (void)c;
        (void)late;
        in_order(1, 4);
        in_order(4, -1); /* did not wait for the first */
        in_order(-4, -1);
        in_order(-1, 2); /* came as soon as it could */
        in_order(2, 3);
    }
    tri_tensor_unref(x);
}

/* Each wait is for as long as it takes. */
static void what_has_its_operands_starts_before_another_one_is_waited_for(void **state)
{
    static const trii_host_kind patient = {.name = "patient",
                                           .start = noted_start,
                                           .poll = noted_poll,
                                           .wait = noted_wait,
                                           .wait_any = true};
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 3; round++) {
        tri_tensor *a;

        n_events = 0;
        a = record(&patient, 1, 1, 1000, x, NULL);
        (void)tri_keep(record(&patient, 2, 2, 1000, x, NULL));
        (void)tri_keep(record(&patient, 3, 3, 1000, a, NULL));
        CHECK_OK(tri_step_end_status());
        in_order(2, -1);
        in_order(-1, 3);
        in_order(3, -2);
    }
    tri_tensor_unref(x);
}

/* Peers may wait for its later calls before they come to what is waited for here. */
static void what_makes_further_calls_is_polled_beside_its_group(void **state)
{
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 3; round++) {
        tri_tensor *read, *other;

        n_events = 0;
        read = record(&plain_kind, 1, 1, 1000, x, NULL);
        other = record(&plain_kind, 2, 1, 100, x, NULL);
        apart(other);
        (void)tri_keep(tri_matmul(read, x));
        (void)tri_keep(other);
        CHECK_OK(tri_step_end_status());
        in_order(2, -2);
        in_order(-2, -1);
    }
    tri_tensor_unref(x);
}

static void a_host_operation_comes_after_what_it_is_to_come_after(void **state)
{
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 2; round++) {
        float got[4];
        tri_tensor *a, *m, *b, *c;

        n_events = 0;
        a = record(&plain_kind, 1, 1, 3, x, NULL);
        m = tri_matmul(a, x); /* waits for it */
        b = record(&noted_kind, 50, 2, 1, x, m);
        c = record(&noted_kind, 51, 3, 1, x, b);
        CHECK_OK(tri_tensor_copy_out(tri_keep(tri_add(c, m)), got, sizeof(got)));
        CHECK_NEAR(got[0], 1 + 2 * 7, 0);
        in_order(-1, 50);
        in_order(-50, 51);
        /* what has run is complete, whether it was kept or not */
        (void)record(&noted_kind, 52, 2, 1, x, m);
        CHECK_OK(tri_step_end_status());
        in_order(-51, 52);
    }
    tri_tensor_unref(x);
}

static void what_is_waited_for_at_once_is_run(void **state)
{
    tri_tensor *x = square(1);
    float got[4];

    (void)state;
    n_events = 0;
    CHECK_OK(tri_tensor_copy_out(record(&noted_kind, 1, 1, 5, tri_matmul(x, x), NULL), got,
                                 sizeof(got)));
    CHECK_NEAR(got[0], 14, 0);
    in_order(1, 1001);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* What neither makes its operand nor reads its result is done while it is under way. */
static void other_work_goes_behind_the_start_of_what_is_read_at_once(void **state)
{
    tri_tensor *x = square(1), *other, *y;
    float got[4];

    (void)state;
    n_events = 0;
    y = tri_matmul(x, x);
    other = tri_matmul(x, y); /* beside, before the operand is complete */
    y = tri_matmul(y, x);
    y = tri_matmul(record(&noted_kind, 1, 1, 2, y, NULL), x);
    CHECK_OK(tri_tensor_copy_out(tri_add(y, other), got, sizeof(got)));
    CHECK_NEAR(got[0], 2 * 199 + 37, 0);
    in_order(1, -1);
    assert_true(when(1001) < 0); /* it is not waited for at once */
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* Whatever was recorded before it. */
static void what_an_urgent_operation_needs_is_computed_first(void **state)
{
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 3; round++) {
        tri_tensor *other = x, *needed = x, *y;
        float got[4];

        n_events = 0;
        for (int i = 0; i < 20; i++) { /* one in turn */
            other = tri_matmul(other, x);
            needed = tri_mul_scalar(tri_matmul(x, needed), 0.25);
        }
        other = record(&noted_kind, 1, 1, 1, other, NULL);
        y = tri_keep(record(&urgent_kind, 2, 0, 1, needed, NULL));
        (void)tri_keep(other);
        CHECK_OK(tri_run());
        in_order(2, 1);
        CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
        assert_true(got[0] > 0);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

/* Operations of its group that it does not read start before it all the same; those of another
 * group before it is waited for. */
static void what_an_urgent_operation_needs_comes_after_what_ranks_do_before(void **state)
{
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 6; round++) {
        const bool same = round < 3;
        tri_tensor *other = x, *needed, *y;
        float got[4];

        n_events = 0;
        for (int i = 0; i < 20; i++)
            other = tri_mul_scalar(tri_matmul(other, x), 0.25);
        other = record(&plain_kind, 1, 7, 1000, other, NULL);
        needed = record(&plain_kind, 2, same ? 7 : 8, 1000, tri_matmul(x, x), NULL);
        y = tri_keep(record(&urgent_kind, 3, 0, 1, tri_matmul(needed, x), NULL));
        (void)tri_keep(tri_matmul(other, x));
        CHECK_OK(tri_run());
        in_order(1, same ? 2 : -2);
        in_order(-2, 3);
        CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
        CHECK_NEAR(got[0], 2 * 2 * 37, 0); /* of x cubed */
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

static void gradients_begin_where_nothing_was_read(void **state)
{
    tri_tensor *x = square(1), *got, *y;

    (void)state;
    tri_requires_grad(x, true);
    n_events = 0;
    y = record(&noted_kind, 1, 1, 1, tri_square(x), NULL);  /* 2 x^2 */
    y = tri_mul(y, record(&noted_kind, 50, 1, 1, y, NULL)); /* times one */
    tri_backward(tri_sum(y, NULL, 0, false));
    assert_true(when(550) >= 0); /* somebody waits for its gradient */
    in_order(550, 501);
    CHECK_NEAR(tri_item(tri_sum(tri_grad(x), NULL, 0, false)), 4 * 10, 0);
    tri_step_end();
    /* also where only some gradients are asked for */
    n_events = 0;
    y = tri_mul(tri_square(x), record(&noted_kind, 50, 1, 1, x, NULL));
    CHECK_OK(tri_gradients((tri_tensor *[]){tri_sum(y, NULL, 0, false)}, 1, &x, 1, NULL, &got));
    CHECK_NEAR(tri_item(tri_sum(got, NULL, 0, false)), 20, 0);
    assert_true(when(550) >= 0);
    tri_step_end();
    /* one whose kind has none ends the walk */
    y = record(&plain_kind, 1, 1, 1, tri_square(x), NULL);
    tri_backward(tri_sum(y, NULL, 0, false));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "depends on no tensor");
    tri_tensor_unref(x);
}

/* Another queue fails to make the operand of the first, and the second may not start before it,
 * while somebody waits for the second: neither does. */
static void what_fails_on_another_device_is_not_communicated(void **state)
{
    const int64_t label = 9;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int round = 0; round < 20; round++) {
        tri_tensor *x = square(1), *logits = NULL, *target = NULL, *loss;

        TRI_ON(TRI_CPU(1))
        {
            logits = tri_tensor_from(TRI_SHAPE(1, 2), TRI_DTYPE_F32, (const float[]){1, 2});
            target = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &label);
        }
        (void)tri_keep(tri_neg(x)); /* the first queue is that of cpu:0 */
        loss = tri_cross_entropy(tri_mul_scalar(logits, 2), target, NULL);
        (void)tri_keep(record(&noted_kind, 1, 1, 1, loss, NULL));
        (void)tri_keep(tri_neg(record(&noted_kind, 2, 1, 1, x, NULL)));
        n_events = 0;
        CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "cross_entropy");
        assert_int_equal(n_events, 0);
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(logits);
        tri_tensor_unref(target);
    }
}

static void what_communicates_is_not_computed_again(void **state)
{
    double got[2];

    (void)state;
    for (int again = 0; again < 2; again++) {
        tri_tensor *x = square(1), *y;
        int started = 0;

        tri_requires_grad(x, true);
        n_events = 0;
        if (again)
            tri_recompute_begin();
        y = tri_exp(tri_mul_scalar(x, 0.1));
        y = record(&noted_kind, 1, 1, 1, y, NULL);
        y = tri_tanh(tri_mul(y, y));
        if (again)
            tri_recompute_end();
        tri_backward(tri_sum(y, NULL, 0, false));
        got[again] = tri_item(tri_sum(tri_grad(x), NULL, 0, false));
        for (int i = 0; i < n_events; i++)
            started += events[i] == 1;
        assert_int_equal(started, 1);
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    assert_true(got[0] > 0);
    CHECK_NEAR(got[1], got[0], 0);
}

static void results_require_gradients_one_by_one(void **state)
{
    trii_step *step = trii_step_current();
    const trii_host_result results[3] = {
        {.type = {.dtype = TRI_DTYPE_F32}, .requires_grad = true},
        {.type = {.dtype = TRI_DTYPE_F32}},
        {.type = {.dtype = TRI_DTYPE_I64, .ndim = 1, .shape = {3}}, .requires_grad = true}};
    const trii_host_call call = {.out = results, .n_out = 3};
    trii_host_op *op = NULL;
    trii_vid out[3];

    (void)state;
    for (int round = 0; round < 2; round++) {
        if (round == 1)
            tri_no_grad_begin();
        CHECK_OK(trii_host_op_new(step, &noted_kind, sizeof(noted), &op));
        ((noted *)op)->number = 50;
        ((noted *)op)->bytes = sizeof(float);
        CHECK_OK(trii_record_host(step, op, &call, out));
        assert_int_equal(step->values[out[0]].requires_grad, round == 0);
        assert_false(step->values[out[1]].requires_grad);
        assert_false(step->values[out[2]].requires_grad); /* of integers */
        if (round == 1)
            tri_no_grad_end();
    }
    CHECK_OK(tri_step_end_status());
    CHECK_OK(trii_host_op_new(step, &noted_kind, sizeof(noted), &op));
    CHECK_FAILS(
        trii_record_host(step, op, &(trii_host_call){.n_in = 65, .out = results, .n_out = 1}, out),
        TRI_ERR_INVALID_ARG, "host operation noted: 65 operands after 0 others, 1 results");
    CHECK_FAILS(trii_record_host(step, op, &(trii_host_call){.out = results}, out),
                TRI_ERR_INVALID_ARG, "0 results");
    tri_step_end();
}

/* One operation object, recorded in steps that are alike but for it: as itself, after a value, and
 * with a result of another type than its operand's, forth and back. */
static void what_differs_from_the_step_before_is_recorded_anew(void **state)
{
    static noted hosts[2] = {
        {.op = {.kind = &noted_kind, .group = 7}, .number = 1, .polls_left = 1},
        {.op = {.kind = &noted_kind, .group = 7}, .number = 1, .polls_left = 1}};
    static const int how[7] = {0, 0, 2, 0, 1, 0, 3}; /* 1: after, 2: smaller, 3: another object */
    const trii_host_result one = {.type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {1}}};
    tri_tensor *x = square(1);

    (void)state;
    for (int round = 0; round < 14; round++) {
        trii_step *step = trii_step_current();
        bool behind = how[round % 7] == 1, smaller = how[round % 7] == 2;
        noted *host = &hosts[how[round % 7] == 3];
        trii_vid in, after, out;
        trii_host_call call = {.in = &in, .n_in = 1, .after = &after, .n_after = behind};
        float got[4];

        CHECK_OK(trii_resolve(step, x, &in));
        CHECK_OK(trii_resolve(step, tri_mul_scalar(x, 3), &after));
        call.out = smaller ? &one : NULL;
        call.n_out = smaller;
        host->bytes = smaller ? sizeof(float) : sizeof(got);
        CHECK_OK(trii_record_host(step, &host->op, &call, &out));
        assert_int_equal(step->nodes[step->values[out].node].n_after, behind);
        assert_ptr_equal(step->nodes[step->values[out].node].host, host);
        assert_int_equal(trii_type_bytes(&step->values[out].type), host->bytes);
        CHECK_OK(tri_tensor_copy_out(trii_handle(step, out), got, host->bytes));
        CHECK_NEAR(got[smaller ? 0 : 3], smaller ? 2 : 8, 0);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

/* Operands from two devices, and a queue that is late with them. */
static void queues_share_the_order_of_a_group(void **state)
{
    tri_tensor *x;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    x = square(1);
    for (int round = 0; round < 12; round++) {
        tri_tensor *a = tri_to(tri_full(TRI_SHAPE(200, 200), 0.001, TRI_DTYPE_F32), TRI_CPU(1));
        tri_tensor *b = tri_to(x, TRI_CPU(2)), *c;
        float got[4];

        n_events = 0;
        for (int k = 0; k < 6; k++)
            a = tri_matmul(a, a);
        a = tri_add(tri_to(x, TRI_CPU(1)), tri_mul_scalar(tri_sum(a, NULL, 0, false), 0));
        a = record(&noted_kind, 1, 7, 3, a, NULL);
        b = record(&noted_kind, 2, 7, 2, tri_mul_scalar(b, 3), NULL);
        c = record(&noted_kind, 3, 8, 1, x, NULL); /* nothing holds it back */
        c = tri_add(tri_to(a, TRI_CPU(0)), tri_add(tri_to(b, TRI_CPU(0)), c));
        CHECK_OK(tri_tensor_copy_out(c, got, sizeof(got)));
        CHECK_NEAR(got[3], 4 * (2 + 6 + 2), 0);
        in_order(1, 2);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

static int n_reordered, n_kernels_behind; /* before the first start, and after it */

static tri_status look(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, false, &plan);
    bool started = false;

    if (status != TRI_OK)
        return status;
    n_reordered = n_kernels_behind = 0;
    for (int32_t e = 0; e < plan->n_entries; e++) {
        bool kernel = plan->entries[e].kind == TRII_ENTRY_KERNEL;

        started = started || plan->entries[e].kind == TRII_ENTRY_START;
        n_reordered += !started && kernel && plan->entries[e].node < 0;
        n_kernels_behind += started && kernel && plan->entries[e].node >= 0;
    }
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

/* Of the second layer's gradient, which is there first, in plain order, which the kernel that makes
 * it does not know: recorded after the whole backward pass. */
static void what_is_put_into_order_for_it_does_not_wait_for_the_rest(void **state)
{
    static const trii_executor looking = {.name = "looking", .run = look};
    tri_module *net, *second;
    tri_tensor *x;

    (void)state;
    second = tri_nn_conv2d(64, 64, 3, &(tri_nn_conv2d_options){.padding = 1, .no_bias = true});
    net = tri_nn_sequential(
        tri_nn_conv2d(64, 64, 3, &(tri_nn_conv2d_options){.padding = 1, .no_bias = true}),
        tri_nn_relu(), second);
    x = tri_tensor_create(TRI_SHAPE(2, 64, 28, 28), TRI_DTYPE_F32);
    CHECK_OK(tri_init_uniform(x, -1, 1));
    trii_executor_set(&looking);
    tri_backward(tri_sum(tri_forward(net, x), NULL, 0, false));
    (void)tri_keep(
        record(&noted_kind, 1, 7, 1, tri_grad(tri_module_state(second, 0).tensor), NULL));
    CHECK_OK(tri_step_end_status());
    assert_true(n_reordered > 0);
    assert_true(n_kernels_behind >= 2); /* the second's to the first, and the first's own */
    trii_executor_set(NULL);
    tri_module_destroy(net);
    tri_tensor_unref(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_without_operands_holds_back_its_own_group_only),
        cmocka_unit_test(what_has_its_operands_starts_before_another_one_is_waited_for),
        cmocka_unit_test(what_makes_further_calls_is_polled_beside_its_group),
        cmocka_unit_test(a_host_operation_comes_after_what_it_is_to_come_after),
        cmocka_unit_test(what_is_waited_for_at_once_is_run),
        cmocka_unit_test(other_work_goes_behind_the_start_of_what_is_read_at_once),
        cmocka_unit_test(what_an_urgent_operation_needs_is_computed_first),
        cmocka_unit_test(what_an_urgent_operation_needs_comes_after_what_ranks_do_before),
        cmocka_unit_test(gradients_begin_where_nothing_was_read),
        cmocka_unit_test(what_fails_on_another_device_is_not_communicated),
        cmocka_unit_test(what_communicates_is_not_computed_again),
        cmocka_unit_test(results_require_gradients_one_by_one),
        cmocka_unit_test(what_differs_from_the_step_before_is_recorded_anew),
        cmocka_unit_test(queues_share_the_order_of_a_group),
        cmocka_unit_test(what_is_put_into_order_for_it_does_not_wait_for_the_rest),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
