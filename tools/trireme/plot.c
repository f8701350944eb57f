/*
 * plot.c - `trireme plot`: curves and bars of what runs recorded, timelines of traces.
 */
#include "command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/status.h>

#include "base/alloc.h"
#include "base/param.h"
#include "plot_bars.h"
#include "plot_canvas.h"
#include "plot_draw.h"
#include "plot_names.h"
#include "plot_read.h"
#include "plot_timeline.h"

static const char help[] =
    "usage: trireme plot FILE... -o FILE.svg|png [--keys LIST] [--x KEY]\n"
    "       trireme plot --bars FILE... -o FILE.svg|png [--keys LIST]\n"
    "                    [--title TEXT] [--y-label TEXT]\n"
    "       trireme plot --timeline TRACE.json... -o FILE.svg|png [--run N]\n"
    "                    [--title TEXT]\n"
    "\n"
    "Draws the numbers that runs recorded as curves. A FILE is JSON lines (one\n"
    "object a record), a name that ends in .csv, an event file of TensorBoard, or a\n"
    "folder of event files, which are one run: what a resumed run replaced is left\n"
    "out. Without --keys: everything about loss in one panel, everything about\n"
    "accuracy in another. Of more than 60 points the points are pale, and a running\n"
    "mean is bold; the number beside a name is where the bold line ends.\n"
    "\n"
    "With --bars each key is a bar: its mean over all records, with a line from one\n"
    "standard deviation below it to one above. Without --keys: every key.\n"
    "\n"
    "With --timeline: what each device did, and when, during one run of a step, from\n"
    "a file that a program writes with TRI_TRACE=TRACE.json in its environment.\n"
    "Give the files of all workers of a pipeline (TRI_TRACE=step-%p.json): each is\n"
    "a row, whose waits are blank, and its idle share of the step is printed.\n"
    "\n"
    "  -o, --output FILE   the picture; its ending says which kind\n"
    "  --keys LIST         panels separated by commas, keys of one panel by +; where\n"
    "                      a key has such a character, the longest key is meant\n"
    "  --x KEY             what runs along the x axis (default: step); records\n"
    "                      without it are left out, in bars, too\n"
    "  --bars              bars in place of curves\n"
    "  --timeline          rows of devices\n"
    "  --run N             which run (default: the last on most devices that trains)\n"
    "  --title TEXT        above the bars or rows\n"
    "  --y-label TEXT      what the bars are: seconds a batch, say\n"
    "\n"
    "examples:\n"
    "  trireme plot runs/fashion-1/metrics.jsonl -o curves.svg\n"
    "  trireme plot runs/fashion-1 -o curves.png --keys loss\n"
    "  trireme plot a.jsonl b.csv -o both.png --keys loss+test_loss,lr\n"
    "  trireme plot --bars times.jsonl -o times.png --keys plain+pipelined\n"
    "  TRI_TRACE=step.json ./train && trireme plot --timeline step.json -o step.png\n"
    "  trireme plot --timeline step-*.json -o pipeline.svg\n";

typedef struct arguments {
    const char *output, *keys, *x, *title, *y_label;
    const char *run; /* NULL: none is chosen */
    bool bars, timeline;
    const char **files;
    int n_files;
} arguments;

/* Whether all options are for the picture that is wanted. */
static int check(const arguments *args)
{
    const char *other = NULL, *whose = NULL;

    if (args->n_files == 0)
        return command_usage("plot", "which files?");
    if (args->output == NULL)
        return command_usage("plot", "no output file: give -o FILE.svg or -o FILE.png");
    if (!canvas_can_draw(args->output))
        return command_usage("plot", "-o %s ends neither with .svg nor with .png", args->output);
    if (args->bars && args->timeline)
        return command_usage("plot", "--bars and --timeline exclude each other");
    if (args->y_label != NULL && !args->bars) {
        other = "--y-label";
        whose = "--bars";
    } else if (args->title != NULL && !args->bars && !args->timeline) {
        other = "--title";
        whose = "--bars and --timeline";
    } else if (args->run != NULL && !args->timeline) {
        other = "--run";
        whose = "--timeline";
    } else if (args->keys != NULL && args->timeline) {
        other = "--keys";
        whose = "curves and --bars";
    }
    if (other != NULL)
        return command_usage("plot", "%s is for %s", other, whose);
    return COMMAND_OK;
}

