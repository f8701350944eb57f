/*
 * bits.c - small models trained by every strategy, and hashes of what each leaves. Two builds that
 * compute the same print the same lines, so `./run bits` holds two of them against each other. The
 * numbers are those of one processor and mean nothing elsewhere.
 *
 *     bits [--list] [--brief] [--ranks N] [--zero N [--replicas N]] [TEXT [TEXT]]
 *
 *   --list   print the names alone
 *   --brief  three of the eleven ways to place the ranks of each case
 *   --ranks N  on so many ranks alone, in shared memory
 *   --zero N train by stage N of tri_zero in place of tri_ddp. Gradients are in pieces then, and
 *            nobody looks at them; weights, buffers and losses are to be those of tri_ddp
 *   --replicas N  over a mesh of two axes, of which the first has N ranks
 *   TEXT     only what has it in its name; of two, both
 *
 * Prints `NAME: RANKS ENGINE: weights HASH buffers HASH optimizer HASH gradients HASH losses HASH`,
 * each over all ranks, in an order of its own. Every line comes from a process of its own, so that
 * it does not depend on which others there are. Exit status: 1 if one failed.
 */
#include "bits_train.h"

#include <sys/mman.h>

#define LINE 1024
#define DEADLINE_S 240

typedef struct way {
    int ranks;
    const char *engine, *hosts; /* NULL: "auto"; on one */
    bool brief;
} way;

static const way ways[] = {
    {1, NULL, NULL, false},
    {2, "shm", NULL, false},
    {3, "shm", NULL, true},
    {4, "shm", NULL, false},
    {6, "shm", NULL, true},
    {2, "tcp", NULL, true},
    {3, "tcp", NULL, false},
    {4, "tcp", NULL, false},
    {6, "tcp", NULL, false},
    {4, "hierarchy", "0,0,1,1", false},
    {6, "hierarchy", "0,0,0,0,1,1", false},
};

typedef struct entry {
    const bits_case *of;
    const way *by;
    char name[128];
    pid_t pid;
    bool done;
} entry;

static way only;           /* of --ranks; none: all */
static int zero, replicas; /* stage; 0: tri_ddp */

static size_t list_entries(entry *list, bool brief, const char *const *texts)
{
    size_t n = 0;

    for (size_t c = 0; c < TRII_COUNT_OF(cases); c++) {
        for (size_t w = 0; w < (only.ranks > 0 ? 1 : TRII_COUNT_OF(ways)); w++) {
            entry *e = &list[n];

            *e = (entry){.of = &cases[c], .by = only.ranks > 0 ? &only : &ways[w]};
            snprintf(e->name, sizeof(e->name), "%s: %d %s", cases[c].name, e->by->ranks,
                     e->by->engine != NULL ? e->by->engine : "rank");
            if ((!brief || e->by->brief) && strstr(e->name, texts[0]) != NULL &&
                strstr(e->name, texts[1]) != NULL)
                n++;
        }
    }
    return n;
}

/* In a process of its own. */
static int make_line(const entry *e, char *line)
{
    static bits_run run;

    alarm(DEADLINE_S);
    if (e->by->hosts != NULL)
        setenv("TRI_HOSTS", e->by->hosts, 1);
    run = (bits_run){.of = e->of,
                     .ranks = e->by->ranks,
                     .engine = e->by->engine,
                     .zero = zero,
                     .replicas = replicas};
    return bits_line(&run, line, LINE) ? 0 : 1;
}

static bool start(entry *e, char *line)
{
    fflush(NULL);
    e->pid = fork();
    if (e->pid == 0)
        _exit(make_line(e, line));
    return e->pid > 0;
}

/* Waits for one that is under way. */
static bool finish_one(entry *list, size_t n, char (*lines)[LINE])
{
    int status = 0;
    pid_t pid = wait(&status);

    for (size_t i = 0; i < n; i++) {
        if (list[i].pid != pid || list[i].done)
            continue;
        list[i].done = true;
        if (!WIFEXITED(status))
            snprintf(lines[i], LINE, "failed: ended with status %#x", (unsigned)status);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return false;
}

static bool train_all(entry *list, size_t n, long at_once)
{
    char(*lines)[LINE] =
        mmap(NULL, (n + 1) * LINE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t printed = 0, started = 0, ended = 0;
    bool well = lines != MAP_FAILED;

    while (lines != MAP_FAILED && ended < n) {
        if (started < n && (long)(started - ended) < at_once) {
            if (!start(&list[started], lines[started]))
                return false;
            started++;
            continue;
        }
        well = finish_one(list, n, lines) && well;
        ended++;
        for (; printed < n && list[printed].done; printed++)
            printf("%s: %s\n", list[printed].name, lines[printed]);
        fflush(stdout);
    }
    return well;
}

int main(int argc, char **argv)
{
    static entry list[TRII_COUNT_OF(cases) * TRII_COUNT_OF(ways) + 1];
    bool names = false, brief = false;
    const char *texts[2] = {"", ""};
    size_t n;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            names = true;
        else if (strcmp(argv[i], "--brief") == 0)
            brief = true;
        else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc)
            only = (way){(int)strtol(argv[++i], NULL, 10), "shm", NULL, true};
        else if (strcmp(argv[i], "--zero") == 0 && i + 1 < argc)
            zero = (int)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--replicas") == 0 && i + 1 < argc)
            replicas = (int)strtol(argv[++i], NULL, 10);
        else
            texts[texts[0][0] != '\0'] = argv[i];
    }
    /* The order of a product's sum depends on the number of threads. */
    setenv("TRI_NUM_THREADS", "1", 0);
    n = list_entries(list, brief, texts);
    if (n == 0) {
        fprintf(stderr, "bits: nothing has \"%s\" and \"%s\" in its name\n", texts[0], texts[1]);
        return 2;
    }
    for (size_t i = 0; names && i < n; i++)
        printf("%s\n", list[i].name);
    return names || train_all(list, n, sysconf(_SC_NPROCESSORS_ONLN)) ? 0 : 1;
}
