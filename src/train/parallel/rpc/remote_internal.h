/*
 * remote_internal.h - what the files of this room share: frames, served modules, remote modules.
 *
 * Two roles. An *owner* serves a module (or a function): `trii_served`. A *caller* has a remote
 * module: `trii_remote`, the data of a tri_module whose forward records a host operation.
 *
 * The served module is a named object of rpc.h. OPEN on it gives the caller a *session*, an object
 * that only this caller refers to: rpc drops the hold of a caller that is lost, and with the
 * session go the graphs and accounts of it. All other messages go to the session, so a new
 * incarnation of the owner is noticed by the failure of the old session.
 *
 * All handlers are inline: they queue the request, in the order of arrival, and the thread of the
 * served module takes it: PREPARE, COMMIT, DROP and RELEASE first, then BACKWARD, then FORWARD and
 * TYPES. So nothing of a served module runs twice at a time, and no two threads write its buffers,
 * parameters or accounts: what is below `trii_served.lock` apart, its fields belong to its thread.
 *
 * Frames. The data of a message is one of the structs below, then `n_types` trii_remote_type, then
 * (FORWARD) the function's data; its parts are the tensors in this order, plain. Workers of one job
 * have one byte order (rpc.h); sizes are checked before anything is used.
 *
 *     OPEN      trii_remote_open      -> trii_remote_opened, and the session as reference 0
 *     TYPES     trii_remote_forward   -> trii_remote_results + the types of the results
 *     FORWARD   the same, with parts  -> the same, with parts
 *     BACKWARD  trii_remote_backward, types and parts of the seeds that are there
 *                                     -> trii_remote_results: of the inputs' gradients, where
 *                                        `present` says which are there
 *     RELEASE   trii_remote_release   -> nothing
 *     PREPARE, COMMIT, DROP  trii_remote_update -> nothing
 *     FETCH     trii_remote_source    -> trii_remote_results + the type, with its part
 *
 * Results that only other remote calls of the step read stay at their owner (served_stay.c), and
 * the caller never sees them: it sends a trii_remote_source in place of the part, and the owner
 * that gets it fetches the contents from the other one. The sources follow the types.
 */
#ifndef TRII_REMOTE_INTERNAL_H
#define TRII_REMOTE_INTERNAL_H

#include <trireme/context.h>
#include <trireme/remote.h>

#include "train/graph/step/step.h"
#include "train/graph/step/type.h"
#include "os/thread.h"

#define TRII_REMOTE_MAGIC 0x52454d31u /* "REM1" */
#define TRII_REMOTE_NAME (TRI_RPC_MAX_NAME + 1)
#define TRII_REMOTE_LEVELS 6 /* of calls within calls */
/* A call within a call looks so often whether the caller of the outer one has gone. */
#define TRII_REMOTE_WATCH_MS 50

/* --- what travels --------------------------------------------------------- */

typedef enum trii_remote_kind {
    TRII_REMOTE_OPEN,
    TRII_REMOTE_TYPES,
    TRII_REMOTE_FORWARD,
    TRII_REMOTE_BACKWARD,
    TRII_REMOTE_RELEASE,
    TRII_REMOTE_PREPARE,
    TRII_REMOTE_COMMIT,
    TRII_REMOTE_DROP,
    TRII_REMOTE_FETCH,       /* copied by the thread that receives the request */
    TRII_REMOTE_FETCH_LARGE, /* by a thread that nobody waits for */
} trii_remote_kind;
#define TRII_REMOTE_KINDS (TRII_REMOTE_FETCH_LARGE + 1)

/* Whose gradients: of a trainer, the caller of the outermost forward. optimizer 0: the module is in
 * no remote optimizer of the trainer, and gradients of parameters are not computed. */
typedef struct trii_remote_key {
    char trainer[TRII_REMOTE_NAME]; /* its worker's name */
    uint64_t incarnation;           /* of the trainer's worker: random */
    uint64_t optimizer; /* number of the remote optimizer within the trainer, from 1 on */
    int64_t step;       /* of that optimizer, from 1 on; it rises with each
                           tri_remote_optimizer_step, also with one that fails */
} trii_remote_key;

