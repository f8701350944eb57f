/*
 * engine_args.c - the options that DeepSpeed's launcher and add_config_arguments give a program.
 */
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "train/deepspeed/engine_internal.h"

/* The value of "--NAME VALUE" or "--NAME=VALUE" at argv[i]; *used_out words belong to it, 0 if this
 * is another option. '-' and '_' are the same. */
static tri_status value_of(const char *name, int argc, char **argv, int i, int *used_out,
                           const char **value_out)
{
    const char *word = argv[i];
    size_t n = strlen(name), k = 0;

    *used_out = 0;
    if (strncmp(word, "--", 2) != 0)
        return TRI_OK;
    for (word += 2; k < n && (word[k] == name[k] || (word[k] == '-' && name[k] == '_')); k++)
        ;
    if (k < n || (word[n] != '\0' && word[n] != '='))
        return TRI_OK;
    *used_out = word[n] == '=' ? 1 : 2;
    *value_out = word[n] == '=' ? word + n + 1 : i + 1 < argc ? argv[i + 1] : NULL;
    if (*value_out == NULL || **value_out == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_deepspeed_args_take: %s: the value is missing",
                         argv[i]);
    return TRI_OK;
}

static tri_status take_rank(const char *text, tri_deepspeed_args *args)
{
    char *end;
    long rank = strtol(text, &end, 10);

    if (*end != '\0' || rank < -1 || rank > INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_deepspeed_args_take: --local_rank %s: is not a rank: 0, 1, ..", text);
    if (rank >= 0) /* -1 is the default of programs that declare it */
        args->local_rank = TRI_SET(rank);
    return TRI_OK;
}

/* How many words at argv[i] are ours; 0 = it is the program's. */
static tri_status take_one(int argc, char **argv, int i, tri_deepspeed_args *args, int *used_out)
{
    const char *value = NULL;
    tri_status status;

    *used_out = 1;
    if (strcmp(argv[i], "--deepspeed") == 0) {
        args->deepspeed = true;
        return TRI_OK;
    }
    status = value_of("deepspeed_config", argc, argv, i, used_out, &value);
    if (*used_out > 0) {
        args->deepspeed_config = value;
        return status;
    }
    status = value_of("local_rank", argc, argv, i, used_out, &value);
    return status == TRI_OK && *used_out > 0 ? take_rank(value, args) : status;
}

tri_status tri_deepspeed_args_take(int *argc, char **argv, tri_deepspeed_args *args_out)
{
    tri_deepspeed_args args = {0};
    int kept = 1, used = 0;
    tri_status status = trii_need(argc, "tri_deepspeed_args_take", "argc");

    if (status == TRI_OK)
        status = trii_need(argv, "tri_deepspeed_args_take", "argv");
    if (status == TRI_OK)
        status = trii_need(args_out, "tri_deepspeed_args_take", "args_out");
    for (int i = 1; status == TRI_OK && i < *argc && strcmp(argv[i], "--") != 0; i += used) {
        status = take_one(*argc, argv, i, &args, &used);
        used = used > 0 ? used : 1;
    }
    if (status != TRI_OK)
        return status;
    for (int i = 1; i < *argc; i += used) { /* now that nothing can be wrong any more */
        tri_deepspeed_args again = {0};

        used = 0;
        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        if (take_one(*argc, argv, i, &again, &used) == TRI_OK && used > 0)
            continue;
        argv[kept++] = argv[i];
        used = 1;
    }
    *argc = kept;
    argv[kept] = NULL;
    *args_out = args;
    return TRI_OK;
}
