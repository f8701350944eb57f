/*
 * torch_legacy.c - files of torch.save before 1.6, and of later ones without
 * _use_new_zipfile_serialization: four pickles (a magic number, the protocol, the machine, the
 * object), one with the keys of the storages, then these: a count of elements in 64 bits and the
 * elements. torch/serialization.py, _legacy_load.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "train/torch/torch_storages.h"

#define PROTOCOL 1001

#define FRAME_BYTES 9

/* LONG1 of 10 bytes: 0x1950a86a20f9469cfc6c; STOP */
static const unsigned char magic[] = {0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                      0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/* Where the magic number begins, after PROTO and, from protocol 4 on, a FRAME. */
static size_t magic_at(const trii_mapping *map)
{
    const unsigned char *file = map->data;

    return map->bytes > 2 && file[2] == 0x95 ? 2 + FRAME_BYTES : 2;
}

bool trii_torch_is_legacy(const trii_mapping *map)
{
    const unsigned char *file = map->data;
    size_t at = magic_at(map);

    return map->bytes >= at + sizeof(magic) && file[0] == 0x80 &&
           memcmp(file + at, magic, sizeof(magic)) == 0;
}

bool trii_torch_is_file(const trii_mapping *map)
{
    return trii_torch_is_legacy(map) || (map->bytes >= 4 && memcmp(map->data, "PK\3\4", 4) == 0);
}

/* The text's value in a dictionary; NULL: none. */
static const tri_torch_value *setting(const trii_value *dict, const char *key)
{
    return tri_torch_item(&dict->v, key);
}

static tri_status read_next(const char *path, const trii_mapping *map, uint64_t *at_inout,
                            trii_arena *arena, trii_pickled *pickled_out)
{
    tri_status status =
        trii_pickle_read(path, *at_inout, (const unsigned char *)map->data + *at_inout,
                         map->bytes - (size_t)*at_inout, arena, pickled_out);

    if (status == TRI_OK)
        *at_inout += pickled_out->bytes;
    return status;
}

/* Protocol and machine. */
static tri_status check_head(const char *path, const trii_value *protocol,
                             const trii_value *machine)
{
    const tri_torch_value *little = setting(machine, "little_endian");

    if (protocol->v.kind != TRI_TORCH_INT || protocol->v.integer != PROTOCOL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: another protocol than %d of torch.save", path,
                         PROTOCOL);
    if (little != NULL && little->kind == TRI_TORCH_BOOL && little->integer == 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: written on a big-endian machine: save it on another one", path);
    return TRI_OK;
}

/* The storages lie one after another in the order of the keys; how large an element is, only the
 * pickle knows. */
static tri_status find_places(const char *path, const trii_mapping *map, uint64_t at,
                              const trii_value *keys, const trii_torch_places *places)
{
    const unsigned char *file = map->data;

    if (keys->v.kind != TRI_TORCH_LIST)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: offset %" PRIu64 ": no list of storages is there",
                         path, at);
    for (int64_t i = 0; i < keys->v.n; i++) {
        const tri_torch_value *key = keys->v.items[i];
        trii_torch_place *place =
            key->kind == TRI_TORCH_TEXT ? trii_torch_places_find(places, key->text) : NULL;
        const trii_torch_storage *s = place != NULL ? place->storage : NULL;
        uint64_t numel = 0;

        if (s != NULL && s->is_unknown) /* nor where the next one begins */
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s: offset %" PRIu64 ": storage %.40s is of a class that is not "
                             "known here: save the file without "
                             "_use_new_zipfile_serialization=False",
                             path, at, s->key);
        if (place == NULL || map->bytes - at < 8)
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: offset %" PRIu64 ": %s", path, at,
                             place == NULL ? "a storage that no tensor has"
                                           : "the file ends before a storage: is it cut short?");
        for (int k = 7; k >= 0; k--)
            numel = numel << 8 | file[at + (uint64_t)k];
        at += 8;
        place->at = at;
        place->bytes = s->bytes;
        if (numel != s->numel || s->bytes > map->bytes - at)
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: offset %" PRIu64 ": a storage of %" PRIu64 " elements, %" PRIu64
                             " by the pickle, in a file of %zu bytes",
                             path, at - 8, numel, s->numel, map->bytes);
        at += s->bytes;
    }
    return TRI_OK;
}

tri_status trii_torch_legacy_read(const char *path, const trii_mapping *map, trii_arena *arena,
                                  trii_pickled *pickled_out, trii_torch_places *places_out)
{
    trii_pickled protocol, machine, keys;
    uint64_t at = magic_at(map) + sizeof(magic);
    tri_status status = read_next(path, map, &at, arena, &protocol);

    *places_out = (trii_torch_places){.n = 0};
    if (status == TRI_OK)
        status = read_next(path, map, &at, arena, &machine);
    if (status == TRI_OK)
        status = check_head(path, protocol.root, machine.root);
    if (status == TRI_OK)
        status = read_next(path, map, &at, arena, pickled_out);
    if (status == TRI_OK)
        status = read_next(path, map, &at, arena, &keys);
    if (status == TRI_OK)
        status = trii_torch_places_list(pickled_out->storages, places_out);
    if (status == TRI_OK)
        status = find_places(path, map, at, keys.root, places_out);
    if (status == TRI_OK) /* also those that no key has */
        status = trii_torch_places_check(path, places_out, pickled_out->storages);
    return status;
}
