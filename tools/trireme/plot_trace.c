/*
 * plot_trace.c - see plot_trace.h.
 */
#include "plot_trace.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"
#include "plot_names.h"
#include "tool_json.h"

const char *const trace_categories[TRACE_CATEGORIES] = {
    [TRACE_FORWARD] = "forward",
    [TRACE_BACKWARD] = "backward",
    [TRACE_UPDATE] = "update",
    [TRACE_COPY] = "copy",
    [TRACE_COMMUNICATION] = "communication",
    [TRACE_OTHER] = "other",
    [TRACE_INPUTS] = "gradients of inputs",
    [TRACE_WEIGHTS] = "gradients of weights",
};

#define MAX_ROWS 256
#define MAX_NAMED 8 /* ranks that are missing */
#define MAX_US 1e15 /* thirty years */
#define MIN_US 1e-3 /* of a run: a clock that counts nanoseconds has seen it */

/* A run of one process. */
typedef struct process_run {
    int process, first, end; /* of its events; end: one after the last */
    int worth;               /* how much there is to see: a pipeline, many devices, a backward */
    double begin, last;
} process_run;

/* All events of a file; those of a run stand together. */
typedef struct reader {
    const char *path; /* of the file that is read */
    int file;         /* and which of all it is */
    bool cut;         /* in the middle of a line, and so of its last run */
    trace_event *events;
    int64_t *runs; /* [event] */
    int n, room;
    trace_row rows[MAX_ROWS];
    int n_rows;
    int64_t last; /* run of the first file */
    /* In containers and on other hosts, processes of one job have equal ids: an id tells those of
     * one file apart. */
    struct process {
        const char *path;
        int file;
        int64_t pid;
        int rank, size; /* -1: it has not said */
        char host[40];  /* whose clock it has; "": it has not said */
        int64_t epoch;  /* microseconds since 1970 where that is 0 */
    } processes[MAX_ROWS];
    int n_processes;
    /* Of the ranks: the last begin of the runs that were chosen, and the middle of the one that
     * ended first. */
    double latest_begin, earliest_end, middle;
    const char *late_path, *early_path;
    const char *cut_path; /* of a file that is cut; NULL: none is */
} reader;

