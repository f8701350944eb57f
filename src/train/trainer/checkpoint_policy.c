/*
 * checkpoint_policy.c - when a fit saves a checkpoint, and which stay.
 *
 * All ranks decide, from steps and from values of which they have the same bits, and save together.
 * Only an interval in seconds has to be
 * agreed on, which is done where values are logged.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "os/clock.h"
#include "os/file.h"
#include "train/trainer/json_double.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"
#include "train/trainer/trainer_record.h"

#define MAX_BEST 64

typedef struct best_one {
    int64_t step;
    double value;
} best_one;

/* Counters of a state: two saves of the same are one, unless the monitor has a new value. */
typedef struct moment {
    int64_t step, epoch, batch;
} moment;

struct trii_policy {
    tri_fit_checkpoint_options opt; /* after defaults */
    char dir[TRI_FIT_PATH_BYTES + 16];
    bool max; /* greater is better */
    moment saved;
    bool pending;            /* due at the last batch of an epoch: its end saves */
    int64_t monitored;       /* values of the monitor that were looked at: trii_book_count */
    int64_t resumed_step;    /* stays; -1 = none */
    int64_t saved_ns;        /* when */
    best_one best[MAX_BEST]; /* the best first */
    int n_best;
    bool best_changed;             /* and RUN/best.json does not say so yet */
    tri_checkpoint_writer *writer; /* if saves are asynchronous, from the first one on */
};

/* --- life ----------------------------------------------------------------- */

static tri_status check(const tri_fit_checkpoint_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_fit_checkpoint_options, opt);

    if (status != TRI_OK)
        return status;
    if (opt->save_top_k < -1 || opt->keep_last < -1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_fit: checkpoint->save_top_k %d, keep_last %d: are counts, or -1 for "
                         "all",
                         opt->save_top_k, opt->keep_last);
    if (opt->save_top_k > MAX_BEST)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "tri_fit: checkpoint->save_top_k %d: is at most %d; keep_last -1 keeps all",
            opt->save_top_k, MAX_BEST);
    if (opt->monitor == NULL && opt->save_top_k > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_fit: checkpoint->save_top_k %d without a monitor: set it, or "
                         "keep_last",
                         opt->save_top_k);
    if (opt->every_n_train_steps < 0 || opt->every_n_epochs < 0 || !(opt->every_s >= 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_fit: checkpoint->every_n_train_steps %" PRId64
                         ", every_n_epochs %" PRId64 ", every_s %g: none is negative",
                         opt->every_n_train_steps, opt->every_n_epochs, opt->every_s);
    return TRI_OK;
}

static void take_defaults(tri_fit_checkpoint_options *opt)
{
    if (opt->every_n_epochs == 0 && opt->every_n_train_steps == 0 && opt->every_s == 0)
        opt->every_n_epochs = 1;
    if (opt->save_top_k == 0 && opt->monitor != NULL)
        opt->save_top_k = 1;
    if (opt->save_top_k == -1) {
        opt->save_top_k = MAX_BEST;
        opt->keep_last = -1;
    }
    if (opt->keep_last == 0)
        opt->keep_last = 3;
    if (opt->keep_last == -1)
        opt->keep_last = INT_MAX;
}

tri_status trii_policy_create(tri_trainer *t)
{
    const tri_fit_checkpoint_options none = {0};
    const tri_fit_checkpoint_options *opt = t->opt->checkpoint != NULL ? t->opt->checkpoint : &none;
    trii_policy *p;
    tri_status status = check(opt);

    if (status != TRI_OK || t->run_dir[0] == '\0' || t->opt->no_checkpoint)
        return status;
    t->policy = p = trii_alloc(1, sizeof(*p), "checkpoint policy");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->opt = *opt;
    take_defaults(&p->opt);
    p->saved = (moment){-1, -1, -1};
    p->resumed_step = -1;
    p->saved_ns = trii_now_ns();
    snprintf(p->dir, sizeof(p->dir), "%s/checkpoints", t->run_dir);
    return trii_fit_mode(opt->mode, "checkpoint->mode", &p->max);
}

void trii_policy_destroy(trii_policy *policy)
{
    if (policy == NULL)
        return;
    tri_checkpoint_writer_destroy(policy->writer);
    trii_free(policy);
}

/* --- the best ------------------------------------------------------------- */

/* NaN is worse than everything. */
static bool is_better(const trii_policy *p, double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(b) && !isnan(a);
    return p->max ? a > b : a < b;
}

/* A later one of the same step replaces it. */
static void forget(trii_policy *p, int64_t step)
{
    int n = 0;

    for (int i = 0; i < p->n_best; i++) {
        if (p->best[i].step != step)
            p->best[n++] = p->best[i];
    }
    p->n_best = n;
}

static void consider(trii_policy *p, int64_t step, double value)
{
    int at;

    forget(p, step);
    if (p->n_best == p->opt.save_top_k) {
        if (!is_better(p, value, p->best[p->n_best - 1].value))
            return;
        p->n_best--;
    }
    at = p->n_best++;
    for (; at > 0 && is_better(p, value, p->best[at - 1].value); at--)
        p->best[at] = p->best[at - 1];
    p->best[at] = (best_one){step, value};
    p->best_changed |= at == 0;
}

