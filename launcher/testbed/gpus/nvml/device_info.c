// What a device is, and how it is set.
#include "standin.h"

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
  DEVICE;
  if (t.mig >= 0) return put_text(uuid, length, look("gpus.%d.mig.instances.%d.uuid", t.gpu, t.mig));
  return put_text(uuid, length, look("gpus.%d.uuid", t.gpu));
}

// A MIG device's name is that of its GPU and its profile: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
  DEVICE;
  const char *of = look("gpus.%d.name", t.gpu), *profile = look("gpus.%d.mig.instances.%d.profile", t.gpu, t.mig);
  char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
  if (t.mig < 0) return put_text(name, length, of);
  snprintf(text, sizeof text, "%s MIG %s", of ? of : "", profile ? profile : "");
  return put_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
  DEVICE;
  return put_text(serial, length, look("gpus.%d.serial", t.gpu));
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
  DEVICE;
  return put_text(version, length, look("gpus.%d.vbios", t.gpu));
}

static nvmlReturn_t index_of(struct target t, unsigned int *index) {
  NEED(index);
  *index = (unsigned int)(t.mig >= 0 ? t.mig : t.gpu);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  DEVICE;
  return index_of(t, index);
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
  DEVICE;
  return index_of(t, minor);
}

static nvmlReturn_t put_number(unsigned int *into, const char *text) {
  NEED(into);
  if (!text) return NVML_ERROR_NOT_SUPPORTED;
  *into = (unsigned int)num(text);
  return NVML_SUCCESS;
}

#define PCIE(function, field)                                            \
  nvmlReturn_t function(nvmlDevice_t device, unsigned int *value) {      \
    DEVICE;                                                              \
    return put_number(value, look("gpus.%d.pcie." field, t.gpu));        \
  }
PCIE(nvmlDeviceGetCurrPcieLinkGeneration, "generation")
PCIE(nvmlDeviceGetMaxPcieLinkGeneration, "generation_max")
PCIE(nvmlDeviceGetGpuMaxPcieLinkGeneration, "generation_max")
PCIE(nvmlDeviceGetCurrPcieLinkWidth, "width")
PCIE(nvmlDeviceGetMaxPcieLinkWidth, "width_max")

static nvmlReturn_t put_state(nvmlEnableState_t *into, const char *text) {
  NEED(into);
  if (!text) return NVML_ERROR_NOT_SUPPORTED;
  *into = strcmp(text, "true") ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
  DEVICE;
  return put_state(mode, look("gpus.%d.persistence", t.gpu));
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
  LIVE;
  nvmlReturn_t result = put_state(pending, look("gpus.%d.ecc.enabled", t.gpu));
  return result == NVML_SUCCESS ? put_state(current, look("gpus.%d.ecc.enabled", t.gpu)) : result;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
  LIVE;
  return put_state(pending, look("gpus.%d.retired.pending", t.gpu));
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
  LIVE;
  NEED(mode);
  const char *is = look("gpus.%d.compute_mode", t.gpu);
  if (!is) return NVML_ERROR_NOT_SUPPORTED;
  *mode = !strcmp(is, "exclusive_process") ? NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
          : !strcmp(is, "prohibited")      ? NVML_COMPUTEMODE_PROHIBITED
                                           : NVML_COMPUTEMODE_DEFAULT;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  DEVICE;
  NEED(major && minor);
  const char *is = look("gpus.%d.capability", t.gpu);
  return is && sscanf(is, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
  static const struct {
    const char *name;
    nvmlDeviceArchitecture_t is;
  } known[] = {{"Volta", NVML_DEVICE_ARCH_VOLTA},   {"Turing", NVML_DEVICE_ARCH_TURING}, {"Ampere", NVML_DEVICE_ARCH_AMPERE},
               {"Ada Lovelace", NVML_DEVICE_ARCH_ADA}, {"Hopper", NVML_DEVICE_ARCH_HOPPER}};
  DEVICE;
  NEED(architecture);
  const char *is = look("gpus.%d.architecture", t.gpu);
  *architecture = NVML_DEVICE_ARCH_UNKNOWN;
  for (size_t i = 0; is && i < sizeof known / sizeof *known; i++)
    if (!strcmp(is, known[i].name)) *architecture = known[i].is;
  return NVML_SUCCESS;
}

static int busy(struct target t) {
  struct holder *list;
  int n = holders(&list), mine = 0;
  for (int i = 0; i < n; i++) mine += list[i].gpu == t.gpu;
  free(list);
  return mine;
}

// Where the scenario has no figures: those of an idle GPU, or of one that works.
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  LIVE;
  NEED(rates);
  const char *mig = look("gpus.%d.mig.enabled", t.gpu);
  if (t.mig >= 0 || (mig && !strcmp(mig, "true"))) return NVML_ERROR_NOT_SUPPORTED;
  const char *gpu = look("gpus.%d.utilization.gpu", t.gpu);
  if (gpu) {
    *rates = (nvmlUtilization_t){(unsigned int)num(gpu), (unsigned int)num(look("gpus.%d.utilization.memory", t.gpu))};
    return NVML_SUCCESS;
  }
  int works = busy(t);
  *rates = (nvmlUtilization_t){works ? 100 : 0, works ? 40 : 0};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
  LIVE;
  return put_number(milliwatts, busy(t) ? "310000" : "61000");
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
  LIVE;
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return put_number(celsius, busy(t) ? "63" : "31");
}

