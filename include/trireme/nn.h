/*
 * nn.h - modules: layers with parameters, put together into networks.
 *
 *     tri_module *net = tri_nn_sequential(tri_nn_linear(784, 128, NULL), tri_nn_relu(),
 *                                         tri_nn_linear(128, 10, NULL));
 *     tri_tensor *logits = tri_forward(net, x);
 *
 * Names, layouts, defaults and initial values are those of torch.nn, so that weights move over
 * unchanged. A parent owns its children: destroying the root destroys all. Functions that return
 * a module never return NULL; a failed one carries its error (tri_module_status), a parent takes
 * over the error of a child, and a forward through it gives a failed tensor. Trees have 1024 levels
 * at most.
 *
 * A module is used by one thread at a time. N batch, C channels, H height, W width.
 */
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include <stdio.h>

#include <trireme/ops.h>

TRI_BEGIN_DECLS

typedef struct tri_module tri_module;

/* --- layers --------------------------------------------------------------- */

typedef struct tri_nn_linear_options {
    bool no_bias;
    TRI_RESERVED(4);
} tri_nn_linear_options;
/* x [.., in] -> [.., out]; "weight" [out, in], "bias" [out]. */
TRI_API tri_module *tri_nn_linear(int64_t in_features, int64_t out_features,
                                  const tri_nn_linear_options *opt);

/* Zero means the default: stride 1, padding 0, dilation 1, groups 1, with a bias. The arrays are
 * for values that differ, {height, width}: if one is given, the single number must be 0. */
typedef struct tri_nn_conv2d_options {
    int stride, padding, dilation, groups;
    bool no_bias;
    int kernel_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
    TRI_RESERVED(4);
} tri_nn_conv2d_options;
/* x [N, in, H, W] -> [N, out, H', W']; "weight" [out, in/groups, kernel, kernel], "bias" [out].
 * kernel 0: kernel_hw is used. */
TRI_API tri_module *tri_nn_conv2d(int64_t in_channels, int64_t out_channels, int kernel,
                                  const tri_nn_conv2d_options *opt);

typedef struct tri_nn_batch_norm2d_options {
    tri_opt eps;                 /* default 1e-5 */
    tri_opt momentum;            /* default 0.1; 0: the running statistics stay as they are */
    bool cumulative;             /* torch's momentum=None: means over all batches so far */
    bool no_affine;              /* without weight and bias */
    bool no_track_running_stats; /* without buffers: evaluation normalises by the batch as well */
    TRI_RESERVED(4);
} tri_nn_batch_norm2d_options;
/* x [N, C, H, W]; "weight", "bias", "running_mean", "running_var" [C], "num_batches_tracked" i64
 * []. */
TRI_API tri_module *tri_nn_batch_norm2d(int64_t channels, const tri_nn_batch_norm2d_options *opt);
/* The same for x [N, C] or [N, C, L]. */
TRI_API tri_module *tri_nn_batch_norm1d(int64_t channels, const tri_nn_batch_norm2d_options *opt);

typedef struct tri_nn_layer_norm_options {
    tri_opt eps; /* default 1e-5 */
    bool no_elementwise_affine, no_bias;
    TRI_RESERVED(4);
} tri_nn_layer_norm_options;
/* The last ndim dimensions of x have this shape and are normalised together; "weight", "bias" of
 * that shape: tri_nn_layer_norm(TRI_SHAPE(768), NULL). */
TRI_API tri_module *tri_nn_layer_norm(const int64_t *shape, int ndim,
                                      const tri_nn_layer_norm_options *opt);
typedef struct tri_nn_rms_norm_options {
    tri_opt eps; /* default: the machine epsilon of x's dtype */
    bool no_elementwise_affine;
    TRI_RESERVED(4);
} tri_nn_rms_norm_options;
/* The same, but normalises by the root mean square; it has "weight" only. */
TRI_API tri_module *tri_nn_rms_norm(const int64_t *shape, int ndim,
                                    const tri_nn_rms_norm_options *opt);
/* i64 [..], each in [0, num) -> [.., dim]; "weight" [num, dim], from a normal distribution, with
 * zeros in row padding_idx. */
TRI_API tri_module *tri_nn_embedding(int64_t num_embeddings, int64_t embedding_dim,
                                     const tri_embedding_options *opt);
/* The head that shares such a module's table: x [.., dim] -> [.., num], a score for each row. Of a
 * table that tri_parallelize has cut by rows these are this rank's part of the scores. */
