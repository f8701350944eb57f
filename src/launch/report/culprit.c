/*
 * culprit.c - see culprit.h. attempt.c asks as workers fail, failure_report.c when it writes the
 * report. Flight records are read through inspect/, the last lines of stderr through
 * output/output.h.
 */
#include "launch/report/culprit.h"

#include <string.h>

#include "inspect/why.h"

enum { MAX_STEPS = 64 };

static trii_worker *worker_of(trii_worker *workers, int n_workers, int rank)
{
    int i = rank - workers[0].rank;

    return i >= 0 && i < n_workers ? &workers[i] : NULL;
}

const trii_record_file *trii_culprit_log(const trii_why_job *records, int rank)
{
    return rank < records->size ? records->ranks[rank].log : NULL;
}

/* What its last words say of a worker without a record: a program that uses gloo or plain sockets,
 * or one that failed before it joined. */
static trii_blame judge_by_words(trii_worker *worker)
{
    static const char *const words[] = {"PEER_LOST", "onnection closed by peer",
                                        "onnection reset by peer"};
    const char *tail = trii_stream_tail(&worker->err, TRII_REPORT_LINES);
    int aborter = trii_why_aborter(tail);

    for (size_t i = 0; i < TRII_COUNT_OF(words); i++) {
        if (strstr(tail, words[i]) != NULL)
            return TRII_BLAME_VICTIM;
    }
    return aborter < 0 || aborter == worker->rank ? TRII_BLAME_OWN : TRII_BLAME_VICTIM;
}

trii_blame trii_culprit_blame(const trii_why_job *records, trii_worker *worker)
{
    const trii_record_file *log = trii_culprit_log(records, worker->rank);
    int aborter;

    if (worker->exit.signal != 0)
        return TRII_BLAME_KILLED;
    /* Flight records do not hold this: a group does not look at the values that it moves. */
    if (strstr(trii_stream_tail(&worker->err, TRII_REPORT_LINES), "NaN came in through ") != NULL)
        return TRII_BLAME_VICTIM;
    if (log == NULL)
        return judge_by_words(worker);
    if (log->failed == TRI_ERR_PEER_LOST)
        return TRII_BLAME_VICTIM;
    if (log->failed != TRI_ERR_ABORTED)
        return TRII_BLAME_OWN;
    aborter = trii_why_named(records, worker->rank);
    if (aborter < 0)
        aborter = trii_why_aborter(log->failure);
    return aborter < 0 || aborter == worker->rank ? TRII_BLAME_OWN : TRII_BLAME_VICTIM;
}

bool trii_culprit_made_nan(trii_worker *worker)
{
    return strstr(trii_stream_tail(&worker->err, TRII_REPORT_LINES), "NaN made by ") != NULL;
}

/* The rank that this one names as who aborted its group, and its line; -1 = nobody. */
static int named_by(const trii_why_job *job, int rank, trii_worker *worker, const char **why_out)
{
    const trii_record_file *log = trii_culprit_log(job, rank);
    int named;

    *why_out = "";
    if (log != NULL) {
        *why_out = log->failure;
        return trii_why_named(job, rank);
    }
    if (worker == NULL || worker->live || !trii_worker_failed(worker))
        return -1;
    named = trii_why_aborter(trii_stream_tail(&worker->err, TRII_REPORT_LINES));
    return named != rank ? named : -1;
}

void trii_culprit_find(const trii_why_job *records, trii_worker *workers, int n_workers,
                       trii_worker *victim, trii_culprit *culprit_out)
{
    int rank = victim->rank, named = -1;
    const char *why;

    memset(culprit_out, 0, sizeof(*culprit_out));
    culprit_out->rank = -1;
    for (int i = 0; i < MAX_STEPS; i++) {
        named = named_by(records, rank, worker_of(workers, n_workers, rank), &why);
        if (named < 0 || named == victim->rank) /* of two that name each other the first to end */
            break;
        rank = named;
        snprintf(culprit_out->why, sizeof(culprit_out->why), "%s", why);
    }
    if (named < 0 && rank != victim->rank) {
        culprit_out->rank = rank;
        culprit_out->worker = worker_of(workers, n_workers, rank);
    }
    /* Or others name it as who aborted their group. */
    for (int i = 0; culprit_out->rank < 0 && named < 0 && i < n_workers; i++) {
        if (&workers[i] == victim ||
            named_by(records, workers[i].rank, &workers[i], &why) != victim->rank)
            continue;
        culprit_out->rank = victim->rank;
        culprit_out->worker = victim;
        snprintf(culprit_out->why, sizeof(culprit_out->why), "%s", why);
    }
}
