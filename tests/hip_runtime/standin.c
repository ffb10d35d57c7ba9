/* A stand-in for AMD's HIP runtime, for tests on machines without an AMD GPU.
 *
 * It implements the entry points asmlaunch and its capture library meet, checks what a real runtime checks (handles,
 * devices, targets, initialisation), records every launch, and hands it to a function that the test provides, which
 * runs it in asmlaunch's emulator. "Device memory" is host memory, and every call completes before it returns.
 *
 * Names, signatures and numbers are those of HIP's public C API (hip_runtime_api.h, ROCm 6 and 7). Environment:
 *   HIP_STANDIN_DEVICES  number of devices, default 1
 *   HIP_STANDIN_ARCH     gcnArchName of each, default gfx950:sramecc+:xnack-
 *   HIP_STANDIN_FAIL     error code that every launch ends with
 *   HIP_STANDIN_HOLD     1: events have not happened yet
 */
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int hipError_t;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONFIGURATION = 9,
    INVALID_DEVICE_FUNCTION = 98,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NO_BINARY_FOR_GPU = 209,
    SHARED_OBJECT_INIT_FAILED = 303,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    STREAM_CAPTURE_UNSUPPORTED = 900,
};

typedef struct { uint32_t x, y, z; } dim3;

/* ---- objects ------------------------------------------------------------------------------------------------- */

enum { LIVE_MODULE = 0x4d6f6475, LIVE_FUNCTION = 0x46756e63, LIVE_STREAM = 0x53747265, LIVE_EVENT = 0x4576656e };

typedef struct Function {
    uint32_t live;
    struct Module *module;
    char *name;
    struct Function *next;
} Function;

typedef struct Module {
    uint32_t live;
    int device;
    void *image;
    size_t size;
    Function *functions;
} Module;

typedef struct Launch {
    char kernel[256];
    uint32_t grid[3], block[3], lds;
    int device;
    void *stream;
    const char *entry;      /* the API function that was called */
    void *image;            /* the module's copy of the code object */
    size_t image_size;
    void *kernarg;          /* a copy of the `extra` buffer, NULL for kernelParams */
    size_t kernarg_size;
    void **params;          /* kernelParams as passed, NULL for `extra` */
} Launch;

typedef struct Node {
    Launch launch;
    void *memory;           /* not NULL: fill instead of a launch */
    int value;
    size_t size;
    struct Node *next;
} Node;

typedef struct Graph { Node *first, **last; } Graph;

typedef struct Stream {
    uint32_t live;
    int device;
    Graph *capture;
} Stream;

typedef struct Event { uint32_t live; } Event;

typedef struct Allocation {
    void *address;
    size_t size;
    int device;
    struct Allocation *next;
} Allocation;

/* ---- state --------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static Allocation *allocations;
static size_t live_modules, launch_count;
enum { LOG = 64 };
static Launch launch_log[LOG];
static int (*launcher)(const Launch *);
static _Thread_local int current;
static _Thread_local hipError_t last_error;

static hipError_t fail(hipError_t code) {
    if (code) last_error = code;
    return code;
}

static int devices(void) {
    const char *text = getenv("HIP_STANDIN_DEVICES");
    return text ? atoi(text) : 1;
}

static const char *arch(void) {
    const char *text = getenv("HIP_STANDIN_ARCH");
    return text ? text : "gfx950:sramecc+:xnack-";
}

/* ---- what tests read ------------------------------------------------------------------------------------------ */

void standin_set_launcher(int (*function)(const Launch *)) { launcher = function; }
size_t standin_launch_count(void) { return launch_count; }
size_t standin_live_modules(void) { return live_modules; }

/* The latest launch for back = 0, the one before it for 1, ...; NULL beyond what was kept. */
const Launch *standin_launch(size_t back) {
    return back < LOG && back < launch_count ? &launch_log[(launch_count - 1 - back) % LOG] : NULL;
}

