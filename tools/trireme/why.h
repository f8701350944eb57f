/*
 * why.h - what `trireme why` knows about a job: the flight records of its ranks (why_read.c) and
 * what they say about who waits for whom (why_find.c). why.c prints it.
 */
#ifndef TRIREME_WHY_H
#define TRIREME_WHY_H

#include <trireme/status.h>

#include "group/flight_recorder.h"
#include "os/liveness.h"

#define WHY_TEXT 512

typedef enum why_state {
    WHY_ABSENT = 0, /* no record here: another host, or it never joined */
    WHY_RUNNING,
    WHY_STOPPED,
    WHY_DEAD, /* its process is gone, and it had not left */
    WHY_LEFT  /* it left the job in order */
} why_state;

typedef struct why_rank {
    why_state state;
    int pid;               /* as seen from here, else as the rank wrote it */
    bool same_boot;        /* its clock is ours: times since can be told */
    trii_record_file *log; /* a copy, checked; NULL if absent */
} why_rank;

typedef struct why_finding {
    int weight;       /* the heaviest first */
    const char *kind; /* "dead", "stopped", "mismatch", "missing", ... (static) */
    char group[32];   /* name, or "" */
    char text[WHY_TEXT];
    int *waiting; /* world ranks, [n_waiting] */
    int *for_whom;
    int n_waiting, n_for_whom;
} why_finding;

typedef struct why_job {
    char folder[512];
    int64_t now_ns;
    int cause;            /* the rank whose failure trirun saw first; -1 = it noted none */
    char cause_words[96]; /* "was killed by SIGSEGV" */
    why_rank *ranks;      /* [size], by rank in the job */
    int size;
    why_finding *findings;
    int n_findings, room;
} why_job;

/* Reads RUN_FOLDER/rank-*.rec; job_out is released with why_free, also after a failure.
 * Errors: NOT_FOUND (no folder, no records), FORMAT, NO_MEMORY. */
tri_status why_read(const char *folder, why_job *job_out);
void why_free(why_job *job);
/* Fills job->findings, heaviest first. */
tri_status why_find(why_job *job);

/* The group of a record, or NULL if it is no longer in the table. */
const trii_record_group *why_group_of(const trii_record_file *log, const trii_record *record);
/* The call as it was made: what trii_collective_describe says of it, into text. */
void why_describe(const trii_record_file *log, const trii_record *record, char *text, size_t size);
trii_collective why_call_of(const trii_record_file *log, const trii_record *record);
/* The newest record; NULL if there is none. running: among those that have not ended. */
const trii_record *why_last(const trii_record_file *log, bool running);
/* Seconds since a record began; negative if that cannot be told. */
double why_seconds(const why_job *job, const why_rank *rank, const trii_record *record);

#endif
