/*
 * misuse_objects.c - an object that works for every type of handle in the public headers.
 */
#include "misuse/misuse_internal.h"

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
    {"tri_dist_cross_entropy", "target", TRI_DTYPE_I64, 1, {2}},
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
    if (strncmp(p->row->name, "tri_backward", 12) == 0 || is(p->row->name, "tri_gradients") ||
        is(p->row->name, "tri_engine_backward"))
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
        is(function, "tri_ddp_join") || is(function, "tri_ddp_stats") ||
        is(function, "tri_ddp_volume"))
        return tri_ddp(tri_nn_linear(3, 2, NULL), NULL);
    if (is(function, "tri_pipeline_split"))
        return tri_nn_sequential(tri_nn_linear(3, 2, NULL));
    if (is(function, "tri_pipeline_step") || is(function, "tri_pipeline_draw") ||
        is(function, "tri_pipeline_print"))
        return tri_pipeline((tri_module *[]){tri_nn_linear(3, 2, NULL)}, 1, NULL);
    if (is(function, "tri_nn_embedding_scores"))
        return tri_nn_embedding(5, 3, NULL);
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

const char *misuse_good_file(void)
{
    return tri_save(tri_nn_linear(3, 2, NULL), "good.safetensors") == TRI_OK ? "good.safetensors"
                                                                             : NULL;
}

const char *misuse_good_torch_file(void)
{
    return tri_torch_save(tri_nn_linear(3, 2, NULL), "good.pth") == TRI_OK ? "good.pth" : NULL;
}

tri_status misuse_good_checkpoint(tri_checkpoint **checkpoint_out)
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
const tri_rpc_function misuse_good_rpc_function = {.name = "good", .run = good_run};

/* Alone, and impatient. */
static tri_status good_worker(tri_rpc **rpc_out)
{
    static const tri_rpc_function *const functions[1] = {&misuse_good_rpc_function};
    tri_store *store;
    tri_status status = tri_store_hash(&store);

    if (status == TRI_OK)
        status =
            tri_rpc_create(store, "worker", 0, 1, &(tri_rpc_options){.timeout_ms = 2000}, rpc_out);
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
    tri_status status = tri_rpc_async(ref, &misuse_good_rpc_function, NULL, NULL, call_out);

    return status == TRI_OK && is(function, "tri_rpc_call_take_reply")
               ? tri_rpc_call_wait(*call_out, 0)
               : status;
}

const tri_batch_norm_args *misuse_good_norm(void)
{
    static tri_batch_norm_args norm = {.training = true};
    const float values[2] = {1, 1};

    norm.weight = tri_tensor_from((const int64_t[]){2}, 1, TRI_DTYPE_F32, values);
    norm.bias = tri_tensor_from((const int64_t[]){2}, 1, TRI_DTYPE_F32, values);
    return &norm;
}

/* With the axes of good_list. */
static tri_status good_mesh(tri_mesh **mesh_out)
{
    tri_group *group;
    tri_status status = tri_group_create(NULL, 0, 1, NULL, &group);

    if (status == TRI_OK)
        status = tri_mesh_create(group, (const int64_t[]){1, 1}, 2, (const char *[]){"a", "b"},
                                 mesh_out);
    return status;
}

/* As far in its loop as the function wants it; with a checkpoint to load. */
static tri_status good_engine(const char *function, tri_engine **engine_out)
{
    tri_initialize_options options =
        *(const tri_initialize_options *)misuse_good_struct("const tri_initialize_options *");
    tri_tensor *x = tri_tensor_from((const int64_t[]){2, 3}, 2, TRI_DTYPE_F32, (float[6]){0});
    tri_status status;

    options.training_data = good_dataset();
    status = tri_group_create(NULL, 0, 1, NULL, &options.group);
    if (status == TRI_OK)
        status = tri_initialize(NULL, tri_nn_linear(3, 2, NULL), &options, engine_out);
    if (status == TRI_OK && is(function, "tri_engine_load_checkpoint"))
        status = tri_engine_save_checkpoint(*engine_out, "engines", NULL, NULL, 0);
    if (status == TRI_OK && (is(function, "tri_engine_step") || is(function, "tri_engine_flush")))
        tri_engine_backward(*engine_out,
                            tri_sum(tri_engine_forward(*engine_out, x), NULL, 0, false));
    return status == TRI_OK && is(function, "tri_engine_flush") ? tri_engine_step(*engine_out)
                                                                : status;
}

void *misuse_good_object(const misuse_pick *p, int i)
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
        tri_torch_file *torch_file;
        tri_checkpoint *checkpoint;
        tri_checkpoint_writer *writer;
        tri_ema *ema;
        tri_grad_scaler *scaler;
        tri_context *context;
        tri_rpc *rpc;
        tri_rpc_ref *ref;
        tri_rpc_call *call;
        tri_mesh *mesh;
        tri_engine *engine;
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
    else if (strstr(type, "tri_mesh ") != NULL)
        status = good_mesh(&made.mesh);
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
        status = tri_safetensors_open(misuse_good_file(), &made.file);
    else if (strstr(type, "tri_torch_file ") != NULL)
        status = tri_torch_open(misuse_good_torch_file(), &made.torch_file);
    else if (strstr(type, "tri_checkpoint ") != NULL)
        status = misuse_good_checkpoint(&made.checkpoint);
    else if (strstr(type, "tri_checkpoint_writer ") != NULL)
        status = good_writer(&made.writer);
    else if (strstr(type, "tri_engine ") != NULL)
        status = good_engine(p->row->name, &made.engine);
    return status == TRI_OK ? made.store : NULL;
}
