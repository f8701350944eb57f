/* lstm_cpu_test.c - the recurrence of an LSTM and its gradient against the reference kernels. */
#include "testing/device_models.h"

typedef struct lstm_case {
    tri_lstm_options opt;
    bool state;
} lstm_case;

static tri_tensor *build_lstm(tri_tensor *const *l, const void *options)
{
    const lstm_case *c = options;
    tri_lstm_options opt = c->opt;
    tri_tensor *weights[4] = {l[1], l[2], l[1], l[2]}, *out[3];

    if (c->state) {
        opt.h0 = l[3];
        opt.c0 = l[4];
    }
    tri_lstm(l[0], weights, opt.bidirectional ? 4 : 2, &opt, out);
    for (int i = 0; i < 3; i++)
        out[i] = tri_flatten(out[i], 0);
    return tri_concat(out, c->state ? 3 : 1, 0);
}

static model model_of(const lstm_case *c, int64_t steps, int64_t rows, int64_t hidden)
{
    int64_t directions = c->opt.bidirectional ? 2 : 1;

    return (model){.name = "lstm",
                   .n_leaves = c->state ? 5 : 3,
                   .shape = {{steps, rows, 5},
                             {4 * hidden, 5},
                             {4 * hidden, hidden},
                             {directions, rows, hidden},
                             {directions, rows, hidden}},
                   .ndim = {3, 2, 2, 3, 3},
                   .build = build_lstm,
                   .options = c,
                   .tolerance_bf16 = TOLERANCE_BF16_MODEL,
                   .tolerance = 20 * TOLERANCE};
}

static const lstm_case cases[] = {
    {.opt = {.no_bias = true}},
    {.opt = {.no_bias = true}, .state = true},
    {.opt = {.no_bias = true, .bidirectional = true}, .state = true},
};

/* Hidden sizes fill panels of the product, or leave some of one; rows fill tiles, or do not. */
static void sequences_of_every_size(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 1, 4}, {3, 9, 16}, {5, 4, 19}, {4, 13, 33}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
            const model m = model_of(&cases[k], sizes[i][0], sizes[i][1], sizes[i][2]);

            check_model(&m);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sequences_of_every_size),
};

TEST_MAIN(tests)
