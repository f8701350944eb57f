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
/* The names of the jobs with records below *parent_out, the newest first (they begin with the
 * time); released with trii_folder_free_names. parent_out: TRII_JOBS_FOLDER_BYTES. */
int trii_jobs_list(char *parent_out, char ***names_out);

#endif
