/*
 * mpi_move.c - see mpi_engine.h.
 */
#include <limits.h>

#include "engine-mpi/mpi_engine.h"

static MPI_Datatype type_of(size_t elem_bytes)
{
    switch (elem_bytes) {
    case 1:
        return MPI_UINT8_T;
    case 2:
        return MPI_UINT16_T;
    case 4:
        return MPI_UINT32_T;
    default:
        return MPI_UINT64_T;
    }
}

/* MPI counts with int. */
static bool fits(const trii_move *m, int size)
{
    return m->count <= INT_MAX && (m->src_at == NULL || m->src_at[size] <= INT_MAX) &&
           (m->dst_at == NULL || m->dst_at[size] <= INT_MAX);
}

tri_status mpi_task_create(mpi_group *group, trii_op *op, mpi_task **task_out)
{
    size_t elem = op->call.kind == TRII_KIND_BARRIER ? 1 : mpi_host->dtype_size(op->call.dtype);
    size_t counts = 4 * (size_t)group->size * sizeof(int);
    size_t head = (sizeof(mpi_task) + counts + 63) / 64 * 64;
    size_t memory = trii_moves_memory(&op->call, elem, group->rank, group->size);
    mpi_task *task = mpi_host->alloc(1, head + memory, "mpi call");

    if (task == NULL)
        return TRI_ERR_NO_MEMORY;
    task->group = group;
    task->op = op;
    task->counts = (int *)(void *)(task + 1);
    task->request = MPI_REQUEST_NULL;
    trii_moves_plan(&op->call, elem, group->rank, group->size, (char *)task + head, &task->moves);
    if (!fits(&task->moves.first, group->size) || !fits(&task->moves.second, group->size)) {
        mpi_host->free(task);
        return mpi_host->fail(TRI_ERR_UNSUPPORTED,
                              "engine " TRII_PLUGIN_NAME
                              ": more than %d elements in one call; engine shm or tcp has them",
                              INT_MAX);
    }
    *task_out = task;
    return TRI_OK;
}

/* Parts as MPI wants them: how many, and where. */
static void parts_of(const size_t *at, int size, int *counts, int *places)
{
    for (int r = 0; r < size; r++) {
        counts[r] = (int)(at[r + 1] - at[r]);
        places[r] = (int)at[r];
    }
}

int mpi_task_start(mpi_task *task)
{
    const trii_move *m = task->stage == 0 ? &task->moves.first : &task->moves.second;
    int size = task->group->size;
    int *src_counts = task->counts, *src_places = task->counts + size;
    int *dst_counts = task->counts + 2 * size, *dst_places = task->counts + 3 * size;
    MPI_Datatype type = type_of(task->moves.elem_bytes);
    MPI_Comm comm = task->stage == 0 ? task->group->comm : task->group->second;
    bool root = m->root == task->group->rank;
    int count = (int)m->count;

    if (m->src_at != NULL)
        parts_of(m->src_at, size, src_counts, src_places);
    if (m->dst_at != NULL)
        parts_of(m->dst_at, size, dst_counts, dst_places);
    switch (m->kind) {
    case TRII_MOVE_BROADCAST:
        return MPI_Ibcast(m->dst, count, type, m->root, comm, &task->request);
    case TRII_MOVE_GATHER:
        return MPI_Igatherv(root && m->in_place ? MPI_IN_PLACE : m->src, count, type, m->dst,
                            dst_counts, dst_places, type, m->root, comm, &task->request);
    case TRII_MOVE_SCATTER:
        return MPI_Iscatterv(m->src, src_counts, src_places, type,
                             root && m->in_place ? MPI_IN_PLACE : m->dst, count, type, m->root,
                             comm, &task->request);
    case TRII_MOVE_ALL_GATHER:
        return MPI_Iallgatherv(m->in_place ? MPI_IN_PLACE : m->src, count, type, m->dst, dst_counts,
                               dst_places, type, comm, &task->request);
    case TRII_MOVE_ALL_TO_ALL:
        return MPI_Ialltoallv(m->src, src_counts, src_places, type, m->dst, dst_counts, dst_places,
                              type, comm, &task->request);
    case TRII_MOVE_SEND:
        return MPI_Isend(m->src, count, type, m->root, m->tag, comm, &task->request);
    case TRII_MOVE_RECV:
        return MPI_Irecv(m->dst, count, type, m->root, m->tag, comm, &task->request);
    case TRII_MOVE_RECV_ANY:
        return MPI_Irecv(m->dst, count, type, MPI_ANY_SOURCE, m->tag, comm, &task->request);
    default:
        return MPI_Ibarrier(comm, &task->request);
    }
}

tri_status mpi_task_failed(mpi_task *task, int error)
{
    char words[MPI_MAX_ERROR_STRING] = "", call[256];
    int length = 0, kind = MPI_SUCCESS;
    bool truncated;

    MPI_Error_class(error, &kind);
    MPI_Error_string(error, words, &length);
    truncated = kind == MPI_ERR_TRUNCATE;
    mpi_host->describe(&task->op->call, call, sizeof(call));
    mpi_host->fault_raise(task->group->fault, truncated ? TRI_ERR_MISMATCH : TRI_ERR_PEER_LOST,
                          "rank %d: %s: %s", task->group->rank, call,
                          truncated ? "the message is longer than the receive" : words);
    return truncated ? TRI_ERR_MISMATCH : TRI_ERR_PEER_LOST;
}

/* A message may be shorter than its receive. */
static tri_status check_message(mpi_task *task, const MPI_Status *status)
{
    const trii_move *m = &task->moves.first;
    char call[256];
    int count = 0;

    MPI_Get_count(status, type_of(task->moves.elem_bytes), &count);
    if (task->op->call.from != NULL)
        *task->op->call.from = status->MPI_SOURCE;
    if (m->kind == TRII_MOVE_RECV_ANY)
        task->op->peer = status->MPI_SOURCE;
    if (count >= 0 && count <= (int)m->count) {
        task->op->count = (size_t)count;
        return TRI_OK;
    }
    mpi_host->describe(&task->op->call, call, sizeof(call));
    mpi_host->fault_raise(task->group->fault, TRI_ERR_MISMATCH,
                          "rank %d: %s: rank %d sent %d elements", task->group->rank, call,
                          status->MPI_SOURCE, count);
    return TRI_ERR_MISMATCH;
}

tri_status mpi_task_advance(mpi_task *task, const MPI_Status *status)
{
    const trii_moves *moves = &task->moves;
    trii_move_kind kind = moves->first.kind;
    int error;

    if (kind == TRII_MOVE_RECV || kind == TRII_MOVE_RECV_ANY)
        return check_message(task, status);
    if (task->stage == 0 && moves->n_parts > 0)
        mpi_host->reduce(moves->parts, moves->n_parts, moves->sum, moves->part_count,
                         task->op->call.dtype, task->op->call.op);
    if (task->stage == 2 || moves->second.kind == TRII_MOVE_NONE)
        return TRI_OK;
    task->stage = 1;
    if (task->ticket != task->group->turn)
        return TRI_INPROGRESS;
    task->group->turn++;
    task->stage = 2;
    error = mpi_task_start(task);
    return error == MPI_SUCCESS ? TRI_INPROGRESS : mpi_task_failed(task, error);
}
