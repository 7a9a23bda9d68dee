// The machine: versions, counting, and how a device is found.
#include <ctype.h>

#include "standin.h"

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  BEGIN;
  return put_text(version, length, look("driver"));
}

// NVML's own version is the driver's with CUDA's first number before it.
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
  BEGIN;
  char text[96];
  const char *cuda = look("cuda"), *driver = look("driver");
  snprintf(text, sizeof text, "%d.%s", cuda ? atoi(cuda) : 0, driver ? driver : "");
  return put_text(version, length, text);
}

static nvmlReturn_t cuda_version(int *version) {
  NEED(version);
  int major = 0, minor = 0;
  const char *text = look("cuda");
  if (!text || sscanf(text, "%d.%d", &major, &minor) != 2) return NVML_ERROR_LIBRARY_NOT_FOUND;
  *version = 1000 * major + 10 * minor;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  BEGIN;
  return cuda_version(version);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  BEGIN;
  return cuda_version(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
  BEGIN;
  NEED(name && length);
  struct holder *list;
  int n = holders(&list);
  nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
  for (int i = 0; i < n; i++)
    if (list[i].pid == pid && list[i].name[0]) {
      snprintf(name, length, "%s", list[i].name);
      result = NVML_SUCCESS;
    }
  free(list);
  return result;
}

static nvmlReturn_t count(unsigned int *number) {
  NEED(number);
  *number = (unsigned int)gpu_count();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int *number) {
  BEGIN;
  return count(number);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *number) {
  BEGIN;
  return count(number);
}

// hand out a handle: of a lost GPU there is none.
static nvmlReturn_t hand(int gpu, int mig, nvmlDevice_t *device) {
  NEED(device);
  if (gpu < 0) return NVML_ERROR_NOT_FOUND;
  const char *state = look("gpus.%d.state", gpu);
  if (state && !strcmp(state, "lost")) return NVML_ERROR_GPU_IS_LOST;
  *device = handle_of(gpu, mig);
  return NVML_SUCCESS;
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device) {
  if (index >= (unsigned int)gpu_count()) return NVML_ERROR_INVALID_ARGUMENT;
  return hand((int)index, -1, device);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
  BEGIN;
  return by_index(index, device);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  BEGIN;
  return by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  BEGIN;
  NEED(uuid);
  for (int gpu = 0; gpu < gpu_count(); gpu++) {
    const char *is = look("gpus.%d.uuid", gpu);
    if (is && !strcmp(is, uuid)) return hand(gpu, -1, device);
    for (int i = 0; i < instance_count(gpu); i++) {
      is = look("gpus.%d.mig.instances.%d.uuid", gpu, i);
      if (is && !strcmp(is, uuid)) return hand(gpu, i, device);
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
  BEGIN;
  NEED(serial);
  for (int gpu = 0; gpu < gpu_count(); gpu++) {
    const char *is = look("gpus.%d.serial", gpu);
    if (is && !strcmp(is, serial)) return hand(gpu, -1, device);
  }
  return NVML_ERROR_NOT_FOUND;
}

struct address {
  unsigned int domain, bus, device, function;
};

static int address(const char *text, struct address *a) {
  *a = (struct address){0};
  if (!text) return 0;
  if (sscanf(text, "%x:%x:%x.%x", &a->domain, &a->bus, &a->device, &a->function) >= 3) return 1;
  a->domain = 0;
  return sscanf(text, "%x:%x.%x", &a->bus, &a->device, &a->function) >= 2;
}

static nvmlReturn_t by_pci(const char *pci, nvmlDevice_t *device) {
  struct address wanted, is;
  if (!address(pci, &wanted)) return NVML_ERROR_INVALID_ARGUMENT;
  for (int gpu = 0; gpu < gpu_count(); gpu++)
    if (address(look("gpus.%d.pci", gpu), &is) && is.domain == wanted.domain && is.bus == wanted.bus && is.device == wanted.device)
      return hand(gpu, -1, device);
  return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *device) {
  BEGIN;
  return by_pci(pci, device);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device) {
  BEGIN;
  return by_pci(pci, device);
}

// fill_pci writes an address as NVML does: capital letters, the domain with eight digits,
// and with four in the old field.
nvmlReturn_t fill_pci(const char *text, nvmlPciInfo_t *pci, unsigned int id) {
  struct address a;
  NEED(pci);
  if (!address(text, &a)) return NVML_ERROR_NOT_SUPPORTED;
  *pci = (nvmlPciInfo_t){.domain = a.domain, .bus = a.bus, .device = a.device, .pciDeviceId = id};
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%X", a.domain & 0xffff, a.bus & 0xff, a.device & 0x1f, a.function & 7);
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%X", a.domain, a.bus & 0xff, a.device & 0x1f, a.function & 7);
  return NVML_SUCCESS;
}

static nvmlReturn_t pci_of(struct target t, nvmlPciInfo_t *pci) {
  const char *device = look("gpus.%d.slot.device", t.gpu), *vendor = look("gpus.%d.slot.vendor", t.gpu);
  unsigned int id = device && vendor ? (unsigned int)(strtoul(device, NULL, 16) << 16 | strtoul(vendor, NULL, 16)) : 0;
  return fill_pci(look("gpus.%d.pci", t.gpu), pci, id);
}
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  DEVICE;
  return pci_of(t, pci);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  DEVICE;
  return pci_of(t, pci);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  DEVICE;
  return pci_of(t, pci);
}
