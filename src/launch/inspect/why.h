/*
 * why.h - what is known about a job that hangs or failed: the flight records of its ranks
 * (why_read.c) and what they say about who waits for whom (why_find.c, why_groups.c). Shown by
 * `trireme why`, and by trirun when a job hangs.
 */
#ifndef TRII_INSPECT_WHY_H
#define TRII_INSPECT_WHY_H

#include <trireme/status.h>

#include "comm/group/watch/flight_recorder.h"
#include "os/liveness.h"

#define TRII_WHY_TEXT 512

typedef enum trii_why_state {
    TRII_WHY_ABSENT = 0, /* no record here: another host, or it never joined */
    TRII_WHY_RUNNING,
    TRII_WHY_STOPPED,
    TRII_WHY_DEAD, /* its process is gone, and it had not left */
    TRII_WHY_LEFT  /* it left the job in order */
} trii_why_state;

typedef struct trii_why_rank {
    trii_why_state state;
    int pid;               /* as seen from here, else as the rank wrote it */
    bool same_boot;        /* its clock is this one: times since can be told */
    trii_record_file *log; /* a copy, checked; NULL if absent */
} trii_why_rank;

typedef struct trii_why_finding {
    int weight;       /* the heaviest first */
    const char *kind; /* "dead", "stopped", "mismatch", "missing", ... (static) */
    char group[32];   /* name, or "" */
    char text[TRII_WHY_TEXT];
    double seconds; /* of the longest wait that it tells of; 0 or less: none, or not known */
    int *waiting;   /* world ranks, [n_waiting] */
    int *for_whom;
    int n_waiting, n_for_whom;
} trii_why_finding;

typedef struct trii_why_job {
    char folder[512];
    int64_t now_ns;
    int cause;             /* the rank whose failure trirun saw first; -1 = it noted none */
    char cause_words[120]; /* "was killed by SIGSEGV" */
    /* When the job ended by trirun, by the monotonic clock, and why; 0: it did not. The logs are
     * then wound back to that moment. */
    int64_t stopped_ns;
    char stopped_words[120]; /* "trirun ended the job: it received SIGINT" */
    trii_why_rank *ranks;    /* [size], by rank in the job */
    int size;
    trii_why_finding *findings;
    int n_findings, room;
} trii_why_job;

/* Reads RUN_FOLDER/rank-*.rec; job_out is released with trii_why_free, also after a failure.
 * Errors: NOT_FOUND (no folder, no records), FORMAT, NO_MEMORY. */
tri_status trii_why_read(const char *folder, trii_why_job *job_out);
void trii_why_free(trii_why_job *job);
/* Fills job->findings, heaviest first. */
tri_status trii_why_find(trii_why_job *job);
/* The rank that aborted the group, by the first "rank N aborted the group" of a line: its number in
 * that group; -1 = the line says nothing of it. */
int trii_why_aborter(const char *text);
/* The rank in the job that aborted the group of this one, by its record; -1: its failure was
 * something else, or its own, or nothing tells which rank it was. */
int trii_why_named(const trii_why_job *job, int rank);
/* Something is wrong by the findings: a failure, or a rank that has waited for long. */
bool trii_why_in_trouble(const trii_why_job *job);

/* The rank that a file of that name is the record of, also where a program beside another one has
 * it; -1: it is no record. */
int trii_why_rank_of(const char *name);
/* The group of that number (of a record, of a failure), or NULL: 0, or no longer in the table. */
const trii_record_group *trii_why_group_of(const trii_record_file *log, uint32_t number);
/* The call as it was made: what trii_collective_describe says of it, into text. */
void trii_why_describe(const trii_record_file *log, const trii_record *record, char *text,
                       size_t size);
trii_collective trii_why_call_of(const trii_record_file *log, const trii_record *record);
/* The newest record; NULL if there is none. running: among those that have not ended. */
const trii_record *trii_why_last(const trii_record_file *log, bool running);
/* Seconds since a moment of the rank's clock, as when a record began; negative if that cannot be
 * told. */
double trii_why_seconds(const trii_why_job *job, const trii_why_rank *rank, int64_t began_ns);
/* Whether the rank has been in a group: one that still waits in tri_init for the others has not. */
bool trii_why_has_joined(const trii_record_file *log);
/* The calls that the rank has begun. */
uint64_t trii_why_calls(const trii_record_file *log);

#endif
