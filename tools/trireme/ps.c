/*
 * ps.c - `trireme ps`: the jobs of this user on this host, and what each rank does.
 *
 * Which ranks run is taken from trirun's job file and the kernel; what a rank does from its flight
 * record, so only programs of Trireme show calls and rates.
 */
#include <string.h>
#include <time.h>

#include "command.h"
#include "launch/inspect/jobs.h"
#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/folder.h"
#include "os/proc.h"
#include "tool_json.h"

enum { TEXT_BYTES = 256 };

typedef struct ps_job {
    char folder[512];
    const char *name; /* the last part of folder */
    bool live;
    json_t *file; /* job.json; NULL = not there yet */
    bool has_records;
    trii_why_job seen; /* if has_records */
} ps_job;

/* --- reading -------------------------------------------------------------- */

static void read_job(ps_job *job, const char *parent, const char *name)
{
    char path[600];

    memset(job, 0, sizeof(*job));
    snprintf(job->folder, sizeof(job->folder), "%s/%s", parent, name);
    job->name = strrchr(job->folder, '/') + 1;
    job->live = trii_jobs_is_live(job->folder);
    snprintf(path, sizeof(path), "%s/job.json", job->folder);
    job->file = json_load_file(path, 0, NULL);
    job->has_records =
        trii_jobs_has_records(job->folder) && trii_why_read(job->folder, &job->seen) == TRI_OK;
}

static void free_job(ps_job *job)
{
    json_decref(job->file);
    if (job->has_records)
        trii_why_free(&job->seen);
}

static double number_in(const ps_job *job, const char *key)
{
    return json_number_value(json_object_get(job->file, key));
}

static const char *text_in(const ps_job *job, const char *key)
{
    const char *text = json_string_value(json_object_get(job->file, key));

    return text != NULL ? text : "?";
}

/* --- what a rank does ----------------------------------------------------- */

/* How often per second the newest call was repeated from the same line, which for a training loop
 * is its steps; 0 if it is long ago. */
static double step_rate(const trii_why_job *job, const trii_why_rank *rank)
{
    const trii_record *last = trii_why_last(rank->log, false);
    int64_t first_ns, last_ns;
    int n = 0;
    double period, since;

    if (last == NULL)
        return 0;
    first_ns = last_ns = last->began_ns;
    for (int i = 0; i < TRII_RECORDS; i++) {
        const trii_record *r = &rank->log->records[i];

        if (r->number == 0 || r->kind != last->kind || r->file != last->file ||
            r->line != last->line || r->count != last->count || r->group != last->group)
            continue;
        first_ns = r->began_ns < first_ns ? r->began_ns : first_ns;
        last_ns = r->began_ns > last_ns ? r->began_ns : last_ns;
        n++;
    }
    if (n < 2 || last_ns == first_ns)
        return 0;
    period = (double)(last_ns - first_ns) / TRII_NS_PER_S / (n - 1);
    since = trii_why_seconds(job, rank, last->began_ns);
    return since > 10 * period + 1.0 ? 0 : 1 / period;
}

static const char *kernel_state(int pid)
{
    static const char *const names[] = {"Rrunning", "Ssleeping", "Dblocked", "Tstopped",
                                        "tstopped", "Zended",    "Xended"};
    char state = trii_proc_state(pid);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i][0] == state)
            return names[i] + 1;
    }
    return "unknown";
}

/* The record of a rank, or NULL. */
static const trii_why_rank *record_of(const ps_job *job, int rank)
{
    if (!job->has_records || rank < 0 || rank >= job->seen.size)
        return NULL;
    return job->seen.ranks[rank].log != NULL ? &job->seen.ranks[rank] : NULL;
}

static json_t *rank_json(const ps_job *job, int rank, int pid)
{
    const trii_why_rank *record = record_of(job, rank);
    json_t *object = json_pack("{s:i, s:i, s:s}", "rank", rank, "pid", pid, "state",
                               job->live ? kernel_state(pid) : "ended");
    const trii_record *in, *last;
    char text[TEXT_BYTES];

    if (record == NULL)
        return object;
    if (record->state == TRII_WHY_LEFT)
        json_object_set_new(object, "state", json_string("left"));
    in = trii_why_last(record->log, true);
    last = in != NULL ? in : trii_why_last(record->log, false);
    json_object_set_new(object, "calls", json_integer((json_int_t)trii_why_calls(record->log)));
    json_object_set_new(object, "steps_per_s",
                        json_real(job->live ? step_rate(&job->seen, record) : 0));
    if (last != NULL) {
        double seconds = trii_why_seconds(&job->seen, record, last->began_ns);

        trii_why_describe(record->log, last, text, sizeof(text));
        json_object_set_new(object, in != NULL ? "in" : "last", json_string(text));
        json_object_set_new(object, "seconds", seconds >= 0 ? json_real(seconds) : json_null());
    } else if (!trii_why_has_joined(record->log)) {
        json_object_set_new(object, "in", json_string("tri_init"));
    }
    return object;
}

/* What the agent waits for, instead of running workers; NULL = it does not. */
static const char *waits_for(const ps_job *job)
{
    return job->live ? json_string_value(json_object_get(job->file, "waits")) : NULL;
}

