/*
 * why_read.c - reads the flight records of a job. Each is copied completely before it is examined,
 * since its writer may still be running, and nothing in it is trusted.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/host.h"
#include "os/read_whole.h"

enum { MAX_RANKS = 65536, MAX_FILES = 2 * MAX_RANKS };

/* As many arguments as fit, and no more: "..." replaces the last whole characters. */
static void mark_cut(char *text, size_t bytes)
{
    size_t at = bytes - 4;

    if (text[bytes - 2] == '\0')
        return;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    memcpy(text + at, "...", 4);
}

/* It ends, and is UTF-8: it may have been cut, and users name what they like. */
static void mend_text(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    trii_utf8_repair(text);
}

/* Makes texts sound, and sees that numbers are in range. */
static bool sound(trii_record_file *log, size_t bytes)
{
    if (bytes != sizeof(*log) || memcmp(log->magic, TRII_RECORD_MAGIC, sizeof(log->magic)) != 0)
        return false;
    if (log->n_records != TRII_RECORDS || log->rank < 0 || log->rank >= MAX_RANKS ||
        log->size < 1 || log->size > MAX_RANKS)
        return false;
    mark_cut(log->program, sizeof(log->program));
    mend_text(log->program, sizeof(log->program));
    mend_text(log->host, sizeof(log->host));
    mend_text(log->failure, sizeof(log->failure));
    for (int i = 0; i < TRII_RECORD_GROUPS; i++) {
        trii_record_group *g = &log->groups[i];

        mend_text(g->name, sizeof(g->name));
        mend_text(g->engine, sizeof(g->engine));
        if (g->size < 1 || g->size > MAX_RANKS || g->rank < 0 || g->rank >= g->size)
            g->number = 0;
    }
    for (int i = 0; i < TRII_RECORDS; i++) {
        if (log->records[i].kind == TRII_KIND_NONE || log->records[i].kind >= TRII_KIND_COUNT)
            log->records[i].number = 0;
    }
    for (int i = 0; i < TRII_RECORD_FILES; i++)
        mend_text(log->files[i], sizeof(log->files[i]));
    return true;
}

static tri_status room_for(trii_why_job *job, int size)
{
    trii_why_rank *ranks;

    if (size <= job->size)
        return TRI_OK;
    ranks = trii_realloc(job->ranks, (size_t)size, sizeof(*ranks), "ranks");
    if (ranks == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(ranks + job->size, 0, sizeof(*ranks) * (size_t)(size - job->size));
    job->ranks = ranks;
    job->size = size;
    return TRI_OK;
}

/* Of two programs that were one rank in the job's folder, as a worker and one that it started,
 * which is the job's: that of the larger group, else that which lives, else the later one. */
static bool is_better(const trii_why_rank *have, const trii_record_file *log, bool lives)
{
    bool had_lives = have->state == TRII_WHY_RUNNING || have->state == TRII_WHY_STOPPED;

    if (log->size != have->log->size)
        return log->size > have->log->size;
    return lives != had_lives ? lives : log->wall_ns > have->log->wall_ns;
}

/* Takes the copy. */
static tri_status take(trii_why_job *job, const char *path, trii_record_file *own_log)
{
    trii_why_rank *rank;
    trii_liveness liveness;
    int pid = 0;
    int largest = own_log->rank + 1 > own_log->size ? own_log->rank + 1 : own_log->size;
    tri_status status = room_for(job, largest);

    if (status != TRI_OK) {
        trii_free(own_log);
        return status;
    }
    rank = &job->ranks[own_log->rank];
    liveness = trii_liveness_look(path, &pid);
    if (rank->log != NULL && !is_better(rank, own_log, liveness != TRII_LIVENESS_GONE)) {
        trii_free(own_log);
        return TRI_OK;
    }
    trii_free(rank->log);
    rank->log = own_log;
    rank->same_boot = own_log->boot == trii_boot_number();
    switch (liveness) {
    case TRII_LIVENESS_RUNS:
        rank->state = TRII_WHY_RUNNING;
        break;
    case TRII_LIVENESS_STOPPED:
        rank->state = TRII_WHY_STOPPED;
        break;
    case TRII_LIVENESS_GONE:
        rank->state = TRII_WHY_DEAD;
        break;
    }
    if (own_log->state == TRII_RECORD_FILE_LEFT)
        rank->state = TRII_WHY_LEFT;
    rank->pid = pid != 0 ? pid : own_log->pid;
    return TRI_OK;
}

static tri_status read_one(trii_why_job *job, const char *name)
{
    char path[1024];
    trii_mapping mapping = {0};
    trii_record_file *log;
    tri_status status;

    snprintf(path, sizeof(path), "%s/%s", job->folder, name);
    status = trii_mapping_open(path, &mapping);
    if (status != TRI_OK)
        return status;
    log = trii_alloc(1, sizeof(*log), "flight record");
    if (log == NULL) {
        trii_mapping_close(&mapping);
        return TRI_ERR_NO_MEMORY;
    }
    if (mapping.bytes == sizeof(*log))
        memcpy((void *)log, mapping.data, sizeof(*log));
    if (!sound(log, mapping.bytes)) {
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s: is not a flight record of this version (%zu bytes)",
                           path, mapping.bytes);
        trii_free(log);
    } else {
        status = take(job, path, log);
    }
    trii_mapping_close(&mapping);
    return status;
}

