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
    bool is_unknown; /* of a class that is not known: nobody knows what numel counts */
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
/* Item i of a container; NULL: it has none. */
static inline const trii_value *trii_value_item(const trii_value *of, int64_t i)
{
    return i < of->v.n ? (const trii_value *)of->v.items[i] : NULL;
}
/* value: NULL is of no kind. */
static inline bool trii_value_is(const trii_value *value, tri_torch_kind kind)
{
    return value != NULL && value->v.kind == kind;
}
/* (storage, offset, size, stride, requires_grad, hooks), in version 3 a dtype, and the bits. */
tri_status trii_pickle_tensor(trii_pickle *p, const trii_value *args, bool has_dtype,
                              trii_value **made_out) TRI_MUST_CHECK;
/* (tensor, requires_grad, hooks): a tensor of its own, since the same may be shared. */
tri_status trii_pickle_parameter(trii_pickle *p, const trii_value *args,
                                 trii_value **made_out) TRI_MUST_CHECK;
/* A tensor whose elements are not plain numbers in a storage: it is listed, and refused when it is
 * read. */
enum trii_other_tensor {
    TRII_TENSOR_QUANTIZED,
    TRII_TENSOR_SPARSE,
    TRII_TENSOR_NESTED,
    TRII_TENSOR_META,
    TRII_TENSOR_WRAPPER,
    TRII_TENSOR_TYPED, /* (function, class, arguments, state) */
    TRII_TENSOR_DEVICE
};
tri_status trii_pickle_other_tensor(trii_pickle *p, enum trii_other_tensor kind,
                                    const trii_value *args, trii_value **made_out) TRI_MUST_CHECK;
/* What a call of a class or function with these arguments gives (pickle_calls.c). */
tri_status trii_pickle_call(trii_pickle *p, const trii_value *callee, const trii_value *args,
                            trii_value **made_out) TRI_MUST_CHECK;
/* What the persistent id of torch.save stands for: a storage. */
tri_status trii_pickle_persistent(trii_pickle *p, const trii_value *id,
                                  trii_value **made_out) TRI_MUST_CHECK;

#endif
