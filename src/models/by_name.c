/*
 * by_name.c - "vit:32,8,64,2,4,10" -> a vision transformer.
 */
#include <trireme/models.h>

#include <stdlib.h>
#include <string.h>

#define MAX_SIZES 32

/* What follows "KIND:" in name, "10,20,5"; how many, 0 if that is not what the name says. */
static int sizes_of(const char *name, const char *kind, int64_t *sizes)
{
    size_t length = strlen(kind);
    int n = 0;

    if (strncmp(name, kind, length) != 0 || name[length] != ':')
        return 0;
    name += length;
    while (*name != '\0' && n < MAX_SIZES) {
        char *end;

        sizes[n] = strtoll(name + 1, &end, 10);
        if (end == name + 1 || sizes[n] < 1 || (*end != ',' && *end != '\0'))
            return 0;
        n++;
        name = end;
    }
    return *name == '\0' ? n : 0;
}

static tri_module *mlp_create(const int64_t *sizes, int n)
{
    tri_module *layers[2 * MAX_SIZES];
    int k = 0;

    for (int i = 0; i + 1 < n; i++) {
        if (i > 0)
            layers[k++] = tri_nn_relu();
        layers[k++] = tri_nn_linear(sizes[i], sizes[i + 1], NULL);
    }
    return tri_nn_sequential_of(k, layers);
}

tri_module *tri_model_by_name(const char *name, int64_t classes)
{
    int64_t s[MAX_SIZES];
    int n;

    if (name == NULL)
        return tri_module_fail(NULL, TRI_ERR_INVALID_ARG, "tri_model_by_name: name is NULL");
    if (strncmp(name, "resnet", 6) == 0) {
        char *end;
        long depth = strtol(name + 6, &end, 10);

        if (end != name + 6 && *end == '\0' && depth > 0 && depth < 1000)
            return tri_model_resnet((int)depth, classes);
    }
    if (strcmp(name, "gpt2") == 0)
        return tri_model_by_name("gpt:12,768,12,1024,50257", 0);
    if (strcmp(name, "vit_b_16") == 0)
        return tri_model_vit(&(tri_model_vit_options){
            .size = 224, .patch = 16, .width = 768, .depth = 12, .heads = 12, .classes = classes});
    if (sizes_of(name, "linear", s) == 2)
        return tri_nn_linear(s[0], s[1], NULL);
    if ((n = sizes_of(name, "mlp", s)) >= 2)
        return mlp_create(s, n);
    if (sizes_of(name, "gpt", s) == 5)
        return tri_model_gpt2(&(tri_model_gpt2_options){
            .layers = s[0], .width = s[1], .heads = s[2], .context = s[3], .vocabulary = s[4]});
    if (sizes_of(name, "vit", s) == 6)
        return tri_model_vit(&(tri_model_vit_options){.size = s[0],
                                                      .patch = s[1],
                                                      .width = s[2],
                                                      .depth = s[3],
                                                      .heads = s[4],
                                                      .classes = s[5]});
    return tri_module_fail(
        NULL, TRI_ERR_INVALID_ARG,
        "tri_model_by_name: \"%.80s\" names no model, or has wrong sizes: must be " TRI_MODEL_NAMES,
        name);
}
