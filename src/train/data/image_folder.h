/*
 * image_folder.h - what other data sets know of a folder of images: that its files can be looked at
 * before they are decoded.
 */
#ifndef TRII_IMAGE_FOLDER_H
#define TRII_IMAGE_FOLDER_H

#include "train/data/image_files.h"
#include "train/data/image_view.h"

/* The folder whose sample it is, with its index there; NULL: the sample is made in another way. */
tri_dataset *trii_image_folder_below(tri_dataset *dataset, int64_t *index_inout);

/* The data set becomes a part of another one that has only these of its samples: if it is made of a
 * folder, whole files are taken of these alone in place of broken ones. */
void trii_image_folder_narrow(tri_dataset *dataset, int64_t first, int64_t count);

/* Decodes of a view what it needs, and uses it. */
typedef tri_status (*trii_look)(void *arg, trii_view *view, trii_view_work *work);
/* Calls `look` for the image of a sample; a file that is broken is an error that names it or, with
 * skip_broken, the next whole one is taken, for which `look` is called again. Any thread. */
tri_status trii_image_folder_look(tri_dataset *folder, int64_t index, trii_look look, void *arg,
                                  int64_t *label_out) TRI_MUST_CHECK;

#endif
