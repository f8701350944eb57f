/*
 * arena.c - memory that all ranks of the group map. It grows by extents: files of one size
 * that every rank makes at the same moment and hands to its peers. Inside, pieces are found
 * first-fit; all ranks do the same, but nothing depends on it: an arrival says where its
 * buffers are.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "engines/shm/shm.h"
#include "os/clock.h"
#include "os/unix.h"

/* Address space is free, memory is taken piece by piece: few extents, quick look-ups. */
#define EXTENT_BYTES ((size_t)1 << 30)
#define LARGE_PAGE ((size_t)2 << 20)
#define PIECE_ALIGN ((size_t)128)

/* A piece of an extent, free or not; the list is in address order. */
typedef struct shm_span {
    struct shm_span *next;
    int extent;
    size_t offset, bytes;
    size_t taken; /* bytes from the start that may have been written */
    bool used;
} shm_span;

/* What the ranks tell each other, over their sockets. */
typedef struct arena_message {
    uint64_t magic;
    uint64_t bytes;
    int32_t status;
    int32_t grow;
} arena_message;

uint64_t shm_arena_find(const shm_group *g, const void *p, size_t bytes)
{
    int n = atomic_load_explicit(&g->arena->n_extents, memory_order_acquire);

    g = g->arena;
    for (int e = 0; e < n; e++) {
        uintptr_t base = (uintptr_t)g->extents[e].memory[g->rank].base;
        uintptr_t at = (uintptr_t)p;

        if (at >= base && at - base < g->extents[e].bytes && bytes <= g->extents[e].bytes &&
            at - base <= g->extents[e].bytes - bytes)
            return (uint64_t)(e + 1) << 48 | (uint64_t)(at - base);
    }
    return 0;
}

/* Tells all peers `mine` (with a descriptor, or -1) and hears theirs. */
static tri_status exchange(shm_group *g, const arena_message *mine, int pass_fd,
                           arena_message *theirs, int *fds, int64_t deadline_ns)
{
    for (int r = 0; r < g->size; r++) {
        tri_status st = TRI_OK;

        if (r != g->rank)
            st = trii_unix_send(g->peers[r].socket, mine, sizeof(*mine), pass_fd, deadline_ns);
        if (st != TRI_OK)
            return TRII_FAIL_CTX(st, "to rank %d", shm_name(g, r));
    }
    for (int r = 0; r < g->size; r++) {
        tri_status st = TRI_OK;

        if (r == g->rank)
            theirs[r] = *mine;
        else
            st = trii_unix_recv(g->peers[r].socket, &theirs[r], sizeof(theirs[r]),
                                fds != NULL ? &fds[r] : NULL, deadline_ns);
        if (st != TRI_OK)
            return TRII_FAIL_CTX(st, "from rank %d", shm_name(g, r));
        if (theirs[r].magic != SHM_MAGIC)
            return TRII_FAIL(TRI_ERR_INTERNAL, "rank %d does not speak our language",
                             shm_name(g, r));
    }
    return TRI_OK;
}

/* The ranks agree that a step went well, or on the first that failed. */
static tri_status agree(shm_group *g, tri_status mine, arena_message *theirs, int64_t deadline_ns)
{
    arena_message message = {.magic = SHM_MAGIC, .status = mine};
    tri_status st = exchange(g, &message, -1, theirs, NULL, deadline_ns);

    if (st != TRI_OK || mine != TRI_OK)
        return st != TRI_OK ? st : mine;
    for (int r = 0; r < g->size; r++) {
        if (theirs[r].status != TRI_OK)
            return TRII_FAIL((tri_status)theirs[r].status, "rank %d could not", shm_name(g, r));
    }
    return TRI_OK;
}

static shm_span *span_create(int extent, size_t offset, size_t bytes)
{
    shm_span *span = trii_alloc(1, sizeof(*span), "arena piece");

    if (span != NULL) {
        span->extent = extent;
        span->offset = offset;
        span->bytes = bytes;
    }
    return span;
}

static shm_span *span_find(shm_group *g, size_t bytes)
{
    for (shm_span *s = g->spans; s != NULL; s = s->next) {
        if (!s->used && s->bytes >= bytes)
            return s;
    }
    return NULL;
}