static int64_t integer_of(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* -1: too many. */
static int process_of(reader *r, const json_t *event)
{
    int64_t pid = integer_of(event, "pid");

    for (int i = 0; i < r->n_processes; i++) {
        if (r->processes[i].file == r->file && r->processes[i].pid == pid)
            return i;
    }
    if (r->n_processes == MAX_ROWS)
        return -1;
    r->processes[r->n_processes] =
        (struct process){.path = r->path, .file = r->file, .pid = pid, .rank = -1, .size = -1};
    return r->n_processes++;
}

/* -1: too many. */
static int row_of(reader *r, const json_t *event)
{
    int64_t tid = integer_of(event, "tid");
    int process = process_of(r, event);
    trace_row *row = &r->rows[r->n_rows];

    for (int l = 0; l < r->n_rows; l++) {
        if (r->rows[l].process == process && r->rows[l].tid == tid)
            return l;
    }
    if (process < 0 || r->n_rows == MAX_ROWS)
        return -1;
    *row = (trace_row){.process = process, .tid = tid, .rank = -1, .stage = -1};
    snprintf(row->name, sizeof(row->name), "thread %" PRId64, tid);
    return r->n_rows++;
}

static int category_of(const char *name)
{
    int c = 0;

    while (c < TRACE_OTHER && (name == NULL || strcmp(name, trace_categories[c]) != 0))
        c++;
    return c;
}

/* "1F0": stage 1, forward, micro-batch 0. All of it has the colour of the action, but messages. */
static void take_part(const json_t *event, trace_event *e)
{
    static const char kinds[] = "FBIW";
    static const int categories[] = {TRACE_FORWARD, TRACE_BACKWARD, TRACE_INPUTS, TRACE_WEIGHTS};
    const char *part = json_string_value(json_object_get(json_object_get(event, "args"), "part"));
    int stage, microbatch;
    const char *of;
    char kind;

    if (part == NULL || sscanf(part, "%d%c%d", &stage, &kind, &microbatch) != 3 || stage < 0 ||
        microbatch < 0 || microbatch == INT_MAX)
        return;
    of = kind != '\0' ? strchr(kinds, kind) : NULL;
    e->stage = stage;
    e->piece = microbatch + 1;
    if (of != NULL && e->category != TRACE_COMMUNICATION)
        e->category = categories[of - kinds];
}

static int node_of(const json_t *event)
{
    const json_t *node = json_object_get(json_object_get(event, "args"), "node");
    json_int_t number = json_is_integer(node) ? json_integer_value(node) : -1;

    return number >= 0 && number < INT_MAX ? (int)number : -1;
}

static tri_status add_event(reader *r, int row, const json_t *event)
{
    double begin = json_number_value(json_object_get(event, "ts"));
    double us = json_number_value(json_object_get(event, "dur"));
    const char *name = json_string_value(json_object_get(event, "name"));

    if (!(fabs(begin) <= MAX_US) || !(us >= 0 && us <= MAX_US))
        return TRI_OK;
    if (r->n == r->room) {
        int room = r->room == 0 ? 1024 : 2 * r->room;
        trace_event *events = trii_realloc(r->events, (size_t)room, sizeof(*events), "events");
        int64_t *runs;

        if (events == NULL)
            return TRI_ERR_NO_MEMORY;
        r->events = events;
        runs = trii_realloc(r->runs, (size_t)room, sizeof(*runs), "events");
        if (runs == NULL)
            return TRI_ERR_NO_MEMORY;
        r->runs = runs;
        r->room = room;
    }
    r->runs[r->n] = integer_of(json_object_get(event, "args"), "run");
    r->events[r->n] =
        (trace_event){.begin = begin,
                      .us = us,
                      .row = row,
                      .node = node_of(event),
                      .category = category_of(json_string_value(json_object_get(event, "cat"))),
                      .stage = -1,
                      .waits = name != NULL && strncmp(name, "wait ", 5) == 0};
    take_part(event, &r->events[r->n++]);
    return TRI_OK;
}

/* "rank 0 of 2" */
static void take_rank(reader *r, const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    const char *name = json_string_value(json_object_get(args, "name"));
    const char *host = json_string_value(json_object_get(args, "host"));
    int number = process_of(r, event), rank, size;
    struct process *process;

    if (name == NULL || number < 0 || sscanf(name, "rank %d of %d", &rank, &size) != 2 || rank < 0)
        return;
    process = &r->processes[number];
    process->rank = rank;
    process->size = size;
    process->epoch = integer_of(args, "epoch");
    snprintf(process->host, sizeof(process->host), "%s", host != NULL ? host : "");
}

/* From a process's clock to that of the first one that has said its host, in microseconds. Those of
 * one host are not moved: what they say of 1970 was read at different times. */
static double clock_offset(const reader *r, int process)
{
    const struct process *of = &r->processes[process], *first = r->processes;

    while (first < of && first->host[0] == '\0')
        first++;
    return of->host[0] != '\0' && strcmp(of->host, first->host) != 0
               ? (double)of->epoch - (double)first->epoch
               : 0;
}

static tri_status add_line(reader *r, int line, const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "ph"));
    const char *what = json_string_value(json_object_get(event, "name"));
    bool is_process = what != NULL && strcmp(what, "process_name") == 0;
    int row = kind != NULL && !is_process ? row_of(r, event) : -1;

    if (kind == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s, line %d: not an event of a trace", r->path, line);
    if (is_process) {
        take_rank(r, event);
        return TRI_OK;
    }
    if (row < 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s, line %d: more than %d devices", r->path, line,
                         MAX_ROWS);
    if (strcmp(kind, "X") == 0)
        return add_event(r, row, event);
    if (strcmp(kind, "M") == 0 && what != NULL && strcmp(what, "thread_name") == 0) {
        const char *name =
            json_string_value(json_object_get(json_object_get(event, "args"), "name"));

        snprintf(r->rows[row].name, sizeof(r->rows[row].name), "%s", name != NULL ? name : "?");
        plot_make_utf8(r->rows[row].name);
    }
    return TRI_OK;
}

