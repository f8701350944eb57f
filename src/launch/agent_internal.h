/*
 * agent_internal.h - the agent's state, shared by the files that make it up: agent.c (life of the
 * job), attempt.c (one start of the workers), shutdown.c (how an attempt ends), signals.c (what the
 * user says), preemption.c (this host will be taken away), job_store.c (the workers' store),
 * agent_hosts.c (other hosts).
 */
#ifndef TRII_LAUNCH_AGENT_INTERNAL_H
#define TRII_LAUNCH_AGENT_INTERNAL_H

#include "launch/agent.h"
#include "launch/worker/binding.h"
#include "launch/worker/early_exit.h"
#include "launch/worker/environment.h"
#include "launch/report/failure_report.h"
#include "launch/guard.h"
#include "launch/agent_state.h"
#include "launch/report/monitor.h"
#include "launch/run_folder.h"
#include "launch/worker/worker.h"
#include "launch/worker/worker_command.h"
#include "launch/worker/worker_output.h"
#include "os/loop.h"
#include "store/tcp_server.h"

/* A line of trirun's own: format and arguments. */
#define TRII_SAY(agent, ...) trii_sink_print((agent)->outputs.err_sink, "trirun: " __VA_ARGS__)

/* What ended the job, where neither a worker's exit status nor a signal of the user says it. */
typedef enum trii_verdict {
    TRII_VERDICT_NONE,
    TRII_VERDICT_HUNG,       /* no rank made progress (--hang-timeout), and the job was stopped */
    TRII_VERDICT_UNKILLABLE, /* a process outlasted SIGKILL: no attempt may follow */
    TRII_VERDICT_SURVIVED,   /* --keep-survivors: workers failed, and the others succeeded */
    TRII_VERDICT_ELSEWHERE   /* the job failed on another host, or was ended there */
} trii_verdict;

/* This host will be preempted: workers are notified once, also those that install a handler
 * later. */
typedef struct trii_preemption {
    bool enabled; /* the signal means this; --signals-to-handle may give it another meaning */
    trii_timer again;
    int64_t deadline_ns; /* TRII_NO_DEADLINE = not known */
    int64_t until_ns;    /* so long workers without a handler are tried again */
} trii_preemption;

typedef struct trii_agent trii_agent;
typedef struct trii_agent_hosts trii_agent_hosts;

/* What an attempt and a pre-emption notice report to the code above them (agent_hosts.c). All are
 * called from the loop and do not block. */
typedef struct trii_agent_callbacks {
    /* Ranks, sizes and the master's address of the round that begins. */
    void (*describe_round)(const trii_agent *agent, trii_launch_job *job);
    /* agent->cause has failed just now, and not as a victim of another rank; the other workers
     * still run. */
    void (*worker_failed)(trii_agent *agent);
    /* The job hangs (--hang-timeout); this host's workers are about to be stopped. */
    void (*job_hung)(trii_agent *agent);
    /* This host's workers made progress at own_ns. Returns when those of any host did last. */
    int64_t (*progressed)(trii_agent *agent, int64_t own_ns);
    /* This host will be preempted; left_ms: -1 = not known when. */
    void (*host_preempted)(trii_agent *agent, int64_t left_ms);
} trii_agent_callbacks;

struct trii_agent {
    const trii_launch_options *options;
    trii_loop *loop;
    trii_run_folder folder;
    trii_cgroup cgroup; /* of the workers; none where that is not allowed */
    trii_guard guard;
    const trii_launch_command *command;
    char run_id[TRII_RUN_ID_BYTES];
    trii_outputs outputs;
    trii_monitor monitor;
    trii_binding binding; /* --numa-binding; no groups = none */
    trii_watch signals;
    trii_timer grace, guard_start;
    trii_preemption preemption;
    trii_agent_state state;
    int stop_signal;                       /* the user's signal that ends the job, or 0 */
    bool second_signal;                    /* it came again: nothing is waited for */
    bool workers_waited;                   /* in a call, when the user's signal came */
    bool warned_open;                      /* that a store is open to the network */
    trii_verdict verdict;                  /* the first one */
    bool has_started;                      /* an attempt, with several hosts */
    int restarts;                          /* attempts that failed and were followed by another */
    trii_agent_hosts *hosts;               /* NULL: a job of one host */
    const trii_agent_callbacks *callbacks; /* NULL as `hosts` is */

    /* of the attempt */
    trii_memory_kills kills; /* when it started */
    trii_tcp_server *store;
    trii_early_exit *early;
    trii_worker *cause;   /* the worker that failed first, or NULL */
    trii_failure failure; /* its `workers` is NULL until the attempt has been judged */
    trii_worker *workers;
    int n_workers, n_live;
    trii_process *live; /* room for n_workers */
};

/* --- attempt.c ------------------------------------------------------------ */
/* Opens the store and starts all workers. Errors: one of them cannot be; those that run are still
 * there. */
tri_status trii_attempt_start(trii_agent *a) TRI_MUST_CHECK;
/* Decides which worker failed first, a->cause (not NULL), once nothing of the attempt runs. */
const trii_failure *trii_attempt_find_cause(trii_agent *a);
/* --keep-survivors: a worker failed, and another one succeeded after the last that did. */
bool trii_attempt_has_survivors(const trii_agent *a);
/* The first failure was that nobody reads stdout any more, as in `trirun ... | head`: no worker is
 * to blame, and none would do better. */
bool trii_attempt_lost_its_reader(const trii_agent *a);
/* Prints which worker failed first and why; `more` says that another attempt follows. */
void trii_attempt_report(trii_agent *a, bool more);
/* Closes its streams without a report: what happened is reported elsewhere. */
void trii_attempt_close_streams(trii_agent *a);
/* Closes what the attempt holds; may come twice. */
void trii_attempt_dispose(trii_agent *a);

/* --- shutdown.c ----------------------------------------------------------- */
/* Sends the signal to all live workers and begins to wait for their end. */
void trii_shutdown_begin(trii_agent *a, int number);
/* The next state, if this one has nothing left to wait for. */
void trii_shutdown_advance(trii_agent *a);
/* What the grace is for has not happened; also what a second signal of the user asks for. */
void trii_shutdown_grace_over(trii_timer *timer);
/* Takes the status of what was left to us by processes that ended. */
void trii_shutdown_reap(trii_agent *a);

/* --- signals.c ------------------------------------------------------------ */
tri_status trii_agent_signals_open(trii_agent *a) TRI_MUST_CHECK;
void trii_agent_signals_close(trii_agent *a);

/* --- preemption.c --------------------------------------------------------- */
/* The signal came; value_ms: in how long, 0 = it does not say. */
void trii_preemption_received(trii_agent *a, int value_ms);
/* Another host's agent has such a notice. left_ms: -1 = not known when. */
void trii_preemption_of_host(trii_agent *a, const char *host, int64_t pid, int64_t left_ms);
void trii_preemption_stop(trii_agent *a);

/* --- job_store.c ---------------------------------------------------------- */
/* A store without any key, for one attempt: keys of an earlier one are never read. */
tri_status trii_job_store_open(trii_agent *a, const char *host, int port) TRI_MUST_CHECK;
void trii_job_store_close(trii_agent *a);
/* Says once that stores of this agent are open to the network: its own, and the agents' store at
 * that port, 0 = none. */
void trii_job_store_warn(trii_agent *a, int agents_port);
/* INVALID_ARG: a job key is required, and there is none. */
tri_status trii_job_key_check(const trii_agent *a, bool set) TRI_MUST_CHECK;

#endif
