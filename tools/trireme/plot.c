/*
 * plot.c - `trireme plot`: curves of metrics files.
 */
#include "command.h"

#include <stdio.h>
#include <string.h>

#include <trireme/status.h>

#include "plot_draw.h"
#include "plot_read.h"

static const char help[] =
    "usage: trireme plot FILE.jsonl... -o FILE.svg|png [--keys LIST] [--x KEY]\n"
    "\n"
    "Draws the numbers of metrics files (JSON lines, one object a record) as\n"
    "curves. Without --keys: everything about loss in one panel, everything about\n"
    "accuracy in another.\n"
    "\n"
    "  -o, --output FILE   the picture; its ending says which kind\n"
    "  --keys LIST         panels separated by commas, keys of one panel by +\n"
    "  --x KEY             what runs along the x axis (default: step)\n"
    "\n"
    "examples:\n"
    "  trireme plot runs/fashion/metrics.jsonl -o curves.svg\n"
    "  trireme plot a.jsonl b.jsonl -o both.png --keys loss+test_loss,lr\n";

typedef struct arguments {
    const char *output, *keys, *x;
    char **files;
    int n_files;
} arguments;

static int parse(int argc, char **argv, arguments *args)
{
    bool only_files = false;

    *args = (arguments){.x = "step", .files = argv};
    for (int i = 1; i < argc; i++) {
        const char **value = NULL;

        if (only_files || argv[i][0] != '-') {
            args->files[args->n_files++] = argv[i]; /* behind i: nothing is overwritten unread */
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_files = true;
            continue;
        }
        if (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0)
            value = &args->output;
        else if (strcmp(argv[i], "--keys") == 0)
            value = &args->keys;
        else if (strcmp(argv[i], "--x") == 0)
            value = &args->x;
        if (value == NULL)
            return command_usage("plot", "unknown option %s", argv[i]);
        if (i + 1 == argc)
            return command_usage("plot", "%s needs a value", argv[i]);
        *value = argv[++i];
    }
    if (args->n_files == 0)
        return command_usage("plot", "which files?");
    if (args->output == NULL)
        return command_usage("plot", "where to? (-o FILE.svg or -o FILE.png)");
    return COMMAND_OK;
}

/* "runs/a/metrics.jsonl" -> "a": the folder says more than the file's name. */
static void short_name(const char *path, char *out, size_t bytes)
{
    const char *slash = strrchr(path, '/');
    const char *start = path, *end = path + strlen(path);

    if (slash != NULL && slash > path) {
        end = slash;
        for (const char *at = path; at < slash; at++) {
            if (*at == '/')
                start = at + 1;
        }
    }
    snprintf(out, bytes, "%.*s", (int)(end - start), start);
}

static void label_of(const plot_data *data, const plot_series *series, char *out, size_t bytes)
{
    char name[48] = "";

    if (data->n_files > 1)
        short_name(series->file, name, sizeof(name));
    snprintf(out, bytes, "%s%s%s", name, name[0] != '\0' ? ": " : "", series->key);
    for (char *at = out; *at != '\0'; at++) {
        if (*at == '_')
            *at = ' ';
    }
}

static void add_curve(plot_panel *panel, const plot_data *data, const plot_series *series)
{
    plot_curve *curve;

    if (panel->n == PLOT_MAX_CURVES)
        return;
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

static bool is_listed(const char *list, size_t bytes, const char *key)
{
    size_t length = strlen(key);

    for (const char *at = list; at < list + bytes; at += strcspn(at, "+,") + 1) {
        if (strcspn(at, "+,") == length && strncmp(at, key, length) == 0)
            return true;
    }
    return false;
}

static int chosen_panels(const plot_data *data, const char *keys, plot_panel *panels)
{
    int n = 0;

    for (const char *at = keys; *at != '\0' && n < PLOT_MAX_PANELS;) {
        size_t bytes = strcspn(at, ",");
        plot_panel *panel = &panels[n];

        *panel = (plot_panel){0};
        snprintf(panel->title, sizeof(panel->title), "%.*s", (int)strcspn(at, "+,"), at);
        for (int i = 0; i < data->n; i++) {
            if (is_listed(at, bytes, data->series[i].key))
                add_curve(panel, data, &data->series[i]);
        }
        if (panel->n > 0)
            n++;
        at += bytes + (at[bytes] == ',');
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

/* Every listed key is in one of the files; else says which there are. */
static bool keys_exist(const plot_data *data, const char *keys)
{
    for (const char *at = keys; *at != '\0';) {
        size_t bytes = strcspn(at, "+,");

        if (bytes > 0 && !has_key(data, at, bytes)) {
            fprintf(stderr, "trireme plot: no key %.*s; there are", (int)bytes, at);
            for (int i = 0; i < data->n; i++) {
                const plot_data before = {.series = data->series, .n = i}; /* each key once */
                const char *key = data->series[i].key;

                if (!has_key(&before, key, strlen(key)))
                    fprintf(stderr, "%s %s", i > 0 ? "," : "", key);
            }
            fputc('\n', stderr);
            return false;
        }
        at += bytes + (at[bytes] != '\0');
    }
    return true;
}

static int run(int argc, char **argv)
{
    static plot_panel panels[PLOT_MAX_PANELS];
    plot_data data = {0};
    tri_status status = TRI_OK;
    arguments args;
    int n, result = parse(argc, argv, &args);

    if (result != COMMAND_OK)
        return result;
    for (int i = 0; i < args.n_files && status == TRI_OK; i++)
        status = plot_read(args.files[i], args.x, &data);
    if (status == TRI_OK && data.n > 0 && args.keys != NULL && !keys_exist(&data, args.keys)) {
        result = COMMAND_FAILED;
    } else if (status == TRI_OK) {
        n = args.keys != NULL ? chosen_panels(&data, args.keys, panels)
                              : default_panels(&data, panels);
        if (n == 0)
            result = fail("there is nothing to draw in these files");
        else
            status = plot_draw(args.output, panels, n, args.x);
    }
    plot_data_fini(&data);
    return status == TRI_OK ? result : fail(tri_last_error());
}

const command command_plot = {
    .name = "plot",
    .summary = "draw the curves of metrics files",
    .help = help,
    .run = run,
};
