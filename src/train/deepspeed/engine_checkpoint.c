/*
 * engine_checkpoint.c - checkpoints of an engine: tags, `latest`, what the program adds.
 *
 * An engine's own state is metadata of the checkpoint ("engine.global_steps"), like what the
 * program adds ("client.KEY") and what the configuration was ("config.PATH"), so that the
 * checkpoint is one that tri_checkpoint_open and tri_checkpoint_restore read without an engine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "os/file.h"
#include "train/deepspeed/engine_internal.h"

#define MAX_TAG 200
#define MAX_META 256
#define MAX_KEY 128

/* That of rank 0. */
static tri_status share_text(const tri_engine *e, char *text, size_t bytes)
{
    void *data = NULL;
    size_t n = 0;
    tri_status status;

    if (e->size == 1)
        return TRI_OK;
    status = tri_broadcast_object(e->group, text, strlen(text) + 1, 0, &data, &n);
    if (status == TRI_OK)
        snprintf(text, bytes, "%s", (const char *)data);
    tri_object_free(data);
    return status;
}

/* --- the tag -------------------------------------------------------------- */

static tri_status check_tag(const char *tag)
{
    if (tag[0] != '\0' && tag[0] != '.' && strchr(tag, '/') == NULL && strlen(tag) < MAX_TAG &&
        strcmp(tag, "latest") != 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "tag \"%.80s\" is not the name of a folder: up to %d characters without "
                     "slashes, not beginning with a dot, and not \"latest\"",
                     tag, MAX_TAG - 1);
}

/* All ranks save under rank 0's tag. */
static tri_status agree_on_tag(const tri_engine *e, const char *given, char *tag)
{
    const char *rule = trii_conf_get_text(&e->config, "checkpoint.tag_validation", "Warn");
    double differs;
    tri_status status;

    if (given != NULL)
        snprintf(tag, MAX_TAG, "%s", given);
    else
        snprintf(tag, MAX_TAG, "global_step%" PRId64, e->global_steps);
    status = check_tag(given != NULL ? given : tag);
    if (e->rank != 0)
        status = TRI_OK; /* rank 0's counts */
    status = trii_engine_agree(e, status);
    if (status == TRI_OK)
        status = share_text(e, tag, MAX_TAG);
    if (status != TRI_OK || e->size == 1 || rule[0] == 'I' || rule[0] == 'i')
        return status;
    differs = given != NULL && strcmp(given, tag) != 0;
    status = tri_all_reduce(e->group, &differs, &differs, 1, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL);
    if (status != TRI_OK || differs == 0)
        return status;
    if (rule[0] == 'F' || rule[0] == 'f')
        return TRII_FAIL(TRI_ERR_MISMATCH,
                         "tags differ: rank 0 has \"%s\"; give all ranks the same, or write "
                         "\"checkpoint\": {\"tag_validation\": \"Warn\"}",
                         tag);
    if (e->rank == 0)
        fprintf(stderr, "tri_engine_save_checkpoint: tags differ: all ranks save \"%s\"\n", tag);
    return TRI_OK;
}

/* --- metadata ------------------------------------------------------------- */

typedef struct notes {
    int n;
    tri_metadata meta[MAX_META];
    char keys[MAX_META][MAX_KEY];
    char counts[7][32];
} notes;

static void note(notes *to, const char *prefix, const char *key, const char *value)
{
    if (to->n == MAX_META)
        return;
    snprintf(to->keys[to->n], MAX_KEY, "%s.%s", prefix, key);
    to->meta[to->n] = (tri_metadata){to->keys[to->n], value};
    to->n++;
}

static void note_count(notes *to, int i, const char *key, int64_t value)
{
    snprintf(to->counts[i], sizeof(to->counts[i]), "%" PRId64, value);
    note(to, "engine", key, to->counts[i]);
}

static void note_config(notes *to, const trii_conf *block, const char *path)
{
    char full[MAX_KEY];

    for (const trii_conf *c = block->child; c != NULL; c = c->next) {
        if (c->key == NULL)
            continue;
        snprintf(full, sizeof(full), "%s%s%.60s", path, path[0] != '\0' ? "." : "", c->key);
        if (c->kind == TRII_CONF_BLOCK && strlen(full) < MAX_KEY / 2)
            note_config(to, c, full);
        else if (c->kind != TRII_CONF_BLOCK && c->kind != TRII_CONF_LIST)
            note(to, "config", full, trii_conf_spelling(c));
    }
}

static void note_all(const tri_engine *e, notes *to, const tri_metadata *client, int n_client)
{
    note_count(to, 0, "global_steps", e->global_steps);
    note_count(to, 1, "skipped_steps", e->skipped_steps);
    note_count(to, 2, "micro_steps", e->micro_steps);
    note_count(to, 3, "rate_from", e->rate_from);
    note_count(to, 4, "dp_world_size", e->size);
    note_count(to, 5, "train_batch_size", e->config.train_batch);
    note_count(to, 6, "global_samples", e->global_samples);
    for (int i = 0; i < n_client; i++)
        note(to, "client", client[i].key, client[i].value);
    note_config(to, e->config.root, "");
    if (!e->config.clip_given)
        note(to, "config", "gradient_clipping", "1.0");
}

