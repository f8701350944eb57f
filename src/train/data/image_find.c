/*
 * image_find.c - the classes of a folder of images, and what is wrong with them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/data/image_files.h"
#include "os/entries.h"
#include "os/file.h"

/* What lies in the folder itself. */
typedef struct found {
    trii_texts folders;
    int64_t n_images;
} found;

static tri_status note_entry(void *arg, const char *name, bool is_folder)
{
    found *f = arg;

    if (is_folder)
        return trii_texts_add(&f->folders, name);
    f->n_images += trii_is_image_name(name);
    return TRI_OK;
}

/* "a, b, c and 7 more" */
typedef struct name_list {
    char text[300];
    int64_t n, n_shown;
} name_list;

static void list_name(name_list *list, const char *name)
{
    size_t used = strlen(list->text);
    char shown[TRII_PATH_BYTES];

    list->n++;
    trii_path_show(name, shown);
    if (list->n_shown < list->n - 1 || used + strlen(shown) + 40 > sizeof(list->text))
        return;
    list->n_shown++;
    snprintf(list->text + used, sizeof(list->text) - used, "%s%s", used > 0 ? ", " : "", shown);
}

static const char *list_end(name_list *list)
{
    size_t used = strlen(list->text);

    if (list->n_shown < list->n)
        snprintf(list->text + used, sizeof(list->text) - used, "%s%" PRId64 " more",
                 used > 0 ? " and " : "", list->n - list->n_shown);
    return list->text;
}

static tri_status no_class(const char *dir, const found *f)
{
    char shown[TRII_PATH_BYTES];

    trii_path_show(dir, shown);
    if (f->n_images > 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND,
                         "%s has %" PRId64
                         " images of its own, but no class folder: each class is a folder of its "
                         "images, or `annotations` names a list of files and classes",
                         shown, f->n_images);
    return TRII_FAIL(TRI_ERR_NOT_FOUND,
                     "%s has no class folder: each folder in it is a class, with the images of it",
                     shown);
}

/* The classes of the folder get the numbers of the given ones. */
static tri_status check_known(const trii_image_files *files, const trii_texts *found_classes)
{
    name_list unknown = {.n = 0};
    char shown[TRII_PATH_BYTES];

    for (int64_t k = 0; k < found_classes->n; k++) {
        const char *name = trii_texts_get(found_classes, k);

        if (trii_texts_find(&files->classes, name) < 0)
            list_name(&unknown, name);
    }
    if (unknown.n == 0)
        return TRI_OK;
    trii_path_show(files->root, shown);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: %" PRId64 " of its %" PRId64 " classes are not among the %" PRId64
                     " of the data set `classes`: %s",
                     shown, unknown.n, found_classes->n, files->classes.n, list_end(&unknown));
}

static tri_status copy_texts(const trii_texts *from, trii_texts *to)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < from->n && status == TRI_OK; i++)
        status = trii_texts_add(to, trii_texts_get(from, i));
    return status;
}

static tri_status no_images(const trii_image_files *files, const trii_texts *found_classes,
                            name_list *empty)
{
    char shown[TRII_PATH_BYTES];

    trii_path_show(files->root, shown);
    return TRII_FAIL(TRI_ERR_NOT_FOUND,
                     "%s: %" PRId64 " of %" PRId64 " classes have no image (%s): %s; allow_empty "
                     "takes them as they are",
                     shown, empty->n, found_classes->n, TRII_IMAGE_SUFFIXES, list_end(empty));
}

static tri_status find_classes(trii_image_files *files, const trii_image_files_options *opt)
{
    trii_folder_id id = {0};
    name_list empty = {.n = 0};
    found f = {.n_images = 0};
    tri_status status = trii_folder_visit(files->root, note_entry, &f, &id);

    if (status == TRI_OK && f.folders.n == 0)
        status = no_class(files->root, &f);
    if (status == TRI_OK) {
        trii_texts_sort(&f.folders, 0, f.folders.n);
        status = copy_texts(opt->classes != NULL ? opt->classes : &f.folders, &files->classes);
    }
    if (status == TRI_OK)
        status = check_known(files, &f.folders);
    for (int64_t k = 0; k < f.folders.n && status == TRI_OK; k++) {
        const char *name = trii_texts_get(&f.folders, k);
        int64_t before = files->names.n;

        status = trii_image_files_walk(files, (int32_t)trii_texts_find(&files->classes, name));
        if (status == TRI_OK && files->names.n == before)
            list_name(&empty, name);
    }
    if (status == TRI_OK && empty.n > 0 && !opt->allow_empty)
        status = no_images(files, &f.folders, &empty);
    trii_texts_fini(&f.folders);
    return status;
}

/* With one class every label is the same, so that each model is right always. The usual cause is a
 * folder whose classes are in a list. */
static tri_status check_several(const trii_image_files *files)
{
    char shown[TRII_PATH_BYTES], name[TRII_PATH_BYTES];

    if (files->classes.n != 1)
        return TRI_OK;
    trii_path_show(files->root, shown);
    trii_path_show(trii_texts_get(&files->classes, 0), name);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s has one class only, %s, with %" PRId64
                     " images: every label would be 0. Set allow_one_class if that is meant; "
                     "`annotations` takes the classes from a list of files",
                     shown, name, files->names.n);
}

/* tiny-imagenet's folder of validation, whose classes are in a list. */
static bool has_own_list(const char *dir, char list_out[TRII_PATH_BYTES])
{
    char images[TRII_PATH_BYTES];
    bool is_folder = false;

    return snprintf(images, sizeof(images), "%s/images", dir) < TRII_PATH_BYTES &&
           snprintf(list_out, TRII_PATH_BYTES, "%s/val_annotations.txt", dir) < TRII_PATH_BYTES &&
           trii_path_is_file(list_out) && trii_path_leads_to_folder(images, &is_folder) == TRI_OK &&
           is_folder;
}

tri_status trii_image_files_find(const char *dir, const trii_image_files_options *opt,
                                 trii_image_files *files_out)
{
    trii_image_files files = {.root = trii_strdup(dir, "folder of images")};
    size_t length = strlen(dir);
    char list[TRII_PATH_BYTES];
    int32_t *fewer;
    tri_status status;

    if (files.root == NULL)
        return TRI_ERR_NO_MEMORY;
    while (length > 1 && files.root[length - 1] == '/')
        files.root[--length] = '\0';
    if (opt->annotations != NULL)
        status = trii_image_files_listed(&files, opt->annotations, "", opt->classes);
    else if (has_own_list(files.root, list))
        status = trii_image_files_listed(&files, list, "images", opt->classes);
    else
        status = find_classes(&files, opt);
    if (status == TRI_OK && !opt->allow_one_class)
        status = check_several(&files);
    if (status != TRI_OK) {
        trii_image_files_fini(&files);
        return status;
    }
    trii_texts_trim(&files.classes);
    trii_texts_trim(&files.folders);
    trii_texts_trim(&files.names);
    fewer = trii_realloc(files.labels, (size_t)files.names.n + 1, sizeof(*fewer), "image files");
    if (fewer != NULL) {
        files.labels = fewer;
        files.n_rooms[1] = files.names.n + 1;
    }
    *files_out = files;
    return TRI_OK;
}
