/*
 * arena.c - memory that all ranks of the group map: what tri_group_alloc gives. It grows by
 * extents: files of one size that every rank makes at the same moment and passes to its peers.
 * Inside an extent, allocation is first-fit. All ranks allocate alike, but nothing depends on it:
 * an arrival says where its buffers are.
 */
/* build: leaf */
#include "comm/engines/shm/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/engines/shm/fault.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/memory_room.h"
#include "os/unix.h"

/* Address space costs nothing and memory is populated piece by piece: extents are large, so that
 * there are few to search. Where a limit (ulimit -v) makes it cost something, they begin small and
 * double. */
#define EXTENT_BYTES ((size_t)1 << 30)
#define FIRST_LIMITED_BYTES ((size_t)16 << 20)
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

/* What the ranks send each other, over their sockets. */
typedef struct arena_message {
    uint64_t magic;
    uint64_t bytes;
    uint64_t cgroup; /* the rank's memory comes out of this control group's */
    int32_t status;
    int16_t grow;
    int16_t limited; /* the rank's address space is */
    char why[128];
} arena_message;

/* A call of alloc. It is allocated with the group: a rank without memory for it could not even
 * tell the peers. */
typedef struct shm_arena_call {
    int64_t deadline_ns;
    tri_status verdict; /* what all ranks know to be the result of the last step */
    int *fds;           /* [size] */
    arena_message theirs[];
} arena_call;

/* Sends `mine` (with a descriptor, or -1) to all peers and receives theirs. */
static tri_status exchange_messages(shm_group *g, const arena_message *mine, int pass_fd,
                                    arena_message *theirs, int *fds, int64_t deadline_ns)
{
    for (int r = 0; r < g->size; r++) {
        tri_status status = TRI_OK;

        if (r != g->rank)
            status = trii_unix_send(g->peers[r].socket, mine, sizeof(*mine), pass_fd, deadline_ns);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "to rank %d", shm_name(g, r));
    }
    for (int r = 0; r < g->size; r++) {
        tri_status status = TRI_OK;

        if (r == g->rank)
            theirs[r] = *mine;
        else
            status = trii_unix_recv(g->peers[r].socket, &theirs[r], sizeof(theirs[r]),
                                    fds != NULL ? &fds[r] : NULL, deadline_ns);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "from rank %d", shm_name(g, r));
        if (theirs[r].magic != SHM_MAGIC)
            return TRII_FAIL(TRI_ERR_INTERNAL,
                             "rank %d sent something that is not an arena message", shm_name(g, r));
    }
    return TRI_OK;
}

static arena_message message_of(tri_status status)
{
    arena_message message = {.magic = SHM_MAGIC, .status = status};

    if (status != TRI_OK)
        snprintf(message.why, sizeof(message.why), "%s", tri_last_error());
    return message;
}

/* The failure of the lowest rank that has one: the same text on all ranks. */
static tri_status first_failure(const shm_group *g, const arena_message *theirs)
{
    for (int r = 0; r < g->size; r++) {
        if (theirs[r].status != TRI_OK)
            return TRII_FAIL((tri_status)theirs[r].status, "rank %d: %.*s", shm_name(g, r),
                             (int)sizeof(theirs[r].why), theirs[r].why);
    }
    return TRI_OK;
}

/* The ranks agree that a step succeeded, or on the first that failed: the verdict. A failure of
 * the exchange itself is returned. */
