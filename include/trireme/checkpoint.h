/*
 * checkpoint.h - weights in files, and runs that can be resumed: safetensors, module state,
 * training checkpoints.
 *
 * A training checkpoint is a folder:
 *
 *     FOLDER/step-000000001234/model.safetensors       state of the module, PyTorch's names
 *                              optimizer.safetensors   state of the optimizer
 *                              ema.safetensors, ...    other tensors, if the program has some
 *                              trainer.json, ...       and texts in files of their own
 *                              manifest.json           step, epoch, metadata, checksums, state of
 *                                                      the random numbers
 *                              pieces.rank0.safetensors, ...
 *                                                      what each rank has of tensors that no rank
 *                                                      has whole
 *
 * It is written under a temporary name, synced and renamed: whatever happens at whatever moment,
 * the last good checkpoint stays, and a damaged one is skipped. Other files and folders in FOLDER
 * belong to the user and are never touched.
 *
 * All functions but tri_checkpoint_writer_save block until the files are read or written. A module
 * or an optimizer is used by one thread at a time.
 */
#ifndef TRIREME_CHECKPOINT_H
#define TRIREME_CHECKPOINT_H

#include <trireme/status.h>
#include <trireme/tensor.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

typedef struct tri_group tri_group;               /* group.h */
typedef struct tri_module tri_module;             /* nn.h */
typedef struct tri_optimizer tri_optimizer;       /* optim.h */
typedef struct tri_load_options tri_load_options; /* nn.h */
typedef struct tri_state_entry tri_state_entry;   /* nn.h */

/* --- safetensors ---------------------------------------------------------- */

typedef struct tri_safetensors tri_safetensors; /* an open file */

/* A text that is stored in a file. */
typedef struct tri_metadata {
    const char *key;
    const char *value;
} tri_metadata;

/* One tensor of a file; plain row-major bytes, little-endian. */
typedef struct tri_safetensors_entry {
    const char *name;
    tri_dtype dtype;       /* NONE for a type that Trireme can only copy: see type_name */
    const char *type_name; /* as in the file: "F32", "BF16", "U64", ...; ignored when writing */
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    const void *data; /* [bytes]; not necessarily aligned */
    size_t bytes;
    TRI_RESERVED(4);
} tri_safetensors_entry;

/**
 * Maps a file. Every offset, size, name and type is checked before the first entry can be seen.
 * While it is open nobody may shorten it: see tri_torch_open.
 * Errors: NOT_FOUND, IO, NO_MEMORY, FORMAT (names the file, the tensor and its offsets),
 *         UNSUPPORTED (a tensor of more than TRI_MAX_DIMS dimensions).
 */
TRI_API TRI_MUST_CHECK tri_status tri_safetensors_open(const char *path,
                                                       tri_safetensors **file_out);
/* NULL allowed; entries become invalid */
TRI_API void tri_safetensors_close(tri_safetensors *file);
TRI_API int64_t tri_safetensors_count(const tri_safetensors *file);
/* In the order of the bytes in the file; NULL if there is none of that index or name. Borrowed. */
TRI_API const tri_safetensors_entry *tri_safetensors_at(const tri_safetensors *file, int64_t index);
TRI_API const tri_safetensors_entry *tri_safetensors_find(const tri_safetensors *file,
                                                          const char *name);
/* The value of a key in the file's metadata, or NULL. Borrowed. */
TRI_API const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key);
/* A persistent tensor with a copy of an entry's contents, released with tri_tensor_unref; a failed
 * one (NOT_FOUND, UNSUPPORTED) if there is no entry of that name or Trireme can only copy its
 * type. */
TRI_API tri_tensor *tri_safetensors_tensor(const tri_safetensors *file, const char *name);

/**
 * Writes a file, byte for byte what the Python package writes for the same tensors. It appears
 * under its name only when it is complete and on disk. It keeps the owner, group and
 * permissions of a file that it replaces, as far as this process may set them; a link stays, and
 * its target is written, even if that does not exist yet.
 *
 *   entries  [n]; names unique; type_name is not read
 *   meta     [n_meta], keys unique; NULL with 0
 *
 * Errors: INVALID_ARG, NO_MEMORY, IO (a full disk, say: names the file and the reason; an older
 *         file of that name is unchanged, and no other file is left behind).
 */
