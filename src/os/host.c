/*
 * host.c - see host.h.
 */
/* build: leaf */
#include "os/host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/read_whole.h"
#include "os/thread.h"

void trii_host_name(char *name_out, size_t bytes)
{
    if (gethostname(name_out, bytes) != 0 || name_out[0] == '\0')
        snprintf(name_out, bytes, "localhost");
    name_out[bytes - 1] = '\0';
}

static char boot_id[40];

static void read_boot_id(void)
{
    (void)trii_read_whole("/proc/sys/kernel/random/boot_id", boot_id, 36 + 1);
}

void trii_boot_id(char text_out[40])
{
    static trii_once once = TRII_ONCE_INITIALIZER;

    trii_once_run(&once, read_boot_id);
    memcpy(text_out, boot_id, sizeof(boot_id));
}

uint64_t trii_boot_number(void)
{
    char text[40], digits[17] = "";
    size_t n = 0;

    trii_boot_id(text);
    for (const char *c = text; *c != '\0' && n < 16; c++) {
        if (*c != '-')
            digits[n++] = *c;
    }
    return strtoull(digits, NULL, 16);
}
