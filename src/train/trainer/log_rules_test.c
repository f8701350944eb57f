/* log_rules_test.c - what a step must not log, and who must not log at all; what is logged later.
 */
#include "testing/fit_problem.h"

typedef struct rules_arg {
    fit_arg fit; /* first: fit_model and fit_optimizer take it for theirs */
    void (*log)(tri_trainer *t);
} rules_arg;

static tri_tensor *rules_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    ((rules_arg *)arg)->log(t);
    return tri_cross_entropy(tri_forward(tri_trainer_model(t), batch->fields[0]), batch->fields[1],
                             NULL);
}

static const tri_task rules_task = {
    .name = "rules", .model = fit_model, .optimizer = fit_optimizer, .training_step = rules_step};

static tri_status fit(void (*log)(tri_trainer *t), tri_callback *callback)
{
    tri_callback *callbacks[] = {callback};
    rules_arg arg = {.fit = {.lr = 0.1}, .log = log};
    fit_samples train;
    tri_fit_options options;
    tri_status status;
    scratch s;

    scratch_begin(&s);
    fit_samples_make(&train, 12, 1);
    options = fit_quiet(s.dir);
    options.max_epochs = options.log_every_n_steps = 1;
    options.callbacks = callbacks;
    options.n_callbacks = callback != NULL;
    status = tri_fit(&rules_task, &(tri_fit_data){.train = train.dataset, .batch_size = 4},
                     &options, &arg, NULL);
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
    return status;
}

/* --- names, weights, reductions ------------------------------------------- */

static void log_lr(tri_trainer *t)
{
    tri_trainer_log_value(t, "lr", 0.1, NULL);
}

static void log_rate(tri_trainer *t)
{
    tri_trainer_log_value(t, "samples_per_s", 1, NULL);
}

static void log_no_name(tri_trainer *t)
{
    tri_trainer_log_value(t, "", 1, &(tri_trainer_log_options){.on_epoch = TRI_SET(true)});
}

static void log_huge_weight(tri_trainer *t)
{
    tri_trainer_log(t, "x", tri_full(NULL, 0, 1, TRI_DTYPE_F32),
                    &(tri_trainer_log_options){.weight = INT64_MAX, .on_epoch = TRI_SET(true)});
}

static void log_tensor_twice(tri_trainer *t)
{
    tri_trainer_log(t, "x", tri_full(NULL, 0, 1, TRI_DTYPE_F32), NULL);
    tri_trainer_log(t, "x", tri_full(NULL, 0, 3, TRI_DTYPE_F32), NULL);
}

static void log_number_twice(tri_trainer *t)
{
    tri_trainer_log_value(t, "x", 1, NULL);
    tri_trainer_log_value(t, "x", 3, NULL);
}

static void log_loss_too(tri_trainer *t)
{
    tri_trainer_log_value(t, "loss", 100, NULL);
}

static void log_now_so_now_so(tri_trainer *t)
{
    tri_trainer_log_value(
        t, "x", 1, &(tri_trainer_log_options){.reduce = tri_trainer_step(t) == 0 ? "max" : "sum"});
}

static void what_a_step_must_not_log_is_named(void **state)
{
    static const struct {
        void (*log)(tri_trainer *t);
        const char *says;
    } cases[] = {
        {log_lr, "the name \"lr\": "},
        {log_rate, "the name \"samples_per_s\": "},
        {log_no_name, "the name \"\": 1 to 63 bytes"},
        {log_huge_weight, "of \"x\": weight 9223372036854775807"},
        {log_tensor_twice, "of \"x\": logged twice in one step"},
        {log_number_twice, "of \"x\": logged twice in one step"},
        {log_loss_too, "of \"loss\": logged twice in one step"},
        {log_now_so_now_so, "of \"x\": its reduce was \"max\" and is \"sum\""},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++)
        CHECK_FAILS(fit(cases[i].log, NULL), TRI_ERR_INVALID_ARG, cases[i].says);
}

/* --- callbacks ------------------------------------------------------------ */

static void log_nothing(tri_trainer *t)
{
    (void)t;
}

