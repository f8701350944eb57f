/* piece_test.c - what two pieces of a tensor have in common, found again element by element. */
#include "testing/check.h"
#include "testing/scratch.h"
#include "train/tensor/piece.h"

enum { MOST = 200 };

typedef struct whole {
    int ndim;
    int64_t shape[TRI_MAX_DIMS], elems;
} whole;

static whole random_whole(uint64_t *random)
{
    whole w = {.ndim = (int)(scratch_random(random) % 4), .elems = 1};

    for (int d = 0; d < w.ndim; d++) {
        w.shape[d] = scratch_random(random) % 6;
        w.elems *= w.shape[d];
    }
    return w;
}

static trii_piece random_piece(const whole *w, uint64_t *random)
{
    trii_piece p = {.ndim = w->ndim};

    if (scratch_random(random) % 2 == 0 || w->ndim == 0) {
        p.ndim = 1;
        p.offset[0] = scratch_random(random) % (uint32_t)(w->elems + 1);
        p.size[0] = scratch_random(random) % (uint32_t)(w->elems - p.offset[0] + 1);
        return p;
    }
    for (int d = 0; d < w->ndim; d++) {
        bool all = scratch_random(random) % 2 == 0;

        p.offset[d] = all ? 0 : scratch_random(random) % (uint32_t)(w->shape[d] + 1);
        p.size[d] =
            all ? w->shape[d] : scratch_random(random) % (uint32_t)(w->shape[d] - p.offset[d] + 1);
    }
    return p;
}

/* The elements of a piece in order; how many. */
static int64_t list(const whole *w, const trii_piece *p, int64_t elements[MOST])
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->elems; i++) {
        bool has = true;
        int64_t rest = i;

        if (p->ndim == 1 && w->ndim != 1)
            has = i >= p->offset[0] && i < p->offset[0] + p->size[0];
        for (int d = w->ndim - 1; d >= 0 && !(p->ndim == 1 && w->ndim != 1); d--) {
            int64_t at = rest % w->shape[d];

            has = has && at >= p->offset[d] && at < p->offset[d] + p->size[d];
            rest /= w->shape[d];
        }
        if (has)
            elements[n++] = i;
    }
    return n;
}

static void common_elements_are_copied(void **state)
{
    uint64_t random = 7;
    int n_within = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        whole w = random_whole(&random);
        trii_piece a = random_piece(&w, &random), b = random_piece(&w, &random);
        int64_t from[MOST], to[MOST], got[MOST], at;
        int64_t n = list(&w, &a, from), m = list(&w, &b, to), common = 0;
        trii_runs x = trii_piece_runs(&a, w.shape, w.ndim), y;

        y = trii_piece_runs(&b, w.shape, w.ndim);
        assert_true(trii_piece_fits(&a, w.shape, w.ndim));
        assert_int_equal(trii_piece_count(&a), n);
        assert_int_equal(x.n * x.length, n);
        memset(got, -1, sizeof(got));
        trii_piece_copy(&x, from, &y, got, sizeof(*got));
        for (int64_t i = 0; i < m; i++) {
            bool has = false;

            for (int64_t k = 0; k < n; k++)
                has = has || from[k] == to[i];
            assert_int_equal(got[i], has ? to[i] : -1);
            common += has;
        }
        for (int64_t i = m; i < MOST; i++)
            assert_int_equal(got[i], -1);
        if (common > 0)
            assert_true(trii_piece_meets(&x, &y));
        if (x.n <= 1 && y.n <= 1)
            assert_true(trii_piece_meets(&x, &y) == (common > 0));
        at = trii_piece_within(&x, &y);
        for (int64_t i = 0; at >= 0 && i < m; i++)
            assert_int_equal(from[at + i], to[i]);
        n_within += at >= 0;
    }
    assert_true(n_within > 1000);
}

