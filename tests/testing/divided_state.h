/*
 * divided_state.h - tensors of which each rank has a piece, as an extra of a checkpoint. Tests
 * only.
 *
 * What a rank has is found element by element, without the code that is tested.
 */
#ifndef TEST_DIVIDED_STATE_H
#define TEST_DIVIDED_STATE_H

#include <stdlib.h>
#include <string.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "train/tensor/persistent.h"
#include "train/tensor/piece.h"

enum { DIVIDED_TENSORS = 9, DIVIDED_WHOLE = 8 /* the first of those that no rank divides */ };

/* How the ranks divide a tensor. */
typedef enum divided_how {
    DIVIDED_EVENLY,   /* ranges of the elements in order */
    DIVIDED_UNEVENLY, /* the same, of random lengths; some are empty */
    DIVIDED_ON_LAST,  /* the last rank has everything */
    DIVIDED_IN_BOXES, /* along the last dimension */
    DIVIDED_IN_PAIRS, /* evenly by pairs of ranks, which have the same */
    DIVIDED_KINDS,
    DIVIDED_NOT = DIVIDED_KINDS /* one process has it all */
} divided_how;

static const struct divided_type {
    const char *name;
    tri_dtype dtype;
    int ndim;
    int64_t shape[4];
} divided_types[DIVIDED_TENSORS] = {
    {"matrix", TRI_DTYPE_F32, 2, {5, 8}},     {"doubles", TRI_DTYPE_F64, 1, {7}},
    {"halves", TRI_DTYPE_BF16, 3, {3, 4, 5}}, {"step", TRI_DTYPE_I64, 0, {0}},
    {"nothing", TRI_DTYPE_F32, 2, {0, 4}},    {"one", TRI_DTYPE_F32, 1, {1}},
    {"numbers", TRI_DTYPE_I64, 3, {2, 3, 2}}, {"large", TRI_DTYPE_F32, 2, {160, 111}},
    {"whole", TRI_DTYPE_F32, 1, {3}},
};

/* What one rank has. */
typedef struct divided_state {
    tri_state_entry entries[DIVIDED_TENSORS];
    trii_held held[DIVIDED_TENSORS];
    tri_checkpoint_extra extra;
} divided_state;

static inline int64_t divided_elems(int t)
{
    int64_t n = 1;

    for (int d = 0; d < divided_types[t].ndim; d++)
        n *= divided_types[t].shape[d];
    return n;
}

static inline uint64_t divided_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The bytes of element i of a tensor; any bits: they are copied, not computed with. */
static inline void divided_element(int t, int64_t i, int round, char bytes[8])
{
    uint64_t bits = divided_mix((uint64_t)i + ((uint64_t)t << 40) + ((uint64_t)round << 48) + 1);

    memcpy(bytes, &bits, 8);
}

static inline int64_t divided_cut(int64_t elems, int rank, int size, int t, divided_how how)
{
    if (rank <= 0 || rank >= size)
        return rank <= 0 ? 0 : elems;
    if (how == DIVIDED_ON_LAST)
        return 0;
    if (how == DIVIDED_UNEVENLY) {
        int64_t below = divided_cut(elems, rank - 1, size, t, how);
        uint64_t draw = divided_mix((uint64_t)rank * 131 + (uint64_t)size * 17 + (uint64_t)t) % 4;

        return draw == 0 ? below : below + (elems - below) * (int64_t)draw / 4;
    }
    return elems * rank / size;
}

static inline trii_piece divided_piece(int t, int rank, int size, divided_how how)
{
    const struct divided_type *type = &divided_types[t];
    int64_t elems = divided_elems(t), start, end;

    if (how == DIVIDED_IN_BOXES && type->ndim > 0) {
        trii_piece box = {.ndim = type->ndim};
        int d = type->ndim - 1;

        memcpy(box.size, type->shape, sizeof(type->shape));
        box.offset[d] = type->shape[d] * rank / size;
        box.size[d] = type->shape[d] * (rank + 1) / size - box.offset[d];
        return box;
    }
    if (how == DIVIDED_IN_PAIRS) {
        rank /= 2;
        size = (size + 1) / 2;
    }
    start = divided_cut(elems, rank, size, t, how);
    end = divided_cut(elems, rank + 1, size, t, how);
    return trii_piece_range(start, end - start);
}

