/*
 * image_view.c - see image_view.h.
 */
#include "train/data/image_view.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "os/cpu.h"

void trii_view_work_fini(trii_view_work *work)
{
    trii_image_clear(&work->decoded);
    for (int k = 0; k < 2; k++)
        trii_free(work->buffers[k].bytes);
    trii_image_scratch_clear(&work->scratch);
    *work = (trii_view_work){0};
}

trii_view trii_view_of(const tri_field *field, const void *x)
{
    size_t size = tri_dtype_size(field->dtype);

    return (trii_view){
        .pixels = x,
        .plane = (size_t)field->shape[1] * (size_t)field->shape[2] * size,
        .row = (size_t)field->shape[2] * size,
        .step = size,
        .size = size,
        .channels = field->shape[0],
        .height = field->shape[1],
        .width = field->shape[2],
        .y1 = field->shape[1],
        .x1 = field->shape[2],
    };
}

tri_status trii_view_open(const void *file, size_t bytes, int channels, trii_view *view_out)
{
    trii_view v = {.file = file, .file_bytes = bytes, .size = 1, .channels = channels};
    tri_status status = trii_image_size(file, bytes, &v.height, &v.width);

    v.y1 = v.height;
    v.x1 = v.width;
    if (status == TRI_OK)
        *view_out = v;
    return status;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void trii_view_crop(trii_view *v, int64_t top, int64_t left, int64_t height, int64_t width)
{
    if (v->mirror)
        left = v->width - left - width;
    v->y0 = larger(v->y0, v->top); /* what a crop has cut off does not come back */
    v->y1 = smaller(v->y1, v->top + v->height);
    v->x0 = larger(v->x0, v->left);
    v->x1 = smaller(v->x1, v->left + v->width);
    v->top += top;
    v->left += left;
    v->height = height;
    v->width = width;
}

/* The pixels lie as [height, width, channels], rows `row` apart, from (0, 0) on. */
static void show_pixels(trii_view *v, const unsigned char *pixels, int64_t height, int64_t width)
{
    v->pixels = pixels;
    v->plane = 1;
    v->step = (size_t)v->channels;
    v->row = (size_t)width * v->step;
    v->y0 = v->x0 = 0;
    v->y1 = height;
    v->x1 = width;
}

/* Memory for this many bytes, which is not that of the call before. */
static unsigned char *take_buffer(trii_view_work *work, size_t bytes)
{
    int k = work->turn = 1 - work->turn;

    if (bytes > work->buffers[k].room) {
        void *grown = trii_realloc(work->buffers[k].bytes, bytes, 1, "pixels of an image");

        if (grown == NULL)
            return NULL;
        work->buffers[k].bytes = grown;
        work->buffers[k].room = bytes;
    }
    return work->buffers[k].bytes;
}

/* A part of the resized image, straight from the file: its pixels are never all in memory. */
static tri_status decode_resized(trii_view *v, const trii_image_window *part, trii_view_work *work)
{
    const trii_resizing resizing = {v->window, v->resized_height, v->resized_width, *part};
    unsigned char *to = take_buffer(work, (size_t)(v->channels * part->height * part->width));
    tri_status status = to != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_image_decode_resized(v->file, v->file_bytes, &resizing, (int)v->channels, to,
                                           &work->scratch, &work->decoded);
    if (status == TRI_OK)
        show_pixels(v, to, part->height, part->width);
    return status;
}

static tri_status decode_part(trii_view *v, const trii_image_window *part, trii_view_work *work)
{
    tri_status status =
        trii_image_decode(v->file, v->file_bytes, part, (int)v->channels, &work->decoded);

    if (status == TRI_OK)
        show_pixels(v, work->decoded.pixels, part->height, part->width);
    return status;
}

tri_status trii_view_decode(trii_view *v, trii_view_work *work)
{
    int64_t top = larger(v->y0, v->top), left = larger(v->x0, v->left);
    trii_image_window window = {.top = top,
                                .left = left,
                                .height = smaller(v->y1, v->top + v->height) - top,
                                .width = smaller(v->x1, v->left + v->width) - left};
    bool sees_nothing = window.height < 1 || window.width < 1; /* only the zeros around */
    tri_status status;

    if (v->file == NULL)
        return TRI_OK;
    if (sees_nothing) /* damage is found all the same */
        window = (trii_image_window){.height = 1, .width = 1};
    status =
        v->resized_height > 0 ? decode_resized(v, &window, work) : decode_part(v, &window, work);
    if (status != TRI_OK)
        return status;
    if (sees_nothing)
        v->y1 = 0;
    v->top -= top;
    v->left -= left;
    v->file = NULL;
    return TRI_OK;
}

static bool is_seen_whole(const trii_view *v)
{
    return v->top >= v->y0 && v->top + v->height <= v->y1 && v->left >= v->x0 &&
           v->left + v->width <= v->x1;
}

/* Copies what is seen, so that it is all that there is. */
static tri_status cut_out(trii_view *v, trii_view_work *work)
{
    unsigned char *bytes =
        take_buffer(work, (size_t)(v->channels * v->height * v->width) * v->size);
    tri_field field = {TRI_DTYPE_U8, 3, {v->channels, v->height, v->width}};

    if (bytes == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_view_copy(v, bytes);
    *v = trii_view_of(&field, bytes);
    return TRI_OK;
}

/* What a resize makes is all that there is. */
static void show_resized(trii_view *v, int64_t height, int64_t width)
{
    v->top = v->left = v->y0 = v->x0 = 0;
    v->height = v->y1 = height;
    v->width = v->x1 = width;
}

tri_status trii_view_resize(trii_view *v, int64_t height, int64_t width, trii_view_work *work)
{
    unsigned char *to;
    tri_status status;

    if (height == v->height && width == v->width)
        return TRI_OK;
    /* before there is memory: an image of one row would become one of thousands of millions */
    status = trii_resize_check(v->height, v->width, (int)v->channels, height, width, NULL);
    if (status != TRI_OK)
        return status;
    if (v->file != NULL && v->resized_height == 0 && !v->mirror && is_seen_whole(v)) {
        v->window = (trii_image_window){v->top, v->left, v->height, v->width};
        v->resized_height = height;
        v->resized_width = width;
        show_resized(v, height, width);
        return TRI_OK;
    }
    status = trii_view_decode(v, work);
    if (status == TRI_OK && (v->mirror || !is_seen_whole(v)))
        status = cut_out(v, work);
    if (status != TRI_OK)
        return status;
    to = take_buffer(work, (size_t)(v->channels * height * width));
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t c = 0; c < (v->step == 1 ? v->channels : 1) && status == TRI_OK; c++)
        status = trii_image_resize(v->pixels + (size_t)c * v->plane + (size_t)v->top * v->row +
                                       (size_t)v->left * v->step,
                                   v->height, v->width, v->row, (int)v->step, NULL, height, width,
                                   to + c * height * width, &work->scratch);
    if (status != TRI_OK)
        return status;
    if (v->step == 1) {
        *v = trii_view_of(&(tri_field){TRI_DTYPE_U8, 3, {v->channels, height, width}}, to);
        return TRI_OK;
    }
    show_pixels(v, to, height, width);
    show_resized(v, height, width);
    return TRI_OK;
}

/* Where in a row of the view pixels are seen, [*first_out, *end_out), and the column of `pixels`
 * that the first one of these shows. */
static int64_t seen_columns(const trii_view *v, int64_t *first_out, int64_t *end_out)
{
    int64_t first = larger(v->x0 - v->left, 0), end = smaller(v->x1 - v->left, v->width);

    if (end <= first) {
        *first_out = *end_out = 0;
        return 0;
    }
    *first_out = v->mirror ? v->width - end : first;
    *end_out = v->mirror ? v->width - first : end;
    return v->left + (v->mirror ? end - 1 : first);
}

static void copy_elements(const unsigned char *from, ptrdiff_t step, size_t size, int64_t n,
                          unsigned char *to)
{
    if (step == (ptrdiff_t)size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    if (size == 1) {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i * step];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * size, from + i * step, size);
}

void trii_view_copy(const trii_view *v, void *to)
{
    ptrdiff_t step = v->mirror ? -(ptrdiff_t)v->step : (ptrdiff_t)v->step;
    size_t row_bytes = (size_t)v->width * v->size;
    unsigned char *at = to;
    int64_t first, end, column = seen_columns(v, &first, &end);

    for (int64_t c = 0; c < v->channels; c++) {
        const unsigned char *plane = v->pixels + (size_t)c * v->plane;

        for (int64_t y = v->top; y < v->top + v->height; y++, at += row_bytes) {
            if (y < v->y0 || y >= v->y1) {
                memset(at, 0, row_bytes);
                continue;
            }
            memset(at, 0, (size_t)first * v->size);
            copy_elements(plane + (size_t)y * v->row + (size_t)column * v->step, step, v->size,
                          end - first, at + (size_t)first * v->size);
            memset(at + (size_t)end * v->size, 0, (size_t)(v->width - end) * v->size);
        }
    }
}

/* --- numbers -------------------------------------------------------------- */

static void fill(float *to, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* A byte divided by 255, rounded once: the first product is exact, since HIGH has 16 bits, and the
 * second is what HIGH lacks. All 256 are compared in a test. */
#define HIGH 0x1.0102p-8F
#define LOW ((float)(1 / 255.0 - 0x1.0102p-8))

static inline float number_of(unsigned char byte, float mean, float std)
{
    return ((float)byte * HIGH + (float)byte * LOW - mean) / std;
}

/* n pixels of a row, `step` bytes apart. */
typedef void (*convert_row)(const unsigned char *from, ptrdiff_t step, int64_t n, float mean,
                            float std, float *to);

static void convert_portable(const unsigned char *from, ptrdiff_t step, int64_t n, float mean,
                             float std, float *to)
{
    if (step == 1) { /* which the compiler vectorises */
        for (int64_t i = 0; i < n; i++)
            to[i] = number_of(from[i], mean, std);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = number_of(from[i * step], mean, std);
}

#if defined(__x86_64__)
/* Eight at a time; the last eight may have some of those before them again. */
TRII_TARGET("avx2")
static void convert_avx2(const unsigned char *from, ptrdiff_t step, int64_t n, float mean,
                         float std, float *to)
{
    const __m256 high = _mm256_set1_ps(HIGH), low = _mm256_set1_ps(LOW);
    const __m256 means = _mm256_set1_ps(mean), stds = _mm256_set1_ps(std);

    if (n < 8 || (step != 1 && step != -1)) {
        convert_portable(from, step, n, mean, std, to);
        return;
    }
    for (int64_t i = 0; i < n; i += 8) {
        int64_t at = i < n - 8 ? i : n - 8;
        uint64_t word;
        __m256 x;

        memcpy(&word, step == 1 ? from + at : from - at - 7, 8);
        word = step == 1 ? word : __builtin_bswap64(word);
        x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)word)));
        x = _mm256_add_ps(_mm256_mul_ps(x, high), _mm256_mul_ps(x, low));
        _mm256_storeu_ps(to + at, _mm256_div_ps(_mm256_sub_ps(x, means), stds));
    }
}
#endif

