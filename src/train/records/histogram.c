/*
 * histogram.c - see histogram.h.
 *
 * The limit above a value is found by its exponent and the three bits after it: eight cells
 * to a power of two, where limits lie 7.3 to one, so a value is compared with two of them, seldom
 * with three.
 */
#include "train/records/histogram.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "os/thread.h"

#define SMALLEST 1e-12
#define GROWTH 1.1

#define CELL_SHIFT 49 /* what is left of a double: its exponent and 3 bits */
#define FIRST_CELL ((uint64_t)(1023 - 40) << 3)
#define CELLS ((40 + 67) * 8)

static double magnitudes[TRII_HISTOGRAM_SIDE];
static uint16_t first_above[CELLS]; /* the first limit that is not below all of a cell */

static uint64_t cell_of(double magnitude)
{
    uint64_t bits;

    memcpy(&bits, &magnitude, sizeof(bits));
    return bits >> CELL_SHIFT;
}

static void fill_tables(void)
{
    double v = SMALLEST;
    int at = 0;

    for (int i = 0; i < TRII_HISTOGRAM_SIDE; i++, v *= GROWTH) /* rounded as PyTorch rounds */
        magnitudes[i] = v;
    for (uint64_t cell = 0; cell < CELLS; cell++) {
        while (at < TRII_HISTOGRAM_SIDE - 1 && cell_of(magnitudes[at]) < cell + FIRST_CELL)
            at++;
        first_above[cell] = (uint16_t)at;
    }
}

/* How many magnitudes are below this one, or not above it. */
static int count_below(double magnitude, bool or_equal)
{
    uint64_t cell = cell_of(magnitude);
    int at = cell < FIRST_CELL            ? 0
             : cell >= FIRST_CELL + CELLS ? TRII_HISTOGRAM_SIDE
                                          : first_above[cell - FIRST_CELL];

    while (at < TRII_HISTOGRAM_SIDE &&
           (magnitudes[at] < magnitude || (or_equal && magnitudes[at] == magnitude)))
        at++;
    return at;
}

/* The first limit that is above the value. */
static int bucket_of(double value)
{
    return value >= 0 ? TRII_HISTOGRAM_SIDE + 1 + count_below(fabs(value), true)
                      : TRII_HISTOGRAM_SIDE - count_below(-value, false);
}

static double value_at(const void *values, int64_t i, tri_dtype dtype)
{
    switch (dtype) {
    case TRI_DTYPE_F64:
        return ((const double *)values)[i];
    case TRI_DTYPE_I64:
        return (double)((const int64_t *)values)[i];
    case TRI_DTYPE_I32:
        return ((const int32_t *)values)[i];
    case TRI_DTYPE_U8:
        return ((const uint8_t *)values)[i];
    default:
        return ((const float *)values)[i];
    }
}

static void cut_ends(trii_histogram *out)
{
    int last = TRII_HISTOGRAM_LIMITS;

    if (out->n == 0) { /* the one that ends at 0 */
        out->first = TRII_HISTOGRAM_SIDE;
        out->buckets = 1;
        return;
    }
    while (out->counts[last] == 0)
        last--;
    while (out->first < last && out->counts[out->first] == 0)
        out->first++;
    if (out->first > 0) /* an empty one before the first, so that its lower limit is known */
        out->first--;
    out->buckets = last - out->first + 1;
}

void trii_histogram_make(const void *values, int64_t n, tri_dtype dtype, trii_histogram *out)
{
    static trii_once once = TRII_ONCE_INITIALIZER;

    trii_once_run(&once, fill_tables);
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < TRII_HISTOGRAM_SIDE; i++) {
        out->limits[i] = -magnitudes[TRII_HISTOGRAM_SIDE - 1 - i];
        out->limits[TRII_HISTOGRAM_SIDE + 1 + i] = magnitudes[i];
    }
    out->limits[TRII_HISTOGRAM_LIMITS] = DBL_MAX;
    for (int64_t i = 0; i < n; i++) {
        double v = value_at(values, i, dtype);

        if (!isfinite(v))
            continue;
        out->min = out->n == 0 || v < out->min ? v : out->min;
        out->max = out->n == 0 || v > out->max ? v : out->max;
        out->n++;
        out->sum += v;
        out->sum_squares += v * v;
        out->counts[bucket_of(v)]++;
    }
    cut_ends(out);
}
