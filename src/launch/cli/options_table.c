/*
 * options_table.c - the table of options_table.h, and the text of --help. Read by options.c
 * (names) and options_meaning.c (defaults); docs/TORCHRUN.md and the manual page are compared with
 * it by tests.
 */
#include "launch/cli/options_table.h"

#include <stdio.h>
#include <string.h>

#include <trireme/store.h>

#include "base/compiler.h"

/* Of --help, on a terminal of the usual width. */
enum { HELP_COLUMN = 33, WIDTH = 79 };

const trii_option_row trii_option_rows[TRII_OPT_COUNT] = {
    [TRII_OPT_NNODES] = {"nnodes", .fallback = "1:1", .value = "N|MIN:MAX", .help = "hosts"},
    [TRII_OPT_NPROC] = {"nproc-per-node", .fallback = "1", .value = "N|auto|cpu|gpu",
                        .help = "workers on this host; auto: one per GPU, else per allowed core"},
    [TRII_OPT_STANDALONE] = {"standalone", .is_flag = true,
                             .help = "one host, any free port: also the default for one host"},
    [TRII_OPT_RDZV_BACKEND] =
        {"rdzv-backend", .fallback = "static", .value = "NAME",
         .help = "rendezvous back end: static, c10d, etcd (also etcd-v2, etcd-v3)"},
    [TRII_OPT_RDZV_ENDPOINT] = {"rdzv-endpoint", .fallback = "", .value = "HOST[:PORT]",
                                .help = "address of the rendezvous"},
    [TRII_OPT_RDZV_ID] = {"rdzv-id", .fallback = "none", .value = "TEXT",
                          .help = "name of the job"},
    [TRII_OPT_RDZV_CONF] = {"rdzv-conf", .fallback = "", .value = "K=V,...",
                            .help = "settings of the rendezvous"},
    [TRII_OPT_NODE_RANK] = {"node-rank", .fallback = "0", .value = "N",
                            .help = "rank of this host (static)"},
    [TRII_OPT_MASTER_ADDR] = {"master-addr", .fallback = "127.0.0.1", .value = "HOST",
                              .help = "address of the store (static)"},
    [TRII_OPT_MASTER_PORT] = {"master-port", .fallback = "", .value = "PORT",
                              .help =
                                  "port of the store; one host: any free one, several: " TRII_TEXT(
                                      TRI_STORE_PORT)},
    [TRII_OPT_LOCAL_ADDR] = {"local-addr", .fallback = "", .value = "HOST",
                             .help =
                                 "address of this host (the one from which it reaches the store)"},
    [TRII_OPT_MAX_RESTARTS] = {"max-restarts", .fallback = "0", .value = "N",
                               .help = "how many times a failed job is restarted"},
    [TRII_OPT_MONITOR_INTERVAL] =
        {"monitor-interval", .fallback = "0.1", .value = "S",
         .help = "accepted and ignored: failures are seen at once, without polling"},
    [TRII_OPT_SHUTDOWN_TIMEOUT] = {"shutdown-timeout", .fallback = "30", .value = "S",
                                   .help = "grace period between the first signal and SIGKILL"},
    [TRII_OPT_SIGNALS] = {"signals-to-handle", .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                          .value = "LIST", .help = "signals that are passed on to the workers"},
    [TRII_OPT_MODULE] = {"module", 'm', .is_flag = true,
                         .help = "PROGRAM is a Python module, run as python3 -m"},
    [TRII_OPT_NO_PYTHON] = {"no-python", .is_flag = true,
                            .help = "run PROGRAM as it is, even if it ends in .py"},
    [TRII_OPT_RUN_PATH] = {"run-path", .is_flag = true,
                           .help = "PROGRAM is a Python script, run through runpy"},
    [TRII_OPT_START_METHOD] =
        {"start-method", .fallback = "spawn", .value = "NAME",
         .help = "accepted and ignored (spawn, fork, forkserver): workers are new programs"},
    [TRII_OPT_ROLE] = {"role", .fallback = "default", .value = "TEXT",
                       .help = "role of the workers, for labels"},
    [TRII_OPT_NUMA] = {"numa-binding", .no_environment = true, .fallback = "", .value = "HOW",
                       .help = "cores and memory per worker: node, socket, exclusive, "
                               "core-complex"},
    [TRII_OPT_VIRTUAL_RANK] = {"virtual-local-rank", .is_flag = true,
                               .help = "LOCAL_RANK 0 and one GPU each"},
    [TRII_OPT_LOG_DIR] = {"log-dir", .fallback = "", .value = "DIR",
                          .help = "folder of the log files (/dev/null: no log files)"},
    [TRII_OPT_REDIRECTS] = {"redirects", 'r', .fallback = "0", .value = "SPEC",
                            .help =
                                "redirect to log files: 1 stdout, 2 stderr, 3 both, or RANK:N,..."},
    [TRII_OPT_TEE] = {"tee", 't', .fallback = "0", .value = "SPEC",
                      .help = "write to log files and show, with labels; SPEC as for -r"},
    [TRII_OPT_RANKS_FILTER] = {"local-ranks-filter", .fallback = "", .value = "LIST",
                               .help = "show the output of these local ranks only"},
    [TRII_OPT_STDOUT_FILTERS] = {"duplicate-stdout-filters", .fallback = "", .value = "LIST",
                                 .help =
                                     "copy lines that contain one of these texts to a common file"},
    [TRII_OPT_STDERR_FILTERS] = {"duplicate-stderr-filters", .fallback = "", .value = "LIST",
                                 .help = "the same for stderr"},
    [TRII_OPT_LOGS_SPECS] = {"logs-specs", .no_environment = true, .fallback = "", .value = "NAME",
                             .help = "accepted and ignored: a Python plug-in"},
    [TRII_OPT_EVENT_HANDLER] = {"event-log-handler", .fallback = "null", .value = "NAME",
                                .help = "accepted and ignored: a Python plug-in; see --events"},
    [TRII_OPT_USE_ENV] = {"use-env", .is_flag = true, .no_environment = true, .ours = true,
                          .help =
                              "as torch.distributed.launch --use-env: no --local-rank for PROGRAM"},
    [TRII_OPT_LAUNCH_COMPAT] = {"launch-compat", .is_flag = true, .ours = true,
                                .help = "as torch.distributed.launch: PROGRAM gets --local-rank=N"},
    [TRII_OPT_LABEL] = {"label-output", 'l', .is_flag = true, .ours = true,
                        .help = "put [rank]: before each line of the workers"},
    [TRII_OPT_LOG_MAX_BYTES] = {"log-max-size", .ours = true, .fallback = "", .value = "BYTES",
                                .help = "rotate log files of this size: 512k, 64M, 2G"},
    [TRII_OPT_HANG_TIMEOUT] = {"hang-timeout", .ours = true, .fallback = "0", .value = "S",
                               .help = "stop a job in which no rank prints or begins a call for so "
                                       "long, and report which rank hangs; 0: never"},
    [TRII_OPT_HOST_TIMEOUT] = {"host-timeout", .ours = true, .fallback = "5", .value = "S",
                               .help = "a host whose agent sends nothing for so long is lost"},
    [TRII_OPT_NOTICE] = {"notice-seconds", .ours = true, .fallback = "", .value = "S",
                         .help =
                             "SIGUSR1 to trirun means that this host is preempted in S seconds"},
    [TRII_OPT_EVENTS] = {"events", .ours = true, .fallback = "", .value = "FILE",
                         .help = "append the events of the job, as lines of JSON"},
    [TRII_OPT_METRICS] = {"metrics", .ours = true, .fallback = "", .value = "FILE|[HOST]:PORT",
                          .help = "write metrics for Prometheus to a file, or serve them by HTTP"},
    [TRII_OPT_DRY_RUN] = {"dry-run", .is_flag = true, .ours = true,
                          .help = "show what would be run, and run nothing"},
    [TRII_OPT_KEEP_SURVIVORS] = {"keep-survivors", .is_flag = true, .ours = true,
                                 .help = "when a worker fails the others go on without it; one "
                                         "host only"},
    [TRII_OPT_REQUIRE_KEY] = {"require-key", .is_flag = true, .ours = true,
                              .help = "refuse to start unless TRI_JOB_KEY_FILE names a job key"},
    [TRII_OPT_HELP] = {"help", 'h', .is_flag = true, .no_environment = true, .help = "this text"},
    [TRII_OPT_VERSION] = {"version", .is_flag = true, .no_environment = true, .ours = true,
                          .help = "print the version"},
};

