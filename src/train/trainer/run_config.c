/*
 * run_config.c - what a run was started with: config.json of its folder, and what a checkpoint has
 * of it, so that a run which is resumed with something else says so.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/checkpoint/json.h"
#include "os/file.h"
#include "train/trainer/trainer_record.h"

#define CALL trii_fit_call_name(t->call)

/* What another value of would give other samples or other bits: (key, value). */
typedef struct pair {
    const char *key;
    double value;
    bool decides; /* which samples are seen, and when */
} pair;

enum { PAIRS = 18 };

static int list_pairs(const tri_trainer *t, pair *pairs)
{
    const tri_fit_options *opt = t->opt;
    const pair all[] = {
        {"batch_size", (double)t->data->batch_size, true},
        {"global_batch_size", (double)t->data->global_batch_size, true},
        {"accumulate_grad_batches", (double)t->set.accumulate, true},
        {"train_samples", t->data->train != NULL ? (double)tri_dataset_length(t->data->train) : 0,
         true},
        {"no_shuffle", t->data->no_shuffle, true},
        {"drop_last", t->data->loader.drop_last, true},
        {"overfit_batches", (double)opt->overfit_batches, true},
        {"limit_train_batches", (double)opt->limit_train_batches, false},
        {"limit_train_share", opt->limit_train_share, false},
        {"lr", t->lr, false},
        {"precision", (double)t->set.precision, false},
        {"gradient_clip_val", opt->gradient_clip_val, false},
        {"gradient_clip_value_of_each", t->set.clip_value, false},
        {"sync_batchnorm", opt->sync_batchnorm, false},
        {"max_epochs", (double)t->set.max_epochs, false},
        {"max_steps", (double)t->set.max_steps, false},
        {"val_check_interval", (double)opt->val_check_interval, false},
        {"check_val_every_n_epoch", (double)t->set.check_every_epoch, false},
    };

    memcpy(pairs, all, sizeof(all));
    return (int)TRII_COUNT_OF(all);
}

static json_t *command_line(void)
{
    char text[4096] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    json_t *words = json_array();

    if (file != NULL)
        fclose(file);
    for (size_t at = 0; at < n && words != NULL; at += strlen(text + at) + 1) {
        json_t *word = json_string(text + at);

        if (json_array_append_new(words, word != NULL ? word : json_string("?")) != 0) {
            json_decref(words);
            words = NULL;
        }
    }
    return words;
}

json_t *trii_config_make(const tri_trainer *t)
{
    json_t *root = json_object();
    pair pairs[PAIRS];
    int n = list_pairs(t, pairs);
    char text[64];
    bool ok;

    snprintf(text, sizeof(text), "%" PRIu64, t->opt->seed);
    ok = trii_json_put(root, "task", json_string(t->task->name)) &&
         trii_json_put(root, "seed", json_string(text)) &&
         trii_json_put(root, "world", json_integer(t->size)) &&
         trii_json_put(root, "strategy", json_string(trii_fit_strategy_name(t->set.strategy))) &&
         trii_json_put(root, "command_line", command_line());
    for (int i = 0; i < n && ok; i++) {
        bool whole = pairs[i].value == (double)(int64_t)pairs[i].value;

        ok = trii_json_put(root, pairs[i].key,
                           whole ? json_integer((int64_t)pairs[i].value)
                                 : json_real(pairs[i].value));
    }
    snprintf(text, sizeof(text), "%d.%d.%d", TRI_VERSION_MAJOR, TRI_VERSION_MINOR,
             TRI_VERSION_PATCH);
    ok = ok && trii_json_put(root, "trireme", json_string(text));
    if (ok)
        return root;
    json_decref(root);
    return NULL;
}

tri_status trii_config_write(const tri_trainer *t)
{
    char path[TRI_FIT_PATH_BYTES + 16];
    json_t *root;
    char *text;
    tri_status status;

    if (t->rank != 0 || t->run_dir[0] == '\0')
        return TRI_OK;
    root = trii_config_make(t);
    text = root != NULL ? trii_json_text(root) : NULL;
    snprintf(path, sizeof(path), "%s/config.json", t->run_dir);
    status = text != NULL ? trii_file_replace(path, text, strlen(text))
                          : TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: out of memory", path);
    trii_free(text);
    json_decref(root);
    return status;
}

/* --- another run than before ---------------------------------------------- */

static tri_status compare_seed(tri_trainer *t, const json_t *before)
{
    const char *seed = json_string_value(json_object_get(before, "seed"));
    char now[32];

    snprintf(now, sizeof(now), "%" PRIu64, t->opt->seed);
    if (seed == NULL || strcmp(seed, now) == 0)
        return TRI_OK;
    if (t->opt->resume_anyway) {
        trii_fit_say(t, "resuming with seed %s, the run had %s", now, seed);
        return TRI_OK;
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: seed %s: the run was started with %s, and would see other samples: use "
                     "that, or set resume_anyway",
                     CALL, now, seed);
}

tri_status trii_config_compare(tri_trainer *t, const json_t *before)
{
    pair pairs[PAIRS];
    int n = list_pairs(t, pairs);
    tri_status status = compare_seed(t, before);

    for (int i = 0; i < n && status == TRI_OK; i++) {
        const json_t *value = json_object_get(before, pairs[i].key);
        double old = json_number_value(value);

        if (!json_is_number(value) || old == pairs[i].value)
            continue;
        if (pairs[i].decides && !t->opt->resume_anyway)
            status = TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "%s: %s %g: the run was started with %g, and samples would be lost or seen twice: "
                "use that, or set resume_anyway",
                CALL, pairs[i].key, pairs[i].value, old);
        else
            trii_fit_say(t, "resuming with %s %g, the run had %g", pairs[i].key, pairs[i].value,
                         old);
    }
    return status;
}
