/*
 * remote_optimizer_test.c - steps whose parameters are at several workers, against one process;
 * what fails, and what is left of it. Workers are threads; those that die are in
 * remote_optimizer_death_test.c.
 */
#include <math.h>

#include "base/err.h"
#include "parallel/rpc/account_internal.h"
#include "parallel/rpc/remote_optimizer_internal.h"
#include "testing/remote_workers.h"

#define OWNERS 2
#define ROWS 4

typedef enum { SGD, MOMENTUM, ADAM } rule;

static tri_optimizer *make_optimizer(tri_module *net, rule r)
{
    if (r == ADAM)
        return tri_adam(net, 0.05, NULL);
    return tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = r == MOMENTUM ? 0.9 : 0});
}

/* The model: the first part, one in the middle, the last part. */
typedef struct model {
    tri_module *part[3];
    tri_optimizer *opt[3];
} model;

static void model_begin(model *m, rule r)
{
    tri_manual_seed(5);
    m->part[0] = tri_nn_sequential(tri_nn_linear(6, 8, NULL), tri_nn_tanh());
    m->part[1] = tri_nn_linear(8, 7, NULL);
    m->part[2] = tri_nn_sequential(tri_nn_tanh(), tri_nn_linear(7, 3, NULL));
    for (int i = 0; i < 3; i++)
        m->opt[i] = make_optimizer(m->part[i], r);
}

static void model_end(model *m)
{
    for (int i = 0; i < 3; i++) {
        tri_optimizer_destroy(m->opt[i]);
        tri_module_destroy(m->part[i]);
    }
}

static uint64_t hash_of(model *m)
{
    uint64_t all = 0;

    for (int i = 0; i < 3; i++) {
        uint64_t hash = 0;

        CHECK_OK(tri_module_hash(m->part[i], &hash));
        all = all * 31 + hash;
    }
    return all;
}

/* Parts 0 and 2 at w1 and w2, part 1 at the trainer, w0. */
typedef struct fixture {
    remote_workers r;
    model m;
    tri_module *part[3]; /* as the trainer has them */
    tri_remote_optimizer *opt;
    tri_tensor *x, *y;
} fixture;

static void begin_with(fixture *f, rule r, const tri_remote_serve_options *serve,
                       const tri_remote_optimizer_options *options)
{
    tri_module *remotes[OWNERS];

    memset(f, 0, sizeof(*f));
    remote_begin(&f->r, 1 + OWNERS, NULL);
    model_begin(&f->m, r);
    CHECK_OK(tri_remote_serve(f->r.w.rpc[1], "first", f->m.part[0], f->m.opt[0], serve));
    CHECK_OK(tri_remote_serve(f->r.w.rpc[2], "last", f->m.part[2], f->m.opt[2], serve));
    f->part[0] = remotes[0] = tri_remote_module(f->r.w.rpc[0], "w1/first", NULL);
    f->part[1] = f->m.part[1];
    f->part[2] = remotes[1] = tri_remote_module(f->r.w.rpc[0], "w2/last", NULL);
    f->opt = tri_remote_optimizer_of(f->m.opt[1], remotes, OWNERS, options);
    f->x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    f->y = remote_tensor((int64_t[]){ROWS, 3}, 2, TRI_DTYPE_F32, 2);
}

static void begin(fixture *f, rule r)
{
    begin_with(f, r, NULL, NULL);
}

static void end(fixture *f)
{
    tri_step_end();
    tri_remote_optimizer_destroy(f->opt);
    tri_module_destroy(f->part[0]);
    tri_module_destroy(f->part[2]);
    (void)!tri_remote_withdraw(f->r.w.rpc[1], "first");
    (void)!tri_remote_withdraw(f->r.w.rpc[2], "last");
    tri_tensor_unref(f->x);
    tri_tensor_unref(f->y);
    model_end(&f->m);
    remote_end(&f->r);
}

