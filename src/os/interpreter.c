/*
 * interpreter.c - see interpreter.h.
 */
/* build: leaf */
#include "os/interpreter.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/descriptor.h"

/* "#!/bin/sh -e": up to the blank or the end of the line; a carriage return before that is a part
 * of the name, for the kernel too. */
static bool of_script(const char *head, char *name_out, size_t bytes)
{
    const char *name = head + 2 + strspn(head + 2, " \t");
    size_t used = 0;

    if (strncmp(head, "#!", 2) != 0)
        return false;
    for (size_t i = 0; i < strcspn(name, " \t\n") && used + 3 < bytes; i++) {
        if (name[i] == '\r')
            name_out[used++] = '\\';
        name_out[used++] = name[i] == '\r' ? 'r' : name[i];
    }
    name_out[used] = '\0';
    return true;
}

/* Of a binary of this machine's word size. */
static bool of_binary(int fd, char *name_out, size_t bytes)
{
    ElfW(Ehdr) file;
    ElfW(Phdr) part;
    ssize_t got;

    if (pread(fd, &file, sizeof(file), 0) != sizeof(file) ||
        memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_phentsize != sizeof(part))
        return false;
    for (int i = 0; i < file.e_phnum; i++) {
        if (pread(fd, &part, sizeof(part), (off_t)(file.e_phoff + (size_t)i * sizeof(part))) !=
            sizeof(part))
            return false;
        if (part.p_type != PT_INTERP)
            continue;
        got = pread(fd, name_out, part.p_filesz < bytes ? part.p_filesz : bytes - 1,
                    (off_t)part.p_offset);
        if (got <= 0)
            return false;
        name_out[got] = '\0';
        return true;
    }
    return false;
}

bool trii_interpreter_missing(const char *path, char *name_out, size_t bytes)
{
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_CLOEXEC));
    char head[256] = "";
    bool found;

    if (fd < 0)
        return false;
    found = pread(fd, head, sizeof(head) - 1, 0) > 0 &&
            (of_script(head, name_out, bytes) || of_binary(fd, name_out, bytes));
    trii_fd_close(fd);
    return found && access(name_out, F_OK) != 0;
}
