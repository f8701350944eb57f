/*
 * mpi_world.c - see mpi_engine.h. The thread takes orders and tasks from two lists, starts tasks in
 * the order in which they came, and tests what is under way: without a pause while something ends
 * now and then, with pauses once nothing has for a while, asleep when there is nothing.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine-mpi/mpi_engine.h"

#define EAGER_NS 200000 /* tests without a pause for so long after the last end */
#define PAUSE_NS 20000  /* then with such pauses, which grow */
#define LONGEST_NS 500000

static struct {
    trii_mutex mutex;
    trii_cond work;  /* for the thread */
    trii_cond ended; /* an order was carried out */
    trii_thread thread;
    bool started, over; /* guard: mutex, as all that follows */
    bool ours;          /* we initialised MPI, so we finalise it */
    bool spoiled;       /* a group failed: MPI_Finalize could wait for ever */
    tri_status status;
    char why[TRII_ERR_BYTES];
    int rank, size;
    mpi_order *orders;
    mpi_task *posted, **last_posted;
    bool look;              /* a group may have failed */
    const mpi_group *first; /* the world as a rule; NULL: none, or it was left */
} world = {.mutex = TRII_MUTEX_INITIALIZER, .last_posted = &world.posted};

/* --- beginning ------------------------------------------------------------ */

/* Alone, MPI_Init would make a world of one, slowly, and nobody wants that. */
static bool has_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
                                        "MPI_LOCALNRANKS"};

    for (size_t i = 0; i < TRII_COUNT_OF(names); i++) {
        if (getenv(names[i]) != NULL)
            return true;
    }
    return false;
}

