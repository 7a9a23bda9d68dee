// As much of libcuda.so.1 as the worker calls: two devices, the second of MIG. It refuses
// what $FAKE_CUDA_REFUSES names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int result(const char *function) {
  const char *refuses = getenv("FAKE_CUDA_REFUSES");
  return refuses && !strcmp(refuses, function) ? 46 : 0;
}

int cuGetErrorName(int error, const char **name) {
  *name = error == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR_DEVICE_UNAVAILABLE";
  return 0;
}

int cuInit(unsigned flags) { return flags ? 1 : result("cuInit"); }

int cuDriverGetVersion(int *version) {
  *version = 12080;
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = 2;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + 7;
  return ordinal < 2 ? 0 : 101;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x10 * (device - 7) + i);
  return 0;
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
  snprintf(text, (size_t)length, "0000:%02X:00.0", 0x0f + device - 7);
  return 0;
}

int cuDeviceGetName(char *text, int length, int device) {
  snprintf(text, (size_t)length, device == 7 ? "NVIDIA H200" : "NVIDIA H200 MIG 1g.18gb");
  return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
  *context = NULL;
  return flags || device < 7 ? 1 : result("cuCtxCreate");
}

int cuCtxDestroy_v2(void *context) { return context ? 1 : 0; }

int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
  *memory = bytes;
  return result("cuMemAlloc");
}

int cuMemFree_v2(unsigned long long memory) { return memory == 96 << 20 ? 0 : 1; }
