/*
 * images.c - how fast pictures are loaded for training. Run by bench/images.sh.
 *
 *     bench_images make DIR N           writes N photographs, as far as noise can be one: JPEG
 *                                       files of 500 x 375 pixels and 36 to 65 KB, into the folders
 *                                       DIR/a and DIR/b, which must exist
 *     bench_images train DIR THREADS    images a second: a random part, resized to 224 x 224,
 *                                       mirrored, normalised
 *     bench_images val DIR THREADS      images a second: resized to 256, the middle 224 x 224
 *
 * THREADS: of the loader; 0: the caller's alone. BENCH_CPU=1 counts processor time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "timing.h"

#define HEIGHT 375
#define WIDTH 500
#define VALUES (HEIGHT * WIDTH * 3)
#define BATCH 32
#define SECONDS 3.0

/* --- photographs ---------------------------------------------------------- */

static uint8_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint8_t)(*state >> 56);
}

/* Noise of every size, the more the larger: what a photograph looks like to an encoder. */
static void paint(uint64_t seed, uint8_t *pixels)
{
    static float sums[VALUES];
    static uint8_t coarse[256 * 256 * 3];
    tri_image large = {0};
    uint64_t state = seed * 2654435761u + 1;
    double share = 0.75;

    memset(sums, 0, sizeof(sums));
    for (int side = 2; side <= 256; side *= 2, share *= 0.80) {
        const tri_image small = {.pixels = coarse, .height = side, .width = side, .channels = 3};

        for (int i = 0; i < side * side * 3; i++) /* the channels differ less than the places */
            coarse[i] =
                (uint8_t)(i % 3 == 0 ? draw(&state) : (3 * coarse[i - i % 3] + draw(&state)) / 4);
        TRI_TRY(tri_image_resize(&small, NULL, HEIGHT, WIDTH, &large));
        for (int i = 0; i < VALUES; i++)
            sums[i] += (float)share * ((float)large.pixels[i] - 127.5f);
    }
    tri_image_clear(&large);
    for (int i = 0; i < VALUES; i++) {
        float value = 128 + sums[i] + (float)draw(&state) / 32;

        pixels[i] = (uint8_t)fmaxf(0, fminf(255, value));
    }
}

static void make(const char *dir, int n)
{
    static uint8_t pixels[VALUES];
    const tri_image photo = {.pixels = pixels, .height = HEIGHT, .width = WIDTH, .channels = 3};

    for (int i = 0; i < n; i++) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s/%d.jpg", dir, i % 2 == 0 ? "a" : "b", i);
        paint((uint64_t)i, pixels);
        TRI_TRY(tri_image_write_jpeg(&photo, 80 + i % 3 * 5, path));
    }
}

/* --- loading -------------------------------------------------------------- */

static double load(const char *dir, bool train, int n_threads)
{
    const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    const tri_transform random[] = {tri_transform_random_resized_crop(224, 224, NULL),
                                    tri_transform_random_horizontal_flip(0.5),
                                    tri_transform_to_float(),
                                    tri_transform_normalize(mean, std, 3)};
    const tri_transform middle[] = {tri_transform_resize(256), tri_transform_center_crop(224, 224),
                                    tri_transform_to_float(),
                                    tri_transform_normalize(mean, std, 3)};
    const tri_loader_options options = {.n_threads = n_threads};
    tri_dataset *set;
    tri_sampler *order;
    tri_loader *loader;
    tri_batch batch;
    tri_status status = TRI_OK;
    int64_t images = 0;
    double began = 0, seconds;

    TRI_TRY(tri_dataset_image_folder(dir, NULL, &set));
    TRI_TRY(tri_dataset_transform(set, train ? random : middle, 4, &set));
    TRI_TRY(tri_sampler_random(tri_dataset_length(set), NULL, &order));
    TRI_TRY(tri_loader_create(set, order, BATCH, &options, &loader));
    for (int64_t epoch = 0; epoch < 2 || (cost_us() - began) / 1e6 < SECONDS; epoch++) {
        if (epoch == 1) { /* the first one is for warming up */
            began = cost_us();
            images = 0;
        }
        TRI_TRY(tri_loader_begin(loader, epoch, 0));
        while ((status = tri_loader_next(loader, &batch)) == TRI_OK)
            images += batch.size;
        TRI_TRY(status);
    }
    seconds = (cost_us() - began) / 1e6;
    tri_loader_destroy(loader);
    tri_sampler_destroy(order);
    tri_dataset_destroy(set);
    return (double)images / seconds;
}

int main(int argc, char **argv)
{
    int number = argc == 4 ? (int)strtol(argv[3], NULL, 10) : -1;

    if (number < 0 || (strcmp(argv[1], "make") != 0 && strcmp(argv[1], "train") != 0 &&
                       strcmp(argv[1], "val") != 0)) {
        fprintf(stderr, "usage: bench_images make DIR N | train DIR THREADS | val DIR THREADS\n");
        return 2;
    }
    if (strcmp(argv[1], "make") == 0)
        make(argv[2], number);
    else
        printf("%.1f\n", load(argv[2], strcmp(argv[1], "train") == 0, number));
    return 0;
}
