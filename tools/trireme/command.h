/*
 * command.h - the sub-commands of `trireme`: one file each, which exports its `command`.
 * A new one adds its declaration below and its name to main.c's table.
 */
#ifndef TRIREME_COMMAND_H
#define TRIREME_COMMAND_H

#include <trireme/status.h>

/* Exit status of every command. */
enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2 };

typedef struct command {
    const char *name;
    const char *summary; /* one line for `trireme --help` */
    const char *help;    /* what --help prints: usage, options, examples */
    /* argv[0] is the command's name; main has answered --help, and looks afterwards whether all
     * that was printed was taken. Returns the exit status. */
    int (*run)(int argc, char **argv);
} command;

extern const command command_ckpt;
extern const command command_data;
extern const command command_info;
extern const command command_perf;
extern const command command_plot;
extern const command command_ps;
extern const command command_store;
extern const command command_why;

/* `trireme info deepspeed FILE`; the exit status. */
int info_deepspeed(const char *path);

/* Writes out what was printed. IO if not all of it was taken; the caller tells that, which main
 * else does at the end. */
tri_status command_flush(void) TRI_MUST_CHECK;
/* Prints "trireme NAME: <message>" and how to get help to stderr; returns COMMAND_USAGE. */
int command_usage(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a word that is none of names[], which end with NULL: "trireme NAME: WHAT GIVEN; did
 * you mean ...?" What follows a = is no part of the word. */
int command_unknown(const char *name, const char *what, const char *given,
                    const char *const *names);
/* Which of names[], which end with NULL, argv[*i_io] is: "NAME VALUE" or "NAME=VALUE"; those from
 * n_values on have no value. *i_io then is its last word, and *value_out its value: NULL if that is
 * missing. -1: none of them. */
int command_option(const char *const *names, int n_values, int argc, char **argv, int *i_io,
                   char **value_out);

#endif
