/*
 * views_test.c - views change no bytes: random chains of them against the reference kernels, bit
 * for bit, their gradients, and tensors that change beneath them.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/integers.h"

/* An operation that is no view, of any type. */
static tri_tensor *changed(tri_tensor *x)
{
    return tri_tensor_dtype(x) == TRI_DTYPE_I64 ? tri_add(x, x) : tri_neg(x);
}

/* --- random chains -------------------------------------------------------- */

static int64_t sizes_of(tri_tensor *x, int64_t *shape)
{
    int64_t n = 1;

    for (int d = 0; d < tri_tensor_ndim(x); d++) {
        shape[d] = tri_tensor_size(x, d);
        n *= shape[d];
    }
    return n;
}

static tri_tensor *permuted(tri_tensor *x)
{
    int64_t dims[TRI_MAX_DIMS];
    int n = tri_tensor_ndim(x);

    for (int d = 0; d < n; d++)
        dims[d] = d;
    for (int d = n - 1; d > 0; d--) {
        int64_t k = below(d + 1), other = dims[k];

        dims[k] = dims[d];
        dims[d] = other;
    }
    return tri_permute(x, dims, n);
}

/* Two dimensions become one, or one becomes two. */
static tri_tensor *reshaped(tri_tensor *x)
{
    int64_t shape[TRI_MAX_DIMS + 1];
    int n = tri_tensor_ndim(x), d = (int)below(n);

    (void)sizes_of(x, shape);
    if (below(2) == 0 && n > 1 && d + 1 < n) {
        shape[d] *= shape[d + 1];
        for (int k = d + 1; k + 1 < n; k++)
            shape[k] = shape[k + 1];
        return tri_reshape(x, shape, n - 1);
    }
    if (n > 4)
        return tri_reshape(x, TRI_SHAPE(-1));
    for (int k = n; k > d; k--)
        shape[k] = shape[k - 1];
    for (shape[d] = 3; shape[d] > 1 && shape[d + 1] % shape[d] != 0; shape[d]--)
        ;
    shape[d + 1] /= shape[d];
    return tri_reshape(x, shape, n + 1);
}

static tri_tensor *expanded(tri_tensor *x)
{
    int64_t shape[TRI_MAX_DIMS + 1];
    int n = tri_tensor_ndim(x);

    if (sizes_of(x, shape) > 600 || n > 4)
        return tri_reshape(x, TRI_SHAPE(-1));
    for (int d = 0; d < n; d++)
        shape[d] = shape[d] == 1 ? 1 + below(3) : shape[d];
    if (below(2) == 0) {
        for (int d = n; d > 0; d--)
            shape[d] = shape[d - 1];
        shape[0] = 2;
        n++;
    }
    return tri_expand(x, shape, n);
}

static tri_tensor *part_of(tri_tensor *x)
{
    int d = (int)below(tri_tensor_ndim(x));
    int64_t size = tri_tensor_size(x, d), a = below(size + 1), b = below(size + 1);
    tri_tensor *parts[3];

    switch (below(4)) {
    case 0:
        return tri_slice(x, d, a < b ? a : b, a < b ? b : a, 1 + below(3));
    case 1:
        return tri_narrow(x, d, a < b ? a : b, a < b ? b - a : a - b);
    case 2:
        tri_split(x, TRI_SHAPE(a < b ? a : b, a < b ? b - a : a - b, size - (a < b ? b : a)), d,
                  parts);
        return parts[below(3)];
    default:
        if (size == 0 || tri_tensor_ndim(x) == 1)
            return x;
        return tri_select(x, d, below(size));
    }
}

/* The parts of a split come together in another order, one of them changed. */
static tri_tensor *shuffled(tri_tensor *x)
{
    int d = (int)below(tri_tensor_ndim(x));
    int64_t size = tri_tensor_size(x, d), a = below(size + 1);
    tri_tensor *parts[2], *turned[3];

    tri_split(x, TRI_SHAPE(a, size - a), d, parts);
    turned[0] = below(2) == 0 ? changed(parts[1]) : parts[1];
    turned[1] = below(2) == 0 ? changed(parts[0]) : parts[0];
    turned[2] = parts[1];
    return tri_concat(turned, 2 + (int)below(2), d);
}

static tri_tensor *one_change(tri_tensor *x)
{
    if (tri_tensor_ndim(x) < 1)
        CHECK_OK(tri_tensor_status(x));
    switch (below(7)) {
    case 0:
        return permuted(x);
    case 1:
        return reshaped(x);
    case 2:
        return expanded(x);
    case 3:
    case 4:
        return part_of(x);
    case 5:
        return shuffled(x);
    default:
        return changed(x);
    }
}

