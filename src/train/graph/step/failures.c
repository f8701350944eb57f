/*
 * failures.c - what failed: the messages of failed values, and the first failure of a step, which
 * is kept until a call can return it.
 */
#include <signal.h>

#include "base/alloc.h"
#include "train/graph/step/recorder.h"

void trii_value_fail(trii_recorder *r, trii_value *value, tri_status status)
{
    void *array = r->failures.list;

    value->state = TRII_VALUE_FAILED;
    value->keep = false;
    value->slot = -1;
    value->slot_segment = (uint32_t)-status;
    if (trii_grow(&array, &r->failures.cap, r->failures.n + 1, sizeof(*r->failures.list),
                  "failed handles") != TRI_OK)
        return;
    r->failures.list = array;
    r->failures.list[r->failures.n] =
        (trii_failure){.status = status, .line = trii_strdup(tri_last_error(), "failed handle")};
    value->slot = r->failures.n++;
}

tri_status trii_failure_get(trii_recorder *r, const trii_value *value)
{
    const trii_failure *failure;

    if (value->slot < 0)
        return TRII_FAIL((tri_status) - (int)value->slot_segment, "out of memory");
    failure = &r->failures.list[value->slot];
    return TRII_FAIL(failure->status, "%s",
                     failure->line != NULL ? failure->line : "out of memory");
}

void trii_failures_clear(trii_recorder *r)
{
    for (int32_t i = 0; i < r->failures.n; i++)
        trii_free(r->failures.list[i].line);
    r->failures.n = 0;
}

void trii_break(const trii_recorder *r)
{
    if (r->breaks)
        raise(SIGTRAP);
}

void trii_step_fail_in(trii_step *step, tri_status status, const trii_segment *segment)
{
    trii_recorder *r = trii_recorder_of(step);
    const trii_segment pending = {.first_node = step->first_pending, .end_node = step->n_nodes};

    if (step->failed != TRI_OK)
        return;
    step->failed = status;
    trii_free(r->failures.line);
    r->failures.line = trii_strdup(tri_last_error(), "error line");
    trii_grads_revert(r, segment);
    trii_witnesses_failed(r, r->failures.line != NULL ? r->failures.line : "out of memory");
    if (segment == NULL)
        trii_hosts_abort(step, &pending,
                         r->failures.line != NULL ? r->failures.line : "out of memory");
    trii_err_set("%s", r->failures.line != NULL ? r->failures.line : "out of memory");
}

void trii_step_fail(trii_step *step, tri_status status)
{
    trii_step_fail_in(step, status, NULL);
}

tri_status trii_node_failed(const trii_step *step, int32_t n, tri_status status)
{
    const trii_node *node = &step->nodes[n];
    char name[TRII_OP_TEXT];

    (void)trii_node_text(node, name);
    if (node->site.file != NULL)
        return TRII_FAIL_CTX(status, "%s at %s:%d, operation %d of the step", name, node->site.file,
                             node->site.line, n + 1);
    return TRII_FAIL_CTX(status, "%s, operation %d of the step", name, n + 1);
}
