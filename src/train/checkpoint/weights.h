/*
 * weights.h - tensors by name, in whatever file or folder they are: what tri_load and `trireme
 * ckpt` read. Which kind it is, its contents say, never its name.
 */
#ifndef TRII_WEIGHTS_H
#define TRII_WEIGHTS_H

#include <trireme/nn.h>
#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "os/file.h"

typedef struct trii_weights trii_weights;

/* Elements of a tensor that lie in one file, one after the other. */
typedef struct trii_weights_run {
    const char *type_name; /* of the tensor, as its file says it */
    const char *path;      /* of the file; NULL: they lie apart, and `data` puts them together */
    uint64_t bytes;        /* 0: there is no such run */
    uint64_t at;           /* of its first byte in the file; where torch is not NULL: */
    tri_torch_file *torch; /* it has bytes [at, at + bytes) of the elements of */
    const tri_torch_tensor *tensor; /* this one, and begins at byte */
    uint64_t base;                  /* of the file */
} trii_weights_run;

typedef struct trii_weights_kind {
    const char *name; /* "safetensors", ... */
    /* The plain elements of tensor `index`, valid until the next call. Errors: FORMAT, IO,
     * NO_MEMORY. */
    tri_status (*data)(trii_weights *weights, int64_t index, const void **data_out);
    /* Whether they have the checksum that the file says; NULL: it says none. FORMAT. */
    tri_status (*check)(trii_weights *weights, int64_t index);
    /* Run k of tensor `index`, in the order of its elements, for who reads the file itself.
     * Borrowed until the next call. Errors: as data. */
    tri_status (*run)(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out);
    void (*close)(trii_weights *weights); /* what is in `file` */
} trii_weights_kind;

struct trii_weights {
    const trii_weights_kind *kind;
    tri_state_source *sources; /* [n], no data; dtype NONE: Trireme has no such type */
    int64_t n;
    void *file;         /* the kind's */
    char prefix[64];    /* STATE: what stood before the names, */
    int64_t n_left_out; /* and how many tensors are there beside the n */
};

typedef enum trii_weights_scope {
    TRII_WEIGHTS_STATE, /* of a file that holds more than a module's state, that state */
    TRII_WEIGHTS_ALL    /* all tensors */
} trii_weights_scope;

/* Close it in any case. Errors: NOT_FOUND, IO, NO_MEMORY, FORMAT, UNSUPPORTED. */
tri_status trii_weights_open(const char *path, trii_weights_scope scope,
                             trii_weights *weights_out) TRI_MUST_CHECK;
/* Compares the checksums of those whose names begin with the prefix (NULL: of all), so that nothing
 * is loaded of a damaged file. */
tri_status trii_weights_check(trii_weights *weights, const char *prefix) TRI_MUST_CHECK;
void trii_weights_close(trii_weights *weights);

/* --- the kinds: weights_KIND.c -------------------------------------------- */

tri_status trii_weights_safetensors(const char *path, trii_weights *weights) TRI_MUST_CHECK;
/* What stands beside the tensors of a single file: the texts of safetensors, the values of
 * torch.save. NULL: it is another kind. Borrowed. */
const tri_metadata *trii_weights_texts(const trii_weights *weights, int64_t *n_out);
const tri_torch_value *trii_weights_root(const trii_weights *weights);
tri_status trii_weights_torch(const char *path, trii_weights_scope scope,
                              trii_weights *weights) TRI_MUST_CHECK;
bool trii_weights_is_index(const trii_mapping *map);
tri_status trii_weights_index(const char *path, trii_weights_scope scope,
                              trii_weights *weights) TRI_MUST_CHECK;
/* path: of its .metadata */
tri_status trii_weights_dcp(const char *path, trii_weights_scope scope,
                            trii_weights *weights) TRI_MUST_CHECK;
/* path: of its `latest`, or of the model states of rank 0 */
tri_status trii_weights_deepspeed(const char *path, trii_weights_scope scope,
                                  trii_weights *weights) TRI_MUST_CHECK;
/* A single file of tensors: neither a folder nor an index. */
tri_status trii_weights_open_file(const char *path, trii_weights_scope scope,
                                  trii_weights *weights_out) TRI_MUST_CHECK;
/* Keys under which programs put a module's state, in the order in which they count; NULL ends it.
 */
extern const char *const trii_weights_keys[];
/* Whether a name is not of the folder in which it is looked up. Anybody may have written an index:
 * it must not make us read files from elsewhere. */
bool trii_weights_leads_out(const char *name);
/* What stands before the names of a module's state in a file of torch.save: "" for all of it.
 * Errors: UNSUPPORTED (the module itself was saved, or arrays of numpy), FORMAT (there is no usual
 * key, or no tensor at all). */
tri_status trii_weights_torch_prefix(const char *path, const tri_torch_value *root,
                                     char *prefix_out, size_t bytes) TRI_MUST_CHECK;
/* What a file that is no weights looks like, and the remedy; NULL: nobody knows. */
const char *trii_weights_foreign(const trii_mapping *map);
/* Room for n sources. NO_MEMORY. */
static inline tri_status trii_weights_room(trii_weights *weights, int64_t n)
{
    weights->sources =
        (tri_state_source *)trii_alloc((size_t)n, sizeof(*weights->sources), "state sources");
    return weights->sources != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

#endif
