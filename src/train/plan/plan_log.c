/*
 * plan_log.c - TRI_LOG=plan:info says what was compiled, plan:debug shows every entry, plan:trace
 * times them and reports after 16, 32, 64, .. runs where the time went. Called by plan.c and run.c.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "train/plan/ir.h"
#include "train/plan/plan.h"
#include "train/plan/trace.h"

static const char *layout_name(const trii_layout *layout)
{
    return layout != NULL ? layout->name : "plain";
}

static void value_text(char *text, size_t bytes, const trii_ir *ir, int32_t value,
                       const trii_layout *layout)
{
    const trii_ir_value *v = &ir->values[value];
    int n = snprintf(text, bytes, " %%%d:%s[", value, tri_dtype_name(v->type.dtype));

    for (int d = 0; d < v->type.ndim && n > 0 && (size_t)n < bytes; d++)
        n +=
            snprintf(text + n, bytes - (size_t)n, "%s%" PRId64, d > 0 ? "," : "", v->type.shape[d]);
    if (n > 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, "]%s%s%s", layout != NULL ? "@" : "",
                 layout != NULL ? layout_name(layout) : "",
                 v->bound ? "!" : (v->output >= 0 ? "*" : ""));
}

static void log_group(const trii_ir *ir, const trii_group *group)
{
    char line[1024];
    size_t n = 0;

    line[0] = '\0';
    for (int32_t i = 0; i < group->n_in && n + 100 < sizeof(line); i++) {
        value_text(line + n, 100, ir, group->in[i], group->in_layout[i]);
        while (line[n] != '\0')
            n++;
    }
    if (n + 100 < sizeof(line))
        n += (size_t)snprintf(line + n, 100, " ->");
    for (int32_t o = 0; o < group->n_out && n + 100 < sizeof(line); o++) {
        value_text(line + n, 100, ir, group->out[o], group->out_layout[o]);
        while (line[n] != '\0')
            n++;
    }
    trii_log_write(TRII_LOG_DEBUG, "plan", "  %s%s",
                   group->kernel != NULL            ? group->kernel->name
                   : group->kind == TRII_GROUP_HOST ? "host"
                                                    : "view",
                   line);
}

void trii_plan_log(const trii_plan *plan, const trii_ir *ir, double compile_ms, uint64_t compiled)
{
    int32_t live = 0, reorders = 0;

    if (!trii_log_enabled(TRII_LOG_INFO, "plan"))
        return;
    for (int32_t n = 0; n < ir->n_nodes; n++)
        live += !ir->nodes[n].dead;
    for (int32_t g = 0; g < ir->n_groups; g++)
        reorders += ir->groups[g]->kind == TRII_GROUP_REORDER;
    trii_log_write(TRII_LOG_INFO, "plan",
                   "compiled %016" PRIx64
                   " in %.1f ms: %d of %d operations in %d entries, code for %" PRIu64
                   " kernels, %d reorders, %zu bytes copied, %d host operations, arena %zu bytes, "
                   "%d tensors change layout",
                   plan->hash, compile_ms, live, ir->n_nodes, plan->n_entries, compiled, reorders,
                   plan->copied_bytes, plan->n_hosts, plan->arena_bytes, plan->n_adoptions);
    if (!trii_log_enabled(TRII_LOG_DEBUG, "plan"))
        return;
    for (int32_t g = 0; g < ir->n_groups; g++)
        log_group(ir, ir->groups[g]);
}

/* Entries are numbered in the order in which they run. */
void trii_plan_log_times(const trii_plan *plan)
{
    double total = 0;

    if (plan->runs == 0)
        return;
    for (int32_t e = 0; e < plan->n_entries; e++)
        total += (double)plan->times[e].sum;
    trii_log_write(TRII_LOG_TRACE, "plan", "%016" PRIx64 ": %" PRIu64 " runs, %.3f us each",
                   plan->hash, plan->runs, total / (double)plan->runs / 1e3);
    for (int32_t e = 0; e < plan->n_entries; e++) {
        static const char *const kinds[] = {"kernel", "pack", "copy", "move", "start", "wait"};
        const trii_entry *entry = &plan->entries[e];

        trii_log_write(TRII_LOG_TRACE, "plan", "  %4d %5.1f%% %10.3f us  %s %s", e,
                       100 * (double)plan->times[e].sum / total,
                       (double)plan->times[e].sum / (double)plan->runs / 1e3, kinds[entry->kind],
                       entry->kernel != NULL ? entry->kernel->name : "");
    }
}
