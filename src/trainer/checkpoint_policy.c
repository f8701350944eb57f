/*
 * checkpoint_policy.c - when a fit saves a checkpoint, and which stay.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <trireme/checkpoint.h>

#include "base/alloc.h"
#include "trainer/trainer_policy.h"

struct trii_policy {
    char dir[TRI_FIT_PATH_BYTES + 16];
    int64_t saved_step; /* of the newest checkpoint; -1 = none */
};

/* Batches of the epoch, seconds, and the scaler's two numbers. */
#define OWN 4

tri_status trii_policy_create(tri_trainer *t)
{
    if (t->run_dir[0] == '\0' || t->opt->no_checkpoint)
        return TRI_OK;
    t->policy = trii_alloc(1, sizeof(*t->policy), "checkpoint policy");
    if (t->policy == NULL)
        return TRI_ERR_NO_MEMORY;
    t->policy->saved_step = -1;
    snprintf(t->policy->dir, sizeof(t->policy->dir), "%s/checkpoints", t->run_dir);
    return TRI_OK;
}

void trii_policy_destroy(trii_policy *policy)
{
    trii_free(policy);
}

/* Keys of callbacks begin with "callback ". */
static tri_status write_checkpoint(tri_trainer *t)
{
    int n = OWN + t->saves.n;
    tri_metadata *meta = trii_alloc((size_t)n, sizeof(*meta), "metadata");
    char(*keys)[96] = trii_alloc((size_t)n, sizeof(*keys), "metadata");
    char numbers[2][32];
    tri_status status = TRI_ERR_NO_MEMORY;

    if (meta != NULL && keys != NULL) {
        snprintf(numbers[0], sizeof(numbers[0]), "%" PRId64, t->batch);
        snprintf(numbers[1], sizeof(numbers[1]), "%.6f", trii_fit_seconds(t));
        meta[0] = (tri_metadata){"batch", numbers[0]};
        meta[1] = (tri_metadata){"seconds", numbers[1]};
        n = 2;
        for (int i = 0; i < t->saves.n; i++, n++) {
            snprintf(keys[n], sizeof(keys[n]), "callback %s", t->saves.at[i].key);
            meta[n] = (tri_metadata){keys[n], t->saves.at[i].value};
        }
        status = tri_checkpoint_save(
            t->policy->dir, t->model, t->optimizer,
            &(tri_checkpoint_info){.step = t->step, .epoch = t->epoch, .meta = meta, .n_meta = n},
            NULL);
    }
    trii_free(keys);
    trii_free(meta);
    return status;
}

static tri_status save(tri_trainer *t)
{
    tri_status status = TRI_OK;

    if (t->policy == NULL || t->policy->saved_step == t->step)
        return TRI_OK;
    t->policy->saved_step = t->step;
    if (t->rank != 0)
        return TRI_OK;
    trii_fit_screen_pause(t, "saving");
    status = trii_state_collect(t);
    if (status == TRI_OK)
        status = write_checkpoint(t);
    trii_fit_screen_go_on(t);
    return status;
}

tri_status trii_policy_step(tri_trainer *t)
{
    (void)t;
    return TRI_OK;
}

tri_status trii_policy_epoch(tri_trainer *t)
{
    return save(t);
}

tri_status trii_policy_end(tri_trainer *t, tri_status status)
{
    return status == TRI_OK ? save(t) : TRI_OK;
}

void trii_policy_result(const tri_trainer *t, tri_fit_result *result)
{
    result->best_value = (double)NAN;
    if (t->policy != NULL && t->policy->saved_step >= 0 &&
        snprintf(result->best_path, sizeof(result->best_path), "%s/step-%012" PRId64,
                 t->policy->dir, t->policy->saved_step) >= (int)sizeof(result->best_path))
        result->best_path[0] = '\0';
}
