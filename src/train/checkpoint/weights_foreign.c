/*
 * weights_foreign.c - files that are taken for weights and are none that can be read (weights.h),
 * by their first bytes. Called by weights_file.c.
 */
#include <string.h>

#include "train/checkpoint/weights.h"

static const struct foreign {
    uint64_t at;
    const char *bytes;
    size_t n;
    const char *text;
} foreign[] = {
#define AT(at, bytes) at, bytes, sizeof(bytes) - 1
    {AT(0, "version https://git-lfs."),
     "what Git LFS has in the file's place: fetch it with `git lfs pull`"},
    {AT(0, "<"), "a page of HTML or XML: was the download refused?"},
    {AT(0, "\x1f\x8b"), "compressed: unpack it by gunzip first"},
    {AT(0, "\x28\xb5\x2f\xfd"), "compressed: unpack it by zstd -d first"},
    {AT(257, "ustar"), "a tar archive: unpack it first"},
    {AT(0, "\x89HDF\r\n"),
     "a file of HDF5, as Keras writes them: save safetensors or torch.save's"},
    {AT(0, "GGUF"), "a file of llama.cpp: take the safetensors that it was made from"},
    {AT(0, "\x93NUMPY"), "an array of numpy: save it by safetensors.numpy.save_file"},
    {AT(0, "\x80\x02"), "a pickle that torch.save did not write: save tensors by torch.save"},
    {AT(0, "\x80\x03"), "a pickle that torch.save did not write: save tensors by torch.save"},
    {AT(0, "\x80\x04"), "a pickle that torch.save did not write: save tensors by torch.save"},
    {AT(0, "\x80\x05"), "a pickle that torch.save did not write: save tensors by torch.save"},
#undef AT
};

const char *trii_weights_foreign(const trii_mapping *map)
{
    const unsigned char *file = map->data;

    if (map->bytes == 0)
        return "the file is empty";
    for (size_t k = 0; k < TRII_COUNT_OF(foreign); k++) {
        const struct foreign *f = &foreign[k];

        if (map->bytes >= f->at + f->n && memcmp(file + f->at, f->bytes, f->n) == 0)
            return f->text;
    }
    return NULL;
}
