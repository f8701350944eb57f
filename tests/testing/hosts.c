/*
 * hosts.c - see hosts.h.
 */
#include "testing/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include "testing/check.h"

enum { MAX_ARGS = 20 };

static int holders[HOSTS_MAX + 1]; /* processes that do nothing but have a namespace */
static int n_hosts;

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return done;
}

/* Into a network of our own; without root with a user namespace, in which we are root. */
static bool leave_network(void)
{
    char uid[64], gid[64];

    if (unshare(CLONE_NEWNET) == 0)
        return true;
    snprintf(uid, sizeof(uid), "0 %u 1", (unsigned)getuid());
    snprintf(gid, sizeof(gid), "0 %u 1", (unsigned)getgid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
           write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/uid_map", uid) &&
           write_file("/proc/self/gid_map", gid);
}

static void start_holder(int host)
{
    char done = 0;
    int ready[2];

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    holders[host] = fork();
    assert_true(holders[host] >= 0);
    if (holders[host] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &done, 1), 1);
    close(ready[0]);
}

bool hosts_begin(int n)
{
    assert_in_range(n, 1, HOSTS_MAX);
    if (getenv("TRI_TEST_NO_NAMESPACES") != NULL || !leave_network())
        return false;
    n_hosts = n;
    for (int host = 1; host <= n; host++)
        start_holder(host);
    for (int host = 0; host <= n; host++)
        hosts_ip(host, "link set lo up");
    hosts_ip(0, "link add switch type bridge");
    hosts_ip(0, "link set switch up");
    return true;
}

void hosts_spawn(int host, spawn *s, const char *const *argv, const char *const *env)
{
    const char *words[MAX_ARGS + 5] = {"nsenter", NULL, "--"};
    char net[64];
    int n = 3;

    snprintf(net, sizeof(net), "--net=/proc/%d/ns/net", host > 0 ? holders[host] : getpid());
    words[1] = net;
    for (int i = 0; argv[i] != NULL; i++) {
        assert_true(i < MAX_ARGS);
        words[n++] = argv[i];
    }
    spawn_start(s, words, env);
}

void hosts_ip(int host, const char *format, ...)
{
    const char *argv[MAX_ARGS + 2] = {"ip"};
    char words[512], path[1024], *save = NULL;
    const char *env[] = {path, NULL};
    int n = 1;
    va_list args;
    spawn s;

    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    for (char *word = strtok_r(words, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        assert_true(n < MAX_ARGS);
        argv[n++] = word;
    }
    snprintf(path, sizeof(path), "PATH=%s:/usr/sbin:/sbin", getenv("PATH"));
    hosts_spawn(host, &s, argv, env);
    if (spawn_wait(&s) != 0)
        fail_msg("host %d: ip %s (package iproute2): %s", host, format, SPAWN_ERR(&s));
    spawn_free(&s);
}

void hosts_plug(int host)
{
    hosts_ip(0, "link add port%d type veth peer name eth0 netns %d", host, holders[host]);
    hosts_ip(0, "link set port%d master switch up", host);
    hosts_ip(host, "link set eth0 up");
}

void hosts_end(void)
{
    for (int host = 1; host <= n_hosts; host++) {
        kill(holders[host], SIGKILL);
        assert_int_equal(waitpid(holders[host], NULL, 0), holders[host]);
    }
    n_hosts = 0;
}
