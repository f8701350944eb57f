/*
 * misuse_structs.c - a structure of every type in the public headers that has to be filled in.
 */
#include "misuse/misuse_internal.h"

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

const void *misuse_good_struct(const char *type)
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
    static const tri_parallel_rule rule = {.module = "", .style = TRI_COLWISE};
    static const tri_rpc_object object = {.name = "good"};
    static const tri_rpc_message message;
    static const tri_initialize_options initialize = {
        .config = "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,"
                  " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"SGD\"}}"};
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
        {"const tri_parallel_rule *", &rule},
        {"const tri_rpc_message *", &message},
        {"const tri_rpc_object *", &object},
        {"const tri_rpc_function *", &misuse_good_rpc_function},
        {"const tri_remote_function *", &remote_function},
        {"const tri_initialize_options *", &initialize},
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
