/*
 * log_agree.c - values over all ranks.
 *
 * The ranks add up all sums in one call of fixed size, which begins with a hash of the names: ranks
 * that log different names see it there, and only then exchange the names themselves. So do ranks
 * that have seen no batch, which have no names.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "train/trainer/log_internal.h"

/* What all ranks send, to be added up: parts of the hash and their squares, whether there are
 * names, the number of local values; a sum and a weight for each name. */
#define PARTS 2
#define PART_BITS 22
#define WITH_NAMES (2 * PARTS)
#define LOCAL (WITH_NAMES + 1)
#define HEAD (LOCAL + 1)
#define SUMS (HEAD + 2 * TRI_FIT_MAX_VALUES)

static void list_touched(trii_book *book, log_kind kind, log_list *list_out)
{
    list_out->n = 0;
    for (int i = 0; i < book->n; i++) {
        log_entry *e = &book->entries[i];

        if (e->touched && !e->local && e->of_epoch == kind.of_epoch &&
            e->of_evaluation == kind.of_evaluation)
            log_list_add(list_out, e);
    }
}

/* "3 NAME\n" for each, 3 being the reduction. */
#define LINE_BYTES (TRI_FIT_NAME_BYTES + 4)
static void list_text(const log_list *list, char *text)
{
    text[0] = '\0';
    for (int i = 0; i < list->n; i++)
        text += snprintf(text, LINE_BYTES, "%d %s\n", (int)list->at[i]->reduce, list->at[i]->name);
}

static void put_hash(const log_list *list, char *text, double sums[HEAD])
{
    uint64_t hash;

    list_text(list, text);
    hash = trii_hash_text(TRII_HASH_SEED, text);
    for (int i = 0; i < PARTS && list->n > 0; i++, hash >>= PART_BITS) {
        double part = (double)(hash & ((UINT64_C(1) << PART_BITS) - 1));

        sums[2 * i] = part;
        sums[2 * i + 1] = part * part;
    }
    sums[WITH_NAMES] = list->n > 0;
}

/* n times the sum of squares is the square of the sum for equal numbers only. Every rank decides by
 * the same sums, so that all exchange names or none does. The sums are exact for 512 ranks; where
 * they are not, the names themselves tell. */
static bool is_same_everywhere(const tri_trainer *t, const double sums[HEAD])
{
    bool same = sums[WITH_NAMES] == t->size;

    for (int i = 0; i < PARTS; i++)
        same &= sums[WITH_NAMES] * sums[2 * i + 1] == sums[2 * i] * sums[2 * i];
    return same;
}

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);

    for (; *text != '\0'; text = strchr(text, '\n') + 1)
        if (strncmp(text, line, n) == 0)
            return true;
    return false;
}

/* The first line of a that b lacks, or NULL. */
static const char *line_missing(const char *a, const char *b, char line[LINE_BYTES])
{
    for (; *a != '\0'; a = strchr(a, '\n') + 1) {
        snprintf(line, LINE_BYTES, "%.*s", (int)(strchr(a, '\n') - a + 1), a);
        if (!has_line(b, line))
            return a;
    }
    return NULL;
}

static tri_status refuse(int rank, int other, char line[LINE_BYTES])
{
    line[strlen(line) - 1] = '\0';
    return TRII_FAIL(TRI_ERR_MISMATCH,
                     "tri_trainer_log: rank %d logs \"%s\" and rank %d does not (or with another "
                     "reduce): all ranks log the same names, as often as they like",
                     rank, line + 2, other);
}

/* All texts are here, one after the other: the first that is not empty counts. */
static tri_status compare_names(tri_trainer *t, const char *texts, const size_t *bytes,
                                const char **names_out)
{
    const char *first = NULL;
    char line[LINE_BYTES];
    int of = 0;

    for (int r = 0; r < t->size; texts += bytes[r++]) {
        if (texts[0] == '\0')
            continue;
        if (first == NULL) {
            first = texts;
            of = r;
        }
        if (line_missing(texts, first, line) != NULL)
            return refuse(r, of, line);
        if (line_missing(first, texts, line) != NULL)
            return refuse(of, r, line);
    }
    *names_out = first;
    return TRI_OK;
}

