/*
 * commit.c - writes a checkpoint so that it appears complete or not at all (format.h). Called by
 * checkpoint.c.
 *
 * Parts and manifest are written and synced in a folder with a temporary name; one rename makes it
 * a checkpoint. What a killed writer left is removed by the next one, under the folder's lock.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "os/file.h"
#include "os/folder.h"

static tri_status no_memory(const char *folder)
{
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: manifest: out of memory", folder);
}

static json_t *hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return json_string(text);
}

static tri_status list_part(const char *dir, const char *file, uint64_t bytes, uint64_t sum,
                            json_t *list)
{
    json_t *object = json_object();
    bool ok = trii_json_put(object, "file", json_string(file)) &&
              trii_json_put(object, "bytes", json_integer((json_int_t)bytes)) &&
              trii_json_put(object, "xxh3", hex(sum)) && json_array_append(list, object) == 0;

    json_decref(object);
    return ok ? TRI_OK : no_memory(dir);
}

static tri_status write_part(const char *dir, const trii_part *part, json_t *list)
{
    char *path = trii_path_join(dir, part->file);
    uint64_t bytes = 0, sum = 0;
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_safetensors_write(path, part->entries, part->n, &(tri_metadata){"format", "pt"},
                                    1, &bytes, &sum);
    trii_free(path);
    return status == TRI_OK ? list_part(dir, part->file, bytes, sum, list) : status;
}

/* How a file that is written reaches the disk: trii_writer_commit or trii_writer_publish. */
typedef tri_status (*end_fn)(trii_writer *writer);

static tri_status write_text(const char *dir, const char *file, const char *text, const char *tail,
                             end_fn end)
{
    char *path = trii_path_join(dir, file);
    trii_writer writer;
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_writer_open(path, &writer);
    trii_free(path);
    if (status != TRI_OK)
        return status;
    status = trii_writer_put(&writer, text, strlen(text));
    if (status == TRI_OK)
        status = trii_writer_put(&writer, tail, strlen(tail));
    if (status == TRI_OK)
        return end(&writer);
    trii_writer_abort(&writer);
    return status;
}

static tri_status write_text_part(const char *dir, const tri_metadata *text, json_t *list)
{
    char file[TRII_FILE_NAME];
    tri_status status;

    snprintf(file, sizeof(file), "%s" TRII_TEXT_SUFFIX, text->key);
    status = write_text(dir, file, text->value, "", trii_writer_commit);
    if (status != TRI_OK)
        return status;
    return list_part(dir, file, strlen(text->value),
                     trii_checksum_of(text->value, strlen(text->value)), list);
}

static json_t *random_to_json(const trii_random_state *random)
{
    char words[8 * TRII_MT_WORDS + 1], seed[24], stream[24];
    json_t *object = json_object();

    for (int i = 0; i < TRII_MT_WORDS; i++)
        snprintf(words + 8 * (size_t)i, 9, "%08" PRIx32, random->generator.words[i]);
    snprintf(seed, sizeof(seed), "%" PRIu64, random->steps.seed);
    snprintf(stream, sizeof(stream), "%" PRIu64, random->steps.stream);
    if (trii_json_put(object, "seed", json_string(seed)) &&
        trii_json_put(object, "stream", json_string(stream)) &&
        trii_json_put(object, "step", json_integer(random->steps.step)) &&
        trii_json_put(object, "generator", json_string(words)) &&
        trii_json_put(object, "next", json_integer(random->generator.next)))
        return object;
    json_decref(object);
    return NULL;
}

static tri_status fill_manifest(const char *dir, const trii_manifest *m, json_t *root)
{
    const tri_checkpoint_info *info = &m->info;
    json_t *meta = json_object();

    if (!trii_json_put(root, "format", json_string("trireme checkpoint")) ||
        !trii_json_put(root, "version", json_integer(TRII_CHECKPOINT_VERSION)) ||
        !trii_json_put(root, "sequence", json_integer(m->sequence)) ||
        !trii_json_put(root, "step", json_integer(info->step)) ||
        !trii_json_put(root, "epoch", json_integer(info->epoch)) ||
        !trii_json_put(root, "random", random_to_json(&m->random)) ||
        !trii_json_put(root, "metadata", meta))
        return no_memory(dir);
    for (int i = 0; i < info->n_meta; i++) {
        const char *key = info->meta[i].key, *value = info->meta[i].value;

        if (json_object_get(meta, key) != NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "metadata %s occurs twice", key);
        if (!trii_json_put(meta, key, json_string(value)))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "metadata %s: not UTF-8, or out of memory", key);
    }
    return TRI_OK;
}

/* Appends the checksum and writes the file. */
static tri_status write_manifest(const char *dir, json_t *root)
{
    char *text = trii_json_text(root);
    tri_status status = TRI_OK;

    if (text == NULL || !trii_json_put(root, "xxh3", hex(trii_checksum_of(text, strlen(text)))))
        status = no_memory(dir);
    trii_free(text);
    text = status == TRI_OK ? trii_json_text(root) : NULL;
    if (status == TRI_OK && text == NULL)
        status = no_memory(dir);
    if (status == TRI_OK) {
        status = write_text(dir, TRII_MANIFEST_FILE, text, "\n", trii_writer_commit);
    }
    trii_free(text);
    return status;
}