static tri_tensor *forward(tri_module *const part[3], tri_tensor *x)
{
    for (int i = 0; i < 3; i++)
        x = tri_forward(part[i], x);
    return x;
}

/* One batch, or pieces of it that become one loss. */
static tri_tensor *loss_of(tri_module *const part[3], tri_tensor *x, tri_tensor *y, int pieces)
{
    tri_tensor *piece[ROWS], *out[ROWS];

    if (pieces == 1)
        return tri_mse_loss(forward(part, x), y, NULL);
    tri_chunk(x, pieces, 0, piece);
    for (int i = 0; i < pieces; i++)
        out[i] = forward(part, piece[i]);
    return tri_mse_loss(tri_concat(out, pieces, 0), y, NULL);
}

static tri_status step(fixture *f)
{
    tri_status status;

    tri_backward(loss_of(f->part, f->x, f->y, 1));
    status = tri_remote_optimizer_step(f->opt);
    if (status != TRI_OK) {
        char line[TRII_ERR_BYTES];

        snprintf(line, sizeof(line), "%s", tri_last_error());
        tri_step_end();
        trii_err_set("%s", line);
    } else {
        tri_step_end();
    }
    return status;
}

/* What one process makes of it. */
static void step_here(model *m, tri_tensor *x, tri_tensor *y, int pieces, int passes)
{
    for (int p = 0; p < passes; p++)
        tri_backward(loss_of(m->part, x, y, pieces));
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_optimizer_step(m->opt[i]));
    tri_step_end();
}

static void expect_equal(model *a, model *b)
{
    for (int i = 0; i < 3; i++) {
        remote_expect_equal_state(a->part[i], b->part[i]);
        for (int64_t s = 0; s < tri_optimizer_state_count(a->opt[i]); s++)
            remote_expect_equal(tri_optimizer_state(a->opt[i], s).tensor,
                                tri_optimizer_state(b->opt[i], s).tensor);
    }
    tri_step_end();
}

/* What worker i serves by this name. */
static trii_served *served_at(fixture *f, int i, const char *name)
{
    tri_rpc_ref *ref = worker_find(&f->r.w, i, name);
    trii_served *served = tri_rpc_ref_object(ref);

    tri_rpc_ref_unref(ref);
    return served;
}

static void wait_for_sessions(fixture *f, int i, const char *name, int expected)
{
    trii_served *served = served_at(f, i, name);
    int64_t deadline = trii_deadline_ms(20000);
    int n = -1;

    while (n != expected && trii_now_ns() < deadline) {
        n = 0;
        trii_mutex_lock(&served->lock);
        for (const trii_session *s = served->sessions; s != NULL; s = s->next)
            n++;
        trii_mutex_unlock(&served->lock);
        trii_thread_yield();
    }
    assert_int_equal(n, expected);
}

/* --- one trainer ---------------------------------------------------------- */

static void a_step_has_the_bits_of_one_process(void **state)
{
    static const int pieces[] = {1, 2, 4};

    (void)state;
    for (rule r = SGD; r <= ADAM; r++) {
        for (size_t k = 0; k < TRII_COUNT_OF(pieces); k++) {
            fixture f;
            model here;

            begin(&f, r);
            model_begin(&here, r);
            for (int s = 0; s < 4; s++) {
                tri_backward(loss_of(f.part, f.x, f.y, pieces[k]));
                CHECK_OK(tri_remote_optimizer_step(f.opt));
                tri_step_end();
                step_here(&here, f.x, f.y, pieces[k], 1);
            }
            expect_equal(&f.m, &here);
            for (int i = 0; i < 3; i++)
                assert_null(tri_grad(tri_module_state(f.m.part[0], 0).tensor));
            model_end(&here);
            end(&f);
        }
    }
}

/* Gradients of several steps of the graph, and of several passes of one, add up. */
static void gradients_add_up_until_the_step(void **state)
{
    fixture f;
    model here;

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < 3; p++) {
            tri_backward(loss_of(f.part, f.x, f.y, 2));
            if (p == 1)
                tri_step_end();
        }
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        step_here(&here, f.x, f.y, 2, 3);
    }
    expect_equal(&f.m, &here);
    model_end(&here);
    end(&f);
}

