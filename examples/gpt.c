/*
 * gpt.c - train a small GPT to write like a text, character by character, with any number of
 * workers:
 *
 *     build/bin/trirun --standalone --nproc-per-node 2 build/bin/gpt
 *
 * Tokens are the distinct characters of the text. Every worker draws the same windows of it for
 * each batch and takes its share, so that the loss does not depend on how many workers there are.
 * With --zero N workers divide the optimizer's state (1), gradients, too (2), and parameters, too
 * (3), instead of each keeping all of them. With --tensor N each group of N workers has the same
 * part of the batch, and each of them its heads and its part of the layers.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "command_line.h"

static struct settings {
    int64_t steps, batch, layers, width, heads, context, warmup, letters, seed, zero, tensor;
    double lr, clip, dropout, temperature;
    const char *text;
} settings = {.steps = 300,
              .batch = 8,
              .layers = 4,
              .width = 128,
              .heads = 4,
              .context = 64,
              .warmup = 20,
              .letters = 300,
              .lr = 3e-3,
              .clip = 1.0,
              .temperature = 0.8,
              .tensor = 1,
              .text = "/usr/share/common-licenses/GPL-3"};

/* --- the text ------------------------------------------------------------- */

typedef struct text {
    unsigned char letter[256]; /* of a token */
    int64_t vocabulary;
    int64_t *tokens, n;
} text;

static text text_read(const char *path)
{
    static int64_t token[256];
    bool seen[256] = {false};
    text t = {.n = 0};
    FILE *file = fopen(path, "rb");
    int c;

    if (file == NULL)
        options_refuse("%s: cannot be read (choose another with --text)", path);
    while ((c = getc(file)) != EOF) {
        seen[c] = true;
        t.n++;
    }
    if (ferror(file)) /* fopen succeeds on a folder */
        options_refuse("%s: %s", path, strerror(errno));
    if (t.n <= settings.context)
        options_refuse("%s: is not longer than --context", path);
    for (int i = 0; i < 256; i++) {
        token[i] = t.vocabulary;
        if (seen[i])
            t.letter[t.vocabulary++] = (unsigned char)i;
    }
    t.tokens = malloc((size_t)t.n * sizeof(int64_t));
    if (t.tokens == NULL)
        options_refuse("%s: no memory", path);
    rewind(file);
    for (int64_t i = 0; i < t.n && (c = getc(file)) != EOF; i++)
        t.tokens[i] = token[c];
    (void)fclose(file);
    return t;
}

