/*
 * hosts.c - see hosts.h.
 */
#include "testing/hosts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include "testing/check.h"
#include "testing/slow_wire.h"

enum { MAX_ARGS = 20 };

static int holders[HOSTS_MAX + 1]; /* processes that do nothing but have a namespace */
static int wires[HOSTS_MAX + 1];   /* processes that are a slow wire */
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
        char name[16];

        snprintf(name, sizeof(name), "host%d", host);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0 ||
            write(ready[1], "", 1) != 1)
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

const char *const *hosts_prefix(int host)
{
    static char text[3][2][64];
    static const char *words[3][5];
    static int next;
    int pid = host > 0 ? holders[host] : getpid(), n = 0;

    next = (next + 1) % 3;
    snprintf(text[next][0], sizeof(text[next][0]), "--net=/proc/%d/ns/net", pid);
    snprintf(text[next][1], sizeof(text[next][1]), "--uts=/proc/%d/ns/uts", pid);
    words[next][n++] = "nsenter";
    words[next][n++] = text[next][0];
    if (host > 0) /* the switch has the name of the machine */
        words[next][n++] = text[next][1];
    words[next][n++] = "--";
    words[next][n] = NULL;
    return words[next];
}

void hosts_spawn(int host, spawn *s, const char *const *argv, const char *const *env)
{
    const char *const *prefix = hosts_prefix(host);
    const char *words[MAX_ARGS + 6];
    int n = 0;

    while (*prefix != NULL)
        words[n++] = *prefix++;
    for (int i = 0; argv[i] != NULL; i++) {
        assert_true(i < MAX_ARGS);
        words[n++] = argv[i];
    }
    words[n] = NULL;
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

static bool plug_wire(int host, const slow_wire *wire)
{
    char port[16];

    snprintf(port, sizeof(port), "port%d", host);
    if (!slow_wire_start(wire, port, "eth0", &wires[host]))
        return false;
    hosts_ip(0, "link set port%d master switch up", host);
    hosts_ip(host, "link set eth0 up");
    return true;
}

bool hosts_plug_slow(int host, int delay_ms, int kbit, int queue_bytes)
{
    return plug_wire(host, &(slow_wire){.holder = holders[host],
                                        .delay_ms = delay_ms,
                                        .kbit = kbit,
                                        .queue_bytes = queue_bytes});
}

bool hosts_plug_lossy(int host, int delay_ms, int jitter_ms, int loss_per_mille)
{
    return plug_wire(host, &(slow_wire){.holder = holders[host],
                                        .delay_ms = delay_ms,
                                        .jitter_ms = jitter_ms,
                                        .loss_per_mille = loss_per_mille});
}

/* --- what happens to hosts ------------------------------------------------ */

void hosts_cut(int host)
{
    hosts_ip(0, "link set port%d nomaster", host);
}

void hosts_heal(int host)
{
    hosts_ip(0, "link set port%d master switch", host);
}

/* To an interface that nobody has. */
void hosts_mute(int from, int to)
{
    hosts_ip(from, "neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 dev eth0 nud permanent", to);
}

void hosts_unmute(int from, int to)
{
    hosts_ip(from, "neigh del 10.77.0.%d dev eth0", to);
}

static bool is_in(const char *pid, const char *space)
{
    char path[64], text[64];
    ssize_t got;

    snprintf(path, sizeof(path), "/proc/%.20s/ns/net", pid);
    got = readlink(path, text, sizeof(text) - 1);
    if (got < 0)
        return false; /* has ended */
    text[got] = '\0';
    return strcmp(text, space) == 0;
}

/* How many there were. */
static int signal_once(int host, int number)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    char path[64], space[64];
    ssize_t got;
    int n = 0;

    assert_non_null(proc);
    snprintf(path, sizeof(path), "/proc/%d/ns/net", holders[host]);
    got = readlink(path, space, sizeof(space) - 1);
    assert_true(got > 0);
    space[got] = '\0';
    while ((entry = readdir(proc)) != NULL) {
        int pid = (int)strtol(entry->d_name, NULL, 10);

        if (pid > 0 && pid != holders[host] && is_in(entry->d_name, space))
            n += kill(pid, number) == 0;
    }
    closedir(proc);
    return n;
}

void hosts_signal(int host, int number)
{
    (void)signal_once(host, number);
    while (number == SIGKILL && signal_once(host, number) > 0)
        ;
}

void hosts_end(void)
{
    for (int host = 1; host <= n_hosts; host++) {
        for (int i = 0; i < 2; i++) {
            int pid = i == 0 ? holders[host] : wires[host];

            if (pid == 0)
                continue;
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, NULL, 0), pid);
        }
        wires[host] = 0;
    }
    n_hosts = 0;
}