/* An event a line, after a comma that no event ends with; brackets have lines of their own. */
static tri_status read_events(reader *r, const trii_mapping *map)
{
    const char *at = map->data, *end = at + map->bytes;

    for (int line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *from = at;
        size_t bytes = (size_t)((newline != NULL ? newline : end) - at);
        tri_status status;
        json_t *event;

        at += bytes + 1;
        if (bytes > 0 && *from == ',') {
            from++;
            bytes--;
        }
        if (bytes == 0 || (bytes == 1 && (*from == '[' || *from == ']')))
            continue;
        event = json_loadb(from, bytes, 0, NULL);
        if (event == NULL && newline == NULL) {
            r->cut = true;
            r->cut_path = r->path;
            return TRI_OK;
        }
        status = add_line(r, line, event);
        json_decref(event);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static bool is_backward(const trace_event *e)
{
    return e->category == TRACE_BACKWARD || e->category == TRACE_INPUTS ||
           e->category == TRACE_WEIGHTS;
}

/* The run that begins at event `first`. */
static process_run run_at(const reader *r, int first)
{
    bool seen[MAX_ROWS] = {false}, pipeline = false, backward = false;
    int process = r->rows[r->events[first].row].process, i = first;
    process_run run = {.first = first, .process = process, .begin = INFINITY, .last = -INFINITY};

    for (; i < r->n && r->runs[i] == r->runs[first]; i++) {
        const trace_event *e = &r->events[i];

        if (r->rows[e->row].process != process)
            break;
        run.worth += seen[e->row] ? 0 : 2;
        seen[e->row] = true;
        pipeline = pipeline || e->stage >= 0;
        backward = backward || is_backward(e);
        run.begin = fmin(run.begin, e->begin);
        run.last = fmax(run.last, e->begin + e->us);
    }
    run.worth += (pipeline ? 2 * MAX_ROWS : 0) + backward;
    run.end = i;
    return run;
}

static void take_times(reader *r, const process_run *run)
{
    if (r->processes[run->process].size < 2)
        return;
    if (run->begin > r->latest_begin) {
        r->latest_begin = run->begin;
        r->late_path = r->path;
    }
    if (run->last < r->earliest_end) {
        r->earliest_end = run->last;
        r->middle = run->begin + (run->last - run->begin) / 2;
        r->early_path = r->path;
    }
}

/* Among the events of a file, which begin at `from`, of a run that began by then; those of the
 * chosen run move to `from`. */
static tri_status choose(reader *r, int from, int64_t number, double by)
{
    process_run best = {0}, run;

    for (int first = from; first < r->n; first = run.end) {
        run = run_at(r, first);
        if (r->cut && run.end == r->n)
            run.worth = 1; /* less than any other */
        if (number > 0 ? r->runs[first] == number : run.worth >= best.worth && run.begin <= by)
            best = run;
    }
    if (best.worth == 0 && number == 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: nothing has run in this trace", r->path);
    if (best.worth == 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: no run %" PRId64 "; the last is %" PRId64, r->path,
                         number, r->n > from ? r->runs[r->n - 1] : 0);
    if (from == 0)
        r->last = r->runs[r->n - 1];
    take_times(r, &best);
    for (int i = best.first; i < best.end; i++) {
        r->events[from + i - best.first] = r->events[i];
        r->runs[from + i - best.first] = r->runs[i];
    }
    r->n = from + best.end - best.first;
    return TRI_OK;
}

static int by_device(const void *a, const void *b)
{
    const trace_row *x = a, *y = b;

    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

static bool has_stage(const reader *r, int row, int stage)
{
    for (int i = 0; i < r->n; i++)
        if (r->events[i].row == row && r->events[i].stage == stage)
            return true;
    return false;
}

static bool is_drawn(const reader *r, int process)
{
    for (int i = 0; i < r->n; i++)
        if (r->rows[r->events[i].row].process == process)
            return true;
    return false;
}

/* Of the ranks that are drawn: each once, of one job. */
static tri_status check_ranks(const reader *r)
{
    const struct process *of[MAX_ROWS];
    int n = 0;

    for (int i = 0; i < r->n_processes; i++) {
        const struct process *p = &r->processes[i];

        if (p->rank < 0 || !is_drawn(r, i))
            continue;
        for (int k = 0; k < n; k++) {
            if (of[k]->size != p->size)
                return TRII_FAIL(TRI_ERR_MISMATCH,
                                 "%s is of a job of %d ranks, %s of one of %d: give the files of "
                                 "one job",
                                 of[k]->path, of[k]->size, p->path, p->size);
            if (of[k]->rank == p->rank)
                return TRII_FAIL(
                    TRI_ERR_MISMATCH,
                    "%s and %s are both of rank %d: give one file of each rank of a job",
                    of[k]->path, p->path, p->rank);
        }
        of[n++] = p;
    }
    return TRI_OK;
}

/* Each process calls its devices the same, so a row has the name of its rank, and of its stages in
 * place of the device. */
static void name_row(reader *r, int l)
{
    trace_row *row = &r->rows[l];
    const struct process *process = &r->processes[row->process];
    char device[sizeof(row->name)], *name = row->name;
    size_t room = sizeof(row->name);
    int last = -1;

    for (int i = 0; i < r->n; i++) {
        const trace_event *e = &r->events[i];

        if (e->row != l || e->stage < 0)
            continue;
        row->stage = row->stage < 0 || e->stage < row->stage ? e->stage : row->stage;
        last = e->stage > last ? e->stage : last;
    }
    if (process->size > 1) {
        int n;

        snprintf(device, sizeof(device), "%s", name);
        n = snprintf(name, room, "rank %d, ", process->rank);
        row->rank = process->rank;
        name += n;
        room -= (size_t)n;
        snprintf(name, room, "%.*s", (int)room - 1, device);
    }
    for (int s = row->stage; s >= 0 && s <= last; s++) {
        size_t at = row->n_stages == 0 ? 0 : strlen(name);

        if (!has_stage(r, l, s))
            continue;
        snprintf(name + at, room - at, "%s%d",
                 row->n_stages > 0 ? ", "
                 : s < last        ? "stages "
                                   : "stage ",
                 s);
        row->n_stages++;
    }
}

/* Takes the events that were chosen. */
static tri_status take(reader *r, trace_run *run)
{
    double begin = INFINITY, last = -INFINITY;
    int number[MAX_ROWS];

    *run = (trace_run){.number = r->runs[0], .last = r->last, .n = r->n};
    run->events = trii_alloc((size_t)run->n, sizeof(*run->events), "events");
    run->rows = trii_alloc((size_t)r->n_rows, sizeof(*run->rows), "devices");
    if (run->events == NULL || run->rows == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int l = 0; l < r->n_rows; l++) {
        name_row(r, l);
        run->pipeline = run->pipeline || r->rows[l].stage >= 0;
    }
    for (int i = 0; i < r->n; i++) {
        const trace_event *e = &r->events[i];
        trace_row *row = &r->rows[e->row];

        row->busy += row->stage >= 0 && e->waits ? 0 : e->us;
        begin = fmin(begin, e->begin);
        last = fmax(last, e->begin + e->us);
        run->trains = run->trains || is_backward(e);
    }
    for (int l = 0; l < r->n_rows; l++) {
        if (r->rows[l].busy > 0)
            run->rows[run->n_rows++] = r->rows[l];
    }
    qsort(run->rows, (size_t)run->n_rows, sizeof(*run->rows), by_device);
    for (int l = 0; l < r->n_rows; l++) {
        number[l] = 0;
        while (number[l] < run->n_rows && by_device(&run->rows[number[l]], &r->rows[l]) != 0)
            number[l]++;
    }
    run->us = last - begin;
    if (run->us < MIN_US)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: run %" PRId64 " took no time", r->path, run->number);
    run->n = 0;
    for (int i = 0; i < r->n; i++) {
        trace_event *event = &run->events[run->n];

        *event = r->events[i];
        event->begin -= begin;
        event->row = number[r->events[i].row];
        run->n += event->row < run->n_rows; /* else it took no time */
    }
    return TRI_OK;
}

static int by_node(const void *a, const void *b)
{
    const trace_event *x = *(trace_event *const *)a, *y = *(trace_event *const *)b;

    return x->node < y->node ? -1 : x->node > y->node;
}

/* A batch that is cut into pieces passes from device to device, so in the order of the program's
 * calls a row's events of a category are parted by those of the process's other rows: between them
 * a piece ends. The gradients of the last piece are recorded first. */
static tri_status find_pieces(trace_run *run)
{
    size_t n_counts = (size_t)run->n_rows * TRACE_CATEGORIES;
    trace_event **sorted = trii_alloc((size_t)run->n + 1, sizeof(trace_event *), "events");
    int *pieces = trii_alloc(n_counts + 1, sizeof(*pieces), "pieces");
    int last[MAX_ROWS][TRACE_CATEGORIES]; /* 1 + row; 0: none yet */
    tri_status status = sorted != NULL && pieces != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int i = 0; i < run->n && status == TRI_OK; i++)
        sorted[i] = &run->events[i];
    if (status == TRI_OK)
        qsort(sorted, (size_t)run->n, sizeof(trace_event *), by_node);
    memset(last, 0, sizeof(last));
    for (int i = 0; i < run->n && status == TRI_OK; i++) {
        trace_event *e = sorted[i];
        int *count = &pieces[e->row * TRACE_CATEGORIES + e->category];
        int *before = &last[run->rows[e->row].process][e->category];

        if (e->node < 0)
            continue;
        *count += *before != 1 + e->row;
        *before = 1 + e->row;
        e->piece = *count;
    }
    for (int i = 0; i < run->n && status == TRI_OK; i++) {
        trace_event *e = &run->events[i];
        int count = pieces[e->row * TRACE_CATEGORIES + e->category];

        if (count < 2)
            e->piece = 0;
        else if (e->piece > 0 && strcmp(trace_categories[e->category], "backward") == 0)
            e->piece = count + 1 - e->piece;
    }
    trii_free(sorted);
    trii_free(pieces);
    return status;
}

static tri_status read_file(reader *r, const char *path, int64_t number, double by)
{
    int from = r->n;
    trii_mapping map;
    tri_status status = trii_mapping_open(path, &map);

    if (status != TRI_OK)
        return status;
    r->path = path;
    r->cut = false;
    status = read_events(r, &map);
    trii_mapping_close(&map);
    for (int i = from; i < r->n; i++)
        r->events[i].begin += clock_offset(r, r->rows[r->events[i].row].process);
    return status == TRI_OK ? choose(r, from, number, by) : status;
}

static tri_status read_files(reader *r, const char *const *paths, int n_paths, int64_t number,
                             double by)
{
    tri_status status = TRI_OK;

    r->n = r->n_rows = r->n_processes = 0;
    r->latest_begin = -INFINITY;
    r->earliest_end = r->middle = INFINITY;
    for (int k = 0; k < n_paths && status == TRI_OK; k++) {
        r->file = k;
        status = read_file(r, paths[k], number, by);
    }
    return status;
}

/* The last run in one file is a later step than that in another one, as where a job was killed
 * between them: of all files what had begun by the middle of the earlier one. */
static tri_status read_same_step(reader *r, const char *const *paths, int n_paths)
{
    const char *late = r->late_path, *early = r->early_path;
    tri_status status = read_files(r, paths, n_paths, 0, r->middle);

    if (status == TRI_ERR_NOT_FOUND || (status == TRI_OK && r->latest_begin > r->middle))
        return TRII_FAIL(TRI_ERR_MISMATCH,
                         "%s and %s have no step at the same time: give the files of one job, or "
                         "choose the step by --run",
                         early, late);
    return status;
}

static bool has_rank(const reader *r, int rank)
{
    for (int i = 0; i < r->n_processes; i++)
        if (r->processes[i].rank == rank)
            return true;
    return false;
}

/* What the picture will lack. */
static void warn(const reader *r)
{
    int size = 0, n = 0;

    for (int i = 0; i < r->n_processes; i++)
        size = r->processes[i].size > size ? r->processes[i].size : size;
    for (int rank = 0; rank < size; rank++) {
        if (has_rank(r, rank))
            continue;
        if (++n <= MAX_NAMED)
            fprintf(stderr, "%s%d", n == 1 ? "trireme plot: warning: no file of rank " : ", ",
                    rank);
    }
    if (n > MAX_NAMED)
        fprintf(stderr, " and %d others", n - MAX_NAMED);
    if (n > 0)
        fprintf(stderr, " of %d: give the files of all ranks\n", size);
    if (r->cut_path != NULL)
        fprintf(stderr,
                "trireme plot: warning: %s ends in the middle of an event: the rest of its last "
                "run is missing\n",
                r->cut_path);
}

tri_status trace_read(const char *const *paths, int n_paths, int64_t number, trace_run *run_out)
{
    reader *r = trii_alloc(1, sizeof(*r), "trace");
    tri_status status = r != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    *run_out = (trace_run){0};
    if (r == NULL)
        return status;
    status = read_files(r, paths, n_paths, number, INFINITY);
    if (status == TRI_OK)
        status = check_ranks(r);
    if (status == TRI_OK && number == 0 && r->latest_begin > r->middle)
        status = read_same_step(r, paths, n_paths);
    if (status == TRI_OK)
        status = take(r, run_out);
    if (status == TRI_OK && !run_out->pipeline)
        status = find_pieces(run_out);
    if (status == TRI_OK)
        warn(r);
    else
        trace_run_fini(run_out);
    trii_free(r->events);
    trii_free(r->runs);
    trii_free(r);
    return status;
}

void trace_run_fini(trace_run *run)
{
    trii_free(run->events);
    trii_free(run->rows);
    *run = (trace_run){0};
}
