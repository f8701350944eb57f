/*
 * data.h - data sets, samplers and loaders.
 *
 *     const tri_transform to_float = tri_transform_to_float();
 *     tri_dataset *train;
 *     tri_sampler *sampler;
 *     tri_loader *loader;
 *     tri_batch batch;
 *
 *     TRI_TRY(tri_dataset_idx("train-images.gz", "train-labels.gz", &train));
 *     TRI_TRY(tri_dataset_transform(train, &to_float, 1, &train));
 *     TRI_TRY(tri_sampler_distributed(tri_dataset_length(train), NULL, &sampler));
 *     TRI_TRY(tri_loader_create(train, sampler, 64, NULL, &loader));
 *     TRI_TRY(tri_loader_begin(loader, epoch, 0));
 *     while ((status = tri_loader_next(loader, &batch)) == TRI_OK)
 *         ... batch.fields[0] and batch.fields[1] are tensors of batch.size rows
 *
 * A sample has fields (image, label), each with one dtype and shape; a batch has one persistent
 * tensor per field, with the samples along a new first dimension. Random changes to a sample depend
 * on (seed, epoch, index) alone, never on threads or batches, so every run sees the same bits.
 *
 * Functions that make something write it on TRI_OK only, fail with INVALID_ARG or NO_MEMORY, and
 * block while they read files. One that owns its base has then destroyed it: after
 * tri_dataset_transform(d, .., &d) has failed, d must not be used. An object is used by one thread
 * at a time where nothing else is said.
 *
 * Shape letters: N batch, C channels, H height, W width.
 */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include <trireme/status.h>
#include <trireme/tensor.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

typedef struct tri_dataset tri_dataset;
typedef struct tri_sampler tri_sampler;
typedef struct tri_loader tri_loader;

#define TRI_MAX_FIELDS 16

/* --- data sets ------------------------------------------------------------ */

/* One field of a sample: its shape without the batch dimension, at most TRI_MAX_DIMS - 1 sizes. A
 * size of -1 varies from sample to sample (then the class has `sample`). */
typedef struct tri_field {
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
} tri_field;

/* The samples that are wanted: `indices[n]`, in this order, as they are in this epoch. Random
 * changes depend on (seed, epoch, index) and nothing else. */
typedef struct tri_request {
    const int64_t *indices;
    int64_t n;
    uint64_t seed;
    int64_t epoch;
    TRI_RESERVED(4);
} tri_request;

/* One sample, or a batch of samples, whose fields have shapes of their own. {0} is an empty one. */
typedef struct tri_sample {
    int n_fields;
    tri_field fields[TRI_MAX_FIELDS];
    void *data[TRI_MAX_FIELDS];       /* plain contents of each field; owned by the sample */
    struct tri_sample_memory *memory; /* owned by the library */
    TRI_RESERVED(4);
} tri_sample;

/* Memory for the contents of a field, which has this dtype and shape from now on; the old contents
 * of the field are lost, and those of the memory are undefined. NULL on failure, with the error
 * line set: the caller then returns any status from its callback, since the library knows the
 * failure. */
TRI_API void *tri_sample_room(tri_sample *sample, int field, tri_dtype dtype, const int64_t *shape,
                              int ndim);
/* Releases the memory; the sample is {0} again. NULL allowed. */
TRI_API void tri_sample_clear(tri_sample *sample);

/* A kind of data set. One of your own puts `tri_dataset base` first in its struct. */
typedef struct tri_dataset_class {
    const char *name; /* for messages */
    /* Writes field f of the request's i-th sample to (char *)slots[f] + i * (bytes of the field).
     * Called by several threads at once; may block. Returns OK or an error (< 0), which ends the
     * epoch with this status and this thread's error line (or one that names the class, if it set
     * none). NULL: samples are copied from where `peek` says. */
    tri_status (*read)(tri_dataset *self, const tri_request *request, void *const *slots);
    /* Where field f of a sample is in memory, for sets that keep samples there unchanged; never
     * fails. NULL: `read` makes it. */
    const void *(*peek)(const tri_dataset *self, int64_t index, int field);
    /* Optional: frees what self owns, and self. NULL: nothing is freed. */
    void (*destroy)(tri_dataset *self);
    /* Instead of those two, for samples that vary in size: makes room for every field of
     * request->indices[0] (tri_sample_room) and fills it. Threads and errors as with `read`. One of
     * the three is required. */
    tri_status (*sample)(tri_dataset *self, const tri_request *request, tri_sample *sample_out);
    TRI_RESERVED(8);
} tri_dataset_class;

