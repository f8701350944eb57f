/*
 * why.c - `trireme why`: why a job hangs or ended, from its flight records.
 */
#include <string.h>

#include "base/utf8.h"
#include "command.h"
#include "launch/inspect/jobs.h"
#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/folder.h"
#include "tool_json.h"

enum { MAX_LINES = 10 };

/* --- which job ------------------------------------------------------------ */

/* The newest that is in trouble, else the newest. */
static int choose(const char *parent, char *const *names, int n)
{
    int chosen = -1;

    for (int i = 0; i < n && chosen < 0; i++) {
        char path[600];
        trii_why_job job;

        snprintf(path, sizeof(path), "%s/%s", parent, names[i]);
        if (trii_why_read(path, &job) == TRI_OK && trii_why_find(&job) == TRI_OK &&
            trii_why_in_trouble(&job))
            chosen = i;
        trii_why_free(&job);
    }
    return chosen >= 0 ? chosen : 0;
}

/* Of a job that runs and has no flight records. */
static void say_it_has_not_begun(const char *name)
{
    fprintf(stderr,
            "trireme why: job %s runs, and has no flight records: none of its ranks here has "
            "called tri_init yet, or its program does not use Trireme (trireme ps)\n",
            name);
}

static int no_such_job(const char *parent, const char *given)
{
    char own[TRII_JOBS_FOLDER_BYTES], path[600];
    char **names = NULL;
    int n;

    snprintf(path, sizeof(path), "%s/%s", parent, given);
    if (trii_folder_is_private(path) && trii_jobs_is_live(path)) {
        say_it_has_not_begun(given);
        return COMMAND_FAILED;
    }
    n = trii_jobs_list(own, &names);

    fprintf(stderr, "trireme why: no job %s with flight records below %s", given, parent);
    for (int i = 0; i < n && i < MAX_LINES; i++)
        fprintf(stderr, "%s%s", i == 0 ? "; there are: " : ", ", names[i]);
    fputs(n > MAX_LINES ? " and more (trireme why --jobs)\n"
          : n == 0      ? ", nor any other\n"
                        : "\n",
          stderr);
    trii_folder_free_names(names, n);
    return COMMAND_FAILED;
}

/* *others_out: how many other jobs there are, if we chose; *newest_out: whether we took the
 * newest. */
static int find_folder(const char *given, char *path, size_t bytes, int *others_out,
                       bool *newest_out)
{
    const char *now = getenv("TRI_RUN_DIR");
    char parent[TRII_JOBS_FOLDER_BYTES];
    char **names = NULL;
    int n;

    *others_out = 0;
    if (given != NULL && strchr(given, '/') == NULL && !trii_jobs_has_records(given)) {
        trii_jobs_folder(parent);
        snprintf(path, bytes, "%s/%s", parent, given); /* the name of a job */
        return trii_jobs_has_records(path) ? COMMAND_OK : no_such_job(parent, given);
    }
    if (given != NULL || (now != NULL && *now != '\0')) {
        snprintf(path, bytes, "%s", given != NULL ? given : now);
        return COMMAND_OK;
    }
    trii_jobs_folder(parent);
    n = trii_jobs_by_age(parent, &names);
    for (int i = 0; i < n; i++) { /* before the dead are looked at */
        snprintf(path, bytes, "%s/%s", parent, names[i]);
        if (!trii_jobs_has_records(path) && trii_jobs_is_live(path))
            say_it_has_not_begun(names[i]);
    }
    trii_folder_free_names(names, n);
    n = trii_jobs_list(parent, &names);
    if (n > 0) {
        int chosen = choose(parent, names, n);

        snprintf(path, bytes, "%s/%s", parent, names[chosen]);
        *newest_out = chosen == 0;
        *others_out = n - 1;
        trii_folder_free_names(names, n);
        return COMMAND_OK;
    }
    trii_folder_free_names(names, n);
    fprintf(
        stderr,
        "trireme why: there is no job with flight records below %s: trirun keeps those of jobs\n"
        "that run and of the last failed ones; for another job name its TRI_RUN_DIR\n",
        parent);
    return COMMAND_FAILED;
}

/* --- words ---------------------------------------------------------------- */

static const char *const state_names[] = {[TRII_WHY_ABSENT] = "without a record",
                                          [TRII_WHY_RUNNING] = "running",
                                          [TRII_WHY_STOPPED] = "stopped",
                                          [TRII_WHY_DEAD] = "dead",
                                          [TRII_WHY_LEFT] = "left"};

