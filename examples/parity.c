/*-
 * parity.c - trains from given weights on given batches, so that anybody can compare Trireme with
 * another framework number by number (tests/peers/parity.py does it with PyTorch).
 *
 *     parity --model resnet18 --init W.safetensors --data D.safetensors --optim sgd --lr 0.01 \
 *            --loss cross_entropy --steps 10 --batch 8 --dtype fp64 \
 *            --losses-out L.jsonl --out W2.safetensors
 *
 * D has tensors x and y; step k takes rows kB to kB+B-1, wrapping around. Under trirun worker r
 * takes the r-th contiguous part of each batch. L gets one {"step":k,"loss":v} a line, v the mean
 * over the whole batch; W2 the final weights under PyTorch's and torchvision's names.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "command_line.h"

typedef struct arguments {
    const char *model, *init, *data, *losses_out, *out, *loss, *optim, *type;
    double lr, momentum, weight_decay, clip_norm;
    int64_t steps, batch;
    tri_dtype dtype;
} arguments;

static const char usage_text[] =
    "usage: parity --model MODEL\n"
    "              --init W.safetensors --data D.safetensors\n"
    "              [--optim sgd|adam|adamw|rmsprop|adagrad] --lr X\n"
    "              [--momentum M] [--weight-decay W] [--clip-norm C]\n"
    "              --loss mse|cross_entropy --steps N --batch B [--dtype fp32|fp64]\n"
    "              --losses-out L.jsonl --out W2.safetensors\n"
    "\n"
    "Trains from given weights on given batches and writes losses and final weights.\n"
    "\n"
    "  --model linear:10,10   one linear layer (weight, bias)\n"
    "          mlp:10,10,5    linear layers with ReLU between (0.weight, 2.weight, ...)\n"
    "          resnet18       torchvision's, classes as in W; also resnet34, resnet50\n"
    "          vit:32,8,64,2,4,10  torchvision's: size, patch, width, depth, heads, classes\n"
    "          gpt:2,64,4,32,99    GPT-2: layers, width, heads, context, vocabulary\n"
    "  --data                 tensors x [N, ..] and y: float [N, ..] for mse, int64 [N] else; of "
    "gpt\n"
    "                         both are tokens, int64 [N, T]\n"
    "  --momentum             of sgd and rmsprop\n"
    "  --weight-decay         of all; of adamw 0.01 if it is not given\n"
    "  --clip-norm            at most this norm of all gradients together\n"
    "  --dtype fp64           computes in double precision, with the reference kernels\n"
    "\n"
    "example, two workers:\n"
    "  trirun --standalone --nproc-per-node 2 build/bin/parity --model mlp:10,10,5 \\\n"
    "      --init w.safetensors --data d.safetensors --lr 0.1 --loss mse --steps 10 --batch 20 \\\n"
    "      --losses-out l.jsonl --out w2.safetensors\n";

static _Noreturn void usage(const char *wrong, const char *value)
{
    options_refuse("%s%s%s (--help says more)", wrong, value != NULL ? " " : "",
                   value != NULL ? value : "");
}

/* A number of at least `least`, whole or not. */
static double number(const char *name, const char *text, bool whole, double least)
{
    char *end, wrong[160];
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= least && value < 1e9) ||
        (whole && value != (double)(int64_t)value)) {
        snprintf(wrong, sizeof(wrong), "--%s is a %s from %g to 1e9, not", name,
                 whole ? "whole number" : "number", least);
        usage(wrong, text);
    }
    return value;
}

/* The value of "--NAME VALUE" or "--NAME=VALUE" if argv[*at_io] is that option, else NULL. */
static const char *option_value(const char *name, int argc, char **argv, int *at_io)
{
    const char *text = argv[*at_io];
    size_t n = strlen(name);

    if (text == NULL || strncmp(text, "--", 2) != 0 || strncmp(text + 2, name, n) != 0)
        return NULL;
    if (text[2 + n] == '=')
        return text + 3 + n;
    if (text[2 + n] != '\0')
        return NULL;
    if (*at_io + 1 >= argc)
        usage("no value for", text);
    return argv[++*at_io];
}

