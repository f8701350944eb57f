/*
 * kernels_attention.h - what attention does to a tile of scores; a template, see vec.h. Queries lie
 * in the lanes of vectors, so that nothing is added across them.
 */

VEC_FN void tile_softmax(const trii_tile *tile, float *max, float *sum, float *factor)
{
    for (int64_t q = 0; q < tile->vector; q += VEC_LANES) {
        const vec before = vec_load(max + q), none = vec_set(-INFINITY);
        vec largest = before, total = vec_set(0), shift;

        for (int64_t k = 0; k < tile->keys; k++) {
            vec s = vec_load(tile->s + k * TRII_TILE + q);

            largest = vec_select(s > largest, s, largest); /* a NaN shows up in the sum */
        }
        shift = vec_select(largest == none, vec_set(0), largest);
        for (int64_t k = 0; k < tile->keys; k++) {
            float *s = tile->s + k * TRII_TILE + q;
            vec e = vec_exp(vec_load(s) - shift);

            vec_store(s, e);
            total += e;
        }
        shift = vec_select(before == largest, vec_set(1), vec_exp(before - shift));
        vec_store(factor + q, shift);
        vec_store(max + q, largest);
        vec_store(sum + q, vec_load(sum + q) * shift + total);
    }
}

VEC_FN void tile_gradient(const trii_tile *tile, const float *lse, const float *total, float scale)
{
    for (int64_t q = 0; q < tile->vector; q += VEC_LANES) {
        vec shift = vec_load(lse + q), t = vec_load(total + q), zero = vec_set(0);
        const vec_i blind = shift == -INFINITY;

        /* a query that sees no key has weights of zero, whatever v holds */
        shift = vec_select(blind, vec_set(INFINITY), shift);
        for (int64_t k = 0; k < tile->keys; k++) {
            float *s = tile->s + k * TRII_TILE + q, *ds = tile->ds + k * TRII_TILE + q;
            vec p = vec_exp(vec_load(s) - shift);

            vec_store(s, p);
            vec_store(ds, vec_select(blind, zero, p * (vec_load(ds) - t) * scale));
        }
    }
}
