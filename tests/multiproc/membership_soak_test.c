/*
 * membership_soak_test.c - hosts come, go, die and hang at random under seeds, several at once, and
 * workers fail: the job always ends up with those that are there, and nothing is left.
 * TRI_SOAK_CHANGES sets the number of changes (500 take about ten minutes), TRI_SOAK_SEED the seed.
 * Many seeds of the rendezvous alone, in virtual time: tests/sim/sim_rounds_test.c.
 */
/* ctest: labels=full timeout=1800 */
#include <signal.h>

#include "testing/scratch.h"
#include "testing/trirun_job.h"

enum { N_HOSTS = 5, MAX_NODES = 4, MAX_AT_ONCE = 3, CHANGES = 25, SETTLE_S = 30 };

typedef struct host {
    trirun_job job;
    bool there, stopped;
    int killed; /* its worker that was killed: another has to come; or 0 */
} host;

typedef struct report {
    int size, rank, port, pid;
} report;

typedef struct soak {
    int port;
    host hosts[N_HOSTS]; /* 0 serves the store and stays */
    char last[200];      /* what was done */
    uint64_t seed;
} soak;

static void start(soak *s, int i)
{
    static const char script[] =
        "echo size $WORLD_SIZE rank $RANK at $MASTER_PORT pid $$$$; exec sleep 10000";
    char endpoint[60];
    host *h = &s->hosts[i];

    snprintf(endpoint, sizeof(endpoint), "--rdzv-endpoint=127.0.0.1:%d", s->port);
    TRIRUN_START(&h->job, "--rdzv-backend=c10d", "--rdzv-id=soak", endpoint, "--nnodes=1:4",
                 "--rdzv-conf=last_call_timeout=0.4,join_timeout=100,keep_alive_interval=0.3,"
                 "keep_alive_max_attempt=5",
                 "--max-restarts=100000", "sh", "-c", script);
    h->there = true;
    h->stopped = false;
    h->killed = 0;
}

/* The last whole line of its workers; false: there is none. */
static bool last_report(const host *h, report *report_out)
{
    const char *text = SPAWN_OUT(&h->job.run), *end = strrchr(text, '\n'), *line = end;

    if (end == NULL)
        return false;
    while (line > text && line[-1] != '\n')
        line--;
    return sscanf(line, "size %d rank %d at %d pid %d", &report_out->size, &report_out->rank,
                  &report_out->port, &report_out->pid) == 4;
}

/* As many as can be are in one round, each with a rank of its own. */
static bool is_settled(soak *s)
{
    report reports[N_HOSTS] = {0};
    int live = 0, want;

    for (int i = 0; i < N_HOSTS; i++) {
        if (!s->hosts[i].there || s->hosts[i].stopped)
            continue;
        live++;
        if (!last_report(&s->hosts[i], &reports[i]) || reports[i].pid == s->hosts[i].killed)
            reports[i].port = 0;
    }
    want = live < MAX_NODES ? live : MAX_NODES;
    for (int i = 0; i < N_HOSTS; i++) {
        unsigned ranks = 0;

        if (reports[i].port == 0)
            continue;
        for (int k = 0; k < N_HOSTS; k++) {
            if (reports[k].port == reports[i].port && reports[k].size == want)
                ranks |= 1u << reports[k].rank;
        }
        if (ranks == (1u << want) - 1)
            return true;
    }
    return false;
}

static void give_up(soak *s, const char *why)
{
    for (int i = 0; i < N_HOSTS; i++) {
        host *h = &s->hosts[i];
        const char *text[2] = {SPAWN_OUT(&h->job.run), SPAWN_ERR(&h->job.run)};

        if (!h->there)
            continue;
        print_error("--- host %d, pid %d%s%s\n", i, h->job.run.pid, h->stopped ? ", stopped" : "",
                    h->job.run.ended ? ", ended" : "");
        for (int k = 0; k < 2; k++) {
            size_t n = strlen(text[k]), at = n > 2000 ? n - 2000 : 0;

            for (; at < n; at += 500) /* cmocka takes a thousand characters at a time */
                print_error("%.500s", text[k] + at);
        }
    }
    for (int i = 0; i < N_HOSTS; i++) {
        if (s->hosts[i].there)
            spawn_free(&s->hosts[i].job.run);
    }
    fail_msg("%s:%s", why, s->last);
}

