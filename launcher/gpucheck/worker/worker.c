// A process that uses one GPU as a rank of a training job does: it takes the device of
// LOCAL_RANK among those that CUDA shows it, makes a context there, holds some memory and
// says in one line of JSON what it got.
//
//   cudaworker [-bytes 64MiB] [-for 3s] [-until FILE]
//
// It stays for the time of -for, or until FILE is there. The line has the fields of the
// testbed's cudaworker, so that either can be checked with. The CUDA library belongs to the
// driver, so it is looked for at run time: this program is built where there is none.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What is needed of cuda.h, whose license and toolkit are not wanted here.
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct { unsigned char bytes[16]; } CUuuid;

enum { MOST_DEVICES = 64 };

static struct {
  CUresult (*init)(unsigned);
  CUresult (*driver_version)(int *);
  CUresult (*count)(int *);
  CUresult (*device)(CUdevice *, int);
  CUresult (*uuid)(CUuuid *, CUdevice);
  CUresult (*pci)(char *, int, CUdevice);
  CUresult (*name)(char *, int, CUdevice);
  CUresult (*create)(CUcontext *, unsigned, CUdevice);
  CUresult (*destroy)(CUcontext);
  CUresult (*alloc)(CUdeviceptr *, size_t);
  CUresult (*release)(CUdeviceptr);
  CUresult (*error_name)(CUresult, const char **);
} cu;

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("cudaworker: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

// must ends the program where CUDA refuses something.
static void must(const char *what, CUresult result) {
  const char *name = NULL;
  if (result == 0) return;
  cu.error_name(result, &name);
  fail("%s: %s (%d)", what, name ? name : "unknown error", result);
}

// find looks up a function; the second name is that of older drivers.
static void find(void *library, void *into, const char *name, const char *older) {
  void *symbol = dlsym(library, name);
  if (!symbol && older) symbol = dlsym(library, older);
  if (!symbol) fail("libcuda.so.1 has no %s: the driver is too old", name);
  memcpy(into, &symbol, sizeof symbol); // C has no cast from data to functions
}

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) fail("%s: CUDA's library, which comes with the NVIDIA driver, is not here", dlerror());
  find(library, &cu.error_name, "cuGetErrorName", NULL);
  find(library, &cu.init, "cuInit", NULL);
  find(library, &cu.driver_version, "cuDriverGetVersion", NULL);
  find(library, &cu.count, "cuDeviceGetCount", NULL);
  find(library, &cu.device, "cuDeviceGet", NULL);
  find(library, &cu.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"); // the second names a MIG device's GPU
  find(library, &cu.pci, "cuDeviceGetPCIBusId", NULL);
  find(library, &cu.name, "cuDeviceGetName", NULL);
  find(library, &cu.create, "cuCtxCreate_v2", NULL);
  find(library, &cu.destroy, "cuCtxDestroy_v2", NULL);
  find(library, &cu.alloc, "cuMemAlloc_v2", NULL);
  find(library, &cu.release, "cuMemFree_v2", NULL);
}

// number reads digits. Not by strtoul: new C libraries call it by a name that old ones lack.
static unsigned long number(const char *text, const char **rest) {
  unsigned long n = 0;
  for (; *text >= '0' && *text <= '9' && n < 1000000000; text++) n = 10 * n + (unsigned long)(*text - '0');
  *rest = text;
  return n;
}

static size_t size(const char *text) {
  const char *unit;
  size_t n = number(text, &unit);
  if (unit != text && !strcmp(unit, "MiB")) return n << 20;
  if (unit != text && !strcmp(unit, "GiB")) return n << 30;
  fail("-bytes %s: not a size such as 64MiB", text);
}

static unsigned long seconds(const char *text) {
  const char *unit;
  unsigned long n = number(text, &unit);
  if (unit == text || strcmp(unit, "s")) fail("-for %s: not a time such as 3s", text);
  return n;
}

struct options {
  size_t bytes;
  unsigned long seconds;
  const char *until;
};

