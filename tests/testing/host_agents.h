/*
 * host_agents.h - trirun's agents on the hosts of hosts.h, with workers that say when they run.
 * Where a system gives no namespaces they are on addresses of the loopback interface. Tests only.
 */
#ifndef TEST_HOST_AGENTS_H
#define TEST_HOST_AGENTS_H

#include <signal.h>

#include <trireme/comm.h>

#include "testing/hosts.h"
#include "testing/trirun_job.h"

/* Wanted are HOST_SILENCE and a second more (bench/host_loss.sh); a machine that is loaded gets
 * more. */
#define HOST_SILENCE "2"
enum { HOST_NOTICED_MS = 8000, HOST_AGAIN_MS = 12000 };

typedef struct host_agent {
    trirun_job job;
    int host;
} host_agent;

typedef struct host_job {
    const char *program; /* of the test: its workers are itself */
    bool spread;         /* over hosts; else addresses of loopback */
    const char *backend, *endpoint;
    const char *nnodes, *conf;
    const char *node_rank; /* of all; NULL = each its own */
    const char *nproc;     /* NULL = 1 */
    const char *silence;   /* --host-timeout; NULL = its default */
    const char *work;      /* "rest" or "calls": see host_worker */
    char own_endpoint[64];
} host_job;

static inline double host_now_ms(void)
{
    return trirun_seconds() * 1e3;
}

/* Hosts with an address in one network, 10.77.0.HOST; the switch is 10.77.0.254. The first host
 * serves the store. */
static inline void host_job_begin(host_job *j, const char *program, int n_hosts)
{
    memset(j, 0, sizeof(*j));
    j->program = program;
    j->backend = "c10d";
    j->nnodes = "1:3";
    j->conf = "last_call_timeout=0.2,join_timeout=20";
    j->work = "rest";
    j->silence = HOST_SILENCE;
    j->endpoint = j->own_endpoint;
    j->spread = hosts_begin(n_hosts);
    if (j->spread)
        hosts_ip(0, "addr add 10.77.0.254/24 dev switch");
    snprintf(j->own_endpoint, sizeof(j->own_endpoint), "%s:%d",
             j->spread ? "10.77.0.1" : "127.0.0.1", j->spread ? 29400 : spawn_free_port());
    for (int host = 1; j->spread && host <= n_hosts; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
    }
}

static inline void host_job_end(const host_job *j)
{
    if (j->spread)
        hosts_end();
}

static inline void host_agent_start(host_agent *a, const host_job *j, int host)
{
    static const char *const nothing[] = {NULL};
    char local[24], text[3][64];
    const char *args[28] = {text[0],     text[1],       text[2], "--rdzv-endpoint",
                            j->endpoint, "--rdzv-conf", j->conf};
    const char *head[12] = {"setpriv", "--pdeathsig", "KILL"};
    int n = 7, n_head = 3;

    a->host = host;
    snprintf(text[0], sizeof(text[0]), "--rdzv-backend=%s", j->backend);
    snprintf(text[1], sizeof(text[1]), "--nnodes=%s", j->nnodes);
    snprintf(text[2], sizeof(text[2]), "--rdzv-id=j");
    if (strcmp(j->backend, "static") == 0) {
        if (j->node_rank != NULL)
            snprintf(text[2], sizeof(text[2]), "--node-rank=%s", j->node_rank);
        else
            snprintf(text[2], sizeof(text[2]), "--node-rank=%d", host - 1);
    }
    if (j->nproc != NULL) {
        args[n++] = "--nproc-per-node";
        args[n++] = j->nproc;
    }
    if (j->silence != NULL) {
        args[n++] = "--host-timeout";
        args[n++] = j->silence;
    }
    if (!j->spread) {
        snprintf(local, sizeof(local), "127.0.0.%d", host);
        args[n++] = "--local-addr";
        args[n++] = local;
    }
    args[n++] = j->program;
    args[n++] = "worker";
    args[n++] = j->work;
    args[n] = NULL;
    /* it ends with the test, whatever ends that */
    for (const char *const *word = j->spread ? hosts_prefix(host) : nothing; *word != NULL; word++)
        head[n_head++] = *word;
    trirun_start_behind(&a->job, head, args, "TRI_ENGINE");
}

