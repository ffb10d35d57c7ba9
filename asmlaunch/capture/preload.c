/* Records what a process launches on an AMD GPU: code objects, kernels and argument bytes.
 *
 * Loaded with LD_PRELOAD by `asmlaunch capture`. HIP's functions are wrapped both for programs that are linked to the
 * runtime (they find the wrappers first) and for those that look functions up (dlsym and hipGetProcAddress hand out the
 * wrappers). Every wrapper calls the real function and returns its result, whatever happens to the recording.
 *
 * Records go into a file that is mapped to memory, a file a process: space is taken with one atomic operation, so a
 * launch takes no lock and makes no system call, and what was recorded survives a crash. reader.py reads the format.
 *
 * Names, signatures and structures are those of HIP's public C API (hip_runtime_api.h); the metadata note is described
 * in LLVM's "User Guide for AMDGPU Backend", msgpack by its specification.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef int hipError_t;
typedef struct { uint32_t x, y, z; } dim3;

/* ---- the file ------------------------------------------------------------------------------------------------- */

enum { OBJECT = 1, FUNCTION = 2, LAUNCH = 3, MEMORY = 4 };

typedef struct {
    char magic[8];
    _Atomic uint64_t used; /* bytes of the file that are taken, this header included */
    _Atomic uint64_t dropped;
    uint64_t limit, pid;
} File;

/* In front of every record. kind is written last: a record that is 0 was not finished. */
typedef struct {
    _Atomic uint32_t kind;
    uint32_t pad;
    uint64_t size; /* with this header, a multiple of 8 */
} Record;

typedef struct { Record record; uint64_t id, size; } ObjectRecord;                     /* + bytes */
typedef struct { Record record; uint64_t id, object, size; } FunctionRecord;           /* + name */
typedef struct {
    Record record;
    uint64_t sequence, function, nanoseconds, stream, thread;
    uint32_t grid[3], block[3], lds, entry;
    int32_t device, result;
    uint32_t known, size; /* known 0: the argument bytes could not be found out */
} LaunchRecord;                                                                        /* + argument bytes */
typedef struct {
    Record record;
    uint64_t sequence, base, allocated, size;
    uint32_t after, pad;
} MemoryRecord;                                                                        /* + bytes */

static File *file;
static int with_memory;
static uint64_t memory_limit;
static _Atomic uint64_t sequences, identities = 1;
static _Thread_local uint64_t thread_id;
static _Thread_local int depth; /* of calls into the runtime that wrappers make */

static void open_file(void) {
    const char *folder = getenv("ASMLAUNCH_CAPTURE_FOLDER"), *limit = getenv("ASMLAUNCH_CAPTURE_LIMIT");
    if (!folder) return;
    char path[4096];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(path, sizeof path, "%s/%d-%lld%09ld.capture", folder, (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    uint64_t size = limit ? strtoull(limit, NULL, 10) : 256u << 20;
    int handle = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (handle < 0) return;
    void *mapped = MAP_FAILED; /* the file is sparse: only what is written takes space */
    if (!ftruncate(handle, (off_t)size)) mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    close(handle);
    if (mapped == MAP_FAILED) return;
    File *made = mapped;
    made->limit = size, made->pid = (uint64_t)getpid(), made->used = sizeof *made;
    memcpy(made->magic, "ASMLCAP1", 8);
    file = made;
}

/* Space for a record, or NULL when the file is full. */
static void *take(uint64_t size) {
    if (!file || depth) return NULL;
    size = (size + 7) & ~(uint64_t)7;
    uint64_t at = atomic_load_explicit(&file->used, memory_order_relaxed);
    do {
        if (at + size > file->limit) return atomic_fetch_add(&file->dropped, 1), NULL;
    } while (!atomic_compare_exchange_weak(&file->used, &at, at + size));
    Record *record = (Record *)((char *)file + at);
    record->size = size;
    return record;
}

static void finish(Record *record, uint32_t kind) { atomic_store_explicit(&record->kind, kind, memory_order_release); }

/* ---- the real functions --------------------------------------------------------------------------------------- */

typedef void *(*Dlsym)(void *, const char *);
static Dlsym real_dlsym;

static Dlsym find_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; !real_dlsym && i < sizeof versions / sizeof *versions; i++)
        real_dlsym = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return real_dlsym;
}

