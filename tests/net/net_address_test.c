/*
 * net_address_test.c - addresses that do not lead to who serves the store, and some that do
 * although no interface has them: what rank 0 says, as a rank of its own and as an agent; and two
 * of them on different hosts. Where a system gives no namespaces, as far as one host goes.
 */
/* ctest: labels=quick timeout=60 */
#include <poll.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "testing/host_agents.h"

static const char *own_path; /* of this program */

/* --- what this program does ----------------------------------------------- */

static int rank_worker(const char *timeout_ms)
{
    const tri_init_options options = {.group = {.timeout_ms = strtol(timeout_ms, NULL, 10)}};

    TRI_TRY(tri_init(&options));
    printf("rank %d of %d is here\n", tri_rank(), tri_world_size());
    tri_finalize();
    return 0;
}

static bool copy(int from, int to)
{
    char data[4096];
    ssize_t got = read(from, data, sizeof(data));

    for (ssize_t sent = 0; sent < got;) {
        ssize_t n = write(to, data + sent, (size_t)(got - sent));

        if (n < 0)
            return false;
        sent += n;
    }
    return got > 0;
}

static void carry(int a, int b)
{
    struct pollfd p[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};

    while (poll(p, 2, -1) > 0) {
        if ((p[0].revents != 0 && !copy(a, b)) || (p[1].revents != 0 && !copy(b, a)))
            _exit(0);
    }
    _exit(1);
}

/* A service: a caller of this host's port is connected to the same port of another one. */
static int relay(const char *to, const char *port)
{
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    struct sockaddr_in there = here;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    signal(SIGCHLD, SIG_IGN);
    inet_pton(AF_INET, to, &there.sin_addr);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) != 0 || listen(listener, 16) != 0)
        return 1;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int near = accept(listener, NULL, NULL);

        if (fork() == 0) {
            int far = socket(AF_INET, SOCK_STREAM, 0);

            if (connect(far, (struct sockaddr *)&there, sizeof(there)) != 0)
                _exit(1);
            carry(near, far);
        }
        close(near);
    }
}

/* --- ranks and agents ----------------------------------------------------- */

/* host 0: here. */
static void start_rank(spawn *s, int host, int rank, const char *address, const char *timeout_ms)
{
    const char *const argv[] = {own_path, "rank", timeout_ms, NULL};
    char text[2][100], port[40];
    const char *const env[] = {text[0],        text[1],      port,
                               "WORLD_SIZE=2", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                               "TRI_ENGINE",   NULL};

    snprintf(text[0], sizeof(text[0]), "RANK=%d", rank);
    snprintf(text[1], sizeof(text[1]), "MASTER_ADDR=%s", address);
    snprintf(port, sizeof(port), "MASTER_PORT=%d", host > 0 ? 29500 : spawn_free_port());
    if (host > 0)
        hosts_spawn(host, s, argv, env);
    else
        spawn_start(s, argv, env);
}

/* Of given ranks, at that address. */
static void make_job(host_job *j, const char *address, const char *conf)
{
    j->backend = "static";
    j->nnodes = "2";
    j->conf = conf;
    snprintf(j->own_endpoint, sizeof(j->own_endpoint), "%s:%d", address,
             j->spread ? 29400 : spawn_free_port());
}

static bool begin(host_job *j, int n_hosts)
{
    host_job_begin(j, own_path, n_hosts);
    return j->spread;
}

static const char *nobody_there(const host_job *j)
{
    return j->spread ? "10.77.0.9" : "192.0.2.1";
}

/* --- an address of nobody ------------------------------------------------- */

static void check_rank(const char *address, const char *words, bool spread)
{
    char want[160];
    spawn s;

    start_rank(&s, spread ? 1 : 0, 0, address, "4000");
    snprintf(want, sizeof(want), "%s %s: give MASTER_ADDR one of its own (%s", address, words,
             spread ? "10.77.0.1" : "");
    spawn_expect(&s, want);
    spawn_expect(&s, "unless the others get here through it");
    assert_int_not_equal(spawn_wait(&s), 0);
    trirun_has(SPAWN_ERR(&s), " s for rank 1 to join; ");
    assert_int_equal(trirun_count(SPAWN_ERR(&s), want), 2); /* a warning, and the end */
    spawn_free(&s);
}

static void rank_0_says_that_the_address_is_not_its_own(void **state)
{
    host_job j;

    (void)state;
    (void)begin(&j, 1);
    check_rank(nobody_there(&j), "is not an address of this host", j.spread);
    host_job_end(&j);
}

static void rank_0_says_that_the_name_is_not_known(void **state)
{
    host_job j;

    (void)state;
    check_rank("no-such-host.invalid", "is not a name that is known here", begin(&j, 1));
    host_job_end(&j);
}

