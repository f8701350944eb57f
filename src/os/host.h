/*
 * host.h - which machine this is: its name, and which of its boots.
 */
#ifndef TRII_HOST_H
#define TRII_HOST_H

#include <stddef.h>
#include <stdint.h>

/* "localhost" if it has none. */
void trii_host_name(char *name_out, size_t bytes);
/* Text that is the same for all processes of this boot of this machine. */
void trii_boot_id(char text_out[40]);
/* Its first half as a number; 0 = not known. */
uint64_t trii_boot_number(void);

#endif