static tri_status begin(void)
{
    int is_there = 0, is_over = 0, level = MPI_THREAD_SINGLE;

    MPI_Initialized(&is_there);
    MPI_Finalized(&is_over);
    if (is_over)
        return mpi_host->fail(TRI_ERR_UNSUPPORTED, "the program has finalised MPI already");
    if (is_there) {
        MPI_Query_thread(&level);
        if (level != MPI_THREAD_MULTIPLE)
            return mpi_host->fail(TRI_ERR_UNSUPPORTED, "the program has initialised MPI itself, "
                                                       "without MPI_THREAD_MULTIPLE");
    } else {
        if (!has_launcher())
            return mpi_host->fail(TRI_ERR_UNSUPPORTED,
                                  "this process was not started by mpirun or srun");
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
            return mpi_host->fail(TRI_ERR_UNSUPPORTED, "MPI_Init_thread failed");
        world.ours = true;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    return TRI_OK;
}

/* --- tasks ---------------------------------------------------------------- */

static void finish(mpi_task *task, tri_status status)
{
    trii_op *op = task->op;
    const char *why = NULL;

    if (status != TRI_OK) {
        (void)trii_plugin_cause(mpi_host, task->group->fault); /* the text is whole */
        why = task->group->fault->text;
    }
    mpi_host->mutex_lock(&world.mutex);
    task->group->pending--;
    world.spoiled = world.spoiled || status != TRI_OK;
    mpi_host->mutex_unlock(&world.mutex);
    mpi_host->op_finish(op, status, why);
    /* What MPI may still write into must stay. */
    if (task->request == MPI_REQUEST_NULL)
        mpi_host->free(task);
}

static void start(mpi_task **active, mpi_task *task)
{
    tri_status status = trii_fault_status(task->group->fault);
    int error = MPI_SUCCESS;

    if (status == TRI_OK)
        error = mpi_task_start(task);
    if (task->moves.second.kind != TRII_MOVE_NONE)
        task->ticket = task->group->tickets++;
    if (error != MPI_SUCCESS)
        status = mpi_task_failed(task, error);
    if (status != TRI_OK) {
        finish(task, status);
        return;
    }
    while (*active != NULL)
        active = &(*active)->next;
    task->next = NULL;
    *active = task;
}

/* One look at everything; true if something ended. */
static bool test_all(mpi_task **active)
{
    bool ended = false;

    while (*active != NULL) {
        mpi_task *task = *active;
        tri_status status = trii_fault_status(task->group->fault);
        MPI_Status how = {0};
        int done = 0, error = MPI_SUCCESS;

        if (status == TRI_OK && task->stage == 1)
            done = task->ticket == task->group->turn;
        else if (status == TRI_OK)
            error = MPI_Test(&task->request, &done, &how);
        if (error != MPI_SUCCESS)
            status = mpi_task_failed(task, error);
        else if (status == TRI_OK && !done)
            status = TRI_INPROGRESS;
        else if (status == TRI_OK)
            status = mpi_task_advance(task, &how);
        if (status == TRI_INPROGRESS) {
            ended = ended || done;
            active = &task->next;
            continue;
        }
        *active = task->next;
        ended = true;
        finish(task, status);
    }
    return ended;
}

/* --- orders --------------------------------------------------------------- */

static tri_status form(mpi_group *group)
{
    MPI_Group all, members;
    char words[MPI_MAX_ERROR_STRING] = "";
    int error, length = 0;

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    error = MPI_Group_incl(all, group->size, group->members, &members);
    if (error == MPI_SUCCESS) {
        error = MPI_Comm_create_group(MPI_COMM_WORLD, members, group->tag, &group->comm);
        MPI_Group_free(&members);
    }
    MPI_Group_free(&all);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_dup(group->comm, &group->second); /* its error handler too */
    if (error == MPI_SUCCESS)
        return TRI_OK;
    MPI_Error_string(error, words, &length);
    return mpi_host->fail(TRI_ERR_UNSUPPORTED, "engine " TRII_PLUGIN_NAME ": %s", words);
}

/* Ends what is under way of the group, then the group. */
static void leave(mpi_task **active, mpi_group *group)
{
    if (group->pending > 0) {
        mpi_host->fault_raise(group->fault, TRI_ERR_ABORTED, "rank %d left the group during a call",
                              group->rank);
        (void)test_all(active);
    }
    if (trii_fault_status(group->fault) != TRI_OK)
        return;
    MPI_Comm_free(&group->second);
    MPI_Comm_free(&group->comm);
}

static void carry_out(mpi_task **active, mpi_order *order)
{
    tri_status status = TRI_OK;

    switch (order->kind) {
    case MPI_ORDER_FORM:
        status = form(order->group);
        if (status == TRI_OK && world.first == NULL)
            world.first = order->group;
        break;
    case MPI_ORDER_LEAVE:
        leave(active, order->group);
        world.first = world.first == order->group ? NULL : world.first;
        break;
    case MPI_ORDER_END:
        /* Without tri_finalize MPI_Finalize would wait for ranks that wait for us: like this mpirun
         * learns that a rank has gone. */
        if (world.ours && !world.spoiled && *active == NULL && world.first == NULL)
            MPI_Finalize();
        break;
    }
    if (status != TRI_OK)
        snprintf(order->why, sizeof(order->why), "%s", mpi_host->last_error());
    mpi_host->mutex_lock(&world.mutex);
    order->status = status;
    order->done = true;
    world.over = world.over || order->kind == MPI_ORDER_END;
    mpi_host->cond_broadcast(&world.ended);
    mpi_host->mutex_unlock(&world.mutex);
}

/* --- the thread ----------------------------------------------------------- */

/* Sleeps if nothing is under way, then takes what is there. */
static void take(bool idle, mpi_order **order_out, mpi_task **posted_out)
{
    mpi_host->mutex_lock(&world.mutex);
    while (idle && world.orders == NULL && world.posted == NULL && !world.look)
        mpi_host->cond_wait(&world.work, &world.mutex);
    world.look = false;
    *posted_out = world.posted;
    world.posted = NULL;
    world.last_posted = &world.posted;
    *order_out = world.orders;
    if (world.orders != NULL)
        world.orders = world.orders->next;
    mpi_host->mutex_unlock(&world.mutex);
}

static void pause_between(int64_t since_ns)
{
    int64_t now = mpi_host->now_ns();
    int64_t quiet = now - since_ns;

    if (quiet < EAGER_NS)
        return;
    quiet = quiet / 16 < PAUSE_NS ? PAUSE_NS : quiet / 16;
    mpi_host->sleep_until(now + (quiet < LONGEST_NS ? quiet : LONGEST_NS));
}

static void run(void *arg)
{
    mpi_task *active = NULL;
    int64_t last_ns = mpi_host->now_ns();
    bool over = false;

    (void)arg;
    world.status = begin(); /* published by the mutex below */
    if (world.status != TRI_OK)
        snprintf(world.why, sizeof(world.why), "%s", mpi_host->last_error());
    mpi_host->mutex_lock(&world.mutex);
    world.started = true;
    mpi_host->cond_broadcast(&world.ended);
    mpi_host->mutex_unlock(&world.mutex);
    while (!over) {
        mpi_order *order;
        mpi_task *posted;

        take(active == NULL, &order, &posted);
        if (posted != NULL)
            last_ns = mpi_host->now_ns();
        while (posted != NULL) {
            mpi_task *task = posted;

            posted = task->next;
            start(&active, task);
        }
        if (order != NULL) {
            over = order->kind == MPI_ORDER_END;
            carry_out(&active, order);
        }
        if (test_all(&active))
            last_ns = mpi_host->now_ns();
        else if (active != NULL)
            pause_between(last_ns);
    }
}

/* --- from other threads --------------------------------------------------- */

tri_status mpi_world_order(mpi_order *order)
{
    mpi_order **at = &world.orders;

    mpi_host->mutex_lock(&world.mutex);
    order->next = NULL;
    order->done = world.over;
    if (!world.over) {
        while (*at != NULL)
            at = &(*at)->next;
        *at = order;
        mpi_host->cond_signal(&world.work);
    }
    while (!order->done)
        mpi_host->cond_wait(&world.ended, &world.mutex);
    mpi_host->mutex_unlock(&world.mutex);
    return order->status == TRI_OK ? TRI_OK : mpi_host->fail(order->status, "%s", order->why);
}

void mpi_world_post(mpi_task *own_task)
{
    own_task->next = NULL;
    mpi_host->mutex_lock(&world.mutex);
    own_task->group->pending++;
    *world.last_posted = own_task;
    world.last_posted = &own_task->next;
    mpi_host->cond_signal(&world.work);
    mpi_host->mutex_unlock(&world.mutex);
}

void mpi_world_wake(void)
{
    mpi_host->mutex_lock(&world.mutex);
    world.look = true;
    mpi_host->cond_signal(&world.work);
    mpi_host->mutex_unlock(&world.mutex);
}

/* At exit: MPI wants to be left in order. */
static void end(void)
{
    mpi_order order = {.kind = MPI_ORDER_END};

    (void)mpi_world_order(&order);
    mpi_host->thread_join(&world.thread);
}

tri_status mpi_world_join(int *rank_out, int *size_out)
{
    static bool begun; /* guard: world.mutex */
    tri_status status = TRI_OK;

    mpi_host->mutex_lock(&world.mutex);
    if (!begun) {
        mpi_host->cond_init(&world.work);
        mpi_host->cond_init(&world.ended);
        status = mpi_host->thread_start(&world.thread, "tri-mpi", run, NULL);
        begun = status == TRI_OK;
        if (begun && atexit(end) != 0)
            mpi_host->log(TRII_LOG_WARN, "mpi", "MPI_Finalize will not be called");
    }
    while (status == TRI_OK && !world.started)
        mpi_host->cond_wait(&world.ended, &world.mutex);
    mpi_host->mutex_unlock(&world.mutex);
    if (status == TRI_OK && world.status != TRI_OK)
        status = mpi_host->fail(world.status, "engine " TRII_PLUGIN_NAME ": %s", world.why);
    if (status != TRI_OK)
        return status;
    *rank_out = world.rank;
    *size_out = world.size;
    return TRI_OK;
}
