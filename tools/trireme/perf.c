/*
 * perf.c - `trireme perf OP`: how long a collective takes.
 *
 * Started by hand it starts its ranks; started by a launcher it is one of them. Every iteration
 * rewrites its buffers, so that nothing lies in a cache because of the last one, meets at a barrier
 * and then times the call; an iteration took as long as on its slowest rank.
 */
#include "command.h"
#include "perf_send_recv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "base/err.h"
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/param.h"
#include "os/clock.h"

enum { MAX_SIZES = 64, MIN_ITERATIONS = 5, MAX_ITERATIONS = 2000, WARM_UP = 5 };

typedef struct operation {
    const char *name;
    /* Parts of the buffer that src and dst have, in units of 1/ranks of --bytes. */
    bool src_is_part, dst_is_part;
    double (*bus_share)(int size); /* bytes on the bus per byte of --bytes */
    tri_status (*call)(const void *src, void *dst, size_t count, tri_dtype dtype);
} operation;

typedef struct plan {
    const operation *op;
    int nproc;
    const char *engine;
    tri_dtype dtype;
    bool heap, check;
    const char *json;
    double seconds; /* a size is measured for about so long, rewriting included */
    size_t bytes[MAX_SIZES];
    int n_sizes;
} plan;

typedef struct result {
    size_t bytes;
    int iterations;
    double min_us, median_us, p99_us, algorithm_gbs, bus_gbs;
} result;

/* --- operations ----------------------------------------------------------- */

static double twice_all_but_one(int size)
{
    return 2.0 * (size - 1) / size;
}

static double all_but_one(int size)
{
    return 1.0 * (size - 1) / size;
}

static double once(int size)
{
    (void)size;
    return 1;
}

static tri_status call_all_reduce(const void *src, void *dst, size_t count, tri_dtype dtype)
{
    return tri_all_reduce(NULL, src, dst, count, dtype, TRI_REDOP_SUM, NULL);
}

static tri_status call_broadcast(const void *src, void *dst, size_t count, tri_dtype dtype)
{
    (void)src;
    return tri_broadcast(NULL, dst, count, dtype, 0, NULL);
}

static tri_status call_all_gather(const void *src, void *dst, size_t count, tri_dtype dtype)
{
    return tri_all_gather(NULL, src, dst, count / (size_t)tri_world_size(), dtype, NULL);
}

static tri_status call_reduce_scatter(const void *src, void *dst, size_t count, tri_dtype dtype)
{
    return tri_reduce_scatter(NULL, src, dst, count / (size_t)tri_world_size(), dtype,
                              TRI_REDOP_SUM, NULL);
}

static const operation operations[] = {
    {"all_reduce", false, false, twice_all_but_one, call_all_reduce},
    {"broadcast", false, false, once, call_broadcast},
    {"all_gather", true, false, all_but_one, call_all_gather},
    {"reduce_scatter", false, true, all_but_one, call_reduce_scatter},
    {"send_recv", false, false, once, perf_send_recv},
};

/* --- the command line ----------------------------------------------------- */

/* "4", "16K", "1M,256M": binary multiples. */
static bool read_sizes(plan *p, const char *list)
{
    for (p->n_sizes = 0; *list != '\0' && p->n_sizes < MAX_SIZES; p->n_sizes++) {
        char *end;
        unsigned long long n = strtoull(list, &end, 10);

        if (end == list || n > ((unsigned long long)1 << 40))
            return false;
        switch (*end) {
        case 'K':
        case 'k':
            n <<= 10;
            end++;
            break;
        case 'M':
            n <<= 20;
            end++;
            break;
        case 'G':
            n <<= 30;
            end++;
            break;
        default:
            break;
        }
        if (*end != '\0' && *end != ',')
            return false;
        p->bytes[p->n_sizes] = (size_t)n;
        list = end + (*end == ',');
    }
    return p->n_sizes > 0 && *list == '\0';
}

static bool read_dtype(plan *p, const char *name)
{
    static const tri_dtype known[] = {TRI_DTYPE_F32, TRI_DTYPE_F64,  TRI_DTYPE_I32,
                                      TRI_DTYPE_I64, TRI_DTYPE_BF16, TRI_DTYPE_F16};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(tri_dtype_name(known[i]), name) == 0) {
            p->dtype = known[i];
            return true;
        }
    }
    return false;
}

enum { OPTIONS_WITH_VALUES = 8 };

static const char *const option_names[] = {"--nproc",   "--engine",  "--bytes",       "--dtype",
                                           "--buffers", "--seconds", "--outstanding", "--json",
                                           "--check",   NULL};

