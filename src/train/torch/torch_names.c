/*
 * torch_names.c - see torch_names.h. Called by torch_file.c.
 */
#include "train/torch/torch_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

#define MAX_DEPTH 64
#define MOST_VALUES 1000000 /* of small files, in which many keys lead to the same ones */
#define ALONE "tensor"      /* name of one that is all of its file */

/* The keys from a value up to the root. */
typedef struct step {
    const struct step *up;
    const char *key;
    size_t bytes;
    int depth;
} step;

typedef struct walk {
    const char *path;
    const trii_torch_places *places;
    trii_arena *arena;
    trii_torch_names *names;
    uint64_t left, left_tensors; /* so many values, and tensors, may still follow */
} walk;

/* NULL: memory is out. */
static char *name_of(const walk *w, const step *at)
{
    size_t bytes = 0;
    char *name, *end;

    if (at == NULL)
        return trii_arena_take(w->arena, 1, sizeof(ALONE));
    for (const step *s = at; s != NULL; s = s->up)
        bytes += s->bytes + 1;
    name = trii_arena_take(w->arena, bytes, 1);
    if (name == NULL)
        return NULL;
    end = name + bytes;
    for (const step *s = at; s != NULL; s = s->up) {
        *--end = s == at ? '\0' : '.';
        end -= s->bytes;
        memcpy(end, s->key, s->bytes);
    }
    return name;
}

static tri_status add(const walk *w, const step *at, const trii_value *value)
{
    trii_torch_names *names = w->names;
    char *name = name_of(w, at);

    if (name == NULL)
        return TRI_ERR_NO_MEMORY;
    if (at == NULL)
        memcpy(name, ALONE, sizeof(ALONE));
    if (names->n == names->room) {
        int64_t room = names->room > 0 ? names->room * 2 : 64;
        tri_torch_tensor *tensors =
            trii_realloc(names->tensors, (size_t)room, sizeof(*tensors), "tensors of a file");

        if (tensors == NULL)
            return TRI_ERR_NO_MEMORY;
        names->tensors = tensors;
        names->room = room;
    }
    if (value->tensor->name == NULL)
        value->tensor->name = name;
    if (value->tensor->refused == NULL)
        value->tensor->file_offset = trii_torch_places_find(w->places, value->tensor->storage)->at;
    names->tensors[names->n] = *value->tensor;
    names->tensors[names->n++].name = name;
    return TRI_OK;
}

static tri_status visit(walk *w, const step *at, const trii_value *value);

/* digits: room for a key that is a number. */
static step step_to(const step *up, const trii_value *key, int64_t index, char digits[24])
{
    step next = {.up = up, .depth = up != NULL ? up->depth + 1 : 1};

    if (key != NULL && key->v.kind == TRI_TORCH_TEXT) {
        next.key = key->v.text;
        next.bytes = key->v.bytes;
        return next;
    }
    if (key != NULL && key->v.kind == TRI_TORCH_INT)
        index = key->v.integer;
    next.key = digits;
    next.bytes = (size_t)snprintf(digits, 24, "%" PRId64, index);
    return next;
}

static tri_status visit_items(walk *w, const step *at, const trii_value *value)
{
    bool is_dict = value->v.kind == TRI_TORCH_DICT;
    tri_status status = TRI_OK;

    if (at != NULL && at->depth >= MAX_DEPTH)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: values within values, more than %d deep: %s ...",
                         w->path, MAX_DEPTH, at->bytes < 80 ? at->key : "");
    for (int64_t i = 0; i < value->v.n && status == TRI_OK; i += is_dict ? 2 : 1) {
        const trii_value *key = is_dict ? (const trii_value *)value->v.items[i] : NULL;
        char digits[24];
        step next = step_to(at, key, is_dict ? i / 2 : i, digits);

        if (memchr(next.key, 0, next.bytes) != NULL)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s: a key with a character 0, which no name in C can hold: %s",
                             w->path, next.key);
        status = visit(w, &next, (const trii_value *)value->v.items[is_dict ? i + 1 : i]);
    }
    return status;
}

static tri_status visit(walk *w, const step *at, const trii_value *value)
{
    if (w->left == 0 || w->left_tensors == 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: its values lead to each other without end", w->path);
    w->left--;
    if (value->v.kind == TRI_TORCH_TENSOR) {
        w->left_tensors--;
        return add(w, at, value);
    }
    if (value->v.kind >= TRI_TORCH_TUPLE && value->v.kind <= TRI_TORCH_DICT)
        return visit_items(w, at, value);
    return TRI_OK;
}

/* Sorted by name, and by index where one name leads to two. */
static int compare(const void *a, const void *b, void *arg)
{
    const tri_torch_tensor *tensors = arg;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int order = strcmp(tensors[x].name, tensors[y].name);

    return order != 0 ? order : x < y ? -1 : x > y;
}

tri_status trii_torch_names_read(const char *path, const trii_value *root,
                                 const trii_torch_places *places, uint64_t most, trii_arena *arena,
                                 trii_torch_names *names_out)
{
    walk w = {.path = path,
              .places = places,
              .arena = arena,
              .names = names_out,
              .left = most + MOST_VALUES,
              .left_tensors = most};
    tri_status status;

    *names_out = (trii_torch_names){.n = 0};
    status = visit(&w, NULL, root);
    if (status != TRI_OK)
        return status;
    names_out->by_name =
        trii_alloc((size_t)names_out->n, sizeof(*names_out->by_name), "tensors of a file");
    if (names_out->by_name == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < names_out->n; i++)
        names_out->by_name[i] = i;
    if (names_out->n > 0)
        qsort_r(names_out->by_name, (size_t)names_out->n, sizeof(*names_out->by_name), compare,
                names_out->tensors);
    return TRI_OK;
}

void trii_torch_names_fini(trii_torch_names *names)
{
    trii_free(names->tensors);
    trii_free(names->by_name);
    *names = (trii_torch_names){.n = 0};
}

const tri_torch_tensor *trii_torch_names_find(const trii_torch_names *names, const char *name)
{
    int64_t low = 0, high = names->n;

    while (low < high) { /* the first that is not below it */
        int64_t middle = low + (high - low) / 2;

        if (strcmp(names->tensors[names->by_name[middle]].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == names->n || strcmp(names->tensors[names->by_name[low]].name, name) != 0)
        return NULL;
    return &names->tensors[names->by_name[low]];
}