#define WRAPPED(X) \
    X(hipModuleLoad) X(hipModuleLoadData) X(hipModuleLoadDataEx) X(hipModuleGetFunction) X(hipModuleLaunchKernel) \
    X(hipExtModuleLaunchKernel) X(hipDrvLaunchKernelEx) X(hipLaunchKernel) X(hipGraphAddKernelNode) \
    X(hipModuleLaunchCooperativeKernel) X(hipGetProcAddress) X(__hipRegisterFatBinary) X(__hipRegisterFunction)

#define NAME(f) F_##f,
enum Name { WRAPPED(NAME) NAMES };
static void *real[NAMES];
static const char *const names[NAMES] = {
#define STRING(f) #f,
    WRAPPED(STRING)
};

/* Any other function of the runtime that the wrapped ones belong to; NULL where it has none. */
static void *helper(const char *name) {
    static void *library;
    Dl_info info;
    for (int i = 0; !library && i < NAMES; i++)
        if (real[i] && dladdr(real[i], &info)) library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return library ? find_dlsym()(library, name) : NULL;
}

/* The real function: the one a lookup found, the next one after this library, or the one beside others found. */
static void *of(enum Name name) {
    if (!real[name]) real[name] = find_dlsym()(RTLD_NEXT, names[name]);
    if (!real[name]) real[name] = helper(names[name]);
    if (!real[name]) {
        fprintf(stderr, "asmlaunch capture: no %s in this process\n", names[name]);
        abort();
    }
    return real[name];
}

/* ---- code objects: their size, and the argument sizes of their kernels ------------------------------------------ */

static uint64_t image_size(const unsigned char *image) {
    if (!memcmp(image, ELFMAG, 4)) {
        const Elf64_Ehdr *elf = (const Elf64_Ehdr *)image;
        uint64_t size = elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize;
        for (int i = 0; i < elf->e_phnum; i++) {
            const Elf64_Phdr *segment = (const Elf64_Phdr *)(image + elf->e_phoff + (uint64_t)i * elf->e_phentsize);
            if (segment->p_offset + segment->p_filesz > size) size = segment->p_offset + segment->p_filesz;
        }
        return size;
    }
    if (!memcmp(image, "__CLANG_OFFLOAD_BUNDLE__", 24)) {
        uint64_t count, size = 0, entry[3];
        memcpy(&count, image + 24, 8);
        const unsigned char *at = image + 32;
        for (uint64_t i = 0; i < count; i++) {
            memcpy(entry, at, 24); /* offset, size, length of the name */
            at += 24 + entry[2];
            if (entry[0] + entry[1] > size) size = entry[0] + entry[1];
        }
        return size;
    }
    if (!memcmp(image, "CCOB", 4)) { /* compressed bundle: version 2 has a 32-bit file size, version 3 a 64-bit one */
        uint16_t version;
        uint64_t size = 0;
        memcpy(&version, image + 4, 2);
        memcpy(&size, image + 8, version >= 3 ? 8 : 4);
        return version >= 2 ? size : 0;
    }
    return 0;
}

typedef struct Argument { uint32_t offset, size; } Argument;
typedef struct Kernel {
    char *name;
    uint32_t kernarg_size, count;
    Argument *arguments; /* those that a caller gives, in order */
    struct Kernel *next;
} Kernel;

typedef struct { const unsigned char *at, *end; } Pack; /* a position in msgpack */

static uint64_t big(Pack *p, int bytes) {
    uint64_t value = 0;
    if (p->end - p->at < bytes) return p->at = p->end, 0;
    while (bytes--) value = value << 8 | *p->at++;
    return value;
}

