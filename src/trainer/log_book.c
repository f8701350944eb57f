/*
 * log_book.c - the log book: what steps log, from one batch to a value that all ranks agree on.
 *
 * A value of an epoch is summed inside the steps (tri_meter) or, where it is the least or greatest,
 * here; a value of an update is fetched when its record is due. Then the ranks add up all sums in
 * one call of fixed size, which begins with a hash of the names: ranks that log different names see
 * it there, and only then exchange the names themselves. So do ranks that have seen no batch, which
 * have no names.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/option.h"
#include "os/clock.h"
#include "trainer/log_book.h"

typedef enum log_reduce { LOG_MEAN, LOG_SUM, LOG_MIN, LOG_MAX } log_reduce;

/* A name and what it belongs to: a record of updates or of epochs, of training or evaluation. */
typedef struct log_entry {
    char name[TRI_FIT_NAME_BYTES];
    bool of_epoch, of_evaluation;
    log_reduce reduce;
    bool shown;
    bool touched;        /* logged since its sums began */
    double sum, weight;  /* of this rank; of LOG_MIN and LOG_MAX sum is that one */
    tri_meter *meter;    /* of an epoch's sums of tensors; NULL = none yet */
    tri_tensor *pending; /* of the step that runs: is fetched when it has run */
    double pending_weight, pending_scale;
    double value; /* agreed */
    int64_t n_agreed;
} log_entry;

struct trii_book {
    tri_metrics *metrics; /* rank 0's; NULL = no file */
    log_entry *entries;   /* [TRI_FIT_MAX_VALUES] */
    int n;
    bool due;
    bool any_pending;
    tri_status status; /* of the first call that failed, */
    char line[TRII_ERR_BYTES];
    int64_t rate_ns, rate_batches, evaluating_ns; /* for samples_per_s */
};

/* What all ranks send: hash, ranks with names, a sum and a weight for each name. */
#define SUMS (2 + 2 * TRI_FIT_MAX_VALUES)

/* --- life ----------------------------------------------------------------- */

tri_status trii_book_create(tri_trainer *t)
{
    trii_book *book = trii_alloc(1, sizeof(*book), "log book");
    char path[TRI_FIT_PATH_BYTES + 16];

    if (book == NULL)
        return TRI_ERR_NO_MEMORY;
    t->book = book;
    book->rate_ns = trii_now_ns();
    book->rate_batches = t->batches_ever;
    book->entries = trii_alloc(TRI_FIT_MAX_VALUES, sizeof(*book->entries), "log book");
    if (book->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    if (t->rank != 0 || t->run_dir[0] == '\0' || t->call != TRII_FIT)
        return TRI_OK;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", t->run_dir);
    return tri_metrics_open(path, t->resumed ? t->step : -1, &book->metrics);
}

void trii_book_destroy(trii_book *book)
{
    if (book == NULL)
        return;
    for (int i = 0; i < book->n; i++)
        tri_meter_destroy(book->entries[i].meter);
    tri_metrics_close(book->metrics);
    trii_free(book->entries);
    trii_free(book);
}

/* --- names ---------------------------------------------------------------- */

/* What the task's name is called in this phase. */
static void name_in_phase(const tri_trainer *t, const char *name, const char *suffix,
                          char out[2 * TRI_FIT_NAME_BYTES])
{
    const char *prefix = "";
    bool test = t->phase == TRII_PHASE_TEST;

    if (t->phase != TRII_PHASE_TRAIN && !(test && t->task->test_step != NULL)) {
        if (t->task->validation_step == NULL)
            prefix = test ? "test_" : "val_";
        else if (test && strncmp(name, "val_", 4) == 0) {
            prefix = "test_";
            name += 4;
        }
    }
    snprintf(out, 2 * TRI_FIT_NAME_BYTES, "%s%.64s%s", prefix, name, suffix);
}

static bool is_good_name(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == '"' || name[i] == '\\' || name[i] == 0x7f)
            return false;
    return n > 0 && n < TRI_FIT_NAME_BYTES && strcmp(name, "step") != 0 &&
           strcmp(name, "epoch") != 0;
}

static void fail(trii_book *book, tri_status status)
{
    if (book->status != TRI_OK)
        return;
    book->status = status;
    snprintf(book->line, sizeof(book->line), "%s", tri_last_error());
}

