/*
 * misuse_values.c - arguments for every type of parameter in the public headers, good and bad.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "misuse/misuse.h"
#include "os/folder.h"

#define SCRATCH ((size_t)1 << 16)

/* Longer than any name, path or line that somebody reserved room for. */
static const char *long_text(void)
{
    static char text[5000];

    if (text[0] == '\0')
        memset(text, 'x', sizeof(text) - 1);
    return text;
}

static bool is(const char *type, const char *what)
{
    return strcmp(type, what) == 0;
}

static bool is_pointer(const char *type)
{
    return strchr(type, '*') != NULL;
}

/* --- bad ones ------------------------------------------------------------- */

static const char *const bad_texts[] = {NULL, "", "\n\x01 %%", "\xff\xfe", "long"};
static const int64_t bad_shapes[][4] = {
    {-1, -1, -1, -1}, {INT64_MAX, INT64_MAX, 2, 2}, {0, 0, 0, 0}, {INT64_MIN, 1, 1, 1}};
static const int64_t bad_integers[] = {-1, 0, INT64_MIN, INT64_MAX};
#define N_LARGE 1 /* at their end */
static const int64_t bad_enums[] = {-1, 999, 0, INT_MAX};
static const double bad_reals[] = {NAN, -1.0, INFINITY, -INFINITY, 0.0};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool is_struct(const char *type);

static bool is_enum(const char *type)
{
    static const char *const enums[] = {"tri_dtype",       "tri_redop",     "tri_status",
                                        "tri_hyper",       "tri_gelu_form", "tri_reduction",
                                        "tri_device_kind", "tri_fan_mode"};

    for (int i = 0; i < COUNT(enums); i++) {
        if (is(type, enums[i]))
            return true;
    }
    return false;
}

static int kinds_of(const misuse_parameter *parameter)
{
    const char *type = parameter->type;

    if (is(type, "callback"))
        return 0; /* always NULL */
    if (is(type, "const char *"))
        return COUNT(bad_texts);
    if (is(type, "const int64_t *"))
        return 1 + COUNT(bad_shapes);
    if (is_struct(type))
        return 2;
    if (is_pointer(type))
        return 1;
    if (is(type, "double") || is(type, "float") || is(type, "tri_opt"))
        return COUNT(bad_reals);
    if (is_enum(type))
        return COUNT(bad_enums);
    if (is(type, "bool"))
        return 0;
    if (is(type, "size_t") || is(type, "uint64_t"))
        return 1;
    /* no length that is more than its buffer has */
    if (is(parameter->name, "n") || strncmp(parameter->name, "n_", 2) == 0)
        return COUNT(bad_integers) - N_LARGE;
    return COUNT(bad_integers);
}

static const misuse_growing *growing(const misuse_parameter *parameter)
{
    for (int s = 0; s < misuse_n_growing; s++) {
        if (is(parameter->type, misuse_growing_structs[s].type))
            return &misuse_growing_structs[s];
    }
    return NULL;
}

int misuse_kinds(const misuse_parameter *parameter)
{
    return kinds_of(parameter) + (growing(parameter) != NULL);
}

bool misuse_is_newer(const misuse_pick *p)
{
    const misuse_parameter *bad = p->bad >= 0 ? &p->row->parameters[p->bad] : NULL;

    return bad != NULL && growing(bad) != NULL && p->kind == kinds_of(bad);
}

static bool is_bad(const misuse_pick *p, int i, int *kind_out)
{
    *kind_out = p->bad == i ? p->kind : 0;
    return p->bad == i || (p->bad == -2 && misuse_kinds(&p->row->parameters[i]) > 0);
}

/* --- good ones: objects that work ----------------------------------------- */

