/*
 * hierarchy_calls.c - collective calls under way: they begin in order, on every child in the same
 * one, and several are under way at a time. A thread that waits drives them, one for all: it helps
 * the children of this host along itself, and what is between hosts is moved by the process's
 * control thread meanwhile. hierarchy_stages.c says what a call makes of the children.
 */
#include "comm/composites/hierarchy/hierarchy.h"

#include "os/clock.h"

/* --- calls under way (guard: mutex) --------------------------------------- */

static bool is_under_way(const hierarchy_call *c)
{
    return c->inner_on != NULL && trii_op_status(&c->inner) == TRI_INPROGRESS;
}

static void begin_stage(hierarchy *h, hierarchy_call *c)
{
    tri_status status = hierarchy_next_stage(h, c);

    c->stage++;
    if (status != TRI_OK)
        trii_fault_raise(h->fault, status, "rank %d: %s", h->rank, tri_last_error());
}

/* Ends what a child has done, begins what can be begun. False if nothing could be done. */
static bool advance_call(hierarchy *h, hierarchy_call *c, const hierarchy_call *before)
{
    if (is_under_way(c))
        return false;
    if (c->inner_on != NULL && trii_op_status(&c->inner) != TRI_OK)
        trii_fault_raise(&c->inner_on->fault, trii_op_status(&c->inner), "%s", c->inner.error);
    c->inner_on = NULL;
    if (hierarchy_check_faults(h))
        return false;
    if (c->stage == HIERARCHY_STAGES ||
        (before != NULL && before->stage <= c->stage && c->stage <= HIERARCHY_OUT))
        return false;
    begin_stage(h, c);
    return true;
}

static hierarchy_call *free_call(hierarchy *h)
{
    for (int i = 0; i < HIERARCHY_CALLS; i++) {
        if (h->calls[i].op == NULL)
            return &h->calls[i];
    }
    return NULL;
}

/* Queued calls get room; *last: after which. */
static void begin_queued(hierarchy *h)
{
    hierarchy_call **at = &h->first, *c;

    while (*at != NULL)
        at = &(*at)->next;
    while (h->queue != NULL && (c = free_call(h)) != NULL) {
        c->op = h->queue;
        h->queue = c->op->next;
        c->next = NULL;
        c->stage = 0;
        c->inner_on = NULL;
        c->met_here = false;
        *at = c;
        at = &c->next;
    }
}

static void end_call(hierarchy *h, hierarchy_call **link, tri_status status)
{
    hierarchy_call *c = *link;
    trii_op *op = c->op;

    *link = c->next;
    c->op = NULL;
    trii_op_finish(op, status, status != TRI_OK ? h->fault->text : NULL);
}

/* Everything ends with the group's failure, as far as the children let go. */
static void finish_all(hierarchy *h)
{
    tri_status status = trii_fault_cause(h->fault);

    for (hierarchy_call **link = &h->first; *link != NULL;) {
        hierarchy_call *c = *link;

        if (is_under_way(c))
            c->inner_on->engine->progress(c->inner_on->self, &c->inner, 0);
        if (is_under_way(c))
            link = &c->next;
        else
            end_call(h, link, status);
    }
    while (h->queue != NULL && h->first == NULL) {
        trii_op *op = h->queue;

        h->queue = op->next;
        trii_op_finish(op, status, h->fault->text);
    }
    trii_cond_broadcast(&h->turn);
}

/* Does what can be done now without a child. While a thread drives, what it looks at stays as it
 * is: only calls that it does not know yet begin. */
void hierarchy_advance(hierarchy *h)
{
    bool did = true, ended = false;

    while (did && !hierarchy_check_faults(h)) {
        const hierarchy_call *before = NULL;

        did = false;
        begin_queued(h);
        for (hierarchy_call **link = &h->first; *link != NULL;) {
            hierarchy_call *c = *link;

            while (!(h->driving && c->inner_on != NULL) && advance_call(h, c, before))
                did = true;
            if (!h->driving && c->stage == HIERARCHY_STAGES && c->inner_on == NULL) {
                end_call(h, link, TRI_OK);
                did = ended = true;
            } else {
                before = c;
                link = &c->next;
            }
        }
    }
    if (hierarchy_check_faults(h) && !h->driving)
        finish_all(h);
    else if (ended)
        trii_cond_broadcast(&h->turn);
}

/* --- waiting -------------------------------------------------------------- */

static int64_t sooner(int64_t until_ns, int64_t moment_ns)
{
    int64_t look = trii_now_ns() + moment_ns;

    return until_ns < look ? until_ns : look;
}

static bool is_local(const hierarchy *h, const hierarchy_child *child)
{
    return child == &h->children[HIERARCHY_IN] || child == &h->children[HIERARCHY_OUT];
}

/* Whether to look at this host's messages often, beside what is waited for: some are under way
 * here, or a call began elsewhere, for which a rank of this host may come only once it is rid of
 * its messages. */
