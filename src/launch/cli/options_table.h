/*
 * options_table.h - every flag of trirun, one row each: its names, what its value means and where
 * that is kept, its default, its help.
 */
#ifndef TRII_LAUNCH_OPTIONS_TABLE_H
#define TRII_LAUNCH_OPTIONS_TABLE_H

#include "base/compiler.h"
#include "launch/cli/options.h"

enum { TRII_OPTIONS = 44 };

/* What the text of an option means, and so the type of its field. Those that torchrun's argparse
 * checks come first. */
typedef enum trii_option_kind {
    TRII_OPTION_TEXT,    /* const char *; NULL where it is empty and has no default */
    TRII_OPTION_FLAG,    /* bool; takes no value */
    TRII_OPTION_CHOICE,  /* const char *, one of the row's choices */
    TRII_OPTION_SECONDS, /* int64_t, in milliseconds */
    TRII_OPTION_SIZE,    /* int64_t, in bytes */
    TRII_OPTION_NUMBER,  /* int, from 0 to the row's maximum */
    TRII_OPTION_STREAMS, /* trii_std_spec */
    TRII_OPTION_NUMBERS, /* const char *, a comma list */
    TRII_OPTION_KINDS
} trii_option_kind;

typedef struct trii_option_row {
    const char *name; /* with - */
    char letter;      /* 0 = none */
    trii_option_kind kind;
    size_t field;        /* its offset in trii_launch_options; 0 = accepted and ignored */
    int max;             /* of a number */
    bool no_environment; /* has no PET_ twin */
    bool ours;           /* torchrun has none: its beginnings give way to torchrun's names */
    bool distinct;       /* programs have no option of this name: after PROGRAM it is a slip */
    const char *fallback;
    const char *choices; /* "a|b" */
    const char *value;   /* its name in --help */
    const char *help;
} trii_option_row;

extern const trii_option_row trii_option_rows[TRII_OPTIONS];

/* What was given, before it has a meaning. */
typedef struct trii_option_values {
    const char *text[TRII_OPTIONS]; /* NULL = not given */
    char name[TRII_OPTIONS][40];    /* for messages: as it was given, "--nnodes" or "PET_NNODES" */
    int exit_status;                /* of trirun when it is wrong */
} trii_option_values;

/* Fills all of options but flags, program and args. Errors: INVALID_ARG, values->exit_status is
 * set. */
tri_status trii_option_values_read(trii_option_values *values,
                                   trii_launch_options *options) TRI_MUST_CHECK;

#endif
