/*
 * process.c - see process.h.
 */
#include "os/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "os/proc.h"

extern char **environ;

/* Room for the child between clone and exec; it runs a handful of system calls. */
#define CHILD_STACK_BYTES 32768

typedef struct child_args {
    const trii_process_spec *spec;
    int parent;
    int error; /* errno of the call that failed; we share memory with the child until exec */
    const char *failed_call;
} child_args;

static int child_fail(child_args *args, const char *call)
{
    args->error = errno;
    args->failed_call = call;
    _exit(127);
}

/* Moves fd to `target`; a descriptor that is there already loses its close-on-exec flag. */
static int move_fd(int fd, int target)
{
    if (fd < 0)
        return 0;
    return fd == target ? fcntl(fd, F_SETFD, 0) : dup2(fd, target);
}

/* Runs in the parent's memory while the parent sleeps: system calls only. */
static int child_main(void *arg)
{
    child_args *args = arg;
    const trii_process_spec *spec = args->spec;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    if (setsid() < 0)
        return child_fail(args, "setsid");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return child_fail(args, "prctl");
    if (getppid() != args->parent)
        _exit(127); /* our parent ended before it could be watched */
    if (move_fd(spec->in_fd, 0) < 0 || move_fd(spec->out_fd, 1) < 0 || move_fd(spec->err_fd, 2) < 0)
        return child_fail(args, "dup2");
    if (spec->cores != NULL && /* the kernel's own form is the same words */
        syscall(SYS_sched_setaffinity, 0, sizeof(spec->cores->words), spec->cores->words) != 0)
        return child_fail(args, "sched_setaffinity");
    sigaction(SIGPIPE, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* execve takes char *const *, and writes to neither. */
    execve(spec->path, (char *const *)(uintptr_t)spec->argv, (char *const *)(uintptr_t)spec->envp);
    return child_fail(args, "exec");
}

tri_status trii_process_start(const trii_process_spec *spec, trii_process *process_out)
{
    child_args args = {.spec = spec, .parent = getpid()};
    sigset_t all, before;
    char *stack;
    int pid, pidfd = -1, error;

    stack = trii_alloc_aligned(4096, CHILD_STACK_BYTES, "stack of a new process");
    if (stack == NULL)
        return TRI_ERR_NO_MEMORY;
    /* No handler may run in the child while it shares our memory. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = clone(child_main, stack + CHILD_STACK_BYTES,
                CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &args, &pidfd);
    error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    trii_free(stack);
    if (pid < 0)
        return TRII_FAIL(TRI_ERR_IO, "cannot start %s: clone: %s", spec->path, strerror(error));
    if (args.failed_call != NULL) {
        waitpid(pid, NULL, 0);
        close(pidfd);
        return TRII_FAIL(args.error == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO,
                         "cannot start %s: %s: %s", spec->path, args.failed_call,
                         strerror(args.error));
    }
    process_out->pid = pid;
    process_out->pidfd = pidfd;
    return TRI_OK;
}

tri_status trii_process_reap(trii_process *process, trii_process_exit *exit_out)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG) != 0)
        return TRII_FAIL(TRI_ERR_IO, "waitid of process %d: %s", process->pid, strerror(errno));
    if (info.si_pid == 0)
        return TRI_INPROGRESS;
    close(process->pidfd);
    process->pidfd = -1;
    exit_out->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    exit_out->code = info.si_code == CLD_EXITED ? info.si_status : 0;
    exit_out->core_dumped = info.si_code == CLD_DUMPED;
    return TRI_OK;
}

bool trii_process_has_ended(const trii_process *process)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

void trii_process_signal(const trii_process *process, int number)
{
    if (process->pidfd >= 0)
        kill(-process->pid, number);
}

void trii_process_adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int trii_process_reap_orphan(const trii_process *keep, int n_keep)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return 0;
    for (int i = 0; i < n_keep; i++) {
        if (keep[i].pidfd >= 0 && keep[i].pid == info.si_pid)
            return 0;
    }
    waitpid(info.si_pid, NULL, 0);
    return info.si_pid;
}

/* --- whom to end -------------------------------------------------------------------- */

/* Whether the first thread still has to see that it is to die, or writes a core before it does:
 * whatever ends a process sends SIGKILL to each other thread. */
static bool is_doomed(const char *pid)
{
    static const char name[] = "\nSigPnd:";
    char text[4096];
    const char *at =
        trii_proc_read(pid, "status", text, sizeof(text)) > 0 ? strstr(text, name) : NULL;

    return at != NULL && ((strtoull(at + strlen(name), NULL, 16) & 1ULL << (SIGKILL - 1)) != 0 ||
                          strstr(text, "\nCoreDumping:\t1") != NULL);
}

bool trii_process_is_ending(const trii_process *process)
{
    enum { PF_EXITING = 4 }; /* the kernel's flag, field 9 of /proc/PID/stat */
    char stat[512], pid[16], *at;

    snprintf(pid, sizeof(pid), "%d", process->pid);
    if (process->pidfd < 0 || is_doomed(pid) ||
        trii_proc_read(pid, "stat", stat, sizeof(stat)) == 0)
        return true;
    at = strrchr(stat, ')'); /* behind the name: state, field 3 */
    for (int field = 2; at != NULL && field < 9; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && (strtoul(at, NULL, 10) & PF_EXITING) != 0;
}

/* Field 4 of /proc/PID/stat, behind the name in parentheses; 0 for a process that has ended. */
static int parent_of(const char *pid)
{
    char stat[512], *after;

    if (trii_proc_read(pid, "stat", stat, sizeof(stat)) == 0)
        return -1;
    after = strrchr(stat, ')');
    if (after == NULL || strlen(after) < 5 || after[2] == 'Z')
        return -1;
    return (int)strtol(after + 4, NULL, 10);
}

/* The process of an entry of /proc; 0 for what else is there. */
static int process_of(const char *name)
{
    return isdigit((unsigned char)*name) ? (int)strtol(name, NULL, 10) : 0;
}

/* Calls `kill` for our children by looking at every process there is. */
static int signal_children_slowly(int number, int except)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    int n = 0, self = getpid();

    if (proc == NULL)
        return 0;
    while ((entry = readdir(proc)) != NULL) {
        int pid = process_of(entry->d_name);

        if (pid == 0 || pid == except || pid == self || parent_of(entry->d_name) != self)
            continue;
        n++;
        kill(pid, number);
    }
    closedir(proc);
    return n;
}

static bool has_no_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

int trii_process_signal_children(int number, int except)
{
    char children[65536], *at = children, *end;
    int n = 0;

    if (has_no_children())
        return 0;
    /* The kernel's own list, where it was built with one and fits; the caller has one thread. */
    if (access("/proc/thread-self/children", R_OK) != 0)
        return signal_children_slowly(number, except);
    if (trii_proc_read("thread-self", "children", children, sizeof(children)) ==
        sizeof(children) - 1)
        return signal_children_slowly(number, except);
    for (;; at = end) {
        char name[16];
        int pid = (int)strtol(at, &end, 10);

        if (end == at)
            return n;
        snprintf(name, sizeof(name), "%d", pid);
        if (pid == except || parent_of(name) < 0)
            continue; /* the latter: ended, and not yet reaped */
        n++;
        kill(pid, number);
    }
}

static bool has_entry(const char *block, size_t bytes, const char *entry)
{
    for (size_t at = 0; at < bytes; at += strlen(block + at) + 1) {
        if (strcmp(block + at, entry) == 0)
            return true;
    }
    return false;
}

int trii_process_kill_marked(const char *entry)
{
    enum { MAX_ENVIRONMENT = 1 << 20 };
    char *block = trii_alloc(1, MAX_ENVIRONMENT, "environment of a process");
    DIR *proc = opendir("/proc");
    const struct dirent *file;
    int n = 0, self = getpid();

    while (block != NULL && proc != NULL && (file = readdir(proc)) != NULL) {
        int pid = process_of(file->d_name);
        size_t bytes;

        if (pid == 0 || pid == self || parent_of(file->d_name) < 0)
            continue;
        bytes = trii_proc_read(file->d_name, "environ", block, MAX_ENVIRONMENT);
        if (has_entry(block, bytes, entry)) {
            n++;
            kill(pid, SIGKILL);
        }
    }
    if (proc != NULL)
        closedir(proc);
    trii_free(block);
    return n;
}

tri_status trii_process_fork(int (*main)(void *arg), void *arg, const int *fds, int n_fds,
                             int *pid_out)
{
    sigset_t all, before;
    int pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        int next = 0;

        setsid();
        for (;;) { /* closes the gaps between the kept descriptors, in their order */
            int keep = INT_MAX;

            for (int i = 0; i < n_fds; i++)
                keep = fds[i] >= next && fds[i] < keep ? fds[i] : keep;
            if (keep > next)
                syscall(SYS_close_range, (unsigned)next, (unsigned)keep - 1, 0u);
            if (keep == INT_MAX)
                break;
            next = keep + 1;
        }
        _exit(main(arg));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return TRII_FAIL(TRI_ERR_IO, "fork: %s", strerror(errno));
    *pid_out = pid;
    return TRI_OK;
}

void trii_process_wait(int pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* --- facts -------------------------------------------------------------------------- */

tri_status trii_process_become(const char *path, const char *const *argv)
{
    execv(path, (char *const *)(uintptr_t)argv);
    return TRII_FAIL(errno == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO, "cannot run %s: %s", path,
                     strerror(errno));
}

tri_status trii_process_own_path(char *path_out, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path_out, bytes - 1);

    if (length < 0)
        return TRII_FAIL(TRI_ERR_IO, "/proc/self/exe: %s", strerror(errno));
    path_out[length] = '\0';
    return TRI_OK;
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static tri_status not_executable(const char *path)
{
    size_t length = strlen(path);
    bool shell = length > 3 && strcmp(path + length - 3, ".sh") == 0;

    return TRII_FAIL(TRI_ERR_IO, "cannot run %s: it is not executable; chmod +x %s%s%s", path, path,
                     shell ? ", or run sh " : "", shell ? path : "");
}

tri_status trii_process_find(const char *name, char *path_out, size_t bytes)
{
    const char *search = getenv("PATH");
    char path[PATH_MAX];
    struct stat st;

    if (strlen(name) >= sizeof(path) || strlen(name) >= bytes)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "program name is too long");
    if (strchr(name, '/') != NULL) {
        if (stat(name, &st) != 0)
            return TRII_FAIL(TRI_ERR_NOT_FOUND, "cannot run %s: %s", name, strerror(errno));
        if (!is_program(name))
            return S_ISREG(st.st_mode) ? not_executable(name)
                                       : TRII_FAIL(TRI_ERR_IO, "cannot run %s: it is %s", name,
                                                   S_ISDIR(st.st_mode) ? "a folder" : "no file");
        snprintf(path_out, bytes, "%s", name);
        return TRI_OK;
    }
    if (search == NULL || *search == '\0')
        search = "/usr/local/bin:/usr/bin:/bin";
    while (*name != '\0' && *search != '\0') {
        size_t length = strcspn(search, ":");
        int used = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, search,
                            length > 0 ? "/" : "./", name);

        search += length + (search[length] == ':');
        if (used > 0 && (size_t)used < sizeof(path) && (size_t)used < bytes && is_program(path)) {
            snprintf(path_out, bytes, "%s", path);
            return TRI_OK;
        }
    }
    snprintf(path, sizeof(path), "./%s", name);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) != 0)
        return not_executable(path);
    return TRII_FAIL(TRI_ERR_NOT_FOUND, "cannot find program %s in PATH%s%s", name,
                     is_program(path) ? "; did you mean " : "", is_program(path) ? path : "");
}

