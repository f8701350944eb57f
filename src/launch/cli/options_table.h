/*
 * options_table.h - every flag of trirun, one row each: its names, its default, its help.
 */
#ifndef TRII_LAUNCH_OPTIONS_TABLE_H
#define TRII_LAUNCH_OPTIONS_TABLE_H

#include "base/compiler.h"
#include "launch/cli/options.h"

typedef enum trii_option {
    TRII_OPT_NNODES,
    TRII_OPT_NPROC,
    TRII_OPT_STANDALONE,
    TRII_OPT_RDZV_BACKEND,
    TRII_OPT_RDZV_ENDPOINT,
    TRII_OPT_RDZV_ID,
    TRII_OPT_RDZV_CONF,
    TRII_OPT_NODE_RANK,
    TRII_OPT_MASTER_ADDR,
    TRII_OPT_MASTER_PORT,
    TRII_OPT_LOCAL_ADDR,
    TRII_OPT_MAX_RESTARTS,
    TRII_OPT_MONITOR_INTERVAL,
    TRII_OPT_SHUTDOWN_TIMEOUT,
    TRII_OPT_SIGNALS,
    TRII_OPT_MODULE,
    TRII_OPT_NO_PYTHON,
    TRII_OPT_RUN_PATH,
    TRII_OPT_START_METHOD,
    TRII_OPT_ROLE,
    TRII_OPT_NUMA,
    TRII_OPT_VIRTUAL_RANK,
    TRII_OPT_LOG_DIR,
    TRII_OPT_REDIRECTS,
    TRII_OPT_TEE,
    TRII_OPT_RANKS_FILTER,
    TRII_OPT_STDOUT_FILTERS,
    TRII_OPT_STDERR_FILTERS,
    TRII_OPT_LOGS_SPECS,
    TRII_OPT_EVENT_HANDLER,
    /* torch.distributed.launch's, then ours */
    TRII_OPT_USE_ENV,
    TRII_OPT_LAUNCH_COMPAT,
    TRII_OPT_LABEL,
    TRII_OPT_LOG_MAX_BYTES,
    TRII_OPT_HANG_TIMEOUT,
    TRII_OPT_HOST_TIMEOUT,
    TRII_OPT_NOTICE,
    TRII_OPT_EVENTS,
    TRII_OPT_METRICS,
    TRII_OPT_DRY_RUN,
    TRII_OPT_KEEP_SURVIVORS,
    TRII_OPT_REQUIRE_KEY,
    TRII_OPT_HELP,
    TRII_OPT_VERSION,
    TRII_OPT_COUNT
} trii_option;

typedef struct trii_option_row {
    const char *name;    /* with - */
    char letter;         /* 0 = none */
    bool is_flag;        /* takes no value */
    bool no_environment; /* has no PET_ twin */
    bool ours;           /* torchrun has none: its beginnings give way to torchrun's names */
    const char *fallback;
    const char *value; /* its name in --help */
    const char *help;
} trii_option_row;

/* What was given, before it has a meaning. */
typedef struct trii_option_values {
    const char *text[TRII_OPT_COUNT]; /* NULL = not given */
    char twin[TRII_OPT_COUNT][40];    /* name of the variable it came from; "" = command line */
    int exit_status;                  /* of trirun when it is wrong */
} trii_option_values;

extern const trii_option_row trii_option_rows[TRII_OPT_COUNT];

/* What was given, or the default. */
static inline const char *trii_option_text(const trii_option_values *values, trii_option i)
{
    return values->text[i] != NULL ? values->text[i] : trii_option_rows[i].fallback;
}

/* Fills all of options but program and args. Errors: INVALID_ARG, values->exit_status is set. */
tri_status trii_option_values_read(trii_option_values *values,
                                   trii_launch_options *options) TRI_MUST_CHECK;

#endif
