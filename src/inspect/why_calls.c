/*
 * why_calls.c - which worker waits for which call of whom (rpc/rpc_record.h).
 */
#include <string.h>

#include "inspect/why_internal.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"
#include "rpc/rpc_record.h"

enum { MAX_FILES = 4096 };

#define TROUBLE_S 1.5 /* calls of a healthy job are not waited for so long */

static void end_text(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
}

static tri_status tell(trii_why_job *job, const rpc_record_file *file, rpc_record *r,
                       int64_t now_ns, bool is_stopped)
{
    double seconds = (double)(now_ns - r->began_ns) / 1e9;
    trii_why_finding *f;

    if (seconds < TROUBLE_S)
        return TRI_OK;
    f = trii_why_add(job, WEIGHT_PAIR, "call", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    end_text(r->function, sizeof(r->function));
    end_text(r->to, sizeof(r->to));
    end_text(r->file, sizeof(r->file));
    snprintf(f->text, sizeof(f->text), "worker %s (pid %d%s) waits for %s of %s for %.1f s%s",
             file->name, file->pid, is_stopped ? ", stopped" : "", r->function, r->to, seconds,
             r->state == RPC_RECORD_WAITS ? ", which has not been sent" : "");
    if (r->line > 0)
        trii_why_append(f->text, sizeof(f->text), ", called at %s:%d", r->file, r->line);
    f->seconds = seconds;
    return TRI_OK;
}

static tri_status look_into(trii_why_job *job, const char *name)
{
    char path[1024];
    static rpc_record_file copy; /* of a file that its writer still changes */
    trii_mapping mapping = {0};
    int pid = 0;
    trii_liveness liveness;
    tri_status status;

    snprintf(path, sizeof(path), "%s/%s", job->folder, name);
    liveness = trii_liveness_look(path, &pid);
    if (liveness == TRII_LIVENESS_GONE || trii_mapping_open(path, &mapping) != TRI_OK)
        return TRI_OK;
    if (mapping.bytes == sizeof(copy))
        memcpy((void *)&copy, mapping.data, sizeof(copy));
    status = mapping.bytes == sizeof(copy) ? TRI_OK : TRI_END;
    trii_mapping_close(&mapping);
    if (status != TRI_OK || memcmp(copy.magic, RPC_RECORD_MAGIC, sizeof(copy.magic)) != 0)
        return TRI_OK;
    end_text(copy.name, sizeof(copy.name));
    for (int i = 0; i < RPC_RECORDS && status == TRI_OK; i++) {
        if (copy.records[i].chain != 0)
            status =
                tell(job, &copy, &copy.records[i], job->now_ns, liveness == TRII_LIVENESS_STOPPED);
    }
    return status;
}

tri_status trii_why_find_calls(trii_why_job *job)
{
    char **names = NULL;
    int n = 0;
    tri_status status = TRI_OK;

    if (trii_folder_list(job->folder, MAX_FILES, &names, &n) != TRI_OK)
        return TRI_OK;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        size_t length = strlen(names[i]);

        if (length > 8 && strncmp(names[i], "rpc-", 4) == 0 &&
            strcmp(names[i] + length - 4, ".rec") == 0)
            status = look_into(job, names[i]);
    }
    trii_folder_free_names(names, n);
    return status;
}