static void settle(soak *s)
{
    double end = trirun_seconds() + SETTLE_S;

    while (!is_settled(s)) {
        if (trirun_seconds() > end)
            give_up(s, "the hosts do not settle");
        for (int i = 0; i < N_HOSTS; i++) {
            if (s->hosts[i].there)
                spawn_poll(&s->hosts[i].job.run, 1);
        }
    }
}

static void end(host *h)
{
    spawn_expect_no_process(&h->job.run);
    spawn_free(&h->job.run);
    spawn_remove_folder(h->job.home);
    h->there = false;
}

static void note(soak *s, const char *what, int i)
{
    size_t used = strlen(s->last);

    snprintf(s->last + used, sizeof(s->last) - used, " %s %d", what, i);
}

static void kill_worker(soak *s, int i)
{
    report last;

    if (!last_report(&s->hosts[i], &last))
        return; /* one that waits for a place */
    note(s, "worker", i);
    if (kill(last.pid, SIGKILL) == 0)
        s->hosts[i].killed = last.pid;
}

static void stop(soak *s, int i, int number)
{
    host *h = &s->hosts[i];
    int status;

    spawn_signal(&h->job.run, number);
    status = spawn_wait(&h->job.run);
    /* one that was started a moment ago may not hear signals yet */
    if (number == SIGTERM ? status != 1 && (status != -SIGTERM || h->job.run.used[0] > 0)
                          : status != -number)
        give_up(s, "a wrong exit status");
    end(h);
}

static void change_one(soak *s, int i)
{
    host *h = &s->hosts[i];
    uint32_t how = scratch_random(&s->seed) % 8;

    if (i == 0) {
        kill_worker(s, i);
    } else if (!h->there) {
        note(s, "start", i);
        start(s, i);
    } else if (h->stopped) {
        note(s, how < 4 ? "continue" : "kill stopped", i);
        h->stopped = false;
        if (how < 4)
            spawn_signal(&h->job.run, SIGCONT);
        else
            stop(s, i, SIGKILL);
    } else if (how < 2) {
        note(s, "stop", i);
        h->stopped = true;
        spawn_signal(&h->job.run, SIGSTOP);
    } else if (how < 4) {
        kill_worker(s, i);
    } else {
        note(s, how < 6 ? "terminate" : "kill", i);
        stop(s, i, how < 6 ? SIGTERM : SIGKILL);
    }
}

static void change(soak *s)
{
    uint32_t n = 1 + scratch_random(&s->seed) % MAX_AT_ONCE;
    unsigned done = 0;

    s->last[0] = '\0';
    for (uint32_t k = 0; k < n; k++) {
        int i = (int)(scratch_random(&s->seed) % N_HOSTS);

        if ((done & 1u << i) == 0)
            change_one(s, i);
        done |= 1u << i;
    }
}

static long from_environment(const char *name, long fallback)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : fallback;
}

static void run(long seed)
{
    long n = from_environment("TRI_SOAK_CHANGES", CHANGES);
    double begin = trirun_seconds(), worst = 0;
    soak s = {.port = spawn_free_port(), .seed = (uint64_t)seed};

    start(&s, 0);
    settle(&s);
    for (long i = 0; i < n; i++) {
        double start_s = trirun_seconds(), took;

        change(&s);
        settle(&s);
        took = trirun_seconds() - start_s;
        worst = took > worst ? took : worst;
        if (took > 5)
            print_message("change %ld took %.1f s:%s\n", i, took, s.last);
    }
    print_message("seed %ld: %ld changes in %.1f s, the longest %.1f s\n", seed, n,
                  trirun_seconds() - begin, worst);
    for (int i = N_HOSTS - 1; i >= 0; i--) {
        if (!s.hosts[i].there)
            continue;
        if (s.hosts[i].stopped)
            spawn_signal(&s.hosts[i].job.run, SIGCONT);
        stop(&s, i, SIGTERM);
    }
}

static void membership_changes_at_random(void **state)
{
    (void)state;
    run(from_environment("TRI_SOAK_SEED", 1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(membership_changes_at_random),
};

TEST_MAIN(tests)