static tri_status log_in_hook(tri_callback *self, tri_trainer *t)
{
    (void)self;
    tri_trainer_log_value(t, "mine", 1, NULL);
    return TRI_OK;
}

/* No step follows that would tell of it. */
static void callbacks_at_the_end_must_not_log_either(void **state)
{
    static const tri_callback_class classes[] = {{.name = "epoch", .epoch_end = log_in_hook},
                                                 {.name = "fit", .fit_end = log_in_hook}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(classes); i++)
        CHECK_FAILS(fit(log_nothing, &(tri_callback){.cls = &classes[i]}), TRI_ERR_STATE,
                    "of \"mine\": only steps of the task log");
}

static tri_tensor *rules_predict(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)arg;
    tri_trainer_log_value(t, "mine", 1, NULL);
    return tri_forward(tri_trainer_model(t), batch->fields[0]);
}

static void predictions_log_nothing(void **state)
{
    rules_arg arg = {.log = log_nothing};
    tri_task task = rules_task;
    tri_tensor *predictions = NULL;
    fit_samples samples;
    tri_fit_options options;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 5, 1);
    options = fit_quiet(s.dir);
    task.predict_step = rules_predict;
    CHECK_FAILS(tri_predict(&task, &(tri_fit_data){.predict = samples.dataset, .batch_size = 2},
                            &options, &arg, &predictions),
                TRI_ERR_STATE, "of \"mine\": only steps of the task log");
    tri_tensor_unref(predictions);
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

/* --- what is logged too seldom -------------------------------------------- */

static void a_monitor_that_was_not_due_yet_is_explained(void **state)
{
    rules_arg arg = {.fit = {.lr = 0.1}, .log = log_nothing};
    fit_samples train;
    tri_fit_options options;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 12, 1);
    options = fit_quiet(s.dir);
    options.max_epochs = 2;
    options.early_stopping = &(tri_fit_early_stopping_options){.monitor = "loss"};
    CHECK_FAILS(tri_fit(&rules_task, &(tri_fit_data){.train = train.dataset, .batch_size = 4},
                        &options, &arg, NULL),
                TRI_ERR_INVALID_ARG,
                "these were: none (there were 3 updates, and values of updates are logged every "
                "50: log_every_n_steps, or log with on_epoch)");
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

/* --- what was not validated ----------------------------------------------- */

static bool fails;

static void failing_validation(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *x = batch->fields[0];

    (void)arg;
    tri_trainer_log(t, "val_x", fails ? tri_matmul(x, x) : tri_mean(x, NULL, 0, false), NULL);
}

/* The checkpoint of a fit that failed while it validated: its values are still to come. */
static void a_validation_that_failed_comes_when_resumed(void **state)
{
    rules_arg arg = {.fit = {.lr = 0.1}, .log = log_nothing};
    tri_task task = rules_task;
    fit_samples samples;
    tri_fit_options options;
    tri_fit_result result;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 10, 1);
    task.validation_step = failing_validation;
    options = fit_quiet(s.dir);
    options.max_epochs = 1;
    options.run_name = "run";
    options.ckpt_path = "last";
    options.checkpoint = &(tri_fit_checkpoint_options){.on_exception = true};
    for (int run = 0; run < 2; run++) {
        tri_status status;

        fails = run == 0;
        status = tri_fit(
            &task,
            &(tri_fit_data){.train = samples.dataset, .val = samples.dataset, .batch_size = 2},
            &options, &arg, &result);
        if (run == 0)
            CHECK_FAILS(status, TRI_ERR_INVALID_ARG, "of \"val_x\"");
        else
            CHECK_OK(status);
    }
    assert_int_equal(result.steps, 5);
    assert_true(isfinite(tri_fit_result_value(&result, "val_x")));
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_step_must_not_log_is_named),
    cmocka_unit_test(callbacks_at_the_end_must_not_log_either),
    cmocka_unit_test(predictions_log_nothing),
    cmocka_unit_test(a_monitor_that_was_not_due_yet_is_explained),
    cmocka_unit_test(a_validation_that_failed_comes_when_resumed),
};
TEST_MAIN(tests)
