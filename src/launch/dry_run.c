/*
 * dry_run.c - see dry_run.h. It shows what trirun makes of the options, not the options again. What
 * only the rendezvous decides is marked so; given ranks are shown as if all hosts had as many
 * workers as this one.
 */
#include "launch/dry_run.h"

#include <string.h>

#include "base/alloc.h"
#include "launch/cli/devices.h"
#include "launch/worker/environment.h"
#include "launch/worker/worker_command.h"
#include "os/host.h"

static bool is_static(const trii_launch_options *options)
{
    return options->rdzv == TRII_RDZV_STATIC;
}

/* Ranks, sizes and addresses come from a rendezvous of several hosts. */
static bool is_dynamic(const trii_launch_options *o)
{
    return o->max_nodes > 1 && !is_static(o);
}

static void print_hosts(const trii_launch_options *o, FILE *out)
{
    char host[256];

    trii_host_name(host, sizeof(host));
    fprintf(out, "  host      : %s, with %d worker%s\n", host, o->nproc, o->nproc == 1 ? "" : "s");
    if (o->max_nodes == 1)
        fprintf(out, "  hosts     : this one only\n");
    else if (o->min_nodes == o->max_nodes)
        fprintf(out, "  hosts     : %d", o->min_nodes);
    else
        fprintf(out, "  hosts     : %d to %d", o->min_nodes, o->max_nodes);
    if (o->max_nodes > 1)
        fprintf(out, "%s\n", is_static(o) ? "" : "; the rendezvous gives out the ranks");
    if (o->max_nodes == 1 && !o->standalone && !is_static(o))
        fprintf(out, "  rendezvous: one host needs none, so %s is not asked\n", o->rdzv_backend);
    if (o->max_nodes > 1) {
        fprintf(out, "  rendezvous: %s at %s", o->rdzv_backend, o->rdzv_host);
        if (o->rdzv_port >= 0)
            fprintf(out, ":%d", o->rdzv_port);
        fputc('\n', out);
    }
    if (o->max_nodes > 1 && is_static(o))
        fprintf(out, "  node rank : %d%s; ranks are shown as if every host had %d worker%s\n",
                o->node_rank, o->node_rank == 0 ? ", serves the store" : "", o->nproc,
                o->nproc == 1 ? "" : "s");
    if (is_dynamic(o))
        fprintf(out, "  store     : on the host that gets rank 0, any free port\n");
    else if (o->master_port != 0)
        fprintf(out, "  store     : %s port %d\n", o->master_addr, o->master_port);
    else
        fprintf(out, "  store     : %s, any free port\n", o->master_addr);
}

static const char *job_id(const trii_launch_options *o)
{
    return o->run_id != NULL ? o->run_id : "(made at the start)";
}

/* One word of a command line as a shell would take it. */
static void print_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";

    if (*word != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

/* Whether the value comes from the rendezvous. */
static bool is_decided_then(const trii_launch_options *o, const char *variable)
{
    static const char *const names[] = {
        "RANK=",        "GROUP_RANK=",  "ROLE_RANK=",       "WORLD_SIZE=",
        "MASTER_ADDR=", "MASTER_PORT=", "ROLE_WORLD_SIZE=", "TRI_AGENT_STORE="};
    bool is = o->min_nodes < o->max_nodes && strncmp(variable, "GROUP_WORLD_SIZE=", 17) == 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        is = is || strncmp(variable, names[i], strlen(names[i])) == 0;
    return is && is_dynamic(o);
}

/* One variable of a worker; some get their value only when the job starts. */
static void print_variable(const trii_launch_options *o, const char *variable, FILE *out)
{
    int name = (int)strcspn(variable, "=") + 1;
    bool made = strcmp(variable, "MASTER_PORT=0") == 0 ||
                strcmp(variable, "TORCHELASTIC_ERROR_FILE=") == 0 ||
                strncmp(variable, "TRI_AGENT_STORE=", 16) == 0;

    if (is_decided_then(o, variable))
        fprintf(out, "      %.*s(decided by the rendezvous)\n", name, variable);
    else if (made)
        fprintf(out, "      %.*s(made at the start)\n", name, variable);
    else
        fprintf(out, "      %s\n", variable);
}

static tri_status print_worker(const trii_launch_options *o, const trii_launch_job *job,
                               const trii_launch_command *command, int local_rank, FILE *out)
{
    static const char *const nothing[] = {NULL};
    const char **argv = NULL, **envp = NULL;
    tri_status status = trii_launch_command_argv(command, local_rank, &argv);

    if (status == TRI_OK)
        status = trii_launch_environment(job, local_rank, nothing, &envp);
    if (status == TRI_OK) {
        fprintf(out, "  %s %d%s:", is_dynamic(o) ? "worker" : "rank", job->first_rank + local_rank,
                is_dynamic(o) ? "  " : "    ");
        for (int i = 0; argv[i] != NULL; i++) {
            fputc(' ', out);
            print_word(argv[i], out);
        }
        fputc('\n', out);
        for (int i = 0; envp[i] != NULL; i++)
            print_variable(o, envp[i], out);
    }
    trii_free(argv);
    trii_free(envp);
    return status;
}

tri_status trii_dry_run(const trii_launch_options *o, const trii_launch_command *command, FILE *out)
{
    tri_status status = TRI_OK;
    int group_rank = is_static(o) ? o->node_rank : 0;
    const trii_launch_job job = {.options = o,
                                 .local_size = o->nproc,
                                 .world_size = o->nproc * o->max_nodes,
                                 .first_rank = o->nproc * group_rank,
                                 .group_rank = group_rank,
                                 .group_size = o->max_nodes,
                                 .first_role_rank = o->nproc * group_rank,
                                 .role_size = o->nproc * o->max_nodes,
                                 .master_addr = o->master_addr,
                                 .master_port = o->master_port,
                                 .use_agent_store = true,
                                 .new_store = !is_static(o),
                                 .run_id = job_id(o),
                                 .run_dir = "(made at the start)",
                                 .error_dir = NULL,
                                 .cores = trii_launch_count_cores()};

    fprintf(out, "trirun would run %s, and runs nothing:\n", o->program);
    print_hosts(o, out);
    for (int i = 0; i < o->nproc && status == TRI_OK; i++)
        status = print_worker(o, &job, command, i, out);
    return status;
}
