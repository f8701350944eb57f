/*
 * options.c - see options.h. Every flag may be spelled with - or _, its value follows after =
 * or as the next argument, and a unique beginning of a name is enough, as with argparse.
 */
#include "launch/options.h"

#include <ctype.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/param.h"
#include "launch/devices.h"

typedef enum option_id {
    OPT_NNODES,
    OPT_NPROC,
    OPT_STANDALONE,
    OPT_MASTER_ADDR,
    OPT_MASTER_PORT,
    OPT_NODE_RANK,
    OPT_RDZV_BACKEND,
    OPT_RDZV_ENDPOINT,
    OPT_RDZV_ID,
    OPT_RDZV_CONF,
    OPT_LOCAL_ADDR,
    OPT_MAX_RESTARTS,
    OPT_MONITOR_INTERVAL,
    OPT_SHUTDOWN_TIMEOUT,
    OPT_SIGNALS,
    OPT_LABEL,
    OPT_LOG_DIR,
    OPT_REDIRECTS,
    OPT_TEE,
    OPT_RANKS_FILTER,
    OPT_STDOUT_FILTERS,
    OPT_STDERR_FILTERS,
    OPT_LOGS_SPECS,
    OPT_ROLE,
    OPT_REQUIRE_KEY,
    OPT_MODULE,
    OPT_NO_PYTHON,
    OPT_RUN_PATH,
    OPT_START_METHOD,
    OPT_EVENT_HANDLER,
    OPT_NUMA,
    OPT_VIRTUAL_RANK,
    OPT_HELP,
    OPT_VERSION,
    OPT_COUNT
} option_id;

typedef struct option_row {
    const char *name;    /* with - */
    char letter;         /* 0 = none */
    bool is_flag;        /* takes no value */
    bool no_environment; /* has no PET_ twin */
    const char *fallback;
    /* Values that work in this version, "a|b"; NULL = all. "" = none: not there yet. */
    const char *only;
    const char *value; /* its name in --help */
    const char *help;
} option_row;