/* A pseudo-random word for each index (splitmix64). */
static uint64_t random_at(uint64_t index)
{
    uint64_t z = ((uint64_t)settings.seed << 40) + (index + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* --- training ------------------------------------------------------------- */

typedef struct run {
    text text;
    tri_mesh *mesh;          /* "data" x "tensor" */
    tri_module *net, *model; /* the network itself, and wrapped for data-parallel training */
    tri_optimizer *optimizer;
    tri_tensor *x, *y;   /* this worker's part of a batch, and the next tokens [part, context] */
    int64_t first, part; /* its rows of the batch */
    int64_t *x_rows;
} run;

/* Each row begins at a random place of the text. */
static void read_batch(run *r, int64_t step)
{
    size_t row_bytes = (size_t)settings.context * sizeof(int64_t);

    for (int shift = 0; shift < 2; shift++) {
        for (int64_t i = 0; i < r->part; i++) {
            uint64_t word = random_at((uint64_t)(step * settings.batch + r->first + i));
            uint64_t at = word % (uint64_t)(r->text.n - settings.context);

            memcpy(r->x_rows + i * settings.context, r->text.tokens + at + shift, row_bytes);
        }
        TRI_TRY(
            tri_tensor_copy_in(shift == 0 ? r->x : r->y, r->x_rows, (size_t)r->part * row_bytes));
    }
}

/* One step; the loss of the whole batch. */
static double train_step(run *r, int64_t step)
{
    tri_tensor *logits, *loss;
    double sum;

    read_batch(r, step);
    logits = tri_reshape(tri_forward(r->model, r->x), TRI_SHAPE(-1, r->text.vocabulary));
    loss = tri_cross_entropy(logits, tri_flatten(r->y, 0), NULL);
    tri_backward(loss);
    (void)tri_clip_grad_norm(r->optimizer, settings.clip);
    tri_optimizer_set_lr(r->optimizer,
                         tri_schedule_warmup_cosine(settings.lr, settings.lr / 10, settings.warmup,
                                                    settings.steps, step));
    TRI_TRY(tri_optimizer_step(r->optimizer));
    sum = tri_item(loss) * (double)r->part;
    TRI_TRY(tri_step_end_status());
    TRI_TRY(tri_all_reduce(tri_mesh_group(r->mesh, "data"), &sum, &sum, 1, TRI_DTYPE_F64,
                           TRI_REDOP_SUM, NULL));
    return sum / (double)settings.batch;
}

static void train(run *r)
{
    for (int64_t step = 0; step < settings.steps; step++) {
        double loss = train_step(r, step);

        if (tri_rank() == 0 && (step % 20 == 0 || step + 1 == settings.steps))
            printf("step %lld of %lld  loss %.4f\n", (long long)step + 1, (long long)settings.steps,
                   loss);
    }
}

/* --- writing -------------------------------------------------------------- */

/* A token drawn by its probability; the likeliest one at temperature 0. */
static int64_t draw(const float *logits, int64_t n, uint64_t index)
{
    double best = -HUGE_VAL, sum = 0, left;
    int64_t token = 0;

    for (int64_t i = 0; i < n; i++) {
        if ((double)logits[i] > best) {
            best = (double)logits[i];
            token = i;
        }
    }
    if (settings.temperature <= 0)
        return token;
    for (int64_t i = 0; i < n; i++)
        sum += exp(((double)logits[i] - best) / settings.temperature);
    left = sum * (double)(random_at(~index) >> 11) * 0x1p-53;
    for (int64_t i = 0; i < n; i++) {
        left -= exp(((double)logits[i] - best) / settings.temperature);
        if (left < 0)
            return i;
    }
    return token;
}

/* Generates from the text's first token. The window always has `context` tokens, so that one plan
 * serves; attention ignores what follows the last one. */
static void write_text(run *r)
{
    int64_t context = settings.context, vocabulary = r->text.vocabulary, at = 0;
    size_t bytes = (size_t)(context * vocabulary) * sizeof(float);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(1, context), TRI_DTYPE_I64);
    int64_t *window = calloc((size_t)context, sizeof(int64_t));
    float *logits = malloc(bytes);

    if (window == NULL || logits == NULL)
        options_refuse("--context: no memory");
    tri_module_train(r->net, false);
    window[0] = r->text.tokens[0];
    for (int64_t i = 0; i < settings.letters; i++) {
        int64_t next;

        TRI_TRY(tri_tensor_copy_in(x, window, (size_t)context * sizeof(int64_t)));
        TRI_NO_GRAD
        {
            TRI_TRY(tri_tensor_copy_out(tri_keep(tri_forward(r->net, x)), logits, bytes));
        }
        tri_step_end();
        next = draw(logits + at * vocabulary, vocabulary, (uint64_t)i);
        if (tri_rank() == 0)
            putchar(r->text.letter[next]);
        if (at + 1 == context)
            memmove(window, window + 1, (size_t)(context - 1) * sizeof(int64_t));
        else
            at++;
        window[at] = next;
    }
    if (tri_rank() == 0)
        putchar('\n');
    free(logits);
    free(window);
    tri_tensor_unref(x);
}

/* --- beginning and end ---------------------------------------------------- */

/* Heads, and what is between the two layers that follow, are divided among the workers of a tensor
 * group; the rest is the same on all. */
static void cut(tri_module *net, tri_group *group)
{
    int64_t head = settings.width / settings.heads;
    const tri_parallel_rule rules[] = {
        {.module = "h.*.attn.c_attn", .style = TRI_COLWISE, .parts = 3, .block = head},
        {.module = "h.*.attn.c_proj", .style = TRI_ROWWISE, .block = head},
        {.module = "h.*.mlp.c_fc", .style = TRI_COLWISE},
        {.module = "h.*.mlp.c_proj", .style = TRI_ROWWISE},
    };

    TRI_TRY(tri_parallelize(net, group, rules, 4));
}

/* Each block is gathered by itself in stage 3. */
static tri_module *wrap(tri_module *own_net, tri_mesh *mesh)
{
    const char *blocks[] = {"h.*"};

    if (settings.zero == 0)
        return tri_ddp(own_net, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    return tri_zero(
        own_net, &(tri_zero_options){.stage = (int)settings.zero, .units = blocks, .n_units = 1});
}

static void parse_options(int argc, char **argv)
{
    static const char usage[] =
        "usage: gpt [options]\n\nTrains a small GPT on a text and lets it write; with several "
        "workers:\n  trirun --standalone --nproc-per-node 2 gpt --steps 300\n\n"
        "On the default text the loss falls from 4.35 to below 3 in the first 21 steps and to\n"
        "about 2.3 in 300 (some 15 seconds of one core), with any number of workers.";
    const option options[] = {
        {.name = "--text", .text = &settings.text, .help = "(/usr/share/common-licenses/GPL-3)"},
        {.name = "--steps", .integer = &settings.steps, .min = 1, .help = "(300)"},
        {.name = "--batch-size",
         .integer = &settings.batch,
         .min = 1,
         .help = "windows of the text per step, all workers together (8)"},
        {.name = "--context", .integer = &settings.context, .min = 1, .help = "letters (64)"},
        {.name = "--layers", .integer = &settings.layers, .min = 1, .help = "(4)"},
        {.name = "--width", .integer = &settings.width, .min = 1, .help = "(128)"},
        {.name = "--heads", .integer = &settings.heads, .min = 1, .help = "(4)"},
        {.name = "--lr", .number = &settings.lr, .help = "highest learning rate (0.003)"},
        {.name = "--warmup", .integer = &settings.warmup, .help = "steps in which it rises (20)"},
        {.name = "--clip-norm", .number = &settings.clip, .help = "of all gradients (1)"},
        {.name = "--dropout", .number = &settings.dropout, .help = "(0)"},
        {.name = "--letters", .integer = &settings.letters, .help = "to write at the end (300)"},
        {.name = "--temperature",
         .number = &settings.temperature,
         .help = "0: always the likeliest letter (0.8)"},
        {.name = "--seed", .integer = &settings.seed, .help = "(0)"},
        {.name = "--zero",
         .integer = &settings.zero,
         .help = "1 to 3: workers divide what each has otherwise (0)"},
        {.name = "--tensor",
         .integer = &settings.tensor,
         .min = 1,
         .help = "so many workers divide the layers; at most --heads (1)"},
    };

    options_parse(argc, argv, usage, options);
    if (settings.width % settings.heads != 0)
        options_refuse("--width: must be a multiple of --heads");
    if (settings.tensor > settings.heads)
        options_refuse("--tensor: is more than --heads");
    if (settings.tensor > 1 && settings.zero > 0)
        options_refuse("--tensor: does not go together with --zero");
}

/* This worker's share of a batch. */
static void take_part(run *r)
{
    int workers, index;

    if (tri_world_size() % settings.tensor != 0)
        options_refuse("--tensor: does not divide the number of workers");
    TRI_TRY(tri_mesh_create(NULL, TRI_SHAPE(tri_world_size() / settings.tensor, settings.tensor),
                            (const char *[]){"data", "tensor"}, &r->mesh));
    workers = tri_mesh_size(r->mesh, "data");
    index = tri_mesh_coordinate(r->mesh, "data");
    if (settings.batch < workers)
        options_refuse("--batch-size: is smaller than the number of workers");
    r->first = settings.batch * index / workers;
    r->part = settings.batch * (index + 1) / workers - r->first;
}

int main(int argc, char **argv)
{
    run r = {.first = 0};

    parse_options(argc, argv);
    TRI_TRY(tri_init(NULL));
    take_part(&r);
    r.text = text_read(settings.text);

    tri_manual_seed((uint64_t)settings.seed);
    r.net = tri_model_gpt2(&(tri_model_gpt2_options){.layers = settings.layers,
                                                     .width = settings.width,
                                                     .heads = settings.heads,
                                                     .context = settings.context,
                                                     .vocabulary = r.text.vocabulary,
                                                     .dropout = settings.dropout});
    cut(r.net, tri_mesh_group(r.mesh, "tensor"));
    r.model = wrap(r.net, r.mesh);
    r.optimizer =
        tri_adamw(r.model, settings.lr, &(tri_adam_options){.weight_decay = TRI_SET(0.1)});
    r.x = tri_tensor_create(TRI_SHAPE(r.part, settings.context), TRI_DTYPE_I64);
    r.y = tri_tensor_create(TRI_SHAPE(r.part, settings.context), TRI_DTYPE_I64);
    r.x_rows = malloc((size_t)(r.part * settings.context) * sizeof(int64_t));
    if (r.x_rows == NULL)
        options_refuse("--batch-size: no memory");

    train(&r);
    if (tri_rank() == 0 && settings.zero > 0)
        tri_memory_print(r.model, r.optimizer, NULL, stdout);
    TRI_TRY(tri_unshard_begin(r.model)); /* on all ranks, for one that reads all parameters */
    if (tri_mesh_coordinate(r.mesh, "data") == 0) /* rank 0, and who has its other parts */
        write_text(&r);
    TRI_TRY(tri_unshard_end(r.model));

    free(r.x_rows);
    free(r.text.tokens);
    tri_tensor_unref(r.x);
    tri_tensor_unref(r.y);
    tri_optimizer_destroy(r.optimizer);
    tri_module_destroy(r.model);
    tri_mesh_destroy(r.mesh);
    tri_finalize();
    return 0;
}
