// Memory, who holds it, and how healthy it is.
#include "standin.h"

struct amounts {
  unsigned long long total, reserved, used;
};

static nvmlReturn_t amounts(struct target t, struct amounts *a) {
  const char *total = t.mig < 0 ? look("gpus.%d.memory.total", t.gpu) : look("gpus.%d.mig.instances.%d.memory", t.gpu, t.mig);
  if (!total) return NVML_ERROR_NOT_SUPPORTED;
  a->total = num(total);
  a->reserved = t.mig < 0 ? num(look("gpus.%d.memory.reserved", t.gpu)) : 0;
  a->used = used_by(t.gpu, t.mig);
  if (a->used > a->total - a->reserved) a->used = a->total - a->reserved;
  return NVML_SUCCESS;
}

// The first version counts as used what the driver keeps for itself too.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  LIVE;
  struct amounts a;
  NEED(memory);
  nvmlReturn_t result = amounts(t, &a);
  if (result == NVML_SUCCESS) *memory = (nvmlMemory_t){.total = a.total, .used = a.used + a.reserved, .free = a.total - a.used - a.reserved};
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  LIVE;
  struct amounts a;
  NEED(memory);
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlReturn_t result = amounts(t, &a);
  if (result != NVML_SUCCESS) return result;
  memory->total = a.total;
  memory->reserved = a.reserved;
  memory->used = a.used;
  memory->free = a.total - a.used - a.reserved;
  return NVML_SUCCESS;
}

// BAR1 spans the memory of cards for data centres, and shows what is in use.
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1) {
  LIVE;
  struct amounts a;
  NEED(bar1);
  nvmlReturn_t result = amounts(t, &a);
  if (result != NVML_SUCCESS) return result;
  *bar1 = (nvmlBAR1Memory_t){.bar1Total = a.total, .bar1Used = a.used, .bar1Free = a.total - a.used};
  return NVML_SUCCESS;
}

// of_kind tells whether a process belongs into a list: one that computes and draws is in
// two of them.
static int of_kind(const struct holder *h, const char *list) {
  return !strcmp(h->kind, list) || (!strcmp(h->kind, "both") && strcmp(list, "mps"));
}

struct list {
  struct holder *of;
  int count;
};

// select keeps the processes of a list that are on the device. A GPU in MIG mode shows
// those of all its instances.
static struct list chosen(struct target t, const char *kind) {
  struct list l;
  int all = holders(&l.of);
  l.count = 0;
  for (int i = 0; i < all; i++)
    if (l.of[i].gpu == t.gpu && (t.mig < 0 || l.of[i].mig == t.mig) && of_kind(&l.of[i], kind)) l.of[l.count++] = l.of[i];
  return l;
}

#define PROCESSES(function, kind, type, ...)                                                   \
  nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos) {               \
    LIVE;                                                                                      \
    NEED(count);                                                                               \
    struct list l = chosen(t, kind);                                                           \
    nvmlReturn_t result = (unsigned)l.count > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS; \
    for (int i = 0; result == NVML_SUCCESS && i < l.count; i++) {                              \
      struct holder h = l.of[i];                                                               \
      unsigned long long bytes = h.has_bytes ? h.bytes : (unsigned long long)NVML_VALUE_NOT_AVAILABLE; \
      infos[i] = (type){h.pid, bytes __VA_ARGS__};                                             \
    }                                                                                          \
    *count = (unsigned)l.count;                                                                \
    free(l.of);                                                                                \
    return result;                                                                             \
  }
#define INSTANCES , h.gi, h.ci
PROCESSES(nvmlDeviceGetComputeRunningProcesses, "compute", nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics", nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "mps", nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute", nvmlProcessInfo_v2_t, INSTANCES)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", nvmlProcessInfo_v2_t, INSTANCES)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", nvmlProcessInfo_v2_t, INSTANCES)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute", nvmlProcessInfo_t, INSTANCES)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", nvmlProcessInfo_t, INSTANCES)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", nvmlProcessInfo_t, INSTANCES)

static nvmlReturn_t put(unsigned long long *into, const char *text) {
  NEED(into);
  if (!text) return NVML_ERROR_NOT_SUPPORTED;
  *into = num(text);
  return NVML_SUCCESS;
}

static const char *uncorrected(struct target t, nvmlEccCounterType_t since) {
  return look("gpus.%d.ecc.%s_uncorrected", t.gpu, since == NVML_VOLATILE_ECC ? "volatile" : "aggregate");
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t since, unsigned long long *count) {
  LIVE;
  const char *is = uncorrected(t, since);
  return put(count, is && type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "0" : is);
}

