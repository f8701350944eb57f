/*
 * env_mpi.c - rank, size and store under Open MPI's mpirun and under MPICH's and Intel's mpiexec.
 * Only their variables are read: a program that uses MPI itself keeps its PMI connection.
 */
/* build: leaf */
#include "comm/group/join/env.h"

#include <string.h>

#include "base/err.h"
#include "os/unix.h" /* whose PMI connection it is */

#define text_of trii_launch_env_text

static tri_status need_master(trii_launch_env *env, const char *why)
{
    tri_status status = trii_launch_env_master(env);

    return status == TRI_OK
               ? TRI_OK
               : TRII_FAIL_CTX(status,
                               "%s: set MASTER_ADDR (a name or address of rank 0's host) "
                               "and MASTER_PORT (a free port there)",
                               why);
}

/* The addresses of "220856320.0;tcp://192.0.2.2,198.51.100.2:44693;tcp6://[fd00::2]:47735", with
 * commas between. */
static bool read_uri(const char *uri, char hosts[256])
{
    size_t used = 0;

    for (const char *at = uri; (at = strstr(at, "://")) != NULL;) {
        size_t end;

        at += 3;
        if (*at == '[') {
            at++;
            end = strcspn(at, "];");
        } else {
            end = strcspn(at, ":;");
        }
        if (end == 0 || used + end + 2 > 256)
            return used > 0;
        if (used > 0)
            hosts[used++] = ',';
        memcpy(hosts + used, at, end);
        used += end;
        hosts[used] = '\0';
    }
    return used > 0;
}

/* Several hosts: mpirun told every rank where mpirun itself runs. Rank 0 is there too if the
 * daemon that started it is mpirun. */
static tri_status meet_at_mpirun(trii_launch_env *env)
{
    const char *head = text_of("OMPI_MCA_orte_hnp_uri");
    const char *local = text_of("OMPI_MCA_orte_local_daemon_uri");
    char hosts[256];

    if (head == NULL || env->job[0] == '\0' || !read_uri(head, hosts))
        return need_master(env, "env:// under mpirun on several hosts");
    if (env->rank == 0 && local != NULL && strcmp(head, local) != 0)
        return need_master(env, "env:// under mpirun, which runs on another host than rank 0");
    return trii_launch_env_meet_at(env, hosts, strlen(hosts));
}

tri_status trii_launch_openmpi(trii_launch_env *env, bool where)
{
    const char *job = text_of("PMIX_NAMESPACE");
    tri_status status = trii_launch_env_ranks(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");

    if (status == TRI_OK)
        status = trii_launch_env_need("OMPI_COMM_WORLD_LOCAL_RANK", 0, TRII_WORLD_MAX_RANKS,
                                      &env->local_rank);
    if (status == TRI_OK)
        status = trii_launch_env_need("OMPI_COMM_WORLD_LOCAL_SIZE", 1, TRII_WORLD_MAX_RANKS,
                                      &env->local_size);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// under mpirun");
    job = job != NULL ? job : text_of("OMPI_MCA_ess_base_jobid");
    if (job != NULL)
        snprintf(env->job, sizeof(env->job), "mpirun %.70s", job);
    if (!where)
        status = TRI_OK;
    else if (text_of("MASTER_ADDR") != NULL || env->job[0] == '\0')
        status = need_master(env, "env:// under mpirun");
    else
        status =
            env->local_size == env->size ? trii_launch_env_meet_here(env) : meet_at_mpirun(env);
    return status == TRI_OK
               ? trii_launch_env_check(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
               : status;
}

/* mpiexec's ranks share no name; those of one host share the process at the other end of their PMI
 * connection, a socket pair that it made or a port that it listens on. */
static void read_pmi_job(trii_launch_env *env)
{
    const char *port = text_of("PMI_PORT"), *slurm = text_of("SLURM_JOB_ID");
    int fd = -1, pid = 0;

    if (text_of("PMI_FD") != NULL && trii_launch_env_int("PMI_FD", 0, INT32_MAX, -1, &fd) == TRI_OK)
        pid = trii_unix_peer_pid(fd);
    if (pid > 0 && env->local_size == env->size)
        snprintf(env->job, sizeof(env->job), "mpiexec %d", pid);
    else if (port != NULL && env->local_size == env->size)
        snprintf(env->job, sizeof(env->job), "mpiexec %.60s", port);
    else if (slurm != NULL)
        snprintf(env->job, sizeof(env->job), "mpiexec in slurm %.40s", slurm);
}

tri_status trii_launch_pmi(trii_launch_env *env, bool where)
{
    const char *nodes = text_of("SLURM_JOB_NODELIST");
    char host[256];
    tri_status status = trii_launch_env_ranks(env, "PMI_RANK", "PMI_SIZE");

    if (status == TRI_OK) /* which an old mpiexec does not set */
        status = trii_launch_env_local(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// under mpiexec");
    read_pmi_job(env);
    if (!where || env->size == 1)
        status = TRI_OK;
    else if (text_of("MASTER_ADDR") != NULL || env->job[0] == '\0')
        status = need_master(env, "env:// under mpiexec");
    else if (env->local_size == env->size)
        status = trii_launch_env_meet_here(env);
    else if (nodes != NULL && trii_launch_slurm_host(nodes, host) == TRI_OK)
        status = trii_launch_env_meet_at(env, host, strlen(host));
    else
        status = need_master(env, "env:// under mpiexec on several hosts");
    return status == TRI_OK ? trii_launch_env_check(env, "PMI_RANK", "PMI_SIZE") : status;
}
