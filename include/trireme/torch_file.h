/*
 * torch_file.h - files of torch.save: read as data, without Python, and written so that torch.load
 * takes them with weights_only=True.
 *
 *     tri_torch_file *file;
 *
 *     TRI_TRY(tri_torch_open("resnet18.pth", &file));
 *     for (int64_t i = 0; i < tri_torch_count(file); i++)
 *         puts(tri_torch_at(file, i)->name);
 *     tri_torch_close(file);
 *
 * tri_load takes such a file, too. Nothing in it is run: a class that is not known here becomes an
 * object with a name and arguments. Files of torch 1.6 and later (ZIP) and of earlier ones are
 * read. An open file is used by one thread at a time.
 */
#ifndef TRIREME_TORCH_FILE_H
#define TRIREME_TORCH_FILE_H

#include <trireme/checkpoint.h>
#include <trireme/tensor.h>

TRI_BEGIN_DECLS

typedef struct tri_torch_file tri_torch_file; /* an open one */

/* A tensor of a file: a view of a storage, which several may share. */
typedef struct tri_torch_tensor {
    const char *name;      /* keys and indices that lead to it, joined by '.'; "tensor" if the file
                            * holds nothing else */
    tri_dtype dtype;       /* NONE for a type that Trireme lacks: see type_name */
    const char *type_name; /* torch's: "float32", "complex64", ... */
    size_t element_bytes;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    int64_t stride[TRI_MAX_DIMS]; /* in elements */
    int64_t offset;               /* of its first element in the storage, in elements */
    const char *storage;          /* key of the storage, */
    uint64_t storage_bytes;       /* its size, */
    uint64_t file_offset;         /* and where in the file its first byte is */
    uint64_t bytes;               /* of its elements, without gaps */
    bool requires_grad;
    const char *refused; /* why its elements are not read, and the remedy: "sparse: save its
                          * to_dense()"; NULL: they are. Its bytes are 0 then */
    TRI_RESERVED(3);
} tri_torch_tensor;

typedef enum tri_torch_kind {
    TRI_TORCH_NONE = 0,
    TRI_TORCH_BOOL, /* integer is 0 or 1 */
    TRI_TORCH_INT,
    TRI_TORCH_FLOAT,
    TRI_TORCH_TEXT, /* UTF-8, a 0 after it */
    TRI_TORCH_BYTES,
    TRI_TORCH_TUPLE,
    TRI_TORCH_LIST,
    TRI_TORCH_SET,
    TRI_TORCH_DICT, /* items: keys and values in turn */
    TRI_TORCH_TENSOR,
    TRI_TORCH_OBJECT /* text: its class, such as "torch.device"; or the class itself */
} tri_torch_kind;

/* A value of a file. What its kind does not need is 0. */
typedef struct tri_torch_value {
    tri_torch_kind kind;
    int64_t integer;
    double real;
    const char *text;                           /* of a container: its class, if it is derived */
    size_t bytes;                               /* of the text, or the bytes */
    const struct tri_torch_value *const *items; /* [n] */
    int64_t n;
    const tri_torch_tensor *tensor;
    const struct tri_torch_value *arguments; /* OBJECT: a tuple, or NULL */
    const struct tri_torch_value *state;     /* what is set after it was made, or NULL */
    TRI_RESERVED(2);
} tri_torch_value;

/**
 * Maps a file and reads all of it but the elements of its tensors. Every offset, size and stride is
 * checked before the first value can be seen. While it is open nobody may shorten the file or write
 * into it (`cp` over it does): what the file then lacks raises SIGBUS. A file that is renamed to
 * its name, as everything here and huggingface_hub do it, harms nobody. Errors: NOT_FOUND, IO,
 * NO_MEMORY; FORMAT (names the file, the offset and what is wrong there); UNSUPPORTED (an opcode
 * that is not read, a compressed file, an object of a class of its own).
 */
TRI_API TRI_MUST_CHECK tri_status tri_torch_open(const char *path, tri_torch_file **file_out);
/* NULL allowed; all that was borrowed becomes invalid */
TRI_API void tri_torch_close(tri_torch_file *file);
/* What torch.save was given. Values may be shared, and a damaged file may have circles. Borrowed.
 */
TRI_API const tri_torch_value *tri_torch_root(const tri_torch_file *file);
/* What a dictionary has under a text, or NULL; NULL for what is not a dictionary, too. */
TRI_API const tri_torch_value *tri_torch_item(const tri_torch_value *dict, const char *key);
/* All tensors, in the order in which the values lead to them. NULL if there is none of that index
 * or name. Borrowed. */
TRI_API int64_t tri_torch_count(const tri_torch_file *file);
TRI_API const tri_torch_tensor *tri_torch_at(const tri_torch_file *file, int64_t index);
TRI_API const tri_torch_tensor *tri_torch_find(const tri_torch_file *file, const char *name);
/**
 * The elements of tensor `index`, row-major.
 *
 *   data   [bytes]; NULL with 0
 *   bytes  those of the tensor
 *
 * Errors: INVALID_ARG; UNSUPPORTED (`refused`); FORMAT (the storage is damaged: its checksum
 * differs; earlier files than those of torch 1.6 have none).
 */
TRI_API TRI_MUST_CHECK tri_status tri_torch_read(tri_torch_file *file, int64_t index, void *data,
                                                 size_t bytes);
/* A persistent tensor with a copy of the contents, released with tri_tensor_unref; a failed one
 * (NOT_FOUND; UNSUPPORTED: its type, or it is refused; FORMAT, NO_MEMORY). */
TRI_API tri_tensor *tri_torch_tensor_named(tri_torch_file *file, const char *name);

/**
 * Writes tensors as a dictionary, which torch.load reads with weights_only=True. It appears under
 * its name only when it is complete and on disk; owner, rights and links are kept as
 * tri_safetensors_write keeps them.
 *
 *   entries  [n]; names unique; type_name is not read. Those with the same data, dtype and size,
 *            such as tied weights, are written once, and torch.load gives them one storage
 *
 * Errors: INVALID_ARG, NO_MEMORY, IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_torch_write(const char *path,
                                                  const tri_safetensors_entry *entries, int64_t n);
/**
 * Parameters and buffers of a module under PyTorch's names, for load_state_dict. What tri_save says
 * of ranks and errors holds, too.
 */
TRI_API TRI_MUST_CHECK tri_status tri_torch_save(tri_module *module, const char *path);

TRI_END_DECLS

/* It may wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_torch_save(...) TRI_SITE_STATUS_(tri_torch_save(__VA_ARGS__))
#endif

#endif