static const option_row rows[OPT_COUNT] = {
    [OPT_NNODES] = {"nnodes", .fallback = "1:1", .only = "1|1:1", .value = "N",
                    .help = "hosts; this version runs on one"},
    [OPT_NPROC] = {"nproc-per-node", .fallback = "1", .value = "N|auto|cpu|gpu",
                   .help = "workers on this host; auto: one per GPU, else per allowed core"},
    [OPT_STANDALONE] = {"standalone", .is_flag = true,
                        .help = "one host, any free port: also the default"},
    [OPT_MASTER_ADDR] = {"master-addr", .fallback = "127.0.0.1", .value = "HOST",
                         .help = "where the store listens"},
    [OPT_MASTER_PORT] = {"master-port", .fallback = "0", .value = "PORT",
                         .help = "of the store; 0: any free one"},
    [OPT_NODE_RANK] = {"node-rank", .fallback = "0", .only = "0", .value = "N",
                       .help = "of this host"},
    [OPT_RDZV_BACKEND] = {"rdzv-backend", .fallback = "static", .only = "static|c10d",
                          .value = "static|c10d", .help = "how hosts meet"},
    [OPT_RDZV_ENDPOINT] = {"rdzv-endpoint", .fallback = "", .value = "HOST[:PORT]",
                           .help = "where hosts meet"},
    [OPT_RDZV_ID] = {"rdzv-id", .fallback = "none", .value = "TEXT", .help = "name of the job"},
    [OPT_RDZV_CONF] = {"rdzv-conf", .fallback = "", .value = "K=V,...",
                       .help = "accepted: only matters for several hosts"},
    [OPT_LOCAL_ADDR] = {"local-addr", .fallback = "", .value = "HOST",
                        .help = "accepted: only matters for several hosts"},
    [OPT_MAX_RESTARTS] = {"max-restarts", .fallback = "0", .only = "0", .value = "N",
                          .help = "how often a failed job starts again; this version: only 0"},
    [OPT_MONITOR_INTERVAL] = {"monitor-interval", .fallback = "0.1", .value = "S",
                              .help = "accepted: failures are seen at once, without polling"},
    [OPT_SHUTDOWN_TIMEOUT] = {"shutdown-timeout", .fallback = "30", .value = "S",
                              .help = "from the polite signal to SIGKILL"},
    [OPT_SIGNALS] = {"signals-to-handle", .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                     .value = "LIST", .help = "signals that are passed on to the workers"},
    [OPT_LABEL] = {"label-output", 'l', .is_flag = true,
                   .help = "put [rank]: before each line of the workers"},
    [OPT_LOG_DIR] = {"log-dir", .fallback = "", .only = "", .value = "DIR",
                     .help = "folder of log files"},
    [OPT_REDIRECTS] = {"redirects", 'r', .fallback = "0", .only = "0", .value = "SPEC",
                       .help = "write output to log files; this version: only 0"},
    [OPT_TEE] = {"tee", 't', .fallback = "0", .only = "0", .value = "SPEC",
                 .help = "also write output to log files; this version: only 0"},
    [OPT_RANKS_FILTER] = {"local-ranks-filter", .fallback = "", .only = "", .value = "LIST",
                          .help = "show only these ranks"},
    [OPT_STDOUT_FILTERS] = {"duplicate-stdout-filters", .fallback = "", .only = "", .value = "LIST",
                            .help = "copy matching lines to a file"},
    [OPT_STDERR_FILTERS] = {"duplicate-stderr-filters", .fallback = "", .only = "", .value = "LIST",
                            .help = "copy matching lines to a file"},
    [OPT_LOGS_SPECS] = {"logs-specs", .no_environment = true, .fallback = "", .only = "",
                        .value = "NAME", .help = "Python entry point"},
    [OPT_ROLE] = {"role", .fallback = "default", .value = "TEXT", .help = "name of the workers"},
    [OPT_REQUIRE_KEY] = {"require-key", .is_flag = true,
                         .help = "refuse to start unless TRI_JOB_KEY_FILE names a job key"},
    [OPT_MODULE] = {"module", 'm', .is_flag = true,
                    .help = "PROGRAM is a Python module, run as python3 -m"},
    [OPT_NO_PYTHON] = {"no-python", .is_flag = true,
                       .help = "run PROGRAM as it is, even if it ends in .py"},
    [OPT_RUN_PATH] = {"run-path", .is_flag = true, .only = "", .help = "run the script by runpy"},
    [OPT_START_METHOD] = {"start-method", .fallback = "spawn", .only = "spawn|fork|forkserver",
                          .value = "NAME", .help = "accepted: only matters for --run-path"},
    [OPT_EVENT_HANDLER] = {"event-log-handler", .fallback = "null", .only = "null", .value = "NAME",
                           .help = "Python entry point"},
    [OPT_NUMA] = {"numa-binding", .no_environment = true, .fallback = "", .only = "",
                  .value = "NAME", .help = "bind workers to nodes of memory"},
    [OPT_VIRTUAL_RANK] = {"virtual-local-rank", .is_flag = true, .only = "",
                          .help = "LOCAL_RANK 0 and one GPU each"},
    [OPT_HELP] = {"help", 'h', .is_flag = true, .no_environment = true, .help = "this text"},
    [OPT_VERSION] = {"version", .is_flag = true, .no_environment = true,
                     .help = "print the version"},
};

typedef struct parse_state {
    const char *value[OPT_COUNT]; /* NULL = not given */
    char twin[OPT_COUNT][40];     /* name of the variable it came from; "" = command line */
} parse_state;

/* --- the command line ----------------------------------------------------------------- */

static bool same_name(const char *given, size_t length, const char *name)
{
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '\0' || (given[i] == '_' ? '-' : given[i]) != name[i])
            return false;
    }
    return true;
}

