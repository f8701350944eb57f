/*
 * options_meaning.c - from the texts of the options to their values: numbers are parsed, ranges and
 * combinations are checked.
 *
 * Exit status, as torchrun's: 2 where its argparse refuses a value, 1 where its own checks do.
 */
#include <ctype.h>
#include <string.h>

#include <trireme/store.h>

#include "base/err.h"
#include "base/param.h"
#include "launch/cli/devices.h"
#include "launch/cli/options_table.h"
#include "os/endpoint.h"
#include "os/file.h"

/* Where agents meet without an endpoint: the port of c10d's, the host of all. */
#define C10D_PORT 29400
#define MEETING_HOST "localhost"
#define LOOPBACK "127.0.0.1"
#define NO_PORT (-1) /* none was given */

/* An option that has a text, and what its row says of it. */
typedef struct option {
    const trii_option_row *row;
    const char *text;
    const char *name; /* for messages */
    bool is_given;    /* else the text is the default */
    int *exit_status; /* becomes 2 where argparse refuses the text */
} option;

static tri_status read_text(const option *o, void *field)
{
    *(const char **)field = o->text;
    return TRI_OK;
}

static tri_status refuse(const option *o, const char *why, const char *more)
{
    *o->exit_status = TRII_LAUNCH_USAGE;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s%s%s", o->name, o->text, why, more);
}

/* One of the words in the row's list. */
static tri_status read_choice(const option *o, void *field)
{
    size_t length = strlen(o->text);

    for (const char *at = o->row->choices; *at != '\0'; at += strcspn(at, "|"), at += *at == '|') {
        if (strcspn(at, "|") == length && memcmp(at, o->text, length) == 0)
            return read_text(o, field);
    }
    return refuse(o, ": must be one of ", o->row->choices);
}

static tri_status parse_integer(const option *o, int64_t *value_out)
{
    tri_status status = trii_parse_i64(o->text, o->name, INT64_MIN, INT64_MAX, value_out);

    if (status != TRI_OK)
        *o->exit_status = TRII_LAUNCH_USAGE;
    return status;
}

static tri_status read_integer(const option *o, int64_t min, int64_t max, int *value_out)
{
    int64_t value;
    tri_status status = parse_integer(o, &value);

    if (status != TRI_OK)
        return status;
    if (value < min && max == INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%lld: must be at least %lld", o->name,
                         (long long)value, (long long)min);
    if (value < min || value > max)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%lld is not between %lld and %lld", o->name,
                         (long long)value, (long long)min, (long long)max);
    *value_out = (int)value;
    return TRI_OK;
}

static tri_status read_number(const option *o, void *field)
{
    return read_integer(o, 0, o->row->max, field);
}

static tri_status read_seconds(const option *o, void *field)
{
    char *end;
    double seconds = strtod(o->text, &end);

    while (end != o->text && isspace((unsigned char)*end))
        end++;
    if (end == o->text || *end != '\0' || !(seconds >= 0 && seconds <= 1e6))
        return refuse(o, " is not a number of seconds", "");
    *(int64_t *)field = (int64_t)(seconds * 1000);
    return TRI_OK;
}

/* "512", "64k", "10M", "2G". */
static tri_status read_size(const option *o, void *field)
{
    static const char units[] = "kMG";
    const char *unit;
    char *end;
    long long n = strtoll(o->text, &end, 10);

    unit = *end != '\0' ? strchr(units, *end == 'm' || *end == 'g' ? *end - 32 : *end) : NULL;
    if (end == o->text || n < 1 || n > INT64_C(1) << 32 ||
        (*end != '\0' && (unit == NULL || end[1] != '\0')))
        return refuse(o, " is not a size: 65536, 512k, 64M, 2G", "");
    *(int64_t *)field = (int64_t)n << (unit != NULL ? 10 * (unit - units + 1) : 0);
    return TRI_OK;
}

