/*
 * worker_output.c - see worker_output.h. Called by attempt.c as a worker starts; opens pipes or
 * pseudo-terminals and log files, and hands the reading ends to output/output.h.
 */
#include "launch/worker/worker_output.h"

#include <stdio.h>
#include <string.h>

#include "launch/os/pipe.h"
#include "launch/os/pseudo_terminal.h"
#include "launch/output/escape.h"
#include "launch/worker/template.h"
#include "os/descriptor.h"
#include "os/terminal.h"

static const char *const stream_names[] = {"stdout", "stderr"};

static void go_on(void *arg)
{
    trii_outputs *outputs = arg;

    trii_sink_go_on(&outputs->out);
    trii_sink_go_on(&outputs->err);
}

static void warn(void *arg, const char *text)
{
    trii_outputs *outputs = arg;

    trii_sink_print(outputs->err_sink, "trirun: %s\n", text);
}

tri_status trii_outputs_init(trii_outputs *outputs, trii_loop *loop,
                             const trii_launch_options *options)
{
    tri_status status;

    memset(outputs, 0, sizeof(*outputs));
    outputs->options = options;
    status = trii_background_create(loop, go_on, warn, outputs, &outputs->files);
    if (status == TRI_OK)
        status = trii_sink_init(&outputs->out, loop, outputs->files, 1, stream_names[0]);
    if (status == TRI_OK)
        status = trii_sink_init(&outputs->err, loop, outputs->files, 2, stream_names[1]);
    outputs->err_sink = trii_fd_is_same(1, 2) ? &outputs->out : &outputs->err;
    if (outputs->err_sink != &outputs->out)
        outputs->out.complaints = outputs->err_sink;
    return status;
}

tri_status trii_outputs_prepare(trii_outputs *outputs, const char *run_id, const char *run_dir)
{
    tri_status status = trii_log_folder_create(&outputs->folder, outputs->options, run_id, run_dir);

    if (outputs->folder.warning[0] != '\0')
        trii_sink_print(outputs->err_sink, "trirun: %s\n", outputs->folder.warning);
    if (status == TRI_OK && outputs->folder.temporary)
        trii_sink_print(outputs->err_sink, "trirun: log files are in %s\n", outputs->folder.run);
    return status;
}

static void close_filtered(trii_outputs *outputs)
{
    for (int i = 0; i < 2; i++) {
        trii_background_close(outputs->filtered[i]);
        outputs->filtered[i] = NULL;
    }
}

static tri_status make_files(trii_outputs *outputs, int restart_count, int local_size)
{
    const char *lists[] = {outputs->options->stdout_filters, outputs->options->stderr_filters};
    tri_status status = trii_log_folder_attempt(&outputs->folder, restart_count, local_size);

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        char path[TRII_LOG_PATH_BYTES];

        if (lists[i] == NULL || outputs->folder.run[0] == '\0')
            continue;
        snprintf(path, sizeof(path), "%s/filtered_%s.log", outputs->folder.attempt,
                 stream_names[i]);
        status = trii_log_file_open(path, outputs->options->log_max_bytes, outputs->files,
                                    &outputs->filtered[i]);
    }
    return status;
}

tri_status trii_outputs_attempt(trii_outputs *outputs, int restart_count, int local_size)
{
    tri_status status;

    close_filtered(outputs);
    status = make_files(outputs, restart_count, local_size);
    if (status != TRI_OK && outputs->begun) {
        trii_sink_print(outputs->err_sink,
                        "trirun: cannot create the log files of this attempt: %s\n",
                        tri_last_error());
        outputs->folder.attempt[0] = '\0';
        return TRI_OK;
    }
    outputs->begun = true;
    return status;
}

