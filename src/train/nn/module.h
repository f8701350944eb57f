/*
 * module.h - what a `tri_module *` points to; for nn/, optim/, parallel/ and checkpoint/.
 */
#ifndef TRII_MODULE_H
#define TRII_MODULE_H

#include <trireme/nn.h>

#include "base/compiler.h"

/* Levels of a tree: whatever walks it, forward above all, recurses once a level. */
#define TRII_MODULE_LEVELS 1024

/* A call that returns nothing was given no module: the step carries the error. */
void trii_module_refused(const char *call);

typedef struct trii_slot {
    char *name;
    tri_tensor *tensor; /* a reference is held */
} trii_slot;

typedef struct trii_slots {
    trii_slot *items;
    int n, capacity;
} trii_slots;

/* What tri_module_simple makes a class of. */
typedef struct trii_simple_class {
    tri_module_class type;
    char *name;
    tri_tensor *(*forward)(tri_module *self, tri_tensor *x);
} trii_simple_class;

/* A user's function around forward; module_hooks.c. */
typedef struct trii_hook {
    tri_forward_hook call; /* NULL: removed while the module was running */
    void *arg;
    int64_t id;
    bool before;
} trii_hook;

typedef struct trii_hooks {
    trii_hook *items;
    int n, capacity;
    int64_t next_id;
    int running; /* forwards of the module that are running */
} trii_hooks;

