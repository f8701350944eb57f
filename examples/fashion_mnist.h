/*
 * fashion_mnist.h - where the examples find Fashion-MNIST: 28x28 grey images of ten kinds of
 * clothes, 60,000 to train and 10,000 to test.
 */
#ifndef EXAMPLES_FASHION_MNIST_H
#define EXAMPLES_FASHION_MNIST_H

#include <stdio.h>

#include <trireme/data.h>
#include <trireme/function.h>

/* Where Debian's and Ubuntu's package dataset-fashion-mnist puts the files. */
#define FASHION_MNIST_DIR "/usr/share/datasets/fashion-mnist"

static inline bool fashion_mnist_find(const char *dir, const char *name, char path[4096])
{
    static const char *const endings[] = {".gz", ""};
    FILE *file = NULL;

    for (int i = 0; i < 2 && file == NULL; i++) {
        snprintf(path, 4096, "%s/%s%s", dir, name, endings[i]);
        file = fopen(path, "rb");
    }
    if (file != NULL)
        fclose(file);
    return file != NULL;
}

/* Fashion-MNIST's four original files in `dir` (with or without .gz; NULL = FASHION_MNIST_DIR), or
 * MNIST's, which have the same names. NOT_FOUND says where to get them. */
static inline tri_status fashion_mnist(const char *dir, bool train, tri_dataset **dataset_out)
{
    const char *names[2] = {train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte",
                            train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte"};
    char paths[2][4096];

    if (dir == NULL)
        dir = FASHION_MNIST_DIR;
    for (int i = 0; i < 2; i++) {
        if (!fashion_mnist_find(dir, names[i], paths[i]))
            return tri_status_fail(
                TRI_ERR_NOT_FOUND,
                "no %s or %s.gz in %s. Fashion-MNIST: on Debian and Ubuntu `apt install "
                "dataset-fashion-mnist` puts it into " FASHION_MNIST_DIR "; elsewhere take the "
                "four files from https://github.com/zalandoresearch/fashion-mnist and name their "
                "folder",
                names[i], names[i], dir);
    }
    return tri_dataset_idx(paths[0], paths[1], dataset_out);
}

#endif
