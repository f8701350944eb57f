/*
 * keep_read_test.c - steps that wait while other contexts write the tensors that they have read.
 */
#include <trireme/context.h>
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

#define N 6

static tri_tensor *numbers(float first)
{
    float data[N];

    for (int i = 0; i < N; i++)
        data[i] = first + (float)i;
    return tri_tensor_from((int64_t[]){N}, 1, TRI_DTYPE_F32, data);
}

/* A context that has read the tensor, and keeps it or not. */
typedef struct reader {
    tri_context *context;
    tri_tensor *tensor, *twice;
} reader;

static void read_it(reader *r, tri_tensor *tensor, bool keep)
{
    r->tensor = tensor;
    CHECK_OK(tri_context_create(&r->context));
    CHECK_OK(tri_context_enter(r->context));
    r->twice = tri_keep(tri_add(tensor, tensor));
    CHECK_OK(tri_run());
    if (keep)
        trii_step_keep_read(trii_step_current(), tensor);
    CHECK_OK(tri_context_leave());
}

/* The first element of what it reads now. */
static tri_status read_again(const reader *r, float *first_out)
{
    float data[N];
    tri_status status;

    CHECK_OK(tri_context_enter(r->context));
    status = tri_tensor_copy_out(tri_mul_scalar(r->tensor, 1), data, sizeof(data));
    *first_out = data[0];
    CHECK_OK(tri_context_leave());
    return status;
}

/* Another context adds 1 to it, in new memory if `renew`. */
static tri_status write_it(tri_tensor *tensor, bool renew, bool fail)
{
    trii_renewed old = {0};
    trii_step *step = trii_step_current();
    trii_vid id;
    tri_status status = TRI_OK;

    if (renew)
        status = trii_tensor_renew(step, tensor, &old);
    if (status == TRI_OK)
        status = trii_resolve(step, tri_add_scalar(tensor, 1), &id);
    if (status == TRI_OK)
        status = trii_bind(step, id, tensor);
    if (status == TRI_OK && fail)
        trii_step_fail(step, tri_status_fail(TRI_ERR_NAN, "no"));
    if (status == TRI_OK)
        status = tri_run();
    trii_tensor_renew_end(tensor, &old, status == TRI_OK);
    tri_step_end();
    return status;
}

static float first_of(tri_tensor *tensor)
{
    float data[N];

    CHECK_OK(tri_tensor_copy_out(tensor, data, sizeof(data)));
    tri_step_end();
    return data[0];
}

static void a_step_goes_on_with_what_it_has_read(void **state)
{
    tri_tensor *tensor = numbers(3);
    long live;
    reader r;
    float first;

    (void)state;
    CHECK_OK(write_it(tensor, true, false)); /* nobody reads it: in place */
    live = trii_alloc_live();
    for (int round = 0; round < 3; round++) {
        read_it(&r, tensor, true);
        for (int i = 0; i < 2; i++)
            CHECK_OK(write_it(tensor, true, false));
        assert_true(first_of(tensor) == 6 + 2 * (float)round);
        CHECK_OK(read_again(&r, &first));
        assert_true(first == 4 + 2 * (float)round);
        tri_context_destroy(r.context);
        assert_true(round == 0 || trii_alloc_live() == live);
        live = trii_alloc_live();
    }
    tri_tensor_unref(tensor);
}

static void a_failed_write_gives_the_contents_back(void **state)
{
    tri_tensor *tensor = numbers(3);
    reader r;
    float first;

    (void)state;
    read_it(&r, tensor, true);
    CHECK_FAILS(write_it(tensor, true, true), TRI_ERR_NAN, "no");
    assert_true(first_of(tensor) == 3);
    CHECK_OK(read_again(&r, &first));
    assert_true(first == 3);
    tri_context_destroy(r.context);
    tri_tensor_unref(tensor);
}

