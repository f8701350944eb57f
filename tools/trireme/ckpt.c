/*
 * ckpt.c - `trireme ckpt ACTION ...`: files of weights and checkpoints from the command line.
 */
#include <stdio.h>
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

static int run_ckpt(int argc, char **argv)
{
    static const char *const names[] = {"--prefix", "--to", "--all", NULL};
    const char *paths[2] = {NULL, NULL}, *prefix = NULL, *kind = NULL;
    const int n_paths = argc >= 2 && strcmp(argv[1], "convert") == 0 ? 2 : 1;
    int n = 0, known = 0;

    if (argc < 2)
        return command_usage("ckpt", "what is to be done? `show PATH` prints what is in a file");
    while (actions[known] != NULL && strcmp(actions[known], argv[1]) != 0)
        known++;
    if (actions[known] == NULL)
        return command_unknown("ckpt", "no action named", argv[1], actions);
    for (int i = 2; i < argc; i++) {
        char *value = NULL;
        int option = n_paths == 2 ? command_option(names, 2, argc, argv, &i, &value) : -1;

        if ((option == 0 || option == 1) && value == NULL)
            return command_usage("ckpt", "%s needs a value", names[option]);
        if (option == 0)
            prefix = value;
        else if (option == 1)
            kind = value;
        else if (option == 2)
            prefix = "";
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            return command_unknown("ckpt", "no option named", argv[i],
                                   n_paths == 2 ? names : (const char *const[]){NULL});
        else if (n == n_paths)
            return command_usage("ckpt", "%s takes %d path%s: what is %s?", argv[1], n_paths,
                                 n_paths == 1 ? "" : "s", argv[i]);
        else
            paths[n++] = argv[i];
    }
    if (n < n_paths)
        return command_usage(
            "ckpt", n_paths == 2 ? "convert FROM TO: %s is missing" : "which file? %s is missing",
            n_paths == 1 ? "PATH"
            : n == 0     ? "FROM"
                         : "TO");
    return n_paths == 2 ? ckpt_convert(paths[0], paths[1], kind, prefix) : look(argv[1], paths[0]);
}

const command command_ckpt = {
    .name = "ckpt",
    .summary = "shows, verifies and converts files of weights and checkpoints",
    .help = "usage: trireme ckpt show PATH\n"
            "       trireme ckpt verify PATH\n"
            "       trireme ckpt convert FROM TO [--to KIND] [--prefix PREFIX | --all]\n"
            "\n"
            "PATH and FROM are a file of safetensors or of torch.save, which its contents\n"
            "say, not its name; or a folder of Trireme checkpoints, or one of them.\n"
            "\n"
            "show prints what kind it is, what it holds beside tensors, and the name, dtype,\n"
            "shape and bytes of each tensor, with what is odd about it: tied to another, a\n"
            "view, not contiguous, of a type that Trireme has not. Of a folder it takes the\n"
            "newest checkpoint that is whole.\n"
            "\n"
            "verify reads everything, compares all checksums, and names what is damaged, and\n"
            "tensors that hold NaN or Inf. Of a folder it takes all checkpoints.\n"
            "\n"
            "convert writes the tensors of FROM, of a checkpoint those of the model, to TO,\n"
            "which appears when it is complete and on disk. Of a file of torch.save it takes\n"
            "the model's state where that is below a key, such as state_dict or model.\n"
            "\n"
            "  --to KIND        safetensors or torch; default: by TO's name: .safetensors,\n"
            "                   or .pth, .pt, .bin\n"
            "  --prefix PREFIX  only tensors whose names begin with PREFIX, which is dropped\n"
            "  --all            all tensors\n"
            "\n"
            "Exit status: 0 ok (even with NaN or Inf), 1 something is damaged or could\n"
            "not be read or written, 2 wrong usage.\n"
            "\n"
            "  trireme ckpt show resnet18.pth\n"
            "  trireme ckpt convert resnet18.pth resnet18.safetensors\n",
    .run = run_ckpt,
};
