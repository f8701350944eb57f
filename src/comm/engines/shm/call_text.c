/*
 * call_text.c - a call in shared memory, so that the peers can name it in an error message: its
 * source line, its kind, its size. What a rank did last is read here when it fails or is late.
 */
/* build: hot leaf */
#include "comm/engines/shm/call_text.h"

#include <inttypes.h>
#include <string.h>

void shm_publish_file(shm_group *g, unsigned i, const char *file)
{
    char text[SHM_FILE_WORDS * 8] = "";
    const char *slash = strrchr(file, '/');

    snprintf(text, sizeof(text), "%s", slash != NULL ? slash + 1 : file);
    for (int w = 0; w < SHM_FILE_WORDS; w++) {
        uint64_t word;

        memcpy(&word, text + 8 * w, sizeof(word));
        shm_store(&g->block->head.files[i][w], word);
    }
    g->files[i] = file;
}

trii_site shm_site_of(const shm_block *block, uint64_t word, char file[SHM_FILE_TEXT])
{
    unsigned index = (unsigned)(word >> 8) & 0xffffu;

    if (index >= SHM_FILES)
        return (trii_site){NULL, 0};
    for (int w = 0; w < SHM_FILE_WORDS; w++) {
        uint64_t letters = shm_load(&block->head.files[index][w]);

        memcpy(file + 8 * w, &letters, sizeof(letters));
    }
    file[SHM_FILE_TEXT - 1] = '\0';
    return (trii_site){file, (int)(word >> 32)};
}

trii_collective shm_call_of(const shm_block *block, const shm_arrival *arrival,
                            char file[SHM_FILE_TEXT])
{
    uint64_t word = shm_load(&arrival->call);

    return (trii_collective){.kind = (trii_kind)(word & 0xff),
                             .dtype = (tri_dtype)(word >> 8 & 0xff),
                             .op = (tri_redop)(word >> 16 & 0xff),
                             .root = (int)(word >> 32),
                             .count = (size_t)shm_load(&arrival->count),
                             .seq = shm_load(&arrival->seq),
                             .site = shm_site_of(block, shm_load(&arrival->site), file)};
}

void shm_describe_last(const shm_group *g, int rank, char *text, size_t size)
{
    const shm_block *block = g->peers[rank].block;
    const shm_arrival *last = &block->slots[0].arrival;
    char file[SHM_FILE_TEXT];
    trii_collective call;

    for (int i = 1; i < SHM_SLOTS; i++) {
        if (shm_load(&block->slots[i].arrival.seq) > shm_load(&last->seq))
            last = &block->slots[i].arrival;
    }
    if (shm_load(&last->seq) == 0) {
        snprintf(text, size, "no collective yet");
        return;
    }
    call = shm_call_of(block, last, file);
    trii_collective_describe(&call, text, size);
}