/* Reads a header: its kind ('m'ap, 'a'rray, 's'tring, 'i'nteger, 'o'ther) and its count, length or value. */
static char head(Pack *p, uint64_t *n) {
    if (p->at >= p->end) return *n = 0, 'o';
    unsigned c = *p->at++;
    if (c < 0x80) return *n = c, 'i';
    if (c < 0x90) return *n = c & 15, 'm';
    if (c < 0xa0) return *n = c & 15, 'a';
    if (c < 0xc0) return *n = c & 31, 's';
    if (c >= 0xe0) return *n = c, 'i';
    switch (c) {
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return *n = big(p, 1 << (c - 0xcc)), 'i';
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return *n = big(p, 1 << (c - 0xd0)), 'i';
    case 0xd9: case 0xda: case 0xdb: return *n = big(p, 1 << (c - 0xd9)), 's';
    case 0xc4: case 0xc5: case 0xc6: return *n = big(p, 1 << (c - 0xc4)), 's';
    case 0xdc: case 0xdd: return *n = big(p, 2 << (c - 0xdc)), 'a';
    case 0xde: case 0xdf: return *n = big(p, 2 << (c - 0xde)), 'm';
    case 0xca: p->at += 4; break;
    case 0xcb: p->at += 8; break;
    default: break;
    }
    return *n = 0, 'o';
}

static void skip(Pack *p, int depth) {
    uint64_t n;
    char kind = head(p, &n);
    if (depth > 32) p->at = p->end;
    if (kind == 's') p->at = n > (uint64_t)(p->end - p->at) ? p->end : p->at + n;
    if (kind == 'm') n *= 2;
    if (kind == 'm' || kind == 'a')
        while (n-- && p->at < p->end) skip(p, depth + 1);
}

static int key(Pack *p, const char **text, uint64_t *length) {
    if (head(p, length) != 's' || *length > (uint64_t)(p->end - p->at)) return 0;
    *text = (const char *)p->at;
    p->at += *length;
    return 1;
}

#define IS(text, length, literal) ((length) == sizeof literal - 1 && !memcmp(text, literal, sizeof literal - 1))

static void read_argument(Pack *p, Kernel *kernel) {
    uint64_t entries, length, value;
    const char *text;
    Argument argument = {0, 0};
    int hidden = 0;
    if (head(p, &entries) != 'm') return;
    while (entries-- && key(p, &text, &length)) {
        Pack at = *p;
        if (IS(text, length, ".offset") && head(&at, &value) == 'i') argument.offset = (uint32_t)value;
        else if (IS(text, length, ".size") && head(&at, &value) == 'i') argument.size = (uint32_t)value;
        else if (IS(text, length, ".value_kind") && key(&at, &text, &length))
            hidden = length > 7 && !memcmp(text, "hidden_", 7);
        skip(p, 0);
    }
    Argument *grown = hidden ? NULL : realloc(kernel->arguments, (kernel->count + 1) * sizeof argument);
    if (grown) kernel->arguments = grown, kernel->arguments[kernel->count++] = argument;
}

static void read_kernel(Pack *p, Kernel **kernels) {
    uint64_t entries, length, value;
    const char *text;
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || head(p, &entries) != 'm') return;
    while (entries-- && key(p, &text, &length)) {
        Pack at = *p;
        if (IS(text, length, ".name") && key(&at, &text, &length)) kernel->name = strndup(text, length);
        else if (IS(text, length, ".kernarg_segment_size") && head(&at, &value) == 'i')
            kernel->kernarg_size = (uint32_t)value;
        else if (IS(text, length, ".args") && head(&at, &value) == 'a')
            while (value-- && at.at < at.end) read_argument(&at, kernel);
        skip(p, 0);
    }
    kernel->next = *kernels;
    *kernels = kernel;
}

