/*
 * cross_memory.c - see cross_memory.h.
 */
/* build: leaf */
#include "os/cross_memory.h"

#include <errno.h>
#include <sys/uio.h>

bool trii_cross_memory_read(int pid, uint64_t address, void *to, size_t bytes, int *error_out)
{
    size_t done = 0;

    *error_out = 0;
    while (done < bytes) { /* the system stops at pages that are not there, and after 2 GiB */
        struct iovec here = {(char *)to + done, bytes - done};
        struct iovec there = {(void *)(uintptr_t)(address + done), bytes - done};
        ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            *error_out = n < 0 ? errno : EFAULT;
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

bool trii_cross_memory_is_gone(int error)
{
    return error == ESRCH;
}

const char *trii_cross_memory_why(int error)
{
    switch (error) {
    case EPERM:
    case EACCES:
        return "the system does not allow it any more (a process called prctl(PR_SET_DUMPABLE) or "
               "changed its user, or kernel.yama.ptrace_scope was raised)";
    case ENOSYS:
        return "the system does not have it any more (a seccomp filter was put in)";
    case ENOMEM:
        return "the system has no memory for it";
    default:
        return "it was freed while in use, or is a device's";
    }
}
