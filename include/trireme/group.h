/*
 * group.h - process groups: a fixed set of ranks that run collectives together.
 *
 * Five calls take a C program from nothing to averaged gradients:
 *
 *     tri_init(NULL);                              // rank and size from the launcher
 *     float *g = tri_group_alloc(NULL, bytes);     // optional: memory all local ranks map
 *     tri_all_reduce(NULL, g, g, n, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL);
 *     tri_group_free(NULL, g);
 *     tri_finalize();
 *
 * A NULL group is the world. Every rank of a group issues the same collectives in the same order.
 * If the last argument, work_out, is NULL, the call returns when the operation is done; else it
 * returns at once, and tri_work_wait or tri_work_test finishes it.
 *
 * Results are bit for bit the same on every rank, for every engine, algorithm, chunking
 * and timing: sums follow the balanced binary tree over ranks 0..p-1 (split at the largest
 * power of two below p), f16 and bf16 are accumulated in f32 and rounded once.
 *
 * A group belongs to the process that made it: a child of fork() may leave it, and every call of
 * the child on it fails with STATE.
 */
#ifndef TRIREME_GROUP_H
#define TRIREME_GROUP_H

#include <trireme/call_site.h>
#include <trireme/status.h>
#include <trireme/store.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

typedef struct tri_group tri_group; /* shared: tri_group_ref/unref */
typedef struct tri_work tri_work;   /* owned by the caller that posted it */

#define TRI_GROUP_TIMEOUT_MS INT64_C(600000)

/* Zero means default, everywhere: start from {0} and name what you change. */
typedef struct tri_group_options {
    /* "self", "shm", "hierarchy", "tcp", or a plug-in: "mpi", "gloo", "nccl"; "auto" = the best for
     * the hosts (never a plug-in). torch.distributed's spellings "cpu:gloo" and "cuda:nccl" work
     * too. Must be the same on all ranks. NULL = TRI_ENGINE, else "auto" */
    const char *engine;
    /* per operation and for forming the group; 0 = TRI_TIMEOUT_MS, else TRI_GROUP_TIMEOUT_MS;
     * TRI_FOREVER = none */
    int64_t timeout_ms;
    const char *name; /* for messages and records; NULL = "world" or a number */
    /* tcp: the address to listen on and to publish ("0.0.0.0": those of all interfaces). NULL =
     * chosen by reachability; loopback if all ranks share a host */
    const char *bind_host;
    TRI_RESERVED(8);
} tri_group_options;

typedef struct tri_init_options {
    /* NULL = TRI_INIT, else "env://"; "tcp://host:port?rank=R&world_size=W", or a file that all
     * ranks can write, "file:///path?rank=R&world_size=W"; rank and size may come from the
     * launcher's environment instead */
    const char *url;
    tri_group_options group;
    /* 0 = the launcher or the URL says both; else these are this process's rank (which counts only
     * then) and the number of ranks, as in init_process_group(init_method=url, rank=r,
     * world_size=n). Where the ranks meet still comes from the URL or the environment */
    int rank, world_size;
    /* where the ranks meet, instead of a URL; needs world_size. The world takes a reference */
    tri_store *store;
    TRI_RESERVED(4);
} tri_init_options;

/**
 * Joins the world: rank, size and store come from the environment of trirun or torchrun (RANK,
 * WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), of Slurm or Open MPI, or from a URL. Without
 * any of them this is a world of one. In a worker of trirun or tri_spawn, stdout is flushed at each
 * line from now on, as after setvbuf(stdout, NULL, _IOLBF, 0), unless the program has made it
 * unbuffered; a program that wants it otherwise calls setvbuf afterwards. stderr stays as it is:
 * unbuffered, as C has it.
 *
 * Blocks until all ranks have arrived, at most for the timeout; a TIMEOUT names the missing ranks.
 * Errors: INVALID_ARG (a variable is missing or not a number), TIMEOUT, STATE (already joined),
 * PEER_LOST (a rank ended before all had joined, as far as trirun or rank 0 can see that).
 */