static const char *const optimizers[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};

/* Which of those; -1 = none. */
static int optimizer_of(const char *name)
{
    for (int i = 0; i < 5; i++)
        if (strcmp(optimizers[i], name) == 0)
            return i;
    return -1;
}

static void check_arguments(const arguments *a)
{
    const char *missing = a->model == NULL        ? "--model"
                          : a->init == NULL       ? "--init"
                          : a->data == NULL       ? "--data"
                          : a->lr < 0.0           ? "--lr"
                          : a->loss == NULL       ? "--loss"
                          : a->steps < 1          ? "--steps"
                          : a->batch < 1          ? "--batch"
                          : a->losses_out == NULL ? "--losses-out"
                          : a->out == NULL        ? "--out"
                                                  : NULL;

    if (missing != NULL)
        usage("missing option", missing);
    if (strcmp(a->loss, "mse") != 0 && strcmp(a->loss, "cross_entropy") != 0)
        usage("--loss is mse or cross_entropy, not", a->loss);
    if (optimizer_of(a->optim) < 0)
        usage("--optim is sgd, adam, adamw, rmsprop or adagrad, not", a->optim);
    if (a->momentum != 0.0 && strcmp(a->optim, "sgd") != 0 && strcmp(a->optim, "rmsprop") != 0)
        usage("--momentum is for sgd and rmsprop, not", a->optim);
    if (strcmp(a->type, "fp32") != 0 && strcmp(a->type, "fp64") != 0)
        usage("--dtype is fp32 or fp64, not", a->type);
}

static arguments parse(int argc, char **argv)
{
    arguments a = {
        .lr = -1.0, .weight_decay = -1.0, .clip_norm = -1.0, .optim = "sgd", .type = "fp32"};
    const struct {
        const char *name;
        const char **text;
        double *real;
        int64_t *whole;
    } options[] = {
        {"model", &a.model, NULL, NULL},
        {"init", &a.init, NULL, NULL},
        {"data", &a.data, NULL, NULL},
        {"optim", &a.optim, NULL, NULL},
        {"loss", &a.loss, NULL, NULL},
        {"dtype", &a.type, NULL, NULL},
        {"losses-out", &a.losses_out, NULL, NULL},
        {"out", &a.out, NULL, NULL},
        {"lr", NULL, &a.lr, NULL},
        {"momentum", NULL, &a.momentum, NULL},
        {"weight-decay", NULL, &a.weight_decay, NULL},
        {"clip-norm", NULL, &a.clip_norm, NULL},
        {"steps", NULL, NULL, &a.steps},
        {"batch", NULL, NULL, &a.batch},
    };
    const size_t n_options = sizeof(options) / sizeof(options[0]);

    options_begin(argv[0]);
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        size_t o = 0;

        if (strcmp(argv[i], "--help") == 0) {
            if (!others_met() || tri_rank() == 0)
                printf("%s", usage_text);
            tri_finalize();
            exit(0);
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("parity %d.%d.%d\n", TRI_VERSION_MAJOR, TRI_VERSION_MINOR, TRI_VERSION_PATCH);
            exit(0);
        }
        while (o < n_options && (value = option_value(options[o].name, argc, argv, &i)) == NULL)
            o++;
        if (value == NULL)
            usage("unknown argument", argv[i]);
        if (options[o].text != NULL)
            *options[o].text = value;
        else if (options[o].real != NULL)
            *options[o].real = number(options[o].name, value, false, 0);
        else
            *options[o].whole = (int64_t)number(options[o].name, value, true, 1);
    }
    check_arguments(&a);
    a.dtype = strcmp(a.type, "fp64") == 0 ? TRI_DTYPE_F64 : TRI_DTYPE_F32;
    return a;
}

/* --- the network ---------------------------------------------------------- */

static bool is_gpt(const char *model)
{
    return strncmp(model, "gpt:", 4) == 0;
}

