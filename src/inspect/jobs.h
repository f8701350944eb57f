/*
 * jobs.h - the jobs of this user on this host: the run folders that trirun makes.
 */
#ifndef TRII_INSPECT_JOBS_H
#define TRII_INSPECT_JOBS_H

#include <trireme/status.h>

/* ${XDG_RUNTIME_DIR:-/tmp}/trireme-UID */
void trii_jobs_folder(char *path_out, size_t bytes);
/* Whether the run folder holds flight records. */
bool trii_jobs_has_records(const char *folder);
/* The names of the jobs with records below *parent_out, the newest first (they begin with the
 * time); released with trii_folder_free_names. */
int trii_jobs_list(char *parent_out, size_t bytes, char ***names_out);

#endif