#define KEPT 3
typedef struct outcome {
    void *data[KEPT + 1];
    size_t bytes[KEPT + 1];
} outcome;

static void take(outcome *o, int k, tri_tensor *tensor)
{
    o->bytes[k] = (size_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));
    o->data[k] = calloc(o->bytes[k] + 1, 1);
    CHECK_OK(tri_tensor_copy_out(tensor, o->data[k], o->bytes[k]));
}

static outcome run_chain(uint64_t seed, tri_dtype dtype)
{
    outcome o;
    int64_t shape[4];
    tri_tensor *x, *y, *kept[KEPT], *sum = NULL;
    int ndim;
    bool runs;

    random_state = seed;
    ndim = 1 + (int)below(4);
    for (int d = 0; d < ndim; d++)
        shape[d] = below(20) == 0 ? 0 : 1 + below(7);
    x = integers(dtype, shape, ndim);
    if (dtype == TRI_DTYPE_F32 || dtype == TRI_DTYPE_F64)
        tri_requires_grad(x, true);
    y = below(2) == 0 ? x : changed(x);
    for (int k = 0; k < KEPT; k++) {
        for (int64_t n = 1 + below(5); n > 0; n--)
            y = one_change(y);
        kept[k] = tri_keep(changed(y));
        CHECK_OK(tri_tensor_status(kept[k]));
        runs = below(4) == 0;
        if (runs || below(3) == 0)
            (void)tri_keep(y); /* the view itself */
        if (dtype == TRI_DTYPE_F32 || dtype == TRI_DTYPE_F64) {
            tri_tensor *term = tri_sum(y, NULL, 0, false);

            sum = sum == NULL ? term : tri_add(sum, term);
        }
        if (runs)
            CHECK_OK(tri_run());
    }
    if (sum != NULL)
        tri_backward(sum);
    CHECK_OK(tri_run());
    for (int k = 0; k < KEPT; k++)
        take(&o, k, kept[k]);
    take(&o, KEPT, tri_grad(x) != NULL ? tri_grad(x) : x);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return o;
}

static void compare(uint64_t seed, const char *of, outcome *planned, outcome *reference)
{
    for (int k = 0; k <= KEPT; k++) {
        assert_int_equal(planned->bytes[k], reference->bytes[k]);
        if (memcmp(planned->data[k], reference->data[k], planned->bytes[k]) != 0)
            fail_msg("seed %llu of %s: result %d differs", (unsigned long long)seed, of, k);
        free(planned->data[k]);
        free(reference->data[k]);
    }
}

static void check_chains(tri_dtype dtype, uint64_t first, int n)
{
    for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
        outcome planned = run_chain(seed, dtype), reference;

        trii_executor_set(&trii_executor_reference);
        reference = run_chain(seed, dtype);
        trii_executor_set(NULL);
        compare(seed, tri_dtype_name(dtype), &planned, &reference);
    }
}

static void random_chains_of_views_have_the_reference_kernels_bits(void **state)
{
    (void)state;
    check_chains(TRI_DTYPE_F32, 1, 150);
}

static void random_chains_of_views_of_other_types_have_the_reference_kernels_bits(void **state)
{
    (void)state;
    check_chains(TRI_DTYPE_F64, 1000, 30);
    check_chains(TRI_DTYPE_BF16, 2000, 30);
    check_chains(TRI_DTYPE_I64, 3000, 30);
}

/* --- a part of a tensor --------------------------------------------------- */

/* Of what slices of one value flow back to, each is added to its place. */
static void gradients_of_slices_are_added_where_they_belong(void **state)
{
    float got[40], want[40];
    tri_tensor *x;
    int updates = 0;

    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        tri_tensor *sum = NULL;
        trii_step *step;

        trii_executor_set(reference ? &trii_executor_reference : NULL);
        random_state = 5;
        x = integers(TRI_DTYPE_F32, TRI_SHAPE(8, 5));
        tri_requires_grad(x, true);
        for (int i = 0; i < 4; i++) {
            tri_tensor *y = tri_square(tri_slice(x, i % 2, i, 5, 1 + i / 2));

            sum = i == 0 ? tri_sum(y, NULL, 0, false) : tri_add(sum, tri_sum(y, NULL, 0, false));
        }
        tri_backward(sum);
        step = trii_step_current();
        for (int32_t n = 0; n < step->n_nodes; n++)
            updates += step->nodes[n].op == &trii_op_slice_update;
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), reference ? want : got, sizeof(got)));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    trii_executor_set(NULL);
    assert_int_equal(updates, 2 * 3);
    assert_memory_equal(got, want, sizeof(got));
}

