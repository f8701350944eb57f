/*
 * mpi.c - see mpi_engine.h: the engine's table.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine-mpi/mpi_engine.h"

const trii_host *mpi_host;

/* --- forming -------------------------------------------------------------- */

/* Everybody's rank in MPI_COMM_WORLD, through the store; the same verdict on all ranks. */
static tri_status find_members(const trii_group_args *args, int mine, int world_size, int *members)
{
    char key[32], text[32];
    tri_status status;

    snprintf(key, sizeof(key), "world_rank/%d", args->rank);
    snprintf(text, sizeof(text), "%d %d", mine, world_size);
    status = args->size > 1 ? mpi_host->store_set(args->store, key, text, strlen(text)) : TRI_OK;
    members[args->rank] = mine;
    for (int r = 0; r < args->size && status == TRI_OK; r++) {
        char *value = NULL, *end;

        if (r == args->rank)
            continue;
        snprintf(key, sizeof(key), "world_rank/%d", r);
        status = mpi_host->store_get(args->store, key, mpi_host->group_left_ms(args),
                                     (void **)&value, NULL);
        if (status != TRI_OK)
            break;
        members[r] = (int)strtol(value, &end, 10);
        mpi_host->store_free(value);
    }
    for (int r = 0; r < args->size && status == TRI_OK; r++) {
        for (int q = 0; q < r; q++) {
            if (members[q] == members[r])
                return mpi_host->fail(TRI_ERR_UNSUPPORTED,
                                      "engine " TRII_PLUGIN_NAME ": ranks %d and %d are one rank "
                                      "of MPI (%d): start with this MPI's own mpirun, a process "
                                      "for each rank",
                                      q, r, members[r]);
        }
        if (members[r] >= world_size)
            return mpi_host->fail(TRI_ERR_UNSUPPORTED,
                                  "engine " TRII_PLUGIN_NAME
                                  ": rank %d is in another world of MPI than rank %d",
                                  r, args->rank);
    }
    return status;
}

/* The same on all ranks of a group, and another one for groups that form at the same time. */
static int tag_of(const trii_group_args *args)
{
    return (int)(trii_hash32(args->name) & 0x7fff);
}

static tri_status mpi_create(const trii_group_args *args, void **self_out)
{
    mpi_group *group = mpi_host->alloc(1, sizeof(*group), "mpi group");
    int *members = mpi_host->alloc((size_t)args->size, sizeof(*members), "mpi group");
    mpi_order order = {.kind = MPI_ORDER_FORM, .group = group};
    int mine = 0, world_size = 0;
    tri_status status;

    if (group == NULL || members == NULL) {
        mpi_host->free(members);
        mpi_host->free(group);
        return mpi_host->group_agree(args, "mpi", TRI_ERR_NO_MEMORY);
    }
    status = mpi_host->group_agree(args, "mpi", mpi_world_join(&mine, &world_size));
    if (status == TRI_OK)
        status =
            mpi_host->group_agree(args, "members", find_members(args, mine, world_size, members));
    if (status == TRI_OK) {
        *group = (mpi_group){.rank = args->rank,
                             .size = args->size,
                             .fault = args->fault,
                             .comm = MPI_COMM_NULL,
                             .members = members,
                             .tag = tag_of(args)};
        status = mpi_host->group_agree(args, "comm", mpi_world_order(&order));
    }
    mpi_host->free(members);
    if (status != TRI_OK) {
        mpi_host->free(group);
        return status;
    }
    *self_out = group;
    return TRI_OK;
}

/* --- calls ---------------------------------------------------------------- */

static tri_status mpi_submit(void *self, trii_op *op, bool waits)
{
    mpi_group *group = self;
    tri_status status = trii_fault_status(group->fault);
    mpi_task *task = NULL;

    (void)waits;
    if (status != TRI_OK)
        return mpi_host->fail(status, "%s", group->fault->text);
    if (op->call.tag < 0 && trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        return mpi_host->fail(TRI_ERR_UNSUPPORTED,
                              "engine " TRII_PLUGIN_NAME
                              ": tag %d is negative, which MPI does not allow",
                              op->call.tag);
    status = mpi_task_create(group, op, &task);
    if (status == TRI_OK)
        mpi_world_post(task);
    return status;
}

static void mpi_progress(void *self, trii_op *op, int64_t until_ns)
{
    (void)self;
    if (until_ns != 0)
        mpi_host->op_sleep(op, until_ns);
}

static void mpi_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    (void)self;
    switch (op->call.kind) {
    case TRII_KIND_SEND:
        snprintf(text, size, "rank %d to take the message", op->call.root);
        break;
    case TRII_KIND_RECV:
        snprintf(text, size, "rank %d to send the message", op->call.root);
        break;
    default:
        snprintf(text, size, "some rank (MPI does not say which; `trireme why` may)");
        break;
    }
}

static void mpi_abort(void *self)
{
    (void)self;
    mpi_world_wake();
}

/* What this rank sent last arrives nevertheless: MPI_Finalize sees to that. */
static void mpi_leave(void *self)
{
    mpi_group *group = self;
    mpi_order order = {.kind = MPI_ORDER_LEAVE, .group = group};
    tri_status status = group->left ? TRI_OK : mpi_world_order(&order);

    (void)status; /* leaving does not fail */
    group->left = true;
}

static void mpi_destroy(void *self)
{
    mpi_leave(self);
    mpi_host->free(self);
}

static const trii_engine engine = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = TRII_PLUGIN_NAME,
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .create = mpi_create,
    .submit = mpi_submit,
    .progress = mpi_progress,
    .describe_wait = mpi_describe_wait,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
    .leave = mpi_leave,
};

__attribute__((visibility("default"))) const trii_engine *trii_engine_open(const trii_host *host)
{
    if (host->abi != TRII_HOST_ABI || host->size < sizeof(*host)) {
        (void)host->fail(TRI_ERR_UNSUPPORTED, "was built for another version of the library");
        return NULL;
    }
    mpi_host = host;
    return &engine;
}
