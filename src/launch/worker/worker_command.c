/*
 * worker_command.c - see worker_command.h. tools/trirun checks the program before anything is
 * started, attempt.c builds the command line of each worker, dry_run.c shows it.
 */
#include "launch/worker/worker_command.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/worker/template.h"
#include "os/file.h"
#include "os/process.h"

#define STDIN_PROGRAM "-" /* Python reads it from standard input */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* Whether the kernel would not know what to do with it, though it may be executed: no #!, and
 * nothing but text. */
static bool is_bare_text(const char *path)
{
    FILE *file = trii_path_is_file(path) ? fopen(path, "r") : NULL;
    char head[256];
    size_t got;

    if (file == NULL)
        return false;
    got = fread(head, 1, sizeof(head), file);
    fclose(file);
    return (got < 2 || memcmp(head, "#!", 2) != 0) && memchr(head, '\0', got) == NULL;
}

/* What Python runs though it cannot be executed: torchrun gives everything to Python, so a script
 * of any name must work. An executable file is a program of its own. */
static bool is_for_python(const char *program)
{
    char path[TRII_COMMAND_PATH_BYTES], found[TRII_COMMAND_PATH_BYTES], head[64] = "";
    FILE *file;

    if (strcmp(program, STDIN_PROGRAM) == 0 || ends_with(program, ".py") ||
        ends_with(program, ".pyc") || ends_with(program, ".pyz"))
        return true;
    if (trii_process_find(program, path, sizeof(path)) == TRI_OK)
        return strchr(program, '/') != NULL && !ends_with(program, ".sh") && is_bare_text(path);
    snprintf(path, sizeof(path), "%s/__main__.py", program);
    if (trii_path_exists(path))
        return true;
    snprintf(path, sizeof(path), "%s%s", strchr(program, '/') != NULL ? "" : "./", program);
    if (trii_process_find(path, found, sizeof(found)) == TRI_OK)
        return false; /* the user meant to write ./ */
    if (ends_with(program, ".sh"))
        return false;
    snprintf(path, sizeof(path), "%s/.", program);
    if (trii_path_exists(path))
        return true; /* refused below, unless it is a program of Python's */
    file = trii_path_is_file(program) ? fopen(program, "r") : NULL; /* a pipe would wait */
    if (file == NULL)
        return false;
    head[fread(head, 1, sizeof(head) - 1, file)] = '\0';
    fclose(file);
    return strncmp(head, "\177ELF", 4) != 0 &&
           (strncmp(head, "#!", 2) != 0 || strstr(head, "python") != NULL);
}

/* What cannot be run, though it would be given to Python. */
static tri_status refuse_sources(const char *program)
{
    static const char *const ends[] = {".c", ".h", ".cc", ".cpp", ".cxx", ".cu", ".o"};
    static const char *const kinds[] = {"C source",   "a C header",  "C++ source",    "C++ source",
                                        "C++ source", "CUDA source", "an object file"};
    char path[TRII_COMMAND_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/.", program);
    if (trii_path_exists(path)) {
        snprintf(path, sizeof(path), "%s/__main__.py", program);
        if (!trii_path_exists(path))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is a folder, not a program", program);
    }
    for (size_t i = 0; i < TRII_COUNT_OF(ends); i++) {
        int length = (int)(strlen(program) - (ends_with(program, ends[i]) ? strlen(ends[i]) : 0));

        if (program[length] != '\0')
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG, "%s is %s, not a program; did you mean %s%.*s, built from it?",
                program, kinds[i], strchr(program, '/') != NULL ? "" : "./", length, program);
    }
    return TRI_OK;
}

static void add_head(trii_launch_command *command, const char *word)
{
    command->head[command->n_head++] = word;
}

/* The interpreter and its flags, up to the script or module. */
static tri_status use_python(trii_launch_command *command, const trii_launch_options *options)
{
    const char *python = getenv("PYTHON_EXEC");

    bool is_stdin = strcmp(options->program, STDIN_PROGRAM) == 0 && !options->run_path;

    if (!options->module && !is_stdin && !trii_path_exists(options->program))
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "cannot run %s: no such script", options->program);
    add_head(command, python != NULL && *python ? python : "python3");
    add_head(command, "-u");
    if (options->run_path) {
        add_head(command, "-c");
        add_head(command, "import runpy, sys; sys.argv = sys.argv[1:]; "
                          "runpy.run_path(sys.argv[0], run_name='__main__')");
    } else if (options->module) {
        add_head(command, "-m");
    }
    return TRI_OK;
}

tri_status trii_launch_command_find(trii_launch_command *command,
                                    const trii_launch_options *options)
{
    const char *program = options->program;
    bool named = options->run_path || options->module; /* as a script or module */
    bool guessed = !named && !options->no_python && is_for_python(program);
    tri_status status = guessed ? refuse_sources(program) : TRI_OK;

    memset(command, 0, sizeof(*command));
    command->args = options->args;
    command->local_rank_arg = options->launch_compat;
    if (status == TRI_OK && (named || guessed))
        status = use_python(command, options);
    if (status != TRI_OK)
        return status;
    add_head(command, program);
    return trii_process_find(command->head[0], command->path, sizeof(command->path));
}

tri_status trii_launch_command_argv(const trii_launch_command *command, int local_rank,
                                    const char ***argv_out)
{
    size_t n_args = 0, bytes = 0, n = (size_t)command->n_head;
    const char **argv;
    char rank[16], *text, *end;
    const trii_template_variable variable = {"local_rank", rank};

    snprintf(rank, sizeof(rank), "%d", local_rank);
    for (; command->args[n_args] != NULL; n_args++)
        bytes += trii_template_fill(command->args[n_args], &variable, 1, NULL, 0) + 1;
    bytes += sizeof("--local-rank=") + sizeof(rank);
    argv = trii_alloc(1, (n + n_args + 2) * sizeof(*argv) + bytes, "arguments of a worker");
    if (argv == NULL)
        return TRI_ERR_NO_MEMORY;
    text = (char *)(argv + n + n_args + 2);
    end = text + bytes;
    memcpy(argv, command->head, n * sizeof(*argv));
    if (command->local_rank_arg) {
        argv[n++] = text;
        text += snprintf(text, sizeof("--local-rank=") + sizeof(rank), "--local-rank=%s", rank) + 1;
    }
    for (size_t i = 0; i < n_args; i++) {
        argv[n++] = text;
        text += trii_template_fill(command->args[i], &variable, 1, text, (size_t)(end - text)) + 1;
    }
    *argv_out = argv;
    return TRI_OK;
}