static void a_split_of_bf16_of_which_one_part_is_used_has_a_gradient(void **state)
{
    tri_tensor *x, *parts[3];
    float got[12];

    (void)state;
    random_state = 2;
    x = integers(TRI_DTYPE_F32, TRI_SHAPE(4, 3));
    tri_requires_grad(x, true);
    tri_split(tri_cast(x, TRI_DTYPE_BF16), TRI_SHAPE(1, 1, 1), 1, parts);
    tri_backward(tri_sum(tri_mul_scalar(parts[1], 2), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    for (int i = 0; i < 12; i++)
        CHECK_NEAR((double)got[i], i % 3 == 1 ? 2.0 : 0.0, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* Of one part of a split, which is copied to its place in the whole: no reader but that copy. */
static void the_gradient_of_batch_norm_over_a_part_gets_into_the_whole(void **state)
{
    float got[2][2 * 5 * 3 * 4];

    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        for (int reference = 0; reference < 2; reference++) {
            const tri_batch_norm_args args = {.training = true};
            tri_tensor *x, *y, *parts[3];

            trii_executor_set(reference ? &trii_executor_reference : NULL);
            random_state = 9;
            x = integers(TRI_DTYPE_F32, TRI_SHAPE(2, 5, 3, 4));
            tri_requires_grad(x, true);
            tri_split(x, TRI_SHAPE(2, 2, 1), 1, parts);
            y = tri_batch_norm(parts[1], &args);
            y = relu ? tri_relu(y) : y;
            tri_backward(tri_sum(tri_square(tri_narrow(y, 2, 1, 1)), NULL, 0, false));
            CHECK_OK(tri_tensor_copy_out(tri_grad(x), got[reference], sizeof(got[0])));
            CHECK_OK(tri_step_end_status());
            tri_tensor_unref(x);
        }
        for (size_t i = 0; i < TRII_COUNT_OF(got[0]); i++)
            CHECK_NEAR((double)got[0][i], (double)got[1][i], 1e-4);
    }
    trii_executor_set(NULL);
}

/* x[at .. at + 2] = src, bound to x itself; src is made of x where `own`. */
static void update(tri_tensor *x, tri_tensor *src, int64_t at, bool own)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    tri_tensor *part = own ? tri_narrow(x, 0, at == 0 ? 1 : at - 1, 2) : src;

    CHECK_OK(trii_resolve(step, tri_slice_scatter(x, part, 0, at, at + 2, 1), &id));
    CHECK_OK(trii_bind(step, id, x));
}

static void a_part_is_updated_in_its_tensor_also_from_another_part_of_it(void **state)
{
    const int64_t shape[2] = {6, 3};
    float got[18], want[18];

    (void)state;
    for (int64_t at = 0; at < 5; at++) {
        for (int own = 0; own < 2; own++) {
            for (int reference = 0; reference < 2; reference++) {
                tri_tensor *x, *src;

                trii_executor_set(reference ? &trii_executor_reference : NULL);
                random_state = 5;
                x = integers(TRI_DTYPE_F32, shape, 2);
                src = integers(TRI_DTYPE_F32, TRI_SHAPE(2, 3));
                update(x, src, at, own != 0);
                CHECK_OK(tri_run());
                if (!reference && own == 0)
                    assert_int_equal(trii_plan_stats_get().copied_bytes, 0);
                update(x, src, 4 - at, own != 0);
                CHECK_OK(tri_tensor_copy_out(x, reference ? want : got, sizeof(got)));
                CHECK_OK(tri_step_end_status());
                tri_tensor_unref(x);
                tri_tensor_unref(src);
            }
            assert_memory_equal(got, want, sizeof(got));
        }
    }
    trii_executor_set(NULL);
}

/* x bound to a random change of itself: parts of it in other places, and changed ones. */
static void change(tri_tensor *x)
{
    trii_step *step = trii_step_current();
    int d = (int)below(2);
    int64_t size = tri_tensor_size(x, d), at = below(size + 1);
    tri_tensor *parts[2], *y;
    trii_vid id = TRII_NO_VALUE;

    tri_split(x, TRI_SHAPE(at, size - at), d, parts);
    y = parts[1];
    if (below(2) == 0)
        parts[below(2)] = tri_neg(parts[below(2)]);
    switch (below(4)) {
    case 0:
        y = tri_concat((tri_tensor *const[]){y, parts[0]}, 2, d);
        break;
    case 1:
        y = tri_concat(parts, 2, d);
        break;
    case 2:
        y = tri_slice_scatter(x, y, d, 0, size - at, 1);
        break;
    default:
        y = tri_add(x, tri_narrow(x, d, at == size ? 0 : at, 1));
        break;
    }
    if (tri_tensor_numel(y) != tri_tensor_numel(x))
        y = tri_mul_scalar(x, -1);
    CHECK_OK(trii_resolve(step, y, &id));
    CHECK_OK(trii_bind(step, id, x));
}

/* Views of x are taken, x is changed, and the views are read again. */
static outcome run_changes(uint64_t seed)
{
    outcome o;
    tri_tensor *x, *views[8], *kept[KEPT];
    int n_views = 0, n_kept = 0;

    random_state = seed;
    x = integers(TRI_DTYPE_F32, TRI_SHAPE(5, 6));
    views[n_views++] = x;
    while (n_kept < KEPT) {
        switch (below(5)) {
        case 0:
            if (n_views < 8)
                views[n_views++] = tri_keep(below(2) == 0 ? permuted(x) : part_of(x));
            break;
        case 1:
            kept[n_kept++] = tri_keep(changed(views[below(n_views)]));
            break;
        case 2:
            if (below(3) == 0)
                CHECK_OK(tri_run());
            break;
        default:
            change(x);
        }
    }
    CHECK_OK(tri_run());
    for (int k = 0; k < KEPT; k++)
        take(&o, k, kept[k]);
    take(&o, KEPT, x);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return o;
}

static void views_keep_what_a_tensor_was_when_it_is_changed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 300; seed++) {
        outcome planned = run_changes(seed), reference;

        trii_executor_set(&trii_executor_reference);
        reference = run_changes(seed);
        trii_executor_set(NULL);
        compare(seed, "f32", &planned, &reference);
    }
}

