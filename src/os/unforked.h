/*
 * unforked.h - descriptors that a forked child does not get.
 *
 * The end of a connection tells a peer that its process has ended, unless a copy of the descriptor
 * lives on in a child, which closing on exec does not help against. In a child of fork() the
 * numbers stay taken, so that what it does with them harms nothing that it opens itself, but they
 * are nothing any more: calls with them fail.
 */
#ifndef TRII_UNFORKED_H
#define TRII_UNFORKED_H

/* In its owner's memory, zero before the first use; the fields are this module's. */
typedef struct trii_unforked {
    int fd;
    struct trii_unforked *prev, *next;
} trii_unforked;

/* From now on, until drop, which comes before the descriptor is closed and may come twice. Any
 * thread. */
void trii_unforked_hold(trii_unforked *own, int fd);
void trii_unforked_drop(trii_unforked *own);

#endif
