/*
 * culprit.c - see culprit.h. attempt.c and agent_hosts.c ask as workers fail and when all have
 * ended; failure_report.c writes what was found. Flight records are read through inspect/, the last
 * lines of stderr through output/output.h.
 */
#include "launch/report/culprit.h"

#include <stdio.h>
#include <string.h>

#include "base/nan_words.h"
#include "launch/inspect/why.h"
#include "os/clock.h"

enum { MAX_STEPS = 64 };

/* A smaller step was slewed, and does not change the order of timestamps in error files. */
#define CLOCK_STEP_NS (200 * TRII_NS_PER_MS)

/* --- what is known of one worker ------------------------------------------ */

static trii_worker *worker_of(trii_worker *workers, int n_workers, int rank)
{
    int i = rank - workers[0].rank;

    return i >= 0 && i < n_workers ? &workers[i] : NULL;
}

/* The record of a rank that has joined the job, or NULL. */
static const trii_record_file *log_of(const trii_why_job *records, int rank)
{
    const trii_record_file *log = rank < records->size ? records->ranks[rank].log : NULL;

    return log != NULL && trii_why_has_joined(log) ? log : NULL;
}

/* What its last words say of a worker without a record: a program that uses gloo or plain sockets,
 * or one that failed before it joined. */
static trii_blame judge_by_words(trii_worker *worker)
{
    static const char *const words[] = {"PEER_LOST",
                                        "onnection closed by peer", /* Gloo */
                                        "onnection reset by peer",
                                        "roken pipe",
                                        "the remote server shutdown or crash", /* TCPStore */
                                        "ncclRemoteError"};
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
    const trii_record_file *log = log_of(records, worker->rank);
    int aborter;

    if (worker->exit.signal != 0)
        return TRII_BLAME_KILLED;
    /* Flight records do not hold this: a group does not look at the values that it moves. */
    if (strstr(trii_stream_tail(&worker->err, TRII_REPORT_LINES), TRII_NAN_RECEIVED) != NULL)
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

bool trii_culprit_is_ahead(const trii_why_job *records, trii_worker *worker)
{
    return worker->exit.signal == 0 && log_of(records, worker->rank) == NULL &&
           judge_by_words(worker) == TRII_BLAME_VICTIM;
}

bool trii_culprit_made_nan(trii_worker *worker)
{
    return strstr(trii_stream_tail(&worker->err, TRII_REPORT_LINES), TRII_NAN_MADE) != NULL;
}

/* The rank that this one says aborted its group, and its line; -1 = none. */
static int named_by(const trii_why_job *job, int rank, trii_worker *worker, const char **why_out)
{
    const trii_record_file *log = log_of(job, rank);
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
    if (named < 0 && rank != victim->rank)
        culprit_out->rank = rank;
    /* Or others say that it aborted their group. */
    for (int i = 0; culprit_out->rank < 0 && named < 0 && i < n_workers; i++) {
        if (&workers[i] == victim ||
            named_by(records, workers[i].rank, &workers[i], &why) != victim->rank)
            continue;
        culprit_out->rank = victim->rank;
        snprintf(culprit_out->why, sizeof(culprit_out->why), "%s", why);
    }
}

/* --- which failed first --------------------------------------------------- */

static bool ended_by_itself(const trii_worker *w)
{
    return trii_worker_failed(w) && (w->was_ending || !w->signalled);
}

/* It printed that it made the first NaN, and was stopped because a rank that got it ended
 * before. */
static bool found_nan(trii_worker *w)
{
    return trii_worker_failed(w) && !ended_by_itself(w) && trii_culprit_made_nan(w);
}

bool trii_failure_read_error(const trii_failure *f, const trii_worker *worker, char *path_out,
                             size_t bytes, trii_error_file *error_out)
{
    *error_out = (trii_error_file){0};
    if (f->error_dir == NULL)
        return false;
    snprintf(path_out, bytes, "%s/%d/error.json", f->error_dir, worker->local_rank);
    return trii_error_file_read(path_out, error_out);
}

/* Since that worker began. */
static bool clock_was_set(const trii_worker *w)
{
    int64_t now_ns = trii_now_ns(), moved_ns = trii_wall_ns() - now_ns - w->wall_ahead_ns;

    return moved_ns > CLOCK_STEP_NS || moved_ns < -CLOCK_STEP_NS;
}

static void set_cause(trii_failure *f, const trii_why_job *job, trii_worker *worker)
{
    f->cause = worker;
    f->blame = trii_culprit_blame(job, worker);
}

/* In some programs one rank prints why all of them end, and any of them may be seen first. */
static bool says_more(trii_worker *w, trii_worker *than)
{
    return trii_stream_tail(&than->err, TRII_REPORT_LINES)[0] == '\0' &&
           trii_stream_tail(&w->err, TRII_REPORT_LINES)[0] != '\0';
}

static void find_first_failed(trii_failure *f, const trii_why_job *job)
{
    char path[TRII_LOG_PATH_BYTES];
    trii_error_file error;
    int64_t first = 0;

    for (int i = 0; i < f->n_workers; i++) {
        trii_worker *w = &f->workers[i];
        trii_blame blame;

        if (w != f->cause && found_nan(w) && f->blame == TRII_BLAME_VICTIM)
            set_cause(f, job, w);
        if (w == f->cause || !ended_by_itself(w))
            continue;
        blame = trii_culprit_blame(job, w);
        if (blame > f->blame ||
            (blame == f->blame && w->exit.signal == 0 && says_more(w, f->cause)))
            set_cause(f, job, w);
    }
    if (f->cause->exit.signal != 0 || clock_was_set(f->cause))
        return;
    /* Python writes its error before it ends, which takes a while; by the clock that people set. */
    if (trii_failure_read_error(f, f->cause, path, sizeof(path), &error))
        first = error.timestamp;
    for (int i = 0; i < f->n_workers && first > 0; i++) {
        trii_worker *w = &f->workers[i];

        if (w != f->cause && trii_worker_failed(w) && w->exit.signal == 0 &&
            trii_failure_read_error(f, w, path, sizeof(path), &error) && error.timestamp > 0 &&
            error.timestamp < first) {
            first = error.timestamp;
            set_cause(f, job, w);
        }
    }
}

/* --- which ended too early ------------------------------------------------ */

bool trii_failure_has_left(const trii_failure *f, const trii_worker *w)
{
    if (w->live || trii_worker_failed(w))
        return false;
    return w->was_ending || (!w->signalled && w->ended_ns <= f->cause->ended_ns);
}

/* The first worker that joined the job by its record, never left it (tri_finalize), and ended with
 * status 0. */
static trii_worker *find_early(const trii_failure *f, const trii_why_job *job)
{
    trii_worker *early = NULL;

    for (int i = 0; i < f->n_workers; i++) {
        trii_worker *w = &f->workers[i];

        if (trii_failure_has_left(f, w) && log_of(job, w->rank) != NULL &&
            job->ranks[w->rank].state != TRII_WHY_LEFT &&
            (early == NULL || w->ended_ns < early->ended_ns))
            early = w;
    }
    return early;
}

/* The first failure of its groups was that a peer was gone: before a call, or in one. */
static bool has_lost_a_peer(const trii_why_job *job, int rank)
{
    const trii_record_file *log = log_of(job, rank);

    return log != NULL && log->failed == TRI_ERR_PEER_LOST;
}

/* The call in which the rank was or failed when its peer was gone, or NULL. */
static const trii_record *waiting_call(const trii_why_job *job, int rank)
{
    const trii_record_file *log = log_of(job, rank);
    const trii_record *last = log != NULL ? trii_why_last(log, false) : NULL;

    if (last == NULL || last->state == TRII_RECORD_DONE)
        return NULL;
    return last->state == TRII_RECORD_RUNNING || last->status == TRI_ERR_PEER_LOST ? last : NULL;
}

/* If the cause waited for a peer or lost one, and a peer had ended early with status 0, that peer
 * is the cause. The program decides how to end when it lost a peer: it may call abort(). */
static void find_early_leaver(trii_failure *f, const trii_why_job *job)
{
    bool lost = has_lost_a_peer(job, f->cause->rank);
    const trii_record *call =
        lost || f->cause->exit.signal == 0 ? waiting_call(job, f->cause->rank) : NULL;
    trii_worker *early = lost || call != NULL ? find_early(f, job) : NULL;
    char what[256];
    int n = 0;

    if (early == NULL)
        return;
    for (int i = 0; i < f->n_workers; i++) {
        int rank = f->workers[i].rank;

        n += rank != early->rank && (waiting_call(job, rank) != NULL || has_lost_a_peer(job, rank));
    }
    if (call != NULL) {
        trii_why_describe(job->ranks[f->cause->rank].log, call, what, sizeof(what));
        snprintf(f->early, sizeof(f->early), "%d other%s waited in %s", n, n == 1 ? "" : "s", what);
    } else {
        snprintf(f->early, sizeof(f->early), "%d other%s needed it", n, n == 1 ? "" : "s");
    }
    f->cause = early;
}

/* --- the cause ------------------------------------------------------------ */

/* The rank that aborted the group of the cause takes its place, however it ended itself: it may
 * have waited for the others until trirun stopped it. */
static void find_aborter(trii_failure *f, const trii_why_job *job)
{
    trii_worker *worker;

    trii_culprit_find(job, f->workers, f->n_workers, f->cause, &f->culprit);
    worker = worker_of(f->workers, f->n_workers, f->culprit.rank);
    if (worker != NULL && !worker->live)
        f->cause = worker;
}

void trii_failure_find_cause(trii_failure *f)
{
    trii_why_job records;

    (void)trii_why_read(f->run_dir, &records); /* there may be none */
    set_cause(f, &records, f->cause);
    find_first_failed(f, &records);
    find_aborter(f, &records);
    find_early_leaver(f, &records);
    f->blame = trii_culprit_blame(&records, f->cause);
    trii_why_free(&records);
}

void trii_failure_describe(const trii_failure *f, char *text_out, size_t bytes)
{
    const trii_worker *w = f->cause;
    char what[64];

    trii_worker_describe(w, what, sizeof(what));
    if (f->early[0] != '\0')
        snprintf(text_out, bytes, "returned 0 after %.1f s without tri_finalize",
                 (double)(w->ended_ns - w->started_ns) / TRII_NS_PER_S);
    else if (f->culprit.rank == w->rank && !ended_by_itself(w))
        snprintf(text_out, bytes, "aborted the group");
    else if (found_nan(f->cause))
        snprintf(text_out, bytes, "made a NaN");
    else if (f->culprit.rank >= 0 && f->culprit.rank != w->rank)
        snprintf(text_out, bytes, "%s after rank %d aborted the group", what, f->culprit.rank);
    else
        snprintf(text_out, bytes, "%s", what);
}
