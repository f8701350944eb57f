/*
 * products_cut.c - see products_cut.h.
 */
#include "train/device/cpu/products_cut.h"

#define ROWS_UNIT 8

int64_t trii_part_begin(int64_t size, int64_t unit, int64_t i, int64_t n)
{
    int64_t units = (size + unit - 1) / unit;
    int64_t at = units * i / n * unit;

    return at < size ? at : size;
}

static int64_t largest_part(int64_t size, int64_t unit, int64_t n)
{
    int64_t units = (size + unit - 1) / unit, part = (units + n - 1) / n * unit;

    return part < size ? part : size;
}

trii_product_cut trii_product_cut_for(int64_t m, int64_t n, int64_t threads, bool columns_copied)
{
    trii_product_cut cut = {1, 1};
    int64_t least = INT64_MAX, busiest = 0;

    for (int64_t rows = 1; rows <= threads; rows++) {
        int64_t high, wide, cost;

        if (threads % rows != 0)
            continue;
        high = largest_part(m, ROWS_UNIT, rows);
        wide = largest_part(n, TRII_CUT_COLUMNS, threads / rows);
        cost = high * wide / 16 + high + wide * (columns_copied ? 3 : 1);
        if (cost >= least)
            continue;
        least = cost;
        busiest = high * wide;
        cut.row_parts = rows;
        cut.column_parts = threads / rows;
    }
    if (busiest * threads > 2 * m * n)
        cut.row_parts = cut.column_parts = 1;
    return cut;
}

trii_rectangle trii_product_part(const trii_product_cut *cut, int64_t m, int64_t n, int64_t i)
{
    int64_t y = i / cut->column_parts, x = i % cut->column_parts;
    trii_rectangle r = {
        .row = trii_part_begin(m, ROWS_UNIT, y, cut->row_parts),
        .column = trii_part_begin(n, TRII_CUT_COLUMNS, x, cut->column_parts),
    };

    r.rows = trii_part_begin(m, ROWS_UNIT, y + 1, cut->row_parts) - r.row;
    r.columns = trii_part_begin(n, TRII_CUT_COLUMNS, x + 1, cut->column_parts) - r.column;
    return r;
}

int64_t trii_product_columns(const trii_product_cut *cut, int64_t n)
{
    return largest_part(n, TRII_CUT_COLUMNS, cut->column_parts);
}
