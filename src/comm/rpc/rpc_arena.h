/*
 * rpc_arena.h - blocks of memory that other workers of the host map; all locked.
 */
#ifndef TRII_RPC_ARENA_H
#define TRII_RPC_ARENA_H

#include "comm/rpc/rpc_internal.h"

rpc_block *rpc_block_take(tri_rpc *rpc, size_t bytes, void **data_out); /* NULL: no memory */
/* Memory of a large block that nobody has touched, for trii_shmem_populate without the lock: bytes.
 */
size_t rpc_block_claim(rpc_block *block, void **start_out);
/* NULL: no block has all of it, though one of our arenas may have the start (*ours_out). */
rpc_block *rpc_block_of(tri_rpc *rpc, const void *data, size_t bytes, bool *ours_out);
void rpc_block_use(rpc_block *block);
void rpc_block_unuse(tri_rpc *rpc, rpc_block *block);
void rpc_block_place(const rpc_block *block, const void *data, uint32_t *arena_out,
                     uint64_t *at_out);
uint32_t rpc_block_arena(const rpc_block *block);
/* The timer: memory that was not used again is given back; when to look next. Unlocked meanwhile.
 */
int64_t rpc_arenas_trim(tri_rpc *rpc, int64_t now_ns);
int rpc_arena_fd(const tri_rpc *rpc, uint32_t arena, size_t *bytes_out);
/* Where it is mapped here. */
unsigned char *rpc_arena_base(const tri_rpc *rpc, uint32_t arena);
void rpc_arenas_fini(tri_rpc *rpc);

#endif
