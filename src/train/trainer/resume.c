/*
 * resume.c - the run folder, and where a fit goes on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/checkpoint.h>
#include <trireme/launch.h>

#include "base/alloc.h"
#include "train/checkpoint/json.h"
#include "os/file.h"
#include "os/folder.h"
#include "train/trainer/checkpoint_fetch.h"
#include "train/trainer/trainer_policy.h"
#include "train/trainer/trainer_record.h"

#define CALL trii_fit_call_name(t->call)

typedef struct trii_loaded {
    tri_checkpoint *checkpoint;
    json_t *record; /* its trainer.json; NULL = a program's own checkpoint */
    bool own;       /* of this run's folder */
} trii_loaded;

static bool is_path(const tri_trainer *t, const char *name)
{
    return t->opt->ckpt_path != NULL && strcmp(t->opt->ckpt_path, name) == 0;
}

static bool wants_last(const tri_trainer *t)
{
    return is_path(t, "last") ||
           (t->opt->ckpt_path == NULL && t->call == TRII_FIT && t->restarts > 0);
}

/* The newest run of the task, or that of run_name. */
static bool wants_run(const tri_trainer *t)
{
    return wants_last(t) || is_path(t, "best");
}

/* Weights alone: a file, whatever it is called. */
static bool wants_file(const tri_trainer *t)
{
    return t->opt->ckpt_path != NULL && !wants_run(t) && trii_path_is_file(t->opt->ckpt_path);
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

/* The run of a path: RUN, RUN/checkpoints or RUN/checkpoints/step-N. "" if it is of none. */
static void run_above(const char *path, char *run_out, size_t bytes)
{
    size_t n = strlen(path);

    if (n >= bytes)
        n = 0;
    memcpy(run_out, path, n);
    run_out[n] = '\0';
    if (holds_run(run_out))
        return;
    for (int level = 0; level < 2; level++) {
        char *slash;

        while (n > 1 && run_out[n - 1] == '/')
            run_out[--n] = '\0';
        slash = strrchr(run_out, '/');
        if (slash == NULL)
            break;
        if (strcmp(slash, "/checkpoints") == 0) {
            *slash = '\0';
            if (holds_run(run_out))
                return;
        }
        *slash = '\0';
        n = strlen(run_out);
    }
    run_out[0] = '\0';
}

/* NULL: any name. */
static bool is_called(const char *dir, const char *name)
{
    const char *slash = strrchr(dir, '/');

    return name == NULL || strcmp(slash != NULL ? slash + 1 : dir, name) == 0;
}

static const char *root_of(const tri_trainer *t)
{
    return t->opt->default_root_dir != NULL ? t->opt->default_root_dir : "runs";
}

/* Of rank 0. `number`: of the run that goes on; 0: there is none. */
static tri_status choose(tri_trainer *t, int64_t number)
{
    const char *root = root_of(t);
    char prefix[TRI_FIT_PATH_BYTES];
    tri_status status = TRI_OK;

    if (t->opt->ckpt_path != NULL && !wants_run(t)) {
        if (!trii_path_exists(t->opt->ckpt_path))
            return TRII_FAIL(TRI_ERR_NOT_FOUND,
                             "%s: ckpt_path %.512s: there is no such folder or file", CALL,
                             t->opt->ckpt_path);
        run_above(t->opt->ckpt_path, t->run_dir, sizeof(t->run_dir));
        if (t->run_dir[0] != '\0' && is_called(t->run_dir, t->opt->run_name))
            return TRI_OK;
    }
    if (is_path(t, "best") && (t->opt->run_name != NULL || last_run(t, root) == 0)) {
        snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s", root,
                 t->opt->run_name != NULL ? t->opt->run_name : t->task->name);
        if (!holds_run(t->run_dir))
            return TRII_FAIL(TRI_ERR_NOT_FOUND,
                             "%s: ckpt_path \"best\": no run to continue in %s%s: \"last\" starts "
                             "one",
                             CALL, t->run_dir, t->opt->run_name != NULL ? "" : "-1, -2, ..");
    }
    if (t->opt->run_name != NULL) {
        snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s", root, t->opt->run_name);
        if (!wants_run(t) && holds_run(t->run_dir))
            return TRII_FAIL(TRI_ERR_STATE,
                             "%s: %s holds a run already: ckpt_path \"last\" continues it, another "
                             "run_name starts a new one",
                             CALL, t->run_dir);
    }
    snprintf(prefix, sizeof(prefix), "%s/%s-", root, t->task->name);
    if (t->opt->run_name == NULL && number == 0)
        status = tri_run_folder_create(prefix, &number);
    if (t->opt->run_name == NULL)
        snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s-%" PRId64, root, t->task->name, number);
    if (status == TRI_OK) /* this host may be new to the run */
        status = trii_folder_create_above(t->run_dir);
    return status == TRI_OK ? trii_folder_create(t->run_dir) : status;
}

