/* load.c - opens each library that it is given while it runs, as bindings of other languages do. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        void *symbol = library != NULL ? dlsym(library, "tri_status_name") : NULL;
        const char *(*status_name)(int);

        if (symbol == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
        memcpy(&status_name, &symbol, sizeof(status_name)); /* ISO C forbids the cast */
        printf("%s: %s\n", argv[i], status_name(0));
    }
    printf("loaded %d\n", argc - 1);
    return 0;
}
