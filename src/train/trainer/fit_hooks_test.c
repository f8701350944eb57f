/* fit_hooks_test.c - what a fit calls, in which order; when it validates and when it ends. */
#include <signal.h>

#include "testing/fit_problem.h"

/* Letters for what is called: F fit_begin, E epoch_begin, b batch_begin, t training_step, d
 * batch_end, V validation_begin, v validation_step, W validation_end, e epoch_end, f fit_end, x
 * exception; S and L: state. */
typedef struct logger {
    tri_callback base;
    char text[1024];
    size_t n;
    int64_t stop_at; /* asks to stop in batch_end after this many updates; -1 = never */
    int64_t signal_at;
    char fail_in; /* the hook with this letter fails; 0 = none */
    int records;
    fit_arg arg;
} logger;

static logger *loud; /* that of the step functions */

static tri_status note(logger *l, char what)
{
    if (l->n + 1 < sizeof(l->text))
        l->text[l->n++] = what;
    if (what == l->fail_in)
        return tri_status_fail(TRI_ERR_UNSUPPORTED, "no more of this");
    return TRI_OK;
}

#define HOOK(name, letter)                                                                         \
    static tri_status log_##name(tri_callback *self, tri_trainer *t)                               \
    {                                                                                              \
        (void)t;                                                                                   \
        return note((logger *)self, letter);                                                       \
    }
HOOK(fit_begin, 'F')
HOOK(epoch_begin, 'E')
HOOK(validation_begin, 'V')
HOOK(validation_end, 'W')
HOOK(epoch_end, 'e')
HOOK(fit_end, 'f')
HOOK(state_save, 'S')

static tri_status log_batch_begin(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    (void)t;
    return batch->size > 0 ? note((logger *)self, 'b') : TRI_ERR_INTERNAL;
}

static tri_status log_batch_end(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    logger *l = (logger *)self;

    (void)batch;
    if (tri_trainer_step(t) == l->stop_at)
        tri_trainer_stop(t, "enough");
    if (tri_trainer_step(t) == l->signal_at)
        raise(SIGUSR1);
    return note(l, 'd');
}

static void log_exception(tri_callback *self, tri_trainer *t, tri_status status)
{
    tri_status noted = note((logger *)self, status == TRI_OK ? '?' : 'x');

    (void)t;
    (void)noted;
}

static tri_status log_record(tri_callback *self, tri_trainer *t, const tri_metric *values, int n)
{
    (void)t;
    ((logger *)self)->records++;
    return n > 2 && strcmp(values[0].key, "step") == 0 ? TRI_OK : TRI_ERR_INTERNAL;
}

static const tri_callback_class logger_class = {.name = "logger",
                                                .fit_begin = log_fit_begin,
                                                .epoch_begin = log_epoch_begin,
                                                .batch_begin = log_batch_begin,
                                                .batch_end = log_batch_end,
                                                .validation_begin = log_validation_begin,
                                                .validation_end = log_validation_end,
                                                .epoch_end = log_epoch_end,
                                                .fit_end = log_fit_end,
                                                .exception = log_exception,
                                                .record = log_record,
                                                .state_save = log_state_save};

static tri_tensor *loud_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_status noted = note(loud, 't');

    (void)noted;
    return fit_training_step(t, batch, arg);
}

static void loud_validation(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_status noted = note(loud, 'v');

    (void)noted;
    tri_trainer_log(t, "val_loss", fit_training_step(t, batch, arg), NULL);
}

/* 10 samples in batches of 4 are three; 5 of validation are two. */
static tri_status run(logger *l, const char *dir, const tri_fit_options *given,
                      tri_fit_result *result)
{
    tri_task task = fit_task;
    tri_fit_options opt = *given;
    tri_callback *callbacks[] = {&l->base};
    fit_samples train, val;
    tri_status status;

    l->base.cls = &logger_class;
    l->arg.lr = 0.1;
    loud = l;
    task.training_step = loud_step;
    task.validation_step = loud_validation;
    fit_samples_make(&train, 10, 1);
    fit_samples_make(&val, 5, 2);
    opt.default_root_dir = dir;
    opt.no_progress = opt.no_summary = true;
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    status =
        tri_fit(&task, &(tri_fit_data){.train = train.dataset, .val = val.dataset, .batch_size = 4},
                &opt, &l->arg, result);
    tri_dataset_destroy(val.dataset);
    tri_dataset_destroy(train.dataset);
    return status;
}

