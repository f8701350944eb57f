/*
 * image_list.c - images whose classes are in a list: lines of FILE TAB CLASS, and whatever follows
 * after another tab, as val_annotations.txt of tiny-imagenet.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/data/image_files.h"
#include "os/file.h"

#define MOST_BYTES ((size_t)1 << 30)
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* which programs of Windows begin a text with */

typedef struct list {
    const char *path;
    char *text; /* tabs and ends of lines become zeros as lines are read */
    char *next; /* the line that comes next; NULL: none */
    int64_t number;
} list;

/* One line that is not empty: *file_out and *class_out, in the text. END: no more. */
static tri_status read_line(list *l, const char **file_out, const char **class_out)
{
    char *line, *end, *tab, *second;
    char shown[TRII_PATH_BYTES];

    do {
        line = l->next;
        if (line == NULL || *line == '\0')
            return TRI_END;
        end = strchr(line, '\n');
        l->next = end != NULL ? end + 1 : NULL;
        end = end != NULL ? end : line + strlen(line);
        *end = '\0';
        if (end > line && end[-1] == '\r')
            end[-1] = '\0';
        l->number++;
    } while (*line == '\0');
    tab = strchr(line, '\t');
    if (tab == NULL || tab == line || tab[1] == '\0' || tab[1] == '\t') {
        trii_path_show(l->path, shown);
        return TRII_FAIL(TRI_ERR_FORMAT, "%s, line %" PRId64 ": is not a file, a tab and its class",
                         shown, l->number);
    }
    *tab = '\0';
    second = strchr(tab + 1, '\t');
    if (second != NULL)
        *second = '\0';
    *file_out = line;
    *class_out = tab + 1;
    return TRI_OK;
}

/* Sorted, each once. */
static tri_status distinct(trii_texts *all, trii_texts *classes)
{
    tri_status status = TRI_OK;

    trii_texts_sort(all, 0, all->n);
    for (int64_t i = 0; i < all->n && status == TRI_OK; i++) {
        if (i == 0 || strcmp(trii_texts_get(all, i - 1), trii_texts_get(all, i)) != 0)
            status = trii_texts_add(classes, trii_texts_get(all, i));
    }
    return status;
}

/* The classes of the list, in which each file has one. */
static tri_status find_classes(list l, trii_texts *classes)
{
    trii_texts all = {0};
    tri_status status;

    l.text = trii_strdup(l.text, "list of images");
    l.next = l.text;
    status = l.text != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    while (status == TRI_OK) {
        const char *file, *class;

        status = read_line(&l, &file, &class);
        if (status == TRI_OK)
            status = trii_texts_add(&all, class);
    }
    if (status == TRI_END)
        status = distinct(&all, classes);
    trii_texts_fini(&all);
    trii_free(l.text);
    return status;
}

static tri_status unknown_class(const list *l, const char *class, int64_t n_classes)
{
    char shown[TRII_PATH_BYTES], name[TRII_PATH_BYTES];

    trii_path_show(l->path, shown);
    trii_path_show(class, name);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s, line %" PRId64 ": class %s is not among the %" PRId64
                     " of the data set `classes`",
                     shown, l->number, name, n_classes);
}

static tri_status add_files(trii_image_files *files, list *l, const trii_texts *known)
{
    char path[TRII_PATH_BYTES], first_missing[TRII_PATH_BYTES];
    int64_t n_missing = 0;
    tri_status status = TRI_OK;

    for (;;) {
        const char *file, *class;
        int64_t label;

        status = read_line(l, &file, &class);
        if (status != TRI_OK)
            break;
        label = trii_texts_find(known, class);
        if (label < 0)
            return unknown_class(l, class, known->n);
        status = trii_image_files_add(files, file, (int32_t)label);
        if (status == TRI_OK)
            status = trii_image_files_path(files, files->names.n - 1, path);
        if (status != TRI_OK)
            return status;
        if (!trii_path_is_file(path) && n_missing++ == 0)
            trii_path_show(path, first_missing);
    }
    if (status != TRI_END)
        return status;
    if (n_missing > 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND,
                         "%" PRId64 " of the %" PRId64 " files of the list are missing, the first "
                         "is %s",
                         n_missing, files->names.n, first_missing);
    return TRI_OK;
}

/* A file that two lines have would be two samples, maybe of two classes. */
static tri_status check_distinct(const trii_image_files *files, const char *path)
{
    trii_texts sorted = {0};
    tri_status status = TRI_OK;
    char shown[TRII_PATH_BYTES], name[TRII_PATH_BYTES];

    for (int64_t i = 0; i < files->names.n && status == TRI_OK; i++)
        status = trii_texts_add(&sorted, trii_texts_get(&files->names, i));
    if (status == TRI_OK)
        trii_texts_sort(&sorted, 0, sorted.n);
    for (int64_t i = 1; i < sorted.n && status == TRI_OK; i++) {
        if (strcmp(trii_texts_get(&sorted, i - 1), trii_texts_get(&sorted, i)) != 0)
            continue;
        trii_path_show(path, shown);
        trii_path_show(trii_texts_get(&sorted, i), name);
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s names the file %s twice", shown, name);
    }
    trii_texts_fini(&sorted);
    return status;
}

tri_status trii_image_files_listed(trii_image_files *files, const char *path, const char *folder,
                                   const trii_texts *classes)
{
    list l = {.path = path};
    char shown[TRII_PATH_BYTES];
    size_t room = 0, bytes = 0;
    void *text = NULL;
    tri_status status = trii_file_load(path, MOST_BYTES, &text, &room, &bytes);

    if (status == TRI_OK) {
        l.text = text;
        l.text[bytes] = '\0'; /* there is room for one more */
        trii_path_show(path, shown);
        status = strlen(l.text) == bytes
                     ? TRI_OK
                     : TRII_FAIL(TRI_ERR_FORMAT, "%s: has bytes of 0, which no text has", shown);
        if (strncmp(l.text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
            l.text += strlen(BYTE_ORDER_MARK);
        l.next = l.text;
    }
    if (status == TRI_OK && classes == NULL)
        status = find_classes(l, &files->classes);
    for (int64_t k = 0; status == TRI_OK && classes != NULL && k < classes->n; k++)
        status = trii_texts_add(&files->classes, trii_texts_get(classes, k));
    if (status == TRI_OK)
        status = trii_image_files_add_folder(files, folder);
    if (status == TRI_OK)
        status = add_files(files, &l, &files->classes);
    if (status == TRI_OK && files->names.n == 0) {
        trii_path_show(path, shown);
        status = TRII_FAIL(TRI_ERR_NOT_FOUND, "%s names no file", shown);
    }
    if (status == TRI_OK)
        status = check_distinct(files, path);
    trii_free(text);
    return status;
}
