/*
 * misuse_files.c - texts that functions understand, and the files that they name.
 */
#include "misuse/misuse_internal.h"
#include "os/folder.h"

/* One image of 2x2 pixels, or its label. */
static const char *good_idx(bool images)
{
    static const char image[] = "\0\0\x08\x03\0\0\0\1\0\0\0\2\0\0\0\2\0\0\0";
    static const char label[] = "\0\0\x08\x01\0\0\0\1";
    const char *path = images ? "images" : "labels";
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        return NULL;
    fwrite(images ? image : label, 1, images ? sizeof(image) : sizeof(label), file);
    fclose(file);
    return path;
}

/* One window of a token and the next. */
static const char *good_tokens(void)
{
    FILE *file = fopen("tokens", "wb");

    if (file == NULL)
        return NULL;
    fwrite("ab", 1, 2, file);
    fclose(file);
    return "tokens";
}

/* A PNG file of one grey pixel. */
const char misuse_good_png[] =
    "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\001"
    "\000\000\000\001\010\000\000\000\000\072\176\233\125\000\000\000\012\111\104\101"
    "\124\170\234\143\140\000\000\000\002\000\001\110\257\244\161\000\000\000\000\111"
    "\105\116\104\256\102\140\202";
const size_t misuse_good_png_bytes = sizeof(misuse_good_png) - 1;

/* Two classes of one image each, of which the name is all that is looked at. */
static const char *good_image_folder(void)
{
    static const char *const files[] = {"classes/a/1.png", "classes/b/1.png"};

    for (int k = 0; k < COUNT(files); k++) {
        FILE *file;

        if (trii_folder_create_above(files[k]) != TRI_OK)
            return NULL;
        file = fopen(files[k], "wb");
        if (file == NULL)
            return NULL;
        fclose(file);
    }
    return "classes";
}

const char *misuse_good_text(const misuse_pick *p, int i)
{
    static const char *const texts[][3] = {
        {"tri_store_tcp", "host", "127.0.0.1"},
        {"tri_module_find", "name", "weight"},
        {"tri_model_by_name", "name", "mlp:3,2"},
        {"tri_safetensors_find", "name", "weight"},
        {"tri_safetensors_tensor", "name", "weight"},
        {"tri_torch_find", "name", "weight"},
        {"tri_torch_tensor_named", "name", "weight"},
        {"tri_checkpoint_open", "folder", "checkpoints"},
        {"tri_checkpoint_fetch", "folder", "checkpoints"},
        {"tri_checkpoint_save", "folder", "saved"},
        {"tri_checkpoint_writer_create", "folder", "written"},
        {"tri_checkpoint_restore_extra", "name", "ema"},
        {"tri_tensorboard_open", "folder", "another_board"},
        {"tri_tensorboard_image", "layout", "HW"},
        {"tri_engine_save_checkpoint", "dir", "saved_engines"},
        {"tri_engine_load_checkpoint", "dir", "engines"},
        {"tri_engine_load_checkpoint", "tag", "global_step0"},
        {"tri_rpc_find", "name", "worker"},
        {"tri_remote_module", "name", "worker/net"},
        {"tri_remote_apply", "worker", "worker"},
        {"tri_mesh_group", "axis", "a"},
        {"tri_pipeline_draw", "path", "drawn.svg"},
        {"tri_mesh_coordinate", "axis", "a"},
        {"tri_mesh_size", "axis", "a"},
    };
    const char *function = p->row->name, *name = p->row->parameters[i].name;
    tri_checkpoint *checkpoint;

    if (is(function, "tri_safetensors_open") || is(function, "tri_load"))
        return misuse_good_file();
    if (is(function, "tri_torch_open"))
        return misuse_good_torch_file();
    if (is(function, "tri_dataset_idx"))
        return good_idx(is(name, "images_path"));
    if (is(function, "tri_dataset_tokens"))
        return good_tokens();
    if (is(function, "tri_image_read"))
        return tri_image_write_png(misuse_good_struct("const tri_image *"), "image") == TRI_OK
                   ? "image"
                   : NULL;
    if (is(function, "tri_dataset_image_folder"))
        return good_image_folder();
    if ((is(function, "tri_checkpoint_open") || is(function, "tri_checkpoint_fetch")) &&
        misuse_good_checkpoint(&checkpoint) != TRI_OK)
        return NULL;
    for (int t = 0; t < COUNT(texts); t++) {
        if (is(texts[t][0], function) && is(texts[t][1], name))
            return texts[t][2];
    }
    return is(name, "key") ? "key" : "text";
}
