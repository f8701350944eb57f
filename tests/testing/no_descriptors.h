/*
 * no_descriptors.h - a process that may open no more descriptors while somebody calls. Tests only.
 */
#ifndef TEST_NO_DESCRIPTORS_H
#define TEST_NO_DESCRIPTORS_H

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "testing/check.h"

static struct rlimit descriptors_before;

/* Nobody of this process opens another descriptor until descriptors_allow; the one that is returned
 * has called that port of 127.0.0.1, where the kernel has taken the call and nobody else can. */
static inline int descriptors_end_and_call(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = open("/dev/null", O_RDONLY);
    struct rlimit limit;

    assert_true(fd >= 0 && next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &descriptors_before), 0);
    limit = descriptors_before;
    limit.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static inline void descriptors_allow(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &descriptors_before), 0);
}

#endif