/* The record of the rank that came first; NULL if there is none. */
static const trii_record_file *first_log(const trii_why_job *job)
{
    const trii_record_file *first = NULL;

    for (int r = 0; r < job->size; r++) {
        const trii_record_file *log = job->ranks[r].log;

        if (log != NULL && (first == NULL || log->wall_ns < first->wall_ns))
            first = log;
    }
    return first;
}

/* "started 5 min ago" */
static void age_text(int64_t wall_ns, char *text, size_t size)
{
    int64_t s = (trii_wall_ns() - wall_ns) / TRII_NS_PER_S;

    if (s < 0)
        snprintf(text, size, "started in the future");
    else if (s < 120)
        snprintf(text, size, "started %d s ago", (int)s);
    else if (s < 120 * 60)
        snprintf(text, size, "started %d min ago", (int)(s / 60));
    else if (s < 48 * 3600)
        snprintf(text, size, "started %d h ago", (int)(s / 3600));
    else
        snprintf(text, size, "started %d days ago", (int)(s / 86400));
}

/* "4 ranks on HOST, PROGRAM, started 5 min ago: 3 running, 1 stopped". */
static void print_head(const trii_why_job *job)
{
    const trii_record_file *first = first_log(job);
    bool one_host = true;
    int count[5] = {0};
    const char *comma = "";
    char age[40];

    for (int r = 0; r < job->size; r++) {
        const trii_why_rank *rank = &job->ranks[r];

        count[rank->state]++;
        one_host = one_host && (rank->log == NULL || strcmp(first->host, rank->log->host) == 0);
    }
    printf("%d rank%s on %s", job->size, job->size == 1 ? "" : "s",
           one_host && first != NULL ? first->host : "several hosts");
    if (first != NULL) {
        age_text(first->wall_ns, age, sizeof(age));
        printf(", %s, %s", first->program, age);
    }
    putchar(':');
    for (int i = 1; i <= TRII_WHY_LEFT + 1; i++) {
        int s = i % (TRII_WHY_LEFT + 1); /* those without a record last */

        if (count[s] == 0)
            continue;
        printf("%s %d %s", comma, count[s], state_names[s]);
        comma = ",";
    }
    printf(" (%s)\n", job->folder);
}

static const char nothing[] = "no rank waits for another: each is in its own code or has left";

static void print_text(const trii_why_job *job, int others, bool newest)
{
    /* The head is a line too, and so is what says that there are more, of either kind. */
    int room = MAX_LINES - 1 - (others > 0);
    int shown = job->n_findings <= room ? job->n_findings : room - 1;

    print_head(job);
    for (int i = 0; i < shown; i++)
        printf("%s\n", job->findings[i].text);
    if (job->n_findings == 0)
        printf("%s\n", nothing);
    if (shown < job->n_findings)
        printf("and %d more: --json shows all\n", job->n_findings - shown);
    if (others > 0)
        printf("this is the newest of %d jobs%s; `trireme why --jobs` lists them, and `trireme why "
               "JOB` takes one\n",
               others + 1, newest ? "" : " that is in trouble");
}

static json_t *ranks_json(const int *ranks, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ranks[i]));
    return list;
}

static json_t *call_json(const trii_why_job *job, const trii_why_rank *rank,
                         const trii_record *record)
{
    const trii_record_group *group = trii_why_group_of(rank->log, record->group);
    trii_collective call = trii_why_call_of(rank->log, record);
    double seconds = trii_why_seconds(job, rank, record->began_ns);
    char text[256];

    trii_collective_describe(&call, text, sizeof(text));
    return json_pack("{s:s, s:s?, s:s, s:I, s:I, s:s?, s:i, s:s, s:o}", "text", text, "group",
                     group != NULL ? group->name : NULL, "kind", trii_kind_name(call.kind),
                     "number", (json_int_t)call.seq, "count", (json_int_t)call.count, "file",
                     call.site.file, "line", call.site.line, "state",
                     record->state == TRII_RECORD_RUNNING ? "running"
                     : record->state == TRII_RECORD_DONE  ? "done"
                                                          : "failed",
                     "seconds", seconds >= 0.0 ? json_real(seconds) : json_null());
}

static json_t *rank_json(const trii_why_job *job, int r)
{
    const trii_why_rank *rank = &job->ranks[r];
    json_t *object =
        json_pack("{s:i, s:s}", "rank", r, "state",
                  rank->state == TRII_WHY_ABSENT ? "absent" : state_names[rank->state]);
    const trii_record *in, *last;

    if (rank->log == NULL)
        return object;
    json_object_set_new(object, "pid", json_integer(rank->pid));
    json_object_set_new(object, "host", json_string(rank->log->host));
    in = trii_why_last(rank->log, true);
    last = trii_why_last(rank->log, false);
    json_object_set_new(object, "in", in != NULL ? call_json(job, rank, in) : json_null());
    json_object_set_new(object, "last", last != NULL ? call_json(job, rank, last) : json_null());
    json_object_set_new(object, "calls", json_integer((json_int_t)trii_why_calls(rank->log)));
    if (rank->log->failed != 0)
        json_object_set_new(object, "failure", json_string(rank->log->failure));
    return object;
}

