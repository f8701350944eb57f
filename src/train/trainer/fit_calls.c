/*
 * fit.c - tri_fit, tri_validate, tri_test, tri_predict.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/launch.h>

#include "base/option.h"
#include "os/clock.h"
#include "train/plan/trace.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

/* --- in one worker -------------------------------------------------------- */

static tri_status run(tri_trainer *t)
{
    switch (t->call) {
    case TRII_FIT:
        return trii_fit_loop(t);
    case TRII_VALIDATE:
        return trii_fit_evaluate(t, TRII_PHASE_VAL, -1);
    case TRII_TEST:
        return trii_fit_evaluate(t, TRII_PHASE_TEST, -1);
    case TRII_PREDICT:
        break;
    }
    return trii_fit_predict_all(t);
}

static void fill(tri_trainer *t, tri_fit_result *result)
{
    result->reason = t->reason;
    snprintf(result->why, sizeof(result->why), "%s", t->why);
    result->epochs = t->epoch;
    result->steps = t->step;
    result->seconds = trii_fit_seconds(t);
    snprintf(result->run_dir, sizeof(result->run_dir), "%s", t->run_dir);
    trii_book_result(t->book, result);
    trii_policy_result(t, result);
}

/* The peers of a rank that fails get its line; callbacks learn of it; the line stays. */
static void fail(tri_trainer *t, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status ended;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (t->size > 1 && tri_group_status(t->group) == TRI_OK)
        tri_group_abort(t->group, line);
    ended = tri_step_end_status(); /* whatever was recorded is dropped */
    (void)ended;
    trii_err_set("%s", line);
    trii_hooks_exception(t, status);
    ended = trii_policy_end(t, status);
    (void)ended;
    trii_err_set("%s", line);
}

/* Of rank 0, unless each process has a file of its own. */
static bool is_profiled(const tri_trainer *t)
{
    return t->opt->profile != NULL && (t->rank == 0 || strstr(t->opt->profile, "%p") != NULL);
}

static tri_status run_profiled(tri_trainer *t)
{
    tri_status status = trii_trace_ask(t->opt->profile), ended;

    if (status != TRI_OK)
        return status;
    status = run(t);
    ended = trii_trace_ask(NULL);
    (void)ended; /* which cannot fail */
    return status;
}

static tri_status body(tri_trainer *t, tri_fit_result *result)
{
    char line[TRII_ERR_BYTES];
    tri_status status = TRI_OK;

    t->started_ns = trii_now_ns();
    t->deadline_ns = TRII_NO_DEADLINE;
    if (t->opt->max_time_s > 0)
        t->deadline_ns = t->started_ns + (int64_t)(t->opt->max_time_s * (double)TRII_NS_PER_S);
    if (t->call == TRII_FIT)
        status = tri_stop_watch();
    if (status == TRI_OK)
        status = trii_fit_set_up(t);
    if (status == TRI_OK)
        status = is_profiled(t) ? run_profiled(t) : run(t);
    if (status == TRI_OK)
        status = trii_book_take(t); /* a call of tri_trainer_log that no step has told of */
    if (status == TRI_OK && t->call == TRII_FIT)
        status = trii_policy_end(t, TRI_OK);
    if (status == TRI_OK)
        status = trii_book_close(t->book);
    if (status == TRI_OK)
        fill(t, result);
    else
        fail(t, status);
    tri_progress_destroy(t->progress);
    t->progress = NULL;
    if (status == TRI_OK && t->call == TRII_FIT)
        trii_fit_say(t, "tri_fit stopped: %s", t->why);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_fit_take_down(t);
    if (status != TRI_OK)
        trii_err_set("%s", line);
    return status;
}

/* --- the calls ------------------------------------------------------------ */

static tri_status begin(trii_fit_call call, const tri_task *task, const tri_fit_data *data,
                        const tri_fit_options *opt, void *arg, tri_tensor **predictions_out,
                        tri_fit_result *result_out)
{
    static const tri_fit_options defaults;
    tri_trainer t = {.call = call,
                     .task = task,
                     .data = data,
                     .opt = opt != NULL ? opt : &defaults,
                     .arg = arg,
                     .rank = 0,
                     .size = 1,
                     .predictions_out = predictions_out};
    tri_fit_result result = {0};
    tri_status status = trii_fit_check(&t);

    if (status == TRI_OK)
        status = trii_fit_run(&t, body, &result);
    if (status == TRI_OK && result_out != NULL)
        *result_out = result;
    return status;
}

tri_status tri_fit(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt,
                   void *arg, tri_fit_result *result_out)
{
    return begin(TRII_FIT, task, data, opt, arg, NULL, result_out);
}

tri_status tri_validate(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt,
                        void *arg, tri_fit_result *result_out)
{
    return begin(TRII_VALIDATE, task, data, opt, arg, NULL, result_out);
}

tri_status tri_test(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt,
                    void *arg, tri_fit_result *result_out)
{
    return begin(TRII_TEST, task, data, opt, arg, NULL, result_out);
}

tri_status tri_predict(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt,
                       void *arg, tri_tensor **predictions_out)
{
    return begin(TRII_PREDICT, task, data, opt, arg, predictions_out, NULL);
}
