/*
 * fit_options.h - options of a command line that are the trainer's own:
 *
 *     static fit_settings fit = {.epochs = 5, .batch = 128, .precision = "auto"};
 *     const option options[] = {{"--lr", NULL, "(0.1)", .number = &lr}, FIT_OPTIONS(&fit)};
 *     options_parse(argc, argv, "usage: try [options]", options);
 *     fit_settings_apply(&fit, &data, &options);
 */
#ifndef EXAMPLES_FIT_OPTIONS_H
#define EXAMPLES_FIT_OPTIONS_H

#include <trireme/trireme.h>

#include "command_line.h"

/* Initialise it with the defaults that --help is to show. */
typedef struct fit_settings {
    int64_t epochs, batch, seed, threads, loader_threads;
    const char *precision, *strategy, *out;
    bool resume;
} fit_settings;

#define FIT_OPTIONS(fit)                                                                           \
    {"--epochs", NULL, "how often all samples are seen", .integer = &(fit)->epochs, .min = 1},     \
        {"--batch-size", NULL, "samples of an update, of all workers", .integer = &(fit)->batch,   \
         .min = 1},                                                                                \
        {"--precision", NULL, "32-true, bf16-mixed, or auto: the faster", "NAME",                  \
         .text = &(fit)->precision},                                                               \
        {"--strategy", NULL, "ddp, zero1, zero2, .. (auto)", "NAME", .text = &(fit)->strategy},    \
        {"--seed", NULL, "of all that is random", .integer = &(fit)->seed},                        \
        {"--threads", NULL, "of a worker, to compute (cores / workers)",                           \
         .integer = &(fit)->threads, .max = 1024},                                                 \
        {"--loader-threads", NULL, "of a worker, to prepare batches (0)",                          \
         .integer = &(fit)->loader_threads, .max = 1024},                                          \
        {"--out", NULL, "folder of the run (runs/PROGRAM-1, -2, ..)", .text = &(fit)->out},        \
    {                                                                                              \
        "--resume", NULL, "continue the run in --out, or the last", .flag = &(fit)->resume         \
    }

/* The run's folder is this path; NULL: one that nobody has used. */
static inline void fit_folder(tri_fit_options *options, const char *path)
{
    static char copy[TRI_FIT_PATH_BYTES];
    char *slash, *end;

    options->run_name = path;
    if (path == NULL || strlen(path) >= sizeof(copy))
        return; /* tri_fit refuses what is too long */
    snprintf(copy, sizeof(copy), "%s", path);
    for (end = copy + strlen(copy); end > copy + 1 && end[-1] == '/';)
        *--end = '\0';
    slash = strrchr(copy, '/');
    options->run_name = slash != NULL ? slash + 1 : copy;
    options->default_root_dir = slash == NULL ? "." : slash == copy ? "/" : copy;
    if (slash != NULL)
        *slash = '\0';
}

static inline void fit_settings_apply(const fit_settings *fit, tri_fit_data *data,
                                      tri_fit_options *options)
{
    data->global_batch_size = fit->batch;
    data->loader.n_threads = (int)fit->loader_threads;
    options->max_epochs = fit->epochs;
    options->precision = fit->precision;
    options->strategy = fit->strategy;
    options->seed = (uint64_t)fit->seed;
    fit_folder(options, fit->out);
    options->ckpt_path = fit->resume ? "last" : NULL;
    if (fit->threads > 0)
        TRI_TRY(tri_num_threads_set((int)fit->threads));
}

#endif
