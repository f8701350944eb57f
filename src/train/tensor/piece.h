/*
 * piece.h - which part of a tensor a rank has, or a file: what parallel strategies say of tensors
 * (tri_tensor.held), and checkpoints store.
 *
 * A piece is a box: an offset and a size in each dimension of the whole tensor. Strategies that cut
 * a tensor without regard to its dimensions have a range of its elements in row-major order, which
 * is a box of the same elements as one dimension. (As boxes of the tensor's own dimensions a range
 * would be up to 2 ndim - 1 of them, with as many entries in a manifest.) Strategies that cut what
 * is several tensors in one, such as the projections of attention, have the same box of each. All
 * kinds are runs of contiguous elements, and whatever compares or copies pieces knows nothing else.
 */
#ifndef TRII_PIECE_H
#define TRII_PIECE_H

#include <trireme/tensor.h>

typedef struct tri_group tri_group; /* group.h */

typedef struct trii_piece {
    int ndim; /* the tensor's; or 1: of its elements in row-major order */
    int64_t offset[TRI_MAX_DIMS], size[TRI_MAX_DIMS];
    /* above 1: dimension `along` is so many equal ones in a row, and the box is one of each */
    int parts, along;
} trii_piece;

/* The size of a dimension of what the piece has. */
static inline int64_t trii_piece_size(const trii_piece *piece, int dim)
{
    return piece->size[dim] * (piece->parts > 1 && dim == piece->along ? piece->parts : 1);
}
/* One of its boxes, 0 <= part < parts, in a tensor of this shape. */
trii_piece trii_piece_part(const trii_piece *piece, const int64_t *shape, int part);

/* What a rank has of a tensor, where that is not all of it. If one rank of the group has this of a
 * tensor, all have it, though the piece may be empty. */
typedef struct trii_held {
    tri_group *group; /* the ranks whose pieces are the whole tensor */
    int ndim;         /* of the whole tensor, as its shape */
    int64_t shape[TRI_MAX_DIMS];
    trii_piece piece;
    tri_tensor *tensor; /* has the piece's elements in row-major order and no others; NULL: it is
                         * the tensor that points here */
    /* Not NULL: of the piece's elements, in row-major order, only a range is here, which begins
     * with this one; the ranks of this other group, which have the same piece, have the rest of it.
     */
    tri_group *shared_by;
    int64_t from;
    bool is_replica; /* another rank, which has the same piece, saves it: each element is saved by
                      * one rank */
    bool is_copy;    /* an earlier rank of `group` has the same piece, which counts once */
} trii_held;

/* Elements `start` to `start + count`, in row-major order. */
static inline trii_piece trii_piece_range(int64_t start, int64_t count)
{
    return (trii_piece){.ndim = 1, .offset = {start}, .size = {count}};
}

/* A piece as `n` runs of `length` contiguous elements each, in ascending order. */
typedef struct trii_runs {
    int64_t n, length;
    int64_t first; /* where the first one starts */
    int ndim;      /* of the dimensions over which there are several */
    int64_t size[TRI_MAX_DIMS], stride[TRI_MAX_DIMS];
} trii_runs;

/* False: the piece does not lie in a tensor of this shape, or the shape is none. */
bool trii_piece_fits(const trii_piece *piece, const int64_t *shape, int ndim);
int64_t trii_piece_count(const trii_piece *piece); /* of elements */
/* Of a piece that fits. */
trii_runs trii_piece_runs(const trii_piece *piece, const int64_t *shape, int ndim);
int64_t trii_runs_start(const trii_runs *runs, int64_t index);
/* Copies the elements that two pieces of one tensor have in common. src and dst hold all elements
 * of their pieces. */
void trii_piece_copy(const trii_runs *from, const void *src, const trii_runs *to, void *dst,
                     size_t element_bytes);
/* False: they have no element in common. (Of two that have several runs each: perhaps.) */
bool trii_piece_meets(const trii_runs *a, const trii_runs *b);
/* Where in `from` all elements of `to` lie in one row, or -1: they do not. */
int64_t trii_piece_within(const trii_runs *from, const trii_runs *to);
/* "[0, 2] + [5, 1]": offset and size. */
#define TRII_PIECE_TEXT 200
const char *trii_piece_text(const trii_piece *piece, char text[TRII_PIECE_TEXT]);

#endif
