/*
 * program.c - a program of today's headers, to be run with a library of tomorrow: it writes,
 * embeds, passes in lists and has filled in what the library looks at by its layout. Numbers are
 * printed with few digits: the library of tomorrow is not optimised.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <trireme/models.h>
#include <trireme/sync_batch_norm.h>
#include <trireme/trireme.h>

#define ROWS 12

/* --- classes of the program's own, with data after what they embed -------- */

typedef struct squares {
    tri_dataset base;
    float factor;
} squares;

static tri_status squares_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    for (int64_t i = 0; i < request->n; i++) {
        float x = (float)request->indices[i] / ROWS;

        ((float *)slots[0])[2 * i] = x;
        ((float *)slots[0])[2 * i + 1] = x * x;
        ((float *)slots[1])[i] = ((squares *)self)->factor * x * x - x;
    }
    return TRI_OK;
}

static void squares_destroy(tri_dataset *self)
{
    printf("data set of factor %g destroyed\n", (double)((squares *)self)->factor);
    free(self);
}

static const tri_dataset_class squares_class = {
    .name = "squares", .read = squares_read, .destroy = squares_destroy};

typedef struct backwards {
    tri_sampler base;
    int64_t first;
} backwards;

static tri_status backwards_draw(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = (((backwards *)self)->first + epoch - i + 2 * ROWS) % ROWS;
    return TRI_OK;
}

static const tri_sampler_class backwards_class = {.name = "backwards", .draw = backwards_draw};

/* Adds arg. */
static tri_status shift_apply(const tri_transform *self, const tri_field *in, const void *x,
                              tri_draws *draws, tri_sample *out)
{
    float *to = tri_sample_room(out, 0, in->dtype, in->shape, in->ndim);

    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < in->shape[0]; i++)
        to[i] = ((const float *)x)[i] + *(float *)self->arg + 0 * (float)tri_draws_uniform(draws);
    return TRI_OK;
}

static tri_status cube_shape(const tri_function_call *call, tri_function_array *out)
{
    for (int o = 0; o < call->n_out; o++)
        out[o] = call->in[0];
    return TRI_OK;
}

static int64_t elements(const tri_function_array *array)
{
    int64_t n = 1;

    for (int d = 0; d < array->ndim; d++)
        n *= array->shape[d];
    return n;
}

static tri_status cube_forward(const tri_function_call *call)
{
    const float *x = call->in[0].data;

    for (int64_t i = 0; i < elements(&call->in[0]); i++) {
        ((float *)call->out[0].data)[i] = x[i] * x[i] * x[i];
        ((float *)call->out[1].data)[i] = 3 * x[i] * x[i];
    }
    return TRI_OK;
}

static tri_status cube_backward(const tri_function_call *call)
{
    const float *slope = call->out[1].data, *g = call->grad_out[0].data;

    for (int64_t i = 0; i < elements(&call->in[0]); i++)
        ((float *)call->grad_in[0].data)[i] = g[i] * slope[i];
    return TRI_OK;
}

static const tri_function_class cube_class = {.name = "cube",
                                              .saved = 1,
                                              .shape = cube_shape,
                                              .forward = cube_forward,
                                              .backward = cube_backward};

typedef struct two_ways {
    tri_module *left, *right;
    float share;
} two_ways;

static void two_ways_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    two_ways *w = tri_module_data(self);
    tri_tensor *bent;

    (void)n_in, (void)n_out;
    tri_function_apply(&cube_class, NULL, &(tri_tensor *){tri_forward(w->left, in[0])}, 1, &bent,
                       1);
    out[0] = tri_add(tri_mul_scalar(bent, w->share), tri_forward(w->right, in[0]));
}

static int two_ways_repr(tri_module *self, char *text, size_t bytes)
{
    return snprintf(text, bytes, "share=%g", (double)((two_ways *)tri_module_data(self))->share);
}

static void two_ways_destroy(tri_module *self)
{
    printf("module of share %g destroyed\n", (double)((two_ways *)tri_module_data(self))->share);
}

static const tri_module_class two_ways_class = {.name = "TwoWays",
                                                .size = sizeof(two_ways),
                                                .forward = two_ways_forward,
                                                .destroy = two_ways_destroy,
                                                .extra_repr = two_ways_repr};

static tri_module *net_create(void)
{
    tri_module *self = tri_module_create(&two_ways_class);
    two_ways *w = tri_module_data(self);

    w->share = 0.5f;
    w->left = tri_module_add_child(self, "left", tri_nn_linear(2, 1, NULL));
    w->right = tri_module_add_child(self, "right",
                                    tri_nn_linear(2, 1, &(tri_nn_linear_options){.no_bias = true}));
    return self;
}

/* --- what the program does ------------------------------------------------ */

