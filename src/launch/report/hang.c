/*
 * hang.c - see hang.h. monitor.c starts it with --hang-timeout and prints its report; job_metrics.c
 * takes the calls of each rank from here, signals.c whether ranks were waiting when a signal came.
 */
#include "launch/report/hang.h"

#include <stdio.h>
#include <string.h>

#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/proc.h"

enum { MAX_FINDINGS = 8, CHECKS = 4, MAX_FILES = 1 << 14 };

static uint64_t calls_of(const char *run_dir, const char *name)
{
    char path[600];
    trii_mapping file;
    const trii_record_file *log;
    uint64_t begun = 0;

    snprintf(path, sizeof(path), "%s/%s", run_dir, name);
    if (trii_mapping_open(path, &file) != TRI_OK)
        return 0;
    log = file.data;
    if (file.bytes == sizeof(*log) &&
        memcmp(log->magic, TRII_RECORD_MAGIC, sizeof(log->magic)) == 0)
        begun = trii_why_calls(log);
    trii_mapping_close(&file);
    return begun;
}

uint64_t trii_rank_calls(const char *run_dir, int rank)
{
    char **names = NULL;
    uint64_t sum = 0;
    int n = 0;

    if (trii_folder_list(run_dir, MAX_FILES, &names, &n) != TRI_OK)
        return 0;
    for (int i = 0; i < n; i++) {
        int its = trii_why_rank_of(names[i]);

        if (its >= 0 && (rank < 0 || its == rank))
            sum += calls_of(run_dir, names[i]);
    }
    trii_folder_free_names(names, n);
    return sum;
}

static uint64_t measure_progress(trii_hang *hang)
{
    uint64_t sum = trii_rank_calls(hang->facts->run_dir, -1);

    for (int i = 0; i < hang->facts->n_workers; i++) {
        trii_worker *w = &hang->facts->workers[i];

        sum += trii_stream_progress(&w->out) + trii_stream_progress(&w->err) + !w->live;
    }
    return sum;
}

static void check_progress(trii_timer *timer)
{
    trii_hang *hang = TRII_CONTAINER(timer, trii_hang, timer);
    int64_t now_ns = trii_now_ns();
    uint64_t progress = measure_progress(hang);

    if (progress != hang->progress) {
        hang->progress = progress;
        hang->since_ns = now_ns;
    }
    if (now_ns - hang->last_progress(hang, hang->since_ns) >= hang->limit_ns) {
        hang->hung(hang);
        return;
    }
    trii_loop_timer(hang->loop, timer, now_ns + hang->limit_ns / CHECKS, check_progress);
}

void trii_hang_start(trii_hang *hang, trii_loop *loop, int64_t limit_ms)
{
    if (limit_ms == 0)
        return;
    hang->loop = loop;
    hang->limit_ns = limit_ms * TRII_NS_PER_MS;
    hang->since_ns = trii_now_ns();
    (void)hang->last_progress(hang, hang->since_ns);
    trii_loop_timer(loop, &hang->timer, hang->since_ns + hang->limit_ns / CHECKS, check_progress);
}

void trii_hang_stop(trii_hang *hang)
{
    if (hang->loop != NULL)
        trii_loop_timer_stop(hang->loop, &hang->timer);
    hang->loop = NULL;
}

/* "sleeping in futex_wait" of the process, as the kernel has it. */
static void describe_process(int pid, char *text, size_t bytes)
{
    static const char *const states[] = {
        "R running", "S sleeping",           "D in an uninterruptible call",
        "T stopped", "t held by a debugger", "Z ended"};
    const char *state = "in an unknown state";
    char name[16], channel[64], letter = trii_proc_state(pid);

    snprintf(name, sizeof(name), "%d", pid);
    (void)trii_proc_read(name, "wchan", channel, sizeof(channel));
    for (size_t i = 0; i < TRII_COUNT_OF(states); i++) {
        if (states[i][0] == letter)
            state = states[i] + 2;
    }
    if (strcmp(channel, "0") == 0)
        channel[0] = '\0';
    snprintf(text, bytes, "%s%s%s", state, channel[0] != '\0' ? " in " : "", channel);
}

/* What the flight records say; false: nothing. Release with trii_why_free in either case. */
static bool find(const char *run_dir, trii_why_job *job)
{
    tri_status status = trii_why_read(run_dir, job);

    if (status == TRI_OK)
        status = trii_why_find(job);
    return status == TRI_OK && job->n_findings > 0;
}

bool trii_hang_is_waiting(const char *run_dir)
{
    trii_why_job job;
    bool waiting = find(run_dir, &job) && trii_why_in_trouble(&job);

    trii_why_free(&job);
    return waiting;
}

void trii_hang_report(const trii_hang *hang, trii_sink *sink)
{
    trii_why_job job;
    bool known = find(hang->facts->run_dir, &job);
    int shown = 0;

    for (int i = 0; known && i < job.n_findings && i < MAX_FINDINGS; i++)
        trii_sink_print(sink, "  %s\n", job.findings[i].text);
    trii_why_free(&job);
    for (int i = 0; i < hang->facts->n_workers && shown < MAX_FINDINGS; i++) {
        const trii_worker *w = &hang->facts->workers[i];
        char text[160];

        if (!w->live) {
            if (!trii_worker_failed(w))
                trii_sink_print(sink, "  rank %d left with status 0 %.1f s ago\n", w->rank,
                                (double)(trii_now_ns() - w->ended_ns) / TRII_NS_PER_S);
            continue;
        }
        if (known && trii_rank_calls(hang->facts->run_dir, w->rank) > 0)
            continue;
        describe_process(w->process.pid, text, sizeof(text));
        trii_sink_print(sink, "  rank %d (pid %d) is %s\n", w->rank, w->process.pid, text);
        shown++;
    }
}