/* A note of trirun, "NUMBER WORDS\n". TRI_END: there is none, as of a job that still runs, or that
 * trirun did not start. */
static tri_status read_note(const trii_why_job *job, const char *name, int64_t end_of_range,
                            int64_t *number_out, char *words_out, size_t bytes)
{
    char path[1024], text[160], *end;

    snprintf(path, sizeof(path), "%s/%s", job->folder, name);
    if (trii_read_whole(path, text, sizeof(text)) == 0)
        return TRI_END;
    *number_out = strtoll(text, &end, 10);
    if (end == text || *end != ' ' || *number_out < 0 || *number_out >= end_of_range)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: is not what trirun writes", path);
    end[1 + strcspn(end + 1, "\n")] = '\0';
    snprintf(words_out, bytes, "%s", end + 1);
    trii_utf8_repair(words_out);
    return TRI_OK;
}

/* What trirun noted of the first failure. */
static tri_status read_cause(trii_why_job *job)
{
    int64_t rank;
    tri_status status =
        read_note(job, "cause", MAX_RANKS, &rank, job->cause_words, sizeof(job->cause_words));

    if (status != TRI_OK)
        return status > 0 ? TRI_OK : status;
    job->cause = (int)rank;
    return room_for(job, job->cause + 1);
}

/* To the moment when the job ended by trirun: what the ranks did since comes of it. They lose each
 * other one by one, and a call that waited then may have failed before its own rank ended. */
static void wind_back(trii_record_file *log, int64_t stopped_ns)
{
    for (int i = 0; i < TRII_RECORDS; i++) {
        trii_record *record = &log->records[i];

        if (record->began_ns > stopped_ns)
            record->number = 0;
        else if (record->state == TRII_RECORD_FAILED && record->status == TRI_ERR_PEER_LOST)
            record->state = TRII_RECORD_RUNNING;
    }
    if (log->failed == TRI_ERR_PEER_LOST)
        log->failed = 0;
}

static tri_status read_stop(trii_why_job *job)
{
    tri_status status = read_note(job, "stopped", INT64_MAX, &job->stopped_ns, job->stopped_words,
                                  sizeof(job->stopped_words));

    for (int r = 0; r < job->size && status == TRI_OK; r++) {
        if (job->ranks[r].log != NULL)
            wind_back(job->ranks[r].log, job->stopped_ns);
    }
    return status > 0 ? TRI_OK : status;
}

int trii_why_rank_of(const char *name)
{
    int rank, end = 0, end_of_pid = 0;

    if (sscanf(name, "rank-%d%n.%*d%n", &rank, &end, &end_of_pid) < 1 ||
        strcmp(name + (end_of_pid > 0 ? end_of_pid : end), ".rec") != 0)
        return -1;
    return rank;
}

