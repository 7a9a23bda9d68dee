// Handles, the lock, the scenario in force, and faults on purpose.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>

#include "standin.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct table scenario;
static struct stat seen;
static int started, number;

const char *look(const char *format, ...) {
  char path[512];
  va_list args;
  va_start(args, format);
  vsnprintf(path, sizeof path, format, args);
  va_end(args);
  return table_get(&scenario, path);
}

int has(const char *format, ...) {
  char path[512];
  va_list args;
  va_start(args, format);
  vsnprintf(path, sizeof path, format, args);
  va_end(args);
  return table_get(&scenario, path) != NULL;
}

unsigned long long num(const char *text) { return text ? strtoull(text, NULL, 10) : 0; }

int gpu_count(void) { return (int)num(look("gpus")); }
int instance_count(int gpu) { return (int)num(look("gpus.%d.mig.instances", gpu)); }
int port_count(int gpu) {
  const char *n = look("gpus.%d.ports", gpu);
  return n ? atoi(n) : -1;
}

const char *folder(void) {
  const char *named = getenv("TESTBED_GPUS");
  return named && *named ? named : "/run/testbed-gpus";
}

// refresh reads the scenario where it is another than at the last call.
static int refresh(void) {
  char path[512];
  struct stat now;
  snprintf(path, sizeof path, "%s/scenario.json", folder());
  if (stat(path, &now)) return -1;
  if (scenario.count && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
      now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
    return 0;
  char *text = read_file(path);
  struct table fresh = {0};
  int bad = !text || json_read(&fresh, text);
  free(text);
  if (bad) {
    table_free(&fresh);
    return -1;
  }
  table_free(&scenario);
  scenario = fresh;
  seen = now;
  number++;
  return 0;
}

int scenario_number(void) { return number; }

void unlock(struct lock *l) {
  if (l->held) pthread_mutex_unlock(&mutex);
  l->held = 0;
}

static void take(struct lock *l) {
  pthread_mutex_lock(&mutex);
  l->held = 1;
}

static void hang(const char *seconds) {
  struct timespec left = {.tv_sec = seconds ? atoi(seconds) : 60};
  if (left.tv_sec > 600) left.tv_sec = 600;
  while (nanosleep(&left, &left) && errno == EINTR) {
  }
}

// fault does what the scenario wants done to this function; gpu -1: about none.
static nvmlReturn_t fault(const char *function, int gpu, struct lock *l) {
  int faults = (int)num(look("faults"));
  for (int i = 0; i < faults; i++) {
    const char *name = look("faults.%d.function", i), *at = look("faults.%d.gpu", i);
    const char *what = look("faults.%d.do", i);
    if (!name || !what || (strcmp(name, "*") && strcmp(name, function)) || (at && atoi(at) != gpu)) continue;
    if (!strcmp(what, "error")) return (nvmlReturn_t)num(look("faults.%d.error", i));
    if (!strcmp(what, "crash")) {
      signal(SIGSEGV, SIG_DFL);
      raise(SIGSEGV);
    }
    if (!strcmp(what, "hang")) {
      unlock(l); // a driver that hangs for one thread does not stop the others
      hang(look("faults.%d.seconds", i));
      take(l);
    }
  }
  return NVML_SUCCESS;
}

nvmlReturn_t begin(const char *function, struct lock *l) {
  take(l);
  if (!started) return NVML_ERROR_UNINITIALIZED;
  if (refresh()) return NVML_ERROR_UNKNOWN;
  return fault(function, -1, l);
}

// Handles are numbers that no pointer is: 1 + 256 × GPU, plus 1 + index of a MIG device.
nvmlDevice_t handle_of(int gpu, int mig) {
  nvmlDevice_t device = {(struct nvmlDevice_st *)(uintptr_t)(0x100 * (gpu + 1) + mig + 1)};
  return device;
}

nvmlReturn_t begin_device(const char *function, struct lock *l, nvmlDevice_t device, struct target *t) {
  take(l);
  if (!started) return NVML_ERROR_UNINITIALIZED;
  if (refresh()) return NVML_ERROR_UNKNOWN;
  uintptr_t handle = (uintptr_t)device.handle;
  t->gpu = (int)(handle >> 8) - 1;
  t->mig = (int)(handle & 0xff) - 1;
  if (handle < 0x100 || t->gpu >= gpu_count() || t->mig >= instance_count(t->gpu)) return NVML_ERROR_INVALID_ARGUMENT;
  const char *state = look("gpus.%d.state", t->gpu);
  if (state && !strcmp(state, "lost")) return NVML_ERROR_GPU_IS_LOST;
  return fault(function, t->gpu, l);
}

nvmlReturn_t alive(struct target t) {
  const char *state = look("gpus.%d.state", t.gpu);
  return state && !strcmp(state, "needs_reset") ? NVML_ERROR_RESET_REQUIRED : NVML_SUCCESS;
}

nvmlReturn_t put_text(char *into, unsigned int length, const char *text) {
  NEED(into);
  if (!text) return NVML_ERROR_NOT_SUPPORTED;
  if (strlen(text) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(into, text);
  return NVML_SUCCESS;
}

static nvmlReturn_t start(void) {
  static const struct {
    const char *word;
    nvmlReturn_t is;
  } reasons[] = {{"driver_not_loaded", NVML_ERROR_DRIVER_NOT_LOADED},
                 {"mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
                 {"no_permission", NVML_ERROR_NO_PERMISSION},
                 {"unknown", NVML_ERROR_UNKNOWN}};
  struct lock l __attribute__((cleanup(unlock))) = {0};
  take(&l);
  if (refresh()) return NVML_ERROR_DRIVER_NOT_LOADED;
  const char *why = look("init");
  for (size_t i = 0; why && i < sizeof reasons / sizeof *reasons; i++)
    if (!strcmp(why, reasons[i].word)) return reasons[i].is;
  nvmlReturn_t wrong = fault("nvmlInit_v2", -1, &l);
  if (wrong == NVML_SUCCESS) started++;
  return wrong;
}

nvmlReturn_t nvmlInit(void) { return start(); }
nvmlReturn_t nvmlInit_v2(void) { return start(); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags; // NVML_INIT_FLAG_NO_GPUS and _NO_ATTACH change nothing here
  return start();
}

nvmlReturn_t nvmlShutdown(void) {
  BEGIN;
  started--;
  return NVML_SUCCESS;
}

// The words are those of nvidia-smi where it prints an error of the library.
const char *nvmlErrorString(nvmlReturn_t result) {
  static const char *words[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
      "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
      "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
      "GPU requires reset", "GPU access blocked by the operating system", "Driver/library version mismatch",
      "GPU is in use by another client", "Insufficient Memory", "No data", "Operation not available on vGPU with ECC enabled",
      "Insufficient Resources", "Frequency not supported", "Argument version mismatch", "Deprecated", "Not Ready", "GPU Not Found",
      "Invalid State", "Reset type not supported"};
  if (result < (nvmlReturn_t)(sizeof words / sizeof *words)) return words[result];
  return "Unknown Error";
}
