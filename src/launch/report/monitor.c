/*
 * monitor.c - see monitor.h. Called by agent.c, attempt.c, agent_hosts.c, preemption.c and
 * signals.c as things happen; calls events.c, job_metrics.c and hang.c.
 */
#include "launch/report/monitor.h"

#include <stdio.h>
#include <string.h>

#include "launch/output/escape.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/host.h"
#include "os/signal.h"

/* A job that is over sooner is not worth the work. */
#define JOB_FILE_DELAY_MS 20

static void ignore_progress(void *arg)
{
    (void)arg; /* when there is something to write, the loop looks how far it got */
}

static void print_warning(void *arg, const char *text)
{
    const trii_monitor *m = arg;

    trii_sink_print(m->of.sink, "trirun: %s\n", text);
}

tri_status trii_monitor_open(trii_monitor *monitor, const trii_monitor_setup *setup)
{
    const trii_launch_options *options = setup->options;
    char program[512];
    tri_status status;

    memset(monitor, 0, sizeof(*monitor));
    monitor->of = *setup;
    monitor->facts = (trii_job_facts){.run_id = setup->run_id,
                                      .run_dir = setup->run_dir,
                                      .max_restarts = options->max_restarts,
                                      .started_wall_ns = trii_wall_ns()};
    status = trii_background_create(setup->loop, ignore_progress, print_warning, monitor,
                                    &monitor->event_files);
    if (status == TRI_OK)
        status = trii_events_open(&monitor->events, monitor->event_files, options->events,
                                  setup->run_id);
    if (status != TRI_OK)
        return status;
    status = trii_metrics_open(&monitor->metrics, setup->loop, setup->files, options->metrics,
                               &monitor->facts);
    if (status == TRI_OK && monitor->metrics.port_is_ours)
        trii_sink_print(monitor->of.sink, "trirun: --metrics %s: the figures are at %s\n",
                        options->metrics, monitor->metrics.url);
    trii_events_put(&monitor->events, "job_started", "\"agent_pid\": %d, \"program\": %s",
                    trii_process_id(), trii_json_quote(options->program, program, sizeof(program)));
    return status;
}

/* Its address may come from the agents' store: anything. */
static const char *quote_master(const trii_launch_job *job, char *out, size_t bytes)
{
    char text[320];

    snprintf(text, sizeof(text), "%.300s:%d", job->master_addr, job->master_port);
    return trii_json_quote(text, out, bytes);
}

static void print_round(const trii_monitor *m, FILE *file)
{
    char master[400];

    fprintf(file, "\"group_rank\": %d, \"group_size\": %d, \"world_size\": %d, \"master\": %s, ",
            m->job.group_rank, m->job.group_size, m->job.world_size,
            quote_master(&m->job, master, sizeof(master)));
}

/* RUN_DIR/job.json, for `trireme ps`: replaced as a whole, gone with the folder. */
static void write_job_file(const trii_monitor *m)
{
    char path[600], temporary[620], text[1024];
    FILE *file;

    snprintf(path, sizeof(path), "%s/job.json", m->facts.run_dir);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    file = fopen(temporary, "w");
    if (file == NULL)
        return;
    fprintf(file, "{\"run_id\": %s, ", trii_json_quote(m->facts.run_id, text, sizeof(text)));
    fprintf(file, "\"agent_pid\": %d, \"program\": %s, \"started\": %.3f, ", trii_process_id(),
            trii_json_quote(m->of.options->program, text, sizeof(text)),
            (double)m->facts.started_wall_ns / TRII_NS_PER_S);
    if (m->waits[0] != '\0')
        fprintf(file, "\"waits\": %s, ", trii_json_quote(m->waits, text, sizeof(text)));
    else
        print_round(m, file);
    if (m->metrics.url[0] != '\0')
        fprintf(file, "\"metrics\": %s, ", trii_json_quote(m->metrics.url, text, sizeof(text)));
    fprintf(file, "\"restarts\": %d, \"max_restarts\": %d, \"workers\": [", m->facts.restarts,
            m->facts.max_restarts);
    for (int i = 0; i < m->facts.n_workers && m->waits[0] == '\0'; i++)
        fprintf(file, "%s{\"rank\": %d, \"pid\": %d}", i == 0 ? "" : ", ", m->facts.workers[i].rank,
                m->facts.workers[i].process.pid);
    fputs("]}\n", file);
    if (fclose(file) != 0 || trii_path_rename(temporary, path) != TRI_OK)
        trii_sink_print(m->of.sink, "trirun: cannot write %s\n", path);
}

static void job_file_due(trii_timer *timer)
{
    write_job_file(TRII_CONTAINER(timer, trii_monitor, job_file));
}

void trii_monitor_waits(trii_monitor *m, const char *what)
{
    if (strcmp(m->waits, what) == 0)
        return;
    snprintf(m->waits, sizeof(m->waits), "%s", what);
    write_job_file(m);
}

