/* traffic_hosts_test.c - TRI_CHECK=order between hosts, in network namespaces: the store of the
 * world is another host's for half of the ranks. Where a system gives us none, over tcp here. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/hosts.h"
#include "testing/spawn.h"
#include "testing/traffic_calls.h"

enum { RANKS = 4, ROUNDS = 3, MISTAKEN = 3 };

static const char *own_path; /* of this program */

static int over(tri_status status)
{
    printf("%s: %s\nis over\n", tri_status_name(status), tri_last_error());
    fflush(stdout);
    pause(); /* rank 0 serves the store */
    return 0;
}

/* Each rank sends to the next one, and then two mean different things. A rank that is slow to read
 * what it has may be told of that mistake while its last round is open. */
static int worker(void)
{
    int rank, to, from;
    tri_tensor *x;
    tri_status status;

    TRI_TRY(tri_init(NULL));
    rank = tri_rank();
    to = (rank + 1) % RANKS;
    from = (rank + RANKS - 1) % RANKS;
    x = filled(8, rank, 1);
    for (int round = 0; round < ROUNDS; round++) {
        tri_tensor *y = recv_from(NULL, TRI_DTYPE_F64, 1, 8, false, from, 5);
        double sum = 0;

        (void)tri_keep(send_to(NULL, x, to, 5));
        status = tri_item_status(tri_sum(collective(ALL_REDUCE, NULL, y), NULL, 0, false), &sum);
        if (status == TRI_OK)
            status = tri_step_end_status();
        if (status != TRI_OK && round == ROUNDS - 1)
            return over(status);
        TRI_TRY(status);
        if (sum != 8 * (6 + RANKS * 3.5))
            return printf("%g\n", sum);
    }
    if (rank == 0)
        (void)tri_keep(send_to(NULL, x, MISTAKEN, 7));
    if (rank == MISTAKEN)
        (void)tri_keep(recv_from(NULL, TRI_DTYPE_F64, 2, 3, false, 0, 7));
    (void)tri_keep(collective(ALL_REDUCE, NULL, x));
    return over(tri_step_end_status());
}

static void start_rank(spawn *s, int host, int rank, const char *address, int port)
{
    const char *const argv[] = {own_path, "--worker", NULL};
    char text[4][100];
    const char *const env[] = {text[0],
                               text[1],
                               text[2],
                               text[3],
                               "TRI_CHECK=order",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               host < 0 ? "TRI_ENGINE=tcp" : "TRI_ENGINE",
                               NULL};

    snprintf(text[0], sizeof(text[0]), "RANK=%d", rank);
    snprintf(text[1], sizeof(text[1]), "WORLD_SIZE=%d", RANKS);
    snprintf(text[2], sizeof(text[2]), "MASTER_ADDR=%s", address);
    snprintf(text[3], sizeof(text[3]), "MASTER_PORT=%d", port);
    if (host < 0)
        spawn_start(s, argv, env);
    else
        hosts_spawn(host, s, argv, env);
}

static void messages_between_hosts_are_compared(void **state)
{
    spawn s[RANKS];
    bool spread = hosts_begin(2);
    int port = spread ? 29500 : spawn_free_port();

    (void)state;
    for (int host = 1; spread && host <= 2; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
    }
    for (int rank = 0; rank < RANKS; rank++)
        start_rank(&s[rank], spread ? 1 + rank / 2 : -1, rank, spread ? "10.77.0.1" : "127.0.0.1",
                   port);
    for (int rank = 0; rank < RANKS; rank++) {
        spawn_expect(&s[rank], "is over");
        if (strstr(SPAWN_OUT(&s[rank]), "message 1 from rank 0 to rank 3 of group world") == NULL ||
            strstr(SPAWN_OUT(&s[rank]), "rank 0: send(8 f64, rank 3, tag 7)") == NULL ||
            strstr(SPAWN_OUT(&s[rank]), "rank 3: recv(6 f64, rank 0, tag 7)") == NULL)
            fail_msg("rank %d: %s", rank, SPAWN_OUT(&s[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++)
        spawn_free(&s[rank]);
    if (spread)
        hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_between_hosts_are_compared),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return worker();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