TRI_API TRI_MUST_CHECK tri_status tri_init(const tri_init_options *opt);
/* Leaves the world. Waits until its peers know that this is not a failure; rank 0, if it serves the
 * store, also waits until the others have left or ended, at most 10 s or the world's timeout, and
 * the log names those that have not. Does nothing without tri_init. Work handles, memory and models
 * that outlive the world can be released later; the log names unfinished calls, which end with
 * ABORTED, here and on the ranks that wait for them. */
TRI_API void tri_finalize(void);
TRI_API bool tri_is_initialized(void);
/* Rank and size in the world; 0 and 1 before tri_init, whatever the launcher says. If the size was
 * asked for before tri_init and the world is larger, the log warns. */
TRI_API int tri_rank(void);
TRI_API int tri_world_size(void);
/* Rank among the processes of this host, and how many there are; before tri_init and after
 * tri_finalize what the launcher says of this process, or 0 and 1. */
TRI_API int tri_local_rank(void);
TRI_API int tri_local_world_size(void);

/**
 * The general form: each of the `size` ranks calls it with the same store. Ranks may be threads of
 * one process. opt NULL = defaults. The group keeps a clone of the store.
 * Blocks until all ranks have arrived. After a TIMEOUT a rank may try again: it meets the ranks
 * that are still waiting, and those that come later. Errors: those of tri_init, UNSUPPORTED (no
 * such engine).
 */
TRI_API TRI_MUST_CHECK tri_status tri_group_create(tri_store *store, int rank, int size,
                                                   const tri_group_options *opt,
                                                   tri_group **group_out);
TRI_API tri_group *tri_group_ref(tri_group *group); /* NULL allowed */
TRI_API void tri_group_unref(tri_group *group); /* NULL allowed; the last one leaves the group */
/* Aborts the group: every pending and later operation on it returns ABORTED here, and PEER_LOST or
 * ABORTED on the peers. Never blocks; any thread. */
TRI_API void tri_group_abort(tri_group *group, const char *why);
/* TRI_OK, or the status with which the group failed; tri_last_error then says why, and the group
 * must be replaced by a new one. STATE: there is no world. Never blocks; any thread. */
TRI_API TRI_MUST_CHECK tri_status tri_group_status(const tri_group *group);
/**
 * How often the group has recovered in place: today always 0, since a failed group stays failed and
 * a new one takes its place (tri_group_shrink). A later version may let a group recover, where the
 * program asks for it. Then the handle stays valid, and the epoch is a higher number; rank, size
 * and engine may be others. A work belongs to the epoch in which it was posted: it has ended as the
 * group failed, or ends with ABORTED, and takes part in no later epoch. Memory of tri_group_alloc
 * from an earlier epoch may only be given to tri_group_free. So what a program derives from rank
 * and size is good for one epoch.
 *
 * Never blocks; any thread. 0 also without a world, and if this process is not a member.
 */
TRI_API int tri_group_epoch(const tri_group *group);

/* The rank of this process in the group; -1: it is not a member. */
TRI_API int tri_group_rank(const tri_group *group);
TRI_API int tri_group_size(const tri_group *group);
TRI_API const char *tri_group_engine(const tri_group *group); /* static text */
/* Whether this engine is available here: built in ("self", "shm", "hierarchy", "tcp"), or a plug-in
 * that can be loaded ("mpi", "gloo", "nccl"); if not, tri_last_error says why. Any thread; the
 * first call about a plug-in loads it. */
TRI_API bool tri_engine_is_available(const char *engine);