/* What is called with these options. */
static void expect_calls(const tri_fit_options *opt, const char *calls, tri_stop_reason reason,
                         const char *why)
{
    logger l = {.stop_at = -1, .signal_at = -1};
    tri_fit_result result;
    scratch s;

    scratch_begin(&s);
    CHECK_OK(run(&l, s.dir, opt, &result));
    assert_string_equal(l.text, calls);
    assert_int_equal(result.reason, reason);
    assert_string_equal(result.why, why);
    scratch_end(&s);
}

#define NO_SANITY .num_sanity_val_steps = TRI_SET(0)

static void hooks_come_in_the_order_of_lightning(void **state)
{
    (void)state;
    expect_calls(&(tri_fit_options){.max_epochs = 2},
                 "F"
                 "VvvW"
                 "EbtdbtdbtdVvvWeS"
                 "EbtdbtdbtdVvvWeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=2 reached");
}

static void a_trial_run_leaves_the_rest_out(void **state)
{
    (void)state;
    expect_calls(&(tri_fit_options){.fast_dev_run = 1}, "FEbtdVvWef", TRI_STOP_MAX_EPOCHS,
                 "max_epochs=1 reached");
}

static void limits_are_in_batches(void **state)
{
    (void)state;
    expect_calls(&(tri_fit_options){.max_epochs = 1,
                                    .limit_train_batches = 2,
                                    .limit_val_share = 0.5,
                                    .num_sanity_val_steps = TRI_SET(-1)},
                 "F"
                 "VvW"
                 "EbtdbtdVvWeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=1 reached");
    expect_calls(&(tri_fit_options){.max_epochs = 1, .overfit_batches = 1, NO_SANITY},
                 "F"
                 "EbtdVvWeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=1 reached");
}

static void validation_comes_after_so_many_batches(void **state)
{
    (void)state;
    expect_calls(&(tri_fit_options){.max_epochs = 1, .val_check_interval = 2, NO_SANITY},
                 "F"
                 "EbtdbtdVvvWbtdeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=1 reached");
    /* counted over epochs: after the 4th batch of six */
    expect_calls(&(tri_fit_options){.max_epochs = 2, .val_check_interval = 4, NO_SANITY},
                 "F"
                 "EbtdbtdbtdeS"
                 "EbtdVvvWbtdbtdeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=2 reached");
    expect_calls(&(tri_fit_options){.max_epochs = 3, .check_val_every_n_epoch = 2, NO_SANITY},
                 "F"
                 "EbtdbtdbtdeS"
                 "EbtdbtdbtdVvvWeS"
                 "EbtdbtdbtdeS"
                 "f",
                 TRI_STOP_MAX_EPOCHS, "max_epochs=3 reached");
}

static void max_steps_ends_in_the_middle_of_an_epoch(void **state)
{
    (void)state;
    expect_calls(&(tri_fit_options){.max_steps = 4, NO_SANITY},
                 "F"
                 "EbtdbtdbtdVvvWeS"
                 "EbtdVvvWe"
                 "f"
                 "S",
                 TRI_STOP_MAX_STEPS, "max_steps=4 reached");
    /* three batches are two updates: 2 + 1 */
    expect_calls(&(tri_fit_options){.max_steps = 3, .accumulate_grad_batches = 2, NO_SANITY},
                 "F"
                 "EbtdbtdbtdVvvWeS"
                 "EbtdbtdVvvWe"
                 "f"
                 "S",
                 TRI_STOP_MAX_STEPS, "max_steps=3 reached");
}

static void a_request_counts_after_the_minimum(void **state)
{
    const struct {
        tri_fit_options opt;
        int64_t steps;
    } cases[] = {{{.max_epochs = 9, NO_SANITY}, 2},
                 {{.max_epochs = 9, .min_steps = 5, NO_SANITY}, 5},
                 {{.max_epochs = 9, .min_epochs = 2, NO_SANITY}, 6}};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 3; i++) {
        logger l = {.stop_at = 1, .signal_at = -1};
        tri_fit_result result;

        CHECK_OK(run(&l, s.dir, &cases[i].opt, &result));
        assert_int_equal(result.steps, cases[i].steps);
        assert_int_equal(result.reason, TRI_STOP_REQUEST);
        assert_string_equal(result.why, "enough");
    }
    scratch_end(&s);
}

