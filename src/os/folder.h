/*
 * folder.h - folders: made, listed, locked, removed; those that belong to one user alone.
 */
#ifndef TRII_FOLDER_H
#define TRII_FOLDER_H

#include <trireme/status.h>

/* OK also if it is there already. Its parent must exist. */
tri_status trii_folder_create(const char *path) TRI_MUST_CHECK;
/* *made_out: false if something of that name is there already. Its parent must exist. */
tri_status trii_folder_create_new(const char *path, unsigned mode, bool *made_out) TRI_MUST_CHECK;
/* An empty one; false: it is none, or not empty. */
bool trii_folder_remove_empty(const char *path);
/* When an entry was last made or removed in it, ns since 1970; 0 if that cannot be told. */
int64_t trii_folder_changed_ns(const char *path);
/* A new folder that only this user may enter: TEMPLATE ends in XXXXXX, which is replaced by what
 * makes it new. */
tri_status trii_folder_create_unique(char *template_inout) TRI_MUST_CHECK;
/* Makes what is missing of the folders above `path`. */
tri_status trii_folder_create_above(const char *path) TRI_MUST_CHECK;
/* Names made or renamed in it are on disk afterwards. */
tri_status trii_folder_sync(const char *path) TRI_MUST_CHECK;

/* Makes it with mode 0700; one that exists must be a real folder of this user that nobody else may
 * write. Errors: IO (says what is wrong with it). */
tri_status trii_folder_create_private(const char *path) TRI_MUST_CHECK;
/* Whether it is there as trii_folder_create_private makes it. */
bool trii_folder_is_private(const char *path);
/* Whether we may make something in it. ours: it must also belong to this user. */
bool trii_folder_is_writable(const char *path, bool ours);
/* The first private folder of this user below `parent` whose name begins so. False: there is no
 * such folder. */
bool trii_folder_find_private(const char *parent, const char *prefix, char *path_out, size_t bytes);
/* With what is in it; a missing one is no failure. */
tri_status trii_folder_remove(const char *path) TRI_MUST_CHECK;
/* Names of the entries in order, at most max; release with trii_folder_free_names. A missing
 * folder has none; one that cannot be read to its end is IO. */
tri_status trii_folder_list(const char *path, int max, char ***names_out,
                            int *n_out) TRI_MUST_CHECK;
void trii_folder_free_names(char **names, int n);
/* A mark that ends with the last descriptor on it, so with its processes. STATE: marked by
 * somebody else; UNSUPPORTED: the file system has no locks. Close it with trii_fd_close; children
 * that were forked meanwhile keep it. */
tri_status trii_folder_lock(const char *path, int *fd_out) TRI_MUST_CHECK;
/* Ends the mark for forked children, too. -1 allowed. */
void trii_folder_unlock(int fd);

#endif