static convert_row best_row(void)
{
#if defined(__x86_64__)
    if (trii_cpu_isa() >= TRII_ISA_AVX2)
        return convert_avx2;
#endif
    return convert_portable;
}

/* The rows lie one after the other, as those of the result do. */
static bool is_plain(const trii_view *v)
{
    return !v->mirror && v->step == 1 && (size_t)v->width == v->row && v->left == 0 && v->x0 <= 0 &&
           v->x1 >= v->width && v->top >= v->y0 && v->top + v->height <= v->y1;
}

static void convert_plane(const trii_view *v, int c, convert_row convert, float mean, float std,
                          float *to)
{
    ptrdiff_t step = v->mirror ? -(ptrdiff_t)v->step : (ptrdiff_t)v->step;
    const unsigned char *plane = v->pixels + (size_t)c * v->plane;
    float zero = number_of(0, mean, std);
    int64_t first, end, column = seen_columns(v, &first, &end);

    if (is_plain(v)) {
        convert(plane + (size_t)v->top * v->row, 1, v->height * v->width, mean, std, to);
        return;
    }
    for (int64_t y = v->top; y < v->top + v->height; y++, to += v->width) {
        if (y < v->y0 || y >= v->y1) {
            fill(to, v->width, zero);
            continue;
        }
        if (first > 0)
            fill(to, first, zero);
        convert(plane + (size_t)y * v->row + (size_t)column * v->step, step, end - first, mean, std,
                to + first);
        if (end < v->width)
            fill(to + end, v->width - end, zero);
    }
}

