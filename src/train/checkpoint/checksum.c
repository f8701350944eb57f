/*
 * checksum.c - see checksum.h. The only user of xxHash. Called by commit.c and safetensors_write.c
 * while they write, and by manifest.c.
 */
#include "train/checkpoint/checksum.h"

#include <xxhash.h>

#include "base/err.h"

tri_status trii_checksum_init(trii_checksum *sum)
{
    sum->state = XXH3_createState();
    if (sum->state == NULL)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "checksum: out of memory");
    (void)XXH3_64bits_reset(sum->state);
    return TRI_OK;
}

void trii_checksum_fini(trii_checksum *sum)
{
    (void)XXH3_freeState(sum->state);
    sum->state = NULL;
}

void trii_checksum_add(trii_checksum *sum, const void *data, size_t bytes)
{
    (void)XXH3_64bits_update(sum->state, data, bytes);
}

uint64_t trii_checksum_value(const trii_checksum *sum)
{
    return XXH3_64bits_digest(sum->state);
}

uint64_t trii_checksum_of(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
