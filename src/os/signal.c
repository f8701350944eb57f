/*
 * signal.c - see signal.h.
 */
/* build: leaf */
#include "os/signal.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/param.h"
#include "os/descriptor.h"

static const struct {
    int number;
    const char *name;
} names[] = {
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGCHLD, "SIGCHLD"},
    {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGSYS, "SIGSYS"},   {SIGWINCH, "SIGWINCH"},
    {SIGIO, "SIGIO"},         {SIGPWR, "SIGPWR"},
};

const char *trii_signal_name(int number)
{
    static _Thread_local char unnamed[24];

    for (size_t i = 0; i < TRII_COUNT_OF(names); i++) {
        if (names[i].number == number)
            return names[i].name;
    }
    snprintf(unnamed, sizeof(unnamed), "signal %d", number);
    return unnamed;
}

int trii_signal_at(size_t i)
{
    return i < TRII_COUNT_OF(names) ? names[i].number : 0;
}

int trii_signal_number(const char *name)
{
    int64_t number;

    for (size_t i = 0; i < TRII_COUNT_OF(names); i++) {
        if (strcmp(names[i].name, name) == 0 || strcmp(names[i].name + 3, name) == 0)
            return names[i].number;
    }
    return trii_parse_i64(name, "signal", 1, 64, &number) == TRI_OK ? (int)number : 0;
}

bool trii_signal_is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void trii_signal_ignore(int number)
{
    struct sigaction action = {.sa_handler = SIG_IGN};

    sigaction(number, &action, NULL);
}

tri_status trii_signal_open(const int *numbers, int n, int *fd_out)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    for (int i = 0; i < n; i++) {
        struct sigaction action = {.sa_handler = SIG_DFL};

        /* Linux queues an ignored signal that is blocked, but while SIGCHLD is ignored children
         * vanish without a status. */
        sigaction(numbers[i], &action, NULL);
        sigaddset(&set, numbers[i]);
    }
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return TRII_FAIL(TRI_ERR_IO, "sigprocmask: %s", strerror(errno));
    fd = trii_fd_above_standard(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "signalfd: %s", strerror(errno));
    *fd_out = fd;
    return TRI_OK;
}

int trii_signal_next(int fd, int *value_out)
{
    struct signalfd_siginfo info;

    if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    if (value_out != NULL)
        *value_out = info.ssi_code == SI_QUEUE ? info.ssi_int : 0;
    return (int)info.ssi_signo;
}
