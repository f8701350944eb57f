/*
 * data_tutorial.c - PyTorch's tutorial "Datasets & DataLoaders", and the samplers of
 * torch.utils.data, with threads that prepare batches ahead (num_workers).
 *
 *     python data_tutorial.py            becomes
 *     build/bin/data_tutorial [FOLDER]
 *
 * FOLDER holds Fashion-MNIST's four files, or MNIST's.
 */
#include <string.h>

#include <trireme/trireme.h>

#include "../command_line.h"
#include "../fashion_mnist.h"

static const char *const labels_map[10] = {"T-Shirt", "Trouser", "Pullover", "Dress", "Coat",
                                           "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle Boot"};

enum { SIDE = 28 };

/* plt.imshow(img, cmap="gray"), on a terminal: two characters a pixel. */
static void show_image(const float *img)
{
    static const char shades[] = " .:-=+*#%@";

    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            int shade = (int)(img[row * SIDE + column] * 9.99f);

            putchar(shades[shade]);
            putchar(shades[shade]);
        }
        putchar('\n');
    }
}

/* --- creating a custom dataset for your files ----------------------------- */

/* Images in files of their own, and a list of lines "FILE, LABEL". */
typedef struct custom_image_dataset {
    tri_dataset base;
    char img_dir[200];
    struct {
        char file[24];
        int64_t label;
    } img_labels[64];
} custom_image_dataset;

/* __getitem__, for as many samples as a batch wants of one thread; threads call it at once. */
static tri_status custom_image_read(tri_dataset *self, const tri_request *request,
                                    void *const *slots)
{
    const custom_image_dataset *d = (const custom_image_dataset *)self;
    uint8_t *images = slots[0];
    int64_t *labels = slots[1];

    for (int64_t i = 0; i < request->n; i++) {
        const int64_t index = request->indices[i];
        char path[256];
        FILE *file;
        bool is_read;

        snprintf(path, sizeof(path), "%s/%s", d->img_dir, d->img_labels[index].file);
        file = fopen(path, "rb");
        is_read = file != NULL && fscanf(file, "P5 28 28 255") == 0 && fgetc(file) == '\n' &&
                  fread(images + i * SIDE * SIDE, SIDE * SIDE, 1, file) == 1;
        if (file != NULL)
            fclose(file);
        if (!is_read)
            return tri_status_fail(TRI_ERR_IO, "%s is not an image of 28x28 grey pixels", path);
        labels[i] = d->img_labels[index].label;
    }
    return TRI_OK;
}

static const tri_dataset_class custom_image_class = {.name = "custom images",
                                                     .read = custom_image_read};

static void custom_image_open(custom_image_dataset *d, const char *annotations, const char *img_dir)
{
    FILE *file = fopen(annotations, "r");
    long long label;

    *d = (custom_image_dataset){
        .base = {.cls = &custom_image_class,
                 .n_fields = 2,
                 .fields = {{TRI_DTYPE_U8, 3, {1, SIDE, SIDE}}, {TRI_DTYPE_I64, 0, {0}}}}};
    snprintf(d->img_dir, sizeof(d->img_dir), "%s", img_dir);
    while (file != NULL && d->base.length < 64 &&
           fscanf(file, " %23[^,], %lld", d->img_labels[d->base.length].file, &label) == 2)
        d->img_labels[d->base.length++].label = label;
    if (file != NULL)
        fclose(file);
}

/* Writes the first n images of a data set as such files, or takes them away again. */
static void write_files(tri_dataset *of, int64_t n, const char *img_dir, bool remove_them)
{
    char path[300], list[300];
    FILE *annotations;

    snprintf(list, sizeof(list), "%s/labels.csv", img_dir);
    annotations = fopen(list, "w");
    for (int64_t i = 0; i < n && annotations != NULL; i++) {
        uint8_t image[SIDE * SIDE];
        int64_t label;
        void *slots[2] = {image, &label};
        FILE *file;

        snprintf(path, sizeof(path), "%s/image%lld.pgm", img_dir, (long long)i);
        if (remove_them) {
            remove(path);
            continue;
        }
        TRI_TRY(tri_dataset_read(of, &(tri_request){.indices = &i, .n = 1}, slots));
        fprintf(annotations, "image%lld.pgm, %lld\n", (long long)i, (long long)label);
        file = fopen(path, "wb");
        if (file == NULL)
            break;
        fprintf(file, "P5 28 28 255\n");
        fwrite(image, sizeof(image), 1, file);
        fclose(file);
    }
    if (annotations != NULL)
        fclose(annotations);
    if (remove_them) {
        remove(list);
        remove(img_dir);
    }
}

static void read_own_files(tri_dataset *training_data)
{
    const char *tmp = getenv("TMPDIR");
    custom_image_dataset own;
    char prefix[128], img_dir[160], annotations[192];
    tri_loader *loader;
    tri_batch batch;
    int64_t number;

    snprintf(prefix, sizeof(prefix), "%s/data-tutorial-", tmp != NULL ? tmp : "/tmp");
    TRI_TRY(tri_run_folder_create(prefix, &number)); /* one that no other run has */
    snprintf(img_dir, sizeof(img_dir), "%s%lld", prefix, (long long)number);
    snprintf(annotations, sizeof(annotations), "%s/labels.csv", img_dir);
    write_files(training_data, 5, img_dir, false);

    custom_image_open(&own, annotations, img_dir);
    TRI_TRY(tri_loader_create(&own.base, NULL, 8, &(tri_loader_options){.n_threads = 1}, &loader));
    TRI_TRY(tri_loader_begin(loader, 0, 0));
    TRI_TRY(tri_loader_next(loader, &batch));
    printf("%lld files:", (long long)batch.size);
    for (int64_t i = 0; i < batch.size; i++)
        printf(" %s", labels_map[((const int64_t *)tri_data(batch.fields[1]))[i]]);
    printf("\n");
    tri_loader_destroy(loader);
    write_files(training_data, 5, img_dir, true);
}

