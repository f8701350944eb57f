/*
 * culprit.c - see culprit.h.
 */
#include "launch/report/culprit.h"

#include <string.h>

#include "base/alloc.h"
#include "inspect/why.h"

enum { REPORT_LINES = 12, MAX_STEPS = 64 };

static trii_worker *worker_of(trii_worker *workers, int n_workers, int rank)
{
    int i = rank - workers[0].rank;

    return i >= 0 && i < n_workers ? &workers[i] : NULL;
}

/* What an earlier attempt left in the folder tells nothing of this one. */
static void forget_older(trii_why_job *job, int64_t started_ns)
{
    for (int r = 0; r < job->size; r++) {
        trii_why_rank *rank = &job->ranks[r];

        if (rank->log == NULL || !rank->same_boot || rank->log->monotonic_ns >= started_ns)
            continue;
        trii_free(rank->log);
        rank->log = NULL;
    }
}

/* Whom the rank names, and its line; -1 = nobody. */
static int step(const trii_why_job *job, int rank, trii_worker *worker, const char **why_out)
{
    int named;

    *why_out = "";
    if (rank < job->size && job->ranks[rank].log != NULL) {
        *why_out = job->ranks[rank].log->failure;
        return trii_why_named(job, rank);
    }
    if (worker == NULL || worker->live || !trii_worker_failed(worker))
        return -1;
    named = trii_why_aborter(trii_stream_tail(&worker->err, REPORT_LINES));
    return named != rank ? named : -1;
}

void trii_culprit_find(const char *run_dir, trii_worker *workers, int n_workers,
                       trii_worker *victim, trii_culprit *culprit_out)
{
    int rank = victim->rank, named = -1;
    const char *why;
    trii_why_job job;
    tri_status status = trii_why_read(run_dir, &job);

    (void)status; /* there may be no records */
    memset(culprit_out, 0, sizeof(*culprit_out));
    culprit_out->rank = -1;
    forget_older(&job, workers[0].started_ns);
    for (int i = 0; i < MAX_STEPS; i++) {
        named = step(&job, rank, worker_of(workers, n_workers, rank), &why);
        if (named < 0 || named == victim->rank) /* of two that name each other the first to end */
            break;
        rank = named;
        snprintf(culprit_out->why, sizeof(culprit_out->why), "%s", why);
    }
    if (named < 0 && rank != victim->rank) {
        culprit_out->rank = rank;
        culprit_out->worker = worker_of(workers, n_workers, rank);
    }
    /* Or it did it to others, which is known of it already by what they printed. */
    for (int i = 0; culprit_out->rank < 0 && named < 0 && i < n_workers; i++) {
        if (&workers[i] == victim || step(&job, workers[i].rank, &workers[i], &why) != victim->rank)
            continue;
        culprit_out->rank = victim->rank;
        culprit_out->worker = victim;
        snprintf(culprit_out->why, sizeof(culprit_out->why), "%s", why);
    }
    trii_why_free(&job);
}