TRI_API TRI_MUST_CHECK tri_status tri_safetensors_write(const char *path,
                                                        const tri_safetensors_entry *entries,
                                                        int64_t n, const tri_metadata *meta,
                                                        int n_meta);

/* --- module state --------------------------------------------------------- */

/* Parameters and buffers of a module under PyTorch's names, as one safetensors file. Errors:
 * INVALID_ARG, NO_MEMORY, IO, as tri_safetensors_write, and those of the module. If the module's
 * parameters are sharded (stage 3 of tri_zero), cut (tri_parallelize) or in stages (tri_pipeline),
 * all ranks call it, and the first one writes. */
TRI_API TRI_MUST_CHECK tri_status tri_save(tri_module *module, const char *path);
/* Loads such a file, one of torch.save, a folder of such files with the index that hubs put there
 * (or the index's path), or one of torch.distributed.checkpoint or of DeepSpeed: contents decide.
 * Names that wrappers make count as without them (tri_module_load). Unless the options (NULL
 * allowed) say otherwise, every tensor of the module must be in the file with its shape and dtype,
 * and every tensor of the file in the module; if not, FORMAT names the first that are not, and the
 * module is unchanged. Errors: also NOT_FOUND; IO, NO_MEMORY (of a folder a part may be loaded);
 * those of the module. If its parameters are sharded or cut, all ranks call it, each with a file
 * that it can read. As for tri_torch_open, nobody may shorten a file meanwhile. */
TRI_API TRI_MUST_CHECK tri_status tri_load(tri_module *module, const char *path,
                                           const tri_load_options *opt);

/* --- training checkpoints ------------------------------------------------- */

typedef struct tri_checkpoint tri_checkpoint; /* an open one */

/* A file of its own in a checkpoint: either tensors beside those of the module and the optimizer
 * (averages of weights, a scaler's state) in NAME.safetensors, or a text in NAME.json. */
typedef struct tri_checkpoint_extra {
    const char *name;               /* up to 40 letters, digits, '-' and '_'; not "model",
                                     * "optimizer", "manifest" */
    const char *text;               /* NULL: tensors, */
    const tri_state_entry *entries; /* [n]; names unique, as tri_ema_state and its kin list them */
    int64_t n;
    TRI_RESERVED(2);
} tri_checkpoint_extra;

typedef struct tri_checkpoint_info {
    int64_t step;             /* finished optimizer steps: the checkpoint's name */
    int64_t epoch;            /* finished epochs */
    const tri_metadata *meta; /* [n_meta]: anything else that the program wants back */
    int n_meta;
    const tri_checkpoint_extra *extras; /* [n_extras]; names unique */
    int n_extras;                       /* up to 16 */
    TRI_RESERVED(2);
} tri_checkpoint_info;

typedef struct tri_checkpoint_save_options {
    int keep;                  /* how many of the checkpoints saved last stay; 0 = 3 */
    const int64_t *keep_steps; /* [n_keep_steps]: those of these steps stay, too: the best, say */
    int n_keep_steps;
    bool all_ranks; /* all ranks call it, whatever a strategy has divided */
    TRI_RESERVED(2);
} tri_checkpoint_save_options;

/**
 * Writes FOLDER/step-N and removes older ones. One process calls it (rank 0), since replicas are
 * equal. But where a strategy has divided some of the tensors, so that each rank has a piece, all
 * its ranks call it, with one step and one folder, on a disk that all share: each writes its pieces
 * into a file of its own, and rank 0 all else. Such a checkpoint can be restored on any number of
 * ranks, or in one process. A program for any strategy calls it on all ranks with .all_ranks: rank
 * 0 writes what is not in pieces, and the others return what it returns, once it does; of replicas
 * of parts (tri_ddp around tri_parallelize or a pipeline) the first save, for the others. The ranks
 * are those of the strategy that made the module, or those of the world without one. The state of
 * the random numbers (tri_rng of this context, the generator of initial values of this thread) is
 * saved with it.
 *
 *   folder     made if missing, with the folders above it
 *   optimizer  NULL allowed
 *   info       copied; keys of meta are unique
 *   opt        NULL = defaults
 *
 * The newest checkpoint is the one saved last, whatever its step: a run that went back to an
 * earlier step continues from there. Runs what was recorded. Blocks until the data is on disk.
 * Errors: INVALID_ARG, NO_MEMORY, IO (names file and reason; also if something that is not a
 *         checkpoint has the name), STATE (another process or thread is saving into the folder
 *         now). After a failure all earlier checkpoints are unchanged. Where all ranks call it also
 *         MISMATCH (they save different steps) and those of the group; a failure on one rank is
 *         that of all, and names it.
 */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_save(const char *folder, tri_module *module,
                                                      tri_optimizer *optimizer,
                                                      const tri_checkpoint_info *info,
                                                      const tri_checkpoint_save_options *opt);