/* The row that `given` names in full, or the only one that begins with it. */
static tri_status find_long(const char *given, size_t length, int *row_out)
{
    int found = -1;

    for (int i = 0; i < OPT_COUNT; i++) {
        if (!same_name(given, length, rows[i].name))
            continue;
        if (rows[i].name[length] == '\0') {
            *row_out = i;
            return TRI_OK;
        }
        if (found >= 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%.*s could be --%s or --%s", (int)length,
                             given, rows[found].name, rows[i].name);
        found = i;
    }
    if (found < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown option --%.*s", (int)length, given);
    *row_out = found;
    return TRI_OK;
}

static tri_status find_letter(char letter, int *row_out)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        if (rows[i].letter != 0 && rows[i].letter == letter) {
            *row_out = i;
            return TRI_OK;
        }
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown option -%c", letter);
}

/* One option at argv[*at]; moves *at behind it and its value. */
static tri_status parse_one(parse_state *state, char *const *argv, int argc, int *at)
{
    const char *arg = argv[(*at)++];
    const char *value = NULL;
    tri_status status;
    int row;

    if (arg[1] == '-') {
        size_t length = strcspn(arg + 2, "=");

        status = find_long(arg + 2, length, &row);
        value = arg[2 + length] == '=' ? arg + 3 + length : NULL;
    } else {
        status = find_letter(arg[1], &row);
        value = arg[2] == '\0' ? NULL : arg + 2 + (arg[2] == '=');
    }
    if (status != TRI_OK)
        return status;
    if (rows[row].is_flag && value != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%s takes no value", rows[row].name);
    if (rows[row].is_flag) {
        value = "1";
    } else if (value == NULL) {
        if (*at == argc)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%s needs a value: %s", rows[row].name,
                             rows[row].value);
        value = argv[(*at)++];
    }
    state->value[row] = value;
    state->twin[row][0] = '\0';
    return TRI_OK;
}

/* --- the environment ------------------------------------------------------------------ */

static tri_status read_environment(parse_state *state)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        char *name = state->twin[i];
        const char *text;
        int64_t on = 1;

        if (rows[i].no_environment)
            continue;
        snprintf(name, sizeof(state->twin[i]), "PET_%s", rows[i].name);
        for (char *c = name; *c != '\0'; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        text = getenv(name);
        if (text == NULL)
            continue;
        if (rows[i].is_flag) {
            tri_status status = trii_parse_i64(text, name, INT32_MIN, INT32_MAX, &on);

            if (status != TRI_OK)
                return status;
        }
        state->value[i] = on ? text : NULL;
    }
    return TRI_OK;
}

/* --- meaning -------------------------------------------------------------------------- */

static bool in_list(const char *list, const char *text)
{
    size_t length = strlen(text);

    for (; *list != '\0'; list += strcspn(list, "|"), list += *list == '|') {
        if (strcspn(list, "|") == length && memcmp(list, text, length) == 0)
            return true;
    }
    return false;
}

static const char *shown_name(const parse_state *state, int i, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "--%s", rows[i].name);
    return state->twin[i][0] != '\0' ? state->twin[i] : buf;
}

static tri_status check_supported(const parse_state *state)
{
    char name[64];

    for (int i = 0; i < OPT_COUNT; i++) {
        if (state->value[i] == NULL || rows[i].only == NULL)
            continue;
        if (*rows[i].only == '\0' && (rows[i].is_flag || *state->value[i] != '\0'))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s is not there yet in this version of trirun",
                             shown_name(state, i, name, sizeof(name)));
        if (*rows[i].only != '\0' && !in_list(rows[i].only, state->value[i]))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s %s is not there yet in this version of trirun, which takes %s",
                             shown_name(state, i, name, sizeof(name)), state->value[i],
                             rows[i].only);
    }
    return TRI_OK;
}

static const char *value_of(const parse_state *state, int i)
{
    return state->value[i] != NULL ? state->value[i] : rows[i].fallback;
}

static tri_status integer_of(const parse_state *state, int i, int64_t min, int64_t max,
                             int *value_out)
{
    char name[64];
    int64_t value;
    tri_status status = trii_parse_i64(value_of(state, i), shown_name(state, i, name, sizeof(name)),
                                       min, max, &value);

    if (status == TRI_OK)
        *value_out = (int)value;
    return status;
}

