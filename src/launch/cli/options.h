/*
 * options.h - the command line of trirun: torchrun's flags, their PET_* twins in the
 * environment, and a few more. A new flag is a new row in options_table.c.
 */
#ifndef TRII_LAUNCH_OPTIONS_H
#define TRII_LAUNCH_OPTIONS_H

#include <trireme/status.h>

#define TRII_ETCD_PORT 2379 /* of etcd, where the endpoint names none */
#define TRII_RUN_ID_BYTES 256

enum { TRII_LAUNCH_USAGE = 2, TRII_LAUNCH_FAILED = 1 };

/* Which streams of which workers: -r and -t. */
typedef struct trii_std_spec {
    uint8_t all;         /* of every worker: bit 0 stdout, bit 1 stderr */
    uint8_t of_rank[10]; /* of single ones instead */
} trii_std_spec;

/* Kinds of rendezvous: how hosts find each other (launch/rendezvous/rdzv_handler.h). */
typedef enum trii_rdzv_kind {
    TRII_RDZV_STATIC, /* --node-rank gives each host its rank */
    TRII_RDZV_C10D,   /* they agree by a TCP store */
    TRII_RDZV_ETCD    /* ... by etcd */
} trii_rdzv_kind;

typedef struct trii_launch_options {
    int exit_status;    /* of trirun when parsing failed, as torchrun's: 2 or 1 */
    bool help, version; /* asked for: nothing else is set */

    const char *nproc_per_node, *nnodes; /* as they were given */
    int nproc;                           /* workers of this host */
    int min_nodes, max_nodes;
    int node_rank;             /* static only */
    bool standalone;           /* asked for, or torchrun's rule for one host without addresses */
    const char *rdzv_backend;  /* "static", "c10d", "etcd", "etcd-v2" or "etcd-v3" */
    trii_rdzv_kind rdzv;       /* what that means */
    const char *rdzv_endpoint; /* as it was given; "" */
    char rdzv_host[256];       /* of the endpoint, else of the master; "" = none */
    int rdzv_port;             /* of the endpoint, else of the master; -1 = none given */
    const char *rdzv_conf;     /* "k=v,k=v": trii_rdzv_conf */
    const char *run_id;        /* NULL = make one: never with several hosts */
    const char *local_addr;    /* NULL = none */
    const char *master_addr;   /* static: where the store listens */
    int master_port;           /* ...; 0 = any free one */
    int max_restarts;
    int64_t shutdown_timeout_ms; /* between a polite signal and SIGKILL */
    int64_t hang_timeout_ms;     /* 0 = a job may take its time */
    int64_t host_timeout_ms;     /* an agent that is silent for so long is lost */
    int64_t notice_ms;           /* from SIGUSR1 to the preemption of this host; 0 = not known */
    const char *signals;         /* comma list of what is forwarded to the workers */

    const char *role;
    const char *logs_specs;   /* NULL = none */
    const char *numa_binding; /* NULL = none */
    const char *log_dir;      /* NULL = none */
    trii_std_spec redirects, tee;
    const char *local_ranks_filter;              /* comma list; NULL = all */
    const char *stdout_filters, *stderr_filters; /* comma lists, ",," is a comma; NULL = none */
    const char *line_prefix; /* TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; NULL = torchrun's */
    int64_t log_max_bytes;   /* 0 = files grow as they like */
    bool label_output;
    const char *events;  /* path; NULL = none */
    const char *metrics; /* path or address; NULL = none */

    bool dry_run;
    bool keep_survivors;     /* the failure of a worker does not end the others */
    bool require_key;        /* refuse to start without a job key */
    bool launch_compat;      /* --local-rank=N is the program's first argument */
    bool use_env;            /* ... but not with this */
    bool virtual_local_rank; /* LOCAL_RANK is 0 and each worker sees one GPU */
    bool module;             /* `program` is a Python module */
    bool no_python;          /* run `program` as it is, whatever its name */
    bool run_path;           /* run `program` through Python's runpy */
    const char *program;     /* borrowed from argv */
    char *const *args;       /* what follows it; ends with NULL */
    char *const *misplaced; /* the first of args that looks like an option of trirun; NULL = none */
} trii_launch_options;

/* argv as main got it; texts stay borrowed from argv and the environment; options_out is not
 * moved afterwards. Errors: INVALID_ARG, with exit_status set. */
tri_status trii_launch_options_parse(trii_launch_options *options_out, int argc,
                                     char *const *argv) TRI_MUST_CHECK;
/* Warns of an option of trirun after the program, and of options that have no effect. */
void trii_launch_options_warn(const trii_launch_options *options, FILE *out);
/* The text of --help, from the table. */
void trii_launch_options_help(FILE *out);

/* The value of `key` in --rdzv-conf, without blanks around it; false: not there, or longer than
 * bytes - 1, and nothing is written. */
bool trii_rdzv_conf(const trii_launch_options *options, const char *key, char *value_out,
                    size_t bytes);
/* Where agents of several hosts meet if the endpoint or --master-port does not say. */
int trii_rdzv_default_port(const trii_launch_options *options);
/* Bits of local_rank's streams: 1 stdout, 2 stderr. */
unsigned trii_std_of(const trii_std_spec *spec, int local_rank);
/* Whether `number` is in the comma list (NULL: every number is). */
bool trii_number_in_list(const char *list, int number);

#endif
