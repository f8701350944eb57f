/*
 * trace.c - the file of trace.h. run.c calls it after each run that TRI_TRACE times; plan.c asks
 * whether to take times at all.
 */
#include "train/plan/trace.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/host.h"
#include "os/process.h"
#include "os/thread.h"
#include "train/graph/step/part.h"
#include "train/tensor/device_list.h"

#define EVENT_BYTES 384 /* bytes of an event at most, with a name of NAME_BYTES */
#define NAME_BYTES 96

/* The file; one for the process. */
static struct {
    trii_mutex mutex; /* guards everything below */
    int opened_in;    /* the process that has opened it; 0 = none has */
    int fd;           /* -1: there is none, or nothing more is written */
    char path[512];
    int64_t runs, events;
    bool named[TRII_DEVICE_KINDS][TRI_MAX_DEVICES]; /* devices whose names have been written */
    bool ranked;                                    /* so has been this process's rank */
    char asked[512];                                /* by trii_trace_ask; "" = TRI_TRACE counts */
} trace = {.mutex = TRII_MUTEX_INITIALIZER, .fd = -1};

/* Whether trace.asked names a file: read without the mutex when plans are made. */
static atomic_bool is_asked;

tri_status trii_trace_ask(const char *path)
{
    if (path != NULL && strlen(path) >= sizeof(trace.asked))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the name of the trace has %zu bytes: at most %zu",
                         strlen(path), sizeof(trace.asked) - 1);
    trii_mutex_lock(&trace.mutex);
    trii_fd_close(trace.fd);
    trace.fd = -1;
    trace.opened_in = 0;
    snprintf(trace.asked, sizeof(trace.asked), "%s", path != NULL ? path : "");
    atomic_store(&is_asked, path != NULL);
    trii_mutex_unlock(&trace.mutex);
    return TRI_OK;
}

bool trii_trace_wanted(void)
{
    return atomic_load(&is_asked) || trii_param_text(TRII_PARAM_TRACE) != NULL;
}

/* %p in the name becomes the process id. False: too long. */
static bool name_file(const char *pattern, int pid)
{
    size_t n = 0;

    for (; *pattern != '\0' && n + 1 < sizeof(trace.path); pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            n += (size_t)snprintf(trace.path + n, sizeof(trace.path) - n, "%d", pid);
            pattern++;
        } else {
            trace.path[n++] = *pattern;
        }
    }
    if (*pattern != '\0' || n >= sizeof(trace.path))
        return false;
    trace.path[n] = '\0';
    return true;
}

static void stop(const char *why)
{
    trii_log_write(TRII_LOG_WARN, "plan", "TRI_TRACE: %s; nothing more is written to it", why);
    trii_fd_close(trace.fd);
    trace.fd = -1;
}

/* Opens the file again in each process: a child of fork() leaves its parent's alone. */
static void open_file(int pid)
{
    const char *pattern = trace.asked[0] != '\0' ? trace.asked : trii_param_text(TRII_PARAM_TRACE);
    bool child = trace.opened_in != 0 && pattern != NULL && strstr(pattern, "%p") == NULL;
    tri_status status = TRI_OK;

    trace.opened_in = pid;
    trace.fd = -1;
    trace.events = 0;
    trace.ranked = false;
    memset(trace.named, 0, sizeof(trace.named));
    if (pattern == NULL || child)
        return;
    if (!name_file(pattern, pid)) {
        stop("its name is too long");
        return;
    }
    if (trii_path_is_file(trace.path))
        status = trii_path_remove(trace.path);
    if (status == TRI_OK)
        status = trii_append_open(trace.path, &trace.fd);
    if (status == TRI_OK)
        status = trii_append(trace.fd, trace.path, "[\n", 2);
    if (status != TRI_OK)
        stop(tri_last_error());
}

static const char *category_of(const trii_entry *entry, const trii_node *node)
{
    if (entry->kind == TRII_ENTRY_START || entry->kind == TRII_ENTRY_WAIT)
        return "communication";
    if (entry->kind != TRII_ENTRY_KERNEL || node == NULL ||
        node->op->op_class == TRII_CLASS_TRANSFER)
        return "copy";
    if (strcmp(node->op->name, "update") == 0)
        return "update";
    return node->backward ? "backward" : "forward";
}