struct tri_dataset {
    const tri_dataset_class *cls;
    int64_t length; /* samples */
    int n_fields;   /* 1 .. TRI_MAX_FIELDS */
    tri_field fields[TRI_MAX_FIELDS];
    TRI_RESERVED(8);
};

TRI_API int64_t tri_dataset_length(const tri_dataset *dataset);
TRI_API void tri_dataset_destroy(tri_dataset *dataset); /* NULL allowed */
/* Copies the samples of a request into the caller's memory, as a loader does. Any thread.
 * INVALID_ARG if samples vary in size. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_read(tri_dataset *dataset, const tri_request *request,
                                                   void *const *slots);
/* The one sample of a request (n is 1), of any data set. *sample_out is {0}, or an earlier sample,
 * whose memory is used again. Any thread. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_sample(tri_dataset *dataset,
                                                     const tri_request *request,
                                                     tri_sample *sample_out);

/* Arrays in memory: field f of sample i is at data[f] + i * (bytes of the field). `data` is
 * borrowed and must outlive the data set. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_arrays(int64_t length, const tri_field *fields,
                                                     const void *const *data, int n_fields,
                                                     tri_dataset **dataset_out);
/* `count` samples from `first` on; owns the base, even on failure. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_subset(tri_dataset *own_base, int64_t first,
                                                     int64_t count, tri_dataset **dataset_out);

/* --- IDX files (MNIST and its kin) ---------------------------------------- */

/* Images [count, H, W] and labels [count] of two IDX files, plain or gzip; read into memory. Field
 * 0 is the image as it is in the file (u8 [1, H, W]), field 1 the label (i64 []). Errors:
 * NOT_FOUND, IO, NO_MEMORY, FORMAT (wrong magic, truncated, bytes left over, counts differ): each
 * names the file and the numbers. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_idx(const char *images_path, const char *labels_path,
                                                  tri_dataset **dataset_out);

/* --- tokens --------------------------------------------------------------- */

typedef struct tri_dataset_tokens_options {
    int64_t stride;       /* from one window's start to the next; 0 = 1: every token of the file
                             begins a sample. The length of a window: an epoch sees each once */
    int64_t header_bytes; /* bytes to skip at the start of the file */
    TRI_RESERVED(4);
} tri_dataset_tokens_options;

/* Windows of `context` tokens from a file of token numbers and nothing else, such as nanoGPT's
 * train.bin: unsigned, little-endian, of 1, 2 or 4 bytes. Field 0 is the window (i64 [context]),
 * field 1 the token after each of its tokens. The file is mapped, may be larger than memory, and
 * must not shrink while it is used. Errors: NOT_FOUND, IO, FORMAT (not whole tokens, or less than
 * one window). */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_tokens(const char *path, int token_bytes,
                                                     int64_t context,
                                                     const tri_dataset_tokens_options *opt,
                                                     tri_dataset **dataset_out);

/* --- folders of images ---------------------------------------------------- */

typedef struct tri_dataset_image_folder_options {
    /* an image folder, or a data set made of one, whose classes and numbers count: that of
     * training, for validation. Borrowed for the call. NULL: the classes that are found */
    const tri_dataset *classes;
    int channels; /* 0 = 3: red, green, blue; 1: grey */
    /* a broken file (damaged, gone, no JPEG or PNG) is no error: the next whole file takes its
     * place, image and label, in every epoch, and it is named once in the log; that of a
     * tri_dataset_subset is of the subset */
    bool skip_broken;
    /* a file with lines of FILE TAB CLASS (more columns are not read); files are below dir. NULL:
     * dir/val_annotations.txt, if it lies beside the folder dir/images, as in tiny-imagenet */
    const char *annotations;
    bool allow_one_class; /* which is an error else, since every label is 0 */
    bool allow_empty;     /* classes without images */
    TRI_RESERVED(4);
} tri_dataset_image_folder_options;

/* Images in files, a folder for each class (torchvision's ImageFolder). The classes are the folders
 * in dir, in the order of their bytes; the samples of each are the files below it, at any depth,
 * that end in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp, sorted, links followed. JPEG and PNG
 * can be read, and are known by their content. Field 0 is the image (u8 [channels, H, W], which
 * varies; transforms make it one size), field 1 the number of its class (i64 []). Opening reads
 * names only, 100,000 in about a second, and keeps some 30 bytes of each. A sample is read and
 * decoded when it is asked for; of an image that is cropped first, only the part that is needed.
 * Memory: for each thread that reads, a file and an image. Errors: NOT_FOUND (no folder; no class;
 * a class without images), INVALID_ARG (one class only; classes that `classes` lacks), FORMAT (a
 * link to a folder that it lies in; a line of the list), IO, NO_MEMORY. Those of a sample name its
 * file, and FORMAT, UNSUPPORTED and NOT_FOUND mean that it is broken. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_image_folder(
    const char *dir, const tri_dataset_image_folder_options *opt, tri_dataset **dataset_out);
/* Of an image folder, or a data set made of one: how many classes it has (0: it is none), and the
 * name of one, as bytes of the file system; NULL if there is no such class. Lives as long as the
 * data set. */
