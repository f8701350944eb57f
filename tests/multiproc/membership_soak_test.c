/*
 * membership_soak_test.c - hosts come, go, die and hang at random under seeds: the job always ends
 * up with those that are there, and nothing is left. TRI_SOAK_SEED sets another seed,
 * TRI_SOAK_CHANGES another number of changes.
 */
/* ctest: labels=full timeout=900 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "testing/scratch.h"
#include "testing/trirun_job.h"

enum { MAX_NODES = 4 };

typedef struct soak {
    int port;
    trirun_job job[MAX_NODES]; /* 0 serves the store and stays */
    bool there[MAX_NODES], stopped[MAX_NODES];
} soak;

static int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), port;

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    port = ntohs(addr.sin_port);
    close(fd);
    return port;
}

static void start(soak *s, int i)
{
    char endpoint[40];
    const char *const args[] = {"--rdzv-backend",
                                "c10d",
                                "--rdzv-id",
                                "soak",
                                "--rdzv-endpoint",
                                endpoint,
                                "--nnodes",
                                "1:4",
                                "--rdzv-conf",
                                "last_call_timeout=2,join_timeout=60",
                                "sh",
                                "-c",
                                "echo size $WORLD_SIZE; exec sleep 1000",
                                NULL};

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", s->port);
    trirun_start(&s->job[i], args);
    s->there[i] = true;
    s->stopped[i] = false;
}

static void forget_output(trirun_job *j)
{
    for (int i = 0; i < 2; i++) {
        j->run.used[i] = 0;
        j->run.text[i][0] = '\0';
    }
}

/* All that are there and heard say the same number. */
static void expect_all(soak *s)
{
    char text[24];
    int n = 0;

    for (int i = 0; i < MAX_NODES; i++)
        n += s->there[i] && !s->stopped[i];
    snprintf(text, sizeof(text), "size %d\n", n);
    for (int i = 0; i < MAX_NODES; i++) {
        if (s->there[i] && !s->stopped[i])
            spawn_expect(&s->job[i].run, text);
    }
}

static void change(soak *s, uint64_t *seed)
{
    int i = 1 + (int)(scratch_random(seed) % (MAX_NODES - 1));
    uint32_t how = scratch_random(seed) % 4;

    for (int k = 0; k < MAX_NODES; k++) {
        if (s->there[k])
            forget_output(&s->job[k]);
    }
    if (!s->there[i]) {
        start(s, i);
    } else if (s->stopped[i]) {
        s->stopped[i] = false;
        spawn_signal(&s->job[i].run, SIGCONT);
    } else if (how == 0) {
        s->stopped[i] = true;
        spawn_signal(&s->job[i].run, SIGSTOP);
    } else {
        s->there[i] = false;
        spawn_signal(&s->job[i].run, how == 1 ? SIGTERM : SIGKILL);
        (void)spawn_wait(&s->job[i].run);
        trirun_end(&s->job[i], how == 1 ? 0 : 1);
    }
}

static void membership_changes_at_random(void **state)
{
    const char *text = getenv("TRI_SOAK_SEED"), *count = getenv("TRI_SOAK_CHANGES");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 1;
    long n = count != NULL ? strtol(count, NULL, 10) : 500;
    soak s = {.port = free_port()};

    (void)state;
    start(&s, 0);
    expect_all(&s);
    for (long i = 0; i < n; i++) {
        change(&s, &seed);
        expect_all(&s);
    }
    for (int i = MAX_NODES - 1; i >= 0; i--) {
        if (!s.there[i])
            continue;
        if (s.stopped[i])
            spawn_signal(&s.job[i].run, SIGCONT);
        spawn_signal(&s.job[i].run, SIGTERM);
        assert_int_equal(spawn_wait(&s.job[i].run), 1);
        trirun_end(&s.job[i], 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(membership_changes_at_random),
};

TEST_MAIN(tests)