static void an_agent_of_rank_0_says_that_the_address_is_not_its_own(void **state)
{
    char want[120];
    host_agent a;
    host_job j;

    (void)state;
    (void)begin(&j, 1);
    make_job(&j, nobody_there(&j), "timeout=4");
    host_agent_start(&a, &j, 1);
    snprintf(want, sizeof(want),
             "%s is not an address of this host: give --rdzv-endpoint one of its",
             nobody_there(&j));
    spawn_expect(&a.job.run, want);
    assert_int_not_equal(spawn_wait(&a.job.run), 0);
    trirun_has(SPAWN_ERR(&a.job.run), "1 of 2 hosts joined within 4 s; ");
    assert_int_equal(trirun_count(SPAWN_ERR(&a.job.run), want), 2);
    trirun_end(&a.job, 0);
    host_job_end(&j);
}

/* --- an address of a service ---------------------------------------------- */

static void an_address_that_leads_back_here_is_right(void **state)
{
    const char *const argv[] = {own_path, "relay", "10.77.0.1", "29500", NULL};
    static const char *const env[] = {NULL};
    spawn service, s[2];
    host_job j;

    (void)state;
    if (!begin(&j, 2)) {
        check_rank("192.0.2.1", "is not an address of this host", false);
        return;
    }
    hosts_spawn(2, &service, argv, env);
    spawn_expect(&service, "ready");
    start_rank(&s[0], 1, 0, "10.77.0.2", "20000");
    spawn_read(&s[0], 3000); /* longer than one that is wrong is suffered */
    start_rank(&s[1], 2, 1, "10.77.0.2", "20000");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spawn_wait(&s[i]), 0);
        trirun_has(SPAWN_OUT(&s[i]), "of 2 is here");
        assert_null(strstr(SPAWN_ERR(&s[i]), "is not an address"));
        spawn_free(&s[i]);
    }
    spawn_signal(&service, SIGKILL);
    (void)spawn_wait(&service);
    spawn_free(&service);
    hosts_signal(2, SIGKILL); /* what it has forked */
    host_job_end(&j);
}

/* --- two that serve ------------------------------------------------------- */

static void a_second_rank_0_on_another_host_is_told_of_the_first(void **state)
{
    spawn s[2];
    host_job j;

    (void)state;
    if (!begin(&j, 2)) {
        check_rank("192.0.2.1", "is not an address of this host", false);
        return;
    }
    start_rank(&s[0], 1, 0, "10.77.0.1", "30000");
    start_rank(&s[1], 2, 0, "10.77.0.1", "30000");
    assert_int_not_equal(spawn_wait(&s[1]), 0);
    trirun_has(SPAWN_ERR(&s[1]), "rank 0 has already joined (process ");
    trirun_has(SPAWN_ERR(&s[1]), "on host1) at the store 10.77.0.1 port 29500");
    assert_null(strstr(SPAWN_ERR(&s[1]), "waited 30"));
    spawn_signal(&s[0], SIGKILL);
    (void)spawn_wait(&s[0]);
    for (int i = 0; i < 2; i++)
        spawn_free(&s[i]);
    host_job_end(&j);
}

static void a_second_agent_of_rank_0_is_told_of_the_first(void **state)
{
    static const char *const words[] = {"the agent on host host1 (pid ",
                                        "has --node-rank 0 already, and this one, on host host2"};
    host_agent a[2];
    host_job j;

    (void)state;
    if (!begin(&j, 2)) {
        check_rank("192.0.2.1", "is not an address of this host", false);
        return;
    }
    make_job(&j, "10.77.0.1", "timeout=40");
    j.node_rank = "0";
    for (int i = 0; i < 2; i++)
        host_agent_start(&a[i], &j, i + 1);
    assert_int_not_equal(spawn_wait(&a[1].job.run), 0);
    for (int i = 0; i < 2; i++)
        trirun_has(SPAWN_ERR(&a[1].job.run), words[i]);
    trirun_end(&a[1].job, 0);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

/* No firewall, and no wrong address. */
static void a_loopback_that_is_down_is_named(void **state)
{
    const char *const argv[] = {spawn_bin("trireme"), "store", "--endpoint", "127.0.0.1:29500",
                                "--timeout",          "0.2",   "keys",       NULL};
    spawn s;

    (void)state;
    if (!hosts_begin(1))
        return;
    hosts_ip(1, "link set lo down");
    hosts_spawn(1, &s, argv, NULL);
    assert_int_equal(spawn_wait(&s), 1);
    trirun_has(SPAWN_ERR(&s), "is the loopback interface up (`ip link set lo up`)?");
    spawn_free(&s);
    hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_0_says_that_the_address_is_not_its_own),
    cmocka_unit_test(rank_0_says_that_the_name_is_not_known),
    cmocka_unit_test(an_agent_of_rank_0_says_that_the_address_is_not_its_own),
    cmocka_unit_test(an_address_that_leads_back_here_is_right),
    cmocka_unit_test(a_second_rank_0_on_another_host_is_told_of_the_first),
    cmocka_unit_test(a_second_agent_of_rank_0_is_told_of_the_first),
    cmocka_unit_test(a_loopback_that_is_down_is_named),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "rank") == 0)
        return rank_worker(argv[2]);
    if (argc > 3 && strcmp(argv[1], "relay") == 0)
        return relay(argv[2], argv[3]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