static void a_result_is_not_written_over_what_a_view_still_reads(void **state)
{
    enum { SIDE = 64 };
    float *got[2];

    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        tri_tensor *x, *y;

        trii_executor_set(reference ? &trii_executor_reference : NULL);
        got[reference] = malloc(SIDE * SIDE * sizeof(**got));
        random_state = 7;
        x = integers(TRI_DTYPE_F32, TRI_SHAPE(SIDE, SIDE));
        y = tri_flip(x, 0); /* in a kernel of its own */
        y = tri_mul(tri_add_scalar(y, 1), tri_transpose(y, 0, 1));
        y = tri_flip(y, 1);
        y = tri_sub(
            y, tri_narrow(tri_expand(tri_narrow(y, 0, 3, 1), TRI_SHAPE(SIDE, SIDE)), 0, 0, SIDE));
        CHECK_OK(tri_tensor_copy_out(tri_flip(y, 0), got[reference], SIDE * SIDE * sizeof(**got)));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    trii_executor_set(NULL);
    assert_memory_equal(got[0], got[1], SIDE * SIDE * sizeof(**got));
    free(got[0]);
    free(got[1]);
}

/* A view of the same elements in the same order is another name of its operand's memory. */
static void a_result_is_not_written_over_what_another_name_still_reads(void **state)
{
    enum { SIDE = 8 };
    float got[2][2 * SIDE * SIDE];

    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        tri_tensor *x, *y, *name, *results[2];

        trii_executor_set(reference ? &trii_executor_reference : NULL);
        random_state = 7;
        x = integers(TRI_DTYPE_F32, TRI_SHAPE(SIDE, SIDE));
        y = tri_flip(x, 0); /* in a kernel of its own */
        name = tri_permute(y, TRI_SHAPE(0, 1));
        results[0] = tri_add_scalar(y, 1);
        results[1] = tri_mul(name, results[0]);
        for (int i = 0; i < 2; i++)
            results[i] = tri_flip(results[i], 1);
        CHECK_OK(tri_tensor_copy_out(tri_stack(results, 2, 0), got[reference], sizeof(got[0])));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    trii_executor_set(NULL);
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* Only one element is left, however far the next one would be. */
static void steps_may_be_longer_than_any_tensor(void **state)
{
    float got[3][4];

    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        tri_tensor *x, *y[3];

        trii_executor_set(reference ? &trii_executor_reference : NULL);
        random_state = 7;
        x = integers(TRI_DTYPE_F32, TRI_SHAPE(4, 4));
        y[0] = tri_neg(tri_slice(x, 0, 1, INT64_MAX, INT64_MAX));
        y[1] = tri_neg(tri_unfold(tri_narrow(x, 0, 1, 2), 0, 1, INT64_MAX));
        y[2] = tri_slice_scatter(x, tri_neg(tri_narrow(x, 0, 1, 1)), 0, 1, 4, INT64_MAX);
        y[2] = tri_narrow(y[2], 0, 1, 1);
        for (int i = 0; i < 3; i++)
            y[i] = tri_reshape(y[i], TRI_SHAPE(4));
        CHECK_OK(tri_tensor_copy_out(tri_stack(y, 3, 0), got, sizeof(got)));
        assert_memory_equal(got[1], got[0], sizeof(got[0]));
        assert_memory_equal(got[2], got[0], sizeof(got[0]));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    trii_executor_set(NULL);
}

static void a_part_must_have_the_shape_of_what_it_replaces(void **state)
{
    tri_tensor *x, *part, *wide;

    (void)state;
    x = integers(TRI_DTYPE_F32, TRI_SHAPE(4, 3));
    part = integers(TRI_DTYPE_F32, TRI_SHAPE(2, 2));
    wide = integers(TRI_DTYPE_F64, TRI_SHAPE(2, 3));
    assert_int_equal(tri_tensor_dtype(tri_slice_scatter(x, wide, 0, 0, 2, 1)), TRI_DTYPE_F32);
    assert_int_equal(tri_tensor_status(tri_slice_scatter(x, part, 0, 0, 2, 1)),
                     TRI_ERR_INVALID_ARG);
    assert_int_equal(tri_tensor_status(tri_slice_scatter(x, wide, 0, 0, 3, 1)),
                     TRI_ERR_INVALID_ARG);
    assert_int_equal(tri_tensor_status(tri_slice_scatter(x, part, 0, 0, 2, 0)),
                     TRI_ERR_INVALID_ARG);
    assert_int_equal(tri_tensor_status(tri_unfold(x, 0, 5, 1)), TRI_ERR_INVALID_ARG);
    assert_int_equal(tri_tensor_status(tri_unfold(x, 0, 2, 0)), TRI_ERR_INVALID_ARG);
    assert_int_equal(tri_tensor_status(tri_unsqueeze(x, 3)), TRI_ERR_INVALID_ARG);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(part);
    tri_tensor_unref(wide);
}

/* What lies in whose memory is asked of each view of a chain: were every one gone through again to
 * its end, this would last beyond the deadline of the test. */
static void a_chain_of_200000_reshapes_is_planned_in_one_go(void **state)
{
    const float ones[6] = {1, 1, 1, 1, 1, 1};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, ones), *y = x;
    float grad[6];

    (void)state;
    tri_requires_grad(x, true);
    for (int i = 0; i < (TEST_SANITIZED ? 40000 : 200000); i++)
        y = tri_reshape(y, TRI_SHAPE(2 + (i & 1), 3 - (i & 1)));
    tri_backward(tri_sum(tri_exp(y), NULL, 0, false)); /* which wants forward's values, too */
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), grad, sizeof(grad)));
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(grad[i], exp(1.0), 1e-6);
    tri_tensor_unref(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_chains_of_views_have_the_reference_kernels_bits),
        cmocka_unit_test(random_chains_of_views_of_other_types_have_the_reference_kernels_bits),
        cmocka_unit_test(gradients_of_slices_are_added_where_they_belong),
        cmocka_unit_test(a_split_of_bf16_of_which_one_part_is_used_has_a_gradient),
        cmocka_unit_test(the_gradient_of_batch_norm_over_a_part_gets_into_the_whole),
        cmocka_unit_test(a_part_is_updated_in_its_tensor_also_from_another_part_of_it),
        cmocka_unit_test(views_keep_what_a_tensor_was_when_it_is_changed),
        cmocka_unit_test(a_result_is_not_written_over_what_a_view_still_reads),
        cmocka_unit_test(a_result_is_not_written_over_what_another_name_still_reads),
        cmocka_unit_test(steps_may_be_longer_than_any_tensor),
        cmocka_unit_test(a_part_must_have_the_shape_of_what_it_replaces),
        cmocka_unit_test(a_chain_of_200000_reshapes_is_planned_in_one_go),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