/* Tensors that have to fit each other; whatever is not here is f32 [2, 3]. */
static const struct {
    const char *function, *parameter;
    tri_dtype dtype;
    int ndim;
    int64_t shape[4];
} tensors[] = {
    {"tri_matmul", "b", TRI_DTYPE_F32, 2, {3, 2}},
    {"tri_linear", "weight", TRI_DTYPE_F32, 2, {2, 3}},
    {"tri_linear", "bias", TRI_DTYPE_F32, 1, {2}},
    {"tri_where", "condition", TRI_DTYPE_BOOL, 2, {2, 3}},
    {"tri_masked_fill", "mask", TRI_DTYPE_BOOL, 2, {2, 3}},
    {"tri_logical_and", "a", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_and", "b", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_or", "a", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_or", "b", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_xor", "a", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_xor", "b", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_logical_not", "x", TRI_DTYPE_BOOL, 1, {3}},
    {"tri_any", "x", TRI_DTYPE_BOOL, 2, {2, 3}},
    {"tri_all", "x", TRI_DTYPE_BOOL, 2, {2, 3}},
    {"tri_gather_along", "index", TRI_DTYPE_I64, 2, {2, 3}},
    {"tri_scatter_add", "index", TRI_DTYPE_I64, 2, {2, 3}},
    {"tri_index_select", "index", TRI_DTYPE_I64, 1, {2}},
    {"tri_one_hot", "index", TRI_DTYPE_I64, 1, {2}},
    {"tri_split", "x", TRI_DTYPE_F32, 1, {2}},
    {"tri_unbind", "x", TRI_DTYPE_F32, 1, {1}},
    {"tri_embedding", "indices", TRI_DTYPE_I64, 1, {2}},
    {"tri_embedding_bag", "indices", TRI_DTYPE_I64, 1, {2}},
    {"tri_embedding_bag", "offsets", TRI_DTYPE_I64, 1, {2}},
    {"tri_attention", "q", TRI_DTYPE_F32, 4, {1, 2, 3, 2}},
    {"tri_attention", "k", TRI_DTYPE_F32, 4, {1, 2, 2, 2}},
    {"tri_attention", "v", TRI_DTYPE_F32, 4, {1, 2, 2, 2}},
    {"tri_layer_norm", "weight", TRI_DTYPE_F32, 1, {3}},
    {"tri_layer_norm", "bias", TRI_DTYPE_F32, 1, {3}},
    {"tri_rms_norm", "weight", TRI_DTYPE_F32, 1, {3}},
    {"tri_model_resnet_first_half", "x", TRI_DTYPE_F32, 4, {2, 3, 2, 2}},
    {"tri_model_resnet_second_half", "x", TRI_DTYPE_F32, 4, {2, 2, 2, 2}},
    {"tri_conv", "x", TRI_DTYPE_F32, 4, {2, 2, 4, 4}},
    {"tri_conv", "weight", TRI_DTYPE_F32, 4, {2, 2, 3, 3}},
    {"tri_conv", "bias", TRI_DTYPE_F32, 1, {2}},
    {"tri_max_pool", "x", TRI_DTYPE_F32, 4, {2, 2, 4, 4}},
    {"tri_avg_pool", "x", TRI_DTYPE_F32, 4, {2, 2, 4, 4}},
    {"tri_adaptive_avg_pool", "x", TRI_DTYPE_F32, 3, {2, 2, 4}},
    {"tri_adaptive_max_pool", "x", TRI_DTYPE_F32, 3, {2, 2, 4}},
    {"tri_batch_norm", "x", TRI_DTYPE_F32, 4, {2, 2, 4, 4}},
    {"tri_cross_entropy", "target", TRI_DTYPE_I64, 1, {2}},
    {"tri_nll_loss", "target", TRI_DTYPE_I64, 1, {2}},
    {"tri_count_correct", "target", TRI_DTYPE_I64, 1, {2}},
    {"tri_meter_add_mean", "mean", TRI_DTYPE_F32, 0, {0}},
    {"tri_meter_add_count", "count", TRI_DTYPE_F32, 0, {0}},
    {"tri_item", "tensor", TRI_DTYPE_F32, 0, {0}},
    {"tri_item_status", "tensor", TRI_DTYPE_F32, 0, {0}},
    {"tri_expand", "x", TRI_DTYPE_F32, 2, {2, 1}},
};

/* A parameter, or something that depends on it. */
static tri_tensor *good_gradient(const char *name)
{
    static tri_tensor *x;

    if (x == NULL) {
        x = tri_tensor_create((const int64_t[]){2, 3}, 2, TRI_DTYPE_F32);
        tri_requires_grad(x, true);
    }
    if (is(name, "inputs"))
        return x;
    return tri_sum(x, NULL, 0, false);
}

static tri_tensor *good_tensor(const misuse_pick *p, int i)
{
    static const int64_t values[64]; /* zeros of every type */
    static const int64_t shape[2] = {2, 3};

    for (int t = 0; t < COUNT(tensors); t++) {
        if (is(tensors[t].function, p->row->name) &&
            is(tensors[t].parameter, p->row->parameters[i].name))
            return tri_tensor_from(tensors[t].shape, tensors[t].ndim, tensors[t].dtype, values);
    }
    if (strncmp(p->row->name, "tri_backward", 12) == 0 || is(p->row->name, "tri_gradients"))
        return good_gradient(p->row->parameters[i].name);
    return tri_tensor_from(shape, 2, TRI_DTYPE_F32, values);
}

