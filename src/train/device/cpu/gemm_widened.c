/*
 * gemm_widened.c - products of bf16 in f32, for processors without bf16 instructions: blocks of
 * both sides are widened into scratch and multiplied there, so that whole operands are never
 * copied. The loops run over columns of the result, over the summed dimension, and over rows: each
 * block of b is widened once, and each block of a once for every thousand columns. Called by
 * products_bf16.c.
 */
#include "train/device/cpu/gemm_widened.h"

#define BLOCK_FLOATS (INT64_C(1) << 17) /* of a side */
/* of the summed dimension; after each block c is read and written again */
#define BLOCK_SUM 1024

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of a, or columns of b, that are widened at a time. */
static int64_t block_lines(int64_t lines, int64_t k)
{
    return least(lines, BLOCK_FLOATS / least(k, BLOCK_SUM));
}

int64_t trii_gemm_widened_floats(int64_t m, int64_t n, int64_t k)
{
    return least(k, BLOCK_SUM) * (block_lines(m, k) + block_lines(n, k));
}

/* Rows and columns from `from` on, in the order in which they lie, without gaps. */
static void widen(float *to, const uint16_t *from, int64_t rows, int64_t cols, int64_t row,
                  int64_t col)
{
    const trii_cpu_kernels *kernels = trii_cpu_kernels_get();
    int64_t line = col == 1 ? cols : rows, lines = col == 1 ? rows : cols;
    int64_t distance = col == 1 ? row : col;

    if (distance == line) {
        kernels->from_bf16(to, from, (size_t)(lines * line));
        return;
    }
    for (int64_t i = 0; i < lines; i++)
        kernels->from_bf16(to + i * line, from + i * distance, (size_t)line);
}

/* All rows of a with the block of b that begins at row l, column j. */
static int multiply_rows(const trii_gemm_bf16_args *g, int64_t l, int64_t j, trii_sgemm_args *part)
{
    int64_t rows = block_lines(g->m, g->k);
    float *a = (float *)(uintptr_t)part->a;
    int failed = 0;

    for (int64_t i = 0; i < g->m && failed == 0; i += rows) {
        part->m = least(rows, g->m - i);
        part->a_row = g->a_col == 1 ? part->k : 1;
        part->a_col = g->a_col == 1 ? 1 : part->m;
        part->c = g->c + i * g->c_row + j;
        widen(a, g->a + i * g->a_row + l * g->a_col, part->m, part->k, g->a_row, g->a_col);
        failed = trii_onednn_sgemm(part);
    }
    return failed;
}

int trii_gemm_widened(const trii_gemm_bf16_args *g, float *scratch)
{
    int64_t columns = block_lines(g->n, g->k), sum = least(g->k, BLOCK_SUM);
    float *b = scratch + sum * block_lines(g->m, g->k);
    int failed = 0;

    for (int64_t j = 0; j < g->n && failed == 0; j += columns) {
        for (int64_t l = 0; l < g->k && failed == 0; l += sum) {
            trii_sgemm_args part = {.n = least(columns, g->n - j),
                                    .k = least(sum, g->k - l),
                                    .a = scratch,
                                    .b = b,
                                    .c_row = g->c_row,
                                    .add = l > 0};

            part.b_row = g->b_col == 1 ? part.n : 1;
            part.b_col = g->b_col == 1 ? 1 : part.k;
            widen(b, g->b + l * g->b_row + j * g->b_col, part.k, part.n, g->b_row, g->b_col);
            failed = multiply_rows(g, l, j, &part);
        }
    }
    return failed;
}