TRI_API tri_tensor *tri_nn_embedding_scores(tri_module *embedding, tri_tensor *x);

/* Zero means the default; the fields are those of tri_embedding_bag_options. */
typedef struct tri_nn_embedding_bag_options {
    tri_bag_mode mode; /* default: the mean */
    bool include_last_offset;
    tri_opt padding_idx; /* default: no row */
    TRI_RESERVED(4);
} tri_nn_embedding_bag_options;
/* Inputs: indices i64 [B, n] or, with a second one, offsets i64 [B], [n]; a third one is the
 * per_sample_weights (for [B, n] the second is NULL then). Output [B, dim]. "weight" as in
 * tri_nn_embedding. */
TRI_API tri_module *tri_nn_embedding_bag(int64_t num_embeddings, int64_t embedding_dim,
                                         const tri_nn_embedding_bag_options *opt);

typedef struct tri_nn_multihead_attention_options {
    double dropout; /* dropout of the attention weights, in [0, 1); in training only */
    bool no_bias;
    bool is_causal; /* each query attends only to keys up to its own position */
    TRI_RESERVED(4);
} tri_nn_multihead_attention_options;
/* torch.nn.MultiheadAttention with batch_first. One input: self-attention over x [N, T, embed_dim].
 * Three (tri_forward_n): query [N, T, embed_dim], key and value [N, S, embed_dim]; after them
 * key_padding_mask [N, S] and attn_mask [T, S] or [N num_heads, T, S], either of which may be NULL
 * or left out: bool, where true = is not looked at (as in torch; tri_attention means the opposite),
 * or numbers of the query's dtype that are added to the scores, without a gradient. A query that
 * may look at nothing gets zeros before out_proj (torch: NaN). One output, of the query's shape.
 * "in_proj_weight" [3 embed_dim, embed_dim], "in_proj_bias" [3 embed_dim], "out_proj.weight",
 * "out_proj.bias". embed_dim is a multiple of num_heads. */
TRI_API tri_module *tri_nn_multihead_attention(int64_t embed_dim, int64_t num_heads,
                                               const tri_nn_multihead_attention_options *opt);

/* Zero means the default. */
typedef struct tri_nn_lstm_options {
    int num_layers; /* default 1, at most 1024 */
    bool no_bias, batch_first, bidirectional;
    double dropout; /* between layers, in [0, 1]; in training only */
    TRI_RESERVED(4);
} tri_nn_lstm_options;
/* torch.nn.LSTM, whose weights it has: "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
 * then those of "_l0_reverse", of "_l1", ..; all start uniform in +-1 / sqrt(hidden_size). Shapes
 * and order of gates: tri_lstm. Inputs x, or x, h0 and c0; outputs y, or y, h_n and c_n
 * (tri_forward_n). A state goes on to the next batch as its tri_tensor_clone, which has no
 * gradient: torch's detach. */
TRI_API tri_module *tri_nn_lstm(int64_t input_size, int64_t hidden_size,
                                const tri_nn_lstm_options *opt);

TRI_API tri_module *tri_nn_relu(void);
TRI_API tri_module *tri_nn_leaky_relu(double negative_slope); /* torch's default is 0.01 */
TRI_API tri_module *tri_nn_gelu(tri_gelu_form form);
TRI_API tri_module *tri_nn_silu(void);
TRI_API tri_module *tri_nn_tanh(void);
TRI_API tri_module *tri_nn_sigmoid(void);
TRI_API tri_module *tri_nn_softmax(int dim);
TRI_API tri_module *tri_nn_log_softmax(int dim);

/* Zero means the default: stride = kernel, padding 0. The arrays are {height, width}, as in
 * tri_nn_conv2d_options. */
