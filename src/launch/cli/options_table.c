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

#define FIELD(its_kind, name)                                                                      \
    .kind = TRII_OPTION_##its_kind, .field = offsetof(trii_launch_options, name)

const trii_option_row trii_option_rows[TRII_OPTIONS] = {
    {"nnodes", FIELD(TEXT, nnodes), .distinct = true, .fallback = "1:1", .value = "N|MIN:MAX",
     .help = "hosts"},
    {"nproc-per-node", FIELD(TEXT, nproc_per_node), .distinct = true, .fallback = "1",
     .value = "N|auto|cpu|gpu",
     .help = "workers on this host; auto: one per GPU, else per allowed core"},
    {"standalone", FIELD(FLAG, standalone),
     .help = "one host, any free port: also the default for one host"},
    {"rdzv-backend", FIELD(TEXT, rdzv_backend), .distinct = true, .fallback = "static",
     .choices = "static|c10d|etcd|etcd-v2|etcd-v3", .value = "NAME",
     .help = "rendezvous back end: static, c10d, etcd (also etcd-v2, etcd-v3)"},
    {"rdzv-endpoint", FIELD(TEXT, rdzv_endpoint), .distinct = true, .fallback = "",
     .value = "HOST[:PORT]", .help = "address of the rendezvous"},
    {"rdzv-id", FIELD(TEXT, run_id), .distinct = true, .fallback = "none", .value = "TEXT",
     .help = "name of the job"},
    {"rdzv-conf", FIELD(TEXT, rdzv_conf), .distinct = true, .fallback = "", .value = "K=V,...",
     .help = "settings of the rendezvous"},
    {"node-rank", FIELD(NUMBER, node_rank), .max = INT32_MAX, .distinct = true, .fallback = "0",
     .value = "N", .help = "rank of this host (static)"},
    {"master-addr", FIELD(TEXT, master_addr), .distinct = true, .fallback = "127.0.0.1",
     .value = "HOST", .help = "address of the store (static)"},
    {"master-port", FIELD(NUMBER, master_port), .max = 65535, .distinct = true, .value = "PORT",
     .help = "port of the store; one host: any free one, several: " TRII_TEXT(TRI_STORE_PORT)},
    {"local-addr", FIELD(TEXT, local_addr), .value = "HOST",
     .help = "address of this host (the one from which it reaches the store)"},
    {"max-restarts", FIELD(NUMBER, max_restarts), .max = INT32_MAX, .distinct = true,
     .fallback = "0", .value = "N", .help = "how many times a failed job is restarted"},
    {"monitor-interval", .kind = TRII_OPTION_SECONDS, .fallback = "0.1", .value = "S",
     .help = "accepted and ignored: failures are seen at once, without polling"},
    {"shutdown-timeout", FIELD(SECONDS, shutdown_timeout_ms), .fallback = "30", .value = "S",
     .help = "grace period between the first signal and SIGKILL"},
    {"signals-to-handle", FIELD(TEXT, signals), .distinct = true,
     .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", .value = "LIST",
     .help = "signals that are passed on to the workers"},
    {"module", 'm', FIELD(FLAG, module), .help = "PROGRAM is a Python module, run as python3 -m"},
    {"no-python", FIELD(FLAG, no_python), .help = "run PROGRAM as it is, even if it ends in .py"},
    {"run-path", FIELD(FLAG, run_path), .help = "PROGRAM is a Python script, run through runpy"},
    {"start-method", .kind = TRII_OPTION_CHOICE, .fallback = "spawn",
     .choices = "spawn|fork|forkserver", .value = "NAME",
     .help = "accepted and ignored (spawn, fork, forkserver): workers are new programs"},
    {"role", FIELD(TEXT, role), .fallback = "default", .value = "TEXT",
     .help = "role of the workers, for labels"},
    {"numa-binding", FIELD(CHOICE, numa_binding), .distinct = true, .no_environment = true,
     .choices = "node|socket|exclusive|core-complex", .value = "HOW",
     .help = "cores and memory per worker: node, socket, exclusive, core-complex"},
    {"virtual-local-rank", FIELD(FLAG, virtual_local_rank), .distinct = true,
     .help = "LOCAL_RANK 0 and one GPU each"},
    {"log-dir", FIELD(TEXT, log_dir), .value = "DIR",
     .help = "folder of the log files (/dev/null: no log files)"},
    {"redirects", 'r', FIELD(STREAMS, redirects), .fallback = "0", .value = "SPEC",
     .help = "redirect to log files: 1 stdout, 2 stderr, 3 both, or RANK:N,..."},
    {"tee", 't', FIELD(STREAMS, tee), .fallback = "0", .value = "SPEC",
     .help = "write to log files and show, with labels; SPEC as for -r"},
    {"local-ranks-filter", FIELD(NUMBERS, local_ranks_filter), .distinct = true, .value = "LIST",
     .help = "show the output of these local ranks only"},
    {"duplicate-stdout-filters", FIELD(TEXT, stdout_filters), .distinct = true, .value = "LIST",
     .help = "copy lines that contain one of these texts to a common file"},
    {"duplicate-stderr-filters", FIELD(TEXT, stderr_filters), .distinct = true, .value = "LIST",
     .help = "the same for stderr"},
    {"logs-specs", FIELD(TEXT, logs_specs), .distinct = true, .no_environment = true,
     .value = "NAME", .help = "accepted if it is default: others are Python plug-ins"},
    {"event-log-handler", .distinct = true, .fallback = "null", .value = "NAME",
     .help = "accepted and ignored: a Python plug-in; see --events"},
    /* torch.distributed.launch's, then what no launcher of torch has */
    {"use-env", FIELD(FLAG, use_env), .no_environment = true, .ours = true,
     .help = "as torch.distributed.launch --use-env: no --local-rank for PROGRAM"},
    {"launch-compat", FIELD(FLAG, launch_compat), .distinct = true, .ours = true,
     .help = "as torch.distributed.launch: PROGRAM gets --local-rank=N; also by the name "
             "trirun-launch"},
    {"label-output", 'l', FIELD(FLAG, label_output), .ours = true,
     .help = "put [rank]: before each line of the workers"},
    {"log-max-size", FIELD(SIZE, log_max_bytes), .ours = true, .value = "BYTES",
     .help = "rotate log files of this size: 512k, 64M, 2G"},
    {"hang-timeout", FIELD(SECONDS, hang_timeout_ms), .distinct = true, .ours = true,
     .fallback = "0", .value = "S",
     .help = "stop a job in which no rank prints or begins a call for so long, and report which "
             "rank hangs; 0: never"},
    {"host-timeout", FIELD(SECONDS, host_timeout_ms), .ours = true, .fallback = "5", .value = "S",
     .help = "a host whose agent sends nothing for so long is lost"},
    {"notice-seconds", FIELD(SECONDS, notice_ms), .distinct = true, .ours = true, .value = "S",
     .help = "SIGUSR1 to trirun means that this host is preempted in S seconds"},
    {"events", FIELD(TEXT, events), .ours = true, .value = "FILE",
     .help = "append the events of the job, as lines of JSON"},
    {"metrics", FIELD(TEXT, metrics), .ours = true, .value = "FILE|[HOST]:PORT",
     .help = "write metrics for Prometheus to a file, or serve them by HTTP"},
    {"dry-run", FIELD(FLAG, dry_run), .ours = true,
     .help = "show what would be run, and run nothing"},
    {"keep-survivors", FIELD(FLAG, keep_survivors), .distinct = true, .ours = true,
     .help = "when a worker fails the others continue without it; one host only"},
    {"require-key", FIELD(FLAG, require_key), .ours = true,
     .help = "refuse to start unless TRI_JOB_KEY_FILE names a job key"},
    {"help", 'h', FIELD(FLAG, help), .no_environment = true, .help = "this text"},
    {"version", FIELD(FLAG, version), .no_environment = true, .ours = true,
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
    bool has_default = row->fallback != NULL && *row->fallback != '\0';
    bool has_value = row->kind != TRII_OPTION_FLAG;
    char left[80], text[256];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", row->letter ? '-' : ' ',
             row->letter ? row->letter : ' ', row->letter ? ", " : "  ", row->name,
             has_value ? " " : "", has_value ? row->value : "");
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
    for (int i = 0; i < TRII_OPTIONS; i++)
        print_row(out, &trii_option_rows[i]);
    fputs("\n"
          "Options may be written with _ for -, and set by variables PET_NAME\n"
          "(PET_NPROC_PER_NODE=2). ${local_rank} in ARGS becomes the worker's local\n"
          "rank.\n\n"
          "Several workers get OMP_NUM_THREADS=1, as with torchrun, and their share of the\n"
          "cores as TRI_NUM_THREADS, which programs of Trireme read first. Set either to\n"
          "choose the number yourself.\n\n"
          "SIGUSR1 to trirun announces that this host will be preempted (Slurm:\n"
          "--signal=B:USR1@60). Workers that handle SIGUSR1 get it with the milliseconds\n"
          "left; the job continues.\n\n"
          "Examples:\n"
          "  trirun --standalone --nproc-per-node 2 ./train\n"
          "  trirun --nproc-per-node auto --label-output ./train --epochs 10\n"
          "  trirun --nproc_per_node=4 train.py --lr 0.1\n\n"
          "Exit status: 0 all workers succeeded; 1 a worker failed, a signal stopped the\n"
          "job, or it could not be started; 2 the command line is wrong.\n",
          out);
}
