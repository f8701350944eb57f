/*
 * store_command.c - `trireme store`: serve a key-value store, or look into one that is served.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/store.h>

#include "base/param.h"
#include "command.h"
#include "os/clock.h"
#include "os/endpoint.h"
#include "os/signal.h"
#include "os/socket.h"

/* That a server is not there should be known soon; to wait for others may take long. */
#define ASK_MS INT64_C(3000)
#define WAIT_MS TRI_STORE_TIMEOUT_MS

typedef struct request {
    const char *endpoint, *file, *prefix;
    int64_t timeout_ms; /* 0 = none given */
    bool raw;
    const char *action;
    const char *const *args;
    int n_args;
} request;

typedef struct action {
    const char *name;
    int min_args, max_args; /* max -1 = any number */
    const char *usage;
    int (*run)(tri_store *store, const request *r);
} action;

static int failed(void)
{
    fprintf(stderr, "trireme store: %s\n", tri_last_error());
    return COMMAND_FAILED;
}

/* --- values --------------------------------------------------------------- */

/* An argument, or all of stdin for "-". Released with free if *own_out. */
static const char *read_value(const char *arg, size_t *bytes_out, char **own_out)
{
    size_t room = 1 << 16, used = 0, got;
    char *data;

    *own_out = NULL;
    *bytes_out = strlen(arg);
    if (strcmp(arg, "-") != 0)
        return arg;
    data = malloc(room);
    while (data != NULL && (got = fread(data + used, 1, room - used, stdin)) > 0) {
        used += got;
        if (used == room) {
            char *grown = used <= TRI_STORE_MAX_VALUE ? realloc(data, room *= 2) : NULL;

            if (grown == NULL) {
                free(data);
                data = NULL;
            } else {
                data = grown;
            }
        }
    }
    if (data == NULL)
        fprintf(stderr, "trireme store: more on stdin than the %u bytes that a value may have\n",
                TRI_STORE_MAX_VALUE);
    *own_out = data;
    *bytes_out = used;
    return data;
}

static void print_value(const request *r, const void *value, size_t bytes)
{
    fwrite(value, 1, bytes, stdout);
    if (!r->raw)
        putchar('\n');
}

/* --- actions -------------------------------------------------------------- */

typedef tri_status (*put_call)(tri_store *store, const char *key, const void *value, size_t bytes);

static int put(tri_store *store, const request *r, put_call call)
{
    char *own;
    size_t bytes;
    const char *value = read_value(r->args[1], &bytes, &own);
    tri_status status = value != NULL ? call(store, r->args[0], value, bytes) : TRI_ERR_INVALID_ARG;
    int64_t n;

    if (value == NULL)
        return COMMAND_FAILED;
    /* these have no reply: one that has tells that the server took it */
    if (status == TRI_OK)
        status = tri_store_num_keys(store, &n);
    free(own);
    return status == TRI_OK ? COMMAND_OK : failed();
}

static int run_set(tri_store *store, const request *r)
{
    return put(store, r, tri_store_set);
}

static int run_append(tri_store *store, const request *r)
{
    return put(store, r, tri_store_append);
}

static int run_push(tri_store *store, const request *r)
{
    return put(store, r, tri_store_queue_push);
}

static int run_get(tri_store *store, const request *r)
{
    for (int i = 0; i < r->n_args; i++) {
        void *value = NULL;
        size_t bytes = 0;

        if (tri_store_get(store, r->args[i], 0, &value, &bytes) != TRI_OK)
            return failed();
        print_value(r, value, bytes);
        tri_store_free(value);
    }
    return COMMAND_OK;
}

static int run_pop(tri_store *store, const request *r)
{
    void *value = NULL;
    size_t bytes = 0;

    if (tri_store_queue_pop(store, r->args[0], 0, &value, &bytes) != TRI_OK)
        return failed();
    print_value(r, value, bytes);
    tri_store_free(value);
    return COMMAND_OK;
}

static int run_add(tri_store *store, const request *r)
{
    int64_t delta = 1, sum = 0;

    if (r->n_args > 1 &&
        trii_parse_i64(r->args[1], "add: N", INT64_MIN, INT64_MAX, &delta) != TRI_OK)
        return command_usage("store", "%s", tri_last_error());
    if (tri_store_add(store, r->args[0], delta, &sum) != TRI_OK)
        return failed();
    printf("%lld\n", (long long)sum);
    return COMMAND_OK;
}