/* files: [argc], for their names */
static int parse(int argc, char **argv, const char **files, arguments *args)
{
    static const char *const names[] = {"--output",  "-o",    "--keys", "--x",        "--title",
                                        "--y-label", "--run", "--bars", "--timeline", NULL};
    const char **const values[] = {&args->output, &args->output,  &args->keys, &args->x,
                                   &args->title,  &args->y_label, &args->run};
    bool *const flags[] = {&args->bars, &args->timeline}; /* the last two */
    const int n_values = sizeof(values) / sizeof(values[0]);
    bool only_files = false;

    *args = (arguments){.x = "step", .files = files};
    for (int i = 1; i < argc; i++) {
        const char *given = argv[i];
        char *value;
        int k;

        if (only_files || *given != '-') {
            args->files[args->n_files++] = given;
            continue;
        }
        if (strcmp(given, "--") == 0) {
            only_files = true;
            continue;
        }
        k = command_option(names, n_values, argc, argv, &i, &value);
        if (k < 0)
            return command_unknown("plot", "unknown option", given, names);
        if (k >= n_values) {
            *flags[k - n_values] = true;
            continue;
        }
        if (value == NULL)
            return command_usage("plot", "%s needs a value", given);
        if (values[k] == &args->title || values[k] == &args->y_label)
            plot_make_utf8(value);
        *values[k] = value;
    }
    return check(args);
}

static void label_of(const plot_data *data, const plot_series *series, char *out, size_t bytes)
{
    char name[64] = "";

    if (data->n_files > 1)
        plot_name_file(data->files, data->n_files, series->file, name, sizeof(name));
    snprintf(out, bytes, "%s%s%s", name, name[0] != '\0' ? ": " : "", series->key);
    for (char *at = out + strlen(name); *at != '\0'; at++) {
        if (*at == '_')
            *at = ' ';
    }
    plot_make_utf8(out);
}

static void add_curve(plot_panel *panel, const plot_data *data, const plot_series *series)
{
    plot_curve *curve;

    if (panel->n == PLOT_MAX_CURVES) {
        fprintf(stderr, "trireme plot: %s of %s is left out: a panel has at most %d curves\n",
                series->key, data->files[series->file], PLOT_MAX_CURVES);
        return;
    }
    curve = &panel->curves[panel->n++];
    curve->series = series;
    label_of(data, series, curve->label, sizeof(curve->label));
}

/* Panels for what every run has. */
static int default_panels(const plot_data *data, plot_panel *panels)
{
    static const char *const words[] = {"loss", "accuracy"};
    int n = 0;

    for (int w = 0; w < 2; w++) {
        plot_panel *panel = &panels[n];

        *panel = (plot_panel){0};
        snprintf(panel->title, sizeof(panel->title), "%s", words[w]);
        for (int i = 0; i < data->n; i++) {
            if (strstr(data->series[i].key, words[w]) != NULL)
                add_curve(panel, data, &data->series[i]);
        }
        if (panel->n > 0)
            n++;
    }
    return n;
}

/* Everything, in one panel. */
static int one_panel(const plot_data *data, plot_panel *panel)
{
    *panel = (plot_panel){0};
    for (int i = 0; i < data->n; i++)
        add_curve(panel, data, &data->series[i]);
    return panel->n > 0;
}

/* Bytes of the key that a list begins with: a key of the files may have + and commas itself, and of
 * several that fit the longest is meant. */
static size_t first_key(const plot_data *data, const char *list)
{
    size_t best = 0;

    for (int i = 0; i < data->n; i++) {
        size_t n = strlen(data->series[i].key);

        if (n > best && strncmp(data->series[i].key, list, n) == 0 &&
            (list[n] == '\0' || list[n] == '+' || list[n] == ','))
            best = n;
    }
    return best > 0 ? best : strcspn(list, "+,");
}

/* Of one key of a list: of all files. */
static void add_key(plot_panel *panel, const plot_data *data, const char *key, size_t bytes)
{
    for (int i = 0; i < data->n; i++) {
        if (strlen(data->series[i].key) == bytes && strncmp(data->series[i].key, key, bytes) == 0)
            add_curve(panel, data, &data->series[i]);
    }
}

static int chosen_panels(const plot_data *data, const char *keys, plot_panel *panels)
{
    int n = 0;

    for (const char *at = keys; *at != '\0';) {
        plot_panel *panel = &panels[n];
        bool more = true;

        if (n == PLOT_MAX_PANELS) {
            fprintf(stderr, "trireme plot: %s is left out: a picture has at most %d panels\n", at,
                    PLOT_MAX_PANELS);
            break;
        }
        *panel = (plot_panel){0};
        snprintf(panel->title, sizeof(panel->title), "%.*s", (int)first_key(data, at), at);
        plot_make_utf8(panel->title);
        while (more) {
            size_t bytes = first_key(data, at);

            add_key(panel, data, at, bytes);
            more = at[bytes] == '+';
            at += bytes + (at[bytes] != '\0');
        }
        if (panel->n > 0)
            n++;
    }
    return n;
}

static int fail(const char *what)
{
    fprintf(stderr, "trireme plot: %s\n", what);
    return COMMAND_FAILED;
}