/**
 * Divides a group: ranks of one color form a new group, in the order of their keys, and of their
 * ranks where keys are equal. Collective over `group`. A rank with a negative color joins no group;
 * it gets one that it is not a member of (as in tri_group_new). Options left at 0 (opt NULL: all of
 * them) are taken from `group`: engine ("auto" instead of hierarchy, which the ranks of one host
 * cannot have), timeout, bind_host. Engine nccl cannot exchange colors (UNSUPPORTED):
 * tri_group_new. MPI_Comm_split, c10d split_group. A rank that failed by itself (NO_MEMORY) may try
 * again while the others wait.
 *
 * Blocks until all ranks of the group have called it and those of this color have formed theirs.
 */
TRI_API TRI_MUST_CHECK tri_status tri_group_split(tri_group *group, int color, int key,
                                                  const tri_group_options *opt,
                                                  tri_group **group_out);
/**
 * Makes a group of the listed ranks of `group`, in this order. Only they need to call it, all with
 * the same list. Others get, at once, a group that they are not a member of, like torch's
 * NON_GROUP_MEMBER: its tri_group_rank is -1, its size 0, and every call on it is refused
 * (INVALID_ARG). Several threads may make several groups at a time. c10d new_group.
 *
 * Blocks until all listed ranks have called it; a TIMEOUT names the missing ones, and a rank may
 * try again, as in tri_group_create.
 */
TRI_API TRI_MUST_CHECK tri_status tri_group_new(tri_group *group, const int *ranks, int n,
                                                const tri_group_options *opt,
                                                tri_group **group_out);
typedef struct tri_group_shrink_options {
    tri_group_options group; /* of the new group; options left at 0 are taken from the old one */
    /* how long a rank that is not known to be lost may take to call, counted from the last rank
     * that did; 0 = the old group's timeout, TRI_FOREVER = until it calls */
    int64_t grace_ms;
    /* with fewer ranks than this there is no new group; 0 = 1. size / 2 + 1 is a majority. Must be
     * the same on all ranks */
    int min_size;
    TRI_RESERVED(4);
} tri_group_shrink_options;

/**
 * Makes a new group of the surviving ranks of a failed group, in the old order; a group that has
 * not failed is aborted first. Collective over the survivors, which agree through the store who
 * they are: once every rank has called it or is known to be lost (its process has ended, or its
 * host is silent). A slow rank is not lost: the others wait for grace_ms while it computes. A rank
 * that calls after that gets PEER_LOST. If another rank ends meanwhile, the survivors agree again.
 * opt NULL = defaults.
 *
 * After a failure it may be called again. A rank that failed by itself (NO_MEMORY) must call it
 * again, since the others wait for it. The old group must still be released. Where rank 0 serves
 * the store, the store ends with rank 0. ncclCommShrink, c10d shrink_group.
 *
 * Errors: PEER_LOST (too late, or fewer than min_size are left), STATE (done already), and those of
 * tri_group_create.
 */
TRI_API TRI_MUST_CHECK tri_status tri_group_shrink(tri_group *group,
                                                   const tri_group_shrink_options *opt,
                                                   tri_group **group_out);
/* Replaces the timeout of later calls; values as tri_group_options.timeout_ms. */
TRI_API void tri_group_set_timeout(tri_group *group, int64_t timeout_ms);
/* tri_group_world_rank gives the rank in the outermost group (the world) of a rank of this group,
 * tri_group_find_rank the reverse; -1 = none. */
TRI_API int tri_group_world_rank(const tri_group *group, int rank);
TRI_API int tri_group_find_rank(const tri_group *group, int world_rank);

/**
 * Allocates memory that the engine reduces without copies: under shm all local ranks map it. It is
 * zeroed, 64-byte aligned and already touched. Collective: all ranks allocate the same sizes in the
 * same order (under hierarchy it is itself a collective, in the same order on all ranks). Heap
 * memory works everywhere too, with a copy. Freed memory goes back to the system. Engine nccl,
 * which takes memory of a GPU, has none to give (UNSUPPORTED).
 *
 * NULL on failure (tri_last_error): if it fails on one rank under shm or hierarchy, it fails on all
 * ranks, and the group can still be used. A request for more than the host or the control group has
 * left is refused before the memory is touched. Ranks that ask for different sizes fail the group
 * (MISMATCH) where they share the memory: under shm, and on one host under hierarchy; elsewhere
 * each gets what it asks for. Do not use the memory after the group has failed: a peer that has not
 * noticed yet may still write into it.
 */