/* torch.distributed.autograd with DistributedOptimizer: loss sum(x * w), x here, w there. */
static void two_steps_are_those_of_torch(void **state)
{
    const tri_sgd_options momentum = {.momentum = 0.9};
    const float one = 1;
    tri_tensor *x, *w;
    static const double expected[] = {0.9, 0.72};
    remote_workers r;
    tri_module *times, *remote;
    tri_optimizer *there, *here;
    tri_remote_optimizer *opt;

    (void)state;
    remote_begin(&r, 2, NULL);
    x = tri_tensor_from((int64_t[]){1, 1}, 2, TRI_DTYPE_F32, &one);
    tri_requires_grad(x, true);
    times = tri_nn_linear(1, 1, &(tri_nn_linear_options){.no_bias = true});
    w = tri_module_find(times, "weight");
    CHECK_OK(tri_tensor_copy_in(w, &one, sizeof(one)));
    there = tri_sgd(times, 0.1, &momentum);
    here = tri_sgd_of(&(tri_param_group){.params = &x, .n_params = 1}, 1, 0.1, &momentum);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "times", times, there, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/times", NULL);
    opt = tri_remote_optimizer_of(here, &remote, 1, NULL);
    for (int s = 0; s < 2; s++) {
        tri_backward(tri_sum(tri_forward(remote, x), NULL, 0, false));
        CHECK_OK(tri_remote_optimizer_step(opt));
        tri_step_end();
        CHECK_NEAR(tri_item(x), expected[s], 1e-6);
        CHECK_NEAR(tri_item(w), expected[s], 1e-6);
        assert_null(tri_grad(w));
        tri_step_end();
    }
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "times"));
    tri_optimizer_destroy(there);
    tri_optimizer_destroy(here);
    tri_module_destroy(times);
    tri_tensor_unref(x);
    remote_end(&r);
}

static void a_step_without_a_backward_changes_nothing(void **state)
{
    fixture f;
    uint64_t before;

    (void)state;
    begin(&f, ADAM);
    before = hash_of(&f.m);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_remote_optimizer_step(f.opt));
    tri_step_end();
    assert_true(hash_of(&f.m) == before);
    CHECK_OK(step(&f));
    assert_true(hash_of(&f.m) != before);
    end(&f);
}

static void owners_that_the_loss_does_not_reach_stay_as_they_are(void **state)
{
    uint64_t before[3], after;
    tri_tensor *wide;
    fixture f;

    (void)state;
    begin(&f, MOMENTUM);
    wide = remote_tensor((int64_t[]){ROWS, 8}, 2, TRI_DTYPE_F32, 3);
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(tri_module_hash(f.m.part[i], &before[i]));
        if (s == 0) { /* the first owner alone: nothing of the last result is used */
            tri_tensor *h = tri_forward(f.part[0], f.x);

            (void)tri_forward(f.part[2], tri_forward(f.part[1], h));
            tri_backward(tri_mean(h, NULL, 0, false));
        } else if (s == 1) { /* no owner */
            tri_backward(tri_mean(tri_forward(f.part[1], wide), NULL, 0, false));
        }
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        for (int i = 0; i < 3; i++) {
            CHECK_OK(tri_module_hash(f.m.part[i], &after));
            assert_int_equal(after != before[i], (s == 0 && i == 0) || (s == 1 && i == 1));
        }
    }
    tri_tensor_unref(wide);
    end(&f);
}

