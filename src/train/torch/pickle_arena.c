/*
 * pickle_arena.c - memory for the values of a pickle (pickle.h): many small ones that live and die
 * together.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/torch/pickle.h"

#define BLOCK_BYTES 65536

struct trii_arena_block {
    struct trii_arena_block *next;
    _Alignas(16) unsigned char data[];
};

void *trii_arena_take(trii_arena *arena, size_t n, size_t size)
{
    size_t bytes, most = SIZE_MAX - sizeof(struct trii_arena_block) - 16;
    void *taken;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > most) {
        trii_err_set("values of a pickle: out of memory");
        return NULL;
    }
    bytes = (bytes + 15) / 16 * 16;
    if (arena->block == NULL || bytes > arena->room - arena->used) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        struct trii_arena_block *block = trii_alloc(1, sizeof(*block) + room, "values of a pickle");

        if (block == NULL)
            return NULL;
        block->next = arena->block;
        *arena = (trii_arena){.block = block, .room = room};
    }
    taken = arena->block->data + arena->used;
    arena->used += bytes;
    return taken;
}

void trii_arena_fini(trii_arena *arena)
{
    while (arena->block != NULL) {
        struct trii_arena_block *block = arena->block;

        arena->block = block->next;
        trii_free(block);
    }
    *arena = (trii_arena){.block = NULL};
}
