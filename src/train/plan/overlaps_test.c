/* overlaps_test.c - tensors that share memory: reads and writes of whole and parts come in the
 * order in which the program recorded them. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/shared_unit.h"
#include "train/plan/plan.h"

/* --- one queue ------------------------------------------------------------ */

static void write_whole(int64_t n)
{
    unit u = make_unit(n, 1);
    tri_tensor *early = plus(u.a, 0), *late;

    leave_in(tri_mul_scalar(u.flat, 3), u.flat);
    late = plus(u.a, 0);
    EXPECT(late, 3);
    EXPECT(early, 1);
    EXPECT(u.shard, 3);
    EXPECT(u.flat, 3);
    /* and in the step after */
    CHECK_OK(tri_step_end_status());
    EXPECT(plus(u.b, 1), 4);
    free_unit(&u);
}

static void a_part_is_what_was_written_to_the_whole(void **state)
{
    (void)state;
    write_whole(SMALL);
    write_whole(LARGE);
}

static void write_parts(int64_t n)
{
    unit u = make_unit(n, 1);
    tri_tensor *early = plus(u.flat, 0), *late, *last;

    leave_in(tri_mul_scalar(u.a, 3), u.a);
    late = plus(u.flat, 0);
    leave_in(tri_mul_scalar(u.shard, 5), u.shard);
    last = plus(u.flat, 0);
    EXPECT(early, 1, 1, 1, 1);
    EXPECT(late, 3, 3, 1, 1);
    EXPECT(last, 3, 15, 5, 1);
    EXPECT(u.a, 3, 15);
    EXPECT(u.b, 5, 1);
    CHECK_OK(tri_step_end_status());
    EXPECT(plus(u.flat, 1), 4, 16, 6, 2);
    free_unit(&u);
}

static void the_whole_is_what_was_written_to_its_parts(void **state)
{
    (void)state;
    write_parts(SMALL);
    write_parts(LARGE);
}

/* The value that is left in the unit is made before the part is read. */
static void read_before(int64_t n)
{
    unit u = make_unit(n, 1);
    tri_tensor *made = tri_mul_scalar(u.flat, 3), *early = plus(u.shard, 10);

    leave_in(made, u.flat);
    EXPECT(early, 11);
    EXPECT(u.shard, 3);
    CHECK_OK(tri_step_end_status());
    /* and the other way round */
    made = tri_mul_scalar(u.shard, 2);
    early = plus(u.flat, 10);
    leave_in(made, u.shard);
    EXPECT(early, 13);
    EXPECT(u.flat, 3, 6, 6, 3);
    free_unit(&u);
}

static void what_was_read_before_is_what_was_there(void **state)
{
    (void)state;
    read_before(SMALL);
    read_before(LARGE);
}

/* One kernel reads a part and writes another that overlaps with it. */
static void shift(int64_t n)
{
    unit u = make_unit(n, 1);

    fill(u.b, 2);
    leave_in(tri_add_scalar(u.a, 3), u.shard);
    EXPECT(u.flat, 1, 4, 4, 2);
    CHECK_OK(tri_step_end_status());
    leave_in(tri_add(tri_add(u.a, u.b), u.shard), u.shard);
    EXPECT(u.flat, 1, 1 + 4 + 4, 4 + 2 + 4, 2);
    free_unit(&u);
}

static void a_kernel_does_not_read_what_it_has_written(void **state)
{
    (void)state;
    shift(SMALL);
    shift(LARGE);
}

/* What is left last stays, though it was made first. */
static void write_over(int64_t n)
{
    unit u = make_unit(n, 1), from = make_unit(n, 1);
    tri_tensor *whole = tri_mul_scalar(from.flat, 5), *part = tri_add_scalar(from.a, 6), *early;

    leave_in(part, u.a);
    leave_in(whole, u.flat);
    EXPECT(u.flat, 5, 5, 5, 5);
    CHECK_OK(tri_step_end_status());
    part = tri_add_scalar(from.a, 6);
    leave_in(tri_mul_scalar(from.flat, 0), u.flat);
    leave_in(part, u.a);
    EXPECT(u.flat, 7, 7, 0, 0);
    CHECK_OK(tri_step_end_status());
    /* each has a part of the other */
    part = tri_add_scalar(from.a, 2);
    leave_in(tri_add_scalar(from.shard, 3), u.shard);
    leave_in(part, u.a);
    EXPECT(u.flat, 3, 3, 4, 0);
    CHECK_OK(tri_step_end_status());
    /* the whole was read before one of its parts was written, and then it was itself */
    whole = tri_mul_scalar(from.flat, 2);
    early = plus(u.flat, 1);
    leave_in(tri_mul_scalar(from.a, 3), u.a);
    leave_in(whole, u.flat);
    EXPECT(early, 4, 4, 5, 1);
    EXPECT(u.flat, 2, 2, 2, 2);
    free_unit(&u);
    free_unit(&from);
}

static void writes_come_in_the_order_of_the_program(void **state)
{
    (void)state;
    write_over(SMALL);
    write_over(LARGE);
}

