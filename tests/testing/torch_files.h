/*
 * torch_files.h - files of torch.save: golden ones, and bytes that a test makes one of. Tests only.
 */
#ifndef TEST_TORCH_FILES_H
#define TEST_TORCH_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/torch_file.h>

#define GOLDEN_FOLDER "torch/"
#include "testing/golden.h"
#include "testing/memory_file.h"

static inline tri_status read_named(tri_torch_file *file, const char *name, void *data,
                                    size_t bytes)
{
    for (int64_t i = 0; i < tri_torch_count(file); i++)
        if (strcmp(tri_torch_at(file, i)->name, name) == 0)
            return tri_torch_read(file, i, data, bytes);
    return TRI_ERR_NOT_FOUND;
}

/* Element i of a golden tensor. */
static inline int value_of(int key, int64_t i)
{
    return (int)((key * 37 + i * 11) % 100 - 50);
}

/* index: of the elements in it, if it is a view; NULL: all in order. */
static inline void expect_f32(tri_torch_file *file, const char *name, int key, const int64_t *index,
                              int64_t n)
{
    const tri_torch_tensor *t = tri_torch_find(file, name);
    float data[64];

    assert_non_null(t);
    assert_int_equal(t->dtype, TRI_DTYPE_F32);
    assert_int_equal(t->bytes, (size_t)n * 4);
    CHECK_OK(read_named(file, name, data, (size_t)n * 4));
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(data[i], (float)value_of(key, index != NULL ? index[i] : i), 0);
}

/* A file with these bytes. */
static inline tri_status open_bytes(const memory_file *m, const void *data, size_t bytes,
                                    tri_torch_file **file)
{
    memory_file_write(m, data, bytes);
    return tri_torch_open(m->path, file);
}

/* A file of before torch 1.6, by hand: these, the pickle of an object, and what follows it: the
 * keys of the storages, here none. */
#define TORCH_HEAD                                                                                 \
    "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."                                      \
    "M\xe9\x03.}."
#define TORCH_TAIL "]."

/* With that object. */
static inline void write_pickle(const memory_file *m, const char *pickle, size_t bytes)
{
    char data[4096];
    size_t head = sizeof(TORCH_HEAD) - 1;

    assert_true(head + bytes + 2 < sizeof(data));
    memcpy(data, TORCH_HEAD, head);
    memcpy(data + head, pickle, bytes);
    memcpy(data + head + bytes, TORCH_TAIL, 2);
    memory_file_write(m, data, head + bytes + 2);
}

#endif