static void data(tri_dataset **dataset_out)
{
    static float by = 0.25f;
    squares *s = calloc(1, sizeof(*s));
    const tri_transform shifts[] = {{.name = "shift", .apply = shift_apply, .arg = &by},
                                    {.name = "shift", .apply = shift_apply, .arg = &by}};
    backwards order = {.base = {.cls = &backwards_class, .length = 5}, .first = 3};
    tri_loader *loader;
    tri_batch batch;

    if (s == NULL)
        exit(1);
    s->base = (tri_dataset){.cls = &squares_class, .length = ROWS, .n_fields = 2};
    s->base.fields[0] = (tri_field){.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}};
    s->base.fields[1] = (tri_field){.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {1}};
    s->factor = 2;
    TRI_TRY(tri_dataset_transform(&s->base, shifts, 2, dataset_out));
    TRI_TRY(tri_loader_create(*dataset_out, &order.base, 2,
                              &(tri_loader_options){.n_threads = 1, .drop_last = true}, &loader));
    TRI_TRY(tri_loader_begin(loader, 1, 0));
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        printf("batch %lld of %lld samples, %d fields\n", (long long)batch.index,
               (long long)batch.size, batch.n_fields);
        tri_tensor_print(batch.fields[0], stdout);
    }
    tri_loader_destroy(loader);
    tri_sampler_destroy(&order.base);
}

static void train(tri_dataset *dataset)
{
    tri_module *net = net_create(), *model;
    two_ways *parts = tri_module_data(net);
    const tri_param_group groups[] = {
        {.model = parts->left, .weight_decay = TRI_SET(0)},
        {.model = parts->right, .lr = TRI_SET(0.05), .weight_decay = TRI_SET(0.1)}};
    const tri_schedule_part schedule[] = {{.steps = 2}, {.steps = 3}};
    tri_optimizer *opt =
        tri_adamw_of(groups, 2, 0.1, &(tri_adam_options){.beta2 = TRI_SET(0.9), .amsgrad = true});
    tri_ddp_bucket_stats buckets[2];
    tri_ddp_pass_stats stats;
    tri_loader *loader;
    tri_batch batch;

    tri_module_print(net, stdout);
    model = tri_ddp(net, &(tri_ddp_options){.bucket_cap_bytes = 64, .static_graph = true});
    TRI_TRY(tri_module_status(model));
    TRI_TRY(tri_loader_create(dataset, NULL, 4, &(tri_loader_options){.seed = 3}, &loader));
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        tri_tensor *loss = NULL;

        TRI_TRY(tri_loader_begin(loader, epoch, 0));
        while (tri_loader_next(loader, &batch) == TRI_OK) {
            loss = tri_smooth_l1_loss(tri_forward(model, batch.fields[0]), batch.fields[1],
                                      &(tri_smooth_l1_loss_options){.beta = TRI_SET(0.25)});
            tri_backward(loss);
            TRI_TRY(tri_optimizer_step(opt));
            if (batch.index == 0)
                printf("epoch %lld: loss %.3f, rate %.3f\n", (long long)epoch, tri_item(loss),
                       tri_schedule_sequential(0.1, schedule, 2, epoch));
            tri_step_end();
        }
    }
    printf("cycle: %.4f\n", tri_schedule_one_cycle(0.1, 10, 6,
                                                   &(tri_schedule_one_cycle_options){
                                                       .pct_start = TRI_SET(0.5),
                                                       .final_div_factor = TRI_SET(10),
                                                   })
                                .lr);
    TRI_TRY(tri_ddp_stats(model, &stats, buckets, 2));
    printf("%d buckets, %zu bytes\n", stats.n_buckets, stats.bytes);

    const tri_metadata meta[] = {{"why", "to see"}, {"how", "by layout"}};
    const tri_checkpoint_info info = {.step = 15, .epoch = 5, .meta = meta, .n_meta = 2};
    tri_checkpoint *checkpoint;

    TRI_TRY(
        tri_checkpoint_save("runs", model, opt, &info, &(tri_checkpoint_save_options){.keep = 1}));
    TRI_TRY(tri_checkpoint_open("runs", &checkpoint));
    TRI_TRY(tri_checkpoint_restore(checkpoint, model, opt));
    tri_checkpoint_close(checkpoint);
    TRI_TRY(tri_load(model, "runs/step-000000000015/model.safetensors",
                     &(tri_load_options){.convert = true}));
    tri_tensor_print(tri_module_find(model, "left.weight"), stdout);
    tri_optimizer_destroy(opt);
    tri_loader_destroy(loader);
    tri_module_destroy(model);
}

