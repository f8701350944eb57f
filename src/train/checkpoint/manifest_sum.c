/*
 * manifest_sum.c - what a manifest says of files (format.h): checksums, as they are written, the
 * manifest's own, and the entries of its list of parts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"

json_t *trii_manifest_hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return json_string(text);
}

json_t *trii_manifest_part(const char *file, uint64_t bytes, uint64_t checksum)
{
    json_t *object = json_object();

    if (trii_json_put(object, "file", json_string(file)) &&
        trii_json_put(object, "bytes", json_integer((json_int_t)bytes)) &&
        trii_json_put(object, "xxh3", trii_manifest_hex(checksum)))
        return object;
    json_decref(object);
    return NULL;
}

tri_status trii_listed_read(const char *path, const json_t *part, trii_listed *files, int *n_inout)
{
    const char *name = json_string_value(json_object_get(part, "file"));
    trii_listed *file = &files[*n_inout];

    if (name == NULL || strchr(name, '/') != NULL ||
        !trii_json_size(json_object_get(part, "bytes"), &file->bytes) ||
        !trii_manifest_checksum(part, &file->checksum))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: a part without file, bytes or xxh3", path);
    file->name = trii_strdup(name, "name of a part");
    if (file->name == NULL)
        return TRI_ERR_NO_MEMORY;
    ++*n_inout;
    return TRI_OK;
}

void trii_listed_free(trii_listed *files, int n)
{
    for (int i = 0; i < n; i++)
        trii_free(files[i].name);
    trii_free(files);
}

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