/* Whether element i of the whole tensor is in the piece. */
static inline bool divided_has(int t, const trii_piece *piece, int64_t i)
{
    const struct divided_type *type = &divided_types[t];

    if (piece->ndim == 1 && type->ndim != 1)
        return i >= piece->offset[0] && i < piece->offset[0] + piece->size[0];
    for (int d = type->ndim - 1; d >= 0; d--) {
        int64_t at = i % type->shape[d];

        if (at < piece->offset[d] || at >= piece->offset[d] + piece->size[d])
            return false;
        i /= type->shape[d];
    }
    return true;
}

/* Tensor t's bytes on this rank, in `round`, which tells one state from the next; release with
 * free. */
static inline char *divided_bytes(const divided_state *s, int t, int round)
{
    size_t size = tri_dtype_size(divided_types[t].dtype), at = 0;
    char *bytes = malloc(size * (size_t)divided_elems(t) + 1);

    if (bytes == NULL)
        abort();
    for (int64_t i = 0; i < divided_elems(t); i++) {
        char element[8];

        if (s->entries[t].tensor->held != NULL && !divided_has(t, &s->held[t].piece, i))
            continue;
        divided_element(t, i, round, element);
        memcpy(bytes + at, element, size);
        at += size;
    }
    return bytes;
}

static inline size_t divided_size(const divided_state *s, int t)
{
    return trii_tensor_bytes(s->entries[t].tensor);
}

/* Zeros. group NULL: only to be loaded. */
static inline void divided_begin(divided_state *s, tri_group *group, int rank, int size,
                                 divided_how how)
{
    memset(s, 0, sizeof(*s));
    for (int t = 0; t < DIVIDED_TENSORS; t++) {
        const struct divided_type *type = &divided_types[t];
        bool whole = how == DIVIDED_NOT || t >= DIVIDED_WHOLE;
        trii_held *held = &s->held[t];
        int64_t count;

        s->entries[t].name = type->name;
        if (whole) {
            s->entries[t].tensor = tri_tensor_create(type->shape, type->ndim, type->dtype);
            continue;
        }
        *held = (trii_held){.group = group,
                            .ndim = type->ndim,
                            .piece = divided_piece(t, rank, size, how),
                            .is_replica = how == DIVIDED_IN_PAIRS && rank % 2 == 1};
        memcpy(held->shape, type->shape, sizeof(type->shape));
        count = trii_piece_count(&held->piece);
        s->entries[t].tensor = tri_tensor_create(&count, 1, type->dtype);
        s->entries[t].tensor->held = held;
    }
    s->extra =
        (tri_checkpoint_extra){.name = "divided", .entries = s->entries, .n = DIVIDED_TENSORS};
}

static inline tri_status divided_fill(divided_state *s, int round)
{
    tri_status status = TRI_OK;

    for (int t = 0; t < DIVIDED_TENSORS && status == TRI_OK; t++) {
        char *bytes = divided_bytes(s, t, round);

        status = tri_tensor_copy_in(s->entries[t].tensor, bytes, divided_size(s, t));
        free(bytes);
    }
    return status;
}

/* The name of the first tensor that is not what divided_fill has made, or NULL. */
static inline const char *divided_differs(const divided_state *s, int round)
{
    for (int t = 0; t < DIVIDED_TENSORS; t++) {
        size_t n = divided_size(s, t);
        char *want = divided_bytes(s, t, round), *have = malloc(n + 1);
        bool equal = have != NULL && tri_tensor_copy_out(s->entries[t].tensor, have, n) == TRI_OK &&
                     memcmp(want, have, n) == 0;

        free(have);
        free(want);
        if (!equal)
            return divided_types[t].name;
    }
    return NULL;
}

static inline void divided_end(divided_state *s)
{
    for (int t = 0; t < DIVIDED_TENSORS; t++)
        tri_tensor_unref(s->entries[t].tensor);
}

#endif