static bool has_key(const plot_data *data, const char *key, size_t bytes)
{
    for (int i = 0; i < data->n; i++) {
        if (strlen(data->series[i].key) == bytes && strncmp(data->series[i].key, key, bytes) == 0)
            return true;
    }
    return false;
}

/* A text of the files or the command line, without what a terminal would obey. */
static void say_key(const char *key, size_t bytes)
{
    char text[256];

    snprintf(text, sizeof(text), "%.*s", (int)(bytes < 200 ? bytes : 200), key);
    plot_make_utf8(text);
    fputs(text, stderr);
}

static void say_keys(const plot_data *data)
{
    fputs("there are", stderr);
    for (int i = 0; i < data->n; i++) {
        const plot_data before = {.series = data->series, .n = i}; /* each key once */
        const char *key = data->series[i].key;

        if (has_key(&before, key, strlen(key)))
            continue;
        fputs(i > 0 ? ", " : " ", stderr);
        say_key(key, strlen(key));
    }
    fputc('\n', stderr);
}

/* Every listed key is in one of the files; else says which there are. */
static bool keys_exist(const plot_data *data, const char *keys)
{
    for (const char *at = keys; *at != '\0';) {
        size_t bytes = first_key(data, at);

        if (bytes > 0 && !has_key(data, at, bytes)) {
            fputs("trireme plot: no key ", stderr);
            say_key(at, bytes);
            fputs("; ", stderr);
            say_keys(data);
            return false;
        }
        at += bytes + (at[bytes] != '\0');
    }
    return true;
}

static int nothing_to_draw(const plot_data *data, const char *keys)
{
    bool any = false;

    for (int i = 0; i < data->n; i++)
        any |= data->series[i].n > 0;
    if (keys != NULL || !any)
        return fail("there is nothing to draw in these files");
    fputs("trireme plot: no key is about loss or accuracy, so --keys must name some; ", stderr);
    say_keys(data);
    return COMMAND_FAILED;
}

static int draw_timeline(const arguments *args)
{
    trace_run traced;
    int64_t number = 0;
    tri_status status = TRI_OK;

    if (args->run != NULL)
        status = trii_parse_i64(args->run, "--run", INT64_MIN, INT64_MAX, &number);
    if (status != TRI_OK)
        return command_usage("plot", "%s", tri_last_error());
    if (args->run != NULL && number < 1)
        return command_usage("plot", "--run=%s: runs count from 1", args->run);
    status = trace_read(args->files, args->n_files, number, &traced);
    if (status == TRI_OK) {
        status = plot_timeline(args->output, &traced, args->title);
        if (status == TRI_OK)
            printf("run %" PRId64 " of %" PRId64 "%s\n", traced.number, traced.last,
                   traced.trains ? " (training)" : "");
        for (int l = 0; l < traced.n_rows && traced.pipeline && status == TRI_OK; l++)
            printf("%s: idle %.1f %% of %.3f ms\n", traced.rows[l].name,
                   100 * timeline_idle(&traced, l), traced.us / 1e3);
        trace_run_fini(&traced);
    }
    return status == TRI_OK ? COMMAND_OK : fail(tri_last_error());
}

static int run(int argc, char **argv)
{
    static plot_panel panels[PLOT_MAX_PANELS];
    plot_data data = {0};
    char x_label[64];
    tri_status status = TRI_OK;
    const char **files = trii_alloc((size_t)argc, sizeof(*files), "names of files");
    arguments args;
    int n, result = files != NULL ? parse(argc, argv, files, &args) : COMMAND_FAILED;

    if (result == COMMAND_OK && args.timeline)
        result = draw_timeline(&args);
    if (result != COMMAND_OK || args.timeline) {
        trii_free(files);
        return result;
    }
    data.files = args.files;
    for (int i = 0; i < args.n_files && status == TRI_OK; i++)
        status = plot_read(args.files[i], args.x, &data);
    snprintf(x_label, sizeof(x_label), "%s", args.x);
    plot_make_utf8(x_label);
    if (status == TRI_OK && data.n > 0 && args.keys != NULL && !keys_exist(&data, args.keys)) {
        result = COMMAND_FAILED;
    } else if (status == TRI_OK) {
        n = args.keys != NULL ? chosen_panels(&data, args.keys, panels)
            : args.bars       ? one_panel(&data, panels)
                              : default_panels(&data, panels);
        if (n == 0)
            result = nothing_to_draw(&data, args.keys);
        else if (args.bars)
            status = plot_bars(args.output, panels, n, args.title, args.y_label);
        else
            status = plot_draw(args.output, panels, n, x_label);
    }
    plot_data_fini(&data);
    trii_free(files);
    return status == TRI_OK ? result : fail(tri_last_error());
}

const command command_plot = {
    .name = "plot",
    .summary = "draw curves or bars of metrics files, timelines of traces",
    .help = help,
    .run = run,
};
