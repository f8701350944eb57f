/*
 * main.c - `trireme COMMAND [ARGS]`: finds the command. Each command is a file of its own
 * (command.h).
 */
#include "command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <trireme/export.h>

#include "base/err.h"
#include "base/param.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define VERSION TEXT(TRI_VERSION_MAJOR) "." TEXT(TRI_VERSION_MINOR) "." TEXT(TRI_VERSION_PATCH)

static const command *const commands[] = {
    &command_ckpt, &command_data, &command_info,  &command_perf,
    &command_plot, &command_ps,   &command_store, &command_why,
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
    fputs("usage: trireme COMMAND [ARGS]\n\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n`trireme COMMAND --help` says more; --version prints the version.\n"
          "Exit status: 0 ok, 1 failed, 2 wrong usage.\n",
          out);
}

int command_usage(const char *name, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "trireme %s: ", name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n`trireme %s --help` shows the usage.\n", name);
    return COMMAND_USAGE;
}

/* "; did you mean X?", or nothing. */
static void print_nearest(const char *given, const char *const *names)
{
    const char *nearest;
    int n = 0;

    while (names[n] != NULL)
        n++;
    nearest = trii_name_nearest(given, strcspn(given, "="), names, n);
    if (nearest != NULL)
        fprintf(stderr, "; did you mean %s?", nearest);
}

int command_unknown(const char *name, const char *what, const char *given, const char *const *names)
{
    fprintf(stderr, "trireme %s: %s %s", name, what, given);
    print_nearest(given, names);
    fprintf(stderr, "\n`trireme %s --help` shows the usage.\n", name);
    return COMMAND_USAGE;
}

int command_option(const char *const *names, int n_values, int argc, char **argv, int *i_io,
                   char **value_out)
{
    char *text = argv[*i_io];
    size_t length = strcspn(text, "=");

    for (int k = 0; names[k] != NULL; k++) {
        if (strlen(names[k]) != length || strncmp(text, names[k], length) != 0)
            continue;
        if (k >= n_values)
            return text[length] == '=' ? -1 : k;
        if (text[length] == '=')
            *value_out = text + length + 1;
        else
            *value_out = *i_io + 1 < argc ? argv[++*i_io] : NULL;
        return k;
    }
    return -1;
}

static bool loss_is_told;

tri_status command_flush(void)
{
    bool lost = ferror(stdout) != 0; /* and errno is long another one's */

    errno = 0;
    if (lost) /* what failed then fails again, and says why */
        (void)fputc('\n', stdout);
    if (fflush(stdout) == 0 && !lost)
        return TRI_OK;
    loss_is_told = true;
    return TRII_FAIL(TRI_ERR_IO, "cannot write to stdout%s%s", errno != 0 ? ": " : "",
                     errno != 0 ? strerror(errno) : "");
}

/* The disk is full, or the reader has gone: a status without a line would be a riddle. */
static int finish(const char *name, int result)
{
    bool is_told = loss_is_told;

    if (command_flush() == TRI_OK)
        return result;
    if (!is_told)
        fprintf(stderr, "trireme %s: %s\n", name, tri_last_error());
    return COMMAND_FAILED;
}

/* After the command, or after what it is to do (`trireme ckpt show --help`). */
static bool asks_for_help(int argc, char **argv, int i)
{
    return argc > i && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0);
}

int main(int argc, char **argv)
{
    const char *names[N_COMMANDS + 1] = {NULL};

    if (argc < 2) {
        print_help(stderr);
        return COMMAND_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("trireme " VERSION);
        return finish(argv[1], COMMAND_OK);
    }
    if (asks_for_help(argc, argv, 1) || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return finish(argv[1], COMMAND_OK);
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[1], commands[i]->name) != 0)
            continue;
        if (asks_for_help(argc, argv, 2) || asks_for_help(argc, argv, 3)) {
            fputs(commands[i]->help, stdout);
            return finish(argv[1], COMMAND_OK);
        }
        return finish(argv[1], commands[i]->run(argc - 1, argv + 1));
    }
    fprintf(stderr, "trireme: no command named %s", argv[1]);
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    print_nearest(argv[1], names);
    fputs("\n`trireme --help` lists the commands.\n", stderr);
    return COMMAND_USAGE;
}