/* The same operations: another plan, since other bytes overlap. */
static void a_plan_is_one_of_what_overlaps(void **state)
{
    unit u = make_unit(LARGE, 1), v = make_unit(LARGE, 1);

    (void)state;
    for (int round = 0; round < 4; round++) {
        tri_tensor *of = round % 2 == 0 ? v.a : u.a;
        tri_tensor *made, *early;

        fill(u.flat, 1);
        fill(v.flat, 1);
        made = tri_mul_scalar(u.shard, 3);
        early = plus(of, 10);
        leave_in(made, u.shard);
        EXPECT(early, 11);
        EXPECT(u.flat, 1, 3, 3, 1);
        CHECK_OK(tri_step_end_status());
    }
    free_unit(&u);
    free_unit(&v);
}

static void disjoint(void)
{
    unit u = make_unit(LARGE, 1);
    uint64_t runs;
    tri_tensor *early;

    CHECK_OK(tri_run());
    runs = trii_plan_stats_get().hits + trii_plan_stats_get().misses;
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    early = plus(u.b, 1); /* needs nothing of what was written */
    EXPECT(early, 2);
    EXPECT(u.a, 3);
    if (!is_eager())
        assert_int_equal(trii_plan_stats_get().hits + trii_plan_stats_get().misses, runs + 1);
    free_unit(&u);
}

static void parts_without_a_common_byte_are_strangers(void **state)
{
    (void)state;
    disjoint();
}

/* --- a gradient through parts --------------------------------------------- */

static void a_part_has_a_gradient_after_the_whole_was_written(void **state)
{
    unit u = make_unit(SMALL, 2);
    tri_tensor *loss;

    (void)state;
    tri_requires_grad(u.a, true);
    loss = tri_sum(tri_square(u.a), NULL, 0, false); /* gradient: 2a, of before */
    leave_in(tri_mul_scalar(u.flat, 5), u.flat);
    tri_backward(loss);
    if (!is_eager()) { /* else it has been written, as below */
        CHECK_OK(tri_run());
        EXPECT(tri_grad(u.a), 4);
        EXPECT(u.flat, 10);
        CHECK_OK(tri_step_end_status());
    }
    tri_step_end();
    /* written by a run: what the gradient needs is no longer there */
    loss = tri_sum(tri_square(u.a), NULL, 0, false);
    (void)tri_keep(loss);
    CHECK_OK(tri_run());
    leave_in(tri_mul_scalar(u.flat, 5), u.flat);
    CHECK_OK(tri_run());
    tri_backward(loss);
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "");
    tri_step_end();
    free_unit(&u);
}

/* --- the program's own accesses ------------------------------------------- */

static void copies_in_come_after_what_was_recorded_before(void **state)
{
    unit u = make_unit(LARGE, 1);
    tri_tensor *early = plus(u.flat, 1), *late;

    (void)state;
    leave_in(tri_mul_scalar(u.shard, 3), u.shard);
    fill(u.a, 9);
    late = plus(u.flat, 1);
    EXPECT(early, 2);
    EXPECT(late, 10, 10, 4, 2);
    EXPECT(u.b, 3, 1);
    CHECK_OK(tri_step_end_status());
    /* what was to be left in a part is not, since all of it is written */
    early = plus(u.flat, 1);
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    fill(u.flat, 5);
    EXPECT(early, 10, 10, 4, 2);
    EXPECT(plus(u.a, 0), 5);
    free_unit(&u);
}

static void a_part_stays_in_the_memory_of_the_whole(void **state)
{
    tri_tensor *early;
    unit u;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    u = make_unit(LARGE, 1);
    early = plus(u.a, 1);
    fill(u.a, 2); /* the recorded sum still wants the old contents */
    EXPECT(u.flat, 2, 2, 1, 1);
    EXPECT(early, 2);
    CHECK_OK(tri_step_end_status());
    early = plus(u.flat, 1);
    fill(u.a, 3);
    EXPECT(u.flat, 3, 3, 1, 1);
    EXPECT(early, 3, 3, 2, 2);
    assert_false(trii_tensor_is_kept(u.flat)); /* nor does anybody give it another one */
    CHECK_FAILS(trii_tensor_send(u.a, TRI_CPU(1)), TRI_ERR_STATE, "shares");
    free_unit(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_part_is_what_was_written_to_the_whole),
    cmocka_unit_test(the_whole_is_what_was_written_to_its_parts),
    cmocka_unit_test(what_was_read_before_is_what_was_there),
    cmocka_unit_test(a_kernel_does_not_read_what_it_has_written),
    cmocka_unit_test(writes_come_in_the_order_of_the_program),
    cmocka_unit_test(a_plan_is_one_of_what_overlaps),
    cmocka_unit_test(parts_without_a_common_byte_are_strangers),
    cmocka_unit_test(a_part_has_a_gradient_after_the_whole_was_written),
    cmocka_unit_test(copies_in_come_after_what_was_recorded_before),
    cmocka_unit_test(a_part_stays_in_the_memory_of_the_whole),
};

TEST_MAIN(tests)
