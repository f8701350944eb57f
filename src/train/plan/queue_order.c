/*
 * queue_order.c - the order of a plan over several devices: each has a queue, and the groups have
 * one order over all queues, in which everything comes after what it reads. Called by schedule.c
 * instead of order.c.
 *
 * The order is that of a simulated run. A queue that is free takes a group whose operands are
 * there: a group of the backward pass before one of the forward pass; within the backward pass,
 * what another queue waits for before what stays here (gradients of parameters); otherwise what was
 * recorded first. So the stages of a pipeline overlap. Independent parts of the forward pass
 * (micro-batches) are not begun while a queue keeps the results of more parts than there are queues
 * after it plus one: those results have to be kept for the backward pass.
 *
 * A change of layout goes right before the first group that reads it: a layout that all
 * micro-batches need, such as that of weights for the backward pass, must not delay the first of
 * them until the last is there.
 */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "train/plan/schedule.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

/* What a queue takes next, as long as nothing that matters for it has changed. */
typedef struct queue_choice {
    bool known;
    int32_t place; /* its place in `waiting`; -1 = nothing */
    double start;
} queue_choice;

typedef struct queue_order {
    trii_schedule *s;
    int n_queues;
    int32_t *missing;    /* [group] how many groups without a place come before it */
    int32_t *first_next; /* [group + 1] where its edges begin in `next` */
    int32_t *next;
    int32_t *writer; /* [value] for an input: the group that overwrites its tensor; -1 */
    /* [group] the part of the forward pass to which it belongs, by a group of it; -1 = none */
    int32_t *part;
    double *ready;         /* [group] when its operands are there, in simulated time */
    bool *put_off;         /* [group] a change of layout, placed with its first reader */
    bool *first;           /* [group] nothing has to come before it */
    bool *awaited;         /* [group] read by another queue, or by a group that is */
    int8_t *rank;          /* [group] rank_of it */
    queue_choice *next_of; /* [queue] when it is free, in simulated time */
    int32_t *open;         /* [part, queue] reads still to come of what the part made there */
    bool *begun;           /* [part, queue] */
    int32_t *waiting;      /* [queue, ..] groups whose operands have a place */
    int32_t *n_waiting;    /* [queue] */
    int32_t *alive;        /* [queue] parts that are begun and still read */
    double *time;          /* [queue] */
    int32_t placed;        /* groups */
} queue_order;

/* --- queues --------------------------------------------------------------- */

static tri_device device_of(const trii_ir *ir, const trii_group *group)
{
    return ir->values[group->n_nodes > 0 ? ir->nodes[group->nodes[0]].out[0] : group->out[0]]
        .type.device;
}

static int32_t queue_of(trii_plan *plan, tri_device device)
{
    for (int32_t l = 0; l < plan->n_queues; l++) {
        if (plan->queues[l].device == device)
            return l;
    }
    if (plan->n_queues == TRII_PLAN_QUEUES)
        return -1;
    plan->queues[plan->n_queues].device = device;
    plan->queues[plan->n_queues].ops = trii_device_kinds[trii_device_kind_of(device)]->ops;
    return plan->n_queues++;
}

/* The first queue is of the thread that runs the plan, which communicates, by memory of the host:
 * where something communicates it is of a device on the host. */
static bool begins_on_host(const trii_ir *ir)
{
    bool communicates = false, first = true, elsewhere = false;

    for (int32_t g = 0; g < ir->n_groups; g++) {
        const trii_group *group = ir->groups[g];

        communicates = communicates || group->kind == TRII_GROUP_HOST;
        if (first && group->kind != TRII_GROUP_HOST) {
            elsewhere = !trii_is_host(device_of(ir, group));
            first = false;
        }
    }
    return communicates && elsewhere;
}