static int64_t wait_ms(const request *r)
{
    return r->timeout_ms > 0 ? r->timeout_ms : WAIT_MS;
}

static int run_wait(tri_store *store, const request *r)
{
    return tri_store_wait(store, r->args, r->n_args, wait_ms(r)) == TRI_OK ? COMMAND_OK : failed();
}

static int run_barrier(tri_store *store, const request *r)
{
    int64_t size = 0;

    if (trii_parse_i64(r->args[1], "barrier: SIZE", 1, INT64_MAX, &size) != TRI_OK)
        return command_usage("store", "%s", tri_last_error());
    return tri_store_barrier(store, r->args[0], size, wait_ms(r)) == TRI_OK ? COMMAND_OK : failed();
}

static int run_check(tri_store *store, const request *r)
{
    bool present = false;

    if (tri_store_check(store, r->args, r->n_args, &present) != TRI_OK)
        return failed();
    return present ? COMMAND_OK : COMMAND_FAILED;
}

static int run_delete(tri_store *store, const request *r)
{
    int result = COMMAND_OK;

    for (int i = 0; i < r->n_args; i++) {
        bool existed = false;

        if (tri_store_delete(store, r->args[i], &existed) != TRI_OK)
            return failed();
        if (!existed)
            result = COMMAND_FAILED;
    }
    return result;
}

static int run_compare_set(tri_store *store, const request *r)
{
    const char *desired = r->args[2];
    void *value = NULL;
    size_t bytes = 0;
    bool ours;

    if (tri_store_compare_set(store, r->args[0], r->args[1], strlen(r->args[1]), desired,
                              strlen(desired), &value, &bytes) != TRI_OK)
        return failed();
    print_value(r, value, bytes);
    ours = bytes == strlen(desired) && memcmp(value, desired, bytes) == 0;
    tri_store_free(value);
    return ours ? COMMAND_OK : COMMAND_FAILED;
}

static int run_num_keys(tri_store *store, const request *r)
{
    int64_t n = 0;

    (void)r;
    if (tri_store_num_keys(store, &n) != TRI_OK)
        return failed();
    printf("%lld\n", (long long)n);
    return COMMAND_OK;
}

static int run_queue_length(tri_store *store, const request *r)
{
    int64_t n = 0;

    if (tri_store_queue_length(store, r->args[0], &n) != TRI_OK)
        return failed();
    printf("%lld\n", (long long)n);
    return COMMAND_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int run_keys(tri_store *store, const request *r)
{
    char **keys = NULL;
    int64_t n = 0;

    (void)r;
    if (tri_store_list_keys(store, &keys, &n) != TRI_OK)
        return failed();
    qsort(keys, (size_t)n, sizeof(*keys), by_text);
    for (int64_t i = 0; i < n; i++)
        puts(keys[i]);
    tri_store_free(keys);
    return COMMAND_OK;
}

static const action actions[] = {
    {"serve", 0, 0, "serve", NULL},
    {"set", 2, 2, "set KEY VALUE", run_set},
    {"get", 1, -1, "get KEY...", run_get},
    {"add", 1, 2, "add KEY [N]", run_add},
    {"append", 2, 2, "append KEY VALUE", run_append},
    {"compare-set", 3, 3, "compare-set KEY EXPECTED DESIRED", run_compare_set},
    {"wait", 1, -1, "wait KEY...", run_wait},
    {"barrier", 2, 2, "barrier KEY SIZE", run_barrier},
    {"check", 1, -1, "check KEY...", run_check},
    {"delete", 1, -1, "delete KEY...", run_delete},
    {"keys", 0, 0, "keys", run_keys},
    {"num-keys", 0, 0, "num-keys", run_num_keys},
    {"push", 2, 2, "push QUEUE VALUE", run_push},
    {"pop", 1, 1, "pop QUEUE", run_pop},
    {"queue-length", 1, 1, "queue-length QUEUE", run_queue_length},
};

/* --- where ---------------------------------------------------------------- */

/* As trii_endpoint_read, and "@NAME". */
static int split_endpoint(const char *text, char *host, size_t room, int *port_out)
{
    if (*text == '@' && strlen(text) < room) {
        memcpy(host, text, strlen(text) + 1);
        *port_out = 0;
        return COMMAND_OK;
    }
    if (trii_endpoint_read(text, "--endpoint", host, room, port_out) != TRI_OK)
        return command_usage("store", "%s", tri_last_error());
    if (host[0] == '\0')
        return command_usage("store", "--endpoint %s does not name a host", text);
    return COMMAND_OK;
}

static int find_endpoint(const request *r, char *host, size_t room, int *port_out)
{
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    int64_t number = TRI_STORE_PORT;

    if (port != NULL && *port != '\0' && r->endpoint == NULL &&
        trii_parse_i64(port, "MASTER_PORT", 1, 65535, &number) != TRI_OK)
        return command_usage("store", "%s", tri_last_error());
    *port_out = (int)number;
    if (r->endpoint != NULL)
        return split_endpoint(r->endpoint, host, room, port_out);
    snprintf(host, room, "%s", address != NULL && *address != '\0' ? address : "127.0.0.1");
    return COMMAND_OK;
}

/* Until SIGINT, SIGTERM or SIGHUP. */
static int serve(const char *host, int port, const request *r)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const tri_store_tcp_options options = {.serve = true, .timeout_ms = r->timeout_ms};
    tri_store *store = NULL;
    int fd = -1;
    tri_status status = trii_signal_open(signals, 3, &fd);

    if (status == TRI_OK)
        status = tri_store_tcp(host, port, &options, &store);
    if (status != TRI_OK)
        return failed();
    if (host[0] == '@')
        printf("serving at %s\n", host);
    else
        printf("serving at %s port %d\n", host, tri_store_port(store));
    status = command_flush(); /* without the address the server is of no use */
    while (status == TRI_OK && trii_signal_next(fd, NULL) == 0)
        status = trii_socket_wait(fd, TRII_READABLE, TRII_NO_DEADLINE);
    tri_store_unref(store);
    return status == TRI_OK ? COMMAND_OK : failed();
}