static void the_time_may_be_limited(void **state)
{
    logger l = {.stop_at = -1, .signal_at = -1};
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(run(&l, s.dir, &(tri_fit_options){.max_time_s = 0.05, NO_SANITY}, &result));
    assert_int_equal(result.reason, TRI_STOP_MAX_TIME);
    assert_string_equal(result.why, "max_time_s=0.05 reached");
    assert_true(result.seconds >= 0.05 && result.steps > 0);
    scratch_end(&s);
}

/* It ends after the update, and saves. */
static void a_signal_ends_the_fit_and_leaves_a_checkpoint(void **state)
{
    logger l = {.stop_at = -1, .signal_at = 4};
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(
        run(&l, s.dir, &(tri_fit_options){.max_epochs = 9, .min_steps = 20, NO_SANITY}, &result));
    assert_int_equal(result.reason, TRI_STOP_SIGNAL);
    assert_string_equal(result.why, "SIGUSR1");
    assert_int_equal(result.steps, 5);
    assert_string_equal(l.text, "F"
                                "EbtdbtdbtdVvvWeS"
                                "Ebtdbtd"
                                "f"
                                "S");
    assert_non_null(strstr(result.best_path, "step-000000000005"));
    scratch_end(&s);
}

/* --- failures ------------------------------------------------------------- */

static void each_hook_may_end_the_fit(void **state)
{
    static const char letters[] = "FEbdVWefS";
    static const char *const names[] = {"fit_begin", "epoch_begin",      "batch_begin",
                                        "batch_end", "validation_begin", "validation_end",
                                        "epoch_end", "fit_end",          "state_save"};
    char says[64];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; letters[i] != '\0'; i++) {
        logger l = {.stop_at = -1, .signal_at = -1, .fail_in = letters[i]};
        tri_fit_result result;

        snprintf(says, sizeof(says), "callback logger, %s: no more of this", names[i]);
        CHECK_FAILS(run(&l, s.dir, &(tri_fit_options){.max_epochs = 1}, &result),
                    TRI_ERR_UNSUPPORTED, says);
        assert_true(l.n > 0 && l.text[l.n - 1] == 'x'); /* exception comes last */
    }
    scratch_end(&s);
}

static void a_fit_works_after_one_that_failed(void **state)
{
    fit_samples train;
    tri_fit_options opt;
    fit_arg arg = {.lr = 0.1, .fail_at = 2};
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 10, 1);
    opt = fit_quiet(s.dir);
    opt.max_epochs = 1;
    for (int i = 0; i < 2; i++) {
        const tri_fit_data data = {.train = train.dataset, .batch_size = 4};

        arg.seen = 0;
        CHECK_FAILS(tri_fit(&fit_task, &data, &opt, &arg, &result), TRI_ERR_INVALID_ARG, "matmul");
        arg.fail_at = 0;
        CHECK_OK(tri_fit(&fit_task, &data, &opt, &arg, &result));
        assert_int_equal(result.steps, 3);
        arg.fail_at = 2;
    }
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static tri_tensor *nan_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *loss = fit_training_step(t, batch, arg);

    return ((fit_arg *)arg)->seen == 2 ? tri_log(tri_mul_scalar(loss, -1)) : loss;
}

/* Whether a second fit of the same run could begin while the first one was in its first batch. */
typedef struct intruder {
    logger base;
    const char *dir;
    tri_status status;
    char why[512];
} intruder;

static tri_status intrude(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    intruder *i = (intruder *)self;
    logger second = {.stop_at = -1, .signal_at = -1}, *first = loud;

    (void)batch;
    if (tri_trainer_batch(t) > 0)
        return TRI_OK;
    i->status =
        run(&second, i->dir,
            &(tri_fit_options){.max_epochs = 1, .run_name = "one", .ckpt_path = "last", NO_SANITY},
            NULL);
    snprintf(i->why, sizeof(i->why), "%s", tri_last_error());
    loud = first;
    return TRI_OK;
}

