/*
 * log_internal.h - the log book from inside: entries, and what the ranks agree on. For log_*.c
 * only.
 */
#ifndef TRII_LOG_INTERNAL_H
#define TRII_LOG_INTERNAL_H

#include "train/trainer/log_book.h"

typedef enum log_reduce { LOG_MEAN, LOG_SUM, LOG_MIN, LOG_MAX } log_reduce;

/* A name and what it belongs to: a record of updates or of epochs, of training or evaluation. */
typedef struct log_entry {
    char name[TRI_FIT_NAME_BYTES];
    bool of_epoch, of_evaluation;
    bool local; /* of one rank, which its name says: no other has to have it */
    log_reduce reduce;
    bool shown;
    bool touched;        /* logged since its sums began */
    int64_t batch;       /* of the book, in which it was logged last */
    double sum, weight;  /* of this rank; of LOG_MIN and LOG_MAX sum is that one */
    tri_meter *meter;    /* of an epoch's sums of tensors; NULL = none yet */
    tri_tensor *pending; /* of the step that runs: is fetched when it has run */
    double pending_weight, pending_scale;
    double value; /* agreed */
    int64_t n_agreed;
} log_entry;

struct trii_book {
    trii_fit_files *files; /* rank 0's; NULL = none */
    log_entry *entries;    /* [TRI_FIT_MAX_VALUES] */
    int n;
    bool due;
    bool naming;   /* of this batch the names of values are noted that are not due, too */
    int64_t batch; /* steps that there were, ever: the first is 1 */
    bool any_pending;
    tri_status status; /* of the first call that failed, */
    char line[TRII_ERR_BYTES];
    int64_t rate_ns, rate_batches, evaluating_ns; /* for samples_per_s */
};

/* Which of a book's entries: what is logged of updates or epochs, in training or evaluation. */
typedef struct log_kind {
    bool of_epoch, of_evaluation;
} log_kind;

/* Entries of one record, by name. */
typedef struct log_list {
    log_entry *at[TRI_FIT_MAX_VALUES];
    int n;
} log_list;

/* The book has failed with the line of tri_last_error, unless it had before. */
void log_fail(trii_book *book, tri_status status);
/* Says what a name may be. */
tri_status log_refuse_name(const char *name);
/* The entry of this name, a new one if need be; NULL: the book has failed. */
log_entry *log_entry_of(trii_book *book, const char *name, log_kind kind, log_reduce reduce);
/* Values of the entries of this kind that were logged, over all ranks and the same on all; their
 * sums begin again. The list is theirs, also on a rank that has logged nothing. */
tri_status log_agree(tri_trainer *t, log_kind kind, log_list *list_out) TRI_MUST_CHECK;
/* What the meter has, to the other sums. */
tri_status log_take_meter(log_entry *e) TRI_MUST_CHECK;
void log_list_add(log_list *list, log_entry *e);
/* All ranks learn the local values of all ranks, and list them, too. */
tri_status log_gather_local(tri_trainer *t, log_kind kind, log_list *list) TRI_MUST_CHECK;
/* How many this rank has. */
int log_count_local(const trii_book *book, log_kind kind);

#endif
