/*
 * options.c - see options.h. Every flag may be spelled with - or _, its value follows after = or as
 * the next argument, and a unique beginning of a name is enough, as with argparse. Called by
 * tools/trirun; it only collects texts, options_meaning.c gives them their values.
 */
#include "launch/cli/options.h"

#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "base/param.h"
#include "launch/cli/options_table.h"

/* Under this name trirun is torch.distributed.launch: --launch-compat is on. */
#define COMPAT_NAME "trirun-launch"

static bool same_name(const char *given, size_t length, const char *name)
{
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '\0' || (given[i] == '_' ? '-' : given[i]) != name[i])
            return false;
    }
    return true;
}

/* With the name of the option that is most similar, if one is. */
static tri_status unknown_long(const char *given, size_t length)
{
    const char *names[TRII_OPTIONS], *best;
    char name[40];

    snprintf(name, sizeof(name), "%.*s", (int)length, given);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    for (int i = 0; i < TRII_OPTIONS; i++)
        names[i] = trii_option_rows[i].name;
    best = length < sizeof(name) ? trii_name_nearest(name, length, names, TRII_OPTIONS) : NULL;
    if (best == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown option --%.*s", (int)length, given);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown option --%.*s; did you mean --%s?", (int)length,
                     given, best);
}

/* The row that `given` names in full, or the only one that begins with it. What is unique with
 * torchrun stays so: its names come before the others. */
static tri_status find_long(const char *given, size_t length, int *row_out)
{
    int found = -1, second = -1;

    for (int i = 0; i < TRII_OPTIONS; i++) {
        const trii_option_row *row = &trii_option_rows[i];

        if (!same_name(given, length, row->name))
            continue;
        if (row->name[length] == '\0') {
            *row_out = i;
            return TRI_OK;
        }
        if (found < 0 || (trii_option_rows[found].ours && !row->ours))
            found = i, second = -1;
        else if (second < 0 && row->ours == trii_option_rows[found].ours)
            second = i;
    }
    if (second >= 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%.*s could be --%s or --%s", (int)length, given,
                         trii_option_rows[found].name, trii_option_rows[second].name);
    if (found < 0)
        return unknown_long(given, length);
    *row_out = found;
    return TRI_OK;
}

static tri_status find_letter(const char *arg, int *row_out)
{
    for (int i = 0; i < TRII_OPTIONS; i++) {
        if (trii_option_rows[i].letter != 0 && trii_option_rows[i].letter == arg[1]) {
            *row_out = i;
            return TRI_OK;
        }
    }
    if (strcmp(arg, "-n") == 0 || strcmp(arg, "-np") == 0)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "%s is an option of mpirun; use --nproc-per-node N for the workers of a host, and "
            "--nnodes N for hosts",
            arg);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown option -%c", arg[1]);
}

static void set_flag(trii_launch_options *options, const trii_option_row *row, bool on)
{
    memcpy((char *)options + row->field, &on, sizeof(on));
}

/* One option at argv[*at]; moves *at past it and its value. */
static tri_status parse_one(trii_option_values *values, trii_launch_options *options,
                            char *const *argv, int argc, int *at)
{
    const char *arg = argv[(*at)++];
    const char *value = NULL;
    const trii_option_row *row;
    tri_status status;
    int i;

    if (arg[1] == '-') {
        size_t length = strcspn(arg + 2, "=");

        status = find_long(arg + 2, length, &i);
        value = arg[2 + length] == '=' ? arg + 3 + length : NULL;
    } else {
        status = find_letter(arg, &i);
        value = arg[2] == '\0' ? NULL : arg + 2 + (arg[2] == '=');
    }
    if (status != TRI_OK)
        return status;
    row = &trii_option_rows[i];
    if (row->kind == TRII_OPTION_FLAG && value != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%s takes no value", row->name);
    if (row->kind == TRII_OPTION_FLAG) {
        set_flag(options, row, true);
        value = "1";
    } else if (value == NULL) {
        if (*at == argc)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "--%s needs a value: %s", row->name, row->value);
        value = argv[(*at)++];
    }
    values->text[i] = value;
    snprintf(values->name[i], sizeof(values->name[i]), "--%s", row->name);
    return TRI_OK;
}

/* The variable of a row, by which it is called from now on if it is set. */
static tri_status read_variable(trii_option_values *values, trii_launch_options *options, int i)
{
    const trii_option_row *row = &trii_option_rows[i];
    char name[sizeof(values->name[i])];
    int64_t on = 0;
    tri_status status = TRI_OK;

    snprintf(name, sizeof(name), "PET_%s", row->name);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    if (getenv(name) == NULL && row->field == offsetof(trii_launch_options, shutdown_timeout_ms))
        snprintf(name, sizeof(name), "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    values->text[i] = getenv(name);
    if (values->text[i] == NULL)
        return TRI_OK;
    memcpy(values->name[i], name, sizeof(name));
    if (row->kind == TRII_OPTION_FLAG) {
        status = trii_parse_i64(values->text[i], name, INT32_MIN, INT32_MAX, &on);
        set_flag(options, row, on != 0);
        if (on == 0)
            values->text[i] = NULL;
    }
    return status;
}

static tri_status read_environment(trii_option_values *values, trii_launch_options *options)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < TRII_OPTIONS && status == TRI_OK; i++) {
        snprintf(values->name[i], sizeof(values->name[i]), "--%s", trii_option_rows[i].name);
        if (!trii_option_rows[i].no_environment)
            status = read_variable(values, options, i);
    }
    return status;
}

