/*
 * descriptor.h - the end of a file descriptor.
 */
#ifndef TRII_DESCRIPTOR_H
#define TRII_DESCRIPTOR_H

void trii_fd_close(int fd); /* negative: nothing */

#endif
