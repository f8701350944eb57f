/*
 * options_unread.c - names that nobody reads, most likely misspelt: variables PET_NAME and keys of
 * --rdzv-conf. Passed over in silence they cost hours.
 */
#include <ctype.h>
#include <string.h>

#include "base/compiler.h"
#include "base/param.h"
#include "launch/options_table.h"
#include "os/process.h"

enum { NAME_BYTES = 40, NEAR = 4 };

/* All that some back end of ours or of torchrun takes. */
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
    fprintf(out, "trirun: PET_%.*s is no option's variable and was not read%s%s%s\n", (int)length,
            entry + 4, best.name != NULL ? "; did you mean PET_" : "", like,
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
    fprintf(out, "trirun: --rdzv-conf: nobody reads %.*s%s%s%s\n", (int)length, key,
            best.name != NULL ? "; did you mean " : "", best.name != NULL ? best.name : "",
            best.name != NULL ? "?" : "");
}

void trii_launch_options_warn(const trii_launch_options *options, FILE *out)
{
    const char *const *entry = trii_process_environment();
    const char *at = options->rdzv_conf;

    for (; *entry != NULL; entry++) {
        if (strncmp(*entry, "PET_", 4) == 0)
            check_variable(*entry, out);
    }
    while (at != NULL && *at != '\0') {
        size_t length;

        at += strspn(at, " \t\n,");
        length = strcspn(at, "= \t,");
        if (length > 0)
            check_key(at, length, out);
        at += strcspn(at, ",");
    }
}