/* "3", or "0:1,2:3" for single workers. */
static tri_status read_streams(const option *o, void *field)
{
    trii_std_spec *spec = field;

    if (o->text[0] >= '0' && o->text[0] <= '3' && o->text[1] == '\0') {
        spec->all = (uint8_t)(o->text[0] - '0');
        return TRI_OK;
    }
    for (const char *at = o->text;; at += 4) {
        if (!isdigit((unsigned char)at[0]) || at[1] != ':' || at[2] < '0' || at[2] > '3' ||
            (at[3] != ',' && at[3] != '\0'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s=%s is neither 0, 1, 2 or 3 nor RANK:N,... with one digit each",
                             o->name, o->text);
        spec->of_rank[at[0] - '0'] = (uint8_t)(at[2] - '0');
        if (at[3] == '\0')
            return TRI_OK;
    }
}

static tri_status read_numbers(const option *o, void *field)
{
    for (const char *at = o->text;; at++) {
        size_t digits;

        at += strspn(at, " ");
        digits = strspn(at, "0123456789");
        digits += digits > 0 ? strspn(at + digits, " ") : 0;
        if (digits == 0 || (at[digits] != ',' && at[digits] != '\0'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is not a list of numbers like 0,2",
                             o->name, o->text);
        at += digits;
        if (*at == '\0')
            return read_text(o, field);
    }
}

static tri_status (*const readers[TRII_OPTION_KINDS])(const option *o, void *field) = {
    [TRII_OPTION_TEXT] = read_text,       [TRII_OPTION_CHOICE] = read_choice,
    [TRII_OPTION_NUMBER] = read_number,   [TRII_OPTION_SECONDS] = read_seconds,
    [TRII_OPTION_SIZE] = read_size,       [TRII_OPTION_STREAMS] = read_streams,
    [TRII_OPTION_NUMBERS] = read_numbers,
};

/* The option of a field, with its default where nothing was given; text NULL: it has none. */
static option option_at(trii_option_values *values, int i)
{
    const trii_option_row *row = &trii_option_rows[i];

    return (option){.row = row,
                    .text = values->text[i] != NULL ? values->text[i] : row->fallback,
                    .name = values->name[i],
                    .is_given = values->text[i] != NULL,
                    .exit_status = &values->exit_status};
}

static option option_of(trii_option_values *values, size_t field)
{
    int i = 0;

    while (trii_option_rows[i].field != field)
        i++;
    return option_at(values, i);
}
#define OPTION(values, name) option_of(values, offsetof(trii_launch_options, name))

/* Reads options by their rows: those whose values argparse checks, or the others. It sees that a
 * number is one, and the range is checked with the others; a choice from the environment, which it
 * takes for a default, it does not check. */
static tri_status read_rows(trii_option_values *values, trii_launch_options *options, bool argparse)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < TRII_OPTIONS && status == TRI_OK; i++) {
        option o = option_at(values, i);
        int64_t ignored;
        bool is_empty = o.text == NULL || (*o.text == '\0' && o.row->fallback == NULL &&
                                           o.row->kind != TRII_OPTION_CHOICE);

        if (o.row->kind == TRII_OPTION_FLAG || is_empty ||
            (o.row->kind == TRII_OPTION_CHOICE && strncmp(o.name, "PET_", 4) == 0) ||
            (!argparse && o.row->kind < TRII_OPTION_NUMBER) ||
            (argparse && o.row->kind > TRII_OPTION_NUMBER))
            continue;
        if (argparse && o.row->kind == TRII_OPTION_NUMBER)
            status = parse_integer(&o, &ignored);
        else
            status = readers[o.row->kind](&o, o.row->field != 0 ? (char *)options + o.row->field
                                                                : (char *)&ignored);
    }
    return status;
}

/* --- hosts and workers ---------------------------------------------------- */

/* Agents send heartbeats five times a second, and the retransmission of a lost packet takes a
 * while. */
static tri_status check_host_timeout(trii_option_values *values, const trii_launch_options *options)
{
    const option o = OPTION(values, host_timeout_ms);

    return options->host_timeout_ms >= 1000
               ? TRI_OK
               : refuse(&o, ": must be at least 1 second; shorter pauses are normal", "");
}

