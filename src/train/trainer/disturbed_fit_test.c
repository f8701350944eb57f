/* disturbed_fit_test.c - fits to which something happens at a moment that nobody has chosen, or
 * that may not write: what they say, and that they go on as if nothing had been. */
/* ctest: start=first program=own timeout=120 */
#include <inttypes.h>

#include "testing/killed_fit.h"

static killed_fit base(const char *root)
{
    return (killed_fit){
        .root = root,
        .samples = 43,
        .batch_size = 8,
        .max_epochs = 3,
        .seed = 5,
        .checkpoint = {.monitor = "val_loss", .every_n_train_steps = 2, .every_n_epochs = 1}};
}

/* The same options with nothing that disturbs, to the end. */
static killed_result undisturbed(const killed_fit *given)
{
    killed_fit fit = *given;
    killed_result r;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    r = killed_fit_run(&fit);
    if (r.how != 0 || r.status != TRI_OK)
        fail_msg("%x: %s", (unsigned)r.how, r.line);
    scratch_end(&s);
    return r;
}

static void expect_same(const killed_result *r, const killed_result *want)
{
    if (r->how != 0 || r->status != TRI_OK)
        fail_msg("%x: %s", (unsigned)r->how, r->line);
    assert_int_equal(r->result.steps, want->result.steps);
    if (want->hash != 0) /* that of a worker stays there */
        assert_true(r->hash == want->hash);
    assert_true(tri_fit_result_value(&r->result, "val_loss") ==
                tri_fit_result_value(&want->result, "val_loss"));
    assert_true(tri_fit_result_value(&r->result, "train_epoch") ==
                tri_fit_result_value(&want->result, "train_epoch"));
}

/* --- signals -------------------------------------------------------------- */

/* The second one ends the process as it would end any other. */
static void the_second_sigterm_ends_it_and_it_goes_on(void **state)
{
    killed_fit fit = base(NULL);
    killed_result want = undisturbed(&fit), r;

    (void)state;
    for (fit.term_at = 1; fit.term_at <= 17; fit.term_at += 4) {
        scratch s;

        scratch_begin(&s);
        fit.root = s.dir;
        fit.term_twice = true;
        fit.ckpt_path = NULL;
        r = killed_fit_run(&fit);
        assert_true(WIFSIGNALED(r.how) && WTERMSIG(r.how) == SIGTERM);
        killed_fit again = fit;
        again.term_at = 0;
        again.ckpt_path = "last";
        r = killed_fit_run(&again);
        expect_same(&r, &want);
        scratch_end(&s);
    }
}

/* In the thread of the loop, or in that of the writer. */
static void a_signal_during_a_save_stops_it_like_any_other(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        killed_fit fit = base(NULL);
        killed_result want, r;
        bool stopped = true;

        fit.checkpoint.async = async == 1;
        want = undisturbed(&fit);
        for (int64_t sync = 1; stopped; sync += 8) {
            scratch s;

            scratch_begin(&s);
            fit.root = s.dir;
            fit.kill.term_sync = sync;
            fit.ckpt_path = NULL;
            r = killed_fit_run(&fit);
            if (r.how != 0 || r.status != TRI_OK)
                fail_msg("sync %d: %x: %s", (int)sync, (unsigned)r.how, r.line);
            stopped = r.result.reason == TRI_STOP_SIGNAL;
            fit.kill.term_sync = 0;
            fit.ckpt_path = "last";
            if (stopped)
                r = killed_fit_run(&fit);
            expect_same(&r, &want);
            scratch_end(&s);
        }
    }
}

/* --- killed whenever ------------------------------------------------------ */

/* Always a little later than the time before, so that it comes to an end. */
static void killed_at_any_time_it_is_the_same_in_the_end(void **state)
{
    uint64_t draws = (uint64_t)trii_now_ns();

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        killed_fit fit = base(NULL);
        killed_result want, r = {.how = 1};
        int64_t ns = 2 * TRII_NS_PER_MS;
        int runs = 0;
        scratch s;

        fit.checkpoint.async = kind % 2 == 1;
        fit.devices = 1 + kind / 2;
        fit.batch_size = 8 / fit.devices;
        fit.checkpoint.every_n_train_steps = 1;
        want = undisturbed(&fit);
        scratch_begin(&s);
        fit.root = s.dir;
        fit.ckpt_path = "last";
        for (; r.how != 0; runs++, ns += 3 * TRII_NS_PER_MS) {
            fit.kill.after_ns = ns + (int64_t)(scratch_random(&draws) % 4000000);
            r = killed_fit_run(&fit);
        }
        expect_same(&r, &want);
        assert_true(runs > 2);
        scratch_end(&s);
    }
}