typedef struct tri_nn_pool2d_options {
    int stride, padding;
    bool ceil_mode;
    int kernel_hw[2], stride_hw[2], padding_hw[2];
    bool exclude_padding; /* average only: divide by the elements inside the image */
    TRI_RESERVED(4);
} tri_nn_pool2d_options;
/* kernel 0: kernel_hw is used. */
TRI_API tri_module *tri_nn_max_pool2d(int kernel, const tri_nn_pool2d_options *opt);
TRI_API tri_module *tri_nn_avg_pool2d(int kernel, const tri_nn_pool2d_options *opt);
/* [N, C, H, W] -> [N, C, h, w]. */
TRI_API tri_module *tri_nn_adaptive_avg_pool2d(int h, int w);
TRI_API tri_module *tri_nn_adaptive_max_pool2d(int h, int w);
/* For rows: [N, C, L] -> [N, C, L'], [N, C, l]. Zero means the default, as for images. */
typedef struct tri_nn_pool1d_options {
    int stride, padding;
    bool ceil_mode;
    bool exclude_padding; /* average only: divide by the elements inside the row */
    TRI_RESERVED(4);
} tri_nn_pool1d_options;
TRI_API tri_module *tri_nn_max_pool1d(int kernel, const tri_nn_pool1d_options *opt);
TRI_API tri_module *tri_nn_avg_pool1d(int kernel, const tri_nn_pool1d_options *opt);
TRI_API tri_module *tri_nn_adaptive_avg_pool1d(int l);
TRI_API tri_module *tri_nn_adaptive_max_pool1d(int l);
/* Dimensions from start_dim on become one; torch's default is 1: [N, ..] -> [N, rest]. */
TRI_API tri_module *tri_nn_flatten(int start_dim);
/* 0 <= p <= 1; acts only in training. */
TRI_API tri_module *tri_nn_dropout(double p);
/* The same for whole channels of x [N, C, ..], such as maps of images. */
TRI_API tri_module *tri_nn_dropout2d(double p);
TRI_API tri_module *tri_nn_identity(void);

/* What a tri_nn_skip_take does with its input x and what it takes. */
typedef enum tri_skip_join {
    TRI_SKIP_ADD,    /* x + taken */
    TRI_SKIP_CONCAT, /* both along dimension 1, as in a U-Net */
    TRI_SKIP_ALONE   /* what it takes; x goes no further */
} tri_skip_join;
/* A connection past other modules. The first saves its input under the name, of 1 to 63 bytes, and
 * gives it on; the second, anywhere later in the forward and as often as you like, takes what was
 * saved last in this step (STATE: nothing). A network of tri_pipeline may have its layers between
 * both: the tensor, and its gradient, go directly from stage to stage. So do further results of a
 * stage, such as a mask, that its module gives to a tri_nn_skip_save of its own. */
TRI_API tri_module *tri_nn_skip_save(const char *name);
TRI_API tri_module *tri_nn_skip_take(const char *name, tri_skip_join join);

/* One after the other; children are named "0", "1", ... Owns the modules, even on failure. */
TRI_API tri_module *tri_nn_sequential_of(int n, tri_module *const *own_modules);
/* The same for modules written as arguments, which are made from left to right: initial values are
 * drawn in the order in which torch draws them. (Arguments of a function have no order, and
 * compilers make use of that; elements of an initializer list are made from left to right by gcc
 * and clang, and C++ guarantees it.) */
#ifdef __cplusplus
#define tri_nn_sequential(...) tri_nn_sequential_of_list({__VA_ARGS__})
#else
#define tri_nn_sequential(...)                                                                     \
    tri_nn_sequential_of((int)(sizeof((tri_module *[]){__VA_ARGS__}) / sizeof(tri_module *)),      \
                         (tri_module *[]){__VA_ARGS__})
#endif

/* --- your own modules ----------------------------------------------------- */

/* A kind of module. `forward` turns n_in inputs into n_out outputs, which are all NULL before and
 * must all be set; to report a failure, set a failed tensor. */
