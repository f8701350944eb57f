/*
 * spawn.c - see spawn.h.
 */
#include "testing/spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "launch/os/cgroup.h"
#include "testing/check.h"

extern char **environ;

/* What a case may take is as many times as long there: cmake/TriremeTests.cmake. */
enum { MAX_ENVIRONMENT = 1000, PAUSE_MS = 5, PATIENCE = TEST_SANITIZED ? 5 : 1 };

static long long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static long long deadline_of(const spawn *s)
{
    return now_ms() + (long long)PATIENCE * s->deadline_ms;
}

/* --- starting ------------------------------------------------------------- */

static bool same_variable(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");

    return strcspn(b, "=") == length && strncmp(a, b, length) == 0;
}

static void build_environment(char **all, char *const *base, const char *const *changes, char *mark)
{
    int n = 0;

    for (; base != NULL && *base != NULL && n < MAX_ENVIRONMENT; base++) {
        bool changed = same_variable(*base, mark);

        for (int i = 0; changes != NULL && changes[i] != NULL; i++)
            changed = changed || same_variable(*base, changes[i]);
        if (!changed)
            all[n++] = *base;
    }
    for (; changes != NULL && *changes != NULL && n < MAX_ENVIRONMENT; changes++) {
        if (strchr(*changes, '=') != NULL)
            all[n++] = (char *)(uintptr_t)*changes;
    }
    all[n++] = mark;
    all[n] = NULL;
}

/* In a group of its own, which the end of our case does not reach: it ends with us instead. */
static void start(spawn *s, const char *const *argv, char *const *base, const char *const *changes)
{
    static int counter;
    char *all[MAX_ENVIRONMENT + 2];
    int out[2], err[2], parent = getpid();

    memset(s, 0, sizeof(*s));
    s->deadline_ms = SPAWN_DEADLINE_MS;
    snprintf(s->mark, sizeof(s->mark), SPAWN_MARK "=%d-%d", getpid(), counter++);
    build_environment(all, base, changes, s->mark);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        setpgid(0, 0);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(127);
        dup2(out[1], 1);
        dup2(err[1], 2);
        environ = all;
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        dprintf(2, "spawn: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    setpgid(s->pid, s->pid);
    close(out[1]);
    close(err[1]);
    s->fd[0] = out[0];
    s->fd[1] = err[0];
    for (int i = 0; i < 2; i++) {
        fcntl(s->fd[i], F_SETFL, O_NONBLOCK);
        s->text[i] = calloc(1, 1);
        assert_non_null(s->text[i]);
    }
}

void spawn_start(spawn *s, const char *const *argv, const char *const *env)
{
    start(s, argv, environ, env);
}

void spawn_start_bare(spawn *s, const char *const *argv, const char *const *env)
{
    start(s, argv, NULL, env);
}

void spawn_signal(const spawn *s, int number)
{
    kill(s->pid, number);
}

/* --- waiting -------------------------------------------------------------- */

static void read_some(spawn *s, int i)
{
    char piece[65536];
    ssize_t got = read(s->fd[i], piece, sizeof(piece));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close(s->fd[i]);
        s->fd[i] = -1;
        return;
    }
    s->text[i] = realloc(s->text[i], s->used[i] + (size_t)got + 1);
    assert_non_null(s->text[i]);
    memcpy(s->text[i] + s->used[i], piece, (size_t)got);
    s->used[i] += (size_t)got;
    s->text[i][s->used[i]] = '\0';
}

static void try_reap(spawn *s)
{
    int status;

    if (!s->ended && waitpid(s->pid, &status, WNOHANG) == s->pid) {
        s->ended = true;
        s->status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
}

static void step(spawn *s, int timeout_ms)
{
    struct pollfd p[2] = {{s->fd[0], POLLIN, 0}, {s->fd[1], POLLIN, 0}};

    poll(p, 2, timeout_ms);
    for (int i = 0; i < 2; i++) {
        if (s->fd[i] >= 0 && p[i].revents != 0)
            read_some(s, i);
    }
    try_reap(s);
}

static void print_whole(const char *text)
{
    size_t length = strlen(text);

    for (size_t at = length > 20000 ? length - 20000 : 0; at < length; at += 500)
        print_error("%.500s", text + at);
}

static void give_up(spawn *s, const char *waited_for)
{
    char *out = s->text[0], *err = s->text[1];

    kill(-s->pid, SIGKILL);
    kill(s->pid, SIGKILL);
    /* cmocka takes a thousand characters at a time */
    print_error("--- stdout:\n");
    print_whole(out);
    print_error("--- stderr:\n");
    print_whole(err);
    if (s->ended && s->fd[0] < 0 && s->fd[1] < 0)
        fail_msg("ended with status %d without a word of %s", s->status, waited_for);
    fail_msg("waited %d ms for %s, which did not come", PATIENCE * s->deadline_ms, waited_for);
}

void spawn_poll(spawn *s, int timeout_ms)
{
    step(s, timeout_ms);
}

void spawn_expect(spawn *s, const char *text)
{
    long long deadline = deadline_of(s);

    while (strstr(s->text[0], text) == NULL && strstr(s->text[1], text) == NULL) {
        if (now_ms() > deadline || (s->ended && s->fd[0] < 0 && s->fd[1] < 0))
            give_up(s, text);
        step(s, 20);
    }
}

void spawn_read(spawn *s, int ms)
{
    long long deadline = now_ms() + ms, left;

    while ((left = deadline - now_ms()) > 0)
        step(s, (int)left);
}

int spawn_wait(spawn *s)
{
    long long deadline = deadline_of(s);

    while (!s->ended || s->fd[0] >= 0 || s->fd[1] >= 0) {
        if (now_ms() > deadline)
            give_up(s, s->ended ? "the end of its output" : "its end");
        step(s, s->fd[0] < 0 && s->fd[1] < 0 ? PAUSE_MS : 20);
    }
    return s->status;
}

/* Whether the process is alive and carries the mark; its command goes to `command`. */
static bool is_marked(const char *pid, const char *mark, char *command, size_t bytes)
{
    char path[64], text[65536], *end;
    size_t got;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    end = strrchr(text, ')');
    if (end == NULL || end[2] == 'Z')
        return false;
    snprintf(command, bytes, "%.60s", text);
    snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    for (size_t at = 0; at < got; at += strlen(text + at) + 1) {
        if (strcmp(text + at, mark) == 0)
            return true;
    }
    return false;
}

static int list_marked(const spawn *s, char *list, size_t bytes)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    char command[80];
    int n = 0;

    assert_non_null(proc);
    list[0] = '\0';
    while ((entry = readdir(proc)) != NULL) {
        size_t used = strlen(list);

        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !is_marked(entry->d_name, s->mark, command, sizeof(command)))
            continue;
        snprintf(list + used, bytes - used, " %s", command);
        n++;
    }
    closedir(proc);
    return n;
}