/* Escapes the text for JSON. */
static void name_of(const trii_entry *entry, const trii_node *node, char *out)
{
    char host[TRII_OP_TEXT];
    const char *name = entry->kernel != NULL ? entry->kernel->name
                       : node == NULL        ? "copy"
                       : node->host != NULL  ? trii_host_text(node->host, host)
                                             : node->op->name;

    snprintf(out, NAME_BYTES, "%s%s", entry->kind == TRII_ENTRY_WAIT ? "wait for " : "", name);
    for (char *at = out; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '?';
    }
}

static const char *separator(void)
{
    return trace.events++ > 0 ? "," : "";
}

static int thread_of(tri_device device)
{
    return trii_device_kind_of(device) * TRI_MAX_DEVICES + trii_device_index_of(device);
}

static size_t write_name(char *out, tri_device device)
{
    bool *named = &trace.named[trii_device_kind_of(device)][trii_device_index_of(device)];

    if (*named)
        return 0;
    *named = true;
    return (size_t)snprintf(out, EVENT_BYTES,
                            "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"name\":\"%s\"}}\n",
                            separator(), trace.opened_in, thread_of(device),
                            tri_device_text(device));
}

/* Of a process that has called tri_init. */
static size_t write_rank(char *out)
{
    char host[40];

    if (trace.ranked || !tri_is_initialized())
        return 0;
    trace.ranked = true;
    trii_boot_id(host);
    return (size_t)snprintf(out, EVENT_BYTES,
                            "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                            "\"args\":{\"name\":\"rank %d of %d\",\"host\":\"%s\","
                            "\"epoch\":%" PRId64 "}}\n",
                            separator(), trace.opened_in, tri_rank(), tri_world_size(), host,
                            (trii_wall_ns() - trii_now_ns()) / 1000);
}

/* As ,"part":"1F0". */
static void part_of(const trii_node *node, char out[48])
{
    int32_t part = node != NULL ? node->part : 0;

    out[0] = '\0';
    if (part != 0)
        snprintf(out, 48, ",\"part\":\"%d%c%d\"", trii_part_stage(part),
                 TRII_PART_KINDS[trii_part_kind(part)], trii_part_microbatch(part));
}

static size_t write_entry(char *out, const trii_plan *plan, int32_t e, tri_device device,
                          const trii_step *step, const trii_segment *segment)
{
    const trii_entry *entry = &plan->entries[e];
    int32_t n = entry->kind == TRII_ENTRY_WAIT ? plan->hosts[entry->host].node : entry->node;
    const trii_node *node = n >= 0 ? &step->nodes[segment->first_node + n] : NULL;
    int64_t begin = plan->times[e].begin, ns = plan->times[e].end - begin;
    char name[NAME_BYTES], part[48];

    name_of(entry, node, name);
    part_of(node, part);
    return (size_t)snprintf(out, EVENT_BYTES,
                            "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%" PRId64
                            ".%03d,\"dur\":%" PRId64 ".%03d,\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"run\":%" PRId64 ",\"node\":%d%s}}\n",
                            separator(), name, category_of(entry, node), begin / 1000,
                            (int)(begin % 1000), ns / 1000, (int)(ns % 1000), trace.opened_in,
                            thread_of(device), trace.runs, (int)n, part);
}

static void write_run(const trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    char *text =
        trii_alloc((size_t)plan->n_entries + (size_t)plan->n_queues + 1, EVENT_BYTES, "trace");
    size_t n = 0;
    tri_status status;

    if (text == NULL) {
        stop(tri_last_error());
        return;
    }
    trace.runs++;
    n += write_rank(text);
    for (int32_t l = 0; l < plan->n_queues; l++) {
        const trii_plan_queue *queue = &plan->queues[l];
        int32_t entries = plan->n_queues > 1 ? queue->n_entries : plan->n_entries;

        n += write_name(text + n, queue->device);
        for (int32_t i = 0; i < entries; i++)
            n += write_entry(text + n, plan, plan->n_queues > 1 ? queue->entries[i] : i,
                             queue->device, step, segment);
    }
    status = trii_append(trace.fd, trace.path, text, n);
    trii_free(text);
    if (status != TRI_OK)
        stop(tri_last_error());
    else if (trace.events >= TRII_TRACE_MAX_EVENTS)
        stop("a million events are enough");
}

void trii_trace_run(const trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    int pid = trii_process_id();

    trii_mutex_lock(&trace.mutex);
    if (trace.opened_in != pid)
        open_file(pid);
    if (trace.fd >= 0)
        write_run(plan, step, segment);
    trii_mutex_unlock(&trace.mutex);
}
