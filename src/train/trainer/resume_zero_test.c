/* resume_zero_test.c - a fit whose ranks divide the state is killed anywhere, and goes on: the
 * weights and values of one of tri_ddp that never stopped. */
/* ctest: program=own timeout=120 */
#include "testing/killed_fit.h"

static killed_fit base(const char *strategy, int devices)
{
    static tri_fit_ema_options ema;

    ema.decay = TRI_SET(0.5);
    return (killed_fit){.strategy = strategy,
                        .devices = devices,
                        .samples = 43,
                        .batch_size = 4,
                        .max_epochs = 3,
                        .seed = 5,
                        .checkpoint = {.monitor = "val_loss",
                                       .save_top_k = 2,
                                       .keep_last = 2,
                                       .every_n_train_steps = 3,
                                       .every_n_epochs = 1},
                        .ema = &ema,
                        .clip = 0.5};
}

static killed_result run_well(const killed_fit *fit)
{
    killed_result r = killed_fit_run(fit);

    if (r.how != 0 || r.status != TRI_OK)
        fail_msg("%x: %s", (unsigned)r.how, r.line);
    return r;
}

static killed_result whole_run(killed_fit fit)
{
    killed_result r;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    r = run_well(&fit);
    scratch_end(&s);
    return r;
}

static void check_same(const killed_result *found, const killed_result *want)
{
    if (found->hash != want->hash)
        fail_msg("weights differ");
    assert_int_equal(found->result.steps, want->result.steps);
    assert_int_equal(found->result.n_values, want->result.n_values);
    for (int i = 0; i < found->result.n_values; i++) {
        const char *name = found->result.names[i];

        assert_true(found->result.values[i] == tri_fit_result_value(&want->result, name));
    }
    assert_true(found->result.best_value == want->result.best_value);
}

/* Stopped as the plan says, and resumed: whether it was stopped. */
static bool check(killed_fit fit, const killed_result *want)
{
    killed_result killed, resumed;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    killed = killed_fit_run(&fit);
    if (killed.how == 0 && killed.status == TRI_OK && killed.result.reason != TRI_STOP_SIGNAL) {
        check_same(&killed, want);
        scratch_end(&s);
        return false;
    }
    fit.kill = (kill_plan){0};
    fit.term_at = 0;
    fit.ckpt_path = "last";
    resumed = run_well(&fit);
    check_same(&resumed, want);
    scratch_end(&s);
    return true;
}

static void killed_after_any_batch(void **state)
{
    killed_result want = whole_run(base("ddp", 3));
    killed_fit fit = base("zero1", 3);
    int n = 0;

    (void)state;
    for (fit.kill.batch = 1; check(fit, &want); fit.kill.batch += 2)
        n++;
    assert_int_equal(n, 6);
}

static void killed_in_any_batch_of_validation(void **state)
{
    killed_result want = whole_run(base("ddp", 2));
    killed_fit fit = base("zero3", 2);
    int n = 0;

    (void)state;
    for (fit.kill.validation = 1; check(fit, &want); fit.kill.validation += 2)
        n++;
    assert_in_range(n, 4, 10);
}

/* Any rank, whichever comes first to so many files. */
static void killed_in_any_save(void **state)
{
    killed_result want = whole_run(base("ddp", 2));
    killed_fit fit = base("zero2", 2);
    int n = 0;

    (void)state;
    for (int async = 0; async < 2; async++) {
        fit.checkpoint.async = async == 1;
        fit.strategy = async == 1 ? "zero2" : "zero3";
        for (fit.kill.sync = 1; check(fit, &want); fit.kill.sync += 7)
            n++;
    }
    assert_in_range(n, 8, 100);
}

static void stopped_by_a_signal_at_any_batch(void **state)
{
    killed_result want = whole_run(base("ddp", 2));
    killed_fit fit = base("zero2", 2);
    int n = 0;

    (void)state;
    for (fit.term_at = 1; check(fit, &want); fit.term_at += 3) {
        fit.checkpoint.async = !fit.checkpoint.async;
        n++;
    }
    assert_int_equal(n, 6);
}

/* Micro-batches and a scale of the loss. */
static void accumulated_and_scaled_it_is_the_same(void **state)
{
    killed_fit fit = base("ddp", 2);
    killed_result want;
    int n = 0;

    (void)state;
    fit.accumulate = 2;
    fit.precision = "16-mixed";
    fit.checkpoint.every_n_train_steps = 1;
    want = whole_run(fit);
    fit.strategy = "deepspeed_stage_2";
    for (fit.kill.batch = 2; check(fit, &want); fit.kill.batch += 3)
        n++;
    assert_int_equal(n, 6);
}

/* The pieces of three ranks, for other numbers of them, until the samples end. */
static void other_numbers_of_ranks_go_on(void **state)
{
    static const struct {
        const char *strategy;
        int devices;
    } ways[] = {{"zero2", 2}, {"single", 1}, {"ddp", 2}, {"zero1", 4}, {"zero3", 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        killed_fit fit = base("zero1", 3);
        killed_result r, want;

        for (int way = 0; way < 2; way++) {
            scratch s;

            scratch_begin(&s);
            fit = base(way == 0 ? "ddp" : i % 2 == 0 ? "zero3" : "zero1", 3);
            fit.root = s.dir;
            fit.kill.batch = 6;
            r = killed_fit_run(&fit);
            assert_true(r.how != 0 || r.status != TRI_OK);
            fit.kill.batch = 0;
            fit.strategy = ways[i].strategy;
            fit.devices = ways[i].devices;
            fit.ckpt_path = "last";
            r = run_well(&fit);
            assert_int_equal(r.result.epochs, 3);
            if (way == 0)
                want = r;
            else
                check_same(&r, &want);
            scratch_end(&s);
        }
    }
}

/* A disk that is full fails all ranks, and what was saved stays. */
static void a_full_disk_is_told_by_all(void **state)
{
    killed_fit fit = base("zero1", 2);
    killed_result r, want = whole_run(base("ddp", 2));
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit.root = s.dir;
    fit.kill.full_after = 12;
    r = killed_fit_run(&fit);
    assert_int_equal(r.how, 0);
    assert_int_equal(r.status, TRI_ERR_IO);
    assert_non_null(strstr(r.line, "No space left"));
    fit.kill.full_after = 0;
    fit.ckpt_path = "last";
    r = run_well(&fit);
    check_same(&r, &want);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_after_any_batch),
    cmocka_unit_test(killed_in_any_batch_of_validation),
    cmocka_unit_test(killed_in_any_save),
    cmocka_unit_test(stopped_by_a_signal_at_any_batch),
    cmocka_unit_test(accumulated_and_scaled_it_is_the_same),
    cmocka_unit_test(other_numbers_of_ranks_go_on),
    cmocka_unit_test(a_full_disk_is_told_by_all),
};
TEST_MAIN(tests)
