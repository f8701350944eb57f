/*
 * ddp_failed_pass_test.c - a pass that fails on one rank leaves every rank as it was: parameters,
 * buffers (or rank 0's, which a forward begins with), gradients, the optimizer's state, the counts.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

#define ROOM (8 * 1024)
#define MOST 32 /* tensors */

/* What a rank has. */
typedef struct snapshot {
    int64_t samples;
    int n;
    size_t bytes[MOST]; /* of each tensor; 0: there is no such gradient */
    bool lost[MOST];    /* a gradient that the failed run had begun to write cannot be read */
    int first_buffer, n_buffers;
    size_t used;
    unsigned char data[ROOM];
} snapshot;

static snapshot before[MAX_RANKS], after[MAX_RANKS];

typedef struct failing {
    int bad;         /* the rank whose label is no class */
    bool held;       /* gradients have added up before */
    bool local;      /* the pass is inside no_sync, and training goes on after it */
    bool updates;    /* the run is asked for by the optimizer, else by the end of the step */
    bool one_bucket; /* else one for each parameter */
    bool fails;      /* else the pass is left out */
    tri_bucket_hook hook;
} failing;

/* --- snapshots ------------------------------------------------------------ */

/* NULL: a gradient that is not there. */
static tri_status add(snapshot *s, tri_tensor *t)
{
    size_t bytes =
        t != NULL ? (size_t)tri_tensor_numel(t) * tri_dtype_size(tri_tensor_dtype(t)) : 0;

    if (s->n == MOST || s->used + bytes > ROOM)
        return TRII_FAIL(TRI_ERR_INTERNAL, "the snapshot is full");
    s->bytes[s->n++] = bytes;
    s->used += bytes;
    return bytes == 0 ? TRI_OK : tri_tensor_copy_out(t, s->data + s->used - bytes, bytes);
}

static tri_status add_gradient(snapshot *s, tri_tensor *param)
{
    tri_status status = add(s, tri_grad(param));

    s->lost[s->n - 1] = status == TRI_ERR_STATE;
    return status == TRI_ERR_STATE ? TRI_OK : status;
}

static tri_status take(snapshot *s, tri_module *model, tri_optimizer *opt)
{
    *s = (snapshot){.samples = tri_ddp_sample_count(model)};
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        if (tri_module_state(model, i).parameter)
            TRY(add(s, tri_module_state(model, i).tensor));
    }
    for (int64_t i = 0; i < tri_optimizer_state_count(opt); i++)
        TRY(add(s, tri_optimizer_state(opt, i).tensor));
    s->first_buffer = s->n;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        if (!tri_module_state(model, i).parameter)
            TRY(add(s, tri_module_state(model, i).tensor));
    }
    s->n_buffers = s->n - s->first_buffer;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        if (tri_module_state(model, i).parameter)
            TRY(add_gradient(s, tri_module_state(model, i).tensor));
    }
    return TRI_OK;
}

/* Tensors [first, first + n) are the same in both; nothing is known of those that are lost. */
static bool same(const snapshot *a, const snapshot *b, int first, int n)
{
    size_t at_a = 0, at_b = 0;

    for (int i = 0; i < first + n; i++) {
        if (i >= first && !b->lost[i] &&
            (a->bytes[i] != b->bytes[i] ||
             memcmp(a->data + at_a, b->data + at_b, a->bytes[i]) != 0))
            return false;
        at_a += a->bytes[i];
        at_b += b->bytes[i];
    }
    return true;
}

/* The rank on which the pass failed had begun to write nothing. */
static void check_same(int index, bool bad)
{
    const snapshot *a = &before[index], *b = &after[index];
    int rest = a->first_buffer + a->n_buffers;

    assert_int_equal(a->n, b->n);
    assert_int_equal(a->samples, b->samples);
    assert_true(same(a, b, 0, a->first_buffer));
    assert_true(same(a, b, a->first_buffer, a->n_buffers) ||
                same(&before[0], b, a->first_buffer, a->n_buffers));
    assert_true(same(a, b, rest, a->n - rest));
    for (int i = 0; i < b->n; i++)
        assert_false(bad && b->lost[i]);
}