/* The index-th allocation; returns 0 past the last one. */
int standin_allocation(size_t index, void **address, size_t *size, int *device) {
    pthread_mutex_lock(&lock);
    Allocation *at = allocations;
    while (at && index--) at = at->next;
    if (at) *address = at->address, *size = at->size, *device = at->device;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

/* ---- initialisation, devices, errors -------------------------------------------------------------------------- */

hipError_t hipInit(unsigned flags) {
    if (flags) return fail(INVALID_VALUE);
    if (devices() == 0) return fail(NO_DEVICE);
    initialised = 1;
    return SUCCESS;
}

hipError_t hipGetDeviceCount(int *count) {
    *count = devices();
    return fail(*count ? SUCCESS : NO_DEVICE);
}

hipError_t hipGetDevice(int *device) {
    *device = current;
    return SUCCESS;
}

hipError_t hipSetDevice(int device) {
    if (device < 0 || device >= devices()) return fail(INVALID_DEVICE);
    current = device;
    return SUCCESS;
}

/* Offsets in hipDeviceProp_tR0600, which is 1,472 bytes. */
hipError_t hipGetDevicePropertiesR0600(char *properties, int device) {
    if (device < 0 || device >= devices()) return fail(INVALID_DEVICE);
    memset(properties, 0, 1472);
    strcpy(properties, "stand-in");
    *(size_t *)(properties + 288) = (size_t)288 << 30;                        /* totalGlobalMem */
    *(size_t *)(properties + 296) = strstr(arch(), "gfx950") ? 163840 : 65536; /* sharedMemPerBlock */
    *(int *)(properties + 308) = 64;                                          /* warpSize */
    *(int *)(properties + 320) = 1024;                                        /* maxThreadsPerBlock */
    *(int *)(properties + 388) = 256;                                         /* multiProcessorCount */
    strncpy(properties + 1160, arch(), 255);                                  /* gcnArchName */
    return SUCCESS;
}

hipError_t hipGetLastError(void) {
    hipError_t code = last_error;
    last_error = SUCCESS;
    return code;
}

hipError_t hipPeekAtLastError(void) { return last_error; }
hipError_t hipDeviceSynchronize(void) { return SUCCESS; }

/* ---- memory --------------------------------------------------------------------------------------------------- */

hipError_t hipMalloc(void **pointer, size_t size) {
    Allocation *made = calloc(1, sizeof *made);
    *made = (Allocation){aligned_alloc(256, (size + 255) / 256 * 256), size, current, NULL};
    if (!made->address) return free(made), fail(OUT_OF_MEMORY);
    pthread_mutex_lock(&lock);
    made->next = allocations;
    allocations = made;
    pthread_mutex_unlock(&lock);
    *pointer = made->address;
    return SUCCESS;
}

hipError_t hipFree(void *pointer) {
    if (!pointer) return SUCCESS;
    pthread_mutex_lock(&lock);
    Allocation **at = &allocations;
    while (*at && (*at)->address != pointer) at = &(*at)->next;
    Allocation *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (!found) return fail(INVALID_VALUE);
    free(found->address);
    free(found);
    return SUCCESS;
}

typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
    int managed;
    unsigned flags;
} PointerAttributes;

hipError_t hipPointerGetAttributes(PointerAttributes *attributes, const void *pointer) {
    hipError_t code = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (Allocation *at = allocations; at; at = at->next)
        if ((char *)at->address <= (char *)pointer && (char *)pointer < (char *)at->address + at->size) {
            *attributes = (PointerAttributes){2, at->device, (void *)pointer, NULL, 0, 0};
            code = SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return fail(code);
}

hipError_t hipMemGetAddressRange(void **base, size_t *size, void *pointer) {
    hipError_t code = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (Allocation *at = allocations; at; at = at->next)
        if ((char *)at->address <= (char *)pointer && (char *)pointer < (char *)at->address + at->size)
            *base = at->address, *size = at->size, code = SUCCESS;
    pthread_mutex_unlock(&lock);
    return fail(code);
}

static hipError_t copy(void *to, const void *from, size_t size) {
    memmove(to, from, size);
    return SUCCESS;
}

hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)kind;
    return copy(to, from, size);
}

static Node *append(Graph *graph) {
    Node *node = calloc(1, sizeof *node);
    *graph->last = node;
    graph->last = &node->next;
    return node;
}

static hipError_t stream_of(void *handle, Stream **stream) {
    static Stream null_stream = {LIVE_STREAM, -1, NULL};
    *stream = handle ? handle : &null_stream;
    return (*stream)->live == LIVE_STREAM ? SUCCESS : fail(INVALID_HANDLE);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *handle) {
    Stream *stream;
    (void)kind;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    return stream->capture ? fail(STREAM_CAPTURE_UNSUPPORTED) : copy(to, from, size);
}

hipError_t hipMemset(void *to, int value, size_t size) {
    memset(to, value, size);
    return SUCCESS;
}

