/*
 * peer_tcp_stream.c - what one plain TCP connection moves in each direction at once: the measure of
 * an all_reduce between two hosts, which sends and receives as many bytes as its buffer has.
 *
 *   peer_tcp_stream BYTES...     as rank 0 or 1 of RANK, MASTER_ADDR, MASTER_PORT
 *
 * Rank 0 prints "SIZE<TAB>microseconds", the median of its rounds, for each size. A round begins
 * when a byte has gone to and fro, as a call begins after a barrier. One thread: what the sockets
 * take and have, in turn.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "timing.h"

static void check(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(1);
}

static int meet(int rank, const char *host, const char *port)
{
    struct addrinfo *to, hints = {.ai_socktype = SOCK_STREAM};
    int fd, one = 1;

    check(getaddrinfo(host, port, &hints, &to) == 0, "getaddrinfo");
    fd = socket(to->ai_family, SOCK_STREAM, 0);
    check(fd >= 0, "socket");
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); /* listening: its connections too */
    if (rank == 0) {
        int listener = fd;

        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        check(bind(listener, to->ai_addr, to->ai_addrlen) == 0, "bind");
        check(listen(listener, 1) == 0, "listen");
        fd = accept(listener, NULL, NULL);
        check(fd >= 0, "accept");
        close(listener);
    } else {
        int tries = 0;

        while (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
            check(++tries < 200, "connect");
            close(fd);
            poll(NULL, 0, 50); /* the other one starts as we do */
            fd = socket(to->ai_family, SOCK_STREAM, 0);
            setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
        }
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    freeaddrinfo(to);
    return fd;
}

static void exchange(int fd, const char *out, char *in, size_t bytes)
{
    size_t sent = 0, got = 0;

    while (sent < bytes || got < bytes) {
        struct pollfd p = {fd, (short)((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0)),
                           0};
        ssize_t n;

        check(poll(&p, 1, 60000) > 0, "poll");
        if (p.revents & POLLOUT) {
            n = send(fd, out + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            check(n > 0 || errno == EAGAIN, "send");
            sent += n > 0 ? (size_t)n : 0;
        }
        if (p.revents & ~POLLOUT) {
            n = recv(fd, in + got, bytes - got, MSG_DONTWAIT);
            check(n > 0 || (n < 0 && errno == EAGAIN), "recv");
            got += n > 0 ? (size_t)n : 0;
        }
    }
}

int main(int argc, char **argv)
{
    enum { ROUNDS = 7 };
    const char *text = getenv("RANK"), *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    int rank = text != NULL ? (int)strtol(text, NULL, 10) : 0, fd = meet(rank, host, port);

    for (int i = 1; i < argc; i++) {
        size_t bytes = (size_t)strtoull(argv[i], NULL, 10);
        char *out = malloc(bytes), *in = malloc(bytes), token[1] = {0};
        double samples[ROUNDS];

        check(out != NULL && in != NULL, "malloc");
        memset(out, i, bytes);
        memset(in, 0, bytes);
        for (int round = -2; round < ROUNDS; round++) {
            double start;

            exchange(fd, token, in, 1);
            start = now_us();
            exchange(fd, out, in, bytes);
            if (round >= 0)
                samples[round] = now_us() - start;
        }
        if (rank == 0)
            printf("%zu\t%.1f\n", bytes, median(samples, ROUNDS));
        free(out);
        free(in);
    }
    close(fd);
    return 0;
}