/* RUN/best.json, for people and scripts: what is read back is in the checkpoints. */
static tri_status write_best(tri_trainer *t)
{
    trii_policy *p = t->policy;
    char path[TRI_FIT_PATH_BYTES + 16], *text = NULL;
    json_t *root;
    tri_status status;

    if (!p->best_changed || t->rank != 0 || tri_checkpoint_writer_is_busy(p->writer))
        return TRI_OK;
    p->best_changed = false;
    snprintf(path, sizeof(path), "%s/best.json", t->run_dir);
    root = json_object();
    if (trii_json_put(root, "name", json_string(p->opt.monitor)) &&
        trii_json_put(root, "value",
                      isfinite(p->best[0].value) ? json_real(p->best[0].value) : json_null()) &&
        trii_json_put(root, "step", json_integer(p->best[0].step)))
        text = trii_json_text(root);
    json_decref(root);
    status = text != NULL ? trii_file_replace(path, text, strlen(text))
                          : TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: out of memory", path);
    trii_free(text);
    return status;
}

/* --- a save --------------------------------------------------------------- */

/* Averages and the scaler's numbers, beside trainer.json. */
typedef struct extras {
    tri_checkpoint_extra at[3];
    int n;
    tri_state_entry scaler[4];
} extras;

static void list_extras(tri_trainer *t, const char *record, extras *e)
{
    tri_checkpoint_extra averages = trii_average_extra(t);

    e->n = 0;
    if (record != NULL) /* on rank 0 */
        e->at[e->n++] = (tri_checkpoint_extra){.name = "trainer", .text = record};
    if (averages.n > 0)
        e->at[e->n++] = averages;
    if (t->scaler == NULL || t->policy->opt.weights_only)
        return;
    e->at[e->n] = (tri_checkpoint_extra){.name = "grad_scaler", .entries = e->scaler};
    for (int64_t i = 0; i < tri_grad_scaler_state_count(t->scaler) && i < 4; i++)
        e->scaler[e->at[e->n].n++] = tri_grad_scaler_state(t->scaler, i);
    e->n++;
}

/* `alone`: as that of save. */
static tri_status write_checkpoint(tri_trainer *t, const char *record, bool alone)
{
    trii_policy *p = t->policy;
    tri_optimizer *optimizer = p->opt.weights_only ? NULL : t->optimizer;
    int64_t stay[MAX_BEST + 1];
    tri_checkpoint_save_options options = {
        .keep = p->opt.keep_last, .keep_steps = stay, .all_ranks = !alone && t->size > 1};
    tri_checkpoint_info info = {.step = t->step, .epoch = t->epoch};
    tri_status status = TRI_OK;
    extras e;

    for (int i = 0; i < p->n_best; i++)
        stay[options.n_keep_steps++] = p->best[i].step;
    if (p->resumed_step >= 0)
        stay[options.n_keep_steps++] = p->resumed_step;
    list_extras(t, record, &e);
    info.extras = e.at;
    info.n_extras = e.n;
    if (!p->opt.async)
        return tri_checkpoint_save(p->dir, t->model, optimizer, &info, &options);
    if (p->writer == NULL)
        status = tri_checkpoint_writer_create(p->dir, &p->writer);
    if (status != TRI_OK)
        return status;
    return tri_checkpoint_writer_save(p->writer, t->model, optimizer, &info, &options);
}

/* Its part of trainer.json. */
static bool put(const trii_policy *p, json_t *record)
{
    json_t *list = json_array();
    bool ok = list != NULL;

    for (int i = 0; i < p->n_best && ok; i++) {
        json_t *one = json_object();

        ok = trii_json_put(one, "step", json_integer(p->best[i].step)) &&
             trii_json_put(one, "value", trii_json_double(p->best[i].value));
        ok = json_array_append(list, one) == 0 && ok;
        json_decref(one);
    }
    ok = ok && json_object_set(record, "best", list) == 0 &&
         trii_json_put(record, "monitored", json_integer(p->monitored));
    json_decref(list);
    return ok && (p->opt.monitor == NULL ||
                  (trii_json_put(record, "monitor", json_string(p->opt.monitor)) &&
                   trii_json_put(record, "max", json_boolean(p->max))));
}

/* `alone`: the others have failed. */
static tri_status save(tri_trainer *t, bool alone)
{
    trii_policy *p = t->policy;
    const char *monitor = p->opt.monitor;
    int64_t count = monitor != NULL ? trii_book_count(t->book, monitor) : 0;
    char *record = NULL;
    json_t *own;
    tri_status status;

    if (p->saved.step == t->step && p->saved.epoch == t->epoch && p->saved.batch == t->batch &&
        p->monitored == count)
        return TRI_OK;
    p->saved = (moment){t->step, t->epoch, t->batch};
    p->pending = false;
    if (count != p->monitored)
        consider(p, t->step, trii_book_value(t->book, monitor));
    p->monitored = count;
    own = json_object();
    status = put(p, own) ? trii_record_make(t, alone, own, &record)
                         : TRII_FAIL(TRI_ERR_NO_MEMORY, "trainer.json: out of memory");
    json_decref(own);
    if (status == TRI_OK) {
        trii_fit_screen_pause(t, "saving");
        status = write_checkpoint(t, record, alone);
        trii_fit_screen_go_on(t);
    }
    trii_free(record);
    p->saved_ns = trii_now_ns();
    return status == TRI_OK ? write_best(t) : status;
}