// Of the sum, what is not in SRAM is in DRAM. Volta and older count neither apart.
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t since,
                                             nvmlMemoryLocation_t location, unsigned long long *count) {
  LIVE;
  const char *sum = uncorrected(t, since), *sram = look("gpus.%d.ecc.sram_volatile_uncorrected", t.gpu);
  if (!sum || !sram || (location != NVML_MEMORY_LOCATION_SRAM && location != NVML_MEMORY_LOCATION_DRAM)) return NVML_ERROR_NOT_SUPPORTED;
  nvmlReturn_t result = put(count, type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "0" : location == NVML_MEMORY_LOCATION_SRAM ? sram : sum);
  if (result == NVML_SUCCESS && type != NVML_MEMORY_ERROR_TYPE_CORRECTED && location == NVML_MEMORY_LOCATION_DRAM) *count -= num(sram);
  return result;
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
  LIVE;
  NEED(status);
  const char *sram = look("gpus.%d.ecc.sram_volatile_uncorrected", t.gpu);
  if (status->version != nvmlEccSramErrorStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (!sram) return NVML_ERROR_NOT_SUPPORTED;
  *status = (nvmlEccSramErrorStatus_t){.version = nvmlEccSramErrorStatus_v1, .volatileUncSecDed = num(sram), .aggregateUncSecDed = num(sram)};
  return NVML_SUCCESS;
}

static int yes(const char *text) { return text && !strcmp(text, "true"); }

// The header says of this query that it is not supported on GPUs in MIG mode with active
// instances.
static nvmlReturn_t remapped(struct target t) {
  int hidden = yes(look("gpus.%d.mig.enabled", t.gpu)) && instance_count(t.gpu) > 0;
  return hidden || !has("gpus.%d.remapped.correctable", t.gpu) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending, unsigned int *failed) {
  LIVE;
  NEED(correctable && uncorrectable && pending && failed);
  if (remapped(t) != NVML_SUCCESS) return remapped(t);
  *correctable = (unsigned)num(look("gpus.%d.remapped.correctable", t.gpu));
  *uncorrectable = (unsigned)num(look("gpus.%d.remapped.uncorrectable", t.gpu));
  *pending = yes(look("gpus.%d.remapped.pending", t.gpu));
  *failed = yes(look("gpus.%d.remapped.failed", t.gpu));
  return NVML_SUCCESS;
}

// 640 banks is what an A100 of 80 GB shows.
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values) {
  LIVE;
  NEED(values);
  if (remapped(t) != NVML_SUCCESS) return remapped(t);
  unsigned int used = (unsigned)num(look("gpus.%d.remapped.uncorrectable", t.gpu));
  int failed = yes(look("gpus.%d.remapped.failed", t.gpu));
  *values = (nvmlRowRemapperHistogramValues_t){.max = 640 - (used > 0), .partial = used > 0 && !failed, .none = failed};
  return NVML_SUCCESS;
}

// pages answers with made-up addresses: only their number is known.
static nvmlReturn_t pages(struct target t, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses, unsigned long long *times) {
  NEED(count);
  const char *is = look("gpus.%d.retired.%s_bit", t.gpu, cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? "double" : "single");
  if (!is) return NVML_ERROR_NOT_SUPPORTED;
  unsigned int n = (unsigned)num(is), room = *count;
  *count = n;
  if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; addresses && i < n; i++) {
    addresses[i] = 0x1000ULL * (i + 1);
    if (times) times[i] = 1700000000 + i;
  }
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses) {
  LIVE;
  return pages(t, cause, count, addresses, NULL);
}
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses, unsigned long long *times) {
  LIVE;
  return pages(t, cause, count, addresses, times);
}

// recovery is the number of the action, -1 where the driver does not tell it.
static int recovery(struct target t) {
  static const char *names[] = {"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot"};
  const char *is = look("gpus.%d.recovery", t.gpu);
  for (int i = 0; is && i < (int)(sizeof names / sizeof *names); i++)
    if (!strcmp(is, names[i])) return i;
  return -1;
}

static const char *flag(const char *text) { return !text ? NULL : yes(text) ? "1" : "0"; }

// field is the text of a field, NULL where the GPU does not support it.
static const char *field(struct target t, unsigned int id, char *made, size_t room) {
  switch (id) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING: return flag(look("gpus.%d.ecc.enabled", t.gpu));
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL: return uncorrected(t, NVML_VOLATILE_ECC);
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL: return uncorrected(t, NVML_AGGREGATE_ECC);
    case NVML_FI_DEV_RETIRED_SBE: return look("gpus.%d.retired.single_bit", t.gpu);
    case NVML_FI_DEV_RETIRED_DBE: return look("gpus.%d.retired.double_bit", t.gpu);
    case NVML_FI_DEV_RETIRED_PENDING: return flag(look("gpus.%d.retired.pending", t.gpu));
    case NVML_FI_DEV_REMAPPED_COR: return remapped(t) ? NULL : look("gpus.%d.remapped.correctable", t.gpu);
    case NVML_FI_DEV_REMAPPED_UNC: return remapped(t) ? NULL : look("gpus.%d.remapped.uncorrectable", t.gpu);
    case NVML_FI_DEV_REMAPPED_PENDING: return remapped(t) ? NULL : flag(look("gpus.%d.remapped.pending", t.gpu));
    case NVML_FI_DEV_REMAPPED_FAILURE: return remapped(t) ? NULL : flag(look("gpus.%d.remapped.failed", t.gpu));
    case NVML_FI_DEV_NVLINK_LINK_COUNT: return look("gpus.%d.ports", t.gpu);
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: return has("gpus.%d.ports", t.gpu) ? look("gpus.%d.port_speed", t.gpu) : NULL;
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
      if (recovery(t) < 0) return NULL;
      snprintf(made, room, "%d", recovery(t));
      return made;
    default: return NULL;
  }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  DEVICE; // also of a GPU that needs a reset: that is what its recovery action says
  NEED(values && count > 0);
  for (int i = 0; i < count; i++) {
    char made[16];
    const char *is = field(t, values[i].fieldId, made, sizeof made);
    values[i].nvmlReturn = is ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    values[i].value.ullVal = num(is);
  }
  return NVML_SUCCESS;
}