/* Takes `bytes` from the start of a free span. */
static tri_status span_take(shm_span *s, size_t bytes)
{
    if (s->bytes > bytes) {
        shm_span *rest = span_create(s->extent, s->offset + bytes, s->bytes - bytes);

        if (rest == NULL)
            return TRI_ERR_NO_MEMORY;
        rest->taken = s->taken > bytes ? s->taken - bytes : 0;
        rest->next = s->next;
        s->next = rest;
        s->bytes = bytes;
    }
    s->used = true;
    return TRI_OK;
}

/* Unites free neighbours of one extent. */
static void spans_join(shm_group *g)
{
    for (shm_span *s = g->spans; s != NULL; s = s->next) {
        while (!s->used && s->next != NULL && !s->next->used && s->next->extent == s->extent) {
            shm_span *gone = s->next;

            if (gone->taken > 0)
                s->taken = s->bytes + gone->taken;
            s->bytes += gone->bytes;
            s->next = gone->next;
            trii_free(gone);
        }
    }
}

static void extent_release(shm_group *g, shm_extent *extent)
{
    for (int r = 0; extent->memory != NULL && r < g->size; r++)
        trii_shmem_release(&extent->memory[r]);
    trii_free(extent->memory);
    extent->memory = NULL;
}

/* Every rank makes a file and maps everybody's. */
static tri_status grow(shm_group *g, size_t bytes, arena_message *theirs, int *fds,
                       int64_t deadline_ns)
{
    int e = atomic_load_explicit(&g->n_extents, memory_order_relaxed);
    shm_extent none = {0}; /* beyond the table: the others still have to hear of it */
    shm_extent *extent = e < SHM_MAX_EXTENTS ? &g->extents[e] : &none;
    arena_message mine = {.magic = SHM_MAGIC};
    shm_span *span = NULL, **tail = &g->spans;
    int fd = -1;
    tri_status st = TRI_OK;

    extent->bytes =
        bytes > EXTENT_BYTES ? (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE : EXTENT_BYTES;
    extent->memory = e < SHM_MAX_EXTENTS
                         ? trii_alloc((size_t)g->size, sizeof(*extent->memory), "arena extent")
                         : NULL;
    span = span_create(e, 0, extent->bytes);
    if (extent->memory == NULL || span == NULL)
        st = TRII_FAIL(TRI_ERR_NO_MEMORY, "arena: extent %d", e);
    else
        st = trii_shmem_create("trireme-arena", extent->bytes, &extent->memory[g->rank]);
    if (st == TRI_OK)
        fd = extent->memory[g->rank].fd;
    mine.status = st;
    for (int r = 0; r < g->size; r++)
        fds[r] = -1;
    tri_status heard = exchange(g, &mine, fd, theirs, fds, deadline_ns);
    for (int r = 0; r < g->size; r++) {
        if (st == TRI_OK && heard == TRI_OK && r != g->rank && fds[r] >= 0)
            st = trii_shmem_attach(fds[r], extent->bytes, &extent->memory[r]);
        else if (st == TRI_OK && heard == TRI_OK && r != g->rank)
            st = TRII_FAIL(TRI_ERR_NO_MEMORY, "rank %d could not make an extent", shm_name(g, r));
        trii_unix_close(fds[r]);
    }
    if (heard == TRI_OK)
        st = agree(g, st, theirs, deadline_ns);
    else
        st = heard;
    if (st != TRI_OK) {
        trii_free(span);
        if (extent->memory != NULL)
            extent_release(g, extent);
        return st;
    }
    trii_shmem_close_fd(&extent->memory[g->rank]);
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = span;
    atomic_store_explicit(&g->n_extents, e + 1, memory_order_release);
    return TRI_OK;
}

/* Every rank takes the memory of its own part first (its node's memory, and the kernel zeroes
 * it once), then enters everybody's into its page tables. */
static tri_status take_memory(shm_group *g, const shm_span *s, arena_message *theirs,
                              int64_t deadline_ns)
{
    const shm_extent *extent = &g->extents[s->extent];
    tri_status st;

    st = trii_shmem_populate((char *)extent->memory[g->rank].base + s->offset, s->bytes);
    st = agree(g, st, theirs, deadline_ns);
    for (int r = 0; r < g->size && st == TRI_OK; r++) {
        if (r != g->rank)
            st = trii_shmem_populate((char *)extent->memory[r].base + s->offset, s->bytes);
    }
    return agree(g, st, theirs, deadline_ns);
}

static tri_status alloc_locked(shm_group *g, size_t bytes, arena_message *theirs, int *fds,
                               void **p_out)
{
    int64_t deadline_ns =
        g->timeout_ns == TRII_NO_DEADLINE ? TRII_NO_DEADLINE : trii_now_ns() + g->timeout_ns;
    arena_message mine = {.magic = SHM_MAGIC, .bytes = bytes, .grow = span_find(g, bytes) == NULL};
    shm_span *s;
    tri_status st;
    bool must_grow = false;

    st = exchange(g, &mine, -1, theirs, NULL, deadline_ns);
    if (st != TRI_OK)
        return st;
    for (int r = 0; r < g->size; r++) {
        if (theirs[r].bytes != bytes) {
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "the ranks disagree: rank %d allocates %zu bytes, rank %d %" PRIu64,
                             shm_name(g, g->rank), bytes, shm_name(g, r), theirs[r].bytes);
        }
        must_grow |= theirs[r].grow != 0;
    }
    if (must_grow)
        st = grow(g, bytes, theirs, fds, deadline_ns);
    if (st != TRI_OK)
        return st;
    s = span_find(g, bytes);
    st = s != NULL ? span_take(s, bytes) : TRI_ERR_INTERNAL;
    st = agree(g, st, theirs, deadline_ns);
    assert(st != TRI_OK || s != NULL); /* all agree, so ours is there too */
    if (st == TRI_OK)
        st = take_memory(g, s, theirs, deadline_ns);
    if (st != TRI_OK) {
        if (s != NULL)
            s->used = false;
        return st;
    }
    *p_out = (char *)g->extents[s->extent].memory[g->rank].base + s->offset;
    if (s->taken > 0) /* used before: fresh memory is zero */
        memset(*p_out, 0, s->taken < bytes ? s->taken : bytes);
    s->taken = s->bytes;
    return TRI_OK;
}

