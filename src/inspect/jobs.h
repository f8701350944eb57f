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
/* The newest job with records; false if there is none. */
bool trii_jobs_newest(char *path_out, size_t bytes);

#endif