/* Four images. */
static tri_dataset *good_dataset(void)
{
    static const uint8_t values[16] = {0};
    static const void *const data[1] = {values};
    tri_dataset *dataset = NULL;

    if (tri_dataset_arrays(4, &(tri_field){.dtype = TRI_DTYPE_U8, .ndim = 3, .shape = {1, 2, 2}},
                           data, 1, &dataset) != TRI_OK)
        return NULL;
    return dataset;
}

static tri_module *good_module(const char *function)
{
    static int made;
    char name[32];

    if (is(function, "tri_remote_optimizer_of")) {
        snprintf(name, sizeof(name), "worker/net%d", made++ % 1000);
        return tri_remote_module(NULL, name, NULL);
    }
    if (strncmp(function, "tri_model_resnet_", 17) == 0)
        return tri_model_resnet_of_width(18, 1, 2);
    if (is(function, "tri_ddp_sync_buffers") || is(function, "tri_ddp_verify") ||
        is(function, "tri_ddp_join") || is(function, "tri_ddp_stats"))
        return tri_ddp(tri_nn_linear(3, 2, NULL), NULL);
    if (is(function, "tri_module_load"))
        return tri_nn_linear(3, 2, &(tri_nn_linear_options){.no_bias = true});
    return tri_nn_linear(3, 2, NULL);
}

/* With what the calls on it ask for. */
static tri_status good_store(tri_store **store_out)
{
    const char *keys[] = {"a", "b", "key"};
    const void *values[] = {"1", "2", "3"};
    tri_status status = tri_store_hash(store_out);

    if (status == TRI_OK)
        status = tri_store_multi_set(*store_out, keys, values, (const size_t[]){1, 1, 1}, 3);
    return status == TRI_OK ? tri_store_queue_push(*store_out, "key", "4", 1) : status;
}

static tri_status good_loader(const char *function, tri_sampler *sampler, tri_loader **loader_out)
{
    tri_status status = tri_loader_create(good_dataset(), sampler, 2, NULL, loader_out);

    return status == TRI_OK && is(function, "tri_loader_next") ? tri_loader_begin(*loader_out, 0, 0)
                                                               : status;
}

static tri_status good_group(const char *function, tri_group **group_out)
{
    tri_status status = tri_group_create(NULL, 0, 1, NULL, group_out);

    return status == TRI_OK && is(function, "tri_group_batch_end")
               ? tri_group_batch_begin(*group_out)
               : status;
}

/* As far on its way as the function wants it. */
static tri_status good_reducer(const char *function, tri_reducer **reducer_out)
{
    static float gradient[4];
    tri_reducer_grad grad = {.data = gradient, .count = 4};
    tri_group *group;
    tri_status status = tri_group_create(NULL, 0, 1, NULL, &group);

    if (status == TRI_OK)
        status = tri_reducer_create(&(tri_reducer_options){.group = group}, reducer_out);
    if (status == TRI_OK)
        status = tri_reducer_add(*reducer_out, &grad, NULL);
    if (status == TRI_OK &&
        (is(function, "tri_reducer_ready") || is(function, "tri_reducer_finish")))
        status = tri_reducer_begin(*reducer_out, 1);
    if (status == TRI_OK && is(function, "tri_reducer_finish"))
        status = tri_reducer_ready(*reducer_out, 0);
    return status;
}

static tri_status good_scaler(const char *function, tri_grad_scaler **scaler_out)
{
    tri_status status = tri_grad_scaler_create(NULL, scaler_out);

    return status == TRI_OK && is(function, "tri_grad_scaler_update")
               ? tri_grad_scaler_step(*scaler_out, tri_sgd(tri_nn_linear(3, 2, NULL), 0.1, NULL))
               : status;
}

static const char *good_file(void)
{
    return tri_save(tri_nn_linear(3, 2, NULL), "good.safetensors") == TRI_OK ? "good.safetensors"
                                                                             : NULL;
}