static void a_worker_may_own_what_it_trains(void **state)
{
    remote_workers r;
    model m, here;
    tri_module *remote;
    tri_remote_optimizer *opt;
    tri_tensor *x;

    (void)state;
    remote_begin(&r, 1, NULL);
    model_begin(&m, ADAM);
    model_begin(&here, ADAM);
    x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    CHECK_OK(tri_remote_serve(r.w.rpc[0], "first", m.part[0], m.opt[0], NULL));
    remote = tri_remote_module(r.w.rpc[0], "w0/first", NULL);
    opt = tri_remote_optimizer_of(NULL, &remote, 1, NULL);
    for (int s = 0; s < 3; s++) {
        tri_backward(tri_mean(tri_square(tri_forward(remote, x)), NULL, 0, false));
        CHECK_OK(tri_remote_optimizer_step(opt));
        tri_step_end();
        tri_backward(tri_mean(tri_square(tri_forward(here.part[0], x)), NULL, 0, false));
        CHECK_OK(tri_optimizer_step(here.opt[0]));
        tri_step_end();
    }
    remote_expect_equal_state(m.part[0], here.part[0]);
    tri_step_end();
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[0], "first"));
    tri_tensor_unref(x);
    model_end(&m);
    model_end(&here);
    remote_end(&r);
}

/* --- settings ------------------------------------------------------------- */

static void the_learning_rate_reaches_all(void **state)
{
    fixture f;
    model here;

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    assert_true(tri_remote_optimizer_lr(f.opt) == 0.1);
    for (int s = 0; s < 3; s++) {
        double lr = 0.2 / (s + 1);

        tri_remote_optimizer_set_lr(f.opt, lr);
        assert_true(tri_remote_optimizer_lr(f.opt) == lr);
        for (int i = 0; i < 3; i++)
            tri_optimizer_set_lr(here.opt[i], lr);
        CHECK_OK(step(&f));
        step_here(&here, f.x, f.y, 1, 1);
    }
    expect_equal(&f.m, &here);
    model_end(&here);
    tri_remote_optimizer_set_lr(f.opt, -1);
    CHECK_FAILS(step(&f), TRI_ERR_INVALID_ARG, "a learning rate of -1");
    end(&f);
}

static void dropped_gradients_are_of_no_use(void **state)
{
    fixture f;
    model here;

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        tri_backward(loss_of(f.part, f.x, f.y, 2));
        if (s == 1)
            CHECK_OK(tri_run());
        tri_remote_optimizer_zero_grad(f.opt);
        if (s == 2)
            tri_step_end();
        CHECK_OK(step(&f));
        step_here(&here, f.x, f.y, 1, 1);
    }
    expect_equal(&f.m, &here);
    model_end(&here);
    end(&f);
}

static void the_norm_is_over_all_workers(void **state)
{
    static const double bounds[] = {0.05, 1000, INFINITY};

    (void)state;
    for (size_t b = 0; b < TRII_COUNT_OF(bounds); b++) {
        fixture f;
        model here;

        begin_with(&f, MOMENTUM, NULL, &(tri_remote_optimizer_options){.max_norm = bounds[b]});
        model_begin(&here, MOMENTUM);
        assert_true(isnan(tri_remote_optimizer_norm(f.opt)));
        for (int s = 0; s < 3; s++) {
            tri_tensor *params[16], *norm;
            double expected;
            int n = 0;

            CHECK_OK(step(&f));
            tri_backward(loss_of(here.part, f.x, f.y, 1));
            for (int i = 0; i < 3; i++) {
                for (int64_t k = 0; k < tri_module_state_count(here.part[i]); k++)
                    params[n++] = tri_module_state(here.part[i], k).tensor;
            }
            norm = tri_clip_grad_norm_of(params, n, bounds[b]);
            for (int i = 0; i < 3; i++)
                CHECK_OK(tri_optimizer_step(here.opt[i]));
            expected = tri_item(norm);
            tri_step_end();
            CHECK_NEAR(tri_remote_optimizer_norm(f.opt), expected, 1e-6 * expected);
        }
        for (int i = 0; i < 3; i++) {
            float a[64], c[64];
            tri_tensor *t = tri_module_state(f.m.part[i], 0).tensor;
            size_t n = (size_t)tri_tensor_numel(t);

            CHECK_OK(tri_tensor_copy_out(t, a, n * sizeof(float)));
            CHECK_OK(tri_tensor_copy_out(tri_module_state(here.part[i], 0).tensor, c,
                                         n * sizeof(float)));
            for (size_t k = 0; k < n; k++)
                CHECK_NEAR(a[k], c[k], 1e-6);
        }
        tri_step_end();
        model_end(&here);
        end(&f);
    }
}