/* --- one rank alone ------------------------------------------------------- */

/* What one rank brings into the sum all have, so that none goes on alone. */
static void a_nan_of_one_rank_is_one_of_all(void **state)
{
    static const tri_fit_early_stopping_options early = {.monitor = "val_loss"};
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.devices = 2;
    fit.batch_size = 4;
    fit.nan_at = 3;
    fit.early = &early;
    r = killed_fit_run(&fit);
    assert_int_equal(r.how, 0);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.reason, TRI_STOP_EARLY);
    assert_int_equal(r.result.epochs, 1);
    assert_true(isnan(tri_fit_result_value(&r.result, "val_loss")));
    scratch_end(&s);

    scratch_begin(&s); /* a scale that is too large: that update is left out, and all go on */
    fit.root = s.dir;
    fit.precision = "16-mixed";
    r = killed_fit_run(&fit);
    assert_int_equal(r.how, 0);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.reason, TRI_STOP_MAX_EPOCHS);
    assert_true(isfinite(tri_fit_result_value(&r.result, "val_loss")));
    scratch_end(&s);

    scratch_begin(&s);
    fit.root = s.dir;
    fit.precision = NULL;
    fit.detect_anomaly = true;
    r = killed_fit_run(&fit);
    assert_int_equal(r.how, 0);
    if (r.status != TRI_ERR_NAN || strstr(r.line, "rank 1: ") == NULL)
        fail_msg("%s: %s", tri_status_name(r.status), r.line);
    scratch_end(&s);
}

/* --- what must not be written --------------------------------------------- */

static mode_t added, removed;

static int set_right(const char *path, const struct stat *info, int type, struct FTW *where)
{
    mode_t can_enter = S_ISDIR(info->st_mode) ? 0111 : 0;

    (void)type;
    (void)where;
    return chmod(path, (info->st_mode | added | can_enter) & ~removed);
}

/* Of a folder and all that is in it. */
static void set_rights(const char *path, mode_t add, mode_t remove)
{
    added = add;
    removed = remove;
    assert_int_equal(nftw(path, set_right, 16, FTW_PHYS), 0);
}

static void a_folder_that_must_not_be_written_is_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        killed_fit fit;
        killed_result r;
        scratch s;

        scratch_begin(&s);
        fit = base(s.dir);
        fit.devices = 1 + kind % 2;
        fit.batch_size = 8 / fit.devices;
        if (kind > 1) { /* the run, or where it would be made */
            fit.kill.batch = 5;
            r = killed_fit_run(&fit);
            assert_true(r.how != 0 || r.status != TRI_OK);
            fit.kill.batch = 0;
            fit.ckpt_path = "last";
        }
        set_rights(s.dir, 0666, 0);
        set_rights(kind > 1 ? scratch_path(&s, "run") : s.dir, 0, 0222);
        fit.as_user = true;
        r = killed_fit_run(&fit);
        set_rights(s.dir, 0200, 0);
        assert_int_equal(r.how, 0);
        if (r.status != TRI_ERR_IO || strstr(r.line, s.dir) == NULL ||
            strstr(r.line, "Permission denied") == NULL)
            fail_msg("%d: %s: %s", kind, tri_status_name(r.status), r.line);
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_second_sigterm_ends_it_and_it_goes_on),
    cmocka_unit_test(a_signal_during_a_save_stops_it_like_any_other),
    cmocka_unit_test(killed_at_any_time_it_is_the_same_in_the_end),
    cmocka_unit_test(a_nan_of_one_rank_is_one_of_all),
    cmocka_unit_test(a_folder_that_must_not_be_written_is_named),
};
TEST_MAIN(tests)
