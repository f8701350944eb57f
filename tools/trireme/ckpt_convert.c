/*
 * ckpt_convert.c - `trireme ckpt convert FROM TO`.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "ckpt.h"
#include "command.h"
#include "os/clock.h"
#include "os/signal.h"
#include "os/stop_signal.h"
#include "os/terminal.h"

typedef struct progress {
    int64_t shown_ns;
    bool is_seen; /* by somebody at a terminal */
} progress;

static bool go_on(void *arg, uint64_t done, uint64_t bytes)
{
    progress *p = arg;
    int64_t now = trii_now_ns(), at, told;

    if (p->is_seen && (now - p->shown_ns > INT64_C(200000000) || done == bytes)) {
        p->shown_ns = now;
        fprintf(stderr, "\r%3d %% of %.1f MB%s", (int)(100 * (double)done / (double)bytes),
                (double)bytes / 1e6, done == bytes ? "\n" : "");
        fflush(stderr);
    }
    return trii_stop_signal_seen(&at, &told) == 0;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), bytes = strlen(suffix);

    return n >= bytes && strcmp(text + n - bytes, suffix) == 0;
}

/* NULL: neither says. */
static const char *kind_of(const char *to, const char *kind)
{
    if (kind != NULL)
        return kind;
    if (ends_with(to, ".safetensors"))
        return "safetensors";
    return ends_with(to, ".pth") || ends_with(to, ".pt") || ends_with(to, ".bin") ? "torch" : NULL;
}

/* What is read and not written; NULL: it is none of these. */
static const char *instead_of(const char *kind)
{
    static const struct {
        const char *kind, *instead;
    } rows[] = {
        {"dcp", "load a file of torch.save, and torch.distributed.checkpoint.save writes it"},
        {"deepspeed", "load a file of torch.save into the model that deepspeed.initialize gets"},
        {"zero", "load a file of torch.save into the model that deepspeed.initialize gets"},
        {"trireme", "tri_load takes any of these files, and tri_checkpoint_save writes it"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].kind, kind) == 0)
            return rows[i].instead;
    return NULL;
}

static int set_kind(trii_conversion *what, const char *kind)
{
    static const char *const kinds[] = {"safetensors", "torch", "hub", NULL};

    kind = kind_of(what->to, kind);
    if (kind == NULL)
        return command_usage("ckpt",
                             "what kind of file is %s? Its name ends neither in .safetensors nor "
                             "in .pth, .pt or .bin; --to says it",
                             what->to);
    if (instead_of(kind) != NULL)
        return command_usage("ckpt", "%s is read, not written: %s", kind, instead_of(kind));
    if (strcmp(kind, "safetensors") == 0)
        what->kind = TRII_CONVERT_SAFETENSORS;
    else if (strcmp(kind, "torch") == 0)
        what->kind = TRII_CONVERT_TORCH;
    else if (strcmp(kind, "hub") == 0)
        what->kind = TRII_CONVERT_HUB;
    else
        return command_unknown("ckpt", "no kind of file named", kind, kinds);
    if (what->shard_bytes > 0 && what->kind != TRII_CONVERT_HUB)
        return command_usage("ckpt", "--shard-size is for --to hub: a file is one file");
    if (what->shard_bytes == 0)
        what->shard_bytes = UINT64_C(5000000000);
    return COMMAND_OK;
}

static tri_status convert(trii_conversion *what, trii_converted *told)
{
    ckpt_place place;
    tri_status status = ckpt_place_of(what->from, &place);

    what->from = place.own_path;
    if (status == TRI_OK)
        status = trii_stop_signal_watch();
    if (status == TRI_OK)
        status = trii_convert(what, told);
    trii_free(place.own_path);
    return status;
}

/* As if it had not been noted, so that a shell ends its script, too; its status is 128 + number. */
static void end_by_signal(void)
{
    int64_t at, told;
    int number = trii_stop_signal_seen(&at, &told);

    if (number != SIGINT && number != SIGTERM)
        return;
    fflush(stdout);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

int ckpt_convert(trii_conversion *what, const char *kind)
{
    progress p = {.shown_ns = 0};
    trii_converted told;
    tri_status status;
    int columns, usage = set_kind(what, kind);

    if (usage != COMMAND_OK)
        return usage;
    what->go_on = go_on;
    what->arg = &p;
    p.is_seen = trii_terminal(stderr, &columns);
    trii_signal_ignore(SIGXFSZ); /* a file that may not grow is an error as any other */
    status = convert(what, &told);
    if (status != TRI_OK) {
        fprintf(stderr, "%strireme ckpt: %s\n", p.is_seen && p.shown_ns != 0 ? "\n" : "",
                tri_last_error());
        end_by_signal();
        return COMMAND_FAILED;
    }
    printf("%" PRId64 " tensor%s, ", told.n, told.n == 1 ? "" : "s");
    ckpt_print_bytes(told.bytes);
    fputs(" in ", stdout);
    ckpt_print_text(what->to, 0);
    putchar('\n');
    if (told.n_left_out > 0) {
        const char *prefix = what->prefix != NULL ? what->prefix : told.prefix;

        printf("%" PRId64 " left out: ", told.n_left_out);
        if (prefix[0] == '\0')
            fputs("the index does not list them", stdout);
        else
            fputs("not below ", stdout);
        ckpt_print_text(prefix, 0);
        puts(what->prefix != NULL || prefix[0] == '\0' ? "" : " (--all takes everything)");
    }
    return COMMAND_OK;
}