tri_status trii_queues_find(trii_schedule *s)
{
    trii_plan *plan = s->plan;

    if (TRII_NEW(&plan->pool, TRII_PLAN_QUEUES, plan->queues) == NULL)
        return TRI_ERR_NO_MEMORY;
    if (begins_on_host(s->ir))
        (void)queue_of(plan, TRI_CPU(0));
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        /* the queue of the thread that runs the plan does the communication */
        s->group_queue[g] = 0;
        if (group->kind != TRII_GROUP_HOST)
            s->group_queue[g] = queue_of(plan, device_of(s->ir, group));
        if (s->group_queue[g] < 0)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "plan: one run on more than %d devices",
                             TRII_PLAN_QUEUES);
    }
    for (int32_t g = 0; plan->n_queues == 0 && g < s->ir->n_groups; g++)
        (void)queue_of(plan, device_of(s->ir, s->ir->groups[g]));
    if (plan->n_queues == 0)
        (void)queue_of(plan, TRI_CPU(0));
    return TRI_OK;
}

/* --- edges ---------------------------------------------------------------- */

/* NULL: a reorder. */
static const trii_node *node_of(const queue_order *o, int32_t g)
{
    const trii_group *group = o->s->ir->groups[g];
    const trii_node *nodes = &o->s->step->nodes[o->s->segment->first_node];

    return group->n_nodes > 0 ? &nodes[o->s->ir->nodes[group->nodes[0]].source] : NULL;
}

static bool is_backward(const queue_order *o, int32_t g)
{
    const trii_node *node = node_of(o, g);

    return node != NULL && node->backward;
}

static void find_writers(queue_order *o)
{
    const trii_ir *ir = o->s->ir;

    for (int32_t v = 0; v < ir->n_values; v++)
        o->writer[v] = -1;
    for (int32_t w = 0; w < ir->n_values; w++) {
        if (ir->values[w].old >= 0)
            o->writer[ir->values[w].old] = ir->values[w].group;
    }
    for (int32_t v = 0; v < ir->n_values; v++) { /* views are edges to the groups that read them */
        if (ir->values[v].base >= 0)
            o->writer[v] = o->writer[ir->values[v].base];
    }
}

/* Each edge once or more: with `fill` into the lists, otherwise into their lengths. */
static void edge(queue_order *o, int32_t from, int32_t to, bool fill)
{
    if (fill)
        o->next[o->first_next[from]++] = to;
    else
        o->first_next[from + 1]++;
    o->missing[to] += !fill;
}

/* After what it comes after; within its group of ranks in record order. */
static void host_edges(queue_order *o, int32_t g, bool fill)
{
    const trii_schedule *s = o->s;
    const trii_ir_node *node = &s->ir->nodes[s->ir->groups[g]->nodes[0]];
    int32_t before = s->plan->hosts[s->host_of[g]].before;

    if (before >= 0)
        edge(o, s->host_group[before], g, fill);
    for (int32_t i = 0; i < node->n_after; i++) {
        int32_t from = s->ir->values[node->after[i]].group;

        if (from >= 0)
            edge(o, from, g, fill);
    }
}

/* A reader of what peers have sent waits for it, and so does the first queue: after the start of
 * everything that was recorded earlier, for which those peers may be waiting. */
static void wait_edges(queue_order *o, int32_t g, bool fill)
{
    const trii_schedule *s = o->s;
    const trii_group *group = s->ir->groups[g];
    bool waits = false;

    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = s->ir->values[group->in[i]].group;

        waits = waits || (from >= 0 && s->host_of[from] >= 0);
    }
    for (int32_t h = 0; waits && h < s->plan->n_hosts && s->host_group[h] < g; h++)
        edge(o, s->host_group[h], g, fill);
}

static void all_edges(queue_order *o, bool fill)
{
    const trii_schedule *s = o->s;

    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        for (int32_t i = 0; i < group->n_in; i++) {
            int32_t from = s->ir->values[group->in[i]].group, writer = o->writer[group->in[i]];

            if (from >= 0 && from != g)
                edge(o, from, g, fill);
            if (writer > g) /* it reads the old contents */
                edge(o, g, writer, fill);
        }
        if (group->kind == TRII_GROUP_HOST)
            host_edges(o, g, fill);
        else
            wait_edges(o, g, fill);
    }
}

