/* ddp_drift_test.c - updates between tri_ddp_no_sync_begin and its end are warned about, once. */
#include <stdio.h>

#include "testing/ddp_ranks.h"
#include "testing/scratch.h" /* redirecting stderr */

static tri_status train(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 2);

    TRY(tri_module_status(model));
    for (int step = 0; step < 4; step++) {
        if (step == 1)
            tri_ddp_no_sync_begin(model); /* and no end */
        tri_backward(tri_sum(tri_square(tri_forward(model, x)), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        tri_step_end();
        if (step == 0 && lseek(STDERR_FILENO, 0, SEEK_END) != 0)
            return TRI_ERR_INTERNAL; /* there is nothing to say so far */
        if (step == 0)
            TRY(tri_barrier(r->group, NULL));
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return TRI_OK;
}

static void updates_without_synchronisation_are_warned_about_once(void **state)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    char text[1024];
    rank ranks[2];
    size_t n;

    (void)state;
    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    run_ranks(ranks, 2, train, NULL);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    n = fread(text, 1, sizeof(text) - 1, log);
    text[n] = '\0';
    fclose(log);
    check_ranks(ranks, 2);
    assert_non_null(strstr(text, "after tri_ddp_no_sync_begin and before tri_ddp_no_sync_end"));
    assert_non_null(strstr(text, "ddp_drift_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + n - 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(updates_without_synchronisation_are_warned_about_once),
};

TEST_MAIN(tests)
