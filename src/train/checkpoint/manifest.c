/*
 * manifest.c - reads and verifies checkpoints (format.h), and finds the newest complete one.
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

/* --- one manifest --------------------------------------------------------- */

static bool ends_in(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);

    return n > m && strcmp(text + n - m, suffix) == 0;
}

/* Keeps what is in it where that is text. */
static tri_status add_text(const char *file, const trii_mapping *map, trii_manifest *m)
{
    tri_metadata *text = &m->texts[m->n_texts];
    char *key, *value;

    if (!ends_in(file, TRII_TEXT_SUFFIX))
        return TRI_OK;
    m->n_texts++;
    text->key = key = trii_strdup(file, "key");
    text->value = value = trii_alloc(map->bytes + 1, 1, "text");
    if (key == NULL || value == NULL)
        return TRI_ERR_NO_MEMORY;
    key[strlen(key) - strlen(TRII_TEXT_SUFFIX)] = '\0';
    memcpy(value, map->data, map->bytes);
    return TRI_OK;
}

/* The file has not the checksum that it should have: which of its tensors is at fault, if one is.
 */
static tri_status say_damaged(const char *path, int file, const trii_mapping *map,
                              const trii_manifest *m)
{
    const trii_stored_piece *p;
    const trii_stored_tensor *t = trii_stored_damaged(&m->stored, file, map, &p);
    char text[TRII_PIECE_TEXT];

    if (t == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: damaged: its checksum is not the manifest's", path);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: damaged: the checksum of tensor %s, piece %s, is not the manifest's",
                     path, t->name, trii_piece_text(&p->piece, text));
}

static tri_status verify_part(const char *dir, int index, trii_manifest *m)
{
    const trii_listed *file = &m->files[index];
    trii_mapping map;
    tri_status status;
    char *path = trii_path_join(dir, file->name);

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &map);
    if (status == TRI_OK) {
        if (map.bytes != file->bytes)
            status = TRII_FAIL(TRI_ERR_FORMAT, "%s: %zu bytes instead of %" PRIu64, path, map.bytes,
                               file->bytes);
        else if (trii_checksum_of(map.data, map.bytes) != file->checksum)
            status = say_damaged(path, index, &map, m);
        else
            status = add_text(file->name, &map, m);
        trii_mapping_close(&map);
    } else if (status == TRI_ERR_NOT_FOUND) {
        status = TRI_ERR_FORMAT; /* in the checkpoint; the line names the file */
    }
    trii_free(path);
    return status;
}

