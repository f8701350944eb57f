/*
 * rdzv_dynamic.c - the handlers c10d and etcd: agents agree on rounds by torch's shared state
 * (rdzv_state.h), so that torchrun's agents may take part; how they form one is in rdzv_join.c. The
 * two differ in where the state and the keys are kept.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/param.h"

/* A torchrun agent that was rank 0 before does not say again where its store is. */
#define MASTER_MS 3000
#define MEMBERS_MS 300    /* between two looks at the members, while one of them is waited for */
#define MEMBERS_EACH_MS 2 /* ... and for each of them */

/* --- the shared state while we are in it ---------------------------------- */

static void say_who(const trii_rendezvous *r, const trii_rdzv_node *node, const char *what,
                    trii_rdzv_news *news)
{
    const char *host = trii_rdzv_node_same(node, &r->self) ? r->node_name : node->addr;

    snprintf(news->why, sizeof(news->why), "host %s (pid %lld) %s", host, (long long)node->pid,
             what);
}

/* A member has left the round, in whatever way. */
static void find_gone(const trii_rendezvous *r, const trii_rdzv_state *s, trii_rdzv_news *news)
{
    int gone = 0;

    while (gone < r->round.group_size && trii_rdzv_find(s, &r->nodes[gone]) != NULL)
        gone++;
    snprintf(news->why, sizeof(news->why), "a host is gone");
    if (gone == r->round.group_size)
        return;
    news->gone = gone;
    if (r->nodes[gone].addr[0] != '\0')
        say_who(r, &r->nodes[gone], "is gone", news);
}

/* What in the shared state ends this host's round, if anything does. */
static void find_change(const trii_rendezvous *r, const trii_rdzv_state *s,
                        trii_rdzv_event *event_out)
{
    const trii_rdzv_entry *self = trii_rdzv_find(s, &r->self), *waits = s->entries;
    trii_rdzv_news *news = &event_out->news;

    while (waits < s->entries + s->n && !waits->waiting)
        waits++;
    if (s->closed) {
        event_out->kind = TRII_RDZV_ENDED;
        news->over = true;
        snprintf(news->why, sizeof(news->why), "another host has closed the job");
    } else if (self == NULL || !self->participant || s->round != r->round.number) {
        *event_out = trii_rdzv_taken_for_dead();
    } else if (waits < s->entries + s->n) {
        event_out->kind = TRII_RDZV_AGAIN;
        say_who(r, &waits->node, "joins", news);
    } else if (trii_rdzv_count_participants(s) < r->round.group_size) {
        event_out->kind = TRII_RDZV_AGAIN;
        find_gone(r, s, news);
    }
}

/* What a follower sees of that in the leader's key. */
static tri_status watch_leader(trii_rendezvous *r, trii_rdzv_event *event_out)
{
    trii_rdzv_led led;
    tri_status status = trii_rdzv_follow(r, &led);
    bool is_gone = led.participants < r->round.group_size;

    if (status != TRI_OK || led.round < r->round.number)
        return status;
    if (led.closed) {
        event_out->kind = TRII_RDZV_ENDED;
        event_out->news =
            (trii_rdzv_news){.over = true, .gone = -1, .why = "another host has closed the job"};
    } else if (led.round > r->round.number) {
        *event_out = trii_rdzv_taken_for_dead();
    } else if (led.waiting > 0 || is_gone) {
        event_out->kind = TRII_RDZV_AGAIN;
        snprintf(event_out->news.why, sizeof(event_out->news.why), "a host %s",
                 led.waiting > 0 ? "joins" : "is gone");
    }
    return status;
}

static tri_status watch(trii_rendezvous *r, trii_rdzv_event *event_out)
{
    trii_rdzv_state s;
    tri_status status;

    *event_out = (trii_rdzv_event){.news.gone = -1};
    if (r->lead.follows)
        return watch_leader(r, event_out);
    status = trii_rdzv_look(r, &s);
    if (status != TRI_OK)
        return status;
    find_change(r, &s, event_out);
    trii_rdzv_state_fini(&s);
    return TRI_OK;
}

/* --- a round that is complete --------------------------------------------- */

/* Whether the round that is being prepared is still that of the shared state, with all its members;
 * keeps us alive there. INPROGRESS: it is not. */
static tri_status check_members(trii_rendezvous *r)
{
    int64_t now = trii_rdzv_now(r);
    int64_t ms = MEMBERS_MS + (int64_t)MEMBERS_EACH_MS * r->round.group_size;
    trii_rdzv_event event;
    tri_status status;

    if (now - r->members_ns < (r->lead.leads ? MEMBERS_MS : ms) * TRII_NS_PER_MS)
        return TRI_OK;
    r->members_ns = now;
    status = watch(r, &event);
    return status == TRI_OK && event.kind != TRII_RDZV_NOTHING ? TRI_INPROGRESS : status;
}