static tri_module *create_model(const arguments *a)
{
    tri_safetensors *init;
    const tri_safetensors_entry *fc;
    tri_module *net;
    tri_load_options opt = {.convert = true,
                            .rename = is_gpt(a->model) ? tri_model_gpt2_rename : NULL};

    TRI_TRY(tri_safetensors_open(a->init, &init));
    fc = tri_safetensors_find(init, "fc.weight");
    net = tri_model_by_name(a->model, fc != NULL && fc->ndim > 0 ? fc->shape[0] : 1000);
    tri_safetensors_close(init);
    TRI_TRY(tri_module_status(net));
    TRI_TRY(tri_load(net, a->init, &opt));
    return net;
}

/* --- numbers of the files in the type that is computed in ----------------- */

static int64_t numel(const tri_safetensors_entry *e)
{
    int64_t n = 1;

    for (int d = 0; d < e->ndim; d++)
        n *= e->shape[d];
    return n;
}

/* A copy of the entry's data; floating-point numbers become `dtype`. Released with free. */
static void *converted(const tri_safetensors_entry *e, tri_dtype dtype)
{
    int64_t n = numel(e);
    void *copy = malloc(e->bytes * 2 + 8);
    const char *from = e->data; /* not necessarily aligned */

    if (copy == NULL) {
        fprintf(stderr, "parity: no memory for %s\n", e->name);
        exit(1);
    }
    if (e->dtype == dtype || (e->dtype != TRI_DTYPE_F32 && e->dtype != TRI_DTYPE_F64)) {
        memcpy(copy, from, e->bytes);
        return copy;
    }
    for (int64_t i = 0; i < n; i++) {
        if (dtype == TRI_DTYPE_F64) {
            float v;

            memcpy(&v, from + i * 4, sizeof(v));
            ((double *)copy)[i] = (double)v;
        } else {
            double v;

            memcpy(&v, from + i * 8, sizeof(v));
            ((float *)copy)[i] = (float)v;
        }
    }
    return copy;
}

static tri_dtype type_in(const tri_safetensors_entry *e, tri_dtype dtype)
{
    return e->dtype == TRI_DTYPE_F32 || e->dtype == TRI_DTYPE_F64 ? dtype : e->dtype;
}

/* --- batches -------------------------------------------------------------- */

typedef struct column {
    char *rows;
    size_t row_bytes;
    int64_t n_rows;
    tri_tensor *part; /* this worker's part of a batch */
} column;

static column column_open(const tri_safetensors *file, const char *name, tri_dtype dtype,
                          int64_t part_rows)
{
    const tri_safetensors_entry *e = tri_safetensors_find(file, name);
    int64_t shape[TRI_MAX_DIMS];
    column c;

    if (e == NULL || e->ndim < 1 || e->shape[0] < 1) {
        fprintf(stderr, "parity: the data has no tensor %s with rows\n", name);
        exit(1);
    }
    memcpy(shape, e->shape, sizeof(shape));
    shape[0] = part_rows;
    c.rows = converted(e, dtype);
    c.n_rows = e->shape[0];
    c.row_bytes = (size_t)(numel(e) / e->shape[0]) * tri_dtype_size(type_in(e, dtype));
    c.part = tri_tensor_create(shape, e->ndim, type_in(e, dtype));
    return c;
}

/* Rows first, first + 1, ... wrapping around. */
static void column_read(column *c, int64_t first, int64_t part_rows)
{
    char *buffer = malloc((size_t)part_rows * c->row_bytes + 1);

    if (buffer == NULL)
        exit(1);
    for (int64_t i = 0; i < part_rows; i++)
        memcpy(buffer + (size_t)i * c->row_bytes,
               c->rows + (size_t)((first + i) % c->n_rows) * c->row_bytes, c->row_bytes);
    TRI_TRY(tri_tensor_copy_in(c->part, buffer, (size_t)part_rows * c->row_bytes));
    free(buffer);
}

static void column_close(column *c)
{
    tri_tensor_unref(c->part);
    free(c->rows);
}

/* --- training ------------------------------------------------------------- */