/* What a strategy makes of a module whose parameters it has changed (train/parallel/tensor/). */
typedef struct trii_module_cut {
    /* in place of the class's */
    void (*forward)(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
    /* tri_nn_embedding_scores; NULL: the module is none */
    tri_tensor *(*scores)(tri_module *self, tri_tensor *x);
    void (*release)(struct trii_module_cut *cut); /* the module goes, with its parameters */
} trii_module_cut;

struct tri_module {
    const tri_module_class *type;
    trii_simple_class *own_type; /* made by tri_module_simple; NULL: the class is the user's */
    void *data;
    trii_module_cut *cut; /* owned; NULL: it is as its class made it */
    tri_module *parent;   /* NULL: a root */
    char *name;           /* in the parent; NULL: a root; "": adds nothing to the names of state */
    tri_module **children;
    int n_children, children_capacity;
    int height; /* levels below */
    trii_slots parameters, buffers;
    trii_hooks hooks;
    struct trii_stages
        *stages; /* train/tensor/pipeline_stages.h; owned by its class; NULL: it has all of it */
    bool training;
    bool recompute;    /* its forward is a region that is computed again for backward */
    tri_status status; /* the first failure; `why` is its line */
    char *why;
    tri_tensor *failed_tensor; /* what a failed registration returned; owned */
    /* All entries below, in order, with full names; made on demand, dropped when anything below
     * changes. */
    tri_state_entry *state;
    int64_t n_state; /* -1: not made */
};

/* When there is no memory even for a failed module, and for queries of NULL. Never written, never
 * destroyed. */
extern tri_module trii_module_no_memory, trii_module_null;
extern tri_tensor trii_module_null_tensor;
bool trii_module_is_shared(const tri_module *module);

/* Keeps the current error line as the module's failure, unless it has one already. */
void trii_module_fail(tri_module *module, tri_status status);
/* What torch calls the network in a wrapper. State leaves it out of its names (module->name is ""),
 * so that checkpoints are the same with and without a wrapper. */
#define TRII_WRAPPED "module"
/* What comes after `name` in a path "name", "name.rest"; NULL: it begins otherwise. */
const char *trii_path_after(const char *path, const char *name);
/* Whether a name of n characters, one of a path, fits a pattern in which `*` stands for any number
 * of characters. */
bool trii_name_matches(const char *pattern, size_t n_pattern, const char *name, size_t n);
/* The outermost module of this class (tri_ddp, tri_data_parallel), here or below; NULL class: of
 * any. NULL: there is none. */
const tri_module *trii_module_wrapper(const tri_module *module, const tri_module_class *type);
/* A failed module with the current error line; never NULL (a shared one when memory is out). */
tri_module *trii_module_failed(tri_status status);
/* tri_module_add_child that also takes the empty name; after a failure self is failed and returned.
 */
tri_module *trii_module_adopt(tri_module *self, const char *name, tri_module *own_child);
/* load_state.c. All ranks that have parts of the module return the same, however it is divided: a
 * failure of one is one of all. Collective. */
tri_status trii_module_agree(tri_module *module, tri_status status) TRI_MUST_CHECK;
/* module_cut.c. Whether a tensor that is cut may not be read in the step that is recorded; what it
 * was before. */
bool trii_set_whole_only(bool on);
/* Of a module that is cut: it alone reads its parameters. */
void trii_forward_cut(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                      int n_out);
tri_tensor *trii_scores_cut(tri_module *module, tri_tensor *x);
/* Without hooks. */
static inline void trii_forward_plain(tri_module *module, tri_tensor *const *in, int n_in,
                                      tri_tensor **out, int n_out)
{
    (TRII_LIKELY(module->cut == NULL) ? module->type->forward : trii_forward_cut)(module, in, n_in,
                                                                                  out, n_out);
}
/* The same, with the module's hooks around it. */
void trii_forward_hooked(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out);
void trii_hooks_fini(trii_hooks *hooks);
/* A step tensor with the current error line: the result of a forward that cannot go on. */
tri_tensor *trii_forward_failed(tri_status status);
/* Fails all outputs of a forward that refuses its inputs; the error line is the caller's. */
void trii_forward_refused(tri_status status, tri_tensor **out, int n_out);
/* OK when the flattened state exists. */
tri_status trii_module_flatten(tri_module *module) TRI_MUST_CHECK;
/* The index of the entry of this name in the flattened state, or -1. The names of wrapped networks,
 * TRII_WRAPPED, may be in it or not, and those that torch's wrappers put there. */
int64_t trii_module_entry(const tri_module *module, const char *name);
/* Whether the module is a pipeline, another rank of which has such an entry. */
bool trii_module_others_have(const tri_module *module, const char *name);
/* Where the contents of sources come from that have no data of their own. */
typedef struct trii_state_reader {
    /* The plain elements of a source, valid until the next call. */
    tri_status (*data)(void *arg, int64_t source, const void **data_out);
    /* What a source of dtype NONE is, for messages. */
    const char *(*type_of)(void *arg, int64_t source);
    void *arg;
} trii_state_reader;

/* tri_module_load; reader: NULL = the sources have their data. */
tri_status trii_module_load(tri_module *module, const tri_state_source *sources, int64_t n,
                            const tri_load_options *opt,
                            const trii_state_reader *reader) TRI_MUST_CHECK;
/* All checks of tri_module_load, before it writes. */
tri_status trii_module_fits(tri_module *module, const tri_state_source *sources, int64_t n,
                            const tri_load_options *opt) TRI_MUST_CHECK;
/* linear_layer.c: registers "weight" of this shape and, unless without, "bias" of its first size,
 * with torch's initial values of linear and convolution layers. */
void trii_add_weight_and_bias(tri_module *self, const int64_t *shape, int ndim, bool bias,
                              tri_tensor **weight_out, tri_tensor **bias_out);
/* attention_layer.c. False: the module is not tri_nn_multihead_attention. */
typedef struct trii_attention {
    int64_t heads, head_width;
    tri_tensor *weight, *bias; /* of the joint projection; no bias: NULL */
} trii_attention;
bool trii_attention_of(const tri_module *module, trii_attention *attention_out);
/* It has so many heads from now on, for which its projections become parts. */
void trii_attention_keep(tri_module *module, int64_t heads);
/* norm_layers.c. False: the module is neither tri_nn_layer_norm nor tri_nn_rms_norm. Parameters
 * that it does not have are NULL. */
bool trii_row_norm_of(const tri_module *module, tri_tensor **weight_out, tri_tensor **bias_out);
/* Its forward, with others in the place of its own parameters. */
tri_tensor *trii_row_norm_with(const tri_module *module, tri_tensor *x, tri_tensor *weight,
                               tri_tensor *bias);
/* embedding_layer.c. NULL: the module is not tri_nn_embedding. padding_idx is not negative. */
const tri_embedding_options *trii_embedding_options_of(const tri_module *module);
/* Whether a forward has one input and one output; otherwise fails its outputs. */
bool trii_one_to_one(tri_module *self, int n_in, tri_tensor **out, int n_out);
/* A number as Python writes it: the shortest text that reads back as the same number, 1e-05, 0.1,
 * 1.0. */
#define TRII_FLOAT_TEXT 40
const char *trii_float_text(double value, char text[TRII_FLOAT_TEXT]);
/* A persistent tensor of the default dtype, for a layer's parameter. */
tri_tensor *trii_parameter_new(const int64_t *shape, int ndim);
/* Mixes bytes into a hash. */
uint64_t trii_hash_bytes(uint64_t hash, const void *data, size_t bytes);
/* Hashes name, type, shape and plain contents; runs what was recorded. */
tri_status trii_hash_entry(const tri_state_entry *entry, uint64_t *hash_io) TRI_MUST_CHECK;

#endif
