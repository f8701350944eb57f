/*
 * environment.c - see environment.h. Called by attempt.c for each worker, and by dry_run.c to show
 * the same.
 *
 * Threads: torchrun sets OMP_NUM_THREADS=1 when it starts several workers and the user said
 * nothing, so that they do not fight for the cores; scripts rely on it, so we do the same. That
 * would leave a worker of Trireme on one core, so TRI_NUM_THREADS, which it reads first, is set to
 * its share of the cores. A value that the user set for either stays.
 */
#include "launch/worker/environment.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "base/param.h"

/* What a worker never inherits, besides what we set: the first is true of one start only, and the
 * settings of the rendezvous are the agent's alone: they may hold a password. */
static const char *const kept_back[] = {"TRI_AGENT_STORE=", "PET_RDZV_CONF="};

typedef struct builder {
    const char **envp; /* NULL: only measures */
    size_t n;
    char *text; /* the next entry is written here */
    size_t left;
    size_t needed;   /* bytes of all entries */
    const char *gpu; /* with virtual_local_rank */
} builder;

/* Whether a worker does not inherit this entry; called when all that trirun sets are there. */
static bool is_hidden(const builder *ours, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;

    for (size_t i = 0; i < TRII_COUNT_OF(kept_back); i++) {
        if (strncmp(kept_back[i], entry, length) == 0)
            return true;
    }
    for (size_t i = 0; i < ours->n; i++) {
        if (strncmp(ours->envp[i], entry, length) == 0)
            return true;
    }
    return false;
}

TRII_PRINTF(2, 3) static void add(builder *b, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(b->text, b->left, format, args);
    va_end(args);
    b->needed += (size_t)length + 1;
    b->n++;
    if (b->envp == NULL)
        return;
    b->envp[b->n - 1] = b->text;
    b->text += length + 1;
    b->left -= (size_t)length + 1;
}

/* One GPU each: the n-th of those that we see, which may be the empty name, without the blanks
 * around it. False: there are fewer. */
static bool find_gpu(int local_rank, char *name, size_t bytes)
{
    static const char blanks[] = " \t\n\v\f\r";
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    size_t length;

    snprintf(name, bytes, "%d", local_rank);
    if (list == NULL)
        return true;
    for (int i = 0; i < local_rank; i++) {
        list = strchr(list, ',');
        if (list == NULL)
            return false;
        list++;
    }
    list += strspn(list, blanks);
    length = strcspn(list, ",");
    while (length > 0 && strchr(blanks, list[length - 1]) != NULL)
        length--;
    snprintf(name, bytes, "%.*s", (int)length, list);
    return true;
}

static void add_threads(builder *b, const trii_launch_job *job)
{
    if (job->local_size == 1 || getenv("OMP_NUM_THREADS") != NULL)
        return;
    add(b, "OMP_NUM_THREADS=1");
    if (trii_param_text(TRII_PARAM_NUM_THREADS) == NULL)
        add(b, "TRI_NUM_THREADS=%d",
            job->cores > job->local_size ? job->cores / job->local_size : 1);
}

static void add_all(builder *b, const trii_launch_job *job, int local_rank)
{
    char error_file[PATH_MAX] = "";

    add(b, "LOCAL_RANK=%d", job->options->virtual_local_rank ? 0 : local_rank);
    add(b, "RANK=%d", job->first_rank + local_rank);
    add(b, "GROUP_RANK=%d", job->group_rank);
    add(b, "ROLE_RANK=%d", job->first_role_rank + local_rank);
    add(b, "ROLE_NAME=%s", job->options->role);
    add(b, "LOCAL_WORLD_SIZE=%d", job->local_size);
    add(b, "WORLD_SIZE=%d", job->world_size);
    add(b, "GROUP_WORLD_SIZE=%d", job->group_size);
    add(b, "ROLE_WORLD_SIZE=%d", job->role_size);
    add(b, "MASTER_ADDR=%s", job->master_addr);
    add(b, "MASTER_PORT=%d", job->master_port);
    add(b, "TORCHELASTIC_RESTART_COUNT=%d", job->restart_count);
    add(b, "TORCHELASTIC_MAX_RESTARTS=%d", job->options->max_restarts);
    add(b, "TORCHELASTIC_RUN_ID=%s", job->run_id);
    add(b, "TORCHELASTIC_USE_AGENT_STORE=%s", job->use_agent_store ? "True" : "False");
    if (job->error_dir != NULL)
        snprintf(error_file, sizeof(error_file), "%s/%d/error.json", job->error_dir, local_rank);
    add(b, "TORCHELASTIC_ERROR_FILE=%s", error_file);
    add(b, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", job->options->signals);
    add(b, "TRI_RUN_DIR=%s", job->run_dir);
    if (job->use_agent_store)
        add(b, "TRI_AGENT_STORE=%s %d %s %s", job->master_addr, job->master_port,
            job->new_store ? "new" : "kept", error_file);
    add(b, "TRI_STOP_GRACE_MS=%lld", (long long)job->options->shutdown_timeout_ms);
    if (getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL)
        add(b, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (job->options->virtual_local_rank)
        add(b, "CUDA_VISIBLE_DEVICES=%s", b->gpu);
    add_threads(b, job);
}

tri_status trii_launch_environment(const trii_launch_job *job, int local_rank,
                                   const char *const *inherited, const char ***envp_out)
{
    char gpu[256];
    builder measure = {.gpu = gpu}, b = {.gpu = gpu};
    size_t n_inherited = 0, n_slots, n;

    if (job->options->virtual_local_rank && !find_gpu(local_rank, gpu, sizeof(gpu)))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--virtual-local-rank: CUDA_VISIBLE_DEVICES=%s has no GPU for local rank "
                         "%d; start fewer workers (--nproc-per-node)",
                         getenv("CUDA_VISIBLE_DEVICES"), local_rank);
    while (inherited[n_inherited] != NULL)
        n_inherited++;
    add_all(&measure, job, local_rank);
    n_slots = measure.n + n_inherited + 1;
    b.envp = trii_alloc(1, n_slots * sizeof(*b.envp) + measure.needed, "environment of a worker");
    if (b.envp == NULL)
        return TRI_ERR_NO_MEMORY;
    b.text = (char *)(b.envp + n_slots);
    b.left = measure.needed;
    add_all(&b, job, local_rank);
    n = b.n;
    for (size_t i = 0; i < n_inherited; i++) {
        if (!is_hidden(&b, inherited[i]))
            b.envp[n++] = inherited[i];
    }
    *envp_out = b.envp;
    return TRI_OK;
}