/* The host's agent and workers end at once; without a word to anybody if it loses power. */
static inline void host_agent_kill(host_agent *a, const host_job *j, bool power)
{
    if (j->spread && power)
        hosts_cut(a->host);
    if (j->spread)
        hosts_signal(a->host, SIGKILL);
    else
        spawn_signal(&a->job.run, SIGKILL);
}

/* How often `text` is in what its workers printed. */
static inline int host_agent_count(const host_agent *a, const char *text)
{
    return trirun_count(SPAWN_OUT(&a->job.run), text);
}

/* What was printed before is forgotten. */
static inline void host_agent_forget(host_agent *a)
{
    a->job.run.used[0] = a->job.run.used[1] = 0;
    a->job.run.text[0][0] = a->job.run.text[1][0] = '\0';
}

/* When the workers of a world of that size had their first sum. */
static inline double host_agent_runs(host_agent *a, int size)
{
    const char *line;
    char text[32];
    double at = 0;

    snprintf(text, sizeof(text), "ms: %d of", size);
    spawn_expect(&a->job.run, text);
    line = strstr(SPAWN_OUT(&a->job.run), text);
    assert_non_null(line);
    while (line > SPAWN_OUT(&a->job.run) && line[-1] != '\n')
        line--;
    assert_int_equal(sscanf(line, "%lf", &at), 1);
    return at;
}

/* The first comes up alone, then the second and third join: all know the store by then. */
static inline void host_agents_start(host_agent *agents, const host_job *j, int n)
{
    for (int i = 0; i < n; i++) {
        host_agent_start(&agents[i], j, i + 1);
        for (int k = 0; k <= i; k++)
            (void)host_agent_runs(&agents[k], i + 1);
    }
    for (int i = 0; i < n; i++)
        host_agent_forget(&agents[i]);
}

/* Ends by the user's signal, and leaves nothing but the run folder, if workers waited or failed. */
static inline void host_agent_stop(host_agent *a)
{
    spawn_signal(&a->job.run, SIGTERM);
    assert_int_equal(spawn_wait(&a->job.run), 1);
    trirun_end(&a->job, strstr(SPAWN_ERR(&a->job.run), "see for whom: trireme why") != NULL ||
                            strstr(SPAWN_ERR(&a->job.run), "kept     : ") != NULL);
}

/* All end, one after the other, and nothing else had happened to them. */
static inline void host_agents_stop(host_agent *agents, int n)
{
    for (int i = 0; i < n; i++) {
        spawn_read(&agents[i].job.run, 1);
        if (SPAWN_OUT(&agents[i].job.run)[0] != '\0' ||
            strstr(SPAWN_ERR(&agents[i].job.run), "trirun:") != NULL)
            fail_msg("host %d: %s%s", agents[i].host, SPAWN_OUT(&agents[i].job.run),
                     SPAWN_ERR(&agents[i].job.run));
    }
    for (int i = n - 1; i >= 0; i--)
        host_agent_stop(&agents[i]);
}

/* One that was killed. */
static inline void host_agent_bury(host_agent *a)
{
    assert_int_equal(spawn_wait(&a->job.run), -SIGKILL);
    trirun_end(&a->job, 1);
}

/* What the test program does as a worker: says "MS ms: SIZE of RANK" after a first sum of all
 * ranks; rest: then waits. calls: sums of a megabyte until one fails. */
static inline int host_worker(const char *work)
{
    enum { N = 1 << 18 };
    tri_init_options options = {.group = {.timeout_ms = 20000}};
    tri_status status = tri_init(&options);
    float *x = calloc(N, sizeof(*x)), one = 1;

    if (status == TRI_OK)
        status = tri_all_reduce(NULL, &one, &one, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_OK)
        printf("%.3f ms: %g of rank %d\n", host_now_ms(), (double)one, tri_rank());
    else
        fprintf(stderr, "worker: %s\n", tri_last_error());
    fflush(stdout);
    while (status == TRI_OK && strcmp(work, "calls") == 0)
        status = tri_all_reduce(NULL, x, x, N, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    while (status == TRI_OK)
        pause();
    fprintf(stderr, "worker: %s\n", tri_last_error());
    free(x);
    return 3;
}

#endif
