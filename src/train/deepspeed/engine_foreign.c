/*
 * engine_foreign.c - checkpoints that DeepSpeed itself has saved: weights and counters of them.
 */
#include <stdio.h>

#include <trireme/torch_file.h>

#include "os/file.h"
#include "train/deepspeed/engine_internal.h"

#define MAX_PATH 4352 /* of a folder and a name */

/* The model states of rank 0, which every folder of a tag has: stage 3, and the others. */
static const char *const states[] = {"zero_pp_rank_0_mp_rank_00_model_states.pt",
                                     "mp_rank_00_model_states.pt"};

/* Whether one of them is there; its path. */
static bool find_states(const char *folder, char *path, size_t bytes)
{
    for (size_t i = 0; i < TRII_COUNT_OF(states); i++) {
        int n = snprintf(path, bytes, "%s/%s", folder, states[i]);

        if (n > 0 && (size_t)n < bytes && trii_path_is_file(path))
            return true;
    }
    return false;
}

tri_status trii_engine_is_foreign(const tri_engine *e, const char *folder, bool *is_out)
{
    char path[MAX_PATH];
    int32_t is = e->rank == 0 && find_states(folder, path, sizeof(path));
    tri_status status = TRI_OK;

    if (e->size > 1)
        status = tri_broadcast(e->group, &is, 1, TRI_DTYPE_I32, 0, NULL);
    *is_out = is != 0;
    return status;
}

typedef struct counters {
    int64_t updates, skipped, samples;
} counters;

static int64_t count_of(const tri_torch_file *file, const char *key)
{
    const tri_torch_value *value = tri_torch_item(tri_torch_root(file), key);

    return value != NULL && value->kind == TRI_TORCH_INT && value->integer >= 0 ? value->integer
                                                                                : 0;
}

static tri_status read_counters(const char *folder, counters *to)
{
    tri_torch_file *file = NULL;
    char path[MAX_PATH];
    tri_status status;

    if (!find_states(folder, path, sizeof(path)))
        return TRII_FAIL(TRI_ERR_IO, "%s: not seen by this rank: each rank reads it", folder);
    status = tri_torch_open(path, &file);
    if (status == TRI_OK) {
        to->updates = count_of(file, "global_steps");
        to->skipped = count_of(file, "skipped_steps");
        to->samples = count_of(file, "global_samples");
    }
    tri_torch_close(file);
    return status;
}

tri_status trii_engine_load_foreign(tri_engine *e, const char *folder,
                                    const tri_engine_load_checkpoint_options *opt)
{
    counters saved = {0};
    tri_status status;

    if (!opt->load_module_only && !opt->no_optimizer_states)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s was saved by DeepSpeed, whose optimizer's states are not read: "
                         ".no_optimizer_states loads its weights, counters and place in the "
                         "schedule, .load_module_only its weights alone",
                         folder);
    status = trii_engine_agree(e, read_counters(folder, &saved));
    if (status == TRI_OK) /* in 16 bits under stage 0 of fp16 and bf16 */
        status =
            trii_engine_agree(e, tri_load(e->model, folder, &(tri_load_options){.convert = true}));
    if (status != TRI_OK || opt->load_module_only)
        return status;
    e->global_steps = saved.updates;
    e->skipped_steps = saved.skipped;
    e->global_samples = saved.samples;
    e->micro_steps = saved.updates * e->config.accumulate;
    e->rate_from = opt->no_lr_scheduler_states ? trii_engine_updates(e) : 0;
    trii_engine_begin_anew(e);
    return TRI_OK;
}
