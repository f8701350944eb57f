/* fit_ranks_test.c - several ranks in one fit: they end together, fail together, and say no more to
 * each other than the loop of a program. */
#include "testing/fit_problem.h"
#include "testing/group_calls.h"

typedef struct job {
    fit_samples train, val;
    const char *folder;
    int64_t epochs, steps, accumulate;
    bool plain;
    int stops, fails; /* the rank that asks to stop, or whose callback fails, after two updates */
    int fails_step;   /* the rank whose step fails at its third batch */
    int other_name;   /* the rank that logs another name in validation */
    bool two_names;
    uint64_t calls[MAX_RANKS];
    int64_t ended[MAX_RANKS];
    char why[MAX_RANKS][128];
} job;

static job quiet_job(int64_t epochs, int64_t steps)
{
    return (job){.epochs = epochs,
                 .steps = steps,
                 .stops = -1,
                 .fails = -1,
                 .fails_step = -1,
                 .other_name = -1};
}

typedef struct watcher {
    tri_callback base;
    const job *j;
} watcher;

static tri_status watch_batch_end(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    const job *j = ((watcher *)self)->j;

    (void)batch;
    if (tri_trainer_step(t) != 2)
        return TRI_OK;
    if (tri_trainer_rank(t) == j->stops)
        tri_trainer_stop(t, "rank has seen enough");
    return tri_trainer_rank(t) == j->fails ? tri_status_fail(TRI_ERR_UNSUPPORTED, "no more of this")
                                           : TRI_OK;
}

static const tri_callback_class watcher_class = {.name = "watcher", .batch_end = watch_batch_end};

static const job *current;

static void validate_names(tri_trainer *t, const tri_batch *batch, void *arg)
{
    const job *j = current;
    bool other = tri_trainer_rank(t) == j->other_name;

    (void)arg;
    if (!j->two_names || !other)
        tri_trainer_log_value(t, "a", (double)batch->size, NULL);
    tri_trainer_log_value(t, other && !j->two_names ? "c" : "b", 1, NULL);
    if (j->two_names && other) /* another order */
        tri_trainer_log_value(t, "a", (double)batch->size, NULL);
}

static tri_status run_job(rank *r)
{
    job *j = (job *)(uintptr_t)r->arg;
    watcher watch = {.base = {.cls = &watcher_class}, .j = j};
    tri_callback *callbacks[] = {&watch.base};
    tri_fit_options opt = fit_quiet(j->folder);
    tri_task task = fit_task;
    fit_arg arg = {.lr = 0.1, .fail_at = r->index == j->fails_step ? 3 : 0};
    tri_fit_result result = {0};
    tri_status status;

    task.validation_step = validate_names;
    opt.max_epochs = j->epochs;
    opt.max_steps = j->steps;
    opt.accumulate_grad_batches = j->accumulate;
    opt.log_every_n_steps = 1000;
    opt.no_checkpoint = true;
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    opt.ddp = &(tri_ddp_options){.group = r->group};
    status = tri_fit(
        &task, &(tri_fit_data){.train = j->train.dataset, .val = j->val.dataset, .batch_size = 2},
        &opt, &arg, &result);
    j->calls[r->index] = group_calls(r->group);
    j->ended[r->index] = result.steps;
    snprintf(j->why[r->index], sizeof(j->why[0]), "%s", result.why);
    return status;
}

static void start(job *j, scratch *s, bool validates)
{
    scratch_begin(s);
    j->folder = s->dir;
    current = j;
    fit_samples_make(&j->train, 40, 1);
    j->val.dataset = NULL;
    if (validates)
        fit_samples_make(&j->val, 6, 2);
}

static void end(job *j, scratch *s)
{
    tri_dataset_destroy(j->train.dataset);
    tri_dataset_destroy(j->val.dataset);
    scratch_end(s);
}

/* --- what is sent --------------------------------------------------------- */

static tri_status run_plain(rank *r)
{
    job *j = (job *)(uintptr_t)r->arg;
    tri_module *model;
    tri_optimizer *optimizer;
    fit_arg arg = {.lr = 0.1};

    model = tri_ddp(fit_model(&arg), &(tri_ddp_options){.group = r->group});
    optimizer = fit_optimizer(model, &arg);
    for (int64_t s = 0; s < j->steps; s++) {
        tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, FIT_IN), TRI_DTYPE_F32, j->train.x);
        tri_tensor *y = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, j->train.y);

        tri_backward(tri_cross_entropy(tri_forward(model, x), y, NULL));
        TRY(tri_optimizer_step(optimizer));
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    j->calls[r->index] = group_calls(r->group);
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model);
    return TRI_OK;
}

/* Collectives of so many updates within an epoch. */
static uint64_t calls_of(rank_body body, int64_t steps, int64_t accumulate)
{
    job j = quiet_job(0, steps);
    rank ranks[MAX_RANKS];
    scratch s;

    start(&j, &s, false);
    j.accumulate = accumulate;
    ranks_succeed(ranks, 2, body, &j);
    end(&j, &s);
    assert_true(j.calls[0] == j.calls[1] && j.calls[0] > 0);
    return j.calls[0];
}

