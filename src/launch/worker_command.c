/*
 * worker_command.c - see worker_command.h.
 */
#include "launch/worker_command.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/process.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

tri_status trii_launch_command_find(trii_launch_command *command,
                                    const trii_launch_options *options)
{
    const char *program = options->program;
    bool script = ends_with(program, ".py") || ends_with(program, ".pyc");

    memset(command, 0, sizeof(*command));
    command->args = options->args;
    if (options->module || (script && !options->no_python)) {
        const char *python = getenv("PYTHON_EXEC");
        FILE *file;

        command->head[command->n_head++] = python != NULL && *python ? python : "python3";
        command->head[command->n_head++] = "-u";
        if (options->module)
            command->head[command->n_head++] = "-m";
        file = options->module ? NULL : fopen(program, "r");
        if (file == NULL && !options->module)
            return TRII_FAIL(TRI_ERR_NOT_FOUND, "cannot run %s: no such script", program);
        if (file != NULL)
            fclose(file);
    }
    command->head[command->n_head++] = program;
    return trii_process_find(command->head[0], command->path, sizeof(command->path));
}

/* Length of the reference at `at` ("$$", "$local_rank", "${local_rank}"), as Python's
 * string.Template.safe_substitute sees it; 0 if it is none of those. */
static size_t reference(const char *at, const char **value_out, const char *rank)
{
    static const char name[] = "local_rank";
    size_t length = sizeof(name) - 1;

    *value_out = rank;
    if (at[0] != '$')
        return 0;
    if (at[1] == '$') {
        *value_out = "$";
        return 2;
    }
    if (at[1] == '{')
        return strncmp(at + 2, name, length) == 0 && at[2 + length] == '}' ? length + 3 : 0;
    if (strncmp(at + 1, name, length) != 0 || at[1 + length] == '_' ||
        isalnum((unsigned char)at[1 + length]))
        return 0;
    return length + 1;
}

/* Writes the substituted text to `to` (NULL = only measure); returns its length. */
static size_t substitute(const char *text, const char *rank, char *to)
{
    size_t used = 0;

    while (*text != '\0') {
        const char *value;
        size_t taken = reference(text, &value, rank);
        size_t length = taken > 0 ? strlen(value) : 1;

        if (to != NULL)
            memcpy(to + used, taken > 0 ? value : text, length);
        used += length;
        text += taken > 0 ? taken : 1;
    }
    if (to != NULL)
        to[used] = '\0';
    return used;
}

tri_status trii_launch_command_argv(const trii_launch_command *command, int local_rank,
                                    const char ***argv_out)
{
    size_t n_args = 0, bytes = 0, n;
    const char **argv;
    char rank[16], *text;

    snprintf(rank, sizeof(rank), "%d", local_rank);
    for (; command->args[n_args] != NULL; n_args++)
        bytes += substitute(command->args[n_args], rank, NULL) + 1;
    n = (size_t)command->n_head + n_args;
    argv = trii_alloc(1, (n + 1) * sizeof(*argv) + bytes, "arguments of a worker");
    if (argv == NULL)
        return TRI_ERR_NO_MEMORY;
    text = (char *)(argv + n + 1);
    for (int i = 0; i < command->n_head; i++)
        argv[i] = command->head[i];
    for (size_t i = 0; i < n_args; i++) {
        argv[(size_t)command->n_head + i] = text;
        text += substitute(command->args[i], rank, text) + 1;
    }
    *argv_out = argv;
    return TRI_OK;
}