static tri_status make_edges(queue_order *o)
{
    int32_t n = o->s->ir->n_groups;

    all_edges(o, false);
    for (int32_t g = 0; g < n; g++)
        o->first_next[g + 1] += o->first_next[g];
    if (TRII_NEW(o->s->ir->pool, o->first_next[n], o->next) == NULL)
        return TRI_ERR_NO_MEMORY;
    all_edges(o, true);
    /* first_next[g] is where g ends now: shift back */
    for (int32_t g = n; g > 0; g--)
        o->first_next[g] = o->first_next[g - 1];
    o->first_next[0] = 0;
    return TRI_OK;
}

/* From the back: edges lead to later groups. */
static void find_awaited(queue_order *o)
{
    const int32_t *queue = o->s->group_queue;

    for (int32_t g = o->s->ir->n_groups - 1; g >= 0; g--) {
        for (int32_t e = o->first_next[g]; e < o->first_next[g + 1] && !o->awaited[g]; e++)
            o->awaited[g] = queue[o->next[e]] != queue[g] || o->awaited[o->next[e]];
    }
}

/* --- parts of the forward pass -------------------------------------------- */

static int32_t part_root(const queue_order *o, int32_t g)
{
    while (o->part[g] != g)
        g = o->part[g];
    return g;
}

/* The group of the part in which the value was made; -1 = in none. Scalars and vectors (losses,
 * running statistics) do not make two parts one. */
static int32_t made_in(const queue_order *o, int32_t value)
{
    int32_t from = o->s->ir->values[value].group;

    return from >= 0 && o->part[from] >= 0 && o->s->ir->values[value].type.ndim > 1 ? from : -1;
}

static void find_parts(queue_order *o)
{
    const trii_schedule *s = o->s;

    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        o->part[g] = group->kind == TRII_GROUP_HOST || is_backward(o, g) ? -1 : g;
        for (int32_t i = 0; o->part[g] >= 0 && i < group->n_in; i++) {
            int32_t from = made_in(o, group->in[i]);

            if (from >= 0 && from < g)
                o->part[part_root(o, g)] = part_root(o, from);
        }
        if (o->part[g] == g && group->kind == TRII_GROUP_REORDER)
            o->part[g] = -1; /* a layout of a weight belongs to no part */
    }
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        if (o->part[g] >= 0)
            o->part[g] = part_root(o, g);
    }
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        for (int32_t i = 0; i < group->n_in; i++) {
            int32_t from = made_in(o, group->in[i]);

            if (from >= 0)
                o->open[o->part[from] * o->n_queues + s->group_queue[from]]++;
        }
    }
}

static void count_parts(queue_order *o, int32_t g)
{
    const trii_schedule *s = o->s;
    const trii_group *group = s->ir->groups[g];
    int32_t queue = s->group_queue[g];

    if (o->part[g] >= 0 && !o->begun[o->part[g] * o->n_queues + queue]) {
        o->begun[o->part[g] * o->n_queues + queue] = true;
        o->alive[queue] += o->open[o->part[g] * o->n_queues + queue] > 0;
    }
    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = made_in(o, group->in[i]);

        if (from >= 0 && --o->open[o->part[from] * o->n_queues + s->group_queue[from]] == 0) {
            o->alive[s->group_queue[from]]--;
            o->next_of[s->group_queue[from]].known = false;
        }
    }
}

static bool may_begin(const queue_order *o, int32_t g)
{
    int32_t queue = o->s->group_queue[g];

    return o->part[g] < 0 || o->begun[o->part[g] * o->n_queues + queue] ||
           o->alive[queue] <= o->n_queues - queue;
}

/* --- the simulated run ---------------------------------------------------- */

static double cost_of(const queue_order *o, int32_t g)
{
    const trii_ir *ir = o->s->ir;
    const trii_group *group = ir->groups[g];
    double cost = 1;

    for (int32_t n = 0; group->kind != TRII_GROUP_HOST && n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];
        const trii_type *in[TRII_MAX_INPUTS];

        for (int32_t i = 0; i < node->n_in; i++)
            in[i] = node->in[i] >= 0 ? &ir->values[node->in[i]].type : NULL;
        cost += node->op->flops != NULL
                    ? node->op->flops(in, node->n_in, &ir->values[node->out[0]].type)
                    : (double)trii_type_numel(&ir->values[node->out[0]].type);
    }
    return cost;
}

