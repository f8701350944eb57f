/*
 * manifest_sum.c - checksums in a manifest (format.h): as they are written, and the manifest's own.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"

bool trii_manifest_checksum(const json_t *object, uint64_t *value_out)
{
    const char *text = json_string_value(json_object_get(object, "xxh3"));
    char *end;

    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *value_out = strtoull(text, &end, 16);
    return true;
}

/* The checksum is over its compact text without that entry. */
tri_status trii_manifest_is_whole(json_t *root)
{
    uint64_t want = 0;
    bool has = trii_manifest_checksum(root, &want);
    char *text;
    bool equal;

    (void)json_object_del(root, "xxh3");
    text = trii_json_text(root);
    if (text == NULL)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "out of memory");
    equal = has && trii_checksum_of(text, strlen(text)) == want;
    trii_free(text);
    return equal ? TRI_OK : TRII_FAIL(TRI_ERR_FORMAT, "its checksum does not match its contents");
}