/* How often this job was started again, and which run it was in, on any host: where hosts share no
 * disk, rank 0's may be one that was not there before. */
static tri_status agree_on_run(tri_trainer *t, int64_t *number_out)
{
    double most[2] = {tri_restart_count(), 0};
    tri_status status = trii_fit_max(t, &most[0], 1);

    t->restarts = (int64_t)most[0];
    if (status == TRI_OK && wants_run(t) && t->opt->run_name == NULL) {
        most[1] = (double)last_run(t, root_of(t));
        status = trii_fit_max(t, &most[1], 1);
    }
    *number_out = (int64_t)most[1];
    return status;
}

tri_status trii_resume_choose_folder(tri_trainer *t)
{
    int64_t number = 0;
    tri_status status;

    if (t->call != TRII_FIT || t->opt->fast_dev_run > 0)
        return TRI_OK;
    status = agree_on_run(t, &number);
    if (status == TRI_OK && t->rank == 0)
        status = choose(t, number);
    return status == TRI_OK ? trii_fit_send_text(t, t->run_dir, sizeof(t->run_dir)) : status;
}

/* --- the checkpoint ------------------------------------------------------- */

static double number_of(const tri_checkpoint *checkpoint, const char *key)
{
    const char *text = tri_checkpoint_metadata(checkpoint, key);

    return text != NULL ? strtod(text, NULL) : 0;
}

/* Of a program that saves by itself, as examples do: step and epoch, and, if it says so, the batch.
 */
static void take_plain(tri_trainer *t)
{
    const tri_checkpoint *c = t->from->checkpoint;

    t->step = tri_checkpoint_step(c);
    t->epoch = tri_checkpoint_epoch(c);
    t->batch = (int64_t)number_of(c, "batch");
    t->batches_ever = t->epoch * t->train.n_batches + t->batch;
}

static tri_status restore_scaler(tri_trainer *t)
{
    tri_state_entry entries[4];
    int64_t n = t->scaler != NULL ? tri_grad_scaler_state_count(t->scaler) : 0;

    if (n == 0 || !tri_checkpoint_has(t->from->checkpoint, "grad_scaler"))
        return TRI_OK;
    for (int64_t i = 0; i < n && i < 4; i++)
        entries[i] = tri_grad_scaler_state(t->scaler, i);
    return tri_checkpoint_restore_extra(t->from->checkpoint, "grad_scaler", entries, n);
}

/* What is there of a fit: all that goes on, or a word that it cannot. */
static tri_status restore(tri_trainer *t)
{
    const tri_checkpoint *c = t->from->checkpoint;
    const char *text = tri_checkpoint_text(c, "trainer"), *path = tri_checkpoint_path(c);
    tri_status status = TRI_OK;

    if (!tri_checkpoint_has(c, "optimizer"))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s has weights only, which cannot be resumed: start a new run from "
                         "%s/model.safetensors",
                         path, path);
    if (text != NULL)
        status = trii_record_read(t, text, &t->from->record);
    else
        take_plain(t);
    if (status == TRI_OK && t->from->record != NULL)
        status = trii_config_compare(t, json_object_get(t->from->record, "config"));
    if (status == TRI_OK)
        status = tri_checkpoint_restore(c, t->model, t->optimizer);
    if (status == TRI_OK)
        status = restore_scaler(t);
    if (status == TRI_OK)
        status = trii_average_load(t, c);
    if (status != TRI_OK)
        return status;
    t->resumed = true;
    trii_fit_say(t, "resuming from %s: %" PRId64 " epochs, %" PRId64 " updates", path, t->epoch,
                 t->step);
    if (t->set.max_epochs >= 0 && t->epoch >= t->set.max_epochs)
        trii_fit_say(t,
                     "max_epochs is %" PRId64 ", and the checkpoint has %" PRId64
                     " complete epochs: there is nothing to train",
                     t->set.max_epochs, t->epoch);
    return TRI_OK;
}

static tri_status restore_for_evaluation(tri_trainer *t)
{
    tri_status status = tri_checkpoint_restore(t->from->checkpoint, t->model, NULL);

    if (status == TRI_OK)
        status = trii_average_load(t, t->from->checkpoint);
    if (status == TRI_OK && t->average != NULL) /* for good: nothing is trained here */
        status = trii_average_swap(t);
    trii_average_destroy(t);
    return status;
}

/* --- which one ------------------------------------------------------------ */

