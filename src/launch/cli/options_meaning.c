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

/* Where c10d's agents meet, and all others that were told no place. */
#define C10D_PORT 29400
#define MEETING_HOST "localhost"

static const char *shown_name(const trii_option_values *values, trii_option i, char *buf,
                              size_t bytes)
{
    snprintf(buf, bytes, "--%s", trii_option_rows[i].name);
    return values->twin[i][0] != '\0' && values->text[i] != NULL ? values->twin[i] : buf;
}

static tri_status integer_of(trii_option_values *values, trii_option i, int64_t min, int64_t max,
                             int *value_out)
{
    char buf[64];
    const char *name = shown_name(values, i, buf, sizeof(buf));
    int64_t value;
    tri_status status =
        trii_parse_i64(trii_option_text(values, i), name, INT64_MIN, INT64_MAX, &value);

    if (status != TRI_OK) {
        values->exit_status = TRII_LAUNCH_USAGE;
        return status;
    }
    if (value < min && max == INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%lld: must be at least %lld", name,
                         (long long)value, (long long)min);
    if (value < min || value > max)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%lld is not between %lld and %lld", name,
                         (long long)value, (long long)min, (long long)max);
    *value_out = (int)value;
    return TRI_OK;
}

static tri_status seconds_of(trii_option_values *values, trii_option i, int64_t *ms_out)
{
    const char *text = trii_option_text(values, i);
    char *end, name[64];
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0 && seconds <= 1e6)) {
        values->exit_status = TRII_LAUNCH_USAGE;
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is not a number of seconds",
                         shown_name(values, i, name, sizeof(name)), text);
    }
    *ms_out = (int64_t)(seconds * 1000);
    return TRI_OK;
}

/* Agents send heartbeats five times a second, and the retransmission of a lost packet takes a
 * while. */
static tri_status host_timeout_of(trii_option_values *values, int64_t *ms_out)
{
    char name[64];
    tri_status status = seconds_of(values, TRII_OPT_HOST_TIMEOUT, ms_out);

    if (status != TRI_OK || *ms_out >= 1000)
        return status;
    values->exit_status = TRII_LAUNCH_USAGE;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s=%s: must be at least 1 second; shorter pauses are normal",
                     shown_name(values, TRII_OPT_HOST_TIMEOUT, name, sizeof(name)),
                     trii_option_text(values, TRII_OPT_HOST_TIMEOUT));
}

/* One of the words in the list "a|b". */
static tri_status choice_of(trii_option_values *values, trii_option i, const char *words)
{
    const char *text = trii_option_text(values, i);
    size_t length = strlen(text);
    char name[64];

    for (const char *at = words; *at != '\0'; at += strcspn(at, "|"), at += *at == '|') {
        if (strcspn(at, "|") == length && memcmp(at, text, length) == 0)
            return TRI_OK;
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s: must be one of %s",
                     shown_name(values, i, name, sizeof(name)), text, words);
}

static const char *text_or_null(const trii_option_values *values, trii_option i)
{
    const char *text = values->text[i];

    return text != NULL && *text != '\0' ? text : NULL;
}

/* --- hosts and workers ---------------------------------------------------- */