hipError_t hipMemsetAsync(void *to, int value, size_t size, void *handle) {
    Stream *stream;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    if (!stream->capture) return hipMemset(to, value, size);
    Node *node = append(stream->capture);
    node->memory = to, node->value = value, node->size = size;
    return SUCCESS;
}

/* ---- streams, events ------------------------------------------------------------------------------------------ */

hipError_t hipStreamCreate(void **stream) {
    Stream *made = calloc(1, sizeof *made);
    made->live = LIVE_STREAM, made->device = current;
    *stream = made;
    return SUCCESS;
}

hipError_t hipStreamDestroy(Stream *stream) {
    if (!stream || stream->live != LIVE_STREAM) return fail(INVALID_HANDLE);
    stream->live = 0; /* the block is leaked, so that a stale handle is recognised */
    return SUCCESS;
}

hipError_t hipStreamGetDevice(void *handle, int *device) {
    Stream *stream;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    *device = stream->device < 0 ? current : stream->device;
    return SUCCESS;
}

hipError_t hipStreamSynchronize(void *handle) {
    Stream *stream;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    return stream->capture ? fail(STREAM_CAPTURE_UNSUPPORTED) : SUCCESS;
}

hipError_t hipEventCreate(void **event) {
    Event *made = calloc(1, sizeof *made);
    made->live = LIVE_EVENT;
    *event = made;
    return SUCCESS;
}

hipError_t hipEventCreateWithFlags(void **event, unsigned flags) {
    (void)flags;
    return hipEventCreate(event);
}

hipError_t hipEventRecord(Event *event, void *handle) {
    Stream *stream;
    if (!event || event->live != LIVE_EVENT) return fail(INVALID_HANDLE);
    return stream_of(handle, &stream);
}

hipError_t hipEventQuery(Event *event) {
    if (!event || event->live != LIVE_EVENT) return fail(INVALID_HANDLE);
    const char *hold = getenv("HIP_STANDIN_HOLD"); /* as if the device had not come this far yet */
    return hold && *hold == '1' ? NOT_READY : SUCCESS;
}

hipError_t hipEventSynchronize(Event *event) {
    return event && event->live == LIVE_EVENT ? SUCCESS : fail(INVALID_HANDLE);
}

hipError_t hipEventDestroy(Event *event) {
    if (!event || event->live != LIVE_EVENT) return fail(INVALID_HANDLE);
    event->live = 0;
    free(event);
    return SUCCESS;
}

/* ---- modules -------------------------------------------------------------------------------------------------- */

static size_t image_size(const char *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    return memcmp(image, ELFMAG, 4) ? 0 : header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

static int processor(const char *name) {
    if (!strncmp(name, "gfx950", 6)) return 0x4f;
    if (!strncmp(name, "gfx942", 6)) return 0x4c;
    return !strncmp(name, "gfx90a", 6) ? 0x3f : -1;
}

hipError_t hipModuleLoadData(Module **module, const void *image) {
    if (!initialised) return fail(SHARED_OBJECT_INIT_FAILED);
    size_t size = image_size(image);
    if (!size) return fail(INVALID_IMAGE);
    if ((int)(((const Elf64_Ehdr *)image)->e_flags & 0xff) != processor(arch())) return fail(NO_BINARY_FOR_GPU);
    Module *made = calloc(1, sizeof *made);
    made->live = LIVE_MODULE, made->device = current, made->size = size;
    made->image = memcpy(malloc(size), image, size);
    __sync_fetch_and_add(&live_modules, 1);
    *module = made;
    return SUCCESS;
}

hipError_t hipModuleLoadDataEx(Module **module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return hipModuleLoadData(module, image);
}

hipError_t hipModuleLoad(Module **module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return fail(INVALID_VALUE);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = malloc(size + sizeof(Elf64_Ehdr));
    hipError_t code = fread(image, 1, size, file) == (size_t)size ? hipModuleLoadData(module, image) : INVALID_VALUE;
    free(image);
    fclose(file);
    return fail(code);
}

hipError_t hipModuleUnload(Module *module) {
    if (!module || module->live != LIVE_MODULE) return fail(INVALID_HANDLE);
    for (Function *function = module->functions, *next; function; function = next) {
        next = function->next;
        free(function->name);
        free(function);
    }
    module->live = 0;
    free(module->image);
    free(module);
    __sync_fetch_and_sub(&live_modules, 1);
    return SUCCESS;
}

static int defines(const Module *module, const char *name) {
    const char *image = module->image;
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++)
            if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && !strcmp(names + symbols[s].st_name, name)) return 1;
    }
    return 0;
}