static void two_fits_do_not_write_one_run(void **state)
{
    static const tri_callback_class class = {.name = "intruder", .batch_begin = intrude};
    intruder i = {.base = {.stop_at = -1, .signal_at = -1}};
    tri_callback *callbacks[] = {&i.base.base};
    fit_samples train;
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    i.dir = s.dir;
    i.base.base.cls = &class;
    i.base.arg.lr = 0.1;
    fit_samples_make(&train, 10, 1);
    CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 4},
                     &(tri_fit_options){.max_epochs = 1,
                                        .run_name = "one",
                                        .default_root_dir = s.dir,
                                        .no_progress = true,
                                        .no_summary = true,
                                        .callbacks = callbacks,
                                        .n_callbacks = 1},
                     &i.base.arg, &result));
    assert_int_equal(i.status, TRI_ERR_STATE);
    assert_non_null(strstr(i.why, "one is under way in another process or thread"));
    /* and after its end it may go on */
    i.base.n = 0;
    CHECK_OK(
        run(&i.base, s.dir,
            &(tri_fit_options){.max_epochs = 2, .run_name = "one", .ckpt_path = "last", NO_SANITY},
            &result));
    assert_int_equal(result.epochs, 2);
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static void an_anomaly_ends_the_fit_by_name(void **state)
{
    tri_task task = fit_task;
    fit_samples train;
    tri_fit_options opt;
    fit_arg arg = {.lr = 0.1};
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 10, 1);
    opt = fit_quiet(s.dir);
    opt.max_epochs = 1;
    task.training_step = nan_step;
    CHECK_OK(
        tri_fit(&task, &(tri_fit_data){.train = train.dataset, .batch_size = 4}, &opt, &arg, NULL));
    opt.detect_anomaly = true;
    arg.seen = 0;
    CHECK_FAILS(
        tri_fit(&task, &(tri_fit_data){.train = train.dataset, .batch_size = 4}, &opt, &arg, NULL),
        TRI_ERR_NAN, "log");
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static tri_module *no_module(void *arg)
{
    (void)arg;
    return NULL;
}

static tri_optimizer *no_optimizer(tri_module *model, void *arg)
{
    (void)model;
    (void)arg;
    return NULL;
}

static tri_tensor *no_loss(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)t;
    (void)batch;
    (void)arg;
    return NULL;
}

static tri_optimizer *bad_optimizer(tri_module *model, void *arg)
{
    (void)arg;
    return tri_sgd(model, -1, NULL);
}

static void a_task_that_returns_nothing_is_named(void **state)
{
    fit_samples train;
    tri_fit_options opt;
    fit_arg arg = {.lr = 0.1};
    scratch s;
    tri_task model = fit_task, optimizer = fit_task, loss = fit_task, bad = fit_task;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 10, 1);
    opt = fit_quiet(s.dir);
    opt.max_epochs = 1;
    model.model = no_module;
    optimizer.optimizer = no_optimizer;
    loss.training_step = no_loss;
    bad.optimizer = bad_optimizer;
    const tri_fit_data data = {.train = train.dataset, .batch_size = 4};

    CHECK_FAILS(tri_fit(&model, &data, &opt, &arg, NULL), TRI_ERR_INVALID_ARG,
                "model() of the task returned NULL");
    CHECK_FAILS(tri_fit(&optimizer, &data, &opt, &arg, NULL), TRI_ERR_INVALID_ARG,
                "optimizer() of the task returned NULL");
    CHECK_FAILS(tri_fit(&loss, &data, &opt, &arg, NULL), TRI_ERR_INVALID_ARG,
                "training_step of the task returned NULL");
    CHECK_FAILS(tri_fit(&bad, &data, &opt, &arg, NULL), TRI_ERR_INVALID_ARG, "lr");
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hooks_come_in_the_order_of_lightning),
    cmocka_unit_test(a_trial_run_leaves_the_rest_out),
    cmocka_unit_test(limits_are_in_batches),
    cmocka_unit_test(validation_comes_after_so_many_batches),
    cmocka_unit_test(max_steps_ends_in_the_middle_of_an_epoch),
    cmocka_unit_test(a_request_counts_after_the_minimum),
    cmocka_unit_test(the_time_may_be_limited),
    cmocka_unit_test(a_signal_ends_the_fit_and_leaves_a_checkpoint),
    cmocka_unit_test(each_hook_may_end_the_fit),
    cmocka_unit_test(a_fit_works_after_one_that_failed),
    cmocka_unit_test(two_fits_do_not_write_one_run),
    cmocka_unit_test(an_anomaly_ends_the_fit_by_name),
    cmocka_unit_test(a_task_that_returns_nothing_is_named),
};
TEST_MAIN(tests)