/* The options before the program. *at_out: the place of the program, argc = there is none. */
static tri_status parse_all(trii_option_values *values, trii_launch_options *options, int argc,
                            char *const *argv, int *at_out)
{
    int at = 1;
    tri_status status = TRI_OK;

    while (status == TRI_OK && at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        status = parse_one(values, options, argv, argc, &at);
        if (options->help || options->version)
            break;
    }
    *at_out = at;
    return status;
}

static const char *base_name(const char *path)
{
    return strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
}

/* A program that takes the same options itself. */
static bool is_launcher(const char *word)
{
    const char *base = base_name(word);

    return strcmp(base, "trirun") == 0 || strcmp(base, COMPAT_NAME) == 0 ||
           strcmp(base, "torchrun") == 0 || strcmp(base, "torch.distributed.run") == 0 ||
           strcmp(base, "torch.distributed.launch") == 0;
}

/* The first argument that is an option of trirun, which trirun was not given itself: most likely it
 * was meant to come before the program. Arguments of another launcher or after -- are not. */
static char *const *find_misplaced(const trii_option_values *values, const char *program,
                                   char *const *args)
{
    bool whole = is_launcher(program);

    for (; *args != NULL && !whole && strcmp(*args, "--") != 0; args++) {
        size_t length = strncmp(*args, "--", 2) == 0 ? strcspn(*args + 2, "=") : 0;

        whole = is_launcher(*args);
        for (int i = 0; i < TRII_OPTIONS && length > 0; i++) {
            const char *name = trii_option_rows[i].name;

            if (trii_option_rows[i].distinct && values->text[i] == NULL && strlen(name) == length &&
                same_name(*args + 2, length, name))
                return args;
        }
    }
    return NULL;
}

tri_status trii_launch_options_parse(trii_launch_options *options_out, int argc, char *const *argv)
{
    trii_launch_options *options = options_out;
    trii_option_values values = {.exit_status = TRII_LAUNCH_FAILED};
    tri_status status;
    int at = 0;

    memset(options, 0, sizeof(*options));
    status = read_environment(&values, options);
    options->launch_compat =
        options->launch_compat || (argc > 0 && strcmp(base_name(argv[0]), COMPAT_NAME) == 0);
    if (status == TRI_OK) {
        values.exit_status = TRII_LAUNCH_USAGE;
        status = parse_all(&values, options, argc, argv, &at);
        if (status == TRI_OK && (options->help || options->version))
            return TRI_OK;
    }
    if (status == TRI_OK && at == argc)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "PROGRAM is missing (trirun [OPTIONS] PROGRAM [ARGS])");
    if (status == TRI_OK)
        status = trii_option_values_read(&values, options);
    options->exit_status = values.exit_status;
    if (status != TRI_OK)
        return status;
    options->program = argv[at];
    options->args = argv + at + 1;
    if (strcmp(argv[at - 1], "--") == 0)
        return TRI_OK;
    if (*options->args != NULL && strcmp(*options->args, "--") == 0)
        options->args++; /* as argparse: it belongs to the name of the program */
    else
        options->misplaced = find_misplaced(&values, options->program, options->args);
    return TRI_OK;
}

/* --- warnings ------------------------------------------------------------- */

/* With its value, if that is the next argument. */
static void check_place(const trii_launch_options *o, FILE *out)
{
    const char *option = o->misplaced != NULL ? o->misplaced[0] : NULL;
    const char *value = option != NULL ? o->misplaced[1] : NULL;

    if (option == NULL)
        return;
    if (value == NULL || value[0] == '-' || strchr(option, '=') != NULL)
        value = "";
    fprintf(out,
            "trirun: %s%s%.60s comes after %s and is passed to it as an argument: options of "
            "trirun come first, as in trirun %s%s%.60s %s (if it is meant for %s: trirun -- %s)\n",
            option, *value != '\0' ? " " : "", value, o->program, option, *value != '\0' ? " " : "",
            value, o->program, o->program, o->program);
}

void trii_launch_options_warn(const trii_launch_options *options, FILE *out)
{
    check_place(options, out);
    if (*options->signals == '\0')
        fputs("trirun: --signals-to-handle is empty: signals end trirun at once, and its workers "
              "with it\n",
              out);
    if (options->standalone && options->node_rank > 0)
        fprintf(out,
                "trirun: --node-rank %d is ignored: without an address this is a job of one "
                "host; for N hosts give all of them --nnodes N and --master-addr\n",
                options->node_rank);
}
