// Events: those that lie in the state folder as event-*.json and came after the set.
#include <poll.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

enum { MOST_GPUS = 64 };

struct set {
  int known, room;
  int changes; // tells of what is put into the folders; -1: it cannot
  char (*names)[64];
  unsigned long long types[MOST_GPUS]; // that are registered, by GPU
};

static const unsigned long long all_types = nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;

static int is_known(struct set *s, const char *name) {
  for (int i = 0; i < s->known; i++)
    if (!strcmp(s->names[i], name)) return 1;
  return 0;
}

static void know(struct set *s, const char *name) {
  if (s->known == s->room) {
    s->room = s->room ? 2 * s->room : 16;
    s->names = realloc(s->names, s->room * sizeof *s->names);
    if (!s->names) abort();
  }
  snprintf(s->names[s->known++], sizeof *s->names, "%s", name);
}

// watch tells of what is put into the folders. Waiting costs next to nothing, as with the
// driver: what a real one costs is measured by this library too.
static int watch(void) {
  char state[1024];
  snprintf(state, sizeof state, "%s/state", folder());
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (fd >= 0 && (inotify_add_watch(fd, state, IN_MOVED_TO) < 0 || inotify_add_watch(fd, folder(), IN_MOVED_TO) < 0)) {
    close(fd);
    return -1;
  }
  return fd;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *handle) {
  BEGIN;
  NEED(handle);
  struct set *s = calloc(1, sizeof *s);
  if (!s) abort();
  s->changes = watch();
  struct event *list;
  int n = events(&list);
  for (int i = 0; i < n; i++) know(s, list[i].name);
  free(list);
  handle->handle = (struct nvmlEventSet_st *)s;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle) {
  BEGIN;
  struct set *s = (struct set *)handle.handle;
  NEED(s);
  if (s->changes >= 0) close(s->changes);
  free(s->names);
  free(s);
  return NVML_SUCCESS;
}

static unsigned long long supported(int gpu) { return has("gpus.%d.no_events", gpu) ? 0 : all_types; }

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
  DEVICE;
  NEED(types);
  *types = supported(t.gpu);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle) {
  DEVICE;
  struct set *s = (struct set *)handle.handle;
  NEED(s && t.gpu < MOST_GPUS);
  if (types & ~supported(t.gpu)) return NVML_ERROR_NOT_SUPPORTED;
  s->types[t.gpu] |= types;
  return NVML_SUCCESS;
}

// next is the first event that was registered for and is not known. A set with a lost GPU
// says so once nothing else is left to tell.
static nvmlReturn_t next(struct set *s, nvmlEventData_t *data) {
  BEGIN;
  struct event *list;
  int n = events(&list);
  nvmlReturn_t result = NVML_ERROR_TIMEOUT;
  for (int i = 0; i < n && result != NVML_SUCCESS; i++) {
    if (is_known(s, list[i].name)) continue;
    know(s, list[i].name);
    if (list[i].gpu >= MOST_GPUS || !(s->types[list[i].gpu] & list[i].type)) continue;
    *data = (nvmlEventData_t){.device = handle_of(list[i].gpu, -1), .eventType = list[i].type,
                              .eventData = list[i].xid, .gpuInstanceId = 0xFFFFFFFF, .computeInstanceId = 0xFFFFFFFF};
    result = NVML_SUCCESS;
  }
  free(list);
  for (int gpu = 0; gpu < gpu_count() && gpu < MOST_GPUS && result == NVML_ERROR_TIMEOUT; gpu++) {
    const char *state = look("gpus.%d.state", gpu);
    if (s->types[gpu] && state && !strcmp(state, "lost")) result = NVML_ERROR_GPU_IS_LOST;
  }
  return result;
}

static long milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static nvmlReturn_t await(nvmlEventSet_t handle, nvmlEventData_t *data, unsigned int timeout) {
  NEED(handle.handle && data);
  long end = milliseconds() + timeout;
  struct pollfd changes = {.fd = ((struct set *)handle.handle)->changes, .events = POLLIN};
  nvmlReturn_t result;
  for (;;) {
    result = next((struct set *)handle.handle, data);
    long left = end - milliseconds();
    if (result != NVML_ERROR_TIMEOUT || left <= 0) break;
    char news[4096];
    poll(&changes, 1, changes.fd < 0 && left > 10 ? 10 : (int)left); // without a watch it only sleeps
    while (changes.fd >= 0 && read(changes.fd, news, sizeof news) > 0) {
    }
  }
  return result;
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t handle, nvmlEventData_t *data, unsigned int timeout) { return await(handle, data, timeout); }
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *data, unsigned int timeout) { return await(handle, data, timeout); }