static tri_status read_nnodes(trii_option_values *values, trii_launch_options *options)
{
    const char *text = trii_option_text(values, TRII_OPT_NNODES);
    char part[24], name[64];
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    int64_t min, max;
    tri_status status;

    shown_name(values, TRII_OPT_NNODES, name, sizeof(name));
    if (length >= sizeof(part) || (colon != NULL && strchr(colon + 1, ':') != NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--nnodes=%s is neither N nor MIN:MAX", text);
    memcpy(part, text, length);
    part[length] = '\0';
    status = trii_parse_i64(part, "--nnodes", INT32_MIN, INT32_MAX, &min);
    max = min;
    if (status == TRI_OK && colon != NULL)
        status = trii_parse_i64(colon + 1, "--nnodes", INT32_MIN, INT32_MAX, &max);
    if (status != TRI_OK)
        return status;
    if (min < 1 || max < min)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--nnodes=%s is out of range (1 <= MIN <= MAX)",
                         text);
    options->min_nodes = (int)min;
    options->max_nodes = (int)max;
    return TRI_OK;
}

static tri_status read_nproc(trii_option_values *values, int *nproc_out)
{
    const char *text = trii_option_text(values, TRII_OPT_NPROC), *digits = text + (*text == '-');
    char name[64];
    int n_gpus;

    if (*digits != '\0' && strspn(digits, "0123456789") == strlen(digits)) {
        tri_status status = integer_of(values, TRII_OPT_NPROC, 1, 4096, nproc_out);

        values->exit_status = TRII_LAUNCH_FAILED; /* torchrun takes it as a text first */
        return status;
    }
    n_gpus = trii_launch_count_gpus();
    if (strcmp(text, "gpu") == 0 || (strcmp(text, "auto") == 0 && n_gpus > 0)) {
        if (n_gpus == 0)
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "--nproc-per-node gpu: this host has no GPU; cpu starts a worker for each core");
        *nproc_out = n_gpus;
    } else if (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0) {
        *nproc_out = trii_launch_count_cores();
    } else {
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s is not a number, auto, cpu or gpu",
                         shown_name(values, TRII_OPT_NPROC, name, sizeof(name)), text);
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

/* IPv6 in brackets is taken, as torchrun's help shows it. */
static tri_status read_master(trii_option_values *values, trii_launch_options *options)
{
    const char *host = trii_option_text(values, TRII_OPT_MASTER_ADDR);
    size_t length = strlen(host);
    tri_status status;

    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(options->rdzv_host) || memchr(host, '[', length) != NULL ||
        memchr(host, ']', length) != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--master-addr=%s is not a host",
                         trii_option_text(values, TRII_OPT_MASTER_ADDR));
    memcpy(options->rdzv_host, host, length);
    options->rdzv_host[length] = '\0';
    status = check_host("--master-addr", options->rdzv_host);
    if (status != TRI_OK)
        return status;
    options->rdzv_port = options->max_nodes > 1 ? trii_rdzv_default_port(options) : 0;
    if (text_or_null(values, TRII_OPT_MASTER_PORT) == NULL)
        return TRI_OK;
    return integer_of(values, TRII_OPT_MASTER_PORT, 0, 65535, &options->rdzv_port);
}

static void use_default_endpoint(trii_launch_options *options)
{
    static const char etcd[] = MEETING_HOST ":" TRII_TEXT(TRII_ETCD_PORT);

    snprintf(options->rdzv_host, sizeof(options->rdzv_host), "%s", MEETING_HOST);
    options->rdzv_endpoint = options->rdzv == TRII_RDZV_ETCD ? etcd : "";
}

/* The others ignore it, as with torchrun. */
static tri_status check_node_rank(const trii_option_values *values,
                                  const trii_launch_options *options)
{
    char name[64], range[32] = "0";

    if (options->standalone || options->rdzv != TRII_RDZV_STATIC ||
        options->node_rank < options->max_nodes)
        return TRI_OK;

    if (options->max_nodes > 1)
        snprintf(range, sizeof(range), "0 to %d", options->max_nodes - 1);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %d: must be %s with --nnodes %d",
                     shown_name(values, TRII_OPT_NODE_RANK, name, sizeof(name)), options->node_rank,
                     range, options->max_nodes);
}

/* As torchrun: --standalone, which one host without addresses is too, ignores all addresses;
 * static's endpoint is the master; of the others it is where hosts meet, and their workers get
 * an address of their own. */
