/*
 * curves.c - plots of metrics, drawn by the tool, so that a training program need not load a
 * drawing library.
 */
#include <stdio.h>

#include <trireme/trainer.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/program.h"

#define PATH_BYTES 4096
#define LIMIT_MS 60000

static tri_status find_tool(char path_out[PATH_BYTES])
{
    char dir[PATH_BYTES];
    tri_status status = trii_program_folder(dir, sizeof(dir));
    int n = status == TRI_OK ? snprintf(path_out, PATH_BYTES, "%s/trireme", dir) : 0;

    if (n > 0 && n < PATH_BYTES && trii_path_exists(path_out))
        return TRI_OK;
    return trii_process_find("trireme", path_out, PATH_BYTES);
}

tri_status tri_plot(const char *const *paths, int n_paths, const char *out_path)
{
    char tool[PATH_BYTES];
    const char **argv;
    trii_process_exit ended = {0};
    tri_status status;
    int n = 0;

    if (n_paths < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_plot: no file of metrics");
    status = trii_need_text(out_path, "tri_plot", "out_path");
    if (status == TRI_OK)
        status = trii_need(paths, "tri_plot", "paths");
    for (int i = 0; i < n_paths && status == TRI_OK; i++)
        status = trii_need_text(paths[i], "tri_plot", "a path");
    if (status != TRI_OK)
        return status;
    status = find_tool(tool);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "plot %s", out_path);
    argv = trii_alloc((size_t)n_paths + 6, sizeof(*argv), "arguments");
    if (argv == NULL)
        return TRI_ERR_NO_MEMORY;
    argv[n++] = tool;
    argv[n++] = "plot";
    argv[n++] = "-o";
    argv[n++] = out_path;
    argv[n++] = "--";
    for (int i = 0; i < n_paths; i++)
        argv[n++] = paths[i];
    status = trii_program_run(argv, trii_deadline_ms(LIMIT_MS), &ended);
    trii_free(argv);
    if (status == TRI_OK && (ended.signal != 0 || ended.code != 0))
        status = TRII_FAIL(TRI_ERR_IO, "%s plot -o %s ended with %s %d", tool, out_path,
                           ended.signal != 0 ? "signal" : "exit code",
                           ended.signal != 0 ? ended.signal : ended.code);
    return status;
}