tri_status trii_why_read(const char *folder, trii_why_job *job_out)
{
    char **names = NULL;
    int n = 0, found = 0;
    tri_status status;

    memset(job_out, 0, sizeof(*job_out));
    snprintf(job_out->folder, sizeof(job_out->folder), "%s", folder);
    job_out->now_ns = trii_now_ns();
    job_out->cause = -1;
    status = trii_folder_list(folder, MAX_FILES, &names, &n);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (trii_why_rank_of(names[i]) < 0)
            continue;
        status = read_one(job_out, names[i]);
        if (status == TRI_ERR_NOT_FOUND) /* trirun has just taken it away, to start again */
            status = TRI_OK;
        else
            found++;
    }
    trii_folder_free_names(names, n);
    if (status == TRI_OK)
        status = read_cause(job_out);
    if (status == TRI_OK && job_out->cause < 0)
        status = read_stop(job_out);
    if (status == TRI_OK && found == 0)
        status =
            TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: there are no flight records (rank-N.rec)", folder);
    return status;
}

void trii_why_free(trii_why_job *job)
{
    for (int r = 0; r < job->size; r++)
        trii_free(job->ranks[r].log);
    for (int i = 0; i < job->n_findings; i++) {
        trii_free(job->findings[i].waiting);
        trii_free(job->findings[i].for_whom);
    }
    trii_free(job->ranks);
    trii_free(job->findings);
}

/* --- records -------------------------------------------------------------- */

const trii_record_group *trii_why_group_of(const trii_record_file *log, uint32_t number)
{
    for (int i = 0; number != 0 && i < TRII_RECORD_GROUPS; i++) {
        if (log->groups[i].number == number)
            return &log->groups[i];
    }
    return NULL;
}

trii_collective trii_why_call_of(const trii_record_file *log, const trii_record *record)
{
    trii_collective call = {.kind = (trii_kind)record->kind,
                            .dtype = (tri_dtype)record->dtype,
                            .op = (tri_redop)record->op,
                            .root = record->root,
                            .tag = record->tag,
                            .count = (size_t)record->count,
                            .seq = record->seq};

    if (record->file < TRII_RECORD_FILES) {
        call.site.file = log->files[record->file];
        call.site.line = record->line;
    }
    return call;
}

void trii_why_describe(const trii_record_file *log, const trii_record *record, char *text,
                       size_t size)
{
    trii_collective call = trii_why_call_of(log, record);

    trii_collective_describe(&call, text, size);
}

const trii_record *trii_why_last(const trii_record_file *log, bool running)
{
    const trii_record *last = NULL;

    for (int i = 0; i < TRII_RECORDS; i++) {
        const trii_record *record = &log->records[i];

        if (record->number == 0 || (running && record->state != TRII_RECORD_RUNNING))
            continue;
        if (last == NULL || record->number > last->number)
            last = record;
    }
    return last;
}

double trii_why_seconds(const trii_why_job *job, const trii_why_rank *rank, int64_t began_ns)
{
    if (job->stopped_ns > 0)
        return (double)(job->stopped_ns - began_ns) / (double)TRII_NS_PER_S;
    if (!rank->same_boot || (rank->state != TRII_WHY_RUNNING && rank->state != TRII_WHY_STOPPED) ||
        job->now_ns < began_ns)
        return -1.0;
    return (double)(job->now_ns - began_ns) / (double)TRII_NS_PER_S;
}

bool trii_why_has_joined(const trii_record_file *log)
{
    bool met = false;

    for (int i = 0; i < TRII_RECORD_GROUPS; i++) {
        if (log->groups[i].number != 0 && log->groups[i].id != TRII_RECORD_MEETING)
            return true;
        met = met || log->groups[i].number != 0;
    }
    return !met;
}

uint64_t trii_why_calls(const trii_record_file *log)
{
    return log->begun > log->passed ? log->begun - log->passed : 0;
}
