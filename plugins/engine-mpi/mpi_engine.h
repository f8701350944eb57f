/*
 * mpi_engine.h - the inside of the mpi plug-in.
 *
 *   mpi.c        the engine's table: groups, posting, leaving
 *   mpi_world.c  the one thread of the process that calls MPI: its life, its work
 *   mpi_move.c   a move as an MPI request
 *
 * MPI moves bytes and never adds (shared/moves.h), so sums have the bits of every other
 * engine. All MPI calls are made by one thread, so any level of thread support will do, and a
 * program need not know that MPI is there. It starts when the first group asks for it, and ends,
 * with MPI_Finalize, when the process exits in order.
 *
 * What MPI cannot do: take back a call. After a group has failed MPI may still write into buffers
 * of its unfinished calls, and no later group is safe: let the process end.
 */
#ifndef TRII_MPI_ENGINE_H
#define TRII_MPI_ENGINE_H

#include <mpi.h>

#include "comm/group/plugin.h"
#include "shared/moves.h"

extern const trii_host *mpi_host;

typedef struct mpi_group mpi_group;

/* A call under way; memory of its moves after it. */
typedef struct mpi_task {
    struct mpi_task *next;
    mpi_group *group;
    trii_op *op;
    trii_moves moves;
    int stage;       /* 0: first move, 1: it is over and the second waits for its turn, 2: second */
    uint64_t ticket; /* of the second */
    MPI_Request request;
    int *counts; /* [4 * size]: of the source, its places, of the destination, its places */
} mpi_task;

struct mpi_group {
    int rank, size;
    trii_fault *fault;
    /* Collectives of one communicator must begin in one order on all ranks. First moves begin in
     * the order of the calls. Second moves begin when first ones have ended, which differs from
     * rank to rank: so they have a communicator of their own and take turns. */
    MPI_Comm comm, second;
    uint64_t tickets, turn; /* the thread's */
    const int *members;     /* ranks of MPI_COMM_WORLD; while it forms */
    int tag;                /* of forming */
    int pending;            /* guard: the world's mutex; tasks not finished */
    bool left;
};

/* What the thread does for a caller, who waits for it. */
typedef enum mpi_order_kind { MPI_ORDER_FORM, MPI_ORDER_LEAVE, MPI_ORDER_END } mpi_order_kind;
typedef struct mpi_order {
    struct mpi_order *next;
    mpi_order_kind kind;
    mpi_group *group;
    bool done;
    tri_status status;
    char why[TRII_ERR_BYTES];
} mpi_order;

/* Starts MPI in this process, once. Errors: UNSUPPORTED (no launcher of MPI, or the program's own
 * MPI does not allow it). Then our rank in MPI_COMM_WORLD, and its size. */
tri_status mpi_world_join(int *rank_out, int *size_out);
/* Has the thread do it, and waits. */
tri_status mpi_world_order(mpi_order *order);
/* Gives it a task; own_task was made by mpi_task_create. */
void mpi_world_post(mpi_task *own_task);
/* The thread shall look for faults. */
void mpi_world_wake(void);

/* Errors: UNSUPPORTED (more elements than MPI counts), NO_MEMORY. */
tri_status mpi_task_create(mpi_group *group, trii_op *op, mpi_task **task_out);
/* The thread's: starts the stage's move. An MPI error code. */
int mpi_task_start(mpi_task *task);
/* The thread's: the move has ended, or the second one waits for its turn. OK: the call is over;
 * INPROGRESS: it goes on; else the group has failed by it. */
tri_status mpi_task_advance(mpi_task *task, const MPI_Status *status);
/* Raises the group's fault for an MPI error. */
tri_status mpi_task_failed(mpi_task *task, int error);

#endif