hipError_t hipModuleGetFunction(Function **function, Module *module, const char *name) {
    if (!module || module->live != LIVE_MODULE) return fail(INVALID_HANDLE);
    if (!defines(module, name)) return fail(NOT_FOUND);
    Function *made = calloc(1, sizeof *made);
    *made = (Function){LIVE_FUNCTION, module, strdup(name), module->functions};
    module->functions = made;
    *function = made;
    return SUCCESS;
}

/* ---- launches ------------------------------------------------------------------------------------------------- */

static hipError_t run(const Launch *launch) {
    pthread_mutex_lock(&lock);
    Launch *slot = &launch_log[launch_count++ % LOG];
    free(slot->kernarg);
    *slot = *launch;
    if (launch->kernarg) slot->kernarg = memcpy(malloc(launch->kernarg_size + 1), launch->kernarg, launch->kernarg_size);
    pthread_mutex_unlock(&lock);
    const char *code = getenv("HIP_STANDIN_FAIL");
    if (code) return fail(atoi(code));
    return launcher ? fail(launcher(launch)) : SUCCESS;
}

static hipError_t enqueue(const char *entry, Function *function, const uint32_t grid[3], const uint32_t block[3],
                          uint32_t lds, void *handle, void **params, void **extra) {
    Stream *stream;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    if (!function || function->live != LIVE_FUNCTION) return fail(INVALID_HANDLE);
    int device = stream->device < 0 ? current : stream->device;
    if (function->module->device != device) return fail(INVALID_DEVICE_FUNCTION);
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i] || (uint64_t)grid[i] * block[i] >> 32) return fail(INVALID_CONFIGURATION);
    if ((uint64_t)block[0] * block[1] * block[2] > 1024) return fail(INVALID_CONFIGURATION);
    Launch launch = {.lds = lds, .device = device, .stream = handle, .entry = entry, .image = function->module->image,
                     .image_size = function->module->size, .params = params};
    strncpy(launch.kernel, function->name, sizeof launch.kernel - 1);
    memcpy(launch.grid, grid, sizeof launch.grid);
    memcpy(launch.block, block, sizeof launch.block);
    for (; !params && extra && *extra != (void *)3; extra += 2) {
        if (*extra == (void *)1) launch.kernarg = extra[1];
        else if (*extra == (void *)2) launch.kernarg_size = *(size_t *)extra[1];
        else return fail(INVALID_VALUE);
    }
    if (!stream->capture) return run(&launch);
    Node *node = append(stream->capture);
    node->launch = launch;
    if (launch.kernarg) /* arguments are those of the time of the capture */
        node->launch.kernarg = memcpy(malloc(launch.kernarg_size + 1), launch.kernarg, launch.kernarg_size);
    return SUCCESS;
}

hipError_t hipModuleLaunchKernel(Function *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                                 uint32_t bz, uint32_t lds, void *stream, void **params, void **extra) {
    return enqueue("hipModuleLaunchKernel", f, (uint32_t[]){gx, gy, gz}, (uint32_t[]){bx, by, bz}, lds, stream, params,
                   extra);
}

hipError_t hipModuleLaunchCooperativeKernel(Function *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                                            uint32_t by, uint32_t bz, uint32_t lds, void *stream, void **params) {
    return enqueue("hipModuleLaunchCooperativeKernel", f, (uint32_t[]){gx, gy, gz}, (uint32_t[]){bx, by, bz}, lds,
                   stream, params, NULL);
}

/* This one counts its grid in work-items. */
hipError_t hipExtModuleLaunchKernel(Function *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                                    uint32_t bz, size_t lds, void *stream, void **params, void **extra, void *start,
                                    void *stop, uint32_t flags) {
    (void)start, (void)stop, (void)flags;
    if (!bx || !by || !bz || gx % bx || gy % by || gz % bz) return fail(INVALID_CONFIGURATION);
    return enqueue("hipExtModuleLaunchKernel", f, (uint32_t[]){gx / bx, gy / by, gz / bz}, (uint32_t[]){bx, by, bz},
                   (uint32_t)lds, stream, params, extra);
}

typedef struct {
    uint32_t grid[3], block[3], lds;
    void *stream, *attributes;
    unsigned attribute_count;
} LaunchConfig;

