/*
 * data_check.c - `trireme data check DIR`: decodes every image of a folder, so that a broken one is
 * known before a run meets it.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "command.h"
#include "train/data/image_files.h"
#include "train/image/pixels.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/terminal.h"
#include "os/thread.h"

#define MAX_THREADS 256
#define MOST_FILE_BYTES ((size_t)1 << 30)

typedef struct broken_file {
    int64_t index;
    char *reason;
} broken_file;

typedef struct check_run {
    trii_image_files files;
    atomic_int_least64_t next, done;
    trii_mutex mutex;
    trii_cond ended;     /* a thread has ended */
    broken_file *broken; /* guarded */
    int64_t n_broken;    /* guarded */
    int n_working;       /* guarded: threads */
    tri_status failed;   /* guarded: what kept a thread from going on, of which this is the line */
    char why[TRII_ERR_BYTES];
} check_run;

/* --- one file ------------------------------------------------------------- */

typedef struct reader {
    void *file;
    size_t room;
    trii_image image;
} reader;

static tri_status decode(const check_run *run, int64_t i, reader *r)
{
    char path[TRII_PATH_BYTES];
    size_t bytes = 0;
    tri_status status = trii_image_files_path(&run->files, i, path);

    if (status == TRI_OK)
        status = trii_file_load(path, MOST_FILE_BYTES, &r->file, &r->room, &bytes);
    if (status == TRI_OK)
        status = trii_image_decode(r->file, bytes, NULL, 3, &r->image);
    return status;
}

