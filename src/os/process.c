/*
 * process.c - see process.h.
 */
#include "os/process.h"

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
