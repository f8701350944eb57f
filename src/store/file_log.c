/*
 * file_log.c - see file_log.h. file_store.c gives it the bytes that it read, and gets the table
 * (kv.h) that they amount to; writes go the other way. tests/fuzz feeds it damaged files.
 */
/* build: leaf */
#include "store/file_log.h"

#include <string.h>

#include "base/err.h"

/* OK, or INPROGRESS with *need_out if the record is incomplete. */
static tri_status read_record(const char *data, size_t bytes, trii_slice *key_out,
                              trii_slice *value_out, size_t *need_out)
{
    uint32_t key_bytes, value_bytes;

    *need_out = 2 * sizeof(uint32_t);
    if (bytes < sizeof(key_bytes))
        return TRI_INPROGRESS;
    memcpy(&key_bytes, data, sizeof(key_bytes));
    if (key_bytes == 0 || key_bytes > TRII_FILE_MAX_KEY)
        return TRII_FAIL(TRI_ERR_FORMAT, "a key of %u bytes", (unsigned)key_bytes);
    *need_out += key_bytes;
    if (bytes < *need_out)
        return TRI_INPROGRESS;
    memcpy(&value_bytes, data + sizeof(key_bytes) + key_bytes, sizeof(value_bytes));
    if (value_bytes > TRII_FILE_MAX_VALUE)
        return TRII_FAIL(TRI_ERR_FORMAT, "a value of %u bytes", (unsigned)value_bytes);
    *key_out = (trii_slice){data + sizeof(key_bytes), key_bytes};
    *value_out = (trii_slice){data + *need_out, value_bytes};
    *need_out += value_bytes;
    return bytes < *need_out ? TRI_INPROGRESS : TRI_OK;
}

tri_status trii_file_log_read(trii_kv *kv, const char *data, size_t bytes, size_t *used_out,
                              size_t *need_out)
{
    size_t used = 0, need = 0;
    tri_status status = TRI_OK;

    while (status == TRI_OK && used < bytes) {
        trii_slice key, value;

        status = read_record(data + used, bytes - used, &key, &value, &need);
        if (status != TRI_OK)
            break;
        if (key.data[0] == '-')
            (void)trii_kv_delete(kv, (trii_slice){key.data + 1, key.bytes - 1});
        else
            status = trii_kv_set(kv, key, value);
        if (status == TRI_OK)
            used += need;
    }
    *used_out = used;
    *need_out = status == TRI_INPROGRESS ? need : 0;
    return status == TRI_INPROGRESS ? TRI_OK : status;
}