/* --- saves that training does not wait for -------------------------------- */

/* Writes checkpoints on a thread of its own, while training goes on. It holds one copy of the
 * state, made when the first one is saved and kept: as many bytes as all the tensors together. One
 * thread at a time uses it. */
typedef struct tri_checkpoint_writer tri_checkpoint_writer;

/* For checkpoints in this folder (copied; need not exist yet). Errors: INVALID_ARG, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_writer_create(const char *folder,
                                                               tri_checkpoint_writer **writer_out);
/* Waits for the save in flight. That it failed, and nobody was told, is said in the log. */
TRI_API void tri_checkpoint_writer_destroy(tri_checkpoint_writer *writer); /* NULL allowed */
/**
 * As tri_checkpoint_save, of which it has the arguments and the order of checkpoints, but returns
 * as soon as the state has been copied. One save is in flight at a time: a second one waits for the
 * first. The checkpoint appears, and older ones go, once all of it is on disk. If the process ends
 * before (exit without _destroy, or a crash), there is none, and the earlier ones are as they were.
 * Where ranks have pieces of the state, or with .all_ranks, each has a writer, and all of them call
 * this; the first call makes groups of the writers' own, in which replicas that do not write hear
 * how the save has ended. tri_finalize neither waits for a save nor ends it. A child of fork() can
 * only destroy the writer, which then frees its copy; the save goes on in the parent. Errors:
 * INVALID_ARG, NO_MEMORY, those of the module and the optimizer. Also those of the save before it,
 * if it failed and nobody was told (as tri_checkpoint_save: IO, STATE,
 * ...): then this call has saved nothing, and the next one tries again. STATE: in a child of
 * fork().
 */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_writer_save(
    tri_checkpoint_writer *writer, tri_module *module, tri_optimizer *optimizer,
    const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt);
/* Blocks until no save is in flight. Errors: of the last save, if nobody was told yet: IO, STATE,
 * INVALID_ARG, NO_MEMORY; STATE in a child of fork(). */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_writer_wait(tri_checkpoint_writer *writer);
/* Whether a save is in flight; false if writer is NULL. Does not block. */
TRI_API bool tri_checkpoint_writer_is_busy(tri_checkpoint_writer *writer);
/* How long the last save that has ended took to write, in seconds, without the copy; 0 if there is
 * none. Does not block. */
TRI_API double tri_checkpoint_writer_seconds(tri_checkpoint_writer *writer);

/* --- reading them --------------------------------------------------------- */

/**
 * Opens the newest good checkpoint below `folder`, or `folder` itself if it is one. Sizes and
 * checksums are verified; checkpoints that are damaged or cannot be read are skipped with a warning
 * in the log. Links are followed.
 * Errors: NOT_FOUND (there is none, not even one that cannot be read), FORMAT (all are damaged; or
 *         `folder` itself is one and is damaged), IO (`folder`, or the newest of those that are not
 *         damaged, cannot be read), NO_MEMORY.
 */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_open(const char *folder,
                                                      tri_checkpoint **checkpoint_out);