/* --- a pass that fails ---------------------------------------------------- */

static tri_module *build(void)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(9);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_batch_norm1d(8, NULL), tri_nn_tanh(),
                            tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

/* Of 2 + rank rows. */
static void pass(const rank *r, tri_module *model, bool local, bool bad)
{
    int64_t labels[ROWS] = {0, 1, 2};
    int n = 2 + r->index;
    tri_tensor *x = rows_of(x_data, IN, r->index, n), *target;

    labels[n - 1] = bad ? OUT : 1;
    target = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, labels);
    if (local)
        tri_ddp_no_sync_begin(model);
    tri_backward(tri_cross_entropy(tri_forward(model, x), target, NULL));
    if (local)
        tri_ddp_no_sync_end(model);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
}

static tri_status fail_once(const rank *r, tri_module *model, tri_optimizer *opt)
{
    const failing *f = r->arg;
    static const char line[] = "target 3 of row ";
    tri_status status;

    pass(r, model, f->local, r->index == f->bad);
    status = f->updates ? tri_optimizer_step(opt) : tri_run();
    if (strstr(tri_last_error(), line) == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s: %s", tri_status_name(status), tri_last_error());
    tri_step_end();
    return status == (r->index == f->bad ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED)
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INTERNAL, "the step ended with %s", tri_status_name(status));
}

static tri_status train(rank *r)
{
    const failing *f = r->arg;
    size_t bucket_bytes = f->one_bucket ? 1 << 20 : 1;
    tri_module *model = tri_ddp(build(), &(tri_ddp_options){.group = r->group,
                                                            .hook = f->hook,
                                                            .first_bucket_bytes = bucket_bytes,
                                                            .bucket_cap_bytes = bucket_bytes});
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);

    TRY(tri_module_status(model));
    for (int step = 0; step < 3; step++) {
        pass(r, model, false, false);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    tri_optimizer_zero_grad(opt);
    if (f->held)
        pass(r, model, f->local, false);
    TRY(tri_step_end_status());
    TRY(take(&before[r->index], model, opt));
    TRY(tri_step_end_status());
    if (f->fails && (!f->local || r->index == f->bad)) {
        TRY(fail_once(r, model, opt));
        TRY(take(&after[r->index], model, opt));
    }
    if (f->local || !f->fails) {
        pass(r, model, false, false);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        r->n_weights = (int)tri_ddp_sample_count(model);
        TRY(tri_module_hash(model, &r->hash));
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void check_plan(failing f, int size)
{
    static rank with[MAX_RANKS], without[MAX_RANKS];

    make_data();
    f.fails = true;
    ranks_succeed(with, size, train, &f);
    for (int i = 0; i < size; i++) {
        if (!f.local || i == f.bad)
            check_same(i, i == f.bad);
    }
    if (!f.local)
        return;
    f.fails = false;
    ranks_succeed(without, size, train, &f);
    for (int i = 0; i < size; i++) {
        assert_true(with[i].hash == without[i].hash);
        assert_int_equal(with[i].n_weights, without[i].n_weights);
    }
}

static void check(failing f)
{
    for (int size = 1; size <= 3; size++) {
        for (int way = 0; way < 8; way++) {
            f.held = (way & 1) != 0;
            f.updates = (way & 2) != 0;
            f.one_bucket = (way & 4) != 0;
            f.bad = (size - 1) * (way & 1);
            check_plan(f, size);
        }
    }
}

static void a_failed_pass_leaves_all_ranks_as_they_were(void **state)
{
    (void)state;
    check((failing){.bad = 0});
}

static void with_a_hook_too(void **state)
{
    (void)state;
    check((failing){.hook = tri_bucket_hook_bf16});
}

static void training_goes_on_after_a_failed_pass_without_synchronisation(void **state)
{
    (void)state;
    check((failing){.local = true});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_failed_pass_leaves_all_ranks_as_they_were),
    cmocka_unit_test(with_a_hook_too),
    cmocka_unit_test(training_goes_on_after_a_failed_pass_without_synchronisation),
};

TEST_MAIN(tests)
