/*
 * make_tiny_imagenet.c - a data set of tiny-imagenet-200's layout from Fashion-MNIST: pictures in
 * JPEG files, without a download. Files only: scripts/make_tiny_imagenet makes the folders.
 *
 *     scripts/make_tiny_imagenet --classes 10 --train 100 --val 20 --out tiny
 *
 *     wnids.txt, words.txt                  the classes, in no order; their names, and others'
 *     train/n00000003/images/n00000003_0.JPEG ..., and n00000003_boxes.txt beside images/
 *     val/images/val_0.JPEG ...             val/val_annotations.txt says which class each is
 *     test/images/test_0.JPEG ...           without classes
 *
 * or, by --layout folders, as ImageNet: train/CLASS/CLASS_0.JPEG, val/CLASS/val_0.JPEG. A class has
 * a colour, which varies; a few pictures are grey, as in the original. The same arguments give the
 * same files.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/data.h>
#include <trireme/function.h>
#include <trireme/image.h>

#include "command_line.h"
#include "fashion_mnist.h"

#define CLASSES 10
#define SIDE 28 /* of Fashion-MNIST's pictures */
#define PATH_BYTES 4096
#define GREY_EVERY 16
#define QUALITY 90

static const struct {
    const char *name;
    uint8_t colour[3];
} kinds[CLASSES] = {
    {"T-shirt, top", {230, 60, 60}}, {"trouser", {60, 90, 230}},   {"pullover", {70, 190, 80}},
    {"dress", {220, 80, 200}},       {"coat", {140, 110, 70}},     {"sandal", {240, 200, 60}},
    {"shirt", {90, 210, 220}},       {"sneaker", {240, 240, 240}}, {"bag", {250, 140, 40}},
    {"ankle boot", {130, 130, 170}},
};

static struct settings {
    int64_t classes, train, val, test, size, seed;
    const char *data, *out, *layout;
    bool folders; /* print which folders there must be, and do nothing */
} settings = {
    .classes = CLASSES, .train = 500, .val = 50, .test = 50, .size = 64, .layout = "tiny"};

static bool is_tiny(void)
{
    return strcmp(settings.layout, "tiny") == 0;
}

/* --- text files ----------------------------------------------------------- */