/* This rank has seen no batch: it learns the names, in their order. */
static tri_status adopt(trii_book *book, const char *names, log_kind kind, log_list *list)
{
    for (; *names != '\0'; names = strchr(names, '\n') + 1) {
        char name[LINE_BYTES];
        log_entry *e;

        snprintf(name, sizeof(name), "%.*s", (int)(strchr(names, '\n') - names - 2), names + 2);
        e = log_entry_of(book, name, kind, (log_reduce)(names[0] - '0'));
        if (e == NULL)
            return TRII_FAIL(book->status, "%s", book->line);
        list->at[list->n++] = e;
    }
    return TRI_OK;
}

/* Some rank has other names, or none. */
static tri_status exchange_names(tri_trainer *t, const char *text, log_kind kind, log_list *list)
{
    size_t *bytes = trii_alloc((size_t)t->size, sizeof(*bytes), "names");
    const char *names = NULL;
    void *texts = NULL;
    tri_status status = bytes != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = tri_all_gather_object(t->group, text, strlen(text) + 1, &texts, bytes);
    if (status == TRI_OK)
        status = compare_names(t, texts, bytes, &names);
    if (status == TRI_OK && list->n == 0 && names != NULL)
        status = adopt(t->book, names, kind, list);
    tri_object_free(texts);
    trii_free(bytes);
    return status;
}

static bool is_extreme(const log_entry *e)
{
    return e->reduce >= LOG_MIN;
}

/* Least and greatest values, as greatest ones. */
static tri_status agree_extremes(tri_trainer *t, const log_list *list, double *values)
{
    double greatest[TRI_FIT_MAX_VALUES];
    bool any = false;
    tri_status status;

    for (int i = 0; i < list->n; i++) {
        const log_entry *e = list->at[i];

        greatest[i] = e->weight > 0 ? (e->reduce == LOG_MIN ? -e->sum : e->sum) : -(double)INFINITY;
        any |= is_extreme(e);
    }
    if (!any)
        return TRI_OK;
    status = trii_fit_max(t, greatest, (size_t)list->n);
    for (int i = 0; i < list->n; i++)
        if (is_extreme(list->at[i]))
            values[i] = list->at[i]->reduce == LOG_MIN ? -greatest[i] : greatest[i];
    return status;
}

/* Values of the listed names over all ranks; the list of a rank without any is filled.
 * *n_local_inout: local ones of this rank, then of all. */
static tri_status agree(tri_trainer *t, log_kind kind, log_list *list, double *values,
                        double *n_local_inout)
{
    double sums[SUMS] = {0};
    char text[TRI_FIT_MAX_VALUES * LINE_BYTES] = "";
    tri_status status = TRI_OK;

    for (int i = 0; i < list->n && status == TRI_OK; i++) {
        log_entry *e = list->at[i];

        status = log_take_meter(e);
        sums[HEAD + 2 * i] = is_extreme(e) ? 0 : e->sum;
        sums[HEAD + 1 + 2 * i] = e->weight;
    }
    if (status != TRI_OK)
        return status;
    put_hash(list, text, sums);
    sums[LOCAL] = *n_local_inout;
    status = trii_fit_sum(t, sums, SUMS);
    *n_local_inout = sums[LOCAL];
    if (status != TRI_OK || sums[WITH_NAMES] == 0)
        return status;
    if (!is_same_everywhere(t, sums))
        status = exchange_names(t, text, kind, list);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < list->n; i++)
        values[i] = list->at[i]->reduce == LOG_SUM ? sums[HEAD + 2 * i]
                                                   : sums[HEAD + 2 * i] / sums[HEAD + 1 + 2 * i];
    return agree_extremes(t, list, values);
}

tri_status log_agree(tri_trainer *t, log_kind kind, log_list *list_out)
{
    double values[TRI_FIT_MAX_VALUES] = {0}, n_local = log_count_local(t->book, kind);
    tri_status status;

    list_touched(t->book, kind, list_out);
    status = agree(t, kind, list_out, values, &n_local);
    for (int i = 0; i < list_out->n; i++) {
        log_entry *e = list_out->at[i];

        e->touched = false;
        e->sum = e->weight = 0;
        if (status == TRI_OK)
            e->value = values[i];
    }
    return status == TRI_OK && n_local > 0 ? log_gather_local(t, kind, list_out) : status;
}
