/*
 * pickle.h - Python's pickles, read as data: a stack machine whose results are values, and which
 * calls nothing. A class is a name; what a pickle wants to make by calling one becomes an object
 * with that name and the arguments. Opcodes: Lib/pickletools.py of CPython; those are read that
 * torch.save writes in protocols 2 to 5, others are refused by name.
 */
#ifndef TRII_PICKLE_H
#define TRII_PICKLE_H

#include <trireme/torch_file.h>

#include "base/compiler.h"

/* Memory that is only given back as a whole. */
typedef struct trii_arena {
    struct trii_arena_block *block;
    size_t used, room; /* of that */
} trii_arena;

void trii_arena_fini(trii_arena *arena);
/* Zeroed; NULL (and the error line): memory is out. */
void *trii_arena_take(trii_arena *arena, size_t n, size_t size);

/* What a tensor is a view of. */
typedef struct trii_torch_storage {
    const char *key;
    const struct trii_torch_dtype *dtype; /* NULL: untyped, numel is in bytes */
    uint64_t numel;
    uint64_t first; /* legacy files: element of the root storage at which this view begins */
    uint64_t bytes; /* numel of them */
    struct trii_torch_storage *next; /* that the pickle named before */
} trii_torch_storage;

/* A value, with what only this room knows. */
typedef struct trii_value {
    tri_torch_value v;             /* first */
    bool is_class;                 /* OBJECT: the class itself, not what it would make */
    bool is_long;                  /* BYTES: a number of more than 64 bits */
    const tri_torch_value **items; /* [room] = v.items */
    int64_t room;
    trii_torch_storage *storage; /* OBJECT: it is a storage */
    tri_torch_tensor *tensor;    /* = v.tensor */
} trii_value;

typedef struct trii_pickle trii_pickle;

struct trii_pickle {
    const char *path;  /* of the file, and */
    uint64_t base;     /* where in it the pickle begins: for messages */
    trii_arena *arena; /* of all that is made */
    const unsigned char *data;
    size_t bytes, at;
    size_t opcode_at;
    trii_value **stack;
    size_t n_stack, stack_room;
    size_t *marks;
    size_t n_marks, marks_room;
    trii_value **memo;
    size_t memo_room, n_memo;
    trii_torch_storage *storages; /* the last that was named */
    size_t copied;                /* items and bytes that calls have copied */
};

typedef struct trii_pickled {
    const trii_value *root;
    trii_torch_storage *storages; /* all that it names; one may be there several times */
    size_t bytes;                 /* of the pickle */
} trii_pickled;

/* Reads the pickle that begins at data; `base` is the offset of that in the file. Errors: FORMAT,
 * UNSUPPORTED, NO_MEMORY, with the offset and the opcode's name. */
tri_status trii_pickle_read(const char *path, uint64_t base, const unsigned char *data,
                            size_t bytes, trii_arena *arena,
                            trii_pickled *pickled_out) TRI_MUST_CHECK;

/* --- within this room ----------------------------------------------------- */

/* NULL: memory is out. */
trii_value *trii_value_new(trii_pickle *p, tri_torch_kind kind);
/* To a list, tuple or set, or the next key or value of a dictionary. */
tri_status trii_value_add(trii_pickle *p, trii_value *to, const trii_value *item) TRI_MUST_CHECK;
/* The error of a pickle: names file, offset and opcode. A macro, so that the analyzer sees the
 * status. */
#define TRII_PICKLE_FAIL(p, status, ...) (trii_pickle_error((p), __VA_ARGS__), (status))
void trii_pickle_error(const trii_pickle *p, const char *format, ...) TRII_PRINTF(2, 3);
/* A call copies so many items or bytes. FORMAT: more than an honest pickle can have. */
tri_status trii_pickle_copies(trii_pickle *p, int64_t n) TRI_MUST_CHECK;
/* "TUPLE", ...: NULL for a byte that is no opcode. */
const char *trii_opcode_name(unsigned char opcode);
/* What a call of a class or function with these arguments gives (pickle_calls.c). */
tri_status trii_pickle_call(trii_pickle *p, const trii_value *callee, const trii_value *args,
                            trii_value **made_out) TRI_MUST_CHECK;
/* What the persistent id of torch.save stands for: a storage. */
tri_status trii_pickle_persistent(trii_pickle *p, const trii_value *id,
                                  trii_value **made_out) TRI_MUST_CHECK;

#endif
