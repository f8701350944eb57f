/*
 * early_stopping.c - ends a fit when a value does not get better any more: the rules of Lightning's
 * EarlyStopping, in its order. Every rank decides by itself, from a value of which all have the
 * same bits.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "train/trainer/json_double.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

struct trii_early {
    bool max; /* greater is better */
    int64_t patience;
    double best;
    int64_t wait; /* looks since then */
    int64_t seen; /* values that were looked at: trii_book_count */
};

static tri_status check(const tri_fit_early_stopping_options *opt, int64_t *patience_out)
{
    tri_status status = TRII_CHECK_RESERVED(tri_fit_early_stopping_options, opt);

    if (status == TRI_OK)
        status = trii_need_text(opt->monitor, "tri_fit", "early_stopping->monitor");
    if (status == TRI_OK)
        status = trii_fit_mode(opt->mode, "early_stopping->mode", &(bool){false});
    if (status == TRI_OK)
        status = trii_option_whole(opt->patience, "early_stopping->patience", 3, patience_out);
    if (status == TRI_OK && *patience_out < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_fit: early_stopping->patience %" PRId64 ": is at least 0",
                           *patience_out);
    if (status == TRI_OK && !(opt->min_delta >= 0 && isfinite(opt->min_delta)))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_fit: early_stopping->min_delta %g: is a number of at least 0",
                           opt->min_delta);
    return status;
}

tri_status trii_early_create(tri_trainer *t)
{
    const tri_fit_early_stopping_options *opt = t->opt->early_stopping;
    int64_t patience = 0;
    tri_status status;

    if (opt == NULL)
        return TRI_OK;
    status = check(opt, &patience);
    if (status != TRI_OK)
        return status;
    t->early = trii_alloc(1, sizeof(*t->early), "early stopping");
    if (t->early == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_fit_mode(opt->mode, "early_stopping->mode", &t->early->max);
    t->early->patience = patience;
    t->early->best = t->early->max ? -(double)INFINITY : (double)INFINITY;
    return status;
}

void trii_early_destroy(tri_trainer *t)
{
    trii_free(t->early);
    t->early = NULL;
}

static bool is_better(const trii_early *e, double a, double b)
{
    return e->max ? a > b : a < b;
}

/* Whether it is to end, and why. */
static bool decide(tri_trainer *t, double value, char *why, size_t bytes)
{
    const tri_fit_early_stopping_options *opt = t->opt->early_stopping;
    const char *name = opt->monitor;
    trii_early *e = t->early;
    double stop = trii_option(opt->stopping_threshold, 0);
    double diverged = trii_option(opt->divergence_threshold, 0);
    double least = e->max ? value - opt->min_delta : value + opt->min_delta;

    if (!opt->allow_not_finite && !isfinite(value))
        snprintf(why, bytes, "%.40s is %g, the best was %g", name, value, e->best);
    else if (opt->stopping_threshold.given != NULL && is_better(e, value, stop))
        snprintf(why, bytes, "%.40s is %g, better than stopping_threshold %g", name, value, stop);
    else if (opt->divergence_threshold.given != NULL && is_better(e, diverged, value))
        snprintf(why, bytes, "%.40s is %g, worse than divergence_threshold %g", name, value,
                 diverged);
    else if (is_better(e, least, e->best)) {
        e->best = value;
        e->wait = 0;
        return false;
    } else if (++e->wait < e->patience) {
        return false;
    } else {
        snprintf(why, bytes, "%.40s did not get better than %.6g in %" PRId64 " looks", name,
                 e->best, e->wait);
    }
    return true;
}

tri_status trii_early_look(tri_trainer *t, bool after_epoch)
{
    const tri_fit_early_stopping_options *opt = t->opt->early_stopping;
    trii_early *e = t->early;
    char why[128];
    int64_t count;

    if (e == NULL)
        return TRI_OK;
    if (after_epoch && !opt->not_strict) {
        tri_status status = trii_book_need(t, opt->monitor, "early_stopping->monitor");

        if (status != TRI_OK)
            return status;
    }
    count = trii_book_count(t->book, opt->monitor);
    if (count == e->seen)
        return TRI_OK;
    e->seen = count;
    if (decide(t, trii_book_value(t->book, opt->monitor), why, sizeof(why)) &&
        t->reason == TRI_STOP_NONE) {
        if (t->epoch + after_epoch < t->opt->min_epochs || t->step < t->opt->min_steps)
            trii_fit_say(t, "%s: min_epochs and min_steps are still to be reached", why);
        else
            trii_fit_end_with(t, TRI_STOP_EARLY, "%s", why);
    }
    return TRI_OK;
}

bool trii_early_put(const tri_trainer *t, json_t *record)
{
    json_t *object;
    bool ok;

    if (t->early == NULL)
        return true;
    object = json_object();
    ok = trii_json_put(object, "monitor", json_string(t->opt->early_stopping->monitor)) &&
         trii_json_put(object, "max", json_boolean(t->early->max)) &&
         trii_json_put(object, "best", trii_json_double(t->early->best)) &&
         trii_json_put(object, "wait", json_integer(t->early->wait)) &&
         trii_json_put(object, "seen", json_integer(t->early->seen));
    ok = ok && json_object_set(record, "early", object) == 0;
    json_decref(object);
    return ok;
}

void trii_early_take(tri_trainer *t, const json_t *record)
{
    const json_t *object = json_object_get(record, "early");
    const char *monitor = json_string_value(json_object_get(object, "monitor"));
    bool max = json_is_true(json_object_get(object, "max"));

    if (t->early == NULL || object == NULL)
        return;
    if (monitor != NULL &&
        (strcmp(monitor, t->opt->early_stopping->monitor) != 0 || max != t->early->max)) {
        trii_fit_say(t,
                     "early_stopping monitors %s (%s), the run monitored %s (%s): its best value "
                     "and its patience begin anew",
                     t->opt->early_stopping->monitor, t->early->max ? "max" : "min", monitor,
                     max ? "max" : "min");
        t->early->seen = trii_book_count(t->book, t->opt->early_stopping->monitor);
        return;
    }
    t->early->best = trii_json_double_value(json_object_get(object, "best"));
    t->early->wait = json_integer_value(json_object_get(object, "wait"));
    t->early->seen = json_integer_value(json_object_get(object, "seen"));
}
