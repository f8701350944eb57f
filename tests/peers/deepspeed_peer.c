/*
 * deepspeed_peer.c - one rank of deepspeed_engine.py: trains a small network by a configuration
 * file and prints what that compares. `deepspeed_peer CONFIG MICRO_STEPS`, under trirun.
 */
#include <stdlib.h>

#include <trireme/trireme.h>

enum { BATCH = 4, IN = 4, HIDDEN = 8, OUT = 3 };

/* Between -1 and 1; deepspeed_engine.py draws the same. */
static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1.0f;
}

static tri_module *make_network(void)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(IN, HIDDEN, NULL), tri_nn_tanh(),
                                        tri_nn_linear(HIDDEN, OUT, NULL));
    uint32_t state = 7;
    float values[64];

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_tensor *tensor = tri_module_state(net, i).tensor;
        int64_t n = tri_tensor_numel(tensor);

        for (int64_t k = 0; k < n; k++)
            values[k] = draw(&state) * 0.5f;
        TRI_TRY(tri_tensor_copy_in(tensor, values, (size_t)n * sizeof(float)));
    }
    return net;
}

static void make_batch(int step, tri_tensor **x, tri_tensor **y)
{
    uint32_t state = (uint32_t)(1000 * step + tri_rank() + 1);
    float values[BATCH][IN];
    int64_t labels[BATCH];

    for (int i = 0; i < BATCH; i++) {
        for (int d = 0; d < IN; d++)
            values[i][d] = draw(&state);
        labels[i] = values[i][0] + values[i][1] > 0 ? 0 : values[i][2] > 0 ? 1 : 2;
    }
    *x = tri_tensor_from(TRI_SHAPE(BATCH, IN), TRI_DTYPE_F32, values);
    *y = tri_tensor_from(TRI_SHAPE(BATCH), TRI_DTYPE_I64, labels);
}

int main(int argc, char **argv)
{
    tri_engine *engine;
    long micro_steps;

    if (argc != 3)
        return 2;
    micro_steps = strtol(argv[2], NULL, 10);
    TRI_TRY(tri_initialize(NULL, make_network(), &(tri_initialize_options){.config = argv[1]},
                           &engine));
    for (int step = 0; step < micro_steps; step++) {
        tri_tensor *x, *y, *loss;

        make_batch(step, &x, &y);
        loss = tri_cross_entropy(tri_engine_forward(engine, x), y, NULL);
        tri_engine_backward(engine, loss);
        TRI_TRY(tri_engine_step(engine));
        printf("%d %d %.17g %.9g\n", tri_rank(), step, tri_engine_lr(engine), tri_item(loss));
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    tri_engine_destroy(engine);
    tri_finalize();
    return 0;
}
