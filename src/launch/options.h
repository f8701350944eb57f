/*
 * options.h - the command line of trirun: torchrun's flags, their PET_* twins in the
 * environment, and a few of ours. One table in options.c; a new flag is a new row.
 */
#ifndef TRII_LAUNCH_OPTIONS_H
#define TRII_LAUNCH_OPTIONS_H

#include <trireme/status.h>

typedef struct trii_launch_options {
    bool help, version; /* asked for: nothing else is set */
    int nproc;          /* workers of this host */
    const char *run_id; /* NULL = make one */
    const char *role;
    const char *master_addr;
    int master_port; /* 0 = any free one */
    int max_restarts;
    int64_t shutdown_timeout_ms; /* between a polite signal and SIGKILL */
    const char *signals;         /* comma list of what is forwarded to the workers */
    bool label_output;
    bool require_key;      /* refuse to start without a job key */
    bool module;           /* `program` is a Python module */
    bool no_python;        /* run `program` as it is, whatever its name */
    const char *program;   /* borrowed from argv */
    char *const *args;     /* what follows it; ends with NULL */
    char master_host[256]; /* where master_addr points into when it came from an endpoint */
} trii_launch_options;

/* argv as main got it; texts stay borrowed from argv and the environment.
 * Errors: INVALID_ARG and UNSUPPORTED (known to torchrun, not here yet), both wrong usage. */
tri_status trii_launch_options_parse(trii_launch_options *options, int argc,
                                     char *const *argv) TRI_MUST_CHECK;
/* The text of --help, from the same table. */
void trii_launch_options_help(FILE *out);

#endif