static tri_status publish_master(trii_rendezvous *r)
{
    char port[16];
    tri_status status = tri_store_set(r->kv, "MASTER_ADDR", r->self.addr, strlen(r->self.addr));

    snprintf(port, sizeof(port), "%d", r->worker_port);
    return status == TRI_OK ? tri_store_set(r->kv, "MASTER_PORT", port, strlen(port)) : status;
}

static tri_status take_master(trii_rendezvous *r, const char *addr, const char *port)
{
    int64_t number = 0;
    tri_status status = trii_parse_i64(port, "MASTER_PORT of host 0", 1, 65535, &number);

    snprintf(r->round.master_addr, sizeof(r->round.master_addr), "%s", addr);
    r->round.master_port = (int)number;
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(TRI_ERR_FORMAT, "rendezvous of job %s", r->id);
}

/* An agent of trirun says so before it says how many workers it has; one of torchrun perhaps later,
 * or never. */
static tri_status wait_for_master(trii_rendezvous *r, int64_t deadline_ns)
{
    static const char *const keys[] = {"MASTER_ADDR", "MASTER_PORT"};
    int64_t soon = trii_rdzv_deadline(r, MASTER_MS);
    bool known = r->round.master_addr[0] != '\0' && r->round.mixed;
    char *values[2];
    tri_status status = trii_rdzv_read_keys(
        r, keys, 2, 2, known && soon < deadline_ns ? soon : deadline_ns, values, NULL);

    if (status == TRI_ERR_TIMEOUT && known)
        return TRI_OK; /* where it was before */
    if (status == TRI_ERR_TIMEOUT)
        return TRII_FAIL(TRI_ERR_TIMEOUT,
                         "rendezvous of job %s: host 0 did not say where the "
                         "workers' store is",
                         r->id);
    if (status != TRI_OK)
        return status;
    status = take_master(r, values[0], values[1]);
    tri_store_free(values[0]);
    tri_store_free(values[1]);
    return status;
}

static tri_status find_master(trii_rendezvous *r, const char *addr, const char *port,
                              int64_t deadline_ns)
{
    r->round.master = r->round.group_rank == 0;
    return addr != NULL && port != NULL ? take_master(r, addr, port)
                                        : wait_for_master(r, deadline_ns);
}

static void describe_member(const trii_rendezvous *r, int rank, char *text_out, size_t bytes)
{
    if (rank < 0 || r->nodes[rank].addr[0] == '\0')
        snprintf(text_out, bytes, "a host");
    else
        snprintf(text_out, bytes, "host %.*s (pid %lld)", (int)bytes - 40, r->nodes[rank].addr,
                 (long long)r->nodes[rank].pid);
}

static tri_status too_few(trii_rendezvous *r, int rank, int came, const char *missing)
{
    char name[TRII_RDZV_ADDR_BYTES + 40];

    (void)missing;
    describe_member(r, rank, name, sizeof(name));
    return TRII_FAIL(TRI_ERR_TIMEOUT,
                     "rendezvous of job %s: all %d hosts joined, but %d said how many workers "
                     "they have within %g s; see why the agent on %s does not continue",
                     r->id, r->round.group_size, came, (double)r->read_ms / 1000, name);
}

/* --- agents that are gone ------------------------------------------------- */

static tri_status drop(trii_rendezvous *r, const trii_rdzv_order *lost)
{
    /* while we wait for the members of a new round it may be one of them */
    int64_t round = !trii_rdzv_phase_is_on(r->phase) && r->round.number > lost->round
                        ? r->round.number
                        : lost->round;

    trii_rdzv_forget(r, &lost->gone.node);
    return trii_rdzv_change(r, &lost->gone.node, round, false);
}

static tri_status leave(trii_rendezvous *r, bool close)
{
    const trii_rdzv_node *self = r->lead.follows ? NULL : &r->self;
    tri_status status = TRI_OK;

    if (close || self != NULL)
        status = trii_rdzv_change(r, self, TRII_RDZV_ANY_ROUND, close);
    return status == TRI_OK && r->lead.follows ? trii_rdzv_unfollow(r) : status;
}

static bool is_awaited(trii_rendezvous *r)
{
    trii_rdzv_state s;
    bool any = false;

    if (trii_rdzv_look(r, &s) != TRI_OK)
        return false;
    for (int i = 0; i < s.n; i++)
        any = any || s.entries[i].waiting || s.entries[i].redundant;
    trii_rdzv_state_fini(&s);
    return any;
}

