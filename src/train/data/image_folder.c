/*
 * image_folder.c - images in files, a folder for each class: a sample is read and decoded when it
 * is asked for, and nothing is kept of it.
 *
 * A thread that reads a sample takes working memory from a list and puts it back, so that there is
 * as much of it as threads that read at the same time: one file, and one image or the part of it
 * that is wanted.
 */
#include "train/data/image_folder.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "train/data/dataset.h"
#include "os/file.h"
#include "os/thread.h"

#define MOST_FILE_BYTES ((size_t)1 << 30)

typedef struct work {
    struct work *next;
    trii_view_work view;
    void *file;
    size_t file_room;
    char path[TRII_PATH_BYTES];
} work;

typedef struct image_folder {
    tri_dataset base;
    trii_image_files files;
    int channels;
    bool skip_broken;
    int64_t first, end; /* of the samples that the data set made of it has */
    trii_mutex mutex;
    work *idle; /* guarded: memory that nobody uses */
    uint64_t
        *broken; /* guarded: a bit for each file that was found broken; NULL: none is skipped */
    int64_t n_broken; /* guarded */
} image_folder;

/* --- working memory ------------------------------------------------------- */

static work *take_work(image_folder *f)
{
    work *w;

    trii_mutex_lock(&f->mutex);
    w = f->idle;
    if (w != NULL)
        f->idle = w->next;
    trii_mutex_unlock(&f->mutex);
    return w != NULL ? w : trii_alloc(1, sizeof(*w), "memory to read images");
}

static void give_work(image_folder *f, work *w)
{
    trii_mutex_lock(&f->mutex);
    w->next = f->idle;
    f->idle = w;
    trii_mutex_unlock(&f->mutex);
}

static void free_work(work *w)
{
    trii_view_work_fini(&w->view);
    trii_free(w->file);
    trii_free(w);
}

/* --- one sample ----------------------------------------------------------- */

/* The line names the file; names may have any byte. */
static tri_status name_file(const work *w, tri_status status)
{
    char shown[TRII_PATH_BYTES];

    if (status == TRI_ERR_NO_MEMORY)
        return status;
    if (strstr(tri_last_error(), w->path) == NULL)
        trii_err_prepend("%s", w->path);
    trii_path_show(tri_last_error(), shown);
    trii_err_set("%s", shown);
    return status;
}

static tri_status look_at(image_folder *f, int64_t i, work *w, trii_look look, void *arg)
{
    size_t bytes = 0;
    trii_view view;
    tri_status status = trii_image_files_path(&f->files, i, w->path);

    if (status == TRI_OK)
        status = trii_file_load(w->path, MOST_FILE_BYTES, &w->file, &w->file_room, &bytes);
    if (status == TRI_ERR_IO && trii_path_is_no_file(w->path)) /* a pipe with an image's name */
        status = TRI_ERR_FORMAT;
    if (status == TRI_OK)
        status = trii_view_open(w->file, bytes, f->channels, &view);
    if (status == TRI_OK)
        status = look(arg, &view, &w->view);
    return status == TRI_OK ? TRI_OK : name_file(w, status);
}

/* A disk that fails, or a limit of open files, says nothing about the file. */
static bool is_broken(tri_status status)
{
    return status == TRI_ERR_FORMAT || status == TRI_ERR_UNSUPPORTED || status == TRI_ERR_NOT_FOUND;
}

static void note_broken(image_folder *f, int64_t i)
{
    uint64_t bit = UINT64_C(1) << (i % 64);

    bool is_known;

    trii_mutex_lock(&f->mutex);
    is_known = (f->broken[i / 64] & bit) != 0;
    f->broken[i / 64] |= bit;
    f->n_broken += !is_known;
    trii_mutex_unlock(&f->mutex);
    if (is_known)
        return;
    TRII_LOG(TRII_LOG_WARN, "data", "skipped, and the next image taken in its place: %s",
             tri_last_error());
}

tri_status trii_image_folder_look(tri_dataset *folder, int64_t index, trii_look look, void *arg,
                                  int64_t *label_out)
{
    image_folder *f = (image_folder *)folder;
    work *w = take_work(f);
    tri_status status = TRI_ERR_NO_MEMORY;
    int64_t i = index, left = f->end - f->first;

    if (w == NULL)
        return status;
    for (;; i = i + 1 < f->end ? i + 1 : f->first) {
        status = look_at(f, i, w, look, arg);
        if (status == TRI_OK || !f->skip_broken || !is_broken(status))
            break;
        note_broken(f, i);
        if (--left <= 0)
            break;
    }
    give_work(f, w);
    if (status == TRI_OK)
        *label_out = f->files.labels[i];
    else if (left <= 0)
        return TRII_FAIL_CTX(status, "no file is whole (skip_broken), the last one is");
    return status;
}

static tri_status copy_image(void *arg, trii_view *view, trii_view_work *view_work)
{
    tri_status status = trii_view_decode(view, view_work);
    void *to;

    if (status != TRI_OK)
        return status;
    to = tri_sample_room(arg, 0, TRI_DTYPE_U8,
                         (const int64_t[]){view->channels, view->height, view->width}, 3);
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_view_copy(view, to);
    return TRI_OK;
}

static tri_status folder_sample(tri_dataset *self, const tri_request *request, tri_sample *out)
{
    int64_t label = 0, *to;
    tri_status status = trii_image_folder_look(self, request->indices[0], copy_image, out, &label);

    if (status != TRI_OK)
        return status;
    to = tri_sample_room(out, 1, TRI_DTYPE_I64, NULL, 0);
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    *to = label;
    return TRI_OK;
}

