/*
 * local_sgd_test.c - examples/local_sgd.c learns, sends less than DDP, and ends with equal
 * replicas; where it averages in every step its parameters are DDP's but for rounding.
 */
#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

typedef struct outcome {
    double before, ddp_loss, loss; /* on points that no worker has trained with */
    double apart;                  /* the parameters of the two trainings */
    size_t ddp_bytes, bytes;
} outcome;

/* The number after `words`, in the line that begins with `line`. */
static double number(const char *out, const char *line, const char *words)
{
    const char *at = strstr(out, line);
    double value = -1;

    if (at == NULL || (at = strstr(at, words)) == NULL ||
        sscanf(at + strlen(words), "%lf", &value) != 1)
        fail_msg("no number after \"%s\" and \"%s\" in:\n%s", line, words, out);
    return value;
}

/* All workers end well, with one state. */
static outcome train(int size, const char *steps, const char *every, const char *warmup)
{
    char workers[40], line[60];
    const char *out, *own;
    outcome o;
    trirun_job j;

    snprintf(workers, sizeof(workers), "--nproc-per-node=%d", size);
    TRIRUN_START(&j, "--standalone", workers, spawn_bin("local_sgd"), "--steps", steps, "--every",
                 every, "--warmup", warmup);
    if (spawn_wait(&j.run) != 0)
        fail_msg("%d workers: %s", size, SPAWN_ERR(&j.run));
    out = SPAWN_OUT(&j.run);
    o = (outcome){.before = number(out, "before ", "loss "),
                  .ddp_loss = number(out, "DDP ", "loss "),
                  .loss = number(out, "local SGD ", "loss "),
                  .apart = number(out, "their parameters ", "are "),
                  .ddp_bytes = (size_t)number(out, "DDP ", "each worker "),
                  .bytes = (size_t)number(out, "local SGD ", "each worker ")};
    own = strstr(out, "state is ");
    assert_non_null(own);
    snprintf(line, sizeof(line), "%.25s, equal to worker 0's\n", own); /* with the hash */
    if (trirun_count(out, line) != size)
        fail_msg("%d workers: not %d times %s in:\n%s", size, size, line, out);
    trirun_end(&j, 0);
    return o;
}

static void local_sgd_learns_and_sends_less_than_ddp(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        const outcome o = train(size, "1000", "8", "20");

        if (!(o.loss < o.before / 5 && o.ddp_loss < o.before / 5))
            fail_msg("%d workers: losses %g and %g, at first %g", size, o.loss, o.ddp_loss,
                     o.before);
        assert_in_range(o.bytes, 1, o.ddp_bytes / 5);
        assert_true(o.apart > 1e-3); /* two trainings, not one: far more than rounding */
    }
}

static void averaging_in_every_step_is_ddp_but_for_rounding(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        const outcome parameters = train(size, "200", "1", "0");
        const outcome gradients = train(size, "200", "1", "200");

        if (!(parameters.apart < 1e-4 && gradients.apart < 1e-4))
            fail_msg("%d workers: parameters %g apart, by gradients %g", size, parameters.apart,
                     gradients.apart);
        assert_true(parameters.bytes >= parameters.ddp_bytes);
    }
}

static void one_worker_sends_nothing(void **state)
{
    const outcome o = train(1, "10", "8", "5");

    (void)state;
    assert_true(o.apart == 0);
    assert_int_equal(o.bytes, 0);
    assert_int_equal(o.ddp_bytes, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(local_sgd_learns_and_sends_less_than_ddp),
    cmocka_unit_test(averaging_in_every_step_is_ddp_but_for_rounding),
    cmocka_unit_test(one_worker_sends_nothing),
};

TEST_MAIN(tests)