static log_entry *find(const trii_book *book, const char *name, bool of_epoch, bool of_evaluation)
{
    for (int i = 0; i < book->n; i++) {
        log_entry *e = &book->entries[i];

        if (e->of_epoch == of_epoch && e->of_evaluation == of_evaluation &&
            strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

/* The entry of this name, a new one if need be; NULL: the book has failed. */
static log_entry *entry_of(trii_book *book, const char *name, bool of_epoch, bool of_evaluation,
                           log_reduce reduce)
{
    log_entry *e = find(book, name, of_epoch, of_evaluation);

    if (e != NULL)
        return e;
    if (!is_good_name(name)) {
        fail(book, TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "tri_trainer_log: the name \"%.80s\": 1 to %d bytes without quotes, "
                             "backslashes and control characters, and neither step nor epoch",
                             name, TRI_FIT_NAME_BYTES - 1));
        return NULL;
    }
    if (book->n == TRI_FIT_MAX_VALUES) {
        fail(book, TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "tri_trainer_log: \"%s\" is one name too many: there may be %d", name,
                             TRI_FIT_MAX_VALUES));
        return NULL;
    }
    e = &book->entries[book->n++];
    *e = (log_entry){.of_epoch = of_epoch,
                     .of_evaluation = of_evaluation,
                     .reduce = reduce,
                     .value = (double)NAN};
    snprintf(e->name, sizeof(e->name), "%s", name);
    return e;
}

/* --- a call of the step --------------------------------------------------- */

static bool parse_reduce(const char *name, log_reduce *reduce_out)
{
    static const char *const names[] = {"mean", "sum", "min", "max"};

    *reduce_out = LOG_MEAN;
    for (int i = 0; i < 4 && name != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            *reduce_out = (log_reduce)i;
            return true;
        }
    }
    return name == NULL;
}

static void add_number(log_entry *e, double value, double scale, double weight)
{
    bool first = !e->touched;

    e->touched = true;
    if (e->reduce == LOG_MIN)
        e->sum = first || !(value >= e->sum) ? value : e->sum;
    else if (e->reduce == LOG_MAX)
        e->sum = first || !(value <= e->sum) ? value : e->sum;
    else
        e->sum += value * scale;
    e->weight += weight;
}

/* A tensor whose sum is a part of the steps. */
static tri_status add_to_meter(log_entry *e, tri_tensor *value, double scale, double weight)
{
    tri_status status = e->meter == NULL ? tri_meter_create(&e->meter) : TRI_OK;

    e->touched = true;
    if (status != TRI_OK)
        return status;
    return scale == 1 ? tri_meter_add_count(e->meter, value, (int64_t)weight)
                      : tri_meter_add_mean(e->meter, value, (int64_t)weight);
}

static void add(trii_book *book, log_entry *e, tri_tensor *tensor, double number, double scale,
                double weight)
{
    tri_status status = TRI_OK;

    if (tensor == NULL) {
        add_number(e, number, scale, weight);
    } else if (e->of_epoch && e->reduce <= LOG_SUM) {
        status = add_to_meter(e, tensor, scale, weight);
    } else {
        status = tri_tensor_status(tri_keep(tensor));
        e->pending = tensor;
        e->pending_weight = weight;
        e->pending_scale = scale;
        book->any_pending = true;
    }
    if (status != TRI_OK)
        fail(book, TRII_FAIL_CTX(status, "tri_trainer_log of \"%s\"", e->name));
}