TRI_API int64_t tri_dataset_class_count(const tri_dataset *dataset);
TRI_API const char *tri_dataset_class_name(const tri_dataset *dataset, int64_t class_index);
/* Files that skip_broken has skipped so far, each counted once. Any thread. */
TRI_API int64_t tri_dataset_broken_count(const tri_dataset *dataset);

/* --- transforms --------------------------------------------------------------
 *
 *     const tri_transform look[] = {tri_transform_random_crop(28, 28, 2),
 *                                   tri_transform_random_horizontal_flip(0.5),
 *                                   tri_transform_to_float(),
 *                                   tri_transform_normalize(&mean, &std, 1)};
 *     TRI_TRY(tri_dataset_transform(train, look, 4, &train));
 *
 * Applied one after the other, each to one field (0, unless you set `field`), as by torchvision's
 * Compose. The base may have transforms itself. Transforms of images that follow each other are one
 * pass over the pixels, with to_float and normalize if those come next: this list costs a quarter
 * of a microsecond for 28 x 28 pixels. */

/* The random numbers of one transform of one sample: they depend on (seed, epoch, index) and the
 * transform's place in the list, and nothing else. */
typedef struct tri_draws tri_draws;
TRI_API double tri_draws_uniform(tri_draws *draws);           /* in [0, 1); 0 if draws is NULL */
TRI_API int64_t tri_draws_below(tri_draws *draws, int64_t n); /* 0 .. n-1; 0 for n < 1 */

/* The functions below make one; or write your own. */
typedef struct tri_transform {
    const char *name; /* for messages; borrowed */
    int field;
    /* Turns the field's dtype and shape (-1: varies) into those after the transform; INVALID_ARG if
     * the transform cannot take the field. NULL: they stay the same. */
    tri_status (*shape)(const struct tri_transform *self, tri_field *field_inout);
    /* Makes room for field 0 of `out` and fills it, from x of dtype and shape `in`. Called by
     * several threads at once; returns OK or an error, like `read` of a data set. */
    tri_status (*apply)(const struct tri_transform *self, const tri_field *in, const void *x,
                        tri_draws *draws, tri_sample *out);
    double numbers[20]; /* for the two functions, */
    void *arg;          /* and so is this; borrowed */
    TRI_RESERVED(8);
} tri_transform;

/* The samples of a data set after transforms[n], 0 to 64, which are copied. Owns the base, even on
 * failure. Errors: INVALID_ARG names the transform and what it cannot do with the field. */
TRI_API TRI_MUST_CHECK tri_status tri_dataset_transform(tri_dataset *own_base,
                                                        const tri_transform *transforms, int n,
                                                        tri_dataset **dataset_out);

/* For images [C, H, W] of any dtype: a part of this size, at random from the image with `padding`
 * zeros on each side; or from the middle, to the pixel as in torchvision, with zeros around an
 * image that is smaller. */
TRI_API tri_transform tri_transform_random_crop(int64_t height, int64_t width, int64_t padding);
TRI_API tri_transform tri_transform_center_crop(int64_t height, int64_t width);
/* For images u8 [C, H, W], as torchvision's with antialias (bilinear; Pillow's pixels, up to
 * version 12): the short side gets this size, and the long one keeps the proportion, rounded down;
 * or exactly this size. */
TRI_API tri_transform tri_transform_resize(int64_t short_side);
TRI_API tri_transform tri_transform_resize_to(int64_t height, int64_t width);

typedef struct tri_transform_random_resized_crop_options {
    tri_opt scale_min, scale_max; /* the part's share of the area; default 0.08 to 1 */
    tri_opt ratio_min, ratio_max; /* its width by its height; default 3/4 to 4/3 */
    TRI_RESERVED(4);
} tri_transform_random_resized_crop_options;
/* A part of the image of random size, proportion and place, resized to this size: torchvision's
 * RandomResizedCrop, with its formulas but draws of its own. */
TRI_API tri_transform tri_transform_random_resized_crop(
    int64_t height, int64_t width, const tri_transform_random_resized_crop_options *opt);