static tri_status read_nnodes(trii_option_values *values, trii_launch_options *options)
{
    const option o = OPTION(values, nnodes);
    const char *colon = strchr(o.text, ':');
    size_t length = strcspn(o.text, ":");
    char part[24];
    int64_t min, max;
    tri_status status;

    if (length >= sizeof(part) || (colon != NULL && strchr(colon + 1, ':') != NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is neither N nor MIN:MAX", o.name, o.text);
    memcpy(part, o.text, length);
    part[length] = '\0';
    status = trii_parse_i64(part, o.name, INT32_MIN, INT32_MAX, &min);
    max = min;
    if (status == TRI_OK && colon != NULL)
        status = trii_parse_i64(colon + 1, o.name, INT32_MIN, INT32_MAX, &max);
    if (status != TRI_OK)
        return status;
    if (min < 1 || max < min)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is out of range (1 <= MIN <= MAX)", o.name,
                         o.text);
    options->min_nodes = (int)min;
    options->max_nodes = (int)max;
    return TRI_OK;
}

static tri_status read_nproc(trii_option_values *values, int *nproc_out)
{
    const option o = OPTION(values, nproc_per_node);
    int64_t number;
    int n_gpus;

    if (trii_parse_i64(o.text, o.name, INT64_MIN, INT64_MAX, &number) == TRI_OK) {
        tri_status status = read_integer(&o, 1, 4096, nproc_out);

        values->exit_status = TRII_LAUNCH_FAILED; /* torchrun takes it as a text first */
        return status;
    }
    n_gpus = trii_launch_count_gpus();
    if (strcmp(o.text, "gpu") == 0 || (strcmp(o.text, "auto") == 0 && n_gpus > 0)) {
        if (n_gpus == 0)
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "--nproc-per-node gpu: this host has no GPU; cpu starts a worker for each core");
        *nproc_out = n_gpus;
    } else if (strcmp(o.text, "cpu") == 0 || strcmp(o.text, "auto") == 0) {
        *nproc_out = trii_launch_count_cores();
    } else {
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s is not a number, auto, cpu or gpu", o.name,
                         o.text);
    }
    return TRI_OK;
}

static tri_status check_host(const char *what, const char *host)
{
    if (trii_host_lacks_interface(host))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s is the same on every network: name the interface too, %s%%eth0",
                         what, host, host);
    return TRI_OK;
}

static tri_status read_endpoint(trii_launch_options *options, const char *text)
{
    static const char what[] = "--rdzv-endpoint";
    int port = -1;
    tri_status status =
        trii_endpoint_read(text, what, options->rdzv_host, sizeof(options->rdzv_host), &port);

    if (status == TRI_OK && options->rdzv_host[0] == '\0')
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s is not HOST:PORT or HOST", what, text);
    options->rdzv_port = port;
    return status == TRI_OK ? check_host(what, options->rdzv_host) : status;
}

/* The first of etcd's servers, "http://HOST:PORT,...": the plug-in reads them all. */
static tri_status read_etcd_endpoint(trii_launch_options *options, const char *text)
{
    char one[sizeof(options->rdzv_host) + 8];
    const char *host = strstr(text, "://");
    size_t n = strcspn(text, ",");

    host = host != NULL && (size_t)(host - text) < n ? host + 3 : text;
    n -= (size_t)(host - text);
    if (n >= sizeof(one))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-endpoint %s is not HOST:PORT or HOST", text);
    memcpy(one, host, n);
    one[n] = '\0';
    return read_endpoint(options, one);
}

/* An unknown name is refused by the caller. */
static void set_rendezvous(trii_launch_options *options, const char *name)
{
    options->rdzv_backend = name;
    if (strcmp(name, "static") == 0)
        options->rdzv = TRII_RDZV_STATIC;
    else
        options->rdzv = strncmp(name, "etcd", 4) == 0 ? TRII_RDZV_ETCD : TRII_RDZV_C10D;
}

int trii_rdzv_default_port(const trii_launch_options *options)
{
    static const int ports[] = {[TRII_RDZV_STATIC] = TRI_STORE_PORT,
                                [TRII_RDZV_C10D] = C10D_PORT,
                                [TRII_RDZV_ETCD] = TRII_ETCD_PORT};

    return ports[options->rdzv];
}

/* Reads the store's host from --master-addr. IPv6 may be in brackets, as torchrun's help shows
 * it. */
static tri_status read_master(trii_launch_options *options, const char *given)
{
    const char *host = given;
    size_t length = strlen(host);

    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(options->rdzv_host) || memchr(host, '[', length) != NULL ||
        memchr(host, ']', length) != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--master-addr=%s is not a host", given);
    memcpy(options->rdzv_host, host, length);
    options->rdzv_host[length] = '\0';
    return check_host("--master-addr", options->rdzv_host);
}