static TRII_NOINLINE void log_in_full(tri_trainer *t, const char *name, tri_tensor *tensor,
                                      double number, const tri_trainer_log_options *opt,
                                      bool on_step, bool on_epoch)
{
    trii_book *book = t->book;
    bool evaluates = t->phase != TRII_PHASE_TRAIN;
    double weight = opt->weight > 0 ? (double)opt->weight : (double)t->batch_samples;
    char full[2 * TRI_FIT_NAME_BYTES];
    log_reduce reduce;
    double scale;

    if (opt->weight < 0 || !parse_reduce(opt->reduce, &reduce)) {
        fail(book,
             TRII_FAIL(TRI_ERR_INVALID_ARG,
                       "tri_trainer_log of \"%.64s\": weight %lld, reduce \"%.16s\": at least "
                       "0, and one of mean, sum, min, max",
                       name, (long long)opt->weight, opt->reduce != NULL ? opt->reduce : "mean"));
        return;
    }
    scale = opt->count || reduce != LOG_MEAN ? 1 : weight;
    for (int epoch = 0; epoch < 2; epoch++) {
        log_entry *e;

        if (!(epoch == 0 ? on_step && book->due : on_epoch))
            continue;
        name_in_phase(t, name, on_step && on_epoch ? (epoch == 0 ? "_step" : "_epoch") : "", full);
        e = entry_of(book, full, epoch == 1, evaluates, reduce);
        if (e == NULL)
            return;
        e->shown = opt->progress_bar;
        add(book, e, tensor, number, scale, weight);
    }
}

/* Most calls end here: nothing of an update that is not due is recorded. */
static void log_value(tri_trainer *t, const char *name, tri_tensor *tensor, double number,
                      const tri_trainer_log_options *opt)
{
    static const tri_trainer_log_options defaults;
    bool evaluates = t->phase != TRII_PHASE_TRAIN, on_step, on_epoch;

    opt = opt != NULL ? opt : &defaults;
    on_step = !evaluates && trii_option(opt->on_step, 1) != 0;
    on_epoch = evaluates || trii_option(opt->on_epoch, 0) != 0;
    if (TRII_LIKELY(!on_epoch && !(on_step && t->book->due)))
        return;
    log_in_full(t, name, tensor, number, opt, on_step, on_epoch);
}

/* Whether the call may log; else it is kept as the log's error. */
static bool may_log(tri_trainer *t, const char *name, const tri_trainer_log_options *opt)
{
    tri_status status;

    status = TRII_CHECK_RESERVED_INLINE(tri_trainer_log_options, opt);
    if (TRII_UNLIKELY(t == NULL || t->book == NULL || t->book->status != TRI_OK))
        return false;
    if (TRII_UNLIKELY(status == TRI_OK && name == NULL))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_trainer_log: the name is NULL");
    if (TRII_UNLIKELY(status == TRI_OK && !t->in_step))
        status = TRII_FAIL(TRI_ERR_STATE,
                           "tri_trainer_log of \"%.64s\": only steps of the task log: a callback "
                           "has the values in `record`",
                           name);
    if (status != TRI_OK)
        fail(t->book, status);
    return status == TRI_OK;
}

void tri_trainer_log(tri_trainer *t, const char *name, tri_tensor *value,
                     const tri_trainer_log_options *opt)
{
    if (!may_log(t, name, opt))
        return;
    if (TRII_UNLIKELY(value == NULL))
        fail(t->book, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                "tri_trainer_log of \"%.64s\": the value is NULL", name));
    else
        log_value(t, name, value, 0, opt);
}

void tri_trainer_log_value(tri_trainer *t, const char *name, double value,
                           const tri_trainer_log_options *opt)
{
    if (may_log(t, name, opt))
        log_value(t, name, NULL, value, opt);
}

/* --- batches -------------------------------------------------------------- */

tri_status trii_book_begin(tri_trainer *t, trii_phase phase)
{
    trii_book *book = t->book;
    tri_status status = TRI_OK;

    if (phase != TRII_PHASE_TRAIN)
        book->evaluating_ns = trii_now_ns();
    for (int i = 0; i < book->n && status == TRI_OK; i++) {
        log_entry *e = &book->entries[i];

        if (!e->of_epoch || e->of_evaluation != (phase != TRII_PHASE_TRAIN))
            continue;
        e->touched = false;
        e->sum = e->weight = 0;
        status = e->meter != NULL ? tri_meter_reset(e->meter) : TRI_OK;
    }
    return status;
}

void trii_book_batch(tri_trainer *t, bool due)
{
    t->book->due = due;
}