static void bad_arguments_come_out_of_the_step(void **state)
{
    tri_module *twice[2], *plain[1];
    fixture f;
    struct {
        tri_module **remotes;
        int n;
        tri_remote_optimizer_options options;
        const char *text;
    } const bad[] = {
        {twice, 0, {0}, "0 remote modules"},
        {NULL, 1, {0}, "at NULL"},
        {twice, 2, {0}, "remotes[1] is w1/first, as remotes[0]"},
        {plain, 1, {0}, "is not a remote module"},
        {f.part, 1, {0}, "w1/first is in another remote optimizer"},
        {twice, 1, {.max_norm = -1}, "max_norm -1"},
    };

    (void)state;
    begin(&f, SGD);
    twice[0] = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
    twice[1] = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
    plain[0] = f.m.part[1];
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        tri_remote_optimizer *opt =
            tri_remote_optimizer_of(NULL, bad[i].remotes, bad[i].n, &bad[i].options);

        CHECK_FAILS(tri_remote_optimizer_step(opt), TRI_ERR_INVALID_ARG, bad[i].text);
        tri_remote_optimizer_zero_grad(opt);
        tri_remote_optimizer_set_lr(opt, 1);
        assert_true(isnan(tri_remote_optimizer_lr(opt)));
        tri_remote_optimizer_destroy(opt);
    }
    CHECK_FAILS(tri_remote_optimizer_step(NULL), TRI_ERR_INVALID_ARG, "is NULL");
    tri_remote_optimizer_destroy(NULL);
    CHECK_OK(step(&f));
    tri_remote_optimizer_destroy(f.opt);
    f.opt = tri_remote_optimizer_of(f.m.opt[1], (tri_module *[]){f.part[2], f.part[0]}, 2, NULL);
    CHECK_OK(step(&f)); /* modules that are free again */
    tri_module_destroy(twice[0]);
    tri_module_destroy(twice[1]);
    end(&f);
}

/* --- failures ------------------------------------------------------------- */

/* A forward, a backward or an owner that fails: nobody has updated, and the step may be repeated.
 */
static void a_step_that_fails_changes_nothing_and_may_be_repeated(void **state)
{
    fixture f;
    model here;
    uint64_t before;
    char line[TRII_ERR_BYTES];

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    CHECK_OK(step(&f));
    step_here(&here, f.x, f.y, 1, 1);
    before = hash_of(&f.m);
    for (int round = 0; round < 3; round++) {
        trii_remote *last = trii_remote_of(f.part[2]);

        tri_backward(loss_of(f.part, f.x, f.y, 1));
        if (round == 0) { /* an owner misses a backward */
            CHECK_OK(tri_run());
            last->seq++;
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_STATE,
                        "w2/last: remote.prepare on w2");
            snprintf(line, sizeof(line), "%s", tri_last_error());
            assert_non_null(strstr(line, "gradients of 1 of 2 backwards of w0"));
            assert_non_null(strstr(line, "tri_remote_optimizer_step at"));
        } else if (round == 1) { /* the recorded step */
            trii_step_fail(trii_step_current(), tri_status_fail(TRI_ERR_NAN, "no number"));
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_NAN, "no number");
        } else { /* the own optimizer, after all owners have agreed */
            tri_clip_grad_norm(f.m.opt[1], 1);
            tri_backward(loss_of(f.part, f.x, f.y, 1)); /* after clipping */
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_STATE, "clip after the last");
        }
        tri_step_end();
        assert_true(hash_of(&f.m) == before);
    }
    for (int s = 0; s < 2; s++) {
        CHECK_OK(step(&f));
        step_here(&here, f.x, f.y, 1, 1);
    }
    expect_equal(&f.m, &here);
    model_end(&here);
    end(&f);
}

