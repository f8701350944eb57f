/*
 * process.c - see process.h.
 */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/interpreter.h"
#include "os/limits.h"
#include "os/proc.h"

extern char **environ;

/* Room for the child between clone and exec; it runs a handful of system calls. */
#define CHILD_STACK_BYTES 32768

/* What the child tells us until exec, in memory that both see. */
typedef struct child_outcome {
    bool began;
    int error; /* errno of the call that failed */
    const char *failed_call;
} child_outcome;

typedef struct child_args {
    const trii_process_spec *spec;
    int parent;
    int group_fd; /* of cgroup.procs of the group into which it shall move; -1 = none */
    child_outcome *outcome;
} child_args;

static int child_fail(const child_args *args, const char *call)
{
    args->outcome->error = errno;
    args->outcome->failed_call = call;
    _exit(127);
}

/* Moves fd to `target`; a descriptor that is there already loses its close-on-exec flag. */
static int move_fd(int fd, int target)
{
    if (fd < 0)
        return 0;
    return fd == target ? fcntl(fd, F_SETFD, 0) : dup2(fd, target);
}

/* Runs while the parent sleeps, in its memory: system calls only. Does not return. */
static int child_main(void *arg)
{
    const child_args *args = arg;
    const trii_process_spec *spec = args->spec;
    struct sigaction action = {.sa_handler = SIG_DFL};
    ssize_t moved = 0;
    sigset_t none;

    args->outcome->began = true;
    if (args->group_fd >= 0)
        moved = write(args->group_fd, "0", 1);
    (void)moved; /* if it must not, it runs where we are */
    if (setsid() < 0)
        return child_fail(args, "setsid");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return child_fail(args, "prctl");
    if (getppid() != args->parent)
        _exit(127); /* our parent ended before it could be watched */
    if (move_fd(spec->in_fd, 0) < 0 || move_fd(spec->out_fd, 1) < 0 || move_fd(spec->err_fd, 2) < 0)
        return child_fail(args, "dup2");
    if (spec->keep_fd > 2 && fcntl(spec->keep_fd, F_SETFD, 0) != 0)
        return child_fail(args, "fcntl");
    if (spec->only_standard)
        syscall(SYS_close_range, 3u, ~0u, 0u);
    if (spec->cores != NULL && /* the kernel's own form is the same words */
        syscall(SYS_sched_setaffinity, 0, sizeof(spec->cores->words), spec->cores->words) != 0)
        return child_fail(args, "sched_setaffinity");
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
    trii_descriptor_limit_restore();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* execve takes char *const *, and writes to neither. */
    execve(spec->path, (char *const *)(uintptr_t)spec->argv, (char *const *)(uintptr_t)spec->envp);
    return child_fail(args, "exec");
}

/* Begins the child in its control group, which only clone3 can, and C has no way to give that a
 * stack: its process id, or -1. What else keeps a process that the child starts at once in the
 * group takes longer: to begin in ours and to move by cgroup.procs waits for other users of a lock
 * of the kernel (one start in ten takes 15 ms instead of 1), and a child with a copy of our memory
 * costs 0.4 ms more. */
#if defined(__x86_64__) && !TRII_ASAN && !TRII_TSAN
static int start_inside(child_args *args, char *stack, int *pidfd_out)
{
    struct clone_args how = {.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_INTO_CGROUP,
                             .pidfd = (uint64_t)(uintptr_t)pidfd_out,
                             .exit_signal = SIGCHLD,
                             .stack = (uint64_t)(uintptr_t)stack,
                             .stack_size = CHILD_STACK_BYTES,
                             .cgroup = (uint64_t)*args->spec->cgroup_fd};
    register int (*run)(void *) __asm__("r8") = child_main; /* these two the kernel preserves */
    register void *arg __asm__("r9") = args;
    long pid;

    __asm__ volatile("syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t" /* the child: its stack is empty and aligned */
                     "movq %%r9, %%rdi\n\t"
                     "callq *%%r8\n\t" /* does not return */
                     "hlt\n"
                     "1:"
                     : "=a"(pid)
                     : "0"((long)SYS_clone3), "D"(&how), "S"(sizeof(how)), "r"(run), "r"(arg)
                     : "rcx", "r11", "cc", "memory");
    if (pid >= 0)
        return (int)pid;
    errno = (int)-pid;
    return -1;
}
#else
/* Elsewhere, and under sanitizers so that it is tested, the child moves by itself. */
static int start_inside(child_args *args, char *stack, int *pidfd_out)
{
    (void)args;
    (void)stack;
    (void)pidfd_out;
    errno = ENOSYS;
    return -1;
}
#endif

/* ThreadSanitizer takes what a child does in our memory for ours: there it has a copy. */
#if TRII_TSAN
enum { SHARES_MEMORY = 0 };
#else
enum { SHARES_MEMORY = CLONE_VM };
#endif

static int start_beside(child_args *args, char *stack, int *pidfd_out)
{
    return clone(child_main, stack + CHILD_STACK_BYTES,
                 SHARES_MEMORY | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, args, pidfd_out);
}

/* In memory that a copy shares with us, too. NULL = none is left. */
static child_outcome *outcome_new(void)
{
    child_outcome *outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return outcome != MAP_FAILED ? outcome : NULL;
}

