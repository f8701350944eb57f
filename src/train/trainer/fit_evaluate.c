/*
 * fit_evaluate.c - validation and test: each rank sees its share, and values are of all.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

/* The step of the task for one batch. */
static tri_status run_step(tri_trainer *t, trii_phase phase, const tri_batch *batch)
{
    static const tri_trainer_log_options shown = {.progress_bar = true};
    const tri_task *task = t->task;
    void (*step)(tri_trainer *, const tri_batch *, void *) = task->validation_step;
    tri_tensor *loss;

    if (phase == TRII_PHASE_TEST && task->test_step != NULL)
        step = task->test_step;
    if (step == NULL) {
        loss = trii_fit_training_step(t, batch);
        if (loss == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "training_step of the task returned NULL");
        tri_trainer_log(t, "loss", loss, &shown);
        return TRI_OK;
    }
    trii_fit_evaluation_step(t, batch, step);
    return TRI_OK;
}

static tri_status evaluate_batch(tri_trainer *t, trii_phase phase, const tri_batch *batch)
{
    tri_status status;

    t->batch_samples = batch->size;
    trii_book_batch(t, false);
    status = run_step(t, phase, batch);
    t->in_step = false;
    if (status == TRI_OK)
        status = tri_run();
    if (status == TRI_OK)
        status = trii_book_take(t);
    return status == TRI_OK ? tri_step_end_status() : status;
}

static tri_status evaluate_batches(tri_trainer *t, trii_phase phase, int64_t limit)
{
    const trii_part *part = phase == TRII_PHASE_TEST ? &t->test : &t->val;
    int64_t n = limit >= 0 && limit < part->n_batches ? limit : part->n_batches;
    bool is_whole;
    tri_status status = trii_fit_whole_begin(t, n, &is_whole);
    tri_batch batch;

    if (status == TRI_OK && n > 0) /* there may be fewer samples than ranks */
        status = tri_loader_begin(part->loader, 0, 0);
    for (int64_t b = 0; b < n && status == TRI_OK; b++) {
        status = tri_loader_next(part->loader, &batch);
        if (status > 0)
            status = TRII_FAIL(TRI_ERR_INTERNAL, "the loader has no batch %lld", (long long)b);
        if (status == TRI_OK)
            status = evaluate_batch(t, phase, &batch);
    }
    return status == TRI_OK ? trii_fit_whole_end(t, is_whole) : status;
}

/* Modules that are in training, in the order of the tree; a program may have set some aside, such
 * as statistics that are to stay. */
static int64_t count_modules(tri_module *module)
{
    int64_t n = 1;

    for (int i = 0; i < tri_module_child_count(module); i++)
        n += count_modules(tri_module_child(module, i));
    return n;
}

static bool *note_modes(tri_module *module, bool *modes)
{
    *modes++ = tri_module_is_training(module);
    for (int i = 0; i < tri_module_child_count(module); i++)
        modes = note_modes(tri_module_child(module, i), modes);
    return modes;
}

/* Sets a module with all below it, then those below. */
static const bool *restore_modes(tri_module *module, const bool *modes)
{
    if (tri_module_is_training(module) != *modes)
        tri_module_train(module, *modes);
    modes++;
    for (int i = 0; i < tri_module_child_count(module); i++)
        modes = restore_modes(tri_module_child(module, i), modes);
    return modes;
}

/* In evaluation mode and without gradients, however it ends. */
static tri_status evaluate(tri_trainer *t, trii_phase phase, int64_t limit)
{
    bool *modes = trii_alloc((size_t)count_modules(t->model), sizeof(*modes), "modules");
    tri_status status = modes != NULL ? trii_book_begin(t, phase) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK) {
        (void)note_modes(t->model, modes);
        tri_module_train(t->model, false);
        tri_no_grad_begin();
        status = evaluate_batches(t, phase, limit);
        tri_no_grad_end();
        (void)restore_modes(t->model, modes);
    }
    trii_free(modes);
    if (status == TRI_OK)
        status = trii_book_end(t, phase);
    /* Now, with its record, and not if it fails: a checkpoint of the failure says so. */
    t->validated_here |= status == TRI_OK && phase == TRII_PHASE_VAL;
    return status;
}

/* After a failure, too, since a checkpoint of the failed fit is to have the parameters; but not
 * where all ranks swap together: then no such checkpoint is written, and the ranks that have not
 * failed wait elsewhere. */
static tri_status swap_back(tri_trainer *t, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status back;

    if (status == TRI_OK)
        return trii_average_swap(t);
    if (trii_fit_is_sharded(t))
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    (void)!tri_step_end_status(); /* what failed is not to run with the swap */
    back = trii_average_swap(t);
    if (back != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "trainer", "%s", tri_last_error());
    trii_err_set("%s", line);
    return status;
}

tri_status trii_fit_evaluate(tri_trainer *t, trii_phase phase, int64_t limit)
{
    bool averages = t->average != NULL;
    tri_status swapped = TRI_ERR_STATE; /* not */
    /* Running statistics follow each rank's own samples: those of rank 0 are saved, and so they are
     * the ones to evaluate with. */
    tri_status status = t->is_ddp ? tri_ddp_sync_buffers(t->model) : TRI_OK;

    trii_fit_screen_pause(t, phase == TRII_PHASE_SANITY ? "checking validation" : "evaluating");
    t->phase = phase;
    if (status == TRI_OK && averages)
        status = swapped = trii_average_swap(t);
    if (status == TRI_OK && phase != TRII_PHASE_TEST)
        status = trii_hooks(t, validation_begin);
    if (status == TRI_OK)
        status = evaluate(t, phase, limit);
    t->validated_here |= status == TRI_OK && phase == TRII_PHASE_VAL; /* its values are there */
    if (status == TRI_OK && phase != TRII_PHASE_TEST)
        status = trii_hooks(t, validation_end);
    if (swapped == TRI_OK)
        status = swap_back(t, status);
    t->phase = TRII_PHASE_TRAIN;
    trii_fit_screen_go_on(t);
    return status;
}