/* name: one of option_names that has a value */
static int read_option(plan *p, const char *self, const char *name, const char *value)
{
    int64_t n;

    if (strcmp(name, "--nproc") == 0) {
        if (trii_parse_i64(value, name, 1, 1024, &n) != TRI_OK)
            return command_usage(self, "%s", tri_last_error());
        p->nproc = (int)n;
    } else if (strcmp(name, "--engine") == 0) {
        p->engine = value;
    } else if (strcmp(name, "--bytes") == 0) {
        if (!read_sizes(p, value))
            return command_usage(self, "--bytes %s: is not a list of sizes like 4,16K,1M", value);
    } else if (strcmp(name, "--dtype") == 0) {
        if (!read_dtype(p, value))
            return command_usage(self, "--dtype %s: must be f32, f64, i32, i64, f16 or bf16",
                                 value);
    } else if (strcmp(name, "--buffers") == 0) {
        p->heap = strcmp(value, "heap") == 0;
        if (!p->heap && strcmp(value, "arena") != 0)
            return command_usage(self, "--buffers %s: must be arena or heap", value);
    } else if (strcmp(name, "--seconds") == 0) {
        p->seconds = strtod(value, NULL);
        if (!(p->seconds > 0 && p->seconds < 1e6))
            return command_usage(self, "--seconds %s: is not a number of seconds", value);
    } else if (strcmp(name, "--outstanding") == 0) {
        if (trii_parse_i64(value, name, 1, PERF_MOST_OUTSTANDING, &n) != TRI_OK)
            return command_usage(self, "%s", tri_last_error());
        if (p->op->call != perf_send_recv)
            return command_usage(self, "--outstanding: for send_recv only");
        perf_outstanding = (int)n;
    } else {
        p->json = value;
    }
    return COMMAND_OK;
}

static const operation *find_operation(const char *name)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    }
    return NULL;
}

/* Chosen sizes have room for an element (of each rank, where the buffer is divided). */
static int check_sizes(plan *p, const char *self)
{
    size_t least = tri_dtype_size(p->dtype);

    if (p->op->src_is_part || p->op->dst_is_part)
        least *= (size_t)p->nproc;
    if (p->n_sizes == 0) {
        read_sizes(p, "4,256,4K,16K,256K,1M,16M,64M");
        p->bytes[0] = least;
    }
    for (int i = 0; i < p->n_sizes; i++) {
        if (p->bytes[i] < least)
            return command_usage(self, "--bytes %zu: %s of %s needs at least %zu", p->bytes[i],
                                 p->op->name, tri_dtype_name(p->dtype), least);
    }
    return COMMAND_OK;
}

static int unknown_operation(const char *self, const char *given)
{
    const char *names[sizeof(operations) / sizeof(operations[0]) + 1] = {NULL};

    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        names[i] = operations[i].name;
    return command_unknown(self, "no operation named", given, names);
}

static int read_arguments(plan *p, int argc, char **argv)
{
    *p = (plan){.op = find_operation(argc > 1 ? argv[1] : ""),
                .nproc = 2,
                .dtype = TRI_DTYPE_F32,
                .seconds = 0.5};
    if (argc < 2)
        return command_usage(argv[0], "which operation?");
    if (p->op == NULL)
        return unknown_operation(argv[0], argv[1]);
    for (int i = 2; i < argc; i++) {
        const char *given = argv[i];
        char *value;
        int k = command_option(option_names, OPTIONS_WITH_VALUES, argc, argv, &i, &value), status;

        if (k == OPTIONS_WITH_VALUES) {
            p->check = true;
            continue;
        }
        if (k < 0)
            return command_unknown(argv[0], "unknown option", given, option_names);
        if (value == NULL)
            return command_usage(argv[0], "%s needs a value", option_names[k]);
        status = read_option(p, argv[0], option_names[k], value);
        if (status != COMMAND_OK)
            return status;
    }
    return check_sizes(p, argv[0]);
}

/* --- buffers -------------------------------------------------------------- */

/* Small whole numbers, so that sums are exact in every dtype. */
static int pattern(size_t i, int rank)
{
    return (int)(i & 7) + rank;
}

static void fill(void *buf, size_t count, tri_dtype dtype, int rank)
{
    for (size_t i = 0; i < count; i++) {
        int v = pattern(i, rank);

        switch (dtype) {
        case TRI_DTYPE_F64:
            ((double *)buf)[i] = v;
            break;
        case TRI_DTYPE_I32:
            ((int32_t *)buf)[i] = v;
            break;
        case TRI_DTYPE_I64:
            ((int64_t *)buf)[i] = v;
            break;
        case TRI_DTYPE_BF16:
            ((uint16_t *)buf)[i] = trii_f32_to_bf16((float)v);
            break;
        case TRI_DTYPE_F16:
            ((uint16_t *)buf)[i] = trii_f32_to_f16((float)v);
            break;
        default:
            ((float *)buf)[i] = (float)v;
            break;
        }
    }
}

