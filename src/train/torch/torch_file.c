/*
 * torch_file.c - files of torch.save (trireme/torch_file.h): which of the two layouts one has, what
 * its tensors are called, and their elements. Called by programs, and by checkpoint/ for tri_load.
 */
#include <trireme/torch_file.h>

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"
#include "train/tensor/persistent.h"
#include "train/torch/strided.h"
#include "train/torch/torch_names.h"
#include "train/torch/torch_storages.h"

#define PICKLE "data.pkl"
#define STORAGES "data/"

struct tri_torch_file {
    char *path;
    trii_mapping map;
    bool borrowed; /* the mapping is the caller's */
    trii_zip zip;  /* empty: a legacy file */
    trii_arena arena;
    trii_pickled pickled;
    trii_torch_places places;
    trii_torch_names names;
    uint64_t pickle_bytes;
};

/* --- ZIP files ------------------------------------------------------------ */

/* The entry "FOLDER/data.pkl"; NULL: there is none. */
static trii_zip_entry *find_pickle(const trii_zip *zip)
{
    for (int64_t i = 0; i < zip->n; i++) {
        const char *slash = strchr(zip->entries[i].name, '/');

        if (slash != NULL && strcmp(slash + 1, PICKLE) == 0)
            return &zip->entries[i];
    }
    return NULL;
}

/* FOLDER/NAME, FOLDER being that of the pickle; NULL (and the error line): memory is out. */
static char *beside(const trii_zip_entry *pickle, const char *name, const char *more)
{
    size_t folder = strlen(pickle->name) - strlen(PICKLE), bytes = strlen(name);
    char *text = trii_alloc(folder + bytes + strlen(more) + 1, 1, "entry's name");

    if (text == NULL)
        return NULL;
    memcpy(text, pickle->name, folder);
    memcpy(text + folder, name, bytes);
    memcpy(text + folder + bytes, more, strlen(more));
    return text;
}

/* *entry_out: NULL if there is none. */
static tri_status find_beside(const trii_zip *zip, const trii_zip_entry *pickle, const char *name,
                              const char *more, trii_zip_entry **entry_out)
{
    char *text = beside(pickle, name, more);

    if (text == NULL)
        return TRI_ERR_NO_MEMORY;
    *entry_out = trii_zip_find(zip, text);
    trii_free(text);
    return TRI_OK;
}

/* What makes the file none that can be read. */
static tri_status check_kind(const tri_torch_file *f, const trii_zip_entry *pickle)
{
    const unsigned char *order = NULL;
    trii_zip_entry *entry = NULL;
    tri_status status = find_beside(&f->zip, pickle, "constants.pkl", "", &entry);

    if (status == TRI_OK && entry != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: a program of TorchScript: save its state_dict() by torch.save",
                         f->path);
    if (status == TRI_OK)
        status = find_beside(&f->zip, pickle, "byteorder", "", &entry);
    if (status == TRI_OK && entry != NULL)
        status = trii_zip_data(&f->zip, entry, &order);
    if (status == TRI_OK && order != NULL && (entry->bytes != 6 || memcmp(order, "little", 6) != 0))
        status = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                           "%s: offset %" PRIu64
                           ": not written on a little-endian machine: save it on one",
                           f->path, entry->at);
    return status;
}

static tri_status find_storages(tri_torch_file *f, const trii_zip_entry *pickle)
{
    tri_status status = trii_torch_places_list(f->pickled.storages, &f->places);

    for (int64_t i = 0; i < f->places.n && status == TRI_OK; i++) {
        trii_torch_place *place = &f->places.places[i];

        status = find_beside(&f->zip, pickle, STORAGES, place->key, &place->entry);
        if (status == TRI_OK && place->entry == NULL)
            status = TRII_FAIL(TRI_ERR_FORMAT, "%s: it has no entry for storage %.40s", f->path,
                               place->key);
        if (status == TRI_OK)
            status = trii_zip_need_plain(&f->zip, place->entry);
        if (status == TRI_OK) {
            place->at = place->entry->at;
            place->bytes = place->entry->bytes;
        }
    }
    return status == TRI_OK ? trii_torch_places_check(f->path, &f->places, f->pickled.storages)
                            : status;
}

