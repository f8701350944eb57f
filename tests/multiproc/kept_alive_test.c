/*
 * kept_alive_test.c - what the store asks of the system for its connections.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include <trireme/store.h>

#include "testing/check.h"

/* Both ends: a host that vanishes says nothing. */
static void connections_are_kept_alive(void **state)
{
    tri_store *store;
    const tri_store_tcp_options options = {.serve = true};
    int seen = 0;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &options, &store));
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof(peer);
        int is_on = 0;

        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0 || peer.ss_family != AF_INET)
            continue;
        bytes = sizeof(is_on);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on, &bytes), 0);
        assert_true(is_on);
        seen++;
    }
    assert_int_equal(seen, 2);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(connections_are_kept_alive),
};

TEST_MAIN(tests)
