/*
 * localhost_test.c - "localhost" is this host, and no name service is asked for it: containers come
 * without /etc/hosts, and networks without a service.
 */
/* ctest: program=own */
#include <dlfcn.h>
#include <netdb.h>

#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"

typedef int (*resolver)(const char *node, const char *service, const struct addrinfo *hints,
                        struct addrinfo **res);

static int n_names;

/* In place of the C library's. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **res)
{
    union {
        void *object;
        resolver call;
    } real = {.object = dlsym(RTLD_NEXT, "getaddrinfo")};

    if (node != NULL && strspn(node, "0123456789.:abcdef") < strlen(node)) {
        n_names++;
        return EAI_AGAIN;
    }
    return real.call(node, service, hints, res);
}

static void localhost_needs_no_name_service(void **state)
{
    static const char *const spellings[] = {"localhost", "LOCALHOST"};
    int listener = -1, port = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        int fd = -1;

        CHECK_OK(trii_socket_listen(spellings[i], 0, &listener, &port));
        CHECK_OK(trii_socket_connect(spellings[i], port, trii_deadline_ms(5000), false, &fd));
        assert_true(trii_socket_is_local(fd));
        trii_socket_close(fd);
        trii_socket_close(listener);
    }
    assert_int_equal(n_names, 0);
    /* other names are asked for */
    CHECK_FAILS(trii_socket_listen("local.host", 0, &listener, &port), TRI_ERR_NOT_FOUND,
                "local.host");
    assert_int_equal(n_names, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(localhost_needs_no_name_service),
};

TEST_MAIN(tests)
