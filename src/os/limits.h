/*
 * limits.h - how many descriptors this process may have, and how much address space. The soft limit
 * is 1,024 on most systems, kept low for programs that call select(); the hard one is what the
 * administrator allows.
 */
#ifndef TRII_LIMITS_H
#define TRII_LIMITS_H

#include <trireme/status.h>

/* The soft limit now. */
int trii_descriptor_limit(void);
/* Raises the soft limit as far as the hard one allows, at most to 2^20, and returns it. Processes
 * that trii_process_start begins get back what we were started with. */
int trii_descriptor_limit_raise(void);
/* Makes sure that `n` more descriptors than now may be opened, raising the soft limit if it must.
 * Errors: STATE, which names `what` (as in "a group of 900 ranks"), the limit and the remedy. */
tri_status trii_descriptors_want(int n, const char *what) TRI_MUST_CHECK;
/* How many clients a server of this process may have: so many quarters of the limit, which is
 * raised, less where `keep` descriptors for other things would not be left, but not below
 * `least`. */
int trii_descriptors_share(int quarters, int keep, int least);
/* What to say of a system call that failed with errno `error`: the remedy where the descriptors of
 * this process have run out, or "". */
const char *trii_descriptors_hint(int error);
/* Bytes of address space that this process may have (ulimit -v); SIZE_MAX = any number. */
size_t trii_address_space_limit(void);
/* What to say of a mapping that failed with errno `error`: the limit, if there is one, or "".
 * text_out: where it is written, 40 bytes are enough. */
const char *trii_address_space_hint(int error, char text_out[40]);
/* In a child before it becomes another program; a system call, nothing else. */
void trii_descriptor_limit_restore(void);

#endif
