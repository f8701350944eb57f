/*
 * dist.h - collectives and messages of tensors, as operations of a step that gradients pass
 * through: torch.distributed.nn.functional, and the pairs of tensor parallelism.
 *
 *     tri_group *tensor = tri_mesh_group(mesh, "tensor");
 *     h = tri_relu(tri_linear(tri_dist_copy_to(x, tensor), w1_part, b1_part));
 *     y = tri_dist_reduce_from(tri_linear(h, w2_part, NULL), tensor);
 *
 * They are recorded like any other operation and return at once. The run starts each as soon as its
 * operand is there, computes what else it can meanwhile, and waits before the first reader; those
 * of one group start in the order in which they were recorded. So all ranks of the group record the
 * same ones in the same order, with operands of one shape and dtype. The gradients communicate as
 * well: what one rank differentiates, all do, and an operand requires a gradient on all of them or
 * on none.
 *
 * group: NULL is the world; that of an axis of a mesh is tri_mesh_group's. The step keeps it until
 * it ends. In a group of one rank nothing is sent, and values and gradients are what they are with
 * several. Operands have any dtype (reductions: those of group.h), any size, 0 included, and lie on
 * any device; results lie on the same one. 16 bits are added in f32 and rounded once; tri_autocast
 * casts nothing here.
 *
 * Which gradient is right depends on what the losses of the ranks are:
 *   - each rank has a loss of its own, such as one of its part of a batch, and what counts is their
 *     sum: tri_dist_all_reduce to tri_dist_recv. Gradients are those of that sum, so the gradient
 *     of a sum over ranks is one, too.
 *   - all ranks have the same loss, computed by all of them together, as under tensor parallelism:
 *     tri_dist_copy_to, tri_dist_reduce_from, tri_dist_scatter_to and tri_dist_gather_from.
 *     tri_dist_all_reduce would give a gradient that is too large by the number of ranks.
 * Under sequence parallelism, where the parts of one sequence are on the ranks of the group,
 * tri_dist_all_gather and tri_dist_reduce_scatter are each other's gradient: Megatron's
 * gather_from_sequence and reduce_scatter_to_sequence.
 *
 * tri_ddp weights ranks by their samples. It does so before the sums over ranks if there are any in
 * its model that reach other ranks of its own group; those of another axis of a mesh do not.
 *
 * Errors of all functions, carried by the result: INVALID_ARG (NULL, dim, sizes, peer, tag, a
 * reduction that the dtype does not have; this process is not a member of the group), STATE (there
 * is no world). Of the run: MISMATCH (ranks differ in what they record or in its size; TRI_CHECK=
 * order names both calls and their lines), and those of the group.
 *
 * A rank whose step fails while others may be waiting for it, in a collective that is refused here
 * or in a gradient that has not been recorded yet, aborts the group, and they get its reason. That
 * is so even where all ranks make the same mistake.
 */
#ifndef TRIREME_DIST_H
#define TRIREME_DIST_H

#include <trireme/group.h>
#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- of losses that add up ------------------------------------------------ */

/* y = op over ranks r of x_r, element by element. The gradient is the same of the gradients; sums
 * and averages alone have one (else UNSUPPORTED in backward: record what needs none, such as a
 * maximum, under TRI_NO_GRAD). torch.distributed.nn.functional.all_reduce. */
TRI_API tri_tensor *tri_dist_all_reduce(tri_tensor *x, tri_redop op, tri_group *group);
/* The x_r of all ranks one after the other along dim: [.., n, ..] -> [.., size n, ..]. Gradient: a
 * reduce_scatter, the sum. all_gather_tensor. */
TRI_API tri_tensor *tri_dist_all_gather(tri_tensor *x, int dim, tri_group *group);
/* This rank's part, the rank-th along dim, of op over r of x_r: [.., size n, ..] -> [.., n, ..]; a
 * dim that does not divide is INVALID_ARG, as in torch. Gradient: an all_gather (of an average
 * divided by the size); other reductions have none. reduce_scatter_tensor. */
TRI_API tri_tensor *tri_dist_reduce_scatter(tri_tensor *x, tri_redop op, int dim, tri_group *group);
/* x [size n, ..] -> [size n, ..]: its r-th n rows go to rank r, and the r-th of the result come
 * from it. So does the gradient. all_to_all_single. */