static tri_status read_metadata(const char *path, json_t *object, trii_manifest *m)
{
    const char *key;
    json_t *value;

    m->meta = trii_alloc(json_object_size(object), sizeof(*m->meta), "metadata");
    m->info.meta = m->meta;
    if (m->meta == NULL)
        return TRI_ERR_NO_MEMORY;
    json_object_foreach(object, key, value)
    {
        tri_metadata *entry = &m->meta[m->info.n_meta];

        if (!json_is_string(value))
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: metadata %s is not text", path, key);
        m->info.n_meta++;
        entry->key = trii_strdup(key, "metadata");
        entry->value = trii_strdup(json_string_value(value), "metadata");
        if (entry->key == NULL || entry->value == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    return TRI_OK;
}

/* Both lists are checked before a file is read by them. */
static tri_status verify_parts(const char *dir, const char *path, const json_t *root,
                               trii_manifest *m)
{
    const json_t *parts = json_object_get(root, "parts"), *tensors;
    size_t n = json_array_size(parts);
    tri_status status = TRI_OK;

    m->texts = trii_alloc(n, sizeof(*m->texts), "texts");
    m->files = trii_alloc(n, sizeof(*m->files), "files of a checkpoint");
    if (m->texts == NULL || m->files == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n && status == TRI_OK; i++)
        status = trii_listed_read(path, json_array_get(parts, i), m->files, &m->n_files);
    tensors = json_object_get(root, "tensors");
    if (status == TRI_OK && tensors != NULL)
        status = trii_stored_read(path, tensors, m->files, m->n_files, &m->stored);
    for (int i = 0; i < m->n_files && status == TRI_OK; i++)
        status = verify_part(dir, i, m);
    return status;
}

static bool read_random(const json_t *object, trii_random_state *random)
{
    const char *seed = json_string_value(json_object_get(object, "seed"));
    const char *stream = json_string_value(json_object_get(object, "stream"));
    const char *words = json_string_value(json_object_get(object, "generator"));
    uint64_t step, next;

    if (seed == NULL || stream == NULL || words == NULL ||
        strlen(words) != 8 * (size_t)TRII_MT_WORDS ||
        strspn(words, "0123456789abcdef") != 8 * (size_t)TRII_MT_WORDS ||
        !trii_json_size(json_object_get(object, "step"), &step) ||
        !trii_json_size(json_object_get(object, "next"), &next) || next > TRII_MT_WORDS)
        return false;
    random->steps.seed = strtoull(seed, NULL, 10);
    random->steps.stream = strtoull(stream, NULL, 10);
    random->steps.step = (int64_t)step;
    random->generator.next = (int)next;
    for (size_t i = 0; i < TRII_MT_WORDS; i++) {
        char word[9] = "";

        memcpy(word, words + 8 * i, 8);
        random->generator.words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    return true;
}

static tri_status read_fields(const char *dir, const char *path, json_t *root, trii_manifest *m)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t version, step, epoch, sequence;
    tri_status status;

    (void)trii_manifest_checksum(root, &m->checksum);
    if (format == NULL || strcmp(format, "trireme checkpoint") != 0 ||
        !trii_json_size(json_object_get(root, "version"), &version))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: not the manifest of a checkpoint", path);
    if (version < TRII_CHECKPOINT_WHOLE || version > TRII_CHECKPOINT_VERSION)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: version %" PRIu64 ", this program reads %d and %d", path, version,
                         TRII_CHECKPOINT_WHOLE, TRII_CHECKPOINT_VERSION);
    status = trii_manifest_is_whole(root);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", path);
    if (!trii_json_size(json_object_get(root, "step"), &step) ||
        !trii_json_size(json_object_get(root, "epoch"), &epoch) ||
        !trii_json_size(json_object_get(root, "sequence"), &sequence) ||
        !read_random(json_object_get(root, "random"), &m->random) ||
        !json_is_array(json_object_get(root, "parts")))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: step, epoch, sequence, random or parts are missing",
                         path);
    m->info.step = (int64_t)step;
    m->info.epoch = (int64_t)epoch;
    m->sequence = (int64_t)sequence;
    status = read_metadata(path, json_object_get(root, "metadata"), m);
    return status == TRI_OK ? verify_parts(dir, path, root, m) : status;
}

tri_status trii_manifest_read(const char *dir, trii_manifest *manifest_out)
{
    char *path = trii_path_join(dir, TRII_MANIFEST_FILE);
    trii_manifest manifest = {0};
    json_error_t error;
    trii_mapping map;
    tri_status status;
    json_t *root;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &map);
    if (status != TRI_OK)
        goto end;
    root = json_loadb(map.data, map.bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s, byte %d: %s", path, error.position, error.text);
    else
        status = read_fields(dir, path, root, &manifest);
    json_decref(root);
    trii_mapping_close(&map);
end:
    trii_free(path);
    if (status == TRI_OK)
        *manifest_out = manifest;
    else
        trii_manifest_fini(&manifest);
    return status;
}

static void free_texts(tri_metadata *texts, int n)
{
    for (int i = 0; i < n; i++) {
        void *owned[2];

        memcpy(&owned[0], &texts[i].key, sizeof(void *)); /* ours; the public type is const */
        memcpy(&owned[1], &texts[i].value, sizeof(void *));
        trii_free(owned[0]);
        trii_free(owned[1]);
    }
    trii_free(texts);
}