static tri_status read_nproc(const parse_state *state, int *nproc_out)
{
    const char *text = value_of(state, OPT_NPROC);
    int n_gpus;

    if (isdigit((unsigned char)*text) || *text == '-')
        return integer_of(state, OPT_NPROC, 1, 4096, nproc_out);
    n_gpus = trii_launch_count_gpus();
    if (strcmp(text, "gpu") == 0 || (strcmp(text, "auto") == 0 && n_gpus > 0)) {
        if (n_gpus == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--nproc-per-node gpu: this host has no GPU");
        *nproc_out = n_gpus;
    } else if (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0) {
        *nproc_out = trii_launch_count_cores();
    } else {
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--nproc-per-node %s: neither a number nor auto, cpu or gpu", text);
    }
    return TRI_OK;
}

/* "host", "host:port", "[v6]" or "[v6]:port". */
static tri_status read_endpoint(trii_launch_options *options, const char *text)
{
    const char *host = text, *port = strrchr(text, ':');
    size_t length = port != NULL ? (size_t)(port - text) : strlen(text);
    int64_t number = 0;
    tri_status status = TRI_OK;

    if (*text == '[') {
        const char *end = strchr(text, ']');

        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-endpoint %s: no HOST:PORT", text);
        host = text + 1;
        length = (size_t)(end - host);
        port = end[1] == ':' ? end + 1 : NULL;
    }
    if (port != NULL)
        status = trii_parse_i64(port + 1, "port of --rdzv-endpoint", 0, 65535, &number);
    if (status != TRI_OK)
        return status;
    if (length == 0 || length >= sizeof(options->master_host))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-endpoint %s: no HOST:PORT", text);
    memcpy(options->master_host, host, length);
    options->master_host[length] = '\0';
    options->master_addr = options->master_host;
    options->master_port = (int)number;
    return TRI_OK;
}

static tri_status read_seconds(const parse_state *state, int i, int64_t *ms_out)
{
    const char *text = value_of(state, i);
    char *end, name[64];
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0 && seconds <= 1e6))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is no number of seconds",
                         shown_name(state, i, name, sizeof(name)), text);
    *ms_out = (int64_t)(seconds * 1000);
    return TRI_OK;
}

static tri_status read_addresses(trii_launch_options *options, const parse_state *state)
{
    const char *endpoint = value_of(state, OPT_RDZV_ENDPOINT);
    bool is_static = strcmp(value_of(state, OPT_RDZV_BACKEND), "static") == 0;

    options->master_addr = rows[OPT_MASTER_ADDR].fallback;
    options->master_port = 0;
    /* As torchrun: --standalone ignores the addresses; c10d's endpoint is where hosts meet, its
     * workers get an address of their own. */
    if (state->value[OPT_STANDALONE] != NULL || !is_static)
        return TRI_OK;
    if (*endpoint != '\0')
        return read_endpoint(options, endpoint);
    options->master_addr = value_of(state, OPT_MASTER_ADDR);
    return integer_of(state, OPT_MASTER_PORT, 0, 65535, &options->master_port);
}

static tri_status give_meaning(trii_launch_options *options, const parse_state *state)
{
    int64_t ignored;
    tri_status status = check_supported(state);

    if (status == TRI_OK)
        status = read_nproc(state, &options->nproc);
    if (status == TRI_OK)
        status = read_addresses(options, state);
    if (status == TRI_OK)
        status = read_seconds(state, OPT_MONITOR_INTERVAL, &ignored);
    if (status == TRI_OK)
        status = read_seconds(state, OPT_SHUTDOWN_TIMEOUT, &options->shutdown_timeout_ms);
    if (status == TRI_OK)
        status = integer_of(state, OPT_MAX_RESTARTS, 0, INT32_MAX, &options->max_restarts);
    if (status != TRI_OK)
        return status;
    options->module = state->value[OPT_MODULE] != NULL;
    options->no_python = state->value[OPT_NO_PYTHON] != NULL;
    if (options->module && options->no_python)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--module and --no-python exclude each other");
    options->require_key = state->value[OPT_REQUIRE_KEY] != NULL;
    options->label_output = state->value[OPT_LABEL] != NULL;
    options->role = value_of(state, OPT_ROLE);
    options->signals = value_of(state, OPT_SIGNALS);
    if (state->value[OPT_STANDALONE] == NULL)
        options->run_id = state->value[OPT_RDZV_ID];
    return TRI_OK;
}

