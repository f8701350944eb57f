/*
 * resume.c - the run folder, and where a fit goes on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/checkpoint.h>
#include <trireme/launch.h>

#include "os/file.h"
#include "os/folder.h"
#include "trainer/trainer_policy.h"

#define CALL trii_fit_call_name(t->call)

static bool wants_last(const tri_trainer *t)
{
    return (t->opt->ckpt_path != NULL && strcmp(t->opt->ckpt_path, "last") == 0) ||
           (t->opt->ckpt_path == NULL && t->call == TRII_FIT && tri_restart_count() > 0);
}

static bool holds_run(const char *dir)
{
    char path[TRI_FIT_PATH_BYTES + 16];

    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    return trii_path_is_file(path);
}

/* --- the folder ----------------------------------------------------------- */

/* The last ROOT/NAME-N that holds a run; 0: none. Others may have been removed before it. */
static int64_t last_run(const tri_trainer *t, const char *root)
{
    char dir[TRI_FIT_PATH_BYTES];
    int64_t last = 0;

    for (int64_t n = 1; n <= last + 1000; n++) {
        snprintf(dir, sizeof(dir), "%s/%s-%" PRId64, root, t->task->name, n);
        last = holds_run(dir) ? n : last;
    }
    return last;
}

/* Of rank 0. */
static tri_status choose(tri_trainer *t)
{
    const char *root = t->opt->default_root_dir != NULL ? t->opt->default_root_dir : "runs";
    char prefix[TRI_FIT_PATH_BYTES];
    int64_t number = 0;
    tri_status status = TRI_OK;

    if (t->opt->run_name != NULL) {
        snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s", root, t->opt->run_name);
        if (!wants_last(t) && holds_run(t->run_dir))
            return TRII_FAIL(TRI_ERR_STATE,
                             "%s: %s holds a run already: ckpt_path \"last\" continues it, another "
                             "run_name starts a new one",
                             CALL, t->run_dir);
        status = trii_folder_create_above(t->run_dir);
        return status == TRI_OK ? trii_folder_create(t->run_dir) : status;
    }
    if (wants_last(t))
        number = last_run(t, root);
    snprintf(prefix, sizeof(prefix), "%s/%s-", root, t->task->name);
    if (number == 0)
        status = tri_run_folder_create(prefix, &number);
    if (status == TRI_OK)
        snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s-%" PRId64, root, t->task->name, number);
    return status;
}

tri_status trii_resume_choose_folder(tri_trainer *t)
{
    tri_status status = TRI_OK;

    if (t->call != TRII_FIT || t->opt->fast_dev_run > 0)
        return TRI_OK;
    if (t->rank == 0)
        status = choose(t);
    return status == TRI_OK ? trii_fit_send_text(t, t->run_dir, sizeof(t->run_dir)) : status;
}

/* --- the checkpoint ------------------------------------------------------- */

static double number_of(const tri_checkpoint *checkpoint, const char *key)
{
    const char *text = tri_checkpoint_metadata(checkpoint, key);

    return text != NULL ? strtod(text, NULL) : 0;
}

static tri_status restore(tri_trainer *t, const tri_checkpoint *checkpoint)
{
    tri_status status = tri_checkpoint_restore(checkpoint, t->model, t->optimizer);

    if (status != TRI_OK)
        return status;
    t->step = tri_checkpoint_step(checkpoint);
    t->epoch = tri_checkpoint_epoch(checkpoint);
    t->batch = (int64_t)number_of(checkpoint, "batch");
    t->batches_ever = t->epoch * t->train.n_batches + t->batch;
    t->seconds_before = number_of(checkpoint, "seconds");
    t->resumed = true;
    trii_fit_say(t, "resuming from %s", tri_checkpoint_path(checkpoint));
    return TRI_OK;
}

tri_status trii_resume_load(tri_trainer *t)
{
    const char *path = t->opt->ckpt_path;
    char dir[TRI_FIT_PATH_BYTES + 16];
    tri_checkpoint *checkpoint;
    tri_status status;

    if (path == NULL && !wants_last(t))
        return TRI_OK;
    if (wants_last(t))
        snprintf(dir, sizeof(dir), "%s/checkpoints", t->run_dir);
    else
        snprintf(dir, sizeof(dir), "%s", path);
    status = tri_checkpoint_open(dir, &checkpoint);
    if (status == TRI_ERR_NOT_FOUND && wants_last(t)) {
        trii_fit_say(t, "no checkpoint in %s: starting from the beginning", t->run_dir);
        return TRI_OK;
    }
    if (status == TRI_OK) {
        status = restore(t, checkpoint);
        tri_checkpoint_close(checkpoint);
    }
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s: ckpt_path", CALL);
}