/* Mirrors left and right with probability p; torch's default is 0.5. */
TRI_API tri_transform tri_transform_random_horizontal_flip(double p);
/* u8 of any shape, 0 to 255, to f32, 0 to 1 (ToTensor). */
TRI_API tri_transform tri_transform_to_float(void);
/* (x - mean[c]) / std[c] of f32 [C, ..], 1 to 8 channels. */
TRI_API tri_transform tri_transform_normalize(const double *mean, const double *std, int channels);

/* --- which samples, in which order -------------------------------------------
 *
 * The samplers of torch.utils.data, with the same indices as theirs for a generator seeded by seed
 * + epoch. An epoch's indices depend on the options and the epoch alone. */

/* A kind of sampler. One of your own puts `tri_sampler base` first in its struct. */
typedef struct tri_sampler_class {
    const char *name; /* for messages */
    /* Writes the indices of an epoch, indices[self->length], each below the length of the data set.
     * Returns OK or an error (< 0), which tri_sampler_set_epoch and tri_loader_begin return. Called
     * only by the threads that call those. */
    tri_status (*draw)(tri_sampler *self, int64_t epoch, int64_t *indices);
    /* Optional: frees what self owns, and self. NULL: nothing is freed. */
    void (*destroy)(tri_sampler *self);
    TRI_RESERVED(8);
} tri_sampler_class;

struct tri_sampler {
    const tri_sampler_class *cls;
    int64_t length;   /* indices of an epoch, the same for all */
    int64_t *indices; /* owned by the library; NULL at the start */
    TRI_RESERVED(8);
};

/* 0 .. length-1 (SequentialSampler). */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_sequential(int64_t length, tri_sampler **sampler_out);

typedef struct tri_sampler_random_options {
    bool replacement;  /* each index is drawn from all: some come twice, others never */
    int64_t n_samples; /* 0 = length; more than length without replacement: several permutations */
    uint64_t seed;
    TRI_RESERVED(4);
} tri_sampler_random_options;
/* A permutation of 0 .. length-1 (RandomSampler); length >= 1. Memory: n_samples indices. */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_random(int64_t length,
                                                     const tri_sampler_random_options *opt,
                                                     tri_sampler **sampler_out);

typedef struct tri_sampler_weighted_options {
    bool no_replacement; /* at most as many samples as weights above 0; not PyTorch's numbers */
    int64_t n_samples;   /* 0 = n; with 1, PyTorch draws other numbers */
    uint64_t seed;
    TRI_RESERVED(4);
} tri_sampler_weighted_options;
/* Index i with probability weights[i] / sum of weights (WeightedRandomSampler): makes samples of
 * rare classes come more often, say. weights[n] are copied, finite and not negative. */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_weighted(const double *weights, int64_t n,
                                                       const tri_sampler_weighted_options *opt,
                                                       tri_sampler **sampler_out);

typedef struct tri_sampler_share_options {
    /* 0 = this process's world size and rank; STATE in a worker of a launcher before tri_init */
    int n_replicas;
    int rank; /* 0 .. n_replicas-1; must be 0 if n_replicas is */
    /* true: leave out samples that do not fill every replica; false: some samples come twice */
    bool drop_last;
    TRI_RESERVED(4);
} tri_sampler_share_options;
/* One replica's share of another sampler's order, which must be the same on all replicas. Owns the
 * base, even on failure. */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_share(tri_sampler *own_base,
                                                    const tri_sampler_share_options *opt,
                                                    tri_sampler **sampler_out);

typedef struct tri_sampler_distributed_options {
    int n_replicas, rank; /* as in tri_sampler_share_options */
    bool sequential;      /* do not shuffle */
    bool drop_last;       /* as in tri_sampler_share_options */
    uint64_t seed;        /* the same on all replicas */
    TRI_RESERVED(4);
} tri_sampler_distributed_options;
/* One replica's share of 0 .. length-1 (DistributedSampler), the usual choice. length >= 1. */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_distributed(
    int64_t length, const tri_sampler_distributed_options *opt, tri_sampler **sampler_out);

TRI_API void tri_sampler_destroy(tri_sampler *sampler); /* NULL allowed */
/* Draws an epoch's indices; a loader does this itself. Cost: O(length). Errors: INVALID_ARG,
 * NO_MEMORY, those of your own class. */
TRI_API TRI_MUST_CHECK tri_status tri_sampler_set_epoch(tri_sampler *sampler, int64_t epoch);
/* Number of indices in an epoch. */
TRI_API int64_t tri_sampler_length(const tri_sampler *sampler);
/* [tri_sampler_length], borrowed until the next set_epoch; NULL before the first. */
TRI_API const int64_t *tri_sampler_indices(const tri_sampler *sampler);