/* Rows 1 and 2 of each third of [9, 2], and so columns of the transpose. */
static void the_same_box_of_each_part(void **state)
{
    const int64_t shape[2] = {9, 2}, turned[2] = {2, 9};
    const trii_piece rows = {2, {1, 0}, {2, 2}, 3, 0}, columns = {2, {0, 1}, {2, 2}, 3, 1};
    const trii_piece all = {2, {0, 0}, {2, 9}, 0, 0};
    trii_runs runs = trii_piece_runs(&rows, shape, 2), every = trii_piece_runs(&all, turned, 2);
    int64_t source[18], got[12];
    char text[TRII_PIECE_TEXT];

    (void)state;
    for (int i = 0; i < 18; i++)
        source[i] = i;
    assert_int_equal(trii_piece_count(&rows), 12);
    assert_int_equal(trii_piece_size(&rows, 0), 6);
    assert_int_equal(trii_piece_size(&rows, 1), 2);
    for (int64_t k = 0; k < runs.n; k++)
        assert_int_equal(trii_runs_start(&runs, k), 6 * k + 2);
    runs = trii_piece_runs(&columns, turned, 2);
    trii_piece_copy(&every, source, &runs, got, sizeof(*got));
    for (int i = 0; i < 12; i++)
        assert_int_equal(got[i], 9 * (i / 6) + 3 * (i % 6 / 2) + 1 + i % 2);
    for (int part = 0; part < 3; part++) {
        trii_piece one = trii_piece_part(&columns, turned, part);

        assert_int_equal(one.offset[1], 3 * part + 1);
        assert_int_equal(trii_piece_count(&one), 4);
    }
    assert_string_equal(trii_piece_text(&rows, text), "[1, 0] + [2, 2] of each of 3 parts");
}

static void pieces_outside_do_not_fit(void **state)
{
    static const int64_t shape[] = {2, 3}, huge[] = {INT64_MAX, INT64_MAX},
                         hidden[] = {0, INT64_MAX, INT64_MAX};
    static const struct {
        trii_piece piece;
        bool fits;
    } cases[] = {
        {{1, {0}, {6}, 0, 0}, true},          {{1, {6}, {0}, 0, 0}, true},
        {{1, {0}, {7}, 0, 0}, false},         {{1, {7}, {0}, 0, 0}, false},
        {{1, {-1}, {1}, 0, 0}, false},        {{1, {1}, {-1}, 0, 0}, false},
        {{1, {INT64_MAX}, {1}, 0, 0}, false}, {{1, {1}, {INT64_MAX}, 0, 0}, false},
        {{2, {0, 0}, {2, 3}, 0, 0}, true},    {{2, {1, 2}, {1, 1}, 0, 0}, true},
        {{2, {1, 2}, {1, 2}, 0, 0}, false},   {{2, {2, 0}, {1, 3}, 0, 0}, false},
        {{0, {0}, {0}, 0, 0}, false},         {{3, {0, 0, 0}, {1, 1, 1}, 0, 0}, false},
        {{-1, {0}, {0}, 0, 0}, false},        {{2, {0, 0}, {1, 3}, 2, 0}, true},
        {{2, {0, 0}, {2, 3}, 2, 0}, false},   {{2, {0, 1}, {2, 1}, 3, 1}, false},
        {{2, {0, 0}, {2, 1}, 3, 1}, true},    {{2, {0, 0}, {1, 1}, 2, 1}, false},
        {{2, {0, 0}, {1, 1}, 2, 2}, false},   {{1, {0}, {1}, 2, 0}, false},
    };
    const trii_piece none = {.ndim = 1};
    char text[TRII_PIECE_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(trii_piece_fits(&cases[i].piece, shape, 2) == cases[i].fits);
    assert_false(trii_piece_fits(&none, huge, 2));
    assert_false(trii_piece_fits(&none, hidden, 3));
    assert_true(trii_piece_fits(&none, huge, 1));
    assert_true(trii_piece_fits(&none, NULL, 0));
    assert_string_equal(trii_piece_text(&cases[9].piece, text), "[1, 2] + [1, 1]");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(common_elements_are_copied),
    cmocka_unit_test(the_same_box_of_each_part),
    cmocka_unit_test(pieces_outside_do_not_fit),
};
TEST_MAIN(tests)