static tri_status read_addresses(trii_option_values *values, trii_launch_options *options)
{
    bool asked = values->text[TRII_OPT_STANDALONE] != NULL;
    bool is_static;
    const char *endpoint = trii_option_text(values, TRII_OPT_RDZV_ENDPOINT);
    tri_status status;

    set_rendezvous(options, trii_option_text(values, TRII_OPT_RDZV_BACKEND));
    is_static = options->rdzv == TRII_RDZV_STATIC;
    options->rdzv_endpoint = endpoint;
    options->rdzv_conf = trii_option_text(values, TRII_OPT_RDZV_CONF);
    options->local_addr = text_or_null(values, TRII_OPT_LOCAL_ADDR);
    options->run_id = asked ? NULL : values->text[TRII_OPT_RDZV_ID];
    if (options->run_id == NULL && options->max_nodes > 1 &&
        !asked) /* all agents must have the same */
        options->run_id = trii_option_rows[TRII_OPT_RDZV_ID].fallback;
    if (options->run_id != NULL && strlen(options->run_id) >= TRII_RUN_ID_BYTES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-id %.40s...: is too long (at most %d bytes)",
                         options->run_id, TRII_RUN_ID_BYTES - 1);
    options->master_addr = trii_option_rows[TRII_OPT_MASTER_ADDR].fallback;
    options->rdzv_port = -1;
    options->standalone = asked || (is_static && *endpoint == '\0' && options->max_nodes == 1 &&
                                    text_or_null(values, TRII_OPT_MASTER_PORT) == NULL);
    if (options->standalone && options->min_nodes > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--standalone is for one host, and --nnodes=%s asks for more",
                         trii_option_text(values, TRII_OPT_NNODES));
    if (options->standalone) {
        options->max_nodes = 1; /* there is no place where a second one could come */
        set_rendezvous(options, "c10d");
        options->rdzv_endpoint = "";
        return TRI_OK;
    }
    status = choice_of(values, TRII_OPT_RDZV_BACKEND, "static|c10d|etcd|etcd-v2|etcd-v3");
    if (status == TRI_OK && *endpoint != '\0')
        status = options->rdzv == TRII_RDZV_ETCD ? read_etcd_endpoint(options, endpoint)
                                                 : read_endpoint(options, endpoint);
    else if (status == TRI_OK && is_static)
        status = read_master(values, options);
    else if (status == TRI_OK)
        use_default_endpoint(options);
    if (status == TRI_OK && options->rdzv_port < 0 && (!is_static || options->max_nodes > 1))
        options->rdzv_port = trii_rdzv_default_port(options);
    if (status == TRI_OK && is_static) {
        options->master_addr = options->rdzv_host;
        options->master_port = options->rdzv_port >= 0 ? options->rdzv_port : 0;
    }
    return status;
}

/* Every option of --rdzv-conf has a name and a value. */
static tri_status check_conf(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    while (*text != '\0') {
        size_t length = strcspn(text, ","), name = strcspn(text, "=,");
        size_t name_blank = strspn(text, " \t"), value_blank;

        if (name_blank >= name)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf must be KEY=VALUE,...");
        value_blank = name < length ? name + 1 + strspn(text + name + 1, " \t") : length;
        if (value_blank >= length)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf: %.*s has no value", (int)name,
                             text);
        text += length;
        if (*text == ',' && *++text == '\0')
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf must be KEY=VALUE,...");
    }
    return TRI_OK;
}

bool trii_rdzv_conf(const trii_launch_options *options, const char *key, char *value_out,
                    size_t bytes)
{
    const char *at = options->rdzv_conf;

    while (at != NULL && *at != '\0') {
        size_t length, name, first, last;

        at += strspn(at, " \t\n");
        length = strcspn(at, ",");
        name = strcspn(at, "= \t,");
        if (name == strlen(key) && memcmp(at, key, name) == 0) {
            first = strcspn(at, "=,");
            first += first < length;
            while (first < length && isspace((unsigned char)at[first]))
                first++;
            for (last = length; last > first && isspace((unsigned char)at[last - 1]);)
                last--;
            if (last - first >= bytes)
                return false;
            memcpy(value_out, at + first, last - first);
            value_out[last - first] = '\0';
            return true;
        }
        at += length + (at[length] == ',');
    }
    return false;
}

