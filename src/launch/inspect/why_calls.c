/*
 * why_calls.c - which worker waits for which call of whom (comm/rpc/rpc_record.h).
 */
#include <string.h>

#include "launch/inspect/why_internal.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"
#include "comm/rpc/rpc_record.h"

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
    bool runs = r->state == RPC_RECORD_RUNS; /* a request of that worker */
    trii_why_finding *f;

    if (seconds < TROUBLE_S)
        return TRI_OK;
    f = trii_why_add(job, WEIGHT_PAIR, "call", NULL);
    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    end_text(r->function, sizeof(r->function));
    end_text(r->to, sizeof(r->to));
    end_text(r->file, sizeof(r->file));
    snprintf(f->text, sizeof(f->text), "worker %s (pid %d%s) %s %s of %s for %.1f s%s", file->name,
             file->pid, is_stopped ? ", stopped" : "", runs ? "runs" : "waits for", r->function,
             r->to, seconds,
             runs                           ? " in a thread that waits for a call"
             : r->state == RPC_RECORD_WAITS ? ", which has not been sent"
                                            : "");
    if (r->line > 0)
        trii_why_append(f->text, sizeof(f->text), "%s at %s:%d", runs ? "" : ", called", r->file,
                        r->line);
    f->seconds = seconds;
    return TRI_OK;
}

/* Of a file that its writer still changes; its texts end. False: it is no record. */
static bool read_record(const trii_why_job *job, const char *name, rpc_record_file *copy)
{
    char path[1024];
    trii_mapping mapping = {0};
    bool is_record;

    snprintf(path, sizeof(path), "%s/%s", job->folder, name);
    if (trii_mapping_open(path, &mapping) != TRI_OK)
        return false;
    is_record = mapping.bytes == sizeof(*copy);
    if (is_record)
        memcpy((void *)copy, mapping.data, sizeof(*copy));
    trii_mapping_close(&mapping);
    is_record = is_record && memcmp(copy->magic, RPC_RECORD_MAGIC, sizeof(copy->magic)) == 0;
    if (is_record)
        end_text(copy->name, sizeof(copy->name));
    return is_record;
}

static tri_status look_into(trii_why_job *job, const char *name)
{
    char path[1024];
    static rpc_record_file copy;
    int pid = 0;
    trii_liveness liveness;
    tri_status status = TRI_OK;

    snprintf(path, sizeof(path), "%s/%s", job->folder, name);
    liveness = trii_liveness_look(path, &pid);
    if (liveness == TRII_LIVENESS_GONE || !read_record(job, name, &copy))
        return TRI_OK;
    for (int i = 0; i < RPC_RECORDS && status == TRI_OK; i++) {
        if (copy.records[i].chain != 0)
            status =
                tell(job, &copy, &copy.records[i], job->now_ns, liveness == TRII_LIVENESS_STOPPED);
    }
    return status;
}

/* Names of record files; the caller frees them. */
static int list_records(const trii_why_job *job, char ***names_out, int *n_out)
{
    int n = 0;

    if (trii_folder_list(job->folder, MAX_FILES, names_out, n_out) != TRI_OK)
        return -1;
    for (int i = 0; i < *n_out; i++) {
        char *name = (*names_out)[i];
        size_t length = strlen(name);

        if (length > 8 && strncmp(name, "rpc-", 4) == 0 && strcmp(name + length - 4, ".rec") == 0) {
            (*names_out)[i] = (*names_out)[n];
            (*names_out)[n++] = name;
        }
    }
    return n;
}

tri_status trii_why_find_calls(trii_why_job *job)
{
    char **names = NULL;
    int n = 0, n_records = list_records(job, &names, &n);
    tri_status status = TRI_OK;

    for (int i = 0; i < n_records && status == TRI_OK; i++)
        status = look_into(job, names[i]);
    trii_folder_free_names(names, n);
    return status;
}

bool trii_why_append_worker(const trii_why_job *job, int pid, char *text, size_t size)
{
    static rpc_record_file copy;
    char **names = NULL;
    rpc_record *last = NULL;
    int n = 0, n_records = list_records(job, &names, &n);
    bool found = false;

    for (int i = 0; i < n_records && !found; i++)
        found = read_record(job, names[i], &copy) && copy.pid == pid;
    trii_folder_free_names(names, n);
    if (!found)
        return false;
    for (int i = 0; i < RPC_RECORDS; i++) {
        rpc_record *r = &copy.records[i];

        if (r->chain != 0 && r->state != RPC_RECORD_RUNS &&
            (last == NULL || r->began_ns > last->began_ns))
            last = r;
    }
    trii_why_append(text, size, " in its own code, as worker %s of RPC", copy.name);
    if (last != NULL) {
        end_text(last->function, sizeof(last->function));
        end_text(last->to, sizeof(last->to));
        trii_why_append(text, size, ", with a call of %s on %s under way", last->function,
                        last->to);
    }
    return true;
}
