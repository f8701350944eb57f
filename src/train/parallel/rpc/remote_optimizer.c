/*
 * remote_optimizer.c - the optimizer of a trainer whose parameters are at several owners.
 *
 * A step runs what was recorded, without any update. Then every owner is asked whether it has all
 * gradients (PREPARE), the own optimizer updates, which is the last that can refuse, and every
 * owner is told to update (COMMIT). The own one comes before COMMIT and not beside it, so that
 * nobody has updated if it fails. What is left is an owner that is lost between its answer and
 * COMMIT.
 *
 * A step that failed keeps its number, and is repeated under it with the next attempt
 * (account.h): owners that have updated, and the own optimizer, leave the repetition out.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/site.h"
#include "train/dist/samples.h"
#include "train/graph/values/contents.h"
#include "train/parallel/rpc/remote_optimizer_internal.h"

static tri_remote_optimizer out_of_memory = {.status = TRI_ERR_NO_MEMORY};

/* --- making --------------------------------------------------------------- */

static void fail(tri_remote_optimizer *o, tri_status status)
{
    if (o->status != TRI_OK)
        return;
    o->status = status;
    o->why = trii_strdup(tri_last_error(), "error line");
}

static tri_status status_of(const tri_remote_optimizer *o)
{
    if (o == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the remote optimizer is NULL");
    if (o->status != TRI_OK)
        return TRII_FAIL(o->status, "%s", o->why != NULL ? o->why : "out of memory");
    return o->own != NULL ? tri_optimizer_status(o->own) : TRI_OK;
}

static tri_status list(tri_remote_optimizer *o, int i, tri_module *module)
{
    trii_remote *remote = trii_remote_of(module);

    if (remote == NULL)
        return TRII_FAIL_CTX(TRI_ERR_INVALID_ARG, "remotes[%d]", i);
    for (int k = 0; k < i; k++) {
        if (o->owners[k].remote == remote || strcmp(o->owners[k].remote->name, remote->name) == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "remotes[%d] is %s, as remotes[%d]", i,
                             remote->name, k);
    }
    if (remote->steps != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "remotes[%d]: %s is in another remote optimizer", i,
                         remote->name);
    if (i > 0 && remote->rpc != o->owners[0].remote->rpc)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "remotes[%d]: %s is of another worker here", i,
                         remote->name);
    atomic_fetch_add(&remote->refs, 1);
    o->owners[i].remote = remote;
    o->n++;
    return TRI_OK;
}

static tri_status take_options(tri_remote_optimizer *o, const tri_remote_optimizer_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_remote_optimizer_options, opt);

    if (status != TRI_OK || opt == NULL)
        return status;
    o->options = *opt;
    if (!(opt->max_norm >= 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "max_norm %g: it must be above 0, or 0 for none",
                           opt->max_norm);
    return status;
}

static tri_status set_up(tri_remote_optimizer *o, tri_module *const *remotes, int n,
                         const tri_remote_optimizer_options *opt)
{
    tri_status status = take_options(o, opt);

    if (status == TRI_OK && (n < 1 || remotes == NULL))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%d remote modules%s: there must be one", n,
                           remotes == NULL ? " at NULL" : "");
    if (status == TRI_OK && o->own != NULL)
        status = tri_optimizer_status(o->own);
    if (status != TRI_OK)
        return status;
    o->owners = trii_alloc((size_t)n, sizeof(*o->owners), "remote optimizer");
    o->request =
        trii_alloc(1, sizeof(*o->request) + TRII_ACCOUNT_MEMBERS * sizeof(trii_account_member),
                   "remote optimizer");
    o->steps = trii_remote_steps_create();
    if (o->owners == NULL || o->request == NULL || o->steps == NULL)
        return TRI_ERR_NO_MEMORY;
    o->steps->step = TRII_ACCOUNT_FIRST;
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = list(o, i, remotes[i]);
    for (int i = 0; i < n && status == TRI_OK; i++) {
        trii_remote *remote = o->owners[i].remote;

        atomic_fetch_add(&o->steps->refs, 1);
        remote->steps = o->steps;
        remote->index = (uint32_t)i;
        remote->counted_step = 0;
    }
    return status == TRI_OK ? trii_remote_group_join(o) : status;
}