static tri_status agree_on_step(shm_group *g, tri_status mine, arena_call *call)
{
    arena_message message = message_of(mine);
    tri_status status = exchange_messages(g, &message, -1, call->theirs, NULL, call->deadline_ns);

    if (status == TRI_OK)
        call->verdict = first_failure(g, call->theirs);
    return status;
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

static shm_span *span_find_free(shm_group *g, size_t bytes)
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

/* Merges free neighbours of one extent. */
static void spans_merge(shm_group *g)
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

static size_t whole_pages(size_t bytes)
{
    return (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
}

/* How large the next extent is at best. */
static size_t preferred_bytes(const shm_group *g, size_t bytes, bool limited)
{
    size_t wanted = limited ? FIRST_LIMITED_BYTES : EXTENT_BYTES;

    for (int e = atomic_load_explicit(&g->n_extents, memory_order_relaxed);
         e > 0 && wanted < EXTENT_BYTES; e--)
        wanted *= 2;
    return whole_pages(bytes > wanted ? bytes : wanted);
}

/* The next extent, of so many bytes: makes our file of it. */
static tri_status extent_create(shm_group *g, size_t bytes, shm_extent **extent_out)
{
    int e = atomic_load_explicit(&g->n_extents, memory_order_relaxed);
    shm_extent *extent = &g->extents[e];

    if (e == SHM_MAX_EXTENTS)
        return TRII_FAIL(TRI_ERR_NO_MEMORY,
                         "the group has %d blocks of shared memory, none with %zu bytes free: give "
                         "memory back (tri_group_free), or allocate once for several uses",
                         e, bytes);
    extent->bytes = bytes;
    extent->memory = trii_alloc((size_t)g->size, sizeof(*extent->memory), "arena extent");
    if (extent->memory == NULL)
        return TRI_ERR_NO_MEMORY;
    *extent_out = extent;
    return trii_shmem_create("trireme-arena", extent->bytes, &extent->memory[g->rank]);
}

/* Maps the files of the others. */
static tri_status extent_map(shm_group *g, shm_extent *extent, const int *fds)
{
    for (int r = 0; r < g->size; r++) {
        tri_status status = TRI_OK;

        if (r != g->rank)
            status = trii_shmem_attach(fds[r], extent->bytes, &extent->memory[r]);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* Every rank makes a file and maps everybody's. st: a failure of this rank before. */
static tri_status extent_add(shm_group *g, tri_status status, size_t bytes, arena_call *call)
{
    int e = atomic_load_explicit(&g->n_extents, memory_order_relaxed);
    shm_extent *extent = NULL;
    arena_message mine;
    shm_span *span = NULL, **tail = &g->spans;
    tri_status heard;

    if (status == TRI_OK)
        status = extent_create(g, bytes, &extent);
    if (status == TRI_OK && (span = span_create(e, 0, extent->bytes)) == NULL)
        status = TRI_ERR_NO_MEMORY;
    mine = message_of(status);
    for (int r = 0; r < g->size; r++)
        call->fds[r] = -1;
    heard = exchange_messages(g, &mine, status == TRI_OK ? extent->memory[g->rank].fd : -1,
                              call->theirs, call->fds, call->deadline_ns);
    if (heard == TRI_OK) {
        call->verdict = first_failure(g, call->theirs);
        assert(call->verdict != TRI_OK || extent != NULL); /* all have one, so have we */
        if (call->verdict == TRI_OK)
            heard = agree_on_step(g, extent_map(g, extent, call->fds), call);
    }
    for (int r = 0; r < g->size; r++)
        trii_unix_close(call->fds[r]);
    if (heard != TRI_OK || call->verdict != TRI_OK) {
        trii_free(span);
        if (extent != NULL)
            extent_release(g, extent);
        return heard;
    }
    trii_shmem_close_fd(&extent->memory[g->rank]);
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = span;
    atomic_store_explicit(&g->n_extents, e + 1, memory_order_release);
    return TRI_OK;
}

/* As large as is good, or else as large as it must be: address space may be scarcer than a limit
 * says. All ranks know the verdict, so all try again or none. */
static tri_status grow(shm_group *g, tri_status mine, size_t bytes, bool limited, arena_call *call)
{
    size_t best = preferred_bytes(g, bytes, limited), least = whole_pages(bytes);
    tri_status status = extent_add(g, mine, best, call);

    if (status != TRI_OK || call->verdict != TRI_ERR_NO_MEMORY || !limited || least >= best)
        return status;
    call->verdict = TRI_OK;
    return extent_add(g, mine, least, call);
}

/* Every rank populates its own part first (with memory of its own node, and the kernel zeroes it
 * once), then enters everybody's into its page tables. */
static tri_status span_populate(shm_group *g, const shm_span *s, arena_call *call)
{
    const shm_extent *extent = &g->extents[s->extent];
    tri_status status;

    status = trii_shmem_populate((char *)extent->memory[g->rank].base + s->offset, s->bytes);
    status = agree_on_step(g, status, call);
    if (status != TRI_OK || call->verdict != TRI_OK)
        return status;
    for (int r = 0; r < g->size && status == TRI_OK; r++) {
        if (r != g->rank)
            status = trii_shmem_populate((char *)extent->memory[r].base + s->offset, s->bytes);
    }
    return agree_on_step(g, status, call);
}

/* Gives the memory back to the system, on this rank: it is zero then until it is written. */
static void span_free(shm_group *g, shm_span *s)
{
    s->used = false;
    if (s->bytes >= LARGE_PAGE &&
        trii_shmem_drop((char *)g->extents[s->extent].memory[g->rank].base + s->offset, s->bytes))
        s->taken = 0;
}

/* Refuses what does not fit before it is touched: when memory runs out later, the kernel kills.
 * All ranks allocate as much; those of our control group share its limit. */
static tri_status check_room(const shm_group *g, size_t bytes, const trii_memory_room *room,
                             const arena_message *theirs)
{
    size_t n_same = 0;

    for (int r = 0; r < g->size; r++)
        n_same += theirs[r].cgroup == room->cgroup;
    if (bytes > room->host_bytes / (size_t)g->size)
        return TRII_FAIL(TRI_ERR_NO_MEMORY,
                         "%d ranks would take %zu MiB each, this host has %zu MiB available",
                         g->size, bytes >> 20, room->host_bytes >> 20);
    assert(n_same > 0); /* our own is among theirs */
    if (bytes > room->cgroup_bytes / n_same)
        return TRII_FAIL(TRI_ERR_NO_MEMORY,
                         "%zu ranks would take %zu MiB each, their control group has %zu MiB left",
                         n_same, bytes >> 20, room->cgroup_bytes >> 20);
    return TRI_OK;
}

static bool is_absurd(size_t bytes)
{
    return bytes > SIZE_MAX / 2;
}

static tri_status span_alloc(shm_group *g, size_t bytes, arena_call *call, void **p_out)
{
    arena_message mine = {.magic = SHM_MAGIC,
                          .bytes = bytes,
                          .grow = span_find_free(g, bytes) == NULL,
                          .limited = trii_address_space_limit() != SIZE_MAX};
    trii_memory_room room = {.host_bytes = SIZE_MAX, .cgroup_bytes = SIZE_MAX};
    bool must_grow = false, limited = false;
    shm_span *s = NULL;
    tri_status status, fits;

    if (bytes >= LARGE_PAGE)
        trii_memory_room_look("", &room);
    mine.cgroup = room.cgroup;
    status = exchange_messages(g, &mine, -1, call->theirs, NULL, call->deadline_ns);
    if (status != TRI_OK)
        return status;
    for (int r = 0; r < g->size; r++) {
        const arena_message *theirs = &call->theirs[r];

        if (theirs->bytes != bytes)
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "the ranks disagree: rank %d allocates %zu bytes, rank %d %" PRIu64,
                             shm_name(g, g->rank), bytes, shm_name(g, r), theirs->bytes);
        must_grow |= theirs->grow != 0;
        limited |= theirs->limited != 0;
    }
    fits = is_absurd(bytes)
               ? TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes are more than memory can hold", bytes)
               : check_room(g, bytes, &room, call->theirs);
    if (must_grow)
        status = grow(g, fits, bytes, limited, call);
    if (status != TRI_OK || (must_grow && call->verdict != TRI_OK))
        return status;
    s = fits == TRI_OK ? span_find_free(g, bytes) : NULL;
    if (fits == TRI_OK)
        fits = s != NULL ? span_take(s, bytes) : TRI_ERR_INTERNAL;
    status = agree_on_step(g, fits, call);
    assert(status != TRI_OK || call->verdict != TRI_OK || s != NULL); /* all fit, so do we */
    if (status == TRI_OK && call->verdict == TRI_OK)
        status = span_populate(g, s, call);
    if (status != TRI_OK || call->verdict != TRI_OK) {
        if (fits == TRI_OK)
            span_free(g, s);
        spans_merge(g);
        return status;
    }
    assert(s != NULL); /* all agree, so ours is there too */
    *p_out = (char *)g->extents[s->extent].memory[g->rank].base + s->offset;
    if (s->taken > 0) /* used before: fresh memory is zero */
        memset(*p_out, 0, s->taken < bytes ? s->taken : bytes);
    s->taken = s->bytes;
    return TRI_OK;
}

static size_t round_up_bytes(size_t bytes)
{
    if (is_absurd(bytes))
        return bytes; /* to be refused */
    bytes = (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    if (bytes >= LARGE_PAGE) /* whole large pages: the reductions run faster in them */
        bytes = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    return bytes == 0 ? PIECE_ALIGN : bytes;
}

tri_status shm_arena_init(shm_group *g)
{
    size_t n = (size_t)g->size;
    arena_call *call =
        trii_alloc(1, sizeof(*call) + n * sizeof(call->theirs[0]) + n * sizeof(int), "arena");

    if (call == NULL)
        return TRI_ERR_NO_MEMORY;
    call->fds = (int *)(call->theirs + n);
    g->arena_call = call;
    return TRI_OK;
}

tri_status shm_arena_alloc(void *self, size_t bytes, void **p_out)
{
    shm_group *g = self;
    arena_call *call = g->arena_call;
    tri_status status, verdict;

    bytes = round_up_bytes(bytes);
    trii_mutex_lock(&g->arena_lock);
    call->verdict = TRI_OK;
    call->deadline_ns =
        g->timeout_ns != TRII_NO_DEADLINE ? trii_now_ns() + g->timeout_ns : TRII_NO_DEADLINE;
    status = span_alloc(g, bytes, call, p_out);
    verdict = call->verdict;
    trii_mutex_unlock(&g->arena_lock);
    if (status == TRI_OK)
        return verdict; /* a failure too: all ranks know of it, and the group goes on */
    /* The peers may wait for messages that we do not send: the group fails, by the first cause. */
    shm_check_peers(g);
    shm_fail(g, status, "rank %d, group_alloc of %zu bytes: %s", shm_name(g, g->rank), bytes,
             tri_last_error());
    /* Ours, or what the control thread heard first and may still be writing. */
    status = trii_fault_cause(g->fault);
    shm_abort(g);
    return TRII_FAIL(status, "%s", g->fault->text);
}

void shm_arena_free(void *self, void *p)
{
    shm_group *g = self;
    uint64_t at = shm_arena_find(g, p, 1);

    trii_mutex_lock(&g->arena_lock);
    for (shm_span *s = g->spans; s != NULL && at != 0; s = s->next) {
        if ((uint64_t)(s->extent + 1) << 48 == (at & (UINT64_C(0xffff) << 48)) &&
            s->offset == (at & ((UINT64_C(1) << 48) - 1)))
            span_free(g, s);
    }
    spans_merge(g);
    trii_mutex_unlock(&g->arena_lock);
}

void shm_arena_release(shm_group *g)
{
    for (shm_span *s = g->spans, *next; s != NULL; s = next) {
        next = s->next;
        trii_free(s);
    }
    g->spans = NULL;
    trii_free(g->arena_call);
    g->arena_call = NULL;
    for (int e = 0; e < atomic_load(&g->n_extents); e++)
        extent_release(g, &g->extents[e]);
}
