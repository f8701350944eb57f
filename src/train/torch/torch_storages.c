/*
 * torch_storages.c - see torch_storages.h.
 */
#include "train/torch/torch_storages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

static int compare(const void *a, const void *b)
{
    const trii_torch_place *x = a, *y = b;

    return strcmp(x->key, y->key);
}

tri_status trii_torch_places_list(const trii_torch_storage *storages, trii_torch_places *places_out)
{
    int64_t n = 0, kept = 0;
    trii_torch_place *places;

    for (const trii_torch_storage *s = storages; s != NULL; s = s->next)
        n++;
    places = trii_alloc((size_t)n, sizeof(*places), "storages of a file");
    if (places == NULL)
        return TRI_ERR_NO_MEMORY;
    n = 0;
    for (const trii_torch_storage *s = storages; s != NULL; s = s->next)
        places[n++] = (trii_torch_place){.key = s->key, .storage = s};
    qsort(places, (size_t)n, sizeof(*places), compare);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(places[kept - 1].key, places[i].key) != 0)
            places[kept++] = places[i];
    *places_out = (trii_torch_places){.places = places, .n = kept};
    return TRI_OK;
}

void trii_torch_places_fini(trii_torch_places *places)
{
    trii_free(places->places);
    *places = (trii_torch_places){.n = 0};
}

trii_torch_place *trii_torch_places_find(const trii_torch_places *places, const char *key)
{
    trii_torch_place wanted = {.key = key};

    if (places->n == 0)
        return NULL;
    return bsearch(&wanted, places->places, (size_t)places->n, sizeof(wanted), compare);
}

tri_status trii_torch_places_check(const char *path, const trii_torch_places *places,
                                   const trii_torch_storage *storages)
{
    for (const trii_torch_storage *s = storages; s != NULL; s = s->next) {
        const trii_torch_place *place = trii_torch_places_find(places, s->key);

        if (place == NULL || (place->bytes != s->bytes && !s->is_unknown))
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: offset %" PRIu64 ": storage %.40s has %" PRIu64
                             " bytes there, and %" PRIu64 " by the pickle",
                             path, place != NULL ? place->at : 0, s->key,
                             place != NULL ? place->bytes : 0, s->bytes);
    }
    return TRI_OK;
}
