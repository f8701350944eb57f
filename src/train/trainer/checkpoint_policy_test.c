/* checkpoint_policy_test.c - which checkpoints a fit makes, and what later fits make of them.
 */
/* ctest: program=own */
#include <inttypes.h>

#include "testing/killed_fit.h"

static killed_fit base(const char *root)
{
    return (killed_fit){.root = root,
                        .samples = 40,
                        .batch_size = 8,
                        .max_epochs = 3,
                        .seed = 5,
                        .checkpoint = {.keep_last = -1}};
}

static killed_result run(const killed_fit *fit)
{
    killed_result r = killed_fit_run(fit);

    if (r.how != 0)
        fail_msg("%x", (unsigned)r.how);
    return r;
}

static killed_result run_well(const killed_fit *fit)
{
    killed_result r = run(fit);

    if (r.status != TRI_OK)
        fail_msg("%s", r.line);
    return r;
}

static bool has(scratch *s, const char *name)
{
    return access(scratch_path(s, name), F_OK) == 0;
}

static void saves_come_when_they_are_due(void **state)
{
    killed_fit fit;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.every_n_epochs = 2; /* and at the end */
    run_well(&fit);
    assert_int_equal(scratch_count(scratch_path(&s, "run/checkpoints")), 2);
    assert_true(has(&s, "run/checkpoints/step-000000000010"));
    assert_true(has(&s, "run/checkpoints/step-000000000015"));
    scratch_end(&s);

    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.every_n_train_steps = 4; /* and no more at each epoch */
    run_well(&fit);
    assert_int_equal(scratch_count(scratch_path(&s, "run/checkpoints")), 4);
    assert_true(has(&s, "run/checkpoints/step-000000000004"));
    assert_true(has(&s, "run/checkpoints/step-000000000012"));
    scratch_end(&s);

    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.every_s = 1e-9; /* always, where values are logged: every second update */
    fit.devices = 2;
    fit.batch_size = 4;
    run_well(&fit);
    assert_int_equal(scratch_count(scratch_path(&s, "run/checkpoints")), 8);
    scratch_end(&s);
}