static void operations(void)
{
    const float numbers[16] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16};
    const float weight[2] = {2, 3}, bias[2] = {1, 0};
    const tri_state_source sources[] = {
        {.name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = weight},
        {.name = "bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias}};
    tri_safetensors_entry entries[] = {{.name = "a",
                                        .dtype = TRI_DTYPE_F32,
                                        .ndim = 1,
                                        .shape = {4},
                                        .data = numbers,
                                        .bytes = 16},
                                       {.name = "b",
                                        .dtype = TRI_DTYPE_F32,
                                        .ndim = 2,
                                        .shape = {2, 1},
                                        .data = weight,
                                        .bytes = 8}};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(1, 2, 2, 4), TRI_DTYPE_F32, numbers);
    tri_module *norm =
        tri_nn_layer_norm(TRI_SHAPE(2), &(tri_nn_layer_norm_options){.eps = TRI_SET(1e-3)});
    tri_module *vit = tri_model_vit(&(tri_model_vit_options){
        .size = 8, .patch = 4, .width = 4, .depth = 1, .heads = 2, .classes = 3});
    tri_grad_scaler *scaler;
    tri_safetensors *file;

    TRI_TRY(tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(4)}, &scaler));
    tri_tensor_print(tri_grad_scaler_scale(scaler, tri_sum(x, NULL, 0, false)), stdout);
    tri_tensor_print(tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}}), stdout);
    tri_tensor_print(tri_conv(x, tri_ones(TRI_SHAPE(1, 2, 2, 2), TRI_DTYPE_F32), NULL,
                              &(tri_conv_options){.stride = {2, 2}}),
                     stdout);
    tri_tensor_print(
        tri_attention(x, x, x, &(tri_attention_options){.is_causal = true, .scale = TRI_SET(0.1)}),
        stdout);
    tri_tensor_print(
        tri_batch_norm(x, &(tri_batch_norm_args){.training = true, .eps = TRI_SET(1e-2)}), stdout);
    tri_step_end();
    TRI_TRY(tri_module_load(norm, sources, 2, &(tri_load_options){.partial = false}));
    tri_tensor_print(tri_forward(norm, tri_reshape(x, TRI_SHAPE(8, 2))), stdout);
    printf("vit: %lld numbers\n", (long long)tri_module_parameter_count(vit));
    TRI_TRY(tri_safetensors_write("two.safetensors", entries, 2, NULL, 0));
    TRI_TRY(tri_safetensors_open("two.safetensors", &file));
    printf("%s has %d dimensions\n", tri_safetensors_find(file, "b")->name,
           tri_safetensors_find(file, "b")->ndim);
    tri_step_end();
    tri_safetensors_close(file);
    tri_grad_scaler_destroy(scaler);
    tri_module_destroy(vit);
    tri_module_destroy(norm);
    tri_tensor_unref(x);
}

/* --- groups, reducers, workers -------------------------------------------- */

static tri_status print_bucket(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    (void)stage, (void)work_out;
    for (int p = 0; p < bucket->n_parts && tri_rank() == 0; p++)
        printf("%s: %s is %zu of %zu numbers\n", (const char *)state, bucket->parts[p].name,
               bucket->parts[p].count, bucket->count);
    return tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count, bucket->dtype,
                          TRI_REDOP_SUM, NULL);
}

static tri_status work(int rank, void *arg)
{
    float a[3] = {1, 2, (float)rank}, b[2] = {(float)rank, 4};
    const tri_reducer_grad grads[] = {{.data = a, .count = 3, .name = "a"},
                                      {.data = b, .count = 2, .name = "b", .rows = 2}};
    tri_reducer *reducer;
    tri_group *pair;

    TRI_TRY(tri_init(&(tri_init_options){.group = {.engine = "shm", .name = arg}}));
    TRI_TRY(tri_group_split(NULL, rank, 0, &(tri_group_options){.timeout_ms = 5000}, &pair));
    TRI_TRY(tri_reducer_create(&(tri_reducer_options){.hook = print_bucket, .hook_state = "hook"},
                               &reducer));
    TRI_TRY(tri_reducer_add(reducer, &grads[0], NULL));
    TRI_TRY(tri_reducer_add(reducer, &grads[1], NULL));
    TRI_TRY(tri_reducer_begin(reducer, 1));
    TRI_TRY(tri_reducer_ready(reducer, 1));
    TRI_TRY(tri_reducer_ready(reducer, 0));
    TRI_TRY(tri_reducer_finish(reducer));
    if (rank == 0)
        printf("group of %d, means %g %g\n", tri_group_size(pair), (double)a[2], (double)b[0]);
    tri_reducer_destroy(reducer);
    tri_group_unref(pair);
    tri_finalize();
    return TRI_OK;
}

int main(void)
{
    tri_dataset *dataset;

    setvbuf(stdout, NULL, _IOLBF, 0);
    TRI_TRY(tri_spawn(work, "workers", 2,
                      &(tri_spawn_options){.how = TRI_SPAWN_ANEW, .grace_ms = TRI_SET(100)}));
    TRI_TRY(tri_init(NULL));
    tri_manual_seed(7);
    data(&dataset);
    train(dataset);
    tri_dataset_destroy(dataset);
    operations();
    tri_finalize();
    return 0;
}