static const char *state_of(const ps_job *job)
{
    if (!job->live)
        return "failed";
    return waits_for(job) != NULL ? "waiting" : job->file == NULL ? "starting" : "running";
}

static json_t *job_json(const ps_job *job)
{
    json_t *ranks = json_array(), *worker, *object;
    size_t i;

    object = json_pack("{s:s, s:s, s:s, s:O*, s:o}", "job", job->name, "folder", job->folder,
                       "state", state_of(job), "trirun", job->file, "ranks", ranks);
    json_array_foreach(json_object_get(job->file, "workers"), i, worker)
    {
        int rank, pid;

        if (json_unpack(worker, "{s:i, s:i}", "rank", &rank, "pid", &pid) == 0)
            json_array_append_new(ranks, rank_json(job, rank, pid));
    }
    return object;
}

/* --- words ---------------------------------------------------------------- */

static void print_rank(const json_t *rank)
{
    const json_t *rate = json_object_get(rank, "steps_per_s");
    const char *in = json_string_value(json_object_get(rank, "in"));
    const char *last = json_string_value(json_object_get(rank, "last"));
    char steps[24] = "-";

    if (json_real_value(rate) > 0)
        snprintf(steps, sizeof(steps), "%.1f", json_real_value(rate));
    printf("  %5lld %8lld  %-9s %9s  ", json_integer_value(json_object_get(rank, "rank")),
           json_integer_value(json_object_get(rank, "pid")),
           json_string_value(json_object_get(rank, "state")), steps);
    if (in != NULL && json_is_real(json_object_get(rank, "seconds")))
        printf("in %s for %.1f s\n", in, json_real_value(json_object_get(rank, "seconds")));
    else if (in != NULL) /* it has ended, not known when */
        printf("in %s\n", in);
    else
        printf("%s%s\n", last != NULL ? "after " : "", last != NULL ? last : "");
}

static void print_job(const ps_job *job, const json_t *shown)
{
    const json_t *rank;
    size_t i;

    printf("%s  %s", job->name, state_of(job));
    if (job->file != NULL) {
        double seconds = (double)trii_wall_ns() / TRII_NS_PER_S - number_in(job, "started");

        printf("  %s  id %s", text_in(job, "program"), text_in(job, "run_id"));
        if (json_object_get(job->file, "world_size") != NULL)
            printf("  host %d of %d  world %d", (int)number_in(job, "group_rank") + 1,
                   (int)number_in(job, "group_size"), (int)number_in(job, "world_size"));
        if (number_in(job, "max_restarts") > 0)
            printf("  restart %d of %d", (int)number_in(job, "restarts"),
                   (int)number_in(job, "max_restarts"));
        printf(job->live ? "  for %.0f s" : "  started %.0f s ago", seconds);
    }
    putchar('\n');
    if (waits_for(job) != NULL)
        printf("  %s\n", waits_for(job));
    if (job->live && json_object_get(job->file, "metrics") != NULL)
        printf("  figures at %s\n", text_in(job, "metrics"));
    if (json_array_size(json_object_get(shown, "ranks")) > 0)
        printf("  %5s %8s  %-9s %9s  %s\n", "rank", "pid", "state", "steps/s", "call");
    json_array_foreach(json_object_get(shown, "ranks"), i, rank) print_rank(rank);
}

static int run(int argc, char **argv)
{
    bool json = false, all = false;
    char parent[TRII_JOBS_FOLDER_BYTES];
    char **names = NULL;
    int n = 0, n_shown = 0, failed = 0;
    json_t *list;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--all") == 0)
            all = true;
        else
            return command_unknown(argv[0], "unknown option", argv[i],
                                   (const char *const[]){"--all", "--json", NULL});
    }
    list = json_array();
    trii_jobs_folder(parent);
    n = trii_jobs_by_age(parent, &names);
    for (int i = 0; i < n; i++) {
        ps_job job;

        read_job(&job, parent, names[i]);
        if (job.live || all) {
            json_t *shown = job_json(&job);

            if (!json)
                print_job(&job, shown);
            json_array_append_new(list, shown);
            n_shown++;
        }
        free_job(&job);
    }
    trii_folder_free_names(names, n);
    if (json) {
        failed = json_dumpf(list, stdout, JSON_INDENT(1));
        putchar('\n');
    } else if (n_shown == 0) {
        printf("no job of this user runs on this host%s\n",
               n > 0 && !all ? " (--all shows those that failed)" : "");
    }
    json_decref(list);
    return failed == 0 ? COMMAND_OK : COMMAND_FAILED;
}

const command command_ps = {
    .name = "ps",
    .summary = "the jobs that run here: ranks, states, steps per second",
    .help = "usage: trireme ps [--all] [--json]\n\n"
            "Lists the jobs of this user that trirun runs on this host: program, id, hosts,\n"
            "and for each rank its process, its state, the call it is in or made last, and\n"
            "how often per second it comes back to that call. Calls are known of programs\n"
            "of trireme only. Of a job that waits for other hosts it says how many have\n"
            "come, and where they meet.\n\n"
            "  --all    also jobs that failed and whose run folder is kept\n"
            "  --json   for programs: a list of jobs\n\n"
            "Examples:\n"
            "  trireme ps\n"
            "  trireme ps --json | jq '.[].ranks[].steps_per_s'\n",
    .run = run,
};