static void a_module_that_is_withdrawn_fails_the_step(void **state)
{
    fixture f;
    uint64_t before;

    (void)state;
    begin(&f, MOMENTUM);
    CHECK_OK(step(&f));
    before = hash_of(&f.m);
    tri_backward(loss_of(f.part, f.x, f.y, 1));
    CHECK_OK(tri_run());
    CHECK_OK(tri_remote_withdraw(f.r.w.rpc[2], "last"));
    CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_NOT_FOUND, "w2/last");
    tri_step_end();
    assert_true(hash_of(&f.m) == before);
    end(&f);
}

static void an_owner_that_leaves_is_named(void **state)
{
    fixture f;
    uint64_t before;

    (void)state;
    begin(&f, MOMENTUM);
    CHECK_OK(step(&f));
    before = hash_of(&f.m);
    tri_backward(loss_of(f.part, f.x, f.y, 1));
    CHECK_OK(tri_run());
    tri_rpc_abort(f.r.w.rpc[1], "a test");
    CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_PEER_LOST, "w1/first");
    tri_step_end();
    assert_true(hash_of(&f.m) == before);
    tri_remote_optimizer_destroy(f.opt);
    f.opt = NULL;
    tri_module_destroy(f.part[0]);
    tri_module_destroy(f.part[2]);
    (void)!tri_remote_withdraw(f.r.w.rpc[1], "first");
    CHECK_OK(tri_remote_withdraw(f.r.w.rpc[2], "last"));
    tri_tensor_unref(f.x);
    tri_tensor_unref(f.y);
    model_end(&f.m);
    trii_step_release();
    f.r.w.blocks = f.r.blocks;
    workers_destroy(&f.r.w);
}

static void copy_model(model *from, model *to)
{
    for (int i = 0; i < 3; i++) {
        remote_copy_state(from->part[i], to->part[i]);
        for (int64_t k = 0; k < tri_optimizer_state_count(from->opt[i]); k++) {
            size_t bytes;
            char *data = remote_bytes(tri_optimizer_state(from->opt[i], k).tensor, &bytes);

            CHECK_OK(tri_tensor_copy_in(tri_optimizer_state(to->opt[i], k).tensor, data, bytes));
            free(data);
        }
    }
    tri_step_end();
}

/* Wherever memory is out, here or at an owner: nobody has updated, or the line says that some
 * have, and in the end all have done so once. */
static void without_memory_a_step_is_whole_or_repeated(void **state)
{
    fixture f;
    model here;
    bool failed = true;
    int failures = 0;

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    for (long n = 1; failed || n < 300; n += TEST_SANITIZED ? 7 : 1) {
        int64_t updates;
        tri_status status;
        bool partly;

        if (n % 10 < 2)
            trii_step_release(); /* plans are made again */
        tri_backward(loss_of(f.part, f.x, f.y, 1));
        trii_alloc_fail_at(n);
        status = tri_remote_optimizer_step(f.opt);
        trii_alloc_fail_at(0);
        failed = status != TRI_OK;
        failures += failed;
        partly = failed && strstr(tri_last_error(), "all owners had agreed") != NULL;
        tri_step_end();
        if (failed && !partly)
            expect_equal(&f.m, &here);
        while (status != TRI_OK)
            status = step(&f);
        step_here(&here, f.x, f.y, 1, 1);
        for (int i = 0; i < 3; i++) { /* how often the first parameter has been updated */
            tri_optimizer *there = f.m.opt[i];
            int64_t last = tri_optimizer_state_count(there) - 1;
            int64_t counts[2][4];

            updates = tri_tensor_numel(tri_optimizer_state(there, last).tensor);
            CHECK_OK(tri_tensor_copy_out(tri_optimizer_state(there, last).tensor, counts[0],
                                         (size_t)updates * sizeof(int64_t)));
            CHECK_OK(tri_tensor_copy_out(tri_optimizer_state(here.opt[i], last).tensor, counts[1],
                                         (size_t)updates * sizeof(int64_t)));
            assert_memory_equal(counts[0], counts[1], (size_t)updates * sizeof(int64_t));
        }
        tri_step_end();
        if (partly)
            copy_model(&f.m, &here);
        expect_equal(&f.m, &here);
    }
    assert_true(failures > (TEST_SANITIZED ? 3 : 20));
    model_end(&here);
    end(&f);
}