/* The place of a backward in the sum of its account, whatever arrives first: as one process adds.
 * Direct ones (n_nested 0) come first: `seq` counts from 0 without a gap; those of one `pass` are
 * added up in the order of seq, and then the sums of the passes in theirs. Nested ones follow in
 * lexicographic order of pass, module, seq, nested. */
typedef struct trii_remote_order {
    uint32_t module; /* which of the optimizer's modules the trainer called */
    uint32_t seq;    /* the number of that module's backward in this step, in recorded order */
    uint32_t pass;   /* the number of the trainer's backward pass in this step, from 0 on */
    uint32_t n_nested;
    uint32_t nested[TRII_REMOTE_LEVELS]; /* and of the backward within each backward */
} trii_remote_order;

/* Calls within calls, outermost first: served modules by their number in the job, so that one that
 * calls itself is refused instead of waiting for itself. */
typedef struct trii_remote_path {
    uint64_t served[TRII_REMOTE_LEVELS];
    uint32_t n, reserved;
} trii_remote_path;

typedef struct trii_remote_type {
    int32_t dtype, ndim;
    int64_t shape[TRI_MAX_DIMS];
} trii_remote_type;

typedef struct trii_remote_open {
    uint32_t magic, kind;
    uint64_t incarnation; /* of the caller's worker */
} trii_remote_open;

typedef struct trii_remote_opened {
    uint32_t magic;
    uint32_t is_function, has_optimizer, reserved;
    uint64_t served;   /* the number in trii_remote_path */
    uint64_t session;  /* the number in trii_remote_source */
    int64_t last_step; /* the last step of this caller that was committed; 0 = none */
} trii_remote_opened;

#define TRII_REMOTE_NO_GRAD 1u
#define TRII_REMOTE_TRAINING 2u
typedef struct trii_remote_forward {
    uint32_t magic, kind;
    uint64_t call;            /* its number in the session, not 0; TYPES: 0 */
    uint32_t flags, autocast; /* a tri_dtype; 0 = none */
    uint32_t n_types;         /* inputs; dtype NONE: absent, without a part */
    uint32_t n_results;
    uint64_t requires_grad; /* bit i: input i */
    uint64_t elsewhere;     /* bit i: input i is fetched from its source */
    uint64_t unsent, stay;  /* bit o: result o is not sent; and stays for others, under `call` */
    uint32_t data_bytes, random_first;
    uint64_t random_seed, random_stream; /* the caller's tri_rng, */
    int64_t random_step;                 /* and where its step's random numbers go on */
    trii_remote_path path;
} trii_remote_forward;

typedef struct trii_remote_backward {
    uint32_t magic, kind;
    uint64_t call;         /* of the forward */
    uint64_t present;      /* bit o: a seed of result o is here */
    uint64_t wanted;       /* bit i: the gradient of input i is wanted */
    uint64_t elsewhere;    /* bit k: the k-th of the seeds that are here is fetched */
    uint64_t unsent, stay; /* bit i: as of a forward, of the gradient of input i */
    uint64_t number;       /* under which they stay; not 0 */
    uint32_t n_types, flags;
    trii_remote_key key;
    trii_remote_order order;
} trii_remote_backward;

#define TRII_REMOTE_KEEP 1u /* another backward of this call may follow */

typedef struct trii_remote_results {
    uint32_t magic, n_types;
    uint64_t requires_grad; /* bit o: result o */
    uint64_t present;       /* BACKWARD: bit i: the gradient of input i */
    uint32_t n_random;      /* TYPES: random operations of the forward */
    uint32_t reserved;
} trii_remote_results;

#define TRII_REMOTE_ZEROS 1u    /* it is a gradient that was not reached: nothing is fetched */
#define TRII_REMOTE_LAST 2u     /* nobody else reads it: it need not stay any longer */
#define TRII_REMOTE_WITH_REF 4u /* the next reference of the message is to its module */
typedef struct trii_remote_source {
    uint32_t magic, flags;
    uint64_t session, number; /* of the caller there, and its number for the call that made it */
    uint32_t result, reserved;
} trii_remote_source;

#define TRII_REMOTE_RELEASED 64
typedef struct trii_remote_release {
    uint32_t magic, kind;
    uint64_t n;
    uint64_t call[TRII_REMOTE_RELEASED]; /* [n]: their graphs, and what stays, are dropped */
} trii_remote_release;

