/*
 * call_text.h - the call of a peer, as a word in shared memory and in words.
 */
#ifndef TRII_SHM_CALL_TEXT_H
#define TRII_SHM_CALL_TEXT_H

#include "comm/engines/shm/shm_group.h"

/* What a call must have in common on all ranks beside its count, of a whole call: its number among
 * the group's calls as well, of which a composite may make only some here. */
static inline uint64_t shm_call_word(const trii_collective *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (call->seq & 0xff) << 24 | (uint64_t)(uint32_t)call->root << 32;
}

/* Writes the file's name into head.files[i]. Guard: lock. */
void shm_publish_file(shm_group *g, unsigned i, const char *file);
/* SHM_SITE of a call. Different files may take turns at one index: then a message names the later
 * one, the price for never allocating. Guard: lock. */
static inline uint64_t shm_site_word(shm_group *g, const trii_site *site, unsigned flags)
{
    unsigned i = (unsigned)(((uintptr_t)site->file >> 3) * 0x9e3779b1u >> 7) % SHM_FILES;

    if (site->file == NULL)
        i = SHM_FILES;
    else if (TRII_UNLIKELY(g->files[i] != site->file))
        shm_publish_file(g, i, site->file);
    return SHM_SITE(site->line, i, flags);
}

/* The source line that a word of SHM_SITE means; the name of its file is written into `file`. */
trii_site shm_site_of(const shm_block *block, uint64_t word, char file[SHM_FILE_TEXT]);
/* The call that an arrival announces, for messages. */
trii_collective shm_call_of(const shm_block *block, const shm_arrival *arrival,
                            char file[SHM_FILE_TEXT]);
/* The latest collective of a rank in words. Any thread. */
void shm_describe_last(const shm_group *g, int rank, char *text, size_t size);

#endif
