/*
 * jobs.h - the jobs of this user on this host: the run folders that trirun makes.
 */
#ifndef TRII_INSPECT_JOBS_H
#define TRII_INSPECT_JOBS_H

#include <trireme/status.h>

#define TRII_JOBS_FOLDER_BYTES 256

/* Where run folders are: trireme-UID in XDG_RUNTIME_DIR, if that is a folder of this user, else in
 * /tmp or /dev/shm; where others have taken that name in all of them, a trireme-UID-XXXXXX of this
 * user in /tmp. It may not be there yet. path_out: TRII_JOBS_FOLDER_BYTES. */
void trii_jobs_folder(char *path_out);
/* The same, made if it is missing. Errors: IO. */
tri_status trii_jobs_folder_create(char *path_out) TRI_MUST_CHECK;
/* Whether the run folder holds flight records. */
bool trii_jobs_has_records(const char *folder);
/* Whether the job of the run folder runs: trirun and its guard hold a lock on it. True also where
 * the file system has no locks. */
bool trii_jobs_is_live(const char *folder);
/* The names of all run folders below `parent`, the youngest first; released with
 * trii_folder_free_names. A folder is as old as what was last made in it; one that claims to be of
 * the future, since the clock has been set back, counts as older than all others. */
int trii_jobs_by_age(const char *parent, char ***names_out);
/* The same, of the jobs with records below *parent_out. parent_out: TRII_JOBS_FOLDER_BYTES. */
int trii_jobs_list(char *parent_out, char ***names_out);

#endif