/* The kernels that an ELF image's metadata note describes; NULL for anything else. */
static Kernel *read_kernels(const unsigned char *image) {
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)image;
    Kernel *kernels = NULL;
    if (memcmp(image, ELFMAG, 4)) return NULL;
    for (int i = 0; i < elf->e_phnum; i++) {
        const Elf64_Phdr *segment = (const Elf64_Phdr *)(image + elf->e_phoff + (uint64_t)i * elf->e_phentsize);
        if (segment->p_type != PT_NOTE) continue;
        const unsigned char *at = image + segment->p_offset, *end = at + segment->p_filesz;
        while (end - at >= 12) {
            Elf64_Nhdr note;
            memcpy(&note, at, sizeof note);
            const unsigned char *payload = at + sizeof note + ((note.n_namesz + 3) & ~3u);
            if (payload + note.n_descsz > end) break;
            uint64_t entries, length, count;
            const char *text;
            Pack p = {payload, payload + note.n_descsz};
            if (note.n_type == 32 && head(&p, &entries) == 'm')
                while (entries-- && key(&p, &text, &length)) {
                    Pack inside = p;
                    if (IS(text, length, "amdhsa.kernels") && head(&inside, &count) == 'a')
                        while (count-- && inside.at < inside.end) read_kernel(&inside, &kernels);
                    skip(&p, 0);
                }
            at = payload + ((note.n_descsz + 3) & ~3u);
        }
    }
    return kernels;
}

/* ---- modules and functions by handle ---------------------------------------------------------------------------- */

typedef struct Known { uint64_t id; Kernel *kernels, *kernel; } Known;

/* Handle -> Known, open addressing; entries are only added or replaced, so that readers need no lock. */
enum { SLOTS = 1 << 16 };
static _Atomic(void *) handles[SLOTS];
static _Atomic(Known *) known[SLOTS];

static unsigned slot_of(void *handle) { return (unsigned)(((uintptr_t)handle >> 4) * 2654435761u) % SLOTS; }

static void remember(void *handle, Known *what) {
    unsigned at = slot_of(handle);
    for (int i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS) {
        void *empty = NULL;
        if (atomic_compare_exchange_strong(&handles[at], &empty, handle) || empty == handle) {
            atomic_store(&known[at], what);
            return;
        }
    }
}

static Known *recall(void *handle) {
    unsigned at = slot_of(handle);
    for (int i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS) {
        void *found = atomic_load_explicit(&handles[at], memory_order_relaxed);
        if (found == handle) return atomic_load(&known[at]);
        if (!found) return NULL;
    }
    return NULL;
}

static void loaded(void *module, const void *image) {
    uint64_t size = image_size(image);
    Known *made = calloc(1, sizeof *made);
    ObjectRecord *record = size ? take(sizeof *record + size) : NULL;
    if (!made) return;
    made->id = atomic_fetch_add(&identities, 1);
    made->kernels = read_kernels(image);
    if (record) {
        record->id = made->id, record->size = size;
        memcpy(record + 1, image, size);
        finish(&record->record, OBJECT);
    }
    remember(module, made);
}

static void looked_up(void *function, void *module, const char *name) {
    Known *object = recall(module), *made = calloc(1, sizeof *made);
    uint64_t size = strlen(name);
    FunctionRecord *record = take(sizeof *record + size);
    if (!made) return;
    made->id = atomic_fetch_add(&identities, 1);
    for (Kernel *kernel = object ? object->kernels : NULL; kernel && !made->kernel; kernel = kernel->next)
        if (kernel->name && !strcmp(kernel->name, name)) made->kernel = kernel;
    if (record) {
        record->id = made->id, record->object = object ? object->id : 0, record->size = size;
        memcpy(record + 1, name, size);
        finish(&record->record, FUNCTION);
    }
    remember(function, made);
}