/* --- where the state is kept ---------------------------------------------- */

static bool is_yes(const char *text)
{
    return *text == '1' || *text == 't' || *text == 'T' || *text == 'y' || *text == 'Y';
}

static trii_rdzv_server server(const trii_launch_options *options)
{
    char text[16];

    if (trii_rdzv_conf(options, "is_host", text, sizeof(text)))
        return is_yes(text) ? TRII_RDZV_MUST_SERVE : TRII_RDZV_CLIENT;
    return trii_rdzv_is_own_address(options->rdzv_host) ? TRII_RDZV_MAY_SERVE : TRII_RDZV_CLIENT;
}

static tri_status other_server(const trii_rendezvous *r, const char *theirs)
{
    char name[TRII_RDZV_ADDR_BYTES];
    int pid, min, max;

    if (sscanf(theirs, "%d %d %d %255s", &pid, &min, &max, name) != 4)
        return TRII_FAIL(TRI_ERR_FORMAT, "job %s: server \"%s\"", r->id, theirs);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: %s port %d leads to the store of the agent on host %s (pid %d), and "
                     "this one, on host %s (pid %d), was told to serve it too: give is_host to one "
                     "agent only",
                     r->id, r->options->rdzv_host, r->server_port, name, pid, r->node_name,
                     (int)r->self.pid);
}

static tri_status port_taken(const trii_rendezvous *r, const char *why)
{
    return TRII_FAIL(TRI_ERR_STATE,
                     "the agents' %s: another agent, job or program has the port (who: ss "
                     "-ltnp | grep :%d); choose another one in --rdzv-endpoint, the same on "
                     "all hosts, or give is_host to one agent only",
                     why, r->server_port);
}

/* The agent that serves the store leads. */
static tri_status find_leader(trii_rendezvous *r)
{
    tri_status status = trii_rdzv_agrees_with_server(r);

    r->lead.leads = r->server != NULL;
    r->lead.follows = r->ours_serves && !r->lead.leads;
    return status;
}

tri_status trii_rdzv_share_c10d(trii_rendezvous *r)
{
    tri_status status = trii_rdzv_c10d_create(r->base, r->id, &r->backend);

    return status == TRI_OK ? find_leader(r) : status;
}

static tri_status c10d_open(trii_rendezvous *r)
{
    const tri_store_tcp_options options = {.timeout_ms = r->read_ms};
    tri_status status = trii_rdzv_connect(r, &options);

    if (status == TRI_OK)
        status = trii_rdzv_watch_own(r);
    return status == TRI_OK ? trii_rdzv_share_c10d(r) : status;
}

static void c10d_describe_place(const trii_launch_options *options, int port, char *text_out,
                                size_t bytes)
{
    snprintf(text_out, bytes, "%s:%d%s", options->rdzv_host, port,
             *options->rdzv_endpoint == '\0' ? " (no --rdzv-endpoint)" : "");
}

static tri_status etcd_open(trii_rendezvous *r)
{
    tri_status status = trii_rdzv_etcd_create(r->options, r->id, r->read_ms, &r->backend);

    if (status != TRI_OK)
        return status;
    r->base = tri_store_ref(r->backend->store);
    if (!trii_rdzv_name_self(r))
        snprintf(r->self.addr, sizeof(r->self.addr), "%s",
                 r->backend->address[0] != '\0' ? r->backend->address : r->node_name);
    return TRI_OK;
}

static void etcd_describe_place(const trii_launch_options *options, int port, char *text_out,
                                size_t bytes)
{
    (void)port;
    snprintf(text_out, bytes, "%s", options->rdzv_endpoint);
}

/* What both have. */
#define DYNAMIC                                                                                    \
    .timeout_key = "join_timeout", .timeout_ms = 600000, .join = trii_rdzv_join_dynamic,           \
    .publish_master = publish_master, .find_master = find_master, .check_members = check_members,  \
    .watch = watch, .drop = drop, .leave = leave, .is_awaited = is_awaited,                        \
    .describe_member = describe_member, .too_few = too_few

const trii_rdzv_handler trii_rdzv_c10d = {DYNAMIC,
                                          .server = server,
                                          .describe_place = c10d_describe_place,
                                          .open = c10d_open,
                                          .other_server = other_server,
                                          .port_taken = port_taken};

const trii_rdzv_handler trii_rdzv_etcd = {DYNAMIC, .describe_place = etcd_describe_place,
                                          .open = etcd_open};