static void what_was_saved_can_be_started_from(void **state)
{
    killed_fit fit, other;
    killed_result whole, again;
    char folder[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.monitor = "val_loss";
    whole = run_well(&fit);
    /* One of the folders, in the middle: it goes on in its run. */
    other = fit;
    snprintf(folder, sizeof(folder), "%s/run/checkpoints/step-000000000010", s.dir);
    other.ckpt_path = folder;
    again = run_well(&other);
    assert_true(again.hash == whole.hash);
    assert_string_equal(again.result.run_dir, whole.result.run_dir);
    assert_int_equal(again.result.steps, 15);
    other.ckpt_path = "best";
    again = run_well(&other);
    assert_int_equal(again.result.steps, 15);
    /* There is none of the name. */
    snprintf(folder, sizeof(folder), "%s/run/checkpoints/step-000000000099", s.dir);
    other.ckpt_path = folder;
    again = run(&other);
    assert_int_equal(again.status, TRI_ERR_NOT_FOUND);
    assert_non_null(strstr(again.line, "step-000000000099"));
    scratch_end(&s);
}

/* Whatever number is to stay: who resumes from it may want to do so again. */
static void what_was_started_from_stays(void **state)
{
    killed_fit fit;
    char folder[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    run_well(&fit);
    snprintf(folder, sizeof(folder), "%s/run/checkpoints/step-000000000010", s.dir);
    fit.ckpt_path = folder;
    fit.max_epochs = 5;
    fit.checkpoint.keep_last = 1;
    run_well(&fit);
    assert_true(has(&s, "run/checkpoints/step-000000000010"));
    assert_true(has(&s, "run/checkpoints/step-000000000025"));
    assert_int_equal(scratch_count(scratch_path(&s, "run/checkpoints")), 2);
    scratch_end(&s);
}

/* What validation saw in the fit is what it sees of the checkpoint: the averages. */
static void averages_are_what_is_evaluated(void **state)
{
    static tri_fit_ema_options ema;
    killed_fit fit;
    killed_result trained, evaluated, plain;
    double value;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    plain = run_well(&fit);
    scratch_end(&s);
    scratch_begin(&s);
    fit = base(s.dir);
    ema.decay = TRI_SET(0.9);
    fit.ema = &ema;
    trained = run_well(&fit);
    value = tri_fit_result_value(&trained.result, "val_loss");
    assert_true(trained.hash == plain.hash); /* the weights are those without averages */
    assert_true(value != tri_fit_result_value(&plain.result, "val_loss"));
    fit.ckpt_path = "last";
    fit.validate = true;
    for (int devices = 1; devices <= 2; devices++) {
        fit.devices = devices;
        evaluated = run_well(&fit);
        assert_true(fabs(tri_fit_result_value(&evaluated.result, "val_loss") - value) < 1e-6);
        assert_string_equal(evaluated.result.run_dir, "");
    }
    scratch_end(&s);
}

/* SIGTERM saves within the epoch, and the run that goes on has the weights of one that was left
 * alone.
 */
static void a_signal_saves_where_it_came(void **state)
{
    killed_fit fit;
    killed_result whole, stopped, resumed;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    whole = run_well(&fit);
    scratch_end(&s);
    for (int64_t at = 1; at <= 14; at++) {
        scratch_begin(&s);
        fit = base(s.dir);
        fit.term_at = at;
        stopped = run_well(&fit);
        assert_int_equal(stopped.result.reason, TRI_STOP_SIGNAL);
        assert_int_equal(stopped.result.steps,
                         at % 5 == 0 ? at : at + 1); /* or at the epoch's end */
        fit.term_at = 0;
        fit.ckpt_path = "last";
        resumed = run_well(&fit);
        assert_true(resumed.hash == whole.hash);
        assert_int_equal(resumed.result.steps, 15);
        scratch_end(&s);
    }
}

/* A user stops the process that called tri_fit, which is the one that is known. */
static void a_signal_to_the_caller_reaches_its_workers(void **state)
{
    killed_fit fit;
    killed_result whole, stopped, resumed;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.devices = 2;
    whole = run_well(&fit);
    scratch_end(&s);
    scratch_begin(&s);
    fit.root = s.dir;
    fit.term_at = 2;
    fit.to_parent = true;
    stopped = run_well(&fit);
    assert_int_equal(stopped.result.reason, TRI_STOP_SIGNAL);
    assert_string_equal(stopped.result.why, "SIGTERM");
    assert_in_range(stopped.result.steps, 2, 3);
    fit.term_at = 0;
    fit.ckpt_path = "last";
    resumed = run_well(&fit);
    assert_int_equal(resumed.result.steps, whole.result.steps);
    assert_true(tri_fit_result_value(&resumed.result, "val_loss") ==
                tri_fit_result_value(&whole.result, "val_loss"));
    scratch_end(&s);
}

/* A fit that fails keeps what it had, if that is wanted. */
static void a_failure_may_be_saved(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        killed_fit fit;
        killed_result r;
        scratch s;

        scratch_begin(&s);
        fit = base(s.dir);
        fit.fail_at = 7;
        fit.checkpoint.on_exception = wanted == 1;
        r = run(&fit);
        assert_int_equal(r.status, TRI_ERR_NOT_FOUND);
        assert_non_null(strstr(r.line, "batch 7"));
        assert_true(has(&s, "run/checkpoints/step-000000000005"));
        assert_true(has(&s, "run/checkpoints/step-000000000007") == (wanted == 1));
        fit.fail_at = 0;
        fit.ckpt_path = "last";
        r = run_well(&fit);
        assert_int_equal(r.result.steps, 15);
        scratch_end(&s);
    }
}

static void a_full_disk_ends_the_fit_and_loses_nothing(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        killed_fit fit;
        killed_result r;
        scratch s;

        scratch_begin(&s);
        fit = base(s.dir);
        fit.checkpoint.async = async == 1;
        fit.kill.full_after = 12; /* files of the second or third checkpoint */
        r = run(&fit);
        assert_int_equal(r.status, TRI_ERR_IO);
        assert_non_null(strstr(r.line, "No space left"));
        assert_true(has(&s, "run/checkpoints/step-000000000005"));
        fit.kill.full_after = 0;
        fit.ckpt_path = "last";
        r = run_well(&fit);
        assert_int_equal(r.result.steps, 15);
        scratch_end(&s);
    }
}

/* What a fit says that is to end with this status. */
static void expect_said(killed_fit fit, scratch *s, tri_status status, const char *line, bool is)
{
    killed_result r;
    char *text;
    size_t n;

    fit.said = scratch_path(s, "said");
    r = run(&fit);
    if (r.status != status)
        fail_msg("%s: %s", tri_status_name(r.status), r.line);
    text = scratch_read(fit.said, &n);
    if ((strstr(text, line) != NULL) != is)
        fail_msg("%s", text);
    free(text);
}