void trii_manifest_fini(trii_manifest *manifest)
{
    free_texts(manifest->meta, manifest->info.n_meta);
    free_texts(manifest->texts, manifest->n_texts);
    trii_listed_free(manifest->files, manifest->n_files);
    trii_stored_fini(&manifest->stored);
    *manifest = (trii_manifest){0};
}

bool trii_manifest_has(const trii_manifest *manifest, const char *file)
{
    for (int i = 0; i < manifest->n_files; i++) {
        if (strcmp(manifest->files[i].name, file) == 0)
            return true;
    }
    return false;
}

/* --- the newest ----------------------------------------------------------- */

/* The newest that is complete. If there is none, the reason why the newest of those cannot be read
 * that may yet be complete weighs more than what is damaged. */
static tri_status find_in(const char *folder, const trii_saved *saved, int n, char **dir_out,
                          trii_manifest *manifest_out)
{
    char unreadable[TRII_ERR_BYTES] = "";

    for (int i = 0; i < n; i++) {
        tri_status status;
        char *dir = trii_path_join(folder, saved[i].name);

        if (dir == NULL)
            return TRI_ERR_NO_MEMORY;
        status = trii_manifest_read(dir, manifest_out);
        if (status == TRI_OK) {
            *dir_out = dir;
            return TRI_OK;
        }
        trii_free(dir);
        if (status == TRI_ERR_NO_MEMORY)
            return status;
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "skipped: %s", tri_last_error());
        if (status == TRI_ERR_IO && unreadable[0] == '\0')
            snprintf(unreadable, sizeof(unreadable), "%s", tri_last_error());
    }
    if (unreadable[0] != '\0')
        return TRII_FAIL(TRI_ERR_IO, "%s: none of %d checkpoints can be used: %s", folder, n,
                         unreadable);
    if (n > 0)
        return TRII_FAIL_CTX(TRI_ERR_FORMAT, "%s: none of %d checkpoints is complete; the oldest",
                             folder, n);
    return TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: no checkpoint found", folder);
}

/* A manifest may belong to another program that keeps its files in the same folder. */
static bool is_checkpoint(const char *folder)
{
    trii_saved_look seen = trii_saved_look_at(folder);

    return seen.counts && seen.has_manifest;
}

/* What tells one state of a folder from the next. */
typedef struct newest {
    int64_t step, sequence;
} newest;

/* While this process looks another one may save, and remove what was listed here: if nothing could
 * be used, and the folder has another newest one since, that is looked at. */
static tri_status find_below(const char *folder, char **dir_out, trii_manifest *manifest_out)
{
    enum { LOOKS = 16 };
    tri_status status = TRI_ERR_NOT_FOUND;
    char line[TRII_ERR_BYTES] = "";
    newest before = {-1, -1};

    for (int i = 0; i < LOOKS; i++) {
        trii_saved *saved;
        newest now = {-1, -1};
        bool is_known;
        int n;
        tri_status listed = trii_saved_list(folder, &saved, &n);

        if (listed != TRI_OK)
            return listed;
        if (n > 0)
            now = (newest){saved[0].step, saved[0].sequence};
        is_known = i > 0 && now.step == before.step && now.sequence == before.sequence;
        if (!is_known) {
            status = find_in(folder, saved, n, dir_out, manifest_out);
            snprintf(line, sizeof(line), "%s", tri_last_error());
        }
        trii_saved_free(saved, n);
        if (is_known || status == TRI_OK || status == TRI_ERR_NO_MEMORY)
            break;
        before = now;
    }
    if (status == TRI_OK)
        return status;
    return TRII_FAIL(status, "%s", line);
}

tri_status trii_checkpoint_find(const char *folder, char **dir_out, trii_manifest *manifest_out)
{
    tri_status status;

    if (is_checkpoint(folder)) {
        char *dir = trii_strdup(folder, "path");

        status = dir != NULL ? trii_manifest_read(folder, manifest_out) : TRI_ERR_NO_MEMORY;
        if (status == TRI_OK)
            *dir_out = dir;
        else
            trii_free(dir);
        return status;
    }
    return find_below(folder, dir_out, manifest_out);
}
