/*
 * remote_op.h - a forward or a backward of a remote module in the caller's step. Shared by
 * remote_call.c, which sends it, and remote_stay.c, which knows of its operands and results that
 * are not sent.
 */
#ifndef TRII_REMOTE_OP_H
#define TRII_REMOTE_OP_H

#include "base/site.h"
#include "train/graph/step/host_op.h"
#include "train/parallel/rpc/remote_internal.h"

typedef struct trii_remote_op {
    trii_host_op op; /* first */
    trii_remote *remote;
    tri_rpc_ref *session;
    const trii_step *step;             /* whose operation it is */
    tri_rpc_call *call;                /* sent, and not over: */
    struct trii_remote_op *next, **at; /* in the list of those */
    trii_site site;
    bool is_backward, is_over, is_sent, is_aborted;
    bool wants_graph; /* a result requires a gradient */
    bool has_graph;   /* the owner keeps one, as far as is known here */
    int n_backwards;  /* forward: those that are recorded and not sent */
    uint64_t number;
    trii_type in[TRI_REMOTE_TENSORS];  /* forward: inputs; backward: seeds */
    trii_type out[TRI_REMOTE_TENSORS]; /* results; gradients of the wanted inputs */
    int n_in, n_out;
    const void *parts[TRI_REMOTE_TENSORS]; /* of present operands, while it runs */
    void *results[TRI_REMOTE_TENSORS];

    /* remote_stay.c; bits are numbers of `out` */
    uint64_t session_number, stay_number; /* under which results stay */
    uint64_t unsent, stay;                /* are not sent; and stay for others */
    uint64_t only_here;                   /* are read by operations that cannot fetch them */
    uint64_t left;    /* of `stay`: what the owner still has, as far as is known here */
    uint64_t reached; /* backward, when it is over: the gradients that there are */
    uint16_t n_readers[TRI_REMOTE_TENSORS];
    int n_open; /* operations that read results and are not over */
    struct {    /* who makes operand i of `in`; NULL: not a remote call */
        struct trii_remote_op *op;
        int result;
    } from[TRI_REMOTE_TENSORS];

    /* forward */
    uint32_t flags, autocast, n_random;
    uint64_t requires_grad;
    trii_random_place random;
    trii_remote_path path;

    /* backward */
    struct trii_remote_op *forward;
    uint64_t present, wanted;
    bool keeps;
    trii_remote_key key;
    trii_remote_order order;

    unsigned char data[]; /* a function's */
} trii_remote_op;

/* --- remote_stay.c -------------------------------------------------------- */

/* While it is recorded: `in` is its operand i. */
void trii_remote_note_maker(trii_remote_op *op, const trii_step *step, int i, trii_vid in);
/* trii_host_kind.stays */
void trii_remote_stays(trii_host_op *op, uint64_t results);

/* Operand i is fetched from its source by the owner. */
bool trii_remote_is_elsewhere(const trii_remote_op *op, int i);
uint64_t trii_remote_elsewhere(const trii_remote_op *op); /* bits of `in` */
/* Results as the owner counts them: a backward's by their inputs. */
uint64_t trii_remote_as_sent(const trii_remote_op *op, uint64_t results);
/* Writes the sources that follow the types, and references (borrowed) to modules that the owner
 * does not know yet. Returns the bytes. */
size_t trii_remote_put_sources(const trii_remote_op *op, unsigned char *to,
                               tri_rpc_ref *refs[TRI_REMOTE_TENSORS], int *n_refs);
/* It has ended well: it has read its operands. */
void trii_remote_end_reading(trii_remote_op *op);

#endif