static void an_update_sends_what_the_plain_loop_sends(void **state)
{
    uint64_t plain, fit, two;

    (void)state;
    plain = calls_of(run_plain, 8, 1) - calls_of(run_plain, 3, 1);
    fit = calls_of(run_job, 8, 1) - calls_of(run_job, 3, 1);
    assert_true(plain >= 5);
    assert_int_equal(fit, plain);
    /* batches that add up send nothing */
    two = calls_of(run_job, 4, 2) - calls_of(run_job, 2, 2);
    assert_int_equal(two * 5, plain * 2);
}

/* --- ending together ------------------------------------------------------ */

static void all_ranks_end_after_one_update(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    for (int stopping = 0; stopping < 3; stopping++) {
        job j = quiet_job(5, 0);
        scratch s;

        start(&j, &s, true);
        j.stops = stopping;
        ranks_succeed(ranks, 3, run_job, &j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.ended[r], 3);
            assert_string_equal(j.why[r], "rank has seen enough");
        }
        end(&j, &s);
    }
}

/* --- failing together ----------------------------------------------------- */

static void a_failure_of_one_rank_is_told_to_the_others(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        job j = quiet_job(5, 0);
        const char *line = kind == 0 ? "no more of this" : "matmul";
        scratch s;

        start(&j, &s, true);
        *(kind == 0 ? &j.fails : &j.fails_step) = 1;
        run_ranks(ranks, 3, run_job, &j);
        assert_int_equal(ranks[1].status, kind == 0 ? TRI_ERR_UNSUPPORTED : TRI_ERR_INVALID_ARG);
        assert_non_null(strstr(ranks[1].line, line));
        for (int r = 0; r < 3; r += 2) {
            if (ranks[r].status > TRI_ERR_PEER_LOST || strstr(ranks[r].line, line) == NULL)
                fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].line);
        }
        end(&j, &s);
    }
}

static void names_that_differ_are_named(void **state)
{
    job j = quiet_job(1, 0);
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    start(&j, &s, true);
    j.other_name = 2;
    run_ranks(ranks, 3, run_job, &j);
    for (int r = 0; r < 3; r++) {
        /* a rank that has found it may end before others have read */
        if (ranks[r].status == TRI_OK ||
            strstr(ranks[r].line, "rank 2 logs \"c\" and rank 0 does not") == NULL)
            fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].line);
    }
    end(&j, &s);
}

static void their_order_does_not_matter(void **state)
{
    job j = quiet_job(1, 0);
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    start(&j, &s, true);
    j.other_name = 2;
    j.two_names = true;
    ranks_succeed(ranks, 3, run_job, &j);
    end(&j, &s);
}

/* --- workers that the call starts ----------------------------------------- */

static void what_a_worker_fails_with_comes_back(void **state)
{
    fit_samples train;
    fit_arg arg = {.lr = 0.1, .fail_at = 2};
    tri_fit_options opt;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 10, 1);
    opt = fit_quiet(s.dir);
    opt.max_epochs = 1;
    opt.devices = 2;
    CHECK_FAILS(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 4}, &opt,
                        &arg, NULL),
                TRI_ERR_INVALID_ARG, "matmul");
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static void predictions_come_back_from_workers(void **state)
{
    float here[FIT_MAX * FIT_OUT], there[FIT_MAX * FIT_OUT];
    tri_tensor *one, *two;
    fit_samples set;
    fit_arg arg = {.lr = 0.1};
    tri_fit_options opt;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&set, 43, 1);
    opt = fit_quiet(s.dir);
    const tri_fit_data data = {.predict = set.dataset, .batch_size = 4};

    opt.devices = 3;
    CHECK_OK(tri_predict(&fit_task, &data, &opt, &arg, &two));
    opt.devices = 1;
    CHECK_OK(tri_predict(&fit_task, &data, &opt, &arg, &one));
    assert_int_equal(tri_tensor_size(two, 0), 43);
    CHECK_OK(tri_tensor_copy_out(one, here, sizeof(float) * 43 * FIT_OUT));
    CHECK_OK(tri_tensor_copy_out(two, there, sizeof(float) * 43 * FIT_OUT));
    for (int i = 0; i < 43 * FIT_OUT; i++)
        CHECK_NEAR((double)here[i], (double)there[i], 1e-6);
    tri_tensor_unref(one);
    tri_tensor_unref(two);
    /* and now that tensors were computed here there are no copies any more */
    opt.devices = 2;
    CHECK_FAILS(tri_predict(&fit_task, &data, &opt, &arg, &two), TRI_ERR_STATE,
                "devices 2: workers are copies of this process, and it has computed with tensors");
    tri_dataset_destroy(set.dataset);
    scratch_end(&s);
}

static void devices_of_one_process_do_the_same(void **state)
{
    fit_samples train;
    fit_arg arg = {.lr = 0.1};
    tri_fit_options opt;
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 40, 1);
    opt = fit_quiet(s.dir);
    opt.max_epochs = 2;
    opt.devices = 2;
    opt.strategy = "data_parallel";
    CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 8}, &opt,
                     &arg, &result));
    assert_int_equal(result.steps, 10);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 2);
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_update_sends_what_the_plain_loop_sends),
    cmocka_unit_test(all_ranks_end_after_one_update),
    cmocka_unit_test(a_failure_of_one_rank_is_told_to_the_others),
    cmocka_unit_test(names_that_differ_are_named),
    cmocka_unit_test(their_order_does_not_matter),
    cmocka_unit_test(what_a_worker_fails_with_comes_back),
    cmocka_unit_test(predictions_come_back_from_workers),
    cmocka_unit_test(devices_of_one_process_do_the_same),
};
TEST_MAIN(tests)