typedef struct trii_remote_update {
    uint32_t magic, kind;
    trii_remote_key key;
    uint64_t n_backwards; /* PREPARE: so many direct backwards of this step have been recorded */
} trii_remote_update;

/* remote_frames.c */
tri_status trii_remote_refuse(const char *what) TRI_MUST_CHECK; /* FORMAT: a damaged message */
void trii_remote_type_put(trii_remote_type *to, const trii_type *type);
/* INVALID_ARG: no such type can be. */
tri_status trii_remote_type_get(const trii_remote_type *from, trii_type *type_out) TRI_MUST_CHECK;
/* The types that follow `head` bytes of the data. The parts from `first_part` on must be theirs,
 * one for each that is neither absent nor elsewhere (bits), unless that is -1. */
tri_status trii_remote_types_get(const tri_rpc_message *message, size_t head, uint32_t n,
                                 int first_part, uint64_t elsewhere,
                                 trii_type *types_out) TRI_MUST_CHECK;
/* The sources that follow `head` bytes, one for each type that is elsewhere: there must be room for
 * them. sources_out[i] is that of type i. */
tri_status trii_remote_sources_get(const tri_rpc_message *message, size_t head, uint32_t n,
                                   uint64_t elsewhere, const trii_type *types,
                                   trii_remote_source *sources_out) TRI_MUST_CHECK;
int trii_remote_count(uint64_t bits);

/* In the order of trii_remote_kind; served.c. */
extern const tri_rpc_function *const trii_remote_functions[TRII_REMOTE_KINDS];

/* --- at the owner: served.c, served_run.c --------------------------------- */

typedef struct trii_served trii_served;
typedef struct trii_accounts trii_accounts; /* account.h */

/* Where results stay of another session of a caller. */
typedef struct trii_remote_place {
    struct trii_remote_place *next;
    uint64_t session;
    tri_rpc_ref *ref; /* to the served module: nobody but its caller refers to a session, or
                         sessions of two owners would keep each other */
} trii_remote_place;

/* One caller of a served module. */
typedef struct trii_session {
    struct trii_session *next; /* under the lock */
    trii_served *served;       /* a reference */
    uint64_t number;           /* random */
    trii_remote_place *places; /* of the thread; references are held */
    char caller[TRII_REMOTE_NAME];
    uint64_t incarnation;
    atomic_int n_graphs;
    bool lost; /* under the lock: nobody refers to it any more */
} trii_session;

/* A forward that waits for its backward. */
typedef struct trii_remote_graph {
    struct trii_remote_graph *next;
    trii_session *session;
    uint64_t call;
    tri_context *context;                /* with its step, which has run */
    tri_tensor *in[TRI_REMOTE_TENSORS];  /* owned; NULL = absent */
    tri_tensor *out[TRI_REMOTE_TENSORS]; /* step tensors, or operands of these */
    int n_in, n_out;
    uint64_t requires_grad, out_requires_grad; /* bits of inputs and results */
    trii_remote_path path;
} trii_remote_graph;

/* A request in the queue. */
typedef struct trii_remote_job {
    struct trii_remote_job *next;
    tri_rpc_request *request;
    trii_session *session;
    trii_remote_kind kind;
} trii_remote_job;

/* A result that waits for other owners. */
typedef struct trii_stay {
    struct trii_stay *next;
    uint64_t session, number;
    uint32_t result;
    tri_tensor *tensor; /* on the host; a reference */
} trii_stay;

#define TRII_REMOTE_PRIORITIES 3

struct trii_served {
    trii_served *next; /* of this process */
    atomic_int refs;   /* the table's, the worker's object, the thread's, one for each session */
    tri_rpc *rpc;
    atomic_bool is_withdrawn; /* its name may be given to another one */
    char name[TRII_REMOTE_NAME];
    uint64_t number;                     /* of trii_remote_path */
    tri_module *module;                  /* NULL: a function */
    const tri_remote_function *function; /* NULL: a module */
    void *object;
    tri_optimizer *optimizer; /* NULL = none */
    tri_remote_versions versions;
    int max_graphs;

