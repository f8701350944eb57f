/*
 * log_state.c - what a checkpoint has of the log book: the values that ranks have agreed on,
 * and each rank's sums of an epoch that is under way, so that its means are those of a run that
 * never stopped. Sums that lie in steps (tri_meter) are taken out of them when a checkpoint is
 * saved; a run that goes on and one that is resumed add to the same number.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainer/json_double.h"
#include "train/trainer/log_internal.h"

/* "Name", and which of the entries of this name. */
static json_t *describe(const log_entry *e)
{
    json_t *object = json_object();

    if (trii_json_put(object, "name", json_string(e->name)) &&
        trii_json_put(object, "epoch", json_boolean(e->of_epoch)) &&
        trii_json_put(object, "evaluation", json_boolean(e->of_evaluation)) &&
        trii_json_put(object, "local", json_boolean(e->local)) &&
        trii_json_put(object, "reduce", json_integer(e->reduce)))
        return object;
    json_decref(object);
    return NULL;
}

static log_entry *entry_described(trii_book *book, const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    json_int_t reduce = json_integer_value(json_object_get(object, "reduce"));
    log_kind kind = {json_is_true(json_object_get(object, "epoch")),
                     json_is_true(json_object_get(object, "evaluation"))};
    log_entry *e = NULL;

    if (name != NULL && reduce >= LOG_MEAN && reduce <= LOG_MAX)
        e = log_entry_of(book, name, kind, (log_reduce)reduce);
    if (e != NULL)
        e->local = json_is_true(json_object_get(object, "local"));
    return e;
}

json_t *trii_book_values(const trii_book *book)
{
    json_t *list = json_array();
    bool ok = list != NULL;

    for (int i = 0; i < book->n && ok; i++) {
        const log_entry *e = &book->entries[i];
        json_t *object;

        if (e->n_agreed == 0)
            continue;
        object = describe(e);
        ok = trii_json_put(object, "value", trii_json_double(e->value)) &&
             trii_json_put(object, "times", json_integer(e->n_agreed)) &&
             trii_json_put(object, "shown", json_boolean(e->shown));
        ok = json_array_append(list, object) == 0 && ok;
        json_decref(object);
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

json_t *trii_book_sums(trii_book *book)
{
    json_t *list = json_array();
    bool ok = list != NULL;

    for (int i = 0; i < book->n && ok; i++) {
        log_entry *e = &book->entries[i];
        json_t *object;

        if (!e->touched || !e->of_epoch || e->of_evaluation)
            continue;
        ok = log_take_meter(e) == TRI_OK;
        object = describe(e);
        ok = ok && trii_json_put(object, "sum", trii_json_double(e->sum)) &&
             trii_json_put(object, "weight", trii_json_double(e->weight));
        ok = json_array_append(list, object) == 0 && ok;
        json_decref(object);
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

tri_status trii_book_take_values(trii_book *book, const json_t *values)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *object = json_array_get(values, i);
        log_entry *e = entry_described(book, object);

        if (book->status != TRI_OK)
            return TRII_FAIL(book->status, "%s", book->line);
        if (e == NULL)
            continue;
        e->value = trii_json_double_value(json_object_get(object, "value"));
        e->n_agreed = json_integer_value(json_object_get(object, "times"));
        e->shown = json_is_true(json_object_get(object, "shown"));
    }
    return TRI_OK;
}

tri_status trii_book_add_sums(trii_book *book, const json_t *sums, bool own)
{
    for (size_t i = 0; i < json_array_size(sums); i++) {
        const json_t *object = json_array_get(sums, i);
        bool local = json_is_true(json_object_get(object, "local"));
        log_entry *e = own || !local ? entry_described(book, object) : NULL;
        double sum = trii_json_double_value(json_object_get(object, "sum"));

        if (book->status != TRI_OK)
            return TRII_FAIL(book->status, "%s", book->line);
        if (e == NULL)
            continue;
        if (!e->touched || e->reduce <= LOG_SUM)
            e->sum = e->touched ? e->sum + sum : sum;
        else if (e->reduce == LOG_MIN ? sum < e->sum : sum > e->sum)
            e->sum = sum;
        e->touched = true;
        e->weight += trii_json_double_value(json_object_get(object, "weight"));
    }
    return TRI_OK;
}

/* Names of values, of those that were agreed on or of all; whether there are any of evaluation. */
static bool list_names(const trii_book *book, bool agreed, char *text, size_t bytes)
{
    bool any = false;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < book->n; i++) {
        const log_entry *e = &book->entries[i];

        if (agreed && e->n_agreed == 0)
            continue;
        any |= e->of_evaluation;
        if (used < bytes)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", e->name);
    }
    return any;
}

tri_status trii_book_need(const tri_trainer *t, const char *name, const char *option)
{
    char names[256], why[160] = "";
    bool was_evaluated = list_names(t->book, true, names, sizeof(names));

    if (trii_book_count(t->book, name) > 0 || !(was_evaluated || t->val.dataset == NULL))
        return TRI_OK;
    if (t->val.dataset == NULL && strncmp(name, "val", 3) == 0)
        snprintf(why, sizeof(why), " (the data have no val, so nothing is validated)");
    else if (t->step < t->set.log_every)
        snprintf(why, sizeof(why),
                 " (there were %" PRId64 " updates, and values of updates are logged every %" PRId64
                 ": log_every_n_steps, or log with on_epoch)",
                 t->step, t->set.log_every);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "tri_fit: %s \"%.64s\": no value of this name was logged; these were: %s%s",
                     option, name, names[0] != '\0' ? names : "none", why);
}

static void doubt(tri_trainer *t, const char *name, const char *option)
{
    char names[256];
    bool was_evaluated = list_names(t->book, false, names, sizeof(names));

    for (int i = 0; i < t->book->n; i++)
        if (strcmp(t->book->entries[i].name, name) == 0)
            return;
    if (was_evaluated || t->val.dataset == NULL)
        trii_fit_say(t,
                     "%s \"%.64s\" has not been logged, but %s: if it is not by the end of the "
                     "epoch, the fit fails there",
                     option, name, names);
}

void trii_book_doubt(tri_trainer *t)
{
    const tri_fit_early_stopping_options *early = t->opt->early_stopping;
    const tri_fit_checkpoint_options *checkpoint = t->opt->checkpoint;

    if (t->early != NULL && !early->not_strict)
        doubt(t, early->monitor, "early_stopping->monitor");
    if (t->policy != NULL && checkpoint != NULL && checkpoint->monitor != NULL)
        doubt(t, checkpoint->monitor, "checkpoint->monitor");
}