/* An error of the system is told as one of the file: it could not be read now. */
static tri_status note_broken(check_run *run, int64_t i)
{
    char *reason = trii_strdup(tri_last_error(), "reason");
    broken_file *grown;

    if (reason == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_mutex_lock(&run->mutex);
    grown = trii_realloc(run->broken, (size_t)run->n_broken + 1, sizeof(*grown), "broken files");
    if (grown != NULL) {
        run->broken = grown;
        run->broken[run->n_broken++] = (broken_file){i, reason};
    }
    trii_mutex_unlock(&run->mutex);
    if (grown == NULL)
        trii_free(reason);
    return grown != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static void work(void *arg)
{
    check_run *run = arg;
    reader r = {.file = NULL};
    tri_status status = TRI_OK;
    int64_t i;

    while (status == TRI_OK && (i = atomic_fetch_add(&run->next, 1)) < run->files.names.n) {
        status = decode(run, i, &r);
        if (status != TRI_OK && status != TRI_ERR_NO_MEMORY)
            status = note_broken(run, i);
        atomic_fetch_add(&run->done, 1);
    }
    trii_free(r.file);
    trii_image_clear(&r.image);
    trii_mutex_lock(&run->mutex);
    if (status != TRI_OK && run->failed == TRI_OK) {
        run->failed = status;
        snprintf(run->why, sizeof(run->why), "%s", tri_last_error());
    }
    run->n_working--;
    trii_cond_signal(&run->ended);
    trii_mutex_unlock(&run->mutex);
}

/* --- all of them ---------------------------------------------------------- */

/* Half of a second apart, and only for somebody who looks. */
static void show_progress(check_run *run)
{
    int columns;

    if (!trii_terminal(stderr, &columns))
        return;
    fprintf(stderr, "\r%" PRId64 " of %" PRId64 ", %" PRId64 " broken ",
            (int64_t)atomic_load(&run->done), run->files.names.n, run->n_broken);
    fflush(stderr);
}

static tri_status read_all(check_run *run, int n_threads)
{
    trii_thread threads[MAX_THREADS];
    int n = 0, columns;
    tri_status status = TRI_OK;

    while (n < n_threads && status == TRI_OK) {
        trii_mutex_lock(&run->mutex);
        run->n_working++;
        trii_mutex_unlock(&run->mutex);
        status = trii_thread_start(&threads[n], "tri-check", work, run);
        if (status != TRI_OK) {
            trii_mutex_lock(&run->mutex);
            run->n_working--;
            trii_mutex_unlock(&run->mutex);
            atomic_store(&run->next, run->files.names.n);
        } else {
            n++;
        }
    }
    trii_mutex_lock(&run->mutex);
    while (run->n_working > 0) {
        (void)trii_cond_wait_until(&run->ended, &run->mutex, trii_now_ns() + INT64_C(500000000));
        show_progress(run);
    }
    trii_mutex_unlock(&run->mutex);
    for (int k = 0; k < n; k++)
        trii_thread_join(&threads[k]);
    if (trii_terminal(stderr, &columns))
        fputc('\n', stderr);
    if (status == TRI_OK && run->failed != TRI_OK)
        status = TRII_FAIL(run->failed, "%s", run->why);
    return status;
}

/* --- what is printed ------------------------------------------------------ */

static int compare_index(const void *a, const void *b)
{
    int64_t x = ((const broken_file *)a)->index, y = ((const broken_file *)b)->index;

    return (x > y) - (x < y);
}

/* "PATH: REASON", of which one line may have the path already. */
static void print_broken(const check_run *run, const broken_file *b)
{
    char path[TRII_PATH_BYTES], shown[TRII_PATH_BYTES];

    if (trii_image_files_path(&run->files, b->index, path) != TRI_OK ||
        strstr(b->reason, path) != NULL)
        path[0] = '\0';
    trii_path_show(path, shown);
    printf("%s%s", shown, path[0] != '\0' ? ": " : "");
    trii_path_show(b->reason, shown);
    printf("%s\n", shown);
}

static tri_status print_classes(const check_run *run)
{
    int64_t n = run->files.classes.n;
    int64_t(*counts)[2] = trii_alloc((size_t)n, sizeof(*counts), "classes");
    char shown[TRII_PATH_BYTES];

    if (counts == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < run->files.names.n; i++)
        counts[run->files.labels[i]][0]++;
    for (int64_t k = 0; k < run->n_broken; k++)
        counts[run->files.labels[run->broken[k].index]][1]++;
    printf("%8s %8s  class\n", "images", "broken");
    for (int64_t c = 0; c < n; c++) {
        trii_path_show(trii_texts_get(&run->files.classes, c), shown);
        printf("%8" PRId64 " %8" PRId64 "  %s\n", counts[c][0], counts[c][1], shown);
    }
    trii_free(counts);
    return TRI_OK;
}

static tri_status check(const char *dir, const char *annotations, int n_threads, bool *whole_out)
{
    check_run run = {.n_broken = 0};
    const trii_image_files_options find = {
        .annotations = annotations, .allow_empty = true, .allow_one_class = true};
    tri_status status = trii_image_files_find(dir, &find, &run.files);

    if (status != TRI_OK)
        return status;
    trii_mutex_init(&run.mutex);
    trii_cond_init(&run.ended);
    status = read_all(&run, n_threads);
    if (status == TRI_OK) {
        if (run.n_broken > 0)
            qsort(run.broken, (size_t)run.n_broken, sizeof(*run.broken), compare_index);
        for (int64_t k = 0; k < run.n_broken; k++)
            print_broken(&run, &run.broken[k]);
        status = print_classes(&run);
        printf("%" PRId64 " images, %" PRId64 " broken, of %" PRId64 " classes%s\n",
               run.files.names.n, run.n_broken, run.files.classes.n,
               run.files.classes.n == 1 ? ": one class only, every label is 0" : "");
    }
    *whole_out = run.n_broken == 0;
    for (int64_t k = 0; k < run.n_broken; k++)
        trii_free(run.broken[k].reason);
    trii_free(run.broken);
    trii_cond_fini(&run.ended);
    trii_mutex_fini(&run.mutex);
    trii_image_files_fini(&run.files);
    return status;
}

static int cores(void)
{
    trii_cpu_set allowed;
    int n;

    trii_cpu_allowed(&allowed);
    n = trii_cpu_set_count(&allowed);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

static int run_data(int argc, char **argv)
{
    static const char *const names[] = {"--annotations", "--threads", NULL};
    const char *dir = NULL, *annotations = NULL;
    long n_threads = cores();
    bool whole = true;

    if (argc < 2)
        return command_usage("data", "what is to be done? `check DIR` decodes all images of it");
    if (strcmp(argv[1], "check") != 0)
        return command_unknown("data", "no action named", argv[1],
                               (const char *const[]){"check", NULL});
    for (int i = 2; i < argc; i++) {
        char *value = NULL, *end = NULL;
        int option = command_option(names, 2, argc, argv, &i, &value);

        if (option >= 0 && value == NULL)
            return command_usage("data", "%s needs a value", names[option]);
        if (option == 0)
            annotations = value;
        else if (option == 1)
            n_threads = strtol(value, &end, 10);
        else if (argv[i][0] == '-')
            return command_unknown("data", "no option named", argv[i], names);
        else if (dir != NULL)
            return command_usage("data", "one folder at a time, not %s and %s", dir, argv[i]);
        else
            dir = argv[i];
        if (option == 1 &&
            (end == value || *end != '\0' || n_threads < 1 || n_threads > MAX_THREADS))
            return command_usage("data", "--threads %s: must be 1 to %d", value, MAX_THREADS);
    }
    if (dir == NULL)
        return command_usage("data", "check which folder?");
    if (check(dir, annotations, (int)n_threads, &whole) != TRI_OK) {
        fprintf(stderr, "trireme data: %s\n", tri_last_error());
        return COMMAND_FAILED;
    }
    return whole ? COMMAND_OK : COMMAND_FAILED;
}

const command command_data = {
    .name = "data",
    .summary = "decodes all images of a folder, and names those that are broken",
    .help = "usage: trireme data check DIR [--annotations FILE] [--threads N]\n"
            "\n"
            "Decodes every image of DIR, which is as for tri_dataset_image_folder:\n"
            "a folder for each class, or tiny-imagenet's folder of validation. Prints\n"
            "each file that is broken, with the reason, and how many images each class\n"
            "has. A run that meets such a file ends, unless its data set has skip_broken.\n"
            "\n"
            "  --annotations FILE  the classes are in FILE: lines of file, tab, class\n"
            "  --threads N         so many files at a time; default: one for each core\n"
            "\n"
            "Exit status: 0 all images are whole, 1 some are broken or DIR cannot be\n"
            "read, 2 wrong usage.\n"
            "\n"
            "  trireme data check tiny-imagenet-200/train\n",
    .run = run_data,
};
