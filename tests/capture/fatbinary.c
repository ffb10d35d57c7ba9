/* A program with a kernel of its own, as hipcc would compile it: fatbinary BUNDLE KERNEL.
 * Argument number i of the launch has all its bytes equal to i. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t x, y, z; } dim3;
typedef struct { uint32_t magic, version; const void *binary; void *unused; } FatBinary;

void **__hipRegisterFatBinary(const FatBinary *);
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned, void *, void *, dim3 *, dim3 *, int *);
int hipLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);

enum { ARGUMENTS = 128, BYTES = 16 };

static void stub(void) {}

int main(int count, char **arguments) {
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (!file) return 2;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    void *bundle = malloc((size_t)size);
    if (fread(bundle, 1, (size_t)size, file) != (size_t)size) return 2;
    FatBinary fat = {0x48495046, 1, bundle, NULL};
    void **modules = __hipRegisterFatBinary(&fat);
    __hipRegisterFunction(modules, (const void *)stub, arguments[2], arguments[2], ~0u, NULL, NULL, NULL, NULL, NULL);
    static unsigned char values[ARGUMENTS][BYTES];
    void *params[ARGUMENTS];
    for (int i = 0; i < ARGUMENTS; i++) params[i] = memset(values[i], i, BYTES);
    return hipLaunchKernel((const void *)stub, (dim3){1, 1, 1}, (dim3){256, 1, 1}, params, 0, NULL);
}
