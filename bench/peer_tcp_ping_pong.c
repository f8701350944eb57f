/*
 * peer_tcp_ping_pong.c - 64 bytes to and fro over loopback, by plain sockets: what a call over tcp
 * is compared with. Prints the median round trip in microseconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

#define ROUNDS 10000

static void bind_to(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd, child;
    static double times[ROUNDS];
    char data[64] = {0};

    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        return 1;
    child = fork();
    if (child == 0) {
        bind_to(1);
        fd = accept(listener, NULL, NULL);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        while (recv(fd, data, sizeof(data), MSG_WAITALL) == sizeof(data) &&
               send(fd, data, sizeof(data), 0) == sizeof(data))
            ;
        _exit(0);
    }
    bind_to(0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&address, length) != 0)
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        double began = now_us();

        if (send(fd, data, sizeof(data), 0) != sizeof(data) ||
            recv(fd, data, sizeof(data), MSG_WAITALL) != sizeof(data))
            return 1;
        times[i] = now_us() - began;
    }
    close(fd);
    (void)waitpid(child, NULL, 0);
    printf("%.2f\n", median(times, ROUNDS));
    return 0;
}