hipError_t hipDrvLaunchKernelEx(const LaunchConfig *config, Function *f, void **params, void **extra) {
    return enqueue("hipDrvLaunchKernelEx", f, config->grid, config->block, config->lds, config->stream, params, extra);
}

/* A host stub that a program registered, and the kernel it stands for. */
static struct { const void *stub; Function *function; } stubs[64];
static int stub_count;

typedef struct { uint32_t magic, version; const char *binary; void *unused; } FatBinary;

/* The wrapped binary is taken to be a bundle with one code object. */
void **__hipRegisterFatBinary(const FatBinary *fat) {
    uint64_t offset;
    Module *module = NULL;
    memcpy(&offset, fat->binary + 32, 8);
    hipInit(0);
    hipModuleLoadData(&module, fat->binary + offset);
    return (void **)module;
}

void __hipRegisterFunction(void **modules, const void *stub, char *kernel, const char *name, unsigned limit,
                           void *thread, void *block, dim3 *block_size, dim3 *grid_size, int *warp) {
    (void)kernel, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp;
    if (stub_count == 64 || hipModuleGetFunction(&stubs[stub_count].function, (Module *)modules, name)) return;
    stubs[stub_count++].stub = stub;
}

/* Takes a registered host stub or, as hipGetFuncBySymbol's result, a function handle. */
hipError_t hipLaunchKernel(const void *f, dim3 grid, dim3 block, void **params, size_t lds, void *stream) {
    for (int i = 0; i < stub_count; i++)
        if (stubs[i].stub == f) f = stubs[i].function;
    return enqueue("hipLaunchKernel", (Function *)f, (uint32_t[]){grid.x, grid.y, grid.z},
                   (uint32_t[]){block.x, block.y, block.z}, (uint32_t)lds, stream, params, NULL);
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

hipError_t hipStreamBeginCapture(Stream *stream, int mode) {
    (void)mode;
    if (!stream || stream->live != LIVE_STREAM) return fail(INVALID_HANDLE);
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->last = &stream->capture->first;
    return SUCCESS;
}

hipError_t hipStreamEndCapture(Stream *stream, Graph **graph) {
    if (!stream || stream->live != LIVE_STREAM || !stream->capture) return fail(INVALID_HANDLE);
    *graph = stream->capture;
    stream->capture = NULL;
    return SUCCESS;
}

hipError_t hipStreamIsCapturing(void *handle, int *status) {
    Stream *stream;
    if (stream_of(handle, &stream)) return INVALID_HANDLE;
    *status = stream->capture != NULL;
    return SUCCESS;
}

hipError_t hipGraphCreate(Graph **graph, unsigned flags) {
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    (*graph)->last = &(*graph)->first;
    return SUCCESS;
}

typedef struct {
    dim3 block;
    void **extra;
    void *function;
    dim3 grid;
    void **params;
    unsigned lds;
} KernelNode;

hipError_t hipGraphAddKernelNode(Node **node, Graph *graph, void *dependencies, size_t count, const KernelNode *kernel) {
    (void)dependencies, (void)count;
    Stream collecting = {LIVE_STREAM, ((Function *)kernel->function)->module->device, graph};
    Node **place = graph->last;
    hipError_t code = enqueue("hipGraphAddKernelNode", kernel->function,
                              (uint32_t[]){kernel->grid.x, kernel->grid.y, kernel->grid.z},
                              (uint32_t[]){kernel->block.x, kernel->block.y, kernel->block.z}, kernel->lds, &collecting,
                              kernel->params, kernel->extra);
    if (!code) (*place)->launch.stream = NULL, *node = *place;
    return code;
}

hipError_t hipGraphInstantiate(Graph **executable, Graph *graph, void **node, char *log, size_t size) {
    (void)node, (void)log, (void)size;
    *executable = graph;
    return SUCCESS;
}

hipError_t hipGraphLaunch(Graph *graph, void *stream) {
    for (Node *node = graph->first; node; node = node->next) {
        node->launch.stream = stream;
        hipError_t code = node->memory ? hipMemset(node->memory, node->value, node->size) : run(&node->launch);
        if (code) return code;
    }
    return SUCCESS;
}

hipError_t hipGraphExecDestroy(Graph *graph) {
    (void)graph;
    return SUCCESS;
}

hipError_t hipGraphDestroy(Graph *graph) {
    for (Node *node = graph->first, *next; node; node = next) {
        next = node->next;
        free(node->launch.kernarg);
        free(node);
    }
    free(graph);
    return SUCCESS;
}
