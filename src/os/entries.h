/*
 * entries.h - what lies in a folder, for walks over many files: nothing is allocated for an entry.
 */
#ifndef TRII_ENTRIES_H
#define TRII_ENTRIES_H

#include <trireme/status.h>

/* The same for two names of one folder. */
typedef struct trii_folder_id {
    uint64_t device, inode;
} trii_folder_id;

/* Returns OK, or an error that ends the visit. */
typedef tri_status (*trii_entry_visit)(void *arg, const char *name, bool is_folder);

/* Calls `visit` for each entry but . and .., in no order. Links are followed; one that leads
 * nowhere is no folder. *id_out is set before. Errors: NOT_FOUND, IO (each names the folder and the
 * reason), that of visit. */
tri_status trii_folder_visit(const char *path, trii_entry_visit visit, void *arg,
                             trii_folder_id *id_out) TRI_MUST_CHECK;

#endif
