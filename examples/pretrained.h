/*
 * pretrained.h - where PyTorch and Hugging Face keep the weights that they have fetched, for
 * programs that start from them. Nothing is fetched here.
 */
#ifndef EXAMPLES_PRETRAINED_H
#define EXAMPLES_PRETRAINED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_line.h"

enum { PRETRAINED_PATH = 4096 };

#define PRETRAINED_CONVERT                                                                         \
    "is a pickle of PyTorch; convert it once: python3 -c \"import sys, torch, "                    \
    "safetensors.torch as s; d = torch.load(sys.argv[1], weights_only=True); d = "                 \
    "d.get('state_dict', d); s.save_file({k: v.contiguous() for k, v in d.items()}, "              \
    "sys.argv[2])\" FILE.pth FILE.safetensors"

static inline bool pretrained_ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* By its name, as PyTorch's programs choose them. */
static inline bool pretrained_is_pickle(const char *path)
{
    return pretrained_ends_with(path, ".pth") || pretrained_ends_with(path, ".pt") ||
           pretrained_ends_with(path, ".tar");
}

static inline bool pretrained_is_there(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (file != NULL)
        fclose(file);
    return file != NULL;
}

/* "$VARIABLE/below", or "$HOME/otherwise" where the variable is not set. */
static inline void pretrained_folder(const char *variable, const char *below, const char *otherwise,
                                     char path[PRETRAINED_PATH - 256])
{
    const char *folder = getenv(variable), *home = getenv("HOME");

    if (folder != NULL && folder[0] != '\0')
        snprintf(path, PRETRAINED_PATH - 256, "%s%s", folder, below);
    else
        snprintf(path, PRETRAINED_PATH - 256, "%s/%s", home != NULL ? home : ".", otherwise);
}

/* Hugging Face: models--ORG--NAME/refs/main holds the name of the folder below snapshots/. */
static inline bool pretrained_in_hub(const char *hub, const char *name, char path[PRETRAINED_PATH])
{
    char refs[PRETRAINED_PATH + 128], commit[128] = "";
    FILE *file;

    snprintf(refs, sizeof(refs), "%s/%s/refs/main", hub, name);
    file = fopen(refs, "r");
    if (file == NULL)
        return false;
    if (fgets(commit, sizeof(commit), file) == NULL)
        commit[0] = '\0';
    fclose(file);
    commit[strcspn(commit, "\r\n")] = '\0';
    snprintf(path, PRETRAINED_PATH, "%s/%s/snapshots/%s/model.safetensors", hub, name, commit);
    return pretrained_is_there(path);
}

/* The file of a torchvision model's weights by its name ("resnet18"); ends the program with 2 and
 * says where it looked if there is none. */
static inline const char *pretrained(const char *arch)
{
    /* The files of torchvision's IMAGENET1K_V1, which main.py --pretrained takes. */
    static const char *const files[] = {"resnet18-f37072fd",  "resnet34-b627a593",
                                        "resnet50-0676ba61",  "resnet101-63fe2227",
                                        "resnet152-394f9c45", "vit_b_16-c867db91"};
    static const char *const kinds[] = {"tv_in1k", "a1_in1k"}; /* timm's; the first are the same */
    static char path[PRETRAINED_PATH];
    char torch[PRETRAINED_PATH - 256], hub[PRETRAINED_PATH - 256], name[64];

    pretrained_folder("TORCH_HOME", "/hub/checkpoints", ".cache/torch/hub/checkpoints", torch);
    pretrained_folder("HF_HOME", "/hub", ".cache/huggingface/hub", hub);
    if (getenv("HF_HUB_CACHE") != NULL)
        pretrained_folder("HF_HUB_CACHE", "", "", hub);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        snprintf(name, sizeof(name), "models--timm--%.32s.%s", arch, kinds[i]);
        if (pretrained_in_hub(hub, name, path))
            return path;
    }
    snprintf(path, sizeof(path), "%s/%.64s.safetensors", torch, arch);
    if (pretrained_is_there(path))
        return path;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        size_t length = strlen(arch);

        if (strncmp(files[i], arch, length) != 0 || files[i][length] != '-')
            continue;
        snprintf(path, sizeof(path), "%s/%s.safetensors", torch, files[i]);
        if (pretrained_is_there(path))
            return path;
        snprintf(path, sizeof(path), "%s/%s.pth", torch, files[i]);
        if (pretrained_is_there(path))
            options_refuse("--pretrained: %s " PRETRAINED_CONVERT, path);
    }
    options_refuse("--pretrained: no weights of %s: looked for %s/%s*.safetensors (TORCH_HOME) and "
                   "%s/models--timm--%s.tv_in1k (HF_HOME); --weights FILE takes any file",
                   arch, torch, arch, hub, arch);
}

#endif
