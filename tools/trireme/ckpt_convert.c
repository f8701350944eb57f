/*
 * ckpt_convert.c - `trireme ckpt convert FROM TO`.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "ckpt.h"
#include "command.h"
#include "os/clock.h"
#include "os/signal.h"
#include "os/stop_signal.h"
#include "os/terminal.h"
#include "train/checkpoint/convert.h"

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

int ckpt_convert(const char *from, const char *to, const char *kind, const char *prefix)
{
    static const char *const kinds[] = {"safetensors", "torch", NULL};
    progress p = {.shown_ns = 0};
    trii_conversion what = {.from = from, .to = to, .prefix = prefix, .go_on = go_on, .arg = &p};
    trii_converted told;
    tri_status status;
    int columns;

    kind = kind_of(to, kind);
    if (kind == NULL)
        return command_usage("ckpt",
                             "what kind of file is %s? Its name ends neither in .safetensors nor "
                             "in .pth, .pt or .bin; --to says it",
                             to);
    if (strcmp(kind, kinds[0]) != 0 && strcmp(kind, kinds[1]) != 0)
        return command_unknown("ckpt", "no kind of file named", kind, kinds);
    what.kind = strcmp(kind, "torch") == 0 ? TRII_CONVERT_TORCH : TRII_CONVERT_SAFETENSORS;
    p.is_seen = trii_terminal(stderr, &columns);
    trii_signal_ignore(SIGXFSZ); /* a file that may not grow is an error as any other */
    status = trii_stop_signal_watch();
    if (status == TRI_OK)
        status = trii_convert(&what, &told);
    if (status != TRI_OK) {
        fprintf(stderr, "%strireme ckpt: %s\n", p.is_seen && p.shown_ns != 0 ? "\n" : "",
                tri_last_error());
        return COMMAND_FAILED;
    }
    printf("%" PRId64 " tensor%s, ", told.n, told.n == 1 ? "" : "s");
    ckpt_print_bytes(told.bytes);
    fputs(" in ", stdout);
    ckpt_print_text(to, 0);
    putchar('\n');
    if (told.n_left_out > 0) {
        printf("%" PRId64 " left out: not below ", told.n_left_out);
        ckpt_print_text(prefix != NULL ? prefix : told.prefix, 0);
        puts(prefix != NULL ? "" : " (--all takes everything)");
    }
    return COMMAND_OK;
}