static FILE *begin_text(const char *format, ...) TRI_PRINTF(1, 2);
static FILE *begin_text(const char *format, ...)
{
    char path[PATH_BYTES], name[256];
    va_list values;
    FILE *file;

    va_start(values, format);
    vsnprintf(name, sizeof(name), format, values);
    va_end(values);
    snprintf(path, sizeof(path), "%s/%s", settings.out, name);
    file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

static void end_text(FILE *file)
{
    bool lost = file != NULL && ferror(file) != 0;

    if (file == NULL || (fclose(file) == 0 && !lost))
        return;
    perror(settings.out);
    exit(1);
}

/* The original's are of all nouns, and no order is that of the folders. */
static void write_classes(void)
{
    FILE *words, *names = begin_text("wnids.txt");

    for (int64_t i = 0; i < CLASSES; i++) {
        if ((7 * i + 7) % CLASSES < settings.classes)
            fprintf(names, "n%08d\n", (int)((7 * i + 7) % CLASSES));
    }
    end_text(names);
    words = begin_text("words.txt");
    for (int i = 0; i < CLASSES; i++)
        fprintf(words, "n%08d\t%s\n", i, kinds[i].name);
    fprintf(words, "n%08d\tentity\nn%08d\tthing\n", 1740, 1930);
    end_text(words);
}

/* --- pictures ------------------------------------------------------------- */

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The part of the picture that is not empty: left, top, right, bottom, in pixels of `size`. */
static void find_box(const uint8_t *grey, int64_t size, int64_t box[4])
{
    int64_t edges[4] = {SIDE, SIDE, 0, 0};

    for (int i = 0; i < SIDE * SIDE; i++) {
        const int at[2] = {i % SIDE, i / SIDE};

        for (int k = 0; k < 2 && grey[i] > 32; k++) {
            edges[k] = at[k] < edges[k] ? at[k] : edges[k];
            edges[k + 2] = at[k] > edges[k + 2] ? at[k] : edges[k + 2];
        }
    }
    for (int k = 0; k < 4; k++)
        box[k] = edges[k] * (size - 1) / (SIDE - 1);
}

/* From dark to the colour of its class, both a little off. */
static void paint(const tri_image *grey, int64_t label, uint64_t *random, uint8_t *pixels)
{
    int from[3], to[3];

    for (int c = 0; c < 3; c++) {
        from[c] = (int)(draw(random) % 60);
        to[c] = kinds[label].colour[c] - 20 + (int)(draw(random) % 36);
        to[c] = to[c] > 255 ? 255 : to[c];
    }
    for (int64_t i = 0; i < grey->height * grey->width; i++) {
        for (int c = 0; c < 3; c++)
            pixels[3 * i + c] =
                (uint8_t)((grey->pixels[i] * to[c] + (255 - grey->pixels[i]) * from[c]) / 255);
    }
}

static void write_picture(const uint8_t *grey, int64_t label, uint64_t random, const char *name)
{
    const tri_image small = {
        .pixels = (uint8_t *)(uintptr_t)grey, .height = SIDE, .width = SIDE, .channels = 1};
    static tri_image large;
    static uint8_t *pixels;
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", settings.out, name);
    TRI_TRY(tri_image_resize(&small, NULL, settings.size, settings.size, &large));
    if (draw(&random) % GREY_EVERY == 0) {
        TRI_TRY(tri_image_write_jpeg(&large, QUALITY, path));
        return;
    }
    if (pixels == NULL)
        pixels = malloc((size_t)(settings.size * settings.size) * 3);
    if (pixels == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    paint(&large, label, &random, pixels);
    TRI_TRY(tri_image_write_jpeg(
        &(tri_image){
            .pixels = pixels, .height = settings.size, .width = settings.size, .channels = 3},
        QUALITY, path));
}

/* --- the three parts ------------------------------------------------------ */

typedef struct part {
    const char *name;
    int64_t wanted; /* pictures of each class, */
    int64_t skip;   /* after so many that another part has */
} part;

/* Where a picture lies, and its name alone. */
static const char *name_picture(const part *p, int64_t label, int64_t number, char path[PATH_BYTES])
{
    char folder[64];

    if (!is_tiny())
        snprintf(folder, sizeof(folder), "%s/n%08d", p->name, (int)label);
    else if (strcmp(p->name, "train") == 0)
        snprintf(folder, sizeof(folder), "train/n%08d/images", (int)label);
    else
        snprintf(folder, sizeof(folder), "%s/images", p->name);
    if (strcmp(p->name, "train") == 0)
        snprintf(path, PATH_BYTES, "%s/n%08d_%d.JPEG", folder, (int)label, (int)number);
    else
        snprintf(path, PATH_BYTES, "%s/%s_%d.JPEG", folder, p->name, (int)number);
    return strrchr(path, '/') + 1;
}

static void write_box(FILE *list, const uint8_t *grey)
{
    int64_t box[4];

    find_box(grey, settings.size, box);
    fprintf(list, "\t%d\t%d\t%d\t%d\n", (int)box[0], (int)box[1], (int)box[2], (int)box[3]);
}

/* The samples of this part in their order, with the next number of their class and of all. */
static void write_part(const part *p, tri_dataset *set, const int64_t *order)
{
    const bool train = strcmp(p->name, "train") == 0, val = strcmp(p->name, "val") == 0;
    FILE *lists[CLASSES] = {NULL}; /* of each class; that of val is the first */
    int64_t seen[CLASSES] = {0}, written = 0;

    for (int64_t k = 0; k < settings.classes && is_tiny() && train; k++)
        lists[k] = begin_text("train/n%08d/n%08d_boxes.txt", (int)k, (int)k);
    if (is_tiny() && val)
        lists[0] = begin_text("val/val_annotations.txt");
    for (int64_t i = 0; i < tri_dataset_length(set); i++) {
        uint8_t grey[SIDE * SIDE];
        int64_t label, number;
        char path[PATH_BYTES];
        const char *name;

        TRI_TRY(tri_dataset_read(set, &(tri_request){.indices = &order[i], .n = 1},
                                 (void *[]){grey, &label}));
        if (label < 0 || label >= settings.classes)
            continue;
        number = seen[label]++ - p->skip;
        if (number < 0 || number >= p->wanted)
            continue;
        name = name_picture(p, label, train ? number : written, path);
        write_picture(grey, label, ((uint64_t)settings.seed << 32) + (uint64_t)order[i], path);
        written++;
        if (is_tiny() && train)
            fputs(name, lists[label]);
        if (is_tiny() && val)
            fprintf(lists[0], "%s\tn%08d", name, (int)label);
        if (is_tiny() && (train || val))
            write_box(lists[train ? label : 0], grey);
    }
    for (int64_t k = 0; k < CLASSES; k++)
        end_text(lists[k]);
}

static void print_folders(const part *parts)
{
    FILE *there = fopen(settings.out, "r");

    if (there != NULL) {
        fprintf(stderr, "%s is there already: remove it, or name another --out\n", settings.out);
        exit(1);
    }
    printf("%s\n", settings.out);
    for (int i = 0; i < 3; i++) {
        if (parts[i].wanted == 0)
            continue;
        printf("%s/%s\n", settings.out, parts[i].name);
        if (is_tiny() && i > 0)
            printf("%s/%s/images\n", settings.out, parts[i].name);
        for (int64_t k = 0; k < settings.classes && (i == 0 || !is_tiny()); k++) {
            printf("%s/%s/n%08d\n", settings.out, parts[i].name, (int)k);
            if (is_tiny())
                printf("%s/%s/n%08d/images\n", settings.out, parts[i].name, (int)k);
        }
    }
}

/* What the data do not have. */
static void check_settings(void)
{
    const char *wrong = NULL;

    if (settings.out == NULL)
        wrong = "--out DIR is missing: the folder that will be made";
    else if (settings.classes > CLASSES)
        wrong = "--classes: at most 10, since Fashion-MNIST has ten kinds of clothes";
    else if (settings.train > 6000)
        wrong = "--train: at most 6000, as many pictures as Fashion-MNIST has of each class";
    else if (settings.val + settings.test > 1000)
        wrong = "--val and --test: at most 1000 together, as many as Fashion-MNIST has of each "
                "class beside those to train";
    else if (!is_tiny() && strcmp(settings.layout, "folders") != 0)
        wrong = "--layout: tiny (as tiny-imagenet-200) or folders (as ImageNet)";
    if (wrong == NULL)
        return;
    fprintf(stderr, "%s\n", wrong);
    exit(2);
}

static void read_settings(int argc, char **argv)
{
    const option options[] = {
        {.name = "--out", .text = &settings.out, .value = "DIR", .help = "made; must not be there"},
        {.name = "--classes", .integer = &settings.classes, .min = 1, .help = "1 to 10 (10)"},
        {.name = "--train", .integer = &settings.train, .min = 1, .help = "of each class (500)"},
        {.name = "--val", .integer = &settings.val, .help = "of each class (50)"},
        {.name = "--test", .integer = &settings.test, .help = "of each class (50)"},
        {.name = "--size",
         .integer = &settings.size,
         .min = 1,
         .max = 4096,
         .help = "height and width (64)"},
        {.name = "--layout",
         .text = &settings.layout,
         .value = "WORD",
         .help = "tiny: as tiny-imagenet-200; folders: a folder for each class (tiny)"},
        {.name = "--seed", .integer = &settings.seed, .help = "which pictures, which colours (0)"},
        {.name = "--data",
         .text = &settings.data,
         .value = "DIR",
         .help = "Fashion-MNIST (" FASHION_MNIST_DIR ")"},
        {.name = "--folders", .flag = &settings.folders, .help = NULL},
    };
    options_parse(argc, argv,
                  "make_tiny_imagenet --out DIR [options]: pictures of clothes in the "
                  "layout of tiny-imagenet-200",
                  options);
    check_settings();
}

static void make_part(const part *p, tri_dataset *set)
{
    const tri_sampler_random_options mixed = {.seed = (uint64_t)settings.seed};
    tri_sampler *order;

    TRI_TRY(tri_sampler_random(tri_dataset_length(set), &mixed, &order));
    TRI_TRY(tri_sampler_set_epoch(order, 0));
    write_part(p, set, tri_sampler_indices(order));
    tri_sampler_destroy(order);
}

int main(int argc, char **argv)
{
    read_settings(argc, argv);
    const part parts[] = {{"train", settings.train, 0},
                          {"val", settings.val, 0},
                          {"test", settings.test, settings.val}};
    tri_dataset *set = NULL;

    if (settings.folders) {
        print_folders(parts);
        return 0;
    }
    if (is_tiny())
        write_classes();
    for (int i = 0; i < 3; i++) {
        if (parts[i].wanted == 0)
            continue;
        TRI_TRY(fashion_mnist(settings.data, i == 0, &set));
        make_part(&parts[i], set);
        tri_dataset_destroy(set);
    }
    return 0;
}
