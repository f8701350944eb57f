/*
 * mesh.h - the ranks of a group as a grid with named axes, and a group for each of its lines, so
 * that strategies that divide a model in different ways get a group each. torch's init_device_mesh.
 *
 *     tri_mesh *mesh;
 *     TRI_TRY(tri_mesh_create(NULL, TRI_SHAPE(2, 4), (const char *[]){"data", "tensor"}, &mesh));
 *     model = tri_ddp(net, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
 *
 * Ranks are laid out row by row: the last axis has neighbouring ranks, so put there what sends most
 * and waits for it (tensor parallelism). Of several hosts, the first axis is the one between them:
 * replicas or a pipeline. Rank 5 of this mesh has the
 * coordinates data 1, tensor 1; its group "data" is ranks 1 and 5, its group "tensor" ranks 4 to 7.
 *
 * The group of an axis has its ranks in the order of their coordinates. An axis that holds all
 * ranks is the group itself; others are made as tri_group_split makes them. They belong to the
 * mesh: tri_group_ref keeps one longer. A mesh fails with its group: make a new group
 * (tri_group_shrink), then a new mesh.
 *
 * Functions that look at a mesh may be called from any thread and never block.
 */
#ifndef TRIREME_MESH_H
#define TRIREME_MESH_H

#include <trireme/group.h>

TRI_BEGIN_DECLS

#define TRI_MAX_MESH_AXES 8
#define TRI_MAX_MESH_NAME 31 /* bytes of an axis' name */

typedef struct tri_mesh tri_mesh;

/**
 * Divides all ranks of a group. Collective over it: all ranks give the same sizes and names, and
 * the groups of the axes are made one after the other.
 *
 *   group  NULL: the world. A reference is taken.
 *   sizes  [n] ranks along each axis, 1 to TRI_MAX_MESH_AXES of them; TRI_SHAPE(2, 4) of tensor.h
 *          gives sizes and n. Their product is the size of the group: unlike in torch, no rank is
 *          left over.
 *   names  [n] of the axes, each once; copied
 *
 * Blocks until all ranks have called it. Errors, after which the group goes on: INVALID_ARG (sizes,
 * names; on all ranks, or MISMATCH on those that gave something else), MISMATCH (a rank gave
 * something else, or failed by itself; the line names it). NO_MEMORY on some ranks only aborts it,
 * unless the others heard of it before they went on. Further STATE (there is no world), and those
 * of tri_group_split.
 */
TRI_API TRI_MUST_CHECK tri_status tri_mesh_create(tri_group *group, const int64_t *sizes, int n,
                                                  const char *const *names, tri_mesh **mesh_out);
/* NULL is allowed. Leaves the groups that nobody else keeps. */
TRI_API void tri_mesh_destroy(tri_mesh *mesh);

/* In the functions below `axis` is a name, or NULL: the only axis of a mesh with one. */

/* The ranks that differ from this one along this axis alone, this one included. Borrowed: it lives
 * as long as the mesh. Never NULL, which would stand for the world: where there is no such axis, it
 * gives a group without ranks (tri_group_rank -1), with which every call fails: INVALID_ARG, with
 * the axes that there are. torch's get_group. */
TRI_API tri_group *tri_mesh_group(const tri_mesh *mesh, const char *axis);
/* Where this rank is along the axis, from 0 on; -1 (and the error line): there is no such axis.
 * torch's get_local_rank. */
TRI_API int tri_mesh_coordinate(const tri_mesh *mesh, const char *axis);
/* How many ranks there are along the axis; -1 (and the error line): there is no such axis. */
TRI_API int tri_mesh_size(const tri_mesh *mesh, const char *axis);
/* Number of axes, and their names in order; NULL for an index that is out of range. */
TRI_API int tri_mesh_axis_count(const tri_mesh *mesh);
TRI_API const char *tri_mesh_axis_name(const tri_mesh *mesh, int index);

/**
 * The part of a mesh with some of its axes, in their order, through this rank: torch's
 * mesh["data", "tensor"]. It shares the groups, and may outlive the mesh. Not collective.
 *
 *   names  [n], at least one
 *
 * Errors: INVALID_ARG (no such axis, a name twice, another order).
 */
TRI_API TRI_MUST_CHECK tri_status tri_mesh_submesh(const tri_mesh *mesh, const char *const *names,
                                                   int n, tri_mesh **sub_out);
/**
 * A mesh of one axis in place of several: ranks that differ along these alone, the last one
 * fastest; torch's _flatten. Collective over the group of tri_mesh_create (also for a mesh that
 * tri_mesh_submesh gave), as tri_mesh_create.
 *
 *   names  [n] axes of the mesh, at least one, in their order
 *   name   of the new axis; copied
 *
 * Errors: as tri_mesh_create and tri_mesh_submesh.
 */
TRI_API TRI_MUST_CHECK tri_status tri_mesh_flatten(const tri_mesh *mesh, const char *const *names,
                                                   int n, const char *name, tri_mesh **flat_out);

/* They wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_mesh_create(...) TRI_SITE_SET_(tri_mesh_create(__VA_ARGS__))
#define tri_mesh_flatten(...) TRI_SITE_SET_(tri_mesh_flatten(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
