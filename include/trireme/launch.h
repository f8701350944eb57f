/*
 * launch.h - who started this process, starting workers without a launcher, and ending in peace.
 *
 *     static tri_status train(int rank, void *arg) { ... tri_init(NULL) ... tri_finalize() ... }
 *
 *     int main(void)
 *     {
 *         if (tri_spawn(train, NULL, 4, NULL) != TRI_OK)
 *             fprintf(stderr, "%s\n", tri_last_error());   // "rank 2: cannot open data.bin"
 *     }
 *
 * A loop that ends in time when the cluster wants its machines back:
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

TRI_BEGIN_DECLS

/**
 * What started this process: "trirun", "torchrun" (or what sets its variables), "slurm",
 * "openmpi", "pmi" (MPICH, Intel MPI), "spawn" (tri_spawn), "environment" (RANK and WORLD_SIZE set
 * by hand), or "none". Static text; any thread.
 */
TRI_API const char *tri_launched_by(void);
/* How often the launcher started this job's workers again before this time; 0 without one. */
TRI_API int tri_restart_count(void);

typedef enum tri_spawn_how {
    TRI_SPAWN_AUTO = 0, /* a copy of this process while it has one thread and has not computed
                           with tensors, else anew */
    TRI_SPAWN_COPY,     /* fork: workers see this process's memory as it is now; where this process
                           has computed with tensors, they cannot: STATE */
    TRI_SPAWN_ANEW      /* the program starts again, safe whatever threads and devices this has; not
                           in a worker: STATE */
} tri_spawn_how;

typedef struct tri_spawn_options {
    tri_spawn_how how;
    int64_t grace_ms; /* between SIGTERM and SIGKILL for the others after a failure; 0 = 5000 */
} tri_spawn_options;

/**
 * Starts nprocs workers on this host, which run fn(rank, arg) with the environment of a worker
 * (RANK, WORLD_SIZE, MASTER_ADDR ...: tri_init(NULL) joins them), and waits for their end.
 *
 *   fn    its status is the worker's; a failure ends the other workers, SIGTERM first. One that is
 *         positive is a failure too (STATE). It may call tri_spawn, down to eight levels. Where a
 *         worker ends well and has not joined, tri_init of those that wait for it fails (PEER_LOST)
 *   opt   NULL = defaults
 *
 * A worker's standard input is empty. If this process ends, the kernel kills its workers.
 *
 * Anew (TRI_SPAWN_ANEW): each worker runs main() again with the same arguments up to the same
 * call of tri_spawn, counted in order, where it runs fn and ends; earlier calls return TRI_OK
 * without doing anything. arg is then what the worker's own main() passed.
 *
 * Blocks until all workers have ended. Not inside a world: tri_init comes in fn.
 * Errors: the status of the first worker that failed, and its error line, behind "rank N: ";
 * PEER_LOST if a signal killed it; STATE (this process has joined a world), INVALID_ARG, IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_spawn(tri_status (*fn)(int rank, void *arg), void *arg,
                                            int nprocs, const tri_spawn_options *opt);

/**
 * From now on SIGTERM no longer ends this process but is noted, and so is SIGUSR1, which announces
 * that the machine will be taken away. May be called again. A second SIGTERM ends the process.
 * Errors: IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_stop_watch(void);
/* The signal that asked this process to end, 0 = none so far. Any thread; costs one load. */
TRI_API int tri_stop_signal(void);
/* Milliseconds until the launcher kills this process: the time that came with SIGUSR1, else
 * trirun's --shutdown-timeout from SIGTERM on; never negative. TRI_FOREVER if nobody asked it to
 * end, or nobody said when. */
TRI_API int64_t tri_stop_left_ms(void);

TRI_END_DECLS

#endif
