/*
 * pickle_write.c - see pickle_write.h. Called by torch_write.c.
 */
#include "train/torch/pickle_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "train/torch/torch_dtype.h"

/* Opcodes. */
#define PROTO "\x80\2"
#define ORDERED_DICT "ccollections\nOrderedDict\n)R"
#define UNICODE 'X'

/* Text that grows. */
typedef struct text {
    char *bytes;
    size_t n, room;
    bool failed; /* memory is out */
} text;

static void put(text *t, const void *bytes, size_t n)
{
    if (!t->failed && n > t->room - t->n) {
        size_t room = t->room > 0 ? t->room : 4096;
        char *grown;

        while (room - t->n < n)
            room *= 2;
        grown = trii_realloc(t->bytes, room, 1, "pickle");
        t->failed = grown == NULL;
        if (t->failed)
            return;
        t->bytes = grown;
        t->room = room;
    }
    if (t->failed)
        return;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static void put_text(text *t, const char *bytes)
{
    put(t, bytes, strlen(bytes));
}

static void put_unicode(text *t, const char *value)
{
    size_t n = strlen(value);
    unsigned char head[5] = {UNICODE, (unsigned char)n, (unsigned char)(n >> 8),
                             (unsigned char)(n >> 16), (unsigned char)(n >> 24)};

    put(t, head, sizeof(head));
    put(t, value, n);
}

/* Not negative: BININT1, or LONG1 of 8 bytes. */
static void put_int(text *t, int64_t value)
{
    unsigned char wide[10] = {0x8a, 8}, narrow[2] = {'K', (unsigned char)value};

    if (value < 256) {
        put(t, narrow, sizeof(narrow));
        return;
    }
    for (int i = 0; i < 8; i++)
        wide[2 + i] = (unsigned char)((uint64_t)value >> 8 * i);
    put(t, wide, sizeof(wide));
}

static void put_global(text *t, const char *module, const char *name)
{
    put_text(t, "c");
    put_text(t, module);
    put_text(t, "\n");
    put_text(t, name);
    put_text(t, "\n");
}

/* (storage, offset, size, stride, requires_grad, hooks), and a dtype where the storage has none. */
static void put_tensor(text *t, const tri_safetensors_entry *e, int64_t key)
{
    const trii_torch_dtype *dtype = trii_torch_dtype_of(e->dtype);
    int64_t strides[TRI_MAX_DIMS], step = 1;
    char digits[24];

    put_global(t, "torch._utils",
               dtype->storage != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    put_text(t, "((");
    put_unicode(t, "storage");
    if (dtype->storage != NULL)
        put_global(t, "torch", dtype->storage);
    else
        put_global(t, "torch.storage", "UntypedStorage");
    snprintf(digits, sizeof(digits), "%" PRId64, key);
    put_unicode(t, digits);
    put_unicode(t, "cpu");
    put_int(t, (int64_t)(dtype->storage != NULL ? e->bytes / dtype->size : e->bytes));
    put_text(t, "tQK");
    put(t, "", 1);
    put_text(t, "(");
    for (int d = 0; d < e->ndim; d++)
        put_int(t, e->shape[d]);
    for (int d = e->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= e->shape[d] > 0 ? e->shape[d] : 1;
    }
    put_text(t, "t(");
    for (int d = 0; d < e->ndim; d++)
        put_int(t, strides[d]);
    put_text(t, "t\x89" ORDERED_DICT);
    if (dtype->storage == NULL)
        put_global(t, "torch", dtype->name);
    put_text(t, "tR");
}

tri_status trii_pickle_write(const tri_safetensors_entry *entries, int64_t n,
                             const int64_t *storages, char **own_bytes_out, size_t *bytes_out)
{
    text t = {.n = 0};

    put_text(&t, PROTO ORDERED_DICT "(");
    for (int64_t i = 0; i < n && !t.failed; i++) {
        put_unicode(&t, entries[i].name);
        put_tensor(&t, &entries[i], storages[i]);
    }
    put_text(&t, "u.");
    if (t.failed) {
        trii_free(t.bytes);
        return TRI_ERR_NO_MEMORY;
    }
    *own_bytes_out = t.bytes;
    *bytes_out = t.n;
    return TRI_OK;
}