static tri_status good_checkpoint(tri_checkpoint **checkpoint_out)
{
    tri_module *module = tri_nn_linear(3, 2, NULL);
    tri_state_entry average = tri_module_state(module, 0);
    tri_checkpoint_extra ema = {.name = "ema", .entries = &average, .n = 1};
    tri_checkpoint_info info = {.step = 1, .extras = &ema, .n_extras = 1};
    tri_status status =
        tri_checkpoint_save("checkpoints", module, tri_sgd(module, 0.1, NULL), &info, NULL);

    return status == TRI_OK ? tri_checkpoint_open("checkpoints", checkpoint_out) : status;
}

static tri_status good_writer(tri_checkpoint_writer **writer_out)
{
    return tri_checkpoint_writer_create("written", writer_out);
}

static tri_status good_run(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function good_rpc_function = {.name = "good", .run = good_run};

/* Alone, and impatient. */
static tri_status good_worker(tri_rpc **rpc_out)
{
    static const tri_rpc_function *const functions[1] = {&good_rpc_function};
    tri_store *store;
    tri_status status = tri_store_hash(&store);

    if (status == TRI_OK)
        status =
            tri_rpc_create(store, "worker", 0, 1, &(tri_rpc_options){.timeout_ms = 50}, rpc_out);
    return status == TRI_OK ? tri_rpc_serve(*rpc_out, functions, 1) : status;
}

static tri_status good_ref(tri_rpc_ref **ref_out)
{
    tri_rpc *rpc;
    tri_status status = good_worker(&rpc);

    return status == TRI_OK ? tri_rpc_find(rpc, "worker", ref_out) : status;
}

static tri_status good_call(const char *function, tri_rpc_ref *ref, tri_rpc_call **call_out)
{
    tri_status status = tri_rpc_async(ref, &good_rpc_function, NULL, NULL, call_out);

    return status == TRI_OK && is(function, "tri_rpc_call_take_reply")
               ? tri_rpc_call_wait(*call_out, 0)
               : status;
}

/* NULL where it cannot be made here, as after tri_finalize. */
static void *good_object(const misuse_pick *p, int i)
{
    const char *type = p->row->parameters[i].type;
    union {
        tri_store *store;
        tri_group *group;
        tri_work *work;
        tri_sampler *sampler;
        tri_loader *loader;
        tri_meter *meter;
        tri_progress *progress;
        tri_metrics *metrics;
        tri_csv *csv;
        tri_tensorboard *board;
        tri_power_sgd *power;
        tri_reducer *reducer;
        tri_safetensors *file;
        tri_checkpoint *checkpoint;
        tri_checkpoint_writer *writer;
        tri_ema *ema;
        tri_grad_scaler *scaler;
        tri_context *context;
        tri_rpc *rpc;
        tri_rpc_ref *ref;
        tri_rpc_call *call;
    } made = {NULL};
    static float numbers[4];
    tri_status status = TRI_ERR_INVALID_ARG;

    if (strstr(type, "tri_tensor ") != NULL)
        return good_tensor(p, i);
    if (strstr(type, "tri_module ") != NULL)
        return good_module(p->row->name);
    if (strstr(type, "tri_optimizer") != NULL)
        return tri_sgd(tri_nn_linear(3, 2, NULL), 0.1, NULL);
    if (strstr(type, "tri_remote_optimizer ") != NULL) {
        tri_module *const remote = tri_remote_module(NULL, "worker/net", NULL);

        return tri_remote_optimizer_of(NULL, &remote, 1, NULL);
    }
    if (strstr(type, "tri_dataset") != NULL)
        return good_dataset();
    if (strstr(type, "tri_store ") != NULL)
        status = good_store(&made.store);
    else if (strstr(type, "tri_group ") != NULL)
        status = good_group(p->row->name, &made.group);
    else if (strstr(type, "tri_work ") != NULL)
        status = tri_group_create(NULL, 0, 1, NULL, &made.group) != TRI_OK
                     ? TRI_ERR_STATE
                     : tri_all_reduce(made.group, numbers, numbers, 4, TRI_DTYPE_F32, TRI_REDOP_SUM,
                                      &made.work);
    else if (strstr(type, "tri_sampler ") != NULL)
        status = tri_sampler_distributed(4, NULL, &made.sampler);
    else if (strstr(type, "tri_loader ") != NULL)
        status = tri_sampler_distributed(4, NULL, &made.sampler) != TRI_OK
                     ? TRI_ERR_STATE
                     : good_loader(p->row->name, made.sampler, &made.loader);
    else if (strstr(type, "tri_meter ") != NULL)
        status = tri_meter_create(&made.meter);
    else if (strstr(type, "tri_progress ") != NULL)
        status = tri_progress_create(10, 0, "steps", NULL, &made.progress);
    else if (strstr(type, "tri_metrics ") != NULL)
        status = tri_metrics_open("metrics.jsonl", 0, &made.metrics);
    else if (strstr(type, "tri_csv ") != NULL)
        status = tri_csv_open("metrics.csv", 0, &made.csv);
    else if (strstr(type, "tri_tensorboard ") != NULL)
        status = tri_tensorboard_open("board", NULL, &made.board);
    else if (strstr(type, "tri_power_sgd ") != NULL)
        status = tri_power_sgd_create(NULL, &made.power);
    else if (strstr(type, "tri_reducer ") != NULL)
        status = good_reducer(p->row->name, &made.reducer);
    else if (strstr(type, "tri_ema ") != NULL)
        status = tri_ema_create(tri_nn_linear(3, 2, NULL), 0.9, &made.ema);
    else if (strstr(type, "tri_grad_scaler ") != NULL)
        status = good_scaler(p->row->name, &made.scaler);
    else if (strstr(type, "tri_context ") != NULL)
        status = tri_context_create(&made.context);
    else if (strstr(type, "tri_rpc ") != NULL)
        status = good_worker(&made.rpc);
    else if (strstr(type, "tri_rpc_ref ") != NULL)
        status = good_ref(&made.ref);
    else if (strstr(type, "tri_rpc_call ") != NULL)
        status = good_ref(&made.ref) != TRI_OK ? TRI_ERR_STATE
                                               : good_call(p->row->name, made.ref, &made.call);
    else if (strstr(type, "tri_safetensors ") != NULL)
        status = tri_safetensors_open(good_file(), &made.file);
    else if (strstr(type, "tri_checkpoint ") != NULL)
        status = good_checkpoint(&made.checkpoint);
    else if (strstr(type, "tri_checkpoint_writer ") != NULL)
        status = good_writer(&made.writer);
    return status == TRI_OK ? made.store : NULL;
}

static void *good_list(const misuse_pick *p, int i)
{
    static const char *texts[2] = {"a", "b"};
    static const tri_rpc_function *const functions[2] = {&good_rpc_function, &good_rpc_function};
    static char room[2][SCRATCH];
    static void *lists[16][2]; /* one for each parameter: a call may have several */
    void **objects = lists[i % 16];
    const char *type = p->row->parameters[i].type;

    if (is(type, "const char *const *"))
        return texts;
    if (is(type, "const tri_rpc_function *const *"))
        return (void *)(uintptr_t)functions;
    for (int k = 0; k < 2; k++)
        objects[k] = strstr(type, "void") != NULL ? (void *)room[k] : good_object(p, i);
    return objects;
}

/* One image of 2x2 pixels, or its label. */
static const char *good_idx(bool images)
{
    static const char image[] = "\0\0\x08\x03\0\0\0\1\0\0\0\2\0\0\0\2\0\0\0";
    static const char label[] = "\0\0\x08\x01\0\0\0\1";
    const char *path = images ? "images" : "labels";
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        return NULL;
    fwrite(images ? image : label, 1, images ? sizeof(image) : sizeof(label), file);
    fclose(file);
    return path;
}

/* One window of a token and the next. */
static const char *good_tokens(void)
{
    FILE *file = fopen("tokens", "wb");

    if (file == NULL)
        return NULL;
    fwrite("ab", 1, 2, file);
    fclose(file);
    return "tokens";
}

/* A PNG file of one grey pixel. */
static const char good_png[] =
    "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\001"
    "\000\000\000\001\010\000\000\000\000\072\176\233\125\000\000\000\012\111\104\101"
    "\124\170\234\143\140\000\000\000\002\000\001\110\257\244\161\000\000\000\000\111"
    "\105\116\104\256\102\140\202";

static const void *good_struct(const char *type);

/* Two classes of one image each, of which the name is all that is looked at. */
static const char *good_image_folder(void)
{
    static const char *const files[] = {"classes/a/1.png", "classes/b/1.png"};

    for (int k = 0; k < COUNT(files); k++) {
        FILE *file;

        if (trii_folder_create_above(files[k]) != TRI_OK)
            return NULL;
        file = fopen(files[k], "wb");
        if (file == NULL)
            return NULL;
        fclose(file);
    }
    return "classes";
}

static const char *good_text(const misuse_pick *p, int i)
{
    static const char *const texts[][3] = {
        {"tri_store_tcp", "host", "127.0.0.1"},
        {"tri_module_find", "name", "weight"},
        {"tri_model_by_name", "name", "mlp:3,2"},
        {"tri_safetensors_find", "name", "weight"},
        {"tri_safetensors_tensor", "name", "weight"},
        {"tri_checkpoint_open", "folder", "checkpoints"},
        {"tri_checkpoint_fetch", "folder", "checkpoints"},
        {"tri_checkpoint_save", "folder", "saved"},
        {"tri_checkpoint_writer_create", "folder", "written"},
        {"tri_checkpoint_restore_extra", "name", "ema"},
        {"tri_tensorboard_open", "folder", "another_board"},
        {"tri_tensorboard_image", "layout", "HW"},
        {"tri_rpc_find", "name", "worker"},
        {"tri_remote_module", "name", "worker/net"},
        {"tri_remote_apply", "worker", "worker"},
    };
    const char *function = p->row->name, *name = p->row->parameters[i].name;
    tri_checkpoint *checkpoint;

    if (is(function, "tri_safetensors_open") || is(function, "tri_load"))
        return good_file();
    if (is(function, "tri_dataset_idx"))
        return good_idx(is(name, "images_path"));
    if (is(function, "tri_dataset_tokens"))
        return good_tokens();
    if (is(function, "tri_image_read"))
        return tri_image_write_png(good_struct("const tri_image *"), "image") == TRI_OK ? "image"
                                                                                        : NULL;
    if (is(function, "tri_dataset_image_folder"))
        return good_image_folder();
    if ((is(function, "tri_checkpoint_open") || is(function, "tri_checkpoint_fetch")) &&
        good_checkpoint(&checkpoint) != TRI_OK)
        return NULL;
    for (int t = 0; t < COUNT(texts); t++) {
        if (is(texts[t][0], function) && is(texts[t][1], name))
            return texts[t][2];
    }
    return is(name, "key") ? "key" : "text";
}

static const tri_batch_norm_args *good_norm(void)
{
    static tri_batch_norm_args norm = {.training = true};
    const float values[2] = {1, 1};

    norm.weight = tri_tensor_from((const int64_t[]){2}, 1, TRI_DTYPE_F32, values);
    norm.bias = tri_tensor_from((const int64_t[]){2}, 1, TRI_DTYPE_F32, values);
    return &norm;
}

static void good_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    (void)self;
    for (int i = 0; i < n_out; i++)
        out[i] = in[i < n_in ? i : 0];
}

