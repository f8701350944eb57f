/*
 * log_book.c - the log book: what steps log, from one batch to a value that all ranks agree on.
 *
 * A value of an epoch is summed inside the steps (tri_meter) or, where it is the least or greatest,
 * here; a value of an update is fetched when its record is due. What the ranks then say to each
 * other: log_agree.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "os/clock.h"
#include "train/trainer/fit_files.h"
#include "train/trainer/log_internal.h"

#define MAX_WEIGHT (INT64_C(1) << 53) /* which sums of f64 have exactly */

/* --- life ----------------------------------------------------------------- */

tri_status trii_book_create(tri_trainer *t)
{
    trii_book *book = trii_alloc(1, sizeof(*book), "log book");

    if (book == NULL)
        return TRI_ERR_NO_MEMORY;
    t->book = book;
    book->rate_ns = trii_now_ns();
    book->rate_batches = t->batches_ever;
    book->entries = trii_alloc(TRI_FIT_MAX_VALUES, sizeof(*book->entries), "log book");
    if (book->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    return trii_fit_files_open(t, &book->files);
}

tri_status trii_book_close(trii_book *book)
{
    tri_status status = trii_fit_files_close(book->files);

    book->files = NULL;
    return status;
}

tri_tensorboard *trii_book_board(const trii_book *book)
{
    return book != NULL ? trii_fit_files_board(book->files) : NULL;
}

void trii_book_destroy(trii_book *book)
{
    if (book == NULL)
        return;
    for (int i = 0; i < book->n; i++)
        tri_meter_destroy(book->entries[i].meter);
    (void)!trii_fit_files_close(book->files);
    trii_free(book->entries);
    trii_free(book);
}

/* --- a call of the step --------------------------------------------------- */

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

static const char *const reduce_names[] = {"mean", "sum", "min", "max"};

static bool parse_reduce(const char *name, log_reduce *reduce_out)
{
    *reduce_out = LOG_MEAN;
    for (int i = 0; i < 4 && name != NULL; i++) {
        if (strcmp(name, reduce_names[i]) == 0) {
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
        e->sum = first || isnan(value) || value < e->sum ? value : e->sum; /* a NaN stays */
    else if (e->reduce == LOG_MAX)
        e->sum = first || isnan(value) || value > e->sum ? value : e->sum;
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

/* Of two calls in one step under one name the tensors would overwrite each other, while numbers
 * would be added up. */
static bool may_add(trii_book *book, log_entry *e, log_reduce reduce)
{
    if (e->batch == book->batch) {
        log_fail(book,
                 TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_trainer_log of \"%s\": logged twice in one step: each call of "
                           "a step needs a name of its own (the trainer itself logs what "
                           "training_step returns as \"loss\")",
                           e->name));
        return false;
    }
    if (e->reduce != reduce) {
        log_fail(book, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "tri_trainer_log of \"%s\": its reduce was \"%s\" and is \"%s\"",
                                 e->name, reduce_names[e->reduce], reduce_names[reduce]));
        return false;
    }
    e->batch = book->batch;
    return true;
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
        log_fail(book, TRII_FAIL_CTX(status, "tri_trainer_log of \"%s\"", e->name));
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

    if (opt->weight < 0 || opt->weight > MAX_WEIGHT || !parse_reduce(opt->reduce, &reduce)) {
        log_fail(book,
                 TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_trainer_log of \"%.64s\": weight %lld, reduce \"%.16s\": 0 to "
                           "2^53, and one of mean, sum, min, max",
                           name, (long long)opt->weight,
                           opt->reduce != NULL ? opt->reduce : "mean"));
        return;
    }
    scale = opt->count || reduce != LOG_MEAN ? 1 : weight;
    for (int epoch = 0; epoch < 2; epoch++) {
        log_entry *e;

        if (!(epoch == 0 ? on_step && (book->due || book->naming) : on_epoch))
            continue;
        name_in_phase(t, name, on_step && on_epoch ? (epoch == 0 ? "_step" : "_epoch") : "", full);
        if (opt->local)
            snprintf(full + strlen(full), sizeof(full) - strlen(full), "/rank%d", t->rank);
        e = log_entry_of(book, full, (log_kind){epoch == 1, evaluates}, reduce);
        if (epoch == 0 && !book->due && e != NULL) /* it has its name, and that is all */
            continue;
        if (e == NULL || !may_add(book, e, reduce))
            return;
        e->local = opt->local;
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
    if (TRII_LIKELY(!on_epoch && !(on_step && (t->book->due || t->book->naming))))
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
    if (TRII_UNLIKELY(status == TRI_OK && (name == NULL || *name == '\0')))
        status = name == NULL ? TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_trainer_log: the name is NULL")
                              : log_refuse_name(name);
    if (TRII_UNLIKELY(status == TRI_OK && !t->in_step))
        status = TRII_FAIL(TRI_ERR_STATE,
                           "tri_trainer_log of \"%.64s\": only steps of the task log: a callback "
                           "has the values in `record`",
                           name);
    if (status != TRI_OK)
        log_fail(t->book, status);
    return status == TRI_OK;
}

void tri_trainer_log(tri_trainer *t, const char *name, tri_tensor *value,
                     const tri_trainer_log_options *opt)
{
    if (!may_log(t, name, opt))
        return;
    if (TRII_UNLIKELY(value == NULL))
        log_fail(t->book, TRII_FAIL(TRI_ERR_INVALID_ARG,
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
    t->book->batch++;
    t->book->due = due;
    t->book->naming = t->first_batch && t->phase == TRII_PHASE_TRAIN;
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
    if (book->files != NULL)
        status = trii_fit_files_write(book->files, t->step, values, n);
    return status == TRI_OK && t->opt->n_callbacks > 0 ? trii_hooks_record(t, values, n) : status;
}

static tri_status agree_and_record(tri_trainer *t, trii_phase phase, bool of_epoch)
{
    log_list list;
    tri_status status = log_agree(t, (log_kind){of_epoch, phase != TRII_PHASE_TRAIN}, &list);

    if (status != TRI_OK || phase == TRII_PHASE_SANITY || list.n == 0)
        return status;
    for (int i = 0; i < list.n; i++)
        list.at[i]->n_agreed++;
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

static size_t add_text(const log_entry *e, char *text, size_t used, size_t bytes)
{
    if (used >= bytes)
        return used;
    return used + (size_t)snprintf(text + used, bytes - used, "%s%s %.4g", used > 0 ? "  " : "",
                                   e->name, e->value);
}

void trii_book_bar_text(const trii_book *book, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < book->n; i++)
        if (book->entries[i].shown && book->entries[i].n_agreed > 0)
            used = add_text(&book->entries[i], text, used, bytes);
}

void trii_book_epoch_text(const trii_book *book, bool of_evaluation, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < book->n; i++) {
        const log_entry *e = &book->entries[i];

        if (e->of_epoch && e->of_evaluation == of_evaluation && e->n_agreed > 0)
            used = add_text(e, text, used, bytes);
    }
}