/* 0 host operations; backward: 1 what others wait for, 2 the rest; 3 forward; 4 what is computed
 * again for backward: its operands are there long before it is wanted. */
static int8_t rank_of(const queue_order *o, int32_t g)
{
    if (o->s->ir->groups[g]->kind == TRII_GROUP_HOST)
        return 0;
    if (!is_backward(o, g))
        return 3;
    if (node_of(o, g)->region != 0)
        return 4;
    return o->awaited[g] ? 1 : 2;
}

/* What the queue takes next: its place in `waiting`, -1 = nothing; and when. */
static int32_t choose(const queue_order *o, int32_t queue, bool begin_any, double *start_out)
{
    const int32_t *waiting = o->waiting + (size_t)queue * (size_t)o->s->ir->n_groups;
    int32_t best = -1;
    int best_rank = 0;

    for (int32_t k = 0; k < o->n_waiting[queue]; k++) {
        int32_t g = waiting[k];
        double start = fmax(o->time[queue], o->ready[g]);
        int rank = o->rank[g];

        if (best >= 0 && (start > *start_out ||
                          (start == *start_out &&
                           (rank > best_rank || (rank == best_rank && g > waiting[best])))))
            continue;
        if (!begin_any && !may_begin(o, g))
            continue;
        best = k;
        best_rank = rank;
        *start_out = start;
    }
    return best;
}

/* The same without beginning a part that may not begin yet; searched again only where it may have
 * changed. */
static int32_t choose_known(queue_order *o, int32_t queue, double *start_out)
{
    queue_choice *c = &o->next_of[queue];

    if (!c->known)
        c->place = choose(o, queue, false, &c->start);
    c->known = true;
    *start_out = c->start;
    return c->place;
}

static void push(queue_order *o, int32_t g)
{
    int32_t queue = o->s->group_queue[g];

    o->next_of[queue].known = false;
    o->waiting[(size_t)queue * (size_t)o->s->ir->n_groups + (size_t)o->n_waiting[queue]++] = g;
}

static bool reads(const queue_order *o, int32_t g, int32_t from)
{
    const trii_group *group = o->s->ir->groups[g];
    bool found = false;

    for (int32_t i = 0; i < group->n_in; i++)
        found = found || o->s->ir->values[group->in[i]].group == from;
    return found;
}

/* Other groups may wait for it on their queues, or none at all. */
static bool may_put_off(const queue_order *o, int32_t g)
{
    const trii_schedule *s = o->s;
    bool here = s->ir->groups[g]->kind == TRII_GROUP_REORDER, any = false;

    for (int32_t e = o->first_next[g]; here && e < o->first_next[g + 1]; e++) {
        bool reader = reads(o, o->next[e], g);

        any = any || reader;
        here = s->ir->groups[o->next[e]]->kind != TRII_GROUP_HOST &&
               (!reader || s->group_queue[o->next[e]] == s->group_queue[g]);
    }
    return here && any;
}

/* Everything before it has a place. A reader of a group that is put off need not wait for it; a
 * group that overwrites its operand must. */
static void may_go(queue_order *o, int32_t g)
{
    o->put_off[g] = may_put_off(o, g);
    if (!o->put_off[g]) {
        push(o, g);
        return;
    }
    for (int32_t e = o->first_next[g]; e < o->first_next[g + 1]; e++) {
        int32_t next = o->next[e];

        if (!reads(o, next, g))
            continue;
        o->ready[next] = fmax(o->ready[next], o->ready[g]);
        if (--o->missing[next] == 0)
            may_go(o, next);
    }
}