/* --- output --------------------------------------------------------------- */

static tri_status read_std(trii_option_values *values, trii_option i, trii_std_spec *spec)
{
    const char *text = trii_option_text(values, i);
    char name[64];

    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0') {
        spec->all = (uint8_t)(text[0] - '0');
        return TRI_OK;
    }
    spec->per_rank = true;
    for (const char *at = text;; at += 4) {
        if (!isdigit((unsigned char)at[0]) || at[1] != ':' || at[2] < '0' || at[2] > '3' ||
            (at[3] != ',' && at[3] != '\0'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s=%s is neither 0, 1, 2 or 3 nor RANK:N,... with one digit each",
                             shown_name(values, i, name, sizeof(name)), text);
        spec->of_rank[at[0] - '0'] = (uint8_t)(at[2] - '0');
        if (at[3] == '\0')
            return TRI_OK;
    }
}

unsigned trii_std_of(const trii_std_spec *spec, int local_rank)
{
    if (!spec->per_rank)
        return spec->all;
    return local_rank < 10 ? spec->of_rank[local_rank] : 0;
}

static tri_status check_numbers(const char *list, const char *name)
{
    while (list != NULL) {
        const char *comma = strchr(list, ',');
        size_t length = comma != NULL ? (size_t)(comma - list) : strlen(list);
        size_t blank = strspn(list, " ");

        if (blank >= length || strspn(list + blank, "0123456789") + blank < length)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be a comma list of numbers", name);
        list = comma != NULL ? comma + 1 : NULL;
    }
    return TRI_OK;
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

/* "512", "64k", "10M", "2G". */
static tri_status read_bytes(trii_option_values *values, trii_option i, int64_t *bytes_out)
{
    static const char units[] = "kMG";
    const char *text = text_or_null(values, i), *unit;
    char *end;
    long long n;

    *bytes_out = 0;
    if (text == NULL)
        return TRI_OK;
    n = strtoll(text, &end, 10);
    unit = *end != '\0' ? strchr(units, *end == 'm' || *end == 'g' ? *end - 32 : *end) : NULL;
    if (end == text || n < 1 || n > INT64_C(1) << 32 ||
        (*end != '\0' && (unit == NULL || end[1] != '\0'))) {
        values->exit_status = TRII_LAUNCH_USAGE;
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%s=%s is not a size: 65536, 512k, 64M, 2G",
                         trii_option_rows[i].name, text);
    }
    *bytes_out = (int64_t)n << (unit != NULL ? 10 * (unit - units + 1) : 0);
    return TRI_OK;
}

/* Two that write to one file would destroy each other's text. */
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

static tri_status read_output(trii_option_values *values, trii_launch_options *options)
{
    tri_status status = read_std(values, TRII_OPT_REDIRECTS, &options->redirects);

    if (status == TRI_OK)
        status = read_std(values, TRII_OPT_TEE, &options->tee);
    if (status == TRI_OK)
        status = read_bytes(values, TRII_OPT_LOG_MAX_BYTES, &options->log_max_bytes);
    options->log_dir = text_or_null(values, TRII_OPT_LOG_DIR);
    options->local_ranks_filter = text_or_null(values, TRII_OPT_RANKS_FILTER);
    options->stdout_filters = text_or_null(values, TRII_OPT_STDOUT_FILTERS);
    options->stderr_filters = text_or_null(values, TRII_OPT_STDERR_FILTERS);
    options->label_output = values->text[TRII_OPT_LABEL] != NULL;
    options->events = text_or_null(values, TRII_OPT_EVENTS);
    options->metrics = text_or_null(values, TRII_OPT_METRICS);
    options->line_prefix = getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    if (status == TRI_OK)
        status = check_numbers(options->local_ranks_filter, "--local-ranks-filter");
    if (status == TRI_OK)
        status = check_files_differ(options);
    return status;
}

