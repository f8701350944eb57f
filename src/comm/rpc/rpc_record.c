/*
 * rpc_record.c - see rpc_record.h. Without TRI_RUN_DIR nothing is recorded.
 */
/* build: leaf */
#include "comm/rpc/rpc_record.h"

#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "os/process.h"
#include "comm/rpc/rpc_internal.h"

void rpc_record_open(tri_rpc *rpc)
{
    const char *folder = trii_param_text(TRII_PARAM_RUN_DIR);
    char path[512];
    void *base = NULL;
    rpc_record_file *file;

    rpc->record_fd = -1;
    if (folder == NULL)
        return;
    snprintf(path, sizeof(path), "%s/rpc-%.100s.rec", folder, rpc->name);
    if (trii_shmem_map_file(path, sizeof(*file), &rpc->record_fd, &base) != TRI_OK) {
        TRII_LOG(TRII_LOG_WARN, "rpc", "calls are not recorded: %s", tri_last_error());
        return;
    }
    file = base;
    file->pid = trii_process_id();
    file->rank = rpc->rank;
    snprintf(file->name, sizeof(file->name), "%.63s", rpc->name);
    memcpy(file->magic, RPC_RECORD_MAGIC, sizeof(RPC_RECORD_MAGIC));
    rpc->record_file = file;
}

void rpc_record_close(tri_rpc *rpc)
{
    if (rpc->record_file != NULL)
        trii_shmem_unmap_file(rpc->record_fd, rpc->record_file, sizeof(*rpc->record_file));
    rpc->record_file = NULL;
}

/* What the reference was found by, else a worker: that which it was sent to, or, as long as it
 * waits for a promise, the one that makes it. */
static void record_callee(const tri_rpc_call *call, rpc_record *r)
{
    const tri_rpc_ref *to = call->to;

    while (to->maker != NULL && to->name == NULL)
        to = to->maker->to;
    snprintf(r->to, sizeof(r->to), "%s",
             call->to->name != NULL ? call->to->name
             : call->peer != NULL   ? call->peer->name
             : to->name != NULL     ? to->name
                                    : to->owner);
}

/* NULL: there is none. */
static rpc_record *begin(tri_rpc *rpc, int *place_out, int64_t began_ns, const trii_site *site,
                         const char *function)
{
    rpc_record_file *file = rpc->record_file;
    const char *name = site->file != NULL ? site->file : "", *slash = strrchr(name, '/');
    rpc_record *r = NULL;

    for (int i = 0; i < RPC_RECORDS && r == NULL; i++) {
        int at = (rpc->next_record + i) % RPC_RECORDS;

        if (atomic_load_explicit(&file->records[at].chain, memory_order_relaxed) == 0) {
            r = &file->records[at];
            *place_out = at;
            rpc->next_record = at + 1;
        }
    }
    if (r == NULL) {
        atomic_fetch_add(&file->unlisted, 1);
        return NULL;
    }
    r->began_ns = began_ns;
    r->line = site->file != NULL ? site->line : 0;
    snprintf(r->file, sizeof(r->file), "%s", slash != NULL ? slash + 1 : name);
    snprintf(r->function, sizeof(r->function), "%s", function);
    return r;
}

void rpc_record_call(tri_rpc_call *call)
{
    rpc_record *r;

    call->record = -1;
    if (TRII_LIKELY(call->rpc->record_file == NULL))
        return;
    r = begin(call->rpc, &call->record, call->began_ns, &call->site, call->function->name);
    if (r == NULL)
        return;
    record_callee(call, r);
    atomic_store(&r->state, RPC_RECORD_WAITS);
    atomic_store_explicit(&r->chain, call->chain, memory_order_release);
}

void rpc_record_state(tri_rpc_call *call, int state)
{
    rpc_record_file *file = call->rpc->record_file;

    if (TRII_LIKELY(file == NULL) || call->record < 0)
        return;
    if (state != 0) {
        record_callee(call, &file->records[call->record]);
        atomic_store(&file->records[call->record].state, state);
    } else {
        rpc_record_end(call->rpc, call->record);
    }
}

int rpc_record_handler(const tri_rpc_request *request, const rpc_waiter *waiter)
{
    int place = -1;
    rpc_record *r;

    if (TRII_LIKELY(request->rpc->record_file == NULL))
        return place;
    r = begin(request->rpc, &place, trii_now_ns(), &waiter->site, request->function->name);
    if (r == NULL)
        return place;
    snprintf(r->to, sizeof(r->to), "%s", request->peer->name);
    atomic_store(&r->state, RPC_RECORD_RUNS);
    atomic_store_explicit(&r->chain, request->chain, memory_order_release);
    return place;
}

void rpc_record_end(const tri_rpc *rpc, int place)
{
    if (TRII_LIKELY(place < 0) || rpc->record_file == NULL)
        return;
    atomic_store(&rpc->record_file->records[place].chain, 0);
}