/* Some kernels (Linux 6.18 for one) compare how often our own group and that of the child were
 * killed, and kill a child at its birth in a group that was killed before: a second life after a
 * first whose leftovers were deaf. Such a child has not begun; the next one moves there by
 * itself. */
static int start_child(child_args *args, char *stack, int *pidfd_out)
{
    const int *group = args->spec->cgroup_fd;
    int pid;

    if (group == NULL)
        return start_beside(args, stack, pidfd_out);
    pid = start_inside(args, stack, pidfd_out);
    if (pid >= 0 && args->outcome->began)
        return pid;
    if (pid >= 0) {
        trii_process_wait(pid);
        close(*pidfd_out);
    }
    TRII_LOG(TRII_LOG_DEBUG, "os", "start in the control group: %s",
             /* an old kernel, a filter of system calls, no right to leave our own group */
             pid >= 0 ? "killed at once" : strerror(errno));
    args->group_fd = trii_fd_above_standard(openat(*group, "cgroup.procs", O_WRONLY | O_CLOEXEC));
    pid = start_beside(args, stack, pidfd_out);
    if (args->group_fd >= 0)
        close(args->group_fd);
    return pid;
}

tri_status trii_process_start(const trii_process_spec *spec, trii_process *process_out)
{
    child_outcome outcome, *shared = outcome_new();
    child_args args = {.spec = spec, .parent = getpid(), .group_fd = -1, .outcome = shared};
    sigset_t all, before;
    char *stack;
    int pid, pidfd = -1, error;

    if (shared == NULL)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "cannot start %s: mmap: %s", spec->path,
                         strerror(errno));
    stack = trii_alloc_aligned(4096, CHILD_STACK_BYTES, "stack of a new process");
    if (stack == NULL) {
        munmap(shared, sizeof(*shared));
        return TRI_ERR_NO_MEMORY;
    }
    /* No handler may run in the child while it shares our memory. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = start_child(&args, stack, &pidfd);
    error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    trii_free(stack);
    outcome = *shared;
    munmap(shared, sizeof(*shared));
    if (pid < 0)
        return TRII_FAIL(TRI_ERR_IO, "cannot start %s: clone: %s%s", spec->path, strerror(error),
                         trii_descriptors_hint(error));
    if (outcome.failed_call != NULL) {
        char interpreter[300];

        waitpid(pid, NULL, 0);
        close(pidfd);
        if (outcome.error == ENOENT &&
            trii_interpreter_missing(spec->path, interpreter, sizeof(interpreter)))
            return TRII_FAIL(
                TRI_ERR_NOT_FOUND, "cannot start %s: it is there, but what runs it is not: %s%s",
                spec->path, interpreter,
                strstr(interpreter, "\\r") != NULL ? " (its lines end in \\r\\n, as on Windows)"
                                                   : "");
        return TRII_FAIL(outcome.error == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO,
                         "cannot start %s: %s: %s", spec->path, outcome.failed_call,
                         strerror(outcome.error));
    }
    process_out->pid = pid;
    process_out->pidfd = trii_fd_above_standard(pidfd);
    if (process_out->pidfd >= 0)
        return TRI_OK;
    error = errno;
    kill(pid, SIGKILL);
    trii_process_wait(pid);
    return TRII_FAIL(TRI_ERR_IO, "cannot start %s: pidfd: %s%s", spec->path, strerror(error),
                     trii_descriptors_hint(error));
}

tri_status trii_process_reap(trii_process *process, trii_process_exit *exit_out)
{
    siginfo_t info = {0};
    struct rusage used = {0};

    /* glibc's waitid leaves out what the system's says of its use */
    if (syscall(SYS_waitid, P_PID, process->pid, &info, WEXITED | WNOHANG, &used) != 0)
        return TRII_FAIL(TRI_ERR_IO, "waitid of process %d: %s", process->pid, strerror(errno));
    if (info.si_pid == 0)
        return TRI_INPROGRESS;
    close(process->pidfd);
    process->pidfd = -1;
    exit_out->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    exit_out->code = info.si_code == CLD_EXITED ? info.si_status : 0;
    exit_out->core_dumped = info.si_code == CLD_DUMPED;
    exit_out->cpu_ns = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * TRII_NS_PER_S +
                       (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * (TRII_NS_PER_S / 1000000);
    return TRI_OK;
}

void trii_process_signal(const trii_process *process, int number)
{
    if (process->pidfd >= 0)
        kill(-process->pid, number);
}

void trii_process_wait(int pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* --- facts ---------------------------------------------------------------- */

tri_status trii_process_own_file(char *path_out, size_t bytes)
{
    static const char own[] = "/proc/self/exe";
    ssize_t length = readlink(own, path_out, bytes - 1);
    struct stat ours, named;

    if (length < 0 || stat(own, &ours) != 0)
        return TRII_FAIL(TRI_ERR_IO,
                         "%s: %s: a program can be started again only where /proc is "
                         "mounted",
                         own, strerror(errno));
    path_out[length] = '\0';
    if (stat(path_out, &named) != 0 || named.st_dev != ours.st_dev || named.st_ino != ours.st_ino)
        snprintf(path_out, bytes, "%s", own);
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
            return S_ISREG(st.st_mode)
                       ? not_executable(name)
                       : TRII_FAIL(TRI_ERR_IO, "cannot run %s: it is %s", name,
                                   S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
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

int trii_process_user(void)
{
    return (int)getuid();
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
