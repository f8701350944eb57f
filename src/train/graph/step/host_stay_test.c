/*
 * host_stay_test.c - host operations are told which of their results may stay elsewhere.
 */
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "train/graph/step/host_op.h"

typedef struct passing {
    trii_host_op op; /* first */
    int n_out, asked;
    uint64_t results;
} passing;

static tri_status pass_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    for (int o = 0; o < ((passing *)op)->n_out; o++)
        memset(buffers->out[o], 0, 2 * sizeof(float));
    return TRI_OK;
}

static tri_status pass_poll(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status pass_wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRI_OK;
}

static void pass_stays(trii_host_op *op, uint64_t results)
{
    passing *p = (passing *)op;

    p->results = results;
    p->asked++;
}

static void other_stays(trii_host_op *op, uint64_t results)
{
    passing *p = (passing *)op;

    p->results = results << 32;
}

static const trii_host_kind pass_kind = {
    .name = "pass", .start = pass_start, .poll = pass_poll, .wait = pass_wait, .stays = pass_stays};
static const trii_host_kind other_kind = {.name = "other",
                                          .start = pass_start,
                                          .poll = pass_poll,
                                          .wait = pass_wait,
                                          .stays = other_stays};

static passing *record(const trii_host_kind *kind, const trii_vid *in, int n_in, int n_out,
                       trii_vid *out)
{
    trii_host_result results[4];
    const trii_host_call call = {.in = in, .n_in = n_in, .out = results, .n_out = n_out};
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;

    for (int o = 0; o < n_out; o++)
        results[o] = (trii_host_result){.type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}}};
    CHECK_OK(trii_host_op_new(step, kind, sizeof(passing), &op));
    ((passing *)op)->n_out = n_out;
    CHECK_OK(trii_record_host(step, op, &call, out));
    return (passing *)op;
}

static void results_that_others_of_a_kind_read_may_stay(void **state)
{
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        trii_vid a[4], b, c;
        passing *maker, *reader, *other;
        tri_tensor *negated;

        maker = record(&pass_kind, NULL, 0, 4, a);
        reader = record(&pass_kind, a, 2, 1, &b); /* results 0 and 1 */
        negated = tri_neg(trii_handle(trii_step_current(), a[1]));
        CHECK_OK(tri_tensor_status(negated));
        other = record(&other_kind, &a[2], 1, 1, &c); /* of another sort */
        if (keeps != 0)
            (void)tri_keep(trii_handle(trii_step_current(), a[0]));
        CHECK_OK(tri_run());
        assert_int_equal(maker->results, keeps != 0 ? 8 : 9); /* nobody reads result 3 */
        assert_int_equal(maker->asked, 1);
        assert_int_equal(reader->results, 1);
        assert_true(other->results == UINT64_C(1) << 32);
        tri_step_end();
    }
}

static void every_value_is_looked_at_in_an_eager_step(void **state)
{
    trii_vid a, b;
    passing *maker, *reader;

    (void)state;
    trii_step_release();
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    maker = record(&pass_kind, NULL, 0, 1, &a);
    reader = record(&pass_kind, &a, 1, 1, &b);
    CHECK_OK(tri_run());
    assert_int_equal(maker->asked + reader->asked, 0);
    trii_step_release();
    assert_int_equal(unsetenv("TRI_EAGER"), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_that_others_of_a_kind_read_may_stay),
    cmocka_unit_test(every_value_is_looked_at_in_an_eager_step),
};

TEST_MAIN(tests)