/* Words of the text, from the column HELP_COLUMN to WIDTH; the first line has been begun. */
static void print_wrapped(FILE *out, const char *text)
{
    int at = HELP_COLUMN;

    while (*text != '\0') {
        int n = (int)strcspn(text, " ");

        if (at > HELP_COLUMN && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        }
        at += fprintf(out, "%s%.*s", at > HELP_COLUMN ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const trii_option_row *row)
{
    bool has_default = !row->is_flag && *row->fallback != '\0';
    char left[80], text[256];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", row->letter ? '-' : ' ',
             row->letter ? row->letter : ' ', row->letter ? ", " : "  ", row->name,
             row->is_flag ? "" : " ", row->is_flag ? "" : row->value);
    snprintf(text, sizeof(text), "%s%s%s%s", row->help, has_default ? " (" : "",
             has_default ? row->fallback : "", has_default ? ")" : "");
    fprintf(out, "  %-*s", HELP_COLUMN - 2, left);
    if (strlen(left) >= HELP_COLUMN - 2)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    print_wrapped(out, text);
}

void trii_launch_options_help(FILE *out)
{
    fputs("usage: trirun [OPTIONS] PROGRAM [ARGS]\n\n"
          "Starts PROGRAM as several workers of one job, with torchrun's command line and\n"
          "worker variables, for any program. A .py file is run by $PYTHON_EXEC or\n"
          "python3.\n\n",
          out);
    for (int i = 0; i < TRII_OPT_COUNT; i++)
        print_row(out, &trii_option_rows[i]);
    fputs("\n"
          "Options may be written with _ for -, and set by variables PET_NAME\n"
          "(PET_NPROC_PER_NODE=2). ${local_rank} in ARGS stands for the worker's local\n"
          "rank.\n\n"
          "Several workers get OMP_NUM_THREADS=1, as with torchrun, and their share of the\n"
          "cores as TRI_NUM_THREADS, which programs of Trireme read first. Set either to\n"
          "choose the number yourself.\n\n"
          "SIGUSR1 to trirun announces that this host will be preempted (Slurm:\n"
          "--signal=B:USR1@60). Workers that handle SIGUSR1 get it with the milliseconds\n"
          "left; the job goes on.\n\n"
          "Examples:\n"
          "  trirun --standalone --nproc-per-node 2 build/bin/toy_ddp\n"
          "  trirun --nproc-per-node auto --label-output ./train --epochs 10\n"
          "  trirun --nproc_per_node=4 train.py --lr 0.1\n\n"
          "Exit status: 0 all workers succeeded; 1 a worker failed, a signal stopped the\n"
          "job, or it could not be started; 2 the command line is wrong.\n",
          out);
}