/* A module of the same name that goes does not take the gradients along. */
static void gradients_stay_while_another_module_of_the_name_goes(void **state)
{
    tri_module *other;
    fixture f;
    model here;

    (void)state;
    begin(&f, MOMENTUM);
    model_begin(&here, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        other = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
        tri_backward(loss_of(f.part, f.x, f.y, 1));
        (void)tri_keep(tri_forward(other, f.x));
        CHECK_OK(tri_run());
        tri_step_end();
        tri_module_destroy(other);
        wait_for_sessions(&f, 1, "w1/first", 1);
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        step_here(&here, f.x, f.y, 1, 1);
    }
    expect_equal(&f.m, &here);
    model_end(&here);
    end(&f);
}

/* Without a step, gradients do not outlive their optimizer. */
static void gradients_go_with_their_optimizer(void **state)
{
    const trii_account *account;
    fixture f;

    (void)state;
    begin(&f, MOMENTUM);
    tri_backward(loss_of(f.part, f.x, f.y, 1));
    CHECK_OK(tri_run());
    tri_step_end();
    account = served_at(&f, 1, "w1/first")->accounts->first; /* its thread waits */
    assert_non_null(account->pass);
    tri_remote_optimizer_destroy(f.opt);
    f.opt = tri_remote_optimizer_of(f.m.opt[1], (tri_module *[]){f.part[0], f.part[2]}, 2, NULL);
    CHECK_OK(step(&f)); /* after which it has done what came before */
    assert_null(account->pass);
    end(&f);
}

/* --- several trainers ----------------------------------------------------- */

typedef struct trainer {
    trii_thread thread;
    fixture *f;
    tri_rpc *rpc;
    double first, last;
    tri_status status;
    char line[TRII_ERR_BYTES];
} trainer;

static void train(void *arg)
{
    trainer *t = arg;
    tri_module *part[3], *remotes[2];
    tri_optimizer *own;
    tri_remote_optimizer *opt;

    remotes[0] = part[0] = tri_remote_module(t->rpc, "w1/first", NULL);
    part[1] = tri_nn_linear(8, 7, NULL);
    remotes[1] = part[2] = tri_remote_module(t->rpc, "w2/last", NULL);
    own = tri_sgd(part[1], 0.05, NULL);
    opt = tri_remote_optimizer_of(own, remotes, 2, NULL);
    for (int s = 0; s < 30 && t->status == TRI_OK; s++) {
        tri_tensor *loss = tri_keep(loss_of(part, t->f->x, t->f->y, 2));

        tri_backward(loss);
        t->status = tri_remote_optimizer_step(opt);
        snprintf(t->line, sizeof(t->line), "%s", tri_last_error());
        t->last = t->status == TRI_OK ? tri_item(loss) : (double)NAN;
        t->first = s == 0 ? t->last : t->first;
        tri_step_end();
    }
    tri_remote_optimizer_destroy(opt);
    tri_optimizer_destroy(own);
    for (int i = 0; i < 3; i++)
        tri_module_destroy(part[i]);
    trii_step_release();
}

