/*
 * image_files.h - which images a folder has, and of which classes: names alone, no file is opened.
 *
 * As torchvision's ImageFolder: each folder in it is a class, and has its images at any depth; or a
 * list of files and classes says.
 */
#ifndef TRII_IMAGE_FILES_H
#define TRII_IMAGE_FILES_H

#include "train/data/texts.h"

#define TRII_PATH_BYTES 4096

typedef struct trii_image_files_options {
    const trii_texts *classes; /* sorted; NULL: those that are found */
    const char *annotations;   /* NULL: val_annotations.txt, where it lies beside images/ */
    bool allow_empty, allow_one_class;
} trii_image_files_options;

/* {0} is an empty one. Files are in the order of their classes, folders and names, or of the list;
 * those of a folder follow each other, so that each name is kept without its folder. */
typedef struct trii_image_files {
    char *root;
    trii_texts classes; /* sorted */
    trii_texts folders; /* below the root; "" is the root */
    trii_texts names;
    int64_t *first;     /* [folders.n]: the first file of each */
    int32_t *labels;    /* [names.n] */
    int64_t n_rooms[2]; /* of first and labels */
} trii_image_files;

/* Errors: NOT_FOUND (no such folder, no class, a class without images, listed files that are
 * missing), IO, FORMAT (a line of the list), INVALID_ARG (one class only, classes that are
 * unknown), NO_MEMORY. */
tri_status trii_image_files_find(const char *dir, const trii_image_files_options *opt,
                                 trii_image_files *files_out) TRI_MUST_CHECK;
void trii_image_files_fini(trii_image_files *files);

/* Errors: UNSUPPORTED (the path is too long). */
tri_status trii_image_files_path(const trii_image_files *files, int64_t i,
                                 char path_out[TRII_PATH_BYTES]) TRI_MUST_CHECK;
/* For one line of text: control characters, and bytes that are no characters, become question
 * marks. */
void trii_path_show(const char *path, char shown_out[TRII_PATH_BYTES]);

/* --- for the files of this room that fill it ------------------------------ */

/* From now on files of this folder are added. */
tri_status trii_image_files_add_folder(trii_image_files *files, const char *folder) TRI_MUST_CHECK;
tri_status trii_image_files_add(trii_image_files *files, const char *name,
                                int32_t label) TRI_MUST_CHECK;
/* The files of one class, below the folder of its name. */
tri_status trii_image_files_walk(trii_image_files *files, int32_t label) TRI_MUST_CHECK;
/* Whether torchvision takes it for an image. */
bool trii_is_image_name(const char *name);
#define TRII_IMAGE_SUFFIXES ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"
/* The files of the list, which are named from this folder on. classes: as in the options. */
tri_status trii_image_files_listed(trii_image_files *files, const char *list, const char *folder,
                                   const trii_texts *classes) TRI_MUST_CHECK;

#endif