/* After the groups that it reads and that were put off, on its queue. */
static void place(queue_order *o, int32_t g)
{
    const trii_group *group = o->s->ir->groups[g];
    int32_t queue = o->s->group_queue[g];
    bool was_put_off = o->put_off[g];

    o->put_off[g] = false;
    o->next_of[queue].known = false;
    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = o->s->ir->values[group->in[i]].group;

        if (from >= 0 && o->put_off[from])
            place(o, from);
    }
    trii_order_group(o->s, g);
    o->placed++;
    count_parts(o, g);
    o->time[queue] = fmax(o->time[queue], o->ready[g]) + cost_of(o, g);
    for (int32_t e = o->first_next[g]; e < o->first_next[g + 1]; e++) {
        int32_t next = o->next[e];

        if (was_put_off && reads(o, next, g))
            continue;
        o->ready[next] = fmax(o->ready[next], o->time[queue]);
        if (--o->missing[next] == 0)
            may_go(o, next);
    }
}

static void take(queue_order *o, int32_t queue, int32_t k, double start)
{
    int32_t *waiting = o->waiting + (size_t)queue * (size_t)o->s->ir->n_groups;
    int32_t g = waiting[k];

    waiting[k] = waiting[--o->n_waiting[queue]];
    o->time[queue] = start;
    place(o, g);
}

/* Its reader may be waiting for a group that overwrites its operand. */
static bool place_first_put_off(queue_order *o)
{
    for (int32_t g = 0; g < o->s->ir->n_groups; g++) {
        if (o->put_off[g]) {
            place(o, g);
            return true;
        }
    }
    return false;
}

static tri_status allocate(queue_order *o)
{
    trii_pool *pool = o->s->ir->pool;
    size_t n = (size_t)o->s->ir->n_groups, queues = (size_t)o->n_queues;
    bool ok = TRII_NEW(pool, n, o->missing) != NULL;

    ok = ok && TRII_NEW(pool, n + 1, o->first_next) != NULL;
    ok = ok && TRII_NEW(pool, o->s->ir->n_values, o->writer) != NULL;
    ok = ok && TRII_NEW(pool, n, o->part) != NULL;
    ok = ok && TRII_NEW(pool, n, o->ready) != NULL;
    ok = ok && TRII_NEW(pool, n, o->put_off) != NULL;
    ok = ok && TRII_NEW(pool, n, o->first) != NULL;
    ok = ok && TRII_NEW(pool, n, o->awaited) != NULL;
    ok = ok && TRII_NEW(pool, n, o->rank) != NULL;
    ok = ok && TRII_NEW(pool, queues, o->next_of) != NULL;
    ok = ok && TRII_NEW(pool, n * queues, o->open) != NULL;
    ok = ok && TRII_NEW(pool, n * queues, o->begun) != NULL;
    ok = ok && TRII_NEW(pool, n * queues, o->waiting) != NULL;
    ok = ok && TRII_NEW(pool, queues, o->n_waiting) != NULL;
    ok = ok && TRII_NEW(pool, queues, o->alive) != NULL;
    ok = ok && TRII_NEW(pool, queues, o->time) != NULL;
    return ok ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status trii_queues_order(trii_schedule *s)
{
    queue_order o = {.s = s, .n_queues = s->plan->n_queues};
    tri_status status = allocate(&o);

    if (status != TRI_OK)
        return status;
    find_writers(&o);
    find_parts(&o);
    status = make_edges(&o);
    if (status != TRI_OK)
        return status;
    find_awaited(&o);
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        o.first[g] = o.missing[g] == 0;
        o.rank[g] = rank_of(&o, g);
    }
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        if (o.first[g])
            may_go(&o, g);
    }
    while (o.placed < s->ir->n_groups) {
        int32_t queue = -1, chosen = -1;
        double start = 0;

        for (int pass = 0; pass < 2 && queue < 0; pass++) {
            for (int32_t l = 0; l < o.n_queues; l++) {
                double at = 0;
                int32_t k = pass == 0 ? choose_known(&o, l, &at) : choose(&o, l, true, &at);

                if (k < 0 || (queue >= 0 && at >= start))
                    continue;
                queue = l;
                chosen = k;
                start = at;
            }
        }
        if (queue >= 0)
            take(&o, queue, chosen, start);
        else if (!place_first_put_off(&o))
            return TRII_FAIL(TRI_ERR_INTERNAL, "plan: groups that wait for each other");
    }
    trii_order_end(s);
    return TRI_OK;
}
