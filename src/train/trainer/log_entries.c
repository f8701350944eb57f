/*
 * log_entries.c - names of logged values, and the entries of the log book that they have.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "train/trainer/log_internal.h"

static bool is_good_name(const char *name)
{
    static const char *const taken[] = {"step", "epoch", "lr", "samples_per_s"};
    size_t n = strlen(name), character;

    for (const char *at = name; *at != '\0'; at += character) {
        character = trii_utf8_character(at);
        if (character == 0 || (unsigned char)*at < ' ' || *at == '"' || *at == '\\' || *at == 0x7f)
            return false;
    }
    for (size_t i = 0; i < TRII_COUNT_OF(taken); i++)
        if (strcmp(name, taken[i]) == 0)
            return false;
    return n > 0 && n < TRI_FIT_NAME_BYTES;
}

tri_status log_refuse_name(const char *name)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "tri_trainer_log: the name \"%.80s\": 1 to %d bytes of UTF-8 without quotes, "
                     "backslashes and control characters, and none of step, epoch, lr and "
                     "samples_per_s, which every record has",
                     name, TRI_FIT_NAME_BYTES - 1);
}

void log_fail(trii_book *book, tri_status status)
{
    if (book->status != TRI_OK)
        return;
    book->status = status;
    snprintf(book->line, sizeof(book->line), "%s", tri_last_error());
}

static log_entry *find(const trii_book *book, const char *name, log_kind kind)
{
    for (int i = 0; i < book->n; i++) {
        log_entry *e = &book->entries[i];

        if (e->of_epoch == kind.of_epoch && e->of_evaluation == kind.of_evaluation &&
            strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

log_entry *log_entry_of(trii_book *book, const char *name, log_kind kind, log_reduce reduce)
{
    log_entry *e = find(book, name, kind);

    if (e != NULL)
        return e;
    if (!is_good_name(name)) {
        log_fail(book, log_refuse_name(name));
        return NULL;
    }
    if (book->n == TRI_FIT_MAX_VALUES) {
        log_fail(book, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "tri_trainer_log: \"%s\" is one name too many: there may be %d",
                                 name, TRI_FIT_MAX_VALUES));
        return NULL;
    }
    e = &book->entries[book->n++];
    *e = (log_entry){.of_epoch = kind.of_epoch,
                     .of_evaluation = kind.of_evaluation,
                     .reduce = reduce,
                     .value = (double)NAN};
    snprintf(e->name, sizeof(e->name), "%s", name);
    return e;
}

tri_status log_take_meter(log_entry *e)
{
    double sum;

    if (e->meter == NULL)
        return TRI_OK;
    sum = tri_meter_sum(e->meter);
    if (isnan(sum) && tri_meter_weight(e->meter) == 0)
        return TRII_FAIL(TRI_ERR_STATE, "tri_trainer_log of \"%s\": its sum is lost", e->name);
    e->sum += sum;
    e->weight += (double)tri_meter_weight(e->meter);
    return tri_meter_reset(e->meter);
}

void log_list_add(log_list *list, log_entry *e)
{
    int at = list->n++;

    for (; at > 0 && strcmp(list->at[at - 1]->name, e->name) > 0; at--)
        list->at[at] = list->at[at - 1];
    list->at[at] = e;
}