tri_remote_optimizer *tri_remote_optimizer_of(tri_optimizer *own_or_null,
                                              tri_module *const *remotes, int n,
                                              const tri_remote_optimizer_options *opt)
{
    tri_remote_optimizer *o = trii_alloc(1, sizeof(*o), "remote optimizer");
    tri_status status;

    if (o == NULL)
        return &out_of_memory;
    o->own = own_or_null;
    o->norm = (double)NAN;
    o->size = 1;
    status = set_up(o, remotes, n, opt);
    if (status != TRI_OK)
        fail(o, TRII_FAIL_CTX(status, "tri_remote_optimizer_of"));
    return o;
}

/* Some owner has gradients of this step, or will. */
static bool has_backwards(const tri_remote_optimizer *o)
{
    bool any = false;

    for (int i = 0; i < o->n && o->status == TRI_OK; i++)
        any = any || trii_remote_backwards(o->owners[i].remote) > 0;
    return any;
}

void tri_remote_optimizer_destroy(tri_remote_optimizer *o)
{
    if (o == NULL || o == &out_of_memory)
        return;
    if (has_backwards(o))
        trii_remote_tell_drop(o);
    for (int i = 0; i < o->n; i++) {
        trii_remote *remote = o->owners[i].remote;

        if (remote->steps != NULL && remote->steps == o->steps) {
            remote->steps = NULL;
            trii_remote_steps_unref(o->steps);
        }
        trii_remote_unref(remote);
    }
    trii_remote_group_leave(o);
    trii_remote_steps_unref(o->steps);
    trii_free(o->owners);
    trii_free(o->request);
    trii_free(o->why);
    trii_free(o);
}

/* --- settings ------------------------------------------------------------- */

void tri_remote_optimizer_set_lr(tri_remote_optimizer *o, double lr)
{
    if (status_of(o) != TRI_OK)
        return; /* the step says why */
    if (!isfinite(lr) || lr < 0) {
        fail(o, TRII_FAIL(TRI_ERR_INVALID_ARG, "a learning rate of %g: it must be 0 or more", lr));
        return;
    }
    o->has_lr = true;
    o->lr = lr;
    if (o->own != NULL)
        tri_optimizer_set_lr(o->own, lr);
}

double tri_remote_optimizer_lr(const tri_remote_optimizer *o)
{
    if (o == NULL || o->status != TRI_OK)
        return (double)NAN;
    if (o->has_lr)
        return o->lr;
    return o->own != NULL ? tri_optimizer_lr(o->own) : (double)NAN;
}

double tri_remote_optimizer_norm(const tri_remote_optimizer *o)
{
    return o != NULL && o->status == TRI_OK ? o->norm : (double)NAN;
}

/* --- the step ------------------------------------------------------------- */

static tri_status run_recorded(tri_remote_optimizer *o, trii_step *step)
{
    /* what tri_ddp still has to say belongs to the run, and not to the update */
    tri_status status = o->own != NULL ? trii_optimizer_before_update(o->own, step) : TRI_OK;

    if (status != TRI_OK)
        trii_step_fail(step, status);
    return trii_step_run(step);
}

/* Whether all owners have all gradients; the squares of these. */
static tri_status prepare(tri_remote_optimizer *o, double *squares_out)
{
    tri_status status = o->rank == 0 ? trii_remote_ask(o, TRII_REMOTE_PREPARE, 1) : TRI_OK;

    *squares_out = 0;
    for (int i = 0; i < o->n && status == TRI_OK && o->rank == 0; i++)
        *squares_out += o->owners[i].reply.squares;
    return trii_remote_agree(o, status, squares_out);
}

/* The factor that brings the norm over all gradients, ours and theirs, to max_norm. */
static tri_status find_factor(tri_remote_optimizer *o, trii_step *step, double theirs,
                              double *factor_out)
{
    double squares = 0;
    tri_status status = TRI_OK;

    *factor_out = 1;
    if (o->options.max_norm == 0)
        return TRI_OK;
    if (o->own != NULL)
        status = trii_optimizer_square_sum(o->own, step, &squares);
    squares += theirs;
    o->norm = sqrt(squares);
    *factor_out = o->options.max_norm / (o->norm + 1e-6);
    if (*factor_out > 1)
        *factor_out = 1;
    if (status == TRI_OK && o->own != NULL && *factor_out != 1)
        status = trii_optimizer_scale_next(o->own, step, *factor_out);
    return status;
}