/* torch fails here: pytorch/examples 842. */
static void trainers_race_on_one_owner(void **state)
{
    static const tri_remote_versions versions[] = {TRI_REMOTE_COPY, TRI_REMOTE_STALE};

    (void)state;
    for (size_t v = 0; v < TRII_COUNT_OF(versions); v++) {
        fixture f;
        trainer trainers[3];

        begin_with(&f, SGD, &(tri_remote_serve_options){.versions = versions[v]}, NULL);
        memset(trainers, 0, sizeof(trainers));
        for (int i = 0; i < 3; i++) { /* two at the owners themselves */
            trainers[i].f = &f;
            trainers[i].rpc = f.r.w.rpc[i];
            CHECK_OK(trii_thread_start(&trainers[i].thread, "trainer", train, &trainers[i]));
        }
        for (int i = 0; i < 3; i++)
            trii_thread_join(&trainers[i].thread);
        for (int i = 0; i < 3; i++) {
            if (trainers[i].status != TRI_OK)
                fail_msg("trainer %d: %s", i, trainers[i].line);
            assert_true(trainers[i].last < 0.9 * trainers[i].first);
        }
        end(&f);
    }
}

/* An update between another trainer's forward and its backward. */
static void an_update_does_not_disturb_another_trainers_step(void **state)
{
    static const tri_remote_versions versions[] = {TRI_REMOTE_COPY, TRI_REMOTE_REFUSE};

    (void)state;
    for (size_t v = 0; v < TRII_COUNT_OF(versions); v++) {
        fixture f;
        tri_module *part[3], *remotes[2];
        tri_remote_optimizer *opt;
        tri_tensor *loss;
        tri_status status;
        uint64_t before;

        begin_with(&f, SGD, &(tri_remote_serve_options){.versions = versions[v]}, NULL);
        remotes[0] = part[0] = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
        part[1] = f.part[1];
        remotes[1] = part[2] = tri_remote_module(f.r.w.rpc[0], "w2/last", NULL);
        opt = tri_remote_optimizer_of(NULL, remotes, 2, NULL);
        loss = tri_keep(loss_of(f.part, f.x, f.y, 1));
        CHECK_OK(tri_run());
        tri_backward(tri_sum(tri_forward(part[2], tri_forward(part[1], tri_forward(part[0], f.x))),
                             NULL, 0, false));
        CHECK_OK(tri_remote_optimizer_step(opt));
        before = hash_of(&f.m);
        tri_backward(loss);
        status = tri_remote_optimizer_step(f.opt);
        if (versions[v] == TRI_REMOTE_COPY) {
            assert_int_equal(status, TRI_OK);
        } else {
            assert_int_equal(status, TRI_ERR_STATE);
            assert_non_null(strstr(tri_last_error(), "has overwritten"));
        }
        tri_step_end();
        assert_int_equal(hash_of(&f.m) == before, versions[v] == TRI_REMOTE_REFUSE);
        tri_remote_optimizer_destroy(opt);
        tri_module_destroy(part[0]);
        tri_module_destroy(part[2]);
        end(&f);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_bits_of_one_process),
        cmocka_unit_test(gradients_add_up_until_the_step),
        cmocka_unit_test(two_steps_are_those_of_torch),
        cmocka_unit_test(a_step_without_a_backward_changes_nothing),
        cmocka_unit_test(owners_that_the_loss_does_not_reach_stay_as_they_are),
        cmocka_unit_test(a_worker_may_own_what_it_trains),
        cmocka_unit_test(the_learning_rate_reaches_all),
        cmocka_unit_test(dropped_gradients_are_of_no_use),
        cmocka_unit_test(the_norm_is_over_all_workers),
        cmocka_unit_test(bad_arguments_come_out_of_the_step),
        cmocka_unit_test(a_step_that_fails_changes_nothing_and_may_be_repeated),
        cmocka_unit_test(a_module_that_is_withdrawn_fails_the_step),
        cmocka_unit_test(an_owner_that_leaves_is_named),
        cmocka_unit_test(without_memory_a_step_is_whole_or_repeated),
        cmocka_unit_test(gradients_stay_while_another_module_of_the_name_goes),
        cmocka_unit_test(gradients_go_with_their_optimizer),
        cmocka_unit_test(trainers_race_on_one_owner),
        cmocka_unit_test(an_update_does_not_disturb_another_trainers_step),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
