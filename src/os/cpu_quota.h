/*
 * cpu_quota.h - how much processor time the control groups that we are in allow. A container with a
 * limit of two cores sees all cores of its host; a program that runs on more than two for long is
 * stopped by the kernel until the next period, 100 ms as a rule.
 */
#ifndef TRII_CPU_QUOTA_H
#define TRII_CPU_QUOTA_H

#include <stdint.h>

typedef struct trii_cpu_quota {
    int cores;      /* whole ones, at least 1; 0 = no limit, or not known */
    uint64_t group; /* a number for the group with that limit, the same in all processes in it */
} trii_cpu_quota;

/* Of the tightest group. root: "" for the system's own files; a test has some below another
 * folder. */
void trii_cpu_quota_look(const char *root, trii_cpu_quota *quota_out);
/* Of this process, as it was at the first call: files of control groups take long to open. */
trii_cpu_quota trii_cpu_quota_own(void);
/* `cores`, or what the quotas of n processes that share them leave of them: those of different
 * groups add up, and one without a quota can use them all. */
int trii_cpu_quota_share(int cores, const trii_cpu_quota *quotas, int n);
/* `cores`, or what this process's quota leaves of them. */
int trii_cpu_quota_cap(int cores);

#endif