static tri_status good_function_shape(const tri_function_call *call, tri_function_array *out)
{
    for (int o = 0; o < call->n_out; o++)
        out[o] = call->in[0];
    return TRI_OK;
}

static void good_record(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out, void *object)
{
    (void)data;
    (void)n_in;
    (void)object;
    for (int o = 0; o < n_out; o++)
        out[o] = in[0];
}

static tri_status good_function(const tri_function_call *call)
{
    for (int o = 0; o < call->n_out; o++)
        memcpy(call->out[o].data, call->in[0].data, 6 * sizeof(float));
    return TRI_OK;
}

/* A structure of what the type names, filled in; NULL: another type, or its defaults do. */
static const void *good_struct(const char *type)
{
    static const float values[12];
    static const int64_t indices[1];
    static const tri_safetensors_entry entry = {
        .name = "x", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {1}, .data = values, .bytes = 4};
    static const tri_metadata metadata = {"key", "value"};
    static const tri_checkpoint_info info = {.step = 1};
    static tri_state_entry average;
    static const tri_field field = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {3}};
    static const tri_request request = {.indices = indices, .n = 1};
    static const tri_metric metric = {"loss", 1.0};
    static const tri_hparam hparam = {"lr", 0.1, NULL};
    static const tri_reducer_grad grad = {.data = (void *)(uintptr_t)values, .count = 4};
    static const tri_state_source source = {
        .name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = values};
    static const tri_module_class class = {.name = "same", .forward = good_forward};
    static const tri_store_tcp_options serve = {.serve = true, .timeout_ms = 200};
    static const tri_schedule_part part = {.steps = 1};
    static const tri_function_class function = {
        .name = "same", .size = 8, .shape = good_function_shape, .forward = good_function};
    static const tri_remote_function remote_function = {
        .name = "good", .size = 8, .shape = good_function_shape, .record = good_record};
    static const tri_rng random = {.step = 1};
    static const tri_sample sample = {
        .n_fields = 1, .fields = {{TRI_DTYPE_F32, 1, {3}}}, .data = {(void *)(uintptr_t)values}};
    static const tri_image image = {
        .pixels = (uint8_t *)(uintptr_t)values, .height = 2, .width = 2, .channels = 3};
    static const tri_pool_options pool = {.kernel = {2, 2}};
    static const tri_model_vit_options vit = {
        .size = 8, .patch = 4, .width = 4, .depth = 1, .heads = 2, .classes = 3};
    static const tri_model_gpt2_options gpt2 = {
        .layers = 1, .width = 4, .heads = 2, .context = 4, .vocabulary = 5};
    static const tri_rpc_object object = {.name = "good"};
    static const tri_rpc_message message;
    static tri_transform transform;
    static tri_param_group group;
    const struct {
        const char *type;
        const void *value;
    } rows[] = {
        {"const tri_safetensors_entry *", &entry},
        {"const tri_metadata *", &metadata},
        {"const tri_checkpoint_info *", &info},
        {"const tri_field *", &field},
        {"const tri_request *", &request},
        {"const tri_metric *", &metric},
        {"const tri_reducer_grad *", &grad},
        {"const tri_state_source *", &source},
        {"const tri_module_class *", &class},
        {"const tri_store_tcp_options *", &serve},
        {"const tri_param_group *", &group},
        {"const tri_schedule_part *", &part},
        {"const tri_function_class *", &function},
        {"const tri_rng *", &random},
        {"const tri_sample *", &sample},
        {"const tri_transform *", &transform},
        {"const tri_pool_options *", &pool},
        {"const tri_model_vit_options *", &vit},
        {"const tri_model_gpt2_options *", &gpt2},
        {"const tri_state_entry *", &average},
        {"const tri_hparam *", &hparam},
        {"const tri_image *", &image},
        {"const tri_rpc_message *", &message},
        {"const tri_rpc_object *", &object},
        {"const tri_rpc_function *", &good_rpc_function},
        {"const tri_remote_function *", &remote_function},
    };

    if (is(type, "const tri_param_group *"))
        group.model = tri_nn_linear(3, 2, NULL);
    if (is(type, "const tri_state_entry *"))
        average = tri_module_state(tri_nn_linear(3, 2, NULL), 0);
    if (is(type, "const tri_transform *"))
        transform = tri_transform_to_float();
    for (int r = 0; r < COUNT(rows); r++) {
        if (is(type, rows[r].type))
            return rows[r].value;
    }
    return NULL;
}