static void use_default_endpoint(trii_launch_options *options)
{
    static const char etcd[] = MEETING_HOST ":" TRII_TEXT(TRII_ETCD_PORT);

    snprintf(options->rdzv_host, sizeof(options->rdzv_host), "%s", MEETING_HOST);
    options->rdzv_endpoint = options->rdzv == TRII_RDZV_ETCD ? etcd : "";
}

/* Only static ranks need it; with other back ends it is ignored, as by torchrun. */
static tri_status check_node_rank(trii_option_values *values, const trii_launch_options *options)
{
    char range[32] = "0";

    if (options->standalone || options->rdzv != TRII_RDZV_STATIC ||
        options->node_rank < options->max_nodes)
        return TRI_OK;
    if (options->max_nodes > 1)
        snprintf(range, sizeof(range), "0 to %d", options->max_nodes - 1);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %d: must be %s with --nnodes %d",
                     OPTION(values, node_rank).name, options->node_rank, range, options->max_nodes);
}

/* All agents of a job of several hosts must have the same one; a single host makes up its own. */
static tri_status choose_run_id(trii_option_values *values, trii_launch_options *options)
{
    if (options->standalone || (options->max_nodes == 1 && !OPTION(values, run_id).is_given))
        options->run_id = NULL;
    if (options->run_id != NULL && strlen(options->run_id) >= TRII_RUN_ID_BYTES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-id %.40s...: is too long (at most %d bytes)",
                         options->run_id, TRII_RUN_ID_BYTES - 1);
    return TRI_OK;
}

/* As torchrun: --standalone, which one host without addresses is too, ignores all addresses;
 * static's endpoint is the master; of the others it is where hosts meet, and their workers get
 * an address of their own. */
static tri_status read_addresses(trii_option_values *values, trii_launch_options *options)
{
    const option backend = OPTION(values, rdzv_backend);
    const char *endpoint = options->rdzv_endpoint, *master = options->master_addr;
    int port = options->master_port;
    bool asked = options->standalone, is_static;
    tri_status status = choose_run_id(values, options);

    set_rendezvous(options, backend.text);
    is_static = options->rdzv == TRII_RDZV_STATIC;
    options->master_addr = LOOPBACK;
    options->master_port = 0;
    options->rdzv_port = -1;
    options->standalone =
        asked || (is_static && *endpoint == '\0' && options->max_nodes == 1 && port == NO_PORT);
    if (status == TRI_OK && options->standalone && options->min_nodes > 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "--standalone is for one host, and --nnodes=%s asks for more",
                           options->nnodes);
    if (status != TRI_OK)
        return status;
    if (options->standalone) {
        options->max_nodes = 1; /* a second one would not know where to come */
        set_rendezvous(options, "c10d");
        options->rdzv_endpoint = "";
        return TRI_OK;
    }
    status = read_choice(&backend, &options->rdzv_backend);
    values->exit_status = TRII_LAUNCH_FAILED; /* torchrun takes it as a text first */
    if (status == TRI_OK && *endpoint != '\0') {
        status = options->rdzv == TRII_RDZV_ETCD ? read_etcd_endpoint(options, endpoint)
                                                 : read_endpoint(options, endpoint);
    } else if (status == TRI_OK && is_static) {
        status = read_master(options, master);
        options->rdzv_port = port;
    } else if (status == TRI_OK) {
        use_default_endpoint(options);
    }
    if (status == TRI_OK && options->rdzv_port < 0 && (!is_static || options->max_nodes > 1))
        options->rdzv_port = trii_rdzv_default_port(options);
    if (status == TRI_OK && is_static) {
        options->master_addr = options->rdzv_host;
        options->master_port = options->rdzv_port >= 0 ? options->rdzv_port : 0;
    }
    return status;
}

/* A part of a text, without the blanks around it. */
typedef struct words {
    const char *at;
    size_t length;
} words;

static words trim(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (end > at && isspace((unsigned char)end[-1]))
        end--;
    return (words){at, (size_t)(end - at)};
}

