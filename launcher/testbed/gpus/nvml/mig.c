// MIG devices.
#include "standin.h"

static int yes(const char *text) { return text && !strcmp(text, "true"); }

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
  DEVICE;
  NEED(current && pending);
  const char *is = look("gpus.%d.mig.enabled", t.gpu);
  if (!is) return NVML_ERROR_NOT_SUPPORTED;
  *current = yes(is) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  *pending = yes(look("gpus.%d.mig.pending", t.gpu)) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

// Up to seven compute instances: "Returns zero if MIG is not supported or enabled."
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
  DEVICE;
  NEED(count);
  *count = yes(look("gpus.%d.mig.enabled", t.gpu)) ? 7 : 0;
  return NVML_SUCCESS;
}

// The place in the scenario's list is not the index: indices may be free.
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
  DEVICE;
  NEED(mig);
  if (!yes(look("gpus.%d.mig.enabled", t.gpu))) return NVML_ERROR_NOT_SUPPORTED;
  if (index >= 7) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < instance_count(t.gpu); i++)
    if (num(look("gpus.%d.mig.instances.%d.index", t.gpu, i)) == index) {
      *mig = handle_of(t.gpu, i);
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
  DEVICE;
  NEED(is);
  *is = t.mig >= 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
  DEVICE;
  NEED(parent);
  if (t.mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *parent = handle_of(t.gpu, -1);
  return NVML_SUCCESS;
}

static nvmlReturn_t id(struct target t, const char *of, unsigned int *into) {
  NEED(into);
  if (t.mig < 0) return NVML_ERROR_NOT_SUPPORTED;
  *into = (unsigned)num(look("gpus.%d.mig.instances.%d.%s", t.gpu, t.mig, of));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *gi) {
  DEVICE;
  return id(t, "gi", gi);
}
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *ci) {
  DEVICE;
  return id(t, "ci", ci);
}

// slices reads a profile: "3g.40gb", or "1c.3g.40gb" where a compute instance has not all.
static void slices(const char *profile, unsigned int *gpu, unsigned int *compute) {
  *gpu = *compute = 0;
  if (!profile || sscanf(profile, "%uc.%ug", compute, gpu) == 2) return;
  *compute = 0;
  if (sscanf(profile, "%ug", gpu) == 1) *compute = *gpu;
}

static nvmlReturn_t attributes(struct target t, nvmlDeviceAttributes_t *a) {
  NEED(a);
  if (t.mig < 0) return NVML_ERROR_NOT_SUPPORTED;
  *a = (nvmlDeviceAttributes_t){.memorySizeMB = num(look("gpus.%d.mig.instances.%d.memory", t.gpu, t.mig)) >> 20};
  slices(look("gpus.%d.mig.instances.%d.profile", t.gpu, t.mig), &a->gpuInstanceSliceCount, &a->computeInstanceSliceCount);
  a->multiprocessorCount = 14 * a->computeInstanceSliceCount;
  a->sharedCopyEngineCount = a->gpuInstanceSliceCount;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *a) {
  DEVICE;
  return attributes(t, a);
}
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *a) {
  DEVICE;
  return attributes(t, a);
}

// GPU instances have handles of their own: like those of devices, with a high bit.
#define GPU_INSTANCE 0x10000000
static nvmlGpuInstance_t gi_handle(int gpu, unsigned int gi) {
  nvmlGpuInstance_t handle = {(struct nvmlGpuInstance_st *)(uintptr_t)(GPU_INSTANCE + 0x100 * gpu + gi)};
  return handle;
}

// profile is the number of a profile, by the slices: NVML_GPU_INSTANCE_PROFILE_…
static unsigned int profile(int gpu, int i) {
  static const unsigned int of[] = {0xff, NVML_GPU_INSTANCE_PROFILE_1_SLICE, NVML_GPU_INSTANCE_PROFILE_2_SLICE, NVML_GPU_INSTANCE_PROFILE_3_SLICE,
                                    NVML_GPU_INSTANCE_PROFILE_4_SLICE, 0xff, NVML_GPU_INSTANCE_PROFILE_6_SLICE, NVML_GPU_INSTANCE_PROFILE_7_SLICE};
  unsigned int slice, compute;
  slices(look("gpus.%d.mig.instances.%d.profile", gpu, i), &slice, &compute);
  return slice < sizeof of / sizeof *of ? of[slice] : 0xff;
}

// instance finds the first MIG device of a GPU instance, -1 where there is none.
static int instance(int gpu, unsigned int gi) {
  for (int i = 0; i < instance_count(gpu); i++)
    if (num(look("gpus.%d.mig.instances.%d.gi", gpu, i)) == gi) return i;
  return -1;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int gi, nvmlGpuInstance_t *handle) {
  DEVICE;
  NEED(handle);
  if (!yes(look("gpus.%d.mig.enabled", t.gpu))) return NVML_ERROR_NOT_SUPPORTED;
  if (instance(t.gpu, gi) < 0) return NVML_ERROR_NOT_FOUND;
  *handle = gi_handle(t.gpu, gi);
  return NVML_SUCCESS;
}

// The ids of profiles are here the numbers of profiles.
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *handles, unsigned int *count) {
  DEVICE;
  NEED(handles && count);
  if (!yes(look("gpus.%d.mig.enabled", t.gpu))) return NVML_ERROR_NOT_SUPPORTED;
  *count = 0;
  for (int i = 0; i < instance_count(t.gpu); i++) {
    unsigned int gi = (unsigned)num(look("gpus.%d.mig.instances.%d.gi", t.gpu, i));
    if (profile(t.gpu, i) == profileId && instance(t.gpu, gi) == i) handles[(*count)++] = gi_handle(t.gpu, gi);
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
  BEGIN;
  NEED(info);
  uintptr_t number = (uintptr_t)handle.handle;
  int gpu = (int)(number - GPU_INSTANCE) >> 8;
  unsigned int gi = number & 0xff;
  if (number < GPU_INSTANCE || gpu >= gpu_count() || instance(gpu, gi) < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *info = (nvmlGpuInstanceInfo_t){.device = handle_of(gpu, -1), .id = gi, .profileId = profile(gpu, instance(gpu, gi))};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *info) {
  static const unsigned int slice[] = {1, 2, 3, 4, 7, 8, 6};
  DEVICE;
  NEED(info);
  if (!has("gpus.%d.mig.enabled", t.gpu) || number >= sizeof slice / sizeof *slice || slice[number] > 7) return NVML_ERROR_NOT_SUPPORTED;
  unsigned int n = slice[number];
  unsigned long long eighths = n == 1 ? 1 : n == 2 ? 2 : n < 5 ? 4 : 8, total = num(look("gpus.%d.memory.total", t.gpu)) >> 20;
  *info = (nvmlGpuInstanceProfileInfo_t){.id = number, .sliceCount = n, .instanceCount = 7 / n, .multiprocessorCount = 14 * n,
                                         .copyEngineCount = n, .memorySizeMB = total * eighths / 8};
  return NVML_SUCCESS;
}
