/*
 * repeated_step_test.c - a step that is like the last one takes over what that has checked; one
 * that differs in whatever decides a shape or a type does not.
 */
/* ctest: threads=none */
#include <trireme/ops.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "train/graph/step/step.h"
#include "train/graph/step/type.h"

static int inferred;

static tri_status counted_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    inferred++;
    trii_type_copy(&out[0], in[0]);
    *n_out = 1;
    return TRI_OK;
}

static const trii_graph_op counted = {.name = "counted", .shape = counted_shape};

static tri_tensor *ones(int64_t rows, int64_t columns)
{
    static float values[64];

    for (size_t i = 0; i < TRII_COUNT_OF(values); i++)
        values[i] = 1;
    return tri_tensor_from((int64_t[]){rows, columns}, 2, TRI_DTYPE_F32, values);
}

static void assert_shape(const tri_tensor *x, int64_t rows, int64_t columns)
{
    assert_int_equal(tri_tensor_ndim(x), 2);
    assert_int_equal(tri_tensor_size(x, 0), rows);
    assert_int_equal(tri_tensor_size(x, 1), columns);
}

static void shapes_are_inferred_in_the_first_of_equal_steps(void **state)
{
    tri_tensor *x = ones(4, 3);

    (void)state;
    inferred = 0;
    for (int step = 0; step < 5; step++) {
        tri_tensor *y = trii_record(&counted, &x, 1, NULL);

        for (int i = 0; i < 9; i++)
            y = trii_record(&counted, &y, 1, NULL);
        assert_shape(y, 4, 3);
        CHECK_OK(tri_step_end_status());
    }
    assert_int_equal(inferred, 10);
    tri_tensor_unref(x);
}

static void another_shape_of_what_is_read_is_seen(void **state)
{
    static const int64_t rows[] = {4, 4, 5, 4, 1, 1};
    tri_tensor *w = ones(3, 2);

    (void)state;
    for (size_t step = 0; step < TRII_COUNT_OF(rows); step++) {
        tri_tensor *x = ones(rows[step], 3);

        for (int again = 0; again < 2; again++) {
            tri_tensor *y = tri_relu(tri_matmul(tri_relu(x), w));

            assert_shape(y, rows[step], 2);
            assert_true(tri_item(tri_sum(y, NULL, 0, false)) == 6.0 * (double)rows[step]);
            CHECK_OK(tri_step_end_status());
        }
        tri_tensor_unref(x);
    }
    tri_tensor_unref(w);
}

