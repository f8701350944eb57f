/*
 * products_cut.h - a large product cut into rectangles of its result, one for each thread.
 */
#ifndef TRII_PRODUCTS_CUT_H
#define TRII_PRODUCTS_CUT_H

#include <stdbool.h>
#include <stdint.h>

#define TRII_CUT_COLUMNS 16 /* columns go in such units, rows in fewer */

typedef struct trii_product_cut {
    /* 1 and 1 on several threads: the library divides it, since it may cut along k */
    int64_t row_parts, column_parts;
} trii_product_cut;

typedef struct trii_rectangle {
    int64_t row, rows, column, columns;
} trii_rectangle;

/* The cut of m * n in which the busiest thread has the least work: multiplications, and the rows
 * and columns that it brings into its cache, which cost more if they are copied in another order
 * than they have. If every cut leaves too many threads idle: none. */
trii_product_cut trii_product_cut_for(int64_t m, int64_t n, int64_t threads, bool columns_copied);
/* Part i of row_parts * column_parts; may be empty. */
trii_rectangle trii_product_part(const trii_product_cut *cut, int64_t m, int64_t n, int64_t i);
/* Columns of the widest part. */
int64_t trii_product_columns(const trii_product_cut *cut, int64_t n);
/* Where part i of n parts of `size` begins, in whole units. */
int64_t trii_part_begin(int64_t size, int64_t unit, int64_t i, int64_t n);

#endif