/* Pixels whose channels lie together: for trii_image_to_chw, which takes them without gaps. */
static tri_status convert_pixels(const trii_view *v, const float *mean, const float *std, float *to,
                                 trii_view_work *work)
{
    size_t row = (size_t)v->width * v->step;
    int64_t first = larger(v->x0 - v->left, 0), end = smaller(v->x1 - v->left, v->width);
    const unsigned char *pixels = v->pixels;
    unsigned char *at;

    if (!is_seen_whole(v) || row != v->row || v->top != 0) {
        pixels = at = take_buffer(work, (size_t)v->height * row);
        if (at == NULL)
            return TRI_ERR_NO_MEMORY;
        for (int64_t y = v->top; y < v->top + v->height; y++, at += row) {
            if (!is_seen_whole(v))
                memset(at, 0, row);
            if (y >= v->y0 && y < v->y1 && first < end)
                memcpy(at + (size_t)first * v->step,
                       v->pixels + (size_t)y * v->row + (size_t)(v->left + first) * v->step,
                       (size_t)(end - first) * v->step);
        }
    }
    trii_image_to_chw(pixels, v->height, v->width, (int)v->channels, v->mirror, mean, std, to);
    return TRI_OK;
}

tri_status trii_view_to_float(const trii_view *v, const float *mean, const float *std, float *to,
                              trii_view_work *work)
{
    convert_row convert = best_row();

    if (v->step != 1)
        return convert_pixels(v, mean, std, to, work);
    for (int c = 0; c < v->channels; c++, to += v->height * v->width)
        convert_plane(v, c, convert, mean[c], std[c], to);
    return TRI_OK;
}