tri_status trii_book_take(tri_trainer *t)
{
    trii_book *book = t->book;
    tri_status status = book->status;

    if (TRII_UNLIKELY(status != TRI_OK))
        return TRII_FAIL(status, "%s", book->line);
    if (TRII_LIKELY(!book->any_pending))
        return TRI_OK;
    book->any_pending = false;
    for (int i = 0; i < book->n && status == TRI_OK; i++) {
        log_entry *e = &book->entries[i];
        double value;

        if (e->pending == NULL)
            continue;
        status = tri_item_status(e->pending, &value);
        e->pending = NULL;
        if (status == TRI_OK)
            add_number(e, value, e->pending_scale, e->pending_weight);
        else
            trii_err_prepend("tri_trainer_log of \"%s\"", e->name);
    }
    return status;
}

/* --- agreement ------------------------------------------------------------ */

/* Entries of one record, by name. */
typedef struct log_list {
    log_entry *at[TRI_FIT_MAX_VALUES];
    int n;
} log_list;

static void list_add(log_list *list, log_entry *e)
{
    int at = list->n++;

    for (; at > 0 && strcmp(list->at[at - 1]->name, e->name) > 0; at--)
        list->at[at] = list->at[at - 1];
    list->at[at] = e;
}

static void list_touched(trii_book *book, bool of_epoch, bool of_evaluation, log_list *list_out)
{
    list_out->n = 0;
    for (int i = 0; i < book->n; i++) {
        log_entry *e = &book->entries[i];

        if (e->touched && e->of_epoch == of_epoch && e->of_evaluation == of_evaluation)
            list_add(list_out, e);
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

/* 40 bits, so that a sum over 8192 ranks is exact. */
static double list_hash(const log_list *list, char *text)
{
    uint64_t hash;

    list_text(list, text);
    hash = trii_hash_text(TRII_HASH_SEED, text) & ((UINT64_C(1) << 40) - 1);
    return list->n > 0 ? (double)(hash | 1) : 0;
}

/* The first line of a that b lacks, or NULL. */
static const char *line_missing(const char *a, const char *b, char line[LINE_BYTES])
{
    for (; *a != '\0'; a = strchr(a, '\n') + 1) {
        snprintf(line, LINE_BYTES, "%.*s", (int)(strchr(a, '\n') - a + 1), a);
        if (strstr(b, line) == NULL)
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
static tri_status adopt(trii_book *book, const char *names, bool of_epoch, bool of_evaluation,
                        log_list *list)
{
    for (; *names != '\0'; names = strchr(names, '\n') + 1) {
        char name[LINE_BYTES];
        log_entry *e;

        snprintf(name, sizeof(name), "%.*s", (int)(strchr(names, '\n') - names - 2), names + 2);
        e = entry_of(book, name, of_epoch, of_evaluation, (log_reduce)(names[0] - '0'));
        if (e == NULL)
            return TRII_FAIL(book->status, "%s", book->line);
        list->at[list->n++] = e;
    }
    return TRI_OK;
}

/* Some rank has other names, or none. */
static tri_status exchange_names(tri_trainer *t, const char *text, bool of_epoch,
                                 bool of_evaluation, log_list *list)
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
        status = adopt(t->book, names, of_epoch, of_evaluation, list);
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

/* What the meter has, to the other sums. */
static tri_status take_meter(log_entry *e)
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

/* Values of the listed names over all ranks; the list of a rank without any is filled. */
static tri_status agree(tri_trainer *t, bool of_epoch, bool of_evaluation, log_list *list,
                        double values[TRI_FIT_MAX_VALUES])
{
    double sums[SUMS] = {0}, own;
    char text[TRI_FIT_MAX_VALUES * LINE_BYTES];
    tri_status status = TRI_OK;

    for (int i = 0; i < list->n && status == TRI_OK; i++) {
        log_entry *e = list->at[i];

        status = take_meter(e);
        sums[2 + 2 * i] = is_extreme(e) ? 0 : e->sum;
        sums[3 + 2 * i] = e->weight;
    }
    if (status != TRI_OK)
        return status;
    own = list_hash(list, text);
    sums[0] = own;
    sums[1] = list->n > 0;
    status = trii_fit_sum(t, sums, SUMS);
    if (status != TRI_OK || sums[1] == 0)
        return status;
    if (sums[1] < t->size || sums[0] != sums[1] * own)
        status = exchange_names(t, text, of_epoch, of_evaluation, list);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < list->n; i++)
        values[i] =
            list->at[i]->reduce == LOG_SUM ? sums[2 + 2 * i] : sums[2 + 2 * i] / sums[3 + 2 * i];
    return agree_extremes(t, list, values);
}

/* --- records -------------------------------------------------------------- */

static tri_status record(tri_trainer *t, const log_list *list, bool of_update)
{
    trii_book *book = t->book;
    tri_metric values[TRI_FIT_MAX_VALUES + 4];
    int n = 0;
    int64_t now = trii_now_ns();
    tri_status status = TRI_OK;

    if (t->rank != 0)
        return TRI_OK;
    values[n++] = (tri_metric){"step", (double)t->step};
    values[n++] = (tri_metric){"epoch", (double)t->epoch + 1};
    for (int i = 0; i < list->n; i++)
        values[n++] = (tri_metric){list->at[i]->name, list->at[i]->value};
    if (of_update) {
        values[n++] = (tri_metric){"lr", tri_optimizer_lr(t->optimizer)};
        values[n++] = (tri_metric){
            "samples_per_s",
            (double)((t->batches_ever - book->rate_batches) * t->train.batch_size * t->size) /
                ((double)(now - book->rate_ns) / (double)TRII_NS_PER_S)};
        book->rate_ns = now;
        book->rate_batches = t->batches_ever;
    }
    if (book->metrics != NULL)
        status = tri_metrics_write(book->metrics, values, n);
    return status == TRI_OK && t->opt->n_callbacks > 0 ? trii_hooks_record(t, values, n) : status;
}

static tri_status agree_and_record(tri_trainer *t, trii_phase phase, bool of_epoch)
{
    bool evaluates = phase != TRII_PHASE_TRAIN;
    double values[TRI_FIT_MAX_VALUES];
    log_list list;
    tri_status status;

    list_touched(t->book, of_epoch, evaluates, &list);
    status = agree(t, of_epoch, evaluates, &list, values);
    for (int i = 0; i < list.n; i++) {
        log_entry *e = list.at[i];

        e->touched = false;
        e->sum = e->weight = 0;
        if (status != TRI_OK || phase == TRII_PHASE_SANITY)
            continue;
        e->value = values[i];
        e->n_agreed++;
    }
    if (status != TRI_OK || list.n == 0 || phase == TRII_PHASE_SANITY)
        return status;
    return record(t, &list, !of_epoch);
}

tri_status trii_book_step(tri_trainer *t)
{
    return agree_and_record(t, TRII_PHASE_TRAIN, false);
}

tri_status trii_book_end(tri_trainer *t, trii_phase phase)
{
    tri_status status = agree_and_record(t, phase, true);

    if (phase != TRII_PHASE_TRAIN) /* its time is not training's */
        t->book->rate_ns += trii_now_ns() - t->book->evaluating_ns;
    return status;
}

/* --- readers -------------------------------------------------------------- */

/* The newest of the entries of this name. */
static const log_entry *newest(const trii_book *book, const char *name)
{
    const log_entry *best = NULL;

    for (int i = 0; book != NULL && i < book->n; i++) {
        const log_entry *e = &book->entries[i];

        if (strcmp(e->name, name) == 0 && e->n_agreed > 0 &&
            (best == NULL || e->of_epoch > best->of_epoch))
            best = e;
    }
    return best;
}

double trii_book_value(const trii_book *book, const char *name)
{
    const log_entry *e = newest(book, name);

    return e != NULL ? e->value : (double)NAN;
}

int64_t trii_book_count(const trii_book *book, const char *name)
{
    const log_entry *e = newest(book, name);

    return e != NULL ? e->n_agreed : 0;
}

void trii_book_result(const trii_book *book, tri_fit_result *result)
{
    for (int i = 0; i < book->n; i++) {
        const log_entry *e = &book->entries[i];

        if (e->n_agreed == 0 || newest(book, e->name) != e)
            continue;
        snprintf(result->names[result->n_values], TRI_FIT_NAME_BYTES, "%s", e->name);
        result->values[result->n_values++] = e->value;
    }
}

void trii_book_bar_text(const trii_book *book, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < book->n && used < bytes; i++) {
        const log_entry *e = &book->entries[i];

        if (e->shown && e->n_agreed > 0)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s %.4g", used > 0 ? "  " : "",
                                     e->name, e->value);
    }
}
