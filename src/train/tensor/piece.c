/*
 * piece.c - see piece.h. Called by checkpoint/.
 */
#include "train/tensor/piece.h"

#include <stdio.h>
#include <string.h>

bool trii_piece_fits(const trii_piece *piece, const int64_t *shape, int ndim)
{
    bool flat = piece->ndim == 1 && ndim != 1;
    int64_t elems = 1, strides = 1; /* neither may overflow, even beside a size of 0 */

    if (ndim < 0 || ndim > TRI_MAX_DIMS || (piece->ndim != ndim && piece->ndim != 1))
        return false;
    if (piece->parts > 1 && (flat || ndim == TRI_MAX_DIMS || piece->along < 0 ||
                             piece->along >= ndim || shape[piece->along] % piece->parts != 0))
        return false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(strides, shape[d] > 0 ? shape[d] : 1, &strides))
            return false;
        elems *= shape[d];
    }
    for (int d = 0; d < piece->ndim; d++) {
        int64_t whole = flat ? elems : shape[d];

        if (piece->parts > 1 && d == piece->along)
            whole /= piece->parts;
        if (piece->size[d] < 0 || piece->offset[d] < 0 || piece->size[d] > whole ||
            piece->offset[d] > whole - piece->size[d])
            return false;
    }
    return true;
}

int64_t trii_piece_count(const trii_piece *piece)
{
    int64_t n = 1;

    for (int d = 0; d < piece->ndim; d++)
        n *= trii_piece_size(piece, d);
    return n;
}

trii_piece trii_piece_part(const trii_piece *piece, const int64_t *shape, int part)
{
    trii_piece one = *piece;

    one.offset[one.along] += part * (shape[one.along] / (one.parts > 1 ? one.parts : 1));
    one.parts = 0;
    return one;
}

/* Of the tensor with the parts as a dimension of their own. */
static trii_runs runs_of_parts(const trii_piece *piece, const int64_t *shape, int ndim)
{
    trii_piece wide = {.ndim = ndim + 1};
    int64_t wide_shape[TRI_MAX_DIMS] = {0};

    for (int d = 0, to = 0; d < ndim; d++, to++) {
        if (d == piece->along) {
            wide_shape[to] = piece->parts;
            wide.size[to++] = piece->parts;
        }
        wide_shape[to] = shape[d] / (d == piece->along ? piece->parts : 1);
        wide.offset[to] = piece->offset[d];
        wide.size[to] = piece->size[d];
    }
    return trii_piece_runs(&wide, wide_shape, ndim + 1);
}

trii_runs trii_piece_runs(const trii_piece *piece, const int64_t *shape, int ndim)
{
    trii_runs runs = {.n = 1, .length = 1};
    int64_t stride = 1;
    bool whole = true; /* all dimensions so far are: the run goes on over this one */

    if (piece->parts > 1)
        return runs_of_parts(piece, shape, ndim);
    if (piece->ndim == 1 && ndim != 1)
        return (trii_runs){
            .n = piece->size[0] > 0, .length = piece->size[0], .first = piece->offset[0]};
    for (int d = ndim - 1; d >= 0; d--) {
        runs.first += piece->offset[d] * stride;
        if (whole) {
            runs.length *= piece->size[d];
            whole = piece->size[d] == shape[d];
        } else {
            runs.n *= piece->size[d];
            runs.size[runs.ndim] = piece->size[d]; /* the last dimension first */
            runs.stride[runs.ndim++] = stride;
        }
        stride *= shape[d];
    }
    if (runs.length == 0)
        runs.n = 0;
    return runs;
}

int64_t trii_runs_start(const trii_runs *runs, int64_t index)
{
    int64_t at = runs->first;

    for (int d = 0; d < runs->ndim; d++) {
        at += index % runs->size[d] * runs->stride[d];
        index /= runs->size[d];
    }
    return at;
}

void trii_piece_copy(const trii_runs *from, const void *src, const trii_runs *to, void *dst,
                     size_t element_bytes)
{
    int64_t i = 0, k = 0;

    while (i < from->n && k < to->n) {
        int64_t a = trii_runs_start(from, i), b = trii_runs_start(to, k);
        int64_t begin = a > b ? a : b;
        int64_t a_end = a + from->length, b_end = b + to->length;
        int64_t end = a_end < b_end ? a_end : b_end;

        if (begin < end)
            memcpy((char *)dst + (size_t)(k * to->length + begin - b) * element_bytes,
                   (const char *)src + (size_t)(i * from->length + begin - a) * element_bytes,
                   (size_t)(end - begin) * element_bytes);
        if (a_end <= b_end)
            i++;
        if (b_end <= a_end)
            k++;
    }
}

static int64_t end_of(const trii_runs *runs)
{
    return trii_runs_start(runs, runs->n - 1) + runs->length;
}

bool trii_piece_meets(const trii_runs *a, const trii_runs *b)
{
    return a->n > 0 && b->n > 0 && a->first < end_of(b) && b->first < end_of(a);
}

int64_t trii_piece_within(const trii_runs *from, const trii_runs *to)
{
    if (from->n != 1 || to->n != 1 || to->first < from->first ||
        to->first + to->length > from->first + from->length)
        return -1;
    return to->first - from->first;
}

static size_t put_list(char *text, size_t used, const int64_t *list, int n)
{
    used += (size_t)snprintf(text + used, TRII_PIECE_TEXT - used, "[");
    for (int d = 0; d < n && used < TRII_PIECE_TEXT; d++)
        used += (size_t)snprintf(text + used, TRII_PIECE_TEXT - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)list[d]);
    if (used < TRII_PIECE_TEXT)
        used += (size_t)snprintf(text + used, TRII_PIECE_TEXT - used, "]");
    return used < TRII_PIECE_TEXT ? used : TRII_PIECE_TEXT - 1;
}

const char *trii_piece_text(const trii_piece *piece, char text[TRII_PIECE_TEXT])
{
    size_t used = put_list(text, 0, piece->offset, piece->ndim);

    used += (size_t)snprintf(text + used, TRII_PIECE_TEXT - used, " + ");
    if (used < TRII_PIECE_TEXT)
        used = put_list(text, used, piece->size, piece->ndim);
    if (used < TRII_PIECE_TEXT && piece->parts > 1)
        snprintf(text + used, TRII_PIECE_TEXT - used, " of each of %d parts", piece->parts);
    return text;
}
