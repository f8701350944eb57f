/*
 * slot.c - arriving in a collective, seeing who has arrived, and noticing that ranks
 * disagree about the call before any data is touched.
 */
#include <inttypes.h>
#include <string.h>

#include "engines/shm/shm.h"

static inline uint64_t load(const shm_u64 *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void store(shm_u64 *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Of a whole call. */
static uint64_t call_word(const trii_collective *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (uint64_t)(uint32_t)call->root << 32;
}

bool shm_slot_free(shm_group *g, uint64_t seq)
{
    uint64_t least = UINT64_MAX;

    if (TRII_LIKELY(seq <= g->completed_by_all + SHM_SLOTS))
        return true;
    for (int r = 0; r < g->size; r++) {
        uint64_t completed =
            atomic_load_explicit(&g->peers[r].block->head.completed.value, memory_order_acquire);
        least = completed < least ? completed : least;
    }
    g->completed_by_all = least;
    return seq <= least + SHM_SLOTS;
}

/* Index of the file's text in our table. Different files may take turns in one place: then a
 * message names the later one, a price for never allocating. */
static unsigned file_index(shm_group *g, const char *file)
{
    unsigned i = (unsigned)(((uintptr_t)file >> 3) * 0x9e3779b1u >> 7) % SHM_FILES;
    char text[SHM_FILE_WORDS * 8] = "";
    const char *slash;

    if (file == NULL)
        return SHM_FILES;
    if (TRII_LIKELY(g->files[i] == file))
        return i;
    slash = strrchr(file, '/');
    snprintf(text, sizeof(text), "%s", slash != NULL ? slash + 1 : file);
    for (int w = 0; w < SHM_FILE_WORDS; w++) {
        uint64_t word;

        memcpy(&word, text + 8 * w, sizeof(word));
        store(&g->block->head.files[i][w], word);
    }
    g->files[i] = file;
    return i;
}

uint64_t shm_place(shm_group *g, const trii_site *site, unsigned flags)
{
    return SHM_PLACE(site->line, file_index(g, site->file), flags);
}

/* Of the arena, else of this process. */
static uint64_t address_of(uint64_t arena_at, const void *p)
{
    return arena_at != 0 ? arena_at : (uint64_t)(uintptr_t)p;
}

/* Puts our data where the peers will read it if the call is small, else says where it is. */
static void put_data(shm_group *g, trii_op *op, shm_slot *slot)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t bytes = shm_own_elems(g, call) * elem_bytes;
    size_t most = shm_most_elems(g, call) * elem_bytes; /* chooses: the same on all ranks */
    bool to_dst = call->kind == TRII_KIND_ALL_REDUCE ||
                  (call->kind == TRII_KIND_REDUCE && call->root == g->rank);

    step->flags = 0;
    step->path = most <= SHM_INLINE_BYTES ? SHM_PATH_INLINE : SHM_PATH_ONE_SHOT;
    if (most >= SHM_DIRECT_MIN_BYTES) {
        step->path = SHM_PATH_DIRECT; /* perhaps: see shm_begin */
        step->src_at = shm_arena_find(g, call->src, bytes);
        if (to_dst)
            step->dst_at =
                call->dst == call->src ? step->src_at : shm_arena_find(g, call->dst, bytes);
        slot->arrival.data.at.src = address_of(step->src_at, call->src);
        slot->arrival.data.at.dst = address_of(step->dst_at, call->dst);
        step->flags = (step->src_at != 0 || bytes == 0 ? SHM_SRC_IN_ARENA : 0u) |
                      (step->dst_at != 0 ? SHM_DST_IN_ARENA : 0u);
        if (most > SHM_ONE_SHOT_BYTES ||
            (step->flags & SHM_SRC_IN_ARENA && (step->flags & SHM_DST_IN_ARENA || !to_dst)))
            return;
        step->flags |= SHM_COPIED;
    }
    if (bytes > 0 && shm_puts(g, call))
        memcpy(step->path == SHM_PATH_INLINE ? slot->arrival.data.payload
                                             : g->block->one_shot[call->seq % SHM_SLOTS],
               call->src, bytes);
}

/* The same for an all_to_all_v: how much the peers put in is not known before they arrive, so
 * where all parts begin lies in front of the data. */
static void put_parts(shm_group *g, trii_op *op, shm_slot *slot)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    unsigned char *place = g->block->one_shot[call->seq % SHM_SLOTS];
    size_t bytes = call->src_parts[g->size] * tri_dtype_size(call->dtype);
    size_t table = ((size_t)g->size + 1) * sizeof(uint64_t);

    for (int r = 0; r <= g->size; r++) {
        uint64_t at = call->src_parts[r];

        memcpy(place + (size_t)r * sizeof(at), &at, sizeof(at));
    }
    step->path = SHM_PATH_DIRECT;
    step->flags = bytes == 0 ? SHM_SRC_IN_ARENA : 0u;
    if (bytes > 0)
        step->src_at = shm_arena_find(g, call->src, bytes);
    if (step->src_at != 0)
        step->flags |= SHM_SRC_IN_ARENA;
    slot->arrival.data.at.src = address_of(step->src_at, call->src);
    if (table + bytes > SHM_ONE_SHOT_BYTES)
        return;
    step->flags |= SHM_COPIED;
    if (bytes > 0)
        memcpy(place + table, call->src, bytes);
}