/* RUN/checkpoints; an evaluation has no folder of its own. */
static tri_status folder_of_run(tri_trainer *t, char *dir, size_t bytes)
{
    char run[TRI_FIT_PATH_BYTES];
    tri_status status = TRI_OK;

    snprintf(run, sizeof(run), "%s", t->run_dir);
    if (run[0] == '\0' && t->rank == 0) {
        const char *root = root_of(t);

        if (t->opt->run_name != NULL)
            snprintf(run, sizeof(run), "%s/%s", root, t->opt->run_name);
        else
            snprintf(run, sizeof(run), "%s/%s-%" PRId64, root, t->task->name, last_run(t, root));
    }
    if (t->run_dir[0] == '\0')
        status = trii_fit_send_text(t, run, sizeof(run));
    snprintf(dir, bytes, "%s/checkpoints", run);
    return status;
}

/* The same on all ranks; what a host lacks it gets. step -1: the newest one. */
static tri_status open_step(tri_trainer *t, const char *dir, int64_t step)
{
    char path[TRI_FIT_PATH_BYTES + 64];

    t->from->own = true;
    if (t->size > 1)
        return trii_checkpoint_fetch_step(t->group, dir, step, &t->from->checkpoint);
    if (step < 0)
        return tri_checkpoint_open(dir, &t->from->checkpoint);
    snprintf(path, sizeof(path), "%s/step-%012" PRId64, dir, step);
    return tri_checkpoint_open(path, &t->from->checkpoint);
}

/* The newest one knows. */
static tri_status open_best(tri_trainer *t, const char *dir)
{
    const char *text = NULL;
    json_t *record = NULL;
    int64_t step = -1;
    tri_status status = open_step(t, dir, -1);

    if (status == TRI_OK)
        text = tri_checkpoint_text(t->from->checkpoint, "trainer");
    if (text != NULL)
        record = json_loads(text, 0, NULL);
    step = trii_policy_best_step(record);
    json_decref(record);
    if (status != TRI_OK || step == tri_checkpoint_step(t->from->checkpoint))
        return status;
    if (step < 0) {
        trii_fit_say(t, "the run has no monitor, so its newest checkpoint is taken for the best");
        return TRI_OK;
    }
    tri_checkpoint_close(t->from->checkpoint);
    t->from->checkpoint = NULL;
    return open_step(t, dir, step);
}

static tri_status open_wanted(tri_trainer *t)
{
    char dir[TRI_FIT_PATH_BYTES + 16], run[TRI_FIT_PATH_BYTES];
    const char *path = t->opt->ckpt_path;
    tri_status status;

    if (!wants_run(t)) {
        run_above(path, run, sizeof(run));
        t->from->own = run[0] != '\0' && strcmp(run, t->run_dir) == 0;
        snprintf(dir, sizeof(dir), "%.*s/checkpoints", (int)sizeof(run) - 1, path);
        return tri_checkpoint_open(holds_run(path) ? dir : path, &t->from->checkpoint);
    }
    status = folder_of_run(t, dir, sizeof(dir));
    if (status != TRI_OK)
        return status;
    return wants_last(t) ? open_step(t, dir, -1) : open_best(t, dir);
}

tri_status trii_resume_load(tri_trainer *t)
{
    tri_status status;

    if (t->opt->ckpt_path == NULL && !wants_last(t))
        return trii_config_write(t);
    if (wants_file(t)) {
        status = tri_load(t->model, t->opt->ckpt_path, NULL);
        return status == TRI_OK ? trii_config_write(t)
                                : TRII_FAIL_CTX(status, "%s: ckpt_path", CALL);
    }
    t->from = trii_alloc(1, sizeof(*t->from), "checkpoint");
    if (t->from == NULL)
        return TRI_ERR_NO_MEMORY;
    status = open_wanted(t);
    if (status == TRI_ERR_NOT_FOUND && wants_last(t) && t->call == TRII_FIT) {
        trii_fit_say(t, "no checkpoint in %s: starting from the beginning", t->run_dir);
        trii_resume_drop(t);
        return trii_config_write(t);
    }
    if (status == TRI_OK)
        status = t->call == TRII_FIT ? restore(t) : restore_for_evaluation(t);
    if (status == TRI_OK && t->call == TRII_FIT)
        status = trii_config_write(t);
    return status == TRI_OK || strncmp(tri_last_error(), "tri_fit: ", 9) == 0
               ? status
               : TRII_FAIL_CTX(status, "%s: ckpt_path", CALL);
}

tri_status trii_resume_finish(tri_trainer *t)
{
    tri_status status = TRI_OK;

    if (t->from != NULL && t->from->record != NULL) {
        status = trii_record_apply(t, t->from->record);
        if (status == TRI_OK)
            trii_policy_take(t, t->from->record, t->from->own);
    }
    trii_resume_drop(t);
    return status;
}

void trii_resume_drop(tri_trainer *t)
{
    if (t->from == NULL)
        return;
    tri_checkpoint_close(t->from->checkpoint);
    json_decref(t->from->record);
    trii_free(t->from);
    t->from = NULL;
}