static tri_status read_zip(tri_torch_file *f)
{
    trii_zip_entry *pickle;
    const unsigned char *data;
    tri_status status = trii_zip_open(f->path, &f->map, &f->zip);

    if (status != TRI_OK)
        return status;
    pickle = find_pickle(&f->zip);
    if (pickle == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: a ZIP file without " PICKLE ": torch.save did not write it", f->path);
    status = check_kind(f, pickle);
    if (status == TRI_OK)
        status = trii_zip_data(&f->zip, pickle, &data);
    if (status == TRI_OK)
        status = trii_pickle_read(f->path, pickle->at, data, (size_t)pickle->bytes, &f->arena,
                                  &f->pickled);
    return status == TRI_OK ? find_storages(f, pickle) : status;
}

/* --- both ----------------------------------------------------------------- */

static tri_status read_layout(tri_torch_file *f)
{
    if (trii_torch_is_legacy(&f->map))
        return trii_torch_legacy_read(f->path, &f->map, &f->arena, &f->pickled, &f->places);
    if (trii_torch_is_file(&f->map))
        return read_zip(f);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: not a file of torch.save: it begins neither as a ZIP file nor as one of "
                     "torch before 1.6",
                     f->path);
}

static tri_status read_file(tri_torch_file *f)
{
    tri_status status = f->borrowed ? TRI_OK : trii_mapping_open(f->path, &f->map);

    if (status == TRI_OK)
        status = read_layout(f);
    if (status != TRI_OK)
        return status;
    if (f->pickled.root->v.kind == TRI_TORCH_OBJECT &&
        strncmp(f->pickled.root->v.text, "numpy.", 6) == 0)
        return TRII_FAIL(
            TRI_ERR_UNSUPPORTED,
            "%s: it holds an array or a number of numpy: save torch.from_numpy() of it", f->path);
    if (f->pickled.root->v.kind == TRI_TORCH_OBJECT)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: it holds an object of class %.80s, whose code is in a program: save "
                         "its state_dict() instead",
                         f->path, f->pickled.root->v.text);
    /* Each tensor takes bytes; one that several keys lead to takes some for each, unless these
     * keys lead to a container of it. */
    return trii_torch_names_read(f->path, f->pickled.root, &f->places,
                                 1 + (uint64_t)f->pickled.bytes, &f->arena, &f->names);
}

/* map: NULL to map the file of that path. */
static tri_status open_file(const char *path, const trii_mapping *map, tri_torch_file **file_out)
{
    tri_torch_file *f = trii_alloc(1, sizeof(*f), "file of torch.save");
    tri_status status;

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    if (map != NULL) {
        f->map = *map;
        f->borrowed = true;
    }
    f->path = trii_strdup(path, "path");
    status = f->path != NULL ? read_file(f) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK) {
        tri_torch_close(f);
        return status;
    }
    *file_out = f;
    return TRI_OK;
}

tri_status tri_torch_open(const char *path, tri_torch_file **file_out)
{
    tri_status status = trii_need_text(path, "tri_torch_open", "path");

    if (status == TRI_OK)
        status = trii_need(file_out, "tri_torch_open", "file_out");
    return status == TRI_OK ? open_file(path, NULL, file_out) : status;
}

tri_status trii_torch_open_within(const char *path, const trii_mapping *map,
                                  tri_torch_file **file_out)
{
    return open_file(path, map, file_out);
}

void tri_torch_close(tri_torch_file *file)
{
    if (file == NULL)
        return;
    trii_torch_names_fini(&file->names);
    trii_torch_places_fini(&file->places);
    trii_arena_fini(&file->arena);
    trii_zip_close(&file->zip);
    if (!file->borrowed)
        trii_mapping_close(&file->map);
    trii_free(file->path);
    trii_free(file);
}

const tri_torch_value *tri_torch_root(const tri_torch_file *file)
{
    return file != NULL ? &file->pickled.root->v : NULL;
}

int64_t tri_torch_count(const tri_torch_file *file)
{
    return file != NULL ? file->names.n : 0;
}

