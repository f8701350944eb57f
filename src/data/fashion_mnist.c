/*
 * fashion_mnist.c - finds the four files of Fashion-MNIST, compressed or not.
 */
#include <stdio.h>

#include <trireme/data.h>

#include "base/err.h"
#include "os/file.h"

#define PATH_BYTES 4096

static tri_status find_file(const char *dir, const char *name, char path_out[PATH_BYTES])
{
    static const char *const endings[] = {".gz", ""};

    for (int i = 0; i < 2; i++) {
        int n = snprintf(path_out, PATH_BYTES, "%s/%s%s", dir, name, endings[i]);

        if (n >= PATH_BYTES)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "fashion_mnist: the path in dir is longer than %d bytes", PATH_BYTES);
        if (trii_path_exists(path_out))
            return TRI_OK;
    }
    return TRII_FAIL(TRI_ERR_NOT_FOUND,
                     "no %s or %s.gz in %s. Fashion-MNIST: on Debian and Ubuntu `apt install "
                     "dataset-fashion-mnist` puts it into %s; elsewhere take the four files from "
                     "https://github.com/zalandoresearch/fashion-mnist and name their folder",
                     name, name, dir, TRI_FASHION_MNIST_DIR);
}

tri_status tri_fashion_mnist(const char *dir, bool train, tri_dataset **dataset_out)
{
    const char *part = train ? "train" : "t10k";
    char images[PATH_BYTES], labels[PATH_BYTES], name[64];
    tri_status status = trii_need(dataset_out, "tri_fashion_mnist", "dataset_out");

    if (status != TRI_OK)
        return status;
    if (dir == NULL)
        dir = TRI_FASHION_MNIST_DIR;
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", part);
    status = find_file(dir, name, images);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", part);
    if (status == TRI_OK)
        status = find_file(dir, name, labels);
    if (status == TRI_OK)
        status = tri_dataset_idx(images, labels, dataset_out);
    return status;
}