void trii_process_signal_self(int number)
{
    (void)kill(getpid(), number);
}

bool trii_process_is_stopped(int pid)
{
    char state = trii_proc_state(pid);

    return state == 'T' || state == 't';
}

bool trii_process_exists(int pid)
{
    char state = trii_proc_state(pid);

    return state != 'X' && state != 'Z';
}

int trii_process_id(void)
{
    return getpid();
}

void trii_process_host(char *name_out, size_t bytes)
{
    if (gethostname(name_out, bytes) != 0 || name_out[0] == '\0')
        snprintf(name_out, bytes, "localhost");
    name_out[bytes - 1] = '\0';
}

void trii_process_command_line(char *text_out, size_t bytes)
{
    char block[512];
    size_t got = trii_proc_read("self", "cmdline", block, sizeof(block) - 1), at = 0;

    block[got] = '\0';
    for (size_t i = 0; i < got && block[i] != '\0'; i++)
        at = block[i] == '/' ? i + 1 : at;
    for (size_t i = at; i + 1 < got; i++) {
        if (block[i] == '\0' || block[i] == '\n')
            block[i] = ' ';
    }
    snprintf(text_out, bytes, "%s", block + at);
}

const char *const *trii_process_environment(void)
{
    static const char *const none[] = {NULL};

    return environ != NULL ? (const char *const *)environ : none; /* after clearenv */
}
