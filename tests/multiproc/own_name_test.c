/*
 * own_name_test.c - a host whose own name means a loopback address to itself: Debian and Ubuntu
 * write "127.0.1.1 NAME" into /etc/hosts, and other hosts know another address by that name.
 */
/* ctest: program=own */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>

#include <trireme/store.h>

#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"

static struct addrinfo answer;
static struct sockaddr_in address;

/* In place of the C library's: every name means 127.0.1.1. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **res)
{
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)strtol(service, NULL, 10));
    if (node == NULL || inet_pton(AF_INET, node, &address.sin_addr) != 1)
        inet_pton(AF_INET, "127.0.1.1", &address.sin_addr);
    answer = (struct addrinfo){.ai_family = AF_INET,
                               .ai_socktype = hints->ai_socktype,
                               .ai_addr = (struct sockaddr *)&address,
                               .ai_addrlen = sizeof(address)};
    *res = &answer;
    return 0;
}

void freeaddrinfo(struct addrinfo *res)
{
    (void)res;
}

/* The others come to another address of the host: here 127.0.0.1 stands for it. */
static void a_store_at_the_hosts_own_name_is_served_on_all_addresses(void **state)
{
    const tri_store_tcp_options serve = {.serve = true, .timeout_ms = 5000};
    int fd = -1;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_tcp("node1", 0, &serve, &store));
    CHECK_OK(trii_socket_connect("127.0.0.1", tri_store_port(store), trii_deadline_ms(2000), false,
                                 &fd));
    trii_socket_close(fd);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_store_at_the_hosts_own_name_is_served_on_all_addresses),
};

TEST_MAIN(tests)
