/*
 * ckpt.c - `trireme ckpt ACTION ...`: files of weights and checkpoints from the command line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ckpt.h"
#include "command.h"

static const char *const actions[] = {"convert", "show", "verify", NULL};

static int look(const char *action, const char *path)
{
    bool whole = true;
    tri_status status = strcmp(action, "show") == 0 ? ckpt_show(path) : ckpt_verify(path, &whole);

    if (status != TRI_OK) {
        fprintf(stderr, "trireme ckpt: %s\n", tri_last_error());
        return COMMAND_FAILED;
    }
    return whole ? COMMAND_OK : COMMAND_FAILED;
}

/* "500MB", "2GiB", "1000": as huggingface's max_shard_size. False: it is none. */
static bool read_bytes(const char *text, uint64_t *bytes_out)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30}};
    char *end;
    unsigned long long number;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcasecmp(end, units[i].unit) == 0)
            return errno == 0 && number > 0 &&
                   !__builtin_mul_overflow((uint64_t)number, units[i].bytes, bytes_out);
    return false;
}

/* --- convert -------------------------------------------------------------- */

typedef enum option {
    DTYPE,
    PREFIX,
    RENAME,
    SHARD_SIZE,
    TO,
    ALL
} option; /* those from ALL on have no value */

static const char *const options[] = {[DTYPE] = "--dtype",
                                      [RENAME] = "--rename",
                                      [PREFIX] = "--prefix",
                                      [SHARD_SIZE] = "--shard-size",
                                      [TO] = "--to",
                                      [ALL] = "--all",
                                      NULL};

#define MOST_RENAMINGS 32

typedef struct taken {
    trii_conversion what;
    trii_renaming renamings[MOST_RENAMINGS];
    const char *kind;
} taken;

static int take_dtype(trii_conversion *what, const char *value)
{
    static const struct {
        const char *name;
        tri_dtype dtype;
    } rows[] = {{"bf16", TRI_DTYPE_BF16},     {"f16", TRI_DTYPE_F16},
                {"f32", TRI_DTYPE_F32},       {"f64", TRI_DTYPE_F64},
                {"bfloat16", TRI_DTYPE_BF16}, {"float16", TRI_DTYPE_F16},
                {"float32", TRI_DTYPE_F32},   {"float64", TRI_DTYPE_F64}};
    const char *names[TRII_COUNT_OF(rows) + 1] = {NULL};

    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++) {
        names[i] = rows[i].name;
        if (strcmp(value, rows[i].name) == 0)
            what->dtype = rows[i].dtype;
    }
    return what->dtype != TRI_DTYPE_NONE
               ? COMMAND_OK
               : command_unknown("ckpt", "no dtype of floats named", value, names);
}

/* OLD=NEW, a text that is cut in two. */
static int take_renaming(taken *t, char *value)
{
    char *by = strchr(value, '=');

    if (by == NULL)
        return command_usage("ckpt", "--rename %s: it is OLD=NEW, as names begin", value);
    if (t->what.n_renamings == MOST_RENAMINGS)
        return command_usage("ckpt", "--rename: at most %d times", MOST_RENAMINGS);
    *by = '\0';
    t->renamings[t->what.n_renamings++] = (trii_renaming){value, by + 1};
    t->what.renamings = t->renamings;
    return COMMAND_OK;
}

static int take_option(taken *t, option which, char *value)
{
    trii_conversion *what = &t->what;

    if (which != ALL && value == NULL)
        return command_usage("ckpt", "%s needs a value", options[which]);
    if (which == PREFIX)
        what->prefix = value;
    else if (which == ALL)
        what->prefix = "";
    else if (which == TO)
        t->kind = value;
    else if (which == DTYPE)
        return take_dtype(what, value);
    else if (which == RENAME)
        return take_renaming(t, value);
    else if (!read_bytes(value, &what->shard_bytes))
        return command_usage("ckpt", "--shard-size %s: bytes, such as 500MB or 2GiB", value);
    return COMMAND_OK;
}