static struct options parse(int argc, char **argv) {
  struct options o = {(size_t)64 << 20, 3, NULL};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) fail("%s lacks its value", argv[i]);
    if (!strcmp(argv[i], "-bytes")) o.bytes = size(argv[i + 1]);
    else if (!strcmp(argv[i], "-for")) o.seconds = seconds(argv[i + 1]);
    else if (!strcmp(argv[i], "-until")) o.until = argv[i + 1];
    else fail("unknown argument %s", argv[i]);
  }
  return o;
}

// variable prints an environment variable as a JSON string; those printed are numbers, and
// anything else is left out.
static void variable(const char *field, const char *name) {
  const char *value = getenv(name);
  printf("\"%s\":\"", field);
  for (; value && *value; value++)
    if (*value >= '0' && *value <= '9') putchar(*value);
  fputs("\",", stdout);
}

// print_uuid prints a UUID as nvidia-smi does. CUDA tells 16 bytes, and MIG by the name.
static void print_uuid(CUdevice device) {
  CUuuid uuid;
  char name[256] = "";
  must("cuDeviceGetUuid", cu.uuid(&uuid, device));
  must("cuDeviceGetName", cu.name(name, sizeof name, device));
  fputs(strstr(name, " MIG ") ? "\"MIG-" : "\"GPU-", stdout);
  for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
  putchar('"');
}

// print_cpus prints where this process may run, as a list such as "0-3,8".
static void print_cpus(void) {
  enum { MOST = 8192 };
  size_t bytes = CPU_ALLOC_SIZE(MOST);
  cpu_set_t *set = CPU_ALLOC(MOST);
  const char *comma = "";
  fputs("\"cpus\":\"", stdout);
  if (set && sched_getaffinity(0, bytes, set) == 0) {
    for (int cpu = 0; cpu < MOST; cpu++) {
      int first = cpu;
      if (!CPU_ISSET_S(cpu, bytes, set)) continue;
      while (cpu + 1 < MOST && CPU_ISSET_S(cpu + 1, bytes, set)) cpu++;
      printf(first == cpu ? "%s%d" : "%s%d-%d", comma, first, cpu);
      comma = ",";
    }
  }
  putchar('"');
  CPU_FREE(set);
}

static void report(CUdevice chosen, int count, const char *pci) {
  int version = 0;
  cu.driver_version(&version);
  putchar('{');
  variable("rank", "RANK");
  variable("local_rank", "LOCAL_RANK");
  printf("\"pid\":%d,\"cuda\":%d,\"count\":%d,\"visible\":[", (int)getpid(), version, count);
  for (int i = 0; i < count && i < MOST_DEVICES; i++) {
    CUdevice device;
    must("cuDeviceGet", cu.device(&device, i));
    if (i > 0) putchar(',');
    print_uuid(device);
  }
  fputs("],\"uuid\":", stdout);
  print_uuid(chosen);
  printf(",\"pci\":\"%s\",", pci);
  print_cpus();
  puts("}");
  fflush(stdout);
}

static void stay(struct options o) {
  struct timespec now, pause = {0, 20 * 1000 * 1000};
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (time_t end = now.tv_sec + (time_t)o.seconds; now.tv_sec < end; clock_gettime(CLOCK_MONOTONIC, &now)) {
    if (o.until && access(o.until, F_OK) == 0) return;
    nanosleep(&pause, NULL);
  }
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  const char *local = getenv("LOCAL_RANK"), *rest;
  char pci[64] = "";
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory;
  int count = 0;
  load();
  must("cuInit", cu.init(0));
  must("cuDeviceGetCount", cu.count(&count));
  must("cuDeviceGet of LOCAL_RANK", cu.device(&device, local ? (int)number(local, &rest) : 0));
  must("cuDeviceGetPCIBusId", cu.pci(pci, sizeof pci, device));
  must("cuCtxCreate", cu.create(&context, 0, device));
  must("cuMemAlloc", cu.alloc(&memory, o.bytes));
  report(device, count, pci);
  stay(o);
  must("cuMemFree", cu.release(memory));
  must("cuCtxDestroy", cu.destroy(context));
  return 0;
}
