/*
 * incoming.c - receives a checkpoint file by file, as transfer.h has it: it appears as those of
 * commit.c do, whole or not at all.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/transfer.h"
#include "os/file.h"
#include "os/folder.h"

struct trii_incoming {
    char *folder, *temporary, *final;
    char name[64]; /* the temporary one */
    int lock;
    bool began, in_file;
    trii_writer writer; /* of the file that comes in */
};

static void release(trii_incoming *in)
{
    trii_folder_unlock(in->lock);
    trii_free(in->final);
    trii_free(in->temporary);
    trii_free(in->folder);
    trii_free(in);
}

static tri_status end_file(trii_incoming *in)
{
    bool open = in->in_file;

    in->in_file = false;
    return open ? trii_writer_commit(&in->writer) : TRI_OK;
}

static tri_status begin(trii_incoming *in)
{
    tri_status status = trii_checkpoint_claim(in->folder, &in->lock);

    if (status == TRI_OK)
        status = trii_saved_sweep(in->folder);
    if (status == TRI_OK)
        status = trii_checkpoint_begin(in->temporary, in->final);
    if (status != TRI_OK)
        return status;
    in->began = true;
    status = trii_incoming_file(in, TRII_MANIFEST_FILE);
    if (status == TRI_OK)
        status = trii_incoming_put(in, TRII_NO_MANIFEST_YET, strlen(TRII_NO_MANIFEST_YET));
    return status == TRI_OK ? end_file(in) : status;
}

tri_status trii_incoming_open(const char *folder, int64_t step, trii_incoming **incoming_out)
{
    trii_incoming *in = trii_alloc(1, sizeof(*in), "incoming checkpoint");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (in == NULL)
        return status;
    in->lock = -1;
    snprintf(in->name, sizeof(in->name), TRII_TEMPORARY "step-%012" PRId64, step);
    in->folder = trii_strdup(folder, "path");
    if (in->folder != NULL) {
        in->temporary = trii_path_join(folder, in->name);
        in->final = trii_path_join(folder, in->name + strlen(TRII_TEMPORARY));
    }
    if (in->temporary != NULL && in->final != NULL)
        status = begin(in);
    if (status != TRI_OK) {
        trii_incoming_abort(in);
        return status;
    }
    *incoming_out = in;
    return TRI_OK;
}

/* What a checkpoint's files are called; it comes from another host. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("-_.", name[i]) == NULL)
            return false;
    }
    return n > 0 && n < TRII_FILE_NAME && name[0] != '.';
}

tri_status trii_incoming_file(trii_incoming *in, const char *name)
{
    tri_status status = end_file(in);
    char *path;

    if (status != TRI_OK)
        return status;
    if (!is_name(name))
        return TRII_FAIL(TRI_ERR_IO, "checkpoint %s: a file cannot be called %.40s", in->final,
                         name);
    path = trii_path_join(in->temporary, name);
    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_writer_open(path, &in->writer);
    in->in_file = status == TRI_OK;
    trii_free(path);
    return status;
}

tri_status trii_incoming_put(trii_incoming *in, const void *data, size_t bytes)
{
    return trii_writer_put(&in->writer, data, bytes);
}

tri_status trii_incoming_commit(trii_incoming *in, char **dir_out)
{
    trii_manifest manifest;
    tri_status status = end_file(in);

    if (status == TRI_OK) {
        status = trii_manifest_read(in->temporary, &manifest);
        if (status == TRI_OK)
            trii_manifest_fini(&manifest);
    }
    if (status == TRI_OK)
        status = trii_checkpoint_publish(in->folder, in->temporary, in->final);
    if (status != TRI_OK) {
        trii_incoming_abort(in);
        return status;
    }
    trii_saved_remove(in->folder, in->name); /* an earlier one of the same step, if any */
    *dir_out = in->final;
    in->final = NULL;
    release(in);
    return TRI_OK;
}

/* The line of the failure stays. */
void trii_incoming_abort(trii_incoming *in)
{
    char why[TRII_ERR_BYTES];

    if (in == NULL)
        return;
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (in->in_file)
        trii_writer_abort(&in->writer);
    if (in->began)
        trii_saved_remove(in->folder, in->name);
    release(in);
    trii_err_set("%s", why);
}