/* --- when ----------------------------------------------------------------- */

/* So many seconds have passed on rank 0. */
static tri_status is_time(tri_trainer *t, bool *is_out)
{
    const trii_policy *p = t->policy;
    double passed = 0;
    tri_status status;

    *is_out = false;
    if (p->opt.every_s == 0 || t->step % t->set.log_every != 0)
        return TRI_OK;
    if (t->rank == 0)
        passed = (double)(trii_now_ns() - p->saved_ns) / (double)TRII_NS_PER_S >= p->opt.every_s;
    status = trii_fit_max(t, &passed, 1);
    *is_out = passed != 0;
    return status;
}

tri_status trii_policy_step(tri_trainer *t)
{
    trii_policy *p = t->policy;
    bool due = false;
    tri_status status;

    if (p == NULL)
        return TRI_OK;
    status = is_time(t, &due);
    if (p->opt.every_n_train_steps > 0 && t->step % p->opt.every_n_train_steps == 0)
        due = true;
    /* At the last batch of an epoch what follows belongs to the same state. */
    p->pending |= due;
    if (status != TRI_OK || !due || t->batch == t->train.n_batches)
        return status;
    return save(t, false);
}

tri_status trii_policy_epoch(tri_trainer *t)
{
    trii_policy *p = t->policy;
    tri_status status = TRI_OK;

    if (p == NULL)
        return TRI_OK;
    if (p->opt.monitor != NULL)
        status = trii_book_need(t, p->opt.monitor, "checkpoint->monitor");
    if (p->opt.every_n_epochs > 0 && t->epoch % p->opt.every_n_epochs == 0)
        p->pending = true;
    return status == TRI_OK && p->pending ? save(t, false) : status;
}

/* A state in the middle of an update is no checkpoint. */
static tri_status save_failed(tri_trainer *t)
{
    if (!t->policy->opt.on_exception || t->rank != 0 || t->n_in_group != 0 || t->book == NULL)
        return TRI_OK;
    return save(t, true);
}

tri_status trii_policy_end(tri_trainer *t, tri_status status)
{
    trii_policy *p = t->policy;
    tri_status ended;

    if (p == NULL)
        return TRI_OK;
    ended = status == TRI_OK ? save(t, false) : save_failed(t);
    if (p->writer != NULL) {
        tri_status waited = tri_checkpoint_writer_wait(p->writer);

        ended = ended == TRI_OK ? waited : ended;
    }
    return ended == TRI_OK ? write_best(t) : ended;
}

/* --- there and back ------------------------------------------------------- */

/* Best values of another monitor, or of another mode, are no values of this one. */
void trii_policy_take(tri_trainer *t, const json_t *record, bool own)
{
    const json_t *list = json_object_get(record, "best");
    const char *monitor = json_string_value(json_object_get(record, "monitor"));
    const json_t *max = json_object_get(record, "max");
    trii_policy *p = t->policy;

    if (p == NULL)
        return;
    if (own) {
        p->resumed_step = t->step;
        p->saved = (moment){t->step, t->epoch, t->batch};
    }
    if (p->opt.monitor != NULL) /* what was logged before was not logged at a save to come */
        p->monitored = trii_book_count(t->book, p->opt.monitor);
    if (!own || p->opt.monitor == NULL || monitor == NULL || strcmp(monitor, p->opt.monitor) != 0 ||
        (max != NULL && json_is_true(max) != p->max))
        return;
    p->monitored = json_integer_value(json_object_get(record, "monitored"));
    for (size_t i = 0; i < json_array_size(list) && p->n_best < p->opt.save_top_k; i++) {
        const json_t *one = json_array_get(list, i);

        p->best[p->n_best++] = (best_one){json_integer_value(json_object_get(one, "step")),
                                          trii_json_double_value(json_object_get(one, "value"))};
    }
}

int64_t trii_policy_best_step(const json_t *record)
{
    const json_t *one = json_array_get(json_object_get(record, "best"), 0);

    return one != NULL ? json_integer_value(json_object_get(one, "step")) : -1;
}

void trii_policy_result(const tri_trainer *t, tri_fit_result *result)
{
    const trii_policy *p = t->policy;
    int64_t step;

    result->best_value = (double)NAN;
    if (p == NULL)
        return;
    step = p->n_best > 0 ? p->best[0].step : p->saved.step;
    if (p->n_best > 0)
        result->best_value = p->best[0].value;
    if (step >= 0 && snprintf(result->best_path, sizeof(result->best_path), "%s/step-%012" PRId64,
                              p->dir, step) >= (int)sizeof(result->best_path))
        result->best_path[0] = '\0';
}