void trii_monitor_hung(trii_monitor *m, const char *why)
{
    trii_sink_print(m->of.sink, "trirun: %s\n", why);
    trii_hang_report(&m->hang, m->of.sink);
    trii_events_put(&m->events, "hang", "\"seconds\": %g",
                    (double)m->of.options->hang_timeout_ms / 1000);
    m->of.hung(m->of.agent);
}

static void job_hung(trii_hang *hang)
{
    trii_monitor *m = TRII_CONTAINER(hang, trii_monitor, hang);
    char why[120];

    snprintf(why, sizeof(why), "the job hangs: for %g s no rank began a call and none printed",
             (double)m->of.options->hang_timeout_ms / 1000);
    trii_monitor_hung(m, why);
}

static int64_t last_progress(trii_hang *hang, int64_t own_ns)
{
    const trii_monitor *m = TRII_CONTAINER(hang, trii_monitor, hang);

    return m->of.last_progress(m->of.agent, own_ns);
}

void trii_monitor_started(trii_monitor *m, const trii_launch_job *job, trii_worker *workers)
{
    char master[400];

    m->job = *job;
    m->waits[0] = '\0';
    m->facts.workers = workers;
    m->facts.n_workers = job->local_size;
    m->facts.restarts = job->restart_count;
    trii_events_put(&m->events, "attempt_started",
                    "\"attempt\": %d, \"world_size\": %d, \"group_rank\": %d, \"group_size\": %d, "
                    "\"master\": %s",
                    job->restart_count, job->world_size, job->group_rank, job->group_size,
                    quote_master(job, master, sizeof(master)));
    for (int i = 0; i < job->local_size; i++)
        trii_events_put(&m->events, "worker_started",
                        "\"attempt\": %d, \"rank\": %d, \"local_rank\": %d, \"pid\": %d",
                        job->restart_count, workers[i].rank, i, workers[i].process.pid);
    trii_loop_timer(m->of.loop, &m->job_file, trii_deadline_ms(JOB_FILE_DELAY_MS), job_file_due);
    m->hang = (trii_hang){.facts = &m->facts, .last_progress = last_progress, .hung = job_hung};
    trii_hang_start(&m->hang, m->of.loop, m->of.options->hang_timeout_ms);
    trii_metrics_refresh(&m->metrics);
}

void trii_monitor_worker_ended(trii_monitor *m, const trii_worker *worker)
{
    char what[80];

    trii_worker_describe(worker, what, sizeof(what));
    trii_events_put(&m->events, "worker_ended",
                    "\"attempt\": %d, \"rank\": %d, \"pid\": %d, \"code\": %d, \"signal\": %d, "
                    "\"stopped_by_us\": %s, \"text\": \"%s\"",
                    m->facts.restarts, worker->rank, worker->process.pid, worker->exit.code,
                    worker->exit.signal, worker->signalled ? "true" : "false", what);
}

void trii_monitor_signal(trii_monitor *m, int number)
{
    trii_hang_stop(&m->hang);
    trii_events_put(&m->events, "signal", "\"signal\": \"%s\"", trii_signal_name(number));
}

void trii_monitor_preemption(trii_monitor *m, const char *host, int64_t left_ms, int notified)
{
    char own[256], name[300], seconds[32] = "null", workers[32] = "null";

    if (host == NULL)
        trii_host_name(own, sizeof(own));
    if (left_ms >= 0)
        snprintf(seconds, sizeof(seconds), "%.3f", (double)left_ms / 1000);
    if (notified >= 0)
        snprintf(workers, sizeof(workers), "%d", notified);
    trii_events_put(&m->events, "notice", "\"host\": %s, \"seconds\": %s, \"workers_told\": %s",
                    trii_json_quote(host != NULL ? host : own, name, sizeof(name)), seconds,
                    workers);
}

void trii_monitor_ended(trii_monitor *m, const trii_worker *cause, bool more)
{
    trii_hang_stop(&m->hang);
    trii_loop_timer_stop(m->of.loop, &m->job_file);
    if (cause != NULL) {
        m->facts.failures++;
        trii_events_put(&m->events, "failure", "\"attempt\": %d, \"rank\": %d, \"pid\": %d",
                        m->facts.restarts, cause->rank, cause->process.pid);
    }
    trii_events_put(&m->events, "attempt_ended", "\"attempt\": %d, \"restart\": %s",
                    m->facts.restarts, more ? "true" : "false");
    trii_metrics_refresh(&m->metrics);
}

void trii_monitor_close(trii_monitor *m, int exit_status)
{
    if (m->event_files == NULL) /* never opened */
        return;
    trii_hang_stop(&m->hang);
    trii_loop_timer_stop(m->of.loop, &m->job_file);
    trii_events_put(&m->events, "job_ended", "\"exit_status\": %d", exit_status);
    trii_metrics_close(&m->metrics);
    trii_events_close(&m->events);
}

void trii_monitor_destroy(trii_monitor *m)
{
    trii_background_destroy(m->event_files);
    m->event_files = NULL;
}