static int open_store(const request *r, const char *host, int port, tri_store **store_out)
{
    int64_t ask_ms = r->timeout_ms > 0 ? r->timeout_ms : ASK_MS;
    const tri_store_tcp_options tcp = {.timeout_ms = ask_ms};
    const tri_store_file_options file = {.timeout_ms = ask_ms};
    tri_store *base = NULL;
    tri_status status = r->file != NULL ? tri_store_file(r->file, &file, &base)
                                        : tri_store_tcp(host, port, &tcp, &base);

    if (status == TRI_OK && r->prefix != NULL) {
        status = tri_store_prefix(r->prefix, base, store_out);
        tri_store_unref(base);
    } else if (status == TRI_OK) {
        *store_out = base;
    }
    if (status == TRI_OK)
        return COMMAND_OK;
    failed();
    if (r->file == NULL)
        fprintf(stderr, "%s--timeout SECONDS says how long it is tried.\n",
                r->endpoint != NULL
                    ? ""
                    : "--endpoint HOST:PORT names another server (the \"master\" of "
                      "a job in `trireme ps --json`), ");
    return COMMAND_FAILED;
}

static const action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    }
    return NULL;
}

/* --- options -------------------------------------------------------------- */

static int read_timeout(const char *value, request *r)
{
    char *end;
    double seconds = strtod(value, &end);

    if (end == value || *end != '\0' || !(seconds > 0 && seconds < 1e9))
        return command_usage("store", "--timeout %s is not a number of seconds", value);
    r->timeout_ms = (int64_t)(seconds * 1000) + (seconds < 0.001);
    return COMMAND_OK;
}

static const char *const option_names[] = {"--endpoint", "--file", "--prefix",
                                           "--timeout",  "--raw",  NULL};

/* *taken_out: whether argv[*i_io] is one of our options; *i_io then moves on to its last word. */
static int take_option(int argc, char **argv, int *i_io, request *r, bool *taken_out)
{
    const char *timeout = NULL, **const values[] = {&r->endpoint, &r->file, &r->prefix, &timeout};
    char *value;
    int k = command_option(option_names, 4, argc, argv, i_io, &value);

    *taken_out = k >= 0;
    r->raw = r->raw || k == 4;
    if (k < 0 || k == 4)
        return COMMAND_OK;
    if (value == NULL)
        return command_usage("store", "%s: its value is missing", option_names[k]);
    *values[k] = value;
    return timeout != NULL ? read_timeout(timeout, r) : COMMAND_OK;
}