static bool is_struct(const char *type)
{
    return strstr(type, "options") != NULL || strstr(type, "_args") != NULL ||
           good_struct(type) != NULL;
}

static void *good_pointer(const misuse_pick *p, int i)
{
    static const int64_t shape[8] = {2, 3, 1, 1, 1, 1, 1, 1};
    static const int ranks[8] = {0};
    static const int64_t dims[8] = {1, 0};
    static const size_t counts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double box[4] = {0, 0, 1, 1};
    static const double weights[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static _Alignas(64) char scratch[16][SCRATCH];
    static int turn;
    const char *type = p->row->parameters[i].type, *name = p->row->parameters[i].name;

    if (is(type, "const char *"))
        return (void *)(uintptr_t)good_text(p, i);
    if (is(type, "const int64_t *"))
        return (void *)(uintptr_t)(is(name, "dims") ? dims : shape);
    if (is(type, "const int *"))
        return (void *)(uintptr_t)ranks;
    if (is(type, "const size_t *"))
        return (void *)(uintptr_t)counts;
    if (is(p->row->name, "tri_image_decode") && is(name, "bytes"))
        return (void *)(uintptr_t)good_png;
    if (is(type, "const double *") && is(name, "box"))
        return (void *)(uintptr_t)box;
    if (is(type, "const double *"))
        return (void *)(uintptr_t)weights;
    if (strstr(type, "*const *") != NULL)
        return good_list(p, i);
    if (strstr(type, "FILE") != NULL)
        return fopen("/dev/null", "w");
    if (is(p->row->name, "tri_store_free") || is(p->row->name, "tri_object_free") ||
        (is(p->row->name, "tri_group_free") && is(name, "p")))
        return NULL; /* else what another call gave */
    if (is(p->row->name, "tri_bucket_hook_power_sgd") && is(name, "state"))
        return NULL;
    if (is(p->row->name, "tri_device_set_queue"))
        return NULL; /* a cpu device has no other */
    if (is(type, "const tri_batch_norm_args *"))
        return (void *)(uintptr_t)good_norm();
    if (is_struct(type))
        return (void *)(uintptr_t)good_struct(type);
    if (strncmp(type, "const tri_", 10) == 0 || strncmp(type, "tri_", 4) == 0) {
        const char *first = strchr(type, '*');

        if (first[1] == '\0' && !is(type, "tri_batch *") && !is(type, "tri_sample *") &&
            !is(type, "tri_image *") && !is(type, "tri_rpc_message *") &&
            strstr(type, "_stats *") == NULL) /* else an output */
            return good_object(p, i);
    }
    turn = (turn + 1) % 16; /* no two buffers of a call are the same */
    memset(scratch[turn], 0, SCRATCH);
    return scratch[turn];
}

/* What a program passes that was compiled for a newer library and sets a field that is new there.
 */
static void *newer_struct(const misuse_pick *p, int i)
{
    static _Alignas(64) char copies[4][16384];
    static int turn;
    const misuse_growing *s = growing(&p->row->parameters[i]);
    const void *good = good_pointer(p, i);
    char *copy = copies[turn = (turn + 1) % 4];

    memset(copy, 0, sizeof(copies[0]));
    if (good != NULL)
        memcpy(copy, good, s->bytes);
    copy[s->at + s->room - 1] = 1;
    return copy;
}

void *misuse_pointer(const misuse_pick *p, int i)
{
    static _Alignas(64) char zeros[16384];
    const char *type = p->row->parameters[i].type;
    int kind;

    if (!is_bad(p, i, &kind))
        return good_pointer(p, i);
    if (p->bad == i && misuse_is_newer(p))
        return newer_struct(p, i);
    if (is(type, "const char *"))
        return (void *)(uintptr_t)(kind == COUNT(bad_texts) - 1 ? long_text() : bad_texts[kind]);
    if (is(type, "const int64_t *") && kind > 0)
        return (void *)(uintptr_t)bad_shapes[kind - 1];
    return kind == 1 && is_struct(type) ? zeros : NULL; /* zeros: nothing filled in */
}

static int64_t good_integer(const misuse_pick *p, int i)
{
    static const char *const zero[] = {"rank",  "root",      "peer", "index",      "dim",
                                       "first", "start_dim", "port", "world_rank", "group"};
    const char *name = p->row->parameters[i].name, *type = p->row->parameters[i].type;

    for (int z = 0; z < COUNT(zero); z++) {
        if (is(name, zero[z]))
            return 0;
    }
    if (is(type, "tri_dtype"))
        return is(p->row->name, "tri_autocast_begin") ? TRI_DTYPE_BF16 : TRI_DTYPE_F32;
    if (strncmp(type, "tri_device", 10) == 0)
        return TRI_CPU(0);
    if (is(type, "tri_redop"))
        return TRI_REDOP_SUM;
    if (is(p->row->name, "tri_image_decode"))
        return sizeof(good_png) - 1;
    if (is(name, "high"))
        return 8;
    if (is(name, "depth"))
        return 18;
    if (is(p->row->name, "tri_pad") && is(name, "n"))
        return 2;
    if (is(p->row->name, "tri_slice_scatter") && (is(name, "start") || is(name, "end")))
        return is(name, "start") ? 0 : 2;
    if (is(name, "timeout_ms"))
        return 50;
    if (is(name, "ndim"))
        return 2;
    return strncmp(p->row->name, "tri_tensor_copy_", 16) == 0 ? 24 : 1;
}

int64_t misuse_integer(const misuse_pick *p, int i)
{
    const char *type = p->row->parameters[i].type;
    int kind;

    if (!is_bad(p, i, &kind))
        return good_integer(p, i);
    if (is_enum(type))
        return bad_enums[kind];
    if (is(type, "size_t") || is(type, "uint64_t"))
        return 0;
    if (is(type, "int") && kind > 1)
        return bad_integers[kind] < 0 ? INT_MIN : INT_MAX;
    return bad_integers[kind];
}

double misuse_real(const misuse_pick *p, int i)
{
    int kind;

    return is_bad(p, i, &kind) ? bad_reals[kind] : 0.5;
}