static void sums_of_ranks_that_failed_are_missed(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        killed_fit fit;
        scratch s;

        scratch_begin(&s);
        fit = base(s.dir);
        fit.devices = devices;
        fit.batch_size = 8 / devices;
        fit.checkpoint.on_exception = true;
        fit.fail_at = 7;
        assert_int_equal(run(&fit).status, TRI_ERR_NOT_FOUND);
        fit.fail_at = 0;
        fit.ckpt_path = "last";
        expect_said(fit, &s, TRI_OK, "this epoch logs is of the batches from 2 on", devices == 2);
        scratch_end(&s);
    }
}

/* Said when it is suspected, at the first batch, and refused when it is certain. */
static void a_monitor_that_nothing_has_is_doubted_at_once(void **state)
{
    static const struct {
        const char *monitor;
        bool no_val, is_doubted;
        int64_t sanity;
    } cases[] = {
        {"val_los", false, true, 2},     {"trian", true, true, 0},
        {"val_los", false, false, 0},    {"val_loss", false, false, 2},
        {"train_epoch", true, false, 0}, {"loss", false, false, 2},
        {"train_step", false, false, 2},
    };
    static tri_fit_early_stopping_options early;

    (void)state;
    for (size_t i = 0; i < 2 * TRII_COUNT_OF(cases); i++) {
        bool good = i / 2 > 2;
        killed_fit fit;
        scratch s;

        scratch_begin(&s);
        fit = base(s.dir);
        fit.no_val = cases[i / 2].no_val;
        fit.sanity = cases[i / 2].sanity;
        early.monitor = cases[i / 2].monitor;
        fit.early = i % 2 == 0 ? &early : NULL;
        fit.checkpoint.monitor = i % 2 == 0 ? NULL : early.monitor;
        expect_said(fit, &s, good ? TRI_OK : TRI_ERR_INVALID_ARG, " has not been logged, but ",
                    cases[i / 2].is_doubted);
        scratch_end(&s);
    }
}

static void a_monitor_without_validation_is_told_why(void **state)
{
    static const tri_fit_early_stopping_options early = {.monitor = "val_loss"};
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.early = &early;
    fit.no_val = true;
    r = run(&fit);
    assert_int_equal(r.status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(r.line, "no value of this name was logged; these were: "));
    assert_non_null(strstr(r.line, " (the data have no val, so nothing is validated)"));
    scratch_end(&s);
}

static void options_that_cannot_be_are_named(void **state)
{
    static const struct {
        tri_fit_checkpoint_options options;
        const char *line;
    } cases[] = {
        {{.monitor = "val_los"}, "\"val_los\": no value of this name was logged; these were: "},
        {{.monitor = "val_loss", .mode = "least"}, "checkpoint->mode \"least\": is \"min\""},
        {{.save_top_k = 2}, "save_top_k 2 without a monitor"},
        {{.monitor = "val_loss", .save_top_k = 65}, "save_top_k 65: is at most 64"},
        {{.keep_last = -2}, "keep_last -2"},
        {{.every_n_train_steps = -1}, "every_n_train_steps -1"},
        {{.reserved = {1}}, "reserved[0]"},
    };
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scratch_begin(&s);
        fit = base(s.dir);
        fit.checkpoint = cases[i].options;
        r = run(&fit);
        if (r.status != TRI_ERR_INVALID_ARG || strstr(r.line, cases[i].line) == NULL)
            fail_msg("%s: %s", cases[i].line, r.line);
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(saves_come_when_they_are_due),
    cmocka_unit_test(what_was_saved_can_be_started_from),
    cmocka_unit_test(what_was_started_from_stays),
    cmocka_unit_test(averages_are_what_is_evaluated),
    cmocka_unit_test(a_signal_saves_where_it_came),
    cmocka_unit_test(a_signal_to_the_caller_reaches_its_workers),
    cmocka_unit_test(a_failure_may_be_saved),
    cmocka_unit_test(a_full_disk_ends_the_fit_and_loses_nothing),
    cmocka_unit_test(a_monitor_that_nothing_has_is_doubted_at_once),
    cmocka_unit_test(sums_of_ranks_that_failed_are_missed),
    cmocka_unit_test(a_monitor_without_validation_is_told_why),
    cmocka_unit_test(options_that_cannot_be_are_named),
};
TEST_MAIN(tests)