/* --- saving --------------------------------------------------------------- */

static tri_status save_to(tri_engine *e, const char *folder, const notes *all)
{
    tri_state_entry scaler[3];
    tri_checkpoint_extra extra = {.name = "scaler", .entries = scaler};
    const tri_checkpoint_info info = {.step = e->global_steps,
                                      .meta = all->meta,
                                      .n_meta = all->n,
                                      .extras = &extra,
                                      .n_extras = e->scaler != NULL};

    for (; extra.n < tri_grad_scaler_state_count(e->scaler); extra.n++)
        scaler[extra.n] = tri_grad_scaler_state(e->scaler, extra.n);
    return tri_checkpoint_save(folder, e->model, e->optimizer, &info,
                               &(tri_checkpoint_save_options){.keep = 1, .all_ranks = e->size > 1});
}

/* The name never shows half a tag, nor one whose checkpoint is not on disk. */
static tri_status write_latest(const char *dir, const char *tag)
{
    char path[4096];
    trii_writer writer;
    tri_status status;

    snprintf(path, sizeof(path), "%s/latest", dir);
    status = trii_writer_open(path, &writer);
    if (status != TRI_OK)
        return status;
    status = trii_writer_put(&writer, tag, strlen(tag));
    if (status == TRI_OK)
        return trii_writer_commit(&writer);
    trii_writer_abort(&writer);
    return status;
}

static tri_status save(tri_engine *e, const char *dir, const char *given,
                       const tri_metadata *client, int n_client)
{
    char tag[MAX_TAG], folder[4096];
    notes *all = NULL;
    tri_status status = agree_on_tag(e, given, tag);

    if (status != TRI_OK)
        return status;
    all = trii_alloc(1, sizeof(*all), "metadata of a checkpoint");
    status = trii_engine_agree(e, all == NULL ? TRI_ERR_NO_MEMORY : TRI_OK);
    if (all != NULL && status == TRI_OK) {
        note_all(e, all, client, n_client);
        snprintf(folder, sizeof(folder), "%s/%s", dir, tag);
        status = save_to(e, folder, all);
        if (e->rank == 0 && status == TRI_OK)
            status = write_latest(dir, tag);
        status = trii_engine_agree(e, status);
    }
    trii_free(all);
    return status;
}

static tri_status check_client(const tri_metadata *client, int n_client)
{
    if (n_client < 0 || n_client > MAX_META / 2 || (n_client > 0 && client == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "n_client %d: 0 to %d, with client not NULL",
                         n_client, MAX_META / 2);
    for (int i = 0; i < n_client; i++)
        if (client[i].key == NULL || client[i].value == NULL || strlen(client[i].key) > 100)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "client[%d]: key and value are texts, the key of at most 100 "
                             "characters",
                             i);
    return TRI_OK;
}

tri_status tri_engine_save_checkpoint(tri_engine *e, const char *dir, const char *tag,
                                      const tri_metadata *client, int n_client)
{
    tri_status status = trii_need(e, "tri_engine_save_checkpoint", "engine");

    if (status != TRI_OK)
        return status;
    status = trii_need_text(dir, "tri_engine_save_checkpoint", "dir");
    if (status == TRI_OK)
        status = check_client(client, n_client);
    status = trii_engine_agree(e, status);
    if (status == TRI_OK)
        status = save(e, dir, tag, client, n_client);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_engine_save_checkpoint");
}

/* --- loading -------------------------------------------------------------- */

static tri_status read_latest(const char *dir, char *tag)
{
    char path[4096];
    void *memory = NULL;
    size_t room = 0, bytes = 0;
    tri_status status;

    snprintf(path, sizeof(path), "%s/latest", dir);
    status = trii_file_load(path, 4096, &memory, &room, &bytes);
    if (status == TRI_OK) {
        snprintf(tag, MAX_TAG, "%.*s", (int)bytes, (const char *)memory);
        tag[strcspn(tag, "\r\n")] = '\0'; /* an editor adds one */
        if (check_tag(tag) != TRI_OK)
            status = TRII_FAIL(TRI_ERR_FORMAT,
                               "%s has \"%.80s\", which is not a tag: write one there, or give it",
                               path, tag);
    }
    trii_free(memory);
    return status;
}