/* One step; the loss of the whole batch. */
static double train_step(const arguments *a, tri_module *model, tri_optimizer *opt, column *x,
                         column *y, int64_t part_rows)
{
    double sums[2];
    tri_tensor *out = tri_forward(model, x->part), *target = y->part, *loss;

    if (is_gpt(a->model)) { /* each token is a row */
        out = tri_reshape(out, TRI_SHAPE(-1, tri_tensor_size(out, -1)));
        target = tri_flatten(target, 0);
    }
    loss = strcmp(a->loss, "mse") == 0 ? tri_mse_loss(out, target, NULL)
                                       : tri_cross_entropy(out, target, NULL);
    tri_backward_of(&loss, 1, &(tri_backward_options){.count = &part_rows});
    if (a->clip_norm >= 0.0)
        (void)tri_clip_grad_norm(opt, a->clip_norm);
    TRI_TRY(tri_optimizer_step(opt));
    sums[0] = tri_item(loss) * (double)part_rows;
    sums[1] = (double)part_rows;
    TRI_TRY(tri_step_end_status());
    TRI_TRY(tri_all_reduce(NULL, sums, sums, 2, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
    return sums[0] / sums[1];
}

/* All of a run. */
typedef struct job {
    arguments a;
    int64_t first, part; /* this worker's rows of each batch */
    tri_module *model;
    tri_optimizer *opt;
    column x, y;
    FILE *losses; /* worker 0 */
} job;

static tri_optimizer *create_optimizer(const arguments *a, tri_module *model)
{
    tri_opt decay = a->weight_decay < 0.0 ? TRI_DEFAULT : TRI_SET(a->weight_decay);

    switch (optimizer_of(a->optim)) {
    case 1:
        return tri_adam(model, a->lr, &(tri_adam_options){.weight_decay = decay});
    case 2:
        return tri_adamw(model, a->lr, &(tri_adam_options){.weight_decay = decay});
    case 3:
        return tri_rmsprop(
            model, a->lr,
            &(tri_rmsprop_options){.momentum = a->momentum, .weight_decay = decay.value});
    case 4:
        return tri_adagrad(model, a->lr, &(tri_adagrad_options){.weight_decay = decay.value});
    default:
        return tri_sgd(model, a->lr,
                       &(tri_sgd_options){.momentum = a->momentum, .weight_decay = decay.value});
    }
}

static void job_open(job *j)
{
    const arguments *a = &j->a;
    tri_safetensors *data;

    if (a->batch < tri_world_size())
        usage("--batch is smaller than the number of workers", NULL);
    j->first = a->batch * tri_rank() / tri_world_size();
    j->part = a->batch * (tri_rank() + 1) / tri_world_size() - j->first;
    if (tri_rank() == 0) {
        j->losses = fopen(a->losses_out, "w");
        if (j->losses == NULL) {
            perror(a->losses_out);
            exit(1);
        }
    }
    TRI_TRY(tri_safetensors_open(a->data, &data));
    tri_set_default_dtype(a->dtype);
    j->model = tri_ddp(create_model(a), NULL);
    j->opt = create_optimizer(a, j->model);
    j->x = column_open(data, "x", a->dtype, j->part);
    j->y = column_open(data, "y", a->dtype, j->part);
    tri_safetensors_close(data);
}

static void job_run(job *j)
{
    for (int64_t k = 0; k < j->a.steps; k++) {
        double loss;

        column_read(&j->x, k * j->a.batch + j->first, j->part);
        column_read(&j->y, k * j->a.batch + j->first, j->part);
        loss = train_step(&j->a, j->model, j->opt, &j->x, &j->y, j->part);
        if (j->losses != NULL)
            fprintf(j->losses, "{\"step\":%lld,\"loss\":%.17g}\n", (long long)k, loss);
    }
}

static void job_close(job *j)
{
    column_close(&j->x);
    column_close(&j->y);
    tri_optimizer_destroy(j->opt);
    tri_module_destroy(j->model);
}

int main(int argc, char **argv)
{
    job j = {.a = parse(argc, argv)};
    const arguments *a = &j.a;
    int failed = 0;

    TRI_TRY(tri_init(NULL));
    job_open(&j);
    job_run(&j);
    if (tri_rank() == 0) {
        failed = fclose(j.losses) != 0;
        if (failed)
            perror(a->losses_out);
        TRI_TRY(tri_save(j.model, a->out));
    }
    job_close(&j);
    tri_finalize();
    return failed;
}