void shm_arrive(shm_group *g, trii_op *op)
{
    shm_slot *slot = &g->block->slots[op->call.seq % SHM_SLOTS];
    const trii_collective *whole = trii_collective_whole(&op->call);
    shm_step *step = shm_step_of(op);

    if (op->call.kind == TRII_KIND_ALL_TO_ALL_V)
        put_parts(g, op, slot);
    else
        put_data(g, op, slot);
    store(&slot->arrival.call, call_word(whole));
    store(&slot->arrival.count, whole->count);
    store(&slot->arrival.place, shm_place(g, &op->call.site, step->flags));
    atomic_store_explicit(&slot->arrival.seq, op->call.seq, memory_order_release);
    step->phase = SHM_ARRIVED;
    step->everywhere = SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA | SHM_COPIED;
    g->must_wake = true;
}

trii_site shm_site_of(const shm_block *block, uint64_t place, char file[SHM_FILE_TEXT])
{
    unsigned index = (unsigned)(place >> 8) & 0xffffu;

    if (index >= SHM_FILES)
        return (trii_site){NULL, 0};
    for (int w = 0; w < SHM_FILE_WORDS; w++) {
        uint64_t word = load(&block->head.files[index][w]);

        memcpy(file + 8 * w, &word, sizeof(word));
    }
    file[SHM_FILE_TEXT - 1] = '\0';
    return (trii_site){file, (int)(place >> 32)};
}

/* The call that an arrival announces, for messages. */
static trii_collective call_of(const shm_block *block, const shm_arrival *arrival,
                               char file[SHM_FILE_TEXT])
{
    uint64_t word = load(&arrival->call);

    return (trii_collective){.kind = (trii_kind)(word & 0xff),
                             .dtype = (tri_dtype)(word >> 8 & 0xff),
                             .op = (tri_redop)(word >> 16 & 0xff),
                             .root = (int)(word >> 32),
                             .count = (size_t)load(&arrival->count),
                             .seq = load(&arrival->seq),
                             .site = shm_site_of(block, load(&arrival->place), file)};
}

void shm_describe_last(const shm_group *g, int rank, char *text, size_t size)
{
    const shm_block *block = g->peers[rank].block;
    const shm_arrival *last = &block->slots[0].arrival;
    char file[SHM_FILE_TEXT];
    trii_collective call;

    for (int i = 1; i < SHM_SLOTS; i++) {
        if (load(&block->slots[i].arrival.seq) > load(&last->seq))
            last = &block->slots[i].arrival;
    }
    if (load(&last->seq) == 0) {
        snprintf(text, size, "no collective yet");
        return;
    }
    call = call_of(block, last, file);
    trii_collective_describe(&call, text, size);
}

/* Compares a peer's call with ours. */
static bool same_call(shm_group *g, trii_op *op, int rank, const shm_arrival *arrival)
{
    const trii_collective *ours = trii_collective_whole(&op->call);
    trii_collective theirs;
    char file[SHM_FILE_TEXT], text[TRII_ERR_BYTES];

    if (TRII_LIKELY(load(&arrival->call) == call_word(ours) &&
                    load(&arrival->count) == ours->count))
        return true;
    theirs = call_of(g->peers[rank].block, arrival, file);
    trii_collective_disagree(shm_name(g, g->rank), ours, shm_name(g, rank), &theirs, text,
                             sizeof(text));
    shm_fail(g, TRI_ERR_MISMATCH, "%s", text);
    return false;
}

/* Flags of an arrival; those that do not matter are set. */
static unsigned flags_of(const trii_collective *call, int rank, const shm_arrival *arrival)
{
    unsigned flags = (unsigned)load(&arrival->place) & 0xffu;

    if (rank == call->root)
        return flags;
    if (trii_kind_in(call->kind, 1u << TRII_KIND_BROADCAST | 1u << TRII_KIND_SCATTER))
        return SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA | SHM_COPIED;
    return call->kind == TRII_KIND_REDUCE ? flags | SHM_DST_IN_ARENA : flags;
}

bool shm_all_arrived(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    uint64_t seq = op->call.seq;

    for (; step->seen < g->size; step->seen++) {
        const shm_arrival *arrival = &shm_slot_of(g, step->seen, seq)->arrival;

        if (atomic_load_explicit(&arrival->seq, memory_order_acquire) != seq)
            return false;
        if (!same_call(g, op, step->seen, arrival))
            return false;
        step->everywhere &= flags_of(&op->call, step->seen, arrival);
    }
    return shm_parts_agree(g, op);
}