/* --- the program ---------------------------------------------------------- */

static tri_status read_program(trii_option_values *values, trii_launch_options *options)
{
    bool use_env = values->text[TRII_OPT_USE_ENV] != NULL;

    options->module = values->text[TRII_OPT_MODULE] != NULL;
    options->no_python = values->text[TRII_OPT_NO_PYTHON] != NULL;
    options->run_path = values->text[TRII_OPT_RUN_PATH] != NULL;
    options->launch_compat = values->text[TRII_OPT_LAUNCH_COMPAT] != NULL && !use_env;
    options->virtual_local_rank = values->text[TRII_OPT_VIRTUAL_RANK] != NULL;
    options->dry_run = values->text[TRII_OPT_DRY_RUN] != NULL;
    options->keep_survivors = values->text[TRII_OPT_KEEP_SURVIVORS] != NULL;
    options->require_key = values->text[TRII_OPT_REQUIRE_KEY] != NULL;
    options->role = trii_option_text(values, TRII_OPT_ROLE);
    options->signals = trii_option_text(values, TRII_OPT_SIGNALS);
    options->numa_binding = text_or_null(values, TRII_OPT_NUMA);
    if (options->module && options->no_python && !options->run_path)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--module and --no-python exclude each other");
    return TRI_OK;
}

/* What argparse checks: it comes before all else, with another exit status. */
static tri_status read_argparse(trii_option_values *values, trii_launch_options *options)
{
    tri_status status =
        seconds_of(values, TRII_OPT_MONITOR_INTERVAL, &options->monitor_interval_ms);

    if (status == TRI_OK)
        status = seconds_of(values, TRII_OPT_SHUTDOWN_TIMEOUT, &options->shutdown_timeout_ms);
    if (status == TRI_OK)
        status = seconds_of(values, TRII_OPT_HANG_TIMEOUT, &options->hang_timeout_ms);
    if (status == TRI_OK)
        status = host_timeout_of(values, &options->host_timeout_ms);
    if (status == TRI_OK && text_or_null(values, TRII_OPT_NOTICE) != NULL)
        status = seconds_of(values, TRII_OPT_NOTICE, &options->notice_ms);
    if (status == TRI_OK)
        status = choice_of(values, TRII_OPT_START_METHOD, "spawn|fork|forkserver");
    if (status == TRI_OK && values->text[TRII_OPT_NUMA] != NULL)
        status = choice_of(values, TRII_OPT_NUMA, "node|socket|exclusive|core-complex");
    values->exit_status = status == TRI_OK ? TRII_LAUNCH_FAILED : TRII_LAUNCH_USAGE;
    if (status == TRI_OK)
        status = integer_of(values, TRII_OPT_MAX_RESTARTS, 0, INT32_MAX, &options->max_restarts);
    if (status == TRI_OK)
        status = integer_of(values, TRII_OPT_NODE_RANK, 0, INT32_MAX, &options->node_rank);
    return status;
}

tri_status trii_option_values_read(trii_option_values *values, trii_launch_options *options)
{
    tri_status status = read_argparse(values, options);

    if (status == TRI_OK)
        status = read_nnodes(values, options);
    if (status == TRI_OK)
        status = read_nproc(values, &options->nproc);
    if (status == TRI_OK)
        status = read_addresses(values, options);
    if (status == TRI_OK)
        status = check_node_rank(values, options);
    if (status == TRI_OK && options->max_nodes > 1 && values->text[TRII_OPT_KEEP_SURVIVORS] != NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "--keep-survivors works on one host only, and --nnodes is %d: to go "
                           "on with fewer hosts use --nnodes MIN:MAX and --max-restarts",
                           options->max_nodes);
    if (status == TRI_OK)
        status = check_conf(options->rdzv_conf);
    if (status == TRI_OK)
        status = read_output(values, options);
    if (status == TRI_OK)
        status = read_program(values, options);
    return status;
}
