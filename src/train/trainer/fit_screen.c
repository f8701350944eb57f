/*
 * fit_screen.c - what rank 0 shows: a table of the network, progress, lines that stay.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <trireme/memory_stats.h>

#include "os/clock.h"
#include "train/trainer/log_book.h"

static bool is_shown(const tri_trainer *t)
{
    return t->rank == 0 && !t->opt->no_progress;
}

double trii_fit_seconds(const tri_trainer *t)
{
    return t->seconds_before + (double)(trii_now_ns() - t->started_ns) / (double)TRII_NS_PER_S;
}

tri_status trii_fit_screen_open(tri_trainer *t)
{
    int64_t total, done = t->epoch * t->samples_per_epoch;

    if (!is_shown(t) || t->total_steps < 0)
        return TRI_OK;
    total =
        t->samples_per_epoch * t->total_steps / ((t->train.n_batches - 1) / t->set.accumulate + 1);
    if (total < 1)
        total = 1;
    return tri_progress_create(total, done < total ? done : total, "samples", NULL, &t->progress);
}

static int64_t samples_done(const tri_trainer *t)
{
    int64_t here = t->batch * t->train.batch_size * t->size;

    return t->epoch * t->samples_per_epoch +
           (here < t->samples_per_epoch ? here : t->samples_per_epoch);
}

void trii_fit_screen_batch(tri_trainer *t)
{
    char values[256], of[32] = "";

    if (TRII_LIKELY(!tri_progress_is_due(t->progress)))
        return;
    if (t->set.max_epochs > 0)
        snprintf(of, sizeof(of), "/%" PRId64, t->set.max_epochs);
    trii_book_bar_text(t->book, values, sizeof(values));
    tri_progress_update(t->progress, samples_done(t), "epoch %" PRId64 "%s%s%s", t->epoch + 1, of,
                        values[0] != '\0' ? "  " : "", values);
}

void trii_fit_screen_pause(tri_trainer *t, const char *what)
{
    tri_progress_pause(t->progress);
    if (tri_progress_is_due(t->progress))
        tri_progress_text(t->progress, "epoch %" PRId64 "  %s", t->epoch + 1, what);
}

void trii_fit_screen_go_on(tri_trainer *t)
{
    tri_progress_resume(t->progress);
}

void trii_fit_say(tri_trainer *t, const char *format, ...)
{
    char line[TRI_FIT_PATH_BYTES + 128];
    va_list args;

    if (!is_shown(t))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (t->progress != NULL)
        tri_progress_line(t->progress, "%s", line);
    else
        fprintf(stderr, "%s\n", line);
}

void trii_fit_say_values(tri_trainer *t, bool of_evaluation)
{
    char values[512];

    trii_book_epoch_text(t->book, of_evaluation, values, sizeof(values));
    if (values[0] != '\0')
        trii_fit_say(t, "epoch %" PRId64 ": %s", t->epoch + 1, values);
}

/* --- the table ------------------------------------------------------------ */

static int64_t parameters_of(tri_module *module, bool trained)
{
    int64_t all = 0, n = tri_module_state_count(module);

    if (trained)
        return tri_module_parameter_count(module);
    for (int64_t i = 0; i < n; i++) {
        tri_state_entry entry = tri_module_state(module, i);

        all += entry.parameter ? tri_tensor_numel(entry.tensor) : 0;
    }
    return all;
}

/* 702, 1.2 K, 3.4 M */
static const char *short_count(int64_t n, char text[32])
{
    static const char units[] = " KMBT";
    double x = (double)n;
    int unit = 0;

    while (x >= 1000 && unit < 4) {
        x /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(text, 32, "%" PRId64, n);
    else
        snprintf(text, 32, "%.1f %c", x, units[unit]);
    return text;
}

static int widest(int width, const char *text)
{
    int own = (int)strlen(text);

    return own > width ? own : width;
}

tri_status trii_fit_summary(tri_trainer *t)
{
    tri_module *net = tri_module_unwrapped(t->model);
    int64_t trained = parameters_of(net, true), all = parameters_of(net, false);
    int n = tri_module_child_count(net), digits = snprintf(NULL, 0, "%d", n > 0 ? n - 1 : 0);
    int name_width = (int)strlen("Name"), type_width = (int)strlen("Type");
    tri_memory_stats memory;
    char text[2][32];
    tri_status status;

    if (t->rank != 0 || t->opt->no_summary)
        return TRI_OK;
    status = tri_memory(t->model, t->optimizer, NULL, &memory);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n; i++) {
        tri_module *child = tri_module_child(net, i);

        name_width = widest(name_width, tri_module_name(child));
        type_width = widest(type_width, tri_module_type(child));
    }
    fprintf(stderr, "%*s | %-*s | %-*s | Params | Mode\n", digits, "", name_width, "Name",
            type_width, "Type");
    for (int i = 0; i < n; i++) {
        tri_module *child = tri_module_child(net, i);

        fprintf(stderr, "%*d | %-*s | %-*s | %6s | %s\n", digits, i, name_width,
                tri_module_name(child), type_width, tri_module_type(child),
                short_count(parameters_of(child, false), text[0]),
                tri_module_is_training(child) ? "train" : "eval");
    }
    fprintf(stderr,
            "%s trainable parameters, %s in all; %.3f MB of parameters, buffers and optimizer "
            "state on each of %d rank%s\n",
            short_count(trained, text[0]), short_count(all, text[1]),
            (double)(memory.parameters + memory.buffers + memory.states) / 1e6, t->size,
            t->size == 1 ? "" : "s");
    return TRI_OK;
}
