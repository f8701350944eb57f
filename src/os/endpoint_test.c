/*
 * endpoint_test.c - what users write for HOST:PORT, and what they meant.
 */
#include "os/endpoint.h"

#include "testing/check.h"

static void hosts_and_ports_are_told_apart(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
    } cases[] = {
        {"node1", "node1", -1},
        {"node1:29400", "node1", 29400},
        {":9400", "", 9400},
        {"[::1]:7", "::1", 7},
        {"[fe80::1%eth0]", "fe80::1%eth0", -1},
        {"127.0.0.1:0", "127.0.0.1", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[32];
        int port = -1;

        CHECK_OK(trii_endpoint_read(cases[i].text, "--x", host, sizeof(host), &port));
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"::1", "--x ::1: an IPv6 address is written in brackets: [ADDRESS]:PORT, or [::1]"},
        {"fe80::1:29500", "is written in brackets"},
        {"[::1:1", "--x [::1:1: an IPv6 endpoint is [ADDRESS]:PORT"},
        {"[::1]1", "is [ADDRESS]:PORT"},
        {"[]:1", "is [ADDRESS]:PORT"},
        {"a:", "port of --x"},
        {"a:65536", "port of --x"},
        {"a-name-that-is-longer-than-there-is-room-for", "longer than 31 bytes"},
    };
    char host[32] = "kept";
    int port = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_FAILS(trii_endpoint_read(cases[i][0], "--x", host, sizeof(host), &port),
                    TRI_ERR_INVALID_ARG, cases[i][1]);
    assert_string_equal(host, "kept");
    assert_int_equal(port, 7);
}

static void link_local_addresses_want_an_interface(void **state)
{
    (void)state;
    assert_true(trii_host_lacks_interface("fe80::1"));
    assert_true(trii_host_lacks_interface("FEBF::1"));
    assert_false(trii_host_lacks_interface("fe80::1%eth0"));
    assert_false(trii_host_lacks_interface("fec0::1"));
    assert_false(trii_host_lacks_interface("fe80"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hosts_and_ports_are_told_apart),
    cmocka_unit_test(what_could_be_read_in_two_ways_is_refused),
    cmocka_unit_test(link_local_addresses_want_an_interface),
};

TEST_MAIN(tests)
