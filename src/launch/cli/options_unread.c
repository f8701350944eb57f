/*
 * options_unread.c - warns of input that has no effect, most likely by mistake: misspelt variables
 * PET_NAME and keys of --rdzv-conf, ranks that do not exist, filters of streams that are not teed,
 * options behind the program. torchrun ignores them silently, which costs its users hours.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/param.h"
#include "launch/cli/options_table.h"
#include "os/process.h"

enum { NAME_BYTES = 40, NEAR = 4 };

/* Of all back ends, ours and torchrun's. */
static const char *const conf_keys[] = {"join_timeout",
                                        "last_call_timeout",
                                        "close_timeout",
                                        "keep_alive_interval",
                                        "keep_alive_max_attempt",
                                        "read_timeout",
                                        "is_host",
                                        "timeout",
                                        "store_type",
                                        "heartbeat",
                                        "heartbeat_timeout",
                                        "shutdown_timeout",
                                        "use_libuv",
                                        "rank",
                                        "cfg",
                                        "protocol",
                                        "ca_cert",
                                        "cacert",
                                        "ssl_cert",
                                        "cert",
                                        "ssl_cert_key",
                                        "key",
                                        "user",
                                        "password",
                                        "username",
                                        "etcd_prefix",
                                        "lease_ttl",
                                        "ttl"};

typedef struct guess {
    const char *name;
    int distance;
} guess;

static void consider(guess *best, const char *given, size_t length, const char *name)
{
    int d = strncmp(given, name, length) == 0 ? 1 : trii_name_distance(given, length, name);

    if (d < best->distance)
        *best = (guess){name, d};
}

/* One variable of the environment, "PET_NAME=value". */
static void check_variable(const char *entry, FILE *out)
{
    char given[NAME_BYTES], like[NAME_BYTES] = "";
    size_t length = strcspn(entry + 4, "=");
    guess best = {NULL, NEAR};

    if (length >= sizeof(given))
        length = sizeof(given) - 1;
    for (size_t i = 0; i < length; i++)
        given[i] = entry[4 + i] == '_' ? '-' : (char)tolower((unsigned char)entry[4 + i]);
    given[length] = '\0';
    for (int i = 0; i < TRII_OPT_COUNT; i++) {
        if (strcmp(given, trii_option_rows[i].name) == 0)
            return;
        if (!trii_option_rows[i].no_environment)
            consider(&best, given, length, trii_option_rows[i].name);
    }
    snprintf(like, sizeof(like), "%s", best.name != NULL ? best.name : "");
    for (char *c = like; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    fprintf(out, "trirun: PET_%.*s is not the variable of an option and is ignored%s%s%s\n",
            (int)length, entry + 4, best.name != NULL ? "; did you mean PET_" : "", like,
            best.name != NULL ? "?" : "");
}

static void check_key(const char *key, size_t length, FILE *out)
{
    guess best = {NULL, NEAR};

    for (size_t i = 0; i < TRII_COUNT_OF(conf_keys); i++) {
        if (strlen(conf_keys[i]) == length && memcmp(conf_keys[i], key, length) == 0)
            return;
        consider(&best, key, length, conf_keys[i]);
    }
    fprintf(out, "trirun: --rdzv-conf: the key %.*s is unknown and ignored%s%s%s\n", (int)length,
            key, best.name != NULL ? "; did you mean " : "", best.name != NULL ? best.name : "",
            best.name != NULL ? "?" : "");
}

static void check_rank(const char *option, int rank, int nproc, FILE *out)
{
    if (rank >= nproc)
        fprintf(out, "trirun: %s: local rank %d is out of range (%d worker%s here)\n", option, rank,
                nproc, nproc == 1 ? "" : "s");
}

static void check_ranks(const trii_launch_options *o, FILE *out)
{
    const char *at = o->local_ranks_filter;

    for (; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        check_rank("--local-ranks-filter", (int)strtol(at, NULL, 10), o->nproc, out);
    for (int i = 0; i < 10; i++) {
        if (o->redirects.per_rank && o->redirects.of_rank[i] != 0)
            check_rank("--redirects", i, o->nproc, out);
        if (o->tee.per_rank && o->tee.of_rank[i] != 0)
            check_rank("--tee", i, o->nproc, out);
    }
}

/* As with torchrun, the filters see what is teed, and of that what is shown. */
static void check_filter(const trii_launch_options *o, const char *filters, int which, FILE *out)
{
    static const char *const names[] = {"stdout", "stderr"};

    if (filters == NULL)
        return;
    for (int i = 0; i < o->nproc; i++) {
        if ((trii_std_of(&o->tee, i) >> which & 1) != 0 &&
            trii_number_in_list(o->local_ranks_filter, i))
            return;
    }
    fprintf(out,
            "trirun: --duplicate-%s-filters apply to what --tee shows, but no worker's %s is teed: "
            "add -t %d (3 for both)\n",
            names[which], names[which], which + 1);
}

/* With its value, if that is the next argument. */
static void check_place(const trii_launch_options *o, FILE *out)
{
    const char *option = o->misplaced != NULL ? o->misplaced[0] : NULL;
    const char *value = option != NULL ? o->misplaced[1] : NULL;

    if (option == NULL)
        return;
    if (value == NULL || value[0] == '-' || strchr(option, '=') != NULL)
        value = "";
    fprintf(out,
            "trirun: %s%s%.60s comes after %s and is passed to it as an argument: options of "
            "trirun come first, as in trirun %s%s%.60s %s (if it is meant for %s: trirun -- %s)\n",
            option, *value != '\0' ? " " : "", value, o->program, option, *value != '\0' ? " " : "",
            value, o->program, o->program, o->program);
}

void trii_launch_options_warn(const trii_launch_options *options, FILE *out)
{
    const char *const *entry = trii_process_environment();
    const char *at = options->rdzv_conf;

    for (; *entry != NULL; entry++) {
        if (strncmp(*entry, "PET_", 4) == 0)
            check_variable(*entry, out);
    }
    check_place(options, out);
    check_ranks(options, out);
    check_filter(options, options->stdout_filters, 0, out);
    check_filter(options, options->stderr_filters, 1, out);
    if (options->standalone && options->node_rank > 0)
        fprintf(out,
                "trirun: --node-rank %d is ignored: without an address this is a job of one "
                "host; for N hosts give all of them --nnodes N and --master-addr\n",
                options->node_rank);
    while (at != NULL && *at != '\0') {
        size_t length;

        at += strspn(at, " \t\n,");
        length = strcspn(at, "= \t,");
        if (length > 0)
            check_key(at, length, out);
        at += strcspn(at, ",");
    }
}