int spawn_count(const spawn *s)
{
    char list[1000];

    return list_marked(s, list, sizeof(list));
}

/* Where trirun and its guard were both killed, nobody is left to remove a group. A process that is
 * ending leaves it after its memory, and so after list_marked has seen the last of it. */
static int remove_when_empty(int dir, const char *name, long long deadline)
{
    while (unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        if (errno != EBUSY || now_ms() > deadline)
            return 0;
        poll(NULL, 0, PAUSE_MS);
    }
    return 1;
}

/* Of trirun's control groups, those that it made. */
static void expect_no_group(const spawn *s, long long deadline)
{
    char own[TRII_CGROUP_BYTES], name[40];
    const struct dirent *entry;
    DIR *dir;

    snprintf(name, sizeof(name), TRII_CGROUP_PREFIX "%d-", s->pid);
    dir = trii_cgroup_own("", own) == TRI_OK ? opendir(own) : NULL;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, name, strlen(name)) == 0 &&
            !(s->status == -SIGKILL && !s->guarded &&
              remove_when_empty(dirfd(dir), entry->d_name, deadline)))
            fail_msg("left behind: the control group %s/%s", own, entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
}

void spawn_expect_no_process(const spawn *s)
{
    long long deadline = deadline_of(s);
    char list[1000];

    while (list_marked(s, list, sizeof(list)) > 0) {
        if (now_ms() > deadline)
            fail_msg("left behind:%s", list);
        poll(NULL, 0, PAUSE_MS);
    }
    expect_no_group(s, deadline);
}

void spawn_free(spawn *s)
{
    if (!s->ended) {
        kill(-s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (s->fd[i] >= 0)
            close(s->fd[i]);
        free(s->text[i]);
    }
    memset(s, 0, sizeof(*s));
}

/* --- places --------------------------------------------------------------- */

const char *spawn_bin(const char *name)
{
    static char path[4][4096];
    static int next;
    const char *bin = getenv("TRI_TEST_BIN");

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", bin != NULL ? bin : "build/dev/bin", name);
    return path[next];
}

void spawn_make_folder(char *path_out, size_t bytes)
{
    const char *base = getenv("TMPDIR");

    snprintf(path_out, bytes, "%s/trireme-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(path_out));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

void spawn_remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int spawn_count_entries(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* Nobody else in tests takes it from here on: the name is this process's until it ends. */
static bool claim_port(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length =
        snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "trireme-test-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_ours;

    assert_true(fd >= 0);
    is_ours = bind(fd, (struct sockaddr *)&name,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0;
    if (!is_ours)
        close(fd);
    return is_ours;
}

/* Below the ports that the kernel gives to connections and to port 0, so that nobody comes by it
 * before it is used; other tests at the same time begin elsewhere. */
int spawn_free_port(void)
{
    enum { FIRST = 12000, N = 20000, STRIDE = 37 };
    static int counter;

    for (int i = 0; i < N; i++) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
        int port = FIRST + (int)(((long)getpid() * STRIDE + counter++) % N);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool is_free;

        assert_true(fd >= 0);
        any.sin_port = htons((uint16_t)port);
        is_free = bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0;
        close(fd);
        if (is_free && claim_port(port))
            return port;
    }
    fail_msg("no port is free");
    return 0;
}

void spawn_succeeds(spawn *s, int deadline_ms)
{
    s->deadline_ms = deadline_ms;
    if (spawn_wait(s) != 0)
        fail_msg("status %d\n%s%s", s->status, SPAWN_OUT(s), SPAWN_ERR(s));
    spawn_expect_no_process(s);
}