TRI_API void *tri_group_alloc(tri_group *group, size_t bytes);
TRI_API void tri_group_free(tri_group *group, void *p);

/* --- collectives -------------------------------------------------------------
 * These are for plain buffers. Those for tensors, which a step records and gradients pass through,
 * are in dist.h: tri_dist_all_reduce and so on.
 *
 * src, dst: reductions need `dtype`'s alignment (else INVALID_ARG), other calls none. Both are
 *   borrowed until the operation is done. dst == src means in place; any other overlap is
 *   INVALID_ARG. Counts are elements of `dtype`; 0 is allowed. Complex numbers (C64, C128) have the
 *   reductions sum, avg and premul_sum, all others are INVALID_ARG; messages about such calls count
 *   real and imaginary parts as elements.
 *   They are memory of the host; in a group of engine nccl, memory of its GPU (else UNSUPPORTED),
 *   and then the call comes after what the calling thread has put on its current queue of that
 *   device (trireme/device_queue.h). No other engine checks what memory it gets: memory of a GPU
 *   must be managed memory, which the host can read and write, and complete before the call, else
 *   the process crashes or sends what was there before.
 * work_out: NULL = the call returns when the operation is done; else it returns at once, with a
 *   handle to wait for (tri_work_wait) and to destroy.
 * Errors (from the call, or from the wait for its work): INVALID_ARG, UNSUPPORTED and NO_MEMORY
 *   concern this call only. GROUP_TIMEOUT (names the ranks that did not arrive, and the call),
 *   PEER_LOST (names the rank), MISMATCH (names both calls) and ABORTED fail the group: every later
 *   call returns the same at once.
 *   Calls that do not match end with MISMATCH when one sees the other, or after 0.3 s where each
 *   waits for the other (tcp, hierarchy). A receive and a collective that wait for each other end
 *   with GROUP_TIMEOUT, since another thread may still make the missing call.
 *
 * Threads: any, but all ranks must post a group's collectives in the same order. */

/* dst[i] = op over ranks r of src_r[i]. c10d all_reduce. */
TRI_API TRI_MUST_CHECK tri_status tri_all_reduce(tri_group *group, const void *src, void *dst,
                                                 size_t count, tri_dtype dtype, tri_redop op,
                                                 tri_work **work_out);
/* The same, for rank `root` only; dst is not used elsewhere (may be NULL). c10d reduce. */
TRI_API TRI_MUST_CHECK tri_status tri_reduce(tri_group *group, const void *src, void *dst,
                                             size_t count, tri_dtype dtype, tri_redop op, int root,
                                             tri_work **work_out);
/* Copies buf of rank `root` to all ranks. c10d broadcast. */
TRI_API TRI_MUST_CHECK tri_status tri_broadcast(tri_group *group, void *buf, size_t count,
                                                tri_dtype dtype, int root, tri_work **work_out);
/* dst[r*count + i] = src_r[i]; in place: src == dst + rank*count elements. c10d
 * all_gather_single. */
TRI_API TRI_MUST_CHECK tri_status tri_all_gather(tri_group *group, const void *src, void *dst,
                                                 size_t count, tri_dtype dtype,
                                                 tri_work **work_out);
/* The same, for rank `root` only; dst is not used elsewhere (may be NULL). c10d gather. */
TRI_API TRI_MUST_CHECK tri_status tri_gather(tri_group *group, const void *src, void *dst,
                                             size_t count, tri_dtype dtype, int root,
                                             tri_work **work_out);
/* dst[i] = src_root[rank*count + i]; src is used at the root only (may be NULL elsewhere); in place
 * there: dst == src + rank*count elements. c10d scatter. */