/* --- loaders -------------------------------------------------------------- */

/* Makes a batch of samples[n]: makes room for every field of the batch (tri_sample_room), with the
 * samples along its first dimension, and fills it; a batch may have other fields than a sample.
 * Called by several threads at once; returns OK or an error (< 0), like `read` of a data set. */
typedef tri_status (*tri_collate)(const tri_sample *samples, int64_t n, tri_sample *batch,
                                  void *arg);
/* torch's default_collate: stacks samples of one size. `arg` is not read. */
TRI_API TRI_MUST_CHECK tri_status tri_collate_default(const tri_sample *samples, int64_t n,
                                                      tri_sample *batch, void *arg);
typedef struct tri_collate_pad_options {
    /* what a field is padded with; values other than 0 only for f32, f64 and integers */
    double value[TRI_MAX_FIELDS];
    /* sizes of a sample's dimension d are rounded up to a multiple of this; 0 = 1. Fewer
     * different shapes mean fewer plans to compile */
    int64_t multiple[TRI_MAX_DIMS];
    TRI_RESERVED(4);
} tri_collate_pad_options;
/* Samples of different sizes: each is padded at the end of its dimensions to the largest of the
 * batch, as by torch's pad_sequence(batch_first=True). `arg`: const tri_collate_pad_options *, or
 * NULL for zeros. If the model needs the original lengths, the data set gives them as a field. */
TRI_API TRI_MUST_CHECK tri_status tri_collate_pad(const tri_sample *samples, int64_t n,
                                                  tri_sample *batch, void *arg);

typedef struct tri_loader_options {
    /* threads that prepare batches ahead; 0 = the caller prepares each one itself */
    int n_threads;
    int n_prefetch;      /* batches prepared ahead; 0 = 2 per thread. Determines the memory */
    bool drop_last;      /* leave out a last batch that is not full */
    uint64_t seed;       /* for random changes to the samples */
    tri_collate collate; /* NULL: as tri_collate_default */
    void *collate_arg;   /* passed to collate; borrowed */
    /* Accepted, without effect. Programs from torch set pin_memory for devices with memory of their
     * own, to which batches are copied; the cpu devices read them where they are. */
    bool pin_memory;
    TRI_RESERVED(8);
} tri_loader_options;

typedef struct tri_batch {
    int64_t index; /* 0, 1, ... in the epoch */
    int64_t size;  /* samples: the batch size, or fewer in the last batch */
    int n_fields;
    /* [size, field's shape], or what the collate function made; owned by the loader: valid until
     * its next call; tri_tensor_ref keeps one for longer */
    tri_tensor *fields[TRI_MAX_FIELDS];
    TRI_RESERVED(4);
} tri_batch;

/* Batches of `batch_size` samples, in the sampler's order (NULL: 0, 1, 2, ...), the same for every
 * number of threads. Dataset and sampler are borrowed and must outlive the loader; while an epoch
 * runs, only the loader may use the sampler. All memory is allocated here, unless batches differ in
 * size: batches lie in a ring of tensors that are used again and again (recorded work that still
 * reads one keeps it). Calls on one loader may come from any thread, one at a time. A child of
 * fork() must make its own loader: calls on one whose threads the parent made fail (STATE). Errors:
 * INVALID_ARG, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_loader_create(tri_dataset *dataset, tri_sampler *sampler,
                                                    int64_t batch_size,
                                                    const tri_loader_options *opt,
                                                    tri_loader **loader_out);
/* Stops the threads; blocks for at most one batch of work per thread. NULL allowed. */
TRI_API void tri_loader_destroy(tri_loader *loader);
/* Number of batches in an epoch. */
TRI_API int64_t tri_loader_length(const tri_loader *loader);
/* (Re)starts: sets the sampler to this epoch, and threads begin with batch `first_batch`, 0 to
 * tri_loader_length. Batches are the same wherever an epoch begins, so a run that resumes after
 * `first_batch` batches sees what it would have seen; the batches before cost nothing. Errors:
 * INVALID_ARG (the arguments, then a running epoch continues; or the sampler draws a sample that
 * the data set lacks), those of the sampler, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_loader_begin(tri_loader *loader, int64_t epoch,
                                                   int64_t first_batch);
/* The next batch; blocks until it is ready. TRI_END after the last one. A failure of the data set
 * is returned in place of the batch that it concerns. */
TRI_API TRI_MUST_CHECK tri_status tri_loader_next(tri_loader *loader, tri_batch *batch_out);

TRI_END_DECLS

#endif
