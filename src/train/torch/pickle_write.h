/*
 * pickle_write.h - the pickle of a state dictionary, as torch.load takes it with weights_only=True:
 * protocol 2, an OrderedDict of contiguous tensors.
 */
#ifndef TRII_PICKLE_WRITE_H
#define TRII_PICKLE_WRITE_H

#include <trireme/checkpoint.h>

/* storages: [n], the number of each entry's storage. Release *own_bytes_out with trii_free. Errors:
 * NO_MEMORY. */
tri_status trii_pickle_write(const tri_safetensors_entry *entries, int64_t n,
                             const int64_t *storages, char **own_bytes_out,
                             size_t *bytes_out) TRI_MUST_CHECK;

#endif