tri_status shm_arena_alloc(void *self, size_t bytes, void **p_out)
{
    shm_group *g = self;
    arena_message *theirs;
    int *fds;
    tri_status st;

    if (bytes > SIZE_MAX / 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes are more than memory can hold", bytes);
    bytes = (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    bytes = bytes == 0 ? PIECE_ALIGN : bytes;
    if (bytes >= LARGE_PAGE) /* whole large pages: the reductions run faster in them */
        bytes = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    theirs = trii_alloc((size_t)g->size, sizeof(*theirs), "arena");
    fds = trii_alloc((size_t)g->size, sizeof(*fds), "arena");
    if (theirs == NULL || fds == NULL) {
        st = TRI_ERR_NO_MEMORY;
    } else {
        trii_mutex_lock(&g->arena_lock);
        st = alloc_locked(g, bytes, theirs, fds, p_out);
        trii_mutex_unlock(&g->arena_lock);
    }
    trii_free(theirs);
    trii_free(fds);
    if (st == TRI_OK)
        return TRI_OK;
    /* The peers would wait for the rest of it: the group ends, by the first cause. */
    shm_check_peers(g);
    shm_fail(g, st, "rank %d, group_alloc of %zu bytes: %s", shm_name(g, g->rank), bytes,
             tri_last_error());
    shm_abort(g);
    return TRII_FAIL(trii_fault_status(g->fault), "%s", g->fault->text);
}

void shm_arena_free(void *self, void *p)
{
    shm_group *g = self;
    uint64_t at = shm_arena_find(g, p, 1);

    trii_mutex_lock(&g->arena_lock);
    for (shm_span *s = g->spans; s != NULL && at != 0; s = s->next) {
        if ((uint64_t)(s->extent + 1) << 48 == (at & (UINT64_C(0xffff) << 48)) &&
            s->offset == (at & ((UINT64_C(1) << 48) - 1)))
            s->used = false;
    }
    spans_join(g);
    trii_mutex_unlock(&g->arena_lock);
}

void shm_arena_release(shm_group *g)
{
    for (shm_span *s = g->spans, *next; s != NULL; s = next) {
        next = s->next;
        trii_free(s);
    }
    g->spans = NULL;
    for (int e = 0; e < atomic_load(&g->n_extents); e++)
        extent_release(g, &g->extents[e]);
}