/* --- preparing your data for training with DataLoaders -------------------- */

static void print_shape(const char *what, const tri_tensor *tensor)
{
    printf("%s: [", what);
    for (int d = 0; d < tri_tensor_ndim(tensor); d++)
        printf("%s%lld", d > 0 ? ", " : "", (long long)tri_tensor_size(tensor, d));
    printf("]\n");
}

/* DataLoader(training_data, batch_size=64, shuffle=True, num_workers=n_workers) */
static void create_dataloader(tri_dataset *training_data, int n_workers, tri_sampler **sampler_out,
                              tri_loader **loader_out)
{
    const tri_loader_options options = {.n_threads = n_workers};

    TRI_TRY(tri_sampler_random(tri_dataset_length(training_data), NULL, sampler_out));
    TRI_TRY(tri_loader_create(training_data, *sampler_out, 64, &options, loader_out));
    TRI_TRY(tri_loader_begin(*loader_out, 0, 0));
}

static void iterate(tri_dataset *training_data)
{
    tri_sampler *samplers[2];
    tri_loader *loaders[2]; /* without workers, and with two */
    tri_batch batch, other;
    tri_status status;
    int64_t n_equal = 0;

    for (int i = 0; i < 2; i++)
        create_dataloader(training_data, 2 * i, &samplers[i], &loaders[i]);
    TRI_TRY(tri_loader_next(loaders[0], &batch)); /* next(iter(train_dataloader)) */
    print_shape("Feature batch shape", batch.fields[0]);
    print_shape("Labels batch shape", batch.fields[1]);
    show_image(tri_data(batch.fields[0])); /* the first one */
    printf("Label: %lld\n", (long long)*(const int64_t *)tri_data(batch.fields[1]));

    TRI_TRY(tri_loader_begin(loaders[0], 0, 0)); /* again */
    while ((status = tri_loader_next(loaders[0], &batch)) == TRI_OK) {
        TRI_TRY(tri_loader_next(loaders[1], &other));
        n_equal += memcmp(tri_data(batch.fields[0]), tri_data(other.fields[0]),
                          (size_t)tri_tensor_numel(batch.fields[0]) * sizeof(float)) == 0;
    }
    TRI_TRY(status); /* TRI_END is no failure */
    printf("num_workers=2 gives the same %lld of %lld batches\n", (long long)n_equal,
           (long long)tri_loader_length(loaders[0]));
    for (int i = 0; i < 2; i++) {
        tri_loader_destroy(loaders[i]);
        tri_sampler_destroy(samplers[i]);
    }
}

/* --- samplers ------------------------------------------------------------- */

static void print_indices(const char *what, tri_sampler *own_sampler, int64_t n_epochs)
{
    for (int64_t epoch = 0; epoch < n_epochs; epoch++) {
        TRI_TRY(tri_sampler_set_epoch(own_sampler, epoch)); /* a loader does it by itself */
        printf("%s, epoch %lld: [", what, (long long)epoch);
        for (int64_t i = 0; i < tri_sampler_length(own_sampler); i++)
            printf("%s%lld", i > 0 ? ", " : "", (long long)tri_sampler_indices(own_sampler)[i]);
        printf("]\n");
    }
    tri_sampler_destroy(own_sampler);
}

/* The numbers are PyTorch's for a generator that is seeded by seed + epoch. */
static void samplers(void)
{
    const double weights[6] = {0.1, 0.9, 0.4, 0.7, 3.0, 0.6};
    tri_sampler_distributed_options share = {.n_replicas = 2};
    tri_sampler *sampler;
    char what[64];

    TRI_TRY(tri_sampler_sequential(5, &sampler));
    print_indices("SequentialSampler", sampler, 1);
    TRI_TRY(tri_sampler_random(5, NULL, &sampler));
    print_indices("RandomSampler", sampler, 2);
    TRI_TRY(tri_sampler_weighted(weights, 6, NULL, &sampler));
    print_indices("WeightedRandomSampler", sampler, 2);
    for (share.rank = 0; share.rank < 2; share.rank++) { /* below a launcher both are known */
        TRI_TRY(tri_sampler_distributed(11, &share, &sampler));
        snprintf(what, sizeof(what), "DistributedSampler, rank %d", share.rank);
        print_indices(what, sampler, 2);
    }
}

static const char *parse(int argc, char **argv)
{
    const char *folder = NULL;
    const option options[] = {
        {"FOLDER", .help = "with MNIST's four files (Fashion-MNIST)", .text = &folder}};

    options_parse(argc, argv, "usage: data_tutorial [FOLDER]", options);
    return folder;
}

int main(int argc, char **argv)
{
    const char *folder = parse(argc, argv);
    const tri_transform to_tensor = tri_transform_to_float();
    tri_dataset *training_data;

    TRI_TRY(fashion_mnist(folder, true, &training_data));
    TRI_TRY(tri_dataset_subset(training_data, 0, 1000, &training_data)); /* enough for a look */
    read_own_files(training_data);
    TRI_TRY(tri_dataset_transform(training_data, &to_tensor, 1, &training_data));
    iterate(training_data);
    samplers();
    tri_dataset_destroy(training_data);
    return 0;
}
