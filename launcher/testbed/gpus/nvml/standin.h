// A stand-in for NVIDIA's libnvidia-ml.so.1 that answers from a scenario file. See doc.go
// of the Go package that this folder is in.
#ifndef STANDIN_H
#define STANDIN_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS // old and new versions of a function side by side
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

// scenario.c: the file as a sorted list of paths and texts, "gpus.0.memory.total".
// All of these are for those who hold the lock.
const char *look(const char *format, ...) __attribute__((format(printf, 1, 2)));
int has(const char *format, ...) __attribute__((format(printf, 1, 2)));
int gpu_count(void);
int scenario_number(void); // another one for each scenario that was read
int port_count(int gpu); // -1: the product has no NVLink
int instance_count(int gpu);

// state.c: what processes hold, and what happened.
struct holder {
  unsigned int pid;
  char uuid[100], kind[16], name[256];
  unsigned long long bytes;
  int has_bytes;
  unsigned int gi, ci; // 0xFFFFFFFF: none
  int gpu, mig;        // mig: index of the instance, -1: none
};
int holders(struct holder **list); // to be freed
unsigned long long used_by(int gpu, int mig);
char *read_file(const char *path); // to be freed; NULL: cannot be read
const char *folder(void);
struct event {
  char name[64];
  int gpu;
  unsigned long long type, xid; // nvmlEventType...
};
int events(struct event **list); // to be freed

// json.c: a JSON text as paths and texts.
struct pair {
  char *path, *text;
};
struct table {
  struct pair *pairs;
  int count, room;
};
int json_read(struct table *into, const char *text); // 0: well formed
void table_free(struct table *t);
const char *table_get(const struct table *t, const char *path);

// device.c: handles, and what begins every function.
struct target {
  int gpu;
  int mig; // index of the MIG instance, -1: the GPU itself
};
struct lock {
  int held;
};
void unlock(struct lock *l);
nvmlReturn_t begin(const char *function, struct lock *l);
nvmlReturn_t begin_device(const char *function, struct lock *l, nvmlDevice_t device, struct target *t);
nvmlDevice_t handle_of(int gpu, int mig);
nvmlReturn_t alive(struct target t); // what a GPU that needs a reset answers
nvmlReturn_t put_text(char *into, unsigned int length, const char *text);
unsigned long long num(const char *text);

// BEGIN starts a function of the library as such, DEVICE one about a device, LIVE one that
// needs a device in good order. All take the lock until the function returns.
#define BEGIN                                             \
  struct lock lock_ __attribute__((cleanup(unlock))) = {0}; \
  nvmlReturn_t begun_ = begin(__func__, &lock_);          \
  if (begun_ != NVML_SUCCESS) return begun_
#define DEVICE                                                       \
  struct lock lock_ __attribute__((cleanup(unlock))) = {0};            \
  struct target t;                                                   \
  nvmlReturn_t begun_ = begin_device(__func__, &lock_, device, &t); \
  if (begun_ != NVML_SUCCESS) return begun_
#define LIVE \
  DEVICE;    \
  if (alive(t) != NVML_SUCCESS) return alive(t)
#define NEED(pointer) \
  if (!(pointer)) return NVML_ERROR_INVALID_ARGUMENT

#endif
