/*
 * file.h - files: mapped for reading, written so that a name never shows half a file.
 */
#ifndef TRII_FILE_H
#define TRII_FILE_H

#include <trireme/status.h>

/* A whole file in memory, read only. */
typedef struct trii_mapping {
    const void *data; /* valid pointer even when bytes is 0 */
    size_t bytes;
} trii_mapping;

/* Errors: NOT_FOUND, IO (names the path and the reason). */
tri_status trii_mapping_open(const char *path, trii_mapping *mapping_out) TRI_MUST_CHECK;
void trii_mapping_close(trii_mapping *mapping); /* zeroed ones allowed */

/* A file to be read by its descriptor. Errors as above. */
tri_status trii_input_open(const char *path, int *fd_out) TRI_MUST_CHECK;

/* Bytes from a place on. path: for messages. Errors: IO, FORMAT (the file ends before). */
tri_status trii_input_read(int fd, const char *path, uint64_t at, void *data,
                           size_t bytes) TRI_MUST_CHECK;

/* The whole file, at most `most` bytes, in memory that is used again from call to call: *own_memory
 * (NULL at first; release with trii_free) of *room bytes. Errors: as above, NO_MEMORY, FORMAT (it
 * is larger). */
tri_status trii_file_load(const char *path, size_t most, void **own_memory_inout,
                          size_t *room_inout, size_t *bytes_out) TRI_MUST_CHECK;

/* What follows a file's name in the name that it has while it is written. */
#define TRII_WRITER_MARK ".tmp-"

/* A file that is being written: under a temporary name beside its own until the commit. */
typedef struct trii_writer {
    char *path, *temporary;
    int fd;
    uint64_t bytes; /* written so far */
} trii_writer;

/* A name that is a link stays one: the file that it leads to is replaced, or made where its folder
 * is there. Only a file is ever replaced, and the new one gets its owner, group and rights as far
 * as this process may give them. Errors: NO_MEMORY, IO (also what is there and no file, or our own
 * output), NOT_FOUND. After a failure nothing is left. */
tri_status trii_writer_open(const char *path, trii_writer *writer_out) TRI_MUST_CHECK;
tri_status trii_writer_put(trii_writer *writer, const void *data, size_t bytes) TRI_MUST_CHECK;
/* Syncs, renames, syncs the folder. The writer is closed, also on failure; then the temporary
 * file is gone and an older file of that name as it was. */
tri_status trii_writer_commit(trii_writer *writer) TRI_MUST_CHECK;
/* As commit, but does not wait for the disk: for what is written again anyway, or of use only while
 * the machine runs. */
tri_status trii_writer_publish(trii_writer *writer) TRI_MUST_CHECK;
/* Opens, puts and publishes. Errors: as those. */
tri_status trii_file_replace(const char *path, const void *data, size_t bytes) TRI_MUST_CHECK;
void trii_writer_abort(trii_writer *writer); /* harmless after open's failure or commit */

/* src becomes dst; an existing folder dst changes places with src, in one step where the file
 * system can. */
tri_status trii_path_rename(const char *src, const char *dst) TRI_MUST_CHECK;
bool trii_path_exists(const char *path);
/* The name from the root on, whether something is there or not. Errors: IO. */
tri_status trii_path_absolute(const char *path, char *path_out, size_t bytes) TRI_MUST_CHECK;
bool trii_path_is_folder(const char *path); /* and no link to one */
/* Whether it is a folder or a link to one. IO: that cannot be known. */
tri_status trii_path_leads_to_folder(const char *path, bool *leads_out) TRI_MUST_CHECK;
bool trii_path_is_file(const char *path); /* and no folder, device or pipe; links are followed */
/* Whether it is one of those, or a link that leads round in a circle: no file to read, whenever it
 * is tried; false where that cannot be known. */
bool trii_path_is_no_file(const char *path);
/* Whether writing to both is writing to one file, which need not be there yet; links are followed.
 * What is there and no file, such as /dev/null, is never the same. */
bool trii_path_is_same_file(const char *a, const char *b);
/* Whether the file system of this file has no room left; false where that is not known. */
bool trii_path_is_full(const char *path);
/* A file; a missing one is no failure. */
tri_status trii_path_remove(const char *path) TRI_MUST_CHECK;

/* Appends `bytes` to a stream's file in one write, past the stream's own buffer. */
tri_status trii_append(int fd, const char *path, const void *data, size_t bytes) TRI_MUST_CHECK;
/* The same, and what a full disk took of it is removed again, unless somebody has written after
 * it. */
tri_status trii_append_whole(int fd, const char *path, const void *data,
                             size_t bytes) TRI_MUST_CHECK;
/* Does not wait for the reader of a FIFO. A file that is our standard output or error already is
 * written in turn with it. Errors: IO (a FIFO without a reader is told), NOT_FOUND. */
tri_status trii_append_open(const char *path, int *fd_out) TRI_MUST_CHECK;

#endif
