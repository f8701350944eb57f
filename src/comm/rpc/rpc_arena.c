/*
 * rpc_arena.c - memory that the workers of a host map: files of this worker, which others map
 * read-only when a part of them is first sent. First fit; a file costs nothing before it is
 * touched, and what was touched stays for the next, unless it is larger than a window and was not
 * used again for a second: to take such memory again costs more than to copy it.
 *
 * A block has its owner (tri_rpc_alloc, or the packet that it was taken for) and one user for each
 * message on its way that has a part of it.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"

#define ARENA_BYTES ((size_t)64 << 20)
#define ALIGN ((size_t)64)
#define PAGE ((size_t)4096)
#define LARGE_BYTES ((size_t)2 << 20)
#define IDLE_NS TRII_NS_PER_S

struct rpc_block {
    struct rpc_arena *arena;
    rpc_block *prev, *next; /* in the order of addresses */
    size_t offset, bytes;
    int users;   /* 0 = free */
    bool public; /* tri_rpc_alloc's, and not freed */
};

typedef struct rpc_arena {
    uint32_t number;
    trii_shmem shm;
    size_t populated; /* bytes from the start, in large pages where the system has them */
    int64_t trim_ns;  /* when free blocks larger than a window give their memory back; 0 = never */
    rpc_block *blocks;
} rpc_arena;

static tri_status add_arena(tri_rpc *rpc, size_t bytes, rpc_arena **arena_out)
{
    rpc_arena *arena;
    tri_status status;

    if (rpc->n_arenas == RPC_MAX_ARENAS - 1)
        return TRII_FAIL(TRI_ERR_NO_MEMORY,
                         "rpc: %d files of shared memory are in use: free parts, or send smaller "
                         "ones",
                         rpc->n_arenas);
    arena = trii_alloc(1, sizeof(*arena), "arena");
    if (arena == NULL)
        return TRI_ERR_NO_MEMORY;
    arena->blocks = trii_alloc(1, sizeof(*arena->blocks), "arena");
    if (arena->blocks == NULL) {
        trii_free(arena);
        return TRI_ERR_NO_MEMORY;
    }
    /* twice: there are few files, for any number of messages of which each is a little longer */
    status = trii_shmem_create("trireme-rpc", bytes > ARENA_BYTES ? 2 * bytes : ARENA_BYTES,
                               &arena->shm);
    if (status != TRI_OK) {
        trii_free(arena->blocks);
        trii_free(arena);
        return status;
    }
    *arena->blocks = (rpc_block){.arena = arena, .bytes = arena->shm.bytes};
    arena->number = (uint32_t)++rpc->n_arenas;
    rpc->arenas[arena->number] = arena;
    *arena_out = arena;
    return TRI_OK;
}

static rpc_block *fit(const rpc_arena *arena, size_t bytes)
{
    rpc_block *b = arena->blocks;

    while (b != NULL && (b->users > 0 || b->bytes < bytes))
        b = b->next;
    return b;
}

rpc_block *rpc_block_take(tri_rpc *rpc, size_t bytes, void **data_out)
{
    size_t want = rpc_round(bytes > 0 ? bytes : 1, ALIGN);
    rpc_block *b = NULL, *rest;
    rpc_arena *arena;

    if (want < bytes || want > SIZE_MAX / 2) {
        (void)TRII_FAIL(TRI_ERR_NO_MEMORY, "rpc: %zu bytes of shared memory", bytes);
        return NULL;
    }
    want = want > PAGE ? rpc_round(want, PAGE) : want;
    for (int i = 1; i <= rpc->n_arenas && b == NULL; i++)
        b = fit(rpc->arenas[i], want);
    if (b == NULL && add_arena(rpc, want, &arena) == TRI_OK)
        b = arena->blocks;
    if (b == NULL)
        return NULL;
    if (b->bytes > want) {
        rest = trii_alloc(1, sizeof(*rest), "arena");
        if (rest == NULL)
            return NULL;
        *rest = (rpc_block){.arena = b->arena,
                            .prev = b,
                            .next = b->next,
                            .offset = b->offset + want,
                            .bytes = b->bytes - want};
        if (rest->next != NULL)
            rest->next->prev = rest;
        b->next = rest;
        b->bytes = want;
    }
    b->users = 1;
    *data_out = (char *)b->arena->shm.base + b->offset;
    return b;
}

size_t rpc_block_claim(rpc_block *block, void **start_out)
{
    rpc_arena *arena = block->arena;
    size_t end = block->offset + block->bytes, from = arena->populated;

    if (block->bytes < LARGE_BYTES || end <= from)
        return 0;
    from = from > block->offset ? from : block->offset;
    arena->populated = end;
    *start_out = (char *)arena->shm.base + from;
    return end - from;
}

/* The neighbour after it becomes part of it. */
static void join_next(rpc_block *b)
{
    rpc_block *next = b->next;

    b->bytes += next->bytes;
    b->next = next->next;
    if (b->next != NULL)
        b->next->prev = b;
    trii_free(next);
}

void rpc_block_use(rpc_block *block)
{
    block->users++;
}

static void free_block(rpc_block *block)
{
    block->users = 0;
    if (block->next != NULL && block->next->users == 0)
        join_next(block);
    if (block->prev != NULL && block->prev->users == 0)
        join_next(block->prev);
}