/**
 * The same on all ranks of a group: the newest checkpoint that is whole on any of them, though
 * hosts share no disk. A host that lacks it gets it from a rank that has it, through the group,
 * into its own folder, where it appears as one that was saved there. All ranks have the same one
 * then, or the same failure. The newest is that with most saves before it.
 *
 *   group   NULL = the world, or this process alone where there is none
 *   folder  may be another one on each rank. Ranks that share a disk write it once.
 *
 * Collective; blocks. Takes 4 MiB of memory. Errors: INVALID_ARG; NOT_FOUND, FORMAT and IO as
 *   tri_checkpoint_open, if no rank has one that is whole; IO (names the rank and the reason) also
 *   if it cannot be written where it is lacking, FORMAT if it arrives damaged three times;
 *   NO_MEMORY, those of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_fetch(tri_group *group, const char *folder,
                                                       tri_checkpoint **checkpoint_out);
TRI_API void tri_checkpoint_close(tri_checkpoint *checkpoint); /* NULL allowed */
/* Finished optimizer steps and epochs, as they were saved; -1 if checkpoint is NULL. */
TRI_API int64_t tri_checkpoint_step(const tri_checkpoint *checkpoint);
TRI_API int64_t tri_checkpoint_epoch(const tri_checkpoint *checkpoint);
/* Its folder. Texts are borrowed while the checkpoint is open. */
TRI_API const char *tri_checkpoint_path(const tri_checkpoint *checkpoint);
/* The value of a key that was saved in info->meta, or NULL. */
TRI_API const char *tri_checkpoint_metadata(const tri_checkpoint *checkpoint, const char *key);
/* The text that was saved as an extra of this name, or NULL. */
TRI_API const char *tri_checkpoint_text(const tri_checkpoint *checkpoint, const char *name);
/* Whether it has tensors as an extra of this name, or, for "optimizer", an optimizer's state. */
TRI_API bool tri_checkpoint_has(const tri_checkpoint *checkpoint, const char *name);
/* Loads state into a module and an optimizer (NULL allowed) of the same structure, and into the
 * random state of this thread's context: what follows has the bits of a run that never stopped.
 * Each tensor stays on its device, wherever it was when it was saved; where this rank has a piece,
 * only that is read. How many ranks had saved it, and which pieces they had, does not matter.
 * Every rank calls it, and gets the seed, stream and step number of the rank that saved (tri_ddp
 * sets the stream to the rank again by itself): if ranks had different ones (steps that draw random
 * numbers on one rank alone count only there), set them again afterwards with tri_rng_state_set.
 * Everything is checked before anything changes. Errors: INVALID_ARG, FORMAT (as tri_load; also if
 * an optimizer is given and the checkpoint has none): nothing has changed; NO_MEMORY: a part may
 * have changed. Ranks of a pipeline, and those that have parts of its layers (tri_parallelize), all
 * return the failure of one of them; any other rank returns its own, and replicas (tri_ddp,
 * tri_zero) may have restored where one has not: end the job then. Nothing notices it later:
 * replicas of tri_ddp go on from two states, and in stages 1 and 2 of tri_zero, where each rank
 * updates its part for all, from a mixture of both. */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_restore(const tri_checkpoint *checkpoint,
                                                         tri_module *module,
                                                         tri_optimizer *optimizer);
/* Loads an extra's tensors. Names, shapes and dtypes must be those that were saved; the order
 * need not. Of a pipeline (tri_ema of it) these are the ones of this rank's stages; of tensors of
 * the program's own, which ranks of a pipeline have listed, each rank gets what it lists.
 * Everything is checked before anything changes.
 *
 *   entries  [n]; borrowed, as their tensors
 *
 * Errors: INVALID_ARG, NOT_FOUND (the checkpoint has no such extra), FORMAT (names what differs):
 * nothing has changed; NO_MEMORY, IO: a part may have changed. */
TRI_API TRI_MUST_CHECK tri_status tri_checkpoint_restore_extra(const tri_checkpoint *checkpoint,
                                                               const char *name,
                                                               const tri_state_entry *entries,
                                                               int64_t n);

TRI_END_DECLS

/* They may wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_save(...) TRI_SITE_STATUS_(tri_save(__VA_ARGS__))
#define tri_load(...) TRI_SITE_STATUS_(tri_load(__VA_ARGS__))
#define tri_checkpoint_save(...) TRI_SITE_STATUS_(tri_checkpoint_save(__VA_ARGS__))
#define tri_checkpoint_writer_save(...) TRI_SITE_STATUS_(tri_checkpoint_writer_save(__VA_ARGS__))
#define tri_checkpoint_fetch(...) TRI_SITE_STATUS_(tri_checkpoint_fetch(__VA_ARGS__))
#define tri_checkpoint_restore(...) TRI_SITE_STATUS_(tri_checkpoint_restore(__VA_ARGS__))
#endif

#endif