TRI_API TRI_MUST_CHECK tri_status tri_scatter(tri_group *group, const void *src, void *dst,
                                              size_t count, tri_dtype dtype, int root,
                                              tri_work **work_out);
/* dst[i] = op over r of src_r[rank*count + i]; in place: dst == src + rank*count elements.
 * c10d reduce_scatter_single. */
TRI_API TRI_MUST_CHECK tri_status tri_reduce_scatter(tri_group *group, const void *src, void *dst,
                                                     size_t count, tri_dtype dtype, tri_redop op,
                                                     tri_work **work_out);
/* dst[r*count + i] = src_r[rank*count + i]; never in place. c10d all_to_all_single. */
TRI_API TRI_MUST_CHECK tri_status tri_all_to_all(tri_group *group, const void *src, void *dst,
                                                 size_t count, tri_dtype dtype,
                                                 tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_barrier(tri_group *group, tri_work **work_out);
/* A barrier with its own deadline (0 = the group's) whose GROUP_TIMEOUT names every rank that
 * did not come. c10d monitored_barrier. */
TRI_API TRI_MUST_CHECK tri_status tri_monitored_barrier(tri_group *group, int64_t timeout_ms);

/* Parts that differ in size: counts[size] are the elements of the ranks' parts, which are
 * contiguous, in rank order; the counts are copied before the call returns. In all_gather_v and
 * reduce_scatter_v all ranks give the same counts (else MISMATCH), and this rank's own part has
 * counts[rank] elements. c10d all_gather, reduce_scatter and all_to_all with tensors of different
 * sizes. */
TRI_API TRI_MUST_CHECK tri_status tri_all_gather_v(tri_group *group, const void *src, void *dst,
                                                   const size_t *counts, tri_dtype dtype,
                                                   tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_reduce_scatter_v(tri_group *group, const void *src, void *dst,
                                                       const size_t *counts, tri_dtype dtype,
                                                       tri_redop op, tri_work **work_out);
/* src_counts[r] elements go to rank r, and dst_counts[r] come from it: as many as its
 * src_counts[rank], else MISMATCH. Never in place. */
TRI_API TRI_MUST_CHECK tri_status tri_all_to_all_v(tri_group *group, const void *src,
                                                   const size_t *src_counts, void *dst,
                                                   const size_t *dst_counts, tri_dtype dtype,
                                                   tri_work **work_out);

/* Weighted sums: as the reductions above with TRI_REDOP_SUM, but this rank's part counts `factor`
 * times; ranks may have different factors (their shares of a weighted mean). Floating-point types
 * only; a product of f16 or bf16 is rounded before it is added. INVALID_ARG: the factor is negative
 * or not finite. c10d PREMUL_SUM. */
TRI_API TRI_MUST_CHECK tri_status tri_all_reduce_premul_sum(tri_group *group, const void *src,
                                                            void *dst, size_t count,
                                                            tri_dtype dtype, float factor,
                                                            tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_reduce_premul_sum(tri_group *group, const void *src,
                                                        void *dst, size_t count, tri_dtype dtype,
                                                        float factor, int root,
                                                        tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_reduce_scatter_premul_sum(tri_group *group, const void *src,
                                                                void *dst, size_t count,
                                                                tri_dtype dtype, float factor,
                                                                tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_reduce_scatter_v_premul_sum(tri_group *group, const void *src,
                                                                  void *dst, const size_t *counts,
                                                                  tri_dtype dtype, float factor,
                                                                  tri_work **work_out);

/**
 * Point to point. Messages between a pair with one tag arrive in order, and a message goes to the
 * first posted receive that can take it. Messages with other tags may be received before it: any
 * number of messages may be waiting for a receive. The peer may be this rank itself (engines self,
 * shm, tcp, hierarchy).
 *
 * A send of up to 256 KiB is done when it has been copied, as long as the receiver keeps less than
 * 16 MiB of unexpected messages (those without a receive) from this rank. A larger send, or a later
 * one of more than a few bytes, is done when its receive takes it: two ranks that first send each
 * other such messages with blocking calls block until the timeout. Beyond 64 MiB, in which each
 * message counts 100 to 250 bytes more, even small sends wait for their receives. A blocking send
 * to this rank itself that would wait is a STATE error.
 *
 * count: the elements that a receive has room for; fewer may come (tri_work_count). A message with
 * more is INVALID_ARG, which names both counts; it stays, for a receive with more room. Another
 * dtype is a MISMATCH. (Engine gloo: count must be the message's. mpi: more is a MISMATCH.)
 */
TRI_API TRI_MUST_CHECK tri_status tri_send(tri_group *group, const void *src, size_t count,
                                           tri_dtype dtype, int peer, int tag, tri_work **work_out);
TRI_API TRI_MUST_CHECK tri_status tri_recv(tri_group *group, void *dst, size_t count,
                                           tri_dtype dtype, int peer, int tag, tri_work **work_out);
/* Receives a message with this tag from any rank; *from_out (NULL allowed; borrowed until done) is
 * its sender. */
TRI_API TRI_MUST_CHECK tri_status tri_recv_any(tri_group *group, void *dst, size_t count,
                                               tri_dtype dtype, int tag, int *from_out,
                                               tri_work **work_out);
/* The number of elements that a finished, successful receive got; 0 for other calls and batches.
 * work NULL: that of this thread's last receive without a handle. */
TRI_API size_t tri_work_count(const tri_work *work);

/**
 * Several calls as one: between begin and end, this thread's calls on the group with a NULL
 * work_out are only posted, and tri_group_batch_end waits for all of them, or returns one work for
 * them. Sends and receives may be posted in any order. A call that could not be posted has returned
 * its own error; end, and a wait for the work, wait for all others, and then return the first
 * failure. What a tri_reducer or a model of tri_ddp communicates meanwhile is not part of the
 * batch. Errors: STATE (begin: a batch is open already; end: none is). c10d batch_isend_irecv and
 * coalescing manager.
 */
TRI_API TRI_MUST_CHECK tri_status tri_group_batch_begin(tri_group *group);
TRI_API TRI_MUST_CHECK tri_status tri_group_batch_end(tri_group *group, tri_work **work_out);

/* --- objects -----------------------------------------------------------------
 * Byte strings whose lengths only their senders know. All calls block. *data_out is a buffer with a
 * zero byte after the data, released with tri_object_free; several objects are contiguous in it, in
 * rank order, and bytes_out[size] has their lengths. A rank that has no memory for the result
 * aborts the group. The bytes are in memory of the host: engine nccl has none of these calls
 * (UNSUPPORTED). c10d all_gather_object, gather_object, broadcast_object_list,
 * scatter_object_list. */
TRI_API TRI_MUST_CHECK tri_status tri_all_gather_object(tri_group *group, const void *src,
                                                        size_t bytes, void **data_out,
                                                        size_t *bytes_out);
/* Only the root gets the objects; elsewhere *data_out is NULL and bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_gather_object(tri_group *group, const void *src, size_t bytes,
                                                    int root, void **data_out, size_t *bytes_out);
/* src and bytes are used at the root; every rank gets a copy. bytes_out may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_broadcast_object(tri_group *group, const void *src,
                                                       size_t bytes, int root, void **data_out,
                                                       size_t *bytes_out);
/* src[size] and bytes[size] are used at the root (else NULL): object r goes to rank r. bytes_out
 * may be NULL. */
TRI_API TRI_MUST_CHECK tri_status tri_scatter_object(tri_group *group, const void *const *src,
                                                     const size_t *bytes, int root, void **data_out,
                                                     size_t *bytes_out);
TRI_API void tri_object_free(void *data); /* NULL allowed */

/* --- work ----------------------------------------------------------------- */

/* Blocks until done; timeout_ms 0 = the group's. TIMEOUT: the given timeout has passed before the
 * work was over (of a batch: all its calls), and it continues. GROUP_TIMEOUT: the group's is used
 * up; only waiting counts, not what the caller did between posting the work and waiting for it. Any
 * thread, several times. */
TRI_API TRI_MUST_CHECK tri_status tri_work_wait(tri_work *work, int64_t timeout_ms);
/* Returns INPROGRESS until the work is over, then OK or the failure; makes progress on the
 * operation, never blocks. Time between two tests less than 0.1 s apart counts as waiting. */
TRI_API TRI_MUST_CHECK tri_status tri_work_test(tri_work *work);
/* Why the work failed (an error raised on another thread is kept here); "" if it did not. */
TRI_API const char *tri_work_error(const tri_work *work);
/* Releases the handle; an unfinished operation continues, and its buffers stay borrowed. */
TRI_API void tri_work_destroy(tri_work *work);

/* --- call sites --------------------------------------------------------------
 * The functions that wait for peers are wrapped so that messages can name the line of the
 * caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_all_reduce(...) TRI_SITE_SET_(tri_all_reduce(__VA_ARGS__))
#define tri_all_reduce_premul_sum(...) TRI_SITE_SET_(tri_all_reduce_premul_sum(__VA_ARGS__))
#define tri_reduce(...) TRI_SITE_SET_(tri_reduce(__VA_ARGS__))
#define tri_reduce_premul_sum(...) TRI_SITE_SET_(tri_reduce_premul_sum(__VA_ARGS__))
#define tri_broadcast(...) TRI_SITE_SET_(tri_broadcast(__VA_ARGS__))
#define tri_all_gather(...) TRI_SITE_SET_(tri_all_gather(__VA_ARGS__))
#define tri_gather(...) TRI_SITE_SET_(tri_gather(__VA_ARGS__))
#define tri_scatter(...) TRI_SITE_SET_(tri_scatter(__VA_ARGS__))
#define tri_reduce_scatter(...) TRI_SITE_SET_(tri_reduce_scatter(__VA_ARGS__))
#define tri_reduce_scatter_premul_sum(...) TRI_SITE_SET_(tri_reduce_scatter_premul_sum(__VA_ARGS__))
#define tri_all_to_all(...) TRI_SITE_SET_(tri_all_to_all(__VA_ARGS__))
#define tri_all_gather_v(...) TRI_SITE_SET_(tri_all_gather_v(__VA_ARGS__))
#define tri_reduce_scatter_v(...) TRI_SITE_SET_(tri_reduce_scatter_v(__VA_ARGS__))
#define tri_reduce_scatter_v_premul_sum(...)                                                       \
    TRI_SITE_SET_(tri_reduce_scatter_v_premul_sum(__VA_ARGS__))
#define tri_all_to_all_v(...) TRI_SITE_SET_(tri_all_to_all_v(__VA_ARGS__))
#define tri_barrier(...) TRI_SITE_SET_(tri_barrier(__VA_ARGS__))
#define tri_monitored_barrier(...) TRI_SITE_SET_(tri_monitored_barrier(__VA_ARGS__))
#define tri_group_split(...) TRI_SITE_SET_(tri_group_split(__VA_ARGS__))
#define tri_group_new(...) TRI_SITE_SET_(tri_group_new(__VA_ARGS__))
#define tri_all_gather_object(...) TRI_SITE_SET_(tri_all_gather_object(__VA_ARGS__))
#define tri_gather_object(...) TRI_SITE_SET_(tri_gather_object(__VA_ARGS__))
#define tri_broadcast_object(...) TRI_SITE_SET_(tri_broadcast_object(__VA_ARGS__))
#define tri_scatter_object(...) TRI_SITE_SET_(tri_scatter_object(__VA_ARGS__))
#define tri_send(...) TRI_SITE_SET_(tri_send(__VA_ARGS__))
#define tri_recv(...) TRI_SITE_SET_(tri_recv(__VA_ARGS__))
#define tri_recv_any(...) TRI_SITE_SET_(tri_recv_any(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