void rpc_block_unuse(tri_rpc *rpc, rpc_block *block)
{
    if (--block->users > 0)
        return;
    if (block->bytes > rpc->options.window_bytes) {
        block->arena->trim_ns = trii_coarse_ns() + IDLE_NS;
        rpc_arm(rpc, block->arena->trim_ns);
    }
    free_block(block);
}

/* Without the lock meanwhile, as the system takes its time: the block is used then. */
static void give_back(tri_rpc *rpc, rpc_block *block)
{
    rpc_arena *arena = block->arena;
    size_t from = rpc_round(block->offset, PAGE);
    size_t to = (block->offset + block->bytes) / PAGE * PAGE;

    block->users = 1;
    trii_mutex_unlock(&rpc->lock);
    (void)trii_shmem_drop((char *)arena->shm.base + from, to - from);
    trii_mutex_lock(&rpc->lock);
    arena->populated = arena->populated < from ? arena->populated : from;
    free_block(block);
}

static rpc_block *find_idle(const tri_rpc *rpc, const rpc_arena *arena, size_t from)
{
    rpc_block *b = arena->blocks;

    while (b != NULL && (b->offset < from || b->users > 0 || b->bytes <= rpc->options.window_bytes))
        b = b->next;
    return b;
}

int64_t rpc_arenas_trim(tri_rpc *rpc, int64_t now_ns)
{
    int64_t next = TRII_NO_DEADLINE;

    for (int i = 1; i <= rpc->n_arenas; i++) {
        rpc_arena *arena = rpc->arenas[i];
        size_t from = 0;
        rpc_block *b;

        if (arena->trim_ns == 0 || now_ns < arena->trim_ns)
            continue;
        arena->trim_ns = 0;
        while ((b = find_idle(rpc, arena, from)) != NULL) {
            from = b->offset + b->bytes;
            give_back(rpc, b);
        }
    }
    for (int i = 1; i <= rpc->n_arenas; i++) {
        int64_t at = rpc->arenas[i]->trim_ns;

        next = at != 0 && at < next ? at : next;
    }
    return next;
}

rpc_block *rpc_block_of(tri_rpc *rpc, const void *data, size_t bytes, bool *ours_out)
{
    uintptr_t at = (uintptr_t)data;

    *ours_out = false;
    for (int i = 1; i <= rpc->n_arenas; i++) {
        const rpc_arena *arena = rpc->arenas[i];
        uintptr_t base = (uintptr_t)arena->shm.base;

        if (at < base || at >= base + arena->shm.bytes)
            continue;
        *ours_out = true;
        for (rpc_block *b = arena->blocks; b != NULL; b = b->next) {
            if (at - base >= b->offset && at - base - b->offset < b->bytes)
                return b->users > 0 && bytes <= b->bytes - (at - base - b->offset) ? b : NULL;
        }
    }
    return NULL;
}

void rpc_block_place(const rpc_block *block, const void *data, uint32_t *arena_out,
                     uint64_t *at_out)
{
    *arena_out = block->arena->number;
    *at_out = (uint64_t)((const char *)data - (const char *)block->arena->shm.base);
}

uint32_t rpc_block_arena(const rpc_block *block)
{
    return block->arena->number;
}

int rpc_arena_fd(const tri_rpc *rpc, uint32_t arena, size_t *bytes_out)
{
    *bytes_out = rpc->arenas[arena]->shm.bytes;
    return rpc->arenas[arena]->shm.fd;
}

unsigned char *rpc_arena_base(const tri_rpc *rpc, uint32_t arena)
{
    return rpc->arenas[arena]->shm.base;
}

void rpc_arenas_fini(tri_rpc *rpc)
{
    for (int i = 1; i <= rpc->n_arenas; i++) {
        rpc_arena *arena = rpc->arenas[i];

        while (arena->blocks != NULL) {
            rpc_block *b = arena->blocks;

            arena->blocks = b->next;
            trii_free(b);
        }
        trii_shmem_release(&arena->shm);
        trii_free(arena);
    }
    rpc->n_arenas = 0;
}

/* --- the program's -------------------------------------------------------- */

void *tri_rpc_alloc(tri_rpc *rpc, size_t bytes)
{
    rpc_block *block;
    void *data = NULL, *start = NULL;
    size_t fresh;

    if (rpc_resolve(&rpc, "rpc_alloc") != TRI_OK)
        return NULL;
    rpc_lock(rpc);
    block = rpc_block_take(rpc, bytes, &data);
    if (block != NULL)
        block->public = true;
    fresh = block != NULL ? rpc_block_claim(block, &start) : 0;
    trii_mutex_unlock(&rpc->lock);
    if (fresh > 0 && trii_shmem_populate(start, fresh) != TRI_OK) {
        tri_rpc_free(rpc, data);
        return NULL;
    }
    return data;
}

void tri_rpc_free(tri_rpc *rpc, void *memory)
{
    rpc_block *block;
    bool ours;

    if (memory == NULL || rpc_resolve(&rpc, "rpc_free") != TRI_OK)
        return;
    rpc_lock(rpc);
    block = rpc_block_of(rpc, memory, 0, &ours);
    if (block != NULL && block->public &&
        (char *)block->arena->shm.base + block->offset == (char *)memory) {
        block->public = false;
        rpc_block_unuse(rpc, block);
    } else {
        TRII_LOG(TRII_LOG_WARN, "rpc", "rpc_free: %p %s", memory,
                 ours ? "is not the start of an allocation, or has been freed"
                      : "is not of tri_rpc_alloc of this worker");
    }
    trii_mutex_unlock(&rpc->lock);
}