/* The next KEY=VALUE of --rdzv-conf; *list moves past it and its comma. False: none is left. */
static bool next_setting(const char **list, words *key_out, words *value_out)
{
    const char *text = *list, *end = text + strcspn(text, ","),
               *equals = text + strcspn(text, "=,");

    *key_out = trim(text, equals);
    *value_out = trim(equals + (equals < end), end);
    *list = end + (*end == ',');
    return *text != '\0';
}

static tri_status check_conf(const char *list)
{
    bool comma = *list != '\0' && list[strlen(list) - 1] == ',';
    words key, value;

    list += strspn(list, " \t\n");
    while (next_setting(&list, &key, &value)) {
        if (key.length == 0 || (comma && *list == '\0'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf must be KEY=VALUE,...");
        if (value.length == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf: %.*s has no value", (int)key.length,
                             key.at);
    }
    return TRI_OK;
}

bool trii_rdzv_conf(const trii_launch_options *options, const char *key, char *value_out,
                    size_t bytes)
{
    const char *list = options->rdzv_conf != NULL ? options->rdzv_conf : "";
    words its, value;

    while (next_setting(&list, &its, &value)) {
        if (its.length != strlen(key) || memcmp(its.at, key, its.length) != 0)
            continue;
        if (value.length >= bytes)
            return false;
        memcpy(value_out, value.at, value.length);
        value_out[value.length] = '\0';
        return true;
    }
    return false;
}

/* --- output --------------------------------------------------------------- */

unsigned trii_std_of(const trii_std_spec *spec, int local_rank)
{
    return spec->all | (local_rank < 10 ? spec->of_rank[local_rank] : 0u);
}

bool trii_number_in_list(const char *list, int number)
{
    if (list == NULL)
        return true;
    for (;; list++) {
        if (strtol(list, NULL, 10) == number)
            return true;
        list = strchr(list, ',');
        if (list == NULL)
            return false;
    }
}

/* Two writers of one file would destroy each other's text. */
static tri_status check_files_differ(const trii_launch_options *options)
{
    const char *const names[] = {"--events", "--metrics", "TORCHELASTIC_ERROR_FILE"};
    const char *const paths[] = {options->events, options->metrics,
                                 getenv("TORCHELASTIC_ERROR_FILE")};

    for (int i = 0; i < 2; i++) {
        for (int j = i + 1; j < 3; j++) {
            if (paths[i] != NULL && paths[j] != NULL && trii_path_is_same_file(paths[i], paths[j]))
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s and %s both name %s: use two files",
                                 names[i], names[j], paths[j]);
        }
    }
    return TRI_OK;
}

/* --- all of it ------------------------------------------------------------ */

static tri_status check_program(const trii_launch_options *options)
{
    if (options->logs_specs != NULL && strcmp(options->logs_specs, "default") != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--logs-specs=%s: names a Python plug-in, which trirun cannot load; leave "
                         "it out, or give default",
                         options->logs_specs);
    if (options->keep_survivors && options->max_nodes > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--keep-survivors works on one host only, and --nnodes is %d: to go "
                         "on with fewer hosts use --nnodes MIN:MAX and --max-restarts",
                         options->max_nodes);
    if (options->module && options->no_python && !options->run_path)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--module and --no-python exclude each other");
    return TRI_OK;
}

tri_status trii_option_values_read(trii_option_values *values, trii_launch_options *options)
{
    tri_status status;

    values->exit_status = TRII_LAUNCH_FAILED;
    options->master_port = NO_PORT;
    options->line_prefix = getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    options->launch_compat = options->launch_compat && !options->use_env;
    status = read_rows(values, options, true);
    if (status == TRI_OK)
        status = check_host_timeout(values, options);
    if (status == TRI_OK)
        status = read_rows(values, options, false);
    if (status == TRI_OK)
        status = read_nnodes(values, options);
    if (status == TRI_OK)
        status = read_nproc(values, &options->nproc);
    if (status == TRI_OK)
        status = read_addresses(values, options);
    if (status == TRI_OK)
        status = check_node_rank(values, options);
    if (status == TRI_OK)
        status = check_program(options);
    if (status == TRI_OK)
        status = check_conf(options->rdzv_conf);
    if (status == TRI_OK)
        status = check_files_differ(options);
    return status;
}
