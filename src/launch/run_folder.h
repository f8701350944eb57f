/*
 * run_folder.h - the folder of one job: ${XDG_RUNTIME_DIR:-/tmp}/trireme-UID/JOB/, 0700
 * (launch/inspect/jobs.h: where else, if that cannot be).
 *
 * JOB is the UTC time of the start and the agent's pid. The agent and its guard hold a lock on the
 * folder while they live; a folder without one belongs to a job that is over and failed. Of those
 * the last five stay. Where the file system has no locks jobs run all the same: then `trireme ps`
 * cannot tell which are over, and their folders stay.
 */
#ifndef TRII_LAUNCH_RUN_FOLDER_H
#define TRII_LAUNCH_RUN_FOLDER_H

#include "launch/inspect/jobs.h"

#define TRII_RUN_FOLDER_BYTES 512
#define TRII_RUN_FOLDERS_KEPT 5

typedef struct trii_run_folder {
    char path[TRII_RUN_FOLDER_BYTES]; /* "": not made */
    char parent[TRII_JOBS_FOLDER_BYTES];
    int lock_fd; /* -1: none, also where the file system has no locks */
} trii_run_folder;

tri_status trii_run_folder_create(trii_run_folder *folder) TRI_MUST_CHECK;
/* The job succeeded, or was stopped on purpose: nothing stays. */
void trii_run_folder_remove(trii_run_folder *folder);
/* A new attempt begins: takes away the notes and flight records of the last. */
void trii_run_folder_begin_attempt(const trii_run_folder *folder);
/* Notes the first failure, for `trireme why`: the file `cause`, "RANK REASON\n". */
void trii_run_folder_note(const trii_run_folder *folder, int rank, const char *reason);
/* Notes when the job ended by trirun, by the monotonic clock, and why ("trirun ended the job: it
 * received SIGINT"): the file `stopped`, "NS REASON\n", so that `trireme why` can tell who waited
 * for whom then. The first note counts. */
void trii_run_folder_note_stop(const trii_run_folder *folder, int64_t at_ns, const char *reason);
/* The job failed: the folder stays, and of more than five such folders the oldest is removed. */
void trii_run_folder_keep(trii_run_folder *folder);

#endif