static tri_status update_own(tri_remote_optimizer *o)
{
    tri_status status = TRI_OK;

    if (o->own == NULL)
        return TRI_OK;
    if (o->own_done)
        tri_optimizer_zero_grad(o->own);
    else
        status = trii_optimizer_step_unless(o->own, NULL);
    return status;
}

static size_t append(char *text, size_t used, size_t room, const char *name)
{
    int n =
        used < room ? snprintf(text + used, room - used, "%s%s", used > 0 ? ", " : "", name) : 0;

    return used + (n > 0 ? (size_t)n : 0);
}

/* Some have updated, and others may have not: says who. */
static tri_status in_part(const tri_remote_optimizer *o, tri_status status)
{
    char line[TRII_REMOTE_LINE], updated[TRII_REMOTE_LINE] = "";
    size_t used = 0;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (o->own != NULL)
        used = append(updated, used, sizeof(updated), "this worker");
    for (int i = 0; i < o->n; i++) {
        if (o->owners[i].status == TRI_OK)
            used = append(updated, used, sizeof(updated), o->owners[i].remote->name);
    }
    return TRII_FAIL(
        status,
        "all owners had agreed to update, but only %s %s known to have (repeat the step: those "
        "leave it out): %s",
        used > 0 ? updated : "nobody", used > 0 && strstr(updated, ", ") != NULL ? "are" : "is",
        line);
}

static tri_status update_all(tri_remote_optimizer *o, trii_step *step)
{
    double squares, factor;
    tri_status status = prepare(o, &squares);

    if (status == TRI_OK) {
        status = find_factor(o, step, squares, &factor);
        if (status == TRI_OK)
            status = update_own(o);
        o->own_done = status == TRI_OK;
        status = trii_remote_agree(o, status, NULL);
    }
    if (status != TRI_OK)
        return status;
    if (o->rank == 0)
        status = trii_remote_ask(o, TRII_REMOTE_COMMIT, factor);
    if (status != TRI_OK)
        status = in_part(o, status);
    return trii_remote_agree(o, status, NULL);
}

/* The step is over, or will be repeated. */
static void go_on(tri_remote_optimizer *o, bool done)
{
    trii_remote_steps_next(o->steps);
    if (!done)
        return;
    o->steps->step = (TRII_ACCOUNT_NUMBER(o->steps->step) + 1) << TRII_ACCOUNT_ATTEMPT_BITS;
    o->own_done = false;
}

/* Gradients of a step that failed. Keeps the error line. */
static void give_up(tri_remote_optimizer *o)
{
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_remote_tell_drop(o);
    if (o->own != NULL)
        tri_optimizer_zero_grad(o->own);
    trii_err_set("%s", line);
}

/* status: whether there is one to be made. */
static tri_status step_with(tri_remote_optimizer *o, trii_step *step, tri_status status)
{
    if (status == TRI_OK)
        status = run_recorded(o, step);
    status = trii_remote_agree_first(o, status, step != NULL ? trii_samples_take(step) : 0);
    if (status == TRI_OK)
        status = update_all(o, step);
    if (status != TRI_OK)
        give_up(o);
    go_on(o, status == TRI_OK);
    return status;
}

tri_status(tri_remote_optimizer_step)(tri_remote_optimizer *o)
{
    const trii_site site = trii_site_last(); /* what runs leaves others */
    trii_step *step = NULL;
    tri_status status = status_of(o);

    if (status == TRI_OK) {
        step = trii_step_current();
        status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK || (o != NULL && o->members != NULL))
        status = step_with(o, step, status);
    tri_site_set(site.file, site.line);
    return status == TRI_OK ? TRI_OK : trii_contents_fail(status, "tri_remote_optimizer_step");
}

void tri_remote_optimizer_zero_grad(tri_remote_optimizer *o)
{
    trii_step *step = trii_step_current();

    if (status_of(o) != TRI_OK)
        return;
    if (step != NULL)
        (void)trii_samples_take(step);
    if (has_backwards(o)) {
        trii_remote_tell_drop(o);
        go_on(o, false);
    }
    if (o->own != NULL)
        tri_optimizer_zero_grad(o->own);
}