static void contents_that_were_written_over_are_refused(void **state)
{
    tri_tensor *tensor = numbers(3);
    float data[N] = {0}, first;
    reader r;

    (void)state;
    read_it(&r, tensor, true);
    CHECK_OK(tri_tensor_copy_in(tensor, data, sizeof(data))); /* knows nothing of the reader */
    tri_step_end();
    CHECK_FAILS(read_again(&r, &first), TRI_ERR_STATE, "has overwritten");
    tri_context_destroy(r.context);
    tri_tensor_unref(tensor);
}

static void a_step_may_read_what_is_there_now(void **state)
{
    tri_tensor *tensor = numbers(3);
    reader r;
    float first;

    (void)state;
    read_it(&r, tensor, false);
    CHECK_OK(write_it(tensor, true, false));
    CHECK_OK(tri_context_enter(r.context));
    trii_step_read_again(trii_step_current(), tensor);
    CHECK_OK(tri_context_leave());
    CHECK_OK(read_again(&r, &first));
    assert_true(first == 4);
    tri_context_destroy(r.context);
    tri_tensor_unref(tensor);
}

/* Memory of the program's own stays where it is. */
static void a_tensor_over_memory_of_the_program_is_written_in_place(void **state)
{
    static float memory[N] = {7};
    tri_tensor *tensor = tri_tensor_wrap((int64_t[]){N}, 1, TRI_DTYPE_F32, memory, NULL, NULL);
    reader r;
    float first;

    (void)state;
    read_it(&r, tensor, true);
    CHECK_OK(write_it(tensor, true, false));
    assert_true(memory[0] == 8);
    CHECK_FAILS(read_again(&r, &first), TRI_ERR_STATE, "has overwritten");
    tri_context_destroy(r.context);
    tri_tensor_unref(tensor);
}

/* A convolution that wants its weights in blocks would change them where they lie. */
static void kept_contents_keep_their_layout(void **state)
{
    tri_module *conv = tri_nn_conv2d(32, 32, 3, NULL);
    tri_tensor *w = tri_module_find(conv, "weight"), *x, *ramp;
    static float before[32 * 32 * 9], after[32 * 32 * 9], steps[32 * 32 * 9];
    reader r;

    (void)state;
    for (int i = 0; i < 32 * 32 * 9; i++)
        steps[i] = (float)i;
    CHECK_OK(tri_tensor_copy_in(w, steps, sizeof(steps)));
    x = tri_tensor_create((int64_t[]){2, 32, 8, 8}, 4, TRI_DTYPE_F32);
    ramp = tri_tensor_from((int64_t[]){32, 32, 3, 3}, 4, TRI_DTYPE_F32, steps);
    read_it(&r, w, true);
    for (int i = 0; i < 3; i++) {
        (void)tri_keep(tri_forward(conv, x));
        CHECK_OK(tri_run());
        tri_step_end();
    }
    CHECK_OK(tri_context_enter(r.context));
    CHECK_OK(tri_tensor_copy_out(tri_sub(w, ramp), after, sizeof(after)));
    tri_step_end();
    CHECK_OK(tri_context_leave());
    assert_memory_equal(before, after, sizeof(after));
    tri_context_destroy(r.context);
    (void)tri_keep(tri_forward(conv, x));
    CHECK_OK(tri_run());
    tri_step_end();
    if (w->layout == NULL)
        print_message("no kernel here wants weights in an order of its own\n");
    tri_tensor_unref(x);
    tri_tensor_unref(ramp);
    tri_module_destroy(conv);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_goes_on_with_what_it_has_read),
        cmocka_unit_test(a_failed_write_gives_the_contents_back),
        cmocka_unit_test(contents_that_were_written_over_are_refused),
        cmocka_unit_test(a_step_may_read_what_is_there_now),
        cmocka_unit_test(a_tensor_over_memory_of_the_program_is_written_in_place),
        cmocka_unit_test(kept_contents_keep_their_layout),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