static int print_json(const trii_why_job *job)
{
    json_t *ranks = json_array(), *findings = json_array();
    const trii_record_file *first = first_log(job);
    json_t *all;
    char folder[sizeof(job->folder)];
    int failed;

    memcpy(folder, job->folder, sizeof(folder));
    trii_utf8_repair(folder);
    all = json_pack("{s:s, s:s?, s:I, s:s, s:o, s:o}", "folder", folder, "program",
                    first != NULL ? first->program : NULL, "begun",
                    (json_int_t)(first != NULL ? first->wall_ns / TRII_NS_PER_S : 0), "verdict",
                    job->n_findings > 0 ? job->findings[0].text : nothing, "findings", findings,
                    "ranks", ranks);

    for (int i = 0; i < job->n_findings; i++) {
        const trii_why_finding *f = &job->findings[i];

        json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:o, s:o}", "kind", f->kind,
                                                  "text", f->text, "group", f->group, "waiting",
                                                  ranks_json(f->waiting, f->n_waiting), "for",
                                                  ranks_json(f->for_whom, f->n_for_whom)));
    }
    for (int r = 0; r < job->size; r++)
        json_array_append_new(ranks, rank_json(job, r));
    failed = json_dumpf(all, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(all);
    return failed == 0 ? COMMAND_OK : COMMAND_FAILED;
}

static int print_jobs(void)
{
    char parent[256], path[600];
    char **names = NULL;
    int n = trii_jobs_list(parent, &names);

    for (int i = 0; i < n; i++) {
        trii_why_job job;

        snprintf(path, sizeof(path), "%s/%s", parent, names[i]);
        if (trii_why_read(path, &job) == TRI_OK)
            print_head(&job);
        else
            printf("%s\n", tri_last_error()); /* of another version, or just taken away */
        trii_why_free(&job);
    }
    if (n == 0)
        printf("no job with flight records below %s\n", parent);
    trii_folder_free_names(names, n);
    return COMMAND_OK;
}

static int run(int argc, char **argv)
{
    const char *given = NULL;
    char folder[512] = "";
    bool json = false;
    trii_why_job job;
    tri_status status;
    int result, others;
    bool newest = true;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--jobs") == 0 && argc == 2)
            return print_jobs();
        else if (argv[i][0] == '-')
            return command_unknown(argv[0], "unknown option", argv[i],
                                   (const char *const[]){"--jobs", "--json", NULL});
        else if (given != NULL)
            return command_usage(argv[0], "one job at a time: %s and %s", given, argv[i]);
        else
            given = argv[i];
    }
    result = find_folder(given, folder, sizeof(folder), &others, &newest);
    if (result != COMMAND_OK)
        return result;
    status = trii_why_read(folder, &job);
    if (status == TRI_OK)
        status = trii_why_find(&job);
    if (status != TRI_OK) {
        fprintf(stderr, "trireme why: %s\n", tri_last_error());
        trii_why_free(&job);
        return COMMAND_FAILED;
    }
    if (json)
        result = print_json(&job);
    else
        print_text(&job, others, newest);
    trii_why_free(&job);
    return result;
}

const command command_why = {
    .name = "why",
    .summary = "why a job hangs or failed: which rank waits for which, in which call",
    .help = "usage: trireme why [JOB] [--json]\n"
            "       trireme why --jobs\n\n"
            "Reads the flight records of a job and says, in at most ten lines and the\n"
            "likeliest cause first: which rank is dead or stopped, which calls do not\n"
            "match, who waits for whom in which call of which source line. JOB is a run\n"
            "folder, or its name below ${XDG_RUNTIME_DIR:-/tmp}/trireme-UID; default: this\n"
            "user's newest that hangs or failed, else the newest. The job may run, hang or\n"
            "be over: trirun keeps the records of the last failed ones. Each rank writes\n"
            "its record on its own host: look there.\n\n"
            "  --jobs   one line per job of this user that has records, the newest first:\n"
            "           program, age\n"
            "  --json   everything, for programs: verdict, findings, state and last call\n"
            "           of each rank\n\n"
            "Examples:\n"
            "  trireme why\n"
            "  trireme why /tmp/trireme-1000/20260214-120000-4711 --json\n",
    .run = run,
};