static int64_t count_of(const tri_checkpoint *c, const char *key)
{
    const char *text = tri_checkpoint_metadata(c, key);

    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

static void name_changes(const tri_engine *e, const tri_checkpoint *c, notes *now)
{
    const char *was;

    note_all(e, now, NULL, 0);
    for (int i = 0; i < now->n; i++) {
        if (strncmp(now->meta[i].key, "config.", 7) != 0)
            continue;
        was = tri_checkpoint_metadata(c, now->meta[i].key);
        if (was == NULL || strcmp(was, now->meta[i].value) != 0)
            fprintf(stderr, "tri_engine_load_checkpoint: %s is %s now, %s when it was saved\n",
                    now->meta[i].key + 7, now->meta[i].value, was != NULL ? was : "not given");
    }
}

static tri_status restore_scaler(tri_engine *e, const tri_checkpoint *c)
{
    tri_state_entry entries[3];
    int64_t n = tri_grad_scaler_state_count(e->scaler);
    tri_status status;

    if (e->scaler == NULL || !tri_checkpoint_has(c, "scaler"))
        return TRI_OK;
    for (int64_t i = 0; i < n; i++)
        entries[i] = tri_grad_scaler_state(e->scaler, i);
    status = tri_checkpoint_restore_extra(c, "scaler", entries, n);
    return status == TRI_OK ? trii_engine_read_scaler(e) : status;
}

static void restore_counters(tri_engine *e, const tri_checkpoint *c,
                             const tri_engine_load_checkpoint_options *opt)
{
    e->global_steps = count_of(c, "engine.global_steps");
    e->skipped_steps = count_of(c, "engine.skipped_steps");
    e->global_samples = count_of(c, "engine.global_samples");
    e->micro_steps = count_of(c, "engine.micro_steps");
    e->rate_from =
        opt->no_lr_scheduler_states ? trii_engine_updates(e) : count_of(c, "engine.rate_from");
    trii_engine_begin_anew(e);
}

static tri_status restore(tri_engine *e, const tri_checkpoint *c,
                          const tri_engine_load_checkpoint_options *opt)
{
    const bool with_optimizer = !opt->load_module_only && !opt->no_optimizer_states;
    notes *now;
    tri_status status = tri_checkpoint_restore(c, e->model, with_optimizer ? e->optimizer : NULL);

    if (status == TRI_OK && with_optimizer)
        status = restore_scaler(e, c);
    if (status != TRI_OK || opt->load_module_only)
        return status;
    restore_counters(e, c, opt);
    if (e->rank != 0)
        return TRI_OK;
    now = trii_alloc(1, sizeof(*now), "metadata of a checkpoint");
    if (now == NULL)
        return TRI_ERR_NO_MEMORY;
    name_changes(e, c, now);
    trii_free(now);
    return TRI_OK;
}

/* given: NULL if `latest` has named it. Then it was there: a program that began from the start
 * would put its own checkpoints in the place of what is lost. */
static tri_status open_tag(const tri_engine *e, const char *folder, const char *given,
                           tri_checkpoint **c_out)
{
    tri_status status = e->size > 1 ? tri_checkpoint_fetch(e->group, folder, c_out)
                                    : tri_checkpoint_open(folder, c_out);

    return status == TRI_ERR_NOT_FOUND && given == NULL
               ? TRII_FAIL(TRI_ERR_FORMAT,
                           "%s: `latest` names it, but there is no such checkpoint: write "
                           "another tag into `latest`, or remove it to begin from the start",
                           folder)
               : status;
}

static tri_status load(tri_engine *e, const char *dir, const char *given,
                       const tri_engine_load_checkpoint_options *opt)
{
    char tag[MAX_TAG] = "", folder[4096];
    tri_checkpoint *c = NULL;
    bool is_foreign = false;
    tri_status status = TRI_OK;

    if (e->rank == 0)
        status = given != NULL ? check_tag(given) : read_latest(dir, tag);
    if (e->rank == 0 && given != NULL && status == TRI_OK)
        snprintf(tag, sizeof(tag), "%s", given);
    status = trii_engine_agree(e, status);
    if (status == TRI_OK)
        status = share_text(e, tag, sizeof(tag));
    if (status != TRI_OK)
        return status;
    snprintf(folder, sizeof(folder), "%s/%s", dir, tag);
    status = trii_engine_is_foreign(e, folder, &is_foreign);
    if (status == TRI_OK && is_foreign)
        status = trii_engine_load_foreign(e, folder, opt);
    else if (status == TRI_OK)
        status = open_tag(e, folder, given, &c);
    if (c != NULL)
        status = restore(e, c, opt);
    status = trii_engine_agree(e, status);
    if (status != TRI_OK) {
        tri_checkpoint_close(c);
        return status;
    }
    tri_checkpoint_close(e->loaded);
    e->loaded = c;
    return TRI_OK;
}

tri_status tri_engine_load_checkpoint(tri_engine *e, const char *dir, const char *tag,
                                      const tri_engine_load_checkpoint_options *opt)
{
    static const tri_engine_load_checkpoint_options defaults;
    tri_status status = trii_need(e, "tri_engine_load_checkpoint", "engine");

    if (status != TRI_OK)
        return status;
    status = TRII_CHECK_RESERVED(tri_engine_load_checkpoint_options, opt);
    if (status == TRI_OK)
        status = trii_need_text(dir, "tri_engine_load_checkpoint", "dir");
    status = trii_engine_agree(e, status);
    if (status == TRI_OK)
        status = load(e, dir, tag, opt != NULL ? opt : &defaults);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_engine_load_checkpoint");
}

const char *tri_engine_client(const tri_engine *e, const char *key)
{
    char full[MAX_KEY];

    if (e == NULL || key == NULL || e->loaded == NULL || strlen(key) > 100)
        return NULL;
    snprintf(full, sizeof(full), "client.%s", key);
    return tri_checkpoint_metadata(e->loaded, full);
}