static void make_label(const trii_outputs *outputs, const trii_launch_job *job, int local_rank,
                       char *label, size_t bytes)
{
    const char *text = outputs->options->line_prefix;
    char role[TRII_STREAM_LABEL_BYTES - 16], local[16], global[16];
    const trii_template_variable variables[] = {
        {"role_name", role}, {"local_rank", local}, {"rank", global}};

    if (text == NULL) /* trirun's for --label-output, torchrun's for what is teed */
        text = outputs->options->label_output ? "[${rank}]: " : "[${role_name}${local_rank}]:";
    trii_text_plain(outputs->options->role, role, sizeof(role));
    snprintf(local, sizeof(local), "%d", local_rank);
    snprintf(global, sizeof(global), "%d", job->first_rank + local_rank);
    trii_template_fill(text, variables, TRII_COUNT_OF(variables), label, bytes);
}

/* A terminal where trirun has one, so that programs behave as they would without trirun; but what a
 * file gets too is written for a file. */
static tri_status open_pipe(int like_fd, const trii_stream_options *wanted, int *read_fd_out,
                            int *write_fd_out)
{
    size_t margin = wanted->label != NULL ? strlen(wanted->label) : 0;

    if (wanted->log_path == NULL && trii_fd_is_terminal(like_fd) &&
        trii_pty_open(like_fd, margin, read_fd_out, write_fd_out) == TRI_OK)
        return TRI_OK; /* some containers have no pseudo-terminals: then a pipe must do */
    return trii_pipe_open(read_fd_out, write_fd_out);
}

/* which: 0 stdout, 1 stderr. */
static tri_status open_stream(trii_outputs *outputs, const trii_launch_job *job, int local_rank,
                              int which, trii_stream *stream, int *fd_out)
{
    const trii_launch_options *options = outputs->options;
    bool files = outputs->folder.attempt[0] != '\0';
    bool tee = files && (trii_std_of(&options->tee, local_rank) >> which & 1) != 0;
    bool redirect = files && (trii_std_of(&options->redirects, local_rank) >> which & 1) != 0;
    bool shown = trii_number_in_list(options->local_ranks_filter, local_rank);
    char path[TRII_LOG_PATH_BYTES], label[TRII_STREAM_LABEL_BYTES];
    trii_stream_options wanted = {.label = tee || options->label_output ? label : NULL,
                                  .colour = local_rank,
                                  .hidden = !shown || (redirect && !tee),
                                  .log_path = tee || redirect ? path : NULL,
                                  .files = outputs->files,
                                  .log_max_bytes = options->log_max_bytes};
    int read_fd, write_fd;
    tri_status status;

    snprintf(path, sizeof(path), "%s/%d/%s.log", outputs->folder.attempt, local_rank,
             stream_names[which]);
    make_label(outputs, job, local_rank, label, sizeof(label));
    wanted.immediate = job->local_size == 1 && wanted.label == NULL;
    if (tee && shown && outputs->filtered[which] != NULL) {
        wanted.filters = which == 0 ? options->stdout_filters : options->stderr_filters;
        wanted.filtered = outputs->filtered[which];
    }
    if (redirect && !tee && options->log_max_bytes == 0)
        return trii_stream_open_direct(stream, path, fd_out);
    status = open_pipe(which + 1, &wanted, &read_fd, &write_fd);
    if (status != TRI_OK)
        return status;
    status =
        trii_stream_open(stream, which == 0 ? &outputs->out : outputs->err_sink, read_fd, &wanted);
    if (status == TRI_OK)
        *fd_out = write_fd;
    else
        trii_fd_close(write_fd);
    return status;
}

tri_status trii_outputs_open(trii_outputs *outputs, const trii_launch_job *job, int local_rank,
                             trii_stream *out, trii_stream *err, int *out_fd, int *err_fd)
{
    tri_status status;

    *out_fd = *err_fd = -1;
    status = open_stream(outputs, job, local_rank, 0, out, out_fd);
    if (status == TRI_OK)
        status = open_stream(outputs, job, local_rank, 1, err, err_fd);
    if (status == TRI_OK)
        return TRI_OK;
    trii_fd_close(*out_fd);
    trii_stream_close(out);
    *out_fd = -1;
    return status;
}

void trii_outputs_fini(trii_outputs *outputs)
{
    close_filtered(outputs);
    trii_background_destroy(outputs->files);
    outputs->files = NULL;
    trii_sink_fini(&outputs->out);
    trii_sink_fini(&outputs->err);
}