static int run_convert(int argc, char **argv)
{
    taken t = {.kind = NULL};

    for (int i = 2; i < argc; i++) {
        char *value = NULL;
        int which = command_option(options, ALL, argc, argv, &i, &value), status;

        if (which >= 0) {
            status = take_option(&t, (option)which, value);
            if (status != COMMAND_OK)
                return status;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0')
            return command_unknown("ckpt", "no option named", argv[i], options);
        else if (t.what.to != NULL)
            return command_usage("ckpt", "convert takes 2 paths: what is %s?", argv[i]);
        else if (t.what.from != NULL)
            t.what.to = argv[i];
        else
            t.what.from = argv[i];
    }
    if (t.what.to == NULL)
        return command_usage("ckpt", "convert FROM TO: %s is missing",
                             t.what.from == NULL ? "FROM" : "TO");
    return ckpt_convert(&t.what, t.kind);
}

/* --- all ------------------------------------------------------------------ */

static int run_look(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != '\0')
            return command_unknown("ckpt", "no option named", argv[i], (const char *const[]){NULL});
    if (argc < 3)
        return command_usage("ckpt", "which file? PATH is missing");
    if (argc > 3)
        return command_usage("ckpt", "%s takes 1 path: what is %s?", argv[1], argv[3]);
    return look(argv[1], argv[2]);
}

static int run_ckpt(int argc, char **argv)
{
    int known = 0;

    if (argc < 2)
        return command_usage("ckpt", "what is to be done? `show PATH` prints what is in a file");
    while (actions[known] != NULL && strcmp(actions[known], argv[1]) != 0)
        known++;
    if (actions[known] == NULL)
        return command_unknown("ckpt", "no action named", argv[1], actions);
    return strcmp(argv[1], "convert") == 0 ? run_convert(argc, argv) : run_look(argc, argv);
}

const command command_ckpt = {
    .name = "ckpt",
    .summary = "shows, verifies and converts files of weights and checkpoints",
    .help = "usage: trireme ckpt show PATH\n"
            "       trireme ckpt verify PATH\n"
            "       trireme ckpt convert FROM TO [--to KIND] [--shard-size BYTES]\n"
            "                            [--prefix PREFIX | --all] [--rename OLD=NEW]...\n"
            "                            [--dtype DTYPE]\n"
            "\n"
            "PATH and FROM are a file of safetensors or of torch.save, a folder of such\n"
            "files with the index that hubs put there, a folder of\n"
            "torch.distributed.checkpoint, one that DeepSpeed's save_checkpoint wrote, or a\n"
            "folder of Trireme checkpoints, or one of them. Contents say what it is, not\n"
            "its name.\n"
            "\n"
            "show prints what kind it is, what it holds beside tensors, and the name,\n"
            "dtype, shape and bytes of each tensor, with what is odd about it: tied to\n"
            "another, a view, not contiguous, in several pieces, of a type that Trireme has\n"
            "not. Of a folder of checkpoints it takes the newest that is whole.\n"
            "\n"
            "verify reads everything, compares all checksums, and names what is damaged,\n"
            "and tensors that hold NaN or Inf. Of a folder it takes all checkpoints.\n"
            "Safetensors and files of torch before 1.6 have no checksums: what is told of\n"
            "them is whether they can be read.\n"
            "\n"
            "convert writes the tensors of FROM, of a checkpoint those of the model, to TO,\n"
            "which appears when it is complete and on disk. Of a file of torch.save it\n"
            "takes the model's state where that is below a key, such as state_dict or\n"
            "model; of DeepSpeed's ZeRO the f32 weights that the ranks have in pieces. It\n"
            "needs some 10 MB of memory, and a tensor's size where ranks have divided its\n"
            "columns.\n"
            "\n"
            "  --to KIND        safetensors, torch, or hub: a folder of safetensors files\n"
            "                   with an index; default: by TO's name: .safetensors, or\n"
            "                   .pth, .pt, .bin\n"
            "  --shard-size N   hub: bytes of a file, such as 500MB or 2GiB; default: 5GB\n"
            "  --prefix PREFIX  only tensors whose names begin with PREFIX, which is dropped\n"
            "                   (if none does, of a module's state: Lightning's model.)\n"
            "  --all            all tensors\n"
            "  --rename OLD=NEW names that begin with OLD begin with NEW instead; several\n"
            "                   times: of each name the first that fits\n"
            "  --dtype DTYPE    bf16, f16, f32 or f64: what floats of 16 bits and more\n"
            "                   become, rounded to the nearest; others stay as they are\n"
            "\n"
            "Exit status: 0 ok (even with NaN or Inf), 1 something is damaged or could\n"
            "not be read or written, 2 wrong usage. Ctrl-C leaves TO as it was.\n"
            "\n"
            "  trireme ckpt show resnet18.pth\n"
            "  trireme ckpt convert resnet18.pth resnet18.safetensors\n"
            "  trireme ckpt convert out/global_step500 for-the-hub --to hub\n",
    .run = run_ckpt,
};
