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

#include "trainer/json_double.h"
#include "trainer/log_internal.h"

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

tri_status trii_book_need(const tri_trainer *t, const char *name, const char *option)
{
    const trii_book *book = t->book;
    bool was_evaluated = t->val.dataset == NULL;
    char names[256] = "", why[160] = "";
    size_t used = 0;

    if (trii_book_count(book, name) > 0)
        return TRI_OK;
    for (int i = 0; i < book->n; i++) {
        const log_entry *e = &book->entries[i];

        if (e->n_agreed == 0)
            continue;
        was_evaluated |= e->of_evaluation;
        if (used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used > 0 ? ", " : "", e->name);
    }
    if (!was_evaluated)
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
                     option, name, used > 0 ? names : "none", why);
}