    trii_mutex lock;
    trii_cond work, ended;
    atomic_int called; /* how often its thread has been told of something to do */
    trii_remote_job *queue[TRII_REMOTE_PRIORITIES], **queue_end[TRII_REMOTE_PRIORITIES];
    trii_session *sessions;
    trii_stay *stays;
    uint64_t n_read; /* how often others have read one of them */
    bool any_lost;   /* some of them */
    bool stop, has_ended;
    bool is_claimed; /* somebody joins the thread, or it is detached */
    trii_thread thread;

    /* of its thread */
    trii_remote_graph *graphs, *idle; /* idle: with a context, for the next forward */
    tri_tensor **params; /* of the module, those that require a gradient; references are held */
    int n_params;
    trii_accounts *accounts; /* NULL without an optimizer */
};

/* What the thread of a served module does now, for remote modules that it calls; NULL in other
 * threads. */
typedef struct trii_remote_running {
    const trii_remote_key *key; /* of the backward that runs; NULL: a forward */
    const trii_remote_order *order;
    uint32_t n_backwards; /* that it has recorded */
    const trii_remote_path *path;
    tri_rpc_request *request;
} trii_remote_running;
trii_remote_running *trii_remote_now(void);
void trii_remote_now_set(trii_remote_running *running);

tri_status trii_remote_function_check(const tri_remote_function *function,
                                      const char *call) TRI_MUST_CHECK;

/* served_input.c. Reads the part where it lies, until its request is answered. */
tri_tensor *trii_remote_wrap(const trii_type *type, const tri_rpc_part *part);
/* Zeros that take no memory until somebody looks at them: what a caller asks about may be large. */
tri_tensor *trii_remote_untouched(const trii_type *type);

/* served_stay.c. Records that the value, of the current step, stays in a tensor of its own:
 * *tensor_out, a reference. */
tri_status trii_stay_record(trii_step *step, trii_vid value,
                            tri_tensor **tensor_out) TRI_MUST_CHECK;
/* After the run: from now on others find those that are not NULL, by their index. */
tri_status trii_stays_add(trii_served *served, uint64_t session, uint64_t number,
                          tri_tensor *const stay[TRI_REMOTE_TENSORS]) TRI_MUST_CHECK;
void trii_stays_unref(tri_tensor *stay[TRI_REMOTE_TENSORS]);
/* Those of a number; 0 = of all numbers, of all sessions. */
void trii_stays_drop(trii_served *served, uint64_t session, uint64_t number);
/* Notes where the sources' results are, by the references that came with them. */
tri_status trii_places_add(trii_session *session, const tri_rpc_message *message,
                           const trii_remote_source *sources, uint32_t n,
                           uint64_t elsewhere) TRI_MUST_CHECK;
void trii_places_drop(trii_session *session);
/* An operand of this type, from where it stays; a failed tensor if it has gone. Blocks, at most as
 * long as the request has time. Of another module of this worker nothing is copied. */
tri_tensor *trii_stay_read(const trii_session *session, tri_rpc_request *request,
                           const trii_remote_source *source, const trii_type *type);
extern const tri_rpc_function trii_remote_fetch, trii_remote_fetch_large;

/* served_table.c. A reference; NULL: it is none. */
trii_served *trii_served_find(const void *object);
void trii_served_unref(trii_served *served);

/* served_run.c: does one job and answers its request; on the thread of the served module. */
void trii_served_run(trii_served *served, trii_remote_job *job);
/* served_graphs.c */
void trii_served_drop_graphs(trii_served *served, const trii_session *session); /* NULL = of all */
/* All that the thread has; the last call. */
void trii_served_drop_all(trii_served *served);

/* --- at the caller: remote_module.c and others ---------------------------- */

/* What a remote optimizer and its modules share: how their backwards are numbered. Owned by the
 * optimizer and its modules, counted. The thread of the trainer alone uses it. */
typedef struct trii_remote_steps {
    atomic_int refs;
    uint64_t optimizer; /* trii_remote_key.optimizer: trii_remote_number() */
    int64_t step;       /* of the key, from 1 on; tri_remote_optimizer_step raises it */
    uint32_t pass;
    uint64_t generation; /* of the step and the walk in which `pass` was counted */
    uint32_t walk;
} trii_remote_steps;
trii_remote_steps *trii_remote_steps_create(void); /* NULL: no memory */
void trii_remote_steps_unref(trii_remote_steps *steps);
/* A step has ended, well or badly: the next one begins. */
void trii_remote_steps_next(trii_remote_steps *steps);

