/*
 * launch.h - who started this process, how to start workers without a launcher, and how to stop
 * when asked to.
 *
 *     static tri_status train(int rank, void *arg) { ... tri_init(NULL) ... tri_finalize() ... }
 *
 *     int main(void)
 *     {
 *         if (tri_spawn(train, NULL, 4, NULL) != TRI_OK)
 *             fprintf(stderr, "%s\n", tri_last_error());   // "rank 2: cannot open data.bin"
 *     }
 *
 * A loop that stops in time when the cluster takes its machines back:
 *
 *     tri_stop_watch();
 *     while (step < steps && tri_stop_signal() == 0)
 *         ...
 *     if (tri_stop_signal() != 0)
 *         save(tri_stop_left_ms());
 */
#ifndef TRIREME_LAUNCH_H
#define TRIREME_LAUNCH_H

#include <trireme/status.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

/**
 * What started this process: "trirun", "torchrun" (or what sets its variables), "slurm",
 * "openmpi", "pmi" (MPICH, Intel MPI), "spawn" (tri_spawn), "environment" (RANK and WORLD_SIZE set
 * by hand), or "none". Static text; any thread.
 */
TRI_API const char *tri_launcher(void);
/* How often the launcher has restarted this job's workers; 0 without a launcher. */
TRI_API int tri_restart_count(void);

typedef enum tri_spawn_how {
    /* COPY if this process has one thread and has not computed with tensors, else ANEW */
    TRI_SPAWN_AUTO = 0,
    /* fork: workers see this process's memory as it is now. If this process has computed with
     * tensors, workers cannot, and calls fail with STATE */
    TRI_SPAWN_COPY,
    /* each worker starts the program again, which is safe whatever threads and devices this process
     * uses. Refused in a worker (STATE) */
    TRI_SPAWN_ANEW
} tri_spawn_how;

typedef struct tri_spawn_options {
    tri_spawn_how how;
    /* between the SIGTERM and the SIGKILL that the other workers get after a failure; default 5000
     */
    tri_opt grace_ms;
    TRI_RESERVED(4);
} tri_spawn_options;

/**
 * Starts nprocs workers on this host, which run fn(rank, arg) with the environment of a worker
 * (RANK, WORLD_SIZE, MASTER_ADDR and so on, with which tri_init(NULL) joins the world), and waits
 * until they have ended. Where fn sets MASTER_ADDR and MASTER_PORT, rank 0 serves there.
 *
 *   fn    returns the worker's status. A failure ends the other workers, by SIGTERM first; a
 *         positive status is a failure too (STATE). fn may call tri_spawn, at most eight levels
 *         deep. If a worker succeeds without having joined, tri_init fails on those that wait for
 *         it (PEER_LOST), where this process serves them
 *   opt   NULL = defaults
 *
 * A worker's standard input is empty. If this process ends, the kernel kills its workers. If it has
 * called tri_stop_watch, a signal that is recorded here is passed on to those workers that handle
 * SIGUSR1, as the copies do and others once they have called tri_stop_watch; tri_stop_signal() is
 * the same there as here.
 *
 * With TRI_SPAWN_ANEW each worker runs main() again, with the same arguments, up to the same call
 * of tri_spawn (the first, the second, and so on), where it runs fn and ends; earlier calls return
 * TRI_OK without doing anything. arg is then what the worker's own main() passed. Until then main()
 * closes no descriptor above 2 that it has not opened.
 *
 * Blocks until all workers have ended. Call it before tri_init, which belongs in fn.
 * Errors: the status of the worker whose failure came first, with its error line after "rank N: ";
 * PEER_LOST if a signal killed it, or if it called exit() (as TRI_TRY does): with the code and its
 * last error line; STATE (this process has joined a world, or may not have as many descriptors as
 * the workers need), INVALID_ARG, IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_spawn(tri_status (*fn)(int rank, void *arg), void *arg,
                                            int nprocs, const tri_spawn_options *opt);

/**
 * From now on SIGTERM and SIGINT (Ctrl-C) do not end this process but are recorded, as is SIGUSR1,
 * which announces that the machine will be taken away. A second SIGTERM, or a second SIGINT, ends
 * the process. Where SIGINT is ignored, as in the background jobs of a script, it stays so. May be
 * called again. Errors: IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_stop_watch(void);
/* The signal that asked this process to end; 0 = none so far. Any thread; costs one load. */
TRI_API int tri_stop_signal(void);
/* Milliseconds until the launcher kills this process, never negative: the time that came with
 * SIGUSR1, or else trirun's --shutdown-timeout, which runs from the other signals on. TRI_FOREVER
 * if this process was not asked to end, or not by a certain time. */
TRI_API int64_t tri_stop_left_ms(void);

TRI_END_DECLS

#endif
