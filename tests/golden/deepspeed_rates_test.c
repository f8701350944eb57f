/* deepspeed_rates_test.c - DeepSpeed's schedules for 30 updates, to the last digit that it prints
 * (deepspeed_rates.txt, made by make_deepspeed_rates.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "golden_sketch.h"
#include "testing/check.h"
#include "train/deepspeed/engine_config.h"

#define LR 0.02 /* of the optimizer */

/* Nothing but the digits that it takes to tell a number from others, as Python prints. */
static void check_number(const char *config, int step, const char *what, double ours, double theirs)
{
    char a[40], b[40];

    snprintf(a, sizeof(a), "%.16g", ours);
    snprintf(b, sizeof(b), "%.16g", theirs);
    if (strcmp(a, b) != 0)
        fail_msg("%s\nupdate %d: %s %s instead of %s", config, step, what, a, b);
}

static void check_update(const trii_engine_config *c, const char *config, int step,
                         const char *line)
{
    char *end;
    const double lr = strtod(line, &end), beta1 = strtod(end, &end), beta2 = strtod(end, NULL);
    const double momentum = trii_rate_momentum(&c->rate, step);

    check_number(config, step, "lr", trii_rate_at(&c->rate, LR, step), lr);
    if (!isnan(momentum))
        check_number(config, step, "beta1", momentum, beta1);
    else
        assert_true(beta1 == 0.9);
    assert_true(beta2 == (isnan(momentum) ? 0.999 : 0.99));
}

static void rates_and_momenta_are_those_of_deepspeed(void **state)
{
    FILE *file = golden_open("deepspeed_rates.txt");
    char line[1024], config[1024] = "";
    trii_engine_config c = {0};
    int step = 0, cases = 0;

    (void)state;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "case ", 5) != 0) {
            check_update(&c, config, step++, line);
            continue;
        }
        assert_true(cases == 0 || step == 30);
        trii_engine_config_fini(&c);
        snprintf(config, sizeof(config), "%s", line + 5);
        CHECK_OK(trii_engine_config_init(&c, config, 1));
        step = 0;
        cases++;
    }
    trii_engine_config_fini(&c);
    fclose(file);
    assert_int_equal(cases, 17);
    assert_int_equal(step, 30);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rates_and_momenta_are_those_of_deepspeed),
};

TEST_MAIN(tests)