static double value_at(const void *buf, size_t i, tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DTYPE_F64:
        return ((const double *)buf)[i];
    case TRI_DTYPE_I32:
        return ((const int32_t *)buf)[i];
    case TRI_DTYPE_I64:
        return (double)((const int64_t *)buf)[i];
    case TRI_DTYPE_BF16:
        return (double)trii_bf16_to_f32(((const uint16_t *)buf)[i]);
    case TRI_DTYPE_F16:
        return (double)trii_f16_to_f32(((const uint16_t *)buf)[i]);
    default:
        return (double)((const float *)buf)[i];
    }
}

/* Parts of --bytes that a call moves at a time. */
static size_t messages_of(const plan *p)
{
    return p->op->call == perf_send_recv ? (size_t)perf_outstanding : 1;
}

/* What element i of this rank's dst must be; `part` elements come from or go to one rank. */
static double expected_at(const plan *p, size_t i, size_t part)
{
    int size = tri_world_size();

    if (p->op->call == call_broadcast)
        return pattern(i, 0);
    if (p->op->call == perf_send_recv) /* of the rank before, message by message */
        return pattern(i % part, (tri_rank() + size - 1) % size);
    if (p->op->call == call_all_gather)
        return pattern(i % part, (int)(i / part));
    if (p->op->dst_is_part)
        i += part * (size_t)tri_rank();
    return (double)size * pattern(i, 0) + size * (size - 1) / 2.0;
}

static bool check_result(const plan *p, const void *dst, size_t count, size_t part)
{
    size_t n = p->op->dst_is_part ? part : count * messages_of(p);

    if (p->op->call == perf_send_recv)
        part = count;
    for (size_t i = 0; i < n; i++) {
        double seen = value_at(dst, i, p->dtype), expected = expected_at(p, i, part);

        if (seen != expected) {
            fprintf(stderr, "trireme perf: rank %d, element %zu of %zu is %g instead of %g\n",
                    tri_rank(), i, n, seen, expected);
            return false;
        }
    }
    return true;
}

/* --- measuring ------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Times n iterations into us (the slowest rank's each); ranks agree. */
static tri_status time_iterations(const plan *p, void *src, void *dst, size_t count, int n,
                                  double *us)
{
    size_t part = count / (size_t)tri_world_size();
    tri_status status = TRI_OK;

    for (int i = 0; i < n && status == TRI_OK; i++) {
        int64_t start;

        fill(src, p->op->src_is_part ? part : count, p->dtype, tri_rank());
        if (p->op->call == call_broadcast)
            fill(dst, count, p->dtype, tri_rank());
        status = tri_barrier(NULL, NULL);
        start = trii_now_ns();
        if (status == TRI_OK)
            status = p->op->call(src, dst, count, p->dtype);
        us[i] = (double)(trii_now_ns() - start) * 1e-3;
    }
    if (status == TRI_OK)
        status = tri_all_reduce(NULL, us, us, (size_t)n, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL);
    return status;
}

/* Rank 0's estimate of how often the operation fits in the budget. */
static tri_status choose_iterations(const plan *p, int64_t warm_up_ns, int64_t *n_out)
{
    int64_t one = warm_up_ns / WARM_UP + 1, n = (int64_t)(p->seconds * 1e9) / one;

    n = n < MIN_ITERATIONS ? MIN_ITERATIONS : n;
    *n_out = n > MAX_ITERATIONS ? MAX_ITERATIONS : n;
    return tri_broadcast(NULL, n_out, 1, TRI_DTYPE_I64, 0, NULL);
}