const tri_torch_tensor *tri_torch_at(const tri_torch_file *file, int64_t index)
{
    return file != NULL && index >= 0 && index < file->names.n ? &file->names.tensors[index] : NULL;
}

const tri_torch_tensor *tri_torch_find(const tri_torch_file *file, const char *name)
{
    return file != NULL && name != NULL ? trii_torch_names_find(&file->names, name) : NULL;
}

tri_status trii_torch_data(tri_torch_file *file, const tri_torch_tensor *tensor,
                           const void **data_out)
{
    const trii_torch_place *place;
    const unsigned char *data;
    tri_status status = TRI_OK;

    if (tensor->refused != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: tensor %s: %s", file->path, tensor->name,
                         tensor->refused);
    place = trii_torch_places_find(&file->places, tensor->storage);
    data = (const unsigned char *)file->map.data + place->at;
    if (place->entry != NULL)
        status = trii_zip_data(&file->zip, place->entry, &data);
    if (status == TRI_OK) /* that of one without elements may be any */
        *data_out =
            tensor->bytes > 0 ? data + (size_t)tensor->offset * tensor->element_bytes : data;
    return status;
}

bool trii_torch_has_unchecked(const tri_torch_file *file, const tri_torch_tensor *tensor,
                              uint32_t *crc_out)
{
    const trii_torch_place *place = trii_torch_places_find(&file->places, tensor->storage);

    if (tensor->refused != NULL || place->entry == NULL || place->entry->checked ||
        file->zip.unchecked)
        return false;
    *crc_out = place->entry->crc;
    return true;
}

const char *trii_torch_path(const tri_torch_file *file)
{
    return file->path;
}

void trii_torch_set_checked(const tri_torch_file *file, const tri_torch_tensor *tensor)
{
    const trii_torch_place *place = trii_torch_places_find(&file->places, tensor->storage);

    if (tensor->refused == NULL && place->entry != NULL)
        place->entry->checked = true;
}

tri_status tri_torch_read(tri_torch_file *file, int64_t index, void *data, size_t bytes)
{
    const char *call = "tri_torch_read";
    const tri_torch_tensor *t;
    const void *from = NULL;
    tri_status status = trii_need(file, call, "file");

    if (status != TRI_OK)
        return status;
    t = tri_torch_at(file, index);
    if (t == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: index %" PRId64 ", there are %" PRId64 " tensors", call, index,
                         file->names.n);
    if (bytes != t->bytes || (data == NULL && bytes > 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: room for %zu bytes, tensor %s has %" PRIu64,
                         call, data != NULL ? bytes : 0, t->name, t->bytes);
    if (bytes > 0 || t->refused != NULL)
        status = trii_torch_data(file, t, &from);
    if (status == TRI_OK && bytes > 0)
        trii_strided_copy(data, from, t);
    return status;
}

tri_tensor *tri_torch_tensor_named(tri_torch_file *file, const char *name)
{
    const char *call = "tri_torch_tensor_named";
    const tri_torch_tensor *t;
    const void *from = NULL;
    void *room = NULL;
    tri_tensor *made;
    tri_status status = trii_need(file, call, "file");

    if (status == TRI_OK)
        status = trii_need(name, call, "name");
    if (status != TRI_OK)
        return trii_tensor_failed(status);
    t = tri_torch_find(file, name);
    if (t == NULL)
        return trii_tensor_failed(
            TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: no tensor %s", file->path, name));
    if (t->dtype == TRI_DTYPE_NONE && t->refused == NULL)
        return trii_tensor_failed(TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: tensor %s is of %s",
                                            file->path, name, t->type_name));
    status = trii_torch_data(file, t, &from);
    if (status == TRI_OK && !trii_is_contiguous(t)) {
        room = trii_alloc_aligned(64, (size_t)t->bytes, "elements of a tensor");
        status = room != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
        if (status == TRI_OK)
            trii_strided_copy(room, from, t);
    }
    made = status == TRI_OK
               ? tri_tensor_from(t->shape, t->ndim, t->dtype, room != NULL ? room : from)
               : trii_tensor_failed(status);
    trii_free(room);
    return made;
}