static bool hears_messages(const hierarchy *h)
{
    bool hears = atomic_load(&h->n_near) > 0;

    for (const hierarchy_call *c = h->first; c != NULL && !hears; c = c->next)
        hears = !c->met_here && is_under_way(c);
    return hears && h->children[HIERARCHY_IN].self != NULL;
}

/* The call that the driver waits for: the oldest one of a child on this host, else the oldest one.
 * mixed: there is something else to look at meanwhile. */
static hierarchy_call *next_to_end(const hierarchy *h, bool *mixed_out)
{
    hierarchy_call *near = NULL, *far = NULL;
    bool several = false;

    for (hierarchy_call *c = h->first; c != NULL; c = c->next) {
        if (!is_under_way(c))
            continue;
        if (is_local(h, c->inner_on)) {
            near = near != NULL ? near : c;
        } else {
            several = far != NULL;
            far = far != NULL ? far : c;
        }
    }
    *mixed_out = near != NULL ? far != NULL : several;
    if (near == NULL || near->inner_on != &h->children[HIERARCHY_IN]) /* which hears them itself */
        *mixed_out = *mixed_out || hears_messages(h);
    return near != NULL ? near : far;
}

/* Now and then: what others say, of calls for which nothing is under way there. */
static void poll_idle_children(hierarchy *h)
{
    if (h->first == NULL || trii_now_ns() < h->idle_ns)
        return;
    h->idle_ns = trii_now_ns() + HIERARCHY_IDLE_NS;
    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        const hierarchy_child *child = &h->children[i];

        if (child->self != NULL && !is_local(h, child))
            child->engine->progress(child->self, h->first->op, 0);
    }
}

/* Guard: mutex. One look at every child that has something to do. */
void hierarchy_look(hierarchy *h)
{
    hierarchy_child *in = &h->children[HIERARCHY_IN];

    for (hierarchy_call *c = h->first; c != NULL; c = c->next) {
        if (is_under_way(c))
            c->inner_on->engine->progress(c->inner_on->self, &c->inner, 0);
    }
    /* Whatever we wait for, it may come after messages to us: there is room for them here. The
     * operation does not matter for a look. */
    if (in->self != NULL)
        in->engine->progress(in->self, &h->calls[0].inner, 0);
    poll_idle_children(h);
    hierarchy_advance(h);
}

/* Guard: mutex, given back meanwhile. Helps what is under way along, for a moment at most. */
void hierarchy_drive(hierarchy *h, int64_t until_ns)
{
    bool mixed;
    hierarchy_call *c = next_to_end(h, &mixed);

    if (c == NULL) { /* it ended since the last look */
        hierarchy_look(h);
        return;
    }
    h->driving = true;
    trii_mutex_unlock(&h->mutex);
    c->inner_on->engine->progress(c->inner_on->self, &c->inner,
                                  sooner(until_ns, mixed ? HIERARCHY_MIXED_NS : HIERARCHY_LOOK_NS));
    trii_mutex_lock(&h->mutex);
    h->driving = false;
    hierarchy_look(h);
    trii_cond_broadcast(&h->turn);
}

tri_status hierarchy_call_submit(hierarchy *h, trii_op *op)
{
    trii_op **at = &h->queue;
    tri_status status = TRI_OK;

    trii_mutex_lock(&h->mutex);
    if (hierarchy_check_faults(h)) {
        status = TRII_FAIL(trii_fault_cause(h->fault), "%s", h->fault->text);
    } else {
        op->next = NULL;
        while (*at != NULL)
            at = &(*at)->next;
        *at = op;
        hierarchy_advance(h);
    }
    trii_mutex_unlock(&h->mutex);
    return status;
}

void hierarchy_call_progress(hierarchy *h, trii_op *op, int64_t until_ns)
{
    trii_mutex_lock(&h->mutex);
    if (!h->driving)
        hierarchy_look(h);
    while (until_ns != 0 && trii_op_status(op) == TRI_INPROGRESS && trii_now_ns() < until_ns) {
        if (h->driving)
            (void)trii_cond_wait_until(&h->turn, &h->mutex, sooner(until_ns, HIERARCHY_LOOK_NS));
        else
            hierarchy_drive(h, until_ns);
    }
    trii_mutex_unlock(&h->mutex);
}

void hierarchy_call_describe(hierarchy *h, trii_op *op, char *text, size_t size)
{
    hierarchy_call *c;
    char inner[300] = "nobody";

    trii_mutex_lock(&h->mutex);
    c = h->first;
    while (c != NULL && c->op != op)
        c = c->next;
    c = c != NULL && c->inner_on != NULL ? c : h->first;
    if (c != NULL && is_under_way(c))
        c->inner_on->engine->describe_wait(c->inner_on->self, &c->inner, inner, sizeof(inner));
    snprintf(text, size, "%s%s%s",
             c != NULL && c->op != op ? "an earlier call, which waits for " : "", inner,
             c != NULL && (c->inner_on == &h->children[HIERARCHY_CROSS] ||
                           c->inner_on == &h->children[HIERARCHY_BACK])
                 ? "; or for a rank of the same host"
                 : "");
    trii_mutex_unlock(&h->mutex);
}
