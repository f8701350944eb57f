/*
 * fit_files.c - see fit_files.h.
 */
#include "train/trainer/fit_files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/folder.h"

struct trii_fit_files {
    tri_metrics *metrics;
    tri_csv *csv;           /* NULL = not wanted */
    tri_tensorboard *board; /* NULL = not wanted */
    int lock;               /* of the run folder; -1 = its file system has none */
};

/* Two fits that write one run would mix their records. */
static tri_status claim(const tri_trainer *t, int *lock_out)
{
    tri_status status = trii_folder_lock(t->run_dir, lock_out);

    if (status == TRI_ERR_UNSUPPORTED)
        return TRI_OK;
    if (status == TRI_ERR_STATE)
        return TRII_FAIL(status,
                         "tri_fit: the run %s is under way in another process or thread: wait for "
                         "its end, or give this one another run_name",
                         t->run_dir);
    return status;
}

static tri_status open_all(const tri_trainer *t, trii_fit_files *files)
{
    const int64_t keep = t->resumed ? t->step : -1;
    char path[TRI_FIT_PATH_BYTES + 16];
    tri_status status;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", t->run_dir);
    status = tri_metrics_open(path, keep, &files->metrics);
    snprintf(path, sizeof(path), "%s/metrics.csv", t->run_dir);
    if (status == TRI_OK && t->opt->csv)
        status = tri_csv_open(path, keep, &files->csv);
    if (status == TRI_OK && t->opt->tensorboard)
        status = tri_tensorboard_open(t->run_dir,
                                      &(tri_tensorboard_open_options){.keep_steps = TRI_SET(keep)},
                                      &files->board);
    return status;
}

tri_status trii_fit_files_open(const tri_trainer *t, trii_fit_files **files_out)
{
    trii_fit_files *files;
    tri_status status;

    *files_out = NULL;
    if (t->rank != 0 || t->run_dir[0] == '\0' || t->call != TRII_FIT)
        return TRI_OK;
    files = trii_alloc(1, sizeof(*files), "records");
    if (files == NULL)
        return TRI_ERR_NO_MEMORY;
    files->lock = -1;
    status = claim(t, &files->lock);
    if (status == TRI_OK)
        status = open_all(t, files);
    if (status != TRI_OK)
        (void)!trii_fit_files_close(files);
    else
        *files_out = files;
    return status;
}

tri_status trii_fit_files_write(trii_fit_files *files, int64_t step, const tri_metric *values,
                                int n)
{
    tri_status status = tri_metrics_write(files->metrics, values, n);

    if (status == TRI_OK && files->csv != NULL)
        status = tri_csv_write(files->csv, values, n);
    for (int i = 0; i < n && status == TRI_OK && files->board != NULL; i++) {
        if (strcmp(values[i].key, "step") != 0)
            status = tri_tensorboard_scalar(files->board, values[i].key, step, values[i].value);
    }
    return status;
}

tri_tensorboard *trii_fit_files_board(const trii_fit_files *files)
{
    return files != NULL ? files->board : NULL;
}

tri_status trii_fit_files_close(trii_fit_files *files)
{
    tri_status status;

    if (files == NULL)
        return TRI_OK;
    tri_metrics_close(files->metrics);
    tri_csv_close(files->csv);
    status = tri_tensorboard_close(files->board);
    trii_folder_unlock(files->lock);
    trii_free(files);
    return status;
}