static const struct {
  const char *name;
  unsigned long long bit;
} reasons[] = {{"hw_slowdown", nvmlClocksThrottleReasonHwSlowdown},
               {"hw_thermal", nvmlClocksThrottleReasonHwThermalSlowdown},
               {"hw_power_brake", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
               {"sw_thermal", nvmlClocksEventReasonSwThermalSlowdown},
               {"sw_power_cap", nvmlClocksEventReasonSwPowerCap}};

static nvmlReturn_t throttled(struct target t, unsigned long long *mask) {
  NEED(mask);
  if (!has("gpus.%d.throttled", t.gpu)) return NVML_ERROR_NOT_SUPPORTED;
  int n = (int)num(look("gpus.%d.throttled", t.gpu));
  *mask = !n && !busy(t) ? nvmlClocksEventReasonGpuIdle : 0;
  for (int i = 0; i < n; i++)
    for (size_t k = 0; k < sizeof reasons / sizeof *reasons; k++)
      if (!strcmp(look("gpus.%d.throttled.%d", t.gpu, i), reasons[k].name)) *mask |= reasons[k].bit;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *mask) {
  LIVE;
  return throttled(t, mask);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *mask) {
  LIVE;
  return throttled(t, mask);
}

// cpus turns a list such as "0-15,128-143" into bits.
static void cpus(const char *list, unsigned long *set, unsigned int words) {
  while (list && *list) {
    char *end;
    unsigned long first = strtoul(list, &end, 10), last = first;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    for (; first <= last; first++)
      if (first / (8 * sizeof(long)) < words) set[first / (8 * sizeof(long))] |= 1UL << first % (8 * sizeof(long));
    list = *end == ',' ? end + 1 : NULL;
  }
}

static nvmlReturn_t affinity(struct target t, unsigned int words, unsigned long *set) {
  NEED(set);
  memset(set, 0, words * sizeof *set);
  const char *numa = look("gpus.%d.slot.numa", t.gpu);
  int nodes = (int)num(look("nodes"));
  for (int i = 0; numa && i < nodes; i++)
    if (!strcmp(numa, look("nodes.%d.id", i)) || *numa == '-') cpus(look("nodes.%d.cpus", i), set, words);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set) {
  DEVICE;
  return affinity(t, words, set);
}
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *set, nvmlAffinityScope_t scope) {
  DEVICE;
  (void)scope;
  return affinity(t, words, set);
}
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set, nvmlAffinityScope_t scope) {
  DEVICE;
  (void)scope;
  NEED(set && words);
  memset(set, 0, words * sizeof *set);
  const char *numa = look("gpus.%d.slot.numa", t.gpu);
  if (!numa || *numa == '-') return NVML_ERROR_NOT_SUPPORTED;
  cpus(numa, set, words);
  return NVML_SUCCESS;
}