/* Types of results, by those of inputs and the modes. */
typedef struct trii_remote_answer {
    struct trii_remote_answer *next;
    trii_type in[TRI_REMOTE_TENSORS], out[TRI_REMOTE_TENSORS];
    int n_in, n_out;
    uint64_t requires_grad, out_requires_grad;
    uint32_t flags, autocast, n_random;
} trii_remote_answer;

#define TRII_REMOTE_KNOWN 8

/* A remote module, or a remote function of one worker. Counted: by its tri_module, and by the
 * operations that its forwards have recorded. */
typedef struct trii_remote {
    struct trii_remote *next; /* functions: of the process's table */
    atomic_int refs;
    tri_rpc *rpc;
    char name[2 * TRII_REMOTE_NAME]; /* "worker/name" */
    int64_t timeout_ms;
    const tri_remote_function *function; /* NULL: a module */

    trii_remote_steps *steps; /* NULL: in no remote optimizer */
    uint32_t index;           /* trii_remote_order.module */
    int64_t counted_step;     /* the step in which `seq` counts */
    uint32_t seq;             /* backwards recorded in it: PREPARE's n_backwards */

    trii_mutex lock;      /* of what follows */
    tri_rpc_ref *found;   /* by name: the served module; NULL = not yet */
    tri_rpc_ref *session; /* of the incarnation that served last; NULL = none */
    trii_remote_opened opened;
    uint64_t last_call;
    trii_remote_answer *answers;       /* until the session changes, as */
    uint64_t known[TRII_REMOTE_KNOWN]; /* sessions of whose modules its owner has references, */
    uint32_t n_known;                  /* the last ones of so many */
    trii_remote_release released;      /* not sent yet */
} trii_remote;

/* Of a module made by tri_remote_module; NULL: it is another one, or has failed (error line). */
trii_remote *trii_remote_of(tri_module *module);
void trii_remote_unref(trii_remote *remote);
/* The session, opened if there is none or the last one is gone: a reference. Blocks. number_out:
 * that of trii_remote_source; NULL allowed. */
tri_status trii_remote_session(trii_remote *remote, tri_rpc_ref **session_out,
                               uint64_t *number_out) TRI_MUST_CHECK;
/* The owner does not serve it any more: the next forward opens another session. */
void trii_remote_forget(trii_remote *remote, const tri_rpc_ref *session);
tri_status trii_remote_create(tri_rpc *rpc, const char *name, int64_t timeout_ms,
                              trii_remote **remote_out) TRI_MUST_CHECK;
tri_status trii_remote_check_counts(const trii_remote *remote, int n_in, int n_out) TRI_MUST_CHECK;
/* Of a forward: values of its inputs (NO_VALUE = absent), and what of it decides the types of its
 * results. */
tri_status trii_remote_describe(trii_step *step, tri_tensor *const *in, int n_in, int n_out,
                                trii_vid *ids, trii_remote_answer *answer_out) TRI_MUST_CHECK;
/* The random number of this process (trii_remote_key.incarnation), and the worker's name. */
void trii_remote_self(tri_rpc *rpc, char name[TRII_REMOTE_NAME], uint64_t *incarnation_out);
/* A random number, not 0. */
uint64_t trii_remote_number(void);
/* How many backwards of the current step its module has recorded. */
uint32_t trii_remote_backwards(const trii_remote *remote);

/* remote_call.c: records a forward on values; in[i] NO_VALUE = absent. */
tri_status trii_remote_record(trii_remote *remote, trii_step *step, const trii_vid *in, int n_in,
                              const void *data, const trii_remote_answer *answer,
                              trii_vid *out) TRI_MUST_CHECK;
/* The caller's timeout, and at most what is left of the call that this thread handles. */
int64_t trii_remote_timeout_ms(const trii_remote *remote);
/* Calls that hold graphs at the owner and got no backward: told now, or with the next ones. */
void trii_remote_release_later(trii_remote *remote, tri_rpc_ref *session, uint64_t call);

#endif