static tri_status measure(const plan *p, void *src, void *dst, size_t bytes, bool *right, result *r)
{
    static double us[MAX_ITERATIONS];
    int size = tri_world_size();
    size_t count = bytes / tri_dtype_size(p->dtype) / (size_t)size * (size_t)size;
    int64_t start = trii_now_ns(), n = 0;
    tri_status status;

    if (!p->op->src_is_part && !p->op->dst_is_part) /* need not be divided */
        count = bytes / tri_dtype_size(p->dtype);
    if (count == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--bytes %zu: too small for %d ranks", bytes, size);
    status = time_iterations(p, src, dst, count, WARM_UP, us);
    if (status == TRI_OK)
        status = choose_iterations(p, trii_now_ns() - start, &n);
    if (status == TRI_OK)
        status = time_iterations(p, src, dst, count, (int)n, us);
    if (status != TRI_OK)
        return status;
    if (p->check)
        *right = check_result(p, dst, count, count / (size_t)size) && *right;
    qsort(us, (size_t)n, sizeof(us[0]), compare_doubles);
    *r = (result){.bytes = count * tri_dtype_size(p->dtype),
                  .iterations = (int)n,
                  .min_us = us[0],
                  .median_us = us[n / 2],
                  .p99_us = us[(n * 99 + 99) / 100 - 1]};
    r->algorithm_gbs = (double)(r->bytes * messages_of(p)) / r->median_us * 1e-3;
    r->bus_gbs = r->algorithm_gbs * p->op->bus_share(size);
    return TRI_OK;
}

static tri_status make_buffer(const plan *p, size_t bytes, void **buffer_out)
{
    *buffer_out = p->heap ? trii_alloc_aligned(64, bytes + 64, "buffer of perf")
                          : tri_group_alloc(NULL, bytes + 64);
    if (*buffer_out == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(*buffer_out, 0, bytes + 64); /* touched */
    return TRI_OK;
}

static void free_buffer(const plan *p, void *buffer)
{
    if (p->heap)
        trii_free(buffer);
    else if (buffer != NULL)
        tri_group_free(NULL, buffer);
}

static bool is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Where the table goes: not between the JSON. */
static FILE *table_of(const plan *p)
{
    return is_stdout(p->json) ? stderr : stdout;
}

static tri_status print_head(const plan *p)
{
    FILE *out = table_of(p);

    fprintf(out, "%s: engine %s, %d ranks, %s, %s buffers", p->op->name, tri_group_engine(NULL),
            tri_world_size(), tri_dtype_name(p->dtype), p->heap ? "heap" : "arena");
    if (messages_of(p) > 1)
        fprintf(out, ", %d messages at a time", perf_outstanding);
    fputc('\n', out);
    fprintf(out, "%12s %10s %12s %12s %12s %10s %10s\n", "bytes", "iterations", "min us",
            "median us", "p99 us", "alg GB/s", "bus GB/s");
    return command_flush();
}

static tri_status print_result(FILE *out, const result *r)
{
    fprintf(out, "%12zu %10d %12.3f %12.3f %12.3f %10.3f %10.3f\n", r->bytes, r->iterations,
            r->min_us, r->median_us, r->p99_us, r->algorithm_gbs, r->bus_gbs);
    return command_flush();
}

static tri_status write_json(const plan *p, const result *results)
{
    FILE *file = is_stdout(p->json) ? stdout : fopen(p->json, "w");
    bool ok;

    if (file == NULL)
        return TRII_FAIL(TRI_ERR_IO, "cannot write %s: %s", p->json, strerror(errno));
    fputs("[", file);
    for (int i = 0; i < p->n_sizes; i++) {
        const result *r = &results[i];

        fprintf(file,
                "%s\n  {\"op\": \"%s\", \"engine\": \"%s\", \"ranks\": %d, \"dtype\": \"%s\", "
                "\"buffers\": \"%s\", \"outstanding\": %zu, \"bytes\": %zu, \"iterations\": %d, "
                "\"min_us\": %.4f, "
                "\"median_us\": %.4f, \"p99_us\": %.4f, \"algorithm_gb_per_s\": %.4f, "
                "\"bus_gb_per_s\": %.4f}",
                i > 0 ? "," : "", p->op->name, tri_group_engine(NULL), tri_world_size(),
                tri_dtype_name(p->dtype), p->heap ? "heap" : "arena", messages_of(p), r->bytes,
                r->iterations, r->min_us, r->median_us, r->p99_us, r->algorithm_gbs, r->bus_gbs);
    }
    fputs("\n]\n", file);
    if (file == stdout)
        return TRI_OK;
    ok = !ferror(file);
    errno = 0;
    if (fclose(file) == 0 && ok)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_IO, "cannot write %s%s%s", p->json, errno != 0 ? ": " : "",
                     errno != 0 ? strerror(errno) : "");
}

/* After rank 0 has printed: all continue or stop together, none because another one is gone. END:
 * rank 0 could not print. */
static tri_status go_on(tri_status printed)
{
    int64_t failed = printed != TRI_OK;
    tri_status status = tri_broadcast(NULL, &failed, 1, TRI_DTYPE_I64, 0, NULL);

    if (printed != TRI_OK)
        return printed;
    return status == TRI_OK && failed != 0 ? TRI_END : status;
}

static tri_status measure_all(const plan *p, result *results, bool *right)
{
    size_t largest = 0;
    void *src = NULL, *dst = NULL;
    tri_status status;

    for (int i = 0; i < p->n_sizes; i++)
        largest = p->bytes[i] > largest ? p->bytes[i] : largest;
    status = make_buffer(p, largest, &src);
    if (status == TRI_OK)
        status = make_buffer(p, largest * messages_of(p), &dst);
    if (status == TRI_OK)
        status = go_on(tri_rank() == 0 ? print_head(p) : TRI_OK);
    for (int i = 0; i < p->n_sizes && status == TRI_OK; i++) {
        status = measure(p, src, dst, p->bytes[i], right, &results[i]);
        if (status == TRI_OK)
            status = go_on(tri_rank() == 0 ? print_result(table_of(p), &results[i]) : TRI_OK);
    }
    free_buffer(p, dst);
    free_buffer(p, src);
    return status;
}

static tri_status run_rank(const plan *p)
{
    static result results[MAX_SIZES];
    const tri_init_options options = {.group.engine = p->engine};
    bool right = true;
    tri_status status = tri_init(&options);

    if (status == TRI_OK)
        status = measure_all(p, results, &right);
    if (status == TRI_OK && tri_rank() == 0) {
        if (p->check && right)
            fputs("results are right\n", table_of(p));
        if (p->json != NULL)
            status = write_json(p, results);
        if (status == TRI_OK)
            status = command_flush();
    }
    if (status == TRI_END)
        return TRI_OK;
    if (status == TRI_OK && !right)
        status = TRII_FAIL(TRI_ERR_INTERNAL, "%s gave wrong results", p->op->name);
    return status;
}

static tri_status run_spawned(int rank, void *arg)
{
    (void)rank;
    return run_rank((const plan *)arg);
}

static int run(int argc, char **argv)
{
    plan p;
    int usage = read_arguments(&p, argc, argv);
    tri_status status;

    if (usage != COMMAND_OK)
        return usage;
    /* Under a launcher we are one of its ranks. */
    if (getenv("RANK") != NULL || getenv("OMPI_COMM_WORLD_RANK") != NULL ||
        getenv("SLURM_PROCID") != NULL || p.nproc == 1) {
        status = run_rank(&p);
        if (status != TRI_OK)
            fprintf(stderr, "trireme perf: %s\n", tri_last_error());
        tri_finalize();
    } else {
        if (p.engine != NULL && !tri_engine_is_available(p.engine)) /* once, not by every rank */
            return command_usage(argv[0], "--engine %s: %s", p.engine, tri_last_error());
        status = tri_spawn(run_spawned, &p, p.nproc, NULL);
        if (status != TRI_OK)
            fprintf(stderr, "trireme perf: %s\n", tri_last_error());
    }
    return status == TRI_OK ? COMMAND_OK : COMMAND_FAILED;
}

const command command_perf = {
    .name = "perf",
    .summary = "how long a collective takes",
    .help = "usage: trireme perf OP [OPTIONS]\n\n"
            "OP is all_reduce, broadcast, all_gather, reduce_scatter or send_recv (each rank\n"
            "sends to the next one). Starts the ranks itself, unless a launcher started it.\n"
            "Each iteration rewrites its buffers; its time is that of the slowest rank.\n\n"
            "  --nproc N             ranks on this host (2)\n"
            "  --engine E            self, shm or tcp (the best one)\n"
            "  --bytes LIST          sizes of the whole buffer: 4,16K,1M (4 to 64M)\n"
            "  --dtype D             f32, f64, i32, i64, f16 or bf16 (f32)\n"
            "  --buffers arena|heap  memory of the group, or of malloc (arena)\n"
            "  --outstanding N       send_recv: messages at a time, each with its tag,\n"
            "                        the last received first (1)\n"
            "  --seconds S           time for each size (0.5)\n"
            "  --check               compare the last result of each size with the truth\n"
            "  --json FILE           also write the table as JSON; -: to stdout, and\n"
            "                        the table to stderr\n\n"
            "alg GB/s is bytes / median; bus GB/s counts what each rank must send and\n"
            "receive, so that operations and numbers of ranks can be compared.\n\n"
            "Examples:\n"
            "  trireme perf all_reduce --nproc 4 --bytes 4,64K,16M --check\n"
            "  trireme perf all_gather --engine tcp --json gather.json\n"
            "  trireme perf send_recv --outstanding 64 --bytes 4,64K,1M\n",
    .run = run,
};
