/*
 * descriptor.h - what all file descriptors of this library have in common; the buffer of
 * stdout.
 */
#ifndef TRII_DESCRIPTOR_H
#define TRII_DESCRIPTOR_H

/* Every descriptor that this library opens goes through it. A program whose standard output is
 * closed gets number 1 for the next descriptor that anybody opens, and what it prints then would
 * land in our file or connection: moves such a descriptor to 3 or above. Returns the descriptor,
 * which is closed on exec if it was moved; -1 with errno, also for a negative one. */
int trii_fd_above_standard(int fd);
void trii_fd_close(int fd); /* negative: nothing */

/* Flushes stdout at each line from now on; one that the program has made unbuffered stays so. */
void trii_stdout_by_line(void);

#endif