typedef struct tri_module_class {
    const char *name; /* for messages; static text */
    size_t size;      /* bytes of tri_module_data, zeroed at the start */
    void (*forward)(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
    /* may be NULL; children and tensors are released automatically */
    void (*destroy)(tri_module *self);
    /* Writes what tri_module_print shows between the brackets, like snprintf: at most `bytes` with
     * the terminating 0, and returns the length of the whole. May be NULL: nothing. */
    int (*extra_repr)(tri_module *self, char *text, size_t bytes);
    TRI_RESERVED(8);
} tri_module_class;

/* `type` is borrowed and must outlive the module. */
TRI_API tri_module *tri_module_create(const tri_module_class *type);
/* The common case, one input and one output, without a class: `name` is copied, `size` as in the
 * class, `forward` returns a tensor. Children and parameters are added as to any module. */
TRI_API tri_module *tri_module_simple(const char *name, size_t size,
                                      tri_tensor *(*forward)(tri_module *self, tri_tensor *x));
/* Makes a module fail while it is being made, as layers do when an argument is wrong: forward and
 * optimizer get this line (printf's format). The first failure counts. self NULL: a new module that
 * has failed. A status that is not an error becomes INVALID_ARG. Returns the module, never NULL. */
TRI_API tri_module *tri_module_fail(tri_module *self, tri_status status, const char *format, ...)
    TRI_PRINTF(3, 4);
/* The module's own data (size bytes of its class). */
TRI_API void *tri_module_data(tri_module *self);
/* Registers a child under a name (not empty, without '.', used once) and returns it; self owns it
 * from now on. If the child has failed, self fails too, and is returned. */
TRI_API tri_module *tri_module_add_child(tri_module *self, const char *name, tri_module *own_child);
/* Registers a persistent tensor that training changes (a parameter: tri_requires_grad is set) or
 * one that it does not (a buffer, such as running statistics), and returns it; self owns it from
 * now on. */
TRI_API tri_tensor *tri_module_add_parameter(tri_module *self, const char *name,
                                             tri_tensor *own_tensor);
TRI_API tri_tensor *tri_module_add_buffer(tri_module *self, const char *name,
                                          tri_tensor *own_tensor);
/* True until tri_module_train(.., false), and again after tri_module_train(.., true). */
TRI_API bool tri_module_is_training(const tri_module *self);

/* --- use ------------------------------------------------------------------ */

/* One input, one output; never NULL. At most 2,048 forwards may be nested, so a module that calls
 * itself fails. */
TRI_API tri_tensor *tri_forward(tri_module *module, tri_tensor *x);
/* Any number of both: writes out[0 .. n_out), never NULL. */
TRI_API void tri_forward_n(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out);
/* Sets training or evaluation behaviour (dropout, batch norm) of the module and all below. NULL
 * fails the step. */
TRI_API void tri_module_train(tri_module *module, bool training);
/* Forwards of this module are computed again for backward instead of being kept
 * (tri_recompute_begin): for a module that occurs many times in a network, such as a block of a
 * transformer. No effect on failed modules; NULL fails the step. */
TRI_API void tri_module_set_recompute(tri_module *module, bool on);
/* Moves parameters, their gradients and buffers to another device (device.h); what was recorded
 * before runs first. An optimizer's state follows when it next updates them. Errors: INVALID_ARG
 * (no such device); STATE under tri_ddp (move the model before it is wrapped); those of the run. */
TRI_API TRI_MUST_CHECK tri_status tri_module_to(tri_module *module, tri_device device);
/* OK, or the error that the module carries (then also in tri_last_error). */
TRI_API TRI_MUST_CHECK tri_status tri_module_status(const tri_module *module);
/* Destroys the module and all below. NULL allowed; only for modules without a parent. */
TRI_API void tri_module_destroy(tri_module *module);

/* --- hooks ---------------------------------------------------------------- */

/**
 * Called around each forward of a module: before it with its inputs (out NULL, n_out 0), or after
 * it with both. A hook may replace tensors of in[0 .. n_in) (before) or out[0 .. n_out) (after). If
 * it sets a failed tensor, that is the error of the forward. Hooks after a forward that failed are
 * called, too, with failed outputs.
 */
typedef void (*tri_forward_hook)(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out,
                                 int n_out, void *arg);
/**
 * Adds a hook after those that exist, for this module alone. `arg` is passed to it. *id_out (NULL
 * allowed) is for tri_module_remove_hook. A hook may remove any hook, even itself; one that is
 * added while the module runs is called from the next forward on. Errors: INVALID_ARG, NO_MEMORY,
 * those of the module.
 */
TRI_API TRI_MUST_CHECK tri_status tri_module_add_forward_pre_hook(tri_module *module,
                                                                  tri_forward_hook hook, void *arg,
                                                                  int64_t *id_out);
TRI_API TRI_MUST_CHECK tri_status tri_module_add_forward_hook(tri_module *module,
                                                              tri_forward_hook hook, void *arg,
                                                              int64_t *id_out);
/* Returns whether there was a hook with this id. */
TRI_API bool tri_module_remove_hook(tri_module *module, int64_t id);

/* --- the tree ------------------------------------------------------------- */

/* Children in the order of registration: 0 <= index < children; NULL outside. Borrowed. */
TRI_API int tri_module_child_count(const tri_module *module);
TRI_API tri_module *tri_module_child(tri_module *module, int index);
/* The module below with this path, such as "layer1.0.conv1", or NULL; "" is the module itself. The
 * network in tri_ddp or tri_data_parallel is called "module", as in torch, and a path may name it
 * or leave it out: "module.layer1" or "layer1". Borrowed. */
TRI_API tri_module *tri_module_submodule(tri_module *module, const char *path);
/* The network inside tri_ddp or tri_data_parallel; a module that is not wrapped is returned as it
 * is. NULL if wrapped is NULL. */
TRI_API tri_module *tri_module_unwrapped(tri_module *wrapped);
/* The module's name in its parent ("" if it has none; "module" in a wrapper), and the name of its
 * class; borrowed, never NULL. */
TRI_API const char *tri_module_name(const tri_module *module);
TRI_API const char *tri_module_type(const tri_module *module);
/* Writes the tree and a newline as torch prints a model. NULL: stderr. */
TRI_API void tri_module_print(tri_module *module, FILE *file);
/**
 * Writes a table of all modules below: path, type, shape of the (first) output in a forward of
 * in[n_in] in evaluation and without gradients, and the module's own parameters; then the number
 * and bytes of all parameters. A module that is called more than once shows its last shape.
 *
 * Nothing is computed, but the forward is recorded, so call tri_step_end after it, and hooks run.
 * n_in 0: without shapes. Errors: those of the module and of the forward (then nothing is written),
 * NO_MEMORY, IO.
 */
TRI_API TRI_MUST_CHECK tri_status tri_module_summary(tri_module *module, tri_tensor *const *in,
                                                     int n_in, FILE *file);
/* Calls tri_requires_grad for all parameters of the module and below: false freezes them. NULL,
 * such as from a misspelt path, fails the step. */
TRI_API void tri_module_requires_grad(tri_module *module, bool on);

/* --- state, by PyTorch's names and in state_dict's order ------------------ */

/* Unlike torch's, names leave out the "module." of wrappers such as tri_ddp, so that a file fits
 * the network with and without them; where a name is looked up, "module." may be in it or not. */

typedef struct tri_state_entry {
    const char *name;   /* "layer1.0.conv1.weight"; borrowed while the module is not changed */
    tri_tensor *tensor; /* borrowed */
    bool parameter;     /* false: a buffer */
} tri_state_entry;

/* Number of entries; 0 for a failed module. */
TRI_API int64_t tri_module_state_count(tri_module *module);
/* Entry 0 <= index < count; {NULL, NULL, false} outside. */
TRI_API tri_state_entry tri_module_state(tri_module *module, int64_t index);
/* Number of elements of all parameters that require a gradient. */
TRI_API int64_t tri_module_parameter_count(tri_module *module);
/* The tensor with this name, or NULL: "fc.weight", or "module.fc.weight" as torch has it in
 * DistributedDataParallel. Borrowed. */
TRI_API tri_tensor *tri_module_find(tri_module *module, const char *name);

/* One tensor of a state from elsewhere; plain (row-major) data, borrowed during the call. */
typedef struct tri_state_source {
    const char *name;
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    const void *data;
    TRI_RESERVED(4);
} tri_state_source;
/* Longest name that tri_load_options.rename may write, with the terminating 0. */
#define TRI_STATE_NAME_MAX 512
/* Zero means the default: strict. */
typedef struct tri_load_options {
    /* entries that no source fits keep their values, and sources that fit no entry (by name or
     * shape) are skipped; but at least one must fit. A warning in the log counts them, unless
     * there is a report */
    bool partial;
    bool convert; /* f16, bf16, f32 and f64 are converted to the dtype of the entry */
    /* Only sources whose names begin with it, which is dropped: "state_dict.", "model.". NULL: all;
     * of a file that holds more than weights, those that are clearly meant (tri_load). Where no
     * name of such a file begins with it, it is one of these */
    const char *prefix;
    /* Returns the entry's name for a source's name: `name` itself, or a text written to room
     * [TRI_STATE_NAME_MAX], or NULL to leave this source out. NULL: names stay. */
    const char *(*rename)(const char *name, char *room, void *arg);
    void *arg; /* passed to rename */
    /* one line for each tensor that is missing, unexpected, a misfit, left out or converted,
     * also when loading fails; NULL: no report */
    FILE *report;
    TRI_RESERVED(4);
} tri_load_options;
/**
 * Sets all entries of the module. Strict unless the options say otherwise: every entry exactly
 * once, nothing else, equal shapes and dtypes. What PyTorch's wrappers put into names is
 * ignored: a leading "module.", and "_orig_mod." (torch.compile), "_fsdp_wrapped_module." and
 * "_checkpoint_wrapped_module." anywhere. `opt` may be NULL.
 *
 * Errors: INVALID_ARG with the names that are missing, unexpected or of another shape or dtype
 * (the first few and how many more), NO_MEMORY; then the module is unchanged. Of a module that is
 * sharded (zero.h) or cut (parallelize.h) all ranks load together, whole tensors of which each
 * keeps its own, and a failure of one is one of all.
 */
TRI_API TRI_MUST_CHECK tri_status tri_module_load(tri_module *module,
                                                  const tri_state_source *sources, int64_t n,
                                                  const tri_load_options *opt);
/* A hash of names, dtypes and plain contents of the state: two ranks with equal hashes have, in all
 * probability, equal replicas. Runs what was recorded. If parameters are sharded (stage 3 of
 * tri_zero), cut (tri_parallelize) or in stages (tri_pipeline), all ranks call it, and get that of
 * whole tensors, of all stages. MISMATCH: copies that ranks have of one parameter differ. */
TRI_API TRI_MUST_CHECK tri_status tri_module_hash(tri_module *module, uint64_t *hash_out);

/* --- initial values ------------------------------------------------------- */

/* Drawn from the generator that tri_manual_seed seeds (mt19937), in the order of creation; uniform
 * distributions give PyTorch's bits. Only for persistent tensors in f32 or f64 (INVALID_ARG).
 * UNSUPPORTED: one rank's part of a parameter (tri_parallelize), of which all ranks would draw the
 * same numbers. */

/* Dtype of the parameters of layers made from now on by this thread: F32 (the start) or F64. */
TRI_API void tri_set_default_dtype(tri_dtype dtype);
TRI_API tri_dtype tri_default_dtype(void);
TRI_API TRI_MUST_CHECK tri_status tri_init_uniform(tri_tensor *tensor, double low, double high);
TRI_API TRI_MUST_CHECK tri_status tri_init_normal(tri_tensor *tensor, double mean, double std);
TRI_API TRI_MUST_CHECK tri_status tri_init_constant(tri_tensor *tensor, double value);
/* Whether Kaiming keeps the variance in forward (of the inputs) or in backward. */
typedef enum tri_fan_mode { TRI_FAN_IN, TRI_FAN_OUT } tri_fan_mode;
/* torch's kaiming_uniform_ and kaiming_normal_ (He et al. 2015); a is the slope of the leaky_relu
 * that follows, 0 of a relu, and torch's defaults are 0 and TRI_FAN_IN. Linear and conv2d start
 * from the first with sqrt(5), TRI_FAN_IN, torchvision's convolutions from the second with 0,
 * TRI_FAN_OUT. */
TRI_API TRI_MUST_CHECK tri_status tri_init_kaiming_uniform(tri_tensor *tensor, double a,
                                                           tri_fan_mode mode);
TRI_API TRI_MUST_CHECK tri_status tri_init_kaiming_normal(tri_tensor *tensor, double a,
                                                          tri_fan_mode mode);
/* torch's xavier_uniform_(gain) (Glorot and Bengio 2010); gain is 1 for linear layers. */
TRI_API TRI_MUST_CHECK tri_status tri_init_xavier_uniform(tri_tensor *tensor, double gain);

TRI_END_DECLS

#ifdef __cplusplus
template <int n> inline tri_module *tri_nn_sequential_of_list(tri_module *const (&own_modules)[n])
{
    return tri_nn_sequential_of(n, own_modules);
}
#endif

/* A forward remembers the caller's line for the messages of its operations, and what may wait for
 * peers for theirs. */
#ifndef TRI_NO_SITES
#define tri_forward(...) TRI_SITE_(tri_forward(__VA_ARGS__))
#define tri_forward_n(...) TRI_SITE_(tri_forward_n(__VA_ARGS__))
#define tri_module_summary(...) TRI_SITE_STATUS_(tri_module_summary(__VA_ARGS__))
#define tri_module_load(...) TRI_SITE_STATUS_(tri_module_load(__VA_ARGS__))
#define tri_module_hash(...) TRI_SITE_STATUS_(tri_module_hash(__VA_ARGS__))
#endif

#endif
