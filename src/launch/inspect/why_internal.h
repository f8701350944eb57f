/*
 * why_internal.h - what why_find.c and why_groups.c share: how findings are made and worded.
 */
#ifndef TRII_INSPECT_WHY_INTERNAL_H
#define TRII_INSPECT_WHY_INTERNAL_H

#include "launch/inspect/why.h"

/* The heaviest finding is the likeliest cause. */
enum {
    WEIGHT_CAUSE = 100,
    WEIGHT_NAMED_DEAD = 90,
    WEIGHT_DEAD = 80,
    WEIGHT_STOPPED = 70,
    WEIGHT_MISMATCH = 60,
    WEIGHT_FORMING = 50,
    WEIGHT_MISSING = 40,
    WEIGHT_PAIR = 30,
    WEIGHT_FAILURE = 20,
    WEIGHT_UNTOLD = 15,
    WEIGHT_INSIDE = 10,
    WEIGHT_ALL_DEAD = 5
};

/* --- why_find.c ----------------------------------------------------------- */

void trii_why_append(char *text, size_t size, const char *format, ...) TRII_PRINTF(3, 4);
void trii_why_append_ranks(char *text, size_t size, const int *ranks, int n);
/* NULL: no memory. group: "" if NULL. */
trii_why_finding *trii_why_add(trii_why_job *job, int weight, const char *kind, const char *group);
/* Copies both. */
void trii_why_set_ranks(trii_why_finding *f, const int *waiting, int n_waiting, const int *whom,
                        int n_whom);
/* No rank that has a record here runs any more. */
bool trii_why_is_over(const trii_why_job *job);

/* --- why_groups.c --------------------------------------------------------- */

/* In the groups of rank r that no lower rank is in. */
tri_status trii_why_find_in_groups(trii_why_job *job, int r);
/* What the record of the rank has no room for: calls of groups that it does not list, and calls
 * that it has lost. */
tri_status trii_why_find_untold(trii_why_job *job, int r);

/* --- why_calls.c ---------------------------------------------------------- */

/* Calls between workers that are waited for. */
tri_status trii_why_find_calls(trii_why_job *job);
/* " in its own code, as worker .." of a process that is one; false: it is not. */
bool trii_why_append_worker(const trii_why_job *job, int pid, char *text, size_t size);

#endif
