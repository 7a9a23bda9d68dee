// NVLink, the NVSwitch fabric, and how far GPUs are from each other.
#include "standin.h"

nvmlReturn_t fill_pci(const char *text, nvmlPciInfo_t *pci, unsigned int id);

static int mig_mode(int gpu) {
  const char *is = look("gpus.%d.mig.enabled", gpu);
  return is && !strcmp(is, "true");
}

// port tells whether there is such a port, and where it leads: NULL where it is inactive.
static nvmlReturn_t port(struct target t, unsigned int link, const char **peer) {
  if (port_count(t.gpu) < 0 || mig_mode(t.gpu)) return NVML_ERROR_NOT_SUPPORTED;
  if (link >= (unsigned)port_count(t.gpu)) return NVML_ERROR_INVALID_ARGUMENT;
  *peer = look("gpus.%d.ports.%u.peer", t.gpu, link);
  if (*peer && !**peer) *peer = NULL;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
  LIVE;
  const char *peer;
  NEED(active);
  nvmlReturn_t result = port(t, link, &peer);
  if (result == NVML_SUCCESS) *active = peer ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability, unsigned int *is) {
  LIVE;
  const char *peer;
  NEED(is);
  nvmlReturn_t result = port(t, link, &peer);
  if (result == NVML_SUCCESS) *is = capability == NVML_NVLINK_CAP_VALID || (peer && capability != NVML_NVLINK_CAP_SLI_BRIDGE);
  return result;
}

static nvmlReturn_t remote(struct target t, unsigned int link, nvmlPciInfo_t *pci) {
  const char *peer;
  nvmlReturn_t result = port(t, link, &peer);
  if (result != NVML_SUCCESS) return result;
  return peer ? fill_pci(peer, pci, 0) : NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
  LIVE;
  return remote(t, link, pci);
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
  LIVE;
  return remote(t, link, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
  LIVE;
  const char *peer;
  NEED(type);
  nvmlReturn_t result = port(t, link, &peer);
  if (result != NVML_SUCCESS) return result;
  if (!peer) return NVML_ERROR_NOT_SUPPORTED;
  *type = has("gpus.%d.ports.%u.switch", t.gpu, link) ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
  LIVE;
  const char *peer;
  NEED(version);
  nvmlReturn_t result = port(t, link, &peer);
  if (result == NVML_SUCCESS) *version = 3;
  return result;
}

// bonded counts the NVLinks that join two GPUs.
static int bonded(int a, int b) {
  int direct = 0, switched[2] = {0};
  const char *pci = look("gpus.%d.pci", b);
  if (mig_mode(a) || mig_mode(b)) return 0;
  for (int side = 0; side < 2; side++)
    for (int i = 0, gpu = side ? b : a; i < port_count(gpu); i++) {
      const char *peer = look("gpus.%d.ports.%d.peer", gpu, i);
      if (!peer) continue;
      if (has("gpus.%d.ports.%d.switch", gpu, i))
        switched[side]++;
      else if (!side && pci && !strcmp(peer, pci))
        direct++;
    }
  return direct ? direct : switched[0] < switched[1] ? switched[0] : switched[1];
}

static nvmlGpuTopologyLevel_t level(int a, int b) {
  static const struct {
    const char *way;
    nvmlGpuTopologyLevel_t is;
  } levels[] = {{"X", NVML_TOPOLOGY_INTERNAL},    {"PIX", NVML_TOPOLOGY_SINGLE}, {"PXB", NVML_TOPOLOGY_MULTIPLE},
                {"PHB", NVML_TOPOLOGY_HOSTBRIDGE}, {"NODE", NVML_TOPOLOGY_NODE}};
  const char *way = look("ways.%d.%d", a, b);
  for (size_t i = 0; way && i < sizeof levels / sizeof *levels; i++)
    if (!strcmp(way, levels[i].way)) return levels[i].is;
  return NVML_TOPOLOGY_SYSTEM;
}

// other makes the second device of a pair out of a handle.
static nvmlReturn_t other(nvmlDevice_t device, struct target *t) {
  uintptr_t handle = (uintptr_t)device.handle;
  t->gpu = (int)(handle >> 8) - 1;
  if (handle < 0x100 || t->gpu >= gpu_count()) return NVML_ERROR_INVALID_ARGUMENT;
  const char *state = look("gpus.%d.state", t->gpu);
  return state && !strcmp(state, "lost") ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t second, nvmlGpuTopologyLevel_t *way) {
  DEVICE;
  struct target b;
  NEED(way);
  nvmlReturn_t result = other(second, &b);
  if (result == NVML_SUCCESS) *way = level(t.gpu, b.gpu);
  return result;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t way, unsigned int *count, nvmlDevice_t *devices) {
  DEVICE;
  NEED(count);
  unsigned int room = *count, n = 0;
  for (int gpu = 0; gpu < gpu_count(); gpu++) {
    if (gpu == t.gpu || level(t.gpu, gpu) != way) continue;
    if (devices && n < room) devices[n] = handle_of(gpu, -1);
    n++;
  }
  *count = n;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status) {
  DEVICE;
  struct target b;
  NEED(status);
  nvmlReturn_t result = other(second, &b);
  if (result != NVML_SUCCESS) return result;
  const char *refused = look("p2p");
  int links = bonded(t.gpu, b.gpu);
  *status = NVML_P2P_STATUS_OK;
  if (index == NVML_P2P_CAPS_INDEX_NVLINK && !links) *status = NVML_P2P_STATUS_NOT_SUPPORTED;
  if (index != NVML_P2P_CAPS_INDEX_NVLINK && !links && refused)
    *status = !strcmp(refused, "GNS") ? NVML_P2P_STATUS_GPU_NOT_SUPPORTED : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

// fabric is the state; one that completed with an error has a status.
static nvmlReturn_t fabric(struct target t, nvmlGpuFabricState_t *state, nvmlReturn_t *status) {
  const char *is = look("gpus.%d.fabric", t.gpu);
  *status = NVML_SUCCESS;
  if (!is) return NVML_ERROR_NOT_SUPPORTED;
  *state = !strcmp(is, "not_started") ? NVML_GPU_FABRIC_STATE_NOT_STARTED
           : !strcmp(is, "in_progress") ? NVML_GPU_FABRIC_STATE_IN_PROGRESS
                                        : NVML_GPU_FABRIC_STATE_COMPLETED;
  if (!strcmp(is, "failed")) *status = NVML_ERROR_INSUFFICIENT_RESOURCES;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
  LIVE;
  NEED(info);
  *info = (nvmlGpuFabricInfo_t){0};
  return fabric(t, &info->state, &info->status);
}

// The versions of this structure share their beginning; the caller says how long his is.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
  LIVE;
  NEED(info);
  if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memset(info->clusterUuid, 0, sizeof info->clusterUuid);
  info->cliqueId = 0;
  info->healthMask = 0;
  if (info->version == nvmlGpuFabricInfo_v3) info->healthSummary = NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED;
  return fabric(t, &info->state, &info->status);
}
