/*
 * classy_data.h - the data sets and transforms that a file of Classy Vision names.
 */
#ifndef EXAMPLES_CLASSY_DATA_H
#define EXAMPLES_CLASSY_DATA_H

#include <math.h>

#include <trireme/trireme.h>

#include "fashion_mnist.h"
#include "json_config.h"

/* RandomImageBinaryClassDataset: noise in the last channel and in that of the class. */
typedef struct noise {
    tri_dataset base;
    int64_t size, seed;
    double class_ratio;
} noise;

static inline uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static inline tri_status noise_read(tri_dataset *self, const tri_request *request,
                                    void *const *slots)
{
    const noise *d = (const noise *)self;
    size_t pixels = (size_t)(d->size * d->size);

    for (int64_t i = 0; i < request->n; i++) {
        uint64_t state = (uint64_t)(d->seed + request->indices[i]) * 2654435761u + 1;
        uint8_t *image = (uint8_t *)slots[0] + (size_t)i * 3 * pixels;
        int64_t *target = (int64_t *)slots[1] + i;

        memset(image, 0, 3 * pixels);
        *target = (double)(draw(&state) >> 8) < d->class_ratio * (double)(1 << 24);
        for (size_t p = 0; p < pixels; p++) {
            image[(size_t)*target * pixels + p] = (uint8_t)(draw(&state) >> 24);
            image[2 * pixels + p] = (uint8_t)(draw(&state) >> 24);
        }
    }
    return TRI_OK;
}

static inline void noise_destroy(tri_dataset *self)
{
    free(self);
}

static inline tri_dataset *noise_create(const config *c)
{
    static const tri_dataset_class type = {
        .name = "my_dataset", .read = noise_read, .destroy = noise_destroy};
    noise *d = calloc(1, sizeof(*d));

    if (d == NULL)
        exit(1);
    d->size = config_integer(c, "crop_size", 224, 1);
    d->seed = config_integer(c, "seed", 0, 0);
    d->class_ratio = config_number(c, "class_ratio", 0.5, 0, 1);
    d->base = (tri_dataset){
        .cls = &type,
        .length = config_integer(c, "num_samples", NAN, 1),
        .n_fields = 2,
        .fields = {{.dtype = TRI_DTYPE_U8, .ndim = 3, .shape = {3, d->size, d->size}},
                   {.dtype = TRI_DTYPE_I64}},
    };
    return &d->base;
}

static inline size_t numbers_of(const config *c, const char *key, double numbers[3])
{
    size_t n = config_numbers(c, key, 1, 3);

    for (size_t i = 0; i < n; i++)
        numbers[i] = json_number_value(json_array_get(json_object_get(c->object, key), i));
    return n;
}

/* The transforms of a list, and of the lists in it, at looks[n] and after. Returns how many. */
static inline int transforms_read(const config *of, tri_transform looks[16], int n)
{
    int length = (int)json_array_size(config_list(of, "transforms", 0, 16));

    for (int i = 0; i < length; i++) {
        config c = config_child(of, "transforms", i);
        const char *name = CONFIG_NAME(&c, "generic_image_transform", "apply_transform_to_key",
                                       "tuple_to_map", "RandomResizedCrop", "RandomHorizontalFlip",
                                       "Resize", "CenterCrop", "ToTensor", "Normalize");
        double mean[3], std[3];
        int64_t size;

        CONFIG_KEYS(&c, "name", "transforms", "key", "list_of_map_keys", "size", "p", "mean",
                    "std");
        if (json_object_get(c.object, "transforms") != NULL)
            n = transforms_read(&c, looks, n);
        if (strchr("gat", name[0]) != NULL)
            continue; /* only says which part of a sample is meant: the image */
        if (n == 16)
            config_mistake(&c, "", "is the 17th transform: 16 are the most");
        size = strstr(name, "Crop") != NULL || strcmp(name, "Resize") == 0
                   ? config_integer(&c, "size", NAN, 1)
                   : 0;
        if (strcmp(name, "RandomResizedCrop") == 0)
            looks[n++] = tri_transform_random_resized_crop(size, size, NULL);
        else if (strcmp(name, "RandomHorizontalFlip") == 0)
            looks[n++] = tri_transform_random_horizontal_flip(config_number(&c, "p", 0.5, 0, 1));
        else if (strcmp(name, "Resize") == 0)
            looks[n++] = tri_transform_resize(size);
        else if (strcmp(name, "CenterCrop") == 0)
            looks[n++] = tri_transform_center_crop(size, size);
        else if (strcmp(name, "ToTensor") == 0)
            looks[n++] = tri_transform_to_float();
        else if (numbers_of(&c, "mean", mean) == numbers_of(&c, "std", std))
            looks[n++] = tri_transform_normalize(mean, std, (int)numbers_of(&c, "mean", mean));
        else
            config_mistake(&c, "std", "must have as many numbers as mean");
    }
    return n;
}

/* dataset.train or dataset.test; batch_out: samples of one worker's batch. */
static inline tri_dataset *dataset_read(const config *root, const char *part, int64_t *batch_out,
                                        bool *shuffle_out)
{
    config sets = config_child(root, "dataset", -1), c = config_child(&sets, part, -1);
    const char *name =
        CONFIG_NAME(&c, "my_dataset", "fashion_mnist", "image_path", "classy_imagenet");
    bool train = strcmp(config_text(&c, "split", part), "train") == 0;
    tri_transform looks[16];
    tri_dataset *dataset;
    char path[4096];
    int64_t most;

    CONFIG_KEYS(&sets, "train", "test");
    CONFIG_KEYS(&c, "name", "split", "root", "batchsize_per_replica", "use_shuffle", "num_samples",
                "transforms", "crop_size", "class_ratio", "seed");
    *batch_out = config_integer(&c, "batchsize_per_replica", NAN, 1);
    *shuffle_out = config_flag(&c, "use_shuffle", train);
    if (strcmp(name, "my_dataset") == 0) {
        dataset = noise_create(&c);
    } else if (strcmp(name, "fashion_mnist") == 0) {
        TRI_TRY(
            fashion_mnist(json_string_value(json_object_get(c.object, "root")), train, &dataset));
    } else {
        snprintf(path, sizeof(path), "%s/%s", config_text(&c, "root", NULL),
                 train ? "train" : "val");
        TRI_TRY(tri_dataset_image_folder(path, NULL, &dataset));
    }
    most = config_integer(&c, "num_samples", (double)tri_dataset_length(dataset), 1);
    if (most < tri_dataset_length(dataset))
        TRI_TRY(tri_dataset_subset(dataset, 0, most, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, looks, transforms_read(&c, looks, 0), &dataset));
    return dataset;
}

#endif