TRI_API tri_tensor *tri_dist_all_to_all(tri_tensor *x, tri_group *group);
/* The same of parts that differ, as of experts that get what tokens choose: the first to[0] rows of
 * x [n, ..] go to rank 0, the next to[1] to rank 1, up to n in all; from[r] rows of the result come
 * from rank r, which must send as many (else MISMATCH in the run). Both have a number for each rank
 * of the group, 0 included, and are copied. The gradient goes the other way. all_to_all_single with
 * sizes of splits. */
TRI_API tri_tensor *tri_dist_all_to_all_v(tri_tensor *x, const int64_t *to, const int64_t *from,
                                          tri_group *group);
/* x of rank root on all ranks; elsewhere x says shape and dtype. Gradient: the sum at root, zeros
 * elsewhere. torch.distributed.nn.functional.broadcast. */
TRI_API tri_tensor *tri_dist_broadcast(tri_tensor *x, int root, tri_group *group);

/**
 * A message to rank peer of the group, which calls tri_dist_recv. Messages between two ranks with
 * one tag (0 to 2^29 - 1) arrive in order.
 *
 * Returns a token, f32 [0], that is complete once the message is sent. If x requires a gradient and
 * the receiver's requires_grad is true, a tri_backward here begins at the token, or at what depends
 * on it, and gets its gradient from there:
 *
 *     tri_backward(tri_dist_send(h, 1, 0, NULL));   // rank 0: the first stage of a pipeline
 *     h = tri_dist_recv(TRI_SHAPE(n, d), TRI_DTYPE_F32, true, 0, 0, NULL);        // rank 1
 */
TRI_API tri_tensor *tri_dist_send(tri_tensor *x, int peer, int tag, tri_group *group);
/* What rank peer sends, of this shape and dtype (NONE: f32), on the current device; another length
 * or dtype fails the run (MISMATCH). requires_grad: floating-point numbers only; the gradient goes
 * back to peer, which then waits for it in its backward. Receives are posted when the run begins.
 */
TRI_API tri_tensor *tri_dist_recv(const int64_t *shape, int ndim, tri_dtype dtype,
                                  bool requires_grad, int peer, int tag, tri_group *group);

/* --- of one loss that all ranks have -------------------------------------- */

/* In pairs: each is the other's gradient, also of second order. Megatron's copy_to, reduce_from,
 * scatter_to and gather_from_tensor_model_parallel_region. x of copy_to and scatter_to, and the
 * results of the others, are the same on all ranks. */

/* x itself; the gradient is the sum over ranks: before the part of a model that each rank has
 * another piece of. */
TRI_API tri_tensor *tri_dist_copy_to(tri_tensor *x, tri_group *group);
/* The sum over ranks r of x_r; the gradient passes as it is: after that part. */
TRI_API tri_tensor *tri_dist_reduce_from(tri_tensor *x, tri_group *group);
/* This rank's part of x, the rank-th along dim; the gradients of all parts are gathered. A dim that
 * does not divide into equal parts is INVALID_ARG, as in Megatron. */
TRI_API tri_tensor *tri_dist_scatter_to(tri_tensor *x, int dim, tri_group *group);
/* The x_r of all ranks one after the other along dim; the gradient is that of this rank's part. */
TRI_API tri_tensor *tri_dist_gather_from(tri_tensor *x, int dim, tri_group *group);

#ifndef TRI_NO_SITES
#define tri_dist_all_reduce(...) TRI_SITE_(tri_dist_all_reduce(__VA_ARGS__))
#define tri_dist_all_gather(...) TRI_SITE_(tri_dist_all_gather(__VA_ARGS__))
#define tri_dist_reduce_scatter(...) TRI_SITE_(tri_dist_reduce_scatter(__VA_ARGS__))
#define tri_dist_all_to_all(...) TRI_SITE_(tri_dist_all_to_all(__VA_ARGS__))
#define tri_dist_all_to_all_v(...) TRI_SITE_(tri_dist_all_to_all_v(__VA_ARGS__))
#define tri_dist_broadcast(...) TRI_SITE_(tri_dist_broadcast(__VA_ARGS__))
#define tri_dist_send(...) TRI_SITE_(tri_dist_send(__VA_ARGS__))
#define tri_dist_recv(...) TRI_SITE_(tri_dist_recv(__VA_ARGS__))
#define tri_dist_copy_to(...) TRI_SITE_(tri_dist_copy_to(__VA_ARGS__))
#define tri_dist_reduce_from(...) TRI_SITE_(tri_dist_reduce_from(__VA_ARGS__))
#define tri_dist_scatter_to(...) TRI_SITE_(tri_dist_scatter_to(__VA_ARGS__))
#define tri_dist_gather_from(...) TRI_SITE_(tri_dist_gather_from(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