tri_status trii_launch_options_parse(trii_launch_options *options, int argc, char *const *argv)
{
    parse_state state = {0};
    tri_status status = read_environment(&state);
    const char *grace = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    int at = 1;

    memset(options, 0, sizeof(*options));
    if (status == TRI_OK && state.value[OPT_SHUTDOWN_TIMEOUT] == NULL && grace != NULL) {
        state.value[OPT_SHUTDOWN_TIMEOUT] = grace;
        snprintf(state.twin[OPT_SHUTDOWN_TIMEOUT], sizeof(state.twin[0]),
                 "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    }
    while (status == TRI_OK && at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        status = parse_one(&state, argv, argc, &at);
        options->help = state.value[OPT_HELP] != NULL;
        options->version = state.value[OPT_VERSION] != NULL;
        if (status == TRI_OK && (options->help || options->version))
            return TRI_OK;
    }
    if (status == TRI_OK)
        status = give_meaning(options, &state);
    if (status != TRI_OK)
        return status;
    if (at == argc)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "which program? (trirun [OPTIONS] PROGRAM [ARGS])");
    options->program = argv[at];
    options->args = argv + at + 1;
    return TRI_OK;
}

/* --- help ----------------------------------------------------------------------------- */

static void print_row(FILE *out, const option_row *row)
{
    char left[80];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", row->letter ? '-' : ' ',
             row->letter ? row->letter : ' ', row->letter ? ", " : "  ", row->name,
             row->is_flag ? "" : " ", row->is_flag ? "" : row->value);
    fprintf(out, "  %-37s %s%s%s%s\n", left, row->help,
            !row->is_flag && *row->fallback != '\0' ? " (" : "", !row->is_flag ? row->fallback : "",
            !row->is_flag && *row->fallback != '\0' ? ")" : "");
}

void trii_launch_options_help(FILE *out)
{
    fputs("usage: trirun [OPTIONS] PROGRAM [ARGS]\n\n"
          "Runs PROGRAM as several workers that work together: torchrun's command line and\n"
          "worker variables, for any program. A .py file is run by $PYTHON_EXEC or python3.\n\n",
          out);
    for (int i = 0; i < OPT_COUNT; i++) {
        if (rows[i].only == NULL || *rows[i].only != '\0')
            print_row(out, &rows[i]);
    }
    fputs("\nNot there yet:", out);
    for (int i = 0; i < OPT_COUNT; i++) {
        if (rows[i].only != NULL && *rows[i].only == '\0')
            fprintf(out, " --%s", rows[i].name);
    }
    fputs("\n\n"
          "Options may be written with _ for -, and come from PET_NAME (PET_NPROC_PER_NODE=2).\n"
          "In ARGS ${local_rank} stands for the worker's number on its host.\n\n"
          "Several workers get OMP_NUM_THREADS=1, as with torchrun, and TRI_NUM_THREADS, which\n"
          "programs of trireme read first, is their share of the cores. Set one to decide.\n\n"
          "Examples:\n"
          "  trirun --standalone --nproc-per-node 2 build/bin/toy_ddp\n"
          "  trirun --nproc-per-node auto --label-output ./train --epochs 10\n"
          "  trirun --nproc_per_node=4 train.py --lr 0.1\n\n"
          "Exit status: 0 all workers succeeded, 1 one failed or trirun was stopped by a\n"
          "signal, 2 wrong usage.\n",
          out);
}