/* --- the data set --------------------------------------------------------- */

static void folder_destroy(tri_dataset *self)
{
    image_folder *f = (image_folder *)self;

    while (f->idle != NULL) {
        work *w = f->idle;

        f->idle = w->next;
        free_work(w);
    }
    trii_image_files_fini(&f->files);
    trii_free(f->broken);
    trii_mutex_fini(&f->mutex);
    trii_free(f);
}

static const tri_dataset_class folder_class = {
    .name = "image folder", .sample = folder_sample, .destroy = folder_destroy};

tri_dataset *trii_image_folder_below(tri_dataset *dataset, int64_t *index_inout)
{
    trii_derived *derived = trii_derived_of(dataset);

    for (; derived != NULL && derived->unchanged; derived = trii_derived_of(dataset)) {
        *index_inout += derived->first;
        dataset = derived->parent;
    }
    return dataset->cls == &folder_class ? dataset : NULL;
}

void trii_image_folder_narrow(tri_dataset *dataset, int64_t first, int64_t count)
{
    trii_derived *derived;

    for (; (derived = trii_derived_of(dataset)) != NULL; dataset = derived->parent)
        first += derived->first;
    if (dataset->cls == &folder_class) {
        ((image_folder *)dataset)->first = first;
        ((image_folder *)dataset)->end = first + count;
    }
}

/* The folder that a data set is made of, in whatever way. */
static image_folder *folder_of(const tri_dataset *dataset)
{
    union {
        const tri_dataset *given;
        tri_dataset *at;
    } u = {dataset};
    trii_derived *derived;

    if (TRII_CHECK_RESERVED(tri_dataset, dataset) != TRI_OK)
        return NULL;
    while (u.at != NULL && u.at->cls != NULL && (derived = trii_derived_of(u.at)) != NULL)
        u.at = derived->parent;
    return u.at != NULL && u.at->cls == &folder_class ? (image_folder *)u.at : NULL;
}

int64_t tri_dataset_class_count(const tri_dataset *dataset)
{
    const image_folder *f = folder_of(dataset);

    return f != NULL ? f->files.classes.n : 0;
}

const char *tri_dataset_class_name(const tri_dataset *dataset, int64_t class_index)
{
    const image_folder *f = folder_of(dataset);

    if (f == NULL || class_index < 0 || class_index >= f->files.classes.n)
        return NULL;
    return trii_texts_get(&f->files.classes, class_index);
}

int64_t tri_dataset_broken_count(const tri_dataset *dataset)
{
    image_folder *f = folder_of(dataset);
    int64_t n = 0;

    if (f == NULL)
        return 0;
    trii_mutex_lock(&f->mutex);
    n = f->n_broken;
    trii_mutex_unlock(&f->mutex);
    return n;
}

static tri_status check_options(const tri_dataset_image_folder_options *opt)
{
    if (opt->channels != 0 && opt->channels != 1 && opt->channels != 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_image_folder: %d channels: 3 for colours (the default) or 1 for "
                         "grey",
                         opt->channels);
    if (opt->classes != NULL && folder_of(opt->classes) == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_image_folder: the data set `classes` is neither an image folder "
                         "nor made of one");
    return TRI_OK;
}

static tri_status open_folder(image_folder *f, const char *dir,
                              const tri_dataset_image_folder_options *opt)
{
    const image_folder *classes = opt->classes != NULL ? folder_of(opt->classes) : NULL;
    trii_image_files_options find = {
        .classes = classes != NULL ? &classes->files.classes : NULL,
        .annotations = opt->annotations,
        .allow_empty = opt->allow_empty,
        .allow_one_class =
            opt->allow_one_class || (classes != NULL && classes->files.classes.n == 1),
    };
    tri_status status = trii_image_files_find(dir, &find, &f->files);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "dataset_image_folder");
    f->channels = opt->channels == 1 ? 1 : 3;
    f->skip_broken = opt->skip_broken;
    f->base.length = f->end = f->files.names.n;
    f->base.n_fields = 2;
    f->base.fields[0] = (tri_field){TRI_DTYPE_U8, 3, {f->channels, -1, -1}};
    f->base.fields[1] = (tri_field){TRI_DTYPE_I64, 0, {0}};
    if (f->skip_broken) {
        f->broken = trii_alloc((size_t)(f->base.length / 64 + 1), sizeof(*f->broken), "data set");
        if (f->broken == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    return TRI_OK;
}

tri_status tri_dataset_image_folder(const char *dir, const tri_dataset_image_folder_options *opt,
                                    tri_dataset **dataset_out)
{
    static const tri_dataset_image_folder_options defaults;
    tri_status status = trii_need_text(dir, "tri_dataset_image_folder", "dir");
    image_folder *f;

    if (opt == NULL)
        opt = &defaults;
    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_image_folder", "dataset_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_dataset_image_folder_options, opt);
    if (status == TRI_OK)
        status = check_options(opt);
    if (status != TRI_OK)
        return status;
    f = trii_alloc(1, sizeof(*f), "data set");
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    f->base.cls = &folder_class;
    trii_mutex_init(&f->mutex);
    status = open_folder(f, dir, opt);
    if (status != TRI_OK) {
        folder_destroy(&f->base);
        return status;
    }
    *dataset_out = &f->base;
    return TRI_OK;
}