static void other_operands_integers_and_numbers_are_seen(void **state)
{
    tri_tensor *x = ones(4, 3), *z = ones(3, 4);

    (void)state;
    for (int step = 0; step < 8; step++) {
        int64_t dim = step / 2 % 2;
        tri_tensor *a = tri_relu(x), *b = tri_relu(z);
        tri_tensor *sum = tri_sum(a, &dim, 1, false);
        tri_tensor *product = step % 2 == 0 ? tri_matmul(a, b) : tri_matmul(b, a);

        assert_int_equal(tri_tensor_size(sum, 0), dim == 0 ? 3 : 4);
        assert_shape(product, step % 2 == 0 ? 4 : 3, step % 2 == 0 ? 4 : 3);
        assert_true(tri_item(tri_mean(tri_mul_scalar(sum, step), NULL, 0, false)) ==
                    (dim == 0 ? 4.0 : 3.0) * step);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(z);
}

static void a_step_that_reads_its_tensors_in_another_order_is_seen(void **state)
{
    tri_tensor *x = ones(2, 3), *w = ones(3, 2);

    (void)state;
    for (int step = 0; step < 6; step++) {
        bool swapped = step % 3 == 1;

        assert_shape(swapped ? tri_matmul(w, x) : tri_matmul(x, w), swapped ? 3 : 2,
                     swapped ? 3 : 2);
        assert_shape(tri_relu(swapped ? w : x), swapped ? 3 : 2, swapped ? 2 : 3);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void autocast_is_seen_in_either_direction(void **state)
{
    tri_tensor *x = ones(2, 3), *w = ones(4, 3);

    (void)state;
    for (int step = 0; step < 8; step++) {
        bool lower = step / 2 % 2 == 1;
        tri_tensor *y;

        if (lower)
            tri_autocast_begin(TRI_DTYPE_BF16);
        y = tri_relu(tri_linear(x, w, NULL));
        if (lower)
            tri_autocast_end();
        assert_int_equal(tri_tensor_dtype(y), lower ? TRI_DTYPE_BF16 : TRI_DTYPE_F32);
        assert_true(tri_item(tri_mean(y, NULL, 0, false)) == 3);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void a_refused_operation_changes_what_follows(void **state)
{
    tri_tensor *x = ones(4, 3);

    (void)state;
    for (int step = 0; step < 6; step++) {
        tri_tensor *a = tri_relu(x), *b, *bad = NULL;

        if (step % 2 == 1)
            bad = tri_matmul(a, a);
        b = tri_relu(tri_sum(a, TRI_SHAPE(0), false));
        assert_int_equal(tri_tensor_status(bad != NULL ? bad : b),
                         bad != NULL ? TRI_ERR_INVALID_ARG : TRI_OK);
        assert_int_equal(tri_tensor_size(b, 0), 3);
        if (step == 3)
            assert_int_equal(tri_tensor_status(tri_relu(bad)), TRI_ERR_INVALID_ARG);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

enum { LENGTH = 3, WAYS = 4, PROGRAMS = WAYS * WAYS * WAYS };

typedef struct leaves {
    tri_tensor *one[LENGTH], *two[LENGTH]; /* [1] and [2], of i + 1 */
    tri_tensor *three[LENGTH];             /* which nothing here can be added to but itself */
} leaves;

/* A step of operations that read a new tensor of one size or another, or are refused with a new
 * tensor or without one. */
static void run_program(const leaves *l, int program)
{
    tri_tensor *sum = l->one[0], *bad = NULL;
    int value = 1, width = 1;

    for (int i = 0; i < LENGTH; i++, program /= WAYS) {
        switch (program % WAYS) {
        case 0:
            sum = tri_add(sum, l->one[i]);
            value += i + 1;
            break;
        case 1:
            sum = tri_add(sum, l->two[i]);
            value += i + 1;
            width = 2;
            break;
        case 2:
            bad = tri_matmul(l->three[i], l->two[i]);
            break;
        default:
            bad = tri_sum(sum, TRI_SHAPE(7), false);
            break;
        }
        assert_int_equal(tri_tensor_ndim(sum), 1);
        assert_int_equal(tri_tensor_size(sum, 0), width);
        if (bad != NULL)
            assert_int_equal(tri_tensor_status(bad), TRI_ERR_INVALID_ARG);
    }
    assert_int_equal((int)tri_item(tri_sum(sum, TRI_SHAPE(0), false)), value * width);
    CHECK_OK(tri_step_end_status());
}

/* Values that failed take numbers, too: each of these programs after each other one. */
static void operations_that_are_refused_here_and_there_change_no_value(void **state)
{
    leaves l;

    (void)state;
    for (int i = 0; i < LENGTH; i++) {
        const float values[3] = {(float)(i + 1), (float)(i + 1), (float)(i + 1)};

        l.one[i] = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, values);
        l.two[i] = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, values);
        l.three[i] = tri_tensor_from((int64_t[]){3}, 1, TRI_DTYPE_F32, values);
    }
    for (int before = 0; before < PROGRAMS; before++) {
        for (int after = 0; after < PROGRAMS; after++) {
            run_program(&l, before);
            run_program(&l, after);
        }
    }
    for (int i = 0; i < LENGTH; i++) {
        tri_tensor_unref(l.one[i]);
        tri_tensor_unref(l.two[i]);
        tri_tensor_unref(l.three[i]);
    }
}

static void an_operand_that_was_not_kept_this_time_is_refused(void **state)
{
    tri_tensor *x = ones(4, 3);

    (void)state;
    for (int step = 0; step < 6; step++) {
        tri_tensor *a = tri_relu(x), *sum = tri_sum(a, NULL, 0, false), *b;
        bool ran = step % 3 == 2;

        if (ran)
            assert_true(tri_item(sum) == 12);
        b = tri_relu(a);
        assert_int_equal(tri_tensor_status(b), ran ? TRI_ERR_STATE : TRI_OK);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_inferred_in_the_first_of_equal_steps),
        cmocka_unit_test(another_shape_of_what_is_read_is_seen),
        cmocka_unit_test(other_operands_integers_and_numbers_are_seen),
        cmocka_unit_test(a_step_that_reads_its_tensors_in_another_order_is_seen),
        cmocka_unit_test(autocast_is_seen_in_either_direction),
        cmocka_unit_test(a_refused_operation_changes_what_follows),
        cmocka_unit_test(operations_that_are_refused_here_and_there_change_no_value),
        cmocka_unit_test(an_operand_that_was_not_kept_this_time_is_refused),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