/* The first code object for a GPU in an offload bundle, whose argument sizes are those of all; NULL without one. */
static const unsigned char *first_in_bundle(const unsigned char *bundle) {
    uint64_t count, entry[3];
    if (memcmp(bundle, "__CLANG_OFFLOAD_BUNDLE__", 24)) return NULL;
    memcpy(&count, bundle + 24, 8);
    for (const unsigned char *at = bundle + 32; count--; at += 24 + entry[2]) {
        memcpy(entry, at, 24); /* offset, size, length of the name */
        if (entry[1] && !memcmp(bundle + entry[0], ELFMAG, 4)) return bundle + entry[0];
    }
    return NULL;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* Argument bytes of a launch, into `room` (which may be NULL, for the size alone); -1 when they cannot be known. */
static int64_t argument_bytes(const Known *function, void **params, void **extra, unsigned char *room) {
    const Kernel *kernel = function ? function->kernel : NULL;
    const void *buffer = NULL;
    uint64_t size = 0;
    if (params) {
        if (!kernel) return -1;
        if (room) memset(room, 0, kernel->kernarg_size);
        for (uint32_t i = 0; room && i < kernel->count; i++)
            if (kernel->arguments[i].offset + kernel->arguments[i].size <= kernel->kernarg_size)
                memcpy(room + kernel->arguments[i].offset, params[i], kernel->arguments[i].size);
        return kernel->kernarg_size;
    }
    for (; extra && *extra != (void *)3; extra += 2) {
        if (*extra == (void *)1) buffer = extra[1];
        else if (*extra == (void *)2) size = *(size_t *)extra[1];
        else return -1;
    }
    if (room && buffer) memcpy(room, buffer, size);
    return buffer ? (int64_t)size : 0;
}

typedef hipError_t (*AddressRange)(void **, size_t *, void *);
typedef hipError_t (*Memcpy)(void *, const void *, size_t, int);
typedef hipError_t (*IsCapturing)(void *, int *);

/* Copies each allocation that the argument bytes point into; nothing while the stream is captured into a graph. */
static void record_memory(const LaunchRecord *launch, void *stream, uint32_t after) {
    AddressRange range = (AddressRange)helper("hipMemGetAddressRange");
    Memcpy copy = (Memcpy)helper("hipMemcpy");
    IsCapturing capturing = (IsCapturing)helper("hipStreamIsCapturing");
    hipError_t (*synchronize)(void) = (hipError_t(*)(void))helper("hipDeviceSynchronize");
    hipError_t (*forget)(void) = (hipError_t(*)(void))helper("hipGetLastError");
    int status = 0;
    if (!range || !copy || !synchronize || !forget) return;
    if (stream && capturing && (capturing(stream, &status) || status)) return;
    synchronize();
    void *seen[64];
    int count = 0;
    for (uint32_t at = 0; at + 8 <= launch->size && count < 64; at += 4) {
        void *pointer, *base;
        size_t size;
        int again = 0;
        memcpy(&pointer, (const char *)(launch + 1) + at, 8);
        if ((uintptr_t)pointer < 4096) continue;
        if (range(&base, &size, pointer)) {
            forget(); /* a number that is no address leaves no error behind */
            continue;
        }
        for (int i = 0; i < count; i++) again |= seen[i] == base;
        if (again) continue;
        seen[count++] = base;
        uint64_t kept = size < memory_limit ? size : memory_limit;
        MemoryRecord *record = take(sizeof *record + kept);
        if (!record) continue;
        record->sequence = launch->sequence, record->base = (uintptr_t)base, record->allocated = size;
        record->size = kept, record->after = after;
        if (!copy(record + 1, base, kept, 2 /* hipMemcpyDeviceToHost */)) finish(&record->record, MEMORY);
    }
}

/* Before the real call: the record, finished by `launched` once the result is known. */
static LaunchRecord *launching(uint32_t entry, void *handle, const uint32_t grid[3], const uint32_t block[3],
                               uint64_t lds, void *stream, void **params, void **extra) {
    const Known *function = recall(handle);
    int64_t size = argument_bytes(function, params, extra, NULL);
    LaunchRecord *record = take(sizeof *record + (size > 0 ? (uint64_t)size : 0));
    struct timespec now;
    if (!record) return NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    record->sequence = atomic_fetch_add(&sequences, 1);
    record->function = function ? function->id : 0;
    record->nanoseconds = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (!thread_id) thread_id = (uint64_t)syscall(SYS_gettid);
    record->stream = (uintptr_t)stream, record->thread = thread_id;
    memcpy(record->grid, grid, sizeof record->grid);
    memcpy(record->block, block, sizeof record->block);
    record->lds = (uint32_t)lds, record->entry = entry, record->known = size >= 0;
    record->size = size > 0 ? (uint32_t)size : 0;
    argument_bytes(function, params, extra, (unsigned char *)(record + 1));
    if (with_memory && entry != F_hipGraphAddKernelNode) record_memory(record, stream, 0);
    return record;
}

static hipError_t launched(LaunchRecord *record, void *stream, hipError_t result) {
    static hipError_t (*device)(int *);
    if (!record) return result;
    if (!device) device = (hipError_t(*)(int *))helper("hipGetDevice");
    int ordinal = -1;
    if (device) device(&ordinal);
    record->device = ordinal, record->result = result;
    if (with_memory && !result && record->entry != F_hipGraphAddKernelNode) record_memory(record, stream, 1);
    finish(&record->record, LAUNCH);
    return result;
}

/* ---- the wrappers ----------------------------------------------------------------------------------------------- */

/* The real function, which has its wrapper's type. What it calls itself, through wrappers again, is not recorded. */
#define CALL(f, ...)                                                   \
    ({                                                                 \
        depth++;                                                       \
        hipError_t code = ((__typeof__(&f))of(F_##f))(__VA_ARGS__);    \
        depth--;                                                       \
        code;                                                          \
    })
#define THREE(d) (uint32_t[]){(d).x, (d).y, (d).z}

EXPORT hipError_t hipModuleLoadData(void **module, const void *image) {
    hipError_t result = CALL(hipModuleLoadData, module, image);
    if (!result) loaded(*module, image);
    return result;
}

EXPORT hipError_t hipModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void **values) {
    hipError_t result = CALL(hipModuleLoadDataEx, module, image, count, options, values);
    if (!result) loaded(*module, image);
    return result;
}

EXPORT hipError_t hipModuleLoad(void **module, const char *path) {
    hipError_t result = CALL(hipModuleLoad, module, path);
    int handle = result ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (handle >= 0 && !fstat(handle, &status) && status.st_size > (off_t)sizeof(Elf64_Ehdr)) {
        void *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, handle, 0);
        if (image != MAP_FAILED) {
            loaded(*module, image);
            munmap(image, (size_t)status.st_size);
        }
    }
    if (handle >= 0) close(handle);
    return result;
}

EXPORT hipError_t hipModuleGetFunction(void **function, void *module, const char *name) {
    hipError_t result = CALL(hipModuleGetFunction, function, module, name);
    if (!result) looked_up(*function, module, name);
    return result;
}

EXPORT hipError_t hipModuleLaunchKernel(void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                                        uint32_t bz, uint32_t lds, void *stream, void **params, void **extra) {
    uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    LaunchRecord *record = launching(F_hipModuleLaunchKernel, f, grid, block, lds, stream, params, extra);
    hipError_t result = CALL(hipModuleLaunchKernel, f, gx, gy, gz, bx, by, bz, lds, stream, params, extra);
    return launched(record, stream, result);
}

EXPORT hipError_t hipModuleLaunchCooperativeKernel(void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                                                   uint32_t by, uint32_t bz, uint32_t lds, void *stream,
                                                   void **params) {
    uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    LaunchRecord *record = launching(F_hipModuleLaunchCooperativeKernel, f, grid, block, lds, stream, params, NULL);
    hipError_t result = CALL(hipModuleLaunchCooperativeKernel, f, gx, gy, gz, bx, by, bz, lds, stream, params);
    return launched(record, stream, result);
}

/* Counts its grid in work-items; recorded in workgroups like the others. */
EXPORT hipError_t hipExtModuleLaunchKernel(void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                                           uint32_t bz, size_t lds, void *stream, void **params, void **extra,
                                           void *start, void *stop, uint32_t flags) {
    uint32_t grid[] = {bx ? gx / bx : 0, by ? gy / by : 0, bz ? gz / bz : 0}, block[] = {bx, by, bz};
    LaunchRecord *record = launching(F_hipExtModuleLaunchKernel, f, grid, block, lds, stream, params, extra);
    hipError_t result = CALL(hipExtModuleLaunchKernel, f, gx, gy, gz, bx, by, bz, lds, stream, params, extra, start,
                                                       stop, flags);
    return launched(record, stream, result);
}

typedef struct { uint32_t grid[3], block[3], lds; void *stream, *attributes; unsigned count; } LaunchConfig;

EXPORT hipError_t hipDrvLaunchKernelEx(const LaunchConfig *config, void *f, void **params, void **extra) {
    LaunchRecord *record = launching(F_hipDrvLaunchKernelEx, f, config->grid, config->block, config->lds,
                                     config->stream, params, extra);
    return launched(record, config->stream, CALL(hipDrvLaunchKernelEx, config, f, params, extra));
}

EXPORT hipError_t hipLaunchKernel(const void *f, dim3 grid, dim3 block, void **params, size_t lds, void *stream) {
    LaunchRecord *record =
        launching(F_hipLaunchKernel, (void *)f, THREE(grid), THREE(block), lds, stream, params, NULL);
    return launched(record, stream, CALL(hipLaunchKernel, f, grid, block, params, lds, stream));
}

typedef struct { dim3 block; void **extra; void *function; dim3 grid; void **params; unsigned lds; } KernelNode;

/* The arguments are those of now; how often the graph runs, and on which memory, is not seen. */
EXPORT hipError_t hipGraphAddKernelNode(void **node, void *graph, const void *dependencies, size_t count,
                                        const KernelNode *kernel) {
    LaunchRecord *record = launching(F_hipGraphAddKernelNode, kernel->function, THREE(kernel->grid),
                                     THREE(kernel->block), kernel->lds, NULL, kernel->params, kernel->extra);
    return launched(record, NULL, CALL(hipGraphAddKernelNode, node, graph, dependencies, count, kernel));
}

/* What hipcc's code calls before main: a program's own kernels, and the host functions that stand for them. */
typedef struct { uint32_t magic, version; const unsigned char *binary; void *unused; } FatBinary;

EXPORT void **__hipRegisterFatBinary(const FatBinary *fat) {
    void **modules = ((__typeof__(&__hipRegisterFatBinary))of(F___hipRegisterFatBinary))(fat);
    const unsigned char *object = fat->magic == 0x48495046 /* "HIPF" */ ? first_in_bundle(fat->binary) : NULL;
    loaded(modules, object ? object : fat->binary);
    return modules;
}

EXPORT void __hipRegisterFunction(void **modules, const void *stub, char *kernel, const char *name, unsigned limit,
                                  void *thread, void *block, dim3 *block_size, dim3 *grid_size, int *warp) {
    ((__typeof__(&__hipRegisterFunction))of(F___hipRegisterFunction))(modules, stub, kernel, name, limit, thread, block,
                                                                      block_size, grid_size, warp);
    looked_up((void *)stub, modules, name);
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

EXPORT hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags, void *status);

static void *const wrappers[NAMES] = {
#define ADDRESS(f) (void *)f,
    WRAPPED(ADDRESS)
};

static int index_of(const char *name) {
    for (int i = 0; (name[0] == 'h' || name[0] == '_') && i < NAMES; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

/* The wrapper for a function that a lookup found, the function itself where there is none. */
static void *wrapper_of(int index, void *found) {
    if (!found || index < 0 || found == wrappers[index]) return found;
    real[index] = found;
    return wrappers[index];
}

EXPORT hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags, void *status) {
    hipError_t result = CALL(hipGetProcAddress, symbol, function, version, flags, status);
    if (!result && function && *function) *function = wrapper_of(index_of(symbol), *function);
    return result;
}

EXPORT void *dlsym(void *handle, const char *name) {
    int index = index_of(name);
    /* A jump, not a call (-foptimize-sibling-calls): what RTLD_NEXT means depends on the caller's address. */
    if (index < 0 || handle == RTLD_NEXT) return find_dlsym()(handle, name);
    return wrapper_of(index, find_dlsym()(handle, name));
}

/* ---- begin, fork, end ------------------------------------------------------------------------------------------- */

static void in_child(void) {
    thread_id = 0;
    file = NULL; /* the parent's mapping stays the parent's */
    open_file();
}

__attribute__((constructor)) static void begin(void) {
    const char *limit = getenv("ASMLAUNCH_CAPTURE_MEMORY");
    with_memory = limit != NULL;
    memory_limit = limit ? strtoull(limit, NULL, 10) : 0;
    open_file();
    pthread_atfork(NULL, NULL, in_child);
}
