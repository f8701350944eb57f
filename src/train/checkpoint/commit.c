/*
 * commit.c - writes a checkpoint so that it appears complete or not at all (format.h). Called by
 * checkpoint_save.c and checkpoint_writer.c.
 *
 * Parts and manifest are written and synced in a folder with a temporary name; one rename makes it
 * a checkpoint. What a killed writer left is removed by the next one, under the folder's lock.
 *
 * Where ranks save together, rank 0 does all that, and the others write a file each if they hold
 * pieces of tensors. They agree when the folder is there, when all files of pieces are on disk, and
 * when it is a checkpoint.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "train/tensor/elsewhere.h"
#include "os/file.h"
#include "os/folder.h"

static tri_status no_memory(const char *folder)
{
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: manifest: out of memory", folder);
}

static tri_status list_part(const char *dir, const char *file, uint64_t bytes, uint64_t sum,
                            json_t *list)
{
    bool ok = json_array_append_new(list, trii_manifest_part(file, bytes, sum)) == 0;

    return ok ? TRI_OK : no_memory(dir);
}

static tri_status write_part(const char *dir, const trii_part *part, json_t *list)
{
    char *path = trii_path_join(dir, part->file);
    trii_written written = {.entries = NULL};
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_safetensors_write(path, part->entries, part->n, &(tri_metadata){"format", "pt"},
                                    1, &written);
    trii_free(path);
    return status == TRI_OK ? list_part(dir, part->file, written.bytes, written.hash, list)
                            : status;
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

static tri_status fill_manifest(const char *dir, const trii_manifest *m, int version, json_t *root)
{
    const tri_checkpoint_info *info = &m->info;
    json_t *meta = json_object();

    if (!trii_json_put(root, "format", json_string("trireme checkpoint")) ||
        !trii_json_put(root, "version", json_integer(version)) ||
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

    if (text == NULL ||
        !trii_json_put(root, "xxh3", trii_manifest_hex(trii_checksum_of(text, strlen(text)))))
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

static tri_status fill_folder(const char *dir, const trii_manifest *m, const trii_save *save,
                              trii_pieces_told *told)
{
    json_t *root = json_object(), *list = json_array(), *tensors = json_array();
    bool has_pieces = save->pieces.group != NULL;
    tri_status status = TRI_OK;

    if (root == NULL || list == NULL || tensors == NULL)
        status = no_memory(dir);
    for (int i = 0; i < save->n_parts && status == TRI_OK; i++)
        status = write_part(dir, &save->parts[i], list);
    for (int i = 0; i < save->n_texts && status == TRI_OK; i++)
        status = write_text_part(dir, &save->texts[i], list);
    if (has_pieces)
        status = trii_pieces_tell(dir, &save->pieces, status, told);
    if (has_pieces && status == TRI_OK)
        status = trii_pieces_join(dir, told, list, tensors);
    if (status == TRI_OK)
        status = fill_manifest(dir, m, has_pieces ? TRII_CHECKPOINT_VERSION : TRII_CHECKPOINT_WHOLE,
                               root);
    if (status == TRI_OK && (json_object_set(root, "parts", list) != 0 ||
                             (has_pieces && json_object_set(root, "tensors", tensors) != 0)))
        status = no_memory(dir);
    if (status == TRI_OK)
        status = write_manifest(dir, root);
    json_decref(tensors);
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
                         "time saves into a folder (rank 0, or all ranks with .all_ranks)",
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

/* --- all of it ------------------------------------------------------------ */

/* One checkpoint on its way. */
typedef struct commit {
    const char *folder;
    const trii_save *save;
    trii_manifest m;
    char name[64]; /* the temporary one */
    char *temporary, *final;
    int lock;
    bool has_begun; /* there is something to be removed */
} commit;

static tri_status begin(commit *c)
{
    tri_status status = trii_checkpoint_claim(c->folder, &c->lock);

    if (status == TRI_OK)
        status = trii_saved_sweep(c->folder);
    if (status == TRI_OK)
        status = next_sequence(c->folder, &c->m.sequence);
    if (status != TRI_OK)
        return status;
    status = trii_checkpoint_begin(c->temporary, c->final);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "checkpoint %s", c->final);
    c->has_begun = true;
    return write_text(c->temporary, TRII_MANIFEST_FILE, TRII_NO_MANIFEST_YET, "",
                      trii_writer_publish);
}

/* Writes what has begun, or removes it. */
static tri_status end(commit *c, tri_status status, trii_pieces_told *told)
{
    if (status == TRI_OK)
        status = fill_folder(c->temporary, &c->m, c->save, told);
    if (status == TRI_OK)
        status = trii_checkpoint_publish(c->folder, c->temporary, c->final);
    if (status == TRI_OK) {
        drop_old(c->folder, c->save);
        trii_saved_remove(c->folder, c->name); /* the earlier one of the same step, if any */
    } else if (c->has_begun) {
        char why[TRII_ERR_BYTES];

        snprintf(why, sizeof(why), "%s", tri_last_error());
        trii_saved_remove(c->folder, c->name);
        trii_err_set("checkpoint %s: %s", c->final, why);
    }
    return status;
}

/* Whether all ranks write the same checkpoint. */
static tri_status compare_steps(const trii_save *save)
{
    int64_t step = save->info->step, least[2] = {step, -step};
    tri_status status =
        tri_all_reduce(save->ranks, least, least, 2, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL);

    if (status == TRI_OK && least[0] != -least[1])
        status = TRII_FAIL(TRI_ERR_MISMATCH,
                           "tri_checkpoint_save: ranks that save together save one step: "
                           "one saves %" PRId64 ", one %" PRId64,
                           least[0], -least[1]);
    return status;
}

/* A rank that is not 0: writes its pieces, if it has any, into the folder that rank 0 has made. */
static tri_status take_part(commit *c, trii_pieces_told *told)
{
    tri_status status = TRI_OK;

    if (c->save->pieces.group != NULL)
        status = trii_pieces_tell(c->temporary, &c->save->pieces, TRI_OK, told);
    return status == TRI_OK ? status : TRII_FAIL_CTX(status, "checkpoint %s", c->final);
}

tri_status trii_checkpoint_commit(const char *folder, const trii_save *save)
{
    tri_group *group = save->ranks;
    bool leads = group == NULL || tri_group_rank(group) == 0;
    commit c = {.folder = folder,
                .save = save,
                .m = {.info = *save->info, .random = *save->random},
                .lock = -1};
    trii_pieces_told told = {.bytes = NULL};
    tri_status status = TRI_OK, begun;

    snprintf(c.name, sizeof(c.name), TRII_TEMPORARY "step-%012" PRId64, c.m.info.step);
    c.temporary = trii_path_join(folder, c.name);
    c.final = trii_path_join(folder, c.name + strlen(TRII_TEMPORARY));
    if (group != NULL)
        status = compare_steps(save);
    if (status == TRI_OK && (c.temporary == NULL || c.final == NULL))
        status = TRI_ERR_NO_MEMORY;
    if (status == TRI_OK && leads)
        status = begin(&c);
    begun = trii_ranks_agree(group, status); /* the folder is there */
    if (leads)
        status = end(&c, begun, &told);
    else if (begun == TRI_OK)
        status = take_part(&c, &told);
    /* The others wait until it is a checkpoint; but not where all have been told of a failure. */
    if (begun == TRI_OK && !told.has_failed)
        status = trii_ranks_agree(group, status);
    trii_pieces_told_fini(&told);
    trii_free(c.final);
    trii_free(c.temporary);
    trii_folder_unlock(c.lock);
    return begun == TRI_OK ? status : begun;
}
