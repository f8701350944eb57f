/*
 * hub_write.c - see hub_write.h. Called by convert.c.
 */
#include "train/checkpoint/hub_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "os/file.h"
#include "os/folder.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"

#define INDEX TRII_MODEL_FILE ".index.json"
#define FILE_NAME 80

typedef struct writing {
    const trii_hub *hub;
    const trii_feed *feed;
    char *folder; /* under its temporary name */
    json_t *map;  /* tensor: file */
    int64_t n_files;
    int64_t first; /* entry of the file that is written */
    uint64_t bytes;
} writing;

/* The entry after the last one of the file that begins with this one. */
static int64_t end_of_file(const trii_hub *hub, int64_t first)
{
    uint64_t bytes = 0;
    int64_t end = first;

    while (end < hub->n && (end == first || hub->entries[end].bytes <= hub->shard_bytes - bytes)) {
        bytes += hub->entries[end].bytes;
        end++;
        if (bytes >= hub->shard_bytes)
            break;
    }
    return end;
}

static int64_t count_files(const trii_hub *hub)
{
    int64_t n = 0;

    for (int64_t i = 0; i < hub->n; i = end_of_file(hub, i))
        n++;
    return n > 0 ? n : 1;
}

static void file_name(const writing *w, int64_t file, char name[FILE_NAME])
{
    if (w->n_files == 1)
        snprintf(name, FILE_NAME, TRII_MODEL_FILE);
    else
        snprintf(name, FILE_NAME,
                 TRII_MODEL_NAME "-%05" PRId64 "-of-%05" PRId64 TRII_TENSORS_SUFFIX, file + 1,
                 w->n_files);
}

static tri_status give(void *arg, int64_t index, const trii_sink *to)
{
    writing *w = arg;

    return w->feed->give(w->feed->arg, w->first + index, to);
}

static tri_status list_file(writing *w, const char *name, int64_t end)
{
    for (int64_t i = w->first; i < end; i++) {
        const tri_safetensors_entry *e = &w->hub->entries[i];

        if (json_object_get(w->map, e->name) != NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s occurs twice", e->name);
        if (!trii_json_put(w->map, e->name, json_string(name)))
            return TRII_FAIL(TRI_ERR_NO_MEMORY, "index of tensors: out of memory");
        w->bytes += e->bytes;
    }
    return TRI_OK;
}

static tri_status write_file(writing *w, int64_t file)
{
    const trii_hub *hub = w->hub;
    const int64_t end = end_of_file(hub, w->first);
    char name[FILE_NAME], *path;
    tri_status status;

    file_name(w, file, name);
    status = list_file(w, name, end);
    if (status != TRI_OK)
        return status;
    path = trii_path_join(w->folder, name);
    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_safetensors_write_fed(path, &hub->entries[w->first], end - w->first, hub->meta,
                                        hub->n_meta, &(trii_feed){give, w});
    trii_free(path);
    w->first = end;
    return status;
}

/* As Python's json.dumps(index, indent=2, sort_keys=True) has it, and a line's end. */
static tri_status write_index(const writing *w)
{
    const size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII;
    json_t *index = json_pack("{s{sI}sO}", "metadata", "total_size", (json_int_t)w->bytes,
                              "weight_map", w->map);
    size_t length = index != NULL ? json_dumpb(index, NULL, 0, flags) : 0;
    char *text = length > 0 ? trii_alloc(length + 1, 1, "index of tensors") : NULL,
         *path = trii_path_join(w->folder, INDEX);
    trii_writer writer;
    tri_status status = text != NULL && path != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_writer_open(path, &writer);
    if (status == TRI_OK) {
        (void)json_dumpb(index, text, length, flags);
        text[length] = '\n';
        status = trii_writer_put(&writer, text, length + 1);
        if (status == TRI_OK)
            status = trii_writer_commit(&writer);
        else
            trii_writer_abort(&writer);
    }
    trii_free(path);
    trii_free(text);
    json_decref(index);
    return status;
}

static tri_status write_files(writing *w)
{
    tri_status status = TRI_OK;

    for (int64_t file = 0; file < w->n_files && status == TRI_OK; file++)
        status = write_file(w, file);
    if (status == TRI_OK && w->n_files > 1)
        status = write_index(w);
    return status;
}

/* Nothing that is there is written into: files of an earlier model would stay between the new. */
static tri_status check_free(const char *path)
{
    char **names = NULL;
    int n = 1;
    tri_status status = TRI_OK;

    if (!trii_path_exists(path))
        return TRI_OK;
    if (trii_path_is_folder(path)) {
        status = trii_folder_list(path, 1, &names, &n);
        if (status == TRI_OK)
            trii_folder_free_names(names, n);
    }
    return status != TRI_OK || n == 0
               ? status
               : TRII_FAIL(TRI_ERR_IO,
                           "write %s: it is there, and no empty folder: name one that is not "
                           "there yet",
                           path);
}

/* Makes the folder beside its final place, under a name that nobody else has. */
static tri_status make_folder(writing *w, const char *path)
{
    enum { MARK = 40, TRIES = 10000 };
    const size_t room = strlen(path) + MARK;
    bool is_new = false;
    tri_status status = TRI_OK;

    w->folder = trii_alloc(room, 1, "path");
    if (w->folder == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < TRIES && !is_new && status == TRI_OK; i++) {
        snprintf(w->folder, room, "%s" TRII_WRITER_MARK "%d", path, i);
        status = trii_folder_create_new(w->folder, 0777, &is_new);
    }
    return status == TRI_OK && !is_new
               ? TRII_FAIL(TRI_ERR_IO, "write %s: %s is in the way", path, w->folder)
               : status;
}

static tri_status publish(const writing *w, const char *path)
{
    char *above = trii_path_beside(path, "");
    tri_status status = above != NULL ? trii_folder_sync(w->folder) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = check_free(path);
    if (status == TRI_OK)
        status = trii_path_rename(w->folder, path);
    if (status == TRI_OK)
        status = trii_folder_sync(above[0] != '\0' ? above : ".");
    trii_free(above);
    return status;
}

static tri_status write_folder(writing *w, const char *path)
{
    tri_status status = make_folder(w, path);

    if (status != TRI_OK)
        return status;
    status = write_files(w);
    if (status == TRI_OK)
        status = publish(w, path);
    if (status != TRI_OK)
        (void)!trii_folder_remove(w->folder);
    return status;
}

tri_status trii_hub_write(const trii_hub *hub, const trii_feed *feed)
{
    writing w = {.hub = hub, .feed = feed, .map = json_object(), .n_files = count_files(hub)};
    char *path = trii_strdup(hub->path, "path");
    tri_status status = w.map != NULL && path != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (size_t n = status == TRI_OK ? strlen(path) : 0; n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    if (status == TRI_OK)
        status = check_free(path);
    if (status == TRI_OK)
        status = write_folder(&w, path);
    json_decref(w.map);
    trii_free(w.folder);
    trii_free(path);
    return status;
}
