/*
 * command_line.h - command lines for the examples: a table of options, --help, clear mistakes.
 */
#ifndef EXAMPLES_COMMAND_LINE_H
#define EXAMPLES_COMMAND_LINE_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#define OPTION_MAX 2147483647.0

typedef struct option {
    const char *name;  /* "--epochs"; "DIR", without dashes: the next argument without a name */
    const char *also;  /* another spelling of it: "-e" */
    const char *help;  /* with the default; NULL: --help leaves it out */
    const char *value; /* what --help calls the value of a text: NULL = PATH */
    /* exactly one of these is set: where the value goes; or, for an option that only the program
     * has that this one follows, what to do instead */
    int64_t *integer;
    double *number;
    const char **text;
    bool *flag; /* takes no value */
    const char *remedy;
    double min; /* of integer and number */
    double max; /* 0: OPTION_MAX */
    bool required;
} option;

static inline double option_max(const option *o)
{
    return o->max > 0 ? o->max : OPTION_MAX;
}

static const char *program_name = ""; /* without its folder */
static char program_folder[1024];     /* as it was called: "build/bin/", or "" */

/* Whether this worker has met those that its launcher has started beside it. */
static inline bool others_met(void)
{
    if (strcmp(tri_launcher(), "none") == 0)
        return false;
    return tri_is_initialized() ||
           tri_init(&(tri_init_options){.group = {.timeout_ms = 10000}}) == TRI_OK;
}

static inline bool others_await(void)
{
    return tri_barrier(NULL, NULL) == TRI_OK;
}

/* Comes before a mistake is printed. All workers of a job find the same one: rank 0 says it, and
 * the others wait until it has, and then for its end, for which the launcher ends them. */
static inline void mistake_begin(void)
{
    if (!others_met() || tri_rank() == 0 || !others_await())
        return;
    (void)others_await();
    exit(2);
}

/* Comes after it. */
static inline _Noreturn void mistake_end(void)
{
    if (others_met() && tri_rank() == 0)
        (void)others_await();
    exit(2);
}

/* One line, and the exit status of a wrong command line. */
static inline _Noreturn void options_refuse(const char *format, ...) TRI_PRINTF(1, 2);
static inline _Noreturn void options_refuse(const char *format, ...)
{
    va_list list;

    mistake_begin();
    fprintf(stderr, "%s: ", program_name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    mistake_end();
}

static inline void options_help(const char *usage, const option *options, int n)
{
    printf("%s\n\noptions:\n", usage);
    for (int i = 0; i < n; i++) {
        const option *o = &options[i];
        const char *value = o->value != NULL ? o->value : o->text != NULL ? "PATH" : "N";
        char names[64];

        if (o->help == NULL)
            continue;
        snprintf(names, sizeof(names), "%s%s%s", o->also != NULL ? o->also : "",
                 o->also != NULL ? ", " : "", o->name);
        printf("  %s %-*s %s\n", names, 19 - (int)strlen(names),
               o->flag != NULL || o->name[0] != '-' ? "" : value, o->help);
    }
    printf("  --help               this text\n");
}

static inline bool option_set(const option *o, const char *value)
{
    char *end = NULL;
    double number = 0;

    if (o->text != NULL) {
        *o->text = value;
        return true;
    }
    if (o->integer != NULL) {
        *o->integer = strtoll(value, &end, 10);
        number = (double)*o->integer;
    } else {
        *o->number = number = strtod(value, &end);
    }
    return end != value && *end == '\0' && number >= o->min && number <= option_max(o);
}

/* Which option, which value, what would be right. */
static inline _Noreturn void option_mistake(const char *argument, const option *o,
                                            const char *value)
{
    static const char more[] = "(--help lists the options)";

    if (o == NULL && argument[0] == '-')
        options_refuse("unknown option %s %s", argument, more);
    if (o == NULL)
        options_refuse("%s: one argument too many %s", argument, more);
    if (o->remedy != NULL)
        options_refuse("%s: %s %s", o->name, o->remedy, more);
    if (o->flag != NULL)
        options_refuse("%s takes no value %s", o->name, more);
    if (value == NULL)
        options_refuse("%s %s %s", o->name, argument == NULL ? "is missing" : "needs a value",
                       more);
    options_refuse("%s %s: must be a %s from %.0f to %.0f %s", o->name, value,
                   o->integer != NULL ? "whole number" : "number", o->min, option_max(o), more);
}

/* At exit: a full disk, or a reader that is gone, may not have taken all that was printed. Then the
 * status is 1, and stderr says why. */
static inline void output_check(void)
{
    bool lost = ferror(stdout) != 0;

    errno = 0;
    if (fflush(stdout) == 0 && !lost)
        return;
    fprintf(stderr, "%s: cannot write to stdout%s%s\n", program_name, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    _Exit(1);
}

/* Comes before the options: what is printed from here on is checked when the program ends. */
static inline void options_begin(const char *program)
{
    const char *slash = strrchr(program, '/');

    program_name = slash != NULL ? slash + 1 : program;
    snprintf(program_folder, sizeof(program_folder), "%.*s", (int)(program_name - program),
             program);
    atexit(output_check);
}

/* The option that an argument names, with the value in "--epochs=3"; or the next one without a name
 * that is not `given`. */
static inline const option *option_find(const option *options, int n, uint64_t given,
                                        const char *argument, const char **value_out)
{
    size_t length = strncmp(argument, "--", 2) == 0 ? strcspn(argument, "=") : strlen(argument);

    *value_out = argument[length] == '=' ? argument + length + 1 : NULL;
    for (int k = 0; k < n; k++) {
        const char *const names[] = {options[k].name, options[k].also};

        for (int i = 0; i < 2; i++) {
            if (names[i] != NULL && names[i][0] == '-' && strlen(names[i]) == length &&
                strncmp(names[i], argument, length) == 0)
                return &options[k];
        }
        if (options[k].name[0] != '-' && argument[0] != '-' && !(given >> k & 1)) {
            *value_out = argument;
            return &options[k];
        }
    }
    return NULL;
}

/* Fills n options, at most 64; exits with 0 after --help, with 2 after a mistake. */
static inline void options_read(int argc, char **argv, const char *usage, const option *options,
                                int n)
{
    uint64_t given = 0;

    options_begin(argv[0]);
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        const option *found = option_find(options, n, given, argument, &value);

        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            if (!others_met() || tri_rank() == 0)
                options_help(usage, options, n);
            tri_finalize();
            exit(0);
        }
        if (found == NULL || found->remedy != NULL || (found->flag != NULL && value != NULL))
            option_mistake(argument, found, value);
        given |= UINT64_C(1) << (found - options);
        if (found->flag != NULL) {
            *found->flag = true;
            continue;
        }
        if (value == NULL && i + 1 < argc)
            value = argv[++i];
        if (value == NULL || !option_set(found, value))
            option_mistake(argument, found, value);
    }
    for (int k = 0; k < n; k++) {
        if (options[k].required && !(given >> k & 1))
            option_mistake(NULL, &options[k], NULL);
    }
}

/* For an array of options. */
#define options_parse(argc, argv, usage, options)                                                  \
    options_read(argc, argv, usage, options, (int)(sizeof(options) / sizeof((options)[0])))

/* For a program without options. */
static inline void options_none(int argc, char **argv, const char *usage)
{
    options_read(argc, argv, usage, NULL, 0);
}

#endif