/* Options come before or after the action; what comes after "--" is none, and a key may begin with
 * a dash if it is not an option. */
static int parse(int argc, char **argv, request *r)
{
    bool over = false;
    int n = 1;

    for (int i = 1; i < argc; i++) {
        bool taken = false;
        int result = COMMAND_OK;

        if (!over && strcmp(argv[i], "--") == 0) {
            over = true;
            continue;
        }
        if (!over && strncmp(argv[i], "--", 2) == 0)
            result = take_option(argc, argv, &i, r, &taken);
        if (result != COMMAND_OK)
            return result;
        if (!taken && !over && n == 1 && strncmp(argv[i], "--", 2) == 0)
            return command_unknown("store", "unknown option", argv[i], option_names);
        if (!taken)
            argv[n++] = argv[i];
    }
    if (n == 1)
        return command_usage("store", "which action?");
    r->action = argv[1];
    r->args = (const char *const *)argv + 2;
    r->n_args = n - 2;
    if (r->file != NULL && (r->endpoint != NULL || strcmp(r->action, "serve") == 0))
        return command_usage("store", "--file needs no server and no --endpoint");
    return COMMAND_OK;
}

static int run(int argc, char **argv)
{
    request r = {.action = ""};
    int result = parse(argc, argv, &r), port = 0;
    const action *act = result == COMMAND_OK ? find_action(r.action) : NULL;
    tri_store *store = NULL;
    char host[256] = "";

    if (result != COMMAND_OK)
        return result;
    if (act == NULL) {
        const char *names[sizeof(actions) / sizeof(actions[0]) + 1] = {NULL};

        for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
            names[i] = actions[i].name;
        return command_unknown("store", "no action named", r.action, names);
    }
    if (r.n_args < act->min_args || (act->max_args >= 0 && r.n_args > act->max_args))
        return command_usage("store", "usage: trireme store [OPTIONS] %s", act->usage);
    result = find_endpoint(&r, host, sizeof(host), &port);
    if (result != COMMAND_OK)
        return result;
    if (act->run == NULL)
        return serve(host, port, &r);
    result = open_store(&r, host, port, &store);
    if (result == COMMAND_OK)
        result = act->run(store, &r);
    tri_store_unref(store);
    return result;
}

const command command_store = {
    .name = "store",
    .summary = "serve the key-value store of a job, or look into it",
    .help = "usage: trireme store [OPTIONS] ACTION [OPTIONS] [ARGS]\n\n"
            "  serve                             serve until SIGINT or SIGTERM\n"
            "  set KEY VALUE                     VALUE - reads stdin, here and below\n"
            "  get KEY...                        print the values, once the keys are there\n"
            "  add KEY [N]                       add N (1) to a counter, print the sum\n"
            "  append KEY VALUE\n"
            "  compare-set KEY EXPECTED DESIRED  print what is there now; status 1 if not\n"
            "                                    DESIRED\n"
            "  wait KEY...                       until all keys are there\n"
            "  barrier KEY SIZE                  until SIZE callers have come to KEY\n"
            "  check KEY...                      status 1 if one is missing\n"
            "  delete KEY...                     status 1 if one was missing\n"
            "  keys, num-keys                    list or count the keys\n"
            "  push QUEUE VALUE, pop QUEUE, queue-length QUEUE\n\n"
            "  --endpoint HOST:PORT  of the server (default: MASTER_ADDR and MASTER_PORT,\n"
            "                        else 127.0.0.1:29500); for serve, port 0 takes any\n"
            "                        free one\n"
            "  --file PATH           a file store instead (PyTorch's FileStore)\n"
            "  --prefix TEXT         only keys below TEXT/\n"
            "  --timeout SECONDS     for connecting and waiting (default 3; wait and barrier\n"
            "                        wait for 300)\n"
            "  --raw                 no newline after values\n\n"
            "Server and client speak the protocol of PyTorch's TCPStore. Without a prefix\n"
            "the keys are those of the job's ranks: writing them disturbs it. A key or value\n"
            "that reads like an option comes after --.\n\n"
            "Examples:\n"
            "  trireme store --endpoint 0.0.0.0:29500 serve\n"
            "  trireme store --endpoint node1:29500 keys\n"
            "  trireme store --timeout 10 wait ready/0 ready/1\n"
            "  trireme store --file /shared/meet get status\n",
    .run = run,
};
