/*
 * binding.c - see binding.h. All facts come from files below /sys, as the kernel shows them: no
 * libnuma, no driver. agent.c reads them once, attempt.c applies them as each worker starts.
 */
#include "launch/worker/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "os/folder.h"
#include "os/read_whole.h"

enum { MAX_CORES = 64 * TRII_CPU_WORDS, MAX_GPUS = 64 };

static bool has_core(const trii_cpu_set *set, int core)
{
    return (set->words[core / 64] >> core % 64 & 1) != 0;
}

static void add_core(trii_cpu_set *set, int core)
{
    set->words[core / 64] |= UINT64_C(1) << core % 64;
}

/* The allowed ones of "0-3,8,10-11". */
static void read_list(const char *list, const trii_cpu_set *allowed, trii_cpu_set *set)
{
    memset(set, 0, sizeof(*set));
    while (*list >= '0' && *list <= '9') {
        char *end;
        long first = strtol(list, &end, 10), last = first;

        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long core = first; core <= last && core < MAX_CORES; core++) {
            if (has_core(allowed, (int)core))
                add_core(set, (int)core);
        }
        list = *end == ',' ? end + 1 : end;
    }
}

/* The file that lists the cores that a core belongs together with. */
static bool group_of_core(const trii_binding *b, int core, trii_cpu_set *set)
{
    char path[512], line[4096];
    char **names;
    int n;

    if (strcmp(b->how, "socket") == 0 || strcmp(b->how, "core-complex") == 0) {
        snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%d/%s", b->system, core,
                 b->how[0] == 's' ? "topology/package_cpus_list" : "cache/index3/shared_cpu_list");
        if (trii_read_whole(path, line, sizeof(line)) == 0)
            return false;
        read_list(line, &b->allowed, set);
        return has_core(set, core);
    }
    snprintf(path, sizeof(path), "%s/devices/system/node", b->system);
    if (trii_folder_list(path, 4096, &names, &n) != TRI_OK)
        return false;
    memset(set, 0, sizeof(*set));
    for (int i = 0; i < n && !has_core(set, core); i++) {
        if (strncmp(names[i], "node", 4) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/devices/system/node/%s/cpulist", b->system, names[i]);
        if (trii_read_whole(path, line, sizeof(line)) > 0)
            read_list(line, &b->allowed, set);
    }
    trii_folder_free_names(names, n);
    return has_core(set, core);
}

tri_status trii_binding_open(trii_binding *binding, const char *how, const char *system,
                             const trii_cpu_set *allowed)
{
    trii_cpu_set seen = {0}, set;
    tri_status status = TRI_OK;

    *binding = (trii_binding){.allowed = *allowed, .how = how, .system = system};
    for (int core = 0; core < MAX_CORES && status == TRI_OK; core++) {
        if (!has_core(allowed, core) || has_core(&seen, core))
            continue;
        if (!group_of_core(binding, core, &set))
            set = *allowed; /* it does not say */
        trii_cpu_set_unite(&seen, &set);
        status = trii_array_grow(&binding->groups, &binding->room, binding->n_groups, 8,
                                 sizeof(set), "groups of cores");
        if (status == TRI_OK)
            binding->groups[binding->n_groups++] = set;
    }
    if (status != TRI_OK)
        trii_binding_close(binding);
    return status;
}

void trii_binding_close(trii_binding *binding)
{
    trii_free(binding->groups);
    binding->groups = NULL;
    binding->n_groups = 0;
}

/* The group near the n-th GPU of the NVIDIA driver; -1 if there is none. */
static int group_of_gpu(const trii_binding *b, int gpu)
{
    char path[600], line[4096];
    char **names;
    int n = 0, seen = 0, group = -1;
    trii_cpu_set set;

    snprintf(path, sizeof(path), "%s/bus/pci/drivers/nvidia", b->system);
    if (trii_folder_list(path, 4096, &names, &n) != TRI_OK)
        return -1;
    for (int i = 0; i < n; i++) {
        if (strchr(names[i], ':') == NULL || seen++ != gpu) /* "0000:17:00.0" */
            continue;
        snprintf(path, sizeof(path), "%s/bus/pci/drivers/nvidia/%s/local_cpulist", b->system,
                 names[i]);
        if (trii_read_whole(path, line, sizeof(line)) == 0)
            break;
        read_list(line, &b->allowed, &set);
        for (int g = 0; g < b->n_groups && group < 0; g++) {
            for (int w = 0; w < TRII_CPU_WORDS; w++) {
                if ((b->groups[g].words[w] & set.words[w]) != 0)
                    group = g;
            }
        }
    }
    trii_folder_free_names(names, n);
    return group;
}

static int group_of_worker(const trii_binding *b, int local_rank, int local_size)
{
    int group = group_of_gpu(b, local_rank);

    if (group < 0)
        group = (int)((int64_t)local_rank * b->n_groups / local_size);
    return group % b->n_groups;
}

void trii_binding_of(const trii_binding *binding, int local_rank, int local_size,
                     trii_cpu_set *cores_out)
{
    int group = group_of_worker(binding, local_rank, local_size);
    int sharers = 0, place = 0, cores, index = 0;
    trii_cpu_set part = {0};

    *cores_out = binding->groups[group];
    if (strcmp(binding->how, "exclusive") != 0)
        return;
    for (int i = 0; i < local_size; i++) {
        if (group_of_worker(binding, i, local_size) != group)
            continue;
        place += i < local_rank;
        sharers++;
    }
    cores = trii_cpu_set_count(cores_out);
    if (sharers > cores)
        return; /* none can have one for itself: all share all */
    for (int core = 0; core < MAX_CORES; core++) {
        if (!has_core(cores_out, core))
            continue;
        if (index * (int64_t)sharers / cores == place)
            add_core(&part, core);
        index++;
    }
    *cores_out = part;
}