static tri_status fill_folder(const char *dir, const trii_manifest *m, const trii_save *save)
{
    json_t *root = json_object(), *list = json_array();
    tri_status status = TRI_OK;

    if (root == NULL || list == NULL)
        status = no_memory(dir);
    if (status == TRI_OK)
        status = write_text(dir, TRII_MANIFEST_FILE, TRII_NO_MANIFEST_YET, "", trii_writer_publish);
    for (int i = 0; i < save->n_parts && status == TRI_OK; i++)
        status = write_part(dir, &save->parts[i], list);
    for (int i = 0; i < save->n_texts && status == TRI_OK; i++)
        status = write_text_part(dir, &save->texts[i], list);
    if (status == TRI_OK)
        status = fill_manifest(dir, m, root);
    if (status == TRI_OK && json_object_set(root, "parts", list) != 0)
        status = no_memory(dir);
    if (status == TRI_OK)
        status = write_manifest(dir, root);
    json_decref(list);
    json_decref(root);
    return status;
}

/* --- the folder ----------------------------------------------------------- */

tri_status trii_checkpoint_claim(const char *folder, int *lock_out)
{
    tri_status status = trii_folder_create_above(folder);

    *lock_out = -1;
    if (status == TRI_OK)
        status = trii_folder_create(folder);
    if (status != TRI_OK)
        return status;
    status = trii_folder_lock(folder, lock_out);
    if (status == TRI_ERR_UNSUPPORTED) {
        TRII_LOG(TRII_LOG_INFO, "checkpoint", "%s", tri_last_error());
        status = TRI_OK;
    }
    if (status == TRI_ERR_STATE)
        return TRII_FAIL(status,
                         "checkpoint: %s is being written by another process or thread: one at a "
                         "time saves into a folder (rank 0)",
                         folder);
    return status;
}

static tri_status next_sequence(const char *folder, int64_t *sequence_out)
{
    trii_saved *saved;
    int n;
    tri_status status = trii_saved_list(folder, &saved, &n);

    if (status != TRI_OK)
        return status;
    if (n == 0 || saved[0].sequence < INT64_MAX)
        *sequence_out = n > 0 ? saved[0].sequence + 1 : 0;
    else
        status = TRII_FAIL(TRI_ERR_IO,
                           "%s/%s: its manifest says sequence %" PRId64
                           ", which nothing can follow: move it away",
                           folder, saved[0].name, saved[0].sequence);
    trii_saved_free(saved, n);
    return status;
}

static bool stays(const trii_save *save, int64_t step)
{
    for (int i = 0; i < save->n_keep_steps; i++) {
        if (save->keep_steps[i] == step)
            return true;
    }
    return step == save->info->step;
}

/* Removes all but the newest checkpoints and those that are to stay. */
static void drop_old(const char *folder, const trii_save *save)
{
    trii_saved *saved;
    int n;

    if (trii_saved_list(folder, &saved, &n) != TRI_OK) {
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "older checkpoints were not removed: %s",
                 tri_last_error());
        return;
    }
    for (int i = save->keep; i < n; i++) {
        if (saved[i].is_ours && !stays(save, saved[i].step))
            trii_saved_remove(folder, saved[i].name);
    }
    trii_saved_free(saved, n);
}

tri_status trii_checkpoint_begin(const char *temporary, const char *final)
{
    if (trii_path_exists(final) && !trii_saved_look_at(final).is_ours)
        return TRII_FAIL(
            TRI_ERR_IO,
            "%s is there already and is not a checkpoint that can be read: move it away", final);
    if (trii_path_exists(temporary)) /* ours would have been swept away */
        return TRII_FAIL(TRI_ERR_IO, "%s is there already: move it away", temporary);
    return trii_folder_create(temporary);
}

tri_status trii_checkpoint_publish(const char *folder, const char *temporary, const char *final)
{
    tri_status status = trii_folder_sync(temporary);

    if (status == TRI_OK)
        status = trii_path_rename(temporary, final);
    return status == TRI_OK ? trii_folder_sync(folder) : status;
}

/* Writes FOLDER/NAME under a temporary name first. */
static tri_status make(const char *folder, const char *name, const char *temporary,
                       const char *final, const trii_manifest *m, const trii_save *save)
{
    tri_status status = trii_checkpoint_begin(temporary, final);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "checkpoint %s", final);
    status = fill_folder(temporary, m, save);
    if (status == TRI_OK)
        status = trii_checkpoint_publish(folder, temporary, final);
    if (status != TRI_OK) {
        char why[TRII_ERR_BYTES];

        snprintf(why, sizeof(why), "%s", tri_last_error());
        trii_saved_remove(folder, name);
        trii_err_set("checkpoint %s: %s", final, why);
    }
    return status;
}

tri_status trii_checkpoint_commit(const char *folder, const trii_save *save)
{
    trii_manifest m = {.info = *save->info, .random = *save->random};
    char *temporary = NULL, *final = NULL;
    char name[64];
    tri_status status;
    int lock;

    status = trii_checkpoint_claim(folder, &lock);
    if (status == TRI_OK)
        status = trii_saved_sweep(folder);
    if (status == TRI_OK)
        status = next_sequence(folder, &m.sequence);
    if (status != TRI_OK)
        goto end;
    snprintf(name, sizeof(name), TRII_TEMPORARY "step-%012" PRId64, m.info.step);
    temporary = trii_path_join(folder, name);
    final = trii_path_join(folder, name + strlen(TRII_TEMPORARY));
    status = temporary != NULL && final != NULL ? make(folder, name, temporary, final, &m, save)
                                                : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK) {
        drop_old(folder, save);
        trii_saved_remove(folder, name); /* the earlier checkpoint of the same step, if any */
    }
end:
    trii_free(final);
    trii_free(temporary);
    trii_folder_unlock(lock);
    return status;
}
